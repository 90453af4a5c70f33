//! What `up` would do, summed up by what it is done to: the plan's own steps and notes. Pure.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::Seen;
use crate::{
    error::{Explain, with_causes},
    model::NodeName,
    plan::{Cause, Held, Left, Plan, Step, Target, Waits, title},
};

/// What `up` would do, or why it would do nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Differences {
    /// The steps by target, in the order of the plan. Steps that only wait are left out.
    pub targets: Vec<Difference>,
    /// What the plan waits for or leaves alone, and why.
    pub notes: Vec<Remark>,
    /// What differs and is left as it is for now, and why.
    pub held: Vec<HeldBack>,
    /// Nodes of the cluster that the config no longer names.
    pub no_longer_in_config: Vec<NodeName>,
    /// Why there is no plan; null where there is one.
    pub refusal: Option<Refusal>,
    /// What was changed from outside, or ends soon, and is put right automatically: in lines.
    #[serde(skip)]
    pub drift: Option<String>,
    /// What would change without anybody having asked for it: in lines.
    #[serde(skip)]
    pub unasked: Option<String>,
    /// What is left as it is for now though its node answers: in lines.
    #[serde(skip)]
    pub waits: Option<String>,
    /// Something of it has failed and was put back.
    #[serde(skip)]
    pub rolled_back: bool,
}

/// Something that differs and is left as it is for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldBack {
    /// On which node; null for the whole cluster.
    pub node: Option<NodeName>,
    /// What: a component, `containerd`, `member of etcd`, `roles`, `node` or `cluster`.
    pub what: String,
    /// Why, as one word.
    pub reason: &'static str,
    /// Why, in words.
    pub why: String,
}

/// The steps of one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// What kind of target.
    pub place: Place,
    /// The node; null if it is not a node.
    pub node: Option<NodeName>,
    /// In order.
    pub steps: Vec<PlannedStep>,
}

/// What steps act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// On a node, or to its Node object.
    Node,
    /// In the cluster's API.
    Cluster,
    /// Where `up` runs: the state and the kubeconfig.
    Local,
}

/// A step of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedStep {
    /// What is done.
    pub action: String,
    /// Why, in words.
    pub why: String,
    /// Why, as one word.
    pub cause: Cause,
    /// What running work it disturbs; null for a step that needs no consent.
    pub disturbs: Option<String>,
}

/// A note of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remark {
    /// The node that it is about; null if it is about none or several.
    pub node: Option<NodeName>,
    /// The note.
    pub text: String,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The error that `up` would end with.
    pub message: String,
    /// What to do about it, most likely cure first.
    pub hints: Vec<String>,
}

impl Differences {
    /// True: `up` would change nothing. `None`: it would not know.
    pub(super) fn agrees(&self) -> Option<bool> {
        let known = self.refusal.is_none();
        known.then_some(self.targets.is_empty())
    }
}

pub(super) fn differences(seen: &Seen<'_>) -> Differences {
    let no_longer_in_config = no_longer_in_config(seen);
    match seen.plan {
        Ok(plan) => Differences {
            targets: targets(plan),
            notes: notes(plan, seen),
            no_longer_in_config,
            refusal: None,
            drift: drift(plan),
            unasked: unasked(plan),
            held: held(plan),
            waits: waits(plan),
            rolled_back: rolled_back(plan),
        },
        Err(error) => Differences {
            targets: Vec::new(),
            notes: Vec::new(),
            no_longer_in_config,
            refusal: Some(Refusal::of(error)),
            drift: None,
            unasked: None,
            held: Vec::new(),
            waits: None,
            rolled_back: false,
        },
    }
}

impl Refusal {
    fn of(error: &(dyn Explain + 'static)) -> Self {
        // Nodes that do not answer are problems of the cluster, with their cures.
        if let Some(message) = error.apart_from_nodes() {
            return Self {
                message,
                hints: Vec::new(),
            };
        }
        Self {
            message: with_causes(error),
            hints: error.hints().into_iter().map(Into::into).collect(),
        }
    }
}

fn no_longer_in_config(seen: &Seen<'_>) -> Vec<NodeName> {
    let saved = seen.actual.saved.as_ref();
    let names = saved.into_iter().flat_map(|saved| saved.inventory.keys());
    let Some(intent) = seen.intent else {
        return Vec::new();
    };
    names
        .filter(|name| !intent.nodes.contains_key(*name))
        .cloned()
        .collect()
}

/// How many differences a message names.
const NAMED: usize = 20;

fn drift(plan: &Plan) -> Option<String> {
    let part = plan.unasked();
    let differs = !part.is_empty() && !part.only_waits();
    differs.then(|| lines(part.steps()))
}

fn unasked(plan: &Plan) -> Option<String> {
    let asked = |step: &&Step| step.is_asked() && !step.action.is_wait();
    let differs = plan.steps().any(|step| asked(&step));
    differs.then(|| lines(plan.steps().filter(asked)))
}

fn held(plan: &Plan) -> Vec<HeldBack> {
    let notes = plan.notes.iter().filter_map(|note| {
        let Left { what, why } = note.held.as_ref()?;
        Some(HeldBack {
            node: note.target.clone().and_then(|target| place(target).1),
            what: what.to_string(),
            reason: why.reason(),
            why: why.to_string(),
        })
    });
    notes.collect()
}

/// What waits, in the plan's own words. Nodes that do not answer are listed elsewhere.
fn waits(plan: &Plan) -> Option<String> {
    let waiting = plan.notes.iter().filter(|note| {
        let held = note.held.as_ref();
        held.is_some_and(|left| left.what != Waits::Node)
    });
    let lines: Vec<String> = waiting
        .map(|note| match &note.target {
            Some(target) => format!("{target}: {}", note.text),
            None => note.text.clone(),
        })
        .collect();
    (!lines.is_empty()).then(|| first(lines))
}

fn rolled_back(plan: &Plan) -> bool {
    let mut held = plan.notes.iter().filter_map(|note| note.held.as_ref());
    held.any(|left| matches!(left.why, Held::Refused { .. } | Held::PutBackFirst))
}

/// What steps would do, in their own words; the first ones.
pub(crate) fn lines<'a>(steps: impl Iterator<Item = &'a Step>) -> String {
    let lines = steps.map(|step| format!("{}: {}", step.target(), step.why));
    first(lines.collect())
}

fn first(mut lines: Vec<String>) -> String {
    lines.dedup();
    let more = lines.len().saturating_sub(NAMED);
    lines.truncate(NAMED);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines.join("\n")
}

fn targets(plan: &Plan) -> Vec<Difference> {
    let mut targets: BTreeMap<(Place, Option<NodeName>), Vec<PlannedStep>> = BTreeMap::new();
    for step in plan.steps().filter(|step| !step.action.is_look()) {
        let steps = targets.entry(place(step.target())).or_default();
        steps.push(planned(step));
    }
    let targets = targets.into_iter();
    targets
        .map(|((place, node), steps)| Difference { place, node, steps })
        .collect()
}

fn place(target: Target) -> (Place, Option<NodeName>) {
    match target {
        Target::Host(name) => (Place::Node, Some(name)),
        Target::Cluster => (Place::Cluster, None),
        Target::Local => (Place::Local, None),
    }
}

fn planned(step: &Step) -> PlannedStep {
    PlannedStep {
        action: title(step),
        why: step.why.clone().into_owned(),
        cause: step.cause,
        disturbs: step.disturbs.clone(),
    }
}

/// All notes but the one about the certificate that expires first, which the status shows separately.
fn notes(plan: &Plan, seen: &Seen<'_>) -> Vec<Remark> {
    let earliest = seen
        .desired
        .and_then(|want| want.certificates.earliest.as_ref());
    let said = earliest.map(|end| end.sentence(seen.now));
    let notes = plan.notes.iter().cloned();
    notes
        .filter(|note| Some(&note.text) != said.as_ref())
        .map(|note| Remark {
            node: note.target.and_then(|target| place(target).1),
            text: note.text,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Action, HostAction};

    #[test]
    fn differences_are_named_once_and_not_without_end() {
        let steps: Vec<Step> = (0..30)
            .flat_map(|n| {
                let component = crate::model::Component::Kubelet;
                let step = Step {
                    cause: Cause::Drift,
                    why: "kubelet is not there".into(),
                    changes: Vec::new(),
                    guards: Vec::new(),
                    disturbs: None,
                    action: Action::Host(
                        NodeName(format!("n{n}")),
                        HostAction::AwaitHealthy { component },
                    ),
                };
                [step.clone(), step]
            })
            .collect();
        let text = lines(steps.iter());
        assert_eq!(text.lines().count(), 21, "{text}");
        assert!(text.starts_with("n0: kubelet is not there\nn1: "), "{text}");
        assert!(text.ends_with("and 10 more"), "{text}");
    }
}
