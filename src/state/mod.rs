//! What must outlive a run: CA keys, the service-account key, the cluster id and the inventory.
//!
//! [`ClusterState`] is all the state there is. Stores: a file next to `cluster.yml` (CLI) or a Secret
//! (operator). A store that cannot be read is an error, never "absent" (invariant 2).

mod atomic;
mod cluster;
pub mod codec;
mod digest_key;
pub mod file;
mod given;
pub mod kubeconfig;
pub mod secret;

#[cfg(test)]
pub(crate) mod tests;

use std::{borrow::Cow, io};

use futures::future::BoxFuture;

pub use self::cluster::{
    Applied, Authority, BastionEntry, BegunOperation, CaPair, ClusterState, EncryptionKey,
    EtcdEpoch, InventoryEntry, Membership, OperatorMemory, Reached, Refused, RemovalSnapshot,
    ServiceAccounts, SnapshotPlace, SnapshotRef,
};
pub use self::digest_key::DigestKey;
pub use self::given::GivenCertificates;
use crate::error::{ErrorClass, Explain};

/// What a store answered. An error is a third thing, never `Absent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// Definitely nothing there.
    Absent,
    /// There, with the revision that a compare-and-swap needs.
    Present {
        /// The state.
        saved: Box<ClusterState>,
        /// Opaque: resourceVersion, or a digest of the file.
        revision: String,
    },
}

/// A place for [`ClusterState`].
pub trait Store: Send + Sync {
    /// Reads it. `Err` when it is unknown whether there is one, or when it cannot be understood.
    fn load(&self) -> BoxFuture<'_, Result<Loaded, StateError>>;
    /// Writes it: create-only when `revision` is `None`, else compare-and-swap. A conflict is
    /// [`StateError::Conflict`].
    fn save<'a>(
        &'a self,
        saved: &'a ClusterState,
        revision: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), StateError>>;
    /// Deletes it; nothing there is success.
    fn delete(&self) -> BoxFuture<'_, Result<(), StateError>>;
    /// Where it is, for messages.
    fn place(&self) -> String;
}

/// Why the state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Present but not understood: never "absent".
    #[error("the state in {place} cannot be read: {why}")]
    Unreadable {
        /// Where.
        place: String,
        /// What is wrong with it.
        why: String,
        /// True if its format is newer than this release: the state itself may be good.
        newer: bool,
    },
    /// Someone else wrote first.
    #[error("the state in {place} was changed by someone else during this run")]
    Conflict {
        /// Where.
        place: String,
    },
    /// The place could not be reached.
    #[error("cannot reach the state in {place}")]
    Io {
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StateError {
    /// The refusal in an I/O error that only a person can lift.
    pub(crate) fn refused(source: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
        let file = source.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::IsADirectory
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::StorageFull
                    | io::ErrorKind::InvalidInput
            )
        });
        let api = source.downcast_ref::<kube::Error>().is_some_and(
            |error| matches!(error, kube::Error::Api(status) if status.is_forbidden()),
        );
        file || api
    }
}

impl Explain for StateError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Unreadable { .. } => ErrorClass::User,
            Self::Io { source, .. } if Self::refused(&**source) => ErrorClass::User,
            Self::Conflict { .. } | Self::Io { .. } => ErrorClass::Transient,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Unreadable { newer: true, .. } => {
                vec!["use the release of rke-operator that wrote it, or a later one".into()]
            }
            Self::Unreadable { place, .. } => vec![
                format!("put a good copy back in {place}").into(),
                "or move it aside and recover it: `rke-operator up --recover <cluster id>` (a `Cluster` has the annotation \
                 `clusterprovisioner.rke.io/recover: <cluster id>`) reads the keys back from the control planes"
                    .into(),
            ],
            Self::Conflict { .. } => {
                vec!["is another run for this cluster going on? let it end, then run again".into()]
            }
            Self::Io { place, source } if Self::refused(&**source) => {
                vec![format!("make {place} readable and writable for this user").into()]
            }
            Self::Io { .. } => Vec::new(),
        }
    }
}
