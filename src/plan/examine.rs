//! Nodes as they are before anything is planned: all that prevents `up`, and all that is worth knowing of them, also where
//! something prevents it. Pure.

use super::{Note, PreflightError, diff, preflight, schedule};
use crate::{desired::Desired, facts::Actual};

/// What is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examination {
    /// Everything that prevents `up`, as [`super::up`] says it.
    pub errors: Vec<PreflightError>,
    /// What its plan would say of nodes before its first step.
    pub notes: Vec<Note>,
}

/// Examines the nodes that answered.
pub fn examine(want: &Desired, have: &Actual) -> Examination {
    let diff = diff::diff(want, have);
    let errors = preflight::errors(&diff).err();
    Examination {
        errors: errors.map_or_else(Vec::new, |found| found.errors),
        notes: schedule::warnings(&diff),
    }
}
