//! Stages over the wanted hosts that answered, and a note for each other one. Pure.

use super::part::Part;
use crate::{
    facts::{HostFacts, HostView},
    model::{Component, ContainerSpec, NodeName},
    plan::{
        Cause, Enough, Held, HostAction, Note, OnFailure, Stage, Step, Waits,
        diff::{Diff, HostDiff, Need},
    },
};

/// A stage over every host at once.
pub(super) fn stage(
    stage: &'static str,
    diff: &Diff<'_>,
    steps: impl Fn(&NodeName, &HostDiff<'_>) -> Vec<Step>,
) -> Stage {
    let hosts = diff.hosts.iter();
    let steps = hosts.flat_map(|(name, host)| steps(name, host));
    Stage::of(stage, diff.want.hosts.len(), steps)
}

/// Steps that prepare a node: one that fails is left out and does not hold the others back, as long as etcd keeps
/// its quorum and a control plane is left.
pub(super) fn preparing(
    name: &'static str,
    diff: &Diff<'_>,
    steps: impl Fn(&NodeName, &HostDiff<'_>) -> Vec<Step>,
) -> Stage {
    let with = |component| diff.want.with(component).cloned().collect();
    let while_left = Enough::All(vec![
        Enough::Quorum(with(Component::Etcd)),
        Enough::OneOf(with(Component::ApiServer)),
    ]);
    stage(name, diff, steps).on_failure(OnFailure::DropNode { while_left })
}

/// What a restart of containerd disturbs on a host.
pub(super) const fn containerd_restarts(facts: &HostFacts) -> &'static str {
    if facts.system.containerd.docker_bound {
        "restarts containerd, and Docker stops and starts with it on this node; containers keep \
         running only where Docker's live-restore is on"
    } else {
        "restarts containerd; running containers keep running"
    }
}

/// Wanted hosts that do not answer are left as they are.
pub(super) fn silent(diff: &Diff<'_>) -> Part {
    let names = diff.want.hosts.keys();
    names
        .filter_map(|name| match diff.have.hosts.get(name) {
            Some(HostView::Unreachable(down)) => {
                let text = format!("does not answer and is left as it is: {}", down.cause());
                let why = Held::Silent(down.why.clone());
                Some(Note::left(name, text, Waits::Node, why))
            }
            Some(HostView::Reachable(_)) | None => None,
        })
        .collect()
}

/// Runs or starts a component that is missing.
pub(super) fn step(
    name: &NodeName,
    component: Component,
    spec: &ContainerSpec,
    host: &HostDiff<'_>,
) -> Option<Step> {
    match host.need(component) {
        Need::Nothing | Need::Replace(..) => None,
        Need::Run => Some(Step::on(
            name,
            Cause::New,
            format!("this node has no `{component}` yet"),
            HostAction::RunContainer {
                component,
                spec: Box::new(spec.clone()),
            },
        )),
        Need::Start(why) => {
            let action = HostAction::StartContainer { component };
            Some(Step::on(name, Cause::Drift, why.clone(), action))
        }
    }
}
