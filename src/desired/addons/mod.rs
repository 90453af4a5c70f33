//! The objects that a cluster starts with, as values: applied and pruned by us, field by field.
//! Pure. They say only what the API keeps as it is written (quantities in canonical form, no
//! empty values), because drift is "the live object does not contain this".

mod access;
mod coredns;
mod flannel;

use serde_json::Value;

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
