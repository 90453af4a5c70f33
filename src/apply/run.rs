//! The scheduler: stages in order, within a stage up to `width` targets at once, one target's
//! steps in order, siblings of a failure finish. Knows nothing about Kubernetes.

use std::{borrow::Cow, future::Future};

use tokio::sync::mpsc;

use super::{
    event::{Event, RunOutcome, StepId},
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
    /// A bounded channel.
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<Event>) {
        let (tx, rx) = mpsc::channel(capacity);
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
}

impl Reporter {
    /// For one step.
    pub const fn new(events: Events, id: StepId) -> Self {
        Self { events, id }
    }

    /// Bytes or tries so far, of how many (0: unknown).
    pub fn progress(&self, done: u64, total: u64, unit: &str) {
        self.send(done, total, unit, None);
    }

    /// What it waits for; `tries` so far.
    pub fn waiting(&self, what: impl Into<String>, tries: u64) {
        self.send(tries, 0, "tries", Some(what.into()));
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

/// Runs a plan. Emits `RunStarted` first and exactly one `RunFinished`, last, always.
pub async fn run<A: Act>(plan: &Plan, round: u32, act: &A, events: &Events, stop: &Stop) -> Report {
    let _ = (plan, round, act, events, stop);
    std::future::pending().await
}
