//! What a plan says next to its steps: something to know, or something that waits, and why. Pure.

use serde::{Deserialize, Serialize};

use super::{Held, Left, Target, Waits};
use crate::model::NodeName;

/// Said in a plan, next to its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// About what, if about one thing.
    pub target: Option<Target>,
    /// What, and why.
    pub text: String,
    /// It tells of something that is wanted and is not done for now: with it a node is not as the
    /// config says, even where nothing else is left to do.
    pub is_left: bool,
    /// What is left as it is for now, and why, as data.
    pub held: Option<Left>,
}

impl Note {
    /// Something to know.
    pub(super) const fn of(target: Option<Target>, text: String) -> Self {
        Self {
            target,
            text,
            is_left: false,
            held: None,
        }
    }

    /// What is left on any node of the config: it is known, and done, later in the same run.
    pub(super) const fn left_anywhere(text: String, why: Held) -> Self {
        let what = Waits::All;
        Self {
            target: None,
            text,
            is_left: true,
            held: Some(Left { what, why }),
        }
    }

    /// Something of a node that is left as it is for now.
    pub(super) fn left(node: &NodeName, text: String, what: Waits, why: Held) -> Self {
        Self {
            is_left: true,
            ..Self::kept(node, text, what, why)
        }
    }

    /// The same of what no node of the config lacks.
    pub(super) fn kept(node: &NodeName, text: String, what: Waits, why: Held) -> Self {
        Self {
            target: Some(Target::Host(node.clone())),
            text,
            is_left: false,
            held: Some(Left { what, why }),
        }
    }
}
