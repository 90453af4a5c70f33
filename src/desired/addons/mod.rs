//! The objects that a cluster starts with, as values: applied and pruned by us, field by field.
//! Pure. Whether a live object differs is the server's answer to a server-side apply that it only
//! tries.

mod access;
pub(super) mod charts;
mod coredns;
mod flannel;
mod manifests;
mod metrics_server;
mod nodelocal;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Addon;
use crate::{
    config::{Dns, Intent, Network},
    facts::{Actual, ApiView},
    model::{EtcdLook, ObjectRef, Role, WantedObjects, image_version, label, stamp},
};

/// Every add-on that this version knows.
pub(super) const KNOWN: [&str; 7] = [
    access::NAME,
    flannel::NAME,
    coredns::NAME,
    nodelocal::NAME,
    metrics_server::NAME,
    manifests::RECORD,
    manifests::NAME,
];

/// Those that the intent asks for, in the order in which they are applied.
pub(super) fn wanted(intent: &Intent, have: &Actual) -> Vec<Addon> {
    let mut addons = of_intent(intent);
    addons.extend(manifests::record(intent, have));
    addons.extend(manifests::addon(intent));
    if let (Some(scaled), ApiView::Up(api)) = (coredns::scaled(intent), have.api()) {
        let nodes = api.nodes.iter();
        let cores = nodes.map(|(name, node)| (name.clone(), node.cores));
        let cores = cores.collect();
        let objects = addons.iter_mut().map(|addon| &mut addon.objects);
        for object in objects.filter_map(|objects| objects.get_mut(&scaled.object)) {
            scaled.scale(object, &cores);
        }
    }
    addons
}

/// The images that pods of the add-ons and of the user's own manifests run, and the add-ons whose images are named in their
/// charts alone.
pub(super) fn images(intent: &Intent) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut images, unlisted) = charts::images(intent);
    let addons = of_intent(intent)
        .into_iter()
        .chain(manifests::addon(intent));
    for object in addons.flat_map(|addon| addon.objects.into_values()) {
        collect(&object, &mut images);
    }
    (images, unlisted)
}

/// The images of containers, wherever in an object a pod's specification is.
fn collect(value: &Value, images: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let containers = matches!(name.as_str(), "containers" | "initContainers");
                for container in value
                    .as_array()
                    .filter(|_| containers)
                    .into_iter()
                    .flatten()
                {
                    let image = container.get("image").and_then(Value::as_str);
                    images.extend(image.filter(|image| !image.is_empty()).map(str::to_owned));
                }
                collect(value, images);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, images)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An object of the user's that is one of our add-ons', and of which: two would change it in turn.
pub(super) fn claimed_twice(intent: &Intent) -> Option<(ObjectRef, String)> {
    let ours = of_intent(intent);
    intent.manifests.iter().find_map(|manifest| {
        let object = &manifest.object;
        let owner = ours.iter().find(|addon| addon.objects.contains_key(object));
        owner.map(|addon| (object.clone(), addon.name.clone()))
    })
}

/// The same, of what is known without the cluster.
fn of_intent(intent: &Intent) -> Vec<Addon> {
    let network = match intent.network {
        Network::Flannel(_) => true,
        Network::Canal(_) | Network::Calico(_) | Network::None => false,
    };
    let (dns, cache) = match &intent.dns {
        Dns::CoreDns(dns) => (true, dns.node_local.is_some()),
        Dns::None => (false, false),
    };
    every(intent)
        .into_iter()
        .filter(|addon| match addon.name.as_str() {
            flannel::NAME => network,
            coredns::NAME => dns,
            nodelocal::NAME => cache,
            metrics_server::NAME => intent.metrics_server.is_some(),
            _ => true,
        })
        .collect()
}

/// Every add-on, wanted or not. The first is one object, without which `kubectl logs` and `exec`
/// are refused by the kubelets.
fn every(intent: &Intent) -> [Addon; 5] {
    [
        access::addon(),
        flannel::addon(intent),
        coredns::addon(intent),
        nodelocal::addon(intent),
        metrics_server::addon(intent),
    ]
}

/// What a survey looks for: the objects that the intent asks for, and the kinds of every add-on,
/// so that what is no longer wanted is found.
pub fn wanted_objects(intent: &Intent) -> WantedObjects {
    // The record of the kinds is none of them: what it must tell is known when the cluster was read.
    let objects = of_intent(intent)
        .into_iter()
        .chain(manifests::addon(intent))
        .flat_map(|addon| addon.objects);
    let kinds = every(intent)
        .into_iter()
        .flat_map(|addon| addon.objects.into_keys())
        .map(|object| object.kind())
        .chain([coredns::sometimes()])
        .chain(manifests::kinds(intent));
    WantedObjects {
        since: None,
        objects: objects.collect(),
        kinds: kinds.collect(),
        identity: false,
        tokens: false,
        authorities: false,
        bound_to: BTreeSet::new(),
        release: image_version(&intent.images.kubernetes),
        scaled: coredns::scaled(intent),
        etcd: look_at_etcd(intent),
        peers: std::collections::BTreeMap::new(),
    }
}

fn look_at_etcd(intent: &Intent) -> Option<EtcdLook> {
    let control_planes = intent.with_role(Role::ControlPlane);
    Some(EtcdLook {
        etcd: intent.etcd.external()?.clone(),
        through: control_planes.map(|(name, _)| name.clone()).collect(),
    })
}

/// Puts our labels on, and the objects under their names. What has replicas is waited for.
fn labelled(name: &str, objects: Vec<Value>) -> Addon {
    let objects: std::collections::BTreeMap<ObjectRef, Value> = objects
        .into_iter()
        .map(|mut object| {
            object["metadata"]["labels"][label::ADDON] = name.into();
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "rke-operator".into();
            stamp(&mut object);
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

/// A flag as a program takes it: bare where it has no value.
fn word(name: &str, value: &str) -> String {
    match value {
        "" => format!("--{name}"),
        value => format!("--{name}={value}"),
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
