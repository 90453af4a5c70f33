//! The components that must become healthy: those that this plan touches, and those of a
//! cluster that does not answer. Pure.

use super::{hosts, join, part::Part, roles, skew};
use crate::{
    facts::{Actual, ApiHealth, ApiView, ContainerState},
    model::{Component, NodeName},
    plan::{
        Cause, HostAction, Stage, Step,
        diff::{Diff, HostDiff, Need},
        hold::{self, Fleet},
    },
};

/// What the manifests wait for.
const API: [Component; 2] = [Component::Etcd, Component::ApiServer];

/// What the node waits for, while the manifests are applied.
const OTHERS: [Component; 5] = [
    Component::NginxProxy,
    Component::ControllerManager,
    Component::Scheduler,
    Component::Kubelet,
    Component::KubeProxy,
];

/// Waits for etcd and the API server: nothing of the cluster can be written before.
pub(super) fn api(diff: &Diff<'_>) -> Part {
    waits("health", diff, &API).into()
}

/// The steps that wait for the other components of one host.
pub(super) fn others(diff: &Diff<'_>) -> Vec<Step> {
    let stage = waits("health", diff, &OTHERS);
    stage
        .queues
        .into_iter()
        .flat_map(|queue| queue.steps)
        .collect()
}

fn waits(stage: &'static str, diff: &Diff<'_>, components: &[Component]) -> Stage {
    let answers = answers(diff.have);
    hosts::preparing(stage, diff, |name, host| {
        components
            .iter()
            .copied()
            .filter(|component| host.has(*component))
            .filter(|component| !(API.contains(component) && join::joins(name, host, diff)))
            .filter(|component| API.contains(component) || !skew::keeps_out(host, diff))
            .filter(|component| !roles::proxy_waits(*component, host))
            .filter_map(|component| {
                let (cause, why) = if host.replaces(component).is_some() {
                    before_its_turn(component, name, diff)?
                } else {
                    why(component, host, answers)
                        .or_else(|| silent_server(component, name, diff))
                        .or_else(|| with_others(component, name, host, diff))
                        .or_else(|| without_quorum(component, diff))?
                };
                let action = HostAction::AwaitHealthy { component };
                Some(Step::on(name, cause, why, action))
            })
            .collect()
    })
}

/// API servers are rolled only while another one serves: where etcd went away for a moment, each
/// must be back before the first one's turn.
fn before_its_turn(
    component: Component,
    name: &NodeName,
    diff: &Diff<'_>,
) -> Option<(Cause, &'static str)> {
    let lost = without_quorum(component, diff)?;
    let fleet = Fleet::of(diff);
    let guards = hold::guards(Component::ApiServer, Cause::Drift, &[], name, diff, &fleet);
    let guarded = !guards.is_empty();
    guarded.then_some(lost)
}

/// Of two members, each takes all of etcd along.
fn without_quorum(component: Component, diff: &Diff<'_>) -> Option<(Cause, &'static str)> {
    let members = diff.want.with(Component::Etcd);
    if component != Component::ApiServer || members.count() > 2 {
        return None;
    }
    let mut hosts = diff.hosts.iter();
    let cause = hosts.find_map(|(name, host)| etcd_restarts(name, host, diff));
    cause.map(|cause| (cause, "its etcd was just restarted"))
}

/// Why etcd of this host goes away for a moment in this plan, if it does.
fn etcd_restarts(name: &NodeName, host: &HostDiff<'_>, diff: &Diff<'_>) -> Option<Cause> {
    if join::joins(name, host, diff) {
        return None;
    }
    match host.need(Component::Etcd) {
        Need::Replace(..) => host.replaces(Component::Etcd),
        need @ (Need::Run | Need::Start(_) | Need::Nothing) => need.cause(),
    }
}

fn why(component: Component, host: &HostDiff<'_>, answers: bool) -> Option<(Cause, &'static str)> {
    match host.need(component) {
        Need::Run => return Some((Cause::New, "it was just started")),
        Need::Start(_) => return Some((Cause::Drift, "it was just started")),
        // A roll has its own wait.
        Need::Nothing | Need::Replace(..) => {}
    }
    let state = host.facts.container(component)?.state;
    match state {
        ContainerState::Restarting(_) => Some((Cause::Drift, "Docker keeps restarting it")),
        ContainerState::Running
        | ContainerState::Created
        | ContainerState::Exited(_)
        | ContainerState::Other => {
            (!answers).then_some((Cause::Drift, "the API does not answer yet"))
        }
    }
}

/// One API server of several that runs and does not answer: others may wait for it to be rolled, and
/// a run that was killed may have just started it.
fn silent_server(
    component: Component,
    name: &NodeName,
    diff: &Diff<'_>,
) -> Option<(Cause, &'static str)> {
    let serves = diff.have.apis.get(name) == Some(&ApiHealth::Serving);
    (component == Component::ApiServer && !serves)
        .then_some((Cause::Drift, "it does not answer yet"))
}

/// What goes away for a moment because something below it does.
fn with_others(
    component: Component,
    name: &NodeName,
    host: &HostDiff<'_>,
    diff: &Diff<'_>,
) -> Option<(Cause, &'static str)> {
    let cause = etcd_restarts(name, host, diff)?;
    (component == Component::ApiServer).then_some((cause, "its etcd was just restarted"))
}

/// True when the API answered the survey.
pub(super) fn answers(have: &Actual) -> bool {
    matches!(have.api(), ApiView::Up(_))
}
