//! The newest state wins, or the run stops: invariant 2. Pure.
//!
//! The store's state is compared with every copy that a survey sees: those on nodes, and the one in the cluster's
//! `kube-system`. A run writes the store before anything else, so a copy is newer only if another user continued with
//! another store, or this store was restored to an earlier state. Such a copy may hold the only key of the stored data,
//! so it is never overwritten.

use std::{collections::BTreeSet, fmt};

use super::{PkiError, recover::same_keys};
use crate::{
    facts::{Actual, ApiView, FileFact, HostView, StateCopy},
    model::{ClusterId, NodeName, path},
    state::{ClusterState, Membership, codec},
};

/// Where a copy of the state is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyPlace {
    /// In a file of a node.
    Node(NodeName),
    /// In a Secret of the cluster.
    Cluster,
}

impl fmt::Display for CopyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "on node `{node}`"),
            Self::Cluster => f.write_str("in the Secret `kube-system/rke-operator-state`"),
        }
    }
}

/// A copy that the store's state must not overwrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherCopy {
    /// Where it is.
    pub place: CopyPlace,
    /// Why not.
    pub why: Newer,
}

impl fmt::Display for OtherCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place, self.why)
    }
}

/// Why the store's state must not overwrite a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Newer {
    /// It was written later.
    Serial(u64),
    /// It has the same serial and says something else.
    Content,
    /// It has a key that the store's state lacks: no run drops one.
    Key(String),
    /// A newer release wrote it.
    Unreadable(String),
    /// The data of this API are another cluster's.
    Another(ClusterId),
}

impl fmt::Display for Newer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serial(serial) => write!(f, "is newer: it has serial {serial}"),
            Self::Content => f.write_str("has the same serial and other content"),
            Self::Key(name) => write!(f, "has the encryption key `{name}`, which is missing here"),
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::Another(id) => write!(f, "is the state of another cluster (id `{id}`)"),
        }
    }
}

/// The copies that the store's state must not overwrite.
pub(super) fn others(saved: &ClusterState, have: &Actual) -> Vec<OtherCopy> {
    let on_nodes = have.hosts.iter().filter_map(|(name, view)| {
        let why = match on_node(view)? {
            Ok(copy) => compared(saved, &copy),
            Err(why) => Some(Newer::Unreadable(why)),
        };
        let place = CopyPlace::Node(name.clone());
        why.map(|why| OtherCopy { place, why })
    });
    let in_cluster = match have.api() {
        ApiView::Up(api) => match &api.state_copy {
            StateCopy::Absent => None,
            StateCopy::Unreadable(why) => Some(Newer::Unreadable(why.clone())),
            StateCopy::Is(copy) if copy.cluster_id != saved.cluster_id => {
                Some(Newer::Another(copy.cluster_id.clone()))
            }
            StateCopy::Is(copy) => compared(saved, copy),
        },
        ApiView::Unknown | ApiView::Unreachable(_) => None,
    };
    let place = CopyPlace::Cluster;
    on_nodes
        .chain(in_cluster.map(|why| OtherCopy { place, why }))
        .collect()
}

/// The copy on a node. One that is not whole says nothing: a run was cut while it was written, or the node's power.
fn on_node(view: &HostView) -> Option<Result<ClusterState, String>> {
    let HostView::Reachable(facts) = view else {
        return None;
    };
    read(facts.files.as_ref()?.get(path::STATE)?)
}

fn read(file: &FileFact) -> Option<Result<ClusterState, String>> {
    let text = std::str::from_utf8(file.content.expose()).ok()?;
    codec::is_whole(text).then(|| codec::decode(text))
}

fn compared(saved: &ClusterState, copy: &ClusterState) -> Option<Newer> {
    if copy.cluster_id != saved.cluster_id {
        // Whose the node is tells the preflight.
        return None;
    }
    // The first format did not count.
    let same = match saved.serial {
        0 => same_keys(saved, copy),
        _ => saved.copy() == copy.copy(),
    };
    if copy.serial > saved.serial {
        return Some(Newer::Serial(copy.serial));
    }
    if copy.serial == saved.serial && !same {
        return Some(Newer::Content);
    }
    let mut keys = copy.encryption.iter().filter(|key| !key.is_custom());
    let lacks = keys.find(|key| !saved.encryption.contains(key))?;
    Some(Newer::Key(lacks.name.clone()))
}

/// Refuses a removal by a state that another owner has gone on from: the cluster is theirs by now.
pub(super) fn refuse_former(saved: &ClusterState, have: &Actual) -> Result<(), PkiError> {
    let mut copies = others(saved, have);
    // An API with another cluster's data says nothing about who owns the nodes.
    copies.retain(|other| !matches!(other.why, Newer::Another(_)));
    if copies.is_empty() {
        return Ok(());
    }
    Err(PkiError::Outdated {
        id: saved.cluster_id.clone(),
        serial: saved.serial,
        copies,
    })
}

/// Refuses a removal that would forget nodes: only a newer copy names them, and they were not surveyed.
pub(super) fn refuse_to_forget(saved: &ClusterState, have: &Actual) -> Result<(), PkiError> {
    let mut nodes = BTreeSet::new();
    let mut from = None;
    for other in others(saved, have) {
        let copy = match (&other.place, &other.why) {
            (_, Newer::Unreadable(_)) => {
                return Err(PkiError::Outdated {
                    id: saved.cluster_id.clone(),
                    serial: saved.serial,
                    copies: vec![other],
                });
            }
            // Its nodes are not this cluster's.
            (_, Newer::Another(_)) => continue,
            (CopyPlace::Node(node), _) => have.hosts.get(node).and_then(on_node),
            (CopyPlace::Cluster, _) => match have.api() {
                ApiView::Up(api) => api.state_copy.state().cloned().map(Ok),
                ApiView::Unknown | ApiView::Unreachable(_) => None,
            },
        };
        let Some(Ok(copy)) = copy else { continue };
        let unseen = copy.inventory.iter().filter(|(name, entry)| {
            entry.membership != Membership::Lost && !have.hosts.contains_key(name)
        });
        nodes.extend(unseen.map(|(name, _)| name.clone()));
        from.get_or_insert(other.place);
    }
    match from {
        Some(place) if !nodes.is_empty() => Err(PkiError::Forgotten {
            id: saved.cluster_id.clone(),
            place,
            nodes: nodes.into_iter().collect(),
        }),
        Some(_) | None => Ok(()),
    }
}
