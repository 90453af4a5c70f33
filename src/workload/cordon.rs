//! Cordons nodes and removes the cordons again. A cordon of rke-operator has its annotation, set in one write with
//! the cordon; without it a cordon belongs to another owner and stays.

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    WorkloadError,
    objects::{patiently, within},
    read::fact,
};
use crate::{
    facts::{NodeFact, RebootMark},
    model::{NodeName, label},
};

/// How often a conflicting write is tried again: kubelet writes its Node object, too.
const TRIES: usize = 5;

/// Lets no new pod onto a node. One that is not there, or is cordoned already, stays as it is.
pub async fn cordon(client: &Client, node: &NodeName) -> Result<(), WorkloadError> {
    change(client, node, "cordon", |fact| {
        (!fact.unschedulable).then(|| {
            json!({
                "metadata": {"annotations": {label::CORDONED: "true"}},
                "spec": {"unschedulable": true},
            })
        })
    })
    .await
}

/// Removes rke-operator's cordon and a request to reboot the node. A cordon that someone else set stays.
pub async fn uncordon(client: &Client, node: &NodeName) -> Result<(), WorkloadError> {
    change(client, node, "uncordon", |fact| {
        let is_ours = fact.is_cordoned_by_us() || fact.reboot().is_some();
        is_ours.then(|| taken_back(fact, json!({})))
    })
    .await
}

/// Keeps new pods off a node until a person lets them in again: no run of rke-operator takes this cordon back.
pub async fn keep_cordoned(client: &Client, node: &NodeName) -> Result<(), WorkloadError> {
    change(client, node, "cordon", |fact| {
        let is_kept = fact.unschedulable && !fact.is_cordoned_by_us();
        (!is_kept).then(|| {
            json!({
                "metadata": {"annotations": {label::CORDONED: null}},
                "spec": {"unschedulable": true},
            })
        })
    })
    .await
}

/// Lets new pods onto a node, also where a person has cordoned it.
pub async fn let_pods_in(client: &Client, node: &NodeName) -> Result<(), WorkloadError> {
    change(client, node, "uncordon", |fact| {
        fact.unschedulable.then(|| {
            json!({
                "metadata": {"annotations": {label::CORDONED: null}},
                "spec": {"unschedulable": null},
            })
        })
    })
    .await
}

/// Records on a node that it is to be rebooted.
pub async fn begin_reboot(
    client: &Client,
    node: &NodeName,
    mark: &RebootMark,
) -> Result<(), WorkloadError> {
    change(client, node, "record a reboot on", |fact| {
        let lacks = fact.reboot().as_ref() != Some(mark);
        lacks.then(|| json!({"metadata": {"annotations": {label::REBOOT: mark.text()}}}))
    })
    .await
}

/// Records on a node that a request has rebooted it, and takes back rke-operator's cordon.
pub async fn finish_reboot(
    client: &Client,
    node: &NodeName,
    request: &str,
) -> Result<(), WorkloadError> {
    change(client, node, "record a reboot on", |fact| {
        let is_done = fact.was_rebooted_by(request) && fact.reboot().is_none();
        (!is_done || fact.is_cordoned_by_us())
            .then(|| taken_back(fact, json!({label::REBOOTED: request})))
    })
    .await
}

/// What takes back rke-operator's cordon and the request to reboot the node, and sets these annotations.
fn taken_back(fact: &NodeFact, mut annotations: Value) -> Value {
    annotations[label::CORDONED] = Value::Null;
    annotations[label::REBOOT] = Value::Null;
    let mut patch = json!({"metadata": {"annotations": annotations}});
    if fact.is_cordoned_by_us() {
        patch["spec"] = json!({"unschedulable": null});
    }
    patch
}

/// Writes what `patch` makes of the Node object as it is, again when it has changed meanwhile.
async fn change(
    client: &Client,
    node: &NodeName,
    doing: &str,
    patch: impl Fn(&NodeFact) -> Option<Value>,
) -> Result<(), WorkloadError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let doing = format!("{doing} node `{node}`");
    let params = PatchParams {
        field_manager: Some(super::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let mut tries = 0;
    loop {
        let Some(live) = patiently(&doing, || nodes.get_opt(&node.0)).await? else {
            return Ok(());
        };
        let Some(mut patch) = patch(&fact(&live)) else {
            return Ok(());
        };
        patch["metadata"]["resourceVersion"] = json!(live.metadata.resource_version);
        tries += 1;
        match within(nodes.patch(&node.0, &params, &Patch::Merge(&patch))).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() && tries < TRIES => {}
            Err(error) => return Err(WorkloadError::api(doing, error)),
        }
    }
}
