//! What a run leaves in the status when it is over: how long it took, how it ended, and what took longest. Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    api::{LastRun, RunOutcome, SlowestStep, conditions::shorten},
    apply::event::{Event, RunOutcome as Outcome},
    error::on_object,
    model::printable_lines,
    plan::Target,
};

/// A run as far as it came.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    steps: usize,
    ended: Option<Outcome>,
    slowest: Option<(Duration, SlowestStep)>,
}

impl Ledger {
    /// Takes the next event in.
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::RunStarted { .. } => self.ended = None,
            Event::StepStarted { .. } => self.steps += 1,
            Event::StepFinished {
                target,
                title,
                took,
                ..
            } => self.step(target, title, *took),
            Event::RunFinished { outcome, .. } => self.ended = Some(outcome.clone()),
            Event::TurnAwaited { .. } | Event::StageStarted { .. } | Event::StepProgress { .. } => {
            }
        }
    }

    fn step(&mut self, target: &Target, title: &str, took: Duration) {
        if self
            .slowest
            .as_ref()
            .is_some_and(|(slowest, _)| *slowest >= took)
        {
            return;
        }
        let node = match target {
            Target::Host(node) => Some(node.0.clone()),
            Target::Cluster | Target::Local => None,
        };
        let step = SlowestStep {
            name: shorten(&printable_lines(&on_object(title)), 256),
            node,
            took: seconds(took),
        };
        self.slowest = Some((took, step));
    }

    /// What the status has of it; `None` where nothing was done.
    pub(super) fn close(self, started: Timestamp, took: Duration, end: End) -> Option<LastRun> {
        if self.steps == 0 {
            return None;
        }
        let outcome = match end {
            End::Stopped => RunOutcome::Interrupted,
            End::Failed => RunOutcome::Failed,
            End::Settled if self.ended == Some(Outcome::Degraded) => RunOutcome::Degraded,
            End::Settled => RunOutcome::Succeeded,
        };
        Some(LastRun {
            started: started.to_string(),
            took: seconds(took),
            outcome,
            slowest_step: self.slowest.map(|(_, step)| step),
        })
    }
}

/// The result of the run as a whole; its last iteration has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It came to its end.
    Settled,
    /// It was stopped.
    Stopped,
    /// An error ended it.
    Failed,
}

/// A time as a duration of Go, in whole seconds, and below ten of them in tenths.
fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        format!("{:.1}s", time.as_secs_f64())
    } else {
        format!("{}s", time.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NodeName;

    fn finished(node: &str, title: &str, took: u64) -> [Event; 2] {
        use crate::apply::event::{StepId, StepOutcome};
        let target = Target::Host(NodeName(node.to_owned()));
        [
            Event::StepStarted {
                id: StepId { stage: 0, step: 0 },
                target: target.clone(),
                title: title.to_owned(),
                why: String::new(),
            },
            Event::StepFinished {
                id: StepId { stage: 0, step: 0 },
                target,
                title: title.to_owned(),
                kind: "run",
                outcome: StepOutcome::Done,
                took: Duration::from_secs(took),
                detail: None,
            },
        ]
    }

    fn ledger(ended: Option<Outcome>) -> Ledger {
        let mut ledger = Ledger::default();
        for event in [finished("a", "run etcd", 2), finished("b", "pull", 31)].concat() {
            ledger.take(&event);
        }
        if let Some(outcome) = ended {
            let took = Duration::from_secs(40);
            ledger.take(&Event::RunFinished {
                outcome,
                took,
                why: None,
            });
        }
        ledger
    }

    #[test]
    fn the_slowest_step_and_the_end_are_reported() {
        let close = |ended, end| {
            let took = Duration::from_millis(41_700);
            ledger(ended).close(Timestamp::UNIX_EPOCH, took, end)
        };
        let completed = Some(Outcome::Completed);
        let run = close(completed.clone(), End::Settled).unwrap();
        assert_eq!(
            (run.took.as_str(), run.outcome),
            ("41s", RunOutcome::Succeeded)
        );
        let slowest = run.slowest_step.unwrap();
        assert_eq!(
            (slowest.name.as_str(), slowest.took.as_str()),
            ("pull", "31s")
        );
        assert_eq!(slowest.node.as_deref(), Some("b"));
        let degraded = Some(Outcome::Degraded);
        for (ended, end, outcome) in [
            (degraded, End::Settled, RunOutcome::Degraded),
            (completed.clone(), End::Failed, RunOutcome::Failed),
            (completed, End::Stopped, RunOutcome::Interrupted),
            (None, End::Stopped, RunOutcome::Interrupted),
        ] {
            assert_eq!(close(ended, end).unwrap().outcome, outcome);
        }
        let took = Duration::ZERO;
        let nothing = Ledger::default().close(Timestamp::UNIX_EPOCH, took, End::Settled);
        assert_eq!(nothing, None);
    }
}
