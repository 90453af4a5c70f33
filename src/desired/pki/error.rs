//! Why the keys of a cluster cannot be settled. Every refusal is a variant of its own.

use std::borrow::Cow;

use crate::{
    actual::Down,
    config::NodeName,
    error::{Blame, Explain},
    state::ClusterId,
};

/// Why there are no keys for this run. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PkiError {
    /// New keys would be needed, and a host that may have a cluster did not answer.
    #[error(
        "there is no saved state, and node `{node}` does not answer: whether it has a cluster cannot be known"
    )]
    NewButDown {
        /// The node.
        node: NodeName,
        /// Why it did not answer.
        down: Down,
    },
    /// New keys would be needed, and a host was not surveyed at all.
    #[error("there is no saved state, and node `{node}` was not looked at")]
    NewButUnseen {
        /// The node.
        node: NodeName,
    },
    /// New keys would be needed, and a host belongs to a cluster.
    #[error(
        "there is no saved state, but node `{node}` belongs to cluster `{name}` (id {id}): no new keys are made over a cluster"
    )]
    NewButClaimed {
        /// The node.
        node: NodeName,
        /// Whose it is.
        id: ClusterId,
        /// That cluster's name, as its claim says.
        name: String,
    },
    /// New keys would be needed, and a host has certificates.
    #[error(
        "there is no saved state, but node `{node}` has certificates in `{path}`: no new keys are made over a cluster"
    )]
    NewButPki {
        /// The node.
        node: NodeName,
        /// Where.
        path: String,
    },
    /// New keys would be needed, and a host has etcd's data.
    #[error(
        "there is no saved state, but node `{node}` has etcd data in `{path}`: no new keys are made over a cluster"
    )]
    NewButEtcd {
        /// The node.
        node: NodeName,
        /// Where.
        path: String,
    },
    /// Recovery needs every etcd and control-plane host.
    #[error("cannot recover the state: node `{node}` does not answer")]
    RecoverDown {
        /// The node.
        node: NodeName,
        /// Why.
        down: Down,
    },
    /// Recovery was asked for, and a host belongs to no cluster.
    #[error("cannot recover the state: node `{node}` belongs to no cluster")]
    RecoverUnclaimed {
        /// The node.
        node: NodeName,
    },
    /// Recovery was asked for, and the hosts belong to more than one cluster.
    #[error(
        "cannot recover the state: node `{node}` belongs to cluster {id}, node `{other}` to cluster {other_id}"
    )]
    RecoverMixed {
        /// A node.
        node: NodeName,
        /// Its cluster.
        id: ClusterId,
        /// Another node.
        other: NodeName,
        /// Its cluster.
        other_id: ClusterId,
    },
    /// Somebody else here holds the cluster.
    #[error("cannot recover the state: cluster {id} is held by another `Cluster` object here")]
    RecoverHeld {
        /// The cluster.
        id: ClusterId,
    },
    /// No copy on a control plane.
    #[error("cannot recover the state: node `{node}` has no copy of it in `{path}`")]
    RecoverNoCopy {
        /// The node.
        node: NodeName,
        /// Where it should be.
        path: &'static str,
    },
    /// A copy that cannot be used.
    #[error("cannot recover the state: the copy in `{path}` on node `{node}` is not usable: {why}")]
    RecoverBadCopy {
        /// The node.
        node: NodeName,
        /// Where.
        path: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The config is another cluster's: of one node alone, the inventory would not tell.
    #[error(
        "cannot recover the state: node `{node}` belongs to cluster `{owner}`, and the config is that of cluster `{name}`"
    )]
    RecoverName {
        /// The node that has the copy.
        node: NodeName,
        /// Whose it is.
        owner: String,
        /// `cluster_name` in the config.
        name: String,
    },
    /// The nodes of the config are not those of the cluster.
    #[error(
        "cannot recover the state: the config and the copy on node `{node}` do not name the same nodes: {difference}"
    )]
    RecoverInventory {
        /// The node that has the copy.
        node: NodeName,
        /// How they differ.
        difference: String,
    },
    /// Nothing to recover from: the config names no control plane.
    #[error("cannot recover the state: the config names no control plane")]
    RecoverNowhere,
    /// The saved state does not hold together.
    #[error("the saved state is damaged: {what}: {why}")]
    Damaged {
        /// Which part.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Ours.
    #[error("cannot make the key or certificate `{slot}`: {why}")]
    Internal {
        /// Which.
        slot: String,
        /// Why.
        why: String,
    },
}

impl PkiError {
    /// An error that only a mistake of ours can cause.
    pub(super) fn internal(slot: &str, why: impl std::fmt::Display) -> Self {
        Self::Internal {
            slot: slot.to_owned(),
            why: why.to_string(),
        }
    }
}

const RECOVER: &str = "if this config describes that very cluster and its state was lost, run again with `--recover`, or give the `Cluster` object the annotation `clusterprovisioner.rke.io/recover: \"true\"`";
const ANOTHER: &str = "if this is another cluster's node, the address in the config is wrong, or that cluster must be removed first";

impl Explain for PkiError {
    fn blame(&self) -> Blame {
        match self {
            Self::NewButDown { down, .. } | Self::RecoverDown { down, .. } => down.blame,
            Self::NewButClaimed { .. }
            | Self::NewButPki { .. }
            | Self::NewButEtcd { .. }
            | Self::RecoverUnclaimed { .. }
            | Self::RecoverMixed { .. }
            | Self::RecoverHeld { .. }
            | Self::RecoverName { .. }
            | Self::RecoverInventory { .. }
            | Self::RecoverNowhere
            | Self::Damaged { .. } => Blame::User,
            Self::RecoverNoCopy { .. } | Self::RecoverBadCopy { .. } => Blame::Host,
            Self::NewButUnseen { .. } | Self::Internal { .. } => Blame::Bug,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::NewButDown { down, .. } => {
                let mut hints: Vec<Cow<'static, str>> =
                    down.hints.iter().cloned().map(Cow::Owned).collect();
                hints.push(
                    "new keys are made only when every etcd and control-plane node answers and has none; a lost state is read back with `--recover`"
                        .into(),
                );
                hints
            }
            Self::RecoverDown { down, .. } => down.hints.iter().cloned().map(Cow::Owned).collect(),
            Self::NewButClaimed { .. } => vec![RECOVER.into(), ANOTHER.into()],
            Self::NewButPki { node, path } => vec![
                RECOVER.into(),
                format!("if a Kubernetes was here and is gone, look at `{path}` on node `{node}`, and delete it if nothing needs it").into(),
            ],
            Self::NewButEtcd { node, path } => vec![
                RECOVER.into(),
                format!("if an etcd was here and is gone, look at `{path}` on node `{node}`, and delete it if nothing needs it").into(),
            ],
            Self::RecoverUnclaimed { .. } => vec![
                "without `--recover`, nodes that have nothing become a new cluster".into(),
                "every etcd and control-plane node of the config must bear the mark of the cluster that is recovered".into(),
            ],
            Self::RecoverMixed { .. } => {
                vec!["one of these addresses is another cluster's node: correct the config".into()]
            }
            Self::RecoverHeld { .. } => vec![
                "two `Cluster` objects describe the same nodes: delete one of them; that harms no node".into(),
            ],
            Self::RecoverNoCopy { .. } | Self::RecoverBadCopy { .. } => vec![
                "copies are in the store, on every control plane, and in a Secret of the cluster's `kube-system`: put one of them in the store's place".into(),
            ],
            Self::RecoverName { .. } => vec![
                ANOTHER.into(),
                "if it is that very cluster, recover with its old `cluster_name`; change it afterwards".into(),
            ],
            Self::RecoverInventory { .. } => vec![
                "recover with the config that the cluster was last made with; change it afterwards".into(),
            ],
            Self::RecoverNowhere => {
                vec!["give at least one node the role `controlplane`".into()]
            }
            Self::Damaged { .. } => vec![
                "put a copy in its place: every control plane has one, mode 0600; nothing was changed".into(),
            ],
            Self::NewButUnseen { .. } | Self::Internal { .. } => Vec::new(),
        }
    }
}
