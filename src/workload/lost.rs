//! What a node that is lost takes with it, and how its volumes come free: the taint
//! `node.kubernetes.io/out-of-service` has Kubernetes end the pods of a node that does not report,
//! and detach their volumes, without its kubelet.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::future::{try_join, try_join_all};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, Pod, Taint},
    storage::v1::VolumeAttachment,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    Waited, Waiting, WorkloadError,
    drain::goes,
    objects::{patiently, within},
};
use crate::{facts::Bound, model::NodeName};

/// The taint that says that a node is off and stays off.
const TAINT: &str = "node.kubernetes.io/out-of-service";

/// How often it is looked whether a volume is still attached.
const LOOK: Duration = Duration::from_secs(1);

/// How often a conflicting write is tried again.
const TRIES: usize = 5;

/// How many objects of a kind are looked at.
const MOST: u32 = 500;

/// Taints the node, if it is still the one of that uid, and waits until no volume is attached to it
/// or `patience` is over. A node that is gone is success.
pub async fn out_of_service(
    client: &Client,
    node: &NodeName,
    uid: &str,
    patience: Duration,
    waiting: Waiting<'_>,
) -> Result<Waited, WorkloadError> {
    if !taint(client, node, uid).await? {
        return Ok(Waited::Ready);
    }
    let end = Instant::now() + patience;
    let mut tries = 0;
    loop {
        let doing = format!("list the volumes that are attached to node `{node}`");
        let all = patiently(&doing, || attachments(client)).await?;
        let mut left = all.iter().filter(|one| one.spec.node_name == node.0);
        let Some(first) = left.next() else {
            return Ok(Waited::Ready);
        };
        let mut waiting_for = format!("`{}`", volume(first));
        let more = left.count();
        if more > 0 {
            waiting_for = format!("{waiting_for} and {more} more");
        }
        if Instant::now() >= end {
            return Ok(Waited::StillWaiting(waiting_for));
        }
        tries += 1;
        waiting(
            format!("volumes of node `{node}` to be detached: {waiting_for}"),
            tries,
        );
        sleep(LOOK).await;
    }
}

/// False when the node is gone, or is another one by now.
pub(super) async fn taint(
    client: &Client,
    name: &NodeName,
    uid: &str,
) -> Result<bool, WorkloadError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let doing = format!("say that node `{name}` is out of service");
    for _ in 0..TRIES {
        let there = patiently(&doing, || nodes.get_opt(&name.0)).await?;
        let Some(node) = there.filter(|node| node.uid().as_deref() == Some(uid)) else {
            return Ok(false);
        };
        let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        if taints.iter().any(|taint| taint.key == TAINT) {
            return Ok(true);
        }
        taints.push(Taint {
            key: TAINT.to_owned(),
            value: Some("nodeshutdown".to_owned()),
            effect: "NoExecute".to_owned(),
            ..Taint::default()
        });
        let patch = json!({
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": taints},
        });
        let params = PatchParams {
            field_manager: Some(super::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match within(nodes.patch(&name.0, &params, &Patch::Merge(&patch))).await {
            Ok(_) => return Ok(true),
            // The node controller writes its own taints.
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(WorkloadError::api(doing, error)),
        }
    }
    Err(WorkloadError::Overdue {
        waiting_for: format!("{doing}: others write the Node all the while"),
        after: LOOK,
    })
}

async fn attachments(client: &Client) -> kube::Result<Vec<VolumeAttachment>> {
    let all: Api<VolumeAttachment> = Api::all(client.clone());
    Ok(all.list(&ListParams::default().limit(MOST)).await?.items)
}

fn volume(attachment: &VolumeAttachment) -> String {
    let source = &attachment.spec.source;
    let volume = source.persistent_volume_name.clone();
    volume.unwrap_or_else(|| attachment.name_any())
}

/// What goes with each of these nodes.
pub async fn bound_to(
    client: &Client,
    nodes: &BTreeSet<NodeName>,
) -> kube::Result<BTreeMap<NodeName, Bound>> {
    if nodes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (attached, volumes) = try_join(attachments(client), volumes(client)).await?;
    let pods = nodes.iter().map(|node| pods(client, node));
    let pods = try_join_all(pods).await?;
    let bound = nodes.iter().zip(pods).map(|(node, pods)| {
        let attached = attached.iter().filter(|one| one.spec.node_name == node.0);
        let own = volumes.iter().filter(|volume| only_on(volume, node));
        let bound = Bound {
            attached: attached.map(volume).collect(),
            volumes: own.map(ResourceExt::name_any).collect(),
            bare_pods: named(&pods, is_bare),
            empty_dirs: named(&pods, has_empty_dir),
        };
        (node.clone(), bound)
    });
    Ok(bound.collect())
}

async fn volumes(client: &Client) -> kube::Result<Vec<PersistentVolume>> {
    let all: Api<PersistentVolume> = Api::all(client.clone());
    Ok(all.list(&ListParams::default().limit(MOST)).await?.items)
}

async fn pods(client: &Client, node: &NodeName) -> kube::Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::all(client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let all = pods.list(&params.limit(MOST)).await?.items;
    Ok(all.into_iter().filter(goes).collect())
}

fn named(pods: &[Pod], which: impl Fn(&Pod) -> bool) -> BTreeSet<String> {
    let name = |pod: &Pod| format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    pods.iter().filter(|pod| which(pod)).map(name).collect()
}

/// True if no controller re-creates the pod.
fn is_bare(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    !owners.any(|owner| owner.controller == Some(true))
}

fn has_empty_dir(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let mut volumes = spec
        .and_then(|spec| spec.volumes.as_ref())
        .into_iter()
        .flatten();
    volumes.any(|volume| volume.empty_dir.is_some())
}

/// No other node can have it.
fn only_on(volume: &PersistentVolume, node: &NodeName) -> bool {
    let required = || {
        let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?;
        Some(&affinity.required.as_ref()?.node_selector_terms)
    };
    let terms = required().into_iter().flatten();
    let mut expressions = terms.flat_map(|term| term.match_expressions.iter().flatten());
    expressions.any(|expression| {
        let values = expression.values.as_deref().unwrap_or_default();
        expression.operator == "In" && values == std::slice::from_ref(&node.0)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{super::fake::FakeApi, *};

    const NODE: &str = "/api/v1/nodes/n3";
    const ATTACHED: &str = "/apis/storage.k8s.io/v1/volumeattachments/csi-1";

    fn attachment(node: &str) -> Value {
        let source = json!({"persistentVolumeName": "pv-1"});
        json!({"spec": {"attacher": "csi", "nodeName": node, "source": source}})
    }

    fn taints(api: &FakeApi) -> usize {
        let node = api.get(NODE).unwrap();
        node["spec"]["taints"].as_array().map_or(0, Vec::len)
    }

    async fn out_of_service(api: &FakeApi, uid: &str, waiting: Waiting<'_>) -> Waited {
        let (client, node) = (api.client(), NodeName::from("n3"));
        let patience = Duration::from_secs(60);
        let waited = super::out_of_service(&client, &node, uid, patience, waiting).await;
        waited.unwrap()
    }

    /// Others' taints stay, another Node of that name is left alone, and it is waited for the volumes.
    #[tokio::test(start_paused = true)]
    async fn a_lost_node_is_tainted_and_its_volumes_are_waited_for() {
        let api = FakeApi::new();
        let not_called = |_, _| panic!("nothing is attached");
        assert_eq!(out_of_service(&api, "u", &not_called).await, Waited::Ready);
        let own = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"});
        api.put(
            NODE,
            json!({"metadata": {"uid": "u"}, "spec": {"taints": [own]}}),
        );
        assert_eq!(out_of_service(&api, "v", &not_called).await, Waited::Ready);
        assert_eq!(taints(&api), 1, "another uid");
        api.put(
            "/apis/storage.k8s.io/v1/volumeattachments/csi-0",
            attachment("n1"),
        );
        api.put(ATTACHED, attachment("n3"));
        let there = api.clone();
        let detached = move |what: String, tries| {
            assert!(what.contains("`pv-1`"), "{what}");
            if tries == 3 {
                there.forget(ATTACHED);
            }
        };
        assert_eq!(out_of_service(&api, "u", &detached).await, Waited::Ready);
        assert_eq!(taints(&api), 2);
        // Once is enough; and what stays attached is a warning.
        api.put(ATTACHED, attachment("n3"));
        let waited = out_of_service(&api, "u", &|_, _| ()).await;
        assert_eq!(waited, Waited::StillWaiting("`pv-1`".to_owned()));
        assert_eq!(taints(&api), 2);
    }

    #[tokio::test]
    async fn what_goes_with_a_node_is_listed_and_nothing_is_asked_about_no_node() {
        let api = FakeApi::new();
        let bound = bound_to(&api.client(), &BTreeSet::new()).await.unwrap();
        assert_eq!((bound, api.log().len()), (BTreeMap::new(), 0));
        let affinity = |values: Value| {
            let expression =
                json!({"key": "kubernetes.io/hostname", "operator": "In", "values": values});
            let terms = json!([{"matchExpressions": [expression]}]);
            json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}})
        };
        for (name, volume) in [
            ("local", affinity(json!(["n3"]))),
            ("either", affinity(json!(["n3", "n4"]))),
            ("elsewhere", affinity(json!(["n4"]))),
            ("anywhere", json!({"spec": {}})),
        ] {
            api.put(&format!("/api/v1/persistentvolumes/{name}"), volume);
        }
        api.put(ATTACHED, attachment("n3"));
        let owner = |kind: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": true}]);
        let empty = json!([{"name": "v", "emptyDir": {}}]);
        for (name, node, owners, volumes) in [
            ("bare", "n3", json!([]), empty.clone()),
            ("owned", "n3", owner("ReplicaSet"), json!([])),
            ("daemon", "n3", owner("DaemonSet"), empty),
            ("far", "n4", json!([]), json!([])),
        ] {
            let pod = json!({"metadata": {"ownerReferences": owners},
                "spec": {"nodeName": node, "containers": [], "volumes": volumes}});
            api.put(&format!("/api/v1/namespaces/b/pods/{name}"), pod);
        }
        let nodes = ["n3".into()].into();
        let bound = bound_to(&api.client(), &nodes).await.unwrap();
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let expected = Bound {
            volumes: names(&["local"]),
            attached: names(&["pv-1"]),
            bare_pods: names(&["b/bare"]),
            empty_dirs: names(&["b/bare"]),
        };
        assert_eq!(bound, [("n3".into(), expected)].into());
    }
}
