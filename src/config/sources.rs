//! What a config may read besides itself depends on who runs it (invariant 12): the command line
//! gives files, the operator gives the Secret that the `Cluster` names and nothing else. Pure:
//! the implementation that reads files is in `cli`.

use std::path::PathBuf;

use jiff::Timestamp;

use super::{Certificate, SshHost, SshQuery};
use crate::model::Secret;

/// A private key and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshKey {
    /// The text, in any format that OpenSSH writes.
    pub pem: Secret<String>,
    /// For messages and the inventory: a path as written, `ssh_key`, or a Secret's name.
    pub source: String,
}

/// What nodes log in with that name nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultKey {
    /// A key.
    Key(SshKey),
    /// The SSH agent at this socket.
    Agent(PathBuf),
}

/// Why a source gives nothing. `message` and `hint` are safe for status, `detail` is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Lower-case fragment without values.
    pub message: String,
    /// The path, and what the system said.
    pub detail: Option<String>,
    /// The cure.
    pub hint: Option<String>,
}

/// What a config may read.
pub trait Sources {
    /// The key that `ssh_key_path` names.
    fn key_at(&self, path: &str) -> Result<SshKey, Refusal>;

    /// Whether a path of a key or a certificate leads to a file only from the current directory, and not from where the
    /// config is.
    fn is_elsewhere(&self, _path: &str) -> bool {
        false
    }

    /// Where the default key is set, for messages: a path of the config or of the object.
    fn default_key_path(&self) -> &'static str;

    /// What nodes that name no key log in with.
    fn default_key(&self) -> Result<DefaultKey, Refusal>;

    /// The certificate that `ssh_cert_path` names.
    fn certificate_at(&self, path: &str) -> Result<Certificate, Refusal>;

    /// The certificate next to the key that a path names (`FILE-cert.pub`), where there is one.
    fn certificate_next_to(&self, _path: &str) -> Option<Result<Certificate, Refusal>> {
        None
    }

    /// The file that the path of a key or a certificate leads to, for commands in hints; `None`: a source is no file.
    fn file_of(&self, _source: &str) -> Option<PathBuf> {
        None
    }

    /// When certificates must be valid, where that is checked.
    fn now(&self) -> Option<Timestamp> {
        None
    }

    /// The socket of the SSH agent; `None` where there is none.
    fn agent(&self) -> Result<Option<PathBuf>, Refusal>;

    /// Whether a person wants the agent, whatever the config says.
    fn wants_agent(&self) -> bool {
        false
    }

    /// Who logs in to nodes that name no user.
    fn default_user(&self) -> Result<String, Refusal>;

    /// What the configuration of OpenSSH's client says about a machine; `None`: nothing.
    fn ssh_host(&self, _query: &SshQuery) -> Option<SshHost> {
        None
    }

    /// The public key next to the private key that `ssh_key_path` names; `None` if there is none.
    fn public_key_at(&self, _path: &str) -> Option<String> {
        None
    }

    /// The manifests that `addons_include` names: of a file or a URL.
    fn manifest_at(&self, _place: &str) -> Result<String, Refusal> {
        Err(Refusal {
            message: "a `Cluster` object cannot name a file or a URL".to_owned(),
            detail: None,
            hint: Some("write the manifests themselves into `addons`".to_owned()),
        })
    }

    /// The certificate of an authority that `ca_path` of a registry names.
    fn authority_at(&self, _path: &str) -> Result<String, Refusal> {
        Err(Refusal {
            message: "a `Cluster` object cannot name a file".to_owned(),
            detail: None,
            hint: Some("write the certificate itself into `ca`".to_owned()),
        })
    }

    /// Whether a key may stand in the config itself (`ssh_key`).
    fn allows_inline_key(&self) -> Result<(), Refusal>;

    /// Whether the config is only checked, and nothing logs in: a key that is missing or has a passphrase is then a
    /// warning.
    fn only_validates(&self) -> bool {
        false
    }

    /// Whether there is no file at the path of a key.
    fn lacks_key(&self, _path: &str) -> bool {
        false
    }

    /// The key of a file that would log in has a passphrase: a person may be asked for it, and the config be read again.
    fn wants_passphrase(&self, _key: &SshKey) {}

    /// True for a key in a file of this user that other users of this machine may read: ssh does not use it.
    fn others_may_read(&self, _path: &str) -> bool {
        false
    }

    /// Whether a person told the passphrase of this key, and the key cannot be decrypted here whatever it is.
    fn cannot_decrypt(&self, _key: &SshKey) -> bool {
        false
    }
}

/// The operator's: one key out of one Secret for every node, no files, no keys in the object.
#[derive(Clone, Debug)]
pub struct SecretSources {
    key: SshKey,
}

impl SecretSources {
    /// With the key that `ssh.keySecretRef` leads to; `secret` is the Secret's name.
    pub fn new(secret: impl Into<String>, key: Secret<String>) -> Self {
        Self {
            key: SshKey {
                pem: key,
                source: secret.into(),
            },
        }
    }
}

impl Sources for SecretSources {
    fn key_at(&self, _path: &str) -> Result<SshKey, Refusal> {
        Err(Refusal {
            message: "a `Cluster` object cannot name a file".to_owned(),
            detail: None,
            hint: Some(
                "leave `ssh_key_path` out and name a Secret in `spec.ssh.keySecretRef`".to_owned(),
            ),
        })
    }

    fn default_key_path(&self) -> &'static str {
        "spec.ssh.keySecretRef"
    }

    fn default_key(&self) -> Result<DefaultKey, Refusal> {
        Ok(DefaultKey::Key(self.key.clone()))
    }

    fn certificate_at(&self, _path: &str) -> Result<Certificate, Refusal> {
        Err(Refusal {
            message: "a `Cluster` object cannot name a file".to_owned(),
            detail: None,
            hint: Some("write the certificate itself into `ssh_cert`".to_owned()),
        })
    }

    fn agent(&self) -> Result<Option<PathBuf>, Refusal> {
        Err(Refusal {
            message: "the operator has no SSH agent".to_owned(),
            detail: None,
            hint: Some(
                "remove it: the key in the Secret of `spec.ssh.keySecretRef` logs in".to_owned(),
            ),
        })
    }

    fn default_user(&self) -> Result<String, Refusal> {
        Err(Refusal {
            message: "a node needs a user to log in as".to_owned(),
            detail: None,
            hint: None,
        })
    }

    fn allows_inline_key(&self) -> Result<(), Refusal> {
        Err(Refusal {
            message: "a private key has no place in a `Cluster` object".to_owned(),
            detail: None,
            hint: Some(
                "put the key into a Secret and name it in `spec.ssh.keySecretRef`".to_owned(),
            ),
        })
    }
}
