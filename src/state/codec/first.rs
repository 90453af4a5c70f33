//! The first format: one certificate an authority, no serial. Read, never written. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    model::{ClusterId, Endpoint, NodeName, Role, Secret},
    state::{
        Authority, CaPair, ClusterState, DigestKey, GivenCertificates, InventoryEntry, Membership,
        OperatorMemory, ServiceAccounts,
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
    cluster_id: ClusterId,
    cluster_name: String,
    cluster_ca: Ca,
    etcd_ca: Ca,
    front_proxy_ca: Ca,
    service_account_key: Secret<String>,
    inventory: BTreeMap<NodeName, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ca {
    cert: String,
    key: Secret<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    address: String,
    port: u16,
    user: String,
    key_source: String,
    docker_socket: String,
    roles: Vec<Role>,
}

/// What that format did not have is empty, and made by the next `up`.
impl From<Document> for ClusterState {
    fn from(document: Document) -> Self {
        let ca = |Ca { cert, key }| {
            let key = Some(key);
            Authority::of(CaPair { cert, key })
        };
        let cluster_ca = ca(document.cluster_ca);
        let service_accounts = ServiceAccounts {
            signing: document.service_account_key,
            verifying: Vec::new(),
            next: None,
            issuers: Vec::new(),
            audiences: Vec::new(),
        };
        Self {
            serial: 0,
            cluster_id: document.cluster_id,
            digest_key: DigestKey::of_former(&cluster_ca, &service_accounts),
            cluster_name: document.cluster_name,
            kubernetes_version: None,
            cluster_ca,
            etcd_ca: ca(document.etcd_ca),
            front_proxy_ca: ca(document.front_proxy_ca),
            signer_ca: None,
            service_accounts,
            encryption: Vec::new(),
            etcd_bootstrap: BTreeMap::new(),
            etcd_epoch: None,
            external_etcd: None,
            inventory: document
                .inventory
                .into_iter()
                .map(|(name, entry)| (name, entry.into()))
                .collect(),
            given: GivenCertificates::default(),
            memory: OperatorMemory::default(),
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
            certificate_source: None,
            bastions: Vec::new(),
            docker_socket: entry.docker_socket,
            roles: entry.roles,
            machine_id: None,
            host_keys: Vec::new(),
            membership: Membership::Active,
            lost_at: None,
        }
    }
}
