//! In which order differences are mended: together when fresh, one queue a host when alive. Pure.
//! [`up()`] and [`remove()`] are tables of contents.

use super::{Note, Plan, Stage};

mod addons;
mod charts;
mod claim;
mod containerd;
mod flags;
mod health;
mod hosts;
mod join;
mod leave;
mod leavers;
mod lost;
mod nodes;
mod prepare;
mod prune;
mod remove;
mod roles;
mod roll;
mod skew;
mod start;
mod state;
mod up;
mod warnings;

pub use remove::{remove, remove_named};

pub(super) use self::{claim::remembered, up::up};

/// Leaves out the stages that have nothing to do.
fn plan(stages: impl IntoIterator<Item = Stage>, notes: Vec<Note>) -> Plan {
    let stages = stages.into_iter().filter(|stage| !stage.is_empty());
    Plan {
        stages: stages.collect(),
        notes,
    }
}
