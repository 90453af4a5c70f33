//! What a config may read when a person runs us: their files. The operator's counterpart is
//! [`crate::config::SecretSources`].
#![expect(
    clippy::disallowed_methods,
    reason = "the command line is where files and the environment come in"
)]

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::config::{Refusal, Sources, SshKey};

/// The key that RKE takes when a config names none.
const DEFAULT_KEY: &str = "~/.ssh/id_rsa";

/// The longest private key file that is read; an RSA key of 16384 bits has 13 kB.
const MAX_KEY_BYTES: usize = 64 * 1024;

/// Reads a file's text, but no more than so many bytes and one: a device or a file of some
/// gigabytes must not fill the memory. The one byte more tells the caller that it is too long.
pub(super) fn read_at_most(limit: usize, file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    File::open(file)?.take(most).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        // Cut off, perhaps within a character.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|_| {
        let text = "the file is not UTF-8 text";
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// Private keys out of files.
#[derive(Clone, Debug)]
pub(super) struct FileSources {
    home: Option<PathBuf>,
}

impl Default for FileSources {
    fn default() -> Self {
        Self::from_env()
    }
}

impl FileSources {
    /// `~` stands for `home`.
    pub(super) fn new(home: Option<PathBuf>) -> Self {
        Self { home }
    }

    /// `~` stands for `$HOME`.
    pub(super) fn from_env() -> Self {
        Self::new(
            std::env::var("HOME")
                .ok()
                .filter(|home| !home.is_empty())
                .map(PathBuf::from),
        )
    }

    fn expand(&self, path: &str) -> Result<PathBuf, Refusal> {
        match path.strip_prefix("~/") {
            None => Ok(PathBuf::from(path)),
            Some(rest) => match &self.home {
                Some(home) => Ok(home.join(rest)),
                None => Err(Refusal {
                    message: "`~` has no meaning: the variable `HOME` is not set".to_owned(),
                    detail: Some(path.to_owned()),
                    hint: Some("write the whole path".to_owned()),
                }),
            },
        }
    }

    fn read(&self, path: &str) -> Result<SshKey, Refusal> {
        let file = self.expand(path)?;
        match read_at_most(MAX_KEY_BYTES, &file) {
            Ok(pem) => Ok(SshKey {
                pem: pem.into(),
                source: path.to_owned(),
            }),
            Err(error) => Err(refusal(path, &error)),
        }
    }
}

/// What is said for the errors that people meet, and the cure.
const REFUSALS: [(io::ErrorKind, &str, Option<&str>); 4] = [
    (
        io::ErrorKind::NotFound,
        "the private key file does not exist",
        Some("relative paths start at the current directory; `~/` is your home directory"),
    ),
    (
        io::ErrorKind::PermissionDenied,
        "the private key file may not be read",
        None,
    ),
    (
        io::ErrorKind::IsADirectory,
        "the private key file is a directory",
        None,
    ),
    (
        io::ErrorKind::InvalidData,
        "this is not a private key",
        Some("a private key begins with `-----BEGIN … PRIVATE KEY-----`"),
    ),
];

fn refusal(path: &str, error: &io::Error) -> Refusal {
    let (message, hint) = REFUSALS
        .iter()
        .find(|(kind, _, _)| *kind == error.kind())
        .map_or(("the private key file cannot be read", None), |row| {
            (row.1, row.2)
        });
    Refusal {
        message: message.to_owned(),
        detail: Some(format!("{path}: {error}")),
        hint: hint.map(str::to_owned),
    }
}

impl Sources for FileSources {
    fn key_at(&self, path: &str) -> Result<SshKey, Refusal> {
        self.read(path)
    }

    fn default_key_path(&self) -> &'static str {
        "ssh_key_path"
    }

    fn default_key(&self) -> Result<SshKey, Refusal> {
        self.read(DEFAULT_KEY).map_err(|refusal| Refusal {
            message: format!(
                "not set, and RKE's default `{DEFAULT_KEY}` will not do: {}",
                refusal.message
            ),
            hint: Some("write `ssh_key_path: PATH`, e.g. `~/.ssh/id_ed25519`".to_owned()),
            ..refusal
        })
    }

    fn allows_inline_key(&self) -> Result<(), Refusal> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_the_home_directory() {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(home.path().join(".ssh")).expect("a directory");
        std::fs::write(home.path().join(".ssh/id_rsa"), "default").expect("a file");
        std::fs::write(home.path().join("other"), "other").expect("a file");
        let sources = FileSources::new(Some(home.path().to_owned()));

        let key = sources.default_key().expect("the default key");
        assert_eq!(key.pem.expose(), "default");
        assert_eq!(key.source, "~/.ssh/id_rsa");
        let key = sources.key_at("~/other").expect("another key");
        assert_eq!(
            (key.pem.expose().as_str(), key.source.as_str()),
            ("other", "~/other")
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::write(home.path().join("binary"), [0xff, 0xfe]).expect("a file");
        let sources = FileSources::new(Some(home.path().to_owned()));

        let refused = |path: &str| sources.key_at(path).expect_err(path).message;
        assert_eq!(refused("~/none"), "the private key file does not exist");
        assert_eq!(refused("~/"), "the private key file is a directory");
        assert_eq!(refused("~/binary"), "this is not a private key");

        let refusal = sources.default_key().expect_err("no default key");
        assert_eq!(
            refusal.message,
            "not set, and RKE's default `~/.ssh/id_rsa` will not do: the private key file does not exist"
        );
        let homeless = FileSources::new(None).key_at("~/key").expect_err("no home");
        assert_eq!(
            homeless.message,
            "`~` has no meaning: the variable `HOME` is not set"
        );
    }
}
