//! The objects that a cluster starts with, as values: applied and pruned by us, field by field.
//! Pure. They say only what the API keeps as it is written (quantities in canonical form, no
//! empty values), because drift is "the live object does not contain this".

mod access;
mod coredns;
mod flannel;

use serde_json::{Value, json};

use super::{Addon, ObjectRef, label};
use crate::config::{Dns, Intent, Network};

/// Every add-on that this version knows.
pub(super) const KNOWN: [&str; 3] = [access::NAME, flannel::NAME, coredns::NAME];

/// Those that the intent asks for, in the order in which they are applied.
pub(super) fn wanted(intent: &Intent) -> Vec<Addon> {
    let network = match intent.network {
        Network::Flannel => Some(flannel::draw(intent)),
        Network::None => None,
    };
    let dns = match intent.dns {
        Dns::CoreDns => Some(coredns::draw(intent)),
        Dns::None => None,
    };
    // The first is one object, without which `kubectl logs` and `exec` are refused by the kubelets.
    [Some(access::draw()), network, dns]
        .into_iter()
        .flatten()
        .collect()
}

/// Puts our labels on, and the objects under their names. What has replicas is waited for.
fn addon(name: &str, objects: Vec<Value>) -> Addon {
    let objects: std::collections::BTreeMap<ObjectRef, Value> = objects
        .into_iter()
        .map(|mut object| {
            object["metadata"]["labels"][label::ADDON] = name.into();
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "rke-operator".into();
            (reference(&object), object)
        })
        .collect();
    Addon {
        name: name.to_owned(),
        workloads: objects
            .keys()
            .filter(|object| object.api_version == "apps/v1")
            .cloned()
            .collect(),
        objects,
    }
}

/// A service account in `kube-system`, a cluster role with the rules, and the binding of both.
fn account(name: &str, role: &str, rules: &Value) -> [Value; 3] {
    let rbac = "rbac.authorization.k8s.io";
    let api_version = format!("{rbac}/v1");
    [
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "kube-system"},
        }),
        json!({
            "apiVersion": api_version,
            "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": rules,
        }),
        json!({
            "apiVersion": api_version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}],
        }),
    ]
}

fn reference(object: &Value) -> ObjectRef {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    ObjectRef {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
    }
}
