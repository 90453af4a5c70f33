//! The scheduler: stages in order, within a stage up to `width` targets at once, one target's
//! steps in order, siblings of a failure finish. Knows nothing about Kubernetes.
//!
//! It may emit events and call [`Act`]; it decides nothing about the cluster and spawns nothing.
//!
//! - The stage decides what a failure means ([`OnFailure`]): the run ends, a roll stops at the
//!   first node that it breaks, or the node is left out of all later steps. Steps that rely on other
//!   nodes are then planned again, because the plan no longer holds without the node.
//! - Every step of a stage that was started has exactly one `StepFinished`; stages after an
//!   ending are not mentioned at all.
//! - Every step has a bound ([`super::limit`]), and a panic in one is a failure of that step.

use std::{borrow::Cow, collections::BTreeSet};

use tokio::{sync::mpsc, time::Instant};

use super::{
    event::{Event, Events, RunOutcome},
    stage::{QueueEnd, QueueOutcome, StageRunner},
    step::{Act, Failure, Warning},
    stop::Stop,
};
use crate::{
    model::NodeName,
    plan::{Action, OnFailure, Plan, Stage},
};

/// The reason to plan again where later steps rely on nodes, and one of them failed.
const LEFT_OUT: Cow<'static, str> =
    Cow::Borrowed("a node was left out, and the remaining steps are planned again without it");

/// What a run left to say.
#[derive(Debug)]
pub struct Report {
    /// How it ended.
    pub outcome: RunOutcome,
    /// Every failure, in the order in which they came. Each knows its node, if it is one's.
    pub failures: Vec<Failure>,
    /// Why the plan no longer holds, when it must be made again.
    pub plan_again: Option<Cow<'static, str>>,
    /// Everything that was warned about.
    pub warnings: Vec<Warning>,
    /// The waits that ended with a warning.
    pub slow: Vec<Action>,
}

/// Runs a plan. Emits `RunStarted` first and exactly one `RunFinished`, last, always: also when
/// a step panics, and when this future is dropped.
///
/// A failure that ends the run outranks a stop, which outranks "plan again", which outranks a node
/// that was left out. A stop that came too late to leave anything undone is a completed run.
pub async fn run<A: Act>(
    plan: &Plan,
    iteration: u32,
    act: &A,
    events: &Events,
    stop: &Stop,
) -> Report {
    let place = events.reserve().await;
    let started = Instant::now();
    events
        .emit(Event::RunStarted {
            iteration,
            stages: plan.stages.len(),
            steps: plan.steps().count(),
        })
        .await;
    let mut ending = Ending {
        place,
        started,
        outcome: RunOutcome::Stopped,
        why: None,
    };
    let report = stages(plan, act, events, stop).await;
    ending.outcome = report.outcome.clone();
    // A failure or a stop that outranks it is what ended the run.
    if report.outcome == RunOutcome::PlanAgain {
        ending.why = report.plan_again.as_deref().map(str::to_owned);
    }
    report
}

/// Emits the last event when it goes out of scope, in a place that was kept for it.
struct Ending {
    place: Option<mpsc::OwnedPermit<Event>>,
    started: Instant,
    outcome: RunOutcome,
    why: Option<String>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            place.send(Event::RunFinished {
                outcome: self.outcome.clone(),
                took: self.started.elapsed(),
                why: self.why.take(),
            });
        }
    }
}

async fn stages<A: Act>(plan: &Plan, act: &A, events: &Events, stop: &Stop) -> Report {
    let mut report = Report {
        outcome: RunOutcome::Completed,
        failures: Vec::new(),
        plan_again: None,
        warnings: Vec::new(),
        slow: Vec::new(),
    };
    let mut dropped = BTreeSet::new();
    for (index, stage) in plan.stages.iter().enumerate() {
        if report.has_ended() {
            break;
        }
        if stage.is_empty() {
            continue;
        }
        if stop.cause().is_some() {
            report.outcome = RunOutcome::Stopped;
            break;
        }
        if !dropped.is_empty() && stage.relies_on_others(&dropped) {
            report.rise(RunOutcome::PlanAgain);
            report.plan_again.get_or_insert(LEFT_OUT);
            break;
        }
        events
            .emit(Event::StageStarted {
                stage: index,
                name: stage.name.clone().into_owned(),
                steps: stage.steps().count(),
            })
            .await;
        let runner = StageRunner::new(stage, &dropped, act, events, stop);
        let mut failed = BTreeSet::new();
        runner
            .run(index, |end| {
                failed.extend(end.failed_node().cloned());
                report.take(stage, end);
            })
            .await;
        dropped.extend(failed);
        report.still_enough(stage, &dropped);
    }
    report
}

impl Report {
    /// Nothing comes after.
    const fn has_ended(&self) -> bool {
        match self.outcome {
            RunOutcome::Completed | RunOutcome::Degraded => false,
            RunOutcome::Failed | RunOutcome::Stopped | RunOutcome::PlanAgain => true,
        }
    }

    fn take(&mut self, stage: &Stage, end: QueueEnd) {
        self.warnings.extend(end.warnings);
        self.slow.extend(end.slow);
        match end.outcome {
            QueueOutcome::Completed => {}
            QueueOutcome::Failed(failure) => {
                let node = failure.step.node().is_some();
                match stage.on_failure {
                    OnFailure::DropNode { .. } if node => self.rise(RunOutcome::Degraded),
                    OnFailure::DropNode { .. } | OnFailure::EndRun | OnFailure::FinishRunning => {
                        self.rise(RunOutcome::Failed);
                    }
                }
                self.failures.push(*failure);
            }
            QueueOutcome::PlanAgain(why) => {
                self.rise(RunOutcome::PlanAgain);
                self.plan_again.get_or_insert(Cow::Owned(why));
            }
            QueueOutcome::Stopped => self.rise(RunOutcome::Stopped),
        }
    }

    /// The outcome that outranks the other stays.
    fn rise(&mut self, outcome: RunOutcome) {
        if outcome.rank() > self.outcome.rank() {
            self.outcome = outcome;
        }
    }

    /// A run that lost too many nodes does not go on.
    fn still_enough(&mut self, stage: &Stage, dropped: &BTreeSet<NodeName>) {
        if let OnFailure::DropNode { while_left } = &stage.on_failure
            && self.outcome == RunOutcome::Degraded
            && !while_left.left(dropped)
        {
            self.outcome = RunOutcome::Failed;
        }
    }
}
