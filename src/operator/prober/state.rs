//! What is known of one cluster at the moment, by its prober and by the last survey, and what follows from it. All times
//! are since the same moment. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    hints::Hints,
    sight::{Difference, Link, Sight, bare, trimmed},
};
use crate::{
    api::conditions::ConditionSet,
    error::Obstacle,
    etcd::EtcdView,
    facts::{Actual, ApiHealth, ContainerFact, NodeHealth, Unreachable},
    model::{ClusterId, NodeName},
    state::ClusterState,
};

/// Of one cluster.
#[derive(Debug)]
pub(super) struct ProbeState {
    sight: Sight,
    /// What the last survey saw; `None`: there was none since the prober began, or the last one failed.
    base: Option<Arc<Actual>>,
    /// The last survey failed.
    failed: bool,
    hints: Hints,
}

impl ProbeState {
    /// Nothing is known.
    pub(super) fn new(id: ClusterId) -> Self {
        Self {
            sight: Sight::new(id, std::iter::empty()),
            base: None,
            failed: false,
            hints: Hints::default(),
        }
    }

    /// From now on these nodes are watched; true: with an API server.
    pub(super) fn begins(&mut self, now: Duration, nodes: &BTreeMap<NodeName, bool>) {
        let nodes = nodes.iter().map(|(name, has_api)| (name.clone(), *has_api));
        self.sight = Sight::new(self.sight.id.clone(), nodes);
        self.compare(now);
    }

    /// No node is watched any more.
    pub(super) fn ends(&mut self, now: Duration) {
        self.begins(now, &BTreeMap::new());
    }

    pub(super) const fn sight(&self) -> &Sight {
        &self.sight
    }

    /// A connection is open.
    pub(super) fn opened(&mut self, now: Duration, node: &NodeName) {
        if let Some(plane) = self.sight.planes.get_mut(node) {
            plane.link = Link::Open;
            plane.containers = None;
            plane.api = None;
        }
        self.sight.etcd = None;
        self.compare(now);
    }

    /// A connection was lost, or could not be opened. Where that is a matter of trust nothing is known of the node: a
    /// run may know more than the state.
    pub(super) fn lost(&mut self, now: Duration, node: &NodeName, why: Unreachable) {
        let link = match why.obstacle {
            Obstacle::Other | Obstacle::Silence | Obstacle::DockerUnavailable => Link::Lost(why),
            Obstacle::AddressNotAllowed
            | Obstacle::AuthenticationFailed
            | Obstacle::HostKeyUnknown
            | Obstacle::HostKeyChanged => Link::Unknown,
        };
        self.is(now, node, link);
    }

    /// No connection to a node is tried.
    pub(super) fn idle(&mut self, now: Duration, node: &NodeName) {
        self.is(now, node, Link::Unknown);
    }

    fn is(&mut self, now: Duration, node: &NodeName, link: Link) {
        if let Some(plane) = self.sight.planes.get_mut(node) {
            plane.link = link;
            plane.containers = None;
            plane.api = None;
            plane.altered.clear();
        }
        self.sight.etcd = None;
        self.compare(now);
    }

    /// The containers of a node were listed.
    pub(super) fn listed(
        &mut self,
        now: Duration,
        node: &NodeName,
        containers: &BTreeMap<String, ContainerFact>,
    ) {
        if let Some(plane) = self.sight.planes.get_mut(node) {
            let containers = containers.iter();
            let containers = containers.map(|(name, fact)| (name.clone(), bare(fact)));
            plane.containers = Some(containers.collect());
            plane.link = Link::Open;
        }
        self.compare(now);
    }

    /// A container has other limits.
    pub(super) fn altered(&mut self, now: Duration, node: &NodeName, container: String) {
        if let Some(plane) = self.sight.planes.get_mut(node)
            && plane
                .containers
                .as_ref()
                .is_some_and(|all| all.contains_key(&container))
        {
            plane.altered.insert(container, now);
        }
        self.compare(now);
    }

    /// An API server was asked whether it serves.
    pub(super) fn api(&mut self, now: Duration, node: &NodeName, health: ApiHealth) {
        if let Some(plane) = self.sight.planes.get_mut(node)
            && plane.link == Link::Open
        {
            plane.api = Some(health);
        }
        self.compare(now);
    }

    /// The members of etcd were asked, over the connections that are open.
    pub(super) fn etcd(&mut self, now: Duration, view: EtcdView) {
        self.sight.etcd = self.knows_links().then_some(view);
        self.compare(now);
    }

    /// True where each connection was tried.
    pub(super) fn knows_links(&self) -> bool {
        let mut planes = self.sight.planes.values();
        !self.sight.planes.is_empty() && planes.all(|plane| plane.link != Link::Unknown)
    }

    /// The nodes with an open connection.
    pub(super) fn open(&self) -> BTreeSet<NodeName> {
        let planes = self.sight.planes.iter();
        let open = planes.filter(|(_, plane)| plane.link == Link::Open);
        open.map(|(name, _)| name.clone()).collect()
    }

    /// What the Nodes are; `None`: no API server reports them.
    pub(super) fn nodes(&mut self, now: Duration, nodes: Option<BTreeMap<NodeName, NodeHealth>>) {
        self.sight.nodes = nodes;
        self.compare(now);
    }

    /// A survey that began at `began` has seen this. What was asked for last is older, until it is asked for again.
    pub(super) fn surveyed(&mut self, now: Duration, began: Duration, actual: &Actual) {
        for (name, plane) in &mut self.sight.planes {
            plane.altered.retain(|_, at| *at >= began);
            if plane.api.is_some() {
                plane.api = actual.apis.get(name).cloned();
            }
        }
        self.sight.etcd = None;
        self.base = Some(Arc::new(trimmed(actual)));
        self.failed = false;
        self.compare(now);
        self.hints.surveyed(began);
    }

    /// A survey that began at `began` failed: what the one before saw is not what holds now.
    pub(super) fn blind(&mut self, now: Duration, began: Duration) {
        self.base = None;
        self.failed = true;
        self.compare(now);
        self.hints.surveyed(began);
    }

    /// A run begins, or ends.
    pub(super) const fn runs(&mut self, run: bool) {
        self.hints.runs(run);
    }

    /// When the next hint is due.
    pub(super) fn due(&self) -> Option<Duration> {
        self.hints.due()
    }

    /// The hint that is due.
    pub(super) fn take(&mut self, now: Duration) -> Option<Vec<Difference>> {
        self.hints.take(now)
    }

    /// The conditions that are not as the last survey had them.
    pub(super) fn news(&self, saved: &ClusterState, now: Timestamp) -> ConditionSet {
        match &self.base {
            Some(base) if !self.sight.differences(base).is_empty() => {
                self.sight.news(base, saved, now)
            }
            Some(_) | None => ConditionSet::new(),
        }
    }

    fn compare(&mut self, now: Duration) {
        let differences = match &self.base {
            Some(base) => self.sight.differences(base),
            None if self.failed && self.sight.is_complete() => [Difference::Unseen].into(),
            None => BTreeSet::new(),
        };
        self.hints.sees(now, differences);
    }
}
