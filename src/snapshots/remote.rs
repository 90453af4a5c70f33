//! Runs this program once on a node, for what a person asks for there: it is the nodes that have the files, and that reach
//! the bucket.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use serde::de::DeserializeOwned;

use super::{
    asked::{Answer, Taken},
    once::WantedSnapshot,
    state::{DOCUMENT, HeldState},
};
use crate::{
    error::{ErrorClass, Explain, Passing},
    etcd::snapshot::SnapshotName,
    host::{Host, HostError, OwnProgram},
    model::{AgentProgram, Bucket, ClusterId, Secret, path, printable},
};

/// The commands of this program for it.
const FETCH: &str = "snapshot-fetch";
const TAKE: &str = "snapshot-take";
const VERIFY: &str = "snapshot-verify";
const DELETE: &str = "snapshot-delete";
const STATE: &str = "snapshot-state";
/// Where the bucket is written in the container.
const BUCKET: &str = "/rke-operator-bucket.json";
/// Of [`TAKE`]: why.
const CAUSE: &str = "--cause";
/// The same: one that is there may be the same one.
const AGAIN: &str = "--again";
/// Gigabytes come over a slow line.
pub const TAKES: Duration = Duration::from_secs(60 * 60);

/// Why it did not.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The node.
    #[error(transparent)]
    Host(#[from] HostError),
    /// This program cannot be read, or not be run there.
    #[error("{0}")]
    Program(String),
    /// Its words.
    #[error("{0}")]
    Said(String),
}

impl Explain for RemoteError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Host(error) => error.class(),
            Self::Program(_) => ErrorClass::User,
            Self::Said(_) => ErrorClass::Host,
        }
    }

    fn passing(&self) -> Option<Passing> {
        match self {
            Self::Host(error) => error.passing(),
            Self::Program(_) | Self::Said(_) => None,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Host(error) => error.hints(),
            Self::Program(_) => vec![
                "use a program that `make dist` built, or copy the file from the bucket into `/opt/rke/etcd-snapshots` of the \
                 node"
                .into(),
            ],
            Self::Said(_) => Vec::new(),
        }
    }
}

/// How this program is run on a node.
pub struct OnNode<'a> {
    /// The node.
    pub host: &'a Host,
    /// Whose it is.
    pub id: &'a ClusterId,
    /// The image that has etcd's programs; it must be there.
    pub image: &'a str,
    /// This program.
    pub agent: &'a AgentProgram,
}

impl OnNode<'_> {
    /// Copies a snapshot from the bucket into the folder of the node.
    pub async fn fetch(&self, bucket: &Bucket, name: &SnapshotName) -> Result<(), RemoteError> {
        let words = [FETCH, name.as_str()].map(str::to_owned);
        let folder = [format!("{0}:{0}", path::SNAPSHOTS)];
        self.run(words.into(), Some(bucket), folder.into(), TAKES)
            .await
            .map(drop)
    }

    /// Takes a snapshot of the node's member, and copies it to the bucket where one is given. The node must have been
    /// set up to take recurring ones: this is done with their settings.
    pub async fn take(&self, wanted: WantedSnapshot<'_>) -> Result<Taken, RemoteError> {
        let WantedSnapshot {
            name,
            cause,
            bucket,
            limit,
            again,
        } = wanted;
        let words = [TAKE, name.as_str(), CAUSE, cause.name()];
        let words = words.into_iter().chain(again.then_some(AGAIN));
        let words = words.map(str::to_owned).collect();
        let log = self.run(words, bucket, with_settings(), limit).await?;
        answered(TAKE, &log)
    }

    /// Looks once more into a snapshot in the folder of the node. The node must have been set up, as for [`Self::take`].
    pub async fn verify(&self, name: &SnapshotName) -> Result<Answer, RemoteError> {
        self.ask(VERIFY, name).await
    }

    /// Deletes a snapshot in the folder of the node. The node must have been set up, as for [`Self::take`].
    pub async fn delete(&self, name: &SnapshotName) -> Result<Answer, RemoteError> {
        self.ask(DELETE, name).await
    }

    /// The state that a plain snapshot in the folder of the node has, with its document where it can be read.
    pub async fn state(
        &self,
        name: &SnapshotName,
    ) -> Result<(HeldState, Option<Secret<Vec<u8>>>), RemoteError> {
        let words = [STATE, name.as_str()].map(str::to_owned);
        let folder = [format!("{0}:{0}", path::SNAPSHOTS)];
        let (log, document) = self
            .run_for(words.into(), None, folder.into(), Some(DOCUMENT), TAKES)
            .await?;
        Ok((answered(STATE, &log)?, document))
    }

    /// What it answers, as one line of JSON.
    async fn ask<T: DeserializeOwned>(
        &self,
        command: &str,
        name: &SnapshotName,
    ) -> Result<T, RemoteError> {
        let words = [command, name.as_str()].map(str::to_owned);
        let log = self.run(words.into(), None, with_settings(), TAKES).await?;
        answered(command, &log)
    }

    /// What it wrote to its log.
    async fn run(
        &self,
        arguments: Vec<String>,
        bucket: Option<&Bucket>,
        binds: Vec<String>,
        limit: Duration,
    ) -> Result<String, RemoteError> {
        let (log, _) = self.run_for(arguments, bucket, binds, None, limit).await?;
        Ok(log)
    }

    /// The same, with a file that it wrote into its container, where it did.
    async fn run_for(
        &self,
        mut arguments: Vec<String>,
        bucket: Option<&Bucket>,
        binds: Vec<String>,
        answer: Option<&str>,
        limit: Duration,
    ) -> Result<(String, Option<Secret<Vec<u8>>>), RemoteError> {
        let program = tokio::fs::read(&self.agent.file).await;
        let unreadable = |error| RemoteError::Program(format!("cannot read this program: {error}"));
        let mut files = BTreeMap::new();
        if let Some(bucket) = bucket {
            arguments.extend(["--bucket", BUCKET].map(str::to_owned));
            // Plain data: writing it cannot fail.
            let text = serde_json::to_vec(bucket).unwrap_or_default();
            files.insert(BUCKET.to_owned(), Secret::new(text));
        }
        let own = OwnProgram {
            tmpfs: Some(path::PROOF),
            image: self.image,
            program: program.map_err(unreadable)?,
            place: &self.agent.place(),
            arguments,
            files,
            binds,
            answer,
            limit,
        };
        let (output, answer) = self.host.run_own_program(own, self.id).await?;
        if output.status == 0 {
            return Ok((output.log, answer));
        }
        let mut lines = output.log.lines();
        let line = lines.clone().find_map(|line| line.strip_prefix("error: "));
        let line = line.or_else(|| lines.next_back()).unwrap_or_default();
        Err(RemoteError::Said(printable(line).into_owned()))
    }
}

/// The folder of snapshots, and what the program that takes recurring ones has.
fn with_settings() -> Vec<String> {
    vec![
        format!("{0}:{0}", path::SNAPSHOTS),
        format!("{0}:{0}:ro", path::KUBERNETES),
    ]
}

fn answered<T: DeserializeOwned>(command: &str, log: &str) -> Result<T, RemoteError> {
    let answer = log.lines().find_map(|line| serde_json::from_str(line).ok());
    answer.ok_or_else(|| RemoteError::Said(format!("`{command}` did not answer")))
}
