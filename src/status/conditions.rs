//! A [`Status`] as the conditions of an object. Pure: what is wrong was found before; here it is put
//! under the condition that it belongs to. A condition about health is True only where nothing is wrong
//! and everything was seen.

use std::collections::BTreeMap;

use super::{
    About, AddonState, BackedUp, Problem, QuorumState, Status,
    nodes::{ApiState, NodeStatus},
};
use crate::{
    api::conditions::{ConditionSet, ConditionType, Reason},
    error::Obstacle,
    facts::{Unreachable, by_cause},
    model::{Component, NodeName, quoted, quoted_first},
};

/// How many cases a message names.
const NAMED: usize = 20;

/// So long before its end a certificate that is not renewed automatically (an authority) is reported.
const NOTICE_DAYS: i64 = 90;

const NO_API: &str = "no API server answers";
const NO_CONFIG: &str = "there is no valid config to compare with";
const NO_CLUSTER: &str = "there is no cluster yet";

/// The conditions that follow from a status.
pub fn conditions(status: &Status) -> ConditionSet {
    let mut conditions = ConditionSet::new();
    for (kind, (reason, message)) in [
        (ConditionType::NodesReachable, reachable(status)),
        (ConditionType::EtcdHealthy, etcd(status)),
        (ConditionType::ControlPlaneHealthy, control_plane(status)),
        (ConditionType::Available, available(status)),
        (ConditionType::NodesHealthy, nodes(status)),
        (ConditionType::AddonsApplied, addons(status)),
        (ConditionType::CertificatesValid, certificates(status)),
        (ConditionType::BackedUp, backed_up(status)),
        (ConditionType::UpToDate, up_to_date(status)),
    ] {
        conditions.set(kind, reason, message);
    }
    conditions
}

type Outcome = (Reason, String);

fn outcome(reason: Reason, message: impl Into<String>) -> Outcome {
    (reason, message.into())
}

fn about(status: &Status, what: About) -> Vec<&Problem> {
    let problems = status.problems.iter();
    problems.filter(|problem| problem.about == what).collect()
}

/// The first problems, each on a line.
fn text(problems: &[&Problem]) -> String {
    let lines = problems.iter().map(|problem| {
        let mut line = match &problem.node {
            Some(node) => format!("`{node}`: {}", problem.message),
            None => problem.message.clone(),
        };
        for hint in &problem.hints {
            line.push_str("; hint: ");
            line.push_str(hint);
        }
        line
    });
    first(lines.collect())
}

fn first(mut lines: Vec<String>) -> String {
    let more = lines.len().saturating_sub(NAMED);
    lines.truncate(NAMED);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

/// Nodes that something is wrong with, each with why and the cure; the first ones.
pub(crate) fn cases(nodes: &BTreeMap<NodeName, Unreachable>) -> String {
    let lines = by_cause(nodes).into_iter().map(|group| {
        let mut line = match group.node() {
            Some(name) => format!("`{name}`: {}", group.message),
            None => group.message,
        };
        for hint in &group.hints {
            line.push_str("; hint: ");
            line.push_str(hint);
        }
        line
    });
    first(lines.collect())
}

/// Nodes that do not answer, where that is all that is known.
pub(crate) fn unreachable(silent: &BTreeMap<NodeName, Unreachable>, conditions: &mut ConditionSet) {
    let kind = ConditionType::NodesReachable;
    let reason = obstacle(silent.values().map(|down| down.obstacle));
    conditions.set(kind, reason, cases(silent));
}

/// Of several the one that a person has to see to first.
fn obstacle(all: impl Iterator<Item = Obstacle>) -> Reason {
    match all.max().unwrap_or_default() {
        Obstacle::Other | Obstacle::Silence => Reason::Unreachable,
        Obstacle::DockerUnavailable => Reason::DockerUnavailable,
        Obstacle::AddressNotAllowed => Reason::AddressNotAllowed,
        Obstacle::AuthenticationFailed => Reason::AuthenticationFailed,
        Obstacle::HostKeyUnknown => Reason::HostKeyUnknown,
        Obstacle::HostKeyChanged => Reason::HostKeyChanged,
    }
}

fn reachable(status: &Status) -> Outcome {
    let problems = about(status, About::Reachability);
    let silent = |problem: &&&Problem| {
        let node = problem.node.as_ref().and_then(|name| status.node(name));
        node.is_none_or(|node| node.reachable == Some(false))
    };
    let silent: Vec<&Problem> = problems.iter().filter(silent).copied().collect();
    if !silent.is_empty() {
        let reason = obstacle(silent.iter().map(|problem| problem.obstacle));
        outcome(reason, text(&silent))
    } else if problems.is_empty() {
        outcome(Reason::Reachable, "every node answers")
    } else {
        let names = problems.iter().filter_map(|problem| problem.node.as_ref());
        let names = quoted_first(NAMED, names.map(ToString::to_string).collect::<Vec<_>>());
        outcome(Reason::NotYetKnown, format!("not looked at: {names}"))
    }
}

fn serves(status: &Status) -> bool {
    let mut planes = status.control_planes.iter();
    planes.any(|plane| plane.api == ApiState::Serving)
}

/// A running API server that does not serve, or one that is not there.
fn fails(status: &Status) -> bool {
    let mut planes = status.control_planes.iter();
    planes.any(|plane| matches!(plane.api, ApiState::NotServing | ApiState::Missing))
}

fn etcd(status: &Status) -> Outcome {
    if status.cluster.id.is_none() {
        return outcome(Reason::NotYetKnown, NO_CLUSTER);
    }
    let problems = about(status, About::Etcd);
    let stopped = problems
        .iter()
        .filter(|problem| problem.stopped == Some(Component::Etcd))
        .count();
    let voters = status.etcd.voters.max(members(status));
    match status.etcd.quorum {
        QuorumState::External if !serves(status) => {
            let why = if problems.is_empty() {
                format!("etcd is external, and {NO_API}")
            } else {
                text(&problems)
            };
            outcome(Reason::Unreachable, why)
        }
        QuorumState::External if problems.is_empty() => outcome(
            Reason::External,
            "etcd is external: the API reaches it, and its owner knows its health",
        ),
        QuorumState::Lost | QuorumState::Disagree => outcome(Reason::QuorumLost, text(&problems)),
        // No member could be asked; what has ended is known all the same.
        QuorumState::Unknown if stopped > voters.saturating_sub(1) / 2 => {
            outcome(Reason::QuorumLost, text(&problems))
        }
        QuorumState::Unknown => outcome(Reason::Unreachable, text(&problems)),
        QuorumState::Serving if problems.is_empty() => {
            outcome(Reason::Healthy, "every member serves")
        }
        QuorumState::Serving if !status.etcd.alarms.is_empty() => {
            outcome(Reason::AlarmRaised, text(&problems))
        }
        QuorumState::External | QuorumState::Serving => {
            outcome(Reason::MembersDown, text(&problems))
        }
    }
}

/// The nodes that should have a member.
fn members(status: &Status) -> usize {
    let etcd = |node: &&NodeStatus| {
        node.in_cluster && !node.given_up && node.roles.contains(&crate::model::Role::Etcd)
    };
    status.nodes.iter().filter(etcd).count()
}

fn control_plane(status: &Status) -> Outcome {
    if status.cluster.id.is_none() {
        return outcome(Reason::NotYetKnown, NO_CLUSTER);
    }
    let problems = about(status, About::ControlPlane);
    if serves(status) {
        if problems.is_empty() {
            outcome(Reason::Healthy, "every API server answers")
        } else {
            outcome(Reason::ComponentDown, text(&problems))
        }
    } else if fails(status) {
        outcome(Reason::APIServerDown, text(&problems))
    } else {
        outcome(Reason::Unreachable, "the API did not answer")
    }
}

/// Does the cluster serve? By what answers, whatever the spec says.
fn available(status: &Status) -> Outcome {
    if status.cluster.id.is_none() {
        return outcome(Reason::NotYetKnown, NO_CLUSTER);
    }
    if serves(status) {
        return outcome(Reason::Available, "the API answers");
    }
    let (reason, why) = etcd(status);
    if reason == Reason::QuorumLost {
        return outcome(reason, why);
    }
    if fails(status) {
        return outcome(
            Reason::APIServerDown,
            text(&about(status, About::ControlPlane)),
        );
    }
    outcome(Reason::Unreachable, "no control plane answers")
}

fn nodes(status: &Status) -> Outcome {
    if status.cluster.id.is_none() {
        return outcome(Reason::NotYetKnown, NO_CLUSTER);
    }
    let problems = about(status, About::Nodes);
    if !status.api_reports {
        outcome(Reason::Unreachable, NO_API)
    } else if problems.is_empty() {
        outcome(Reason::Healthy, "every node is Ready")
    } else {
        outcome(Reason::NodesNotReady, text(&problems))
    }
}

fn addons(status: &Status) -> Outcome {
    let Some(addons) = &status.addons else {
        let known = status.differences.refusal.is_none();
        return if known {
            outcome(Reason::Unreachable, NO_API)
        } else {
            outcome(Reason::NotYetKnown, NO_CONFIG)
        };
    };
    let missing = addons
        .iter()
        .filter(|addon| matches!(addon.state, AddonState::Missing | AddonState::Incomplete));
    let missing: Vec<String> = missing.map(|addon| addon.name.clone()).collect();
    let waiting = addons
        .iter()
        .filter(|addon| addon.state == AddonState::Waiting);
    let waiting: Vec<String> = waiting
        .map(|addon| match &addon.waits_for {
            Some(workload) => format!("{} ({workload})", addon.name),
            None => addon.name.clone(),
        })
        .collect();
    if !missing.is_empty() {
        let message = format!("not applied: {}", quoted_first(NAMED, missing));
        outcome(Reason::Applying, message)
    } else if !waiting.is_empty() {
        let message = format!("not available yet: {}", quoted_first(NAMED, waiting));
        outcome(Reason::Applying, message)
    } else {
        outcome(Reason::Applied, "every add-on is applied and available")
    }
}

fn certificates(status: &Status) -> Outcome {
    if status.differences.refusal.is_some() {
        return outcome(Reason::NotYetKnown, NO_CONFIG);
    }
    let Some(first) = &status.first_to_end else {
        return outcome(Reason::NotYetKnown, "no certificate was read yet");
    };
    let problems = about(status, About::Certificates);
    let mut message = first.sentence.clone();
    if !first.renewed_on.is_empty() {
        message.push_str("; those that expire soon are renewed on: ");
        message.push_str(&quoted(first.renewed_on.iter()));
    }
    let soon = !first.renewed_on.is_empty() || first.left.as_hours() / 24 < NOTICE_DAYS;
    if first.is_over() {
        outcome(Reason::Expired, message)
    } else if !problems.is_empty() {
        outcome(Reason::AuthorityEnding, text(&problems))
    } else if soon {
        outcome(Reason::ExpiringSoon, message)
    } else {
        outcome(Reason::Valid, message)
    }
}

fn backed_up(status: &Status) -> Outcome {
    let (is, sentence) = &status.backed_up;
    let reason = match is {
        BackedUp::Yes => Reason::BackedUp,
        BackedUp::NotWanted => Reason::Disabled,
        BackedUp::NotYet => Reason::NotYetKnown,
        BackedUp::Unseen => Reason::Unreachable,
        BackedUp::NotTaken => Reason::NotTaken,
        BackedUp::Overdue => Reason::Overdue,
        BackedUp::Unproven => Reason::Unproven,
    };
    outcome(reason, sentence)
}

fn up_to_date(status: &Status) -> Outcome {
    let differences = &status.differences;
    if differences.refusal.is_some() {
        return outcome(Reason::NotYetKnown, NO_CONFIG);
    }
    let waits = differences.waits.as_ref();
    let waits = waits.map(|waits| format!("left as it is for now:\n{waits}"));
    let also = |message: String| match &waits {
        Some(waits) => format!("{message}\n{waits}"),
        None => message,
    };
    if let Some(waits) = waits.as_ref().filter(|_| differences.rolled_back) {
        return outcome(Reason::RolledBack, waits.clone());
    }
    if let Some(drift) = &differences.drift {
        return outcome(Reason::Drifted, also(drift.clone()));
    }
    if let Some(unasked) = &differences.unasked {
        let message = format!(
            "these changes were not asked for, so they wait; an edit of the config lets them:\n{unasked}"
        );
        return outcome(Reason::UpdateAvailable, also(message));
    }
    if let Some(waits) = waits {
        return outcome(Reason::HeldBack, waits);
    }
    let mut silent = status
        .nodes
        .iter()
        .filter(|node| node.in_config && node.reachable != Some(true));
    match silent.next() {
        Some(NodeStatus { name, .. }) => outcome(
            Reason::Unreachable,
            format!("node `{name}` does not answer, so it cannot be compared with the spec"),
        ),
        None => outcome(Reason::UpToDate, "the nodes match the spec"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorClass, Obstacle};

    /// What a person has to see to is not hidden by a node that is merely off.
    #[test]
    fn the_reason_is_what_a_person_has_to_see_to_first() {
        use Obstacle as O;
        for (all, reason) in [
            (&[O::Silence][..], Reason::Unreachable),
            (&[O::Other, O::Silence], Reason::Unreachable),
            (
                &[O::Silence, O::DockerUnavailable],
                Reason::DockerUnavailable,
            ),
            (&[O::AddressNotAllowed], Reason::AddressNotAllowed),
            (
                &[O::AuthenticationFailed, O::Silence],
                Reason::AuthenticationFailed,
            ),
            (
                &[O::HostKeyUnknown, O::AuthenticationFailed],
                Reason::HostKeyUnknown,
            ),
            (
                &[O::HostKeyUnknown, O::HostKeyChanged, O::Other],
                Reason::HostKeyChanged,
            ),
        ] {
            assert_eq!(obstacle(all.iter().copied()), reason, "{all:?}");
        }
    }

    /// A message has an end, whatever has happened to how many nodes.
    #[test]
    fn the_first_nodes_are_named_and_the_rest_is_counted() {
        let silent = |number: usize| -> BTreeMap<NodeName, Unreachable> {
            let down = Unreachable {
                alike: None,
                obstacle: Obstacle::Silence,
                class: ErrorClass::Host,
                why: "it is off".to_owned(),
                hints: vec!["turn it on".to_owned()],
            };
            let names = (1..=number).map(|at| NodeName(format!("n{at:03}")));
            names.map(|name| (name, down.clone())).collect()
        };
        let all = cases(&silent(NAMED));
        assert_eq!(all.lines().count(), NAMED);
        assert_eq!(
            all.lines().next(),
            Some("`n001`: it is off; hint: turn it on")
        );
        let some = cases(&silent(NAMED + 2));
        assert_eq!(some.lines().count(), NAMED + 1);
        assert_eq!(some.lines().last(), Some("and 2 more"));
    }
}
