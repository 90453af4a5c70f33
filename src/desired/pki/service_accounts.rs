//! A new key for the tokens of service accounts. Pure.
//!
//! No token may be refused by an API server, so nothing signs with a key that an API server does not verify: every API
//! server verifies the new key as well; then it signs; then a person says when the former one is dropped. How far a
//! rotation is follows from the state and from what the API servers read, as their containers tell.

use std::{borrow::Cow, collections::BTreeSet};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::SignedDuration;
use sha2::{Digest as _, Sha256};
use x509_parser::pem::Pem;

use super::{
    PkiContext, PkiError,
    complete::{SERVICE_ACCOUNTS, public_key},
    key::Key,
};
use crate::{
    config::Intent,
    desired::containers::containers,
    error::{ErrorClass, Explain},
    facts::{Actual, ApiView, ContainerFact},
    model::{Component, Digest, NodeName, ObjectRef, Role, Secret, path},
    state::{ClusterState, ServiceAccounts},
};

/// How far a person wants a rotation to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationStage {
    /// Until everything uses the new key, and the former one is accepted.
    Start,
    /// Until the former one is accepted no longer.
    Complete,
    /// Of authorities that have ended: new ones take their place at once. Of everything else as `Start`.
    Now,
}

/// Tokens that are signed again before the key that has signed them is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewedTokens {
    /// The Secrets that hold them.
    pub secrets: BTreeSet<ObjectRef>,
    /// The id of the key that signs them then.
    pub key: String,
}

/// kubelet asks for another token when a fifth of an hour is left of the one that a pod has.
const REFRESHED: SignedDuration = SignedDuration::from_hours(1);

/// Why a rotation does not go on. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceAccountKeyError {
    /// A person keeps the keys.
    #[error("certificates and keys of this cluster are your own: rke-operator generates no other")]
    Given,
    /// The key that a person gives signs already.
    #[error("`kube-service-account-token-key.pem` is the key that signs already")]
    Same,
    /// It cannot be seen what a control plane uses.
    #[error(
        "a control plane does not answer, and every API server must verify a new key before any signs with it"
    )]
    Silent,
    /// Something signs with the former key.
    #[error("`{component}` on node `{node}` does not sign with the new key yet")]
    NotSigning {
        /// The node.
        node: NodeName,
        /// Which.
        component: Component,
    },
    /// The rotation was cut off before the new key signs.
    #[error("nothing signs with the new key yet")]
    NotIssued,
    /// Pods may still have tokens of the former key.
    #[error(
        "pods may still have tokens that the former key has signed: `{component}` on node `{node}` {}, and kubelet refreshes a pod's token within an hour",
        match .minutes { Some(minutes) => format!("started {minutes} minutes ago"), None => "does not tell when it started".to_owned() }
    )]
    TooEarly {
        /// The node.
        node: NodeName,
        /// Which.
        component: Component,
        /// How long it has run.
        minutes: Option<i64>,
    },
    /// The Secrets that hold tokens could not be listed.
    #[error(
        "the cluster's API does not answer: Secrets that hold tokens of the former key cannot be listed"
    )]
    Unseen,
}

impl Explain for ServiceAccountKeyError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Given | Self::Same | Self::NotIssued | Self::TooEarly { .. } => ErrorClass::User,
            Self::Silent | Self::NotSigning { .. } | Self::Unseen => ErrorClass::Host,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let hint = match self {
            Self::Given => {
                "write the new key into your folder as `kube-service-account-token-key.pem`, and give that folder to \
                 `rke-operator cert rotate --service-account-key`"
            }
            Self::Same => {
                "replace the file by a new key (`openssl genrsa 4096`); nothing was changed"
            }
            Self::Silent => {
                "bring it back, or remove it from the config and run `up`; then rotate the key"
            }
            Self::NotSigning { .. } | Self::NotIssued => {
                "run `rke-operator cert rotate --service-account-key` until it has nothing to do; then complete it"
            }
            Self::TooEarly { .. } => "run the command again an hour after that start",
            Self::Unseen => "`rke-operator status` shows why; nothing was changed",
        };
        vec![hint.into()]
    }
}

/// The id of a key, as Kubernetes writes it into the tokens that the key signs.
pub fn key_id(public: &str) -> Option<String> {
    let block = Pem::iter_from_buffer(public.as_bytes()).next()?.ok()?;
    Some(URL_SAFE_NO_PAD.encode(Sha256::digest(block.contents)))
}

/// What a rotation is decided by.
pub(super) struct Rotating<'a> {
    pub(super) intent: &'a Intent,
    pub(super) state: &'a ClusterState,
    pub(super) have: &'a Actual,
    pub(super) ctx: &'a PkiContext<'a>,
    /// The key that a person gives.
    pub(super) given: Option<&'a Secret<String>>,
}

impl Rotating<'_> {
    /// What signs and verifies from now on.
    pub(super) fn after(&self, stage: RotationStage) -> Result<ServiceAccounts, PkiError> {
        let mut accounts = self.state.service_accounts.clone();
        match stage {
            RotationStage::Start | RotationStage::Now if accounts.next.is_some() => {
                self.issue(&mut accounts);
            }
            // The key that was replaced before is dropped first.
            RotationStage::Start | RotationStage::Now if accounts.verifying.len() > 1 => {}
            RotationStage::Start | RotationStage::Now => self.publish(&mut accounts)?,
            RotationStage::Complete => self.drop_former(&mut accounts)?,
        }
        Ok(accounts)
    }

    /// Every API server is to verify a new key.
    fn publish(&self, accounts: &mut ServiceAccounts) -> Result<(), PkiError> {
        let key = self.new_key()?;
        if key == accounts.signing {
            return Err(ServiceAccountKeyError::Same.into());
        }
        let (_, silent) = self.containers(Component::ApiServer);
        if silent {
            return Err(ServiceAccountKeyError::Silent.into());
        }
        let public = public_key(&key)?;
        if !accounts.verifying.contains(&public) {
            accounts.verifying.push(public);
        }
        accounts.next = Some(key);
        Ok(())
    }

    fn new_key(&self) -> Result<Secret<String>, PkiError> {
        if let Some(given) = self.given {
            return Ok(given.clone());
        }
        if self.state.is_signed_elsewhere() {
            return Err(ServiceAccountKeyError::Given.into());
        }
        // One seed never gives the same key twice.
        let slot = format!("{SERVICE_ACCOUNTS} after {}", self.state.serial);
        Key::derive(&self.ctx.seed, &slot)?.to_pem(&slot)
    }

    /// The new key signs where every API server verifies it.
    fn issue(&self, accounts: &mut ServiceAccounts) {
        let (servers, silent) = self.containers(Component::ApiServer);
        let all = self.digest(accounts.verifying.concat().as_bytes());
        let verifies = |server: &ContainerFact| reads(server, path::SERVICE_ACCOUNT_PUBLIC, &all);
        let is_verified = !servers.is_empty() && servers.iter().all(|(_, server)| verifies(server));
        if silent || !is_verified {
            return;
        }
        if let Some(next) = accounts.next.take() {
            accounts.signing = next;
        }
    }

    /// Only the key that signs is accepted, where everything has signed with it for long enough.
    fn drop_former(&self, accounts: &mut ServiceAccounts) -> Result<(), PkiError> {
        if accounts.next.is_some() {
            return Err(ServiceAccountKeyError::NotIssued.into());
        }
        if accounts.verifying.len() < 2 {
            return Ok(());
        }
        let signing = self.digest(accounts.signing.expose().as_bytes());
        for component in [Component::ApiServer, Component::ControllerManager] {
            let (containers, silent) = self.containers(component);
            if silent {
                return Err(ServiceAccountKeyError::Silent.into());
            }
            for (node, fact) in containers {
                let node = node.clone();
                if !reads(fact, path::SERVICE_ACCOUNT_KEY, &signing) {
                    return Err(ServiceAccountKeyError::NotSigning { node, component }.into());
                }
                let runs = self.runs_for(&node, fact);
                if runs.is_none_or(|runs| runs < REFRESHED) {
                    let minutes = runs.map(|runs| runs.as_mins());
                    return Err(ServiceAccountKeyError::TooEarly {
                        node,
                        component,
                        minutes,
                    }
                    .into());
                }
            }
        }
        if self.renewed(accounts)?.is_none() {
            return Err(ServiceAccountKeyError::Unseen.into());
        }
        accounts.verifying = vec![public_key(&accounts.signing)?];
        Ok(())
    }

    /// The Secrets whose tokens another key than the one that signs has signed; `None` where they are not known.
    pub(super) fn renewed(
        &self,
        accounts: &ServiceAccounts,
    ) -> Result<Option<RenewedTokens>, PkiError> {
        let ApiView::Up(api) = self.have.api() else {
            return Ok(None);
        };
        let Some(tokens) = &api.tokens else {
            return Ok(None);
        };
        let key = key_id(&public_key(&accounts.signing)?).unwrap_or_default();
        let former = tokens.iter().filter(|(_, id)| id.as_ref() != Some(&key));
        let secrets = former.map(|(secret, _)| secret.clone()).collect();
        Ok(Some(RenewedTokens { secrets, key }))
    }

    /// Those that are seen, and whether a control plane does not answer.
    fn containers(&self, component: Component) -> (Vec<(&NodeName, &ContainerFact)>, bool) {
        let role = Some(Role::ControlPlane);
        let (seen, silent) = containers(component, role, self.intent, self.state, self.have);
        (seen, silent.is_some())
    }

    /// How long it has run, by the node's own clock.
    fn runs_for(&self, node: &NodeName, fact: &ContainerFact) -> Option<SignedDuration> {
        let now = self.have.up(node)?.clock?.unix_seconds;
        let seconds = now.checked_sub(fact.started?)?;
        Some(SignedDuration::from_secs(seconds))
    }

    fn digest(&self, content: &[u8]) -> Digest {
        self.state.digest_key.digest(content)
    }
}

/// True for a container that was made with this content of a file.
pub(super) fn reads(fact: &ContainerFact, file: &str, digest: &Digest) -> bool {
    let applied = fact.applied();
    applied.is_some_and(|spec| spec.files.get(file) == Some(digest))
}

/// For the plan: what a rotation has come to. `known` is the state before, `next` the one after.
pub(super) fn note(
    stage: RotationStage,
    known: &ClusterState,
    next: &ClusterState,
) -> Option<&'static str> {
    let (was, is) = (&known.service_accounts, &next.service_accounts);
    match stage {
        RotationStage::Start | RotationStage::Now if was.next.is_none() && is.next.is_some() => {
            Some(
                "service account key: the API servers learn to verify the new key, one after the other; then they and the \
             controller managers are replaced once more, and sign with it; the former key stays accepted",
            )
        }
        RotationStage::Start | RotationStage::Now if is.next.is_some() => Some(
            "service account key: nothing signs with the new key before every API server verifies it",
        ),
        RotationStage::Start | RotationStage::Now if was.signing != is.signing => Some(
            "service account key: every API server verifies the new key, and now the API servers and the controller \
             managers sign with it; the former key stays accepted",
        ),
        RotationStage::Start | RotationStage::Now => Some(
            "service account key: tokens of the former key are still accepted; `rke-operator cert rotate \
             --service-account-key --complete` ends that, an hour after the last API server was replaced at the earliest",
        ),
        RotationStage::Complete if was.verifying != is.verifying => Some(
            "service account key: tokens that the former key has signed are refused from now on: copies outside of the \
             cluster, those of programs in pods that never read their token again, and tokens with a longer life that kubelet \
             has not refreshed yet (within a day); restart these pods",
        ),
        RotationStage::Complete => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `openssl ec -pubin -outform DER | openssl dgst -sha256 -binary | base64`, as in a URL.
    #[test]
    fn a_key_has_the_id_that_kubernetes_gives_it() {
        let public = "-----BEGIN PUBLIC KEY-----\n\
                      MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEZP1ZwoLJjvpO8tTj/awuioX42eVk\n\
                      vG2GbntloGNgbm5VyB2M72p36ZkUPw1cgOGopPaT/GBrKZaouvPA9mojmA==\n\
                      -----END PUBLIC KEY-----\n";
        let id = key_id(public);
        assert_eq!(id.unwrap(), "2-HBnpte6rjZzcUzOXfs7-lmOMBCOAt3iItBMpJXsSA");
        assert_eq!(key_id("no key"), None);
    }
}
