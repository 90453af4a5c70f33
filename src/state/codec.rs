//! [`Saved`] as text: what the stores and the copies on control planes hold. Pure.
//!
//! By hand and not by deriving on [`Saved`]: [`Secret`] cannot be serialised by accident, and this
//! is the one place that means it. Strict: an unknown field or version is an error, never guessed at.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CaPair, ClusterId, InventoryEntry, Saved};
use crate::{
    config::{Endpoint, NodeName, Role},
    secret::Secret,
};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    version: u32,
    cluster_id: ClusterId,
    cluster_name: String,
    cluster_ca: Ca,
    etcd_ca: Ca,
    front_proxy_ca: Ca,
    service_account_key: String,
    inventory: BTreeMap<NodeName, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ca {
    cert: String,
    key: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    address: String,
    port: u16,
    user: String,
    key_source: String,
    docker_socket: String,
    roles: Vec<Role>,
}

/// The version alone, read first: another version's fields are not ours to judge.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

/// The state as JSON. Holds every key: goes into files of mode 0600 and Secrets, nowhere else.
pub fn encode(saved: &Saved) -> Secret<String> {
    let Saved {
        cluster_id,
        cluster_name,
        cluster_ca,
        etcd_ca,
        front_proxy_ca,
        service_account_key,
        inventory,
    } = saved;
    let ca = |pair: &CaPair| Ca {
        cert: pair.cert.clone(),
        key: pair.key.expose().clone(),
    };
    let document = Document {
        version: VERSION,
        cluster_id: cluster_id.clone(),
        cluster_name: cluster_name.clone(),
        cluster_ca: ca(cluster_ca),
        etcd_ca: ca(etcd_ca),
        front_proxy_ca: ca(front_proxy_ca),
        service_account_key: service_account_key.expose().clone(),
        inventory: inventory
            .iter()
            .map(|(name, entry)| (name.clone(), Entry::from(entry)))
            .collect(),
    };
    // Strings, numbers and maps with string keys: there is nothing that JSON could refuse.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    Secret::new(text)
}

/// Reads what [`encode`] wrote. The error says what is wrong and quotes no value.
pub fn decode(text: &str) -> Result<Saved, String> {
    let not_ours = |error: &serde_json::Error| {
        format!(
            "it is not a state of this program (line {}, column {})",
            error.line(),
            error.column()
        )
    };
    let head: Head = serde_json::from_str(text).map_err(|error| not_ours(&error))?;
    if head.version != VERSION {
        return Err(format!(
            "it has version {}, and this program reads version {VERSION}",
            head.version
        ));
    }
    let document: Document = serde_json::from_str(text).map_err(|error| not_ours(&error))?;
    let id = &document.cluster_id.0;
    if id.len() != 32
        || !id
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    {
        return Err("its cluster id is not 32 hex digits".to_owned());
    }
    let ca = |ca: Ca| CaPair {
        cert: ca.cert,
        key: Secret::new(ca.key),
    };
    Ok(Saved {
        cluster_id: document.cluster_id,
        cluster_name: document.cluster_name,
        cluster_ca: ca(document.cluster_ca),
        etcd_ca: ca(document.etcd_ca),
        front_proxy_ca: ca(document.front_proxy_ca),
        service_account_key: Secret::new(document.service_account_key),
        inventory: document
            .inventory
            .into_iter()
            .map(|(name, entry)| (name, entry.into()))
            .collect(),
    })
}

impl From<&InventoryEntry> for Entry {
    fn from(entry: &InventoryEntry) -> Self {
        let InventoryEntry {
            endpoint,
            user,
            key_source,
            docker_socket,
            roles,
        } = entry;
        Self {
            address: endpoint.address.clone(),
            port: endpoint.port,
            user: user.clone(),
            key_source: key_source.clone(),
            docker_socket: docker_socket.clone(),
            roles: roles.clone(),
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
            docker_socket: entry.docker_socket,
            roles: entry.roles,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> Saved {
        let ca = |name: &str| CaPair {
            cert: format!("certificate of {name}"),
            key: Secret::new(format!("key of {name}")),
        };
        let entry = InventoryEntry {
            endpoint: Endpoint {
                address: "10.0.0.2".to_owned(),
                port: 2222,
            },
            user: "rke".to_owned(),
            key_source: "~/.ssh/id_ed25519".to_owned(),
            docker_socket: "/var/run/docker.sock".to_owned(),
            roles: vec![Role::Etcd, Role::ControlPlane],
        };
        Saved {
            cluster_id: ClusterId("0123456789abcdef".repeat(2)),
            cluster_name: "local".to_owned(),
            cluster_ca: ca("kube-ca"),
            etcd_ca: ca("kube-etcd-ca"),
            front_proxy_ca: ca("front proxy"),
            service_account_key: Secret::new("service accounts".to_owned()),
            inventory: BTreeMap::from([(NodeName::from("n1"), entry)]),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = encode(&saved());
        assert_eq!(decode(text.expose()), Ok(saved()));
        assert_eq!(encode(&saved()), text);
    }

    #[test]
    fn what_is_not_understood_is_an_error_that_quotes_nothing() {
        let text = encode(&saved());
        let text = text.expose();
        for (broken, why) in [
            (
                text.replace("\"version\": 1", "\"version\": 2"),
                "it has version 2",
            ),
            (
                text.replace("\"etcdCa\"", "\"EtcdCa\""),
                "it is not a state of this program",
            ),
            (
                text.replace("\"key of kube-ca\"", "7"),
                "it is not a state of this program",
            ),
            (
                text.replace("0123456789abcdef", "secret"),
                "its cluster id is not 32 hex digits",
            ),
            (
                text[..text.len() / 2].to_owned(),
                "it is not a state of this program",
            ),
            (String::new(), "it is not a state of this program"),
        ] {
            let error = decode(&broken).unwrap_err();
            assert!(error.starts_with(why), "{error}");
            assert!(
                !error.contains("secret") && !error.contains("key of"),
                "{error}"
            );
        }
    }
}
