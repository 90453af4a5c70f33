//! What was refused goes back, before anything else is done and on no other node. Pure.

use std::collections::BTreeSet;

use super::{nodes, part::Part, plan, state};
use crate::{
    desired::Desired,
    facts::Actual,
    model::NodeName,
    plan::{
        Cause, ClusterAction, Guard, Held, HostAction, Note, OnFailure, Plan, Stage, Step, back,
    },
    state::Refused,
};

const WHY: &str = "its new definition has failed on this node";

/// The plan that puts back what is refused and was kept; `None` where there is nothing of the kind.
pub(in crate::plan) fn put_back(want: &Desired, have: &Actual) -> Option<Plan> {
    let due = back::due(want, have);
    if due.is_empty() {
        return None;
    }
    let steps = due.iter().flat_map(|refused| one(refused, want, have));
    let steps = steps.chain(uncordoned(&due, have));
    let stage = Stage::of("put back", due.len(), steps).on_failure(OnFailure::FinishRunning);
    let text = "what else differs is known after the former containers run again";
    let notes = vec![Note::left_anywhere(text.to_owned(), Held::PutBackFirst)];
    let back = Part {
        stages: vec![stage],
        notes,
    };
    Some(plan([state::save(want, have), back]))
}

fn one(refused: &Refused, want: &Desired, have: &Actual) -> [Step; 2] {
    let (component, node) = (refused.component, &refused.node);
    let facts = have.up(node);
    let fact = facts.and_then(|facts| facts.container(component));
    let same = fact.map(|fact| Guard::ContainerIs {
        node: node.clone(),
        name: component.container().to_owned(),
        id: fact.id.clone(),
    });
    let action = HostAction::PutBack { component };
    let mut step = Step::on(node, Cause::Drift, WHY, action).guarded(&want.cluster_id);
    if let Some(same) = same {
        step = step.only_if(same);
    }
    let wait = HostAction::AwaitHealthy { component };
    let wait = Step::on(node, Cause::Drift, "the former one was just started", wait);
    [step, wait]
}

/// A node is cordoned from before its kubelet changes until everything on it has.
fn uncordoned(due: &[&Refused], have: &Actual) -> impl Iterator<Item = Step> {
    let nodes: BTreeSet<NodeName> = due.iter().map(|refused| refused.node.clone()).collect();
    let ours = nodes.into_iter().filter(|name| {
        let node = nodes::seen(have, name);
        node.is_some_and(crate::facts::NodeFact::is_cordoned_by_us)
    });
    let ours: Vec<NodeName> = ours.collect();
    ours.into_iter().map(|node| {
        let action = ClusterAction::Uncordon { node };
        Step::cluster(Cause::Drift, "what was there before runs again", action)
    })
}
