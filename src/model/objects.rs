//! Objects of the cluster's API that must be. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{ImageVersion, NodeName, ObjectRef};

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
    /// The kinds among which objects of ours may be: those of every add-on that is known, wanted
    /// or not.
    pub kinds: BTreeSet<ObjectKind>,
    /// The nodes of which it is asked what would go with them.
    pub bound_to: BTreeSet<NodeName>,
    /// The release that the API servers are to have: who asks them for what it no longer has.
    pub release: Option<ImageVersion>,
}

/// True where each node is to have a part of its pods.
pub fn is_spread(object: &serde_json::Value) -> bool {
    let constraints = object.pointer("/spec/template/spec/topologySpreadConstraints");
    constraints.is_some()
}
