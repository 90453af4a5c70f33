//! The Node objects: our labels, annotations and taints, and readiness. Pure.

use super::{
    Cause, ClusterAction, Enough, Note, OnFailure, Stage, Step, Target, addons, containerd,
    containers::{self, Need},
    health, hosts,
};
use crate::{
    actual::{self, Actual, ApiView, HostFacts, NodeFact},
    desired::{Desired, DesiredHost},
    model::{NodeMeta, NodeName},
};

/// Health of the rest, the Node's data, and Ready: one after the other on a node, all nodes at
/// once. The manifests are already applied, so these waits overlap with theirs.
pub(super) fn ready(want: &Desired, have: &Actual) -> Stage {
    let mut steps = health::others(want, have);
    let networked = addons::has_network(want);
    for (name, host, facts) in hosts::each(want, have) {
        if !host.containers.contains_key("kubelet") {
            continue;
        }
        let seen = seen(have, name);
        steps.extend(meta(name, &host.node, seen));
        if networked && let Some((cause, why)) = wait(name, host, facts, seen) {
            let action = ClusterAction::AwaitNodeReady { node: name.clone() };
            steps.push(Step::cluster(cause, why, action));
        }
    }
    Stage::of("nodes", want.hosts.len(), steps).on_failure(OnFailure::DropNode {
        while_left: Enough::Any,
    })
}

/// Said when nobody of ours brings a network.
pub(super) fn notes(want: &Desired, have: &Actual) -> Vec<Note> {
    if addons::has_network(want) {
        return Vec::new();
    }
    hosts::each(want, have)
        .filter(|(name, _, _)| !seen(have, name).is_some_and(|node| node.ready))
        .map(|(name, _, _)| Note {
            target: Some(Target::Host(name.clone())),
            text: "the network plugin is `none`: the node becomes Ready when you have installed \
                   one"
            .to_owned(),
        })
        .collect()
}

pub(super) fn seen<'a>(have: &'a Actual, name: &NodeName) -> Option<&'a NodeFact> {
    match have.api() {
        ApiView::Up(facts) => facts.nodes.get(name),
        ApiView::Unknown | ApiView::Unreachable(_) => None,
    }
}

fn meta(name: &NodeName, wants: &NodeMeta, seen: Option<&NodeFact>) -> Option<Step> {
    let action = ClusterAction::SetNodeMeta {
        node: name.clone(),
        meta: wants.clone(),
    };
    let Some(node) = seen else {
        let why = "the Node object is new, or not known yet";
        let step = Step::cluster(Cause::New, why, action);
        return (*wants != NodeMeta::default()).then_some(step);
    };
    let changes = actual::node_changes(node, wants);
    let why = "labels, annotations or taints differ";
    (!changes.is_empty()).then(|| Step::cluster(Cause::Change, why, action).changing(changes))
}

fn wait(
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
    seen: Option<&NodeFact>,
) -> Option<(Cause, String)> {
    let Some(node) = seen else {
        return Some((Cause::New, "the node joins the cluster".to_owned()));
    };
    if !node.ready {
        let why = if node.message.is_empty() {
            "the node is not Ready".to_owned()
        } else {
            format!("the node is not Ready: {}", node.message)
        };
        return Some((Cause::Drift, why));
    }
    let kubelet = host.containers.get("kubelet")?;
    match containers::need("kubelet", kubelet, facts) {
        Need::Run => return Some((Cause::New, "its kubelet was just started".to_owned())),
        Need::Start(_) => return Some((Cause::Drift, "its kubelet was just started".to_owned())),
        // A roll waits by itself.
        Need::Nothing | Need::Replace(..) => {}
    }
    match containerd::difference(name, host, facts) {
        Ok(Some(difference)) => Some((difference.cause, "its containerd was restarted".to_owned())),
        Ok(None) | Err(_) => None,
    }
}
