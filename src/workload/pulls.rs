//! One level below a wait: the image that a pod is waiting for.

use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::objects::within;
use crate::model::NodeName;

/// ``pod `kube-flannel-x2x9z` is pulling `rancher/hardened-flannel:v0.28.1` ``: the first pod of the namespace, on the node if
/// one is named, that waits for an image. `None` if none does, or if the API does not answer.
pub async fn pulling(client: &Client, namespace: &str, node: Option<&NodeName>) -> Option<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let of_node = node.map_or_else(ListParams::default, |node| {
        ListParams::default().fields(&format!("spec.nodeName={node}"))
    });
    let begun = ListParams::default().fields("reason=Pulling");
    let (pods, events) = tokio::join!(within(pods.list(&of_node)), within(events.list(&begun)));
    being_pulled(&pods.ok()?.items, &events.ok()?.items)
}

/// kubelet says in an event that it begins to pull, and its container waits until the image is there.
fn being_pulled(pods: &[Pod], events: &[Event]) -> Option<String> {
    pods.iter().find_map(|pod| {
        let its = events
            .iter()
            .filter(|event| event.involved_object.uid == pod.metadata.uid);
        let mut images = its.filter_map(|event| {
            let place = event.involved_object.field_path.as_deref()?;
            let (_, container) = place.strip_suffix('}')?.split_once('{')?;
            let image = event.message.as_deref()?.split('"').nth(1)?;
            waits(pod, container).then_some(image)
        });
        let image = images.next()?;
        Some(format!("pod `{}` is pulling `{image}`", pod.name_any()))
    })
}

/// Whether a container of the pod has not begun, for no other reason than that something is missing yet.
fn waits(pod: &Pod, container: &str) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    let reason = |status: &ContainerStatus| -> Option<String> {
        status.state.as_ref()?.waiting.as_ref()?.reason.clone()
    };
    all.any(|status| {
        let reason = reason(status);
        status.name == container
            && matches!(
                reason.as_deref(),
                Some("ContainerCreating" | "PodInitializing")
            )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, states: &Value) -> Pod {
        let statuses: Vec<Value> = states
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, state)| {
                json!({
                    "name": name, "state": state,
                    "image": "", "imageID": "", "ready": false, "restartCount": 0,
                })
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name},
            "status": {"containerStatuses": statuses},
        }))
        .unwrap()
    }

    fn pulls(pod: &str, container: &str, image: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": "event"},
            "involvedObject": {"uid": pod, "fieldPath": format!("spec.containers{{{container}}}")},
            "reason": "Pulling",
            "message": format!("Pulling image \"{image}\""),
        }))
        .unwrap()
    }

    #[test]
    fn an_image_is_named_while_its_container_waits_for_it() {
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        let backing_off = json!({"waiting": {"reason": "ImagePullBackOff"}});
        let running = json!({"running": {}});
        let events = [
            pulls("other", "dns", "coredns:1"),
            pulls("flannel", "cni", "cni:1"),
            pulls("flannel", "flanneld", "flannel:2"),
        ];
        let named = |states: Value| being_pulled(&[pod("flannel", &states)], &events);
        assert_eq!(
            named(json!({"cni": running, "flanneld": creating})).unwrap(),
            "pod `flannel` is pulling `flannel:2`"
        );
        // Its image is there, and another's event says nothing of it.
        assert_eq!(named(json!({"cni": running, "flanneld": running})), None);
        assert_eq!(named(json!({"dns": creating})), None);
        // What fails is shown with its own message.
        assert_eq!(named(json!({"cni": backing_off})), None);
    }
}
