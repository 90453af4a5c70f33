//! Which configuration each API server reads, as its container tells. Pure.

use std::collections::BTreeSet;

use super::FLAG;
use crate::{
    config::Intent,
    facts::{Actual, ContainerFact, HostView},
    model::{Component, ContainerSpec, Digest, NodeName, Role, path},
    state::{ClusterState, Membership},
};

/// Which configuration an API server reads.
pub(super) enum Reads {
    /// None.
    Nothing,
    /// The one that we wrote, with this digest.
    File(Digest),
    /// One of the user's, named by a flag.
    Theirs,
    /// That cannot be told.
    Unknown,
}

impl Reads {
    /// What the container was made with tells; the file on the node may be newer than the process.
    fn of(server: &ContainerFact) -> Self {
        match (server.applied(), &server.runs) {
            (Some(mut spec), _) => match spec.files.remove(path::ENCRYPTION) {
                Some(digest) => Self::File(digest),
                None if has_flag(&spec) => Self::Theirs,
                None => Self::Nothing,
            },
            (None, Some(runs)) if !has_flag(runs) => Self::Nothing,
            (None, _) => Self::Unknown,
        }
    }
}

fn has_flag(spec: &ContainerSpec) -> bool {
    let mut words = spec.entrypoint.iter().chain(&spec.command);
    words.any(|word| {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        name.trim_start_matches('-') == FLAG
    })
}

/// What each API server of the cluster reads, and whether there may be one that is not seen.
pub(super) fn servers<'a>(
    intent: &'a Intent,
    saved: &'a ClusterState,
    have: &'a Actual,
) -> (Vec<(&'a NodeName, Reads)>, bool) {
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
                let fact = facts.container(Component::ApiServer);
                // What is of the time before a restore is stopped before the restored data are read.
                let is_present = |fact: &&ContainerFact| {
                    fact.is_of(&saved.cluster_id) && fact.epoch() >= saved.epoch()
                };
                let ours = fact.filter(is_present);
                seen.extend(ours.map(|server| (name, Reads::of(server))));
            }
            Some(HostView::Unreachable(_)) | None => silent |= names.contains(name),
        }
    }
    (seen, silent)
}
