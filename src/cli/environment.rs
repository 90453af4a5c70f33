//! The environment of the command line: TCP, `known_hosts`, and files next to the config.

use std::{
    collections::BTreeSet,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};

use super::{
    args::Trust,
    intent::is_stdin,
    report::{CliError, Failure},
    session::Session,
    sources::FileSources,
};
use crate::{
    api::LastSnapshot,
    apply::remote::OverSsh,
    bundle::Bundle,
    config::{Agent, Credential, Refusal, SSH_AGENT, Sources, has_passphrase},
    desired::pki::{GivenFiles, RestoreRequest, Rotation, RotationStage},
    environment::{Clock, Environment, KeyRing},
    host::{KnownHosts, Policy, TcpDial},
    lease,
    model::{ClusterId, NodeName, shell_word},
    state::{file::FileStore, kubeconfig::FileKubeconfig},
};

/// How a command opens the world.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[derive(Clone, Debug, Default)]
pub(super) struct Opening {
    /// `--accept-new-host-keys`.
    pub(super) accept_new_host_keys: bool,
    /// Host keys that `--accept-new-host-keys` accepts are recorded. Not by commands that only read: they write nothing
    /// that a person has not agreed to.
    pub(super) record_host_keys: bool,
    /// `--recover`.
    pub(super) recover: Option<ClusterId>,
    /// `--accept-etcd`.
    pub(super) accept_etcd: Option<String>,
    /// `cert rotate`.
    pub(super) rotate: Option<Rotation>,
    /// `encrypt rotate-key`.
    pub(super) rotate_key: bool,
    /// `cert rotate --service-account-key`.
    pub(super) service_account_key: Option<RotationStage>,
    /// `--retry`.
    pub(super) retry: bool,
    /// `cert rotate --rotate-ca`.
    pub(super) authorities: Option<RotationStage>,
    /// `etcd snapshot-restore`.
    pub(super) restore: Option<RestoreRequest>,
    /// `--lose`.
    pub(super) lose: BTreeSet<NodeName>,
    /// `--clean`.
    pub(super) clean: BTreeSet<NodeName>,
    /// `--no-snapshot`.
    pub(super) last_snapshot: LastSnapshot,
    /// `--custom-certs`.
    pub(super) given: Option<GivenFiles>,
    /// `--image-bundle`.
    pub(super) bundle: Option<Bundle>,
}

impl Opening {
    /// Of a command that changes something: host keys that are taken are recorded.
    pub(super) fn to_change(trust: &Trust) -> Self {
        Self {
            accept_new_host_keys: trust.accept_new_host_keys,
            record_host_keys: true,
            ..Self::default()
        }
    }

    /// Every command records a key that a person accepts at the prompt, as ssh does, so it prompts only once.
    const fn records(&self) -> bool {
        self.record_host_keys || !self.accept_new_host_keys
    }
}

/// Opens it. Reads `known_hosts`; touches nothing else yet.
pub(super) fn open(
    config: &Path,
    opening: Opening,
    session: &Session,
) -> Result<Environment, CliError> {
    if is_stdin(config) {
        return Err(Failure::NoPlace.into());
    }
    let (store, kubeconfig) = (state_of(config), FileKubeconfig::next_to(config));
    for file in [store.path(), kubeconfig.path()] {
        if is_open_to_others(file) {
            session.screen.warn(&open_to_others(file));
        }
    }
    let host_keys = host_keys(&opening, session)?;
    Ok(Environment {
        remote: Arc::new(OverSsh::shown_in(
            session.awaited.clone(),
            Arc::new(TcpDial),
        )),
        host_keys: Arc::new(host_keys),
        store: Arc::new(store),
        kubeconfig: Arc::new(kubeconfig),
        key_ring: Arc::new(KeyFiles {
            config: config.to_owned(),
            session: session.clone(),
        }),
        recover: opening.recover,
        accept_etcd: opening.accept_etcd,
        rotate: opening.rotate,
        rotate_key: opening.rotate_key,
        service_account_key: opening.service_account_key,
        retry: opening.retry,
        authorities: opening.authorities,
        restore: opening.restore,
        held_elsewhere: BTreeSet::new(),
        lose: opening.lose,
        clean: opening.clean,
        last_snapshot: opening.last_snapshot,
        home: None,
        given: opening.given.map(Arc::new),
        bundle: opening.bundle.map(Arc::new),
        identity: lease::this_process(),
        clock: clock(),
        entropy: rand::random,
    })
}

/// The state file of a config.
pub(super) fn state_of(config: &Path) -> FileStore {
    FileStore::next_to(config)
}

/// Whether other users may read or change a file with keys. One that is not there has none.
fn is_open_to_others(file: &Path) -> bool {
    const OTHERS: u32 = 0o077;
    let mode = std::fs::metadata(file).map(|file| file.permissions().mode());
    mode.is_ok_and(|mode| mode & OTHERS != 0)
}

fn open_to_others(file: &Path) -> String {
    let name = file.display().to_string();
    format!(
        "other users of this machine may read `{name}`, which contains keys of the cluster: `chmod 600 {}`",
        shell_word(&name)
    )
}

/// The host keys on record. `~/.ssh/config` may say that those of a machine are elsewhere: it is read with the config, so
/// a command that reads that after [`open`] calls this once more.
pub(super) fn host_keys(opening: &Opening, session: &Session) -> Result<KnownHosts, CliError> {
    let clock = clock();
    let host_keys =
        on_record(policy(opening, session), session)?.with_certificates(move || clock.now());
    Ok(if opening.records() {
        host_keys
    } else {
        host_keys.unrecorded()
    })
}

/// As [`host_keys`], without certificates.
pub(super) fn on_record(policy: Policy, session: &Session) -> Result<KnownHosts, CliError> {
    KnownHosts::from_files(&known_hosts_files(), policy)
        .and_then(|keys| keys.with_lookups(&session.ssh_config.lookups()))
        .map_err(|source| Failure::KnownHosts { source }.into())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the command line is where the time comes in"
)]
pub(super) fn clock() -> Clock {
    Clock::new(jiff::Timestamp::now)
}

/// ssh's own files, in its order; keys that are taken are recorded in the first.
fn known_hosts_files() -> Vec<PathBuf> {
    let own = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ssh/known_hosts"));
    own.into_iter()
        .chain([PathBuf::from("/etc/ssh/ssh_known_hosts")])
        .collect()
}

fn policy(opening: &Opening, session: &Session) -> Policy {
    if opening.accept_new_host_keys {
        return Policy::AcceptNew;
    }
    if !session.prompt.is_interactive() {
        return Policy::Strict;
    }
    let prompt = session.prompt.clone();
    Policy::Ask(Box::new(move |endpoint, kind, fingerprint| {
        let prompt = prompt.clone();
        async move { prompt.host_key(&endpoint, &kind, &fingerprint).await }.boxed()
    }))
}

/// The keys of the inventory, for a removal without a config: the files that it names.
struct KeyFiles {
    /// Paths begin where it is.
    config: PathBuf,
    session: Session,
}

impl KeyRing for KeyFiles {
    fn credential<'a>(
        &'a self,
        source: &'a str,
        certificate: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Credential, String>> {
        async move {
            let Session {
                passphrases,
                prompt,
                ..
            } = &self.session;
            let sources = FileSources::default()
                .next_to(&self.config)
                .with_passphrases(Arc::clone(passphrases));
            let told = |refusal: Refusal| refusal.message;
            if source == SSH_AGENT {
                let agent = sources.agent().map_err(told)?;
                let agent = agent.map(|socket| Agent {
                    socket,
                    named: Vec::new(),
                    only_named: false,
                });
                return agent.map(Credential::Agent).ok_or_else(|| {
                    "there is no SSH agent: the variable `SSH_AUTH_SOCK` is not set".to_owned()
                });
            }
            let mut key = sources.key_at(source).map_err(told)?;
            if has_passphrase(&key.pem) {
                sources.wants_passphrase(&key);
                if let Ok(true) = passphrases.ask(prompt).await {
                    key = sources.key_at(source).map_err(told)?;
                }
            }
            // One that stood in the config itself is gone with it; sshd may do without.
            let certificate = certificate.filter(|source| *source != "ssh_cert");
            // As is the one next to the key, whose time is short as a rule.
            let is_adjacent = certificate == Some(&*format!("{source}-cert.pub"));
            let certificate = match certificate.map(|path| sources.certificate_at(path)) {
                Some(Err(_)) if is_adjacent => None,
                other => other.transpose().map_err(told)?,
            };
            Ok(Credential::Key(key.pem, certificate))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C7: three servers were nine questions, because only `up` recorded the answers.
    #[test]
    fn what_a_person_accepts_is_recorded_by_every_command() {
        let trust = |accept_new_host_keys| Trust {
            accept_new_host_keys,
        };
        let reads = |accept_new_host_keys| Opening {
            accept_new_host_keys,
            ..Opening::default()
        };
        for (opening, records) in [
            (Opening::to_change(&trust(false)), true),
            (Opening::to_change(&trust(true)), true),
            (reads(false), true),
            // Without a question a command that only reads leaves no trace.
            (reads(true), false),
        ] {
            assert_eq!(opening.records(), records, "{opening:?}");
        }
    }
}
