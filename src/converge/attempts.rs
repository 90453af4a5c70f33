//! When a run gives up: what is planned again and again is not mended by planning it once more.
//!
//! A change that goes in steps, each of which has to be seen first, takes as many iterations as it has steps. So it is
//! not the iterations that are counted, but those in a row that came no further.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::plan::{Action, Plan};

/// So many iterations in a row that came no further, and the run ends.
const IDLE: u32 = 5;
/// So many in all: what differs in another way each time has no end.
const ALL: u32 = 25;

/// The iterations of a run.
pub(super) struct Attempts {
    all: u32,
    idle: u32,
    /// The steps of all plans.
    planned: BTreeSet<u64>,
    /// Of the shortest plan.
    fewest: usize,
}

impl Attempts {
    pub(super) const fn new() -> Self {
        Self {
            all: 0,
            idle: 0,
            planned: BTreeSet::new(),
            fewest: usize::MAX,
        }
    }

    /// The number of the next iteration, from 1; `None` when there is none.
    pub(super) const fn next(&mut self) -> Option<u32> {
        if self.idle >= IDLE || self.all >= ALL {
            return None;
        }
        self.all += 1;
        Some(self.all)
    }

    /// How many there were.
    pub(super) const fn count(&self) -> u32 {
        self.all
    }

    /// Sees what the iteration is to do. It comes further with a step that no plan had before, and with fewer steps
    /// than any plan had.
    pub(super) fn plans(&mut self, plan: &Plan) {
        let (mut count, mut is_new) = (0, false);
        for step in plan.steps() {
            count += 1;
            is_new |= self.planned.insert(digest(&step.action));
        }
        self.idle = if is_new || count < self.fewest {
            0
        } else {
            self.idle + 1
        };
        self.fewest = self.fewest.min(count);
    }
}

/// Of an action, with the digests of what it would write.
pub(super) fn digest(action: &Action) -> u64 {
    let mut hasher = DefaultHasher::new();
    // An action is data that can always be written.
    serde_json::to_string(action)
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Cause, ClusterAction, OnFailure, Queue, Stage, Step};

    /// One that applies these add-ons.
    fn plan(addons: &[u32]) -> Plan {
        let steps = addons.iter().map(|addon| Step {
            cause: Cause::New,
            why: "a test".into(),
            changes: Vec::new(),
            guards: Vec::new(),
            disturbs: None,
            action: Action::Cluster(ClusterAction::ApplyAddon {
                addon: addon.to_string(),
                objects: Vec::new(),
            }),
        });
        let queues = vec![Queue {
            node: None,
            steps: steps.collect(),
        }];
        Plan {
            stages: vec![Stage {
                name: "test".into(),
                width: 1,
                on_failure: OnFailure::EndRun,
                queues,
            }],
            notes: Vec::new(),
        }
    }

    /// How many iterations a run has that plans this in each.
    fn iterations(plans: impl Fn(u32) -> Vec<u32>) -> u32 {
        let mut attempts = Attempts::new();
        while let Some(number) = attempts.next() {
            attempts.plans(&plan(&plans(number)));
        }
        attempts.count()
    }

    #[test]
    fn only_what_comes_no_further_ends() {
        assert_eq!(iterations(|_| vec![1, 2]), 1 + IDLE, "the same");
        let one_of_two = |number| vec![number % 2];
        assert_eq!(iterations(one_of_two), 2 + IDLE, "to and fro");
        let six_steps = |number: u32| vec![number.min(6)];
        assert_eq!(iterations(six_steps), 6 + IDLE, "one after the other");
        let fewer = |number: u32| (number.min(9)..10).collect();
        assert_eq!(iterations(fewer), 9 + IDLE, "one less each time");
        assert_eq!(iterations(|number| vec![number]), ALL, "always another");
    }
}
