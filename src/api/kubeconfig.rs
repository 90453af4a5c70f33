//! The `Kubeconfig`: where the way into a cluster is.

#![expect(
    unreachable_pub,
    reason = "what KubeSchema derives repeats the types inside a function"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::NameRef;

/// Which cluster to reach.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[kube(
    group = "clusterprovisioner.rke.io",
    version = "v1alpha1",
    kind = "Kubeconfig",
    plural = "kubeconfigs",
    shortname = "rkek",
    category = "rke",
    derive = "PartialEq",
    status = "KubeconfigStatus",
    cel,
    doc = "A way into a Cluster: the Secret <name>-kubeconfig in the namespace of the credentials has it under the key value. The operator makes one for every Cluster.",
    validation = Rule::new("self.metadata.name.size() <= 52").message("a Kubeconfig's name has at most 52 characters, because the name of its Secret is made of it"),
    validation = Rule::new("self.metadata.name == self.spec.clusterName").message("a Kubeconfig has the name of its Cluster: the operator makes it"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Secret", type_ = "string", json_path = ".status.secretRef.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigSpec {
    /// The Cluster's name, which is this object's too.
    #[schemars(length(min = 1, max = 52))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("clusterName is immutable: make another Kubeconfig"))]
    pub cluster_name: String,
}

/// What the operator says about a Kubeconfig.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigStatus {
    /// The generation of the object that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// `Ready`: the Secret is there. Reasons: `Issued`, `WaitingForCluster`, `ClusterNotFound`,
    /// `SecretNotOurs`, `NameNotAllowed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,

    /// The Secret with the kubeconfig, in the namespace of the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameRef>,
}

/// The reasons of the condition `Ready` of a Kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeconfigReason {
    /// It is there.
    Issued,
    /// Its cluster has none yet.
    WaitingForCluster,
    /// There is no such Cluster.
    ClusterNotFound,
    /// Its name is taken.
    SecretNotOurs,
    /// It is not the one of its cluster.
    NameNotAllowed,
}

impl KubeconfigReason {
    /// Every reason, and what it says.
    pub const TABLE: [(Self, &'static str); 5] = [
        (Self::Issued, "the Secret has the kubeconfig"),
        (Self::WaitingForCluster, "the Cluster has no kubeconfig yet"),
        (Self::ClusterNotFound, "there is no Cluster of that name"),
        (
            Self::SecretNotOurs,
            "a Secret of that name is there and was not made for this Kubeconfig",
        ),
        (
            Self::NameNotAllowed,
            "a Kubeconfig has the name of its Cluster",
        ),
    ];

    /// The word in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Issued => "Issued",
            Self::WaitingForCluster => "WaitingForCluster",
            Self::ClusterNotFound => "ClusterNotFound",
            Self::SecretNotOurs => "SecretNotOurs",
            Self::NameNotAllowed => "NameNotAllowed",
        }
    }
}

/// The name of the Secret of a Kubeconfig.
pub fn kubeconfig_secret(name: &str) -> String {
    format!("{name}-kubeconfig")
}

/// The key of the kubeconfig in its Secret, as Cluster API's tools expect it.
pub const KUBECONFIG_KEY: &str = "value";
