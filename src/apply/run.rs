//! The scheduler: stages in order, within a stage up to `width` targets at once, one target's
//! steps in order, siblings of a failure finish. Knows nothing about Kubernetes.
//!
//! It may emit events and call [`Act`]; it decides nothing about the cluster and spawns nothing.
//!
//! - A target that has begun finishes its steps of the stage, whatever happens to its siblings;
//!   a target that has not begun when one fails does not begin. So a rolling change stops at
//!   the first node that it breaks.
//! - Every step of a stage that was started has exactly one `StepFinished`; stages after an
//!   ending are not mentioned at all.
//! - Every step has a bound ([`super::limit`]), and a panic in one is a failure of that step.

use std::{borrow::Cow, future::Future, sync::Arc};

use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    event::{Event, RunOutcome, StepId},
    scene::{LaneEnd, LaneOutcome, Scene},
    stop::Stop,
};
use crate::{
    error::Explain,
    plan::{Plan, Step},
};

/// Where events go: lifecycle events are awaited, progress may be dropped.
#[derive(Clone, Debug)]
pub struct Events(mpsc::Sender<Event>);

impl Events {
    /// A bounded channel. One more place than asked for: a run keeps one for its last event.
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<Event>) {
        let (tx, rx) = mpsc::channel(capacity.max(1).saturating_add(1));
        (Self(tx), rx)
    }

    /// Delivers a lifecycle event; a listener that is gone is not an error of the run.
    pub async fn emit(&self, event: Event) {
        let _ = self.0.send(event).await;
    }

    /// Delivers progress if there is room.
    pub fn progress(&self, event: Event) {
        let _ = self.0.try_send(event);
    }
}

/// Lets an action report how far it is.
#[derive(Clone, Debug)]
pub struct Reporter {
    events: Events,
    id: StepId,
    /// What it waited for last: named by the error when the step takes too long.
    waits_for: Arc<watch::Sender<Option<String>>>,
}

impl Reporter {
    /// For one step.
    pub fn new(events: Events, id: StepId) -> Self {
        Self {
            events,
            id,
            waits_for: Arc::new(watch::Sender::new(None)),
        }
    }

    /// Bytes or tries so far, of how many (0: unknown).
    pub fn progress(&self, done: u64, total: u64, unit: &str) {
        self.send(done, total, unit, None);
    }

    /// What it waits for; `tries` so far.
    pub fn waiting(&self, what: impl Into<String>, tries: u64) {
        let what = what.into();
        self.waits_for.send_replace(Some(what.clone()));
        self.send(tries, 0, "tries", Some(what));
    }

    /// What it said last that it waits for.
    pub(super) fn waited_for(&self) -> Option<String> {
        self.waits_for.borrow().clone()
    }

    fn send(&self, done: u64, total: u64, unit: &str, waiting_for: Option<String>) {
        self.events.progress(Event::StepProgress {
            id: self.id,
            done,
            total,
            unit: unit.to_owned(),
            waiting_for,
        });
    }
}

/// How an action ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// A detail worth a word: `212 MB`.
    pub detail: Option<String>,
    /// Done or given up on, but the reader should know.
    pub warning: Option<Warning>,
}

/// A warning with its cures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What.
    pub message: String,
    /// What to do.
    pub hints: Vec<String>,
}

/// How an action ended badly.
#[derive(Debug)]
pub enum StepError {
    /// The guard does not hold: the world changed since the survey.
    Guard(String),
    /// The stop signal was given while it waited.
    Stopped,
    /// It failed.
    Failed(Box<dyn Explain + Send + Sync>),
}

/// Carries out one step: evaluates its guard on the live world, then acts.
pub trait Act: Sync {
    /// One step.
    fn act(
        &self,
        step: &Step,
        reporter: &Reporter,
        stop: &Stop,
    ) -> impl Future<Output = Result<Done, StepError>> + Send;
}

/// What a run left to say.
#[derive(Debug)]
pub struct Report {
    /// How it ended.
    pub outcome: RunOutcome,
    /// The first failure, when it failed.
    pub failure: Option<Failure>,
    /// Why the plan no longer holds, when it must be made again.
    pub plan_again: Option<Cow<'static, str>>,
    /// Everything that was warned about.
    pub warnings: Vec<Warning>,
}

/// A failed step.
#[derive(Debug)]
pub struct Failure {
    /// The step.
    pub step: Step,
    /// Why.
    pub error: Box<dyn Explain + Send + Sync>,
}

/// Runs a plan. Emits `RunStarted` first and exactly one `RunFinished`, last, always: also when
/// a step panics, and when this future is dropped.
///
/// A failure outranks a stop, which outranks "plan again". A stop that came too late to leave
/// anything undone is a completed run.
pub async fn run<A: Act>(plan: &Plan, round: u32, act: &A, events: &Events, stop: &Stop) -> Report {
    let place = events.0.clone().reserve_owned().await.ok();
    let started = Instant::now();
    events
        .emit(Event::RunStarted {
            round,
            stages: plan.stages.len(),
            steps: plan.steps().count(),
        })
        .await;
    let mut ending = Ending {
        place,
        started,
        outcome: RunOutcome::Stopped,
    };
    let report = stages(plan, act, events, stop).await;
    ending.outcome = report.outcome.clone();
    report
}

/// Emits the last event when it goes out of scope, in a place that was kept for it.
struct Ending {
    place: Option<mpsc::OwnedPermit<Event>>,
    started: Instant,
    outcome: RunOutcome,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.send(Event::RunFinished {
                outcome: self.outcome.clone(),
                took: self.started.elapsed(),
            });
        }
    }
}

async fn stages<A: Act>(plan: &Plan, act: &A, events: &Events, stop: &Stop) -> Report {
    let mut report = Report {
        outcome: RunOutcome::Completed,
        failure: None,
        plan_again: None,
        warnings: Vec::new(),
    };
    for (index, stage) in plan.stages.iter().enumerate() {
        if report.outcome != RunOutcome::Completed {
            break;
        }
        if stage.steps.is_empty() {
            continue;
        }
        if stop.cause().is_some() {
            report.outcome = RunOutcome::Stopped;
            break;
        }
        events
            .emit(Event::StageStarted {
                stage: index,
                name: stage.name.clone().into_owned(),
                steps: stage.steps.len(),
            })
            .await;
        let scene = Scene::new(stage, act, events, stop);
        scene.run(index, &mut report).await;
    }
    report
}

impl Report {
    pub(super) fn take(&mut self, end: LaneEnd) {
        self.warnings.extend(end.warnings);
        match end.outcome {
            LaneOutcome::Completed => {}
            LaneOutcome::Failed(failure) => {
                self.outcome = RunOutcome::Failed;
                self.failure.get_or_insert(*failure);
            }
            LaneOutcome::PlanAgain(why) => {
                if self.outcome == RunOutcome::Completed {
                    self.outcome = RunOutcome::PlanAgain;
                }
                self.plan_again.get_or_insert(Cow::Owned(why));
            }
            LaneOutcome::Stopped => {
                if self.outcome != RunOutcome::Failed {
                    self.outcome = RunOutcome::Stopped;
                }
            }
        }
    }
}
