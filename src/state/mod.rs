//! What must outlive a run: CA keys, the service-account key, the cluster id and the inventory.
//!
//! [`Saved`] is all the state there is. Stores: a file beside `cluster.yml` (CLI) or a Secret
//! (operator). A store that cannot be read is an error, never "absent" (invariant 2).

mod atomic;
pub mod codec;
pub mod file;
pub mod kubeconfig;
pub mod secret;

#[cfg(test)]
pub(crate) mod tests;

use std::{borrow::Cow, collections::BTreeMap, fmt, io};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{
    config::{Endpoint, NodeName, Role},
    error::{Blame, Explain},
    secret::Secret,
};

/// A random identity that ties state, nodes and labels together (32 hex digits).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub String);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A certificate authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaPair {
    /// Certificate, PEM.
    pub cert: String,
    /// Private key, PKCS#8 PEM.
    pub key: Secret<String>,
}

/// Where a node was and how we logged in, so that a removal needs no config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryEntry {
    /// Where sshd is.
    pub endpoint: Endpoint,
    /// The user on the node.
    pub user: String,
    /// Where the private key comes from: a path (CLI) or a Secret's name (operator), as in
    /// [`crate::config::Login::key_source`]. Never the key.
    pub key_source: String,
    /// The Docker socket.
    pub docker_socket: String,
    /// The node's roles.
    pub roles: Vec<Role>,
}

/// What a cluster cannot lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The cluster's identity.
    pub cluster_id: ClusterId,
    /// For people.
    pub cluster_name: String,
    /// Signs everything but etcd and the front proxy.
    pub cluster_ca: CaPair,
    /// Signs etcd's members and clients.
    pub etcd_ca: CaPair,
    /// Signs the aggregation layer's client.
    pub front_proxy_ca: CaPair,
    /// Signs service-account tokens, PKCS#8 PEM.
    pub service_account_key: Secret<String>,
    /// By node name.
    pub inventory: BTreeMap<NodeName, InventoryEntry>,
}

/// What a store answered. An error is a third thing, never `Absent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// Definitely nothing there.
    Absent,
    /// There, with the revision that a compare-and-swap needs.
    Present {
        /// The state.
        saved: Box<Saved>,
        /// Opaque: resourceVersion, or a digest of the file.
        revision: String,
    },
}

/// A place for [`Saved`].
pub trait Store: Send + Sync {
    /// Reads it. `Err` when it is unknown whether there is one, or when it cannot be understood.
    fn load(&self) -> BoxFuture<'_, Result<Loaded, StateError>>;
    /// Writes it: create-only when `revision` is `None`, else compare-and-swap. A conflict is
    /// [`StateError::Conflict`].
    fn save<'a>(
        &'a self,
        saved: &'a Saved,
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
    fn refused(source: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
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
    fn blame(&self) -> Blame {
        match self {
            Self::Unreadable { .. } => Blame::User,
            Self::Io { source, .. } if Self::refused(&**source) => Blame::User,
            Self::Conflict { .. } | Self::Io { .. } => Blame::Transient,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Unreadable { place, .. } => vec![
                format!("put a good copy back in {place}").into(),
                "or move it away and ask for recovery: the keys are then read back from the \
                 control planes"
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
