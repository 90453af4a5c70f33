//! Keys and certificates, and the rules of when a key may be made. Pure: time and randomness are
//! arguments, and the same arguments give the same bytes.
//!
//! [`reconcile`] settles the authorities (invariant 2: kept, read back when asked for, or new only
//! for a new cluster) and every kind: one that a node has and that still says what it must is kept
//! byte for byte, so that everything after this compares bytes. Leaf keys live on their node only.
//! May read facts; must not read a clock, make randomness or touch a file.

mod authorities;
mod cert;
mod cert_kind;
mod certificate;
mod clock;
mod complete;
mod error;
mod given;
#[cfg(test)]
mod given_tests;
mod key;
mod kubeconfig;
mod newest;
mod organizations;
mod reconcile;
mod recover;
mod restore;
mod rotation;
mod service_accounts;
#[cfg(test)]
mod tests;
mod user;
#[cfg(test)]
mod user_tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

pub use self::{
    authorities::{AuthorityError, Handover},
    cert::Pair,
    cert_kind::{CertKind, KUBELET_CLIENT},
    certificate::{Certificate, InUse, administrator, authorities, in_use, on_node},
    clock::left_out,
    error::PkiError,
    given::{GivenFiles, Request, requests},
    key::Seed,
    newest::{CopyPlace, Newer, OtherCopy},
    reconcile::{admin_kubeconfig, engine_clients, is_ours_alone, reconcile},
    recover::copy_on_nodes,
    restore::{Restore, RestoreRequest},
    rotation::Rotation,
    service_accounts::{RenewedTokens, RotationStage, ServiceAccountKeyError, key_id},
    user::{
        AccessError, HandedOut, NewBecause, Shown, UserAccess, UserRequest, handed_out,
        is_api_name, renew_at, shown, user_access,
    },
};
pub(super) use self::{certificate::record, kubeconfig::component as component_kubeconfig};
use crate::{
    desired::Rotated,
    facts::Actual,
    model::{ClientIdentity, ClusterId, Digest, NodeName, Secret},
    state::ClusterState,
};

/// What is not in the intent and not in the world, and decides all the same.
pub struct PkiContext<'a> {
    /// The time.
    pub now: Timestamp,
    /// Fresh randomness: everything new comes out of it.
    pub seed: Seed,
    /// Read the lost keys of this cluster back from the nodes: the id is typed by a person.
    pub recover: Option<&'a ClusterId>,
    /// The cluster id of the external etcd that has the data of this cluster from now on: typed by a person.
    pub accept_etcd: Option<&'a str>,
    /// Clusters that others here hold.
    pub held_elsewhere: &'a BTreeSet<ClusterId>,
    /// Certificates that a person wants re-created.
    pub rotate: Option<&'a Rotation>,
    /// A person wants a new key for what the API servers store.
    pub rotate_key: bool,
    /// How far a person wants the rotation of the service-account key to go.
    pub service_account_key: Option<RotationStage>,
    /// How far a person wants the rotation of the certificate authorities to go.
    pub authorities: Option<RotationStage>,
    /// What a person asks for about etcd's data.
    pub restore: Option<&'a RestoreRequest>,
    /// Nodes that a person gives up by name.
    pub lose: &'a BTreeSet<NodeName>,
    /// Nodes that a person has cleaned by name, whatever is on them.
    pub clean: &'a BTreeSet<NodeName>,
    /// Certificates that a person made (`--custom-certs`).
    pub given: Option<&'a GivenFiles>,
}

/// Every key and certificate of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// What the store must hold.
    pub saved: ClusterState,
    /// The administrator's kubeconfig.
    pub kubeconfig: Secret<String>,
    pub(super) leaves: BTreeMap<(NodeName, CertKind), Pair>,
    /// What verifies service-account tokens, PEM.
    pub(super) service_account_public: String,
    /// What reads this is replaced once more later in the run.
    pub(super) rolls: Option<Rotated>,
    /// What else is to be done about the authorities.
    pub(super) handover: Handover,
    /// What is signed again before a key of service accounts is dropped.
    pub(super) renewed_tokens: Option<RenewedTokens>,
    /// When certificates end, and which are renewed.
    pub(super) certificates: Certificates,
    /// Sentences for the plan.
    pub(super) notes: Vec<String>,
}

/// When the certificates of a cluster end, and which are renewed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The one that ends first, as things are before the run; `None` for a new cluster.
    pub earliest: Option<Expiry>,
    /// The paths of the certificates and keys that are renewed because less than a third of
    /// their lifetime is left, by node.
    pub renewed: BTreeMap<NodeName, BTreeSet<String>>,
    /// Those of them that end within two weeks: they wait for nothing.
    pub urgent: BTreeMap<NodeName, BTreeSet<String>>,
    /// Those of them that are good, and re-created because a person asks for it.
    pub rotated: BTreeMap<NodeName, BTreeSet<String>>,
    /// Those of them that have ended: with these a component serves nothing and reaches nothing.
    pub ended: BTreeMap<NodeName, BTreeSet<String>>,
}

/// The end of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry {
    /// When.
    pub at: Timestamp,
    /// Which: a file of a node, or an authority.
    pub what: String,
}

impl Expiry {
    /// Whole days that are left.
    pub fn days_left(&self, now: Timestamp) -> i64 {
        self.at.as_second().saturating_sub(now.as_second()) / 86_400
    }

    /// True when it is over.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.at <= now
    }

    /// Which certificate ends first, and when.
    pub fn sentence(&self, now: Timestamp) -> String {
        let (what, days) = (&self.what, self.days_left(now));
        if self.is_over(now) {
            format!("the certificate {what} expired {} days ago", -days)
        } else {
            format!("the first certificate to expire is {what}, in {days} days")
        }
    }
}

/// How this program itself reaches the servers of a cluster. Never stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineClients {
    /// The API servers, as `system:masters`.
    pub api: ClientIdentity,
    /// The members of etcd. etcd accepts any certificate that its authority signed, whatever its name.
    pub etcd: ClientIdentity,
}

impl Keys {
    /// A keyed digest of some content: see [`Digest`].
    pub fn digest(&self, content: &[u8]) -> Digest {
        self.saved.digest_key.digest(content)
    }
}

/// Refuses a removal by a state that is not the newest: a former owner's.
pub fn refuse_former(saved: &ClusterState, have: &Actual) -> Result<(), PkiError> {
    newest::refuse_former(saved, have)
}

/// Refuses a removal by a state that is not the newest, where nodes of the cluster would be forgotten.
pub fn refuse_to_forget(saved: &ClusterState, have: &Actual) -> Result<(), PkiError> {
    newest::refuse_to_forget(saved, have)
}
