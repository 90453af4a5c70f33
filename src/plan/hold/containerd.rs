//! When the containerd of a node that serves is left as it is for now. It takes a restart, and on some machines Docker
//! goes down with it: etcd and the API server of that node, too. Pure.

use super::{first_broken, guards, pool::Fleet};
use crate::{
    model::{Component, NodeName},
    plan::{
        Cause, Guard,
        diff::{ContainerdDiff, Diff, HostDiff, Need},
        held::Held,
        roles::GivenUp,
    },
};

/// The components that stop when Docker is restarted, in the order in which they become healthy again.
const CENTRAL: [Component; 2] = [Component::Etcd, Component::ApiServer];

/// What must hold while containerd is away: what must for a kubelet, and what must for all that goes with it.
pub(in crate::plan) fn must_hold(
    name: &NodeName,
    host: &HostDiff<'_>,
    differs: &ContainerdDiff,
    diff: &Diff<'_>,
    fleet: &Fleet<'_>,
) -> Vec<Guard> {
    let kubelet = has_kubelet(host).then_some(Component::Kubelet);
    let away = kubelet.into_iter().chain(taken_along(host));
    away.flat_map(|component| guards(component, differs.cause, &[], name, diff, fleet))
        .collect()
}

/// Why it is not configured yet, if it is not.
pub(in crate::plan) fn held(name: &NodeName, guards: &[Guard], diff: &Diff<'_>) -> Option<Held> {
    if GivenUp::of(name, diff.want, diff.have).any() {
        // On some machines etcd and the API server that it still has would go away with it.
        return Some(Held::GivesUpRoles);
    }
    first_broken(guards, diff)
}

/// A changed kubelet waits for a containerd that is left as it is: it may not start a pod on it.
pub(super) fn before_kubelet(
    component: Component,
    cause: Cause,
    name: &NodeName,
    host: &HostDiff<'_>,
    diff: &Diff<'_>,
    fleet: &Fleet<'_>,
) -> Option<Held> {
    if component != Component::Kubelet || cause != Cause::Change {
        return None;
    }
    let differs = host.containerd()?;
    held(name, &must_hold(name, host, differs, diff, fleet), diff)
}

/// True where there is a kubelet.
pub(in crate::plan) fn has_kubelet(host: &HostDiff<'_>) -> bool {
    *host.need(Component::Kubelet) != Need::Run
}

/// What goes away with containerd on this host.
pub(in crate::plan) fn taken_along(host: &HostDiff<'_>) -> impl Iterator<Item = Component> {
    let bound = host.facts.system.containerd.docker_bound;
    let central = CENTRAL.into_iter().filter(move |_| bound);
    central.filter(|component| host.has(*component) && *host.need(*component) != Need::Run)
}
