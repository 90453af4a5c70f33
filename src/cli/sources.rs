//! What a config may read when a person runs us: their files. The operator's counterpart is
//! [`crate::config::SecretSources`].
#![expect(
    clippy::disallowed_methods,
    reason = "the command line is where files and the environment come in"
)]

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;

use super::{manifests, passphrase::Passphrases};
use crate::{
    config::{
        Certificate, DefaultKey, Refusal, Sources, SshConfig, SshHost, SshKey, SshQuery,
        has_passphrase, needs_agent,
    },
    error::with_causes,
};

/// The keys that are looked for when a config names none: RKE's own, then ssh's others, in its order.
const DEFAULT_KEYS: [&str; 5] = [
    "~/.ssh/id_rsa",
    "~/.ssh/id_ecdsa",
    "~/.ssh/id_ecdsa_sk",
    "~/.ssh/id_ed25519",
    "~/.ssh/id_ed25519_sk",
];

/// The first of them that is there, or RKE's.
pub(super) fn default_key() -> &'static str {
    let sources = FileSources::from_env();
    let [first, ..] = DEFAULT_KEYS;
    let mut keys = DEFAULT_KEYS.into_iter();
    keys.find(|path| !sources.lacks_key(path)).unwrap_or(first)
}

/// The longest private key file that is read; an RSA key of 16384 bits has 13 kB.
const MAX_KEY_BYTES: usize = 64 * 1024;

/// Reads a file's text, but no more than so many bytes and one: a device or a file of some
/// gigabytes must not fill the memory. The one byte more tells the caller that it is too long.
pub(super) fn read_at_most(limit: usize, file: &Path) -> io::Result<String> {
    text_at_most(limit, File::open(file)?)
}

/// The same of what is open already.
pub(super) fn text_at_most(limit: usize, from: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    from.take(most).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        // Cut off, perhaps within a character.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|_| {
        let text = "the file is not UTF-8 text";
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// Private keys out of files, and the agent and the name of the person who runs us.
#[derive(Clone, Debug)]
pub(super) struct FileSources {
    home: Option<PathBuf>,
    /// Where relative paths begin.
    folder: PathBuf,
    agent: Option<PathBuf>,
    /// A flag says that it is used.
    wants_agent: bool,
    /// The config is only checked: it may name a key that is missing or has a passphrase.
    only_validates: bool,
    user: Option<String>,
    passphrases: Arc<Passphrases>,
    ssh_config: Arc<SshConfig>,
}

impl Default for FileSources {
    fn default() -> Self {
        Self::from_env()
    }
}

impl FileSources {
    /// `~` stands for `$HOME`.
    pub(super) fn from_env() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            home: variable("HOME").map(PathBuf::from),
            folder: PathBuf::new(),
            agent: variable("SSH_AUTH_SOCK").map(PathBuf::from),
            wants_agent: false,
            only_validates: false,
            user: variable("USER").or_else(|| variable("LOGNAME")),
            passphrases: Arc::default(),
            ssh_config: Arc::default(),
        }
    }

    /// For this config.
    pub(super) fn next_to(self, config: &Path) -> Self {
        let folder = config.parent().unwrap_or(Path::new("")).to_owned();
        Self { folder, ..self }
    }

    /// With the agent, whatever the config says.
    pub(super) fn with_agent(self, wants_agent: bool) -> Self {
        Self {
            wants_agent,
            ..self
        }
    }

    /// For a check of the config, after which nothing logs in.
    pub(super) fn for_validation(self) -> Self {
        Self {
            only_validates: true,
            ..self
        }
    }

    /// With what OpenSSH's configuration says.
    pub(super) fn with_ssh_config(self, ssh_config: SshConfig) -> Self {
        Self {
            ssh_config: Arc::new(ssh_config),
            ..self
        }
    }

    /// With keys whose passphrases were typed.
    pub(super) fn with_passphrases(self, passphrases: Arc<Passphrases>) -> Self {
        Self {
            passphrases,
            ..self
        }
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

    /// The file of a key or of its certificate: relative to the config, or else to the current directory.
    fn key_file(&self, path: &str) -> Result<PathBuf, Refusal> {
        let plain = self.expand(path)?;
        let adjacent = self.folder.join(&plain);
        Ok(if !adjacent.exists() && plain.exists() {
            plain
        } else {
            adjacent
        })
    }

    fn read(&self, path: &str) -> Result<SshKey, (io::ErrorKind, Refusal)> {
        let file = self
            .key_file(path)
            .map_err(|refusal| (io::ErrorKind::NotFound, refusal))?;
        match read_at_most(MAX_KEY_BYTES, &file) {
            Ok(pem) => Ok(SshKey {
                pem: self
                    .passphrases
                    .unlocked(&file)
                    .unwrap_or_else(|| pem.into()),
                source: path.to_owned(),
            }),
            Err(error) => Err((error.kind(), refusal(path, &error))),
        }
    }
}

/// The message and the cure for each common error.
const REFUSALS: [(io::ErrorKind, &str, Option<&str>); 4] = [
    (
        io::ErrorKind::NotFound,
        "the private key file does not exist",
        Some("relative paths begin at the folder of the config; `~/` is your home directory"),
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
        detail: Some(format!("{path}: {}", with_causes(error))),
        hint: hint.map(str::to_owned),
    }
}

impl Sources for FileSources {
    fn manifest_at(&self, place: &str) -> Result<String, Refusal> {
        manifests::read(place, &self.folder)
    }

    fn is_elsewhere(&self, path: &str) -> bool {
        let plain = self.expand(path).ok();
        let read = self.key_file(path).ok();
        plain.is_some_and(|plain| {
            plain.is_relative()
                && read.as_ref() == Some(&plain)
                && self.folder.join(&plain) != plain
        })
    }

    fn key_at(&self, path: &str) -> Result<SshKey, Refusal> {
        self.read(path).map_err(|(_, refusal)| refusal)
    }

    fn ssh_host(&self, query: &SshQuery) -> Option<SshHost> {
        self.ssh_config.host(query).cloned()
    }

    fn only_validates(&self) -> bool {
        self.only_validates
    }

    fn lacks_key(&self, path: &str) -> bool {
        match self.key_file(path) {
            Ok(file) => !file.exists(),
            Err(_) => true,
        }
    }

    fn others_may_read(&self, path: &str) -> bool {
        use std::os::unix::fs::MetadataExt as _;

        let file = self.key_file(path).ok();
        let found = file.and_then(|file| std::fs::metadata(file).ok());
        let user = rustix::process::geteuid().as_raw();
        found.is_some_and(|found| found.uid() == user && found.mode() & 0o077 != 0)
    }

    fn wants_passphrase(&self, key: &SshKey) {
        if let Ok(file) = self.key_file(&key.source) {
            self.passphrases.wants(file, &key.source, &key.pem);
        }
    }

    /// As ssh does for an agent's keys: `FILE.pub`, or `FILE` itself where that is the public half.
    fn public_key_at(&self, path: &str) -> Option<String> {
        let is_public = |text: &String| {
            ["ssh-", "ecdsa-", "sk-"]
                .iter()
                .any(|start| text.starts_with(start))
        };
        let mut texts = [format!("{path}.pub"), path.to_owned()]
            .into_iter()
            .filter_map(|path| {
                let file = self.key_file(&path).ok()?;
                read_at_most(MAX_KEY_BYTES, &file).ok()
            });
        texts.find(is_public)
    }

    fn default_key_path(&self) -> &'static str {
        "ssh_key_path"
    }

    /// As ssh would find one, but one: the first that can be used as it is, else the agent.
    fn default_key(&self) -> Result<DefaultKey, Refusal> {
        let mut first = None;
        for path in DEFAULT_KEYS {
            match self.read(path) {
                Ok(key) if !has_passphrase(&key.pem) && !needs_agent(&key.pem) => {
                    return Ok(DefaultKey::Key(key));
                }
                Ok(key) => first = first.or(Some(Ok(DefaultKey::Key(key)))),
                Err((io::ErrorKind::NotFound, _)) => {}
                Err((_, refusal)) => first = first.or(Some(Err(refusal))),
            }
        }
        if let Some(socket) = &self.agent {
            return Ok(DefaultKey::Agent(socket.clone()));
        }
        // Without an agent, the first existing key file is the result, usable or not: its problem is then reported.
        first.unwrap_or_else(|| {
            Err(Refusal {
                message: format!(
                    "not set; there is no `{}`, and no SSH agent (`SSH_AUTH_SOCK`)",
                    DEFAULT_KEYS.join("`, no `")
                ),
                detail: None,
                hint: Some(
                    "write `ssh_key_path: PATH`, or start an SSH agent: `eval $(ssh-agent)`, then \
                     `ssh-add`"
                        .to_owned(),
                ),
            })
        })
    }

    fn certificate_at(&self, path: &str) -> Result<Certificate, Refusal> {
        let file = self.key_file(path)?;
        match read_at_most(MAX_KEY_BYTES, &file) {
            Ok(text) => Ok(Certificate {
                text,
                source: path.to_owned(),
            }),
            Err(error) => Err(Refusal {
                message: "the certificate file cannot be read".to_owned(),
                detail: Some(format!("{path}: {}", with_causes(&error))),
                hint: None,
            }),
        }
    }

    fn certificate_next_to(&self, path: &str) -> Option<Result<Certificate, Refusal>> {
        let adjacent = format!("{path}-cert.pub");
        let file = self.key_file(&adjacent).ok()?;
        // A broken link is an error.
        file.symlink_metadata().ok()?;
        Some(self.certificate_at(&adjacent))
    }

    fn file_of(&self, source: &str) -> Option<PathBuf> {
        self.key_file(source).ok()
    }

    fn now(&self) -> Option<Timestamp> {
        Some(Timestamp::now())
    }

    fn cannot_decrypt(&self, key: &SshKey) -> bool {
        let file = self.key_file(&key.source);
        file.is_ok_and(|file| self.passphrases.is_unreadable(&file))
    }

    fn authority_at(&self, path: &str) -> Result<String, Refusal> {
        let file = self.folder.join(self.expand(path)?);
        read_at_most(MAX_KEY_BYTES, &file).map_err(|error| Refusal {
            message: "the file of the authority cannot be read".to_owned(),
            detail: Some(format!("{}: {}", file.display(), with_causes(&error))),
            hint: Some("relative paths begin at the folder of the config".to_owned()),
        })
    }

    fn wants_agent(&self) -> bool {
        self.wants_agent
    }

    fn agent(&self) -> Result<Option<PathBuf>, Refusal> {
        Ok(self.agent.clone())
    }

    fn default_user(&self) -> Result<String, Refusal> {
        self.user.clone().ok_or_else(|| Refusal {
            message: "a node needs a user to log in as".to_owned(),
            detail: None,
            hint: Some("the current user is unknown: the variable `USER` is not set".to_owned()),
        })
    }

    fn allows_inline_key(&self) -> Result<(), Refusal> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_home(home: Option<&Path>) -> FileSources {
        FileSources {
            folder: PathBuf::new(),
            home: home.map(Path::to_owned),
            agent: None,
            wants_agent: false,
            only_validates: false,
            user: None,
            passphrases: Arc::default(),
            ssh_config: Arc::default(),
        }
    }

    fn key(sources: &FileSources) -> SshKey {
        match sources.default_key().expect("a default") {
            DefaultKey::Key(key) => key,
            DefaultKey::Agent(socket) => panic!("an agent at {}", socket.display()),
        }
    }

    #[test]
    fn a_tilde_is_the_home_directory() {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::write(home.path().join("other"), "other").expect("a file");
        let sources = with_home(Some(home.path()));
        let key = sources.key_at("~/other").expect("another key");
        assert_eq!(
            (key.pem.expose().as_str(), key.source.as_str()),
            ("other", "~/other")
        );
    }

    /// RKE's default first; one with a passphrase is for the agent; the agent only without a key.
    #[test]
    fn a_key_is_looked_for_where_none_is_named() {
        const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n";
        let home = tempfile::tempdir().expect("a directory");
        let ssh = home.path().join(".ssh");
        std::fs::create_dir(&ssh).expect("a directory");
        let mut sources = with_home(Some(home.path()));
        let agent = PathBuf::from("/run/agent");
        let refusal = sources.default_key().expect_err("nothing there");
        assert!(
            refusal
                .message
                .starts_with("not set; there is no `~/.ssh/id_rsa`")
        );

        sources.agent = Some(agent.clone());
        assert_eq!(sources.default_key(), Ok(DefaultKey::Agent(agent.clone())));
        std::fs::write(ssh.join("id_rsa"), ENCRYPTED).expect("a file");
        assert_eq!(sources.default_key(), Ok(DefaultKey::Agent(agent)));
        std::fs::write(ssh.join("id_ed25519"), "new").expect("a file");
        assert_eq!(key(&sources).source, "~/.ssh/id_ed25519");
        std::fs::write(ssh.join("id_rsa"), "default").expect("a file");
        assert_eq!(key(&sources).source, "~/.ssh/id_rsa");

        // Without an agent, the key with a passphrase is the result.
        std::fs::remove_file(ssh.join("id_ed25519")).expect("removed");
        std::fs::write(ssh.join("id_rsa"), ENCRYPTED).expect("a file");
        sources.agent = None;
        assert_eq!(key(&sources).source, "~/.ssh/id_rsa");
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let home = tempfile::tempdir().expect("a directory");
        std::fs::write(home.path().join("binary"), [0xff, 0xfe]).expect("a file");
        let sources = with_home(Some(home.path()));

        let refused = |path: &str| sources.key_at(path).expect_err(path).message;
        assert_eq!(refused("~/none"), "the private key file does not exist");
        assert_eq!(refused("~/"), "the private key file is a directory");
        assert_eq!(refused("~/binary"), "this is not a private key");

        let homeless = with_home(None).key_at("~/key").expect_err("no home");
        assert_eq!(
            homeless.message,
            "`~` has no meaning: the variable `HOME` is not set"
        );
    }
}
