//! Copies a snapshot from the bucket into the folder of a node.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    bucket::{BucketError, Store},
    folder::free,
    save::private,
};
use crate::{
    error::{ErrorClass, Explain},
    etcd::snapshot::SnapshotName,
    model::Bucket,
};

/// Where it is written until it is whole. What is there is of a run that was ended.
const PART: &str = ".rke-operator-fetch";
/// For what is small.
const ROOM: u64 = 16 << 20;

/// Why a snapshot was not copied from the bucket.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The bucket.
    #[error("{}", .0.line())]
    Bucket(BucketError),
    /// The folder.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is none.
    #[error("the bucket {bucket} has no snapshot `{name}`")]
    NotThere {
        /// The bucket, for people.
        bucket: String,
        /// Its name.
        name: String,
    },
    /// No room.
    #[error("{free} MiB are free for `{folder}`, and the snapshot needs {needed}")]
    Full {
        /// Where.
        folder: PathBuf,
        /// In MiB.
        free: u64,
        /// In MiB.
        needed: u64,
    },
}

impl Explain for FetchError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NotThere { .. } => ErrorClass::User,
            Self::Bucket(_) | Self::Io(_) | Self::Full { .. } => ErrorClass::Host,
        }
    }
}

/// As `NAME.zip`, or as `NAME` where the bucket has a plain file. Nothing that is there is replaced: the file may have
/// come meanwhile.
pub async fn fetch(bucket: &Bucket, name: &SnapshotName, folder: &Path) -> Result<(), FetchError> {
    let store = Store::open(bucket).map_err(FetchError::Bucket)?;
    let objects = store.list().await.map_err(FetchError::Bucket)?;
    let name = name.as_str();
    let candidates = [format!("{name}.zip"), name.to_owned()];
    let found = candidates.iter().find_map(|file| {
        let object = objects
            .iter()
            .find(|it| it.location.filename() == Some(file.as_str()));
        Some((file, object?.size))
    });
    let Some((file, bytes)) = found else {
        return Err(FetchError::NotThere {
            bucket: store.place().to_owned(),
            name: name.to_owned(),
        });
    };
    fs::create_dir_all(folder)?;
    let free = free(folder)?;
    if free < bytes + ROOM {
        return Err(FetchError::Full {
            folder: folder.to_owned(),
            free: free >> 20,
            needed: (bytes + ROOM) >> 20,
        });
    }
    let part = folder.join(PART);
    gone(&part)?;
    let fetched = store.fetch(file, private(&part)?).await;
    let kept = fetched.map_err(FetchError::Bucket).and_then(|()| {
        match fs::hard_link(&part, folder.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
            Ok(()) | Err(_) => Ok(fs::File::open(folder)?.sync_all()?),
        }
    });
    gone(&part)?;
    kept
}

fn gone(part: &Path) -> io::Result<()> {
    match fs::remove_file(part) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
