//! Objects of the cluster's API that must be. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{EtcdLook, ImageVersion, Linear, NodeName, ObjectRef, PeerPort, label};

/// A kind of object, as a manifest names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKind {
    /// `apps/v1`.
    pub api_version: String,
    /// `DaemonSet`.
    pub kind: String,
}

impl ObjectRef {
    /// Its kind.
    pub fn kind(&self) -> ObjectKind {
        ObjectKind {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
        }
    }
}

/// What a survey looks for in the cluster's API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedObjects {
    /// The objects that must be, as they are applied.
    pub objects: BTreeMap<ObjectRef, serde_json::Value>,
    /// The kinds of the objects that rke-operator may have created: those of every known add-on, wanted
    /// or not.
    pub kinds: BTreeSet<ObjectKind>,
    /// Whether it is asked who the cluster is.
    pub identity: bool,
    /// Whether the signing key of each token in a Secret is read.
    pub tokens: bool,
    /// Whether the authorities that the API hands out are read.
    pub authorities: bool,
    /// The nodes of which it is asked what would go with them.
    pub bound_to: BTreeSet<NodeName>,
    /// The release that the API servers are to have: who asks them for what it no longer has.
    pub release: Option<ImageVersion>,
    /// What has more pods where nodes have many cores.
    pub scaled: Option<Scaled>,
    /// The revision of etcd since which it is counted what was made.
    pub since: Option<u64>,
    /// The etcd outside of the cluster that is looked at, where there is one.
    pub etcd: Option<EtcdLook>,
    /// The ports of others that nodes try, because one of the two is new.
    pub peers: BTreeMap<NodeName, BTreeSet<PeerPort>>,
}

impl WantedObjects {
    /// With as many pods as the cores of the nodes ask for.
    pub fn scale(&mut self, cores: &BTreeMap<NodeName, u32>) {
        if let Some(scaled) = &self.scaled
            && let Some(object) = self.objects.get_mut(&scaled.object)
        {
            scaled.scale(object, cores);
        }
    }
}

/// The `ConfigMap`, by namespace and name, that tells of which kinds the user's own manifests are or were.
pub const KINDS_RECORD: (&str, &str) = ("kube-system", "rke-operator-user-addons");

/// True for objects of the user that stay when they are taken out of the config: with them would go what
/// others put there, or data, or they were there before.
pub fn outlives_its_manifest(object: &ObjectRef, live: &Value) -> bool {
    let found = !live["metadata"]["annotations"][label::FOUND].is_null();
    let kinds = [
        "Namespace",
        "CustomResourceDefinition",
        "PersistentVolume",
        "PersistentVolumeClaim",
    ];
    found || kinds.contains(&object.kind.as_str())
}

/// The kinds that such a record tells.
pub fn recorded_kinds(record: &Value) -> impl Iterator<Item = ObjectKind> {
    let lines = record["data"]["kinds"].as_str().unwrap_or_default().lines();
    lines.filter_map(|line| {
        let (api_version, kind) = line.split_once(' ')?;
        Some(ObjectKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
    })
}

/// A Deployment whose replicas follow the nodes and their cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// The Deployment.
    pub object: ObjectRef,
    /// The nodes that count.
    pub nodes: BTreeSet<NodeName>,
    /// How many pods for how many.
    pub linear: Linear,
}

impl Scaled {
    /// Sets the replicas. What is not known of a node's cores counts nothing.
    pub fn scale(&self, object: &mut Value, cores: &BTreeMap<NodeName, u32>) {
        let cores = self.nodes.iter().filter_map(|name| cores.get(name)).sum();
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        object["spec"]["replicas"] = self.linear.replicas(nodes, cores).into();
        stamp(object);
    }
}

/// Annotates an object with the digest of its content, so that a later survey can see what was applied.
pub fn stamp(object: &mut Value) {
    let annotations = &mut object["metadata"]["annotations"];
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(label::APPLIED);
    }
    if annotations
        .as_object()
        .is_some_and(serde_json::Map::is_empty)
    {
        *annotations = Value::Null;
    }
    if annotations.is_null()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("annotations");
    }
    let digest = Sha256::digest(object.to_string());
    let digest: String = hex::encode(digest).chars().take(16).collect();
    object["metadata"]["annotations"][label::APPLIED] = digest.into();
}

/// True where each node is to have a part of its pods.
pub fn is_spread(object: &serde_json::Value) -> bool {
    let constraints = object.pointer("/spec/template/spec/topologySpreadConstraints");
    constraints.is_some()
}
