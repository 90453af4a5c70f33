//! The nodes: whether they answer, what they are for, whether they are Ready. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Seen,
    certificates::{CertificateEnd, first_on},
};
use crate::{
    facts::{ApiHealth, ContainerState, HostView, NodeFact},
    model::{Component, NodeName, Role},
    state::Membership,
};

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its name.
    pub name: NodeName,
    /// Its roles in the cluster; those in the config for a new node.
    pub roles: BTreeSet<Role>,
    /// The config names it.
    pub in_config: bool,
    /// The state names it: it is part of the cluster, or is joining or leaving.
    pub in_cluster: bool,
    /// It was given up as lost: it is not looked for any more.
    #[serde(skip)]
    pub given_up: bool,
    /// Where it is; `None` for one that only the API knows.
    #[serde(skip)]
    pub address: Option<String>,
    /// It answered over SSH, and so did its Docker; null if it was not queried.
    pub reachable: Option<bool>,
    /// Why it did not answer; null if it did.
    pub unreachable_reason: Option<String>,
    /// Its Node object is Ready; null if the API does not answer or has no Node object.
    pub ready: Option<bool>,
    /// Why it is not Ready; null if it is.
    pub not_ready_reason: Option<String>,
    /// Version of its kubelet.
    pub kubelet_version: Option<String>,
    /// When its Node object was created.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub created_at: Option<Timestamp>,
    /// Age of its Node object, in seconds.
    pub age_seconds: Option<i64>,
    /// The certificate on it that expires first; null if its files were not read.
    pub first_certificate_to_end: Option<CertificateEnd>,
}

/// A node with a control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlane {
    /// Its name.
    pub node: NodeName,
    /// Whether its API server serves.
    pub api: ApiState,
    /// Why it does not serve; null if it does, or was not queried.
    pub api_reason: Option<String>,
    /// Version of its API server, by the tag of its image; null if unknown.
    pub version: Option<String>,
}

/// One API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ApiState {
    /// It answers `/readyz`.
    Serving,
    /// It does not.
    NotServing,
    /// The node has no API server.
    Missing,
    /// Its node did not answer.
    Unknown,
}

pub(super) fn nodes(seen: &Seen<'_>) -> Vec<NodeStatus> {
    let actual = seen.actual;
    let saved = actual.saved.as_ref();
    let names: BTreeSet<&NodeName> = seen
        .intent
        .into_iter()
        .flat_map(|intent| intent.nodes.keys())
        .chain(saved.into_iter().flat_map(|saved| saved.inventory.keys()))
        .chain(actual.cluster.iter().flat_map(|api| api.nodes.keys()))
        .collect();
    names.into_iter().map(|name| node(seen, name)).collect()
}

fn node(seen: &Seen<'_>, name: &NodeName) -> NodeStatus {
    let actual = seen.actual;
    let wanted = seen.intent.and_then(|intent| intent.nodes.get(name));
    let saved = actual.saved.as_ref();
    let known = saved.and_then(|saved| saved.inventory.get(name));
    let object = actual.cluster.as_ref().and_then(|api| api.nodes.get(name));
    let roles = known.map(|entry| entry.roles.iter().copied().collect());
    let roles = roles.or_else(|| wanted.map(|node| node.roles.clone()));
    let (reachable, unreachable_reason) = match actual.hosts.get(name) {
        Some(HostView::Reachable(_)) => (Some(true), None),
        Some(HostView::Unreachable(down)) => (Some(false), Some(down.why.clone())),
        None => (None, None),
    };
    let created_at = object.and_then(|object| object.created);
    NodeStatus {
        name: name.clone(),
        roles: roles.unwrap_or_default(),
        in_config: wanted.is_some(),
        in_cluster: known.is_some(),
        given_up: known.is_some_and(|entry| entry.membership == Membership::Lost),
        address: wanted
            .map(|node| &node.endpoint)
            .or_else(|| known.map(|entry| &entry.endpoint))
            .map(|endpoint| endpoint.address.clone()),
        reachable,
        unreachable_reason,
        ready: object.map(|object| object.ready),
        not_ready_reason: object.and_then(why_not_ready),
        kubelet_version: object.map(|object| object.kubelet_version.clone()),
        created_at,
        age_seconds: created_at.map(|at| seen.now.as_second().saturating_sub(at.as_second())),
        first_certificate_to_end: actual
            .up(name)
            .zip(saved)
            .and_then(|(facts, saved)| first_on(facts, &saved.cluster_id, seen.now)),
    }
}

fn why_not_ready(object: &NodeFact) -> Option<String> {
    (!object.ready).then(|| object.message.clone())
}

pub(super) fn control_plane(seen: &Seen<'_>, node: &NodeStatus) -> ControlPlane {
    let name = &node.name;
    let facts = seen.actual.up(name);
    let server = Component::ApiServer.container();
    let container = facts.and_then(|facts| facts.containers.get(server));
    let (api, api_reason) = match (seen.actual.apis.get(name), container) {
        (Some(ApiHealth::Serving), _) => (ApiState::Serving, None),
        (Some(ApiHealth::Unreachable(why)), _) => (ApiState::NotServing, Some(why.clone())),
        (None, None) if facts.is_some() => (ApiState::Missing, None),
        (None, _) => (ApiState::Unknown, None),
    };
    let runs = container.filter(|container| container.state == ContainerState::Running);
    ControlPlane {
        node: name.clone(),
        api,
        api_reason,
        version: runs.and_then(|container| release(&container.image)),
    }
}

/// The release in an image's tag: `v1.34.4` of `…:v1.34.4-rke2r1-build20260210`.
fn release(image: &str) -> Option<String> {
    let (_, tag) = image.rsplit_once(':')?;
    let release = tag.split('-').next()?;
    let digit = |c: char| c.is_ascii_digit() || c == '.';
    let is_one = release.strip_prefix('v')?.chars().all(digit);
    is_one.then(|| release.to_owned())
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn a_release_is_read_from_tags_that_have_one() {
        for (image, wanted) in [
            (
                "rancher/hardened-kubernetes:v1.34.4-rke2r1-build20260210",
                Some("v1.34.4"),
            ),
            ("registry.example.com:5000/kube:v1.33.13", Some("v1.33.13")),
            ("registry.example.com:5000/kube", None),
            ("kube:latest", None),
            ("kube@sha256:0123", None),
        ] {
            assert_eq!(release(image).as_deref(), wanted, "{image}");
        }
    }
}
