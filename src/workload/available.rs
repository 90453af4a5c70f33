//! Whether workloads are available, and if not, what they wait for. Pure.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{ContainerStatus, Pod},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::crash::CrashLoop;
use crate::{
    facts::{Rollout, rollout},
    model::{NodeName, ObjectRef, quoted},
};

/// What a workload lacks, and the reason as far as its pods tell it:
/// ``DaemonSet `kube-system/flannel`: pod `flannel-x2x9z`: ImagePullBackOff: …``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Pods that start, or could; and the container of theirs that keeps exiting.
    Pods(String, Option<CrashLoop>),
    /// No node takes one of its pods.
    Place(String),
    /// All of its pods are on silent nodes: minutes go by until Kubernetes makes others.
    Nodes(String),
}

/// The first workload that lacks something, of those whose pods could start if there is one. `None` when all
/// are available. Pods that belong on silent nodes are not waited for: those of a `DaemonSet`, and while
/// others of it serve those of a `Deployment`, which may find no other node.
pub fn waiting_for(
    workloads: &[ObjectRef],
    silent: &BTreeSet<NodeName>,
    daemon_sets: &[Arc<DaemonSet>],
    deployments: &[Arc<Deployment>],
    pods: &[Arc<Pod>],
) -> Option<Lack> {
    let mut on_silent_nodes = None;
    for workload in workloads {
        match lack(workload, silent, daemon_sets, deployments, pods) {
            Some(pods @ (Lack::Pods(..) | Lack::Place(_))) => return Some(pods),
            Some(nodes @ Lack::Nodes(_)) => {
                on_silent_nodes.get_or_insert(nodes);
            }
            None => {}
        }
    }
    on_silent_nodes
}

fn lack(
    workload: &ObjectRef,
    silent: &BTreeSet<NodeName>,
    daemon_sets: &[Arc<DaemonSet>],
    deployments: &[Arc<Deployment>],
    pods: &[Arc<Pod>],
) -> Option<Lack> {
    let is_it = |name: &Option<String>, namespace: &Option<String>| {
        name.as_deref() == Some(&workload.name)
            && namespace.as_deref().unwrap_or_default() == workload.namespace
    };
    let missing = match workload.kind.as_str() {
        "DaemonSet" => daemon_sets
            .iter()
            .find(|one| is_it(&one.metadata.name, &one.metadata.namespace))
            .map_or_else(not_there, |one| {
                missing(workload, &**one, None, &one.spec.selector, silent, pods)
            }),
        "Deployment" => deployments
            .iter()
            .find(|one| is_it(&one.metadata.name, &one.metadata.namespace))
            .map_or_else(not_there, |one| {
                missing(
                    workload,
                    &**one,
                    refused(one),
                    &one.spec.selector,
                    silent,
                    pods,
                )
            }),
        _ => None,
    };
    missing.map(|missing| match missing {
        Lack::Pods(why, crash) => Lack::Pods(format!("{workload}: {why}"), crash),
        Lack::Place(why) => Lack::Place(format!("{workload}: {why}")),
        Lack::Nodes(why) => Lack::Nodes(format!("{workload}: {why}")),
    })
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "stands where a workload's own answer would"
)]
fn not_there() -> Option<Lack> {
    Some(Lack::Pods("it is not there yet".to_owned(), None))
}

/// What a workload lacks: by its own status, and the reason by its pods unless it has one.
fn missing(
    workload: &ObjectRef,
    object: &impl serde::Serialize,
    refused: Option<String>,
    selector: &LabelSelector,
    silent: &BTreeSet<NodeName>,
    pods: &[Arc<Pod>],
) -> Option<Lack> {
    let object = serde_json::to_value(object).unwrap_or_default();
    match rollout(&workload.kind, &object) {
        Rollout::Available => None,
        Rollout::Unseen(why) => Some(Lack::Pods(why.to_owned(), None)),
        Rollout::Short { available, wanted } => {
            let (lost, its) = pods_of(selector, &workload.namespace, silent, pods);
            let serves = workload.kind == "DaemonSet" || available > 0;
            let count = i64::try_from(lost.len()).unwrap_or(i64::MAX);
            if !lost.is_empty() && serves && available + count >= wanted {
                return None;
            }
            let short = format!("{available} of {wanted} available");
            if its.is_empty() && refused.is_none() && count >= wanted {
                let nodes: Option<Vec<&str>> = lost.iter().map(|pod| node(pod)).collect();
                if let Some(nodes) = nodes {
                    return Some(Lack::Nodes(format!("{short}: {}", moves_from(&nodes))));
                }
            }
            let homeless = lost.into_iter().filter(|pod| node(pod).is_none());
            let its: Vec<&Pod> = its.into_iter().chain(homeless).collect();
            let crash = CrashLoop::find(its.iter().copied());
            let (why, has_place) = refused.map_or_else(|| hangs_on(&its), |why| (why, true));
            let why = format!("{short}: {why}");
            Some(if has_place {
                Lack::Pods(why, crash)
            } else {
                Lack::Place(why)
            })
        }
    }
}

/// Why a Deployment's pods cannot even be created.
fn refused(one: &Deployment) -> Option<String> {
    let conditions = one.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| {
        condition.type_.as_deref() == Some("ReplicaFailure")
            && condition.status.as_deref() == Some("True")
    });
    condition?.message.clone()
}

/// Its pods on silent nodes, or on none while there are such, and the others.
fn pods_of<'p>(
    selector: &LabelSelector,
    namespace: &str,
    silent: &BTreeSet<NodeName>,
    pods: &'p [Arc<Pod>],
) -> (Vec<&'p Pod>, Vec<&'p Pod>) {
    let wanted = selector.match_labels.as_ref();
    let its = pods.iter().map(|pod| &**pod).filter(|pod| {
        let labels = pod.metadata.labels.as_ref();
        pod.metadata.namespace.as_deref().unwrap_or_default() == namespace
            && wanted.is_some_and(|wanted| {
                wanted
                    .iter()
                    .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
            })
    });
    its.partition(|pod| {
        let away = |node: &str| silent.iter().any(|name| name.0 == node);
        node(pod).map_or(!silent.is_empty(), away)
    })
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn moves_from(nodes: &[&str]) -> String {
    let names: BTreeSet<_> = nodes.iter().collect();
    format!(
        "its pods are on {}, of which nothing is heard; Kubernetes makes others when it has missed the node for five \
         minutes, or as long as they tolerate it",
        quoted(names)
    )
}

/// The first of its pods that is not ready, and why; false where no node takes that one.
fn hangs_on(its: &[&Pod]) -> (String, bool) {
    let stuck = its.iter().find_map(|pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let (why, has_place) = pod_waits_for(pod)?;
        Some((format!("pod `{name}`: {why}"), has_place))
    });
    stuck.unwrap_or_else(|| {
        let why = if its.is_empty() {
            "no pod was created yet"
        } else {
            "its pods are just becoming available"
        };
        (why.to_owned(), true)
    })
}

fn pod_waits_for(pod: &Pod) -> Option<(String, bool)> {
    let Some(status) = &pod.status else {
        return Some(("not seen yet".to_owned(), true));
    };
    let conditions = || status.conditions.iter().flatten();
    if conditions().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        return None;
    }
    let unscheduled = conditions()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(condition) = unscheduled {
        let why = condition.message.as_deref().unwrap_or("no node takes it");
        return Some((format!("not scheduled: {why}"), false));
    }
    let containers = status
        .init_container_statuses
        .iter()
        .flatten()
        .chain(status.container_statuses.iter().flatten());
    let stuck = containers
        .filter(|container| !container.ready)
        .find_map(container_waits_for);
    let why = stuck.unwrap_or_else(|| {
        let message = status.message.clone().or_else(|| status.reason.clone());
        let phase = status.phase.as_deref().unwrap_or("Pending");
        message.unwrap_or_else(|| format!("{phase}, not ready yet"))
    });
    Some((why, true))
}

fn container_waits_for(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().unwrap_or("waiting");
        // The default reasons while it waits for its init containers or its image.
        if matches!(reason, "PodInitializing" | "ContainerCreating") && waiting.message.is_none() {
            return Some(reason.to_owned());
        }
        return Some(match &waiting.message {
            Some(message) => format!("{reason}: {message}"),
            None => reason.to_owned(),
        });
    }
    let ended = state.terminated.as_ref()?;
    (ended.exit_code != 0).then(|| {
        format!(
            "container `{}` ended with {}: {}",
            container.name,
            ended.exit_code,
            ended.reason.as_deref().unwrap_or("no reason")
        )
    })
}
