//! The `ClusterOperation`: something that is done to a cluster once, and is no part of what the cluster is. Its spec says
//! what; its status, what became of it.

#![expect(
    unreachable_pub,
    reason = "what KubeSchema derives repeats the types inside a function"
)]

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterRef, cluster::values_explained};

/// What is done, to which cluster.
#[derive(
    CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize,
)]
#[cfg_attr(test, kube(cel))]
#[kube(
    group = "clusterprovisioner.rke.io",
    version = "v1alpha1",
    kind = "ClusterOperation",
    plural = "clusteroperations",
    shortname = "rkeo",
    category = "rke",
    derive = "PartialEq",
    status = "ClusterOperationStatus",
    doc = "Something that is done to a Cluster once: a snapshot, a restore, a rotation, a reboot. Operations of a Cluster run one after the other, the oldest first, each name once. What cannot be undone waits for approval of its plan.",
    validation = Rule::new("has(self.spec.restore) == (self.spec.type == 'Restore')").message("an operation of the type Restore, and no other, has `restore`"),
    validation = Rule::new("has(self.spec.reboot) == (self.spec.type == 'Reboot')").message("an operation of the type Reboot, and no other, has `reboot`"),
    validation = Rule::new("has(self.spec.rotateCA) == (self.spec.type == 'RotateCA')").message("an operation of the type RotateCA, and no other, has `rotateCA`"),
    validation = Rule::new("has(self.spec.rotateServiceAccountKey) == (self.spec.type == 'RotateServiceAccountKey')").message("an operation of the type RotateServiceAccountKey, and no other, has `rotateServiceAccountKey`"),
    validation = Rule::new("!has(self.spec.rotateServiceAccountKey) || self.spec.rotateServiceAccountKey.stage != 'Now'").message("the stage Now is for certificate authorities (`rotateCA`)"),
    validation = Rule::new("has(self.spec.verify) == (self.spec.type == 'Verify')").message("an operation of the type Verify, and no other, has `verify`"),
    validation = Rule::new("has(self.spec.drain) == (self.spec.type == 'Drain')").message("an operation of the type Drain, and no other, has `drain`"),
    validation = Rule::new("has(self.spec.reset) == (self.spec.type == 'Reset')").message("an operation of the type Reset, and no other, has `reset`"),
    validation = Rule::new("!has(self.spec.snapshot) || self.spec.type == 'Snapshot'").message("only an operation of the type Snapshot has `snapshot`"),
    validation = Rule::new("!has(self.spec.rotateCertificates) || self.spec.type == 'RotateCertificates'").message("only an operation of the type RotateCertificates has `rotateCertificates`"),
    validation = Rule::new("self.spec.type == oldSelf.spec.type && self.spec.clusterRef == oldSelf.spec.clusterRef && has(self.spec.snapshot) == has(oldSelf.spec.snapshot) && (!has(self.spec.snapshot) || self.spec.snapshot == oldSelf.spec.snapshot) && has(self.spec.verify) == has(oldSelf.spec.verify) && (!has(self.spec.verify) || self.spec.verify == oldSelf.spec.verify) && has(self.spec.restore) == has(oldSelf.spec.restore) && (!has(self.spec.restore) || self.spec.restore == oldSelf.spec.restore) && has(self.spec.reboot) == has(oldSelf.spec.reboot) && (!has(self.spec.reboot) || self.spec.reboot == oldSelf.spec.reboot) && has(self.spec.drain) == has(oldSelf.spec.drain) && (!has(self.spec.drain) || self.spec.drain == oldSelf.spec.drain) && has(self.spec.reset) == has(oldSelf.spec.reset) && (!has(self.spec.reset) || self.spec.reset == oldSelf.spec.reset) && has(self.spec.rotateCA) == has(oldSelf.spec.rotateCA) && (!has(self.spec.rotateCA) || self.spec.rotateCA == oldSelf.spec.rotateCA) && has(self.spec.rotateServiceAccountKey) == has(oldSelf.spec.rotateServiceAccountKey) && (!has(self.spec.rotateServiceAccountKey) || self.spec.rotateServiceAccountKey == oldSelf.spec.rotateServiceAccountKey) && has(self.spec.rotateCertificates) == has(oldSelf.spec.rotateCertificates) && (!has(self.spec.rotateCertificates) || self.spec.rotateCertificates == oldSelf.spec.rotateCertificates)").message("an operation is immutable except for approve, paused, activeDeadlineSeconds and ttlSecondsAfterFinished: create another ClusterOperation"),
    selectable = ".spec.clusterRef.name",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Complete")].reason"#),
    printcolumn(name = "Message", type_ = "string", json_path = r#".status.conditions[?(@.type=="Complete")].message"#, priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOperationSpec {
    /// The Cluster.
    pub cluster_ref: ClusterRef,

    /// What is done. `Snapshot`: a snapshot is taken on every node with etcd, and copied to the bucket of the config, where
    /// there is one. `RotateCertificates`: certificates are issued again by the present authorities. `RotateCA`: the
    /// certificate authorities are replaced, in two stages. `RotateServiceAccountKey`: the key that signs the tokens of
    /// service accounts is replaced, in two stages. `RotateEncryptionKey`: the key that encrypts Secrets in etcd is
    /// replaced, and they are written again with the new one. `Restore`: etcd's data are replaced by a snapshot; waits for
    /// approval. `Reboot`: nodes are rebooted, one after the other. `Verify`: a snapshot is restored for trial where it is,
    /// and the cluster is not touched. `Defragment`: unused space of etcd's databases is returned to the disks, one member after
    /// the other. `Drain`: pods of nodes are evicted, one node after the other, and the nodes take no pods until
    /// `kubectl uncordon`. `Reset`: a node leaves the cluster, is cleaned, and joins again as a new one; waits for approval.
    #[serde(rename = "type")]
    pub kind: OperationType,

    /// The snapshot that is taken, for the type `Snapshot`. Without it: one with a name generated from the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotSpec>,

    /// The snapshot that etcd's data are replaced by, for the type `Restore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreSpec>,

    /// The snapshot that is restored for trial, for the type `Verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifySpec>,

    /// The nodes, for the type `Reboot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<RebootSpec>,

    /// The nodes, for the type `Drain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainSpec>,

    /// The node, for the type `Reset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<ResetSpec>,

    /// Whose certificates, for the type `RotateCertificates`. Without it: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate_certificates: Option<RotateCertificatesSpec>,

    /// The stage, for the type `RotateCA`.
    #[serde(rename = "rotateCA", default, skip_serializing_if = "Option::is_none")]
    pub rotate_ca: Option<StageSpec>,

    /// The stage, for the type `RotateServiceAccountKey`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate_service_account_key: Option<StageSpec>,

    /// The digest of the plan that is approved (`status.plan.digest`). Another plan is not approved by it.
    #[schemars(length(max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<String>,

    /// True: it is not begun. One that runs stops at its next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,

    /// How long it may run, in seconds; then it has failed. Without it: 3600.
    #[schemars(range(min = 60, max = 86400))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,

    /// How long the object is kept after its end, in seconds. Without it: as long as its Cluster.
    #[schemars(range(min = 0, max = 31_536_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i64>,
}

impl ClusterOperationSpec {
    /// The default of [`ClusterOperationSpec::active_deadline_seconds`].
    pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(3600);

    /// How long it may run.
    pub fn deadline(&self) -> Duration {
        let seconds = self.active_deadline_seconds.map(u64::try_from);
        let seconds = seconds.and_then(Result::ok);
        seconds.map_or(Self::DEFAULT_DEADLINE, Duration::from_secs)
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum OperationType {
    /// A snapshot is taken.
    Snapshot,
    /// Certificates are issued again.
    #[default]
    RotateCertificates,
    /// Authorities are replaced.
    RotateCA,
    /// The key of tokens is replaced.
    RotateServiceAccountKey,
    /// The key of what is stored is replaced.
    RotateEncryptionKey,
    /// etcd's data are replaced by a snapshot.
    Restore,
    /// Nodes are rebooted.
    Reboot,
    /// A snapshot is restored for trial.
    Verify,
    /// Unused space of etcd's databases goes back to the disks.
    Defragment,
    /// Pods of nodes are evicted.
    Drain,
    /// A node joins again as a new one.
    Reset,
}

impl OperationType {
    /// The word in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "Snapshot",
            Self::RotateCertificates => "RotateCertificates",
            Self::RotateCA => "RotateCA",
            Self::RotateServiceAccountKey => "RotateServiceAccountKey",
            Self::RotateEncryptionKey => "RotateEncryptionKey",
            Self::Restore => "Restore",
            Self::Reboot => "Reboot",
            Self::Verify => "Verify",
            Self::Defragment => "Defragment",
            Self::Drain => "Drain",
            Self::Reset => "Reset",
        }
    }
}

/// A snapshot to take.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSpec {
    /// Its name, which no snapshot on the nodes has. Without it: generated from the time.
    #[schemars(
        length(min = 1, max = 200),
        regex(pattern = r"^[A-Za-z0-9][-A-Za-z0-9_.:+]*$")
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A snapshot to restore.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSpec {
    /// Its name, as `rke-operator etcd snapshot-list` has it. A node with etcd has it in `/opt/rke/etcd-snapshots`, or the
    /// bucket of the config has it.
    #[schemars(
        length(min = 1, max = 200),
        regex(pattern = r"^[A-Za-z0-9][-A-Za-z0-9_.:+]*$")
    )]
    pub snapshot: String,

    /// Nodes that are gone for good, which the cluster continues without.
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lose: Vec<String>,
}

/// A snapshot to restore for trial.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifySpec {
    /// Its name, as `rke-operator etcd snapshot-list` has it. Every node with etcd that has it looks into it.
    #[schemars(
        length(min = 1, max = 200),
        regex(pattern = r"^[A-Za-z0-9][-A-Za-z0-9_.:+]*$")
    )]
    pub snapshot: String,
}

/// Nodes to reboot.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RebootSpec {
    /// Their names, in this order.
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)))]
    pub nodes: Vec<String>,

    /// Whether pods are evicted before. Without it: as `upgrade_strategy` of the config says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<bool>,
}

/// Nodes to drain.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainSpec {
    /// Their names, in this order.
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)))]
    pub nodes: Vec<String>,

    /// True: pods without a controller, which nothing re-creates, are evicted as well. Without it: as `upgrade_strategy` of
    /// the config says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,

    /// True: pods that have data in an `emptyDir`, which are lost with them, are evicted as well. Without it: as
    /// `upgrade_strategy` of the config says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_empty_dir_data: Option<bool>,
}

/// A node to reset.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResetSpec {
    /// Its name. Another node has each role that a cluster cannot do without.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
}

/// Whose certificates are issued again.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RotateCertificatesSpec {
    /// The services that they belong to.
    #[schemars(length(min = 1, max = 6))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub services: Vec<OperationService>,
}

/// A service with certificates, by its name in RKE.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OperationService {
    /// Member of etcd.
    #[default]
    Etcd,
    /// API server, with its clients of etcd, kubelets and extension API servers.
    KubeApiserver,
    /// Controller manager.
    KubeControllerManager,
    /// Scheduler.
    KubeScheduler,
    /// kubelet: client and server.
    Kubelet,
    /// kube-proxy.
    KubeProxy,
}

/// How far a rotation in stages goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StageSpec {
    /// `Start`: the new one is used everywhere, and the former one is still accepted. `Complete`: the former one is accepted
    /// no longer; of authorities this waits for approval. `Now`: expired authorities are replaced at once, with an
    /// interruption; waits for approval.
    pub stage: OperationStage,
}

/// A stage of a rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum OperationStage {
    /// The new one is used, and the former one is still accepted.
    #[default]
    Start,
    /// The former one is accepted no longer.
    Complete,
    /// Expired authorities are replaced at once.
    Now,
}

/// What became of it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOperationStatus {
    /// The generation that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<OperationPhase>,

    /// When it began to change something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub started_at: Option<String>,

    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub finished_at: Option<String>,

    /// What it does, as planned last before it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<OperationPlan>,

    /// `Complete`, and next to it `Reconciling` until the end, or `Stalled` where it failed or was refused.
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A plan of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationPlan {
    /// What approves it: of this object, this plan and the world that it was made for.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// How many steps it has.
    pub steps: i64,
    /// Its first 8 KiB, as `rke-operator plan` prints it.
    #[schemars(length(max = 8192))]
    pub text: String,
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(transform = values_explained)]
pub enum OperationPhase {
    /// nothing was changed by it yet
    #[default]
    Pending,
    /// it began, and goes on until its end
    Running,
    /// it ended well
    Succeeded,
    /// it began, and did not end well
    Failed,
    /// it was not begun, and never will be
    Refused,
}

impl OperationPhase {
    /// True for one that is over.
    pub const fn is_finished(self) -> bool {
        match self {
            Self::Pending | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Refused => true,
        }
    }
}

/// The reasons of the condition `Complete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationReason {
    /// It has not been looked at.
    Queued,
    /// Its plan waits.
    AwaitingApproval,
    /// A person paused it, or its Cluster.
    Paused,
    /// It could not be planned.
    Retrying,
    /// It runs.
    Running,
    /// It ended well.
    Succeeded,
    /// The time is over.
    DeadlineExceeded,
    /// The snapshot was not proven.
    NotProven,
    /// It cannot be done to this Cluster.
    NotPossible,
    /// An earlier object of this name ran.
    NameUsed,
}

impl OperationReason {
    /// Every reason, and what it says.
    pub const TABLE: [(Self, &'static str); 10] = [
        (
            Self::Queued,
            "it waits for its Cluster, which is not there, not built yet, or not understood, or for an operation before it",
        ),
        (
            Self::AwaitingApproval,
            "its plan (`status.plan`) waits for a person who writes the plan's digest into `spec.approve`",
        ),
        (Self::Paused, "it or its Cluster is paused"),
        (
            Self::Retrying,
            "it could not be planned, or a run of it failed; it is tried again",
        ),
        (Self::Running, "a run of it is in progress"),
        (Self::Succeeded, "it ended well"),
        (
            Self::DeadlineExceeded,
            "it began, and did not end within `activeDeadlineSeconds`; the message says what kept it last",
        ),
        (
            Self::NotProven,
            "on some node the snapshot could not be restored for trial; the message has what each node found",
        ),
        (
            Self::NotPossible,
            "it cannot be done to this Cluster, and nothing was begun; the message says why",
        ),
        (
            Self::NameUsed,
            "an operation of this name was begun on this Cluster by another object: nothing is done twice",
        ),
    ];

    /// The word in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::AwaitingApproval => "AwaitingApproval",
            Self::Paused => "Paused",
            Self::Retrying => "Retrying",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::NotProven => "NotProven",
            Self::NotPossible => "NotPossible",
            Self::NameUsed => "NameUsed",
        }
    }

    /// How far an operation is with it. `began`: it has changed something.
    pub const fn phase(self, began: bool) -> OperationPhase {
        match self {
            Self::Running => OperationPhase::Running,
            Self::Queued | Self::AwaitingApproval | Self::Paused | Self::Retrying => {
                if began {
                    OperationPhase::Running
                } else {
                    OperationPhase::Pending
                }
            }
            Self::Succeeded => OperationPhase::Succeeded,
            Self::DeadlineExceeded | Self::NotProven => OperationPhase::Failed,
            Self::NotPossible | Self::NameUsed => OperationPhase::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(spec: &Value) -> ClusterOperation {
        ClusterOperation::new("one", serde_json::from_value(spec.clone()).unwrap())
    }

    /// A spec of each type, with the member that the type has.
    fn specs() -> Vec<(&'static str, Value)> {
        let with = |kind: &str, more: &Value| {
            let mut spec = json!({"clusterRef": {"name": "prod"}, "type": kind});
            for (key, value) in more.as_object().unwrap() {
                spec[key] = value.clone();
            }
            spec
        };
        let stage = json!({"stage": "Start"});
        let services = json!({"rotateCertificates": {"services": ["kube-apiserver"]}});
        vec![
            (
                "snapshot",
                with("Snapshot", &json!({"snapshot": {"name": "a"}})),
            ),
            ("rotateCertificates", with("RotateCertificates", &services)),
            ("rotateCA", with("RotateCA", &json!({"rotateCA": stage}))),
            (
                "rotateServiceAccountKey",
                with(
                    "RotateServiceAccountKey",
                    &json!({"rotateServiceAccountKey": stage}),
                ),
            ),
            ("", with("RotateEncryptionKey", &json!({}))),
            (
                "restore",
                with("Restore", &json!({"restore": {"snapshot": "a"}})),
            ),
            (
                "reboot",
                with("Reboot", &json!({"reboot": {"nodes": ["n1"]}})),
            ),
            (
                "verify",
                with("Verify", &json!({"verify": {"snapshot": "a"}})),
            ),
            ("", with("Defragment", &json!({}))),
            ("drain", with("Drain", &json!({"drain": {"nodes": ["n1"]}}))),
            ("reset", with("Reset", &json!({"reset": {"node": "n1"}}))),
        ]
    }

    #[test]
    fn each_type_has_its_own_member_and_no_other() {
        let all = specs();
        for (own, spec) in &all {
            object(spec).validate_cel().unwrap();
            for (other, from) in all.iter().filter(|(it, _)| !it.is_empty() && it != own) {
                let mut both = spec.clone();
                both[other] = from[other].clone();
                let error = object(&both).validate_cel().unwrap_err().to_string();
                assert!(error.contains(&format!("`{other}`")), "{other}: {error}");
            }
            if !["", "rotateCertificates", "snapshot"].contains(own) {
                let mut none = spec.clone();
                none.as_object_mut().unwrap().remove(*own);
                let error = object(&none).validate_cel().unwrap_err().to_string();
                assert!(error.contains(&format!("`{own}`")), "{own}: {error}");
            }
        }
    }

    #[test]
    fn only_authorities_are_replaced_at_once() {
        let now = json!({"stage": "Now"});
        let with = |own: &str| {
            let all = specs();
            let (_, spec) = all.iter().find(|(it, _)| *it == own).unwrap();
            let mut spec = spec.clone();
            spec[own] = now.clone();
            object(&spec).validate_cel()
        };
        with("rotateCA").unwrap();
        let error = with("rotateServiceAccountKey").unwrap_err().to_string();
        assert!(error.contains("stage Now"), "{error}");
    }

    #[test]
    fn only_consent_pause_and_how_long_it_is_kept_may_be_edited() {
        for (own, spec) in specs() {
            let old = object(&spec);
            let edited = |edit: &dyn Fn(&mut Value)| {
                let mut next = spec.clone();
                edit(&mut next);
                object(&next).validate_cel_update(&old)
            };
            edited(&|spec| {
                spec["approve"] = json!("0123");
                spec["paused"] = json!(true);
                spec["ttlSecondsAfterFinished"] = json!(60);
            })
            .unwrap();
            edited(&|spec| spec["clusterRef"]["name"] = json!("other")).unwrap_err();
            if !own.is_empty() {
                let other = match own {
                    "restore" | "verify" => json!({"snapshot": "b"}),
                    "snapshot" => json!({"name": "b"}),
                    "reboot" | "drain" => json!({"nodes": ["n1", "n2"]}),
                    "reset" => json!({"node": "n2"}),
                    "rotateCertificates" => json!({"services": ["kubelet"]}),
                    _ => json!({"stage": "Complete"}),
                };
                edited(&|spec| spec[own] = other.clone()).unwrap_err();
            }
        }
    }

    #[test]
    fn a_finished_phase_is_no_reason_to_run() {
        for (reason, _) in OperationReason::TABLE {
            let (before, after) = (reason.phase(false), reason.phase(true));
            assert_eq!(before.is_finished(), after.is_finished(), "{reason:?}");
            assert_ne!(after, OperationPhase::Pending, "{reason:?}");
        }
    }
}
