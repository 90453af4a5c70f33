//! The Node objects: our labels, annotations and taints, and readiness. Pure.

use std::collections::BTreeSet;

use super::{addons, health, part::Part, skew};
use crate::{
    facts::{self, Actual, ApiView, NodeFact},
    model::{Component, DrainRules, NodeMeta, NodeName},
    plan::{
        Action, Cause, ClusterAction, Enough, Note, OnFailure, Stage, Step, Target,
        diff::{Diff, HostDiff, Need},
    },
};

/// Removes rke-operator's cordons that a run left, unless one of these rolls removes them. This comes before other
/// nodes are drained, whose pods may have nowhere else to go.
pub(super) fn left_cordoned(diff: &Diff<'_>, rolls: &Part) -> Part {
    let taken_back: BTreeSet<&NodeName> = rolls
        .stages
        .iter()
        .flat_map(Stage::steps)
        .filter_map(|step| match &step.action {
            Action::Cluster(ClusterAction::Uncordon { node }) => Some(node),
            Action::Cluster(_) | Action::Host(..) | Action::Local(_) => None,
        })
        .collect();
    let left = diff.hosts.keys().filter(|name| !taken_back.contains(*name));
    let steps = left.filter_map(|name| uncordon(name, seen(diff.have, name)));
    Stage::of("uncordon", diff.want.hosts.len(), steps).into()
}

/// Waits for the health of the other components, in parallel with the Node's metadata and Ready, on all nodes at
/// once. The manifests are already applied, so these waits overlap with theirs.
pub(super) fn ready(diff: &Diff<'_>) -> Part {
    let mut steps = health::others(diff);
    let networked = addons::has_network(diff.want);
    for (name, host) in &diff.hosts {
        if !host.has(Component::Kubelet) || skew::keeps_out(host, diff) {
            continue;
        }
        let seen = seen(diff.have, name);
        let meta = meta(name, &host.want.node, seen);
        if meta.is_some() && evicts(&host.want.node, seen) {
            steps.extend(emptied(name, diff, meta));
        } else {
            steps.extend(meta);
        }
        if networked && let Some((cause, why)) = wait(host, seen) {
            let action = ClusterAction::AwaitNodeReady {
                node: (*name).clone(),
            };
            steps.push(Step::cluster(cause, why, action));
        }
    }
    // Those with nothing to do here are left, too: a run that mends one node and cannot ends degraded.
    let nodes = diff.want.hosts.keys().cloned().collect();
    let stage = Stage::of("nodes", diff.want.hosts.len(), steps);
    let stage = stage.side_by_side(|step| matches!(step.action, Action::Cluster(_)));
    let stage = stage.on_failure(OnFailure::DropNode {
        while_left: Enough::OneOf(nodes),
    });
    Part::from(stage).with_notes(without_network(diff))
}

/// Nodes that become Ready when the user has installed a network.
fn without_network(diff: &Diff<'_>) -> Vec<Note> {
    if addons::has_network(diff.want) {
        return Vec::new();
    }
    let hosts = diff.hosts.keys();
    hosts
        .filter(|name| !seen(diff.have, name).is_some_and(|node| node.ready))
        .map(|name| {
            let text = "the network plugin is `none`: the node becomes Ready when you have \
                        installed one";
            Note::of(Some(Target::Host((*name).clone())), text.to_owned())
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
    let changes = facts::node_changes(node, wants);
    let why = "labels, annotations or taints differ";
    (!changes.is_empty()).then(|| Step::cluster(Cause::Change, why, action).changing(changes))
}

/// True for a taint that the node does not have yet and that would end its pods at once, whatever their
/// disruption budgets say.
fn evicts(wants: &NodeMeta, seen: Option<&NodeFact>) -> bool {
    let mut taints = wants
        .taints
        .iter()
        .filter(|taint| taint.effect == "NoExecute");
    seen.is_some_and(|node| taints.any(|taint| !node.taints.contains(taint)))
}

/// The node's pods are evicted before it gets its taints.
fn emptied(name: &NodeName, diff: &Diff<'_>, meta: Option<Step>) -> impl Iterator<Item = Step> {
    let rules = DrainRules {
        force: true,
        ignore_daemonsets: true,
        delete_local_data: true,
        ..diff.want.upgrade.drain.unwrap_or_default()
    };
    let action = ClusterAction::Drain {
        node: name.clone(),
        rules: Some(rules),
    };
    let why = "a taint of the effect `NoExecute` ends its pods at once: they are evicted before, within \
               their PodDisruptionBudgets";
    let drain = Step::cluster(Cause::Change, why, action)
        .guarded(&diff.want.cluster_id)
        .disturbing(
            "the node's pods are evicted and start on other nodes; what they keep in an emptyDir is \
             gone",
        );
    let action = ClusterAction::Uncordon { node: name.clone() };
    let last = Step::cluster(Cause::Change, "its taints keep pods away", action);
    [drain].into_iter().chain(meta).chain([last])
}

/// A run that was cut off left its cordon.
fn uncordon(name: &NodeName, seen: Option<&NodeFact>) -> Option<Step> {
    let action = ClusterAction::Uncordon { node: name.clone() };
    let why = "a run that was cut off left it cordoned";
    let seen = seen?;
    // A request to reboot it that was cut off ends here.
    (seen.is_cordoned_by_us() || seen.reboot().is_some())
        .then(|| Step::cluster(Cause::Drift, why, action))
}

fn wait(host: &HostDiff<'_>, seen: Option<&NodeFact>) -> Option<(Cause, String)> {
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
    match host.need(Component::Kubelet) {
        Need::Run => Some((Cause::New, "its kubelet was just started".to_owned())),
        Need::Start(_) => Some((Cause::Drift, "its kubelet was just started".to_owned())),
        // A roll has its own wait.
        Need::Nothing | Need::Replace(..) => None,
    }
}
