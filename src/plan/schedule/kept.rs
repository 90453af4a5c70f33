//! The containers that changes have kept: they go when the new ones are known to work. Pure.

use std::collections::BTreeSet;

use super::{addons, hosts, part::Part, roll};
use crate::{
    facts::{ContainerFact, ContainerState},
    model::{Component, NodeName},
    plan::{
        Cause, ClusterAction, HostAction, Step,
        diff::{Diff, HostDiff},
    },
};

/// Before anything is started: no two containers of one component run. One that was kept may have been started by hand.
pub(super) fn running(diff: &Diff<'_>) -> Part {
    let stage = hosts::preparing("kept", diff, |name, host| {
        let runs = |fact: &ContainerFact| match fact.state {
            ContainerState::Running | ContainerState::Restarting(_) | ContainerState::Other => true,
            ContainerState::Created | ContainerState::Exited(_) => false,
        };
        let running = there(host, diff).filter(|(_, fact)| runs(fact));
        let components = running.map(|(component, _)| component).collect();
        let why = "it was kept for a change, and runs";
        remove(name, components, Cause::Drift, why, diff).collect()
    });
    stage.into()
}

/// Last of all. What a run that was cut off has kept goes when the new one is healthy.
pub(super) fn former(diff: &Diff<'_>) -> Part {
    let stage = hosts::stage("kept", diff, |name, host| {
        let replaced = |component: &Component| host.replaces(*component).is_some();
        let keeps = |component: &Component| roll::keeps(*component, host, diff);
        let there: BTreeSet<Component> = there(host, diff).map(|(it, _)| it).collect();
        let all = Component::ALL.into_iter();
        let new = all.filter(|it| replaced(it) && (keeps(it) || there.contains(it)));
        let left: BTreeSet<Component> = there.iter().copied().filter(|it| !replaced(it)).collect();
        let waits = left
            .iter()
            .copied()
            .flat_map(|it| healthy(it, name, host, diff));
        let why = "its replacement works";
        waits
            .collect::<Vec<_>>()
            .into_iter()
            .chain(remove(name, left.clone(), Cause::Drift, why, diff))
            .chain(remove(name, new.collect(), Cause::Change, why, diff))
            .collect()
    });
    stage.into()
}

/// This cluster's, of whatever life of etcd's data.
fn there<'h>(
    host: &'h HostDiff<'_>,
    diff: &'h Diff<'_>,
) -> impl Iterator<Item = (Component, &'h ContainerFact)> {
    Component::ALL.into_iter().filter_map(|component| {
        let fact = host.facts.containers.get(component.kept())?;
        fact.is_of(&diff.want.cluster_id)
            .then_some((component, fact))
    })
}

fn healthy(
    component: Component,
    name: &NodeName,
    host: &HostDiff<'_>,
    diff: &Diff<'_>,
) -> Vec<Step> {
    if !host.has(component) {
        return Vec::new();
    }
    let why = "a run that was cut off has changed it";
    let wait = HostAction::AwaitHealthy { component };
    let mut steps = vec![Step::on(name, Cause::Drift, why, wait)];
    if component == Component::Kubelet && addons::has_network(diff.want) {
        let wait = ClusterAction::AwaitNodeReady { node: name.clone() };
        steps.push(Step::cluster(Cause::Drift, why, wait));
    }
    steps
}

fn remove(
    name: &NodeName,
    components: BTreeSet<Component>,
    cause: Cause,
    why: &'static str,
    diff: &Diff<'_>,
) -> impl Iterator<Item = Step> {
    let any = !components.is_empty();
    let action = HostAction::RemoveKept { components };
    let step = any.then(|| Step::on(name, cause, why, action).guarded(&diff.want.cluster_id));
    step.into_iter()
}
