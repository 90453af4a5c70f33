//! The add-ons' objects: applied when they differ, awaited with a bound, pruned when no longer
//! wanted. Pure.

use serde_json::Value;

use super::{Cause, ClusterAction, FieldChange, Stage, Step};
use crate::{
    actual::{self, Actual, ApiView, ClusterFacts, DryRun, Rollout},
    desired::{Addon, Desired},
    model::{ObjectRef, label},
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
        let Differing {
            objects,
            changes,
            all_new,
            drifted,
        } = differing(addon, have);
        if objects.is_empty() {
            return None;
        }
        let (cause, why) = match have.api() {
            ApiView::Up(_) if all_new => (Cause::New, "the cluster does not have these objects"),
            ApiView::Up(_) if drifted => (Cause::Drift, "objects were changed by others"),
            ApiView::Up(_) => (Cause::Change, "objects differ"),
            ApiView::Unknown | ApiView::Unreachable(_) => (
                Cause::New,
                "what the cluster has is known after its API answers",
            ),
        };
        let action = ClusterAction::ApplyAddon {
            addon: addon.name.clone(),
            objects,
        };
        Some(Step::cluster(cause, why, action).changing(changes))
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
        let applied = !differing(addon, have).objects.is_empty();
        let (cause, why) = if applied {
            (Cause::New, "it was just applied")
        } else if unavailable(addon, have) {
            (Cause::Drift, "it is not available")
        } else {
            return None;
        };
        let action = ClusterAction::AwaitAddon {
            addon: addon.name.clone(),
        };
        Some(Step::cluster(cause, why, action))
    });
    Stage::of("available", 1, steps)
}

/// Objects of ours that nothing wants. Empty unless the API answered (invariant 1).
pub(super) fn prune(want: &Desired, have: &Actual) -> Option<Step> {
    let ApiView::Up(api) = have.api() else {
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
    let action = ClusterAction::PruneObjects { objects };
    Some(Step::cluster(Cause::Leave, why, action))
}

/// The objects to be applied, and how each differs.
struct Differing {
    objects: Vec<ObjectRef>,
    changes: Vec<FieldChange>,
    /// None of them is there.
    all_new: bool,
    /// What we applied last is what is wanted now: others have changed it since.
    drifted: bool,
}

fn differing(addon: &Addon, have: &Actual) -> Differing {
    let ApiView::Up(api) = have.api() else {
        return Differing {
            objects: addon.objects.keys().cloned().collect(),
            changes: Vec::new(),
            all_new: false,
            drifted: false,
        };
    };
    let mut found = Differing {
        objects: Vec::new(),
        changes: Vec::new(),
        all_new: true,
        drifted: true,
    };
    for (object, wanted) in &addon.objects {
        let changes = match api.objects.get(object) {
            None => vec![whole(object, None, "applied")],
            Some(live) => {
                let changes = changes(object, live, wanted, api);
                found.all_new &= changes.is_empty();
                changes
            }
        };
        if !changes.is_empty() {
            let live = api.objects.get(object);
            found.drifted &= live.is_none_or(|live| same_applied(live, wanted));
            found.objects.push(object.clone());
            found.changes.extend(changes);
        }
    }
    found
}

/// How an apply would change an object that is there.
fn changes(
    object: &ObjectRef,
    live: &Value,
    wanted: &Value,
    api: &ClusterFacts,
) -> Vec<FieldChange> {
    let why = match api.dry_runs.get(object) {
        Some(DryRun::Would(would)) => {
            let changes = actual::object_changes(live, would).into_iter();
            return changes
                .take(SHOWN)
                .map(|change| FieldChange {
                    field: format!("{object} {}", change.field),
                    ..change
                })
                .collect();
        }
        Some(DryRun::KnownAfterApply(why)) => why.as_str(),
        None => "the server was not asked",
    };
    // What was applied last tells whether the config has changed since. Drift of such an object
    // cannot be seen.
    if same_applied(live, wanted) {
        return Vec::new();
    }
    vec![whole(
        object,
        Some("there"),
        &format!("known after apply: {why}"),
    )]
}

/// True when the object says that what was applied last is what is wanted now.
fn same_applied(live: &Value, wanted: &Value) -> bool {
    let applied = |value: &Value| value["metadata"]["annotations"][label::APPLIED].clone();
    applied(live) == applied(wanted) && !applied(wanted).is_null()
}

fn whole(object: &ObjectRef, from: Option<&str>, to: &str) -> FieldChange {
    FieldChange {
        field: object.to_string(),
        from: from.map(str::to_owned),
        to: Some(to.to_owned()),
    }
}

fn unavailable(addon: &Addon, have: &Actual) -> bool {
    let ApiView::Up(api) = have.api() else {
        return true;
    };
    addon
        .workloads
        .iter()
        .any(|workload| !available(workload, api))
}

fn available(workload: &ObjectRef, api: &ClusterFacts) -> bool {
    let object = api.objects.get(workload);
    object.is_some_and(|object| actual::rollout(&workload.kind, object) == Rollout::Available)
}
