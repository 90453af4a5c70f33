//! Empties a node: no new pod comes, and those that are there are evicted, so that every
//! `PodDisruptionBudget` is kept. What stays: pods of `DaemonSet`s, pods that kubelet has from a file,
//! and those that have ended.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Preconditions},
};

use super::{
    Waiting, WorkloadError,
    cordon::{cordon, uncordon},
    evict::{empty, on_node},
    objects::within,
};
use crate::model::{DrainRules, NodeName};

/// The annotation of a pod that kubelet has from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Cordons the node and evicts its pods, until the last of them is gone or `patience` is over: then
/// the error names those that are left, and why. A node that is not there has no pods.
///
/// With `rules` the node comes back: where they keep a pod, nothing is evicted at all, and a node
/// that is not empty in the end is uncordoned. Without them it leaves, and every pod goes.
pub async fn drain(
    client: &Client,
    node: &NodeName,
    rules: Option<&DrainRules>,
    patience: Duration,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    cordon(client, node).await?;
    let Some(rules) = rules else {
        return empty(client, node, &DrainRules::default(), patience, waiting).await;
    };
    let emptied = match keeps(client, node, rules).await {
        Ok(()) => empty(client, node, rules, patience, waiting).await,
        Err(error) => Err(error),
    };
    if emptied.is_err() {
        // What drained it in vain is the error to tell; the next survey sees a cordon that stays.
        drop(uncordon(client, node).await);
    }
    emptied
}

/// An error where the rules keep a pod on the node.
async fn keeps(client: &Client, node: &NodeName, rules: &DrainRules) -> Result<(), WorkloadError> {
    let pods = on_node(client, node).await?;
    let kept = pods.iter().filter_map(|pod| {
        let why = kept(pod, rules)?;
        let namespace = pod.namespace().unwrap_or_default();
        Some(format!("`{namespace}/{}` {why}", pod.name_any()))
    });
    let kept: Vec<String> = kept.collect();
    if kept.is_empty() {
        return Ok(());
    }
    Err(WorkloadError::Kept {
        node: node.clone(),
        pods: kept,
    })
}

/// Why the rules keep a pod where it is, and what would let it go.
fn kept(pod: &Pod, rules: &DrainRules) -> Option<&'static str> {
    if is_of_daemon_set(pod) {
        let keeps = !rules.ignore_daemonsets;
        return keeps.then_some("is of a DaemonSet, and `ignore_daemonsets` is false");
    }
    if !goes(pod) {
        return None;
    }
    let mut owners = pod.metadata.owner_references.iter().flatten();
    if !rules.force && !owners.any(|owner| owner.controller == Some(true)) {
        return Some("would not be started again by anything (`force`)");
    }
    let spec = pod.spec.as_ref();
    let mut volumes = spec.and_then(|spec| spec.volumes.as_ref()).into_iter();
    let local = volumes.any(|all| all.iter().any(|volume| volume.empty_dir.is_some()));
    (local && !rules.delete_local_data)
        .then_some("would lose what it keeps in an emptyDir (`delete_local_data`)")
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

pub(super) fn goes(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Succeeded" | "Failed"));
    !is_of_daemon_set(pod) && !ended && !is_mirror(pod)
}

/// True for a pod that kubelet has from a file.
pub(super) fn is_mirror(pod: &Pod) -> bool {
    pod.annotations().contains_key(MIRROR)
}

fn is_of_daemon_set(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "DaemonSet")
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn pods_that_would_be_recreated_at_once_or_have_ended_stay() {
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
    #[test]
    fn what_would_be_lost_keeps_a_node_from_being_drained() {
        let owner = |kind: &str| json!({"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": true});
        let bare = pod(json!({"metadata": {"name": "bare"}}));
        let local = pod(json!({
            "metadata": {"ownerReferences": [owner("ReplicaSet")]},
            "spec": {"containers": [], "volumes": [{"name": "cache", "emptyDir": {}}]},
        }));
        let everywhere = pod(json!({"metadata": {"ownerReferences": [owner("DaemonSet")]}}));
        let plain = pod(json!({"metadata": {"ownerReferences": [owner("ReplicaSet")]}}));
        let ended = pod(json!({"metadata": {"name": "x"}, "status": {"phase": "Succeeded"}}));
        let rules = DrainRules::default();
        assert!(kept(&bare, &rules).is_some_and(|why| why.contains("force")));
        assert!(kept(&local, &rules).is_some_and(|why| why.contains("emptyDir")));
        for goes_or_stays in [&everywhere, &plain, &ended] {
            assert_eq!(kept(goes_or_stays, &rules), None);
        }
        let all = DrainRules {
            force: true,
            delete_local_data: true,
            ..rules
        };
        assert_eq!(kept(&bare, &all), None);
        assert_eq!(kept(&local, &all), None);
        let not_ignored = DrainRules {
            ignore_daemonsets: false,
            ..all
        };
        assert!(kept(&everywhere, &not_ignored).is_some());
        assert_eq!(kept(&plain, &not_ignored), None);
    }
}
