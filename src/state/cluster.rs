//! What must outlive a run, as types. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{codec, given::GivenCertificates};
use crate::{
    config::{Bastion, Credential, Login},
    model::{ClusterId, Digest, Endpoint, EtcdKeyspace, KubernetesVersion, NodeName, Role, Secret},
};

/// A certificate and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaPair {
    /// Certificate, PEM.
    pub cert: String,
    /// Private key, PEM: PKCS#8 when we made it; PKCS#1 and SEC1 are read too. `None`: the authority is a person's, who
    /// signs with it elsewhere.
    pub key: Option<Secret<String>>,
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

/// What encrypts what the API server stores: a key of ours, or a configuration of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionKey {
    /// As the encryption configuration names the key; `custom` for a whole `EncryptionConfiguration`.
    pub name: String,
    /// The key, base64; or the configuration, JSON.
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
    /// Where the key's certificate comes from, if it has one.
    pub certificate_source: Option<String>,
    /// The machine through which it was reached.
    pub bastion: Option<BastionEntry>,
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

/// The machine through which a node was reached, and how we logged in there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BastionEntry {
    /// Where its sshd is.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// The user on it.
    pub user: String,
    /// As [`InventoryEntry::key_source`].
    pub key_source: String,
    /// As [`InventoryEntry::certificate_source`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_source: Option<String>,
}

impl BastionEntry {
    /// What is kept of a bastion.
    pub fn of(bastion: &Bastion) -> Self {
        let Bastion { endpoint, login } = bastion;
        Self {
            address: endpoint.address.clone(),
            port: endpoint.port,
            user: login.user.clone(),
            key_source: login.key_source.clone(),
            certificate_source: login.credential.certificate_source(),
        }
    }

    /// The bastion again, with what its sources lead to.
    pub fn to_bastion(&self, credential: Credential) -> Bastion {
        Bastion {
            endpoint: Endpoint {
                address: self.address.clone(),
                port: self.port,
            },
            login: Login {
                user: self.user.clone(),
                credential,
                key_source: self.key_source.clone(),
                docker_socket: String::new(),
            },
        }
    }
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
    /// What has encrypted stored objects. Kept when nothing is encrypted any more: a snapshot may need it.
    pub encryption: Vec<EncryptionKey>,
    /// The members that etcd was made with and their peer addresses, saved before the first one
    /// starts. Empty in a state of the first format.
    pub etcd_bootstrap: BTreeMap<NodeName, String>,
    /// Where the cluster's keys are, of one whose etcd is outside of it: saved before anything is written there.
    pub external_etcd: Option<EtcdKeyspace>,
    /// By node name.
    pub inventory: BTreeMap<NodeName, InventoryEntry>,
    /// What a person made of its certificates.
    pub given: GivenCertificates,
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
        let tells_more = |entry: &InventoryEntry| {
            entry.lost_at.is_some() || entry.certificate_source.is_some() || entry.bastion.is_some()
        };
        let authorities = [&self.cluster_ca, &self.etcd_ca, &self.front_proxy_ca];
        if self.serial == 0 {
            1
        } else if self.external_etcd.is_some() {
            codec::FORMAT
        } else if !self.given.is_empty() || authorities.iter().any(|of| of.signing.key.is_none()) {
            4
        } else if self.inventory.values().any(tells_more) {
            3
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
