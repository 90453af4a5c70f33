//! What a step is to those who run it ([`super::run`]) and to those who carry it out
//! (`act.rs`): how it reports, and how it ends.

use std::sync::Arc;

use tokio::sync::watch;

use super::{
    event::{Event, Events, StepId},
    stop::Stop,
};
use crate::{error::Explain, plan::Step, state::SnapshotPlace};

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
    /// The step was done or abandoned, and the user should know this.
    pub warning: Option<Warning>,
    /// The snapshot that it saved.
    pub saved: Option<SnapshotPlace>,
}

/// A warning with its cures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What.
    pub message: String,
    /// What to do.
    pub hints: Vec<String>,
    /// The cluster does not work as a whole without what it is about: the run ends as degraded.
    pub degrades: bool,
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

/// A failed step.
#[derive(Debug)]
pub struct Failure {
    /// The step.
    pub step: Step,
    /// Why.
    pub error: Box<dyn Explain + Send + Sync>,
}
