//! The kinds that the fake knows; a path of any other is 404, as in a real server.

use kube::CustomResourceExt;
use rke_operator::api::{Cluster, ClusterOperation, Kubeconfig};
use serde_json::Value;

/// A kind of object.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "as a manifest names it")]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) has_status: bool,
    /// The structural schema, for kinds of ours.
    pub(crate) schema: Option<Value>,
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// group, version, plural, kind, namespaced, status subresource
const BUILT_IN: [(&str, &str, &str, &str, bool, bool); 19] = [
    ("", "v1", "namespaces", "Namespace", false, true),
    ("", "v1", "nodes", "Node", false, true),
    ("", "v1", "pods", "Pod", true, true),
    ("", "v1", "services", "Service", true, true),
    ("", "v1", "secrets", "Secret", true, false),
    ("", "v1", "configmaps", "ConfigMap", true, false),
    ("", "v1", "serviceaccounts", "ServiceAccount", true, false),
    ("apps", "v1", "daemonsets", "DaemonSet", true, true),
    ("apps", "v1", "deployments", "Deployment", true, true),
    ("events.k8s.io", "v1", "events", "Event", true, false),
    ("coordination.k8s.io", "v1", "leases", "Lease", true, false),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "roles",
        "Role",
        true,
        false,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "rolebindings",
        "RoleBinding",
        true,
        false,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "ClusterRole",
        false,
        false,
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterrolebindings",
        "ClusterRoleBinding",
        false,
        false,
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        false,
        true,
    ),
    (
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        true,
        true,
    ),
    ("batch", "v1", "jobs", "Job", true, true),
    (
        "networking.k8s.io",
        "v1",
        "servicecidrs",
        "ServiceCIDR",
        false,
        true,
    ),
];

/// Every kind.
pub(crate) fn kinds() -> Vec<Kind> {
    let built_in = BUILT_IN.iter().map(
        |&(group, version, plural, kind, namespaced, has_status)| Kind {
            group,
            version,
            plural,
            kind,
            namespaced,
            has_status,
            schema: None,
        },
    );
    let ours = [
        ("clusters", "Cluster", Cluster::crd()),
        ("kubeconfigs", "Kubeconfig", Kubeconfig::crd()),
        (
            "clusteroperations",
            "ClusterOperation",
            ClusterOperation::crd(),
        ),
    ]
    .map(|(plural, kind, crd)| {
        let schema = crd.spec.versions[0].schema.as_ref().unwrap();
        Kind {
            group: rke_operator::api::GROUP,
            version: rke_operator::api::VERSION,
            plural,
            kind,
            namespaced: false,
            has_status: true,
            schema: Some(
                serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap(),
            ),
        }
    });
    built_in.chain(ours).collect()
}
