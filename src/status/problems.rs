//! Why a cluster is unhealthy or degraded, whatever its config says. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    FirstToEnd, Seen,
    addons::{AddonState, AddonStatus},
    certificates::{Authority, authorities},
    etcd::{EtcdStatus, MemberKind, QuorumState},
    nodes::NodeStatus,
    snapshots, traffic,
};
use crate::{
    error::Obstacle,
    etcd::{ExternalView, room},
    facts::{ApiHealth, ContainerState, Unreachable},
    model::{ClusterId, Component, NodeName, Role},
    state::Membership,
};

/// How long before its expiry a certificate authority, which `up` does not renew, is a problem.
const NOTICE_DAYS: i64 = 90;

/// What a problem is about. There is a condition for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum About {
    /// A node that does not answer.
    Reachability,
    /// etcd.
    Etcd,
    /// API servers, controller managers, schedulers.
    ControlPlane,
    /// Nodes of the cluster, their kubelets and proxies.
    Nodes,
    /// Add-ons.
    Addons,
    /// Certificates.
    Certificates,
    /// Recurring snapshots of etcd.
    Snapshots,
}

/// A problem of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StatusProblem")]
pub struct Problem {
    /// What it is about.
    pub about: About,
    /// The node; null if it is about the whole cluster.
    pub node: Option<NodeName>,
    /// The component that does not run, if it is that.
    #[serde(skip)]
    pub stopped: Option<Component>,
    /// What keeps us from the node, if it is about that.
    #[serde(skip)]
    pub obstacle: Obstacle,
    /// Why the node does not answer, if it is that: people read one cause of several nodes once.
    #[serde(skip)]
    pub down: Option<Unreachable>,
    /// The problem.
    pub message: String,
    /// What to do about it, most likely cure first.
    pub hints: Vec<String>,
}

impl Problem {
    pub(super) fn cluster(about: About, message: impl Into<String>) -> Self {
        Self {
            about,
            node: None,
            stopped: None,
            obstacle: Obstacle::Other,
            down: None,
            message: message.into(),
            hints: Vec::new(),
        }
    }

    pub(super) fn on(about: About, node: &NodeName, message: impl Into<String>) -> Self {
        Self {
            node: Some(node.clone()),
            ..Self::cluster(about, message)
        }
    }
}

/// What of a status was made before.
pub(super) struct Parts<'a> {
    pub(super) nodes: &'a [NodeStatus],
    pub(super) etcd: &'a EtcdStatus,
    pub(super) addons: &'a [AddonStatus],
    pub(super) first_to_end: Option<&'a FirstToEnd>,
}

pub(super) fn problems(seen: &Seen<'_>, parts: &Parts<'_>) -> Vec<Problem> {
    let Parts {
        nodes,
        etcd,
        addons,
        first_to_end,
    } = parts;
    let Some(saved) = seen.actual.saved.as_deref() else {
        return unreachable(seen);
    };
    let mut problems = unreachable(seen);
    problems.extend(nodes.iter().filter_map(|node| unseen(seen, node)));
    problems.extend(apis(seen));
    problems.extend(members(seen, etcd));
    for node in nodes.iter().filter(|node| node.in_cluster) {
        problems.extend(components(seen, node, &saved.cluster_id));
    }
    problems.extend(nodes.iter().filter_map(|node| not_ready(seen, node)));
    problems.extend(snapshots::problems(seen));
    problems.extend(traffic(seen));
    problems.extend(addons.iter().filter_map(addon));
    problems.extend(nodes.iter().filter_map(|node| expired(seen, node)));
    let authorities = authorities(saved, seen.now);
    problems.extend(authorities.iter().filter_map(ends));
    problems.extend(over(*first_to_end, &problems));
    problems
}

fn unreachable(seen: &Seen<'_>) -> Vec<Problem> {
    let saved = seen.actual.saved.as_ref();
    let silent = seen.actual.unreachable();
    // What was given up is looked for before a removal only, and is no problem.
    let silent = silent.filter(|(name, _)| !saved.is_some_and(|saved| saved.is_lost(name)));
    let down = silent.map(|(name, down)| Problem {
        hints: down.hints.clone(),
        obstacle: down.obstacle,
        down: Some(down.clone()),
        ..Problem::on(About::Reachability, name, down.why.clone())
    });
    down.collect()
}

/// A node of the cluster that was not looked for.
fn unseen(seen: &Seen<'_>, node: &NodeStatus) -> Option<Problem> {
    let ours = (node.in_config || node.in_cluster) && !node.given_up;
    let asked = seen.actual.hosts.contains_key(&node.name);
    (ours && !asked).then(|| Problem::on(About::Reachability, &node.name, "was not looked at"))
}

fn apis(seen: &Seen<'_>) -> Vec<Problem> {
    let apis = seen.actual.apis.iter();
    let down = apis.filter_map(|(name, api)| match api {
        ApiHealth::Serving => None,
        ApiHealth::Unreachable(why) => {
            let message = format!("its API server does not serve: {why}");
            Some(Problem::on(About::ControlPlane, name, message))
        }
    });
    let untold = seen.actual.untold.iter().map(|why| {
        let message = format!("no API server reports what the cluster has: {why}");
        Problem::cluster(About::ControlPlane, message)
    });
    down.chain(untold).collect()
}

/// etcd without a quorum is one problem; with one, each member that does not follow is one.
fn members(seen: &Seen<'_>, etcd: &EtcdStatus) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (healthy, voters) = (etcd.healthy_voters, etcd.voters);
    match etcd.quorum {
        QuorumState::Serving => {}
        QuorumState::External => problems.extend(external(seen)),
        QuorumState::Lost => problems.push(Problem::cluster(
            About::Etcd,
            format!("etcd has no quorum: no member reaches more than half of the {voters} voters"),
        )),
        QuorumState::Disagree => problems.push(Problem::cluster(
            About::Etcd,
            "etcd's members do not agree on one leader",
        )),
        QuorumState::Unknown => {
            problems.push(Problem::cluster(
                About::Etcd,
                "no member of etcd could be asked",
            ));
        }
    }
    if etcd.quorum == QuorumState::Serving && healthy < voters && healthy <= voters / 2 + 1 {
        problems.push(Problem::cluster(
            About::Etcd,
            format!(
                "etcd would lose its quorum with one more member: {healthy} of {voters} follow the \
             leader"
            ),
        ));
    }
    for member in &etcd.members {
        let name = if member.name.is_empty() {
            &member.id
        } else {
            &member.name
        };
        let problem = match (&member.node, member.kind) {
            (None, _) => Some(Problem::cluster(
                About::Etcd,
                format!("etcd member `{name}` is on no node of this cluster"),
            )),
            (Some(node), MemberKind::Learner) => Some(Problem::on(
                About::Etcd,
                node,
                "its etcd member is a learner and has no vote yet",
            )),
            (Some(node), MemberKind::Voter)
                if !member.healthy && etcd.quorum == QuorumState::Serving =>
            {
                let why = seen.actual.etcd.silent.get(node);
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let message = format!("its member of etcd does not follow the leader{why}");
                Some(Problem::on(About::Etcd, node, message))
            }
            (Some(_), MemberKind::Voter) => None,
        };
        problems.extend(problem);
    }
    let without = etcd.nodes_without_member.iter();
    problems.extend(without.map(|node| Problem::on(About::Etcd, node, "it has no member of etcd")));
    let view = &seen.actual.etcd;
    // Said once.
    let mut cures = room::cures(view);
    problems.extend(view.faults().into_iter().map(|fault| {
        let hints = if fault.lacks_room {
            std::mem::take(&mut cures)
        } else {
            Vec::new()
        };
        Problem {
            hints,
            ..Problem::cluster(About::Etcd, fault.what)
        }
    }));
    problems
}

/// An external etcd that cannot be used, and its members that do not answer.
fn external(seen: &Seen<'_>) -> Vec<Problem> {
    match seen.actual.etcd.external() {
        Some(ExternalView::Faulty(fault)) => vec![Problem {
            hints: fault.hints.clone(),
            ..Problem::cluster(About::Etcd, fault.why.clone())
        }],
        Some(view) => view
            .silent_members()
            .into_iter()
            .map(|message| Problem::cluster(About::Etcd, message))
            .collect(),
        None => Vec::new(),
    }
}

/// Components of a node that do not run: the cluster's that are there, and those that its roles ask
/// for and that are not there.
fn components(seen: &Seen<'_>, node: &NodeStatus, id: &ClusterId) -> Vec<Problem> {
    let Some(facts) = seen.actual.up(&node.name) else {
        return Vec::new();
    };
    // On its way in or out it has what is left to do.
    let entry = seen.actual.saved.as_ref();
    let entry = entry.and_then(|saved| saved.inventory.get(&node.name));
    let settled = entry.is_some_and(|entry| entry.membership == Membership::Active);
    let own_etcd = seen.actual.etcd.external().is_none();
    let mut problems = Vec::new();
    for component in Component::ALL {
        let name = component.container();
        let how = match facts.containers.get(name) {
            None if settled && must_run(component, node, own_etcd) => {
                format!("container `{name}` is missing")
            }
            None => continue,
            Some(fact) if !fact.is_of(id) => continue,
            Some(fact) => match fact.state {
                ContainerState::Running => continue,
                ContainerState::Created => format!("container `{name}` was never started"),
                ContainerState::Restarting(code) => format!(
                    "container `{name}` is restarted again and again; its last exit code is {code}"
                ),
                ContainerState::Exited(code) => {
                    format!("container `{name}` has exited with code {code}")
                }
                ContainerState::Other => format!("container `{name}` does not run"),
            },
        };
        problems.push(Problem {
            stopped: Some(component),
            ..Problem::on(about(component), &node.name, how)
        });
    }
    problems
}

const fn about(component: Component) -> About {
    match component {
        Component::Etcd => About::Etcd,
        Component::Snapshots => About::Snapshots,
        Component::ApiServer | Component::ControllerManager | Component::Scheduler => {
            About::ControlPlane
        }
        Component::NginxProxy | Component::Kubelet | Component::KubeProxy => About::Nodes,
    }
}

fn must_run(component: Component, node: &NodeStatus, own_etcd: bool) -> bool {
    match component {
        Component::Etcd => own_etcd && node.roles.contains(&Role::Etcd),
        Component::ApiServer | Component::ControllerManager | Component::Scheduler => {
            node.roles.contains(&Role::ControlPlane)
        }
        Component::Kubelet => true,
        // Whether it has them is not for its roles alone to say.
        Component::NginxProxy | Component::KubeProxy | Component::Snapshots => false,
    }
}

fn not_ready(seen: &Seen<'_>, node: &NodeStatus) -> Option<Problem> {
    // What the API does not say is no problem of the node.
    seen.actual.cluster.as_ref()?;
    if !node.in_cluster || node.given_up {
        return None;
    }
    match node.ready {
        Some(true) => None,
        Some(false) => {
            let why = node.not_ready_reason.as_deref().unwrap_or_default();
            let message = if why.is_empty() {
                "is not Ready".to_owned()
            } else {
                format!("is not Ready: {why}")
            };
            Some(Problem::on(About::Nodes, &node.name, message))
        }
        None => {
            let message = "has no Node object in the API";
            Some(Problem::on(About::Nodes, &node.name, message))
        }
    }
}

/// What pods of one node send to those of another, and does not arrive.
fn traffic(seen: &Seen<'_>) -> Vec<Problem> {
    let missing = traffic::missing(seen.actual, seen.desired).into_iter();
    let missing = missing.map(|(node, case)| Problem {
        hints: case.hints,
        ..Problem::on(About::Nodes, &node, case.why)
    });
    missing.collect()
}

/// What the config wants is missed where it is not there, whether or not it ever was.
fn addon(addon: &AddonStatus) -> Option<Problem> {
    let name = &addon.name;
    let message = match (addon.state, &addon.waits_for) {
        (AddonState::Available, _) => return None,
        (AddonState::Missing, _) => format!("add-on `{name}` is not applied"),
        (AddonState::Incomplete, _) => format!("parts of add-on `{name}` are missing"),
        (AddonState::Waiting, Some(workload)) => {
            format!("add-on `{name}` is not available: {workload}")
        }
        (AddonState::Waiting, None) => format!("add-on `{name}` is not available"),
    };
    Some(Problem::cluster(About::Addons, message))
}

fn expired(seen: &Seen<'_>, node: &NodeStatus) -> Option<Problem> {
    let first = node.first_certificate_to_end.as_ref()?;
    (first.not_after <= seen.now).then(|| {
        let message = format!("its certificate `{}` has expired", first.name);
        Problem {
            hints: vec![
                "`rke-operator up` (of a `Cluster`: its next reconcile) renews it".to_owned(),
            ],
            ..Problem::on(About::Certificates, &node.name, message)
        }
    })
}

fn ends(authority: &Authority) -> Option<Problem> {
    let Authority { end } = authority;
    (end.days_left < NOTICE_DAYS).then(|| {
        let (name, days) = (&end.name, end.days_left);
        let message = format!("{name} expires in {days} days, and is not renewed automatically");
        Problem {
            hints: vec![
                "to replace it: `rke-operator cert rotate --rotate-ca` (of a `Cluster`: the runbook \
                 RkeCertificateExpiring has the way)"
                    .to_owned(),
            ],
            ..Problem::cluster(About::Certificates, message)
        }
    })
}

/// A certificate that is over and lies on no node: the administrator's.
fn over(first: Option<&FirstToEnd>, others: &[Problem]) -> Option<Problem> {
    let told = others.iter().any(|one| one.about == About::Certificates);
    let first = first.filter(|first| first.is_over() && !told)?;
    Some(Problem::cluster(
        About::Certificates,
        first.sentence.clone(),
    ))
}
