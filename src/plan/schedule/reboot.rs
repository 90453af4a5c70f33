//! Nodes reboot one after the other: cordoned or drained, rebooted, Ready, uncordoned. Pure.
//!
//! Every Node records the request and the boot that is to end before the first machine is rebooted, and that it is done
//! when it serves again. So a run that was cut off goes on, and reboots no machine twice.

use super::{addons, nodes, part::Part, plan};
use crate::{
    etcd::Quorum,
    facts::NodeFact,
    model::{Component, DrainRules, NodeName},
    plan::{
        Cause, ClusterAction, Guard, HostAction, Note, Plan, Reboot, Stage, Step, Target, Waits,
        diff::Diff,
        hold::{self, Fleet},
    },
};

/// Empty when the request has rebooted all of them.
pub(in crate::plan) fn reboot(diff: &Diff<'_>, request: &Reboot) -> Plan {
    let left = request.nodes.iter().filter_map(|name| {
        let node = nodes::seen(diff.have, name)?;
        (!node.was_rebooted_by(&request.id)).then_some((name, node))
    });
    let left: Vec<(&NodeName, &NodeFact)> = left.collect();
    let records = left
        .iter()
        .filter_map(|(name, node)| record(name, node, diff, request));
    let records = Stage::of("request", 1, records);
    let (mut steps, mut notes) = (Vec::new(), Vec::new());
    for (name, node) in left {
        match queue(name, node, diff, request) {
            Ok(queue) => steps.extend(queue),
            Err(note) => notes.push(note),
        }
    }
    let rebooted = request.nodes.iter().filter(|name| {
        nodes::seen(diff.have, name).is_some_and(|node| node.was_rebooted_by(&request.id))
    });
    notes.extend(rebooted.map(|name| {
        let text = format!(
            "was rebooted already by this request, which was begun at {}",
            request.id
        );
        Note::of(Some(Target::Host(name.clone())), text)
    }));
    let part = Part::from(Stage::of("reboot", 1, steps)).with_notes(notes);
    plan([records.into(), part])
}

/// The boot that is to end: the one that the request has recorded, else the one that runs.
fn from(name: &NodeName, node: &NodeFact, diff: &Diff<'_>, request: &Reboot) -> Option<String> {
    match node.reboot() {
        Some(mark) if mark.request == request.id => Some(mark.from),
        Some(_) | None => diff.have.up(name)?.system.boot.clone(),
    }
}

fn record(name: &NodeName, node: &NodeFact, diff: &Diff<'_>, request: &Reboot) -> Option<Step> {
    let mark = node.reboot();
    if mark.is_some_and(|mark| mark.request == request.id) {
        return None;
    }
    let action = ClusterAction::BeginReboot {
        node: name.clone(),
        request: request.id.clone(),
        from: from(name, node, diff, request)?,
    };
    let why = "a run that is cut off goes on, and reboots no machine twice";
    Some(Step::cluster(Cause::Change, why, action).guarded(&diff.want.cluster_id))
}

/// The steps of a node, or why it is not rebooted now.
fn queue(
    name: &NodeName,
    node: &NodeFact,
    diff: &Diff<'_>,
    request: &Reboot,
) -> Result<Vec<Step>, Note> {
    let Some((boot, from)) = diff
        .have
        .up(name)
        .and_then(|facts| facts.system.boot.as_ref())
        .zip(from(name, node, diff, request))
    else {
        return Ok(Vec::new());
    };
    let mut steps = Vec::new();
    if *boot == from {
        let guards = guards(name, diff);
        if let Some(why) = hold::first_broken(&guards, diff) {
            let text = format!("is not rebooted: {why}");
            return Err(Note::left(name, text, Waits::Node, why));
        }
        steps = away(name, node, diff, request, from, &guards);
    }
    let why = "the machine was rebooted";
    let wanted = diff.hosts.get(name).into_iter();
    let wanted = wanted.flat_map(|host| {
        let components = host.want.containers.keys().copied();
        components.filter(|component| host.facts.container(*component).is_some())
    });
    steps.extend(wanted.map(|component| {
        Step::on(
            name,
            Cause::Change,
            why,
            HostAction::AwaitHealthy { component },
        )
    }));
    if addons::has_network(diff.want) {
        let action = ClusterAction::AwaitNodeReady { node: name.clone() };
        steps.push(Step::cluster(Cause::Change, why, action));
    }
    let action = ClusterAction::FinishReboot {
        node: name.clone(),
        request: request.id.clone(),
    };
    steps.push(Step::cluster(Cause::Change, "it serves again", action));
    Ok(steps)
}

/// What takes the node out of service, and the reboot. A node that is not Ready has no pods to lose; one that a person
/// cordoned stays so.
fn away(
    name: &NodeName,
    node: &NodeFact,
    diff: &Diff<'_>,
    request: &Reboot,
    from: String,
    guards: &[Guard],
) -> Vec<Step> {
    let id = &diff.want.cluster_id;
    let rules = drains(diff, request).filter(|_| node.ready);
    let first = if let Some(rules) = rules {
        let action = ClusterAction::Drain {
            node: name.clone(),
            rules: Some(rules),
        };
        let why = "its pods go elsewhere before it reboots";
        let step = Step::cluster(Cause::Change, why, action).guarded(id);
        Some(step.disturbing("the node's pods are evicted and start on other nodes"))
    } else {
        let action = ClusterAction::Cordon { node: name.clone() };
        let step = Step::cluster(Cause::Change, "no new pod until it is back", action).guarded(id);
        (!node.is_cordoned_by_others()).then_some(step)
    };
    let last = Step::on(
        name,
        Cause::Change,
        "a person requested it",
        HostAction::Reboot { from },
    )
    .guarded(id)
    .disturbing(disturbs(name, rules.is_some(), diff));
    let steps = first.into_iter().chain([last]);
    steps
        .map(|step| guards.iter().cloned().fold(step, Step::only_if))
        .collect()
}

/// The rules by which its pods are evicted; `None`: they stay, and stop until the machine is back.
fn drains(diff: &Diff<'_>, request: &Reboot) -> Option<DrainRules> {
    let rules = diff.want.upgrade.drain;
    match request.drain {
        None => rules,
        Some(true) => Some(rules.unwrap_or_default()),
        Some(false) => None,
    }
}

/// What must hold while all of the node is away: as for a roll of each of its components.
fn guards(name: &NodeName, diff: &Diff<'_>) -> Vec<Guard> {
    let fleet = Fleet::of(diff);
    let all = [Component::Etcd, Component::ApiServer, Component::Kubelet].into_iter();
    all.flat_map(|component| hold::guards(component, Cause::Change, &[], name, diff, &fleet))
        .collect()
}

fn disturbs(name: &NodeName, drained: bool, diff: &Diff<'_>) -> String {
    let mut text = if drained {
        "the machine reboots".to_owned()
    } else {
        "the machine reboots: the pods on it stop until it is back".to_owned()
    };
    let etcd = &diff.have.etcd;
    let is_member = etcd.on(name).is_some_and(|member| {
        let serves = matches!(etcd.quorum, Quorum::Serving { .. });
        serves && etcd.voters().count() < 3 && !etcd.serves_without(member)
    });
    let planes: Vec<&NodeName> = diff.want.with(Component::ApiServer).collect();
    let is_only = planes == [name];
    if is_member || is_only {
        text.push_str("; the API does not answer until it is back");
    }
    text
}
