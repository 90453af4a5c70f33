//! What is ours, is there, and is no longer wanted. Pure. Nothing is pruned while the API does
//! not answer, and nothing is swept on a host that does not.

use std::collections::BTreeSet;

use super::{Action, Stage, Step, addons, files, hosts};
use crate::{
    actual::{Actual, HostFacts},
    desired::{CLAIM, Desired, DesiredHost, label, path},
};

/// Last of all: containers, then the files they read, then objects.
pub(super) fn leftovers(want: &Desired, have: &Actual) -> Stage {
    let mut stage = hosts::stage("sweep", want, have, |name, host, facts| {
        let mut steps: Vec<Step> = containers(want, host, facts)
            .map(|container| {
                let action = Action::RemoveContainer { name: container };
                Step::on(name, "nothing wants it any more", action).guarded(&want.cluster_id)
            })
            .collect();
        let paths = paths(host, facts);
        if !paths.is_empty() {
            let action = Action::RemoveFiles { paths };
            let step = Step::on(name, "nothing reads them any more", action);
            steps.push(step.guarded(&want.cluster_id));
        }
        steps
    });
    stage.steps.extend(addons::prune(want, have));
    stage
}

fn containers<'a>(
    want: &'a Desired,
    host: &'a DesiredHost,
    facts: &'a HostFacts,
) -> impl Iterator<Item = String> + 'a {
    facts
        .containers
        .iter()
        .filter(|(name, fact)| {
            let ours = fact.labels.get(label::CLUSTER_ID) == Some(&want.cluster_id.0);
            ours && name.as_str() != CLAIM && !host.containers.contains_key(*name)
        })
        .map(|(name, _)| name.clone())
}

/// Only where every file is ours: people keep files of their own in `/etc/kubernetes`.
fn paths(host: &DesiredHost, facts: &HostFacts) -> BTreeSet<String> {
    facts
        .files
        .iter()
        .flatten()
        .filter(|(path, fact)| {
            let ours =
                files::is_below(path, path::SSL) || files::LOOSE_FILES.contains(&path.as_str());
            ours && !fact.is_dir && !host.files.contains_key(*path)
        })
        .map(|(path, _)| path.clone())
        .collect()
}
