//! A new managed key in place of the one that is in use. Pure.
//!
//! The first managed key of the state is the one that the API servers are to write with, so a rotation is a key in front of
//! it; [`super::phase`] does the rest. Whether a rotation is in progress follows from what the API servers read and from
//! the mark: until all of them answer and read the first key alone, and the mark names it, no other key is generated.

use std::borrow::Cow;

use super::{Form, World, Writer, Written, names_a_file, sources};
use crate::{
    config::{Intent, SecretsEncryption},
    error::{ErrorClass, Explain},
    facts::Actual,
    state::ClusterState,
};

/// What a request for a new key comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::desired) enum KeyRotation {
    /// A new key is generated.
    Begins,
    /// One is in progress, and is completed.
    GoesOn,
}

/// Why there is no new key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRotationError {
    /// The config switches encryption off.
    #[error(
        "the config does not enable `services.kube-api.secrets_encryption_config`: there is no key to rotate; nothing was changed"
    )]
    Off,
    /// The keys are in the config.
    #[error(
        "the encryption configuration is your own (`services.kube-api.secrets_encryption_config.custom_config`), and so are its keys; nothing was changed"
    )]
    Custom,
    /// A flag names a file of the user's.
    #[error(
        "`services.kube-api.extra_args` names an encryption configuration of your own (`encryption-provider-config`), and so are its keys; nothing was changed"
    )]
    Flag,
    /// Another change of encryption comes first.
    #[error(
        "not everything that is stored is written with a managed key yet, as the config says; nothing was changed"
    )]
    NotApplied,
    /// It cannot be seen whether every API server has the present key.
    #[error(
        "a control plane does not answer, and every API server must read a new key before any writes with it; nothing was changed"
    )]
    Silent,
}

impl Explain for KeyRotationError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Off | Self::Custom | Self::Flag | Self::NotApplied => ErrorClass::User,
            Self::Silent => ErrorClass::Host,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let hint = match self {
            Self::Off => {
                "set `secrets_encryption_config: {enabled: true}` and run `up`: that generates a key"
            }
            Self::Custom => {
                "put the new key in front of the present one in `custom_config`, keep the present one, and run \
                 `up`: all API servers read it before any writes with it, and Secrets are written again"
            }
            Self::Flag => {
                "rotate it in that file as Kubernetes documents it, or move its content to \
                 `secrets_encryption_config.custom_config` and run `up`"
            }
            Self::NotApplied => "run `up` until it has nothing to do, then rotate the key",
            Self::Silent => {
                "bring it back, or remove it from the config and run `up`; then rotate the key"
            }
        };
        vec![hint.into()]
    }
}

/// An error where the config has no managed key.
pub fn has_own_key(intent: &Intent) -> Result<(), KeyRotationError> {
    if names_a_file(intent) {
        return Err(KeyRotationError::Flag);
    }
    match intent.services.secrets_encryption {
        SecretsEncryption::Managed => Ok(()),
        SecretsEncryption::Off => Err(KeyRotationError::Off),
        SecretsEncryption::Custom(_) => Err(KeyRotationError::Custom),
    }
}

/// What a request for a new key comes to, by what the state has and by what is seen.
pub(in crate::desired) fn rotation(
    intent: &Intent,
    state: &ClusterState,
    have: &Actual,
) -> Result<KeyRotation, KeyRotationError> {
    has_own_key(intent)?;
    let sources = sources(state);
    match World::seen(intent, state, &sources, have) {
        Ok(Some(world)) => world.rotation(),
        Ok(None) => Err(KeyRotationError::NotApplied),
        // The same error ends the run when the phase is decided.
        Err(_) => Ok(KeyRotation::GoesOn),
    }
}

/// For the plan: what a request for a new key has come to. `known` is the state before, `next` the one after.
pub(in crate::desired) fn rotation_note(known: &ClusterState, next: &ClusterState) -> String {
    let name = |state: &ClusterState| {
        let mut keys = state.encryption.iter();
        let first = keys.find(|key| !key.is_custom());
        first.map(|key| key.name.clone()).unwrap_or_default()
    };
    let (old, new) = (name(known), name(next));
    if old == new {
        return format!(
            "encryption: the change to the key `{new}` is not complete: this run completes it and generates no other key"
        );
    }
    format!(
        "encryption: the new key `{new}` replaces `{old}`, which stays in the state: a snapshot of etcd may need it"
    )
}

impl World<'_> {
    pub(super) fn rotation(&self) -> Result<KeyRotation, KeyRotationError> {
        // The only one was stopped to be replaced.
        if self.servers.is_empty() && self.awaited {
            return Ok(KeyRotation::GoesOn);
        }
        if !self.has_managed_keys_only() {
            return Err(KeyRotationError::NotApplied);
        }
        if !self.seen_are_settled() {
            return Ok(KeyRotation::GoesOn);
        }
        if self.silent {
            return Err(KeyRotationError::Silent);
        }
        Ok(KeyRotation::Begins)
    }

    /// There are API servers, and neither writes any of them with anything but a managed key nor does the mark say so.
    fn has_managed_keys_only(&self) -> bool {
        let mut managed = self.sources.iter().filter(|source| source.is_managed());
        let writes = |form: &Form| match form.writer {
            Writer::Plain => false,
            Writer::Source(it) => self.sources.get(it).is_some_and(super::Source::is_managed),
        };
        let marked = match &self.written {
            Written::With(Some(mark)) => managed.any(|source| source.is_marked(mark)),
            Written::With(None) | Written::Unknown => true,
        };
        !self.servers.is_empty() && self.servers.iter().all(writes) && marked
    }
}
