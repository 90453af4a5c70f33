//! The whole operator against the fake API server, with the simulated nodes and the real planner
//! behind its seam. Time is tokio's, paused: waits of minutes pass at once, and deadlines, dates
//! of conditions and deletion timestamps all follow the same clock.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use jiff::{SignedDuration, Timestamp};
use rke_operator::{
    actual::{ContainerFact, HostFacts, HostView, Unreachable},
    api::{self, conditions::ConditionType},
    apply::{
        event::{Event, Events, RunOutcome, StepId, StepOutcome},
        remote::OverSsh,
        step::Warning,
        stop::{Stop, StopCause, Stopper},
    },
    config::Intent,
    converge::{Error, Goal, Outcome, Survey},
    desired::{
        Desired,
        pki::{Certificates, Expiry},
    },
    environment::Environment as Outside,
    error::ErrorClass,
    host::{Dial, Stream},
    model::{ClusterId, ContainerSpec, Endpoint, NodeName, label},
    operator::{Clock, Dependencies, Engine, OperatorOptions, run_with},
    plan::{Action, LocalAction, Plan, Step, title},
    state::Loaded,
};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle};

use crate::{
    cli_support::private_key,
    fake_api::FakeApi,
    sim::{Knobs, Shell, World, bare_host, desired},
};

pub(crate) const NAMESPACE: &str = "rke-system";

/// The private key that the nodes accept: must appear nowhere but in its Secret.
pub(crate) static PLANTED_KEY: LazyLock<String> = LazyLock::new(private_key);

/// A line of that key.
pub(crate) fn planted_line() -> &'static str {
    PLANTED_KEY.lines().nth(2).unwrap()
}

/// What happens instead of a step.
pub(crate) enum Turn {
    /// The step.
    Go,
    /// It fails, and with it the run.
    Fail(Error),
    /// It panics.
    Panic,
    /// The run waits here until it is told to stop.
    AwaitStop,
    /// The run waits here, and then takes the step.
    Hold(Arc<Notify>),
}

type Script = Box<dyn FnMut(&'static str, usize, &Step) -> Turn + Send>;

/// The engine of the tests: surveys and runs of the simulated world.
pub(crate) struct SimEngine {
    pub(crate) world: Mutex<World>,
    script: Mutex<Script>,
    ids: AtomicUsize,
    /// How many surveys and runs there were.
    pub(crate) surveys: AtomicUsize,
    pub(crate) ups: AtomicUsize,
    pub(crate) removals: AtomicUsize,
    /// What the last run was allowed: recovery, and the ids of other clusters.
    pub(crate) told: Mutex<(Option<ClusterId>, Vec<String>)>,
    /// Runs under way at the same time, most.
    pub(crate) most: AtomicUsize,
    running: AtomicUsize,
    /// While this is so, surveys that are no part of a run do not end.
    pub(crate) surveys_hang: AtomicBool,
    /// Nodes that a run leaves as they are: it then ends degraded.
    pub(crate) degraded: Mutex<BTreeMap<NodeName, Unreachable>>,
    /// When certificates end.
    pub(crate) certificates: Mutex<Certificates>,
    /// What a run that ends well warns about.
    pub(crate) warnings: Mutex<Vec<Warning>>,
}

impl SimEngine {
    /// With those nodes, bare.
    pub(crate) fn new(nodes: &[&str]) -> Arc<Self> {
        let hosts = nodes.iter().map(|name| {
            let name = NodeName::from(*name);
            let facts = bare_host(&name);
            (name, facts)
        });
        Arc::new(Self {
            world: Mutex::new(World::new(hosts)),
            script: Mutex::new(Box::new(|_, _, _| Turn::Go)),
            ids: AtomicUsize::new(1),
            surveys: AtomicUsize::default(),
            ups: AtomicUsize::default(),
            removals: AtomicUsize::default(),
            told: Mutex::default(),
            most: AtomicUsize::default(),
            running: AtomicUsize::default(),
            surveys_hang: AtomicBool::default(),
            degraded: Mutex::default(),
            certificates: Mutex::new(Certificates {
                earliest: Some(Expiry {
                    at: "2031-01-01T00:00:00Z".parse().unwrap(),
                    what: "`kube-proxy.pem` of node `n1`".to_owned(),
                }),
                ..Certificates::default()
            }),
            warnings: Mutex::default(),
        })
    }

    /// What happens before each step from now on: goal, index in the run, step.
    pub(crate) fn script(
        &self,
        script: impl FnMut(&'static str, usize, &Step) -> Turn + Send + 'static,
    ) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    pub(crate) fn kill(&self, node: &str) {
        let down = Unreachable {
            class: ErrorClass::Host,
            why: format!("cannot reach node `{node}`: no route to host"),
            hints: vec!["is it switched on?".to_owned()],
        };
        let mut world = self.world.lock().unwrap();
        world.down.insert(NodeName::from(node), down);
    }

    pub(crate) fn revive(&self, node: &str) {
        self.world
            .lock()
            .unwrap()
            .down
            .remove(&NodeName::from(node));
    }

    /// Who holds a node.
    pub(crate) fn claimed_by(&self, node: &str) -> Option<String> {
        let world = self.world.lock().unwrap();
        world.truth.claimed_by(&NodeName::from(node)).map(|id| id.0)
    }

    /// Containers of ours on a node.
    pub(crate) fn containers(&self, node: &str) -> usize {
        let world = self.world.lock().unwrap();
        let facts = world.truth.up(&NodeName::from(node)).unwrap();
        let ours = |fact: &&ContainerFact| fact.labels.contains_key(label::CLUSTER_ID);
        facts.containers.values().filter(ours).count()
    }

    fn host<T>(&self, node: &str, of: impl FnOnce(&mut HostFacts) -> T) -> T {
        let mut world = self.world.lock().unwrap();
        match world.truth.hosts.get_mut(&NodeName::from(node)) {
            Some(HostView::Reachable(facts)) => of(facts),
            Some(HostView::Unreachable(_)) | None => panic!("{node} is not there"),
        }
    }

    /// Takes a container away behind the operator's back.
    pub(crate) fn take(&self, node: &str, container: &str) {
        self.host(node, |facts| facts.containers.remove(container).unwrap());
    }

    pub(crate) fn has(&self, node: &str, container: &str) -> bool {
        self.host(node, |facts| facts.containers.contains_key(container))
    }

    /// How a container was defined when it was applied.
    pub(crate) fn definition(&self, node: &str, container: &str) -> ContainerSpec {
        self.host(node, |facts| {
            let text = &facts.containers[container].labels[label::SPEC];
            serde_json::from_str(text).unwrap()
        })
    }

    /// As if it had been applied with another definition.
    pub(crate) fn applied_otherwise(
        &self,
        node: &str,
        container: &str,
        edit: impl FnOnce(&mut ContainerSpec),
    ) {
        self.host(node, |facts| {
            let fact = facts.containers.get_mut(container).unwrap();
            let spec = fact.runs.as_mut().unwrap();
            edit(spec);
            let text = serde_json::to_string(spec).unwrap();
            fact.labels.insert(label::SPEC.to_owned(), text);
        });
    }

    fn want(&self, intent: &Intent, shell: &Shell) -> Desired {
        let names: Vec<NodeName> = intent.nodes.keys().cloned().collect();
        let id = shell.saved.as_ref().map_or_else(
            || format!("{:032x}", self.ids.fetch_add(1, Ordering::SeqCst)),
            |saved| saved.cluster_id.0.clone(),
        );
        let verbosity = intent
            .services
            .kubelet
            .extra_args
            .get("v")
            .map_or(2, |v| v.parse().unwrap());
        let knobs = Knobs {
            verbosity,
            ..Knobs::default()
        };
        let mut want = desired(&id, &names, &knobs);
        want.certificates = self.certificates.lock().unwrap().clone();
        if let Some(saved) = &shell.saved {
            want.saved.memory = saved.memory.clone();
        }
        for (name, entry) in &mut want.saved.inventory {
            let node = &intent.nodes[name];
            entry.endpoint = node.endpoint.clone();
            entry.user.clone_from(&node.login.user);
            entry.key_source.clone_from(&node.login.key_source);
        }
        want
    }

    async fn look(&self, goal: &Goal<'_>, outside: &Outside) -> Result<(Survey, Shell), Error> {
        let saved = match outside.store.load().await? {
            Loaded::Absent => None,
            Loaded::Present { saved, .. } => Some(*saved),
        };
        let unreadable = |source| Error::Kubeconfig {
            place: outside.kubeconfig.place(),
            source,
        };
        let kubeconfig = outside.kubeconfig.load().await.map_err(unreadable)?;
        let shell = Shell { saved, kubeconfig };
        let mut actual = self.world.lock().unwrap().observe(&shell);
        let mut known: Vec<NodeName> = Vec::new();
        if let Some(saved) = &shell.saved {
            for (name, entry) in &saved.inventory {
                known.push(name.clone());
                // Without an intent a login needs the key from the ring.
                if matches!(goal, Goal::Remove(None))
                    && let Err(why) = outside.key_ring.key(&entry.key_source).await
                {
                    let down = Unreachable {
                        class: ErrorClass::Host,
                        why,
                        hints: Vec::new(),
                    };
                    actual
                        .hosts
                        .insert(name.clone(), HostView::Unreachable(down));
                }
            }
        }
        let intent = match goal {
            Goal::Up(intent) | Goal::Heal(intent) => Some(*intent),
            Goal::Remove(intent) => *intent,
        };
        known.extend(
            intent
                .iter()
                .flat_map(|intent| intent.nodes.keys().cloned()),
        );
        actual.hosts.retain(|name, _| known.contains(name));
        let (desired, plan) = match goal {
            Goal::Up(intent) | Goal::Heal(intent) => {
                let down = downs(&actual.hosts);
                if !down.is_empty() {
                    return Err(Error::HostsUnreachable(down));
                }
                let want = self.want(intent, &shell);
                let actual = crate::sim::tried(&want, &actual);
                let mut plan = rke_operator::plan::up(&want, &actual)?;
                if matches!(goal, Goal::Heal(_)) {
                    plan = plan.unasked();
                }
                (Some(want), plan)
            }
            Goal::Remove(_) => {
                let id = shell.saved.as_ref().map(|saved| saved.cluster_id.clone());
                (None, rke_operator::plan::remove(id.as_ref(), &actual)?)
            }
        };
        let survey = Survey {
            actual,
            desired,
            plan,
        };
        Ok((survey, shell))
    }

    async fn rounds(
        &self,
        goal: &Goal<'_>,
        outside: &Outside,
        events: &Events,
        stop: &Stop,
    ) -> Result<Outcome, Error> {
        let name = match goal {
            Goal::Up(_) => "up",
            Goal::Heal(_) => "heal",
            Goal::Remove(_) => "remove",
        };
        let mut index = 0;
        for iteration in 1..=5 {
            let (survey, mut shell) = self.look(goal, outside).await?;
            if survey.plan.is_empty() {
                let degraded = self.degraded.lock().unwrap().clone();
                if !degraded.is_empty() {
                    return Ok(Outcome::Degraded {
                        left: degraded,
                        changed: iteration > 1,
                        warnings: Vec::new(),
                    });
                }
                let left = downs(&survey.actual.hosts);
                return Ok(match goal {
                    Goal::Remove(_) if !left.is_empty() => Outcome::RemovalIncomplete { left },
                    Goal::Up(_) | Goal::Heal(_) | Goal::Remove(_) => Outcome::Converged {
                        changed: iteration > 1,
                        warnings: self
                            .warnings
                            .lock()
                            .unwrap()
                            .iter()
                            .map(|warning| Warning {
                                message: warning.message.clone(),
                                hints: warning.hints.clone(),
                            })
                            .collect(),
                    },
                });
            }
            let Plan { stages, .. } = &survey.plan;
            events
                .emit(Event::RunStarted {
                    iteration,
                    stages: stages.len(),
                    steps: survey.plan.steps().count(),
                })
                .await;
            for (number, stage) in stages.iter().enumerate() {
                events
                    .emit(Event::StageStarted {
                        stage: number,
                        name: stage.name.clone().into_owned(),
                        steps: stage.steps().count(),
                    })
                    .await;
                for (at, step) in stage.steps().enumerate() {
                    if let Some(cause) = stop.cause() {
                        return Ok(Outcome::Stopped(cause));
                    }
                    let turn = (self.script.lock().unwrap())(name, index, step);
                    index += 1;
                    match turn {
                        Turn::Go => {}
                        Turn::Fail(error) => return Err(error),
                        Turn::Panic => panic!("told to panic, with the word hunter2"),
                        Turn::Hold(until) => until.notified().await,
                        Turn::AwaitStop => return Ok(Outcome::Stopped(stop.stopped().await)),
                    }
                    self.step(step, survey.desired.as_ref(), &mut shell, outside)
                        .await?;
                    events
                        .emit(Event::StepFinished {
                            id: StepId {
                                stage: number,
                                step: at,
                            },
                            target: step.target(),
                            title: title(step),
                            outcome: StepOutcome::Done,
                            took: Duration::ZERO,
                            detail: None,
                        })
                        .await;
                }
            }
            events
                .emit(Event::RunFinished {
                    outcome: RunOutcome::Completed,
                    took: Duration::ZERO,
                })
                .await;
        }
        panic!("something keeps changing");
    }

    async fn step(
        &self,
        step: &Step,
        want: Option<&Desired>,
        shell: &mut Shell,
        outside: &Outside,
    ) -> Result<(), Error> {
        let done = self.world.lock().unwrap().step(step, want, shell);
        done.unwrap();
        match &step.action {
            Action::Local(LocalAction::SaveState) => {
                let revision = match outside.store.load().await? {
                    Loaded::Absent => None,
                    Loaded::Present { revision, .. } => Some(revision),
                };
                let saved = shell.saved.as_ref().unwrap();
                outside.store.save(saved, revision.as_deref()).await?;
            }
            Action::Local(LocalAction::DeleteState) => outside.store.delete().await?,
            Action::Local(LocalAction::WriteKubeconfig) => {
                let kubeconfig = shell.kubeconfig.as_ref().unwrap();
                let saved = outside.kubeconfig.save(kubeconfig).await;
                saved.map_err(|source| Error::Kubeconfig {
                    place: outside.kubeconfig.place(),
                    source,
                })?;
            }
            Action::Local(LocalAction::RemoveKubeconfig) => {
                outside.kubeconfig.remove().await.unwrap();
            }
            _ => {}
        }
        Ok(())
    }
}

fn downs(hosts: &BTreeMap<NodeName, HostView>) -> Vec<(NodeName, Unreachable)> {
    hosts
        .iter()
        .filter_map(|(name, view)| match view {
            HostView::Unreachable(down) => Some((name.clone(), down.clone())),
            HostView::Reachable(_) => None,
        })
        .collect()
}

impl Engine for SimEngine {
    fn survey<'a>(
        &'a self,
        goal: &'a Goal<'a>,
        outside: &'a Outside,
    ) -> BoxFuture<'a, Result<Survey, Error>> {
        self.surveys.fetch_add(1, Ordering::SeqCst);
        async move {
            while self.surveys_hang.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(self.look(goal, outside).await?.0)
        }
        .boxed()
    }

    fn converge<'a>(
        &'a self,
        goal: &'a Goal<'a>,
        outside: &'a Outside,
        events: &'a Events,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Outcome, Error>> {
        match goal {
            Goal::Up(_) | Goal::Heal(_) => self.ups.fetch_add(1, Ordering::SeqCst),
            Goal::Remove(_) => self.removals.fetch_add(1, Ordering::SeqCst),
        };
        let held = outside.held_elsewhere.iter().map(|id| id.0.clone());
        *self.told.lock().unwrap() = (outside.recover.clone(), held.collect());
        async move {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(running, Ordering::SeqCst);
            let result = self.rounds(goal, outside, events, stop).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            result
        }
        .boxed()
    }
}

struct NoDial;

impl Dial for NoDial {
    fn dial<'a>(&'a self, _: &'a Endpoint) -> BoxFuture<'a, std::io::Result<Box<dyn Stream>>> {
        futures::future::ready(Err(std::io::Error::other("no network in here"))).boxed()
    }
}

/// The operator, its API server and its nodes.
pub(crate) struct Rig {
    pub(crate) api: FakeApi,
    pub(crate) engine: Arc<SimEngine>,
    stopper: Stopper,
    task: JoinHandle<Result<(), rke_operator::operator::OperatorError>>,
}

/// A clock that follows tokio's.
pub(crate) fn clock() -> impl Fn() -> Timestamp + Clone + Send + Sync + 'static {
    let start = tokio::time::Instant::now();
    let epoch: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    move || {
        let passed = SignedDuration::try_from(start.elapsed()).unwrap();
        epoch.checked_add(passed).unwrap()
    }
}

impl Rig {
    /// With those nodes, the Secret `nodes`, and an operator that runs.
    pub(crate) fn start(nodes: &[&str]) -> Self {
        Self::with(SimEngine::new(nodes), FakeApi::new(clock()), |_| {})
    }

    pub(crate) fn with(
        engine: Arc<SimEngine>,
        api: FakeApi,
        options: impl FnOnce(&mut OperatorOptions),
    ) -> Self {
        if api.object("secrets", NAMESPACE, "nodes").is_none() {
            api.plant("secrets", &key_secret());
        }
        let (stopper, stop) = Stopper::new();
        let mut how = OperatorOptions::new(NAMESPACE);
        options(&mut how);
        let task = tokio::spawn(run_with(how, api.client(), parts(&engine, &api), stop));
        Self {
            api,
            engine,
            stopper,
            task,
        }
    }

    /// Stops the operator in an orderly way; what it managed stays.
    pub(crate) async fn stop(mut self) -> (FakeApi, Arc<SimEngine>) {
        self.stopper.stop(StopCause::Signal);
        (&mut self.task).await.unwrap().unwrap();
        (self.api.clone(), Arc::clone(&self.engine))
    }

    /// `kubectl create`.
    pub(crate) async fn create(&self, cluster: &Value) {
        let clusters: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(
            self.api.client(),
            &kube::api::ApiResource::erase::<api::Cluster>(&()),
        );
        let object = serde_json::from_value(cluster.clone()).unwrap();
        clusters
            .create(&kube::api::PostParams::default(), &object)
            .await
            .unwrap();
    }

    pub(crate) async fn until(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let object = self
            .api
            .until("clusters", "", name, |object| object.is_some_and(&holds))
            .await;
        object.unwrap()
    }

    pub(crate) async fn ready(&self, name: &str) -> Value {
        self.until(name, |cluster| {
            settled(cluster) && is(cluster, "Ready", "True")
        })
        .await
    }

    pub(crate) async fn gone(&self, name: &str) {
        self.api
            .until("clusters", "", name, |object| object.is_none())
            .await;
    }

    pub(crate) fn cluster(&self, name: &str) -> Value {
        self.api.object("clusters", "", name).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A test that ends takes its operator with it.
        self.stopper.stop(StopCause::Signal);
        if !std::thread::panicking() {
            for object in self.api.history("clusters") {
                is_by_the_table(&object);
            }
        }
    }
}

fn parts(engine: &Arc<SimEngine>, api: &FakeApi) -> Dependencies {
    let api = api.clone();
    Dependencies {
        engine: Arc::clone(engine) as Arc<dyn Engine>,
        remote: Arc::new(OverSsh {
            dial: Arc::new(NoDial),
        }),
        clock: Clock::new(move || api.now()),
        now: || "2030-01-01T00:00:00Z".parse().unwrap(),
        entropy: || [7; 32],
    }
}

/// Every condition of ours that was ever written has a reason of its type, and the status that
/// goes with it.
fn is_by_the_table(object: &Value) {
    for condition in object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let kind = ConditionType::TABLE
            .iter()
            .find(|row| condition["type"] == row.kind.name());
        let Some(row) = kind else { continue };
        let known = row.kind.reasons().any(|known| {
            condition["reason"] == known.reason.name() && condition["status"] == known.status.name()
        });
        assert!(known, "not in the table of conditions: {condition}");
    }
}

/// A condition of an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

pub(crate) fn is(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == status)
}

pub(crate) fn reason(object: &Value, kind: &str) -> String {
    condition(object, kind).map_or_else(String::new, |condition| {
        condition["reason"].as_str().unwrap().to_owned()
    })
}

pub(crate) fn message(object: &Value, kind: &str) -> String {
    condition(object, kind).map_or_else(String::new, |condition| {
        condition["message"].as_str().unwrap().to_owned()
    })
}

/// The last word is about the present generation, and no run is under way.
pub(crate) fn settled(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
        && condition(object, "Reconciling").is_none()
        && condition(object, "Provisioned")
            .is_some_and(|c| c["observedGeneration"] == object["metadata"]["generation"])
}

/// A Cluster of one node.
pub(crate) fn cluster(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "clusterprovisioner.rke.io/v1alpha1",
        "kind": "Cluster",
        "metadata": { "name": name },
        "spec": {
            "config": {
                "cluster_name": name,
                "nodes": [{
                    "address": "10.0.0.1",
                    "hostname_override": node,
                    "user": "core",
                    "role": ["controlplane", "etcd", "worker"],
                }],
                "network": { "plugin": "flannel" },
                "ingress": { "provider": "none" },
                "monitoring": { "provider": "none" },
            },
            "ssh": { "keySecretRef": { "name": "nodes" } },
        },
    })
}

pub(crate) fn key_secret() -> Value {
    json!({
        "metadata": { "name": "nodes", "namespace": NAMESPACE },
        "stringData": { "ssh-privatekey": *PLANTED_KEY },
    })
}
