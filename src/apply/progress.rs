//! What a run looks like at one moment: a pure reducer over [`Event`]s. Bars, lines and status
//! are views of [`Progress`]; a recorded run replays into it.

use std::{collections::BTreeMap, time::Duration};

use super::event::{Event, RunOutcome, StepId, StepOutcome};
use crate::{error::ErrorClass, plan::Target};

/// A run so far. Counts and running steps belong to the iteration; warnings are kept over iterations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Which iteration of the convergence, from 1; 0 before the first.
    pub iteration: u32,
    /// How many stages this iteration has.
    pub stages: usize,
    /// How many steps this iteration has.
    pub steps: usize,
    /// The stage that runs or ran last.
    pub stage: Option<StageProgress>,
    /// Steps that run now.
    pub running: BTreeMap<StepId, Running>,
    /// Steps that ended well, those with a warning included.
    pub done: usize,
    /// Steps that were not done: stopped, a sibling failed, or the world changed.
    pub skipped: usize,
    /// Steps that failed.
    pub failed: usize,
    /// Everything that was warned about, in every iteration, each once.
    pub warnings: Vec<Said>,
    /// The first failure of this iteration.
    pub failure: Option<Failed>,
    /// How the iteration ended, when it did.
    pub finished: Option<Finished>,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageProgress {
    /// Index, from 0.
    pub index: usize,
    /// Name.
    pub name: String,
    /// How many steps it has.
    pub steps: usize,
    /// How many of them ended.
    pub ended: usize,
}

/// A step that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// On what.
    pub target: Target,
    /// One line.
    pub title: String,
    /// Why.
    pub why: String,
    /// How far.
    pub done: u64,
    /// Of how much; 0 when unknown.
    pub total: u64,
    /// `bytes`, `tries`; empty before it said.
    pub unit: String,
    /// What it waits for.
    pub waiting_for: Option<String>,
}

/// A warning, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// On what.
    pub target: Target,
    /// The step.
    pub title: String,
    /// What.
    pub message: String,
    /// What to do.
    pub hints: Vec<String>,
}

/// A failure, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The step and its message.
    pub said: Said,
    /// Who has to act.
    pub class: ErrorClass,
}

/// The end of a iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How.
    pub outcome: RunOutcome,
    /// How long.
    pub took: Duration,
}

impl Progress {
    /// Takes one event. Events of steps that are not known (a stream that was joined late) are
    /// counted as far as they say something and otherwise ignored.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::TurnAwaited { .. } => {}
            Event::RunStarted {
                iteration,
                stages,
                steps,
            } => {
                *self = Self {
                    iteration: *iteration,
                    stages: *stages,
                    steps: *steps,
                    warnings: std::mem::take(&mut self.warnings),
                    ..Self::default()
                };
            }
            Event::StageStarted { stage, name, steps } => {
                self.stage = Some(StageProgress {
                    index: *stage,
                    name: name.clone(),
                    steps: *steps,
                    ended: 0,
                });
            }
            Event::StepStarted {
                id,
                target,
                title,
                why,
            } => {
                self.running.insert(
                    *id,
                    Running {
                        target: target.clone(),
                        title: title.clone(),
                        why: why.clone(),
                        done: 0,
                        total: 0,
                        unit: String::new(),
                        waiting_for: None,
                    },
                );
            }
            Event::StepProgress {
                id,
                done,
                total,
                unit,
                waiting_for,
            } => {
                if let Some(step) = self.running.get_mut(id) {
                    step.done = *done;
                    step.total = *total;
                    step.unit.clone_from(unit);
                    step.waiting_for.clone_from(waiting_for);
                }
            }
            Event::StepFinished {
                id,
                target,
                title,
                kind: _,
                outcome,
                took: _,
                detail: _,
            } => self.step_finished(*id, target, title, outcome),
            Event::RunFinished {
                outcome,
                took,
                why: _,
            } => {
                self.running.clear();
                self.finished = Some(Finished {
                    outcome: outcome.clone(),
                    took: *took,
                });
            }
        }
    }

    fn step_finished(&mut self, id: StepId, target: &Target, title: &str, outcome: &StepOutcome) {
        self.running.remove(&id);
        if let Some(stage) = self.stage.as_mut().filter(|stage| stage.index == id.stage) {
            stage.ended += 1;
        }
        let said = |message: &String, hints: &Vec<String>| Said {
            target: target.clone(),
            title: title.to_owned(),
            message: message.clone(),
            hints: hints.clone(),
        };
        match outcome {
            StepOutcome::Done => self.done += 1,
            StepOutcome::Skipped => self.skipped += 1,
            StepOutcome::Warned { message, hints } => {
                self.done += 1;
                let warning = said(message, hints);
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
            }
            StepOutcome::Failed {
                message,
                hints,
                class,
            } => {
                self.failed += 1;
                if self.failure.is_none() {
                    self.failure = Some(Failed {
                        said: said(message, hints),
                        class: *class,
                    });
                }
            }
        }
    }
}
