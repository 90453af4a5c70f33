//! What the program on a node works with: rke-operator writes it to the node, and the program reads it. Pure.

use serde::{Deserialize, Serialize};

use crate::model::{Bucket, ClusterId, NodeName, SnapshotPolicy};

/// Everything. Its file is root's alone: the keys of the bucket are in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Whose snapshots they are.
    pub cluster_id: ClusterId,
    /// Its name, for people.
    pub cluster_name: String,
    /// The node that the program runs on.
    pub node: NodeName,
    /// The release of Kubernetes whose objects are in them.
    pub kubernetes_version: String,
    /// When snapshots are taken, and which are kept.
    pub policy: SnapshotPolicy,
    /// Where they are copied to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// The file of the authorities that the member's certificate is verified with.
    pub ca: String,
    /// The file of the certificate that the member is shown.
    pub cert: String,
    /// The file of its key.
    pub key: String,
}
