//! Nodes that a person named, and what for. Pure.

use std::collections::BTreeSet;

use super::NodeName;

/// The nodes that a person named, by what may be done about them for that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Given up: the cluster goes on without them (`--lose`).
    pub lose: BTreeSet<NodeName>,
    /// Cleaned although another Kubernetes is on them (`--clean`).
    pub clean: BTreeSet<NodeName>,
}
