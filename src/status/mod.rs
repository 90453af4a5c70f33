//! How a cluster is, as one value: what `status` shows and what programs read. Pure.
//!
//! [`Status::of`] makes it of what a survey saw ([`Seen`]): the one place that says how a cluster is. The
//! command line, its JSON and the conditions of an object ([`conditions()`]) are views of it, so that
//! they cannot contradict each other. Nothing is read here and nothing is decided: what differs from the config, and why, is the plan's own word. Units are in the names
//! of the fields. Fields may be added; those that are there keep their meaning.

mod addons;
mod certificates;
mod conditions;
mod datagrams;
mod differences;
pub mod doctor;
mod etcd;
mod forwarding;
mod nodes;
mod problems;
mod snapshots;
mod traffic;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

pub use self::{
    addons::{AddonState, AddonStatus},
    certificates::{Authority, CertificateEnd, CertificateStatus, Served, certificates, serving},
    conditions::conditions,
    differences::{Difference, Differences, HeldBack, Place, PlannedStep, Refusal, Remark},
    etcd::{EtcdStatus, ExternalEtcdStatus, MemberKind, MemberState, QuorumState, RaisedAlarm},
    nodes::{ApiState, ControlPlane, NodeStatus},
    problems::{About, Problem},
    snapshots::{CopyStatus, Newest, SnapshotStatus},
};
pub(crate) use self::{
    conditions::{cases, unreachable},
    differences::lines,
    snapshots::BackedUp,
    traffic::missing as missing_traffic,
};
use crate::{
    config::Intent,
    desired::{Desired, pki::Expiry},
    error::Explain,
    facts::{Actual, ApiHealth, ApiView},
    model::{ClusterId, NodeName, Role},
    plan::Plan,
    snapshots::record::Reports,
};

/// What a status is made of.
pub struct Seen<'a> {
    /// When it was seen.
    pub now: Timestamp,
    /// What the user wants, with the release that the cluster keeps; `None` where that cannot be
    /// understood: then it is about the nodes of the state.
    pub intent: Option<&'a Intent>,
    /// What is.
    pub actual: &'a Actual,
    /// What the programs that take snapshots report; empty where they were not asked.
    pub snapshots: &'a Reports,
    /// What must be, where that could be worked out.
    pub desired: Option<&'a Desired>,
    /// What `up` would do, or why it would do nothing.
    pub plan: Result<&'a Plan, &'a (dyn Explain + 'static)>,
}

/// A cluster, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The cluster as a whole.
    pub cluster: Cluster,
    /// The nodes with a control plane, by name.
    pub control_planes: Vec<ControlPlane>,
    /// etcd.
    pub etcd: EtcdStatus,
    /// Recurring snapshots of etcd; null where no node takes any, or the nodes were not queried.
    pub snapshots: Option<SnapshotStatus>,
    /// The names of the workers.
    pub workers: Vec<NodeName>,
    /// Every node of the config, of the state and of the API, by name.
    pub nodes: Vec<NodeStatus>,
    /// The authorities that sign the cluster's certificates.
    pub authorities: Vec<Authority>,
    /// The add-ons that the config asks for; null if that is not known, or no API server answers.
    pub addons: Option<Vec<AddonStatus>>,
    /// The certificate that ends first, of those that were read to know what must be.
    #[serde(skip)]
    pub first_to_end: Option<FirstToEnd>,
    /// An API server reported what the cluster has.
    #[serde(skip)]
    pub(crate) api_reports: bool,
    /// When a removal was begun that is not finished.
    #[serde(skip)]
    pub(crate) removal_begun: Option<Timestamp>,
    /// Whether the cluster is backed up, and the sentence for it.
    #[serde(skip)]
    pub(crate) backed_up: (BackedUp, String),
    /// What `up` would do.
    pub differences: Differences,
    /// What is wrong; empty if the cluster is healthy.
    pub problems: Vec<Problem>,
}

/// The cluster as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ClusterStatus")]
pub struct Cluster {
    /// As the state has it; as the config has it where there is no state.
    pub name: String,
    /// Its ID; null before it is created.
    pub id: Option<ClusterId>,
    /// Its health in one word; differences from the config do not count.
    pub health: Health,
    /// The version that its API server reports; null when none answers.
    pub kubernetes_version: Option<String>,
    /// The version that the config asks for; null if the config is not valid.
    pub wanted_kubernetes_version: Option<String>,
    /// False: `up` would change something. Null: there is no plan, for the reason in `differences.refusal`.
    pub agrees_with_config: Option<bool>,
}

/// The health of a cluster in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Health {
    /// Nothing is wrong.
    Healthy,
    /// It serves, and something is wrong.
    Degraded,
    /// No API server answers.
    Unavailable,
    /// There is no state: it was not created yet, or its state is lost.
    Absent,
}

impl Status {
    /// How the cluster is.
    pub fn of(seen: &Seen<'_>) -> Self {
        let actual = seen.actual;
        let saved = actual.saved.as_deref();
        let nodes = nodes::nodes(seen);
        let etcd = etcd::status(actual);
        let addons = addons::addons(seen);
        let first_to_end = FirstToEnd::of(seen);
        let problems = problems::problems(
            seen,
            &problems::Parts {
                nodes: &nodes,
                etcd: &etcd,
                addons: addons.as_deref().unwrap_or_default(),
                first_to_end: first_to_end.as_ref(),
            },
        );
        let differences = differences::differences(seen);
        let having = |role| nodes.iter().filter(move |node| node.roles.contains(&role));
        Self {
            cluster: Cluster {
                name: saved
                    .map(|saved| &saved.cluster_name)
                    .or_else(|| seen.intent.map(|intent| &intent.cluster_name))
                    .cloned()
                    .unwrap_or_default(),
                id: saved.map(|saved| saved.cluster_id.clone()),
                health: health(actual, &problems),
                kubernetes_version: version(actual),
                wanted_kubernetes_version: seen.intent.map(|intent| intent.version.to_string()),
                agrees_with_config: differences.agrees(),
            },
            control_planes: having(Role::ControlPlane)
                .map(|node| nodes::control_plane(seen, node))
                .collect(),
            workers: having(Role::Worker).map(|node| node.name.clone()).collect(),
            authorities: saved
                .map_or_else(Vec::new, |saved| certificates::authorities(saved, seen.now)),
            addons,
            first_to_end,
            snapshots: SnapshotStatus::of(seen.snapshots),
            removal_begun: saved
                .and_then(|saved| saved.memory.last_snapshot.as_ref())
                .map(|snapshot| snapshot.begun_at),
            backed_up: snapshots::check(seen),
            api_reports: matches!(actual.api(), ApiView::Up(_)),
            etcd,
            nodes,
            differences,
            problems,
        }
    }

    /// A node by its name.
    pub fn node(&self, name: &NodeName) -> Option<&NodeStatus> {
        self.nodes.iter().find(|node| node.name == *name)
    }
}

/// The certificate that ends first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstToEnd {
    /// When, and which.
    pub end: Expiry,
    /// How long until then, in words.
    pub sentence: String,
    /// What is left until then.
    pub left: SignedDuration,
    /// The nodes whose certificates end soon enough to be renewed.
    pub renewed_on: Vec<NodeName>,
}

impl FirstToEnd {
    fn of(seen: &Seen<'_>) -> Option<Self> {
        let certificates = &seen.desired?.certificates;
        let end = certificates.earliest.as_ref()?;
        Some(Self {
            sentence: end.sentence(seen.now),
            left: end.at.duration_since(seen.now),
            end: end.clone(),
            renewed_on: certificates.renewed.keys().cloned().collect(),
        })
    }

    /// True when it is over.
    pub fn is_over(&self) -> bool {
        self.left <= SignedDuration::ZERO
    }
}

fn version(actual: &Actual) -> Option<String> {
    match actual.api() {
        ApiView::Up(facts) => Some(facts.version.clone()).filter(|version| !version.is_empty()),
        ApiView::Unknown | ApiView::Unreachable(_) => None,
    }
}

fn health(actual: &Actual, problems: &[Problem]) -> Health {
    let serves = |api: &ApiHealth| *api == ApiHealth::Serving;
    if actual.saved.is_none() {
        Health::Absent
    } else if !actual.apis.values().any(serves) {
        Health::Unavailable
    } else if problems.is_empty() {
        Health::Healthy
    } else {
        Health::Degraded
    }
}
