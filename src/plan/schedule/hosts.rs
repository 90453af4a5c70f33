//! Stages over the wanted hosts that answered. Pure.

use crate::{
    actual::HostView,
    model::NodeName,
    plan::{
        Enough, Note, OnFailure, Stage, Step, Target,
        diff::{Diff, HostDiff},
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

/// What prepares a node: one that fails is left out and holds nobody back, as long as etcd keeps
/// its quorum and a control plane is left.
pub(super) fn preparing(
    name: &'static str,
    diff: &Diff<'_>,
    steps: impl Fn(&NodeName, &HostDiff<'_>) -> Vec<Step>,
) -> Stage {
    let with = |component: &str| {
        let hosts = diff.want.hosts.iter();
        let hosts = hosts.filter(|(_, host)| host.containers.contains_key(component));
        hosts.map(|(name, _)| name.clone()).collect()
    };
    let while_left = Enough::All(vec![
        Enough::Quorum(with("etcd")),
        Enough::OneOf(with("kube-apiserver")),
    ]);
    stage(name, diff, steps).on_failure(OnFailure::DropNode { while_left })
}

/// Wanted hosts that do not answer.
pub(super) fn notes(diff: &Diff<'_>) -> Vec<Note> {
    let names = diff.want.hosts.keys();
    names
        .filter_map(|name| match diff.have.hosts.get(name) {
            Some(HostView::Unreachable(down)) => Some(Note {
                target: Some(Target::Host(name.clone())),
                text: format!("does not answer and is left as it is: {}", down.why),
            }),
            Some(HostView::Reachable(_)) | None => None,
        })
        .collect()
}
