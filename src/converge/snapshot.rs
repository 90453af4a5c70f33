//! A snapshot that a person asks for: on every node with etcd, one node after the other.

use std::collections::BTreeMap;

use super::{RestoreError, maintenance::members};
use crate::{
    config::Intent,
    environment::Environment,
    etcd::snapshot::SnapshotName,
    facts::Unreachable,
    model::{Bucket, NodeName},
    snapshots::{SavedOnce, SnapshotTools, TAKES, WantedSnapshot, record::Cause},
    state::ClusterState,
};

/// Which one.
#[derive(Clone, Copy, Debug)]
pub struct AskedSnapshot<'a> {
    /// Its name.
    pub name: &'a SnapshotName,
    /// Where a copy goes.
    pub bucket: Option<&'a Bucket>,
    /// A request for it was cut off: what is there of that name is the same one.
    pub again: bool,
}

/// The result, by node.
#[derive(Debug, Default)]
pub struct SavedSnapshots {
    /// The nodes that have it.
    pub saved: BTreeMap<NodeName, SavedOnce>,
    /// The others, and why.
    pub failed: BTreeMap<NodeName, Unreachable>,
}

/// Saves it; calls `told` with each node's result as it comes. The next snapshot deletes what is half done when this is
/// dropped.
pub async fn save_snapshots(
    asked: AskedSnapshot<'_>,
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
    told: impl Fn(&NodeName, &Result<SavedOnce, Unreachable>),
) -> Result<SavedSnapshots, RestoreError> {
    let AskedSnapshot {
        name,
        bucket,
        again,
    } = asked;
    let (session, nodes) = members(intent, saved, environment).await?;
    let tools = SnapshotTools::of(intent);
    let mut done = SavedSnapshots::default();
    for node in nodes {
        // One copy is enough.
        let copied = done.saved.values().any(|saved| saved.copied.is_some());
        let wanted = WantedSnapshot {
            name,
            cause: Cause::Asked,
            bucket: bucket.filter(|_| !copied),
            limit: TAKES,
            again,
        };
        let files = session.files();
        let one = files.save(&node, &saved.cluster_id, &tools, wanted).await;
        told(&node, &one);
        match one {
            Ok(saved) => drop(done.saved.insert(node, saved)),
            Err(why) => drop(done.failed.insert(node, why)),
        }
    }
    Ok(done)
}
