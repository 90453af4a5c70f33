//! The components that must become healthy: those that this plan touches, and those of a
//! cluster that does not answer. Pure.

use super::{
    Action, Component, Stage, Step, containerd,
    containers::{self, Need},
    hosts,
};
use crate::{
    actual::{Actual, ApiView, ContainerState, HostFacts},
    config::NodeName,
    desired::{Desired, DesiredHost},
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
    waits("health", want, have, &OTHERS).steps
}

fn waits(stage: &'static str, want: &Desired, have: &Actual, components: &[Component]) -> Stage {
    let answers = answers(have);
    hosts::stage(stage, want, have, |name, host, facts| {
        components
            .iter()
            .filter_map(|component| {
                let why = why(*component, host, facts, answers)
                    .or_else(|| with_others(*component, name, host, facts))?;
                let action = Action::AwaitHealthy {
                    component: *component,
                };
                Some(Step::on(name, why, action))
            })
            .collect()
    })
}

fn why(
    component: Component,
    host: &DesiredHost,
    facts: &HostFacts,
    answers: bool,
) -> Option<&'static str> {
    let container = component.container();
    let spec = host.containers.get(container)?;
    match containers::need(container, spec, facts) {
        Need::Run | Need::Start(_) => return Some("it was just started"),
        Need::Replace(..) => return Some("it was just replaced"),
        Need::Nothing => {}
    }
    let state = facts.containers.get(container)?.state;
    match state {
        ContainerState::Restarting(_) => Some("Docker keeps restarting it"),
        ContainerState::Running
        | ContainerState::Created
        | ContainerState::Exited(_)
        | ContainerState::Other => (!answers).then_some("the API does not answer yet"),
    }
}

/// What goes away for a moment because something below it does.
fn with_others(
    component: Component,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Option<&'static str> {
    host.containers.get(component.container())?;
    let bound = facts.system.containerd.docker_bound;
    if bound && matches!(containerd::difference(name, host, facts), Ok(Some(_))) {
        return Some("Docker is restarted with containerd");
    }
    let etcd = host.containers.get("etcd")?;
    let lost =
        component == Component::ApiServer && containers::need("etcd", etcd, facts) != Need::Nothing;
    lost.then_some("its etcd was just restarted")
}

/// True when the API answered the survey.
pub(super) const fn answers(have: &Actual) -> bool {
    matches!(have.api, ApiView::Up(_))
}
