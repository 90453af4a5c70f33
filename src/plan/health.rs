//! The components that must become healthy: those that this plan touches, and those of a
//! cluster that does not answer. Pure.

use super::{
    Cause, HostAction, Stage, Step, containerd, containers, containers::Need, hosts, roll,
};
use crate::{
    actual::{Actual, ApiView, ContainerState, HostFacts},
    desired::{Desired, DesiredHost},
    model::{Component, NodeName},
};

/// What the manifests wait for.
const API: [Component; 2] = [Component::Etcd, Component::ApiServer];

/// What the node waits for, while the manifests are applied.
const OTHERS: [Component; 4] = [
    Component::ControllerManager,
    Component::Scheduler,
    Component::Kubelet,
    Component::KubeProxy,
];

/// Waits for etcd and the API server: nothing of the cluster can be written before.
pub(super) fn api(want: &Desired, have: &Actual) -> Stage {
    waits("health", want, have, &API)
}

/// The steps that wait for the other components of one host.
pub(super) fn others(want: &Desired, have: &Actual) -> Vec<Step> {
    let stage = waits("health", want, have, &OTHERS);
    stage
        .queues
        .into_iter()
        .flat_map(|queue| queue.steps)
        .collect()
}

fn waits(stage: &'static str, want: &Desired, have: &Actual, components: &[Component]) -> Stage {
    let answers = answers(have);
    hosts::preparing(stage, want, have, |name, host, facts| {
        components
            .iter()
            .copied()
            .filter_map(|component| {
                let (cause, why) = if replaced(component, name, host, facts, want, have).is_some() {
                    before_its_turn(component, name, want, have)?
                } else {
                    why(component, host, facts, answers)
                        .or_else(|| with_others(component, name, host, facts, want, have))
                        .or_else(|| without_quorum(component, host, want, have))?
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
    want: &Desired,
    have: &Actual,
) -> Option<(Cause, &'static str)> {
    let host = want.hosts.get(name)?;
    let guarded = !roll::guards(Component::ApiServer, name, want, have).is_empty();
    let lost = without_quorum(component, host, want, have)?;
    guarded.then_some(lost)
}

/// Of two members, each takes all of etcd along.
fn without_quorum(
    component: Component,
    host: &DesiredHost,
    want: &Desired,
    have: &Actual,
) -> Option<(Cause, &'static str)> {
    host.containers.get(component.container())?;
    let members = want.hosts.iter();
    let members = members.filter(|(_, host)| host.containers.contains_key("etcd"));
    if component != Component::ApiServer || members.count() > 2 {
        return None;
    }
    let cause = hosts::each(want, have)
        .find_map(|(name, host, facts)| etcd_restarts(name, host, facts, want, have));
    cause.map(|cause| (cause, "its etcd was just restarted"))
}

/// Why etcd of this host goes away for a moment in this plan, if it does.
fn etcd_restarts(
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
    want: &Desired,
    have: &Actual,
) -> Option<Cause> {
    match containers::need("etcd", host.containers.get("etcd")?, facts) {
        Need::Replace(..) => replaced(Component::Etcd, name, host, facts, want, have),
        need @ (Need::Run | Need::Start(_) | Need::Nothing) => need.cause(),
    }
}

/// Why it is replaced in a roll, which waits for it. One that is held back stays, and is waited
/// for as any other.
fn replaced(
    component: Component,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
    want: &Desired,
    have: &Actual,
) -> Option<Cause> {
    let container = component.container();
    match containers::need(container, host.containers.get(container)?, facts) {
        Need::Replace(cause, ..) => {
            let held_back = roll::held_back(component, cause, name, want, have);
            held_back.is_none().then_some(cause)
        }
        Need::Run | Need::Start(_) | Need::Nothing => None,
    }
}

fn why(
    component: Component,
    host: &DesiredHost,
    facts: &HostFacts,
    answers: bool,
) -> Option<(Cause, &'static str)> {
    let container = component.container();
    let spec = host.containers.get(container)?;
    match containers::need(container, spec, facts) {
        Need::Run => return Some((Cause::New, "it was just started")),
        Need::Start(_) => return Some((Cause::Drift, "it was just started")),
        // A roll waits by itself.
        Need::Nothing | Need::Replace(..) => {}
    }
    let state = facts.containers.get(container)?.state;
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

/// What goes away for a moment because something below it does.
fn with_others(
    component: Component,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
    want: &Desired,
    have: &Actual,
) -> Option<(Cause, &'static str)> {
    host.containers.get(component.container())?;
    let bound = facts.system.containerd.docker_bound;
    if bound && let Ok(Some(difference)) = containerd::difference(name, host, facts) {
        return Some((difference.cause, "Docker is restarted with containerd"));
    }
    let cause = etcd_restarts(name, host, facts, want, have)?;
    (component == Component::ApiServer).then_some((cause, "its etcd was just restarted"))
}

/// True when the API answered the survey.
pub(super) fn answers(have: &Actual) -> bool {
    matches!(have.api(), ApiView::Up(_))
}
