//! What the API of the cluster said. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Barrier, ChartFact, is_workload};
use crate::{
    model::{NodeName, ObjectRef, PeerPort, Taint, label},
    state::ClusterState,
};

/// What the API said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Server version, `v1.34.4`.
    pub version: String,
    /// The uid of the namespace `kube-system`: who the cluster is. Read before a removal only.
    pub uid: Option<String>,
    /// Nodes by name.
    pub nodes: BTreeMap<NodeName, NodeFact>,
    /// Objects labelled with [`crate::model::label::ADDON`], as they are.
    pub objects: BTreeMap<ObjectRef, serde_json::Value>,
    /// The charts that were applied, by add-on.
    pub charts: BTreeMap<String, ChartFact>,
    /// What the server would make of those of our objects that are there.
    pub dry_runs: BTreeMap<ObjectRef, DryRun>,
    /// The copy of the state in `kube-system`.
    pub state_copy: StateCopy,
    /// The name of what all that is stored was written with; `None` while that is not known.
    pub written_with: Option<String>,
    /// The Secrets that hold tokens of service accounts, and the id of the key that signed each, where the token has one.
    /// Asked before such a key is dropped only.
    pub tokens: Option<BTreeMap<ObjectRef, Option<String>>>,
    /// The authorities of the cluster where the API hands them out. Asked while they are rotated only.
    pub authorities: Option<PublishedAuthorities>,
    /// There is a copy of a state in `kube-system`, whatever it says.
    pub marked: bool,
    /// What goes with the nodes that were asked about.
    pub bound: BTreeMap<NodeName, Bound>,
    /// The pods of those of our Deployments whose pods belong on several nodes, without those that
    /// end.
    pub replicas: BTreeMap<ObjectRef, Vec<Replica>>,
    /// Who uses what the wanted release no longer has; asked before the API servers go to another
    /// minor release only.
    pub old_clients: OldClients,
    /// The nodes that do not reach a pod of another one.
    pub no_traffic: BTreeSet<NoTraffic>,
}

/// The authorities of a cluster where its API hands them out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedAuthorities {
    /// The SHA-256 of what pods trust: of each `ConfigMap` `kube-root-ca.crt`, and of `ca.crt` in each Secret with a token.
    pub roots: BTreeMap<ObjectRef, String>,
    /// What extension API servers trust, where there is any.
    pub extension: Option<ExtensionTrust>,
    /// What has made pods that mount a token: when the first of its pods started, in seconds since 1970.
    pub pods: BTreeMap<ObjectRef, i64>,
}

impl PublishedAuthorities {
    /// How such a text is compared.
    pub fn fingerprint(text: &[u8]) -> String {
        hex::encode(Sha256::digest(text))
    }
}

/// The `ConfigMap` `kube-system/extension-apiserver-authentication`, which API servers write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionTrust {
    /// Its resource version.
    pub version: String,
    /// All certificates in it, PEM.
    pub authorities: String,
}

/// A node that does not reach a pod of another node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoTraffic {
    /// The node.
    pub from: NodeName,
    /// The other one.
    pub to: NodeName,
    /// The pod's address and the port that it was tried at.
    pub pod: PeerPort,
    /// What came back.
    pub how: Barrier,
}

/// The copy of the state in `kube-system`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StateCopy {
    /// There is none.
    #[default]
    Absent,
    /// It is there and is not understood; why.
    Unreadable(String),
    /// What it says.
    Is(Box<ClusterState>),
}

impl StateCopy {
    /// What it says.
    pub fn state(&self) -> Option<&ClusterState> {
        match self {
            Self::Is(state) => Some(state),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }
}

/// Kinds that clients still request and that a release no longer serves, as the API servers count them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OldClients {
    /// Asked for since the API servers started.
    pub asked: BTreeSet<RemovedApi>,
    /// The API servers that did not tell, and why.
    pub untold: BTreeMap<NodeName, String>,
}

/// A kind in a version that goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemovedApi {
    /// Group; empty for the core one.
    pub group: String,
    /// Version in it.
    pub version: String,
    /// The plural.
    pub resource: String,
    /// The first minor release without it, `1.32`.
    pub removed_in: String,
}

impl std::fmt::Display for RemovedApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slash = if self.group.is_empty() { "" } else { "/" };
        let (group, version) = (&self.group, &self.version);
        write!(f, "`{}` of `{group}{slash}{version}`", self.resource)
    }
}

/// A pod of a Deployment, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// `None`: it has no node yet.
    pub node: Option<NodeName>,
}

/// What goes with a node that is given up, as far as the API tells: the first of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Persistent volumes that no other node can have.
    pub volumes: BTreeSet<String>,
    /// Volumes that are attached to it, and are detached.
    pub attached: BTreeSet<String>,
    /// Pods without a controller, which are not re-created.
    pub bare_pods: BTreeSet<String>,
    /// Pods that keep something in an emptyDir.
    pub empty_dirs: BTreeSet<String>,
}

impl ClusterFacts {
    /// True when nothing is there of what we put into every cluster: what etcd without its data
    /// looks like.
    pub fn is_bare(&self) -> bool {
        !self.marked && self.objects.is_empty()
    }

    /// The workloads of the add-ons and charts that rke-operator installs, by add-on; not those of people's own manifests.
    pub fn addon_workloads(&self) -> impl Iterator<Item = (&str, &ObjectRef, &serde_json::Value)> {
        let applied = self.objects.iter().filter_map(|(object, value)| {
            let addon = value["metadata"]["labels"][label::ADDON].as_str()?;
            let is_ours = addon != label::USER_ADDONS && is_workload(object);
            is_ours.then_some((addon, object, value))
        });
        let charts = self.charts.iter().flat_map(|(chart, fact)| {
            let workloads = fact.workloads.iter();
            workloads.map(move |(object, value)| (chart.as_str(), object, value))
        });
        applied.chain(charts)
    }

    /// The workloads of [`Self::addon_workloads`] whose pods read the authority of the cluster and were not restarted for
    /// this one, by add-on, and their uids. Nothing while it was not asked which pods read it.
    pub fn not_restarted_for(
        &self,
        authority: &str,
    ) -> BTreeMap<&str, BTreeMap<ObjectRef, String>> {
        let mut left: BTreeMap<&str, BTreeMap<ObjectRef, String>> = BTreeMap::new();
        let reads = |object: &ObjectRef| {
            let authorities = self.authorities.as_ref();
            authorities.is_some_and(|authorities| authorities.pods.contains_key(object))
        };
        for (addon, object, value) in self.addon_workloads() {
            let mark = &value["spec"]["template"]["metadata"]["annotations"][label::AUTHORITY];
            if reads(object) && *mark != *authority {
                let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
                let left = left.entry(addon).or_default();
                left.insert(object.clone(), uid.to_owned());
            }
        }
        left
    }
}

/// What a server-side apply would do to an object, as the server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// The object would be this.
    Would(serde_json::Value),
    /// The server refuses to try: a webhook that cannot, for one. The reason.
    KnownAfterApply(String),
}

/// A Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFact {
    /// Its uid.
    #[serde(default)]
    pub uid: String,
    /// Condition Ready is True.
    pub ready: bool,
    /// Why not.
    pub message: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// All taints.
    pub taints: Vec<Taint>,
    /// `v1.34.4`.
    pub kubelet_version: String,
    /// When it was made.
    #[serde(default)]
    pub created: Option<Timestamp>,
    /// It is cordoned: no new pod comes.
    #[serde(default)]
    pub unschedulable: bool,
    /// How many cores it has.
    #[serde(default)]
    pub cores: u32,
}

/// What a Node records of a request to reboot it, until it is finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebootMark {
    /// The request.
    pub request: String,
    /// The boot of the machine that is to end: [`super::SystemFacts::boot`].
    pub from: String,
}

impl RebootMark {
    fn read(text: &str) -> Option<Self> {
        let (request, from) = text.split_once(' ')?;
        Some(Self {
            request: request.to_owned(),
            from: from.to_owned(),
        })
    }

    /// The value of the annotation.
    pub fn text(&self) -> String {
        format!("{} {}", self.request, self.from)
    }
}

/// Whether a Node is Ready, where nothing else of it is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHealth {
    /// Its condition Ready is True.
    pub ready: bool,
    /// Why not.
    pub message: String,
}

impl NodeFact {
    /// True when `rke-operator` cordoned it and was stopped before it uncordoned it.
    pub fn is_cordoned_by_us(&self) -> bool {
        self.annotations.contains_key(crate::model::label::CORDONED)
    }

    /// The request to reboot it that is not finished, if there is one.
    pub fn reboot(&self) -> Option<RebootMark> {
        RebootMark::read(self.annotations.get(crate::model::label::REBOOT)?)
    }

    /// True when this request has rebooted it.
    pub fn was_rebooted_by(&self, request: &str) -> bool {
        let last = self.annotations.get(crate::model::label::REBOOTED);
        last.is_some_and(|last| last == request)
    }

    /// True where a pod may go that tolerates nothing.
    pub fn takes_pods(&self) -> bool {
        let mut taints = self.taints.iter();
        self.ready && !self.unschedulable && taints.all(|taint| taint.effect == "PreferNoSchedule")
    }

    /// True when a person cordoned it.
    pub fn is_cordoned_by_others(&self) -> bool {
        self.unschedulable && !self.is_cordoned_by_us()
    }
}
