//! One stage: up to `width` queues at once, each queue's steps in order, each within its bound.
//! Part of the scheduler; see [`super::run`] for the rules.

use std::{
    any::Any,
    borrow::Cow,
    collections::{BTreeSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::time::Instant;
use tracing::Instrument;

use super::{
    event::{Event, Events, StepId, StepOutcome},
    limit::{Overdue, limit},
    step::{Act, Done, Failure, Reporter, StepError, Warning},
    stop::Stop,
};
use crate::{
    error::{ErrorClass, Explain, with_causes},
    model::NodeName,
    plan::{Action, OnFailure, Stage, Step, Target, title},
};

/// Steps of one queue, each with its number in the stage.
type Numbered<'a> = Vec<(StepId, &'a Step)>;

/// A stage's queues, each step with its number in the stage.
fn queues(index: usize, stage: &Stage) -> Vec<(Option<&NodeName>, Numbered<'_>)> {
    let mut numbers = 0..;
    let mut number = |step| {
        let id = StepId {
            stage: index,
            step: numbers.next().unwrap_or_default(),
        };
        (id, step)
    };
    let queues = stage.queues.iter();
    queues
        .map(|queue| {
            let steps = queue.steps.iter().map(&mut number).collect();
            (queue.node.as_ref(), steps)
        })
        .collect()
}

/// How one queue of a stage ended.
pub(super) struct QueueEnd {
    pub(super) outcome: QueueOutcome,
    pub(super) warnings: Vec<Warning>,
    /// The waits that ended with a warning.
    pub(super) slow: Vec<Action>,
}

impl QueueEnd {
    /// The node whose step failed, if one's did.
    pub(super) fn failed_node(&self) -> Option<&NodeName> {
        match &self.outcome {
            QueueOutcome::Failed(failure) => failure.step.node(),
            QueueOutcome::Completed | QueueOutcome::PlanAgain(_) | QueueOutcome::Stopped => None,
        }
    }
}

pub(super) enum QueueOutcome {
    Completed,
    Failed(Box<Failure>),
    PlanAgain(String),
    Stopped,
}

/// What every queue of a stage sees.
pub(super) struct StageRunner<'a, A> {
    stage: &'a Stage,
    /// The nodes that earlier stages left out.
    dropped: &'a BTreeSet<NodeName>,
    act: &'a A,
    events: &'a Events,
    stop: &'a Stop,
    /// A queue failed, or the plan no longer holds: queues that have not begun do not begin.
    halted: AtomicBool,
    /// The run is over: queues that have begun end before their next step.
    ended: AtomicBool,
}

impl<'a, A: Act> StageRunner<'a, A> {
    pub(super) const fn new(
        stage: &'a Stage,
        dropped: &'a BTreeSet<NodeName>,
        act: &'a A,
        events: &'a Events,
        stop: &'a Stop,
    ) -> Self {
        Self {
            stage,
            dropped,
            act,
            events,
            stop,
            halted: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Keeps `width` queues going until there are none left, or a failure says otherwise; tells
    /// `ended` of each.
    pub(super) async fn run(&self, index: usize, mut ended: impl FnMut(QueueEnd)) {
        let mut waiting = VecDeque::new();
        for (node, steps) in queues(index, self.stage) {
            if node.is_some_and(|node| self.dropped.contains(node)) {
                self.skip_all(steps).await;
            } else {
                waiting.push_back(steps);
            }
        }
        let mut going = FuturesUnordered::new();
        let mut dropped = self.dropped.clone();
        while going.len() < self.stage.width.max(1)
            && let Some(steps) = waiting.pop_front()
        {
            going.push(self.queue(steps));
        }
        while let Some(end) = going.next().await {
            dropped.extend(end.failed_node().cloned());
            if let OnFailure::DropNode { while_left } = &self.stage.on_failure
                && !while_left.left(&dropped)
            {
                self.halted.store(true, Ordering::Relaxed);
            }
            ended(end);
            if self.halted.load(Ordering::Relaxed) {
                continue;
            }
            if let Some(steps) = waiting.pop_front() {
                going.push(self.queue(steps));
            }
        }
        for steps in waiting {
            self.skip_all(steps).await;
        }
    }

    async fn skip_all(&self, steps: Numbered<'_>) {
        for (id, step) in steps {
            self.skip(id, step).await;
        }
    }

    async fn queue(&self, steps: Numbered<'_>) -> QueueEnd {
        let mut end = QueueEnd {
            outcome: QueueOutcome::Completed,
            warnings: Vec::new(),
            slow: Vec::new(),
        };
        for (id, step) in steps {
            if matches!(end.outcome, QueueOutcome::Completed) && self.stop.cause().is_some() {
                end.outcome = QueueOutcome::Stopped;
            }
            let goes_on = matches!(end.outcome, QueueOutcome::Completed)
                && !self.ended.load(Ordering::Relaxed);
            if goes_on {
                end.outcome = self.step(id, step, &mut end).await;
            } else {
                self.skip(id, step).await;
            }
        }
        end
    }

    async fn skip(&self, id: StepId, step: &Step) {
        self.events
            .emit(Event::StepFinished {
                id,
                target: step.target(),
                title: title(step),
                kind: step.action.kind(),
                outcome: StepOutcome::Skipped,
                took: std::time::Duration::ZERO,
                detail: None,
            })
            .await;
    }

    async fn step(&self, id: StepId, step: &Step, end: &mut QueueEnd) -> QueueOutcome {
        self.events
            .emit(Event::StepStarted {
                id,
                target: step.target(),
                title: title(step),
                why: step.why.clone().into_owned(),
            })
            .await;
        let started = Instant::now();
        let result = self.attempt(id, step).await;
        let took = started.elapsed();
        let (queue, outcome, detail) = match result {
            Ok(done) => {
                let warning = done.warning;
                let outcome =
                    warning
                        .as_ref()
                        .map_or(StepOutcome::Done, |warning| StepOutcome::Warned {
                            message: warning.message.clone(),
                            hints: warning.hints.clone(),
                        });
                if warning.is_some() && step.action.is_wait() {
                    end.slow.push(step.action.clone());
                }
                end.warnings.extend(warning);
                (QueueOutcome::Completed, outcome, done.detail)
            }
            Err(StepError::Guard(why)) => (
                QueueOutcome::PlanAgain(why.clone()),
                StepOutcome::Skipped,
                Some(why),
            ),
            Err(StepError::Stopped) => (QueueOutcome::Stopped, StepOutcome::Skipped, None),
            Err(StepError::Failed(error)) if step.action.is_optional() => {
                let message = with_causes(&*error);
                let hints: Vec<String> = error.hints().into_iter().map(Cow::into_owned).collect();
                end.slow.push(step.action.clone());
                end.warnings.push(Warning {
                    message: format!("{} failed: {message}", title(step)),
                    hints: hints.clone(),
                    degrades: true,
                });
                let outcome = StepOutcome::Warned { message, hints };
                (QueueOutcome::Completed, outcome, None)
            }
            Err(StepError::Failed(error)) => {
                let outcome = StepOutcome::Failed {
                    message: with_causes(&*error),
                    hints: error.hints().into_iter().map(Cow::into_owned).collect(),
                    class: error.class(),
                };
                let step = step.clone();
                (
                    QueueOutcome::Failed(Box::new(Failure { step, error })),
                    outcome,
                    None,
                )
            }
        };
        match &queue {
            QueueOutcome::Failed(_) => self.failed(),
            QueueOutcome::PlanAgain(_) => self.halted.store(true, Ordering::Relaxed),
            QueueOutcome::Completed | QueueOutcome::Stopped => {}
        }
        self.events
            .emit(Event::StepFinished {
                id,
                target: step.target(),
                title: title(step),
                kind: step.action.kind(),
                outcome,
                took,
                detail,
            })
            .await;
        queue
    }

    fn failed(&self) {
        match &self.stage.on_failure {
            OnFailure::EndRun => {
                self.halted.store(true, Ordering::Relaxed);
                self.ended.store(true, Ordering::Relaxed);
            }
            OnFailure::FinishRunning => self.halted.store(true, Ordering::Relaxed),
            OnFailure::DropNode { .. } => {}
        }
    }

    /// The action, within its bound; a panic is a failure.
    async fn attempt(&self, id: StepId, step: &Step) -> Result<Done, StepError> {
        let reporter = Reporter::new(self.events.clone(), id);
        let node = step.action.node().map(tracing::field::display);
        let span = tracing::info_span!("step", node, step = title(step), stage = %self.stage.name);
        let effect = async { self.act.act(step, &reporter, self.stop).await };
        let effect = AssertUnwindSafe(effect).catch_unwind().instrument(span);
        let bound = limit(&step.action);
        match tokio::time::timeout(bound, effect).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => {
                // The message of a panic may quote anything: it goes to the log only.
                tracing::error!(why = panic_text(&*panic), "a step panicked");
                Err(StepError::Failed(Box::new(Panicked {
                    title: title(step),
                    target: step.target(),
                })))
            }
            Err(_elapsed) => Err(StepError::Failed(Box::new(Overdue {
                title: title(step),
                target: step.target(),
                bound,
                waited_for: reporter.waited_for(),
            }))),
        }
    }
}

/// A step's code panicked.
#[derive(Debug, thiserror::Error)]
#[error("`{title}` on `{target}` ended in a bug of rke-operator")]
struct Panicked {
    title: String,
    target: Target,
}

impl Explain for Panicked {
    fn class(&self) -> ErrorClass {
        ErrorClass::Bug
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        vec![
            "run it again: completed steps are not repeated; and please report this, with the log"
                .into(),
        ]
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
