//! One stage: up to `width` targets at once, one target's steps in order, each within its bound.
//! Part of the scheduler; see [`super::run`] for the rules.

use std::{
    any::Any,
    borrow::Cow,
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
    error::{Blame, Explain, with_causes},
    plan::{Stage, Step, Target, title},
};

/// A stage's steps by target, in the order in which the targets appear.
fn lanes(index: usize, stage: &Stage) -> Vec<Vec<(StepId, &Step)>> {
    let mut lanes: Vec<(&Target, Vec<(StepId, &Step)>)> = Vec::new();
    for (number, step) in stage.steps.iter().enumerate() {
        let id = StepId {
            stage: index,
            step: number,
        };
        match lanes.iter_mut().find(|(target, _)| **target == step.target) {
            Some((_, steps)) => steps.push((id, step)),
            None => lanes.push((&step.target, vec![(id, step)])),
        }
    }
    lanes.into_iter().map(|(_, steps)| steps).collect()
}

/// How one target's part of a stage ended.
pub(super) struct LaneEnd {
    pub(super) outcome: LaneOutcome,
    pub(super) warnings: Vec<Warning>,
}

pub(super) enum LaneOutcome {
    Completed,
    Failed(Box<Failure>),
    PlanAgain(String),
    Stopped,
}

/// What every lane of a stage sees.
pub(super) struct Scene<'a, A> {
    stage: &'a Stage,
    act: &'a A,
    events: &'a Events,
    stop: &'a Stop,
    /// A lane failed, or the plan no longer holds: lanes that have not begun do not begin.
    halted: AtomicBool,
}

impl<'a, A: Act> Scene<'a, A> {
    pub(super) const fn new(
        stage: &'a Stage,
        act: &'a A,
        events: &'a Events,
        stop: &'a Stop,
    ) -> Self {
        Self {
            stage,
            act,
            events,
            stop,
            halted: AtomicBool::new(false),
        }
    }

    /// Keeps `width` lanes going until there are none left, or one ended badly; tells `ended` of
    /// each.
    pub(super) async fn run(&self, index: usize, mut ended: impl FnMut(LaneEnd)) {
        let mut waiting = lanes(index, self.stage).into_iter();
        let mut going = FuturesUnordered::new();
        for steps in waiting.by_ref().take(self.stage.width.max(1)) {
            going.push(self.lane(steps));
        }
        while let Some(end) = going.next().await {
            ended(end);
            if self.halted.load(Ordering::Relaxed) {
                continue;
            }
            if let Some(steps) = waiting.next() {
                going.push(self.lane(steps));
            }
        }
        for (id, step) in waiting.flatten() {
            self.skip(id, step).await;
        }
    }

    async fn lane(&self, steps: Vec<(StepId, &Step)>) -> LaneEnd {
        let mut end = LaneEnd {
            outcome: LaneOutcome::Completed,
            warnings: Vec::new(),
        };
        for (id, step) in steps {
            if matches!(end.outcome, LaneOutcome::Completed) && self.stop.cause().is_some() {
                end.outcome = LaneOutcome::Stopped;
            }
            if matches!(end.outcome, LaneOutcome::Completed) {
                end.outcome = self.step(id, step, &mut end.warnings).await;
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
                target: step.target.clone(),
                title: title(step),
                outcome: StepOutcome::Skipped,
                took: std::time::Duration::ZERO,
                detail: None,
            })
            .await;
    }

    async fn step(&self, id: StepId, step: &Step, warnings: &mut Vec<Warning>) -> LaneOutcome {
        self.events
            .emit(Event::StepStarted {
                id,
                target: step.target.clone(),
                title: title(step),
                why: step.why.clone().into_owned(),
            })
            .await;
        let started = Instant::now();
        let result = self.attempt(id, step).await;
        let took = started.elapsed();
        let (lane, outcome, detail) = match result {
            Ok(Done { detail, warning }) => {
                let outcome =
                    warning
                        .as_ref()
                        .map_or(StepOutcome::Done, |warning| StepOutcome::Warned {
                            message: warning.message.clone(),
                            hints: warning.hints.clone(),
                        });
                warnings.extend(warning);
                (LaneOutcome::Completed, outcome, detail)
            }
            Err(StepError::Guard(why)) => (
                LaneOutcome::PlanAgain(why.clone()),
                StepOutcome::Skipped,
                Some(why),
            ),
            Err(StepError::Stopped) => (LaneOutcome::Stopped, StepOutcome::Skipped, None),
            Err(StepError::Failed(error)) => {
                let outcome = StepOutcome::Failed {
                    message: with_causes(&*error),
                    hints: error.hints().into_iter().map(Cow::into_owned).collect(),
                    blame: error.blame(),
                };
                let step = step.clone();
                (
                    LaneOutcome::Failed(Box::new(Failure { step, error })),
                    outcome,
                    None,
                )
            }
        };
        match &lane {
            LaneOutcome::Failed(_) | LaneOutcome::PlanAgain(_) => {
                self.halted.store(true, Ordering::Relaxed);
            }
            LaneOutcome::Completed | LaneOutcome::Stopped => {}
        }
        self.events
            .emit(Event::StepFinished {
                id,
                target: step.target.clone(),
                title: title(step),
                outcome,
                took,
                detail,
            })
            .await;
        lane
    }

    /// The action, within its bound; a panic is a failure.
    async fn attempt(&self, id: StepId, step: &Step) -> Result<Done, StepError> {
        let reporter = Reporter::new(self.events.clone(), id);
        let span = tracing::info_span!("step", stage = %self.stage.name, target = %step.target, id = id.step);
        let effect = async { self.act.act(step, &reporter, self.stop).await };
        let effect = AssertUnwindSafe(effect).catch_unwind().instrument(span);
        let bound = limit(&step.action);
        match tokio::time::timeout(bound, effect).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(StepError::Failed(Box::new(Panicked {
                title: title(step),
                target: step.target.clone(),
                what: panic_text(&*panic),
            }))),
            Err(_elapsed) => Err(StepError::Failed(Box::new(Overdue {
                title: title(step),
                target: step.target.clone(),
                bound,
                waited_for: reporter.waited_for(),
            }))),
        }
    }
}

/// A step's code panicked.
#[derive(Debug, thiserror::Error)]
#[error("`{title}` on `{target}` ended in a bug of rke-operator: {what}")]
struct Panicked {
    title: String,
    target: Target,
    what: String,
}

impl Explain for Panicked {
    fn blame(&self) -> Blame {
        Blame::Bug
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        vec!["run it again: what is done is not repeated; and please report this".into()]
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
