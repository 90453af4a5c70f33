//! The record of what a deletion left: the ConfigMap `<cluster>-orphaned` in the operator's
//! namespace and a Warning event. Written before the finalizer goes; when it cannot be written,
//! the finalizer stays (invariant 10).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    context::{Context, ReconcileError, labels},
    events::{Notice, publish},
    view::View,
};
use crate::{
    api::{ClusterStatus, MANAGER},
    state::{Loaded, Saved, Store, secret::SecretStore},
};

/// What is known about a cluster that nobody manages any more.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    cluster: String,
    uid: String,
    cluster_id: Option<String>,
    deleted: Option<String>,
    deadline: String,
    /// The last word of the removal.
    remaining: std::collections::BTreeMap<String, String>,
    nodes: Vec<Left>,
    /// Where the keys are, or why they are not.
    state: String,
}

/// A node that may still carry the cluster.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Left {
    name: String,
    address: String,
    port: u16,
    user: String,
}

/// Writes the record. One entry for each object that ever had the name: an older one is kept.
pub(super) async fn record(
    ctx: &Context,
    view: &View,
    status: &ClusterStatus,
    deadline: Timestamp,
) -> Result<(), ReconcileError> {
    let name = view.name();
    let store = SecretStore::new(ctx.client.clone(), &ctx.options.namespace, &name);
    let (saved, state) = match store.load().await {
        Ok(Loaded::Present { saved, .. }) => (Some(*saved), format!("kept in {}", store.place())),
        Ok(Loaded::Absent) => (None, format!("there is none in {}", store.place())),
        // An error must not keep a deletion from its end.
        Err(error) => (None, error.to_string()),
    };
    let nodes = saved
        .as_ref()
        .map_or_else(|| named_in(view.raw_spec()), inventory);
    let record = Record {
        cluster: name.clone(),
        uid: view.uid(),
        cluster_id: saved
            .map(|saved| saved.cluster_id.0)
            .or_else(|| status.cluster_id.clone()),
        deleted: view.deleted_at().map(|at| at.to_string()),
        deadline: deadline.to_string(),
        remaining: status.remaining.clone(),
        nodes,
        state,
    };
    write(ctx, &name, &record).await?;
    let nodes: Vec<String> = record
        .nodes
        .iter()
        .map(|node| format!("`{}` ({})", node.name, node.address))
        .collect();
    let note = format!(
        "not everything was given back in time; left as they are: {}; the ConfigMap `{}/{name}-orphaned` has the details",
        if nodes.is_empty() {
            "nodes that are not known".to_owned()
        } else {
            nodes.join(", ")
        },
        ctx.options.namespace,
    );
    let notice = Notice::warning("Orphaned", "Orphan", &note);
    publish(&ctx.recorder, &Context::reference(view), &notice).await;
    Ok(())
}

async fn write(ctx: &Context, cluster: &str, record: &Record) -> Result<(), ReconcileError> {
    let maps: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &ctx.options.namespace);
    let name = format!("{cluster}-orphaned");
    let entry = format!("{}.json", record.uid);
    let text = serde_json::to_string_pretty(record).map_err(kube::Error::SerdeError)?;
    let body = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "labels": labels(cluster) },
        "data": { entry: text },
    });
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match maps.patch(&name, &params, &Patch::Merge(&body)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            let map: ConfigMap = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
            maps.create(&PostParams::default(), &map).await?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn inventory(saved: &Saved) -> Vec<Left> {
    saved
        .inventory
        .iter()
        .map(|(name, entry)| Left {
            name: name.0.clone(),
            address: entry.endpoint.address.clone(),
            port: entry.endpoint.port,
            user: entry.user.clone(),
        })
        .collect()
}

/// The nodes of a config that may be broken, as far as they can be made out.
fn named_in(spec: Option<&Value>) -> Vec<Left> {
    let nodes = spec
        .and_then(|spec| spec.pointer("/config/nodes"))
        .and_then(Value::as_array);
    let text = |node: &Value, key: &str| node.get(key).and_then(Value::as_str).map(str::to_owned);
    nodes
        .into_iter()
        .flatten()
        .filter_map(|node| {
            let address = text(node, "address")?;
            Some(Left {
                name: text(node, "hostname_override").unwrap_or_else(|| address.clone()),
                address,
                port: node
                    .get("port")
                    .and_then(Value::as_u64)
                    .and_then(|port| u16::try_from(port).ok())
                    .unwrap_or(22),
                user: text(node, "user").unwrap_or_default(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_made_out_of_a_broken_config() {
        let spec = json!({"config": {"nodes": [
            {"address": "10.0.0.1", "port": "high", "role": 7},
            {"user": "nobody"},
            "10.0.0.2",
            {"address": "10.0.0.3", "hostname_override": "n3", "port": 2222, "user": "root"},
        ]}});
        let left: Vec<_> = named_in(Some(&spec))
            .into_iter()
            .map(|node| (node.name, node.address, node.port, node.user))
            .collect();
        let own = str::to_owned;
        assert_eq!(
            left,
            [
                (own("10.0.0.1"), own("10.0.0.1"), 22, own("")),
                (own("n3"), own("10.0.0.3"), 2222, own("root")),
            ]
        );
    }
}
