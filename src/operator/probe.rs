//! What a survey says about a cluster, as conditions. Pure: facts in, findings out.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    actual::{Actual, ApiFacts, ApiView, ContainerState, Down, HostView},
    api::conditions::{ConditionType, Findings, Truth, Verdict},
    config::{Intent, NodeName, Role},
    converge::Survey,
    desired::{Desired, ObjectRef},
    plan::Plan,
};

/// How many cases a message names.
const NAMED: usize = 20;

/// The printed part of a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) cluster_id: Option<String>,
    pub(super) version: Option<String>,
    pub(super) nodes: Option<String>,
    pub(super) endpoint: Option<String>,
}

/// What a survey found. `provisioned`: the present spec was applied from end to end.
pub(super) fn probe(intent: &Intent, survey: &Survey, provisioned: bool) -> (Findings, Facts) {
    let actual = &survey.actual;
    let mut findings = Findings::new();
    findings.set(
        ConditionType::ConfigValid,
        true,
        "Valid",
        "the config is valid",
    );
    reachable(intent, actual, &mut findings);
    etcd(intent, actual, &mut findings);
    control_plane(intent, actual, &mut findings);
    nodes(intent, actual, &mut findings);
    addons(survey.desired.as_ref(), actual, &mut findings);
    up_to_date(&survey.plan, &mut findings);
    ready(&mut findings, provisioned);
    (findings, facts(intent, actual))
}

fn facts(intent: &Intent, actual: &Actual) -> Facts {
    let api = api_facts(actual);
    let ready = intent.nodes.keys().filter(|name| {
        api.and_then(|api| api.nodes.get(*name))
            .is_some_and(|node| node.ready)
    });
    let endpoint = intent
        .with_role(Role::ControlPlane)
        .next()
        .map(|(_, node)| format!("https://{}", bracketed(&node.endpoint.address)));
    Facts {
        cluster_id: actual
            .saved
            .as_ref()
            .map(|saved| saved.cluster_id.0.clone()),
        version: api.map(|api| api.version.clone()),
        nodes: Some(format!("{}/{}", ready.count(), intent.nodes.len())),
        endpoint,
    }
}

fn bracketed(address: &str) -> String {
    if address.contains(':') {
        format!("[{address}]:6443")
    } else {
        format!("{address}:6443")
    }
}

fn api_facts(actual: &Actual) -> Option<&ApiFacts> {
    match &actual.api {
        ApiView::Up(facts) => Some(facts),
        ApiView::Unknown | ApiView::Down(_) => None,
    }
}

fn reachable(intent: &Intent, actual: &Actual, findings: &mut Findings) {
    let mut silent = BTreeMap::new();
    let mut unseen = Vec::new();
    for name in intent.nodes.keys() {
        match actual.hosts.get(name) {
            Some(HostView::Up(_)) => {}
            Some(HostView::Down(why)) => {
                silent.insert(name.clone(), why.clone());
            }
            None => unseen.push(name.to_string()),
        }
    }
    let kind = ConditionType::NodesReachable;
    if !silent.is_empty() {
        down(&silent, findings);
    } else if unseen.is_empty() {
        findings.set(kind, true, "Reachable", "every node answers");
    } else {
        let names = list(unseen.into_iter());
        findings.set(kind, Truth::Unknown, "NotAsked", names);
    }
}

/// Nodes that do not answer, each with its cure.
pub(super) fn down(silent: &BTreeMap<NodeName, Down>, findings: &mut Findings) {
    let cases = silent
        .iter()
        .map(|(name, down)| {
            let mut text = down.why.clone();
            for hint in &down.hints {
                text.push_str("; hint: ");
                text.push_str(hint);
            }
            (name.clone(), text)
        })
        .collect();
    let kind = ConditionType::NodesReachable;
    findings.set(kind, false, "HostUnavailable", worst(&cases));
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

fn list(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.len().checked_sub(NAMED) {
        Some(more) if more > 0 => {
            let (first, _) = names.split_at(NAMED);
            format!("{} and {more} more", first.join(", "))
        }
        Some(_) | None => names.join(", "),
    }
}

/// Components that do not run, on hosts that answer; and hosts that do not answer.
fn components(
    intent: &Intent,
    actual: &Actual,
    role: Role,
    names: &[&str],
) -> (BTreeMap<NodeName, String>, Vec<NodeName>) {
    let mut stopped = BTreeMap::new();
    let mut unknown = Vec::new();
    for (node, _) in intent.with_role(role) {
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
fn etcd(intent: &Intent, actual: &Actual, findings: &mut Findings) {
    let kind = ConditionType::EtcdHealthy;
    let (stopped, unknown) = components(intent, actual, Role::Etcd, &["etcd"]);
    let members = intent.with_role(Role::Etcd).count();
    let quorum = members / 2 + 1;
    let running = members.saturating_sub(stopped.len() + unknown.len());
    if running + unknown.len() < quorum {
        findings.set(kind, false, "QuorumLost", worst(&stopped));
        return;
    }
    match &actual.api {
        ApiView::Up(_) if stopped.is_empty() && unknown.is_empty() => {
            findings.set(kind, true, "Healthy", "every member serves");
        }
        ApiView::Up(_) => {
            let cases = stopped
                .into_iter()
                .chain(
                    unknown
                        .into_iter()
                        .map(|n| (n, "does not answer".to_owned())),
                )
                .collect();
            let message = format!("has quorum, without:\n{}", worst(&cases));
            findings.set(kind, true, "Degraded", message);
        }
        ApiView::Down(_) | ApiView::Unknown => {
            let message = "the API that would tell does not answer";
            findings.set(kind, Truth::Unknown, "ApiDown", message);
        }
    }
}

fn control_plane(intent: &Intent, actual: &Actual, findings: &mut Findings) {
    let kind = ConditionType::ControlPlaneHealthy;
    let names = [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ];
    let (stopped, _) = components(intent, actual, Role::ControlPlane, &names);
    match &actual.api {
        ApiView::Up(_) if stopped.is_empty() => {
            findings.set(kind, true, "Healthy", "the API answers");
        }
        ApiView::Up(_) | ApiView::Unknown if !stopped.is_empty() => {
            findings.set(kind, false, "ComponentDown", worst(&stopped));
        }
        ApiView::Up(_) | ApiView::Unknown => {
            let message = "the API was not asked";
            findings.set(kind, Truth::Unknown, "NotAsked", message);
        }
        ApiView::Down(why) => {
            let message = format!("the API does not answer: {why}");
            findings.set(kind, false, "ApiDown", message);
        }
    }
}

fn nodes(intent: &Intent, actual: &Actual, findings: &mut Findings) {
    let kind = ConditionType::NodesHealthy;
    let Some(api) = api_facts(actual) else {
        let message = "the API that would tell does not answer";
        findings.set(kind, Truth::Unknown, "ApiDown", message);
        return;
    };
    let mut bad = BTreeMap::new();
    for name in intent.nodes.keys() {
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
        findings.set(kind, true, "Healthy", "every node is Ready");
    } else {
        findings.set(kind, false, "NodesNotReady", worst(&bad));
    }
}

fn addons(desired: Option<&Desired>, actual: &Actual, findings: &mut Findings) {
    let kind = ConditionType::AddonsApplied;
    let (Some(desired), Some(api)) = (desired, api_facts(actual)) else {
        let message = "the API that would tell does not answer";
        findings.set(kind, Truth::Unknown, "ApiDown", message);
        return;
    };
    let mut missing = Vec::new();
    let mut waiting = Vec::new();
    for addon in &desired.addons {
        if addon.objects.keys().any(|o| !api.objects.contains_key(o)) {
            missing.push(addon.name.clone());
        } else if let Some(workload) = addon.workloads.iter().find(|w| !available(api, w)) {
            waiting.push(format!("{} ({workload})", addon.name));
        }
    }
    if !missing.is_empty() {
        findings.set(kind, false, "NotApplied", list(missing.into_iter()));
    } else if !waiting.is_empty() {
        let message = format!("not available yet: {}", list(waiting.into_iter()));
        findings.set(kind, false, "NotAvailable", message);
    } else {
        let message = "every add-on is applied and available";
        findings.set(kind, true, "Applied", message);
    }
}

/// A DaemonSet or Deployment whose status says that all of it serves.
fn available(api: &ApiFacts, workload: &ObjectRef) -> bool {
    let Some(object) = api.objects.get(workload) else {
        return false;
    };
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64);
    let (want, have) = if workload.kind == "DaemonSet" {
        (
            number("/status/desiredNumberScheduled"),
            number("/status/numberAvailable"),
        )
    } else {
        (
            number("/spec/replicas").or(Some(1)),
            number("/status/availableReplicas"),
        )
    };
    want.is_some_and(|want| have.unwrap_or_default() >= want)
}

fn up_to_date(plan: &Plan, findings: &mut Findings) {
    let kind = ConditionType::UpToDate;
    if plan.is_empty() {
        findings.set(kind, true, "UpToDate", "nothing to do");
    } else {
        findings.set(kind, false, "Drifted", differences(plan));
    }
}

/// What a plan would do, in its own words; the first ones.
pub(super) fn differences(plan: &Plan) -> String {
    let mut lines: Vec<String> = plan
        .steps()
        .map(|step| format!("{}: {}", step.target, step.why))
        .collect();
    lines.dedup();
    let more = lines.len().saturating_sub(NAMED);
    lines.truncate(NAMED);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

/// The summary: false for the first reason in order of what depends on what.
fn ready(findings: &mut Findings, provisioned: bool) {
    let parts = [
        ConditionType::ConfigValid,
        ConditionType::NodesReachable,
        ConditionType::ControlPlaneHealthy,
        ConditionType::EtcdHealthy,
        ConditionType::NodesHealthy,
    ];
    let first: Option<Verdict> = parts
        .iter()
        .filter_map(|kind| findings.get(*kind))
        .find(|verdict| verdict.truth != Truth::True)
        .cloned();
    let kind = ConditionType::Ready;
    match first {
        Some(verdict) => findings.set(kind, false, verdict.reason, verdict.message),
        None if provisioned => findings.set(kind, true, "Ready", "the cluster serves"),
        None => findings.set(kind, false, "Applying", "the spec is not applied yet"),
    }
}
