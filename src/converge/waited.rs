//! What a run has waited for. What was slow was warned about, and is not waited for again. What came and went is: it
//! may be what something else is held back for. But not for ever.

use std::collections::BTreeMap;

use super::attempts::digest;
use crate::{
    apply::{event::RunOutcome, run::Report},
    plan::{Plan, Step},
};

/// How often a run waits for the same.
const TIMES: u32 = 3;

#[derive(Default)]
pub(super) struct Waited {
    /// What ended with a warning counts as waited for, or tried, often enough.
    times: BTreeMap<u64, u32>,
}

impl Waited {
    /// Sees how a plan was run. A run that ended early has not waited for all of it.
    pub(super) fn ran(&mut self, plan: &Plan, report: &Report) {
        let slow = report.slow.iter().map(digest);
        self.times.extend(slow.map(|wait| (wait, TIMES)));
        if report.outcome != RunOutcome::Completed {
            return;
        }
        for step in plan.steps().filter(|step| step.action.is_wait()) {
            *self.times.entry(digest(&step.action)).or_default() += 1;
        }
    }

    /// True when nothing of the plan is worth another wait or another try, and it has nothing else.
    pub(super) fn is_done_with(&self, plan: &Plan) -> bool {
        plan.steps().all(|step| self.has(step))
    }

    fn has(&self, step: &Step) -> bool {
        let times = || self.times.get(&digest(&step.action));
        let counts = step.action.is_wait() || step.action.is_optional();
        counts && times().is_some_and(|times| *times >= TIMES)
    }
}
