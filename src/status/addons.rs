//! The add-ons: whether they are there, and whether their workloads are available. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use super::Seen;
use crate::{
    desired::Desired,
    facts::{ApiView, ClusterFacts, Rollout, rollout},
    model::ObjectRef,
};

/// An add-on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonStatus {
    /// Its name.
    pub name: String,
    /// Whether it is available.
    pub state: AddonState,
    /// The workload that is not available; null if all are.
    pub waits_for: Option<String>,
}

/// Whether an add-on is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AddonState {
    /// Applied, and every workload of it is available.
    Available,
    /// Applied, and a workload of it is not available.
    Waiting,
    /// Parts of it are missing.
    Incomplete,
    /// It is not applied.
    Missing,
}

/// What there is of those that are wanted; `None` where it is not known what is wanted, or what is there.
pub(super) fn addons(seen: &Seen<'_>) -> Option<Vec<AddonStatus>> {
    let desired = seen.desired?;
    let ApiView::Up(api) = seen.actual.api() else {
        return None;
    };
    let mut all = manifests(desired, api);
    all.extend(charts(desired, api));
    Some(all)
}

fn manifests(desired: &Desired, api: &ClusterFacts) -> Vec<AddonStatus> {
    let addons = desired.addons.iter().map(|addon| {
        let is_there = |object: &ObjectRef| api.objects.contains_key(object);
        let there = addon
            .objects
            .keys()
            .filter(|object| is_there(object))
            .count();
        let waits_for = addon
            .workloads
            .iter()
            .find(|workload| !serves(api, workload));
        let state = match (there, waits_for) {
            (0, _) if !addon.objects.is_empty() => AddonState::Missing,
            (some, _) if some < addon.objects.len() => AddonState::Incomplete,
            (_, Some(_)) => AddonState::Waiting,
            (_, None) => AddonState::Available,
        };
        AddonStatus {
            name: addon.name.clone(),
            state,
            waits_for: waits_for.map(ToString::to_string),
        }
    });
    addons.collect()
}

fn charts(desired: &Desired, api: &ClusterFacts) -> Vec<AddonStatus> {
    let charts = desired.charts.iter().map(|want| {
        let name = &want.chart.name;
        let fact = api
            .charts
            .get(name)
            .filter(|fact| fact.record.digest.is_some());
        let mut workloads = fact.into_iter().flat_map(|fact| &fact.workloads);
        let waits_for = workloads
            .find(|(workload, object)| rollout(&workload.kind, object) != Rollout::Available);
        let state = match (fact, waits_for) {
            (None, _) => AddonState::Missing,
            (Some(fact), _) if !fact.gone.is_empty() => AddonState::Incomplete,
            (Some(_), Some(_)) => AddonState::Waiting,
            (Some(_), None) => AddonState::Available,
        };
        AddonStatus {
            name: name.clone(),
            state,
            waits_for: waits_for.map(|(workload, _)| workload.to_string()),
        }
    });
    charts.collect()
}

/// A DaemonSet or Deployment whose status says that all of it serves.
fn serves(api: &ClusterFacts, workload: &ObjectRef) -> bool {
    let object = api.objects.get(workload);
    object.is_some_and(|object| rollout(&workload.kind, object) == Rollout::Available)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_workload_serves_when_all_of_it_is_available() {
        let of = |kind: &str| ObjectRef {
            api_version: "apps/v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "kube-system".to_owned(),
            name: "coredns".to_owned(),
        };
        let cases = [
            (
                "DaemonSet",
                json!({"status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}}),
                true,
            ),
            (
                "DaemonSet",
                json!({"status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}}),
                false,
            ),
            (
                "DaemonSet",
                json!({"status": {"desiredNumberScheduled": 2}}),
                false,
            ),
            ("DaemonSet", json!({}), false),
            (
                "Deployment",
                json!({"spec": {"replicas": 2}, "status": {"updatedReplicas": 2, "availableReplicas": 2}}),
                true,
            ),
            (
                "Deployment",
                json!({"spec": {"replicas": 2}, "status": {"updatedReplicas": 2, "availableReplicas": 1}}),
                false,
            ),
            (
                "Deployment",
                json!({"spec": {}, "status": {"updatedReplicas": 2, "availableReplicas": 1}}),
                true,
            ),
            ("Deployment", json!({"spec": {}}), false),
        ];
        for (kind, object, want) in cases {
            let workload = of(kind);
            let mut api = ClusterFacts::default();
            assert!(!serves(&api, &workload), "it is not there");
            api.objects.insert(workload.clone(), object.clone());
            assert_eq!(serves(&api, &workload), want, "{kind}: {object}");
        }
    }
}
