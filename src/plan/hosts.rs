//! Walks over the wanted hosts that answered. Pure.

use super::{Enough, Note, OnFailure, Stage, Step, Target, preflight};
use crate::{
    actual::{Actual, HostFacts, HostView},
    desired::{Desired, DesiredHost},
    model::{NodeName, label},
};

/// Every wanted host that answered.
pub(super) fn each<'a>(
    want: &'a Desired,
    have: &'a Actual,
) -> impl Iterator<Item = (&'a NodeName, &'a DesiredHost, &'a HostFacts)> {
    want.hosts
        .iter()
        .filter_map(|(name, host)| have.up(name).map(|facts| (name, host, facts)))
}

/// A stage over every host at once.
pub(super) fn stage(
    stage: &'static str,
    want: &Desired,
    have: &Actual,
    steps: impl Fn(&NodeName, &DesiredHost, &HostFacts) -> Vec<Step>,
) -> Stage {
    let steps = each(want, have).flat_map(|(name, host, facts)| steps(name, host, facts));
    Stage::of(stage, want.hosts.len(), steps)
}

/// What prepares a node: one that fails is left out and holds nobody back, as long as etcd keeps
/// its quorum and a control plane is left.
pub(super) fn preparing(
    name: &'static str,
    want: &Desired,
    have: &Actual,
    steps: impl Fn(&NodeName, &DesiredHost, &HostFacts) -> Vec<Step>,
) -> Stage {
    let with = |component: &str| {
        let hosts = want.hosts.iter();
        let hosts = hosts.filter(|(_, host)| host.containers.contains_key(component));
        hosts.map(|(name, _)| name.clone()).collect()
    };
    let while_left = Enough::All(vec![
        Enough::Quorum(with("etcd")),
        Enough::OneOf(with("kube-apiserver")),
    ]);
    stage(name, want, have, steps).on_failure(OnFailure::DropNode { while_left })
}

/// Wanted hosts that do not answer.
pub(super) fn notes(want: &Desired, have: &Actual) -> Vec<Note> {
    want.hosts
        .keys()
        .filter_map(|name| match have.hosts.get(name) {
            Some(HostView::Unreachable(down)) => Some(Note {
                target: Some(Target::Host(name.clone())),
                text: format!("does not answer and is left as it is: {}", down.why),
            }),
            Some(HostView::Reachable(_)) | None => None,
        })
        .collect()
}

/// True for a node of the inventory that has no container of ours any more, but folders that only
/// a cluster fills: its Docker lost them all (`docker system prune -a`, another data root). It is
/// never clean and never another's: it is claimed again, and then looked at.
pub(super) fn lost_its_containers(name: &NodeName, facts: &HostFacts, have: &Actual) -> bool {
    let Some(saved) = &have.saved else {
        return false;
    };
    saved.inventory.contains_key(name)
        && facts.claim().is_none()
        && !owned_by(facts, &saved.cluster_id.0)
        && preflight::filled(facts).next().is_some()
}

/// True when a container of the host, the claim included, belongs to this cluster's id; or when the
/// claim's own file says so, which outlives every container (`docker system prune`, another data
/// root).
pub(super) fn owned_by(facts: &HostFacts, id: &str) -> bool {
    let marked = facts.system.cluster_id.as_ref();
    marked.is_some_and(|found| found.0 == id)
        || facts.containers.values().any(|fact| {
            fact.labels
                .get(label::CLUSTER_ID)
                .is_some_and(|found| found == id)
        })
}
