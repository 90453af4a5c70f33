//! The `Cluster`: what a user asks for, and what the operator says about it.

#![expect(
    unreachable_pub,
    reason = "what KubeSchema derives repeats the types inside a function"
)]

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{config::structural_schema, model::go_duration};

/// What the cluster is to be.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, kube(cel))]
#[kube(
    group = "clusterprovisioner.rke.io",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    shortname = "rkec",
    category = "rke",
    derive = "PartialEq",
    status = "ClusterStatus",
    doc = "A Kubernetes cluster on the machines that its config names. Creating the object builds it, editing it changes it, deleting it cleans the machines.",
    validation = Rule::new("self.metadata.name.size() <= 52").message("a Cluster's name has at most 52 characters, because the names of its Secrets are made of it"),
    validation = Rule::new("[has(self.spec.config), has(self.spec.configFrom), has(self.spec.configPath)].filter(there, there).size() == 1").message("a Cluster has exactly one of spec.config, spec.configFrom and spec.configPath"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Desired", type_ = "string", json_path = ".status.desiredVersion"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodeSummary"),
    printcolumn(name = "Available", type_ = "string", json_path = r#".status.conditions[?(@.type=="Available")].status"#),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoints[0].url", priority = 1),
    printcolumn(name = "Certs", type_ = "string", json_path = ".status.certificates.earliestExpiry", priority = 1),
    printcolumn(name = "UpToDate", type_ = "string", json_path = r#".status.conditions[?(@.type=="UpToDate")].status"#, priority = 1),
    printcolumn(name = "Paused", type_ = "string", json_path = r#".status.conditions[?(@.type=="Paused")].status"#, priority = 1),
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.progress.stage", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].message"#, priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The cluster, in the words of cluster.yml: nodes, services, network and so on. Every key
    /// is checked when it is read; the condition ConfigValid has what is wrong, with its
    /// path. Passwords and private keys are in Secrets: `secretKeyRef: {name, key}` stands in the place of each.
    #[schemars(schema_with = "config_schema")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<serde_json::Map<String, serde_json::Value>>,

    /// The Secret or ConfigMap that has the cluster.yml, in place of `config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_from: Option<TextSource>,

    /// The file that is the cluster.yml, in place of `config`: relative to the folder that the operator was started with
    /// (`--config-root`). A change of the file is a change of the cluster.
    #[x_kube(validation = Rule::new("!self.startsWith('/') && !('..' in self.split('/'))").message("spec.configPath is relative to --config-root and has no `..`"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub config_path: Option<String>,

    /// How to log in to the nodes.
    pub ssh: Ssh,

    /// How changes are applied that the config asks for. Without it: Automatic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,

    /// What is done about changes that were made on the nodes or in the cluster instead of here. Without it: Heal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,

    /// Nothing is changed on any node while this is true: no run starts, nothing is healed or renewed, and a
    /// deletion cleans nothing. The cluster is still surveyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,

    /// While this is true the object cannot be deleted, unless its annotation
    /// `clusterprovisioner.rke.io/confirm-deletion` has its name. If it is deleted nevertheless, the nodes are not
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_protection: Option<bool>,

    /// What happens when this object is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
}

/// A text that is kept in another object: exactly one of the two.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secretKeyRef) != has(self.configMapKeyRef)").message("a reference has exactly one of secretKeyRef and configMapKeyRef"))]
pub struct TextSource {
    /// A key of a Secret, which must name this Cluster in its annotation `clusterprovisioner.rke.io/clusters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,

    /// A key of a ConfigMap. Every Cluster may use it: keep no passwords there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
}

/// Written from the table of keys. Rules about it are in the admission policies (`deploy/policies`) and not here: a rule of
/// a definition fails where a value has another type than its schema says, on each write and also where nothing was
/// edited. An object that an earlier schema took could not lose its finalizer.
fn config_schema(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(structural_schema()).unwrap_or_default()
}

/// Says what each value means in the description of an enum: a structural schema has no place for it next to the values.
pub(super) fn values_explained(schema: &mut Schema) {
    let text = |of: &Value, field: &str| of[field].as_str().unwrap_or_default().to_owned();
    let values = schema.get("oneOf").and_then(Value::as_array);
    let meanings: Vec<String> = values
        .into_iter()
        .flatten()
        .map(|value| {
            let meaning = text(value, "description").replace('\n', " ");
            let mut letters = meaning.chars();
            let first = letters.next().into_iter().flat_map(char::to_lowercase);
            let meaning: String = first.chain(letters).collect();
            format!("`{}`: {meaning}", text(value, "const"))
        })
        .collect();
    let whole = schema.get("description").and_then(Value::as_str);
    let whole = whole.unwrap_or_default().replace('\n', " ");
    let description = format!("{whole} {}", meanings.join(" "));
    schema.insert("description".to_owned(), description.into());
}

/// How to log in to the nodes.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.knownHosts) && has(self.knownHostsFrom))").message("spec.ssh has at most one of knownHosts and knownHostsFrom"))]
pub struct Ssh {
    /// The Secret with the private key that the nodes accept.
    pub key_secret_ref: KeyRef,

    /// The nodes' host keys, as lines of an OpenSSH known_hosts file (`ssh-keyscan <node>`
    /// prints them; compare before you trust them). A node whose key is not here is refused,
    /// and the condition NodesReachable gives the fingerprint that it showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub known_hosts: Option<String>,

    /// The Secret or ConfigMap that has such lines, in place of `knownHosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_hosts_from: Option<TextSource>,

    /// What is done about a node whose host key is neither here nor known from before. Without it: Verify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_keys: Option<HostKeys>,
}

/// What is done about a node whose host key is neither in the spec nor known from before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(transform = values_explained)]
pub enum HostKeys {
    /// The node is refused; the default.
    #[default]
    Verify,
    /// The key that it shows at the first connection is taken and kept in the cluster's state; another one is refused
    /// from then on. A machine that answers in a new node's place at that moment becomes part of the cluster.
    AcceptNew,
}

/// A key of an object in the namespace of the credentials. There is no field for another namespace: who
/// may create a Cluster could otherwise read any Secret through the operator.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyRef {
    /// Name of the object, in the namespace of the credentials.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub name: String,

    /// Which key of it. Without it: `ssh-privatekey` for a login, `cluster.yml` for a config, `known_hosts` for host keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: Option<String>,
}

/// How changes are applied that the config asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(transform = values_explained)]
pub enum Changes {
    /// At once, the disruptive ones too; the default.
    #[default]
    Automatic,
    /// A change of a cluster that is built waits until a person approves its plan: `status.pendingPlan` has it, and the
    /// annotation `clusterprovisioner.rke.io/approve` names its digest. Meanwhile the cluster is kept as it was applied
    /// last.
    Approve,
}

/// What is done about changes that were made elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(transform = values_explained)]
pub enum Drift {
    /// They are reverted; the default.
    #[default]
    Heal,
    /// The condition `UpToDate` says what differs, and nothing else is done about it; certificates that expire soon are renewed
    /// nevertheless. A change of the config reverts them, too.
    Report,
}

/// What happens when the object is deleted.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// What becomes of the nodes. Without it: Remove.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<DeletionPolicy>,

    /// How long the nodes are given to be cleaned, counted from the deletion: `30m`, `1h30m`.
    /// Without it: `30m`.
    #[x_kube(validation = Rule::new("duration(self) >= duration('1s') && duration(self) <= duration('720h')").message("the time for a deletion is between 1s and 720h"))]
    #[schemars(length(min = 2, max = 32), regex(pattern = r"^([0-9]+(s|m|h))+$"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,

    /// What happens when that time is over and some nodes are not cleaned. Without it: Orphan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,

    /// Whether a snapshot of etcd is saved before anything of the cluster is stopped. Without it: `BestEffort`. A cluster that
    /// never served, and one with an external etcd, is removed without a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_snapshot: Option<LastSnapshot>,
}

impl Deletion {
    /// The default of [`Deletion::timeout`], in force also where the spec cannot be read.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

    /// Reads what there is of it, whatever else is wrong with the object (invariant 11): what is missing or broken has
    /// its default, so that a deletion always ends; but a policy that this release does not know touches no node.
    pub fn lenient(spec: Option<&serde_json::Value>) -> LenientDeletion {
        let deletion = spec.and_then(|spec| spec.get("deletion"));
        let field = |name: &str| deletion.and_then(|deletion| deletion.get(name));
        LenientDeletion {
            policy: match field("policy") {
                None | Some(serde_json::Value::Null) => DeletionPolicy::Remove,
                Some(value) => DeletionPolicy::deserialize(value).unwrap_or(DeletionPolicy::Orphan),
            },
            timeout: field("timeout")
                .and_then(serde_json::Value::as_str)
                .and_then(go_duration)
                .unwrap_or(Self::DEFAULT_TIMEOUT),
            on_timeout: field("onTimeout")
                .and_then(|value| OnTimeout::deserialize(value).ok())
                .unwrap_or_default(),
            last_snapshot: field("lastSnapshot")
                .and_then(|value| LastSnapshot::deserialize(value).ok())
                .unwrap_or_default(),
        }
    }
}

/// What [`Deletion::lenient`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LenientDeletion {
    /// What becomes of the nodes.
    pub policy: DeletionPolicy,
    /// How long the nodes are given to be cleaned.
    pub timeout: Duration,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// Whether a snapshot is saved before.
    pub last_snapshot: LastSnapshot,
}

/// What happens to the nodes of a deleted cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(transform = values_explained)]
pub enum DeletionPolicy {
    /// They are cleaned, and what the cluster put on them is deleted; the default.
    #[default]
    Remove,
    /// They are not changed, and the cluster keeps running. What is left is written into the ConfigMap
    /// `<cluster>-orphaned` and an Event; the state is kept, for an object that takes over by the cluster's id.
    Orphan,
}

/// What happens to a deletion that runs out of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(transform = values_explained)]
pub enum OnTimeout {
    /// It ends, and what is left is written into the ConfigMap `<cluster>-orphaned` and an Event; the default.
    #[default]
    Orphan,
    /// It is retried for ever, and the object stays, Stalled, until the nodes are clean.
    Keep,
}

/// Whether a snapshot of etcd is saved before a cluster is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(transform = values_explained)]
pub enum LastSnapshot {
    /// Nothing is stopped before one is saved. Where none can be saved the deletion is retried until its `timeout` ends it.
    Required,
    /// One is saved where that is possible; where it is not, a warning says why, and the cluster is removed; the default.
    #[default]
    BestEffort,
    /// None is saved.
    Skip,
}

/// What the operator says about a Cluster.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The generation of the object that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The value of the annotation `clusterprovisioner.rke.io/reconcile-at` that was handled last: the cluster was
    /// surveyed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub last_handled_reconcile_at: Option<String>,

    /// The conditions; the documentation lists their types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The cluster's id, which the nodes carry.
    #[serde(rename = "clusterID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub cluster_id: Option<String>,

    /// The Kubernetes version that the API server reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub version: Option<String>,

    /// The Kubernetes version that the config asks for, or the default of this release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub desired_version: Option<String>,

    /// Nodes that are Ready, of those that the config names: `4/5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub node_summary: Option<String>,

    /// The nodes, counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,

    /// The nodes, unhealthy ones first; the first twenty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub node_details: Vec<NodeDetail>,

    /// The members of etcd, counted; absent where etcd is outside of the cluster, or did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<EtcdCounts>,

    /// Where the cluster's API answers; the first ten control planes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub endpoints: Vec<ApiEndpoint>,

    /// Progress of the current run; absent when none runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressStatus>,

    /// The last run that finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,

    /// The Kubeconfig object that names the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_ref: Option<NameRef>,

    /// The certificate that expires first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<CertificateStatus>,

    /// Recurring snapshots of etcd; absent where none was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<SnapshotTimes>,

    /// The config that was last applied completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_config: Option<AppliedConfig>,

    /// When the cluster was last surveyed, rounded down to ten minutes: how old its health is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_survey: Option<String>,

    /// Changes that wait for a person; absent when none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_plan: Option<PendingPlan>,

    /// What the config and the last run warned about; the first twenty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 1024)))]
    pub warnings: Vec<String>,

    /// While it is deleted: the nodes that are not cleaned yet, and why; the first twenty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub remaining: Vec<RemainingNode>,
}

/// The nodes of a cluster, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Nodes that the config names.
    pub total: i64,
    /// Those that are Ready in the cluster.
    pub ready: i64,
    /// Those that match the spec.
    pub up_to_date: i64,
    /// Those that do not answer.
    pub unreachable: i64,
}

/// How one node is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeDetail {
    /// Its name in the cluster.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The address at which it is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub address: Option<String>,
    /// Its roles: controlplane, etcd, worker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3), inner(length(max = 16)))]
    pub roles: Vec<String>,
    /// How it is.
    pub state: NodeState,
    /// The version of its kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub version: Option<String>,
    /// Why it is not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub message: Option<String>,
}

/// How a node is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum NodeState {
    /// It, or its Docker, does not answer.
    Unreachable,
    /// It answers, and the cluster does not call it Ready.
    NotReady,
    /// It is not known.
    Unknown,
    /// It is on its way into the cluster.
    Joining,
    /// It is on its way out of the cluster.
    Leaving,
    /// It is Ready, and differs from the spec.
    Updating,
    /// It is Ready, and as the spec says.
    Ready,
}

/// The members of etcd, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdCounts {
    /// Members that vote.
    pub members: i64,
    /// Those that follow the leader.
    pub healthy: i64,
}

/// A run that ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// When it began.
    #[schemars(length(max = 64))]
    pub started: String,
    /// How long it took, as a duration: `42s`.
    #[schemars(length(max = 32))]
    pub took: String,
    /// How it ended.
    pub outcome: RunOutcome,
    /// The step that took longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_step: Option<SlowestStep>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum RunOutcome {
    /// Everything was done.
    Succeeded,
    /// What could be done was done; some nodes were left out.
    Degraded,
    /// A step failed that nothing could go on without.
    Failed,
    /// It was stopped before its end: by an edit, a deletion, or the end of the process.
    Interrupted,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlowestStep {
    /// What it did.
    #[schemars(length(max = 256))]
    pub name: String,
    /// On which node; absent for one that was on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// How long it took, as a duration.
    #[schemars(length(max = 32))]
    pub took: String,
}

/// A certificate of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// When it ends.
    #[schemars(length(max = 64))]
    pub earliest_expiry: String,
    /// Which it is: a file of a node, or an authority.
    #[schemars(length(max = 512))]
    pub component: String,
}

/// When the newest snapshots of etcd were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotTimes {
    /// The newest on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_saved: Option<String>,
    /// The newest that was restored for trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_proven: Option<String>,
    /// The newest that was copied to the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_copied: Option<String>,
    /// The bucket, for people; absent where snapshots stay on their nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub place: Option<String>,
}

/// A config that was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedConfig {
    /// A digest of its text, keyed: equal for equal texts of this cluster, and it reveals nothing about them.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// The generation of the object that it came from.
    pub observed_generation: i64,
    /// When that was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub time: Option<String>,
    /// The release of the operator that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub operator_version: Option<String>,
}

/// A plan that waits for a person.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPlan {
    /// What `clusterprovisioner.rke.io/approve` names. It covers the config, the one that was applied before it,
    /// and the release of the operator; another change has another digest.
    #[schemars(length(max = 64))]
    pub digest: String,
    /// Why it waits.
    pub reason: PendingReason,
    /// Since when.
    #[schemars(length(max = 64))]
    pub created_at: String,
    /// How many steps change something.
    pub steps: i64,
    /// What it disrupts, by node; the first twenty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub disruptions: Vec<DisruptedNode>,
    /// The plan, as `rke-operator plan` prints it; the first part, where it is long.
    #[schemars(length(max = 32_768))]
    pub plan: String,
}

/// Why a plan waits for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PendingReason {
    /// The config was changed, and the spec says `changes: Approve`.
    Approval,
    /// The config was not changed: a new release of the operator, or other facts of a node.
    Update,
}

/// What a plan disrupts on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct DisruptedNode {
    /// The node.
    #[schemars(length(max = 253))]
    pub node: String,
    /// What.
    #[schemars(length(max = 256))]
    pub what: String,
}

/// Where one API server answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct ApiEndpoint {
    /// `https://<address>:6443`.
    #[schemars(length(max = 300))]
    pub url: String,
    /// The node on which it runs.
    #[schemars(length(max = 253))]
    pub node: String,
}

/// A node that a deletion has not cleaned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct RemainingNode {
    /// The node.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Why, in one word: as in the conditions.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// Why.
    #[schemars(length(max = 512))]
    pub message: String,
}

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgressStatus {
    /// The stage that runs.
    #[schemars(length(max = 64))]
    pub stage: String,
    /// Steps that are done.
    pub done: i64,
    /// Steps of this iteration.
    pub total: i64,
    /// What it is doing, or waiting for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub current: Option<String>,
    /// When this stage began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub since: Option<String>,
}

/// Names another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct NameRef {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(deletion: &serde_json::Value) -> Cluster {
        let spec = json!({
            "config": {}, "ssh": {"keySecretRef": {"name": "nodes"}}, "deletion": deletion,
        });
        Cluster::new("prod", serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn rules_bound_the_deletion_timeout_and_the_name() {
        cluster(&json!({})).validate_cel().unwrap();
        cluster(&json!({"timeout": "1h30m"}))
            .validate_cel()
            .unwrap();
        let error = cluster(&json!({"timeout": "721h"}))
            .validate_cel()
            .unwrap_err();
        assert!(error.to_string().contains("between 1s and 720h"), "{error}");
        let mut long = cluster(&json!({}));
        long.metadata.name = Some("x".repeat(53));
        let error = long.validate_cel().unwrap_err();
        assert!(
            error.to_string().contains("at most 52 characters"),
            "{error}"
        );
    }

    /// There is one config, one place for host keys, and one object behind a reference.
    #[test]
    fn rules_leave_one_source_of_each() {
        let rules = |spec: &serde_json::Value| {
            let mut spec = spec.clone();
            spec["ssh"]["keySecretRef"] = json!({"name": "nodes"});
            let cluster = Cluster::new("prod", serde_json::from_value(spec).unwrap());
            cluster.validate_cel().map_err(|error| error.to_string())
        };
        let (secret, map) = (json!({"name": "a"}), json!({"name": "b"}));
        let from = json!({"configMapKeyRef": map});
        let both = json!({"secretKeyRef": secret, "configMapKeyRef": map});
        for good in [
            json!({"config": {}}),
            json!({"configFrom": from}),
            json!({"configFrom": {"secretKeyRef": secret}}),
            json!({"configPath": "prod/cluster.yml"}),
            json!({"configPath": "a..b/..c"}),
            json!({"config": {}, "ssh": {"knownHosts": "a"}}),
            json!({"config": {}, "ssh": {"knownHostsFrom": from}}),
        ] {
            assert_eq!(rules(&good), Ok(()), "{good}");
        }
        for (bad, why) in [
            (json!({}), "exactly one of spec.config,"),
            (
                json!({"config": {}, "configFrom": from}),
                "exactly one of spec.config,",
            ),
            (
                json!({"config": {}, "configPath": "a"}),
                "exactly one of spec.config,",
            ),
            (
                json!({"configFrom": from, "configPath": "a"}),
                "exactly one of spec.config,",
            ),
            (
                json!({"config": {}, "configFrom": from, "configPath": "a"}),
                "exactly one of spec.config,",
            ),
            (json!({"configFrom": {}}), "exactly one of secretKeyRef"),
            (json!({"configFrom": both}), "exactly one of secretKeyRef"),
            (json!({"configPath": "/a"}), "relative to --config-root"),
            (json!({"configPath": "../a"}), "relative to --config-root"),
            (json!({"configPath": "a/.."}), "relative to --config-root"),
            (
                json!({"config": {}, "ssh": {"knownHosts": "a", "knownHostsFrom": from}}),
                "at most one of knownHosts",
            ),
            (
                json!({"config": {}, "ssh": {"knownHostsFrom": both}}),
                "exactly one of secretKeyRef",
            ),
        ] {
            let error = rules(&bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_deletion_policy_is_read_from_any_wreck() {
        let default = LenientDeletion {
            policy: DeletionPolicy::Remove,
            timeout: Deletion::DEFAULT_TIMEOUT,
            on_timeout: OnTimeout::Orphan,
            last_snapshot: LastSnapshot::BestEffort,
        };
        for wreck in [
            json!(null),
            json!(7),
            json!({"deletion": "never"}),
            json!({"deletion": {"timeout": 30, "onTimeout": "Forget"}}),
            json!({"deletion": {"timeout": "-5m"}}),
            json!({"deletion": {"timeout": "99999999999999999999h"}}),
        ] {
            assert_eq!(Deletion::lenient(Some(&wreck)), default, "{wreck}");
        }
        assert_eq!(Deletion::lenient(None), default);
        let good =
            json!({"config": "broken", "deletion": {"timeout": "1h30m", "onTimeout": "Keep"}});
        assert_eq!(
            Deletion::lenient(Some(&good)),
            LenientDeletion {
                timeout: Duration::from_secs(5400),
                on_timeout: OnTimeout::Keep,
                ..default
            }
        );
        // A policy that is not known may spare the nodes, and nothing else may be done to them.
        for policy in [json!("Orphan"), json!("Shelve"), json!(7)] {
            let spec = json!({"deletion": {"policy": policy}});
            let read = Deletion::lenient(Some(&spec));
            assert_eq!(read.policy, DeletionPolicy::Orphan, "{spec}");
        }
    }

    /// No default is persisted: a better one reaches the objects that are there.
    #[test]
    fn the_schema_has_no_defaults() {
        use kube::CustomResourceExt;

        let crd = serde_json::to_string(&Cluster::crd()).unwrap();
        assert!(!crd.contains("\"default\""), "{crd}");
        let bare = cluster(&json!(null)).spec;
        assert!(bare.changes.is_none() && bare.deletion.is_none());
        let spec = serde_json::to_value(&bare).unwrap();
        assert_eq!(
            spec,
            json!({"config": {}, "ssh": {"keySecretRef": {"name": "nodes"}}})
        );
    }
}
