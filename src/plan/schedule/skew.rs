//! Which release goes first: no kubelet and no kube-proxy is newer than any API server. Pure.

use super::roll;
use crate::{
    actual::ApiView,
    model::{Component, ImageVersion, NodeName, image_version},
    plan::{
        Note,
        diff::{Diff, HostDiff, Need},
    },
};

/// When what is new on a node may start, of the release that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Every API server has it.
    Now,
    /// They get it in this plan.
    AfterApiServers,
    /// One does not get it yet; why.
    NotYet(String),
}

/// The turn of kubelets and kube-proxies of the wanted release.
pub(super) fn turn(diff: &Diff<'_>) -> Turn {
    let component = Component::ApiServer;
    let mut turn = Turn::Now;
    for (name, host) in &diff.hosts {
        let Need::Replace(cause, ..) = host.need(component) else {
            continue;
        };
        if !is_newer(component, host) {
            continue;
        }
        match roll::held_back(component, *cause, name, diff) {
            None => turn = Turn::AfterApiServers,
            Some(why) => {
                return Turn::NotYet(format!(
                    "it would be newer than the API server on `{name}`, which is not replaced \
                     yet: {why}"
                ));
            }
        }
    }
    turn
}

/// Why what is there is not replaced yet, if it is newer than an API server that stays.
pub(super) fn held_back(component: Component, name: &NodeName, diff: &Diff<'_>) -> Option<String> {
    let host = diff.hosts.get(name)?;
    if !waits(component) || !is_newer(component, host) {
        return None;
    }
    match turn(diff) {
        Turn::NotYet(why) => Some(why),
        Turn::Now | Turn::AfterApiServers => None,
    }
}

/// True where a node gets its first kubelet, or one in the place of a lost one, later than in this
/// plan.
pub(super) fn keeps_out(host: &HostDiff<'_>, turn: &Turn) -> bool {
    *host.need(Component::Kubelet) == Need::Run && matches!(turn, Turn::NotYet(_))
}

/// Said of nodes that do not get their kubelet yet, and of kubelets that take another minor release
/// with their pods in place.
pub(super) fn notes(diff: &Diff<'_>) -> Vec<Note> {
    let turn = turn(diff);
    let late = diff.hosts.iter().filter_map(|(name, host)| match &turn {
        Turn::NotYet(why) if keeps_out(host, &turn) => {
            let text = format!("`kubelet` is not started yet: {why}");
            Some(Note::left(name, text))
        }
        Turn::NotYet(_) | Turn::Now | Turn::AfterApiServers => None,
    });
    late.chain(undrained(diff))
        .chain(old_clients(diff))
        .collect()
}

/// Who gets errors from API servers of the wanted release.
fn old_clients(diff: &Diff<'_>) -> Vec<Note> {
    let ApiView::Up(api) = diff.have.api() else {
        return Vec::new();
    };
    let asked = api.old_clients.asked.iter().map(|api| {
        format!(
            "somebody asks for {api}, which Kubernetes {} no longer has: API servers of the new \
             release answer with an error. Their audit logs tell who asks: the annotation \
             `k8s.io/removed-release` is on such requests",
            api.removed_in
        )
    });
    let untold = api.old_clients.untold.iter().map(|(name, why)| {
        format!(
            "the API server on `{name}` does not tell whether somebody asks for kinds that the new \
             release no longer has: {why}"
        )
    });
    let texts = asked.chain(untold);
    texts.map(|text| Note::of(None, text)).collect()
}

fn undrained(diff: &Diff<'_>) -> Option<Note> {
    let mut hosts = diff.hosts.values();
    let minor = hosts.any(|host| {
        let (runs, wanted) = versions(Component::Kubelet, host).unzip();
        runs.zip(wanted)
            .is_some_and(|(runs, wanted)| runs.1 != wanted.1)
    });
    (minor && diff.want.upgrade.drain.is_none()).then(|| {
        let text = "kubelets go to another minor release with their pods in place, which is RKE's \
                    default and which Kubernetes itself does not support: `drain: true` below \
                    `upgrade_strategy` evicts them first";
        Note::of(None, text.to_owned())
    })
}

/// True for what must not be newer than an API server.
const fn waits(component: Component) -> bool {
    match component {
        Component::Kubelet | Component::KubeProxy => true,
        Component::Etcd
        | Component::ApiServer
        | Component::ControllerManager
        | Component::Scheduler
        | Component::NginxProxy => false,
    }
}

fn is_newer(component: Component, host: &HostDiff<'_>) -> bool {
    versions(component, host).is_some_and(|(runs, wanted)| wanted > runs)
}

/// What runs there, and what is wanted.
fn versions(component: Component, host: &HostDiff<'_>) -> Option<(ImageVersion, ImageVersion)> {
    let fact = host.facts.container(component)?;
    let spec = host.want.containers.get(&component)?;
    Some((image_version(&fact.image)?, image_version(&spec.image)?))
}
