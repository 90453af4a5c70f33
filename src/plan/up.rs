//! Make the world as the intent says: the table of contents. Pure.

use super::{
    Note, Plan, PreflightErrors, Stage, addons, claim, containerd, containers, files, health,
    hosts, images, kernel, nodes, preflight, prune, roll, state, warnings,
};
use crate::{
    actual::{Actual, ApiView},
    desired::Desired,
};

/// The plan that makes `have` into `want`; empty when it is. The error names everything that stands
/// in the way, and then nothing is done at all.
pub fn up(want: &Desired, have: &Actual) -> Result<Plan, PreflightErrors> {
    preflight::errors(want, have)?;
    if claim::must_look_again(want, have) {
        return Ok(claims_only(want, have));
    }
    let first = [
        state::save(want, have),  // keys are kept before they are used
        claim::claim(want, have), // a node belongs to one cluster
        images::pull(want, have),
        kernel::prepare(want, have),
        files::write(want, have),
        containerd::configure(want, have),
        containers::start(want, have), // what is missing: together, and only then awaited
        roll::etcd(want, have),        // what differs: one host after the other
        health::api(want, have),       // etcd and the API servers answer
    ];
    let control_planes = roll::control_planes(want, have);
    // An API server that is paused or differs answers when it is replaced, and not before.
    let differs = !control_planes.is_empty() || first.iter().any(|stage| !stage.is_empty());
    if must_see_the_api(have) && differs {
        let first = first.into_iter().chain([control_planes]);
        return Ok(until_the_api_answers(first, want));
    }
    let then = [
        containers::controllers(want, have),
        control_planes,
        roll::nodes(want, have),
        addons::apply(want, have), // the network first; no node is Ready without
        state::kubeconfig(want, have),
        state::copy(want, have),
        nodes::ready(want, have), // the other components, labels and taints, Ready
        addons::wait(want, have), // bounded, then a warning
        prune::leftovers(want, have), // ours, there, and no longer wanted
    ];
    let mut notes = state::notes(want);
    notes.extend(warnings::notes(want, have));
    notes.extend(containers::notes(want, have));
    notes.extend(nodes::notes(want, have));
    notes.extend(roll::notes(want, have));
    notes.extend(hosts::notes(want, have));
    Ok(plan(first.into_iter().chain(then), notes))
}

/// True while it is not known whether etcd has its data, of a cluster that had some: nothing is
/// written to an API that has not been looked into.
fn must_see_the_api(have: &Actual) -> bool {
    let saved = have.saved.as_ref();
    let populated = saved.is_some_and(|saved| saved.memory.populated);
    populated && !matches!(have.api(), ApiView::Up(_))
}

fn until_the_api_answers(first: impl IntoIterator<Item = Stage>, want: &Desired) -> Plan {
    let mut notes = state::notes(want);
    notes.push(Note {
        target: None,
        text: "what the cluster holds is looked at before anything is written to it: what else \
               differs is known after its API answers"
            .to_owned(),
    });
    plan(first, notes)
}

/// Leaves out the stages that have nothing to do.
pub(super) fn plan(stages: impl IntoIterator<Item = Stage>, notes: Vec<Note>) -> Plan {
    let stages = stages.into_iter().filter(|stage| !stage.is_empty());
    Plan {
        stages: stages.collect(),
        notes,
    }
}

fn claims_only(want: &Desired, have: &Actual) -> Plan {
    let stages = [state::save(want, have), claim::claim(want, have)];
    let notes = vec![Note {
        target: None,
        text: "files of a node are read through its claim: what else differs is known after \
               the claim is back"
            .to_owned(),
    }];
    plan(stages, notes)
}
