//! In which order differences are mended: together when fresh, one queue a host when alive. Pure.
//! [`up()`] and [`remove()`] are tables of contents; a [`Part`] has the stages and the notes of one place in the order.

use self::part::Part;
use super::{Note, Plan, diff::Diff};

mod addons;
mod back;
mod charts;
mod claim;
mod containerd;
mod flags;
mod former;
mod health;
mod hosts;
mod join;
mod kept;
mod last_snapshot;
mod leave;
mod leavers;
mod load;
mod lost;
mod nodes;
mod part;
mod prepare;
mod prune;
mod reboot;
mod remove;
mod restore;
mod roles;
mod roll;
mod skew;
mod snapshot_before;
mod snapshots;
mod start;
mod state;
mod take_back;
mod up;
mod warnings;

pub use remove::{remove, remove_as};

pub(super) use self::{
    back::put_back,
    claim::remembered,
    load::load,
    reboot::reboot,
    restore::{begins_with, restore},
    take_back::take_back,
    up::up,
};

/// What a person should know about nodes before anything is done.
pub(super) fn warnings(diff: &Diff<'_>) -> Vec<Note> {
    warnings::nodes(diff).notes
}

/// The parts in order, without the stages that have nothing to do.
fn plan(parts: impl IntoIterator<Item = Part>) -> Plan {
    let mut plan = Plan::default();
    for Part { stages, notes } in parts {
        let stages = stages.into_iter().filter(|stage| !stage.is_empty());
        plan.stages.extend(stages);
        plan.notes.extend(notes);
    }
    plan
}
