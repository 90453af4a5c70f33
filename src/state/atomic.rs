//! Files that are complete or absent. Blocking; for [`super::file`] and [`super::kubeconfig`] only.
//!
//! A file is written under a temporary name in the same folder, with mode 0600, synced, and then
//! renamed: a reader sees the old content or the new one. What a killed writer left is found by
//! its name ([`prune_leftovers`]).

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::model::Secret;

/// The end of the temporary files' names.
const TEMPORARY: &str = ".tmp";

/// Runs blocking file work. A panic in it is an error here.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

/// The content. `None` only when there is definitely nothing of that name in a directory that
/// is there: a missing directory and a link to nothing are errors.
pub(super) fn read(path: &Path) -> io::Result<Option<Secret<Vec<u8>>>> {
    let mut content = Vec::new();
    match File::open(path).and_then(|mut file| file.read_to_end(&mut content)) {
        Ok(_) => Ok(Some(Secret::new(content))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if fs::symlink_metadata(path).is_ok() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "it is a symbolic link to nothing",
                ));
            }
            fs::metadata(folder(path))?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Writes a file that must not be there yet; else `AlreadyExists`.
pub(super) fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let staged = stage(path, content)?;
    staged
        .persist_noclobber(path)
        .map_err(|error| error.error)?;
    sync(path)
}

/// Writes a file in the place of whatever is there. A symbolic link stays, its target changes.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    let staged = stage(&path, content)?;
    staged.persist(&path).map_err(|error| error.error)?;
    sync(&path)
}

/// Deletes a file; nothing there is success.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => sync(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The new content under its temporary name, on the disk. Deleted when dropped.
pub(super) fn stage(path: &Path, content: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix(&hidden(path))
        .suffix(TEMPORARY)
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(folder(path))?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Deletes what killed writers of this file left. Only for one who holds its [`Lock`].
pub(super) fn prune_leftovers(path: &Path) -> io::Result<()> {
    for left in leftovers(path)? {
        remove(&left)?;
    }
    Ok(())
}

/// What killed writers of this file left.
pub(super) fn leftovers(path: &Path) -> io::Result<Vec<PathBuf>> {
    let prefix = hidden(path);
    let mut left = Vec::new();
    for entry in fs::read_dir(folder(path))? {
        let entry = entry?;
        let is_left = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(&prefix) && name.ends_with(TEMPORARY));
        if is_left {
            left.push(entry.path());
        }
    }
    Ok(left)
}

/// The right to change a file, held by an `flock` that ends with the process at the latest.
#[derive(Debug)]
pub(super) struct Lock {
    /// Open as long as the lock is held.
    _file: File,
    path: PathBuf,
}

impl Drop for Lock {
    /// Removes the lock file while it is still locked: no other process can hold the lock of this
    /// name in the meantime, and a process that waits sees that the name no longer refers to this file.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes the lock; `None` while another process holds it.
pub(super) fn try_lock(path: &Path) -> io::Result<Option<Lock>> {
    let place = folder(path).join(format!("{}lock", hidden(path)));
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&place)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let ours = file.metadata()?;
    match fs::metadata(&place) {
        Ok(now) if (now.dev(), now.ino()) == (ours.dev(), ours.ino()) => Ok(Some(Lock {
            _file: file,
            path: place,
        })),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Syncs the directory, so that the change of a name outlives a power cut.
fn sync(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// `.cluster.rke-operator.json.`: the prefix of rke-operator's hidden files next to `path`.
fn hidden(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!(".{name}.")
}
