//! The add-ons' objects: applied when they differ, awaited with a bound, pruned when no longer
//! wanted. Pure.

use serde_json::Value;

use super::{Action, FieldChange, Stage, Step, Target};
use crate::{
    actual::{Actual, ApiFacts, ApiView},
    desired::{Addon, Desired, ObjectRef, label},
};

/// Add-ons without which no node becomes Ready.
const NETWORK: [&str; 1] = ["flannel"];

/// How many differing fields of one object are listed.
const SHOWN: usize = 8;

/// True when one of ours brings the network.
pub(super) fn has_network(want: &Desired) -> bool {
    want.addons
        .iter()
        .any(|addon| NETWORK.contains(&addon.name.as_str()))
}

/// One step an add-on, in order: network first.
pub(super) fn apply(want: &Desired, have: &Actual) -> Stage {
    let steps = want.addons.iter().filter_map(|addon| {
        let (objects, changes) = differing(addon, have);
        if objects.is_empty() {
            return None;
        }
        let why = match &have.api {
            ApiView::Up(_) if changes.iter().all(|change| change.from.is_none()) => {
                "the cluster does not have these objects"
            }
            ApiView::Up(_) => "objects differ",
            ApiView::Unknown | ApiView::Down(_) => {
                "what the cluster has is known after its API answers"
            }
        };
        let action = Action::ApplyAddon {
            addon: addon.name.clone(),
            objects,
        };
        Some(Step::new(Target::Cluster, why, action).changing(changes))
    });
    Stage::of("addons", 1, steps)
}

/// Waits for what was applied and for what is observably not available. Slow is a warning.
pub(super) fn wait(want: &Desired, have: &Actual) -> Stage {
    let awaited = want
        .addons
        .iter()
        .filter(|addon| !addon.workloads.is_empty());
    let steps = awaited.filter_map(|addon| {
        let applied = !differing(addon, have).0.is_empty();
        let why = if applied {
            "it was just applied"
        } else if unavailable(addon, have) {
            "it is not available"
        } else {
            return None;
        };
        let action = Action::AwaitAddon {
            addon: addon.name.clone(),
        };
        Some(Step::new(Target::Cluster, why, action))
    });
    Stage::of("available", 1, steps)
}

/// Objects of ours that nothing wants. Empty unless the API answered (invariant 1).
pub(super) fn prune(want: &Desired, have: &Actual) -> Option<Step> {
    let ApiView::Up(api) = &have.api else {
        return None;
    };
    let wanted = |object: &ObjectRef| {
        want.addons
            .iter()
            .any(|addon| addon.objects.contains_key(object))
    };
    let objects: Vec<ObjectRef> = api
        .objects
        .iter()
        .filter(|(object, value)| {
            let addon = value["metadata"]["labels"][label::ADDON].as_str();
            let known = addon.is_some_and(|addon| want.known_addons.contains(addon));
            known && !wanted(object)
        })
        .map(|(object, _)| object.clone())
        .collect();
    if objects.is_empty() {
        return None;
    }
    let why = "objects of add-ons that the config no longer wants";
    Some(Step::new(
        Target::Cluster,
        why,
        Action::PruneObjects { objects },
    ))
}

fn differing(addon: &Addon, have: &Actual) -> (Vec<ObjectRef>, Vec<FieldChange>) {
    let ApiView::Up(api) = &have.api else {
        return (addon.objects.keys().cloned().collect(), Vec::new());
    };
    let mut objects = Vec::new();
    let mut changes = Vec::new();
    for (object, wanted) in &addon.objects {
        let Some(live) = api.objects.get(object) else {
            objects.push(object.clone());
            changes.push(FieldChange {
                field: object.to_string(),
                from: None,
                to: Some("applied".to_owned()),
            });
            continue;
        };
        let mut paths = Vec::new();
        differences(wanted, Some(live), String::new(), &mut paths);
        if paths.is_empty() {
            continue;
        }
        objects.push(object.clone());
        let hidden = object.kind == "Secret";
        changes.extend(paths.into_iter().take(SHOWN).map(|(path, from, to)| {
            let shown = |value: Option<String>| {
                value.map(|value| {
                    if hidden {
                        "(a value)".to_owned()
                    } else {
                        value
                    }
                })
            };
            FieldChange {
                field: format!("{object} {path}"),
                from: shown(from),
                to: shown(to),
            }
        }));
    }
    (objects, changes)
}

type Differing = (String, Option<String>, Option<String>);

/// Where the live value does not carry what is wanted. What the server and others add is theirs.
fn differences(wanted: &Value, live: Option<&Value>, path: String, found: &mut Vec<Differing>) {
    let Some(live) = live else {
        if !is_default(wanted) {
            found.push((path, None, Some(shown(wanted))));
        }
        return;
    };
    match (wanted, live) {
        (Value::Null, _) => {}
        (Value::Object(wanted), Value::Object(live)) => {
            for (key, value) in wanted {
                let below = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                differences(value, live.get(key), below, found);
            }
        }
        (Value::Array(wanted), Value::Array(live)) if wanted.len() == live.len() => {
            for (index, (wanted, live)) in wanted.iter().zip(live).enumerate() {
                differences(wanted, Some(live), format!("{path}[{index}]"), found);
            }
        }
        (wanted, live) if wanted == live => {}
        (wanted, live) => found.push((path, Some(shown(live)), Some(shown(wanted)))),
    }
}

/// What the server leaves out when it is written: empty and zero values.
fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_default),
    }
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    let mut lines = text.lines();
    let first: String = lines.next().unwrap_or_default().chars().take(60).collect();
    if first.len() < text.len() {
        format!("{first}…")
    } else {
        first
    }
}

fn unavailable(addon: &Addon, have: &Actual) -> bool {
    let ApiView::Up(api) = &have.api else {
        return true;
    };
    addon
        .workloads
        .iter()
        .any(|workload| !available(workload, api))
}

/// By the object's own status; an object without any is not judged.
fn available(workload: &ObjectRef, api: &ApiFacts) -> bool {
    let Some(object) = api.objects.get(workload) else {
        return false;
    };
    let Some(status) = object.get("status") else {
        return true;
    };
    let count = |value: &Value| value.as_i64().unwrap_or(0);
    match workload.kind.as_str() {
        "DaemonSet" => {
            let wanted = &status["desiredNumberScheduled"];
            wanted.is_i64() && count(&status["numberAvailable"]) >= count(wanted)
        }
        "Deployment" => {
            let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
            count(&status["availableReplicas"]) >= wanted
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn paths(wanted: &Value, live: &Value) -> Vec<String> {
        let mut found = Vec::new();
        differences(wanted, Some(live), String::new(), &mut found);
        found.into_iter().map(|(path, _, _)| path).collect()
    }

    #[test]
    fn what_the_server_adds_is_no_difference() {
        let wanted = json!({"spec": {"containers": [{"name": "a", "env": []}], "hostIPC": false}});
        let live = json!({
            "metadata": {"uid": "1"},
            "spec": {"containers": [{"name": "a", "terminationMessagePath": "/dev/x"}]},
        });
        assert_eq!(paths(&wanted, &live), Vec::<String>::new());
    }

    #[test]
    fn a_changed_missing_or_extra_element_is() {
        let wanted = json!({"a": {"b": [1, 2]}, "c": "x", "d": 1});
        let live = json!({"a": {"b": [1, 2, 3]}, "c": "y"});
        assert_eq!(paths(&wanted, &live), ["a.b", "c", "d"]);
    }
}
