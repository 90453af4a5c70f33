//! Which release goes first: no kubelet and no kube-proxy is newer than any API server. Pure.

use crate::{
    facts::ApiView,
    model::Component,
    plan::{
        Note,
        diff::{Diff, HostDiff, Need},
        held::{Turn, Waits},
        hold::versions,
    },
};

/// True where a node gets its first kubelet, or one in the place of a lost one, later than in this
/// plan.
pub(super) fn keeps_out(host: &HostDiff<'_>, diff: &Diff<'_>) -> bool {
    *host.need(Component::Kubelet) == Need::Run && matches!(diff.turn, Turn::NotYet(_))
}

/// Nodes that do not get their kubelet yet. Both that and kube-proxy wait for the API servers, and neither does
/// without the other.
pub(super) fn late(diff: &Diff<'_>) -> Vec<Note> {
    let Turn::NotYet(why) = &diff.turn else {
        return Vec::new();
    };
    let out = diff.hosts.iter().filter(|(_, host)| keeps_out(host, diff));
    let notes = out.flat_map(|(name, host)| {
        let both = [Component::Kubelet, Component::KubeProxy].into_iter();
        let waiting = both.filter(|component| match host.need(*component) {
            Need::Run | Need::Start(_) => true,
            Need::Nothing | Need::Replace(..) => false,
        });
        waiting.map(|component| {
            let text = format!("`{component}` is not started yet: {why}");
            Note::left(name, text, Waits::Component(component), why.clone())
        })
    });
    notes.collect()
}

/// Who gets errors from API servers of the wanted release.
pub(super) fn old_clients(diff: &Diff<'_>) -> Vec<Note> {
    let ApiView::Up(api) = diff.have.api() else {
        return Vec::new();
    };
    let asked = api.old_clients.asked.iter().map(|api| {
        format!(
            "a client requests {api}, which Kubernetes {} no longer has: API servers of the new \
             release answer with an error. The audit logs show which client: such requests have the \
             annotation `k8s.io/removed-release`",
            api.removed_in
        )
    });
    let untold = api.old_clients.untold.iter().map(|(name, why)| {
        format!(
            "the API server on `{name}` does not report whether clients request kinds that the new \
             release no longer has: {why}"
        )
    });
    let texts = asked.chain(untold);
    texts.map(|text| Note::of(None, text)).collect()
}

/// Kubelets that take another minor release with their pods in place.
pub(super) fn undrained(diff: &Diff<'_>) -> Option<Note> {
    let mut hosts = diff.hosts.iter();
    let minor = hosts.any(|(name, host)| {
        let (runs, wanted) = versions(Component::Kubelet, name, host, diff).unzip();
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
