//! The simulated world below the product's own joint: [`rke_operator::converge`] reads it and acts
//! on it as it does on real nodes.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use futures::{FutureExt, future::BoxFuture};
use rke_operator::{
    actual::Actual,
    apply::{
        event::Events,
        remote::{Context, Remote, RemoteSession},
        step::{Done, Reporter, StepError},
        stop::{Stop, Stopper},
    },
    converge::{self, Consent, Error, Goal, Outcome},
    desired::pki::EngineClients,
    environment::{Environment, KeyRing},
    error::{ErrorClass, Explain},
    host::{HostKeys, KnownHosts, Policy, pool::ConnectionTarget},
    model::{NodeName, WantedObjects, secret::Secret},
    plan::{Plan, Step},
    state::{ClusterState, Loaded, StateError, Store, kubeconfig::KubeconfigStore},
};

use super::{
    Cut, Shell, World,
    world::{Ended, plan_up, try_apply},
};

type Watch = Box<dyn FnMut(&mut World, &Step) + Send>;

/// A world that runs share, and what happens while they do.
#[derive(Clone)]
pub(crate) struct SimRemote(Arc<Mutex<Inner>>);

struct Inner {
    world: World,
    /// How long each step lets others go first.
    order: Vec<u8>,
    steps: usize,
    cut: Option<Cut>,
    /// It was cut: whoever ran is dead.
    dead: bool,
    watch: Watch,
}

impl SimRemote {
    pub(crate) fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            world,
            order: vec![0],
            steps: 0,
            cut: None,
            dead: false,
            watch: Box::new(|_, _| ()),
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub(crate) fn world<T>(&self, with: impl FnOnce(&mut World) -> T) -> T {
        with(&mut self.inner().world)
    }

    pub(crate) fn order(&self, order: &[u8]) {
        if !order.is_empty() {
            self.inner().order = order.to_vec();
        }
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
}

impl Remote for SimRemote {
    fn session(&self, _: Arc<dyn HostKeys>) -> Box<dyn RemoteSession> {
        Box::new(SimSession {
            remote: self.clone(),
            aim: BTreeMap::new(),
        })
    }
}

struct SimSession {
    remote: SimRemote,
    aim: BTreeMap<NodeName, ConnectionTarget>,
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
    ) -> BoxFuture<'a, Actual> {
        let shell = Shell { saved, kubeconfig };
        let mut seen = self.remote.inner().world.observe(&shell);
        seen.hosts.retain(|name, _| self.aim.contains_key(name));
        if let Some(api) = &mut seen.cluster {
            try_apply(&wanted.objects, api);
        }
        futures::future::ready(seen).boxed()
    }

    fn act<'a>(
        &'a self,
        step: &'a Step,
        context: Context<'a>,
        _: &'a Reporter,
        _: &'a Stop,
    ) -> BoxFuture<'a, Result<Done, StepError>> {
        async move {
            let others_first = {
                let mut inner = self.remote.inner();
                inner.order.rotate_left(1);
                inner.order[0] % 8
            };
            for _ in 0..others_first {
                tokio::task::yield_now().await;
            }
            self.remote.inner().act(step, context)
        }
        .boxed()
    }
}

impl Inner {
    fn act(&mut self, step: &Step, context: Context<'_>) -> Result<Done, StepError> {
        let mut shell = Shell {
            saved: context.saved.cloned(),
            kubeconfig: None,
        };
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
                let failure = SimFailure(format!("{}: {ended:?}", step.target()));
                return Err(StepError::Failed(Box::new(failure)));
            }
        }
        (self.watch)(&mut self.world, step);
        Ok(Done::default())
    }
}

/// A step whose precondition does not hold.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct SimFailure(String);

impl Explain for SimFailure {
    fn class(&self) -> ErrorClass {
        ErrorClass::Host
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        Vec::new()
    }
}

/// State and kubeconfig of one runner, in memory.
#[derive(Default)]
pub(crate) struct Memory {
    saved: Mutex<(u64, Option<ClusterState>)>,
    kubeconfig: Mutex<Option<Secret<String>>>,
}

impl Memory {
    /// What is kept.
    pub(crate) fn shell(&self) -> Shell {
        Shell {
            saved: self.saved.lock().unwrap().1.clone(),
            kubeconfig: self.kubeconfig.lock().unwrap().clone(),
        }
    }
}

impl Memory {
    /// Something happened to it.
    pub(crate) fn keep(&self, shell: Shell) {
        let mut saved = self.saved.lock().unwrap();
        *saved = (saved.0 + 1, shell.saved);
        *self.kubeconfig.lock().unwrap() = shell.kubeconfig;
    }
}

impl Store for Memory {
    fn load(&self) -> BoxFuture<'_, Result<Loaded, StateError>> {
        let (revision, saved) = &*self.saved.lock().unwrap();
        let loaded = saved
            .clone()
            .map_or(Loaded::Absent, |saved| Loaded::Present {
                saved: Box::new(saved),
                revision: revision.to_string(),
            });
        futures::future::ready(Ok(loaded)).boxed()
    }

    fn save<'a>(
        &'a self,
        new: &'a ClusterState,
        revision: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        let mut kept = self.saved.lock().unwrap();
        let there = kept.1.as_ref().map(|_| kept.0.to_string());
        let result = if there.as_deref() == revision {
            *kept = (kept.0 + 1, Some(new.clone()));
            Ok(())
        } else {
            Err(StateError::Conflict {
                place: Store::place(self),
            })
        };
        futures::future::ready(result).boxed()
    }

    fn delete(&self) -> BoxFuture<'_, Result<(), StateError>> {
        self.saved.lock().unwrap().1 = None;
        futures::future::ready(Ok(())).boxed()
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}

impl KubeconfigStore for Memory {
    fn load(&self) -> BoxFuture<'_, std::io::Result<Option<Secret<String>>>> {
        futures::future::ready(Ok(self.kubeconfig.lock().unwrap().clone())).boxed()
    }

    fn save<'a>(&'a self, kubeconfig: &'a Secret<String>) -> BoxFuture<'a, std::io::Result<()>> {
        *self.kubeconfig.lock().unwrap() = Some(kubeconfig.clone());
        futures::future::ready(Ok(())).boxed()
    }

    fn remove(&self) -> BoxFuture<'_, std::io::Result<()>> {
        *self.kubeconfig.lock().unwrap() = None;
        futures::future::ready(Ok(())).boxed()
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}

/// One who runs `up` and `remove`: a state of its own, and nodes that it shares with others.
#[derive(Clone)]
pub(crate) struct Runner {
    pub(crate) remote: SimRemote,
    pub(crate) memory: Arc<Memory>,
    entropy: fn() -> [u8; 32],
}

struct AnyKey;

impl KeyRing for AnyKey {
    fn key<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Secret<String>, String>> {
        futures::future::ready(Ok(Secret::new("a key".to_owned()))).boxed()
    }
}

struct Yes;

impl Consent for Yes {
    fn ask<'a>(&'a self, _: &'a Plan) -> BoxFuture<'a, bool> {
        futures::future::ready(true).boxed()
    }
}

impl Runner {
    /// Whose keys are made of `entropy`.
    pub(crate) fn new(remote: &SimRemote, entropy: fn() -> [u8; 32]) -> Self {
        Self {
            remote: remote.clone(),
            memory: Arc::default(),
            entropy,
        }
    }

    /// What a run of it meets.
    pub(crate) fn environment(&self) -> Environment {
        Environment {
            remote: Arc::new(self.remote.clone()),
            host_keys: Arc::new(KnownHosts::from_text("none", "", Policy::Strict)),
            store: Arc::clone(&self.memory) as Arc<dyn Store>,
            kubeconfig: Arc::clone(&self.memory) as Arc<dyn KubeconfigStore>,
            key_ring: Arc::new(AnyKey),
            recover: None,
            held_elsewhere: BTreeSet::new(),
            now: || "2030-01-01T00:00:00Z".parse().unwrap(),
            entropy: self.entropy,
        }
    }

    /// As the product converges, with every consent.
    pub(crate) async fn converge(&self, goal: &Goal<'_>) -> Result<Outcome, Error> {
        self.converge_with(goal, &Yes).await
    }

    /// As the product converges.
    pub(crate) async fn converge_with(
        &self,
        goal: &Goal<'_>,
        consent: &dyn Consent,
    ) -> Result<Outcome, Error> {
        let environment = self.environment();
        let (events, mut stream) = Events::channel(64);
        let (_stopper, stop) = Stopper::new();
        let run = async {
            let outcome = converge::converge(goal, &environment, consent, &events, &stop).await;
            drop(events);
            outcome
        };
        let listen = async { while stream.recv().await.is_some() {} };
        Box::pin(async { tokio::join!(run, listen).0 }).await
    }

    /// What it would do now.
    pub(crate) async fn plan(&self, goal: &Goal<'_>) -> Result<Plan, Error> {
        let survey = converge::survey(goal, &self.environment()).await?;
        if let Some(want) = &survey.desired {
            // The same facts give the same plan.
            let whole = plan_up(want, &survey.actual).unwrap();
            let plan = match goal {
                Goal::Heal(_) => whole.unasked(),
                Goal::Up(_) | Goal::Remove(_) => whole,
            };
            assert_eq!(plan, survey.plan);
        }
        Ok(survey.plan)
    }
}
