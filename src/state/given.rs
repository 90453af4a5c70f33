//! What a cluster has of certificates that a person made. Pure.

use std::collections::BTreeSet;

use crate::model::ClientIdentity;

/// Certificates that we did not make, and do not make anew.
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
    /// True when we made all of them.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
