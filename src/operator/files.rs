//! Configs in files, for `spec.configPath`: beneath `--config-root`, which links may not leave. Looked at again and again,
//! because a mounted ConfigMap or a Git checkout tells of no change. No key is ever read from a file.

use std::{
    borrow::Cow,
    collections::HashMap,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cap_std::{ambient_authority, fs::Dir};
use sha2::{Digest as _, Sha256};

use crate::{
    api::conditions::Reason,
    error::{ErrorClass, Explain},
    model::Secret,
};

/// How often the files are looked at.
pub(super) const POLL: Duration = Duration::from_secs(10);

/// The largest config that is read: as much as a Secret holds.
const LARGEST: u64 = 1024 * 1024;

/// How long a file system may take.
const ANSWER: Duration = Duration::from_secs(10);

/// What a file, a Secret or a ConfigMap held: SHA-256.
pub(super) type ContentDigest = [u8; 32];

/// The files that are configs.
pub(super) struct Files {
    root: Option<PathBuf>,
    /// What was in them when they were looked at last; `None`: they could not be read.
    seen: Mutex<HashMap<String, Option<ContentDigest>>>,
}

impl Files {
    pub(super) fn new(root: Option<PathBuf>) -> Self {
        Self {
            root,
            seen: Mutex::default(),
        }
    }

    /// The text of a file, and its digest.
    pub(super) async fn read(
        &self,
        path: &str,
    ) -> Result<(Secret<String>, ContentDigest), FileError> {
        let read = self.content(path).await;
        let digest = read.as_ref().ok().map(|(_, digest)| *digest);
        self.note(path, digest);
        read
    }

    /// True where the file holds something else than that by now. One that is gone ends no run.
    pub(super) fn is_newer(&self, path: &str, read: &ContentDigest) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(seen.get(path), Some(Some(now)) if now != read)
    }

    /// Reads these files again and returns those that changed; forgets all other files.
    pub(super) async fn changed(&self, paths: &[String]) -> Vec<String> {
        let mut changed = Vec::new();
        for path in paths {
            let digest = self.content(path).await.ok().map(|(_, digest)| digest);
            if self.note(path, digest) {
                changed.push(path.clone());
            }
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|path, _| paths.contains(path));
        changed
    }

    /// True where something else was known before.
    fn note(&self, path: &str, digest: Option<ContentDigest>) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let before = seen.insert(path.to_owned(), digest);
        before.is_some_and(|before| before != digest)
    }

    async fn content(&self, path: &str) -> Result<(Secret<String>, ContentDigest), FileError> {
        let root = self.root.clone().ok_or(FileError::NoRoot)?;
        let name: Arc<str> = path.into();
        let read = tokio::task::spawn_blocking({
            let name = Arc::clone(&name);
            move || read(&root, &name)
        });
        let failed = |problem| FileError::Unread {
            path: path.to_owned(),
            problem,
        };
        match tokio::time::timeout(ANSWER, read).await {
            Ok(Ok(read)) => read.map_err(failed),
            Ok(Err(_)) => Err(failed(Problem::Io(io::Error::other("the reader ended")))),
            Err(_) => Err(failed(Problem::Io(io::ErrorKind::TimedOut.into()))),
        }
    }
}

/// Reads a file. Links are followed only within `root`, even if one changes at the same time.
fn read(root: &Path, path: &str) -> Result<(Secret<String>, ContentDigest), Problem> {
    let root = Dir::open_ambient_dir(root, ambient_authority())?;
    // A pipe would wait for its other end.
    if !root.metadata(path)?.is_file() {
        return Err(Problem::NotAFile);
    }
    let mut bytes = Vec::new();
    root.open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Problem::TooLarge);
    }
    let digest = Sha256::digest(&bytes).into();
    let text = String::from_utf8(bytes).map_err(|_| Problem::NotText)?;
    Ok((Secret::new(text), digest))
}

/// Why there is no config in a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("`spec.configPath` names a file, and this operator reads none")]
    NoRoot,
    #[error("cannot read the file `{path}` of `--config-root`: {problem}")]
    Unread { path: String, problem: Problem },
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("it is no regular file")]
    NotAFile,
    #[error("it has more than {LARGEST} bytes")]
    TooLarge,
    #[error("it is not UTF-8")]
    NotText,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl FileError {
    /// The reason in the conditions.
    pub(super) const fn invalid(&self) -> Reason {
        match self {
            Self::NoRoot => Reason::InvalidConfig,
            Self::Unread { .. } => Reason::SourceMissing,
        }
    }
}

impl Explain for FileError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Unread {
                problem: Problem::Io(error),
                ..
            } if is_passing(error.kind()) => ErrorClass::Transient,
            Self::NoRoot | Self::Unread { .. } => ErrorClass::User,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::NoRoot => vec![
                "start it with `--config-root DIR`, or put the config into the object or a Secret"
                    .into(),
            ],
            Self::Unread { .. } => vec![
                "the path is relative to `--config-root` and leads to a file beneath it; links are followed as long \
                 as they are relative and stay there"
                    .into(),
            ],
        }
    }
}

/// What a file system may do better the next time.
const fn is_passing(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::TimedOut
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ResourceBusy
            | io::ErrorKind::StaleNetworkFileHandle
            | io::ErrorKind::Other
    )
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn files(root: &Path) -> Files {
        Files::new(Some(root.to_owned()))
    }

    /// A mounted ConfigMap consists of relative links; nothing else leads anywhere.
    #[tokio::test]
    async fn links_inside_are_followed_and_nothing_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("..data_1")).unwrap();
        fs::write(root.join("..data_1/a.yml"), "inside").unwrap();
        symlink("..data_1", root.join("..data")).unwrap();
        symlink("..data/a.yml", root.join("a.yml")).unwrap();
        fs::write(folder.path().join("key"), "outside").unwrap();
        symlink("../key", root.join("up.yml")).unwrap();
        symlink(folder.path().join("key"), root.join("absolute.yml")).unwrap();
        symlink("..", root.join("parent")).unwrap();
        symlink("round", root.join("round")).unwrap();
        let files = files(&root);
        let (text, digest) = files.read("a.yml").await.unwrap();
        assert_eq!(text.expose(), "inside");
        assert!(!files.is_newer("a.yml", &digest));
        let outside = folder.path().join("key");
        for path in [
            "up.yml",
            "absolute.yml",
            "parent/key",
            "../key",
            "./../key",
            outside.to_str().unwrap(),
            "round",
            "",
            ".",
            "missing.yml",
        ] {
            let error = files.read(path).await.unwrap_err();
            assert_eq!(error.class(), ErrorClass::User, "{path}: {error:?}");
            assert!(!format!("{error:?}").contains("outside\""), "{error:?}");
        }
    }

    #[tokio::test]
    async fn only_text_of_a_bounded_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let size = usize::try_from(LARGEST).unwrap();
        fs::write(root.join("full"), "x".repeat(size)).unwrap();
        fs::write(root.join("large"), "x".repeat(size + 1)).unwrap();
        fs::write(root.join("binary"), [0xff, 0xfe]).unwrap();
        let files = files(root);
        assert_eq!(files.read("full").await.unwrap().0.expose().len(), size);
        let error = files.read("large").await.unwrap_err().to_string();
        assert!(error.contains("more than 1048576 bytes"), "{error}");
        let error = files.read("binary").await.unwrap_err().to_string();
        assert!(error.contains("UTF-8"), "{error}");
        let none = Files::new(None).read("full").await.unwrap_err();
        assert!(matches!(none, FileError::NoRoot), "{none}");
    }

    /// News is what was looked at before and is different now; what a pass reads counts as looked at.
    #[tokio::test]
    async fn a_file_that_changes_is_news_once() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        let paths = ["a".to_owned()];
        assert!(files.read("a").await.is_err());
        fs::write(folder.path().join("a"), "1").unwrap();
        assert_eq!(files.changed(&paths).await, paths);
        let (_, digest) = files.read("a").await.unwrap();
        assert!(files.changed(&paths).await.is_empty());
        fs::write(folder.path().join("a"), "2").unwrap();
        assert_eq!(files.changed(&paths).await, paths);
        assert!(files.is_newer("a", &digest));
        fs::remove_file(folder.path().join("a")).unwrap();
        assert_eq!(files.changed(&paths).await, paths);
        assert!(!files.is_newer("a", &digest), "no run ends for it");
        assert!(files.changed(&[]).await.is_empty());
        assert!(files.changed(&paths).await.is_empty(), "it was forgotten");
    }
}
