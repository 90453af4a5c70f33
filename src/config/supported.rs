//! What this release can build today. The rest of the crate works for any number of nodes; only
//! the command line and the operator refuse, and both ask here. Pure.

use super::{
    intent::Intent,
    problem::{Problem, Problems},
};

/// Refuses an intent that is valid and that this release cannot build yet.
pub fn supported_today(intent: &Intent) -> Result<(), Problems> {
    match intent.nodes.len() {
        0 | 1 => Ok(()),
        several => Err(Problem::new(
            "nodes",
            format!("{several} nodes: more than one is not supported yet"),
        )
        .hint("this release builds clusters of one node that has all three roles")
        .into()),
    }
}
