#![expect(
    clippy::disallowed_methods,
    reason = "the cache is found through the environment"
)]
//! Where the lab keeps what it builds and what its labs consist of, outside the repository.
//!
//! Nothing in the cache is half done: what is built is made under another name and renamed.

use std::{
    env,
    fs::{self, File, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{LabError, host};

/// The lab's cache folder: `$XDG_CACHE_HOME/rke-operator-lab`.
pub(crate) fn root() -> PathBuf {
    let base = env::var("XDG_CACHE_HOME")
        .ok()
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from)
        .or_else(|| {
            env::var("HOME")
                .ok()
                .map(|home| Path::new(&home).join(".cache"))
        })
        .unwrap_or_else(|| PathBuf::from("/root/.cache"));
    base.join("rke-operator-lab")
}

/// The registry that images are taken from instead of being built, if `LAB_REGISTRY` names one.
pub(crate) fn source_registry() -> Option<String> {
    env::var("LAB_REGISTRY")
        .ok()
        .filter(|host| !host.is_empty())
}

/// `PATH` for what the lab runs.
pub(crate) fn path() -> String {
    host::path(&env::var("PATH").unwrap_or_default())
}

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String, LabError> {
    fs::read_to_string(path).map_err(LabError::file("cannot read", path))
}

/// Makes a folder and those above it.
pub(crate) fn make_dir(path: &Path) -> Result<(), LabError> {
    fs::create_dir_all(path).map_err(LabError::file("cannot make", path))
}

/// Writes a file so that it is never seen half written, by several at once too: the last one's
/// content stays.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), LabError> {
    let told = LabError::file("cannot write", path);
    let written = || {
        let mut new = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(path.parent().unwrap_or(Path::new("/")))?;
        new.write_all(content.as_ref())?;
        new.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    written().map_err(told)
}

/// Removes a folder with all that is in it; that it is not there is fine.
pub(crate) fn remove_dir(path: &Path) -> Result<(), LabError> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(LabError::File {
            what: "cannot remove",
            path: path.to_owned(),
            source: e,
        }),
        _ => Ok(()),
    }
}

/// Waits until nobody else holds the lock of that name, and holds it until the value is dropped
/// (or the process ends, however it does).
pub(crate) fn lock(name: &str) -> Result<File, LabError> {
    lock_in(&root().join("locks"), name)
}

/// As [`lock`], with the lock's file in that folder.
pub(crate) fn lock_in(dir: &Path, name: &str) -> Result<File, LabError> {
    make_dir(dir)?;
    let path = dir.join(format!("{name}.lock"));
    let file = File::create(&path).map_err(LabError::file("cannot write", &path))?;
    file.lock().map_err(LabError::file("cannot lock", &path))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{read, write};

    #[test]
    fn writers_of_one_file_do_not_meet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer.sha256");
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let path = path.clone();
                thread::spawn(move || (0..200).try_for_each(|_| write(&path, "digest")))
            })
            .collect();
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
        assert_eq!(read(&path).unwrap(), "digest");
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing is left");
    }
}
