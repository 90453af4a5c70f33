//! Make the world as the intent says: the table of contents. Pure.

use super::{
    Note, Plan, PlanError, Stage, addons, admission, advice, claim, containerd, containers, files,
    health, images, kernel, nodes, state, sweep,
};
use crate::{actual::Actual, desired::Desired};

/// The plan that makes `have` into `want`; empty when it is. The error names everything that stands
/// in the way, and then nothing is done at all.
pub fn up(want: &Desired, have: &Actual) -> Result<Plan, PlanError> {
    admission::refusals(want, have)?;
    if claim::must_look_again(want, have) {
        return Ok(claims_only(want, have));
    }
    let stages = [
        state::save(want, have),  // keys are kept before they are used
        claim::claim(want, have), // a node belongs to one cluster
        images::pull(want, have),
        kernel::prepare(want, have),
        files::write(want, have),
        containerd::configure(want, have),
        containers::start(want, have), // together when fresh, one at a time when alive
        health::api(want, have),       // etcd and the API server
        addons::apply(want, have),     // the network first; no node is Ready without
        state::kubeconfig(want, have),
        state::copy(want, have),
        nodes::ready(want, have), // the other components, labels and taints, Ready
        addons::wait(want, have), // bounded, then a warning
        sweep::leftovers(want, have), // ours, there, and no longer wanted
    ];
    let mut notes = advice::notes(want, have);
    notes.extend(containers::notes(want, have));
    notes.extend(nodes::notes(want, have));
    Ok(plan(stages, notes))
}

/// Leaves out the stages that have nothing to do.
pub(super) fn plan(stages: impl IntoIterator<Item = Stage>, notes: Vec<Note>) -> Plan {
    let stages = stages.into_iter().filter(|stage| !stage.steps.is_empty());
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
