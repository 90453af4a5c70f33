//! What takes recurring snapshots of etcd, next to each member. Pure.
//!
//! It disturbs nothing and nothing depends on it: it comes last, with its image, on all nodes at once. Where it cannot be
//! had, a registry without the image, all else is done.

use super::{hosts, part::Part};
use crate::{
    facts::ContainerState,
    model::{Component, ContainerSpec, NodeName},
    plan::{
        Cause, Guard, HostAction, Note, Step, Waits,
        diff::{Diff, HostDiff, Need, present},
    },
};

const COMPONENT: Component = Component::Snapshots;

/// Run, started, replaced; and awaited.
pub(super) fn snapshots(diff: &Diff<'_>) -> Part {
    let stage = hosts::preparing("snapshots", diff, |name, host| {
        let spec = host.want.containers.get(&COMPONENT);
        spec.map_or_else(Vec::new, |spec| steps(name, spec, host, diff))
    });
    let held = diff.hosts.iter().filter_map(|(name, host)| {
        let why = host.held(COMPONENT)?;
        let text = format!("`{COMPONENT}` is not replaced yet: {why}");
        let what = Waits::Component(COMPONENT);
        Some(Note::left(name, text, what, why.clone()))
    });
    Part::from(stage).with_notes(held.collect::<Vec<_>>())
}

fn steps(name: &NodeName, spec: &ContainerSpec, host: &HostDiff<'_>, diff: &Diff<'_>) -> Vec<Step> {
    let wait = |cause: Cause, why: &'static str| {
        let action = HostAction::AwaitHealthy {
            component: COMPONENT,
        };
        Step::on(name, cause, why, action)
    };
    let (step, why) = match host.need(COMPONENT) {
        Need::Nothing => {
            let state = host.facts.container(COMPONENT).map(|fact| fact.state);
            let restarts = matches!(state, Some(ContainerState::Restarting(_)));
            let waits = restarts.then(|| wait(Cause::Drift, "Docker keeps restarting it"));
            return waits.into_iter().collect();
        }
        Need::Run | Need::Start(_) => {
            let step = hosts::step(name, COMPONENT, spec, host);
            (step, "it was just started")
        }
        Need::Replace(..) => (replace(name, spec, host, diff), "it was just replaced"),
    };
    let Some(step) = step else {
        return Vec::new();
    };
    let cause = step.cause;
    let pull = (!present(&spec.image, host.facts)).then(|| {
        let action = HostAction::PullImage {
            image: spec.image.clone(),
        };
        Step::on(name, cause, "it has what reads a snapshot", action)
    });
    pull.into_iter().chain([step, wait(cause, why)]).collect()
}

fn replace(
    name: &NodeName,
    spec: &ContainerSpec,
    host: &HostDiff<'_>,
    diff: &Diff<'_>,
) -> Option<Step> {
    let fact = host.facts.container(COMPONENT)?;
    let Need::Replace(cause, why, changes) = host.need(COMPONENT) else {
        return None;
    };
    if host.held(COMPONENT).is_some() {
        return None;
    }
    let action = HostAction::ReplaceContainer {
        component: COMPONENT,
        spec: Box::new(spec.clone()),
    };
    let same = Guard::ContainerIs {
        node: name.clone(),
        name: COMPONENT.container().to_owned(),
        id: fact.id.clone(),
    };
    let step = Step::on(name, *cause, why.clone(), action)
        .changing(changes.clone())
        .guarded(&diff.want.cluster_id)
        .only_if(same);
    Some(step)
}
