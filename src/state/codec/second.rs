//! The second format, and the third: the same with the time at which a node was given up, the certificate of a login and
//! the bastion; and the fourth: with certificates that a person made, and authorities without a key; and the fifth: with
//! the place in an etcd outside of the cluster. Read, never written. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Deserialize;

use crate::{
    model::{
        ClientIdentity, ClusterId, Endpoint, EtcdKeyspace, KubernetesVersion, NodeName, Role,
        Secret,
    },
    state::{
        Authority, BastionEntry, CaPair, ClusterState, DigestKey, EncryptionKey, GivenCertificates,
        InventoryEntry, Membership, OperatorMemory, ServiceAccounts,
    },
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Document {
    #[expect(
        dead_code,
        reason = "it was read before, and no other field may be there"
    )]
    version: u32,
    #[expect(
        dead_code,
        reason = "it was read before, and no other field may be there"
    )]
    readable_since: String,
    serial: u64,
    cluster_id: ClusterId,
    cluster_name: String,
    #[serde(default)]
    kubernetes_version: Option<KubernetesVersion>,
    cluster_ca: Ca,
    etcd_ca: Ca,
    front_proxy_ca: Ca,
    #[serde(default)]
    signer_ca: Option<Ca>,
    service_accounts: Accounts,
    #[serde(default)]
    encryption: Vec<Encryption>,
    #[serde(default)]
    etcd_bootstrap: BTreeMap<NodeName, String>,
    #[serde(default)]
    external_etcd: Option<EtcdKeyspace>,
    inventory: BTreeMap<NodeName, Entry>,
    #[serde(default)]
    given: Option<Given>,
    #[serde(default)]
    operator: OperatorMemory,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ca {
    cert: String,
    #[serde(default)]
    key: Option<String>,
    trusted: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    leaves: BTreeSet<String>,
    #[serde(default)]
    api: Option<Identity>,
    #[serde(default)]
    etcd: Option<Identity>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    ca: String,
    cert: String,
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accounts {
    signing: String,
    verifying: Vec<String>,
    issuers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Encryption {
    name: String,
    secret: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    address: String,
    port: u16,
    user: String,
    key_source: String,
    #[serde(default)]
    certificate_source: Option<String>,
    #[serde(default)]
    bastion: Option<BastionEntry>,
    docker_socket: String,
    roles: Vec<Role>,
    #[serde(default)]
    machine_id: Option<String>,
    #[serde(default)]
    host_keys: Vec<String>,
    membership: Membership,
    #[serde(default)]
    lost_at: Option<Timestamp>,
}

impl From<Document> for ClusterState {
    fn from(document: Document) -> Self {
        let cluster_ca = Authority::from(document.cluster_ca);
        let service_accounts = ServiceAccounts {
            signing: Secret::new(document.service_accounts.signing),
            verifying: document.service_accounts.verifying,
            next: None,
            issuers: document.service_accounts.issuers,
            audiences: Vec::new(),
        };
        Self {
            serial: document.serial.max(1),
            cluster_id: document.cluster_id,
            digest_key: DigestKey::of_former(&cluster_ca, &service_accounts),
            cluster_name: document.cluster_name,
            kubernetes_version: document.kubernetes_version,
            cluster_ca,
            etcd_ca: document.etcd_ca.into(),
            front_proxy_ca: document.front_proxy_ca.into(),
            signer_ca: document.signer_ca.map(Authority::from),
            service_accounts,
            encryption: document
                .encryption
                .into_iter()
                .map(|Encryption { name, secret }| EncryptionKey {
                    name,
                    secret: Secret::new(secret),
                })
                .collect(),
            etcd_bootstrap: document.etcd_bootstrap,
            etcd_epoch: None,
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
            next: None,
            cross: None,
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
            bastions: entry.bastion.into_iter().collect(),
            docker_socket: entry.docker_socket,
            roles: entry.roles,
            machine_id: entry.machine_id,
            host_keys: entry.host_keys,
            membership: entry.membership,
            lost_at: entry.lost_at,
        }
    }
}
