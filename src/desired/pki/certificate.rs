//! What the certificates of a cluster say, for people: of the authorities, of the files on a node,
//! of a kubeconfig. Reads certificates only, never a key. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    cert::{San, Validity, der, sans},
    kubeconfig,
    reconcile::{CLUSTER_CA, ETCD_CA, FRONT_PROXY_CA, SIGNER_CA},
};
use crate::{
    actual::HostFacts,
    model::{Secret, path},
    state::ClusterState,
};

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// An authority, or the name of a file without its ending.
    pub name: String,
    /// Whom it is about, as `CN=…, O=…`.
    pub subject: String,
    /// The names and addresses that it is good for.
    pub sans: Vec<String>,
    /// Its end.
    pub not_after: Timestamp,
    validity: Validity,
    is_authority: bool,
}

impl Certificate {
    /// Reads the first certificate of a PEM file.
    fn read(name: &str, pem: &str) -> Option<Self> {
        let der = der(pem)?;
        let (_, cert) = x509_parser::parse_x509_certificate(&der).ok()?;
        let validity = Validity::of(&cert)?;
        let sans = sans(&cert).unwrap_or_default();
        Some(Self {
            name: name.to_owned(),
            subject: cert.subject().to_string(),
            sans: sans.iter().map(San::to_string).collect(),
            not_after: validity.until,
            validity,
            is_authority: cert.is_ca(),
        })
    }

    /// True when less than a third of its time is left: the next `up` makes it anew, unless it is
    /// an authority's.
    pub fn ends_soon(&self, now: Timestamp) -> bool {
        self.validity.ends_soon(now)
    }

    /// Whole days that are left; below zero when it is over.
    pub fn days_left(&self, now: Timestamp) -> i64 {
        let seconds = self.not_after.as_second().saturating_sub(now.as_second());
        seconds.div_euclid(86_400)
    }
}

/// The authorities that sign.
pub fn authorities(saved: &ClusterState) -> Vec<Certificate> {
    let signer = saved.signer_ca.iter().map(|signer| (SIGNER_CA, signer));
    [
        (CLUSTER_CA, &saved.cluster_ca),
        (ETCD_CA, &saved.etcd_ca),
        (FRONT_PROXY_CA, &saved.front_proxy_ca),
    ]
    .into_iter()
    .chain(signer)
    .filter_map(|(name, authority)| Certificate::read(name, &authority.signing.cert))
    .collect()
}

/// The certificates on a node that are its own, by path; empty where its files were not read.
/// Those of the authorities are the same on every node. That for an external etcd is among them.
pub fn on_node(facts: &HostFacts) -> BTreeMap<&str, Certificate> {
    let files = facts.files.iter().flatten();
    let is_shown = |path: &str| {
        path == path::EXTERNAL_ETCD_CERTIFICATE
            || path::is_certificate(path) && !path.ends_with("-key.pem")
    };
    files
        .filter(|(path, _)| is_shown(path))
        .filter_map(|(path, fact)| {
            let name = path.rsplit('/').next()?.strip_suffix(".pem")?;
            let pem = std::str::from_utf8(fact.content.expose()).ok()?;
            let cert = Certificate::read(name, pem)?;
            (!cert.is_authority).then_some((path.as_str(), cert))
        })
        .collect()
}

/// That of the administrator, in a kubeconfig for this cluster.
pub fn administrator(kubeconfig: &Secret<String>, cluster: &str) -> Option<Certificate> {
    let pem = kubeconfig::certificate(kubeconfig.expose(), cluster)?;
    Certificate::read("kube-admin", &pem)
}
