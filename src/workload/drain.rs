//! Empties a node: no new pod comes, and those that are there are evicted, so that every
//! `PodDisruptionBudget` is kept. What stays: pods of `DaemonSet`s, pods that kubelet has from a file,
//! and those that have ended.

use std::{fmt::Write as _, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    Waiting, WorkloadError,
    objects::{patiently, within},
};
use crate::model::NodeName;

/// How often it is looked who is still there.
const LOOK: Duration = Duration::from_secs(1);

/// The annotation of a pod that kubelet has from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Cordons the node and evicts its pods, until the last of them is gone or `patience` is over: then
/// the error names those that are left, and why. A node that is not there has no pods.
pub async fn drain(
    client: &Client,
    node: &NodeName,
    patience: Duration,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    cordon(client, node).await?;
    let end = Instant::now() + patience;
    let mut tries = 0;
    loop {
        let mut left = Vec::new();
        for pod in to_go(client, node).await? {
            left.push(evict(client, &pod).await?);
        }
        if left.is_empty() {
            return Ok(());
        }
        let mut waiting_for = format!("node `{node}` to be empty: {}", left[0]);
        if left.len() > 1 {
            // Writing to a string cannot fail.
            let _ = write!(waiting_for, " and {} more", left.len() - 1);
        }
        if Instant::now() >= end {
            return Err(WorkloadError::Overdue {
                waiting_for,
                after: patience,
            });
        }
        tries += 1;
        waiting(waiting_for, tries);
        sleep(LOOK).await;
    }
}

/// Deletes a Node object, while it is the one of that uid. Gone is success.
pub async fn delete_node(client: &Client, node: &NodeName, uid: &str) -> Result<(), WorkloadError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let params = DeleteParams::background().preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    });
    match within(nodes.delete(&node.0, &params)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(WorkloadError::api(format!("delete node `{node}`"), error)),
    }
}

async fn cordon(client: &Client, node: &NodeName) -> Result<(), WorkloadError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    let params = PatchParams {
        field_manager: Some(super::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match within(nodes.patch(&node.0, &params, &patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(WorkloadError::api(format!("cordon node `{node}`"), error)),
    }
}

async fn to_go(client: &Client, node: &NodeName) -> Result<Vec<Pod>, WorkloadError> {
    let pods: Api<Pod> = Api::all(client.clone());
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let doing = format!("list the pods of node `{node}`");
    let all = patiently(&doing, || pods.list(&on_node)).await?;
    Ok(all.items.into_iter().filter(goes).collect())
}

fn goes(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let of_daemon_set = owners.clone().any(|owner| owner.kind == "DaemonSet");
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Succeeded" | "Failed"));
    !of_daemon_set && !ended && !pod.annotations().contains_key(MIRROR)
}

/// Asks for the eviction of one that is not on its way yet; gives what it waits for.
async fn evict(client: &Client, pod: &Pod) -> Result<String, WorkloadError> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let ends = format!("pod `{namespace}/{name}` ends");
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(ends);
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    match within(pods.evict(&name, &EvictParams::default())).await {
        Ok(_) => Ok(ends),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(ends),
        // 429: a budget does not allow it now. 500: two budgets select it.
        Err(kube::Error::Api(status)) if matches!(status.code, 429 | 500) => Ok(format!(
            "pod `{namespace}/{name}` may not be evicted yet: {}",
            status.message
        )),
        Err(error) => {
            let doing = format!("evict pod `{namespace}/{name}`");
            Err(WorkloadError::api(doing, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_would_come_back_by_itself_or_has_ended_stays() {
        let owner = |kind: &str| {
            pod(json!({"metadata": {"ownerReferences":
                [{"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u"}]}}))
        };
        assert!(goes(&owner("ReplicaSet")));
        assert!(goes(&pod(json!({"metadata": {"name": "bare"}}))));
        assert!(!goes(&owner("DaemonSet")));
        assert!(!goes(&pod(
            json!({"metadata": {"annotations": {MIRROR: "x"}}})
        )));
        for phase in ["Succeeded", "Failed"] {
            assert!(!goes(&pod(
                json!({"metadata": {}, "status": {"phase": phase}})
            )));
        }
        assert!(goes(&pod(
            json!({"metadata": {}, "status": {"phase": "Running"}})
        )));
    }
}
