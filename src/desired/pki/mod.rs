//! Keys and certificates, and the rules of when a key may be made. Pure: time and randomness are
//! arguments, and the same arguments give the same bytes.
//!
//! [`reconcile`] settles the authorities (invariant 2: kept, read back when asked for, or new only
//! for a new cluster) and every leaf: one that a node has and that still says what it must is kept
//! byte for byte, so that everything after this compares bytes. Leaf keys live on their node only.
//! May read facts; must not read a clock, make randomness or touch a file.

mod cert;
mod error;
mod key;
mod kubeconfig;
mod leaf;
mod reconcile;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

pub(super) use self::kubeconfig::component as component_kubeconfig;
pub use self::{
    cert::Pair,
    error::PkiError,
    key::Seed,
    leaf::{KUBELET_CLIENT, Leaf},
    reconcile::{engine_client, reconcile},
};
use super::Digest;
use crate::{
    config::NodeName,
    secret::Secret,
    state::{ClusterId, Saved},
};

/// What is not in the intent and not in the world, and decides all the same.
pub struct PkiContext<'a> {
    /// The time.
    pub now: Timestamp,
    /// Fresh randomness: everything new comes out of it.
    pub seed: Seed,
    /// Read lost keys back from the nodes.
    pub recover: bool,
    /// Clusters that others here hold.
    pub held_elsewhere: &'a BTreeSet<ClusterId>,
}

/// Every key and certificate of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// What the store must hold.
    pub saved: Saved,
    /// The administrator's kubeconfig.
    pub kubeconfig: Secret<String>,
    pub(super) leaves: BTreeMap<(NodeName, Leaf), Pair>,
    /// What verifies service-account tokens, PEM.
    pub(super) service_account_public: String,
    engine: EngineClient,
    digest_key: Secret<[u8; 32]>,
}

/// How this program itself reaches the cluster's API, as `system:masters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineClient {
    /// The authority that the API server's certificate is judged by, PEM.
    pub ca: String,
    /// The client certificate and its key. Never stored.
    pub pair: Pair,
}

impl Keys {
    /// A keyed digest of some content: see [`Digest`].
    pub fn digest(&self, content: &[u8]) -> Digest {
        let mac = key::prf(self.digest_key.expose(), content);
        Digest(mac.first_chunk::<16>().map(hex::encode).unwrap_or_default())
    }

    /// How this program reaches the API.
    pub const fn engine_client(&self) -> &EngineClient {
        &self.engine
    }
}
