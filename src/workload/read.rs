//! What the cluster's API says, as facts: one round of at most twelve requests, in parallel.

use std::{collections::BTreeMap, time::Duration};

use futures::future::{try_join_all, try_join4};
use http::Request;
use k8s_openapi::api::core::v1::{Node, Secret as KubeSecret};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use serde_json::Value;

use super::{
    copy,
    objects::{KINDS, Kind},
};
use crate::{
    actual::{ApiFacts, ApiView, NodeFact},
    config::{NodeName, Taint},
    desired::{ObjectRef, label},
    error::with_causes,
    state::Saved,
};

/// How long a survey waits for the API.
const DEADLINE: Duration = Duration::from_secs(20);

/// Reads the cluster's API. Not ready, refused, slow, or half an answer: all of that is
/// [`ApiView::Down`], so that nothing is pruned because a list was cut short.
pub async fn read(client: &Client, saved: Option<&Saved>) -> ApiView {
    match tokio::time::timeout(DEADLINE, facts(client, saved)).await {
        Ok(Ok(facts)) => ApiView::Up(Box::new(facts)),
        Ok(Err(error)) => ApiView::Down(with_causes(&error)),
        Err(_elapsed) => ApiView::Down(format!(
            "no complete answer within {} s",
            DEADLINE.as_secs()
        )),
    }
}

async fn facts(client: &Client, saved: Option<&Saved>) -> kube::Result<ApiFacts> {
    ready(client).await?;
    let lists = KINDS.iter().map(|kind| objects(client, kind));
    let (version, nodes, copy, lists) = try_join4(
        client.apiserver_version(),
        nodes(client),
        state_copy(client),
        try_join_all(lists),
    )
    .await?;
    Ok(ApiFacts {
        version: version.git_version,
        nodes,
        objects: lists.into_iter().flatten().collect(),
        state_copy: saved.is_some_and(|saved| copy::equals(copy.as_ref(), saved)),
    })
}

async fn ready(client: &Client) -> kube::Result<()> {
    let request = Request::get("/readyz")
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(|_| ())
}

async fn nodes(client: &Client) -> kube::Result<BTreeMap<NodeName, NodeFact>> {
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    Ok(nodes
        .items
        .iter()
        .map(|node| {
            let name = node.metadata.name.clone().unwrap_or_default();
            (NodeName(name), fact(node))
        })
        .collect())
}

/// A Node object as a fact.
pub(super) fn fact(node: &Node) -> NodeFact {
    let status = node.status.as_ref();
    let ready = status
        .and_then(|status| status.conditions.as_ref())
        .and_then(|conditions| conditions.iter().find(|one| one.type_ == "Ready"));
    let is_ready = ready.is_some_and(|condition| condition.status == "True");
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    NodeFact {
        ready: is_ready,
        message: match ready {
            Some(_) if is_ready => String::new(),
            Some(condition) => condition.message.clone().unwrap_or_default(),
            None => "kubelet has not reported yet".to_owned(),
        },
        labels: node.metadata.labels.clone().unwrap_or_default(),
        annotations: node.metadata.annotations.clone().unwrap_or_default(),
        taints: taints
            .into_iter()
            .flatten()
            .map(|taint| Taint {
                key: taint.key.clone(),
                value: taint.value.clone().unwrap_or_default(),
                effect: taint.effect.clone(),
            })
            .collect(),
        kubelet_version: status
            .and_then(|status| status.node_info.as_ref())
            .map(|info| info.kubelet_version.clone())
            .unwrap_or_default(),
    }
}

async fn state_copy(client: &Client) -> kube::Result<Option<KubeSecret>> {
    Api::<KubeSecret>::namespaced(client.clone(), copy::NAMESPACE)
        .get_opt(copy::NAME)
        .await
}

/// The objects of one kind that belong to add-ons. A list leaves out what its items are.
async fn objects(client: &Client, kind: &Kind) -> kube::Result<Vec<(ObjectRef, Value)>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
    let list = api
        .list(&ListParams::default().labels(label::ADDON))
        .await?;
    list.items
        .into_iter()
        .map(|object| {
            let reference = ObjectRef {
                api_version: kind.api_version.to_owned(),
                kind: kind.name.to_owned(),
                namespace: object.metadata.namespace.clone().unwrap_or_default(),
                name: object.metadata.name.clone().unwrap_or_default(),
            };
            let mut value = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
            value["apiVersion"] = kind.api_version.into();
            value["kind"] = kind.name.into();
            Ok((reference, value))
        })
        .collect()
}
