//! What a prober sees of a cluster, in comparison with what the last survey saw: where both differ there is news, and
//! what that means for the conditions is [`crate::status`]'s to say. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    api::conditions::{ConditionSet, ConditionType},
    error::{ErrorClass, Explain},
    etcd::{EtcdView, Quorum},
    facts::{
        Actual, ApiHealth, ClusterFacts, ContainerFact, ContainerState, DockerFacts, HostFacts,
        HostView, NodeFact, NodeHealth, SystemFacts, Unreachable,
    },
    model::{CLAIM, ClusterId, Component, NodeName, label},
    snapshots::record::Reports,
    state::ClusterState,
    status::{Seen, Status, conditions},
};

/// The conditions that a prober can tell something about.
const SEEN: [ConditionType; 5] = [
    ConditionType::NodesReachable,
    ConditionType::EtcdHealthy,
    ConditionType::ControlPlaneHealthy,
    ConditionType::Available,
    ConditionType::NodesHealthy,
];

/// What a prober sees of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    /// Whose containers.
    pub(super) id: ClusterId,
    /// The nodes to which a connection is kept.
    pub(super) planes: BTreeMap<NodeName, Plane>,
    /// What the members of etcd say; `None`: they were not asked.
    pub(super) etcd: Option<EtcdView>,
    /// The Nodes, by an API server that serves; `None`: none reports them at the moment.
    pub(super) nodes: Option<BTreeMap<NodeName, NodeHealth>>,
}

/// A node with a kept connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plane {
    pub(super) link: Link,
    /// It has an API server.
    pub(super) has_api: bool,
    /// The containers of the cluster; `None`: not listed yet.
    pub(super) containers: Option<BTreeMap<String, ContainerFact>>,
    /// Those that were altered in a way that no list shows, and when.
    pub(super) altered: BTreeMap<String, Duration>,
    /// Whether its API server serves; `None`: it was not asked yet.
    pub(super) api: Option<ApiHealth>,
}

/// A kept connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Link {
    /// None was tried: nothing is known.
    #[default]
    Unknown,
    /// It is open.
    Open,
    /// It was lost, or cannot be opened.
    Lost(Unreachable),
}

/// In what the two differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    /// A node answers again (true), or does not any more.
    Answers(NodeName, bool),
    /// A container: which one is there now, and whether it runs.
    Container(NodeName, String, Option<(String, bool)>),
    /// A container has other limits.
    Altered(NodeName, String),
    /// An API server serves again, or does not any more.
    Serves(NodeName, bool),
    /// What etcd's members say.
    Etcd(String),
    /// A Node is Ready, or is not, or is not there.
    Ready(NodeName, Option<bool>),
    /// The last survey failed, and now all connections are open.
    Unseen,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answers(node, true) => write!(f, "node `{node}` answers again"),
            Self::Answers(node, false) => write!(f, "node `{node}` does not answer"),
            Self::Container(node, name, None) => {
                write!(f, "container `{name}` on node `{node}` is gone")
            }
            Self::Container(node, name, Some((_, true))) => {
                write!(
                    f,
                    "container `{name}` on node `{node}` is a new one or runs again"
                )
            }
            Self::Container(node, name, Some((_, false))) => {
                write!(f, "container `{name}` on node `{node}` does not run")
            }
            Self::Altered(node, name) => {
                write!(f, "container `{name}` on node `{node}` was altered")
            }
            Self::Serves(node, true) => write!(f, "the API server on node `{node}` serves again"),
            Self::Serves(node, false) => write!(f, "the API server on node `{node}` fails"),
            Self::Etcd(view) => write!(f, "etcd is {view}"),
            Self::Ready(node, Some(true)) => write!(f, "node `{node}` is Ready"),
            Self::Ready(node, Some(false)) => write!(f, "node `{node}` is not Ready"),
            Self::Ready(node, None) => write!(f, "node `{node}` has no Node object"),
            Self::Unseen => write!(f, "every connection is open again"),
        }
    }
}

impl Sight {
    /// Of these nodes nothing is known yet; true: it has an API server.
    pub(super) fn new(id: ClusterId, nodes: impl Iterator<Item = (NodeName, bool)>) -> Self {
        let planes = nodes.map(|(name, has_api)| {
            let plane = Plane {
                has_api,
                ..Plane::default()
            };
            (name, plane)
        });
        Self {
            id,
            planes: planes.collect(),
            etcd: None,
            nodes: None,
        }
    }

    /// True while everything that a hint could come from is connected.
    pub(super) fn is_complete(&self) -> bool {
        let whole = |plane: &Plane| {
            let asked = plane.api.is_some() || !plane.has_api;
            plane.link == Link::Open && plane.containers.is_some() && asked
        };
        let serves = |plane: &Plane| plane.api == Some(ApiHealth::Serving);
        self.planes.values().any(serves) && self.planes.values().all(whole) && self.nodes.is_some()
    }

    /// A control plane whose API server serves.
    pub(super) fn serving(&self) -> Option<&NodeName> {
        let mut planes = self.planes.iter();
        let serving = planes.find(|(_, plane)| plane.serves());
        serving.map(|(name, _)| name)
    }

    /// In what this differs from what a survey saw; what is not known differs from nothing.
    pub(super) fn differences(&self, base: &Actual) -> BTreeSet<Difference> {
        let mut all = BTreeSet::new();
        for (name, plane) in &self.planes {
            let before = match base.hosts.get(name) {
                Some(HostView::Reachable(facts)) => Some(&**facts),
                Some(HostView::Unreachable(_)) => None,
                None => continue,
            };
            match (&plane.link, before) {
                (Link::Unknown, _) | (Link::Lost(_), None) => {}
                (Link::Open, None) => {
                    if plane.containers.is_some() {
                        all.insert(Difference::Answers(name.clone(), true));
                    }
                }
                (Link::Lost(_), Some(_)) => {
                    all.insert(Difference::Answers(name.clone(), false));
                }
                (Link::Open, Some(facts)) => {
                    all.extend(self.containers(name, plane, facts));
                    let served = base.apis.get(name) == Some(&ApiHealth::Serving);
                    let serves = plane.api.as_ref().map(|api| *api == ApiHealth::Serving);
                    if let Some(serves) = serves.filter(|serves| *serves != served) {
                        all.insert(Difference::Serves(name.clone(), serves));
                    }
                }
            }
        }
        let etcd = self.etcd.as_ref().map(summary);
        let etcd = etcd.filter(|_| base.etcd.external().is_none());
        all.extend(
            etcd.filter(|now| *now != summary(&base.etcd))
                .map(Difference::Etcd),
        );
        all.extend(self.ready(base));
        all
    }

    fn containers<'a>(
        &'a self,
        node: &'a NodeName,
        plane: &'a Plane,
        before: &'a HostFacts,
    ) -> impl Iterator<Item = Difference> + 'a {
        let now = plane.containers.as_ref();
        let moved = watched().filter_map(move |name| {
            let is = |fact: &ContainerFact| (fact.id.clone(), runs(fact));
            let was = before.containers.get(name);
            let was = was.filter(|fact| fact.is_of(&self.id)).map(is);
            let now = now?.get(name).map(is);
            (was != now).then(|| Difference::Container(node.clone(), name.to_owned(), now))
        });
        let altered = plane.altered.keys();
        moved.chain(altered.map(|name| Difference::Altered(node.clone(), name.clone())))
    }

    /// The Nodes of which something else is known.
    fn ready<'a>(&'a self, base: &'a Actual) -> impl Iterator<Item = Difference> + 'a {
        let known = self.nodes.as_ref().zip(base.cluster.as_ref());
        known.into_iter().flat_map(|(nodes, cluster)| {
            let names: BTreeSet<&NodeName> = nodes.keys().chain(cluster.nodes.keys()).collect();
            names.into_iter().filter_map(|name| {
                let now = nodes.get(name).map(|node| node.ready);
                let was = cluster.nodes.get(name).map(|node| node.ready);
                (now != was).then(|| Difference::Ready(name.clone(), now))
            })
        })
    }

    /// What a survey saw, with what is seen now in its place.
    fn over(&self, base: &Actual) -> Actual {
        let mut actual = base.clone();
        for (name, plane) in &self.planes {
            // What is no node of the survey may be none any more.
            let Some(host) = actual.hosts.get_mut(name) else {
                continue;
            };
            match &plane.link {
                Link::Unknown => {}
                Link::Lost(why) => {
                    if let HostView::Reachable(_) = host {
                        *host = HostView::Unreachable(why.clone());
                    }
                    actual.apis.remove(name);
                }
                Link::Open => {
                    if let Some(containers) = &plane.containers {
                        self.lay_over(host, containers);
                    }
                    if let Some(api) = &plane.api {
                        actual.apis.insert(name.clone(), api.clone());
                    }
                }
            }
        }
        if let Some(view) = &self.etcd
            && base.etcd.external().is_none()
        {
            actual.etcd = with_quotas(view, &base.etcd);
        }
        if actual.apis.values().any(|api| *api == ApiHealth::Serving) {
            self.nodes_over(&mut actual);
        } else {
            actual.cluster = None;
        }
        actual
    }

    /// The containers that a node has now. Of one that has ended since, a list does not show with which exit code.
    fn lay_over(&self, host: &mut HostView, now: &BTreeMap<String, ContainerFact>) {
        let mut facts = match host {
            HostView::Reachable(facts) => (**facts).clone(),
            HostView::Unreachable(_) => nothing(),
        };
        for name in watched() {
            let was = facts.containers.get(name);
            if was.is_some_and(|fact| !fact.is_of(&self.id)) {
                continue;
            }
            let same = |fact: &&ContainerFact| {
                was.is_some_and(|was| was.id == fact.id && runs(was) == runs(fact))
            };
            match now.get(name) {
                Some(fact) if same(&fact) => {}
                Some(fact) => {
                    let mut fact = fact.clone();
                    if !runs(&fact) && fact.state != ContainerState::Created {
                        fact.state = ContainerState::Other;
                    }
                    facts.containers.insert(name.to_owned(), fact);
                }
                None => drop(facts.containers.remove(name)),
            }
        }
        *host = HostView::Reachable(Box::new(facts));
    }

    fn nodes_over(&self, actual: &mut Actual) {
        let Some(now) = &self.nodes else {
            return;
        };
        let cluster = actual.cluster.get_or_insert_default();
        actual.untold = None;
        cluster.nodes.retain(|name, _| now.contains_key(name));
        for (name, health) in now {
            let NodeHealth { ready, message } = health;
            let fact = cluster.nodes.entry(name.clone()).or_default();
            if fact.ready != *ready || fact.message.is_empty() {
                fact.ready = *ready;
                fact.message.clone_from(message);
            }
        }
    }

    /// The conditions that are not as the survey had them, by the same judgement of both.
    pub(super) fn news(&self, base: &Actual, saved: &ClusterState, now: Timestamp) -> ConditionSet {
        let over = conditions_of(self.over(base), saved, now);
        let before = conditions_of(base.clone(), saved, now);
        let mut news = ConditionSet::new();
        for kind in SEEN {
            if let Some(state) = over.get(kind)
                && before.get(kind) != Some(state)
            {
                news.set(kind, state.reason, &state.message);
            }
        }
        news
    }
}

impl Plane {
    /// Its API server serves, over a connection that is open.
    pub(super) fn serves(&self) -> bool {
        self.link == Link::Open && self.api == Some(ApiHealth::Serving)
    }
}

/// The containers that are compared.
fn watched() -> impl Iterator<Item = &'static str> {
    let components = Component::ALL.into_iter().map(Component::container);
    components.chain([CLAIM])
}

/// The claim never runs, and is not to.
fn runs(fact: &ContainerFact) -> bool {
    fact.state == ContainerState::Running
}

/// What of etcd is news where it changes.
fn summary(view: &EtcdView) -> String {
    let quorum = match &view.quorum {
        Quorum::Serving { .. } => "serving",
        Quorum::Lost => "without a quorum",
        Quorum::Disagree => "without an agreed leader",
        Quorum::Unknown => "silent",
        Quorum::External(_) => "external",
    };
    let members: Vec<String> = view.members.keys().map(ToString::to_string).collect();
    let healthy: Vec<String> = view.healthy().iter().map(ToString::to_string).collect();
    let faults: Vec<String> = view
        .alarms
        .iter()
        .map(|alarm| format!("{:?} of {}", alarm.kind, alarm.member))
        .collect();
    format!(
        "{quorum}; members: {}; healthy: {}; alarms: {}",
        members.join(" "),
        healthy.join(" "),
        faults.join(" ")
    )
}

/// Members before 3.6 do not report their quotas: those are in the definitions of their containers.
fn with_quotas(view: &EtcdView, base: &EtcdView) -> EtcdView {
    let mut view = view.clone();
    for (id, member) in &mut view.members {
        let known = base
            .members
            .get(id)
            .and_then(|member| member.status.as_ref());
        let known = known.and_then(|(_, status)| status.quota);
        if let Some((_, status)) = &mut member.status {
            status.quota = status.quota.or(known);
        }
    }
    view
}

/// A node that answers and of which nothing else is known.
fn nothing() -> HostFacts {
    HostFacts {
        docker: DockerFacts::default(),
        containers: BTreeMap::new(),
        images: BTreeSet::new(),
        files: None,
        system: SystemFacts::default(),
        clock: None,
    }
}

fn conditions_of(mut actual: Actual, saved: &ClusterState, now: Timestamp) -> ConditionSet {
    actual.saved = Some(Box::new(saved.clone()));
    conditions(&Status::of(&Seen {
        now,
        intent: None,
        actual: &actual,
        snapshots: &Reports::new(),
        desired: None,
        plan: Err(&NotCompared),
    }))
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[error("it is not compared with its config")]
struct NotCompared;

impl Explain for NotCompared {
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        Vec::new()
    }
}

/// Of what a survey saw, what [`Sight`] is compared with: no file, no image, no object, no key.
pub(super) fn trimmed(actual: &Actual) -> Actual {
    let hosts = actual.hosts.iter().map(|(name, view)| {
        let view = match view {
            HostView::Unreachable(down) => HostView::Unreachable(down.clone()),
            HostView::Reachable(facts) => HostView::Reachable(Box::new(small(facts))),
        };
        (name.clone(), view)
    });
    let cluster = actual.cluster.as_ref().map(|cluster| {
        let nodes = cluster.nodes.iter().map(|(name, node)| {
            let node = NodeFact {
                ready: node.ready,
                message: node.message.clone(),
                ..NodeFact::default()
            };
            (name.clone(), node)
        });
        Box::new(ClusterFacts {
            nodes: nodes.collect(),
            no_traffic: cluster.no_traffic.clone(),
            ..ClusterFacts::default()
        })
    });
    Actual {
        hosts: hosts.collect(),
        etcd: actual.etcd.clone(),
        apis: actual.apis.clone(),
        cluster,
        untold: actual.untold.clone(),
        ..Actual::default()
    }
}

fn small(facts: &HostFacts) -> HostFacts {
    let containers = watched().filter_map(|name| {
        let fact = facts.containers.get(name)?;
        Some((name.to_owned(), bare(fact)))
    });
    HostFacts {
        containers: containers.collect(),
        ..nothing()
    }
}

/// A container with no label but whose it is.
pub(super) fn bare(fact: &ContainerFact) -> ContainerFact {
    let of = fact.labels.get_key_value(label::CLUSTER_ID);
    let of = of.map(|(key, id)| (key.clone(), id.clone()));
    ContainerFact {
        id: fact.id.clone(),
        labels: of.into_iter().collect(),
        state: fact.state,
        runs: None,
        image: String::new(),
        started: None,
    }
}
