//! What must outlive a run, as types. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{digest_key::DigestKey, given::GivenCertificates};
use crate::{
    config::{Bastion, Credential, Login},
    model::{
        ClusterId, Component, Digest, Endpoint, EtcdKeyspace, KubernetesVersion, NodeName, Role,
        Secret,
    },
};

/// A certificate and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaPair {
    /// Certificate, PEM.
    pub cert: String,
    /// Private key, PEM: PKCS#8 if rke-operator generated it; PKCS#1 and SEC1 are read too. `None`: the user keeps the
    /// key of this authority, and signs with it elsewhere.
    pub key: Option<Secret<String>>,
}

/// A certificate authority: the pair that signs, and the certificates that are trusted. They differ
/// while one signing pair replaces another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Signs.
    pub signing: CaPair,
    /// The certificates that are trusted, PEM, that of `signing` among them.
    pub trusted: Vec<String>,
    /// The pair that will sign once every component trusts it.
    pub next: Option<CaPair>,
    /// The certificate of `signing` as the pair before it has signed it, PEM: for clients that know that one alone.
    pub cross: Option<String>,
}

impl Authority {
    /// An authority that never had another pair.
    pub fn of(signing: CaPair) -> Self {
        Self {
            trusted: vec![signing.cert.clone()],
            signing,
            next: None,
            cross: None,
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
    /// The public keys that are accepted, PEM, those of `signing` and `next` among them.
    pub verifying: Vec<String>,
    /// The key that will sign once every API server verifies it, PEM.
    pub next: Option<Secret<String>>,
    /// The issuers that are accepted, in this order; tokens name the first.
    pub issuers: Vec<String>,
    /// The audiences that are accepted; empty: the issuers, as Kubernetes has it.
    pub audiences: Vec<String>,
}

/// Which life of etcd's data this is: each restore begins another one, and members of a former one never join it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EtcdEpoch {
    /// Counts the restores, from 1.
    pub number: u32,
    /// What was restored; `None`: the first member's own data, without the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SnapshotRef>,
    /// The revision at which it begins: higher than any of the lives before, so that no client takes an old object for a
    /// new one.
    #[serde(default)]
    pub begins: u64,
    /// The node whose member was the first with this data.
    pub first: NodeName,
    /// How far it has come.
    pub reached: Reached,
}

impl EtcdEpoch {
    /// The source of its data, for messages.
    pub fn made_of(&self) -> String {
        match &self.from {
            Some(snapshot) => format!("the snapshot `{}`", snapshot.name),
            None => format!("the data of node `{}`", self.first),
        }
    }

    /// The command that starts or resumes it.
    pub fn command(&self) -> String {
        match &self.from {
            Some(snapshot) => {
                let name = &snapshot.name;
                format!("rke-operator etcd snapshot-restore --name {name}")
            }
            None => "rke-operator etcd recover".to_owned(),
        }
    }
}

/// A snapshot of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotRef {
    /// Its name.
    pub name: String,
    /// Of the file.
    pub sha256: String,
    /// etcd's revision in it.
    pub revision: u64,
}

/// The steps of a restore, each of which can be seen in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reached {
    /// The snapshot was chosen, and nothing was stopped.
    Chosen,
    /// Everything is stopped.
    Stopped,
    /// The first member has the data.
    Restored,
    /// The API has no objects of what is gone.
    Cleaned,
    /// API servers serve.
    Serving,
    /// It is done.
    Done,
    /// It was taken back: what was there before goes on.
    TakenBack,
}

/// What encrypts the data of the API server in etcd: a key that rke-operator generated, or the user's own
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionKey {
    /// As the encryption configuration names the key; `custom` for a whole `EncryptionConfiguration`.
    pub name: String,
    /// The key, base64; or the configuration, JSON.
    pub secret: Secret<String>,
}

impl EncryptionKey {
    /// The name of a whole configuration of the user's.
    pub const CUSTOM: &str = "custom";

    /// True for a whole configuration of the user's.
    pub fn is_custom(&self) -> bool {
        self.name == Self::CUSTOM
    }
}

/// Whether a node of the inventory is meant to be part of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Membership {
    /// The config names it.
    #[default]
    Active,
    /// The config no longer names it, and it has not been cleaned and released yet.
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
    /// The machines through which it was reached, in the order in which they were passed.
    pub bastions: Vec<BastionEntry>,
    /// The Docker socket.
    pub docker_socket: String,
    /// The node's roles.
    pub roles: Vec<Role>,
    /// `/etc/machine-id`: another machine under the node's name has another one.
    pub machine_id: Option<String>,
    /// Its sshd's public keys that were verified, as in `authorized_keys`.
    pub host_keys: Vec<String>,
    /// Whether it is meant to be part of the cluster.
    pub membership: Membership,
    /// When it was given up, of one that is lost.
    pub lost_at: Option<Timestamp>,
}

impl InventoryEntry {
    /// What is kept of a bastion on the way to it.
    pub fn bastion(&self, at: &Endpoint) -> Option<&BastionEntry> {
        let mut way = self.bastions.iter();
        way.find(|bastion| bastion.endpoint() == *at)
    }
}

/// A machine through which a node was reached, and how we logged in there.
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
    /// As [`InventoryEntry::host_keys`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<String>,
}

impl BastionEntry {
    /// What is kept of a bastion; `host_keys`: those that were verified.
    pub fn of(bastion: &Bastion, host_keys: Vec<String>) -> Self {
        let Bastion {
            endpoint,
            login,
            ssh_config: _,
        } = bastion;
        Self {
            address: endpoint.address.clone(),
            port: endpoint.port,
            user: login.user.clone(),
            key_source: login.key_source.clone(),
            certificate_source: login.credential.certificate_source(),
            host_keys,
        }
    }

    /// Where its sshd is.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            address: self.address.clone(),
            port: self.port,
        }
    }

    /// The bastion again, with what its sources lead to.
    pub fn to_bastion(&self, credential: Credential) -> Bastion {
        Bastion {
            endpoint: self.endpoint(),
            login: Login {
                user: self.user.clone(),
                credential,
                key_source: self.key_source.clone(),
                docker_socket: String::new(),
            },
            ssh_config: BTreeMap::new(),
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
    /// Changes of components that failed on a node and were taken back there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// The `ClusterOperation` objects that were begun, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub operations: BTreeMap<String, BegunOperation>,
    /// The snapshot before the removal that was begun. `up` clears it: the cluster goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot: Option<RemovalSnapshot>,
}

/// How many operations are remembered.
const OPERATIONS: usize = 200;

impl OperatorMemory {
    /// Remembers an operation; the one that began first is forgotten where there are too many.
    pub fn remember(&mut self, name: &str, operation: BegunOperation) {
        self.operations.insert(name.to_owned(), operation);
        if self.operations.len() > OPERATIONS {
            let all = self.operations.iter();
            let oldest = all.min_by_key(|(_, one)| one.at);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.operations.remove(&oldest);
            }
        }
    }
}

/// An operation that was begun. Another object of its name is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BegunOperation {
    /// The uid of the object.
    pub uid: String,
    /// When.
    pub at: Timestamp,
    /// When it ended, well or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Which restore of the cluster it is, of one that restores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<u32>,
    /// Its node has left the cluster and is to join again, of one that resets a node.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_left: bool,
}

/// The snapshot before a removal: recorded before it is taken, so that a removal that was cut off finds its file again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemovalSnapshot {
    /// Its name.
    pub name: String,
    /// The node whose member it is of.
    pub node: NodeName,
    /// When it was begun.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub begun_at: Timestamp,
    /// The last attempt has failed on that node.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failed: bool,
    /// Where it is; none if it is not known to be saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<SnapshotPlace>,
}

impl RemovalSnapshot {
    /// Where it is, for people; `None`: it is not known to be saved.
    pub fn place(&self) -> Option<String> {
        let SnapshotPlace { path, bucket } = self.saved.as_ref()?;
        let bucket = bucket.as_ref();
        let bucket = bucket.map(|bucket| format!(", and in the bucket {bucket}"));
        let bucket = bucket.unwrap_or_default();
        Some(format!("`{path}` on node `{}`{bucket}", self.node))
    }
}

/// Where a snapshot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SnapshotPlace {
    /// The file on its node.
    pub path: String,
    /// The bucket that has a copy, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
}

/// A definition of a component that failed on a node, on which the former one runs again. It is not tried again until
/// the definition is another one, or a person asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refused {
    /// Which.
    pub component: Component,
    /// On which node it was tried.
    pub node: NodeName,
    /// A keyed digest of the definition on that node.
    pub digest: Digest,
    /// When it failed.
    pub at: Timestamp,
    /// How.
    pub why: String,
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
    /// What digests of contents are keyed with.
    pub digest_key: DigestKey,
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
    /// The members that etcd was bootstrapped with and their peer addresses, saved before the first
    /// one starts. Empty in a state of the first format.
    pub etcd_bootstrap: BTreeMap<NodeName, String>,
    /// Which life of etcd's data this is; `None`: the first.
    pub etcd_epoch: Option<EtcdEpoch>,
    /// Where the cluster's keys are, of one whose etcd is outside of it: saved before anything is written there.
    pub external_etcd: Option<EtcdKeyspace>,
    /// By node name.
    pub inventory: BTreeMap<NodeName, InventoryEntry>,
    /// The certificates that the user supplied.
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

    /// What vouches for clients of the API server and for kubelets, PEM: the cluster's authority, and the one that signs
    /// approved requests.
    pub fn cluster_and_signer(&self) -> String {
        let signer = self.signer_ca.as_ref().map(Authority::bundle);
        self.cluster_ca.bundle() + &signer.unwrap_or_default()
    }

    /// True where the user supplied certificates of nodes, or keeps the key of an authority.
    pub fn is_signed_elsewhere(&self) -> bool {
        let authorities = [&self.cluster_ca, &self.etcd_ca, &self.front_proxy_ca];
        let mut keys = authorities.iter().map(|authority| &authority.signing.key);
        keys.any(Option::is_none) || !self.given.leaves.is_empty()
    }

    /// True where the first format was read, which did not count: what it lacked was not made yet.
    pub const fn is_of_first_format(&self) -> bool {
        self.serial == 0
    }

    /// Which life of etcd's data this is, counted in restores.
    pub fn epoch(&self) -> u32 {
        let taken_back = |epoch: &EtcdEpoch| u32::from(epoch.reached == Reached::TakenBack);
        let epoch = self.etcd_epoch.as_ref();
        epoch.map_or(0, |epoch| epoch.number.saturating_sub(taken_back(epoch)))
    }

    /// How many restores were begun.
    pub fn restores(&self) -> u32 {
        self.etcd_epoch.as_ref().map_or(0, |epoch| epoch.number)
    }

    /// From it follows etcd's id of the cluster, another one after each restore.
    pub fn etcd_token(&self) -> String {
        match self.epoch() {
            0 => self.cluster_id.0.clone(),
            epoch => format!("{}-{epoch}", self.cluster_id),
        }
    }

    /// The restore that was started and is not finished.
    pub fn restoring(&self) -> Option<&EtcdEpoch> {
        let epoch = self.etcd_epoch.as_ref();
        epoch.filter(|epoch| !matches!(epoch.reached, Reached::Done | Reached::TakenBack))
    }

    /// True for a node of the inventory with that role.
    pub fn has_role(&self, node: &NodeName, role: Role) -> bool {
        let entry = self.inventory.get(node);
        entry.is_some_and(|entry| entry.roles.contains(&role))
    }

    /// True for a node that was given up.
    pub fn is_lost(&self, node: &NodeName) -> bool {
        let entry = self.inventory.get(node);
        entry.is_some_and(|entry| entry.membership == Membership::Lost)
    }
}
