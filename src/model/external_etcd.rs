//! An etcd outside of the cluster, which others run. Pure.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use super::{ClientIdentity, NodeName};

/// Where a cluster's etcd is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EtcdPlace {
    /// A member on each node that has the role `etcd`.
    #[default]
    Nodes,
    /// Outside of the cluster (`services.etcd.external_urls`).
    External(ExternalEtcd),
}

impl EtcdPlace {
    /// The etcd outside of the cluster, if it is there.
    pub const fn external(&self) -> Option<&ExternalEtcd> {
        match self {
            Self::Nodes => None,
            Self::External(etcd) => Some(etcd),
        }
    }
}

/// An etcd outside of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalEtcd {
    /// Where its members are, in the order of the config; at least one.
    pub urls: Vec<EtcdUrl>,
    /// What the keys of this cluster begin with: `/registry`. No `/` at its end, except of the root.
    pub prefix: String,
    /// Its authority, and the certificate and key of the API servers.
    pub identity: ClientIdentity,
}

impl ExternalEtcd {
    /// As `--etcd-servers` takes it.
    pub fn servers(&self) -> String {
        let urls: Vec<String> = self.urls.iter().map(EtcdUrl::to_string).collect();
        urls.join(",")
    }
}

/// What every key below a prefix begins with.
pub fn keys_below(prefix: &str) -> String {
    format!("{}/", prefix.trim_end_matches('/'))
}

/// Where a member is. Always with TLS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EtcdUrl {
    /// A name or an IPv4 address, which the member's certificate has.
    pub host: String,
    /// The port for clients.
    pub port: u16,
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}:{}", self.host, self.port)
    }
}

/// What tells one etcd, and one place in it, from every other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EtcdKeyspace {
    /// etcd's own id of its cluster, in hexadecimal as `etcdctl` shows it.
    pub etcd_cluster: String,
    /// As [`ExternalEtcd::prefix`].
    pub prefix: String,
}

impl EtcdKeyspace {
    /// What a removal reports: only the administrators of that etcd delete what the cluster stored in it.
    pub fn stays(&self) -> String {
        let below = keys_below(&self.prefix);
        format!(
            "the external etcd keeps the data of this cluster, below `{below}`: `etcdctl del --prefix {below}` there deletes it"
        )
    }
}

/// A look at an etcd outside of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdLook {
    /// Which.
    pub etcd: ExternalEtcd,
    /// The control planes, one of which leads there: names are looked up where the API servers do it.
    pub through: BTreeSet<NodeName>,
}
