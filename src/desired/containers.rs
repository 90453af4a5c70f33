//! A component wherever it is seen, and whether there may be others. Pure.

use std::collections::BTreeSet;

use crate::{
    config::Intent,
    facts::{Actual, ContainerFact, HostView},
    model::{Component, NodeName, Role},
    state::{ClusterState, Membership},
};

/// The containers of a component on every node that answers, and the first node with this role (`None`: of all) that
/// does not.
pub(super) fn containers<'a>(
    component: Component,
    role: Option<Role>,
    intent: &'a Intent,
    saved: &'a ClusterState,
    have: &'a Actual,
) -> (Vec<(&'a NodeName, &'a ContainerFact)>, Option<&'a NodeName>) {
    let mut seen = Vec::new();
    let mut silent = None;
    let has = |roles: &[Role]| role.is_none_or(|role| roles.contains(&role));
    let nodes = intent.nodes.iter();
    let nodes = nodes.filter(|(_, node)| role.is_none_or(|role| node.roles.contains(&role)));
    let were = saved
        .inventory
        .iter()
        .filter(|(_, entry)| entry.membership != Membership::Lost && has(&entry.roles));
    let nodes = nodes.map(|(name, _)| name);
    let names: BTreeSet<_> = nodes.chain(were.map(|(name, _)| name)).collect();
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
            Some(HostView::Unreachable(_)) | None if names.contains(name) => {
                silent = silent.or(Some(name));
            }
            Some(HostView::Unreachable(_)) | None => {}
        }
    }
    (seen, silent)
}
