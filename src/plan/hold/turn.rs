//! Which release goes first: no kubelet and no kube-proxy is newer than any API server. Pure.

use crate::{
    facts::HostView,
    model::{Component, ImageVersion, NodeName, version},
    plan::{
        diff::{Diff, HostDiff, Need},
        held::{Held, Turn},
        lost, release,
    },
};

/// The turn of kubelets and kube-proxies of the wanted release.
pub(super) fn turn(diff: &Diff<'_>) -> Turn {
    let component = Component::ApiServer;
    let mut turn = Turn::Now;
    for (name, host) in &diff.hosts {
        if !matches!(host.need(component), Need::Replace(..))
            || !is_newer(component, name, host, diff)
        {
            continue;
        }
        let Some(why) = host.held(component) else {
            turn = Turn::AfterApiServers;
            continue;
        };
        return Turn::NotYet(Held::OlderApiServer {
            node: (*name).clone(),
            why: Box::new(why.clone()),
        });
    }
    match silent(diff) {
        Some(node) => Turn::NotYet(Held::SilentApiServer(node)),
        None => turn,
    }
}

/// A control plane that does not answer, and whose kubelet does not have the wanted release either: its API server
/// may serve for all that we know, and is in every proxy's list.
fn silent(diff: &Diff<'_>) -> Option<NodeName> {
    let (want, have) = (diff.want, diff.have);
    let mut planes = want.with(Component::ApiServer);
    let found = planes.find(|name| {
        let silent = matches!(have.hosts.get(*name), Some(HostView::Unreachable(_)));
        let Some(node) = lost::node(name, have).filter(|_| silent) else {
            // One that never was in the cluster has no API server.
            return false;
        };
        let host = want.hosts.get(*name);
        let spec = host.and_then(|host| host.containers.get(&Component::Kubelet));
        let wanted = spec.and_then(|spec| release::wanted(Component::Kubelet, spec, want));
        wanted.is_some_and(|wanted| version(&node.kubelet_version).is_none_or(|runs| runs < wanted))
    });
    found.cloned()
}

/// Why what is there is not replaced yet, if it is newer than an API server that stays.
pub(super) fn held(
    component: Component,
    name: &NodeName,
    host: &HostDiff<'_>,
    diff: &Diff<'_>,
    turn: &Turn,
) -> Option<Held> {
    match turn {
        Turn::NotYet(why) if waits(component) && is_newer(component, name, host, diff) => {
            Some(why.clone())
        }
        Turn::NotYet(_) | Turn::Now | Turn::AfterApiServers => None,
    }
}

/// True for what must not be newer than an API server.
pub(in crate::plan) const fn waits(component: Component) -> bool {
    match component {
        Component::Kubelet | Component::KubeProxy => true,
        Component::Etcd
        | Component::ApiServer
        | Component::ControllerManager
        | Component::Scheduler
        | Component::NginxProxy
        | Component::Snapshots => false,
    }
}

/// True where something of an older release runs.
pub(in crate::plan) fn is_newer(
    component: Component,
    name: &NodeName,
    host: &HostDiff<'_>,
    diff: &Diff<'_>,
) -> bool {
    versions(component, name, host, diff).is_some_and(|(runs, wanted)| wanted > runs)
}

/// The running release, and the wanted one.
pub(in crate::plan) fn versions(
    component: Component,
    name: &NodeName,
    host: &HostDiff<'_>,
    diff: &Diff<'_>,
) -> Option<(ImageVersion, ImageVersion)> {
    let spec = host.want.containers.get(&component)?;
    let runs = release::runs(component, name, diff.have)?;
    Some((runs, release::wanted(component, spec, diff.want)?))
}
