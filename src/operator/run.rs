//! One run for one object: it is stopped when the object changes, and reports to the status and
//! as events while it runs. The sinks never delay the run for longer than one write.

use std::{convert::Infallible, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    cluster_object::ClusterObject,
    context::Context,
    events::{Notice, Notices, publish},
    last_run::{End, Ledger},
    prober::ProbeView,
    queue::{Action, Slot},
    sources::SourceVersion,
    status::{Run, StatusWriter},
};
use crate::{
    api::conditions::ConditionSet,
    apply::{
        event::{Event, Events, StepOutcome},
        progress::Progress,
        stop::{StopCause, Stopper},
    },
    converge::{self, Consent, Convergence, Error, Iteration, Purpose},
    environment::Environment,
    plan::{Plan, Target},
};

/// How long a run may finish its current steps after the stop signal, before it is dropped: that is
/// then an interruption like any other. Less than the grace period of our pod (`deploy/`).
const GRACE: Duration = Duration::from_secs(100);

/// How long events are still published when their run is over.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// Events that wait for the sinks.
const BUFFER: usize = 256;

/// How a run ended. One that did not stop in time was dropped, and counts as stopped.
type Ended<P> = Result<Convergence<<P as Purpose>::Outcome, Infallible>, Error>;

/// Every consent is given: that is what `changes: Automatic` and a deletion say.
struct Automatic;

impl Consent for Automatic {
    type Refusal = Infallible;

    fn ask<'a>(&'a self, _: &'a Plan) -> BoxFuture<'a, Result<(), Infallible>> {
        futures::future::ready(Ok(())).boxed()
    }
}

/// What a run is for, and what ends it.
pub(super) struct Task<'a, 'w, P> {
    pub(super) purpose: P,
    /// A look towards the same config that was just done.
    pub(super) first: Option<Box<Iteration<'w>>>,
    pub(super) slot: &'a Slot,
    /// As the status shows it.
    pub(super) run: Run,
    /// A newer one ends the run.
    pub(super) read: &'a [SourceVersion],
    /// The run gets the stop signal early enough to be over by then.
    pub(super) limit: Option<Duration>,
}

/// Converges for `view` until it ends, the object changes or the limit is over.
pub(super) async fn run<'w, P: Purpose>(
    ctx: &Context,
    view: &ClusterObject,
    task: Task<'_, 'w, P>,
    environment: &'w Environment,
    (status, probed): (&mut StatusWriter, &mut ProbeView),
    base: &ConditionSet,
) -> Ended<P> {
    let (events, stream) = Events::channel(BUFFER);
    let (seen, progress) = watch::channel(Progress::default());
    let (say, notices) = mpsc::channel(BUFFER);
    let (shown, slot) = (task.run, task.slot);
    let (over, is_over) = watch::channel(false);
    let run = async {
        let ended = stoppable(ctx, view, task, environment, &events).await;
        // The sinks end soon after the last sender is dropped.
        drop(events);
        over.send_replace(true);
        ended
    };
    let (started, begun) = (ctx.dependencies.clock.now(), Instant::now());
    let (ended, ledger, (), ()) = tokio::join!(
        run,
        pump(ctx, slot, stream, seen, say),
        status.follow(base, shown, &*environment.store, progress, probed),
        tell(ctx, view, notices, is_over),
    );
    let end = match &ended {
        Ok(Convergence::Settled(_)) => End::Settled,
        Ok(Convergence::Stopped(_) | Convergence::ConsentRefused { .. }) => End::Stopped,
        Err(_) => End::Failed,
    };
    status.set_last_run(ledger.close(started, begun.elapsed(), end));
    ended
}

async fn stoppable<'w, P: Purpose>(
    ctx: &Context,
    view: &ClusterObject,
    task: Task<'_, 'w, P>,
    environment: &'w Environment,
    events: &Events,
) -> Ended<P> {
    let Task {
        purpose,
        first,
        slot: _,
        run: _,
        read,
        limit,
    } = task;
    let (stopper, stop) = Stopper::within(&ctx.stop);
    // The time in which it may finish what it is at is part of the limit, not added to it.
    let grace = limit.map_or(GRACE, |limit| GRACE.min(limit / 4));
    let over = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit.saturating_sub(grace)).await,
            None => std::future::pending().await,
        }
    };
    let guard = async {
        let cause = tokio::select! {
            cause = ctx.outdated(view, read) => cause,
            () = over => StopCause::TimeOver,
        };
        stopper.stop(cause);
        tokio::time::sleep(grace).await;
        cause
    };
    let converge = converge::converge_from(first, &purpose, environment, &Automatic, events, &stop);
    tokio::select! {
        ended = Box::pin(converge) => ended,
        cause = guard => Ok(Convergence::Stopped(cause)),
    }
}

/// What to do after a stop.
pub(super) fn stopped(cause: StopCause) -> Action {
    match cause {
        // The watch brings the new object at once; this is for when its cache is behind.
        StopCause::ObjectChanged | StopCause::TimeOver => Action::requeue(Duration::from_secs(1)),
        // The process ends; the next one goes on.
        StopCause::Signal | StopCause::LeaseLost => Action::await_change(),
    }
}

/// Logs and reduces the stream, hands on what is worth an event, and gives what the status has of it in the end. Events
/// that find no room are dropped: the run matters more.
async fn pump(
    ctx: &Context,
    slot: &Slot,
    mut stream: mpsc::Receiver<Event>,
    seen: watch::Sender<Progress>,
    say: mpsc::Sender<Notice>,
) -> Ledger {
    let mut notices = Notices::default();
    let mut ledger = Ledger::default();
    while let Some(event) = stream.recv().await {
        ctx.beat();
        // All but a wait for another run.
        if !matches!(event, Event::TurnAwaited { .. }) {
            slot.progresses();
        }
        log(&event);
        ledger.take(&event);
        if let Event::StepFinished {
            kind,
            outcome,
            took,
            ..
        } = &event
        {
            ctx.health.metrics.step(kind, outcome, *took);
        }
        seen.send_modify(|progress| progress.apply(&event));
        for notice in notices.take(&event) {
            if say.try_send(notice).is_err() {
                tracing::warn!("too many events at once: one is not published");
            }
        }
    }
    ledger
}

/// A run in the log: its stages, what went wrong, and with `--debug` every step.
fn log(event: &Event) {
    match event {
        Event::TurnAwaited { holder } => {
            tracing::info!(holder, "waits for another run");
        }
        Event::RunStarted {
            iteration, steps, ..
        } => {
            tracing::info!(iteration, steps, "a run starts");
        }
        Event::StageStarted { name, steps, .. } => {
            tracing::info!(stage = name, steps, "a stage starts");
        }
        Event::StepStarted { target, title, .. } => {
            let node = node(target);
            tracing::debug!(node, step = title, "a step starts");
        }
        Event::StepProgress { .. } => {}
        Event::StepFinished {
            target,
            title,
            outcome,
            took,
            ..
        } => {
            let (node, step, seconds) = (node(target), title, took.as_secs_f64());
            match outcome {
                StepOutcome::Done | StepOutcome::Skipped => {
                    tracing::debug!(node, step, ?outcome, seconds, "a step ended");
                }
                StepOutcome::Warned { message: why, .. }
                | StepOutcome::Failed { message: why, .. } => {
                    tracing::warn!(node, step, why, seconds, "a step did not go well");
                }
            }
        }
        Event::RunFinished { outcome, took, why } => {
            let seconds = took.as_secs_f64();
            tracing::info!(?outcome, seconds, why, "a run ended");
        }
    }
}

/// The node of a step, where it is on one.
fn node(target: &Target) -> Option<&str> {
    match target {
        Target::Host(node) => Some(&node.0),
        Target::Cluster | Target::Local => None,
    }
}

/// Publishes what a run gives to say. When it is over, what is left has a moment: the run's slot, an
/// edit, a deletion and the end of the process wait for it.
async fn tell(
    ctx: &Context,
    view: &ClusterObject,
    mut notices: mpsc::Receiver<Notice>,
    mut is_over: watch::Receiver<bool>,
) {
    let late = async {
        // An error is a run that was dropped, which is over too.
        let _ = is_over.wait_for(|over| *over).await;
        tokio::time::sleep(AFTERWARDS).await;
    };
    let all = async {
        while let Some(notice) = notices.recv().await {
            publish(ctx, view, &notice).await;
        }
    };
    tokio::select! {
        () = all => return,
        () = late => {}
    }
    let left = notices.len();
    if left > 0 {
        tracing::warn!(left, "the API takes no events: the rest is not published");
    }
}
