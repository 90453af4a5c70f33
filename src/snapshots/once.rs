//! Saves one snapshot on a node: by this program where it takes recurring snapshots there, else by etcdctl.

use std::{borrow::Cow, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

use super::{OnNode, PORT, RemoteError, record::Cause, record::Grade, report};
use crate::{
    config::Intent,
    error::{ErrorClass, Explain, Passing},
    etcd::snapshot::{self, Found, Snapshot, SnapshotError, SnapshotName},
    host::Host,
    model::{AgentProgram, Bucket, ClusterId, Component},
};

/// What snapshots are taken with.
#[derive(Clone, Debug)]
pub struct SnapshotTools {
    /// This program, where it can be run on nodes.
    pub agent: Option<AgentProgram>,
    /// The bucket of the config.
    pub bucket: Option<Bucket>,
}

impl SnapshotTools {
    /// Those of a config.
    pub fn of(intent: &Intent) -> Self {
        Self {
            agent: intent.agent.clone(),
            bucket: intent.services.snapshot_bucket.as_deref().cloned(),
        }
    }
}

/// Which one is wanted.
#[derive(Clone, Copy, Debug)]
pub struct WantedSnapshot<'a> {
    /// Its name.
    pub name: &'a SnapshotName,
    /// Why.
    pub cause: Cause,
    /// The bucket that a copy goes to.
    pub bucket: Option<&'a Bucket>,
    /// How long this program may take; etcdctl has its own limits, which are shorter.
    pub limit: Duration,
    /// A request for it was cut off: one of that name and cause that is there is the same one.
    pub again: bool,
}

/// A snapshot on a node.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SavedOnce {
    /// The file.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of etcd's data in it.
    pub sha256: String,
    /// How far it was verified; none if etcdctl saved it, which compares the hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grade: Option<Grade>,
    /// Why it came no further.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The bucket that has a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copied: Option<String>,
    /// Why it was not copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_copied: Option<String>,
}

/// Why it was not saved.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    /// This program did not, on the node.
    #[error("no snapshot was saved on node `{node}`")]
    Program {
        /// Which.
        node: String,
        /// Why.
        #[source]
        source: RemoteError,
    },
    /// etcdctl did not.
    #[error(transparent)]
    Etcdctl(#[from] SnapshotError),
}

impl Explain for OnceError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Program { source, .. } => source.class(),
            Self::Etcdctl(source) => source.class(),
        }
    }

    fn passing(&self) -> Option<Passing> {
        match self {
            Self::Program { source, .. } => source.passing(),
            Self::Etcdctl(source) => source.passing(),
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Program { source, .. } => source.hints(),
            Self::Etcdctl(source) => source.hints(),
        }
    }
}

/// The image of the container that takes recurring snapshots of that cluster on a node; `None` without such a container.
/// The image of the config may be missing on the node: before an upgrade, and while its member of etcd is not replaced.
pub async fn recurring_image(host: &Host, id: &ClusterId) -> Option<String> {
    let stream = host.local_port(PORT).await.ok()?;
    report(stream).await.ok()?;
    let container = host.container(Component::Snapshots.container()).await;
    let container = container.ok()?.filter(|container| container.is_of(id))?;
    Some(container.image)
}

/// Saves it. One of that name is never replaced.
pub async fn save_once(
    host: &Host,
    id: &ClusterId,
    tools: Option<&SnapshotTools>,
    wanted: WantedSnapshot<'_>,
) -> Result<SavedOnce, OnceError> {
    if let Some(agent) = tools.and_then(|tools| tools.agent.as_ref())
        && let Some(image) = recurring_image(host, id).await
    {
        let on_node = OnNode {
            host,
            id,
            image: &image,
            agent,
        };
        let taken = Box::pin(on_node.take(wanted)).await;
        let taken = taken.map_err(|source| OnceError::Program {
            node: host.name.0.clone(),
            source,
        })?;
        return Ok(SavedOnce {
            path: taken.path,
            bytes: taken.bytes,
            sha256: taken.sha256,
            grade: Some(taken.grade),
            why: taken.why,
            copied: taken.copied,
            not_copied: taken.not_copied,
        });
    }
    let saved = match snapshot::save(host, id, wanted.name).await {
        Err(error @ SnapshotError::Taken { .. }) if wanted.again => {
            there_already(host, id, wanted.name).await?.ok_or(error)?
        }
        saved => saved?,
    };
    Ok(SavedOnce {
        path: saved.path,
        bytes: saved.bytes,
        sha256: saved.sha256,
        grade: None,
        why: None,
        copied: None,
        not_copied: wanted.bucket.map(|_| {
            "nothing on this node takes snapshots that can be copied: `up` sets that up".to_owned()
        }),
    })
}

/// The whole snapshot that is there under that name.
async fn there_already(
    host: &Host,
    id: &ClusterId,
    name: &SnapshotName,
) -> Result<Option<Snapshot>, SnapshotError> {
    let Found::Whole { sha256, .. } = snapshot::look(host, id, name).await? else {
        return Ok(None);
    };
    let files = snapshot::list(host, id).await?;
    let bytes = files.get(name.as_str()).copied();
    Ok(bytes.map(|bytes| Snapshot {
        path: snapshot::place(name),
        bytes,
        sha256,
    }))
}
