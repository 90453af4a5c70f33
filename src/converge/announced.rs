//! What the first plan of a run announced. A later plan of the run, which nobody was shown before the run
//! began, deletes and disturbs nothing on other nodes. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    actual::{Actual, Unreachable},
    error::ErrorClass,
    model::NodeName,
    plan::{Plan, Target, title},
};

/// The nodes on which the first plan that was run disturbs something; and those that answered, and of which it
/// says that something is left to be done.
pub(super) struct Announced(BTreeSet<NodeName>);

impl Announced {
    pub(super) fn by(plan: &Plan, have: &Actual) -> Self {
        let disturbed = plan.disruptions().filter_map(|(step, _)| step.node());
        let left = plan.notes.iter().filter(|note| note.is_left);
        let left = left.filter_map(|note| match &note.target {
            Some(Target::Host(name)) => have.up(name).map(|_| name),
            Some(Target::Cluster | Target::Local) | None => None,
        });
        Self(disturbed.chain(left).cloned().collect())
    }

    /// The nodes that a later plan disturbs all the same, and why they are left alone now.
    pub(super) fn misses(&self, plan: &Plan) -> BTreeMap<NodeName, Unreachable> {
        let disturbs = plan.disruptions().filter_map(|(step, what)| {
            let node = step.node().filter(|node| !self.0.contains(*node))?;
            let why = Unreachable {
                class: ErrorClass::Host,
                why: format!(
                    "left as it is for now: `{}` was not in the plan with which this run began ({what})",
                    title(step)
                ),
                hints: vec![
                    "the next run does it; `rke-operator plan` shows it first".to_owned(),
                ],
            };
            Some((node.clone(), why))
        });
        disturbs.collect()
    }
}
