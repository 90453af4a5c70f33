//! How snapshots of etcd are taken and kept. Pure.

use serde::{Deserialize, Serialize};

use super::Secret;

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

/// A bucket that snapshots are copied to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bucket {
    /// The server's URL: `http` or `https`, host, and a port where it is another one.
    pub endpoint: String,
    /// The region; `None`: the one that the endpoint's name has.
    pub region: Option<String>,
    /// Its name.
    pub name: String,
    /// The folder in it, without slashes around it.
    pub folder: Option<String>,
    /// Authorities of the server's certificate, in PEM, besides those that the image of the program has.
    pub ca: Option<String>,
    /// Who asks; `None`: the role of the machine.
    pub keys: Option<AccessKeys>,
}

/// The keys of an account of S3. They are written into one file: that of the program on a node, which is root's alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessKeys {
    /// Its name.
    #[serde(serialize_with = "exposed")]
    pub access: Secret<String>,
    /// Its secret.
    #[serde(serialize_with = "exposed")]
    pub secret: Secret<String>,
}

fn exposed<S: serde::Serializer>(secret: &Secret<String>, to: S) -> Result<S::Ok, S::Error> {
    secret.expose().serialize(to)
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
