//! The add-ons' objects, as the API server itself compares them. Pure.

use serde_json::Value;

use crate::{
    desired::{Addon, Desired},
    facts::{self, Actual, ApiView, ClusterFacts, DryRun},
    model::{ObjectRef, label},
    plan::FieldChange,
};

/// Add-ons without which no node becomes Ready.
pub(in crate::plan) const NETWORK: [&str; 3] = ["flannel", "canal", "calico"];

/// The add-on or chart of rke-operator that provides the network.
pub(in crate::plan) fn network(want: &Desired) -> Option<&str> {
    let addons = want.addons.iter().map(|addon| addon.name.as_str());
    let charts = want.charts.iter().map(|want| want.chart.name.as_str());
    addons.chain(charts).find(|name| NETWORK.contains(name))
}

/// How many differing fields of one object are listed.
const SHOWN: usize = 8;

/// The objects of an add-on that are to be applied, and how each differs.
pub(in crate::plan) struct AddonDiff<'a> {
    pub(in crate::plan) addon: &'a Addon,
    /// All of them while the API does not answer.
    pub(in crate::plan) objects: Vec<ObjectRef>,
    pub(in crate::plan) changes: Vec<FieldChange>,
    /// None of them is there.
    pub(in crate::plan) all_new: bool,
    /// What we applied last is what is wanted now: others have changed it since.
    pub(in crate::plan) drifted: bool,
}

/// How an apply would change an add-on.
pub(super) fn difference<'a>(addon: &'a Addon, have: &Actual) -> AddonDiff<'a> {
    let ApiView::Up(api) = have.api() else {
        return AddonDiff {
            addon,
            objects: addon.objects.keys().cloned().collect(),
            changes: Vec::new(),
            all_new: false,
            drifted: false,
        };
    };
    let mut found = AddonDiff {
        addon,
        objects: Vec::new(),
        changes: Vec::new(),
        all_new: true,
        drifted: true,
    };
    for (object, wanted) in &addon.objects {
        let changes = match api.objects.get(object) {
            None => vec![whole(object, None, "applied")],
            Some(live) => {
                let mut changes = changes(object, live, wanted, api);
                if addon.name == label::USER_ADDONS {
                    changes = changes.into_iter().map(without_values).collect();
                }
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
            let changes = facts::object_changes(live, would).into_iter();
            return changes
                .take(SHOWN)
                .map(|change| FieldChange {
                    field: format!("{object} {}", change.field).into(),
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
pub(in crate::plan) fn same_applied(live: &Value, wanted: &Value) -> bool {
    let applied = |value: &Value| value["metadata"]["annotations"][label::APPLIED].clone();
    applied(live) == applied(wanted) && !applied(wanted).is_null()
}

/// There may be passwords anywhere in the user's own manifests.
fn without_values(change: FieldChange) -> FieldChange {
    let hidden = |value: String| match value.as_str() {
        "there" => value,
        text if text.starts_with("known after apply") => value,
        _ => "(not shown)".to_owned(),
    };
    FieldChange {
        from: change.from.map(hidden),
        to: change.to.map(hidden),
        ..change
    }
}

fn whole(object: &ObjectRef, from: Option<&str>, to: &str) -> FieldChange {
    FieldChange {
        field: object.to_string().into(),
        from: from.map(str::to_owned),
        to: Some(to.to_owned()),
    }
}
