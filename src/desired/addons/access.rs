//! The permissions that a new API server lacks: kubelets ask it who may use their API, and no rule allows anyone yet.

use serde_json::json;

use crate::desired::{Addon, pki::KUBELET_CLIENT};

/// The add-on's name.
pub(super) const NAME: &str = "cluster-access";

pub(super) fn addon() -> Addon {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "rke-operator:kubelet-api"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:kubelet-api-admin",
        },
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "User",
            "name": KUBELET_CLIENT,
        }],
    });
    super::labelled(NAME, vec![binding])
}
