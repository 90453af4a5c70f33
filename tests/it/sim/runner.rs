//! One who runs `up` and `remove` on a simulated world, with a state of its own in memory.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, future::BoxFuture};
use rke_operator::{
    api::LastSnapshot,
    apply::{
        event::{Event, Events},
        stop::{Stop, Stopper},
    },
    config::Credential,
    converge::{self, AnyPurpose, Consent, Convergence, Error, Goal, Purpose},
    desired::pki::{RestoreRequest, RotationStage},
    environment::{Clock, Environment, KeyRing},
    error::{ErrorClass, Obstacle},
    facts::Unreachable,
    host::{KnownHosts, Policy},
    model::{ClusterId, NodeName, secret::Secret},
    plan,
    plan::Plan,
    state::{ClusterState, Loaded, StateError, Store, kubeconfig::KubeconfigStore},
};

use super::{Shell, remote::SimRemote, world::plan_up};

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
            client: String::new(),
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
    lose: BTreeSet<NodeName>,
    clean: BTreeSet<NodeName>,
    last_snapshot: LastSnapshot,
    recover: Option<ClusterId>,
    accept_etcd: Option<String>,
    restore: Option<RestoreRequest>,
    rotate_key: bool,
    service_account_key: Option<RotationStage>,
    retry: bool,
    authorities: Option<RotationStage>,
    identity: String,
    clock: Clock,
}

struct AnyKey;

impl KeyRing for AnyKey {
    fn credential<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Credential, String>> {
        let key = Credential::Key(Secret::new("a key".to_owned()), None);
        futures::future::ready(Ok(key)).boxed()
    }
}

pub(crate) struct Yes;

impl Consent for Yes {
    type Refusal = Infallible;

    fn ask<'a>(&'a self, _: &'a Plan) -> BoxFuture<'a, Result<(), Infallible>> {
        futures::future::ready(Ok(())).boxed()
    }
}

impl Runner {
    /// Whose keys are made of `entropy`.
    pub(crate) fn new(remote: &SimRemote, entropy: fn() -> [u8; 32]) -> Self {
        let identity = "a test";
        Self {
            remote: remote.as_client(identity),
            memory: Arc::default(),
            entropy,
            lose: BTreeSet::new(),
            clean: BTreeSet::new(),
            last_snapshot: LastSnapshot::BestEffort,
            recover: None,
            accept_etcd: None,
            restore: None,
            rotate_key: false,
            service_account_key: None,
            retry: false,
            authorities: None,
            identity: identity.to_owned(),
            clock: Clock::new(|| "2030-01-01T00:00:00Z".parse().unwrap()),
        }
    }

    /// The same state in the hands of somebody else, by whose clock time goes on.
    pub(crate) fn called(&self, identity: &str, clock: &Clock) -> Self {
        Self {
            remote: self.remote.as_client(identity),
            identity: identity.to_owned(),
            clock: clock.clone(),
            ..self.clone()
        }
    }

    /// Another user, with this state and kubeconfig.
    pub(crate) fn for_user(&self, identity: &str, shell: Shell) -> Self {
        let memory = Memory::default();
        memory.keep(shell);
        Self {
            memory: Arc::new(memory),
            ..self.called(identity, &self.clock)
        }
    }

    /// The same one, who gives up these nodes.
    pub(crate) fn losing(&self, nodes: &[&str]) -> Self {
        Self {
            lose: nodes.iter().map(|name| NodeName::from(*name)).collect(),
            ..self.clone()
        }
    }

    /// The same one, who has these nodes cleaned whatever is on them.
    pub(crate) fn cleaning(&self, nodes: &[&str]) -> Self {
        Self {
            clean: nodes.iter().map(|name| NodeName::from(*name)).collect(),
            ..self.clone()
        }
    }

    /// The same one, whose removals want a last snapshot in this way.
    pub(crate) fn saving(&self, last_snapshot: LastSnapshot) -> Self {
        Self {
            last_snapshot,
            ..self.clone()
        }
    }

    /// The same one, whose time is that.
    pub(crate) fn at(&self, now: &'static str) -> Self {
        Self {
            clock: Clock::new(move || now.parse().unwrap()),
            ..self.clone()
        }
    }

    /// The same one, who takes over the newest copy of this cluster's state.
    pub(crate) fn recovering(&self, id: &ClusterId) -> Self {
        Self {
            recover: Some(id.clone()),
            ..self.clone()
        }
    }

    /// The same one, who asks for no recovery.
    pub(crate) fn plainly(&self) -> Self {
        Self {
            recover: None,
            ..self.clone()
        }
    }

    /// The same one, who goes on with this external etcd.
    pub(crate) fn accepting(&self, etcd: &str) -> Self {
        Self {
            accept_etcd: Some(etcd.to_owned()),
            ..self.clone()
        }
    }

    /// The same one, who restores a snapshot.
    pub(crate) fn restoring(&self, restore: &RestoreRequest) -> Self {
        Self {
            restore: Some(restore.clone()),
            ..self.clone()
        }
    }

    /// The same one, who wants a new encryption key.
    pub(crate) fn rotating_key(&self) -> Self {
        Self {
            rotate_key: true,
            ..self.clone()
        }
    }

    /// From now on a node does not answer.
    pub(crate) fn switch_off(&self, node: &str) {
        let why = Unreachable {
            alike: None,
            obstacle: Obstacle::Silence,
            class: ErrorClass::Host,
            why: "it is off".to_owned(),
            hints: Vec::new(),
        };
        self.remote
            .world(|world| world.down.insert(node.into(), why));
    }

    /// From now on every node answers, and what was started runs.
    pub(crate) fn switch_on(&self) {
        self.remote.world(|world| {
            world.down.clear();
            world.settle();
        });
    }

    /// The same one, who wants a new service-account key.
    pub(crate) fn rotating_service_account_key(&self, stage: RotationStage) -> Self {
        Self {
            service_account_key: Some(stage),
            ..self.clone()
        }
    }

    /// The same one, who wants what has failed to be tried again.
    pub(crate) fn retrying(&self) -> Self {
        Self {
            retry: true,
            ..self.clone()
        }
    }

    /// The same one, who wants new authorities.
    pub(crate) fn rotating_authorities(&self, stage: RotationStage) -> Self {
        Self {
            authorities: Some(stage),
            ..self.clone()
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
            recover: self.recover.clone(),
            accept_etcd: self.accept_etcd.clone(),
            rotate: None,
            rotate_key: self.rotate_key,
            service_account_key: self.service_account_key,
            retry: self.retry,
            authorities: self.authorities,
            restore: self.restore.clone(),
            held_elsewhere: BTreeSet::new(),
            lose: self.lose.clone(),
            clean: self.clean.clone(),
            last_snapshot: self.last_snapshot,
            home: None,
            given: None,
            bundle: None,
            identity: self.identity.clone(),
            clock: self.clock.clone(),
            entropy: self.entropy,
        }
    }

    /// As the product converges, with every consent.
    pub(crate) async fn converge<P: Purpose>(&self, purpose: &P) -> Result<P::Outcome, Error> {
        self.converge_with(purpose, &Yes).await.and_then(whole)
    }

    /// As the product converges.
    pub(crate) async fn converge_with<P: Purpose, R>(
        &self,
        purpose: &P,
        consent: &dyn Consent<Refusal = R>,
    ) -> Result<Convergence<P::Outcome, R>, Error> {
        let (_stopper, stop) = Stopper::new();
        self.converge_until(purpose, consent, &stop).await
    }

    /// As the product converges, until it is told to stop.
    pub(crate) async fn converge_until<P: Purpose, R>(
        &self,
        purpose: &P,
        consent: &dyn Consent<Refusal = R>,
        stop: &Stop,
    ) -> Result<Convergence<P::Outcome, R>, Error> {
        let environment = self.environment();
        let (events, mut stream) = Events::channel(64);
        let run = async {
            let ended = converge::converge(purpose, &environment, consent, &events, stop).await;
            drop(events);
            ended
        };
        let listen = async { while stream.recv().await.is_some() {} };
        Box::pin(async { tokio::join!(run, listen).0 }).await
    }

    /// As the product converges, with every consent, and the events of it.
    pub(crate) async fn converge_told<P: Purpose>(
        &self,
        purpose: &P,
    ) -> (Result<P::Outcome, Error>, Vec<Event>) {
        let environment = self.environment();
        let (_stopper, stop) = Stopper::new();
        let (events, mut stream) = Events::channel(64);
        let run = async {
            let ended = converge::converge(purpose, &environment, &Yes, &events, &stop).await;
            drop(events);
            ended.and_then(whole)
        };
        let listen = async {
            let mut told = Vec::new();
            while let Some(event) = stream.recv().await {
                told.push(event);
            }
            told
        };
        Box::pin(async { tokio::join!(run, listen) }).await
    }

    /// What it would do now, and whether it may, without a second thought about it ([`Self::plan`]).
    pub(crate) async fn would(&self, purpose: &impl Purpose) -> Result<Plan, Error> {
        let survey = converge::survey(purpose, &self.environment()).await?;
        Ok(survey.plan)
    }

    /// As the product converges from a look that was just done, of which `first` is told the plan.
    pub(crate) async fn converge_seen<P: Purpose>(
        &self,
        purpose: &P,
        first: impl FnOnce(&Plan),
    ) -> Result<P::Outcome, Error> {
        let environment = self.environment();
        let seen = Box::new(converge::Iteration::look(purpose, &environment).await?);
        first(&seen.survey().plan);
        let (_stopper, stop) = Stopper::new();
        let (events, mut stream) = Events::channel(64);
        let run = async {
            let seen = Some(seen);
            let ended =
                converge::converge_from(seen, purpose, &environment, &Yes, &events, &stop).await;
            drop(events);
            ended.and_then(whole)
        };
        let listen = async { while stream.recv().await.is_some() {} };
        Box::pin(async { tokio::join!(run, listen).0 }).await
    }

    /// What it would do now. The same facts give the same plan.
    pub(crate) async fn plan(&self, purpose: &impl Purpose) -> Result<Plan, Error> {
        let survey = converge::survey(purpose, &self.environment()).await?;
        if let Some(want) = &survey.desired {
            let plan = || plan_up(want, &survey.actual).unwrap();
            let plan = match purpose.any() {
                AnyPurpose::Goal(Goal::Heal(_)) => plan().unasked(),
                AnyPurpose::Goal(Goal::Renew(_)) => plan().renewals(),
                AnyPurpose::Goal(Goal::RotateKeys(rotated, _)) => plan().rotation(rotated),
                AnyPurpose::Goal(Goal::Up(_)) | AnyPurpose::Removal(_) => plan(),
                AnyPurpose::Goal(Goal::Reboot(request, _)) => {
                    plan::reboot(want, &survey.actual, request).unwrap()
                }
                AnyPurpose::Goal(Goal::Restore(_)) => match self.restore {
                    Some(RestoreRequest::TakeBack) => {
                        plan::take_back(want, &survey.actual).unwrap()
                    }
                    Some(RestoreRequest::Begin(_)) | None => {
                        plan::restore(want, &survey.actual).unwrap()
                    }
                },
            };
            assert_eq!(plan, survey.plan);
        }
        Ok(survey.plan)
    }
}

/// The outcome of a run. One that the world has cut off has none, as one that has lost its lock.
fn whole<O>(ended: Convergence<O, Infallible>) -> Result<O, Error> {
    match ended {
        Convergence::Settled(outcome) => Ok(outcome),
        Convergence::Stopped(_) => Err(Error::TurnLost),
    }
}
