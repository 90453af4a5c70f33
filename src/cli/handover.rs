//! A cluster as objects of a management cluster: its `Cluster`, the Secrets that it refers to, and its state. Reads and writes nothing.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};
use serde_saphyr::SerializeError;

use crate::{
    api::{CLUSTERS, GROUP, TAKE_OVER, VERSION},
    model::Secret,
    state::{ClusterState, InventoryEntry, OperatorMemory, secret::SecretStore},
};

/// What the objects are made of.
pub(super) struct Handover<'a> {
    /// The name of the `Cluster`.
    pub(super) name: &'a str,
    /// The operator's namespace.
    pub(super) namespace: &'a str,
    /// That of the credentials.
    pub(super) credentials: &'a str,
    /// The config, which names no file.
    pub(super) config: Config,
    /// The private key.
    pub(super) key: &'a Secret<String>,
    /// Lines of `known_hosts`.
    pub(super) known_hosts: &'a str,
    /// The state of the command line.
    pub(super) saved: &'a ClusterState,
}

/// Where the config of an object is.
pub(super) enum Config {
    /// In the object: everybody who may read it may read the config.
    Inline(Value),
    /// In a Secret, as a text.
    Secret(Secret<String>),
}

/// The objects, those with secrets first: the `Cluster` comes when all is there that it refers to.
pub(super) struct Manifests {
    pub(super) secrets: Vec<Value>,
    pub(super) cluster: Value,
}

/// The Secret with the key.
pub(super) fn key_secret(name: &str) -> String {
    format!("{name}-ssh")
}

fn config_secret(name: &str) -> String {
    format!("{name}-config")
}

impl Handover<'_> {
    /// The objects.
    pub(super) fn manifests(&self) -> Result<Manifests, serde_json::Error> {
        let name = self.name;
        let state = SecretStore::manifest(self.namespace, name, &self.state(), None);
        let mut state = serde_json::to_value(state)?;
        if let Some(object) = state.as_object_mut() {
            object.insert("apiVersion".to_owned(), "v1".into());
            object.insert("kind".to_owned(), "Secret".into());
        }
        let key = [("ssh-privatekey", self.key)];
        let mut secrets = vec![
            state,
            self.secret(&key_secret(name), "kubernetes.io/ssh-auth", key),
        ];
        let mut spec = Map::new();
        match &self.config {
            Config::Inline(config) => {
                spec.insert("config".to_owned(), config.clone());
            }
            Config::Secret(text) => {
                let of = config_secret(name);
                secrets.push(self.secret(&of, "Opaque", [("cluster.yml", text)]));
                spec.insert(
                    "configFrom".to_owned(),
                    json!({"secretKeyRef": {"name": of}}),
                );
            }
        }
        let mut ssh = json!({"keySecretRef": {"name": key_secret(name)}});
        if !self.known_hosts.is_empty() {
            ssh["knownHosts"] = self.known_hosts.into();
        }
        spec.insert("ssh".to_owned(), ssh);
        let cluster = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "Cluster",
            "metadata": {
                "name": name,
                "annotations": { TAKE_OVER: self.saved.cluster_id.0 },
            },
            "spec": spec,
        });
        Ok(Manifests { secrets, cluster })
    }

    /// The state as an operator has it before it belongs to an object. The serial stays: taking over counts once, so that a
    /// state that is older than the nodes' copies is never taken for a newer one.
    fn state(&self) -> ClusterState {
        let key = key_secret(self.name);
        let login = |source: &mut String, certificate: &mut Option<String>| {
            source.clone_from(&key);
            if certificate.is_some() {
                *certificate = Some("ssh_cert".to_owned());
            }
        };
        let mut state = self.saved.clone();
        for entry in state.inventory.values_mut() {
            let InventoryEntry {
                key_source,
                certificate_source,
                bastions,
                ..
            } = entry;
            login(key_source, certificate_source);
            for bastion in bastions {
                login(&mut bastion.key_source, &mut bastion.certificate_source);
            }
        }
        state.memory = OperatorMemory {
            uid: None,
            applied: None,
            populated: self.saved.memory.populated,
            refused: self.saved.memory.refused.clone(),
            operations: self.saved.memory.operations.clone(),
            last_snapshot: self.saved.memory.last_snapshot.clone(),
        };
        state
    }

    fn secret<const N: usize>(
        &self,
        name: &str,
        kind: &str,
        data: [(&str, &Secret<String>); N],
    ) -> Value {
        let data: BTreeMap<&str, String> = data
            .into_iter()
            .map(|(key, text)| (key, BASE64_STANDARD.encode(text.expose())))
            .collect();
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": self.credentials,
                "annotations": { CLUSTERS: self.name },
            },
            "type": kind,
            "data": data,
        })
    }
}

/// Objects as YAML documents.
pub(super) fn yaml<'a>(
    objects: impl IntoIterator<Item = &'a Value>,
) -> Result<Secret<String>, SerializeError> {
    let documents = objects.into_iter().map(serde_saphyr::to_string);
    let documents: Vec<String> = documents.collect::<Result<_, _>>()?;
    Ok(Secret::new(documents.join("---\n")))
}
