//! One node while its components are desired: what every component asks for. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    DesiredError, DesiredFile,
    containerd::{self, CgroupDriver},
    pki::{CertKind, Keys, component_kubeconfig},
};
use crate::{
    config::{Intent, NodeIntent},
    etcd::EtcdView,
    facts::{HostFacts, SystemFacts},
    model::{ClientIdentity, LogLimit, NodeName, Owner, Secret, path},
    state::CaPair,
};

/// Files by path on the node.
pub(super) type Files = BTreeMap<String, DesiredFile>;

/// Readable by everybody.
pub(super) const PUBLIC: u32 = 0o644;
/// For root alone.
pub(super) const PRIVATE: u32 = 0o600;

/// The suites that RKE allows, in the names of today: keys are ECDSA here, and may be RSA in an
/// adopted cluster.
pub(super) const TLS_CIPHERS: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256";

/// A node, and all that its components depend on.
pub(super) struct HostContext<'a> {
    pub(super) intent: &'a Intent,
    pub(super) keys: &'a Keys,
    pub(super) name: &'a NodeName,
    pub(super) node: &'a NodeIntent,
    /// `None` when it did not answer: then nothing can be done to it either, and what depends on
    /// facts is desired as for an ordinary host.
    pub(super) facts: Option<&'a HostFacts>,
    /// etcd, as it was found.
    pub(super) etcd: &'a EtcdView,
    /// What the API servers encrypt with, if they do.
    pub(super) encryption: Option<&'a str>,
}

/// The address that the node has in the cluster: the API server reaches kubelet there and compares
/// it with kubelet's certificate. kubelet cannot announce a configured address that the node does not have
/// (a name, an address of a router in front of it): then it is the address of the default route, which
/// kubelet chooses by default.
pub(super) fn announced(
    intent: &Intent,
    name: &NodeName,
    node: &NodeIntent,
    system: &SystemFacts,
) -> Option<String> {
    let internal = node.internal_address.to_string();
    if node.has_internal_address {
        return Some(internal);
    }
    [internal, node.endpoint.address.clone()]
        .into_iter()
        .find(|address| system.addresses.contains(address))
        .or_else(|| own_address(intent, name, system.route_address.as_deref()?))
}

/// An address that only the node itself reports. It gets into a certificate of the authority that also signs for
/// API servers, so it must not belong to anything else.
fn own_address(intent: &Intent, name: &NodeName, told: &str) -> Option<String> {
    let address: IpAddr = told.parse().ok()?;
    let services = &intent.services;
    let of_the_cluster = services.service_cluster_ip_range.contains(&address)
        || services.cluster_cidr.contains(&address)
        || services.cluster_dns_server == address;
    let of_no_host = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    let is = |text: &str| text.parse() == Ok(address);
    let of_the_api = intent.sans.iter().any(|san| is(san));
    let mut others = intent.nodes.iter().filter(|(other, _)| *other != name);
    let of_another = others.any(|(_, other)| {
        is(&other.endpoint.address) || other.internal_address.ip() == Some(address)
    });
    let free = !(of_the_cluster || of_no_host || of_the_api || of_another);
    free.then(|| address.to_string())
}

impl HostContext<'_> {
    /// A file with its digest.
    pub(super) fn file(&self, content: impl Into<Vec<u8>>, mode: u32) -> DesiredFile {
        let content = content.into();
        DesiredFile {
            digest: self.keys.digest(&content),
            content: Secret::new(content),
            mode,
            owner: Owner::ROOT,
        }
    }

    /// The paths of a kind's certificate and key, added to `files`.
    pub(super) fn pair(
        &self,
        kind: CertKind,
        files: &mut Files,
    ) -> Result<(String, String), DesiredError> {
        let stem = kind.stem(self.node);
        let pair = self
            .keys
            .leaves
            .get(&(self.name.clone(), kind))
            .ok_or_else(|| DesiredError::NoKey {
                node: self.name.clone(),
                stem: stem.clone(),
            })?;
        let cert = ssl(&format!("{stem}.pem"));
        let key = ssl(&format!("{stem}-key.pem"));
        files.insert(cert.clone(), self.file(pair.cert.as_bytes(), PUBLIC));
        files.insert(
            key.clone(),
            self.file(pair.key.expose().as_bytes(), PRIVATE),
        );
        Ok((cert, key))
    }

    /// The path of a component's kubeconfig; it and what it names are added to `files`.
    pub(super) fn kubeconfig(
        &self,
        kind: CertKind,
        files: &mut Files,
    ) -> Result<String, DesiredError> {
        self.pair(kind, files)?;
        self.cluster_ca(files);
        let stem = kind.stem(self.node);
        let path = ssl(&format!("kubecfg-{stem}.yaml"));
        files.insert(
            path.clone(),
            self.file(component_kubeconfig(&stem), PRIVATE),
        );
        Ok(path)
    }

    /// The path of the cluster CA's certificate, added to `files`.
    pub(super) fn cluster_ca(&self, files: &mut Files) -> String {
        let bundle = self.keys.saved.cluster_ca.bundle();
        self.ca(path::CLUSTER_CA, &bundle, files)
    }

    /// The path of what vouches for clients of the API server and for kubelets: the cluster's CA
    /// and the one that signs approved requests. Added to `files`.
    pub(super) fn cluster_and_signer_ca(&self, files: &mut Files) -> String {
        let bundle = self.keys.saved.cluster_and_signer();
        self.ca(path::CLUSTER_AND_SIGNER_CA, &bundle, files)
    }

    /// The paths of the certificate and the key that sign approved requests, added to `files`.
    pub(super) fn signer_ca(&self, files: &mut Files) -> Option<(String, String)> {
        let CaPair { cert, key } = &self.keys.saved.signer_ca.as_ref()?.signing;
        let path = ssl("kube-signer-ca-key.pem");
        let key = key.as_ref()?.expose().as_bytes();
        files.insert(path.clone(), self.file(key, PRIVATE));
        Some((self.ca(path::SIGNER_CA, cert, files), path))
    }

    /// The path of the etcd CA's certificate, added to `files`.
    pub(super) fn etcd_ca(&self, files: &mut Files) -> String {
        self.ca(path::ETCD_CA, &self.keys.saved.etcd_ca.bundle(), files)
    }

    /// The paths of an external etcd's authority, and of the certificate and key for it, as in RKE. Added to `files`.
    pub(super) fn external_etcd(
        &self,
        identity: &ClientIdentity,
        files: &mut Files,
    ) -> (String, (String, String)) {
        let ClientIdentity { ca, cert, key } = identity;
        let paths = path::EXTERNAL_ETCD.map(str::to_owned);
        let contents = [
            (ca.as_bytes(), PUBLIC),
            (cert.as_bytes(), PUBLIC),
            (key.expose().as_bytes(), PRIVATE),
        ];
        for (path, (content, mode)) in paths.iter().zip(contents) {
            files.insert(path.clone(), self.file(content, mode));
        }
        let [ca, cert, key] = paths;
        (ca, (cert, key))
    }

    /// The path of the front proxy CA's certificate, added to `files`.
    pub(super) fn front_proxy_ca(&self, files: &mut Files) -> String {
        let cert = &self.keys.saved.front_proxy_ca.bundle();
        self.ca(path::FRONT_PROXY_CA, cert, files)
    }

    /// The path of the service-account key, added to `files`.
    pub(super) fn service_account_key(&self, files: &mut Files) -> String {
        let path = path::SERVICE_ACCOUNT_KEY.to_owned();
        let key = self.keys.saved.service_accounts.signing.expose().as_bytes();
        files.insert(path.clone(), self.file(key, PRIVATE));
        path
    }

    /// The path of the public half, added to `files`.
    pub(super) fn service_account_public(&self, files: &mut Files) -> String {
        let path = path::SERVICE_ACCOUNT_PUBLIC.to_owned();
        let key = self.keys.service_account_public.as_bytes();
        files.insert(path.clone(), self.file(key, PUBLIC));
        path
    }

    fn ca(&self, path: &str, cert: &str, files: &mut Files) -> String {
        files.insert(path.to_owned(), self.file(cert, PUBLIC));
        path.to_owned()
    }

    /// Who manages the cgroups of pods: containerd and kubelet must agree.
    pub(super) fn cgroup_driver(&self) -> Result<CgroupDriver, DesiredError> {
        let Some(facts) = self.facts else {
            return Ok(CgroupDriver::Systemd);
        };
        let own = facts
            .files
            .as_ref()
            .and_then(|files| files.get(path::CONTAINERD_CONFIG))
            .map(|file| String::from_utf8_lossy(file.content.expose()));
        let systemd_v2 = facts.system.systemd && facts.docker.cgroup_version == 2;
        let dump = &facts.system.containerd.dump;
        containerd::choose_driver(dump, own.as_deref(), systemd_v2).map_err(|source| {
            DesiredError::Containerd {
                node: self.name.clone(),
                source,
            }
        })
    }

    /// Limits for logs, unless the daemon has its own.
    pub(super) fn log_limit(&self) -> Option<LogLimit> {
        let bounded = self.facts.is_some_and(|facts| facts.docker.logs_bounded);
        (!bounded).then(|| LogLimit {
            max_size: "20m".to_owned(),
            max_file: 3,
        })
    }

    /// What keeps `SELinux` from hiding the node's files from our containers.
    pub(super) fn security_opts(&self) -> Vec<String> {
        let selinux = self
            .facts
            .is_some_and(|facts| facts.docker.labels_containers());
        if selinux {
            vec!["label=disable".to_owned()]
        } else {
            Vec::new()
        }
    }
}

/// A path in the folder of certificates.
fn ssl(file: &str) -> String {
    format!("{}/{file}", path::SSL)
}
