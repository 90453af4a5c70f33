//! What must outlive a run, as types. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::codec;
use crate::model::{ClusterId, Digest, Endpoint, KubernetesVersion, NodeName, Role, Secret};

/// A certificate and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaPair {
    /// Certificate, PEM.
    pub cert: String,
    /// Private key, PEM: PKCS#8 when we made it; PKCS#1 and SEC1 are read too.
    pub key: Secret<String>,
}

/// A certificate authority: what signs, and what is trusted. They differ while one signing pair
/// takes the place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Signs.
    pub signing: CaPair,
    /// The certificates that are trusted, PEM, that of `signing` among them.
    pub trusted: Vec<String>,
}

impl Authority {
    /// An authority that never had another pair.
    pub fn of(signing: CaPair) -> Self {
        Self {
            trusted: vec![signing.cert.clone()],
            signing,
        }
    }

    /// Everything that is trusted, as one PEM file.
    pub fn bundle(&self) -> String {
        self.trusted.concat()
    }
}

/// What signs and verifies the tokens of service accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccounts {
    /// Signs, PEM.
    pub signing: Secret<String>,
    /// The public keys that are accepted, PEM, that of `signing` among them.
    pub verifying: Vec<String>,
    /// The issuers that are accepted; tokens name the first.
    pub issuers: Vec<String>,
}

/// A key that encrypts what the API server stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionKey {
    /// As the encryption configuration names it.
    pub name: String,
    /// The key, base64.
    pub secret: Secret<String>,
}

/// Whether a node of the inventory is meant to be part of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Membership {
    /// The config names it.
    #[default]
    Active,
    /// The config no longer names it, and it has not been given back yet.
    Leaving,
    /// It was given up: a tombstone. What is left of it in etcd and in the API goes; a machine of
    /// that name is a part of the cluster again when nothing of it is left anywhere.
    Lost,
}

/// Where a node was and how we logged in, so that a removal needs no config. The inventory names
/// it as Kubernetes does.
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
    /// `/etc/machine-id`: another machine under the node's name has another one.
    pub machine_id: Option<String>,
    /// Its sshd's public keys, as in `authorized_keys`.
    pub host_keys: Vec<String>,
    /// Whether it is meant to be part of the cluster.
    pub membership: Membership,
    /// When it was given up, of one that is lost.
    pub lost_at: Option<Timestamp>,
}

/// What must be remembered from run to run, for the most part by the operator: never in a status,
/// which a restore from a backup loses. Not in the copies of the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OperatorMemory {
    /// The uid of the `Cluster` object that this state belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The intent that was applied last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Applied>,
    /// The cluster's API was seen with what we put there. From then on an API without any of it
    /// is that of an etcd that has lost its data.
    #[serde(default, skip_serializing_if = "is_false")]
    pub populated: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// An intent that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Applied {
    /// A keyed digest of the intent.
    pub digest: Digest,
    /// The generation of the `Cluster` object that it came from.
    pub generation: i64,
}

/// What a cluster cannot lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterState {
    /// Counts the changes; of several copies the highest is the newest. 0: it was read from the
    /// first format, which had none.
    pub serial: u64,
    /// The cluster's identity.
    pub cluster_id: ClusterId,
    /// For people.
    pub cluster_name: String,
    /// The release that was wanted last; `None` in a state of the first format.
    pub kubernetes_version: Option<KubernetesVersion>,
    /// Signs everything but etcd, the front proxy and certificate requests.
    pub cluster_ca: Authority,
    /// Signs etcd's members and clients.
    pub etcd_ca: Authority,
    /// Signs the aggregation layer's client.
    pub front_proxy_ca: Authority,
    /// Signs approved certificate requests. `None` in a state of the first format.
    pub signer_ca: Option<Authority>,
    /// Signs and verifies service-account tokens.
    pub service_accounts: ServiceAccounts,
    /// What encrypts stored objects: writes use the first, reads accept all.
    pub encryption: Vec<EncryptionKey>,
    /// The members that etcd was made with and their peer addresses, saved before the first one
    /// starts. Empty in a state of the first format.
    pub etcd_bootstrap: BTreeMap<NodeName, String>,
    /// By node name.
    pub inventory: BTreeMap<NodeName, InventoryEntry>,
    /// What the operator remembers.
    pub memory: OperatorMemory,
}

impl ClusterState {
    /// What nodes and the cluster keep a copy of: everything but what the operator remembers
    /// for itself.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            memory: OperatorMemory::default(),
            ..self.clone()
        }
    }

    /// The number of the format that it was read from, or is written in: the lowest that has room
    /// for it.
    pub fn format(&self) -> u32 {
        let tells_when = |entry: &InventoryEntry| entry.lost_at.is_some();
        if self.serial == 0 {
            1
        } else if self.inventory.values().any(tells_when) {
            codec::FORMAT
        } else {
            2
        }
    }

    /// True for a node that was given up.
    pub fn is_lost(&self, node: &NodeName) -> bool {
        let entry = self.inventory.get(node);
        entry.is_some_and(|entry| entry.membership == Membership::Lost)
    }
}
