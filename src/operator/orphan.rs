//! The record of what a deletion left: the ConfigMap `<cluster>-orphaned` in the operator's
//! namespace and a Warning event. Written before the finalizer goes (invariant 10). Where the
//! management cluster refuses the ConfigMap for good (the namespace is being deleted, the right is
//! missing), or has failed for an hour, the event and the log are the record: a deletion ends.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    cluster_object::ClusterObject,
    context::{Context, ReconcileError, labels},
    events::{Notice, publish},
    memory::{self, Kept},
};
use crate::{
    api::{ClusterStatus, RemainingNode, conditions::Reason},
    error::with_causes,
    state::{ClusterState, RemovalSnapshot},
};

/// What is known about a cluster that is no longer managed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    cluster: String,
    uid: String,
    cluster_id: Option<String>,
    deleted: Option<String>,
    /// Why the nodes are left as they are.
    why: &'static str,
    /// When the time for the deletion was over, if that is why.
    deadline: Option<String>,
    /// What the removal said last; where none said anything, every node.
    remaining: Vec<RemainingNode>,
    nodes: Vec<LeftNode>,
    /// Nodes that there was no room for.
    more_nodes: usize,
    /// Where the keys are, or why they are not.
    state: String,
    /// The snapshot of etcd that the removal has saved before.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_snapshot: Option<RemovalSnapshot>,
}

/// Why a cluster is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The time for the deletion was over.
    Late,
    /// The spec asks for it.
    AsAsked,
    /// The definition of `Cluster` is being deleted, and every object with it.
    WithItsDefinition,
}

impl Left {
    const fn why(self) -> &'static str {
        match self {
            Self::Late => "not every node was cleaned in time",
            Self::AsAsked => "the spec has `deletion.policy: Orphan`",
            Self::WithItsDefinition => {
                "the definition of `Cluster` is being deleted, which asks for no cluster to be removed"
            }
        }
    }
}

/// A node that may still carry the cluster.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeftNode {
    name: String,
    address: String,
    port: u16,
    user: String,
}

impl LeftNode {
    /// No removal came to an end that could say more.
    fn was_not_clean_in_time(&self) -> RemainingNode {
        RemainingNode {
            name: self.name.clone(),
            reason: Reason::DeletionOverdue.name().to_owned(),
            message: format!(
                "node `{}` was not clean when the time for the deletion was over",
                self.name
            ),
        }
    }
}

/// How long a management cluster that fails is asked to take the record, after the deadline.
const TRIES: SignedDuration = SignedDuration::from_hours(1);

/// How many nodes a record names: with their addresses far below what an object may hold.
const NODES: usize = 1000;

/// What all records of one name may hold; an object may hold 1 MiB.
const ROOM: usize = 900 * 1024;

/// Writes the record. One entry for each object that ever had the name: an older one is kept.
pub(super) async fn record(
    ctx: &Context,
    view: &ClusterObject,
    status: &ClusterStatus,
    left: Left,
    since: Timestamp,
) -> Result<(), ReconcileError> {
    let name = view.name();
    let place = memory::store(ctx, view).place();
    let (saved, state) = match memory::read(ctx, view).await {
        Ok(Kept::Ours(saved)) => (Some(*saved), format!("kept in {place}")),
        Ok(Kept::Absent) => (None, format!("there is none in {place}")),
        Ok(Kept::Anothers(error)) => (None, error.to_string()),
        // An error must not keep a deletion from its end.
        Err(error) => (None, error.to_string()),
    };
    let mut nodes = saved
        .as_ref()
        .map_or_else(|| named_in(view.raw_spec()), inventory);
    let more_nodes = nodes.len().saturating_sub(NODES);
    nodes.truncate(NODES);
    let mut remaining = status.remaining.clone();
    if remaining.is_empty() && left == Left::Late {
        remaining = nodes.iter().map(LeftNode::was_not_clean_in_time).collect();
    }
    let last = saved.as_ref().map(|saved| &saved.memory);
    let last = last.and_then(|memory| memory.last_snapshot.clone());
    let last_snapshot = last.filter(|last| last.saved.is_some());
    let last = last_snapshot.as_ref().and_then(RemovalSnapshot::place);
    let last = last.map(|place| format!("; the last snapshot of etcd is {place}"));
    let record = Record {
        cluster: name.clone(),
        uid: view.uid(),
        cluster_id: saved
            .map(|saved| saved.cluster_id.0)
            .or_else(|| view.known_id().map(|id| id.0)),
        deleted: view.deleted_at().map(|at| at.to_string()),
        why: left.why(),
        deadline: (left == Left::Late).then(|| since.to_string()),
        remaining,
        nodes,
        more_nodes,
        state,
        last_snapshot,
    };
    let place = format!("{}/{name}-orphaned", ctx.options.namespace);
    let details = match write(ctx, &name, &record).await {
        Ok(()) => format!("the ConfigMap `{place}` has the details"),
        Err(error) if is_final(&error) || is_late(ctx, since) => {
            format!(
                "the ConfigMap `{place}` cannot be written ({})",
                with_causes(&error)
            )
        }
        Err(error) => return Err(error.into()),
    };
    let nodes: Vec<String> = record
        .nodes
        .iter()
        .map(|node| format!("`{}` ({})", node.name, node.address))
        .collect();
    let note = format!(
        "{}: {details}{}; left as they are: {}",
        left.why(),
        last.unwrap_or_default(),
        if nodes.is_empty() {
            "nodes that are not known".to_owned()
        } else {
            nodes.join(", ")
        },
    );
    let text = serde_json::to_string(&record).unwrap_or_default();
    tracing::warn!(record = text, note, "a cluster is orphaned");
    ctx.health.metrics.orphaned();
    let notice = Notice::warning("Orphaned", "Orphan", &note);
    publish(ctx, view, &notice).await;
    Ok(())
}

/// True for a refusal that the same request meets again.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if matches!(status.code, 400 | 401 | 403 | 404 | 405 | 413 | 422))
}

fn is_late(ctx: &Context, since: Timestamp) -> bool {
    let late = since.checked_add(TRIES);
    late.is_ok_and(|late| ctx.now() >= late)
}

async fn write(ctx: &Context, cluster: &str, record: &Record) -> kube::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &ctx.options.namespace);
    let name = format!("{cluster}-orphaned");
    let text = serde_json::to_string_pretty(record).map_err(kube::Error::SerdeError)?;
    let params = PostParams::default();
    if let Some(mut there) = maps.get_opt(&name).await? {
        let entries = there.data.take().unwrap_or_default();
        there.data = Some(with_entry(entries, &record.uid, text));
        // It has the resourceVersion that was read: a record that was added meanwhile is not lost.
        there.metadata.managed_fields = None;
        let name = there.name_any();
        maps.replace(&name, &params, &there).await?;
        return Ok(());
    }
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(labels(cluster)),
            ..ObjectMeta::default()
        },
        data: Some(with_entry(BTreeMap::new(), &record.uid, text)),
        ..ConfigMap::default()
    };
    maps.create(&params, &map).await?;
    Ok(())
}

/// The records with this one; of the others as many as there is room for, the latest first.
fn with_entry(
    others: BTreeMap<String, String>,
    uid: &str,
    text: String,
) -> BTreeMap<String, String> {
    let name = format!("{uid}.json");
    let deleted = |text: &str| {
        serde_json::from_str::<Value>(text)
            .ok()
            .and_then(|record| record["deleted"].as_str().map(str::to_owned))
            .unwrap_or_default()
    };
    let mut others: Vec<_> = others.into_iter().filter(|(key, _)| *key != name).collect();
    others.sort_by_cached_key(|(_, text)| std::cmp::Reverse(deleted(text)));
    let mut room = ROOM.saturating_sub(text.len());
    let mut kept = BTreeMap::from([(name, text)]);
    for (key, text) in others {
        let Some(left) = room.checked_sub(key.len() + text.len()) else {
            break;
        };
        room = left;
        kept.insert(key, text);
    }
    kept
}

fn inventory(saved: &ClusterState) -> Vec<LeftNode> {
    saved
        .inventory
        .iter()
        .map(|(name, entry)| LeftNode {
            name: name.0.clone(),
            address: entry.endpoint.address.clone(),
            port: entry.endpoint.port,
            user: entry.user.clone(),
        })
        .collect()
}

/// The nodes of a config that may be broken, as far as they can be made out.
fn named_in(spec: Option<&Value>) -> Vec<LeftNode> {
    let nodes = spec
        .and_then(|spec| spec.pointer("/config/nodes"))
        .and_then(Value::as_array);
    let text = |node: &Value, key: &str| node.get(key).and_then(Value::as_str).map(str::to_owned);
    nodes
        .into_iter()
        .flatten()
        .filter_map(|node| {
            let address = text(node, "address")?;
            Some(LeftNode {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_has_room_whatever_was_there_before() {
        let old = |day: u8, size: usize| {
            let text =
                json!({"deleted": format!("2030-01-{day:02}T00:00:00Z"), "x": "x".repeat(size)});
            (format!("old-{day}.json"), text.to_string())
        };
        let others = BTreeMap::from([old(1, 500_000), old(2, 500_000), old(3, 10)]);
        let kept = with_entry(others, "new", "{}".to_owned());
        let names: Vec<_> = kept.keys().map(String::as_str).collect();
        assert_eq!(names, ["new.json", "old-2.json", "old-3.json"]);
        // The same object again: its entry is replaced.
        let again = with_entry(kept, "new", "{\"again\": 1}".to_owned());
        assert_eq!(again["new.json"], "{\"again\": 1}");
        assert_eq!(again.len(), 3);
    }

    #[test]
    fn nodes_are_made_out_of_a_broken_config() {
        let spec = json!({"config": {"nodes": [
            {"address": "10.0.0.1", "port": "high", "role": 7},
            {"user": "core"},
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
