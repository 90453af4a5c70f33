//! Our labels, annotations and taints on a Node object. Others' stay; ours that are no longer
//! wanted go: which ones were ours is written in the annotation [`NODE_META`]. Pure.
//!
//! Not server-side apply: a Node's taints are one atomic list, and owning it would take the
//! node controller's own taints away.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::NodeFact;
use crate::model::{FieldChange, NodeMeta, Taint};

/// The annotation that says which keys of a Node object are ours.
pub const NODE_META: &str = "clusterprovisioner.rke.io/node-meta";

/// What is ours on a Node object.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Owned {
    labels: BTreeSet<String>,
    annotations: BTreeSet<String>,
    taints: BTreeSet<(String, String)>,
}

impl Owned {
    /// What the annotation says; one that cannot be read owns nothing.
    fn on(node: &NodeFact) -> Self {
        node.annotations
            .get(NODE_META)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    fn wanted(meta: &NodeMeta) -> Self {
        Self {
            labels: meta.labels.keys().cloned().collect(),
            annotations: meta.annotations.keys().cloned().collect(),
            taints: meta.taints.iter().map(slot).collect(),
        }
    }
}

/// Taints are one for each key and effect.
fn slot(taint: &Taint) -> (String, String) {
    (taint.key.clone(), taint.effect.clone())
}

/// Where a Node object differs from what it must carry: what is missing or different, and what
/// is ours and no longer wanted.
pub fn node_changes(node: &NodeFact, meta: &NodeMeta) -> Vec<FieldChange> {
    let owned = Owned::on(node);
    let mut changes = Vec::new();
    let maps = [
        ("label", &meta.labels, &node.labels, &owned.labels),
        (
            "annotation",
            &meta.annotations,
            &node.annotations,
            &owned.annotations,
        ),
    ];
    for (what, wanted, live, owned) in maps {
        let keys: BTreeSet<&String> = wanted.keys().chain(owned).collect();
        changes.extend(keys.into_iter().filter_map(|key| {
            let (from, to) = (live.get(key).cloned(), wanted.get(key).cloned());
            (from != to).then(|| FieldChange {
                field: format!("{what} {key}").into(),
                from,
                to,
            })
        }));
    }
    let wanted = Owned::wanted(meta).taints;
    for (key, effect) in wanted.union(&owned.taints) {
        let value = |taints: &[Taint]| {
            taints
                .iter()
                .find(|taint| taint.key == *key && taint.effect == *effect)
                .map(|taint| format!("{key}={}:{effect}", taint.value))
        };
        let (from, to) = (value(&node.taints), value(&meta.taints));
        if from != to {
            changes.push(FieldChange {
                field: format!("taint {key}").into(),
                from,
                to,
            });
        }
    }
    changes
}

/// The patch that makes it so, or nothing. Refused by the server when the Node object has
/// changed in the meantime: the list of taints is written as a whole.
pub fn node_patch(
    node: &NodeFact,
    meta: &NodeMeta,
    resource_version: Option<&str>,
) -> Option<Value> {
    if node_changes(node, meta).is_empty() {
        return None;
    }
    let owned = Owned::on(node);
    let wanted = Owned::wanted(meta);
    let entries = |wanted: &std::collections::BTreeMap<String, String>,
                   owned: &BTreeSet<String>| {
        let gone = owned.iter().map(|key| (key.clone(), Value::Null));
        let there = wanted
            .iter()
            .map(|(key, value)| (key.clone(), Value::from(value.clone())));
        gone.chain(there).collect::<Map<String, Value>>()
    };
    let labels = entries(&meta.labels, &owned.labels);
    let mut annotations = entries(&meta.annotations, &owned.annotations);
    let record = (wanted != Owned::default()).then(|| json!(wanted).to_string());
    annotations.insert(NODE_META.to_owned(), record.into());
    let ours = |taint: &&Taint| {
        let slot = slot(taint);
        wanted.taints.contains(&slot) || owned.taints.contains(&slot)
    };
    let taints: Vec<Value> = node
        .taints
        .iter()
        .filter(|taint| !ours(taint))
        .chain(&meta.taints)
        .map(|taint| json!({ "key": taint.key, "value": taint.value, "effect": taint.effect }))
        .collect();
    let mut patch = json!({
        "metadata": { "labels": labels, "annotations": annotations },
    });
    if let Some(version) = resource_version {
        patch["metadata"]["resourceVersion"] = version.into();
    }
    if !(wanted.taints.is_empty() && owned.taints.is_empty()) {
        patch["spec"]["taints"] = taints.into();
    }
    Some(patch)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn meta(labels: &[(&str, &str)], taints: &[(&str, &str, &str)]) -> NodeMeta {
        NodeMeta {
            labels: map(labels),
            annotations: BTreeMap::new(),
            taints: taints.iter().map(taint).collect(),
        }
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn taint((key, value, effect): &(&str, &str, &str)) -> Taint {
        Taint {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            effect: (*effect).to_owned(),
        }
    }

    /// What a server makes of a merge patch.
    fn merged(node: &NodeFact, patch: &Value) -> NodeFact {
        let mut node = node.clone();
        for (field, live) in [
            ("labels", &mut node.labels),
            ("annotations", &mut node.annotations),
        ] {
            for (key, value) in patch["metadata"][field].as_object().unwrap() {
                match value.as_str() {
                    Some(value) => live.insert(key.clone(), value.to_owned()),
                    None => live.remove(key),
                };
            }
        }
        if let Some(taints) = patch["spec"]["taints"].as_array() {
            node.taints = taints
                .iter()
                .map(|taint| serde_json::from_value(taint.clone()).unwrap())
                .collect();
        }
        node
    }

    fn others() -> NodeFact {
        NodeFact {
            labels: map(&[("kubernetes.io/os", "linux"), ("theirs", "1")]),
            annotations: map(&[("theirs", "1")]),
            taints: vec![taint(&("node.kubernetes.io/not-ready", "", "NoExecute"))],
            ..NodeFact::default()
        }
    }

    #[test]
    fn nothing_wanted_and_nothing_owned_is_no_patch() {
        assert_eq!(node_patch(&others(), &NodeMeta::default(), None), None);
    }

    #[test]
    fn ours_come_change_and_go_and_others_stay() {
        let first = meta(
            &[("role", "a"), ("zone", "x")],
            &[("gpu", "yes", "NoSchedule")],
        );
        let before = others();
        assert_eq!(node_changes(&before, &first).len(), 3);
        let after = merged(&before, &node_patch(&before, &first, Some("7")).unwrap());
        assert_eq!(node_changes(&after, &first), []);
        assert_eq!(node_patch(&after, &first, None), None);
        assert_eq!(after.taints.len(), 2);

        let second = meta(&[("role", "b")], &[("gpu", "no", "NoSchedule")]);
        let fields: Vec<_> = node_changes(&after, &second)
            .into_iter()
            .map(|change| (change.field.to_string(), change.from, change.to))
            .collect();
        insta::assert_debug_snapshot!(fields, @r#"
        [
            (
                "label role",
                Some(
                    "a",
                ),
                Some(
                    "b",
                ),
            ),
            (
                "label zone",
                Some(
                    "x",
                ),
                None,
            ),
            (
                "taint gpu",
                Some(
                    "gpu=yes:NoSchedule",
                ),
                Some(
                    "gpu=no:NoSchedule",
                ),
            ),
        ]
        "#);
        let changed = merged(&after, &node_patch(&after, &second, None).unwrap());
        assert!(!changed.labels.contains_key("zone"));

        let nothing = NodeMeta::default();
        let back = merged(&changed, &node_patch(&changed, &nothing, None).unwrap());
        assert_eq!(back, before, "as it was before us");
    }

    #[test]
    fn a_note_that_cannot_be_read_takes_nothing_away() {
        let mut node = others();
        node.annotations
            .insert(NODE_META.to_owned(), "{{".to_owned());
        assert_eq!(node_changes(&node, &NodeMeta::default()), []);
    }
}
