//! What one node is given back with. The order survives a kill between any two steps: the claim goes
//! last, because it remembers what was there before and keeps others away. Pure.

use super::{claim, hosts};
use crate::{
    actual::{Baseline, HostFacts},
    model::{CLAIM, ClusterId, NodeName, START_ORDER, label, path},
    plan::{Cause, HostAction, Step},
};

/// Why a node is given back.
#[derive(Clone, Copy)]
pub(super) struct Why(pub(super) &'static str);

/// The steps of one part.
type Steps = fn(&ClusterId, &NodeName, &HostFacts, Why) -> Vec<Step>;

/// In order, each with the name of its stage.
pub(super) const PARTS: [(&str, Steps); 4] = [
    ("stop", stop),
    ("clean", clean_host),
    ("containerd", restore_containerd),
    ("release", release),
];

/// kubelet first, so that nothing is restarted; etcd last.
fn stop(id: &ClusterId, host: &NodeName, facts: &HostFacts, Why(why): Why) -> Vec<Step> {
    let ours = |name: &&String| {
        let label = facts.containers.get(*name).map(|fact| &fact.labels);
        let found = label.and_then(|labels| labels.get(label::CLUSTER_ID));
        found == Some(&id.0) && name.as_str() != CLAIM
    };
    let mut names: Vec<&String> = facts.containers.keys().filter(ours).collect();
    names.sort_by_key(
        |name| match START_ORDER.iter().position(|known| known == name) {
            Some(_) if name.as_str() == "kubelet" => 0,
            None => 1,
            Some(place) => 2 + START_ORDER.len() - place,
        },
    );
    names
        .into_iter()
        .map(|name| {
            let action = HostAction::RemoveContainer { name: name.clone() };
            Step::on(host, Cause::Leave, why, action).guarded(id)
        })
        .collect()
}

fn clean_host(id: &ClusterId, host: &NodeName, facts: &HostFacts, _: Why) -> Vec<Step> {
    let before: Baseline = claim::remembered(facts).unwrap_or_else(|| claim::rebuilt_before(facts));
    let why = "pods, mounts, links, rules and folders of the cluster go";
    vec![Step::on(host, Cause::Leave, why, HostAction::CleanHost { before }).guarded(id)]
}

fn restore_containerd(id: &ClusterId, host: &NodeName, facts: &HostFacts, _: Why) -> Vec<Step> {
    let ours = [
        path::CONTAINERD_CONFIG,
        path::CONTAINERD_DROP_IN,
        path::FORMER_DROP_IN,
    ];
    let files = facts.files.as_ref();
    let there = files.is_some_and(|files| ours.iter().any(|path| files.contains_key(*path)));
    if !there {
        return Vec::new();
    }
    let why = "containerd gets its own configuration back";
    let step = Step::on(host, Cause::Leave, why, HostAction::RestoreContainerd).guarded(id);
    vec![step.disturbing(hosts::containerd_restarts(facts))]
}

fn release(id: &ClusterId, host: &NodeName, _: &HostFacts, _: Why) -> Vec<Step> {
    let why = "the node is free for another cluster";
    vec![Step::on(host, Cause::Leave, why, HostAction::ReleaseClaim).guarded(id)]
}
