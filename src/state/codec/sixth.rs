//! The sixth format, and what is written: with the key of digests, the audiences of service accounts, the pair that an
//! authority will sign with, its certificate as the authority before has signed it, the epoch of etcd, and the host keys
//! of the bastion. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    model::{
        ClientIdentity, ClusterId, Endpoint, EtcdKeyspace, KubernetesVersion, NodeName, Role,
        Secret,
    },
    state::{
        Authority, BastionEntry, CaPair, ClusterState, DigestKey, EncryptionKey, EtcdEpoch,
        GivenCertificates, InventoryEntry, Membership, OperatorMemory, ServiceAccounts,
    },
};

/// The first release that reads this format.
const READABLE_SINCE: &str = "0.1.0";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    version: u32,
    readable_since: String,
    serial: u64,
    cluster_id: ClusterId,
    digest_key: String,
    cluster_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kubernetes_version: Option<KubernetesVersion>,
    cluster_ca: Ca,
    etcd_ca: Ca,
    front_proxy_ca: Ca,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signer_ca: Option<Ca>,
    service_accounts: Accounts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    encryption: Vec<Encryption>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    etcd_bootstrap: BTreeMap<NodeName, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etcd_epoch: Option<EtcdEpoch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external_etcd: Option<EtcdKeyspace>,
    inventory: BTreeMap<NodeName, Entry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given: Option<Given>,
    #[serde(default, skip_serializing_if = "is_empty")]
    operator: OperatorMemory,
}

fn is_empty(memory: &OperatorMemory) -> bool {
    *memory == OperatorMemory::default()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ca {
    cert: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    trusted: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Next>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cross: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Next {
    cert: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    leaves: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api: Option<Identity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    etcd: Option<Identity>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    ca: String,
    cert: String,
    key: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accounts {
    signing: String,
    verifying: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    issuers: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    audiences: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Encryption {
    name: String,
    secret: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    address: String,
    port: u16,
    user: String,
    key_source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate_source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bastion: Option<BastionEntry>,
    /// What the bastion was reached through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    through: Vec<BastionEntry>,
    docker_socket: String,
    roles: Vec<Role>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    host_keys: Vec<String>,
    membership: Membership,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost_at: Option<Timestamp>,
}

impl From<&ClusterState> for Document {
    fn from(state: &ClusterState) -> Self {
        let ClusterState {
            serial,
            cluster_id,
            digest_key,
            cluster_name,
            kubernetes_version,
            cluster_ca,
            etcd_ca,
            front_proxy_ca,
            signer_ca,
            service_accounts,
            encryption,
            etcd_bootstrap,
            etcd_epoch,
            external_etcd,
            inventory,
            given,
            memory,
        } = state;
        Self {
            version: super::FORMAT,
            readable_since: READABLE_SINCE.to_owned(),
            serial: *serial,
            cluster_id: cluster_id.clone(),
            digest_key: digest_key.to_hex(),
            cluster_name: cluster_name.clone(),
            kubernetes_version: *kubernetes_version,
            cluster_ca: cluster_ca.into(),
            etcd_ca: etcd_ca.into(),
            front_proxy_ca: front_proxy_ca.into(),
            signer_ca: signer_ca.as_ref().map(Ca::from),
            service_accounts: Accounts {
                signing: service_accounts.signing.expose().clone(),
                verifying: service_accounts.verifying.clone(),
                next: service_accounts
                    .next
                    .as_ref()
                    .map(|key| key.expose().clone()),
                issuers: service_accounts.issuers.clone(),
                audiences: service_accounts.audiences.clone(),
            },
            encryption: encryption
                .iter()
                .map(|EncryptionKey { name, secret }| Encryption {
                    name: name.clone(),
                    secret: secret.expose().clone(),
                })
                .collect(),
            etcd_bootstrap: etcd_bootstrap.clone(),
            etcd_epoch: etcd_epoch.clone(),
            external_etcd: external_etcd.clone(),
            inventory: inventory
                .iter()
                .map(|(name, entry)| (name.clone(), Entry::from(entry)))
                .collect(),
            given: (!given.is_empty()).then(|| Given::from(given)),
            operator: memory.clone(),
        }
    }
}

impl TryFrom<Document> for ClusterState {
    type Error = &'static str;

    fn try_from(document: Document) -> Result<Self, Self::Error> {
        let digest_key = DigestKey::from_hex(&document.digest_key);
        Ok(Self {
            serial: document.serial.max(1),
            cluster_id: document.cluster_id,
            digest_key: digest_key.ok_or("its digest key is not 64 hex digits")?,
            cluster_name: document.cluster_name,
            kubernetes_version: document.kubernetes_version,
            cluster_ca: document.cluster_ca.into(),
            etcd_ca: document.etcd_ca.into(),
            front_proxy_ca: document.front_proxy_ca.into(),
            signer_ca: document.signer_ca.map(Authority::from),
            service_accounts: ServiceAccounts {
                signing: Secret::new(document.service_accounts.signing),
                verifying: document.service_accounts.verifying,
                next: document.service_accounts.next.map(Secret::new),
                issuers: document.service_accounts.issuers,
                audiences: document.service_accounts.audiences,
            },
            encryption: document
                .encryption
                .into_iter()
                .map(|Encryption { name, secret }| EncryptionKey {
                    name,
                    secret: Secret::new(secret),
                })
                .collect(),
            etcd_bootstrap: document.etcd_bootstrap,
            etcd_epoch: document.etcd_epoch,
            external_etcd: document.external_etcd,
            inventory: document
                .inventory
                .into_iter()
                .map(|(name, entry)| (name, entry.into()))
                .collect(),
            given: document
                .given
                .map(GivenCertificates::from)
                .unwrap_or_default(),
            memory: document.operator,
        })
    }
}

impl From<&Authority> for Ca {
    fn from(authority: &Authority) -> Self {
        let Authority {
            signing,
            trusted,
            next,
            cross,
        } = authority;
        let key = |pair: &CaPair| pair.key.as_ref().map(|key| key.expose().clone());
        Self {
            cert: signing.cert.clone(),
            key: key(signing),
            trusted: trusted.clone(),
            next: next.as_ref().map(|next| Next {
                cert: next.cert.clone(),
                key: key(next),
            }),
            cross: cross.clone(),
        }
    }
}

impl From<Ca> for Authority {
    fn from(ca: Ca) -> Self {
        Self {
            signing: CaPair {
                cert: ca.cert,
                key: ca.key.map(Secret::new),
            },
            trusted: ca.trusted,
            next: ca.next.map(|next| CaPair {
                cert: next.cert,
                key: next.key.map(Secret::new),
            }),
            cross: ca.cross,
        }
    }
}

impl From<&GivenCertificates> for Given {
    fn from(given: &GivenCertificates) -> Self {
        let GivenCertificates { leaves, api, etcd } = given;
        let identity = |ClientIdentity { ca, cert, key }: &ClientIdentity| Identity {
            ca: ca.clone(),
            cert: cert.clone(),
            key: key.expose().clone(),
        };
        Self {
            leaves: leaves.clone(),
            api: api.as_ref().map(identity),
            etcd: etcd.as_ref().map(identity),
        }
    }
}

impl From<Given> for GivenCertificates {
    fn from(given: Given) -> Self {
        let identity = |Identity { ca, cert, key }| ClientIdentity {
            ca,
            cert,
            key: Secret::new(key),
        };
        Self {
            leaves: given.leaves,
            api: given.api.map(identity),
            etcd: given.etcd.map(identity),
        }
    }
}

impl From<&InventoryEntry> for Entry {
    fn from(entry: &InventoryEntry) -> Self {
        let InventoryEntry {
            endpoint,
            user,
            key_source,
            certificate_source,
            bastions,
            docker_socket,
            roles,
            machine_id,
            host_keys,
            membership,
            lost_at,
        } = entry;
        let mut through = bastions.clone();
        let bastion = through.pop();
        Self {
            address: endpoint.address.clone(),
            port: endpoint.port,
            user: user.clone(),
            key_source: key_source.clone(),
            certificate_source: certificate_source.clone(),
            bastion,
            through,
            docker_socket: docker_socket.clone(),
            roles: roles.clone(),
            machine_id: machine_id.clone(),
            host_keys: host_keys.clone(),
            membership: *membership,
            lost_at: *lost_at,
        }
    }
}

impl From<Entry> for InventoryEntry {
    fn from(entry: Entry) -> Self {
        Self {
            endpoint: Endpoint {
                address: entry.address,
                port: entry.port,
            },
            user: entry.user,
            key_source: entry.key_source,
            certificate_source: entry.certificate_source,
            bastions: entry.through.into_iter().chain(entry.bastion).collect(),
            docker_socket: entry.docker_socket,
            roles: entry.roles,
            machine_id: entry.machine_id,
            host_keys: entry.host_keys,
            membership: entry.membership,
            lost_at: entry.lost_at,
        }
    }
}
