//! Joins the halves: survey (read, what must be, what differs, plan), then run, and again until the plan is empty.
//! Both shells call this and contain no provisioning logic.

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
    error::{Explain, distinct},
    facts::{Actual, Unreachable},
    model::NodeName,
    plan,
    plan::{Plan, Target},
    snapshots::record::Reports,
    status,
    status::Seen,
};

mod announced;
mod attempts;
mod back;
mod error;
mod examine;
mod images;
mod kept;
mod look;
mod maintenance;
mod purpose;
mod reach;
mod restore;
mod snapshot;
mod turn;
mod waited;
mod watch;

pub(crate) use self::{look::targets, purpose::silent};
use announced::Announced;
use attempts::Attempts;
pub use error::{Error, StepFailure};
pub use examine::{Examined, examine};
pub use images::{ExportError, ImageExport, LoadedImages, load_images, needed_images};
use kept::Kept;
pub use look::{Inspector, Iteration, inspect, inspect_served};
use look::{SoFar, look};
pub use maintenance::{Answers, MaintenanceError, defragment, drain, named_snapshot, uncordon};
pub use purpose::{
    AnyPurpose, Convergence, Goal, Outcome, Purpose, Removal, RemovalOutcome, Settled,
};
pub use reach::{Reached, reach};
pub use restore::{
    Dialled, Named, RestoreError, another, dial_all, fetch, id_of, may_restore, restore_of,
    with_etcd,
};
pub use snapshot::{AskedSnapshot, SavedSnapshots, save_snapshots};
use turn::InTurn;
use waited::Waited;
pub use watch::{WatchError, Watching, control_planes, watch};

/// Asked once before a plan with disruptive steps runs.
pub trait Consent: Send + Sync {
    /// What a refusal is. [`Infallible`](std::convert::Infallible) says that consent is always given: then no run ends
    /// with [`Convergence::ConsentRefused`].
    type Refusal;

    /// `Ok` to go on. Sees the plan that will run.
    fn ask<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), Self::Refusal>>;
}

/// Consent was requested, and not given.
#[derive(Debug)]
pub struct Declined;

/// What a survey found and what would be done about it.
#[derive(Debug)]
pub struct Survey {
    /// What is.
    pub actual: Actual,
    /// What the programs that take snapshots report.
    pub snapshots: Reports,
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
    /// What the programs that take snapshots report.
    pub snapshots: Reports,
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
            snapshots: &self.snapshots,
            desired: self.desired.as_ref(),
            plan: self.plan.as_ref().map_err(refusal),
        }
    }
}

/// Reads the world and works out what to do. Writes nothing, anywhere.
pub async fn survey(purpose: &impl Purpose, environment: &Environment) -> Result<Survey, Error> {
    let iteration = Iteration::look(purpose, environment).await?;
    Ok(iteration.survey)
}

/// Survey, run, and again until the plan is empty, or nothing is gained by another iteration.
pub async fn converge<P: Purpose, R>(
    purpose: &P,
    environment: &Environment,
    consent: &dyn Consent<Refusal = R>,
    events: &Events,
    stop: &Stop,
) -> Result<Convergence<P::Outcome, R>, Error> {
    converge_from(None, purpose, environment, consent, events, stop).await
}

/// As [`converge`], by a look that was just done for the same config.
pub async fn converge_from<'w, P: Purpose, R>(
    first: Option<Box<Iteration<'w>>>,
    purpose: &P,
    environment: &'w Environment,
    consent: &dyn Consent<Refusal = R>,
    events: &Events,
    stop: &Stop,
) -> Result<Convergence<P::Outcome, R>, Error> {
    let ended = iterate(first, purpose.any(), environment, consent, events, stop);
    let ended = Box::pin(ended).await?;
    Ok(ended.map(|settled| purpose.outcome(settled)))
}

/// The loop, the same for every purpose.
async fn iterate<'w, R>(
    mut first: Option<Box<Iteration<'w>>>,
    purpose: AnyPurpose<'_>,
    environment: &'w Environment,
    consent: &dyn Consent<Refusal = R>,
    events: &Events,
    stop: &Stop,
) -> Result<Convergence<Settled, R>, Error> {
    let mut warnings = Vec::new();
    let mut agreed = BTreeSet::new();
    let mut announced: Option<Announced> = None;
    let mut session = look::open(environment);
    let mut last = Plan::default();
    let mut waited = Waited::default();
    // A plan with effects was run. One that only waits changes nothing.
    let mut changed = false;
    let mut so_far = SoFar::default();
    let mut kept = Kept::default();
    let mut attempts = Attempts::new();
    while let Some(number) = attempts.next() {
        let looks = begin(first.take(), purpose, environment, session, &so_far, kept);
        let iteration = tokio::select! {
            biased;
            cause = stop.stopped() => return Ok(Convergence::Stopped(cause)),
            iteration = Box::pin(looks) => {
                iteration.map_err(|error| so_far.failed_before(error, changed))?
            }
        };
        let plan = &iteration.survey.plan;
        if let Some(back) = so_far.back.take_if(|_| !plan.puts_back()) {
            return back.settled(iteration.survey, so_far, changed, warnings);
        }
        attempts.plans(plan);
        if waited.is_done_with(plan) {
            iteration.remember(purpose).await?;
            let warnings = distinct(warnings.into_iter().chain(no_traffic(&iteration.survey)));
            return Ok(settled(iteration.survey, so_far, changed, warnings));
        }
        let unseen = unannounced(announced.as_ref(), plan);
        if !unseen.is_empty() {
            // They are left alone, and what is done to the others is planned without them.
            so_far.failed.extend(unseen);
            if so_far.leaves_too_few(&iteration.survey) {
                iteration.remember(purpose).await?;
                return Ok(settled(iteration.survey, so_far, changed, warnings));
            }
            (session, kept) = (iteration.session, Kept::default());
            continue;
        }
        if let Err(refusal) = agree(plan, consent, &mut agreed).await {
            return Ok(refused(refusal, plan, changed, stop));
        }
        let report = match Box::pin(iteration.in_turn(number, events, stop)).await? {
            InTurn::Ran(report) => report,
            InTurn::LookAgain => {
                (session, kept) = (iteration.session, Kept::default());
                continue;
            }
            InTurn::Stopped(cause) => return Ok(Convergence::Stopped(cause)),
        };
        changed |= !plan.only_waits();
        announced.get_or_insert_with(|| Announced::by(&iteration.survey));
        waited.ran(plan, &report);
        let Report {
            outcome,
            failures,
            plan_again: _,
            warnings: new,
            slow: _,
        } = report;
        warnings = distinct(warnings.into_iter().chain(new));
        so_far.after(&outcome, failures, &iteration.survey)?;
        match outcome {
            RunOutcome::Stopped => return Ok(stopped(stop)),
            // The survey before this iteration saw every host clean or not of this cluster. Now that the state is
            // deleted, it cannot be known any more which cluster a claim belongs to: another survey would find nothing.
            RunOutcome::Completed if plan.deletes_state() => {
                return Ok(settled(iteration.survey, so_far, changed, warnings));
            }
            RunOutcome::Completed
            | RunOutcome::PlanAgain
            | RunOutcome::Degraded
            | RunOutcome::Failed => {}
        }
        so_far.ran = true;
        (session, last, kept) = iteration.leave(purpose, &outcome);
    }
    Err(unsettled(attempts.count(), &last))
}

fn stopped<R>(stop: &Stop) -> Convergence<Settled, R> {
    Convergence::Stopped(stop.cause().unwrap_or(StopCause::Signal))
}

/// The nodes that a plan disturbs and the first plan of the run did not name.
fn unannounced(first: Option<&Announced>, plan: &Plan) -> BTreeMap<NodeName, Unreachable> {
    first.map(|first| first.misses(plan)).unwrap_or_default()
}

/// The look that an iteration goes by: one that was just done, or a new one.
async fn begin<'w>(
    first: Option<Box<Iteration<'w>>>,
    purpose: AnyPurpose<'_>,
    environment: &'w Environment,
    session: Box<dyn RemoteSession>,
    so_far: &SoFar,
    kept: Kept,
) -> Result<Iteration<'w>, Error> {
    match first {
        Some(first) => Ok(first.about(purpose)),
        None => Box::pin(look(purpose, environment, session, so_far, kept)).await,
    }
}

fn failed(Failure { step, error }: Failure) -> Error {
    Error::Step {
        title: plan::title(&step),
        step: Box::new(step),
        error: StepFailure(error),
        stands: None,
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

/// A failure on a node, as the fact that the rest of the run goes by.
fn left_alone(failure: &Failure) -> Option<(NodeName, Unreachable)> {
    let node = failure.step.node()?.clone();
    let mut why = Unreachable::of(&*failure.error);
    why.why = format!("{}: {}", plan::title(&failure.step), why.why);
    Some((node, why))
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

fn settled<R>(
    survey: Survey,
    so_far: SoFar,
    changed: bool,
    warnings: Vec<Warning>,
) -> Convergence<Settled, R> {
    Convergence::Settled(Settled {
        survey,
        failed: so_far.failed,
        changed,
        warnings,
    })
}

/// Asks once for what disturbs; what was agreed to is not asked again in a later iteration.
async fn agree<R>(
    plan: &Plan,
    consent: &dyn Consent<Refusal = R>,
    agreed: &mut BTreeSet<(Target, String)>,
) -> Result<(), R> {
    let wanted: BTreeSet<_> = plan
        .disruptions()
        .map(|(step, what)| (step.target(), what.to_owned()))
        .collect();
    if !wanted.is_subset(agreed) {
        consent.ask(plan).await?;
        agreed.extend(wanted);
    }
    Ok(())
}

/// Ctrl-C at the question is not a no.
fn refused<R>(refusal: R, plan: &Plan, changed: bool, stop: &Stop) -> Convergence<Settled, R> {
    if let Some(cause) = stop.cause() {
        return Convergence::Stopped(cause);
    }
    Convergence::ConsentRefused {
        refusal,
        disruptions: plan::disruptions(plan),
        changed,
    }
}
