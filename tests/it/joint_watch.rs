//! What holds at every step of every run, whatever the world is like: nothing is done to a machine without proof that it
//! is this cluster's; no node is disturbed that the first plan of the run did not name; what has a spare serves; no voter
//! leaves for one that cannot join; no kubelet is newer than an API server that serves. And after it: the object and the
//! command line say the same, and no process is older than its files.

use std::collections::{BTreeMap, BTreeSet};

use rke_operator::{
    config::Intent,
    converge::{AnyPurpose, Error, Purpose, inspect},
    desired::pki::in_use,
    facts::{Actual, HostFacts, HostView},
    model::{ClusterId, Component, NodeName, Role, image_version, label, path},
    plan::{Action, HostAction, Plan, Step, Target, render},
    state::{ClusterState, codec},
    status::Status,
};

use crate::{
    joint_properties::no_longer_watched,
    sim::{World, runner::Runner},
    status_conditions::agree,
};

/// The nodes that a plan disturbs, and those that answer and of which it says that they stay as they are for now.
fn announced(plan: &Plan, wanted: Option<&Intent>, off: &BTreeSet<NodeName>) -> BTreeSet<NodeName> {
    let disturbed = plan.disruptions().filter_map(|(step, _)| step.node());
    let mut all: BTreeSet<NodeName> = disturbed.cloned().collect();
    for note in plan.notes.iter().filter(|note| note.is_left) {
        let left: Vec<NodeName> = match (&note.target, wanted) {
            (Some(Target::Host(name)), _) => vec![name.clone()],
            (None, Some(intent)) => intent.nodes.keys().cloned().collect(),
            (_, _) => Vec::new(),
        };
        all.extend(left.into_iter().filter(|name| !off.contains(name)));
    }
    all
}

/// Something says that a machine is this cluster's: the claim, its mark, a container, a copy of the state; or a run saw
/// this machine under its name, and nobody else's things are there.
fn is_ours(name: &NodeName, facts: &HostFacts, saved: &ClusterState) -> bool {
    let id = &saved.cluster_id;
    let is = |found: Option<&String>| found == Some(&id.0);
    let mut containers = facts.containers.values();
    let machine = saved
        .inventory
        .get(name)
        .and_then(|entry| entry.machine_id.as_ref());
    containers.any(|fact| is(fact.labels.get(label::CLUSTER_ID)))
        || facts.system.cluster_id.as_ref() == Some(id)
        || copy_on(facts).is_some_and(|copy| copy.cluster_id == *id)
        || machine == Some(&facts.system.machine_id) && facts.system.foreign.is_empty()
}

/// The copy of the state in a node's files.
pub(crate) fn copy_on(facts: &HostFacts) -> Option<ClusterState> {
    let file = facts.files.as_ref()?.get(path::STATE)?;
    codec::decode(std::str::from_utf8(file.content.expose()).ok()?).ok()
}

/// What was so when a run began.
struct Watch {
    text: String,
    id: Option<ClusterId>,
    theirs: BTreeSet<NodeName>,
    announced: BTreeSet<NodeName>,
    ours: BTreeSet<NodeName>,
    /// How many members of etcd the config asks for.
    wanted: Option<usize>,
    /// The control planes of the config: those of nodes that leave are in no proxy's list, and serve no kubelet
    /// that changes.
    planes: BTreeSet<NodeName>,
    /// etcd has a spare member, and the API servers have one.
    spare: (bool, bool),
    /// Who votes, and whether it runs.
    voters: BTreeMap<NodeName, bool>,
}

impl Watch {
    fn begin(
        runner: &Runner,
        purpose: AnyPurpose<'_>,
        first: &Plan,
        theirs: &BTreeSet<NodeName>,
    ) -> Self {
        let saved = runner.memory.shell().saved;
        let id = saved.as_ref().map(|saved| saved.cluster_id.clone());
        let intent = match purpose {
            AnyPurpose::Goal(goal) => Some(goal.intent()),
            AnyPurpose::Removal(_) => None,
        };
        let wanted = intent.map(|intent| intent.with_role(Role::Etcd).count());
        let planes = intent.map(|intent| {
            let planes = intent.with_role(Role::ControlPlane);
            planes.map(|(name, _)| name.clone()).collect()
        });
        runner.remote.world(|world| {
            let off = world.down.keys().cloned().collect();
            let serves = id.as_ref().filter(|_| wanted.is_some());
            let spare = serves.is_some_and(|id| world.member_count(id) > 2 && world.has_quorum(id));
            let apis = spare && serves.is_some_and(|id| world.serving(id) > 1);
            let hosts = world.truth.hosts.iter();
            let ours = hosts.filter(|(name, view)| match (view, &saved) {
                (HostView::Reachable(facts), Some(saved)) => is_ours(name, facts, saved),
                (_, _) => false,
            });
            Self {
                text: render(first),
                theirs: theirs.clone(),
                announced: announced(first, intent, &off),
                // Whatever is on it, where a person names it.
                ours: ours
                    .map(|(name, _)| name.clone())
                    .chain(runner.environment().clean)
                    .collect(),
                wanted,
                planes: planes.unwrap_or_default(),
                spare: (spare, apis),
                voters: id.as_ref().map(|id| world.voters(id)).unwrap_or_default(),
                id: id.clone(),
            }
        })
    }

    fn holds(&mut self, world: &World, step: &Step) {
        let text = &self.text;
        if let Action::Host(node, action) = &step.action {
            assert!(
                !self.theirs.contains(node),
                "it is somebody else's: {step:?}\n{text}"
            );
            let cleans = matches!(action, HostAction::CleanHost { .. });
            assert!(
                !cleans || self.ours.contains(node),
                "without proof: {step:?}\n{text}"
            );
        }
        if let (Some(node), Some(what)) = (step.node(), &step.disturbs) {
            assert!(
                self.announced.contains(node),
                "{node} was not announced: {what}\n{text}"
            );
        }
        let Some(id) = &self.id else {
            return;
        };
        let (members, apis) = self.spare;
        assert!(
            !members || world.has_quorum(id),
            "no quorum: {step:?}\n{text}"
        );
        assert!(
            !apis || world.serving(id) > 0,
            "no API server: {step:?}\n{text}"
        );
        // One that does not run is missed by nobody.
        let voters = world.voters(id);
        let mut before = self.voters.iter();
        let leaves = before.any(|(name, runs)| *runs && !voters.contains_key(name));
        if let Some(wanted) = self.wanted.filter(|_| leaves) {
            let stay = voters.len();
            assert!(stay >= wanted, "{stay} of {wanted} vote: {step:?}\n{text}");
        }
        self.voters = voters;
        let kubelet = newer_kubelet(world, step);
        if let (Some(kubelet), Some(oldest)) = (kubelet, world.oldest_api(id, &self.planes)) {
            assert!(kubelet <= oldest, "newer than {oldest:?}: {step:?}\n{text}");
        }
    }
}

/// The release of the kubelet that a step has started.
fn newer_kubelet(world: &World, step: &Step) -> Option<rke_operator::model::ImageVersion> {
    let component = Component::Kubelet;
    let (node, action) = step.action.on_host()?;
    let starts = match action {
        HostAction::RunContainer { component, .. }
        | HostAction::ReplaceContainer { component, .. } => *component == Component::Kubelet,
        _ => false,
    };
    let fact = world
        .truth
        .up(node)
        .filter(|_| starts)?
        .container(component)?;
    image_version(&fact.image)
}

/// A run during which all that holds; `back`: a node that comes back at that step.
pub(crate) async fn holds<P: Purpose>(
    runner: &Runner,
    goal: &P,
    theirs: &BTreeSet<NodeName>,
    back: Option<(NodeName, usize)>,
) -> Result<P::Outcome, Error> {
    let first = runner.plan(goal).await?;
    let mut watch = Watch::begin(runner, goal.any(), &first, theirs);
    let mut steps = 0;
    runner.remote.watch(move |world, step: &Step| {
        steps += 1;
        if let Some((node, at)) = &back
            && steps > *at
        {
            world.down.remove(node);
        }
        watch.holds(world, step);
    });
    let outcome = runner.converge(goal).await;
    no_longer_watched(runner);
    outcome
}

/// The object and the command line say the same of the cluster as it is now. What there is no plan for has no wanted
/// add-ons to be judged by.
pub(crate) async fn says_one_thing(runner: &Runner, intent: &Intent) -> Result<(), String> {
    let Ok(inspection) = inspect(intent, &runner.environment()).await else {
        return Ok(());
    };
    if inspection.plan.is_err() {
        return Ok(());
    }
    agree(&Status::of(&inspection.seen()))
}

/// The components of these nodes that run with another certificate than their files have.
pub(crate) fn older_than_files(actual: &Actual, id: &ClusterId) -> Vec<String> {
    let hosts = actual.hosts.keys();
    let facts = hosts.filter_map(|name| Some((name, actual.up(name)?)));
    let older = facts.flat_map(|(name, facts)| {
        let used = in_use(facts, id).into_iter();
        used.map(move |used| format!("{name}: {} with {}", used.component, used.path))
    });
    older.collect()
}
