//! What a removal asks for. Pure.

use jiff::Timestamp;

use crate::{api::LastSnapshot, model::Named};

/// What a removal asks for.
#[derive(Clone, Debug)]
pub struct RemovalRequest {
    /// The nodes that a person named.
    pub named: Named,
    /// Whether a snapshot of etcd is saved before.
    pub last_snapshot: LastSnapshot,
    /// The time, for its name.
    pub now: Timestamp,
}
