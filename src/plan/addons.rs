//! The add-ons' objects: applied when they differ, awaited with a bound, pruned when no longer
//! wanted. Pure.

use serde_json::Value;

use super::{Action, FieldChange, Stage, Step, Target};
use crate::{
    actual::{Actual, ApiFacts, ApiView},
    desired::{Addon, Desired, ObjectRef, label},
    workload,
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
        let fields = workload::contains(live, wanted);
        if fields.is_empty() {
            continue;
        }
        objects.push(object.clone());
        changes.extend(fields.into_iter().take(SHOWN).map(|change| FieldChange {
            field: format!("{object} {}", change.field),
            ..change
        }));
    }
    (objects, changes)
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
