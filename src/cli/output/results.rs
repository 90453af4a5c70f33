//! What the commands print with `-o json`, where it is not a value of the library itself. Programs rely on these: fields
//! may be added; those that are there keep their names, types and meanings. [`schema`](super::schema) describes them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::json::ShownProblem;
use crate::{
    api::observed::ObservedCluster,
    desired::NeededImages,
    facts::Unreachable,
    model::{FieldChange, NodeName},
    plan::{Action, Cause, Guard, Left, Note, OnFailure, Plan, Queue, Stage, Step, Target, title},
    snapshots::{Answer, SavedOnce},
    status::doctor::Diagnosis,
};

/// What `up` would do, or `remove`. Fields that are marked as internal follow the program's own types and may change in
/// any release.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Plan")]
pub struct PlanResult<'a> {
    /// The stages, one after the other; empty if there is nothing to do.
    stages: Vec<PlanStage<'a>>,
    /// What the plan waits for or leaves as it is, and why.
    notes: Vec<PlanNote<'a>>,
}

/// A stage of the plan.
#[derive(Serialize, JsonSchema)]
struct PlanStage<'a> {
    /// Its name, as in the event `stageStarted`.
    name: &'a str,
    /// How many queues run at once.
    width: usize,
    /// Internal: what a failure in one queue means for the others.
    #[schemars(with = "Value")]
    on_failure: &'a OnFailure,
    /// The queues, in the order in which they start.
    queues: Vec<PlanQueue<'a>>,
}

/// Steps that run one after the other.
#[derive(Serialize, JsonSchema)]
struct PlanQueue<'a> {
    /// The node; null for steps in the cluster's API, and for those where rke-operator runs.
    node: Option<&'a NodeName>,
    /// The steps, in order.
    steps: Vec<PlanStep<'a>>,
}

/// A step of the plan.
#[derive(Serialize, JsonSchema)]
struct PlanStep<'a> {
    /// What is done, in one line, as in the event `stepStarted`.
    title: String,
    /// Why, as one word.
    cause: Cause,
    /// Why, in words.
    why: &'a str,
    /// The fields that differ, for steps that replace or apply something.
    changes: &'a [FieldChange],
    /// Internal: what must still be true just before the step.
    #[schemars(with = "Value")]
    guards: &'a [Guard],
    /// What running work it disturbs; null for a step that needs no consent.
    disturbs: Option<&'a str>,
    /// Internal: the step as data.
    #[schemars(with = "Value")]
    action: &'a Action,
}

/// A note of the plan.
#[derive(Serialize, JsonSchema)]
struct PlanNote<'a> {
    /// What it is about; null if it is about no single thing.
    target: Option<&'a Target>,
    /// The note.
    text: &'a str,
    /// True: something differs from the config and is left as it is for now.
    is_left: bool,
    /// Internal: what is left as it is, and why, as data.
    #[schemars(with = "Value")]
    held: Option<&'a Left>,
}

impl<'a> PlanResult<'a> {
    /// The plan as programs read it.
    pub fn of(plan: &'a Plan) -> Self {
        let Plan { stages, notes } = plan;
        Self {
            stages: stages.iter().map(PlanStage::of).collect(),
            notes: notes.iter().map(PlanNote::of).collect(),
        }
    }
}

impl<'a> PlanStage<'a> {
    fn of(stage: &'a Stage) -> Self {
        let Stage {
            name,
            width,
            on_failure,
            queues,
        } = stage;
        Self {
            name,
            width: *width,
            on_failure,
            queues: queues.iter().map(PlanQueue::of).collect(),
        }
    }
}

impl<'a> PlanQueue<'a> {
    fn of(queue: &'a Queue) -> Self {
        let Queue { node, steps } = queue;
        Self {
            node: node.as_ref(),
            steps: steps.iter().map(PlanStep::of).collect(),
        }
    }
}

impl<'a> PlanStep<'a> {
    fn of(step: &'a Step) -> Self {
        let Step {
            cause,
            why,
            changes,
            guards,
            disturbs,
            action,
        } = step;
        Self {
            title: title(step),
            cause: *cause,
            why,
            changes,
            guards,
            disturbs: disturbs.as_deref(),
            action,
        }
    }
}

impl<'a> PlanNote<'a> {
    fn of(note: &'a Note) -> Self {
        let Note {
            target,
            text,
            is_left,
            held,
        } = note;
        Self {
            target: target.as_ref(),
            text,
            is_left: *is_left,
            held: held.as_ref(),
        }
    }
}

/// A config that is valid.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ValidConfig")]
pub struct ValidResult {
    /// The config is valid. If it is not, there is no result.
    #[schemars(extend("const" = "valid"))]
    pub result: &'static str,
    /// How many nodes it has.
    pub nodes: usize,
    /// The Kubernetes version that it asks for.
    pub kubernetes_version: String,
    /// What is accepted and may not be intended.
    pub warnings: Vec<ShownProblem>,
}

/// The diagnosis of the nodes.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Diagnosis")]
pub struct DoctorResult<'a> {
    /// Nothing prevents `up`.
    pub ready: bool,
    /// The Kubernetes version that the config asks for.
    pub kubernetes_version: String,
    /// Warnings about the config.
    pub warnings: Vec<ShownProblem>,
    /// Nodes and findings.
    #[serde(flatten)]
    pub diagnosis: &'a Diagnosis,
}

/// The clusters of a management cluster.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ClusterList")]
pub struct ClusterList {
    /// Every `Cluster`, by name.
    pub clusters: Vec<ObservedCluster>,
}

/// A snapshot that was saved on at least one node.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SavedSnapshot")]
pub struct SaveResult<'a> {
    /// The name of the snapshot.
    pub name: &'a str,
    /// The nodes that have it, by name.
    pub saved: BTreeMap<NodeName, SavedOnce>,
    /// The nodes that failed, by name, and why.
    pub failed: BTreeMap<NodeName, Unreachable>,
}

/// A snapshot that was verified or deleted, node by node.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "NamedSnapshot")]
pub struct NamedResult<'a> {
    /// The name of the snapshot.
    pub name: &'a str,
    /// The nodes that answered, by name.
    pub nodes: BTreeMap<NodeName, Answer>,
    /// The nodes that failed, by name, and why.
    pub failed: BTreeMap<NodeName, Unreachable>,
}

/// Versions.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Versions")]
pub struct VersionResult {
    /// The version of this program.
    pub rke_operator: Cow<'static, str>,
    /// The version that the cluster's API server reports; missing if there is no kubeconfig, or no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
}

/// The images that a config needs.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ImageList")]
pub struct ImageList<'a> {
    /// The images, by name.
    images: Vec<ListedImage<'a>>,
    /// Add-ons whose images are named only in their charts, so that `images` lacks them.
    unlisted: &'a BTreeSet<String>,
}

/// An image.
#[derive(Serialize, JsonSchema)]
struct ListedImage<'a> {
    /// Its name, with the registry that it comes from.
    name: &'a str,
    /// The nodes whose Docker runs it.
    nodes: Vec<&'a NodeName>,
    /// Whether pods run it.
    pods: bool,
}

impl<'a> ImageList<'a> {
    /// Of what a config needs.
    pub fn of(needed: &'a NeededImages) -> Self {
        let images = needed.names().into_iter().map(|name| {
            let docker = needed.docker.iter();
            let nodes = docker.filter(|(_, images)| images.contains(name));
            ListedImage {
                name,
                nodes: nodes.map(|(node, _)| node).collect(),
                pods: needed.pods.contains(name),
            }
        });
        Self {
            images: images.collect(),
            unlisted: &needed.unlisted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that reads the plan of today reads this one.
    #[test]
    fn the_plan_of_programs_is_the_plan_and_its_titles() {
        let step = Step {
            cause: Cause::New,
            why: "it is missing".into(),
            changes: vec![],
            guards: vec![],
            disturbs: None,
            action: Action::Local(crate::plan::LocalAction::SaveState),
        };
        let plan = Plan {
            stages: vec![Stage {
                name: "state".into(),
                width: 1,
                on_failure: OnFailure::EndRun,
                queues: vec![Queue {
                    node: None,
                    steps: vec![step],
                }],
            }],
            notes: vec![Note {
                target: Some(Target::Host("n1".into())),
                text: "it waits".to_owned(),
                is_left: true,
                held: None,
            }],
        };
        let mut shown = serde_json::to_value(PlanResult::of(&plan)).unwrap();
        let step = shown["stages"][0]["queues"][0]["steps"][0]
            .as_object_mut()
            .unwrap();
        assert_eq!(step.remove("title"), Some("save the state".into()));
        assert_eq!(shown, serde_json::to_value(&plan).unwrap());
    }
}
