//! The one stream of progress. Values only: serialisable, replayable, never a step's contents.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{error::ErrorClass, plan::Target};

/// Names a step within a run: stage index and step index.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct StepId {
    /// Index of the stage in the plan.
    pub stage: usize,
    /// Index of the step in its stage.
    pub step: usize,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum StepOutcome {
    /// Done.
    Done,
    /// Not started: the run was stopped or a sibling failed.
    Skipped,
    /// Done, or given up on, with a warning; the run goes on.
    Warned {
        /// The warning, or the error with its causes.
        message: String,
        /// What to do about it, most likely cure first.
        hints: Vec<String>,
    },
    /// Failed; the stage decides what that means for the others.
    Failed {
        /// The warning, or the error with its causes.
        message: String,
        /// What to do about it, most likely cure first.
        hints: Vec<String>,
        /// Who has to act.
        class: ErrorClass,
    },
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RunOutcome {
    /// Every step is done.
    Completed,
    /// The cluster changed meanwhile: it is surveyed and planned again.
    PlanAgain,
    /// Steps on some nodes failed; what could be done on the others is done.
    Degraded,
    /// A step failed that nothing can go on without.
    Failed,
    /// Stopped by a signal.
    Stopped,
}

impl RunOutcome {
    /// Of two outcomes the one of higher rank is the run's.
    pub(super) const fn rank(&self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Degraded => 1,
            Self::PlanAgain => 2,
            Self::Stopped => 3,
            Self::Failed => 4,
        }
    }
}

/// What happens, in order. Every run has exactly one [`Event::RunFinished`], as its last event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    tag = "event",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Event {
    /// Another run changes the cluster; this one waits until it has ended, then surveys the cluster again.
    TurnAwaited {
        /// Who runs it, and where.
        holder: String,
    },
    /// A plan starts.
    RunStarted {
        /// Which iteration of this convergence, from 1.
        iteration: u32,
        /// How many stages.
        stages: usize,
        /// How many steps.
        steps: usize,
    },
    /// A stage starts.
    StageStarted {
        /// Index of the stage in the plan.
        stage: usize,
        /// Its name, as in the plan.
        name: String,
        /// How many steps.
        steps: usize,
    },
    /// A step starts.
    StepStarted {
        /// Which step.
        id: StepId,
        /// What it acts on.
        target: Target,
        /// One line, e.g. `run kube-apiserver`.
        title: String,
        /// Why.
        why: String,
    },
    /// A step makes progress. Some of these lines are left out if the reader is slow.
    StepProgress {
        /// Which step.
        id: StepId,
        /// How much is done, in `unit`.
        done: u64,
        /// Of how much; 0 if unknown.
        total: u64,
        /// `bytes` or `tries`.
        unit: String,
        /// What a step that waits is waiting for.
        waiting_for: Option<String>,
    },
    /// A step ended.
    StepFinished {
        /// Which step.
        id: StepId,
        /// What it acts on.
        target: Target,
        /// One line, e.g. `run kube-apiserver`.
        title: String,
        /// What [kind](crate::plan::Action::kind) of step it is; not part of the JSON.
        #[serde(skip)]
        kind: &'static str,
        /// How it ended.
        outcome: StepOutcome,
        /// How long it took, in milliseconds.
        #[serde(with = "millis")]
        #[schemars(with = "u64")]
        took: Duration,
        /// A detail for people, e.g. `212 MB`.
        detail: Option<String>,
    },
    /// The run ended. Another one may follow in the same command.
    RunFinished {
        /// How it ended.
        outcome: RunOutcome,
        /// How long it took, in milliseconds.
        #[serde(with = "millis")]
        #[schemars(with = "u64")]
        took: Duration,
        /// What changed meanwhile, where another run follows because of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(took: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        u64::deserialize(d).map(Duration::from_millis)
    }
}

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

    /// Keeps a place for an event that must get through, whatever else is under way.
    pub(super) async fn reserve(&self) -> Option<mpsc::OwnedPermit<Event>> {
        self.0.clone().reserve_owned().await.ok()
    }
}
