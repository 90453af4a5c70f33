//! What a login proves itself with: a private key, its certificate, or the keys of an SSH agent.

use std::{path::Path, sync::Arc, time::Duration};

use russh::{
    AgentAuthError,
    client::{self, AuthResult},
    keys::{
        Certificate, Error as KeysError, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey,
        agent::{AgentIdentity, client::AgentClient},
        decode_secret_key,
    },
};
use tokio::net::UnixStream;
use zeroize::Zeroizing;

use super::{
    error::{KeyProblem, Tried},
    local_signer::LocalSigner,
    ssh::HANDSHAKE,
};
use crate::{
    config::{Agent, Credential},
    model::Secret,
};

/// sshd may look up names and ask services meanwhile (PAM, LDAP), and gives 120 s itself (`LoginGraceTime`); an agent
/// may ask a person.
const PATIENCE: Duration = Duration::from_secs(60);

/// sshd hangs up after this many keys by default (`MaxAuthTries`).
const TRIES: usize = 6;

impl Tried {
    /// Nothing yet.
    pub(super) fn of(identity: &Identity) -> Self {
        let untried = match identity {
            Identity::Key(key, _) => {
                vec![key.public_key().fingerprint(HashAlg::Sha256).to_string()]
            }
            Identity::Agent(_, all) => all.iter().map(shown).collect(),
        };
        Self {
            keys: Vec::new(),
            untried,
        }
    }

    fn next(&mut self) {
        if !self.untried.is_empty() {
            let key = self.untried.remove(0);
            tracing::debug!(key, "trying a key");
            self.keys.push(key);
        }
    }
}

fn shown(identity: &AgentIdentity) -> String {
    let public = identity.public_key();
    public.fingerprint(HashAlg::Sha256).to_string()
}

/// Ready for a login.
pub(super) enum Identity {
    /// A private key, and its certificate.
    Key(Box<PrivateKey>, Option<Box<Certificate>>),
    /// An agent, and what it has.
    Agent(AgentClient<UnixStream>, Vec<AgentIdentity>),
}

/// Why a login was not tried to its end.
pub(super) enum LoginError {
    /// The key or the agent.
    Key(KeyProblem),
    /// The connection.
    Ssh(russh::Error),
}

impl Identity {
    /// Reads a key, or asks an agent what it has. Nothing is dialled for a key that is none.
    pub(super) async fn of(credential: &Credential) -> Result<Self, KeyProblem> {
        match credential {
            Credential::Key(pem, certificate) => {
                let key = private_key(pem)?;
                let certificate = certificate.as_ref().map(|certificate| {
                    let parsed = certificate.text.trim().parse::<Certificate>();
                    parsed.map(Box::new).map_err(KeyProblem::Certificate)
                });
                Ok(Self::Key(Box::new(key), certificate.transpose()?))
            }
            Credential::Agent(Agent {
                socket,
                named,
                only_named,
            }) => {
                let asked = tokio::time::timeout(HANDSHAKE, ask(socket)).await;
                let failed =
                    |error| KeyProblem::Agent(socket.display().to_string(), Box::new(error));
                let silent = |_| failed(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
                let (agent, mut identities) = asked.map_err(silent)?.map_err(failed)?;
                if identities.is_empty() {
                    return Err(KeyProblem::AgentEmpty);
                }
                named_first(&mut identities, named, *only_named);
                if identities.is_empty() {
                    return Err(KeyProblem::AgentLacks);
                }
                Ok(Self::Agent(agent, identities))
            }
        }
    }

    /// How long a login may take.
    pub(super) const fn patience() -> Duration {
        PATIENCE
    }

    /// Tries what there is, one after the other, and tells what was tried.
    pub(super) async fn log_in<H: client::Handler>(
        self,
        handle: &mut client::Handle<H>,
        user: &str,
        tried: &mut Tried,
    ) -> Result<AuthResult, LoginError> {
        match self {
            Self::Key(key, certificate) => {
                tried.next();
                by_key(*key, certificate, handle, user).await
            }
            Self::Agent(agent, identities) => {
                by_agent(agent, identities, handle, user, tried).await
            }
        }
    }
}

/// As ssh does: the certificate first, and the key alone where sshd does not accept it, be it that it has expired.
async fn by_key<H: client::Handler>(
    key: PrivateKey,
    certificate: Option<Box<Certificate>>,
    handle: &mut client::Handle<H>,
    user: &str,
) -> Result<AuthResult, LoginError> {
    let hash = hash(handle, key.algorithm().is_rsa()).await?;
    if let Some(certificate) = certificate {
        let mut signer = LocalSigner(&key);
        let attempt = handle
            .authenticate_certificate_with(user, *certificate, hash, &mut signer)
            .await;
        let ended = attempt.map_err(|error| match error {
            AgentAuthError::Send(_) => LoginError::Ssh(russh::Error::SendError),
            AgentAuthError::Key(error) => LoginError::Key(KeyProblem::Format(Box::new(error))),
        })?;
        let is_refused = matches!(
            ended,
            AuthResult::Failure {
                partial_success: false,
                ..
            }
        );
        if !is_refused || handle.is_closed() {
            return Ok(ended);
        }
        tracing::debug!("sshd refuses the certificate; the key is tried without it");
    }
    let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
    let attempt = handle.authenticate_publickey(user, key).await;
    attempt.map_err(LoginError::Ssh)
}

/// Those of the keys that the config names come before all others, in its order: sshd hangs up after some. `only`: the
/// others are left out.
fn named_first(identities: &mut Vec<AgentIdentity>, named: &[String], only: bool) {
    let named: Vec<PublicKey> = named.iter().filter_map(|key| key.parse().ok()).collect();
    let place = |identity: &AgentIdentity| {
        let public = identity.public_key();
        let is_it = |named: &PublicKey| named.key_data() == public.key_data();
        named.iter().position(is_it).unwrap_or(named.len())
    };
    identities.sort_by_key(place);
    if only {
        identities.retain(|identity| place(identity) < named.len());
    }
}

async fn ask(socket: &Path) -> Result<(AgentClient<UnixStream>, Vec<AgentIdentity>), KeysError> {
    let mut agent = AgentClient::connect_uds(socket).await?;
    let identities = agent.request_identities().await?;
    Ok((agent, identities))
}

/// In the agent's order, as ssh does, until sshd would hang up.
async fn by_agent<H: client::Handler>(
    mut agent: AgentClient<UnixStream>,
    identities: Vec<AgentIdentity>,
    handle: &mut client::Handle<H>,
    user: &str,
    tried: &mut Tried,
) -> Result<AuthResult, LoginError> {
    if let Some(binding) = handle.agent_session_binding() {
        // An agent that does not know this extension has no keys that need it.
        let _ = agent.bind_session(binding, false).await;
    }
    let mut refused = None;
    for identity in identities.into_iter().take(TRIES) {
        let public = identity.public_key().into_owned();
        tried.next();
        let hash = hash(handle, public.algorithm().is_rsa()).await?;
        let attempt = match identity {
            AgentIdentity::PublicKey { key, .. } => {
                handle
                    .authenticate_publickey_with(user, key, hash, &mut agent)
                    .await
            }
            AgentIdentity::Certificate { certificate, .. } => {
                handle
                    .authenticate_certificate_with(user, certificate, hash, &mut agent)
                    .await
            }
        };
        match attempt {
            Ok(
                ended @ (AuthResult::Success
                | AuthResult::Failure {
                    partial_success: true,
                    ..
                }),
            ) => return Ok(ended),
            Ok(ended) if handle.is_closed() => return Ok(ended),
            Ok(ended) => refused = Some(ended),
            Err(AgentAuthError::Send(_)) => return Err(LoginError::Ssh(russh::Error::SendError)),
            // This key is not to be used, or cannot be: the next one.
            Err(AgentAuthError::Key(error)) => tracing::debug!(%error, "the agent did not sign"),
        }
    }
    refused.ok_or(LoginError::Key(KeyProblem::AgentDeclined))
}

/// ssh-rsa with SHA-1 is refused by today's sshd.
async fn hash<H: client::Handler>(
    handle: &client::Handle<H>,
    is_rsa: bool,
) -> Result<Option<HashAlg>, LoginError> {
    if !is_rsa {
        return Ok(None);
    }
    let best = handle.best_supported_rsa_hash().await;
    Ok(best.map_err(LoginError::Ssh)?.flatten())
}

/// Reads a private key in any format that OpenSSH writes. One with a passphrase is for an agent.
fn private_key(text: &Secret<String>) -> Result<PrivateKey, KeyProblem> {
    // Keys that were pasted into YAML may be indented or end lines with CR LF.
    let mut clean = Zeroizing::new(String::with_capacity(text.expose().len()));
    for line in text.expose().lines() {
        clean.push_str(line.trim());
        clean.push('\n');
    }
    if is_encrypted(&clean) {
        return Err(KeyProblem::Encrypted);
    }
    if ["ssh-", "ecdsa-", "-----BEGIN PUBLIC", "sk-"]
        .iter()
        .any(|start| clean.trim_start().starts_with(start))
    {
        return Err(KeyProblem::Public);
    }
    decode_secret_key(&clean, None).map_err(|error| {
        if matches!(error, KeysError::KeyIsEncrypted) {
            KeyProblem::Encrypted
        } else {
            KeyProblem::Format(Box::new(error))
        }
    })
}

/// PEM says it in a header; for PKCS#8 the decoder only reports bad DER.
fn is_encrypted(text: &str) -> bool {
    text.lines().any(|line| {
        line == "-----BEGIN ENCRYPTED PRIVATE KEY-----"
            || (line.starts_with("Proc-Type:") && line.ends_with("ENCRYPTED"))
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A key as `ssh-keygen` writes it.
    fn generated(kind: &str, format: &str, passphrase: &str) -> Secret<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", kind, "-m", format, "-N", passphrase, "-f"])
            .arg(&file)
            .status()
            .expect("this test needs ssh-keygen of the package openssh-client");
        assert!(made.success(), "{kind} {format}");
        let bytes = std::fs::read(&file).unwrap();
        String::from_utf8(bytes).unwrap().into()
    }

    #[test]
    fn every_format_of_openssh_is_read() {
        for kind in ["ed25519", "ecdsa", "rsa"] {
            for format in ["RFC4716", "PEM", "PKCS8"] {
                if kind == "ed25519" && format != "RFC4716" {
                    continue;
                }
                let key = generated(kind, format, "");
                assert!(private_key(&key).is_ok(), "{kind} {format}");
                let pasted = format!("  {}", key.expose().replace('\n', "\r\n  "));
                assert!(
                    private_key(&pasted.into()).is_ok(),
                    "{kind} {format}, pasted"
                );
                let key = generated(kind, format, "passphrase");
                let refused = private_key(&key);
                assert!(
                    matches!(refused, Err(KeyProblem::Encrypted)),
                    "{kind} {format}: {refused:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_private_key_is_refused_with_the_reason() {
        let key = |text: &str| private_key(&text.to_owned().into());
        assert!(matches!(
            key("ssh-ed25519 AAAA me"),
            Err(KeyProblem::Public)
        ));
        assert!(matches!(key(""), Err(KeyProblem::Format(_))));
    }
}
