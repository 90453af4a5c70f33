//! The custom resources: [`Cluster`] and [`Kubeconfig`], their schemas with rules (CEL), and the
//! [`conditions`] that tell how they are. Pure: time comes in as an argument.
//!
//! [`crds`] is what `rke-operator crd` prints; `crds/*.yaml` are its output, checked in, and a
//! test fails when they are stale.
//!
//! ```
//! use rke_operator::api::{Cluster, ClusterSpec};
//!
//! let spec: ClusterSpec = serde_json::from_value(serde_json::json!({
//!     "config": { "nodes": [] },
//!     "ssh": { "keySecretRef": { "name": "nodes" } },
//! }))?;
//! let cluster = Cluster::new("prod", spec);
//! assert_eq!(cluster.spec.ssh.key_secret_ref.key, "ssh-privatekey");
//! assert_eq!(cluster.spec.deletion.timeout, "30m");
//! # Ok::<(), serde_json::Error>(())
//! ```

pub mod cluster;
pub mod conditions;
mod crd;
pub mod kubeconfig;

pub use cluster::{
    Changes, Cluster, ClusterSpec, ClusterStatus, Deletion, KeySecretRef, NameRef, OnTimeout,
    ProgressStatus, Ssh,
};
pub use crd::{crds, definition_yaml, definitions};
pub use kubeconfig::{
    KUBECONFIG_KEY, Kubeconfig, KubeconfigSpec, KubeconfigStatus, kubeconfig_secret,
};

/// The group of our resources; also the prefix of our finalizer, annotations and labels.
pub const GROUP: &str = "clusterprovisioner.rke.io";

/// Their version.
pub const VERSION: &str = "v1alpha1";

/// Keeps a `Cluster` until its nodes are given back, or until it is written down that they are
/// left (invariant 10).
pub const FINALIZER: &str = "clusterprovisioner.rke.io/cleanup";

/// An annotation: with the value `"true"`, keys that the operator has lost are read back from
/// the nodes, as far as invariant 2 allows.
pub const RECOVER: &str = "clusterprovisioner.rke.io/recover";

/// The field manager of everything that the operator writes.
pub const MANAGER: &str = "rke-operator";
