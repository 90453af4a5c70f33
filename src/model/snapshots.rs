//! How snapshots of etcd are taken and kept. Pure.

use serde::{Deserialize, Serialize};

/// Recurring snapshots of etcd, as the config asks for them. Times in seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotPolicy {
    /// How often each node with etcd takes one.
    pub interval: u64,
    /// Which are kept.
    pub retention: Retention,
    /// How long taking one may take.
    pub timeout: u64,
    /// Names have no colons.
    pub safe_timestamp: bool,
}

/// Which recurring snapshots a node keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Retention {
    /// So many of the newest.
    Newest(u32),
    /// Those that are younger, in seconds.
    Younger(u64),
}

/// The program that takes them on a node: this one. It must be linked statically, because the container that it runs
/// in has no libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentProgram {
    /// Where the file is on the machine that rke-operator runs on.
    pub file: std::path::PathBuf,
    /// Its SHA-256, in hex.
    pub sha256: String,
    /// The architecture of nodes that can run it, as the kernel names it.
    pub architecture: String,
}

impl AgentProgram {
    /// Its place in the container: another program is another definition of the container.
    pub fn place(&self) -> String {
        format!(
            "/rke-operator-{}",
            self.sha256.get(..12).unwrap_or_default()
        )
    }
}
