//! Images out of a bundle onto nodes, and nothing else: of any cluster or of none. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    catalog::{canonical, familiar},
    desired::NeededImages,
    facts::{Actual, HostView},
    model::{BundledImages, NodeName},
    plan::{Cause, Enough, HostAction, Note, OnFailure, Plan, Stage, Step, Target, diff::present},
};

/// What each node that answers lacks and the bundle has. `pods` has what each node's containerd has.
pub(in crate::plan) fn load(
    needed: &NeededImages,
    bundle: &BundledImages,
    have: &Actual,
    pods: &BTreeMap<NodeName, BTreeSet<String>>,
) -> Plan {
    let mut steps = Vec::new();
    let mut notes = Vec::new();
    for (name, docker) in &needed.docker {
        let facts = match have.hosts.get(name) {
            Some(HostView::Reachable(facts)) => facts,
            Some(HostView::Unreachable(down)) => {
                let text = format!("does not answer and is left as it is: {}", down.why);
                notes.push(Note::of(Some(Target::Host(name.clone())), text));
                continue;
            }
            None => continue,
        };
        let bundled =
            |image: &String| Some((image.clone(), bundle.images.get(&familiar(image))?.bytes));
        let step = |why, action| Step::on(name, Cause::New, why, action);
        let lacks = docker.iter().filter(|image| !present(image, facts));
        steps.extend(lacks.filter_map(bundled).map(|(image, bytes)| {
            let why = "this node's Docker does not have it";
            step(why, HostAction::LoadImage { image, bytes })
        }));
        let Some(there) = pods.get(name) else {
            continue;
        };
        let lacks = bundle
            .pods
            .iter()
            .filter(|image| !there.contains(&canonical(image)));
        steps.extend(lacks.filter_map(bundled).map(|(image, bytes)| {
            let why = "this node's containerd does not have it";
            step(why, HostAction::ImportImage { image, bytes })
        }));
    }
    notes.extend(lacking(bundle, &BTreeSet::new()));
    // A node that fails stops no other node.
    let on_failure = OnFailure::DropNode {
        while_left: Enough::All(Vec::new()),
    };
    let stage = Stage::of("images", needed.docker.len().max(1), steps).on_failure(on_failure);
    let stages = if stage.is_empty() {
        Vec::new()
    } else {
        vec![stage]
    };
    Plan { stages, notes }
}

/// What the bundle does not have and nodes will pull.
pub(super) fn lacking(bundle: &BundledImages, docker: &BTreeSet<&str>) -> Vec<Note> {
    let mut notes = Vec::new();
    let lacks = docker
        .iter()
        .copied()
        .chain(bundle.lacks.iter().map(String::as_str));
    let lacks: BTreeSet<&str> = lacks.collect();
    if !lacks.is_empty() {
        let text = format!(
            "the bundle `{}` does not have {}: nodes pull that from its registry",
            bundle.file,
            crate::model::quoted(&lacks)
        );
        notes.push(Note::of(None, text));
    }
    if !bundle.unlisted.is_empty() {
        let text = format!(
            "which images {} needs is in its chart alone: nodes pull those that the bundle `{}` does not have",
            crate::model::quoted(&bundle.unlisted),
            bundle.file
        );
        notes.push(Note::of(None, text));
    }
    notes
}
