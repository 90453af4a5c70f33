//! The clusters that are made: of one node, and of several.

use std::fmt;

/// The nodes of a cluster by name, with their roles. The first has everything that another joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape(pub(crate) &'static [(&'static str, &'static [&'static str])]);

const CENTRAL: &[&str] = &["controlplane", "etcd"];
const WORKER: &[&str] = &["worker"];

/// A node with everything.
const ONE: Shape = Shape(&[("n1", &["controlplane", "etcd", "worker"])]);
/// Three control planes with etcd, and two workers.
const FIVE: Shape = Shape(&[
    ("n1", CENTRAL),
    ("n2", CENTRAL),
    ("n3", CENTRAL),
    ("n4", WORKER),
    ("n5", WORKER),
]);

impl Shape {
    /// The one with that many nodes.
    pub(crate) fn of(nodes: &str) -> Option<Self> {
        match nodes {
            "1" => Some(ONE),
            "5" => Some(FIVE),
            _ => None,
        }
    }

    pub(crate) fn is_one(self) -> bool {
        self == ONE
    }

    pub(crate) fn is_control_plane(self, node: &str) -> bool {
        let mut nodes = self.0.iter();
        nodes.any(|(name, roles)| *name == node && roles.contains(&"controlplane"))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self
            .0
            .iter()
            .map(|(name, roles)| format!("{name} ({})", roles.join(", ")));
        to.write_str(&nodes.collect::<Vec<_>>().join(", "))
    }
}
