//! The certificates of a cluster that the user supplied. Pure.

use std::collections::BTreeSet;

use crate::model::ClientIdentity;

/// Certificates that rke-operator did not issue and does not re-issue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenCertificates {
    /// Those of nodes, as `NODE/NAME`.
    pub leaves: BTreeSet<String>,
    /// The administrator, where one was given. With it this program reaches the API, too, when the key of the cluster's
    /// CA was not given.
    pub api: Option<ClientIdentity>,
    /// Who this program is to etcd, when the key of etcd's CA was not given.
    pub etcd: Option<ClientIdentity>,
}

impl GivenCertificates {
    /// True when rke-operator issued all of the cluster's certificates.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
