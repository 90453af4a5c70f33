//! Which configuration each API server reads, as its container tells. Pure.

use super::FLAG;
use crate::{
    config::Intent,
    desired::containers::containers,
    facts::{Actual, ContainerFact},
    model::{Component, ContainerSpec, Digest, NodeName, Role, path},
    state::ClusterState,
};

/// Which configuration an API server reads.
pub(super) enum Reads {
    /// None.
    Nothing,
    /// The one that we wrote, with this digest.
    File(Digest),
    /// One of the user's, named by a flag.
    Theirs,
    /// It cannot be determined.
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
    let role = Some(Role::ControlPlane);
    let (seen, silent) = containers(Component::ApiServer, role, intent, saved, have);
    let seen = seen.into_iter();
    let seen = seen.map(|(name, server)| (name, Reads::of(server)));
    (seen.collect(), silent.is_some())
}
