//! Why the keys of a cluster cannot be determined. Every refusal has its own variant.

use std::borrow::Cow;

use super::{
    AuthorityError, ServiceAccountKeyError, clock,
    newest::{CopyPlace, Newer, OtherCopy},
};
use crate::{
    desired::KeyRotationError,
    error::{ErrorClass, Explain},
    facts::Unreachable,
    model::{ClusterId, NodeName, quoted},
};

/// Why there are no keys for this run. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PkiError {
    /// New keys would be needed, and a host that may have a cluster did not answer.
    #[error(
        "{}; before the cluster's first keys are made, node `{node}` must be examined", down.why
    )]
    NewButDown {
        /// The node.
        node: NodeName,
        /// Why it did not answer.
        down: Unreachable,
    },
    /// New keys would be needed, and a host was not surveyed at all.
    #[error("there is no saved state, and node `{node}` was not looked at")]
    NewButUnseen {
        /// The node.
        node: NodeName,
    },
    /// New keys would be needed, and a host belongs to a cluster.
    #[error(
        "there is no saved state, but node `{node}` belongs to cluster `{name}` (id {id}): new keys would make that cluster useless, so none are made"
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
        "there is no saved state, but node `{node}` has certificates in `{path}`: new keys would make a cluster there useless, so none are made"
    )]
    NewButPki {
        /// The node.
        node: NodeName,
        /// Where.
        path: String,
    },
    /// New keys would be needed, and a host has etcd's data.
    #[error(
        "there is no saved state, but node `{node}` has etcd data in `{path}`: new keys would make it useless, so none are made"
    )]
    NewButEtcd {
        /// The node.
        node: NodeName,
        /// Where.
        path: String,
    },
    /// New keys would be needed, and the user of the connection may not look into a folder that
    /// may have those of a cluster.
    #[error(
        "there is no saved state, and only root may look into `{path}` on node `{node}`: whether it holds the data of a cluster is not known"
    )]
    NewButUnreadable {
        /// The node.
        node: NodeName,
        /// Where.
        path: String,
    },
    /// A host of the config belongs to another cluster than the one that was asked for.
    #[error("cannot recover cluster {id}: node `{node}` belongs to cluster {other}")]
    RecoverOther {
        /// The node.
        node: NodeName,
        /// Its cluster.
        other: ClusterId,
        /// The cluster that was asked for.
        id: ClusterId,
    },
    /// Another `Cluster` object here holds the cluster.
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
        "cannot recover the state: the config and the copy {place} do not name the same nodes: {difference}"
    )]
    RecoverInventory {
        /// Where the copy is.
        place: CopyPlace,
        /// How they differ.
        difference: String,
    },
    /// No control plane that answers belongs to the cluster.
    #[error("cannot recover cluster {id}: no control plane of the config {}", nowhere(.silent))]
    RecoverNowhere {
        /// The cluster.
        id: ClusterId,
        /// The control planes that do not answer.
        silent: Vec<NodeName>,
    },
    /// A copy of the state is newer than the store's, or says something else.
    #[error(
        "the saved state (serial {serial}) is not the newest of this cluster; nothing is changed while that is so:{}",
        list(&.copies.iter().map(|copy| format!("the copy {copy}")).collect::<Vec<_>>())
    )]
    Outdated {
        /// The cluster.
        id: ClusterId,
        /// The serial of the store's.
        serial: u64,
        /// The copies that must not be overwritten.
        copies: Vec<OtherCopy>,
    },
    /// A removal by a state that is not the newest would leave nodes behind.
    #[error(
        "the saved state is not the newest of this cluster: the copy {place} also names {}; nothing is changed while that is so",
        quoted(.nodes)
    )]
    Forgotten {
        /// The cluster.
        id: ClusterId,
        /// The first copy that is newer.
        place: CopyPlace,
        /// The nodes that neither the state nor the config names.
        nodes: Vec<NodeName>,
    },
    /// Configurations of the user's that may still be needed, and too many of them.
    #[error(
        "`secrets_encryption_config.custom_config` was changed {count} times, and what was written with each of them may still be stored; nothing is changed while that is so"
    )]
    TooManyEncryptions {
        /// How many there would be.
        count: usize,
    },
    /// There is no new key for what the API servers store.
    #[error(transparent)]
    KeyRotation(KeyRotationError),
    /// The service-account key is not rotated, or not yet.
    #[error("{}; nothing was changed", .0)]
    ServiceAccountKey(#[from] ServiceAccountKeyError),
    /// The authorities are not rotated, or not yet.
    #[error("{}; nothing was changed", .0)]
    Authority(#[from] AuthorityError),
    /// A clock is wrong, so nothing can be said about the time of a certificate.
    #[error("{}", clock::sentence(*.ours, .off))]
    Clock {
        /// It is this machine's: most nodes contradict it.
        ours: bool,
        /// The nodes whose clocks are apart from ours, and by how many seconds they are ahead.
        off: Vec<(NodeName, i64)>,
    },
    /// Certificates of a person's that cannot be used, or that are missing.
    #[error("the certificates in `{place}` cannot be used:{}", list(.problems))]
    Given {
        /// The folder.
        place: String,
        /// All that is wrong.
        problems: Vec<String>,
    },
    /// rke-operator never replaces a user's certificate by one that it made, and cannot sign with a key that it does
    /// not have.
    #[error("certificates that you made are missing, or no longer what the cluster needs:{}", list(.problems))]
    NotGiven {
        /// All of it.
        problems: Vec<String>,
    },
    /// A certificate of our own that only a key could sign that was never given.
    #[error(
        "the key of {what} is not in the state, nor a certificate that was signed with it for `{slot}`"
    )]
    NoCaKey {
        /// Whose.
        what: &'static str,
        /// For what.
        slot: String,
    },
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
    /// An error that only a bug in rke-operator can cause.
    pub(super) fn internal(slot: &str, why: impl std::fmt::Display) -> Self {
        Self::Internal {
            slot: slot.to_owned(),
            why: why.to_string(),
        }
    }
}

/// Each on a separate line.
fn list(problems: &[String]) -> String {
    let lines = problems.iter().flat_map(|problem| ["\n  ", problem]);
    lines.collect()
}

fn nowhere(silent: &[NodeName]) -> String {
    if silent.is_empty() {
        return "belongs to it".to_owned();
    }
    format!(
        "that answers belongs to it; no answer from {}",
        quoted(silent)
    )
}

/// The usual cause: another folder, or another machine.
const ELSEWHERE: &str = "if this config describes that cluster, run the command in the folder that has its state, \
    `<config>.rke-operator.json`, or copy that file next to this config";

/// The hint how to recover a lost state.
fn recover_hint(id: &str) -> Cow<'static, str> {
    format!(
        "if this config describes that very cluster and its state was lost, read it back with \
         `rke-operator up --recover {id}` (a `Cluster` has the annotation `clusterprovisioner.rke.io/recover: {id}`)"
    )
    .into()
}

/// What can be done where a copy is newer.
fn outdated(id: &str, copies: &[OtherCopy]) -> Vec<Cow<'static, str>> {
    let mut hints: Vec<Cow<'static, str>> = Vec::new();
    let any = |is: fn(&Newer) -> bool| copies.iter().any(|copy| is(&copy.why));
    if any(|why| matches!(why, Newer::Unreadable(_))) {
        hints.push("run the release of rke-operator that wrote that copy, or a newer one".into());
    }
    if any(|why| matches!(why, Newer::Another(_))) {
        hints.push("the API serves the data of another cluster: check where its etcd is and what was restored there".into());
        hints.push("if this cluster owns these data from now on: `kubectl -n kube-system delete secret rke-operator-state`".into());
    }
    if hints.is_empty() {
        hints.push("if `up` last ran elsewhere, continue with the state file from there (of a `Cluster`: with the Secret of its state)".into());
        hints.push(
            format!(
                "or take over the newest copy with `--recover {id}` (a `Cluster` has the annotation `clusterprovisioner.rke.io/recover: {id}`)"
            )
            .into(),
        );
    }
    hints
}

/// What stands for the id where it is not known.
const ITS_ID: &str = "<its cluster id>";
const ANOTHER: &str = "if this is another cluster's node, the address in the config is wrong, or that cluster must be removed first";

impl Explain for PkiError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NewButDown { down, .. } => down.class,
            Self::RecoverNowhere { silent, .. } if !silent.is_empty() => ErrorClass::Host,
            Self::NewButClaimed { .. }
            | Self::NewButPki { .. }
            | Self::NewButEtcd { .. }
            | Self::NewButUnreadable { .. }
            | Self::RecoverOther { .. }
            | Self::RecoverHeld { .. }
            | Self::RecoverName { .. }
            | Self::RecoverInventory { .. }
            | Self::RecoverNowhere { .. }
            | Self::Outdated { .. }
            | Self::Forgotten { .. }
            | Self::TooManyEncryptions { .. }
            | Self::Clock { .. }
            | Self::Given { .. }
            | Self::NotGiven { .. }
            | Self::NoCaKey { .. }
            | Self::Damaged { .. } => ErrorClass::User,
            Self::RecoverNoCopy { .. } | Self::RecoverBadCopy { .. } => ErrorClass::Host,
            Self::KeyRotation(error) => error.class(),
            Self::ServiceAccountKey(error) => error.class(),
            Self::Authority(error) => error.class(),
            Self::NewButUnseen { .. } | Self::Internal { .. } => ErrorClass::Bug,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::NewButDown { down, .. } => {
                let mut hints: Vec<Cow<'static, str>> =
                    down.hints.iter().cloned().map(Cow::Owned).collect();
                hints.push(
                    "new keys are made only when every etcd and control-plane node answers and has none; read a lost state back with `rke-operator up --recover <its cluster id>` (a `Cluster` has the annotation `clusterprovisioner.rke.io/recover: <its cluster id>`)"
                        .into(),
                );
                hints
            }
            Self::NewButClaimed { id, .. } => {
                vec![ELSEWHERE.into(), recover_hint(&id.0), ANOTHER.into()]
            }
            Self::NewButPki { node, path } => vec![
                recover_hint(ITS_ID),
                format!("if a Kubernetes was here and is gone, look at `{path}` on node `{node}`, and delete it if nothing needs it").into(),
            ],
            Self::NewButEtcd { node, path } => vec![
                recover_hint(ITS_ID),
                format!("if an etcd was here and is gone, look at `{path}` on node `{node}`, and delete it if nothing needs it").into(),
            ],
            Self::NewButUnreadable { node, path } => vec![
                format!("`sudo ls -A {path}` on node `{node}` shows what is in it; if it is empty, `sudo rmdir {path}` takes it away").into(),
                recover_hint(ITS_ID),
            ],
            Self::RecoverOther { .. } => {
                vec!["the config or the id is another cluster's: correct it".into()]
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
            Self::Outdated { id, copies, .. } => outdated(&id.0, copies),
            Self::Forgotten { id, .. } => vec![
                "write these nodes into the config as well: `remove` cleans every node that the state or the config names".into(),
                recover_hint(&id.0),
            ],
            Self::TooManyEncryptions { .. } => vec![
                "write the last configuration that `up` was done with into the config, bring back every control plane, and run `up` until it has nothing to do; then change it again".into(),
            ],
            Self::KeyRotation(error) => error.hints(),
            Self::ServiceAccountKey(error) => error.hints(),
            Self::Authority(error) => error.hints(),
            Self::RecoverNowhere { silent, .. } if silent.is_empty() => vec![
                "without `--recover` (of a `Cluster`: the annotation `clusterprovisioner.rke.io/recover`), nodes that have nothing become a new cluster".into(),
            ],
            Self::RecoverNowhere { .. } => {
                vec!["bring one of these nodes back, then run again".into()]
            }
            Self::Clock { .. } => vec![
                "set the wrong clock (`timedatectl`, chrony), then run again; certificates that are made by a wrong clock are not valid elsewhere, and nothing was changed".into(),
            ],
            Self::Given { .. } => vec![
                "`docs/certificates.md` lists the names of the files and what each must say; nothing was changed".into(),
            ],
            Self::NotGiven { .. } | Self::NoCaKey { .. } => vec![
                "only the command line takes them, from a folder: `--custom-certs --cert-dir <folder>` (of a `Cluster`: the operator does not)".into(),
            ],
            Self::Damaged { .. } => vec![
                "put a copy in its place: every control plane has one, mode 0600; nothing was changed".into(),
            ],
            Self::NewButUnseen { .. } | Self::Internal { .. } => Vec::new(),
        }
    }
}
