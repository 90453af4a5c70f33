//! What a run has waited for. What was slow was warned about, and is not waited for again. What came and went is: it
//! may be what something else is held back for. But not for ever.

use std::collections::{BTreeMap, BTreeSet};

use super::attempts::digest;
use crate::plan::{Action, Plan, Step};

/// How often a run waits for the same.
const TIMES: u32 = 3;

#[derive(Default)]
pub(super) struct Waited {
    times: BTreeMap<u64, u32>,
    slow: BTreeSet<u64>,
}

impl Waited {
    /// Sees a plan that was run to its end.
    pub(super) fn completed(&mut self, plan: &Plan) {
        for step in plan.steps().filter(|step| step.action.is_wait()) {
            *self.times.entry(digest(&step.action)).or_default() += 1;
        }
    }

    /// Sees the waits that ended with a warning.
    pub(super) fn in_vain(&mut self, waits: &[Action]) {
        self.slow.extend(waits.iter().map(digest));
    }

    /// True when nothing of the plan is worth another wait, and it has nothing but waits.
    pub(super) fn is_done_with(&self, plan: &Plan) -> bool {
        plan.steps().all(|step| self.has(step))
    }

    fn has(&self, step: &Step) -> bool {
        if !step.action.is_wait() {
            return false;
        }
        let digest = digest(&step.action);
        let often = self.times.get(&digest).is_some_and(|times| *times >= TIMES);
        often || self.slow.contains(&digest)
    }
}
