//! What a restored API has of the time of the snapshot, and what of it must not come back: a kubelet would start a pod again whose
//! successor runs elsewhere, and a controller would count on a Node that is none any more.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;

use super::{WorkloadError, drain::is_mirror, lost::taint, objects::within, pages};
use crate::{facts::NODE_META, model::NodeName};

/// Where kubelets have their leases.
const KUBELETS: &str = "kube-node-lease";

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// How many objects were deleted.
    pub deleted: usize,
    /// Pods that nothing would make again: they stay.
    pub left: Vec<String>,
}

/// Deletes, by their uids: pods that are bound to one of the nodes of `running`, have not ended, do not run there and
/// have a controller; Nodes that rke-operator has set up and that are not among `nodes`; the lease of a run, of that name; and those of kubelets:
/// [`reports`] tells by them who has reported since. Pods of nodes that did not answer stay as they are. The nodes of `lost`
/// were Ready when the snapshot was taken: they no longer are, and take no pod.
pub async fn clean_restored(
    client: &Client,
    running: &BTreeMap<NodeName, BTreeSet<String>>,
    nodes: &BTreeSet<NodeName>,
    lost: &BTreeSet<NodeName>,
    lease: &str,
) -> Result<Restored, WorkloadError> {
    let mut restored = Restored::default();
    let mut ghosts = Vec::new();
    let pods: Api<Pod> = Api::all(client.clone());
    let take = |pod: Pod| match fate(&pod, running) {
        Fate::Stays => {}
        Fate::Left => restored.left.push(format!("`{}`", named(&pod))),
        Fate::Goes => ghosts.push(pod),
    };
    let listed = pages::each(&pods, &ListParams::default(), take).await;
    listed.map_err(|error| WorkloadError::api("list pods", error))?;
    for pod in ghosts {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let doing = || format!("delete pod `{}`", named(&pod));
        restored.deleted += usize::from(delete(&pods, &pod, doing).await?);
    }
    let all: Api<Node> = Api::all(client.clone());
    let (mut gone, mut off) = (Vec::new(), Vec::new());
    let take = |node: Node| {
        if lost.contains(&NodeName(node.name_any())) {
            off.push(node);
            return;
        }
        let ours = node.annotations().contains_key(NODE_META);
        if ours && !nodes.contains(&NodeName(node.name_any())) {
            gone.push(node);
        }
    };
    let listed = pages::each(&all, &ListParams::default(), take).await;
    listed.map_err(|error| WorkloadError::api("list nodes", error))?;
    for node in gone {
        let doing = || format!("delete node `{}`", node.name_any());
        restored.deleted += usize::from(delete(&all, &node, doing).await?);
    }
    for node in off {
        let name = NodeName(node.name_any());
        let uid = node.uid().unwrap_or_default();
        if taint(client, &name, &uid).await? {
            no_longer_ready(&all, &name).await?;
        }
    }
    forget(client, "kube-system", lease).await?;
    for node in nodes {
        forget(client, KUBELETS, &node.0).await?;
    }
    Ok(restored)
}

/// As the node controller says it of a kubelet that does not report.
async fn no_longer_ready(nodes: &Api<Node>, node: &NodeName) -> Result<(), WorkloadError> {
    let status = json!({"status": {"conditions": [{
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "the node was given up before etcd was restored",
    }]}});
    let params = PatchParams::default();
    let patch = Patch::Strategic(&status);
    match within(nodes.patch_status(&node.0, &params, &patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => {
            let doing = format!("say that node `{node}` is not ready");
            Err(WorkloadError::api(doing, error))
        }
    }
}

/// Deletes a lease. Gone is success.
async fn forget(client: &Client, namespace: &str, lease: &str) -> Result<(), WorkloadError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    match within(leases.delete(lease, &DeleteParams::default())).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(WorkloadError::api(format!("delete lease `{lease}`"), error)),
    }
}

/// True when the node's kubelet has reported since [`clean_restored`].
pub async fn reports(client: &Client, node: &NodeName) -> Result<bool, WorkloadError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), KUBELETS);
    let lease = within(leases.get_opt(&node.0)).await;
    let lease = lease
        .map_err(|error| WorkloadError::api(format!("read the lease of node `{node}`"), error))?;
    Ok(lease.is_some())
}

/// The uids of the pods that the API has on a node.
pub async fn pods_of(client: &Client, node: &NodeName) -> Result<BTreeSet<String>, WorkloadError> {
    let pods: Api<Pod> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let mut uids = BTreeSet::new();
    let take = |pod: Pod| uids.extend(pod.uid().into_iter().chain(mirrors(&pod)));
    let listed = pages::each(&pods, &params, take).await;
    listed.map_err(|error| WorkloadError::api(format!("list pods of node `{node}`"), error))?;
    Ok(uids)
}

/// What kubelet has from a file has another uid on the node.
fn mirrors(pod: &Pod) -> Option<String> {
    pod.annotations().get("kubernetes.io/config.hash").cloned()
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It runs, has ended, or its node did not answer.
    Stays,
    /// Nothing would make another one.
    Left,
    /// Its controller makes another one where there is none yet.
    Goes,
}

fn fate(pod: &Pod, running: &BTreeMap<NodeName, BTreeSet<String>>) -> Fate {
    let spec = pod.spec.as_ref();
    let node = spec.and_then(|spec| spec.node_name.clone());
    let runs = node.and_then(|node| running.get(&NodeName(node)));
    let (Some(runs), Some(uid)) = (runs, pod.uid()) else {
        return Fate::Stays;
    };
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) || is_mirror(pod) || runs.contains(&uid) {
        return Fate::Stays;
    }
    let mut owners = pod.metadata.owner_references.iter().flatten();
    if owners.any(|owner| owner.controller == Some(true)) {
        Fate::Goes
    } else {
        Fate::Left
    }
}

fn named(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// False where it is gone, or is another one by now. No kubelet is there to confirm that it has ended.
async fn delete<K>(
    api: &Api<K>,
    object: &K,
    doing: impl Fn() -> String,
) -> Result<bool, WorkloadError>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: object.uid(),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    match within(api.delete(&object.name_any(), &params)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
        Err(error) => Err(WorkloadError::api(doing(), error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{super::fake::FakeApi, *};

    fn pod(change: Value) -> Pod {
        let mut pod = json!({
            "metadata": {
                "name": "web-0",
                "namespace": "default",
                "uid": "a",
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "s", "controller": true},
                ],
            },
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": "Running"},
        });
        json_patch(&mut pod, change);
        serde_json::from_value(pod).unwrap()
    }

    fn json_patch(into: &mut Value, change: Value) {
        match (into, change) {
            (Value::Object(into), Value::Object(change)) => {
                for (key, value) in change {
                    json_patch(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, change) => *into = change,
        }
    }

    #[test]
    fn only_what_does_not_run_and_has_a_controller_goes() {
        let running = |uids: &[&str]| {
            let uids = uids.iter().map(|uid| (*uid).to_owned()).collect();
            BTreeMap::from([(NodeName::from("n1"), uids)])
        };
        let none = running(&[]);
        assert_eq!(fate(&pod(json!({})), &none), Fate::Goes);
        assert_eq!(fate(&pod(json!({})), &running(&["a"])), Fate::Stays);
        let another = running(&["b"]);
        assert_eq!(fate(&pod(json!({})), &another), Fate::Goes);
        let of_silent = pod(json!({"spec": {"nodeName": "n2"}}));
        assert_eq!(fate(&of_silent, &none), Fate::Stays);
        let unbound = pod(json!({"spec": {"nodeName": null}}));
        assert_eq!(fate(&unbound, &none), Fate::Stays);
        for phase in ["Succeeded", "Failed"] {
            let ended = pod(json!({"status": {"phase": phase}}));
            assert_eq!(fate(&ended, &none), Fate::Stays);
        }
        let bare = pod(json!({"metadata": {"ownerReferences": []}}));
        assert_eq!(fate(&bare, &none), Fate::Left);
        let annotations = json!({"kubernetes.io/config.mirror": "x"});
        let of_a_file = pod(json!({"metadata": {"annotations": annotations}}));
        assert_eq!(fate(&of_a_file, &none), Fate::Stays);
    }

    /// The node controller, which would find out, does not run yet.
    #[tokio::test]
    async fn a_node_that_is_given_up_takes_no_pod_and_is_not_ready() {
        let api = FakeApi::new();
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let path = |name: &str| format!("/api/v1/nodes/{name}");
        for name in ["n1", "n2"] {
            api.put(&path(name), json!({"status": ready}));
        }
        let nodes = ["n1", "n2"].map(NodeName::from).into();
        let lost = ["n2", "n3"].map(NodeName::from).into();
        let (client, running) = (api.client(), BTreeMap::new());
        let cleaned = clean_restored(&client, &running, &nodes, &lost, "run");
        assert_eq!(cleaned.await.unwrap(), Restored::default());
        let is_ready = |name: &str| {
            let node = api.get(&path(name)).unwrap();
            let taints = node["spec"]["taints"].as_array().map_or(0, Vec::len);
            (taints, node["status"]["conditions"][0]["status"].clone())
        };
        assert_eq!(is_ready("n1"), (0, json!("True")));
        assert_eq!(is_ready("n2"), (1, json!("Unknown")));
    }
}
