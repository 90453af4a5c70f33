//! What is left of a life of etcd's data before the present one: containers that serve data of that time, or act by
//! them. None of them runs while the restored etcd does. Pure.

use std::collections::BTreeMap;

use crate::{
    desired::Desired,
    etcd::EtcdView,
    facts::{Actual, HostFacts, HostView},
    model::{Component, NodeName},
};

/// The components that act on etcd's data, in the order in which a node's are stopped. Kubelets, which start and end pods,
/// have a stage before all others.
pub(super) const LIVES: [Component; 6] = [
    Component::Snapshots,
    Component::Kubelet,
    Component::ControllerManager,
    Component::Scheduler,
    Component::ApiServer,
    Component::Etcd,
];

/// This cluster's containers of former lives on the nodes that answer.
pub(super) fn containers<'h>(
    want: &'h Desired,
    have: &'h Actual,
) -> impl Iterator<Item = (&'h NodeName, Component)> {
    let hosts = have.hosts.keys();
    let hosts = hosts.filter_map(|name| Some((name, have.up(name)?)));
    hosts.flat_map(move |(name, facts)| {
        let former = LIVES.into_iter();
        former
            .filter(move |component| is_former(*component, facts, want.saved.epoch(), want))
            .map(move |component| (name, component))
    })
}

/// True where the node has a container of this cluster that is of a life before this one.
pub(super) fn is_former(
    component: Component,
    facts: &HostFacts,
    epoch: u32,
    want: &Desired,
) -> bool {
    let fact = facts.container(component);
    fact.is_some_and(|fact| fact.is_of(&want.cluster_id) && fact.epoch() < epoch)
}

/// The world without all that etcd's members and API servers told.
pub(super) fn without_their_word(have: &Actual) -> Actual {
    Actual {
        etcd: EtcdView::default(),
        apis: BTreeMap::new(),
        versions: BTreeMap::new(),
        cluster: None,
        untold: None,
        ..have.clone()
    }
}

/// The world as it is when the containers of former lives are gone.
pub(super) fn without(want: &Desired, have: &Actual) -> Actual {
    let mut left = have.clone();
    for (name, component) in containers(want, have) {
        if let Some(HostView::Reachable(facts)) = left.hosts.get_mut(name) {
            facts.containers.remove(component.container());
        }
    }
    left
}
