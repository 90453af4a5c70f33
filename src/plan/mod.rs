//! The difference between the desired and the actual state, as data. Pure.
//!
//! `diff` says what differs, host by host, and why; `hold` says which differences are left for now, and
//! why; `schedule` puts the rest in order; none knows how the others work. [`up`] and [`remove`] make plans,
//! [`check`] validates any plan against the invariants, [`render`] prints one. A plan can be printed, compared,
//! serialised and simulated: nothing in it is a closure, and nothing in it is secret. May use pure functions only;
//! must not read a clock, a file or the network.
//!
//! ```
//! use rke_operator::{facts::Actual, plan};
//!
//! // No host, no state: nothing is ours, so there is nothing to remove.
//! let plan = plan::remove(None, &Actual::default())?;
//! assert!(plan.is_empty());
//! assert_eq!(plan::render(&plan), "Plan: nothing to do\n");
//! # Ok::<(), plan::PreflightErrors>(())
//! ```

mod action;
mod back;
mod check;
mod complete;
mod diff;
mod examine;
mod folders;
mod former;
mod guard;
mod held;
mod hold;
mod lost;
mod note;
mod ownership;
mod preflight;
mod reboot;
mod release;
mod removal;
mod render;
mod roles;
mod rotation;
mod schedule;
mod stage;
mod step;
mod title;

use std::collections::{BTreeMap, BTreeSet};

pub use action::{Action, ClusterAction, EtcdRestore, FileRef, HostAction, LocalAction};
pub(crate) use back::{Broken, forget_former, refuse, why_it_stands};
pub use check::{Violation, check};
pub use complete::unexplained;
pub use diff::config_digest;
pub(crate) use diff::present as has_image;
pub use examine::{Examination, examine};
pub use guard::{Live, Look, holds};
pub use held::{Held, Left, NoQuorum, Waits};
pub use note::Note;
pub(crate) use preflight::open_port_hint;
pub use preflight::{
    PreflightError, PreflightErrors, TooFew, consent, enough_answer, external_etcd, known,
    strangers,
};
pub use reboot::Reboot;
pub use removal::RemovalRequest;
pub use render::{Detail, disruptions, disruptive_steps, render, render_on};
pub use schedule::{remove, remove_as};
pub use stage::{Enough, OnFailure, Plan, Queue, Stage};
pub use step::{Cause, Guard, Step, Target};
pub use title::title;

pub use crate::model::FieldChange;
use crate::{
    desired::{Desired, NeededImages},
    facts::Actual,
    model::{BundledImages, NodeName},
};

/// The plan that goes on with what was there before a restore that was cut off: `have` still has it begun.
pub fn take_back(want: &Desired, have: &Actual) -> Result<Plan, PreflightErrors> {
    let begun = have.saved.as_ref().and_then(|saved| saved.restoring());
    let Some(epoch) = begun else {
        return up(want, have);
    };
    preflight::take_back(want, have, epoch)?;
    Ok(schedule::take_back(want, have, epoch))
}

/// The plan that reboots nodes and does nothing else; empty when it has.
pub fn reboot(want: &Desired, have: &Actual, request: &Reboot) -> Result<Plan, PreflightErrors> {
    preflight::reboot(want, have, request)?;
    Ok(schedule::reboot(&diff::diff(want, have), request))
}

/// The plan of the restore that `want` is in the middle of; see [`crate::state::EtcdEpoch`]. Empty when nothing of it is
/// left but what [`up`] does.
pub fn restore(want: &Desired, have: &Actual) -> Result<Plan, PreflightErrors> {
    let Some(epoch) = want.saved.restoring() else {
        return up(want, have);
    };
    preflight::restore(want, have, epoch)?;
    // Neither what etcd held nor what its API told counts any more; running containers still have their ports.
    let told_nothing = former::without_their_word(have);
    preflight::errors(&diff::diff(want, &told_nothing))?;
    let left = former::without(want, &told_nothing);
    let mut diff = diff::diff(want, &left);
    let begins = schedule::begins_with(&diff, epoch);
    diff.hosts
        .retain(|name, host| host.facts.is_of(&want.cluster_id) || begins.contains(*name));
    Ok(schedule::restore(&diff, have, epoch))
}

/// The plan that gives nodes the images of a bundle and does nothing else: to whichever cluster they belong, if to any. `pods`
/// has what the containerd of each node has that told.
pub fn load(
    needed: &NeededImages,
    bundle: &BundledImages,
    have: &Actual,
    pods: &BTreeMap<NodeName, BTreeSet<String>>,
) -> Result<Plan, PreflightErrors> {
    let refused = needed.docker.iter().filter_map(|(name, docker)| {
        let docker = docker.iter().map(String::as_str);
        preflight::fits(bundle, name, have.up(name)?, docker)
    });
    PreflightErrors::unless_empty(refused.collect())?;
    Ok(schedule::load(needed, bundle, have, pods))
}

/// The plan that turns `have` into `want`; empty if nothing differs. The error names everything that prevents the
/// run, and then nothing is done at all. A component that must be put back is put back first, whatever else is wrong.
pub fn up(want: &Desired, have: &Actual) -> Result<Plan, PreflightErrors> {
    if let Some(plan) = schedule::put_back(want, have) {
        return Ok(plan);
    }
    let mut diff = diff::diff(want, have);
    preflight::errors(&diff)?;
    hold::hold_back(&mut diff);
    Ok(schedule::up(&diff))
}
