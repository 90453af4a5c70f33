//! Joins the halves: survey (read → draw → plan), then run, and again until the plan is empty.
//! Both shells call this and have no provisioning logic of their own.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use futures::future::BoxFuture;

use crate::{
    actual::{self, Actual, Down, HostView},
    apply::{
        effects::Effects,
        event::{Events, RunOutcome},
        run::{self, Report},
        step::{Failure, Warning},
        stop::{Stop, StopCause},
    },
    config::{Intent, Login, NodeName},
    desired::{
        Desired, DrawError,
        pki::{self, EngineClient, PkiContext, PkiError, Seed},
    },
    error::{Blame, Explain},
    host::pool::{Aim, Hosts},
    plan::{self, Plan, PlanError, Step, Violation},
    state::{InventoryEntry, Loaded, Saved, StateError},
    world::World,
};

/// A fresh cluster takes one round and a look; more than this keeps changing by itself.
const ROUNDS: u32 = 5;

/// What a run is for, with what it needs to know.
pub enum Goal<'a> {
    /// Make the world as the intent says.
    Up(&'a Intent),
    /// Give every node of the saved inventory (and of the intent, if there still is one) back.
    Remove(Option<&'a Intent>),
}

/// Asked once before a plan with disruptive steps runs.
pub trait Consent: Send + Sync {
    /// True to go on. Sees the plan that will run.
    fn ask<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, bool>;
}

/// What a survey found and what would be done about it.
pub struct Survey {
    /// What is.
    pub actual: Actual,
    /// What must be; `None` for a removal.
    pub desired: Option<Desired>,
    /// The difference.
    pub plan: Plan,
}

/// How a convergence ended well, or ended for now.
#[derive(Debug)]
pub enum Outcome {
    /// The last survey's plan was empty.
    Converged {
        /// False: nothing was done at all.
        changed: bool,
        /// Said on the way.
        warnings: Vec<Warning>,
    },
    /// The plan disturbs what runs, and consent was not given; nothing was done.
    ConsentRefused {
        /// What it would disturb.
        disruptions: Vec<String>,
    },
    /// A removal that gave back every node that answers; these did not.
    RemovalIncomplete {
        /// The nodes, and why.
        left: Vec<(NodeName, Down)>,
    },
    /// The stop signal was given.
    Stopped(StopCause),
}

/// Reads the world and works out what to do. Writes nothing, anywhere.
pub async fn survey(goal: &Goal<'_>, world: &World) -> Result<Survey, Error> {
    let round = Round::look(goal, world).await?;
    Ok(round.survey)
}

/// Survey, run, and again until the plan is empty; at most five rounds.
pub async fn converge(
    goal: &Goal<'_>,
    world: &World,
    consent: &dyn Consent,
    events: &Events,
    stop: &Stop,
) -> Result<Outcome, Error> {
    let mut warnings = Vec::new();
    let mut agreed = BTreeSet::new();
    let mut hosts = None;
    let mut last = Plan::default();
    for number in 1..=ROUNDS {
        let round = tokio::select! {
            round = look(goal, world, hosts.take()) => round?,
            cause = stop.stopped() => return Ok(Outcome::Stopped(cause)),
        };
        let plan = &round.survey.plan;
        if plan.is_empty() || (number > 1 && plan.only_waits()) {
            return Ok(settled(goal, &round.survey, number > 1, warnings));
        }
        if !agree(plan, consent, &mut agreed).await {
            let disruptions = plan
                .disruptions()
                .map(|(step, what)| disruption(step, what));
            return Ok(Outcome::ConsentRefused {
                disruptions: disruptions.collect(),
            });
        }
        let report = round.run(plan, number, events, stop).await;
        let Report {
            outcome,
            failure,
            plan_again: _,
            warnings: new,
        } = report;
        for warning in new {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        match (outcome, failure) {
            (_, Some(Failure { step, error })) => {
                return Err(Error::Step {
                    title: plan::title(&step),
                    step: Box::new(step),
                    error: StepFailure(error),
                });
            }
            (RunOutcome::Stopped, None) => {
                return Ok(Outcome::Stopped(stop.cause().unwrap_or(StopCause::Signal)));
            }
            // The survey before this round saw every host clean or not ours. After it nobody
            // could tell any more whose a claim is, so there is nothing left to look for.
            (RunOutcome::Completed, None) if plan.deletes_state() => {
                return Ok(settled(goal, &round.survey, true, warnings));
            }
            (RunOutcome::Completed | RunOutcome::PlanAgain | RunOutcome::Failed, None) => {}
        }
        last = round.survey.plan;
        hosts = Some(round.hosts);
    }
    let changing = last
        .steps()
        .map(|step| format!("{}: {}", plan::title(step), step.why));
    Err(Error::Unsettled {
        rounds: ROUNDS,
        changing: changing.collect(),
    })
}

/// What one look at the world gives: the survey, and what a run of its plan needs.
/// [`converge`] is rounds of these.
pub struct Round<'w> {
    survey: Survey,
    world: &'w World,
    hosts: Hosts<'w>,
    saved: Option<Saved>,
    revision: Option<String>,
    engine: Option<EngineClient>,
}

impl<'w> Round<'w> {
    /// Looks. Writes nothing, anywhere.
    pub async fn look(goal: &Goal<'_>, world: &'w World) -> Result<Self, Error> {
        look(goal, world, None).await
    }

    /// What was found, and what would be done about it.
    pub const fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Runs a plan of this look: the survey's, or a part of it.
    pub async fn run(&self, plan: &Plan, number: u32, events: &Events, stop: &Stop) -> Report {
        run::run(plan, number, &self.effects(), events, stop).await
    }

    fn effects(&self) -> Effects<'_> {
        Effects {
            world: self.world,
            hosts: &self.hosts,
            actual: &self.survey.actual,
            desired: self.survey.desired.as_ref(),
            saved: self.saved.as_ref(),
            revision: self.revision.as_deref(),
            engine: self.engine.as_ref(),
        }
    }
}

async fn look<'w>(
    goal: &Goal<'_>,
    world: &'w World,
    open: Option<Hosts<'w>>,
) -> Result<Round<'w>, Error> {
    let now = (world.now)();
    let seed = Seed::new((world.entropy)());
    let (loaded, revision) = match world.store.load().await? {
        Loaded::Absent => (None, None),
        Loaded::Present { saved, revision } => (Some(*saved), Some(revision)),
    };
    let aims = aims(goal, loaded.as_ref(), world).await;
    let mut hosts = Hosts::new(&*world.dial, &*world.host_keys, aims);
    if let Some(open) = open {
        hosts.adopt(open);
    }
    let kubeconfig = world
        .kubeconfig
        .load()
        .await
        .map_err(|source| Error::Kubeconfig {
            place: world.kubeconfig.place(),
            source,
        })?;
    let engine = |saved: &Saved| pki::engine_client(saved, now, &seed);
    let reader = loaded.as_ref().map(engine).transpose()?;
    let actual = actual::read::read(&hosts, loaded.clone(), reader.as_ref(), kubeconfig).await;
    let (desired, plan, saved) = match goal {
        Goal::Up(intent) => {
            everyone_is_up(intent, &actual)?;
            let context = PkiContext {
                now,
                seed: seed.clone(),
                recover: world.recover,
                held_elsewhere: &world.held_elsewhere,
            };
            let keys = pki::reconcile(intent, &actual, &context)?;
            let desired = Desired::draw(intent, &keys, &actual)?;
            let plan = plan::up(&desired, &actual)?;
            let saved = desired.saved.clone();
            (Some(desired), plan, Some(saved))
        }
        Goal::Remove(_) => {
            let id = loaded.as_ref().map(|saved| &saved.cluster_id);
            (None, plan::remove(id, &actual)?, loaded)
        }
    };
    if let Some(saved) = &saved {
        let violations = plan::check(&plan, &actual, &saved.cluster_id);
        if !violations.is_empty() {
            return Err(Error::Unsafe(violations));
        }
    }
    let engine = if saved.as_ref() == actual.saved.as_deref() {
        reader
    } else {
        saved.as_ref().map(engine).transpose()?
    };
    let survey = Survey {
        actual,
        desired,
        plan,
    };
    Ok(Round {
        survey,
        world,
        hosts,
        saved,
        revision,
        engine,
    })
}

/// Where every host is: of the intent, and of the inventory what the intent no longer names.
async fn aims(goal: &Goal<'_>, saved: Option<&Saved>, world: &World) -> BTreeMap<NodeName, Aim> {
    let intent = match goal {
        Goal::Up(intent) => Some(*intent),
        Goal::Remove(intent) => *intent,
    };
    let mut aims: BTreeMap<NodeName, Aim> = intent
        .into_iter()
        .flat_map(|intent| &intent.nodes)
        .map(|(name, node)| {
            (
                name.clone(),
                Ok((node.endpoint.clone(), node.login.clone())),
            )
        })
        .collect();
    for (name, entry) in saved.iter().flat_map(|saved| &saved.inventory) {
        if !aims.contains_key(name) {
            aims.insert(name.clone(), from_inventory(name, entry, world).await);
        }
    }
    aims
}

async fn from_inventory(name: &NodeName, entry: &InventoryEntry, world: &World) -> Aim {
    let InventoryEntry {
        endpoint,
        user,
        key_source,
        docker_socket,
        roles: _,
    } = entry;
    let key = world.key_ring.key(key_source).await.map_err(|why| Down {
        blame: Blame::Host,
        why: format!("cannot log in to node `{name}`: {why}"),
        hints: vec![],
    })?;
    let login = Login {
        user: user.clone(),
        key,
        key_source: key_source.clone(),
        docker_socket: docker_socket.clone(),
    };
    Ok((endpoint.clone(), login))
}

fn everyone_is_up(intent: &Intent, actual: &Actual) -> Result<(), Error> {
    let down: Vec<_> = intent
        .nodes
        .keys()
        .filter_map(|name| match actual.hosts.get(name) {
            Some(HostView::Down(down)) => Some((name.clone(), down.clone())),
            Some(HostView::Up(_)) | None => None,
        })
        .collect();
    if down.is_empty() {
        Ok(())
    } else {
        Err(Error::HostsDown(down))
    }
}

fn settled(goal: &Goal<'_>, survey: &Survey, changed: bool, warnings: Vec<Warning>) -> Outcome {
    let left: Vec<_> = survey
        .actual
        .hosts
        .iter()
        .filter_map(|(name, view)| match view {
            HostView::Down(down) => Some((name.clone(), down.clone())),
            HostView::Up(_) => None,
        })
        .collect();
    match goal {
        Goal::Remove(_) if !left.is_empty() => Outcome::RemovalIncomplete { left },
        Goal::Remove(_) | Goal::Up(_) => Outcome::Converged { changed, warnings },
    }
}

/// Asks once for what disturbs; what was agreed to is not asked again in a later round.
async fn agree(plan: &Plan, consent: &dyn Consent, agreed: &mut BTreeSet<String>) -> bool {
    let wanted: BTreeSet<_> = plan
        .disruptions()
        .map(|(step, what)| disruption(step, what))
        .collect();
    if wanted.is_subset(agreed) {
        return true;
    }
    let yes = consent.ask(plan).await;
    if yes {
        agreed.extend(wanted);
    }
    yes
}

fn disruption(step: &Step, what: &str) -> String {
    format!("{}: {} {what}", step.target, plan::title(step))
}

/// Why a convergence failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The keys (invariant 2).
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// What must be cannot be worked out.
    #[error(transparent)]
    Draw(#[from] DrawError),
    /// The plan is refused.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Nodes of the config did not answer; nothing was done.
    #[error("{}", hosts_down(.0))]
    HostsDown(Vec<(NodeName, Down)>),
    /// The kubeconfig that is there cannot be read.
    #[error("cannot read the kubeconfig {place}")]
    Kubeconfig {
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A step failed.
    #[error("{title} on {} failed", .step.target)]
    Step {
        /// What it was doing.
        title: String,
        /// The step.
        step: Box<Step>,
        /// Why.
        #[source]
        error: StepFailure,
    },
    /// The plan breaks an invariant: nothing was done.
    #[error("the plan was not safe and did not run: {}", violations(.0))]
    Unsafe(Vec<Violation>),
    /// Every round leaves something to do.
    #[error("after {rounds} rounds something still changes: {}", .changing.join("; "))]
    Unsettled {
        /// How many.
        rounds: u32,
        /// The last round's steps, and why.
        changing: Vec<String>,
    },
}

/// Why a step failed.
#[derive(Debug)]
pub struct StepFailure(Box<dyn Explain + Send + Sync>);

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for StepFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

fn hosts_down(down: &[(NodeName, Down)]) -> String {
    down.iter()
        .map(|(_, down)| down.why.as_str())
        .collect::<Vec<_>>()
        .join("; ")
}

fn violations(violations: &[Violation]) -> String {
    violations
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

impl Explain for Error {
    fn blame(&self) -> Blame {
        match self {
            Self::State(error) => error.blame(),
            Self::Pki(error) => error.blame(),
            Self::Draw(error) => error.blame(),
            Self::Plan(error) => error.blame(),
            Self::HostsDown(down) => {
                let user = down.iter().all(|(_, down)| down.blame == Blame::User);
                if user { Blame::User } else { Blame::Host }
            }
            Self::Kubeconfig { .. } => Blame::User,
            Self::Step { error, .. } => error.0.blame(),
            Self::Unsafe(_) | Self::Unsettled { .. } => Blame::Bug,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::State(error) => error.hints(),
            Self::Pki(error) => error.hints(),
            Self::Draw(error) => error.hints(),
            Self::Plan(error) => error.hints(),
            Self::HostsDown(down) => {
                let mut hints: Vec<Cow<'static, str>> = Vec::new();
                for hint in down.iter().flat_map(|(_, down)| &down.hints) {
                    if !hints.contains(&Cow::Borrowed(hint.as_str())) {
                        hints.push(hint.clone().into());
                    }
                }
                hints
            }
            Self::Step { error, .. } => error.0.hints(),
            Self::Kubeconfig { .. } | Self::Unsafe(_) | Self::Unsettled { .. } => vec![],
        }
    }
}
