//! The facts that the later surveys of a run need not read again.
//!
//! A run surveys the cluster again after each of its iterations. Of a thousand nodes it may have changed
//! one: the facts of the others still hold, so they are not read twice. Every survey reads the cluster's API
//! and etcd again, and every host
//!
//! - that a step was on or about, whether or not it was carried out,
//! - that did not answer,
//! - that the new plan would change ([`super::look`] sees to that): no step is decided on facts of
//!   an earlier survey.
//!
//! Nothing is kept for a removal, because it must see that every node is clean; after a guard failed or another
//! run held the lease, because then other actors change nodes as well; and for longer than [`GOOD_FOR`].

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::{AnyPurpose, Survey};
use crate::{
    apply::event::RunOutcome,
    facts::{HostView, KeptFacts},
    model::NodeName,
    plan::Plan,
};

/// Facts that are older are read again: a run that takes long does not end on old facts.
const GOOD_FOR: SignedDuration = SignedDuration::from_mins(5);

/// Facts of an earlier look of this run.
#[derive(Default)]
pub(super) struct Kept {
    /// When the oldest of them were read.
    since: Option<Timestamp>,
    hosts: KeptFacts,
}

impl Kept {
    /// What still holds of a survey after a run of its plan that ended so. `since`: when its oldest facts
    /// were read.
    pub(super) fn after(
        purpose: AnyPurpose<'_>,
        survey: Survey,
        outcome: &RunOutcome,
        since: Timestamp,
    ) -> (Self, Plan) {
        let Survey {
            actual,
            snapshots: _,
            desired: _,
            plan,
            all: _,
        } = survey;
        let as_planned = match outcome {
            RunOutcome::Completed | RunOutcome::Degraded => true,
            RunOutcome::PlanAgain | RunOutcome::Failed | RunOutcome::Stopped => false,
        };
        if matches!(purpose, AnyPurpose::Removal(_)) || !as_planned {
            return (Self::default(), plan);
        }
        let touched = touched(&plan);
        let hosts = actual.hosts.into_iter().filter_map(|(name, view)| {
            let HostView::Reachable(mut facts) = view else {
                return None;
            };
            // It has gone on since.
            facts.clock = None;
            (!touched.contains(&name)).then_some((name, facts))
        });
        let kept = Self {
            since: Some(since),
            hosts: hosts.collect(),
        };
        (kept, plan)
    }

    /// For a look at this time: what is still good.
    pub(super) fn at(self, now: Timestamp) -> Good {
        let since = self
            .since
            .filter(|since| !self.hosts.is_empty() && now.duration_since(*since) <= GOOD_FOR);
        match since {
            Some(since) => Good {
                since,
                hosts: self.hosts,
            },
            None => Good {
                since: now,
                hosts: KeptFacts::new(),
            },
        }
    }
}

/// Facts that are not read again.
pub(super) struct Good {
    /// When the oldest facts of a look with these were read.
    pub(super) since: Timestamp,
    /// By host.
    pub(super) hosts: KeptFacts,
}

/// The hosts that a plan does something to or about.
pub(super) fn touched(plan: &Plan) -> BTreeSet<NodeName> {
    plan.steps()
        .filter_map(|step| step.node().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        converge::{Goal, Purpose, Removal},
        error::{ErrorClass, Obstacle},
        facts::{Actual, Unreachable},
        plan::{Action, Cause, ClusterAction, HostAction, OnFailure, Queue, Stage, Step},
    };

    const THEN: Timestamp = Timestamp::UNIX_EPOCH;

    fn step(action: Action) -> Step {
        Step {
            cause: Cause::New,
            why: "a test".into(),
            changes: Vec::new(),
            guards: Vec::new(),
            disturbs: None,
            action,
        }
    }

    /// Five nodes: a step on `n1`, one about `n2`, `n3` does not answer.
    fn survey() -> Survey {
        let image = "pause".to_owned();
        let steps = vec![
            step(Action::Host("n1".into(), HostAction::PullImage { image })),
            step(Action::Cluster(ClusterAction::Drain {
                node: "n2".into(),
                rules: None,
            })),
            step(Action::Cluster(ClusterAction::SaveStateCopy)),
        ];
        let stages = vec![Stage {
            name: "test".into(),
            width: 1,
            on_failure: OnFailure::EndRun,
            queues: vec![Queue { node: None, steps }],
        }];
        let facts = crate::desired::fixture::facts();
        let hosts = ["n1", "n2", "n3", "n4", "n5"].map(|name| {
            let view = if name == "n3" {
                HostView::Unreachable(Unreachable {
                    alike: None,
                    obstacle: Obstacle::Other,
                    class: ErrorClass::Host,
                    why: "it is off".to_owned(),
                    hints: Vec::new(),
                })
            } else {
                HostView::Reachable(Box::new(facts.clone()))
            };
            (NodeName::from(name), view)
        });
        Survey {
            snapshots: [].into(),
            actual: Actual {
                hosts: hosts.into(),
                ..Actual::default()
            },
            desired: None,
            plan: Plan {
                stages,
                notes: Vec::new(),
            },
            all: None,
        }
    }

    fn names(purpose: &impl Purpose, outcome: &RunOutcome, seconds: i64) -> Vec<String> {
        let (kept, _) = Kept::after(purpose.any(), survey(), outcome, THEN);
        let now = THEN + SignedDuration::from_secs(seconds);
        let Good { hosts, since } = kept.at(now);
        assert_eq!(since == THEN, !hosts.is_empty());
        assert!(hosts.values().all(|facts| facts.clock.is_none()));
        hosts.into_keys().map(|name| name.0).collect()
    }

    #[test]
    fn only_what_no_step_was_about_and_what_answered_is_kept() {
        let intent = crate::desired::fixture::intent();
        for goal in [Goal::Up(&intent), Goal::Heal(&intent)] {
            for outcome in [RunOutcome::Completed, RunOutcome::Degraded] {
                assert_eq!(names(&goal, &outcome, 300), ["n4", "n5"]);
                assert_eq!(names(&goal, &outcome, 301), [""; 0], "too old");
            }
        }
    }

    #[test]
    fn nothing_is_kept_of_a_removal_or_of_a_run_that_went_otherwise() {
        let intent = crate::desired::fixture::intent();
        let removal = Removal(Some(&intent));
        assert_eq!(names(&removal, &RunOutcome::Completed, 1), [""; 0]);
        for outcome in [
            RunOutcome::PlanAgain,
            RunOutcome::Failed,
            RunOutcome::Stopped,
        ] {
            assert_eq!(names(&Goal::Up(&intent), &outcome, 1), [""; 0]);
        }
    }
}
