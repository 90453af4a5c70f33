//! Joins the halves: survey (read, what must be, what differs, plan), then run, and again until the plan is empty.
//! Both shells call this and have no provisioning logic of their own.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::{
    apply::{
        event::{Events, RunOutcome},
        remote::RemoteSession,
        run::Report,
        step::{Failure, Warning},
        stop::{Stop, StopCause},
    },
    config::Intent,
    desired::Desired,
    environment::Environment,
    error::{ErrorClass, Explain, distinct},
    facts::{Actual, Unreachable},
    model::NodeName,
    plan,
    plan::{Action, Plan, Target},
    status,
    status::Seen,
};

mod announced;
mod attempts;
mod error;
mod kept;
mod look;
mod turn;

use announced::Announced;
use attempts::Attempts;
pub use error::{Error, StepFailure};
use kept::Kept;
pub(crate) use look::targets;
pub use look::{Iteration, inspect};
use look::{SoFar, look};
use turn::InTurn;

/// What a run is for, with what it needs to know.
pub enum Goal<'a> {
    /// Make the world as the intent says.
    Up(&'a Intent),
    /// As `Up`, without what nobody asked for: the intent was applied before, so what was changed
    /// outside is put right and what ends soon is renewed, and nothing else changes.
    Heal(&'a Intent),
    /// Give every node of the saved inventory (and of the intent, if there still is one) back.
    Remove(Option<&'a Intent>),
}

/// Asked once before a plan with disruptive steps runs.
pub trait Consent: Send + Sync {
    /// True to go on. Sees the plan that will run.
    fn ask<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, bool>;
}

/// What a survey found and what would be done about it.
#[derive(Debug)]
pub struct Survey {
    /// What is.
    pub actual: Actual,
    /// What must be; `None` for a removal.
    pub desired: Option<Desired>,
    /// The difference.
    pub plan: Plan,
    /// The whole difference, where the goal is about a part of it.
    pub(crate) all: Option<Plan>,
}

impl Survey {
    /// All that `up` would do.
    pub fn whole(&self) -> &Plan {
        self.all.as_ref().unwrap_or(&self.plan)
    }
}

/// What a survey found, whether or not anything can be done about it.
#[derive(Debug)]
pub struct Inspection {
    /// When.
    pub now: Timestamp,
    /// What the user wants, with the release that the cluster keeps.
    pub intent: Intent,
    /// What is.
    pub actual: Actual,
    /// What must be; `None` where there is no plan.
    pub desired: Option<Desired>,
    /// The difference, or why nothing would be done about it.
    pub plan: Result<Plan, Error>,
}

impl Inspection {
    /// What a [`Status`](crate::status::Status) is made of.
    pub fn seen(&self) -> Seen<'_> {
        let refusal = |error| error as &(dyn Explain + 'static);
        Seen {
            now: self.now,
            intent: Some(&self.intent),
            actual: &self.actual,
            desired: self.desired.as_ref(),
            plan: self.plan.as_ref().map_err(refusal),
        }
    }
}

/// How a convergence ended well, or ended for now.
#[derive(Debug)]
pub enum Outcome {
    /// What can converge has; these nodes of the config did not answer, or a step on them failed, or what a
    /// warning names is missing and the cluster does not work as a whole without it.
    Degraded {
        /// The nodes, and why.
        left: BTreeMap<NodeName, Unreachable>,
        /// False: nothing was done at all.
        changed: bool,
        /// Said on the way.
        warnings: Vec<Warning>,
        /// The last one; `None` where it left nodes alone on which a step failed.
        survey: Option<Box<Survey>>,
    },
    /// The last survey's plan was empty.
    Converged {
        /// False: nothing was done at all.
        changed: bool,
        /// Said on the way.
        warnings: Vec<Warning>,
        /// The last one; `None` where it was before the last effect.
        survey: Option<Box<Survey>>,
    },
    /// The plan disturbs what runs, and consent was not given; nothing of it was done.
    ConsentRefused {
        /// What it would disrupt, equal disruptions of several nodes in one line.
        disruptions: Vec<String>,
        /// True: an earlier iteration of this run did something.
        changed: bool,
    },
    /// A removal that gave back every node that it could; these do not answer, or hold another
    /// cluster beside what is left of this one. The state is kept.
    RemovalIncomplete {
        /// The nodes, and why.
        left: Vec<(NodeName, Unreachable)>,
        /// Those of them that answer, and are another cluster's.
        claimed: BTreeSet<NodeName>,
    },
    /// The stop signal was given.
    Stopped(StopCause),
}

impl Outcome {
    /// With the last survey. One in which failed nodes stand as silent ones tells who was left, not how
    /// it is.
    fn carrying(mut self, last: Survey, so_far: &SoFar) -> Self {
        match &mut self {
            Self::Degraded { survey, .. } | Self::Converged { survey, .. } => {
                *survey = so_far.failed.is_empty().then(|| Box::new(last));
            }
            Self::ConsentRefused { .. } | Self::RemovalIncomplete { .. } | Self::Stopped(_) => {}
        }
        self
    }
}

/// Reads the world and works out what to do. Writes nothing, anywhere.
pub async fn survey(goal: &Goal<'_>, environment: &Environment) -> Result<Survey, Error> {
    let iteration = Iteration::look(goal, environment).await?;
    Ok(iteration.survey)
}

/// Survey, run, and again until the plan is empty, or nothing is gained by another iteration.
pub async fn converge(
    goal: &Goal<'_>,
    environment: &Environment,
    consent: &dyn Consent,
    events: &Events,
    stop: &Stop,
) -> Result<Outcome, Error> {
    Box::pin(converge_from(
        None,
        goal,
        environment,
        consent,
        events,
        stop,
    ))
    .await
}

/// As [`converge`], by a look that was just done for the same goal.
pub async fn converge_from<'w>(
    mut first: Option<Box<Iteration<'w>>>,
    goal: &Goal<'_>,
    environment: &'w Environment,
    consent: &dyn Consent,
    events: &Events,
    stop: &Stop,
) -> Result<Outcome, Error> {
    let mut warnings = Vec::new();
    let mut agreed = BTreeSet::new();
    let mut announced: Option<Announced> = None;
    let mut session = look::open(environment);
    let mut last = Plan::default();
    // What was waited for, each once: what is still slow then was warned about.
    let mut waited = Vec::new();
    // A plan with effects was run. One that only waits changes nothing.
    let mut changed = false;
    let mut so_far = SoFar::default();
    let mut kept = Kept::default();
    let mut attempts = Attempts::new();
    while let Some(number) = attempts.next() {
        let looks = begin(first.take(), goal, environment, session, &so_far, kept);
        let iteration = tokio::select! {
            biased;
            cause = stop.stopped() => return Ok(Outcome::Stopped(cause)),
            iteration = Box::pin(looks) => iteration
                .map_err(|error| if changed { error.after_changes() } else { error })?,
        };
        let plan = &iteration.survey.plan;
        attempts.plans(plan);
        if plan.steps().all(|step| waited.contains(&step.action)) {
            iteration.remember(goal).await?;
            let outcome = settled(goal, &iteration.survey, changed, warnings);
            return Ok(outcome.carrying(iteration.survey, &so_far));
        }
        let unseen = announced.as_ref().map(|announced| announced.misses(plan));
        let unseen = unseen.unwrap_or_default();
        if !unseen.is_empty() {
            // They are left alone, and what is done to the others is planned without them.
            so_far.failed.extend(unseen);
            if let Some(left) = too_few(goal, &iteration, &so_far).await? {
                return Ok(degraded(left, changed, warnings));
            }
            (session, kept) = (iteration.session, Kept::default());
            continue;
        }
        if !agree(plan, consent, &mut agreed).await {
            return Ok(refused(plan, changed, stop));
        }
        let report = match Box::pin(iteration.in_turn(number, events, stop)).await? {
            InTurn::Ran(report) => report,
            InTurn::LookAgain => {
                (session, kept) = (iteration.session, Kept::default());
                continue;
            }
            InTurn::Stopped(cause) => return Ok(Outcome::Stopped(cause)),
        };
        changed |= !plan.only_waits();
        announced.get_or_insert_with(|| Announced::by(&iteration.survey));
        let Report {
            outcome,
            failures,
            plan_again: _,
            warnings: new,
        } = report;
        warnings = distinct(warnings.into_iter().chain(new));
        // A run that ended early has not waited for all of it.
        if outcome == RunOutcome::Completed {
            waited.extend(waits(plan));
        }
        if let Some(failure) = so_far.ends(&outcome, failures) {
            return Err(failed(failure));
        }
        match outcome {
            RunOutcome::Stopped => {
                return Ok(Outcome::Stopped(stop.cause().unwrap_or(StopCause::Signal)));
            }
            // The survey before this iteration saw every host clean or not ours. After it nobody
            // could tell any more whose a claim is, so there is nothing left to look for.
            RunOutcome::Completed if plan.deletes_state() => {
                return Ok(settled(goal, &iteration.survey, true, warnings));
            }
            RunOutcome::Completed
            | RunOutcome::PlanAgain
            | RunOutcome::Degraded
            | RunOutcome::Failed => {}
        }
        so_far.ran = true;
        (session, last, kept) = iteration.leave(goal, &outcome);
    }
    Err(unsettled(attempts.count(), &last))
}

/// Where too few nodes are left to go on with: those that are left to the next run.
async fn too_few(
    goal: &Goal<'_>,
    iteration: &Iteration<'_>,
    so_far: &SoFar,
) -> Result<Option<BTreeMap<NodeName, Unreachable>>, Error> {
    if !so_far.leaves_too_few(&iteration.survey) {
        return Ok(None);
    }
    iteration.remember(goal).await?;
    Ok(Some(so_far.left(goal, &iteration.survey)))
}

/// The look that an iteration goes by: one that was just done, or a new one.
async fn begin<'w>(
    first: Option<Box<Iteration<'w>>>,
    goal: &Goal<'_>,
    environment: &'w Environment,
    session: Box<dyn RemoteSession>,
    so_far: &SoFar,
    kept: Kept,
) -> Result<Iteration<'w>, Error> {
    match first {
        Some(first) => Ok(first.about(goal)),
        None => Box::pin(look(goal, environment, session, so_far, kept)).await,
    }
}

fn failed(Failure { step, error }: Failure) -> Error {
    Error::Step {
        title: plan::title(&step),
        step: Box::new(step),
        error: StepFailure(error),
    }
}

fn unsettled(iterations: u32, last: &Plan) -> Error {
    let changing = last
        .steps()
        .map(|step| format!("{}: {}", plan::title(step), step.why));
    Error::Unsettled {
        iterations,
        changing: changing.collect(),
    }
}

fn waits(plan: &Plan) -> impl Iterator<Item = Action> {
    let waits = plan.steps().filter(|step| step.action.is_wait());
    waits.map(|step| step.action.clone())
}

/// The nodes of which something is left as it is for now, and why.
fn waiting(plan: &Plan) -> impl Iterator<Item = (NodeName, Unreachable)> {
    let left = plan.notes.iter().filter(|note| note.is_left);
    left.filter_map(|note| {
        let Some(Target::Host(name)) = &note.target else {
            return None;
        };
        let why = Unreachable {
            silent: false,
            class: ErrorClass::Host,
            why: note.text.clone(),
            hints: Vec::new(),
        };
        Some((name.clone(), why))
    })
}

/// The hosts that do not answer, and why.
pub(crate) fn silent(actual: &Actual) -> BTreeMap<NodeName, Unreachable> {
    let silent = actual.unreachable();
    silent
        .map(|(name, down)| (name.clone(), down.clone()))
        .collect()
}

/// A failure on a node, as the fact that the rest of the run goes by.
fn left_alone(failure: &Failure) -> Option<(NodeName, Unreachable)> {
    let node = failure.step.node()?.clone();
    let mut why = Unreachable::of(&*failure.error);
    why.why = format!("{}: {}", plan::title(&failure.step), why.why);
    Some((node, why))
}

/// What a removal leaves to other clusters, and why. The plan that ends one deletes the state: where
/// there is nothing to do and the state is there, it is kept for what is on the nodes that the
/// plan's notes name.
fn claimed(survey: &Survey) -> BTreeMap<NodeName, Unreachable> {
    if survey.actual.saved.is_none() || !survey.plan.is_empty() {
        return BTreeMap::new();
    }
    let notes = survey.plan.notes.iter().filter_map(|note| {
        let Some(Target::Host(name)) = &note.target else {
            return None;
        };
        survey.actual.up(name)?;
        let why = Unreachable {
            silent: false,
            class: ErrorClass::User,
            why: format!("node `{name}` {}", note.text),
            hints: Vec::new(),
        };
        Some((name.clone(), why))
    });
    notes.collect()
}

/// Between which nodes no packets of pods travel: the cluster does not work as a whole without that.
fn no_traffic(survey: &Survey) -> impl Iterator<Item = Warning> {
    let cases = status::missing_traffic(&survey.actual, survey.desired.as_ref());
    cases.into_iter().map(|(name, case)| Warning {
        message: format!("node `{name}`: {}", case.why),
        hints: case.hints,
        degrades: true,
    })
}

/// The nodes that are not as the config says, and why.
fn left(goal: &Goal<'_>, survey: &Survey) -> BTreeMap<NodeName, Unreachable> {
    let mut left = silent(&survey.actual);
    // What is only healed follows no change, nor what a change waits for.
    if matches!(goal, Goal::Up(_)) {
        for (name, why) in waiting(&survey.plan) {
            left.entry(name).or_insert(why);
        }
    }
    left
}

fn settled(goal: &Goal<'_>, survey: &Survey, changed: bool, warnings: Vec<Warning>) -> Outcome {
    match goal {
        Goal::Remove(_) => {
            let (mut left, claimed) = (silent(&survey.actual), claimed(survey));
            // What was given up is not waited for.
            let saved = survey.actual.saved.as_ref();
            left.retain(|name, _| !saved.is_some_and(|saved| saved.is_lost(name)));
            let names = claimed.keys().cloned().collect();
            left.extend(claimed);
            if left.is_empty() {
                Outcome::Converged {
                    changed,
                    warnings,
                    survey: None,
                }
            } else {
                Outcome::RemovalIncomplete {
                    left: left.into_iter().collect(),
                    claimed: names,
                }
            }
        }
        Goal::Up(_) | Goal::Heal(_) => {
            let left = left(goal, survey);
            let warnings = distinct(warnings.into_iter().chain(no_traffic(survey)));
            let whole = left.is_empty() && !warnings.iter().any(|warning| warning.degrades);
            if whole {
                Outcome::Converged {
                    changed,
                    warnings,
                    survey: None,
                }
            } else {
                degraded(left, changed, warnings)
            }
        }
    }
}

const fn degraded(
    left: BTreeMap<NodeName, Unreachable>,
    changed: bool,
    warnings: Vec<Warning>,
) -> Outcome {
    Outcome::Degraded {
        left,
        changed,
        warnings,
        survey: None,
    }
}

/// Asks once for what disturbs; what was agreed to is not asked again in a later iteration.
async fn agree(
    plan: &Plan,
    consent: &dyn Consent,
    agreed: &mut BTreeSet<(Target, String)>,
) -> bool {
    let wanted: BTreeSet<_> = plan
        .disruptions()
        .map(|(step, what)| (step.target(), what.to_owned()))
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

/// Whoever pressed Ctrl-C at the question has not said no.
fn refused(plan: &Plan, changed: bool, stop: &Stop) -> Outcome {
    if let Some(cause) = stop.cause() {
        return Outcome::Stopped(cause);
    }
    Outcome::ConsentRefused {
        disruptions: plan::disruptions(plan),
        changed,
    }
}
