//! What the certificates of a cluster say, for people: of the authorities, of the files on a node,
//! of a kubeconfig. Reads certificates only, never a key. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{
    cert::{San, Validity, der, name_of, sans},
    kubeconfig,
    reconcile::{CLUSTER_CA, ETCD_CA, FRONT_PROXY_CA, SIGNER_CA},
};
use crate::{
    facts::HostFacts,
    model::{CertificateRecord, ClusterId, Component, ContainerSpec, Secret, label, path},
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
    issuer: String,
    fingerprint: String,
    validity: Validity,
    is_authority: bool,
}

impl Certificate {
    /// Reads the first certificate of a PEM file.
    fn read(name: &str, pem: &str) -> Option<Self> {
        Self::of_der(name, &der(pem)?)
    }

    /// One as a server shows it.
    pub fn of_der(name: &str, der: &[u8]) -> Option<Self> {
        let (_, cert) = x509_parser::parse_x509_certificate(der).ok()?;
        let validity = Validity::of(&cert)?;
        let sans = sans(&cert).unwrap_or_default();
        Some(Self {
            name: name.to_owned(),
            subject: cert.subject().to_string(),
            sans: sans.iter().map(San::to_string).collect(),
            not_after: validity.until,
            issuer: name_of(cert.issuer()).unwrap_or_default(),
            fingerprint: fingerprint(der),
            validity,
            is_authority: cert.is_ca(),
        })
    }

    /// True for the same certificate.
    pub fn is(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }

    /// True when less than a third of its lifetime is left: the next `up` renews it, unless it is
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

fn fingerprint(der: &[u8]) -> String {
    let digest = Sha256::digest(der);
    digest
        .first_chunk::<16>()
        .map(hex::encode)
        .unwrap_or_default()
}

/// What is kept of a certificate that a component is started with; nothing of an authority's, nor of a key.
pub(in crate::desired) fn record(pem: &[u8]) -> Option<CertificateRecord> {
    let text = std::str::from_utf8(pem).ok()?;
    let cert = Certificate::read("", text).filter(|cert| !cert.is_authority)?;
    Some(CertificateRecord {
        fingerprint: cert.fingerprint,
        subject: cert.subject,
        names: cert.sans,
        ends: cert.not_after.as_second(),
        issuer: Some(cert.issuer),
    })
}

/// A certificate with which a component runs on, although its file has another one by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The component.
    pub component: Component,
    /// Its file.
    pub path: String,
    /// What it says.
    pub record: CertificateRecord,
}

impl InUse {
    /// Its end.
    pub fn not_after(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.record.ends).ok()
    }
}

/// The certificates with which the components of a cluster run on a node, where their files have others by now.
pub fn in_use(facts: &HostFacts, id: &ClusterId) -> Vec<InUse> {
    let files = on_node(facts);
    let mut found = Vec::new();
    for component in Component::ALL {
        let fact = facts.container(component);
        let ours = fact.filter(|fact| fact.labels.get(label::CLUSTER_ID) == Some(&id.0));
        let spec = ours.and_then(|fact| fact.labels.get(label::SPEC));
        let spec = spec.and_then(|text| serde_json::from_str::<ContainerSpec>(text).ok());
        for (path, record) in spec.map(|spec| spec.certificates).into_iter().flatten() {
            let file = files.get(path.as_str());
            if file.is_some_and(|file| file.fingerprint != record.fingerprint) {
                found.push(InUse {
                    component,
                    path,
                    record,
                });
            }
        }
    }
    found
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
