//! What a survey says about a cluster, as conditions. Pure: facts in, conditions out.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    actual::{
        Actual, ApiView, ClusterFacts, ContainerState, HostView, Rollout, Unreachable, rollout,
    },
    api::{
        ApiEndpoint, CertificateStatus, NodeCounts,
        conditions::{ConditionSet, ConditionStatus, ConditionType, Reason},
    },
    config::Intent,
    desired::Desired,
    etcd::ExternalView,
    model::{NodeName, ObjectRef, Role, quoted_first},
    plan::{Plan, Step},
    state::{ClusterState, Membership},
};

#[cfg(test)]
mod tests;

/// How many cases a message names.
const NAMED: usize = 20;

/// How many API servers the status names.
const ENDPOINTS: usize = 10;

/// The nodes that are judged: those of the config, or of the saved inventory where there is no
/// config that can be understood.
pub(super) struct Members(BTreeMap<NodeName, Member>);

struct Member {
    address: String,
    roles: BTreeSet<Role>,
}

impl From<&Intent> for Members {
    fn from(intent: &Intent) -> Self {
        let member = |(name, node): (&NodeName, &crate::config::NodeIntent)| {
            let member = Member {
                address: node.endpoint.address.clone(),
                roles: node.roles.clone(),
            };
            (name.clone(), member)
        };
        Self(intent.nodes.iter().map(member).collect())
    }
}

impl From<&ClusterState> for Members {
    fn from(saved: &ClusterState) -> Self {
        let member = |(name, entry): (&NodeName, &crate::state::InventoryEntry)| {
            let member = Member {
                address: entry.endpoint.address.clone(),
                roles: entry.roles.iter().copied().collect(),
            };
            (name.clone(), member)
        };
        let entries = saved.inventory.iter();
        let there = entries.filter(|(_, entry)| entry.membership != Membership::Lost);
        Self(there.map(member).collect())
    }
}

impl Members {
    fn with_role(&self, role: Role) -> impl Iterator<Item = (&NodeName, &Member)> {
        self.0
            .iter()
            .filter(move |(_, member)| member.roles.contains(&role))
    }
}

/// The printed part of a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) cluster_id: Option<String>,
    pub(super) version: Option<String>,
    pub(super) nodes: Option<NodeCounts>,
    pub(super) endpoints: Vec<ApiEndpoint>,
    pub(super) certificates: Option<CertificateStatus>,
}

/// What a survey found about the nodes and the cluster. `desired` and `plan` are what a survey
/// towards a config has; without them nothing is said about add-ons and differences.
pub(super) fn probe(
    members: &Members,
    actual: &Actual,
    desired: Option<&Desired>,
    plan: Option<&Plan>,
) -> (ConditionSet, Facts) {
    let mut conditions = ConditionSet::new();
    reachable(members, actual, &mut conditions);
    etcd(members, actual, &mut conditions);
    control_plane(members, actual, &mut conditions);
    available(members, actual, &mut conditions);
    nodes(members, actual, &mut conditions);
    match (desired, plan) {
        (Some(desired), Some(plan)) => {
            addons(desired, actual, &mut conditions);
            up_to_date(members, actual, plan, &mut conditions);
        }
        (_, _) => {
            for kind in [
                ConditionType::AddonsApplied,
                ConditionType::CertificatesValid,
                ConditionType::UpToDate,
            ] {
                conditions.set(
                    kind,
                    Reason::NotYetKnown,
                    "there is no valid config to compare with",
                );
            }
        }
    }
    (conditions, facts(members, actual, plan))
}

fn facts(members: &Members, actual: &Actual, plan: Option<&Plan>) -> Facts {
    let api = api_facts(actual);
    let count = |holds: &dyn Fn(&NodeName) -> bool| {
        let count = members.0.keys().filter(|name| holds(name)).count();
        i64::try_from(count).unwrap_or(i64::MAX)
    };
    let differs = |name: &NodeName| {
        plan.is_none_or(|plan| {
            plan.steps()
                .any(|step| step.node() == Some(name) && !step.action.is_wait())
        })
    };
    let nodes = NodeCounts {
        total: count(&|_| true),
        ready: count(&|name| {
            api.and_then(|api| api.nodes.get(name))
                .is_some_and(|node| node.ready)
        }),
        up_to_date: count(&|name| actual.up(name).is_some() && !differs(name)),
        unreachable: count(&|name| {
            matches!(actual.hosts.get(name), Some(HostView::Unreachable(_)))
        }),
    };
    let endpoints = members
        .with_role(Role::ControlPlane)
        .take(ENDPOINTS)
        .map(|(name, member)| ApiEndpoint {
            url: format!("https://{}", bracketed(&member.address)),
            node: name.0.clone(),
        });
    Facts {
        cluster_id: actual
            .saved
            .as_ref()
            .map(|saved| saved.cluster_id.0.clone()),
        version: api.map(|api| api.version.clone()),
        nodes: Some(nodes),
        endpoints: endpoints.collect(),
        certificates: None,
    }
}

/// `4/5`, for the column.
pub(super) fn node_summary(nodes: NodeCounts) -> String {
    format!("{}/{}", nodes.ready, nodes.total)
}

fn bracketed(address: &str) -> String {
    if address.contains(':') {
        format!("[{address}]:6443")
    } else {
        format!("{address}:6443")
    }
}

fn api_facts(actual: &Actual) -> Option<&ClusterFacts> {
    match actual.api() {
        ApiView::Up(facts) => Some(facts),
        ApiView::Unknown | ApiView::Unreachable(_) => None,
    }
}

fn reachable(members: &Members, actual: &Actual, conditions: &mut ConditionSet) {
    let mut silent = BTreeMap::new();
    let mut unseen = Vec::new();
    for name in members.0.keys() {
        match actual.hosts.get(name) {
            Some(HostView::Reachable(_)) => {}
            Some(HostView::Unreachable(why)) => {
                silent.insert(name.clone(), why.clone());
            }
            None => unseen.push(name.to_string()),
        }
    }
    let kind = ConditionType::NodesReachable;
    if !silent.is_empty() {
        unreachable(&silent, conditions);
    } else if unseen.is_empty() {
        conditions.set(kind, Reason::Reachable, "every node answers");
    } else {
        let message = format!("not looked at: {}", quoted_first(NAMED, unseen));
        conditions.set(kind, Reason::NotYetKnown, message);
    }
}

/// Nodes that do not answer, each with its cure.
pub(super) fn unreachable(silent: &BTreeMap<NodeName, Unreachable>, conditions: &mut ConditionSet) {
    let kind = ConditionType::NodesReachable;
    conditions.set(kind, Reason::Unreachable, cases(silent));
}

/// Nodes that something is wrong with, each with why and the cure; the first ones.
pub(super) fn cases(nodes: &BTreeMap<NodeName, Unreachable>) -> String {
    let cases = nodes.iter().map(|(name, why)| {
        let mut text = why.why.clone();
        for hint in &why.hints {
            text.push_str("; hint: ");
            text.push_str(hint);
        }
        (name.clone(), text)
    });
    worst(&cases.collect())
}

/// The first cases, each on a line.
fn worst(cases: &BTreeMap<NodeName, String>) -> String {
    let mut lines: Vec<String> = cases
        .iter()
        .take(NAMED)
        .map(|(name, why)| format!("`{name}`: {why}"))
        .collect();
    if cases.len() > NAMED {
        lines.push(format!("and {} more", cases.len() - NAMED));
    }
    lines.join("\n")
}

/// Components that do not run, on hosts that answer; and hosts that do not answer.
fn components(
    members: &Members,
    actual: &Actual,
    role: Role,
    names: &[&str],
) -> (BTreeMap<NodeName, String>, Vec<NodeName>) {
    let mut stopped = BTreeMap::new();
    let mut unknown = Vec::new();
    for (node, _) in members.with_role(role) {
        let Some(facts) = actual.up(node) else {
            unknown.push(node.clone());
            continue;
        };
        for name in names {
            let state = facts.containers.get(*name).map(|container| container.state);
            let why = match state {
                Some(ContainerState::Running) => continue,
                Some(ContainerState::Created) => format!("{name} was never started"),
                Some(ContainerState::Restarting(code)) => {
                    format!(
                        "{name} keeps ending with code {code}: `docker logs {name}` on the node tells why"
                    )
                }
                Some(ContainerState::Exited(code)) => format!("{name} ended with code {code}"),
                Some(ContainerState::Other) => format!("{name} is paused or being removed"),
                None => format!("{name} is not there"),
            };
            stopped.entry(node.clone()).or_insert(why);
        }
    }
    (stopped, unknown)
}

/// A container that runs is not yet a member with quorum; an API that answers `/readyz` has
/// asked etcd.
fn etcd(members: &Members, actual: &Actual, conditions: &mut ConditionSet) {
    let kind = ConditionType::EtcdHealthy;
    if let Some(view) = actual.etcd.external() {
        let (reason, message) = match (actual.api(), view) {
            (ApiView::Up(_), _) => (
                Reason::External,
                "etcd is external: the API has asked it, and those who run it know how it is"
                    .to_owned(),
            ),
            (ApiView::Unreachable(_) | ApiView::Unknown, ExternalView::Faulty(fault)) => {
                (Reason::Unreachable, fault.why.clone())
            }
            (
                ApiView::Unreachable(_) | ApiView::Unknown,
                ExternalView::Answered { .. } | ExternalView::NotAsked,
            ) => (
                Reason::Unreachable,
                "etcd is external, and no API server answers that could tell".to_owned(),
            ),
        };
        conditions.set(kind, reason, message);
        return;
    }
    let (stopped, unknown) = components(members, actual, Role::Etcd, &["etcd"]);
    let all = members.with_role(Role::Etcd).count();
    let quorum = all / 2 + 1;
    let running = all.saturating_sub(stopped.len() + unknown.len());
    if running + unknown.len() < quorum {
        conditions.set(kind, Reason::QuorumLost, worst(&stopped));
        return;
    }
    match actual.api() {
        ApiView::Up(_) if stopped.is_empty() && unknown.is_empty() => {
            conditions.set(kind, Reason::Healthy, "every member serves");
        }
        ApiView::Up(_) => {
            let silent = unknown
                .into_iter()
                .map(|node| (node, "does not answer".to_owned()));
            let cases = stopped.into_iter().chain(silent).collect();
            let message = format!("has its quorum without:\n{}", worst(&cases));
            conditions.set(kind, Reason::MembersDown, message);
        }
        ApiView::Unreachable(_) | ApiView::Unknown => {
            conditions.set(
                kind,
                Reason::Unreachable,
                "no API server answers that could tell",
            );
        }
    }
}

fn control_plane(members: &Members, actual: &Actual, conditions: &mut ConditionSet) {
    let kind = ConditionType::ControlPlaneHealthy;
    let names = [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ];
    let (stopped, _) = components(members, actual, Role::ControlPlane, &names);
    match actual.api() {
        ApiView::Up(_) if stopped.is_empty() => {
            conditions.set(kind, Reason::Healthy, "the API answers");
        }
        ApiView::Up(_) | ApiView::Unknown if !stopped.is_empty() => {
            conditions.set(kind, Reason::ComponentDown, worst(&stopped));
        }
        ApiView::Up(_) | ApiView::Unknown => {
            conditions.set(kind, Reason::Unreachable, "the API could not be asked");
        }
        ApiView::Unreachable(why) => {
            let message = format!("the API does not answer: {why}");
            conditions.set(kind, Reason::APIServerDown, message);
        }
    }
}

/// Does the cluster serve? Judged by what answers, whatever the spec says.
fn available(members: &Members, actual: &Actual, conditions: &mut ConditionSet) {
    let kind = ConditionType::Available;
    if let ApiView::Up(_) = actual.api() {
        conditions.set(kind, Reason::Available, "the API answers");
        return;
    }
    let etcd = conditions.get(ConditionType::EtcdHealthy);
    if let Some(etcd) = etcd.filter(|etcd| etcd.reason == Reason::QuorumLost) {
        let message = etcd.message.clone();
        conditions.set(kind, Reason::QuorumLost, message);
        return;
    }
    let (stopped, silent) = components(members, actual, Role::ControlPlane, &["kube-apiserver"]);
    match actual.api() {
        ApiView::Unreachable(why) => {
            let message = format!("the API does not answer: {why}");
            conditions.set(kind, Reason::APIServerDown, message);
        }
        ApiView::Up(_) | ApiView::Unknown if silent.is_empty() && !stopped.is_empty() => {
            conditions.set(kind, Reason::APIServerDown, worst(&stopped));
        }
        ApiView::Up(_) | ApiView::Unknown => {
            let message = "no control plane answers that could tell";
            conditions.set(kind, Reason::Unreachable, message);
        }
    }
}

fn nodes(members: &Members, actual: &Actual, conditions: &mut ConditionSet) {
    let kind = ConditionType::NodesHealthy;
    let Some(api) = api_facts(actual) else {
        conditions.set(
            kind,
            Reason::Unreachable,
            "no API server answers that could tell",
        );
        return;
    };
    let mut bad = BTreeMap::new();
    for name in members.0.keys() {
        match api.nodes.get(name) {
            Some(node) if node.ready => {}
            Some(node) => {
                bad.insert(name.clone(), format!("not Ready: {}", node.message));
            }
            None => {
                bad.insert(name.clone(), "is not in the cluster".to_owned());
            }
        }
    }
    if bad.is_empty() {
        conditions.set(kind, Reason::Healthy, "every node is Ready");
    } else {
        conditions.set(kind, Reason::NodesNotReady, worst(&bad));
    }
}

fn addons(desired: &Desired, actual: &Actual, conditions: &mut ConditionSet) {
    let kind = ConditionType::AddonsApplied;
    let Some(api) = api_facts(actual) else {
        conditions.set(
            kind,
            Reason::Unreachable,
            "no API server answers that could tell",
        );
        return;
    };
    let mut missing = Vec::new();
    let mut waiting = Vec::new();
    for addon in &desired.addons {
        if addon.objects.keys().any(|o| !api.objects.contains_key(o)) {
            missing.push(addon.name.clone());
        } else if let Some(workload) = addon.workloads.iter().find(|w| !serves(api, w)) {
            waiting.push(format!("{} ({workload})", addon.name));
        }
    }
    for want in &desired.charts {
        let name = &want.chart.name;
        let fact = api.charts.get(name);
        let Some(fact) = fact.filter(|fact| fact.record.digest.is_some() && fact.gone.is_empty())
        else {
            missing.push(name.clone());
            continue;
        };
        let mut workloads = fact.workloads.iter();
        let waits = |(workload, object): &(&ObjectRef, &serde_json::Value)| {
            rollout(&workload.kind, object) != Rollout::Available
        };
        if let Some((workload, _)) = workloads.find(waits) {
            waiting.push(format!("{name} ({workload})"));
        }
    }
    if !missing.is_empty() {
        let message = format!("not applied: {}", quoted_first(NAMED, missing));
        conditions.set(kind, Reason::Applying, message);
    } else if !waiting.is_empty() {
        let message = format!("not available yet: {}", quoted_first(NAMED, waiting));
        conditions.set(kind, Reason::Applying, message);
    } else {
        let message = "every add-on is applied and available";
        conditions.set(kind, Reason::Applied, message);
    }
}

/// A DaemonSet or Deployment whose status says that all of it serves.
fn serves(api: &ClusterFacts, workload: &ObjectRef) -> bool {
    let object = api.objects.get(workload);
    object.is_some_and(|object| rollout(&workload.kind, object) == Rollout::Available)
}

fn up_to_date(members: &Members, actual: &Actual, plan: &Plan, conditions: &mut ConditionSet) {
    let kind = ConditionType::UpToDate;
    let mut names = members.0.keys();
    let unasked = plan.unasked();
    if !unasked.is_empty() && !unasked.only_waits() {
        conditions.set(kind, Reason::Drifted, differences(unasked.steps()));
    } else if plan.steps().any(waits_for_somebody) {
        let message = format!(
            "nobody asked for these changes, so they wait; an edit of the config lets them:\n{}",
            differences(plan.steps().filter(|step| waits_for_somebody(step)))
        );
        conditions.set(kind, Reason::UpdateAvailable, message);
    } else if let Some(silent) = names.find(|name| actual.up(name).is_none()) {
        let message =
            format!("node `{silent}` does not answer, so what it carries cannot be compared");
        conditions.set(kind, Reason::Unreachable, message);
    } else {
        let message = "the nodes carry what the spec says";
        conditions.set(kind, Reason::UpToDate, message);
    }
}

/// An effect that nobody asked for.
fn waits_for_somebody(step: &Step) -> bool {
    step.is_asked() && !step.action.is_wait()
}

/// What steps would do, in their own words; the first ones.
pub(super) fn differences<'a>(steps: impl Iterator<Item = &'a Step>) -> String {
    let mut lines: Vec<String> = steps
        .map(|step| format!("{}: {}", step.target(), step.why))
        .collect();
    lines.dedup();
    let more = lines.len().saturating_sub(NAMED);
    lines.truncate(NAMED);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

/// The summary: the first thing that keeps the cluster from being ready, in order of what depends
/// on what; `conditions` are all that hold at the moment.
pub(super) fn ready(
    status: &dyn Fn(ConditionType) -> (ConditionStatus, String),
    stage: Stage,
) -> (Reason, String) {
    if stage == Stage::New {
        let message = "the cluster has not been built from end to end yet";
        return (Reason::NotProvisioned, message.to_owned());
    }
    for (kind, reason) in [
        (ConditionType::Available, Reason::NotAvailable),
        (ConditionType::NodesReachable, Reason::NodesNotReady),
        (ConditionType::NodesHealthy, Reason::NodesNotReady),
        (ConditionType::ControlPlaneHealthy, Reason::ComponentDown),
    ] {
        let (status, message) = status(kind);
        if status != ConditionStatus::True {
            return (reason, format!("{kind} is {}: {message}", status.name()));
        }
    }
    match stage {
        Stage::Applied => (Reason::Ready, "the cluster serves".to_owned()),
        Stage::New | Stage::Changed => {
            let message = "the cluster serves; the present spec is not applied to it";
            (Reason::SpecNotApplied, message.to_owned())
        }
    }
}

/// How far the present spec is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No spec was ever applied from end to end.
    New,
    /// Another spec was applied, or this one cannot be understood.
    Changed,
    /// This one was applied.
    Applied,
}
