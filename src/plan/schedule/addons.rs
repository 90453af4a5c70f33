//! The add-ons' objects: applied when they differ, awaited with a bound, pruned when no longer
//! wanted. Pure.

use serde_json::Value;

use super::part::Part;
use crate::{
    desired::{Addon, Desired},
    facts::{self, Actual, ApiView, ClusterFacts, DryRun, Replica, Rollout},
    model::{ObjectRef, is_spread, label, outlives_its_manifest},
    plan::{
        Cause, ClusterAction, Guard, Note, OnFailure, Stage, Step,
        diff::{AddonDiff, Diff, network, same_applied},
    },
};

/// True when one of rke-operator's add-ons or charts provides the network.
pub(super) fn has_network(want: &Desired) -> bool {
    network(want).is_some()
}

/// One step an add-on, in order: network first. What is spread over nodes comes in the second part, after the
/// nodes are awaited, unless two of them take pods already: all of its pods would go to the first. The user's own
/// come in the third: they may need what charts define.
pub(super) fn apply(diff: &Diff<'_>) -> [Part; 3] {
    let early = two_nodes_take_pods(diff.have);
    let (own, ours): (Vec<_>, Vec<_>) =
        (diff.addons.iter()).partition(|differs| differs.addon.name == label::USER_ADDONS);
    let (first, then): (Vec<_>, Vec<_>) = ours.into_iter().partition(|differs| {
        let mut objects = differs.addon.objects.values();
        early || !objects.any(is_spread)
    });
    let part = |addons: Vec<&AddonDiff<'_>>| {
        let steps = addons.into_iter();
        let steps = steps.filter_map(|differs| applied(differs, diff.have));
        Part::from(Stage::of("addons", 1, steps))
    };
    [part(first).with_notes(unseen(diff)), part(then), part(own)]
}

/// The objects of which it is unknown whether others have changed them: their own records say that they are as they
/// were applied, and the server does not answer what an apply would change.
fn unseen(diff: &Diff<'_>) -> Vec<Note> {
    let ApiView::Up(api) = diff.have.api() else {
        return Vec::new();
    };
    let objects = diff.want.addons.iter().flat_map(|addon| &addon.objects);
    let unseen = objects.filter_map(|(object, wanted)| {
        let DryRun::KnownAfterApply(why) = api.dry_runs.get(object)? else {
            return None;
        };
        let text = format!(
            "whether {object} was changed by others is not known: the API server does not say what an \
             apply would change: {why}"
        );
        same_applied(api.objects.get(object)?, wanted).then(|| Note::of(None, text))
    });
    unseen.collect()
}

fn two_nodes_take_pods(have: &Actual) -> bool {
    match have.api() {
        ApiView::Up(api) => api
            .nodes
            .values()
            .filter(|node| node.takes_pods())
            .nth(1)
            .is_some(),
        ApiView::Unknown | ApiView::Unreachable(_) => false,
    }
}

fn applied(differs: &AddonDiff<'_>, have: &Actual) -> Option<Step> {
    let AddonDiff {
        addon,
        objects,
        changes,
        all_new,
        drifted,
    } = differs;
    if objects.is_empty() {
        return None;
    }
    let (cause, why) = match have.api() {
        ApiView::Up(_) if *all_new => (Cause::New, "the cluster does not have these objects"),
        ApiView::Up(_) if *drifted => (Cause::Drift, "objects were changed by others"),
        ApiView::Up(_) => (Cause::Change, "objects differ"),
        ApiView::Unknown | ApiView::Unreachable(_) => (
            Cause::New,
            "objects are compared once the cluster's API answers",
        ),
    };
    let action = ClusterAction::ApplyAddon {
        addon: addon.name.clone(),
        objects: objects.clone(),
    };
    Some(Step::cluster(cause, why, action).changing(changes.clone()))
}

/// Deployments that serve and have all of their pods on one node, while another node takes them: one
/// is evicted and comes back there. So it is where one was drained after the other.
pub(super) fn spread(diff: &Diff<'_>) -> Part {
    let ApiView::Up(api) = diff.have.api() else {
        return Part::default();
    };
    let workloads = diff.want.addons.iter().flat_map(|addon| &addon.workloads);
    let steps = workloads.filter_map(|workload| {
        let pod = crowded(workload, diff, api)?;
        let action = ClusterAction::Evict {
            workload: workload.clone(),
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
        };
        let why = format!("{workload} has all of its pods on one node, and another one takes them");
        Some(Step::cluster(Cause::Drift, why, action))
    });
    Stage::of("spread", 1, steps).into()
}

/// The pod of such a Deployment that goes.
fn crowded<'a>(
    workload: &ObjectRef,
    diff: &Diff<'_>,
    api: &'a ClusterFacts,
) -> Option<&'a Replica> {
    let pods = api.replicas.get(workload)?;
    let [one, _, ..] = pods.as_slice() else {
        return None;
    };
    let at = one.node.as_ref()?;
    let together = pods.iter().all(|pod| pod.node.as_ref() == Some(at));
    let mut others = api.nodes.iter().filter(|(name, _)| *name != at);
    let elsewhere =
        others.any(|(name, node)| diff.want.hosts.contains_key(name) && node.takes_pods());
    (together && elsewhere && available(workload, 0, api)).then_some(one)
}

/// Pods that read the authority of the cluster at their start: one add-on is awaited before the next.
pub(super) fn restart(diff: &Diff<'_>) -> Part {
    let want = diff.want;
    let (Some(authority), ApiView::Up(api)) = (&want.handover.restarts, diff.have.api()) else {
        return Part::default();
    };
    let left = api.not_restarted_for(authority).into_iter();
    let steps = left.flat_map(|(addon, workloads)| {
        let why = "its pods read the authority of the cluster when they start";
        let action = ClusterAction::RestartPods {
            addon: addon.to_owned(),
            workloads: workloads.keys().cloned().collect(),
            authority: authority.clone(),
        };
        let restarted = Step::cluster(Cause::Change, why, action);
        let guards = workloads.into_iter();
        let guards = guards.map(|(object, uid)| Guard::ObjectIs { object, uid });
        let restarted = guards.fold(restarted, Step::only_if);
        let awaited = awaited(addon, want);
        let awaited = awaited.map(|wait| Step::cluster(Cause::Change, "its pods restart", wait));
        std::iter::once(restarted).chain(awaited)
    });
    let stage = Stage::of("authorities", 1, steps);
    stage.on_failure(OnFailure::EndRun).into()
}

/// The wait for an add-on or a chart that is wanted.
fn awaited(addon: &str, want: &Desired) -> Option<ClusterAction> {
    let is_addon = want.addons.iter().any(|it| it.name == addon);
    let is_chart = want.charts.iter().any(|it| it.chart.name == addon);
    let name = addon.to_owned();
    if is_addon {
        Some(ClusterAction::AwaitAddon { addon: name })
    } else {
        is_chart.then_some(ClusterAction::AwaitChart { chart: name })
    }
}

/// Waits for what was applied and for what is observably not available. Slow is a warning.
pub(super) fn wait(diff: &Diff<'_>) -> Part {
    let addons = diff.addons.iter();
    let awaited = addons.filter(|differs| !differs.addon.workloads.is_empty());
    let steps = awaited.filter_map(|differs| {
        let addon = differs.addon;
        let (cause, why) = if !differs.objects.is_empty() {
            (Cause::New, "it was just applied")
        } else if unavailable(addon, diff.have) {
            (Cause::Drift, "it is not available")
        } else if moves(addon, diff) {
            (Cause::Drift, "one of its pods moves")
        } else {
            return None;
        };
        let action = ClusterAction::AwaitAddon {
            addon: addon.name.clone(),
        };
        Some(Step::cluster(cause, why, action))
    });
    let stage = Stage::of("available", 1, steps);
    stage.side_by_side(|_| false).into()
}

/// rke-operator's objects that are no longer wanted. Empty unless the API answered (invariant 1).
pub(super) fn prune(diff: &Diff<'_>) -> Option<Step> {
    let want = diff.want;
    let ApiView::Up(api) = diff.have.api() else {
        return None;
    };
    let wanted = |object: &ObjectRef| {
        want.addons
            .iter()
            .any(|addon| addon.objects.contains_key(object))
    };
    let unwanted = api.objects.iter().filter(|(object, value)| {
        let addon = value["metadata"]["labels"][label::ADDON].as_str();
        let known = addon.is_some_and(|addon| want.known_addons.contains(addon));
        let stays = addon == Some(label::USER_ADDONS) && outlives_its_manifest(object, value);
        known && !stays && !wanted(object)
    });
    let guards: Vec<Guard> = unwanted
        .filter_map(|(object, value)| {
            Some(Guard::ObjectIs {
                object: object.clone(),
                uid: value["metadata"]["uid"].as_str()?.to_owned(),
            })
        })
        .collect();
    if guards.is_empty() {
        return None;
    }
    let why = "objects of add-ons that the config no longer wants";
    let objects = guards.iter().filter_map(Guard::object).cloned().collect();
    let action = ClusterAction::PruneObjects { objects };
    let step = Step::cluster(Cause::Leave, why, action);
    Some(guards.into_iter().fold(step, Step::only_if))
}

fn moves(addon: &Addon, diff: &Diff<'_>) -> bool {
    let ApiView::Up(api) = diff.have.api() else {
        return false;
    };
    let mut workloads = addon.workloads.iter();
    workloads.any(|workload| crowded(workload, diff, api).is_some())
}

fn unavailable(addon: &Addon, have: &Actual) -> bool {
    let ApiView::Up(api) = have.api() else {
        return true;
    };
    let silent = have.silent_nodes().len();
    let mut workloads = addon.workloads.iter();
    workloads.any(|workload| !available(workload, silent, api))
}

fn available(workload: &ObjectRef, silent: usize, api: &ClusterFacts) -> bool {
    let object = api.objects.get(workload);
    object.is_some_and(|object| is_available(workload, object, silent))
}

/// A node that is silent lacks its pod of a `DaemonSet` whatever we wait for.
pub(super) fn is_available(workload: &ObjectRef, object: &Value, silent: usize) -> bool {
    let silent = i64::try_from(silent).unwrap_or(i64::MAX);
    match facts::rollout(&workload.kind, object) {
        Rollout::Available => true,
        Rollout::Short { available, wanted } => {
            workload.kind == "DaemonSet" && wanted - available <= silent
        }
        Rollout::Unseen(_) => false,
    }
}
