//! What is known of one cluster at the moment, by its prober and by the last survey, and what follows from it. All times
//! are since the same moment. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    hints::{Hints, Wake},
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

    /// When the reconcile is woken next, as things are.
    pub(super) fn due(&self) -> Option<Duration> {
        self.hints.due()
    }

    /// For how long a survey has to wait for the budget of hints.
    pub(super) fn held(&self, now: Duration) -> Option<Duration> {
        self.hints.held(now)
    }

    /// What is due, if something is.
    pub(super) fn take(&mut self, now: Duration) -> Option<Wake> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::ErrorClass,
        facts::{ContainerState, DockerFacts, HostFacts, HostView, SystemFacts},
        model::label,
    };

    fn id() -> ClusterId {
        ClusterId("00000000-0000-4000-8000-000000000001".to_owned())
    }

    fn n1() -> NodeName {
        NodeName::from("n1")
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn containers(state: ContainerState) -> BTreeMap<String, ContainerFact> {
        let fact = ContainerFact {
            id: "c1".to_owned(),
            labels: [(label::CLUSTER_ID.to_owned(), id().0)].into(),
            state,
            runs: None,
            image: String::new(),
            started: None,
        };
        [("kube-apiserver".to_owned(), fact)].into()
    }

    /// A survey of one control plane that serves.
    fn survey(state: ContainerState) -> Actual {
        let facts = HostFacts {
            docker: DockerFacts::default(),
            containers: containers(state),
            images: BTreeSet::new(),
            files: None,
            system: SystemFacts::default(),
            clock: None,
        };
        Actual {
            hosts: [(n1(), HostView::Reachable(Box::new(facts)))].into(),
            apis: [(n1(), ApiHealth::Serving)].into(),
            ..Actual::default()
        }
    }

    fn away(obstacle: Obstacle) -> Unreachable {
        Unreachable {
            alike: None,
            class: ErrorClass::Host,
            why: "it does not answer".to_owned(),
            hints: vec![],
            obstacle,
        }
    }

    /// All is connected, and a survey saw the same.
    fn settled() -> ProbeState {
        let mut state = ProbeState::new(id());
        state.begins(at(0), &[(n1(), true)].into());
        state.opened(at(1), &n1());
        state.listed(at(1), &n1(), &containers(ContainerState::Running));
        state.api(at(1), &n1(), ApiHealth::Serving);
        state.nodes(at(1), Some(BTreeMap::new()));
        state.surveyed(at(9), at(8), &survey(ContainerState::Running));
        assert!(state.sight().is_complete());
        assert_eq!(state.due(), None);
        state
    }

    /// Without a survey nothing differs: a new leader looks first.
    #[test]
    fn before_the_first_survey_there_is_no_hint() {
        let mut state = ProbeState::new(id());
        state.begins(at(0), &[(n1(), true)].into());
        state.lost(at(1), &n1(), away(Obstacle::Silence));
        assert_eq!(state.due(), None);
    }

    #[test]
    fn what_ends_is_a_hint_and_so_is_its_return_unless_a_survey_knows() {
        let mut state = settled();
        state.listed(at(20), &n1(), &containers(ContainerState::Exited(0)));
        assert!(state.take(at(21)).is_some());
        // It was started again before anything looked.
        state.listed(at(22), &n1(), &containers(ContainerState::Running));
        assert_eq!(state.due(), None);
        state.listed(at(23), &n1(), &containers(ContainerState::Exited(0)));
        state.surveyed(at(30), at(29), &survey(ContainerState::Exited(1)));
        assert_eq!(state.due(), None, "as the survey saw it");
        state.listed(at(40), &n1(), &containers(ContainerState::Running));
        assert!(state.take(at(41)).is_some());
    }

    /// Nothing is claimed of a node that is not reached for a matter of trust: a run may know its key.
    #[test]
    fn a_login_that_is_refused_is_no_news_of_the_node() {
        let mut state = settled();
        state.lost(at(20), &n1(), away(Obstacle::HostKeyUnknown));
        assert_eq!(state.due(), None);
        assert!(!state.sight().is_complete());
        state.lost(at(30), &n1(), away(Obstacle::Silence));
        assert!(state.take(at(31)).is_some());
    }

    /// A survey that failed is done again as soon as everything is connected.
    #[test]
    fn after_a_failed_survey_the_return_is_a_hint() {
        let mut state = settled();
        state.lost(at(20), &n1(), away(Obstacle::Silence));
        assert!(state.take(at(21)).is_some());
        state.blind(at(40), at(22));
        assert_eq!(state.due(), None);
        state.opened(at(50), &n1());
        state.listed(at(50), &n1(), &containers(ContainerState::Running));
        state.api(at(50), &n1(), ApiHealth::Serving);
        assert_eq!(
            state.take(at(51)),
            Some(Wake::Survey(vec![Difference::Unseen]))
        );
    }

    /// What was asked for before a survey does not contradict it.
    #[test]
    fn an_older_answer_does_not_count() {
        let mut state = settled();
        state.api(
            at(20),
            &n1(),
            ApiHealth::Unreachable("no answer".to_owned()),
        );
        state.surveyed(at(21), at(20), &survey(ContainerState::Running));
        assert_eq!(state.due(), None);
    }
}
