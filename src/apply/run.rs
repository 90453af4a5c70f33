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

use std::borrow::Cow;

use tokio::{sync::mpsc, time::Instant};

use super::{
    event::{Event, Events, RunOutcome},
    scene::{LaneEnd, LaneOutcome, Scene},
    step::{Act, Failure, Warning},
    stop::Stop,
};
use crate::plan::Plan;

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

/// Runs a plan. Emits `RunStarted` first and exactly one `RunFinished`, last, always: also when
/// a step panics, and when this future is dropped.
///
/// A failure outranks a stop, which outranks "plan again". A stop that came too late to leave
/// anything undone is a completed run.
pub async fn run<A: Act>(plan: &Plan, round: u32, act: &A, events: &Events, stop: &Stop) -> Report {
    let place = events.reserve().await;
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
        scene.run(index, |end| report.take(end)).await;
    }
    report
}

impl Report {
    fn take(&mut self, end: LaneEnd) {
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
