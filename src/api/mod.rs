//! The custom resources: [`Cluster`], [`Kubeconfig`] and [`ClusterOperation`], their schemas with rules (CEL), and the
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
//! assert_eq!(cluster.spec.ssh.key_secret_ref.name, "nodes");
//! assert_eq!(cluster.spec.deletion, None, "no default is written into an object");
//! # Ok::<(), serde_json::Error>(())
//! ```

pub mod cluster;
pub mod conditions;
mod crd;
pub mod kubeconfig;
pub mod next;
pub mod observed;
pub mod operation;
pub mod reason;

pub use cluster::{
    ApiEndpoint, AppliedConfig, CertificateStatus, Changes, Cluster, ClusterSpec, ClusterStatus,
    Deletion, DeletionPolicy, DisruptedNode, Drift, EtcdCounts, HostKeys, KeyRef, LastRun,
    LastSnapshot, LenientDeletion, NameRef, NodeCounts, NodeDetail, NodeState, OnTimeout,
    PendingPlan, PendingReason, ProgressStatus, RemainingNode, RunOutcome, SlowestStep,
    SnapshotTimes, Ssh, TextSource,
};
pub use crd::{crds, definition_yaml, definitions};
pub use kubeconfig::{
    ClusterRef, KUBECONFIG_KEY, Kubeconfig, KubeconfigReason, KubeconfigSpec, KubeconfigStatus,
    SecretFormat, SecretRef, SecretTarget, UNBIND, kubeconfig_secret,
};
pub use operation::{
    ClusterOperation, ClusterOperationSpec, ClusterOperationStatus, DrainSpec, OperationPhase,
    OperationPlan, OperationReason, OperationService, OperationStage, OperationType, RebootSpec,
    ResetSpec, RestoreSpec, RotateCertificatesSpec, SnapshotSpec, StageSpec, VerifySpec,
};

/// The group of our resources; also the prefix of our finalizer, annotations and labels.
pub const GROUP: &str = "clusterprovisioner.rke.io";

/// Their version.
pub const VERSION: &str = "v1alpha1";

/// Keeps a `Cluster` until its nodes are clean, or until it is written down that they are
/// left (invariant 10).
pub const FINALIZER: &str = "clusterprovisioner.rke.io/cleanup";

/// An annotation whose value is a cluster's id: the lost keys of that cluster are read back from
/// the nodes, as far as invariant 2 allows. Used once: the operator takes it away.
pub const RECOVER: &str = "clusterprovisioner.rke.io/recover";

/// An annotation whose value is a cluster's id: the state of that cluster, which an earlier
/// object of this name left, becomes this object's. Used once: the operator takes it away.
pub const TAKE_OVER: &str = "clusterprovisioner.rke.io/take-over";

/// An annotation whose value is names of nodes, separated by commas: they are gone for good, and the
/// cluster goes on without them. Used once: the operator takes it away.
pub const LOSE: &str = crate::model::label::LOSE;
/// Names of nodes, separated by commas, that are cleaned when they leave although another Kubernetes is on them.
pub const CLEAN: &str = crate::model::label::CLEAN;

/// An annotation whose value is the cluster id of an external etcd, which was restored under another id: the cluster goes
/// on with it. Used once: the operator takes it away.
pub const ACCEPT_ETCD: &str = crate::model::label::ACCEPT_ETCD;

/// An annotation of any value: a change that failed on a node and was put back there is tried again. Used once: the
/// operator removes it.
pub const RETRY: &str = crate::model::label::RETRY;

/// An annotation of a Secret with a key to nodes: the names of the Clusters that may use it, separated by commas, or `*`.
/// Without it none may.
pub const CLUSTERS: &str = "clusterprovisioner.rke.io/clusters";

/// An annotation whose value is the name of its object: the object is deleted although its spec protects it.
pub const CONFIRM_DELETION: &str = "clusterprovisioner.rke.io/confirm-deletion";

/// An annotation whose value is the digest of a plan that waits (`status.pendingPlan.digest`): it may be carried out. Used
/// once: the operator takes it away.
pub const APPROVE: &str = "clusterprovisioner.rke.io/approve";

/// An annotation in addition to [`APPROVE`]: the name of the user who approves. The admission policy admits no other than
/// that of the user who writes it.
pub const APPROVED_BY: &str = "clusterprovisioner.rke.io/approved-by";

/// An annotation of any value: when it changes, the cluster is looked at without delay. `status.lastHandledReconcileAt`
/// repeats the value when that is done.
pub const RECONCILE_AT: &str = "clusterprovisioner.rke.io/reconcile-at";

/// Every annotation by which a person requests something of the operator: a change of one starts a reconcile.
pub const REQUESTS: [&str; 10] = [
    RECOVER,
    TAKE_OVER,
    LOSE,
    CLEAN,
    ACCEPT_ETCD,
    RETRY,
    CONFIRM_DELETION,
    APPROVE,
    APPROVED_BY,
    RECONCILE_AT,
];

/// An annotation that the operator writes: the id of the cluster that this object once had. It
/// outlives a status that was lost, so that a deletion knows that there were nodes.
pub const CLUSTER_ID: &str = "clusterprovisioner.rke.io/cluster-id";

/// An annotation that the operator writes: the Kubernetes version that the cluster's API reported last.
pub const KUBERNETES_VERSION: &str = "clusterprovisioner.rke.io/kubernetes-version";

/// An annotation that the operator writes: when it first tried to remove the cluster. The deadline of
/// a deletion counts from then on.
pub const REMOVAL_BEGAN: &str = "clusterprovisioner.rke.io/removal-began";

/// An annotation of our definitions: the number of their [schema](SCHEMA).
pub const SCHEMA_VERSION: &str = "clusterprovisioner.rke.io/schema-version";

/// Counts the schemas of [`VERSION`]: an operator refuses to run with definitions of a lower
/// number, which would throw away what it writes. A test asks for another with every change.
pub const SCHEMA: u32 = 16;

/// The field manager of everything that the operator writes.
pub const MANAGER: &str = "rke-operator";
