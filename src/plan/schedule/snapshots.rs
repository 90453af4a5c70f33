//! What takes recurring snapshots of etcd, next to each member. Pure.
//!
//! It disturbs nothing and nothing depends on it: it comes last, with its image, on all nodes at once. Where that fails, with a
//! registry that lacks the image, the run goes on and ends as degraded.

use super::{hosts, part::Part};
use crate::{
    model::{Component, ContainerSpec, NodeName},
    plan::{
        Guard, HostAction, Note, Step, Waits,
        diff::{Diff, HostDiff, Need},
    },
};

const COMPONENT: Component = Component::Snapshots;

/// Run, started, replaced. What it does then is shown by `status`.
pub(super) fn snapshots(diff: &Diff<'_>) -> Part {
    let stage = hosts::preparing("snapshots", diff, |name, host| {
        let spec = host.want.containers.get(&COMPONENT);
        let step = spec.and_then(|spec| step(name, spec, host, diff));
        step.into_iter().collect()
    });
    let held = diff.hosts.iter().filter_map(|(name, host)| {
        let why = host.held(COMPONENT)?;
        let text = format!("`{COMPONENT}` is not replaced yet: {why}");
        let what = Waits::Component(COMPONENT);
        Some(Note::left(name, text, what, why.clone()))
    });
    Part::from(stage).with_notes(held.collect::<Vec<_>>())
}

fn step(
    name: &NodeName,
    spec: &ContainerSpec,
    host: &HostDiff<'_>,
    diff: &Diff<'_>,
) -> Option<Step> {
    match host.need(COMPONENT) {
        Need::Nothing => None,
        Need::Run | Need::Start(_) => hosts::step(name, COMPONENT, spec, host),
        Need::Replace(..) => replace(name, spec, host, diff),
    }
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
        keep: false,
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
