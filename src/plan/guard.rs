//! What must still hold just before a step, judged on facts that were read a moment ago. Pure.

use super::Guard;
use crate::{actual::ContainerFact, desired::label};

/// `Ok` when the guard holds on a host whose claim container is `claim` (`None`: there is
/// none). The error says what was found instead; then the run ends and plans again.
pub fn holds(guard: &Guard, claim: Option<&ContainerFact>) -> Result<(), String> {
    match guard {
        Guard::ClaimIs(id) => {
            let Some(claim) = claim else {
                return Err(format!("the node is no longer claimed by cluster `{id}`"));
            };
            match claim.labels.get(label::CLUSTER_ID) {
                Some(found) if *found == id.0 => Ok(()),
                Some(found) => Err(format!(
                    "the node is now claimed by cluster `{found}`, not by `{id}`"
                )),
                None => Err(format!(
                    "the node's claim bears no cluster id any more, not `{id}`"
                )),
            }
        }
    }
}
