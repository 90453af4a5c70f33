//! The charts: rendered and applied when what they are rendered from differs or their objects do, awaited
//! with a bound, pruned when no longer wanted. Pure.

use super::{addons, part::Part};
use crate::{
    facts::{ApiView, ChartFact},
    model::ChartRecord,
    plan::{
        Cause, ClusterAction, Guard, Stage, Step,
        diff::{ChartDiff, Diff, NETWORK},
    },
};

/// One step a chart. The network comes in the first part; the others in the second, when nodes are Ready:
/// hooks of theirs are pods, whose end is awaited.
pub(super) fn apply(diff: &Diff<'_>) -> [Part; 2] {
    let is_network = |chart: &&ChartDiff<'_>| NETWORK.contains(&chart.want.chart.name.as_str());
    let (network, others): (Vec<_>, Vec<_>) = diff.charts.iter().partition(is_network);
    let part = |charts: Vec<&ChartDiff<'_>>| {
        let steps = charts.into_iter().map(|chart| applied(chart, diff));
        Stage::of("charts", 1, steps).into()
    };
    [part(network), part(others)]
}

fn applied(chart: &ChartDiff<'_>, diff: &Diff<'_>) -> Step {
    let ChartDiff {
        want,
        node,
        cause,
        why,
        changes,
    } = chart;
    let action = ClusterAction::ApplyChart {
        chart: want.chart.name.clone(),
        node: (*node).clone(),
        file: want.chart.chart.clone(),
        runtime: want.runtime.clone(),
        digest: want.digest.clone(),
    };
    Step::cluster(*cause, *why, action)
        .changing(changes.clone())
        .guarded(&diff.want.cluster_id)
}

/// Waits for what was applied and for what is observably not available. Slow is a warning.
pub(super) fn wait(diff: &Diff<'_>) -> Part {
    let steps = diff.want.charts.iter().filter_map(|want| {
        let name = &want.chart.name;
        let is_applied = diff.charts.iter().any(|chart| chart.want == want);
        let (cause, why) = if is_applied {
            (Cause::New, "it was just applied")
        } else if fact(name, diff).is_some_and(|fact| unavailable(fact, diff)) {
            (Cause::Drift, "it is not available")
        } else {
            return None;
        };
        let action = ClusterAction::AwaitChart {
            chart: name.clone(),
        };
        Some(Step::cluster(cause, why, action))
    });
    Stage::of("available", 1, steps).into()
}

fn fact<'a>(name: &str, diff: &Diff<'a>) -> Option<&'a ChartFact> {
    match diff.have.api() {
        ApiView::Up(api) => api.charts.get(name),
        ApiView::Unknown | ApiView::Unreachable(_) => None,
    }
}

fn unavailable(fact: &ChartFact, diff: &Diff<'_>) -> bool {
    let silent = diff.have.silent_nodes().len();
    let mut workloads = fact.workloads.iter();
    workloads.any(|(workload, object)| !addons::is_available(workload, object, silent))
}

/// rke-operator's charts that are no longer wanted. They go before those that replace them, because two ingress
/// controllers need the same ports of the nodes. Empty unless the API answered (invariant 1).
pub(super) fn prune(diff: &Diff<'_>) -> Part {
    let want = diff.want;
    let ApiView::Up(api) = diff.have.api() else {
        return Part::default();
    };
    let wanted = |name: &String| want.charts.iter().any(|want| want.chart.name == *name);
    let unwanted = api.charts.iter();
    let unwanted = unwanted.filter(|(name, _)| want.known_charts.contains(*name) && !wanted(name));
    let steps = unwanted.map(|(name, fact)| {
        let uid = fact.uid.clone();
        let object = ChartRecord::object(name);
        let action = ClusterAction::PruneChart {
            chart: name.clone(),
            uid: uid.clone(),
        };
        let why = "an add-on that the config no longer wants";
        let step = Step::cluster(Cause::Leave, why, action);
        step.only_if(Guard::ObjectIs { object, uid })
    });
    Stage::of("charts", 1, steps).into()
}
