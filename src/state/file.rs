//! The state in a file next to `cluster.yml`: mode 0600, atomic, synced, compare-and-swap.
//!
//! The revision is the content's SHA-256. A save compares and writes under a lock file, so that
//! of two runs from one folder one gets a conflict. Anything but "no such file" is an error.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use super::{
    ClusterState, Loaded, StateError, Store,
    atomic::{self, blocking},
    codec,
};
use crate::model::Secret;

/// How long another process may hold the lock: it writes one small file.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state in a file.
#[derive(Clone, Debug)]
pub struct FileStore {
    path: PathBuf,
}

impl FileStore {
    /// In that file.
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Next to a config: `cluster.yml` → `cluster.rke-operator.json`.
    pub fn next_to(config: &Path) -> Self {
        Self::new(config.with_extension("rke-operator.json"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn io(&self, source: io::Error) -> StateError {
        StateError::Io {
            place: self.place(),
            source: Box::new(source),
        }
    }

    fn conflict(&self) -> StateError {
        StateError::Conflict {
            place: self.place(),
        }
    }

    fn unreadable(&self, why: impl Into<String>) -> StateError {
        StateError::Unreadable {
            place: self.place(),
            why: why.into(),
            newer: false,
        }
    }

    async fn content(&self) -> io::Result<Option<Secret<Vec<u8>>>> {
        let path = self.path.clone();
        blocking(move || atomic::read(&path)).await
    }

    async fn read(&self) -> Result<Loaded, StateError> {
        let content = match self.content().await {
            Ok(Some(content)) => content,
            Ok(None) => return Ok(Loaded::Absent),
            Err(error) => return Err(self.io(error)),
        };
        if content.expose().is_empty() {
            return Err(self.unreadable("the file is empty"));
        }
        let text = std::str::from_utf8(content.expose())
            .map_err(|_| self.unreadable("the file is not text"))?;
        let saved = codec::decode(text).map_err(|why| StateError::Unreadable {
            place: self.place(),
            why,
            newer: codec::is_newer(text),
        })?;
        Ok(Loaded::Present {
            saved: Box::new(saved),
            revision: revision(&content),
        })
    }

    async fn write(&self, saved: &ClusterState, expected: Option<&str>) -> Result<(), StateError> {
        let lock = self.lock().await.map_err(|error| self.io(error))?;
        let path = self.path.clone();
        let content = codec::encode(saved);
        let expected = expected.map(str::to_owned);
        let written = blocking(move || {
            let _held = lock;
            atomic::prune_leftovers(&path)?;
            let bytes = content.expose().as_bytes();
            match expected {
                None => match atomic::create(&path, bytes) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                    result => result.map(|()| true),
                },
                Some(expected) => match atomic::read(&path)? {
                    Some(now) if revision(&now) == expected => {
                        atomic::replace(&path, bytes).map(|()| true)
                    }
                    Some(_) | None => Ok(false),
                },
            }
        })
        .await
        .map_err(|error| self.io(error))?;
        if written {
            Ok(())
        } else {
            Err(self.conflict())
        }
    }

    async fn erase(&self) -> Result<(), StateError> {
        let absent = self.content().await.is_ok_and(|content| content.is_none());
        let path = self.path.clone();
        let left = blocking(move || atomic::leftovers(&path)).await;
        // A writer that was killed before its first rename left the keys without a state.
        if absent && left.is_ok_and(|left| left.is_empty()) {
            return Ok(());
        }
        let lock = self.lock().await.map_err(|error| self.io(error))?;
        let path = self.path.clone();
        blocking(move || {
            let _held = lock;
            atomic::prune_leftovers(&path)?;
            atomic::remove(&path)
        })
        .await
        .map_err(|error| self.io(error))
    }

    async fn lock(&self) -> io::Result<atomic::Lock> {
        let begun = Instant::now();
        loop {
            let path = self.path.clone();
            if let Some(lock) = blocking(move || atomic::try_lock(&path)).await? {
                return Ok(lock);
            }
            if begun.elapsed() >= PATIENCE {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "another process holds its lock",
                ));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn revision(content: &Secret<Vec<u8>>) -> String {
    hex::encode(Sha256::digest(content.expose()))
}

impl Store for FileStore {
    fn load(&self) -> BoxFuture<'_, Result<Loaded, StateError>> {
        self.read().boxed()
    }

    fn save<'a>(
        &'a self,
        saved: &'a ClusterState,
        revision: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        self.write(saved, revision).boxed()
    }

    fn delete(&self) -> BoxFuture<'_, Result<(), StateError>> {
        self.erase().boxed()
    }

    fn place(&self) -> String {
        format!("`{}`", self.path.display())
    }
}
