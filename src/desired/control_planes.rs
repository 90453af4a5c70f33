//! A component of the control planes wherever it is seen, and whether there may be others. Pure.

use std::collections::BTreeSet;

use crate::{
    config::Intent,
    facts::{Actual, ContainerFact, HostView},
    model::{Component, NodeName, Role},
    state::{ClusterState, Membership},
};

/// The containers of a component on every node that answers; true: a control plane does not answer.
pub(super) fn containers<'a>(
    component: Component,
    intent: &'a Intent,
    saved: &'a ClusterState,
    have: &'a Actual,
) -> (Vec<(&'a NodeName, &'a ContainerFact)>, bool) {
    let mut seen = Vec::new();
    let mut silent = false;
    let planes = intent.with_role(Role::ControlPlane).map(|(name, _)| name);
    let were = saved.inventory.iter().filter(|(_, entry)| {
        entry.membership != Membership::Lost && entry.roles.contains(&Role::ControlPlane)
    });
    let names: BTreeSet<_> = planes.chain(were.map(|(name, _)| name)).collect();
    for name in names
        .iter()
        .copied()
        .chain(have.hosts.keys())
        .collect::<BTreeSet<_>>()
    {
        match have.hosts.get(name) {
            Some(HostView::Reachable(facts)) => {
                // What is of the time before a restore is stopped before the restored data are read.
                let is_present = |fact: &&ContainerFact| {
                    fact.is_of(&saved.cluster_id) && fact.epoch() >= saved.epoch()
                };
                let ours = facts.container(component).filter(is_present);
                seen.extend(ours.map(|fact| (name, fact)));
            }
            Some(HostView::Unreachable(_)) | None => silent |= names.contains(name),
        }
    }
    (seen, silent)
}
