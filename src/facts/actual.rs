//! The world as one survey saw it. Unreachable is a fact, not an error. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Alike, ClusterFacts, ContainerState, HostFacts};
use crate::{
    error::{ErrorClass, Explain, Obstacle, with_causes},
    etcd::{EtcdView, Quorum, Since},
    model::{ClusterId, Component, ImageVersion, NodeName, Role, Secret},
    state::{ClusterState, Membership},
};

/// The world as one survey saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actual {
    /// Every host of the intent and of the saved inventory.
    pub hosts: BTreeMap<NodeName, HostView>,
    /// etcd, as its members tell.
    pub etcd: EtcdView,
    /// What etcd holds that was made since a revision, where that was to be counted and could be.
    pub since: Option<Since>,
    /// The API server of each control plane that was asked.
    pub apis: BTreeMap<NodeName, ApiHealth>,
    /// The release of each API server that told it.
    pub versions: BTreeMap<NodeName, ImageVersion>,
    /// What the cluster's API said, read once, through the first API server that serves; `None`:
    /// none does, or there was nothing to ask.
    pub cluster: Option<Box<ClusterFacts>>,
    /// Why no API server told what the cluster holds, though one serves.
    pub untold: Option<String>,
    /// The administrator's kubeconfig that the shell keeps, if there is one.
    pub kubeconfig: Option<Secret<String>>,
    /// What the store holds.
    pub saved: Option<Box<ClusterState>>,
}

/// The inventory's control planes that answered: through one of them the cluster's API is reached.
pub fn control_planes<'a>(
    saved: &'a ClusterState,
    hosts: &'a BTreeMap<NodeName, HostView>,
) -> impl Iterator<Item = (&'a NodeName, &'a HostFacts)> {
    let planes = saved
        .inventory
        .iter()
        .filter(|(_, entry)| entry.roles.contains(&Role::ControlPlane));
    planes.filter_map(|(name, _)| match hosts.get(name) {
        Some(HostView::Reachable(facts)) => Some((name, &**facts)),
        Some(HostView::Unreachable(_)) | None => None,
    })
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostView {
    /// It answered.
    Reachable(Box<HostFacts>),
    /// It did not.
    Unreachable(Unreachable),
}

/// What hosts said a moment ago, where it is still good: those are not asked again.
pub type KeptFacts = BTreeMap<NodeName, Box<HostFacts>>;

/// Why a host did not answer, as data: the error that is shown for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unreachable {
    /// Who has to act.
    pub class: ErrorClass,
    /// The message, with its causes.
    pub why: String,
    /// What to do about it, most likely cure first.
    pub hints: Vec<String>,
    /// What prevents the connection.
    #[serde(default)]
    pub obstacle: Obstacle,
    /// The message without the node, where other nodes may have the same; not kept.
    #[serde(skip)]
    pub alike: Option<Box<Alike>>,
}

impl Unreachable {
    /// An error as a fact.
    pub fn of(error: &(dyn Explain + Send + Sync + 'static)) -> Self {
        let why = with_causes(error);
        Self {
            class: error.class(),
            alike: Alike::of(error, &why).map(Box::new),
            why,
            hints: error.hints().into_iter().map(Cow::into_owned).collect(),
            obstacle: error.obstacle(),
        }
    }
}

/// One control plane's API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApiHealth {
    /// It answers `/readyz`.
    Serving,
    /// It does not; why.
    Unreachable(String),
}

/// The cluster's API, whichever server answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiView<'a> {
    /// No keys yet, or no control plane to ask.
    Unknown,
    /// No server answers; why the last one does not.
    Unreachable(&'a str),
    /// What it said.
    Up(&'a ClusterFacts),
}

/// What tells that the machine under a node's name is not the one that was a node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Its machine-id is another one, and nothing of the cluster is there.
    Machine {
        /// The one that the state has.
        was: String,
        /// The one that it has.
        is: String,
    },
    /// Nothing of the cluster is there, while etcd and the API know the node: it was reinstalled.
    Wiped,
}

impl Actual {
    /// The other node of the inventory whose machine answers under this name. What was given up may
    /// have any name when it comes back.
    pub fn other_name(&self, name: &NodeName) -> Option<&NodeName> {
        let is = self.up(name)?.system.machine_id.as_str();
        let inventory = &self.saved.as_ref()?.inventory;
        let is_it = |node: &NodeName| {
            let entry = inventory.get(node);
            let entry = entry.filter(|entry| entry.membership != Membership::Lost);
            let known = entry.and_then(|entry| entry.machine_id.as_deref());
            !is.is_empty() && known == Some(is)
        };
        let mut others = inventory.keys().filter(|other| *other != name);
        (!is_it(name)).then(|| others.find(|other| is_it(other)))?
    }

    /// What tells that another machine answers under the name of a node that is no tombstone.
    pub fn replaced(&self, name: &NodeName) -> Option<Replaced> {
        let (saved, facts) = (self.saved.as_ref()?, self.up(name)?);
        let entry = saved.inventory.get(name)?;
        if entry.membership == Membership::Lost || facts.is_of(&saved.cluster_id) {
            return None;
        }
        let is = &facts.system.machine_id;
        if let Some(was) = entry.machine_id.as_ref()
            && !is.is_empty()
            && was != is
        {
            let (was, is) = (was.clone(), is.clone());
            return Some(Replaced::Machine { was, is });
        }
        let known = match self.api() {
            ApiView::Up(api) => api.nodes.contains_key(name),
            ApiView::Unknown | ApiView::Unreachable(_) => false,
        };
        let serves = matches!(self.etcd.quorum, Quorum::Serving { .. });
        let member = serves && self.etcd.of_node(name).next().is_some();
        (known && member && !facts.has_data()).then_some(Replaced::Wiped)
    }

    /// The cluster's API, whichever server answers for it.
    pub fn api(&self) -> ApiView<'_> {
        if let Some(facts) = &self.cluster {
            return ApiView::Up(facts);
        }
        let down = self.apis.values().find_map(|api| match api {
            ApiHealth::Unreachable(why) => Some(why.as_str()),
            ApiHealth::Serving => None,
        });
        let down = self.untold.as_deref().or(down);
        down.map_or(ApiView::Unknown, ApiView::Unreachable)
    }

    /// The hosts that did not answer, and why.
    pub fn unreachable(&self) -> impl Iterator<Item = (&NodeName, &Unreachable)> {
        self.hosts.iter().filter_map(|(name, view)| match view {
            HostView::Unreachable(why) => Some((name, why)),
            HostView::Reachable(_) => None,
        })
    }

    /// Nodes that neither we nor the cluster hear of: pods that belong there are not waited for.
    pub fn silent_nodes(&self) -> BTreeSet<NodeName> {
        let nodes = self.cluster.as_ref().map(|api| &api.nodes);
        let unready = |name: &NodeName| {
            let node = nodes.and_then(|nodes| nodes.get(name));
            node.is_some_and(|node| !node.ready)
        };
        let names = self.unreachable().map(|(name, _)| name.clone());
        names.filter(unready).collect()
    }

    /// The host's facts, when it answered.
    pub fn up(&self, name: &NodeName) -> Option<&HostFacts> {
        match self.hosts.get(name) {
            Some(HostView::Reachable(facts)) => Some(facts),
            Some(HostView::Unreachable(_)) | None => None,
        }
    }

    /// True where the saved cluster's container of that component runs on a node.
    pub fn runs(&self, component: Component, node: &NodeName) -> bool {
        let id = self.saved.as_ref().map(|saved| &saved.cluster_id);
        let fact = self.up(node).and_then(|facts| facts.container(component));
        fact.zip(id)
            .is_some_and(|(fact, id)| fact.is_of(id) && fact.state == ContainerState::Running)
    }

    /// The cluster id in a host's claim.
    pub fn claimed_by(&self, name: &NodeName) -> Option<ClusterId> {
        let claim = self.up(name)?.claim()?;
        claim
            .labels
            .get(crate::model::label::CLUSTER_ID)
            .cloned()
            .map(ClusterId)
    }
}
