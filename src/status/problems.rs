//! What is not well with a cluster, whatever its config says. Pure.

use serde::Serialize;

use super::{
    Seen,
    certificates::{Authority, authorities},
    etcd::{EtcdStatus, MemberKind, QuorumState},
    nodes::NodeStatus,
};
use crate::{
    actual::{ApiHealth, ContainerState, HostView},
    etcd::ExternalView,
    model::{ClusterId, Component, NodeName, label},
};

/// Before its end an authority, which nothing makes anew, is a problem.
const NOTICE_DAYS: i64 = 90;

/// One thing that is not well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// On which node, if on one.
    pub node: Option<NodeName>,
    /// What.
    pub message: String,
    /// The cures that are known.
    pub hints: Vec<String>,
}

impl Problem {
    fn cluster(message: impl Into<String>) -> Self {
        Self {
            node: None,
            message: message.into(),
            hints: Vec::new(),
        }
    }

    fn on(node: &NodeName, message: impl Into<String>) -> Self {
        Self {
            node: Some(node.clone()),
            ..Self::cluster(message)
        }
    }
}

pub(super) fn problems(seen: &Seen<'_>, nodes: &[NodeStatus], etcd: &EtcdStatus) -> Vec<Problem> {
    let Some(saved) = seen.actual.saved.as_deref() else {
        return unreachable(seen);
    };
    let mut problems = unreachable(seen);
    problems.extend(apis(seen));
    problems.extend(members(seen, etcd));
    problems.extend(stopped(seen, &saved.cluster_id));
    problems.extend(nodes.iter().filter_map(|node| not_ready(seen, node)));
    problems.extend(nodes.iter().filter_map(expired));
    let authorities = authorities(saved, seen.now);
    problems.extend(authorities.iter().filter_map(ends));
    problems
}

fn unreachable(seen: &Seen<'_>) -> Vec<Problem> {
    let hosts = seen.actual.hosts.iter();
    hosts
        .filter_map(|(name, view)| match view {
            HostView::Reachable(_) => None,
            HostView::Unreachable(down) => Some(Problem {
                node: Some(name.clone()),
                message: down.why.clone(),
                hints: down.hints.clone(),
            }),
        })
        .collect()
}

fn apis(seen: &Seen<'_>) -> Vec<Problem> {
    let apis = seen.actual.apis.iter();
    let down = apis.filter_map(|(name, api)| match api {
        ApiHealth::Serving => None,
        ApiHealth::Unreachable(why) => {
            let message = format!("its API server does not serve: {why}");
            Some(Problem::on(name, message))
        }
    });
    down.collect()
}

/// etcd without a quorum is one problem; with one, each member that does not follow is one.
fn members(seen: &Seen<'_>, etcd: &EtcdStatus) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (healthy, voters) = (etcd.healthy_voters, etcd.voters);
    match etcd.quorum {
        QuorumState::Serving => {}
        QuorumState::External => problems.extend(external(seen)),
        QuorumState::Lost => problems.push(Problem::cluster(format!(
            "etcd has no quorum: no member reaches more than half of the {voters} that vote"
        ))),
        QuorumState::Disagree => problems.push(Problem::cluster(
            "etcd's members do not agree on one leader",
        )),
        QuorumState::Unknown => {
            problems.push(Problem::cluster("no member of etcd could be asked"));
        }
    }
    if etcd.quorum == QuorumState::Serving && healthy < voters && healthy <= voters / 2 + 1 {
        problems.push(Problem::cluster(format!(
            "etcd would lose its quorum with one more member: {healthy} of {voters} follow the \
             leader"
        )));
    }
    for member in &etcd.members {
        let name = if member.name.is_empty() {
            &member.id
        } else {
            &member.name
        };
        let problem = match (&member.node, member.kind) {
            (None, _) => Some(Problem::cluster(format!(
                "member `{name}` of etcd is on no node of this cluster"
            ))),
            (Some(node), MemberKind::Learner) => Some(Problem::on(
                node,
                "its member of etcd follows only and has no vote yet",
            )),
            (Some(node), MemberKind::Voter)
                if !member.healthy && etcd.quorum == QuorumState::Serving =>
            {
                let why = seen.actual.etcd.silent.get(node);
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let message = format!("its member of etcd does not follow the leader{why}");
                Some(Problem::on(node, message))
            }
            (Some(_), MemberKind::Voter) => None,
        };
        problems.extend(problem);
    }
    let without = etcd.nodes_without_member.iter();
    problems.extend(without.map(|node| Problem::on(node, "it has no member of etcd")));
    problems.extend(
        seen.actual
            .etcd
            .problems()
            .into_iter()
            .map(Problem::cluster),
    );
    problems
}

/// An external etcd that cannot be used, and its members that do not answer.
fn external(seen: &Seen<'_>) -> Vec<Problem> {
    match seen.actual.etcd.external() {
        Some(ExternalView::Faulty(fault)) => vec![Problem {
            hints: fault.hints.clone(),
            ..Problem::cluster(fault.why.clone())
        }],
        Some(view) => view
            .silent_members()
            .into_iter()
            .map(Problem::cluster)
            .collect(),
        None => Vec::new(),
    }
}

/// Components of ours that are there and do not run.
fn stopped(seen: &Seen<'_>, id: &ClusterId) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in seen.actual.hosts.keys() {
        let Some(facts) = seen.actual.up(name) else {
            continue;
        };
        for component in Component::ALL.map(Component::container) {
            let Some(fact) = facts.containers.get(component) else {
                continue;
            };
            if fact.labels.get(label::CLUSTER_ID) != Some(&id.0) {
                continue;
            }
            let how = match fact.state {
                ContainerState::Running => continue,
                ContainerState::Created => "was never started".to_owned(),
                ContainerState::Restarting(code) => {
                    format!("is restarted again and again; its last exit code is {code}")
                }
                ContainerState::Exited(code) => format!("has ended with exit code {code}"),
                ContainerState::Other => "does not run".to_owned(),
            };
            problems.push(Problem::on(name, format!("container `{component}` {how}")));
        }
    }
    problems
}

fn not_ready(seen: &Seen<'_>, node: &NodeStatus) -> Option<Problem> {
    // What the API does not say is no problem of the node.
    seen.actual.cluster.as_ref()?;
    if !node.in_cluster {
        return None;
    }
    match node.ready {
        Some(true) => None,
        Some(false) => {
            let why = node.not_ready_reason.as_deref().unwrap_or_default();
            let message = format!("is not Ready: {why}");
            Some(Problem::on(&node.name, message))
        }
        None => Some(Problem::on(&node.name, "has no Node object in the API")),
    }
}

fn expired(node: &NodeStatus) -> Option<Problem> {
    let first = node.first_certificate_to_end.as_ref()?;
    (first.days_left < 0).then(|| {
        let message = format!("its certificate `{}` has expired", first.name);
        Problem {
            hints: vec!["`rke-operator up` makes it anew".to_owned()],
            ..Problem::on(&node.name, message)
        }
    })
}

fn ends(authority: &Authority) -> Option<Problem> {
    let Authority { end } = authority;
    (end.days_left < NOTICE_DAYS).then(|| {
        let (name, days) = (&end.name, end.days_left);
        Problem::cluster(format!(
            "{name} ends in {days} days, and `up` does not make it anew"
        ))
    })
}
