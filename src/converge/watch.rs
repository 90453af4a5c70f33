//! The kept connections to the control planes of a cluster, out of its saved state alone: its inventory, the logins and
//! the host keys that it has. No config is read.

use std::{collections::BTreeMap, sync::Arc};

use super::{AnyPurpose, Removal, look};
use crate::{
    apply::watch::{RemoteWatch, Watched},
    desired::pki::{self, PkiError, Seed},
    environment::Environment,
    facts::Unreachable,
    host::{KnownHosts, Policy, pool::ConnectionTarget},
    model::{NodeName, Role},
    state::{ClusterState, InventoryEntry, Membership},
};

/// Connections to the control planes of a cluster.
pub struct Watching {
    /// None is open yet.
    pub remote: Box<dyn RemoteWatch>,
    /// To which nodes; true: with an API server.
    pub nodes: BTreeMap<NodeName, bool>,
    /// Whose containers, and which members of etcd.
    pub watched: Watched,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// No client certificate.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// No login for a node.
    #[error("{}", .0.why)]
    Login(Unreachable),
}

/// The nodes of an inventory that have a control plane or a member of etcd; true: they have an API server. Those that
/// join, leave or were given up are not among them.
pub fn control_planes(saved: &ClusterState) -> BTreeMap<NodeName, bool> {
    let is = |entry: &InventoryEntry, role| entry.roles.contains(&role);
    let active = saved.inventory.iter().filter(|(_, entry)| {
        let control = is(entry, Role::ControlPlane) || is(entry, Role::Etcd);
        control && entry.membership == Membership::Active
    });
    active
        .map(|(name, entry)| (name.clone(), is(entry, Role::ControlPlane)))
        .collect()
}

/// The connections to the first so many of them. Where there are more, etcd is not asked: the members that are left would
/// not be the whole.
pub async fn watch(
    saved: &ClusterState,
    most: usize,
    environment: &Environment,
) -> Result<Watching, WatchError> {
    let seed = Seed::new((environment.entropy)());
    let engine = pki::engine_clients(saved, environment.clock.now(), &seed)?;
    let mut nodes = control_planes(saved);
    let whole = nodes.len() <= most;
    // API servers first.
    let mut left = most;
    for wanted in [true, false] {
        nodes.retain(|_, has_api| {
            let keeps = *has_api != wanted || left > 0;
            left -= usize::from(*has_api == wanted && keeps);
            keeps
        });
    }
    let purpose = AnyPurpose::Removal(Removal(None));
    let mut targets = look::targets(purpose, Some(saved), environment).await;
    targets.retain(|name, _| nodes.contains_key(name));
    let missing = |target: &ConnectionTarget| target.as_ref().err().cloned();
    if let Some(why) = targets.values().find_map(missing) {
        return Err(WatchError::Login(why));
    }
    let has_member = |name: &&NodeName| {
        let entry = saved.inventory.get(*name);
        whole && entry.is_some_and(|entry| entry.roles.contains(&Role::Etcd))
    };
    let members = match saved.external_etcd {
        Some(_) => Vec::new(),
        None => nodes.keys().filter(has_member).cloned().collect(),
    };
    let watched = Watched {
        id: saved.cluster_id.clone(),
        members,
        engine,
    };
    // What a run verified counts, and nothing else.
    let keys = KnownHosts::from_text("the state", "", Policy::Strict);
    let remote = &environment.remote;
    Ok(Watching {
        remote: remote.watch(Arc::new(keys), targets, watched.clone()),
        nodes,
        watched,
    })
}
