//! Takes one snapshot of the member next to this program: streams it, verifies its hash, and puts it into the folder.

use std::{
    fs::File,
    io::{self, Read, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use super::{
    archive,
    folder::Folder,
    record::{Cause, FORMAT, Meta},
    settings::Settings,
};
use crate::{
    etcd::{Client, Described, EtcdError},
    host::HostError,
};

/// A member that is so many entries behind is no source for a backup: the others are.
const BEHIND: u64 = 5000;
/// etcd's SHA-256, behind its pages.
const HASH: u64 = 32;
/// The unit of etcd's database.
const PAGE: u64 = 512;
/// For what is small.
const ROOM: u64 = 16 << 20;

/// Why no snapshot was taken.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The member did not answer.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Its own certificate cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The member is not fit to be saved.
    #[error("etcd's member on this node {0}: the other members are saved")]
    Unfit(&'static str),
    /// Nothing is ever replaced.
    #[error("`{0}` already exists")]
    Taken(String),
    /// No room.
    #[error("{free} MiB are free for `{folder}`, and a snapshot may need {needed}")]
    Full {
        /// Where.
        folder: PathBuf,
        /// In MiB.
        free: u64,
        /// In MiB.
        needed: u64,
    },
    /// It took too long.
    #[error("etcd did not send all of its data within {0} s")]
    Slow(u64),
    /// The hash is another one.
    #[error("the data that etcd sent are damaged: their hash is another one")]
    Damaged,
}

/// A snapshot that is in the folder.
pub(super) struct Saved {
    pub(super) name: String,
    pub(super) meta: Meta,
    /// The database with its hash, until the folder that was worked in is cleared.
    pub(super) database: PathBuf,
}

/// What is to be taken.
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) cause: Cause,
    pub(super) now: Timestamp,
}

impl Asked {
    /// By the schedule: its name has the time.
    pub(super) fn scheduled(now: Timestamp, settings: &Settings) -> Self {
        Self {
            name: name(now, settings.policy.safe_timestamp),
            cause: Cause::Scheduled,
            now,
        }
    }
}

/// Takes one.
pub(super) async fn save(
    settings: &Settings,
    folder: &Folder,
    work: &Path,
    member: &Client,
    asked: Asked,
) -> Result<Saved, SaveError> {
    let Asked { name, cause, now } = asked;
    if folder.has(&name) {
        return Err(SaveError::Taken(name));
    }
    let described = member.describe().await?;
    fit(&described)?;
    room(folder, described.answer.status.db_size)?;
    let database = work.join("database");
    let before = member.count().await?;
    let limit = settings.policy.timeout;
    let streamed = stream(member, &database);
    let within = tokio::time::timeout(std::time::Duration::from_secs(limit), streamed);
    let bytes = within.await.map_err(|_| SaveError::Slow(limit))??;
    let after = member.count().await?;
    let whole = database.clone();
    let sha256 = blocking(move || hash(&whole)).await?;
    let meta = Meta {
        format: FORMAT,
        cluster_id: settings.cluster_id.clone(),
        cluster_name: settings.cluster_name.clone(),
        node: settings.node.clone(),
        member: described.answer.member.to_string(),
        etcd_cluster_id: format!("{:x}", described.answer.cluster),
        etcd_version: described.answer.status.version,
        kubernetes_version: settings.kubernetes_version.clone(),
        taken_at: now,
        cause,
        revision: before.revision,
        revision_after: after.revision,
        keys: before.keys,
        bytes,
        sha256: sha256.ok_or(SaveError::Damaged)?,
        operator: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let (zip, from, title, record) = (
        work.join("zip"),
        database.clone(),
        name.clone(),
        meta.clone(),
    );
    let to = folder.clone();
    blocking(move || {
        archive::write(private(&zip)?, &title, &from, &record)?;
        to.keep(&zip, &title)?;
        std::fs::remove_file(zip)
    })
    .await?;
    Ok(Saved {
        name,
        meta,
        database,
    })
}

/// RKE's name of a recurring snapshot.
fn name(now: Timestamp, safe: bool) -> String {
    let name = now.strftime("%Y-%m-%dT%H:%M:%SZ_etcd").to_string();
    if safe { name.replace(':', "-") } else { name }
}

fn fit(described: &Described) -> Result<(), SaveError> {
    if described.answer.status.is_learner {
        return Err(SaveError::Unfit("does not vote yet"));
    }
    if described.corrupt {
        return Err(SaveError::Unfit("has other data than the others"));
    }
    if described.behind > BEHIND {
        return Err(SaveError::Unfit("is far behind"));
    }
    Ok(())
}

/// As large as the database and half as much again, and its zip, which may be no smaller.
pub(super) fn room(folder: &Folder, database: u64) -> Result<(), SaveError> {
    let (free, needed) = (folder.free()?, database.saturating_mul(5) / 2 + ROOM);
    if free >= needed {
        return Ok(());
    }
    Err(SaveError::Full {
        folder: folder.path().to_owned(),
        free: free >> 20,
        needed: needed >> 20,
    })
}

async fn stream(member: &Client, database: &Path) -> Result<u64, SaveError> {
    let file = private(database)?;
    let mut to = tokio::io::BufWriter::with_capacity(1 << 20, tokio::fs::File::from_std(file));
    let bytes = member.snapshot(&mut to).await?;
    to.flush().await?;
    Ok(bytes)
}

/// A new file for root alone.
pub(super) fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// The hash behind the pages of a database; `None` where it is another one.
fn hash(path: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let Some(pages) = size.checked_sub(HASH).filter(|pages| pages % PAGE == 0) else {
        return Ok(None);
    };
    let mut hasher = Sha256::new();
    io::copy(&mut (&mut file).take(pages), &mut hasher)?;
    file.seek(SeekFrom::Start(pages))?;
    let mut written = [0; 32];
    file.read_exact(&mut written)?;
    let found: [u8; 32] = hasher.finalize().into();
    Ok((found == written).then(|| hex::encode(found)))
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_rke() {
        let now = "2026-11-28T09:05:07.5Z".parse().unwrap();
        assert_eq!(name(now, false), "2026-11-28T09:05:07Z_etcd");
        assert_eq!(name(now, true), "2026-11-28T09-05-07Z_etcd");
    }

    #[test]
    fn every_bit_of_the_data_and_of_the_hash_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let pages = [7_u8; 1024];
        let whole = [&pages[..], &Sha256::digest(pages)].concat();
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            hash(&path).unwrap()
        };
        assert_eq!(read(&whole), Some(hex::encode(Sha256::digest(pages))));
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&bytes), None, "{bit}");
        }
        for length in [0, 31, 32, 512, 1024, 1055] {
            let expected =
                (length == 32 && whole[..32] == Sha256::digest([])[..]).then(String::new);
            assert_eq!(read(&whole[..length]), expected, "{length}");
        }
    }
}
