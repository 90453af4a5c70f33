//! The steps that clean one node. The order survives a kill between any two steps: the claim goes
//! last, because it records what was there before and keeps others away. Pure.

use std::cmp::Reverse;

use super::{claim, hosts};
use crate::{
    facts::{Actual, Baseline, HostFacts},
    model::{CLAIM, ClusterId, Component, NodeName, Role, label, path},
    plan::{Action, Cause, HostAction, Stage, Step},
};

/// Why a node is cleaned.
#[derive(Clone, Copy)]
pub(super) struct Why(pub(super) &'static str);

/// The steps of one stage.
type Steps = fn(&ClusterId, &NodeName, &HostFacts, &Actual, Why) -> Vec<Step>;

/// In order, each with the name of its stage.
pub(super) const STAGES: [(&str, Steps); 4] = [
    ("stop", stop),
    ("clean", clean_host),
    ("containerd", restore_containerd),
    ("release", release),
];

/// What a node that is cleaned loses, in words: said by the first step that leads there, so that nothing is
/// deleted that was not announced.
pub(super) fn loss(host: &NodeName, have: &Actual) -> String {
    let saved = have.saved.as_ref();
    let entry = saved.and_then(|saved| saved.inventory.get(host));
    let etcd = entry.is_some_and(|entry| entry.roles.contains(&Role::Etcd));
    let etcd = if etcd {
        "its copy of etcd's data, "
    } else {
        ""
    };
    let foreign = have.foreign_on(host);
    let foreign = if foreign.is_empty() {
        String::new()
    } else {
        format!(", and of another Kubernetes: {}", foreign.join(", "))
    };
    let restarts = have.up(host).filter(|facts| has_our_containerd(facts));
    let restarts = restarts.map_or_else(String::new, |facts| {
        format!("; this {}", hosts::containerd_restarts(facts))
    });
    format!(
        "the node is cleaned: {etcd}its certificates, logs and what pods keep on it are deleted{foreign}{restarts}"
    )
}

/// containerd reads a file of the cluster, and restarts when it gets its own back.
fn has_our_containerd(facts: &HostFacts) -> bool {
    let ours = [
        path::CONTAINERD_CONFIG,
        path::CONTAINERD_DROP_IN,
        path::FORMER_DROP_IN,
    ];
    let files = facts.files.as_ref();
    files.is_some_and(|files| ours.iter().any(|path| files.contains_key(*path)))
}

/// What is stopped goes side by side: none of it starts another. etcd goes after what uses it.
pub(super) fn side_by_side(stop: Stage) -> [Stage; 2] {
    let [others, etcd] = stop.apart(|step| match &step.action {
        Action::Host(_, HostAction::RemoveContainer { name }) => {
            name == Component::Etcd.container()
        }
        Action::Host(..) | Action::Cluster(_) | Action::Local(_) => false,
    });
    [others.side_by_side(|_| false), etcd]
}

/// kubelet is shown first, and etcd last. What a person named a node for goes too: containers
/// of another Kubernetes. On any other node that has some, nothing is done.
fn stop(
    id: &ClusterId,
    host: &NodeName,
    facts: &HostFacts,
    _: &Actual,
    Why(why): Why,
) -> Vec<Step> {
    let ours = |name: &&String| {
        let label = facts.containers.get(*name).map(|fact| &fact.labels);
        let found = label.and_then(|labels| labels.get(label::CLUSTER_ID));
        found == Some(&id.0) && name.as_str() != CLAIM
    };
    let mut names: Vec<&String> = facts.containers.keys().filter(ours).collect();
    names.extend(facts.foreign_container_names(id));
    names.sort_by_key(|name| match Component::named(name) {
        Some(Component::Kubelet) => (0, None),
        None => (1, None),
        Some(component) => (2, Some(Reverse(component))),
    });
    names
        .into_iter()
        .map(|name| {
            let action = HostAction::RemoveContainer { name: name.clone() };
            Step::on(host, Cause::Leave, why, action).guarded(id)
        })
        .collect()
}

fn clean_host(
    id: &ClusterId,
    host: &NodeName,
    facts: &HostFacts,
    have: &Actual,
    _: Why,
) -> Vec<Step> {
    let before: Baseline = claim::remembered(facts).unwrap_or_else(|| claim::rebuilt_before(facts));
    let why = "pods, mounts, links, rules and folders of the cluster go";
    let step = Step::on(host, Cause::Leave, why, HostAction::CleanHost { before }).guarded(id);
    vec![step.disturbing(loss(host, have))]
}

fn restore_containerd(
    id: &ClusterId,
    host: &NodeName,
    facts: &HostFacts,
    have: &Actual,
    _: Why,
) -> Vec<Step> {
    if !has_our_containerd(facts) {
        return Vec::new();
    }
    let why = "containerd gets its own configuration back";
    let step = Step::on(host, Cause::Leave, why, HostAction::RestoreContainerd).guarded(id);
    // The same words as when the node is cleaned: what was agreed to is not asked again.
    vec![step.disturbing(loss(host, have))]
}

fn release(id: &ClusterId, host: &NodeName, _: &HostFacts, _: &Actual, _: Why) -> Vec<Step> {
    let why = "the node is free for another cluster";
    vec![Step::on(host, Cause::Leave, why, HostAction::ReleaseClaim).guarded(id)]
}
