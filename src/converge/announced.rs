//! What the first plan of a run announced. A later plan of the run, which was not shown before the run began,
//! deletes and disturbs nothing on other nodes. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::Survey;
use crate::{
    error::{ErrorClass, Obstacle},
    facts::Unreachable,
    model::NodeName,
    plan::{Plan, Target, title},
};

/// The nodes on which the first plan that was run disturbs something; and those that answered, and of which it
/// says that something is left to be done. Where it says that of none by name, it is all that the config has. While
/// something is rotated or encryption changes, a note says what is replaced once more, so each of these nodes counts.
/// So does each that a person has named as lost.
pub(super) struct Announced(BTreeSet<NodeName>);

impl Announced {
    pub(super) fn by(survey: &Survey) -> Self {
        let Survey {
            actual,
            snapshots: _,
            desired,
            plan,
            // Not what is run.
            all: _,
        } = survey;
        let mut nodes: BTreeSet<&NodeName> = plan
            .disruptions()
            .filter_map(|(step, _)| step.node())
            .collect();
        for note in plan.notes.iter().filter(|note| note.is_left) {
            match &note.target {
                Some(Target::Host(name)) => nodes.extend([name]),
                Some(Target::Cluster | Target::Local) => {}
                None => nodes.extend(desired.iter().flat_map(|desired| desired.hosts.keys())),
            }
        }
        nodes.extend(desired.iter().flat_map(|desired| &desired.rolls));
        // A person has named them, whenever they are given up.
        let named: BTreeSet<_> = desired.iter().flat_map(|desired| &desired.lose).collect();
        nodes.extend(&named);
        let disturbed = |name: &NodeName| {
            let mut steps = plan.disruptions();
            steps.any(|(step, _)| step.node() == Some(name))
        };
        let known = |name: &&&NodeName| {
            actual.up(name).is_some() || disturbed(name) || named.contains(*name)
        };
        Self(
            nodes
                .iter()
                .filter(known)
                .map(|name| (*name).clone())
                .collect(),
        )
    }

    /// The nodes that a later plan disturbs all the same, and why they are left alone now.
    pub(super) fn misses(&self, plan: &Plan) -> BTreeMap<NodeName, Unreachable> {
        let disturbs = plan.disruptions().filter_map(|(step, what)| {
            let node = step.node().filter(|node| !self.0.contains(*node))?;
            let why = Unreachable {
                alike: None,
                obstacle: Obstacle::Other,
                class: ErrorClass::Host,
                why: format!(
                    "left as it is for now: `{}` was not in the plan with which this run began ({what})",
                    title(step)
                ),
                hints: vec![
                    "the next run does it; `rke-operator plan` (a `Cluster` has the condition `UpToDate`) shows it first".to_owned(),
                ],
            };
            Some((node.clone(), why))
        });
        disturbs.collect()
    }
}
