//! The simulated world below the product's own joint: [`rke_operator::converge`] reads it and acts
//! on it as it does on real nodes. What happens before a step, and what becomes of a survey, is
//! said by the test.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use rke_operator::{
    apply::{
        remote::{Context, Remote, RemoteSession, RemoteStep},
        step::{Done, Reporter, StepError, Warning},
        stop::Stop,
        watch::{RemoteWatch, Watched},
    },
    desired::pki::EngineClients,
    environment::Environment,
    error::{ErrorClass, Explain, Obstacle},
    etcd::{
        defrag::{DefragError, Defragmented, Shrunk},
        snapshot::{Found, SnapshotName},
    },
    facts::{
        Actual, HostView, KeptFacts, Unreachable,
        measured::{MeasureRequest, Measured},
    },
    host::{HostKeys, pool::ConnectionTarget},
    model::{
        AgentProgram, Bucket, ClientIdentity, ClusterId, NodeName, Role, WantedObjects, quoted,
        secret::Secret,
    },
    plan::{HostAction, Step},
    snapshots::{
        Answer, Doing, SavedOnce, SnapshotTools, WantedSnapshot,
        record::{Grade, Proof, Reports},
        seek::{SnapshotFiles, Sought},
    },
    state::{ClusterState, SnapshotPlace},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{
    Cut, Shell, World,
    watch::SimWatch,
    world::{Ended, dry_runs},
};

type Watch = Box<dyn FnMut(&mut World, &Step) + Send>;

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Up,
    Removal,
}

/// What happens before a step, or instead of it.
pub(crate) enum Turn {
    /// The step.
    Go,
    /// The step, and a warning.
    Warn(Warning),
    /// It fails.
    Fail(SimFailure),
    /// It panics.
    Panic,
    /// It waits until the run is told to stop.
    AwaitStop,
    /// It takes that long, whatever the run is told.
    Work(Duration),
    /// It waits until then or until this is notified; then it is done.
    Hold(Arc<Notify>),
}

/// Asked before each step on a node or in the cluster: what the run is for, which of its steps
/// this is, from 0, and the step.
type Script = Box<dyn FnMut(Purpose, usize, &Step) -> Turn + Send>;

/// What becomes of the surveys before a run's first step, and of those that are no part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surveys {
    /// They are answered.
    Answer,
    /// They never end, not even when later ones are answered.
    Hang,
    /// They panic.
    Panic,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Surveys, those of runs included.
    pub(crate) surveys: usize,
    /// Of these, how many hung.
    pub(crate) hanging: usize,
    /// Those that hung at the same time, most.
    pub(crate) most_hanging: usize,
    hanging_now: usize,
    /// Runs towards a config that came to a step on a node or in the cluster.
    pub(crate) ups: usize,
    /// Removals that did.
    pub(crate) removals: usize,
    /// Such runs at the same time, most.
    pub(crate) most: usize,
    running: usize,
}

/// A world that runs share, and what happens while they do.
#[derive(Clone)]
pub(crate) struct SimRemote {
    shared: Arc<Shared>,
    /// Who comes this way.
    client: String,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Moves whenever the world may have.
    moved: watch::Sender<u64>,
    /// By itself: it may look at the world.
    script: Mutex<Script>,
}

struct Inner {
    world: World,
    /// How long each step lets others go first.
    order: Vec<u8>,
    steps: usize,
    cut: Option<Cut>,
    /// It was cut: whoever ran is dead.
    dead: bool,
    watch: Watch,
    surveys: Surveys,
    counts: Counts,
    /// What the last run was allowed: recovery, and the ids of other clusters.
    told: (Option<ClusterId>, Vec<String>),
    /// Whoever acts hears from an API server.
    reaches_an_api: bool,
    /// Where runs leave word that it is their turn; none: they take none.
    leases: Option<kube::Client>,
    /// The nodes that hang, and when a survey gives them up.
    hangs: BTreeMap<NodeName, Duration>,
    /// The API of the clusters, for whoever reaches it without a survey; none: it does not answer.
    serves: Option<kube::Client>,
    /// How often it was reached.
    reached: usize,
    /// How often each host was looked at.
    asked: BTreeMap<NodeName, usize>,
    /// Connections can be kept; else opening one takes for ever.
    takes_watches: bool,
    watches: usize,
}

impl SimRemote {
    pub(crate) fn new(world: World) -> Self {
        let shared = Shared {
            inner: Mutex::new(Inner {
                world,
                order: vec![0],
                steps: 0,
                cut: None,
                dead: false,
                watch: Box::new(|_, _| ()),
                surveys: Surveys::Answer,
                counts: Counts::default(),
                told: (None, Vec::new()),
                reaches_an_api: false,
                leases: None,
                hangs: BTreeMap::new(),
                serves: None,
                reached: 0,
                asked: BTreeMap::new(),
                takes_watches: false,
                watches: 0,
            }),
            moved: watch::Sender::default(),
            script: Mutex::new(Box::new(|_, _, _| Turn::Go)),
        };
        Self {
            shared: Arc::new(shared),
            client: String::new(),
        }
    }

    /// The same world for somebody else.
    pub(crate) fn as_client(&self, client: &str) -> Self {
        Self {
            client: client.to_owned(),
            ..self.clone()
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap()
    }

    pub(crate) fn world<T>(&self, with: impl FnOnce(&mut World) -> T) -> T {
        let done = with(&mut self.inner().world);
        self.moves();
        done
    }

    /// The same, where nothing is changed.
    pub(super) fn sees<T>(&self, of: impl FnOnce(&World) -> T) -> T {
        of(&self.inner().world)
    }

    fn moves(&self) {
        let moved = &self.shared.moved;
        moved.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) fn moved(&self) -> watch::Receiver<u64> {
        self.shared.moved.subscribe()
    }

    /// From now on connections can be kept.
    pub(crate) fn take_watches(&self) {
        self.inner().takes_watches = true;
        self.moves();
    }

    pub(super) fn takes_watches(&self) -> bool {
        self.inner().takes_watches
    }

    pub(super) fn counts_watch(&self) {
        self.inner().watches += 1;
    }

    /// How often a connection that is kept was opened, or tried.
    pub(crate) fn watches(&self) -> usize {
        self.inner().watches
    }

    pub(crate) fn order(&self, order: &[u8]) {
        if !order.is_empty() {
            self.inner().order = order.to_vec();
        }
    }

    /// Runs take their turn by a Lease of this API.
    pub(crate) fn leases_in(&self, api: kube::Client) {
        self.inner().leases = Some(api);
    }

    /// From now on this is the API of the clusters, for whoever reaches it without a survey.
    pub(crate) fn serves(&self, api: Option<kube::Client>) {
        self.inner().serves = api;
    }

    /// How often that API was to be reached.
    pub(crate) fn reached(&self) -> usize {
        self.inner().reached
    }

    /// From now on every step gets an answer of an API server.
    pub(crate) fn reaches_an_api(&self) {
        self.inner().reaches_an_api = true;
    }

    /// Sees the world after each step, and may change it as somebody else would.
    pub(crate) fn watch(&self, watch: impl FnMut(&mut World, &Step) + Send + 'static) {
        self.inner().watch = Box::new(watch);
    }

    /// The next run dies at this step; `None`: it lives again.
    pub(crate) fn cut(&self, cut: Option<Cut>) {
        let mut inner = self.inner();
        inner.cut = cut;
        inner.steps = 0;
        inner.dead = false;
    }

    /// A run was cut off since the last [`Self::cut`].
    pub(crate) fn was_cut(&self) -> bool {
        self.inner().dead
    }

    /// What happens before each step from now on.
    pub(crate) fn script(
        &self,
        script: impl FnMut(Purpose, usize, &Step) -> Turn + Send + 'static,
    ) {
        *self.shared.script.lock().unwrap() = Box::new(script);
    }

    /// What becomes of surveys that begin from now on.
    pub(crate) fn surveys(&self, surveys: Surveys) {
        self.inner().surveys = surveys;
    }

    /// A node does not answer, and each survey waits for it for that long.
    pub(crate) fn hang(&self, node: &str, time: Duration) {
        self.kill(node);
        self.inner().hangs.insert(NodeName::from(node), time);
    }

    /// How often each host was looked at since this was asked last.
    pub(crate) fn asked(&self) -> BTreeMap<NodeName, usize> {
        std::mem::take(&mut self.inner().asked)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.inner().counts
    }

    /// How many steps were carried out.
    pub(crate) fn steps(&self) -> usize {
        self.inner().steps
    }

    /// What the last run was allowed: recovery, and the ids of other clusters.
    pub(crate) fn told(&self) -> (Option<ClusterId>, Vec<String>) {
        self.inner().told.clone()
    }
}

impl Remote for SimRemote {
    fn session(&self, _: Arc<dyn HostKeys>) -> Box<dyn RemoteSession> {
        Box::new(SimSession {
            remote: self.clone(),
            aim: BTreeMap::new(),
            begun: AtomicUsize::new(0),
            heard: Mutex::default(),
        })
    }

    fn watch(
        &self,
        _: Arc<dyn HostKeys>,
        _: BTreeMap<NodeName, ConnectionTarget>,
        watched: Watched,
    ) -> Box<dyn RemoteWatch> {
        Box::new(SimWatch::new(self.clone(), watched))
    }
}

struct SimSession {
    remote: SimRemote,
    aim: BTreeMap<NodeName, ConnectionTarget>,
    /// How many steps were begun.
    begun: AtomicUsize,
    heard: Mutex<Option<Instant>>,
}

fn proof(node: &NodeName, name: &str) -> Proof {
    let (grade, why) = if name.starts_with("bad") {
        (
            Grade::Failed,
            Some("etcd does not start with it".to_owned()),
        )
    } else {
        (Grade::Proven, None)
    };
    Proof {
        grade,
        at: Timestamp::UNIX_EPOCH,
        by: node.clone(),
        etcd_version: None,
        revision: Some(1000),
        keys: Some(10),
        seconds: 1,
        why,
    }
}

/// Each node has every snapshot of the world.
impl SnapshotFiles for SimRemote {
    fn reach<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Unreachable>> {
        let down = self.world(|world| world.down.get(node).cloned());
        Box::pin(async move { down.map_or(Ok(()), Err) })
    }

    fn look<'a>(
        &'a self,
        _: &'a NodeName,
        sought: Sought<'a>,
    ) -> BoxFuture<'a, Result<Found, Unreachable>> {
        let name = sought.name.as_str();
        let there = self.world(|world| world.snapshots.contains_key(name));
        let found = if there {
            Found::Whole {
                sha256: "ab".repeat(32),
                names_cluster: true,
                encrypted: false,
            }
        } else {
            Found::Not("is not there")
        };
        Box::pin(async { Ok(found) })
    }

    fn revision<'a>(
        &'a self,
        _: &'a NodeName,
        _: Sought<'a>,
    ) -> BoxFuture<'a, Result<u64, Unreachable>> {
        Box::pin(async { Ok(1000) })
    }

    fn fetch<'a>(
        &'a self,
        node: &'a NodeName,
        _: Sought<'a>,
        _: &'a Bucket,
        _: &'a AgentProgram,
    ) -> BoxFuture<'a, Result<(), Unreachable>> {
        Box::pin(async move { panic!("{node}: this world has no bucket") })
    }

    fn save<'a>(
        &'a self,
        node: &'a NodeName,
        _: &'a ClusterId,
        _: &'a SnapshotTools,
        wanted: WantedSnapshot<'a>,
    ) -> BoxFuture<'a, Result<SavedOnce, Unreachable>> {
        let saved = self.world(|world| {
            if let Some(down) = world.down.get(node) {
                return Err(down.clone());
            }
            world.snapshot(wanted.name.as_str());
            Ok(SavedOnce {
                path: format!("/opt/rke/etcd-snapshots/{}", wanted.name.as_str()),
                bytes: 1,
                sha256: "ab".repeat(32),
                grade: None,
                why: None,
                copied: None,
                not_copied: None,
            })
        });
        Box::pin(async { saved })
    }

    /// A snapshot whose name begins with `bad` cannot be restored.
    fn named<'a>(
        &'a self,
        node: &'a NodeName,
        _: &'a ClusterId,
        (doing, name): (Doing, &'a SnapshotName),
        _: &'a AgentProgram,
    ) -> BoxFuture<'a, Result<Answer, Unreachable>> {
        let name = name.as_str();
        let answer = self.world(|world| {
            if let Some(down) = world.down.get(node) {
                return Err(down.clone());
            }
            if !world.snapshots.contains_key(name) {
                return Ok(Answer::Absent);
            }
            Ok(match doing {
                Doing::Verify => Answer::Verified(proof(node, name)),
                Doing::Delete => {
                    world.snapshots.remove(name);
                    Answer::Deleted
                }
            })
        });
        Box::pin(async { answer })
    }
}

impl RemoteSession for SimSession {
    fn aim(&mut self, targets: BTreeMap<NodeName, ConnectionTarget>) {
        self.aim = targets;
    }

    fn read<'a>(
        &'a self,
        saved: Option<ClusterState>,
        _: Option<&'a EngineClients>,
        kubeconfig: Option<Secret<String>>,
        wanted: &'a WantedObjects,
        kept: KeptFacts,
    ) -> BoxFuture<'a, Actual> {
        let shell = Shell {
            client: self.remote.client.clone(),
            saved,
            kubeconfig,
        };
        async move {
            let surveys = self
                .remote
                .inner()
                .survey(self.begun.load(Ordering::SeqCst));
            match surveys {
                Surveys::Answer => {}
                Surveys::Hang => {
                    let _hangs = Hangs::begin(&self.remote);
                    std::future::pending::<()>().await;
                }
                Surveys::Panic => panic!("told to panic, with the word hunter2"),
            }
            let hangs = self.remote.inner().hangs(&self.aim);
            passes(hangs).await;
            let mut seen = self.remote.inner().observe(&self.aim, &shell);
            // What is told was so when it was asked for.
            let told = self
                .remote
                .world(|world| world.told(&seen.apis, &shell.client));
            passes(told.unwrap_or_default()).await;
            dry_runs(&mut seen, &wanted.objects);
            if let Some(api) = &mut seen.cluster {
                api.tokens = api
                    .tokens
                    .take()
                    .or_else(|| Some(BTreeMap::new()))
                    .filter(|_| wanted.tokens);
                let authorities = api.authorities.take().unwrap_or_default();
                api.authorities = wanted.authorities.then_some(authorities);
            }
            self.remote
                .inner()
                .asks(seen.hosts.keys().filter(|name| !kept.contains_key(name)));
            for (name, facts) in kept {
                if let Some(view) = seen.hosts.get_mut(&name) {
                    *view = HostView::Reachable(facts);
                }
            }
            seen
        }
        .boxed()
    }

    fn api<'a>(&'a self, _: Context<'a>) -> BoxFuture<'a, Result<kube::Client, StepError>> {
        let api = self.remote.inner().leases.clone();
        let none = "nobody serves an API here".to_owned();
        futures::future::ready(api.ok_or(StepError::Guard(none))).boxed()
    }

    fn reach<'a>(
        &'a self,
        saved: &'a ClusterState,
        _: &'a EngineClients,
    ) -> BoxFuture<'a, Result<kube::Client, StepError>> {
        let mut inner = self.remote.inner();
        inner.reached += 1;
        let planes = saved
            .inventory
            .iter()
            .filter(|(_, entry)| entry.roles.contains(&Role::ControlPlane));
        let mut planes = planes.map(|(name, _)| name);
        let up =
            planes.any(|name| self.aim.contains_key(name) && !inner.world.down.contains_key(name));
        let api = inner.serves.clone().filter(|_| up);
        let silent = || {
            let text = "cannot reach a control plane: no route to host";
            StepError::Failed(Box::new(SimFailure::new(ErrorClass::Host, text)))
        };
        futures::future::ready(api.ok_or_else(silent)).boxed()
    }

    fn snapshots<'a>(&'a self, _nodes: &'a BTreeSet<NodeName>) -> BoxFuture<'a, Reports> {
        Box::pin(async { Reports::new() })
    }

    fn files(&self) -> &dyn SnapshotFiles {
        &self.remote
    }

    fn defragment<'a>(
        &'a self,
        nodes: &'a [NodeName],
        _: &'a ClientIdentity,
        told: &'a (dyn Fn(&Shrunk) + Send + Sync),
    ) -> BoxFuture<'a, Result<Defragmented, DefragError>> {
        let order = self.remote.world(|world| {
            let silent: Vec<&NodeName> = nodes
                .iter()
                .filter(|node| world.down.contains_key(*node))
                .collect();
            if silent.is_empty() {
                Ok(nodes.to_vec())
            } else {
                Err(DefragError::Silent(quoted(silent)))
            }
        });
        let shrunk = |node| Shrunk {
            node,
            before: 4096,
            after: 2048,
        };
        let done = order.map(|nodes| {
            let members: Vec<Shrunk> = nodes.into_iter().map(shrunk).collect();
            members.iter().for_each(told);
            Defragmented {
                members,
                disarmed: 0,
            }
        });
        Box::pin(async { done })
    }

    fn served<'a>(
        &'a self,
        ports: &'a [(NodeName, u16)],
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, String>>> {
        let none = |_: &_| Err("nothing listens in this world".to_owned());
        let answers = ports.iter().map(none).collect();
        Box::pin(async { answers })
    }

    fn measure<'a>(
        &'a self,
        requests: &'a BTreeMap<NodeName, MeasureRequest>,
    ) -> BoxFuture<'a, BTreeMap<NodeName, Measured>> {
        let measured = |name: &NodeName| (name.clone(), Measured::default());
        let measured = requests.keys().map(measured).collect();
        Box::pin(async { measured })
    }

    fn pod_images<'a>(
        &'a self,
        nodes: &'a BTreeSet<NodeName>,
        _: Option<&'a ClusterId>,
    ) -> BoxFuture<'a, BTreeMap<NodeName, Result<BTreeSet<String>, Unreachable>>> {
        let none = nodes.iter().map(|node| (node.clone(), Ok(BTreeSet::new())));
        futures::future::ready(none.collect()).boxed()
    }

    fn export<'a>(
        &'a self,
        _: (&'a NodeName, Option<&'a ClusterId>),
        _: &'a str,
        _: tokio::sync::mpsc::Sender<bytes::Bytes>,
    ) -> BoxFuture<'a, Result<(), StepError>> {
        let none = StepError::Guard("no image is exported in this world".to_owned());
        futures::future::ready(Err(none)).boxed()
    }

    fn heard(&self) -> Option<Instant> {
        *self.heard.lock().unwrap()
    }

    fn act<'a>(
        &'a self,
        RemoteStep { step, .. }: RemoteStep<'a>,
        context: Context<'a>,
        _: &'a Reporter,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Done, StepError>> {
        async move {
            let turn = self.turn(step, context);
            let warning = match turn {
                Turn::Go => None,
                Turn::Warn(warning) => Some(warning),
                Turn::Fail(failure) => return Err(StepError::Failed(Box::new(failure))),
                Turn::Panic => panic!("told to panic, with the word hunter2"),
                Turn::AwaitStop => {
                    stop.stopped().await;
                    return Err(StepError::Stopped);
                }
                Turn::Work(time) => {
                    tokio::time::sleep(time).await;
                    None
                }
                Turn::Hold(until) => tokio::select! {
                    () = until.notified() => None,
                    _ = stop.stopped() => return Err(StepError::Stopped),
                },
            };
            let others_first = {
                let mut inner = self.remote.inner();
                inner.order.rotate_left(1);
                inner.order[0] % 8
            };
            for _ in 0..others_first {
                tokio::task::yield_now().await;
            }
            if self.remote.inner().reaches_an_api {
                *self.heard.lock().unwrap() = Some(Instant::now());
            }
            let shell = Shell {
                client: self.remote.client.clone(),
                saved: context.saved.cloned(),
                kubeconfig: None,
            };
            let takes = self.remote.world(|world| world.reaches(step, &shell));
            passes(takes.unwrap_or_default()).await;
            let acted = self.remote.inner().act(step, context, shell);
            self.remote.moves();
            acted?;
            let saved = match step.action.on_host() {
                Some((_, HostAction::SaveSnapshot { name, .. })) => Some(SnapshotPlace {
                    path: format!("/opt/rke/etcd-snapshots/{name}"),
                    bucket: None,
                }),
                Some(_) | None => None,
            };
            Ok(Done {
                warning,
                saved,
                ..Done::default()
            })
        }
        .boxed()
    }
}

/// Time, if it is any.
async fn passes(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

impl SimSession {
    fn turn(&self, step: &Step, context: Context<'_>) -> Turn {
        let purpose = match context.desired {
            Some(_) => Purpose::Up,
            None => Purpose::Removal,
        };
        let index = self.begun.fetch_add(1, Ordering::SeqCst);
        if index == 0 {
            self.remote.inner().begins(purpose, context.environment);
        }
        (self.remote.shared.script.lock().unwrap())(purpose, index, step)
    }
}

/// A survey that hangs, until it is dropped.
struct Hangs<'a>(&'a SimRemote);

impl<'a> Hangs<'a> {
    fn begin(remote: &'a SimRemote) -> Self {
        let counts = &mut remote.inner().counts;
        counts.hanging += 1;
        counts.hanging_now += 1;
        counts.most_hanging = counts.most_hanging.max(counts.hanging_now);
        Self(remote)
    }
}

impl Drop for Hangs<'_> {
    fn drop(&mut self) {
        if let Ok(mut inner) = self.0.shared.inner.lock() {
            inner.counts.hanging_now -= 1;
        }
    }
}

impl Drop for SimSession {
    fn drop(&mut self) {
        // A test that fails has poisoned it, perhaps.
        if let Ok(mut inner) = self.remote.shared.inner.lock()
            && self.begun.load(Ordering::SeqCst) > 0
        {
            inner.counts.running -= 1;
        }
    }
}

impl Inner {
    fn asks<'a>(&mut self, hosts: impl Iterator<Item = &'a NodeName>) {
        for host in hosts {
            *self.asked.entry(host.clone()).or_default() += 1;
        }
    }

    /// A survey of a session that has begun so many steps.
    fn survey(&mut self, begun: usize) -> Surveys {
        self.counts.surveys += 1;
        if begun > 0 {
            return Surveys::Answer;
        }
        self.surveys
    }

    /// How long those nodes keep a survey waiting.
    fn hangs(&self, aim: &BTreeMap<NodeName, ConnectionTarget>) -> Duration {
        let times = aim.keys().filter_map(|name| self.hangs.get(name));
        times.copied().max().unwrap_or_default()
    }

    /// A run comes to its first step.
    fn begins(&mut self, purpose: Purpose, environment: &Environment) {
        let counts = &mut self.counts;
        match purpose {
            Purpose::Up => counts.ups += 1,
            Purpose::Removal => counts.removals += 1,
        }
        counts.running += 1;
        counts.most = counts.most.max(counts.running);
        let held = environment.held_elsewhere.iter().map(|id| id.0.clone());
        self.told = (environment.recover.clone(), held.collect());
    }

    /// What is seen from where only these nodes are known.
    fn observe(&self, aim: &BTreeMap<NodeName, ConnectionTarget>, shell: &Shell) -> Actual {
        let closed = aim.iter().filter_map(|(name, target)| {
            let down = match target {
                Err(down) => down.clone(),
                Ok(_) if self.world.truth.hosts.contains_key(name) => return None,
                Ok(_) => Unreachable {
                    alike: None,
                    obstacle: Obstacle::Silence,
                    class: ErrorClass::Host,
                    why: format!("cannot reach node `{name}`: no such host"),
                    hints: Vec::new(),
                },
            };
            Some((name.clone(), down))
        });
        let closed: BTreeMap<_, _> = closed.collect();
        let mut seen = if closed.is_empty() {
            self.world.observe(shell)
        } else {
            let mut world = self.world.clone();
            world.down.extend(closed.clone());
            world.observe(shell)
        };
        seen.hosts.retain(|name, _| aim.contains_key(name));
        for (name, down) in closed {
            seen.hosts.insert(name, HostView::Unreachable(down));
        }
        seen
    }

    fn act(
        &mut self,
        step: &Step,
        context: Context<'_>,
        mut shell: Shell,
    ) -> Result<(), StepError> {
        if self.dead {
            return Err(StepError::Stopped);
        }
        if let Some(cut) = self.cut
            && cut.after == self.steps
        {
            self.dead = true;
            self.world.torn(step, cut.torn, context.desired, &mut shell);
            return Err(StepError::Stopped);
        }
        self.steps += 1;
        match self.world.step(step, context.desired, &mut shell) {
            Ok(()) => {}
            Err(Ended::PlanAgain(why)) => return Err(StepError::Guard(why)),
            Err(ended) => {
                let text = format!("{}: {ended:?}", step.target());
                let failure = SimFailure::new(ErrorClass::Host, text);
                return Err(StepError::Failed(Box::new(failure)));
            }
        }
        (self.watch)(&mut self.world, step);
        Ok(())
    }
}

/// Why a step failed: its precondition does not hold, or the test said so.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct SimFailure {
    class: ErrorClass,
    text: String,
    hint: Option<&'static str>,
}

impl SimFailure {
    pub(crate) fn new(class: ErrorClass, text: impl Into<String>) -> Self {
        Self {
            class,
            text: text.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(self, hint: &'static str) -> Self {
        Self {
            hint: Some(hint),
            ..self
        }
    }
}

impl Explain for SimFailure {
    fn class(&self) -> ErrorClass {
        self.class
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        self.hint.map(Cow::Borrowed).into_iter().collect()
    }
}
