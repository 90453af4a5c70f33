//! What must outlive a run: CA keys, the service-account key, the cluster id and the inventory.
//!
//! [`Saved`] is all the state there is. Stores: a file beside `cluster.yml` (CLI) or a Secret
//! (operator). A store that cannot be read is an error, never "absent" (invariant 2).

pub mod codec;

use std::collections::BTreeMap;

use futures::future::BoxFuture;

use crate::{
    config::{Endpoint, NodeName, Role},
    desired::ClusterId,
    secret::Secret,
};

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
