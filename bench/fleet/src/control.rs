//! What kubelets and controllers do in the API of a fleet, as far as an `up` waits for it: kubelets
//! register and become Ready once there is a network, and workloads become available.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rke_operator::model::image_version;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::node::{Fleet, Node};

/// How often they look.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 50 });

/// The same while there is nothing for them to do.
const IDLE: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1000 });

/// Runs until the process ends.
pub(crate) async fn run(fleet: Arc<Fleet>) {
    let mut registered = BTreeSet::new();
    let mut ready = BTreeSet::new();
    let mut connected = None;
    loop {
        let idle = ready.len() == fleet.nodes.len() || !fleet.is_begun();
        tokio::time::sleep(if idle { IDLE } else { PAUSE }).await;
        if !fleet.serves() {
            continue;
        }
        let network = fleet.api.objects("daemonsets");
        let network = network
            .iter()
            .any(|one| one["metadata"]["name"] == "kube-flannel");
        let network =
            network && connected.get_or_insert_with(Instant::now).elapsed() >= fleet.pace.ready;
        for node in &fleet.nodes {
            if ready.contains(&node.machine.name) {
                continue;
            }
            if !registered.contains(&node.machine.name) && node.host.runs("kubelet") {
                register(&fleet, node);
                registered.insert(node.machine.name.clone());
            }
            if network && registered.contains(&node.machine.name) {
                become_ready(&fleet, node);
                ready.insert(node.machine.name.clone());
            }
        }
        workloads(&fleet, ready.len());
    }
}

fn version(node: &Node) -> String {
    let image = node
        .host
        .docker()
        .containers
        .get("kubelet")
        .map(|one| one.image().to_owned());
    let version = image
        .and_then(|image| image_version(&image))
        .unwrap_or_default();
    let (major, minor, patch) = version;
    format!("v{major}.{minor}.{patch}")
}

fn register(fleet: &Fleet, node: &Node) {
    let version = version(node);
    fleet.api.says_it_is(&version);
    let name = &node.machine.name;
    let object = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" } },
        "spec": {},
        "status": {
            "nodeInfo": {
                "kubeletVersion": version, "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "machineID": node.machine.id,
                "operatingSystem": "linux", "osImage": "", "systemUUID": "",
            },
            "addresses": [{ "type": "InternalIP", "address": node.machine.address.to_string() }],
            "conditions": [condition("False", "container runtime network not ready")],
        },
    });
    fleet.api.plant("nodes", &object);
}

fn condition(status: &str, message: &str) -> Value {
    json!({ "type": "Ready", "status": status, "reason": "Kubelet", "message": message })
}

fn become_ready(fleet: &Fleet, node: &Node) {
    let status = json!({ "status": { "conditions": [condition("True", "")] } });
    fleet
        .api
        .patch_status("nodes", "", &node.machine.name, &status);
}

/// Controllers that have seen everything, and whose pods run on every Node that is Ready.
fn workloads(fleet: &Fleet, ready: usize) {
    for object in fleet.api.objects("daemonsets") {
        let status = json!({
            "observedGeneration": object["metadata"]["generation"], "currentNumberScheduled": ready,
            "desiredNumberScheduled": ready, "updatedNumberScheduled": ready, "numberAvailable": ready,
            "numberReady": ready, "numberMisscheduled": 0,
        });
        write(fleet, "daemonsets", &object, &status);
    }
    for object in fleet.api.objects("deployments") {
        let replicas = object["spec"]["replicas"].as_u64().unwrap_or(1);
        let available = if ready == 0 { 0 } else { replicas };
        let status = json!({
            "observedGeneration": object["metadata"]["generation"], "replicas": available,
            "updatedReplicas": available, "availableReplicas": available, "readyReplicas": available,
        });
        write(fleet, "deployments", &object, &status);
    }
}

fn write(fleet: &Fleet, plural: &str, object: &Value, status: &Value) {
    if object["status"] == *status {
        return;
    }
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let status = json!({ "status": status });
    fleet
        .api
        .patch_status(plural, text("namespace"), text("name"), &status);
}
