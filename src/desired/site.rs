//! One node while its components are drawn: what every component asks for. Pure.

use std::collections::BTreeMap;

use super::{
    DesiredFile, DrawError, LogLimit, path,
    pki::{Keys, Leaf, component_kubeconfig},
};
use crate::{
    actual::HostFacts,
    config::{Intent, NodeIntent, NodeName},
    secret::Secret,
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
pub(super) struct Site<'a> {
    pub(super) intent: &'a Intent,
    pub(super) keys: &'a Keys,
    pub(super) name: &'a NodeName,
    pub(super) node: &'a NodeIntent,
    /// `None` when it did not answer: then nothing can be done to it either, and what depends on
    /// facts is drawn as for an ordinary host.
    pub(super) facts: Option<&'a HostFacts>,
}

impl Site<'_> {
    /// A file with its digest.
    pub(super) fn file(&self, content: impl Into<Vec<u8>>, mode: u32) -> DesiredFile {
        let content = content.into();
        DesiredFile {
            digest: self.keys.digest(&content),
            content: Secret::new(content),
            mode,
        }
    }

    /// The paths of a leaf's certificate and key, added to `files`.
    pub(super) fn pair(
        &self,
        leaf: Leaf,
        files: &mut Files,
    ) -> Result<(String, String), DrawError> {
        let stem = leaf.stem(self.node);
        let pair = self
            .keys
            .leaves
            .get(&(self.name.clone(), leaf))
            .ok_or_else(|| DrawError::NoKey {
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
    pub(super) fn kubeconfig(&self, leaf: Leaf, files: &mut Files) -> Result<String, DrawError> {
        self.pair(leaf, files)?;
        self.cluster_ca(files);
        let stem = leaf.stem(self.node);
        let path = ssl(&format!("kubecfg-{stem}.yaml"));
        files.insert(
            path.clone(),
            self.file(component_kubeconfig(&stem), PRIVATE),
        );
        Ok(path)
    }

    /// The path of the cluster CA's certificate, added to `files`.
    pub(super) fn cluster_ca(&self, files: &mut Files) -> String {
        self.ca("kube-ca.pem", &self.keys.saved.cluster_ca.cert, files)
    }

    /// The path of the etcd CA's certificate, added to `files`.
    pub(super) fn etcd_ca(&self, files: &mut Files) -> String {
        self.ca("kube-etcd-ca.pem", &self.keys.saved.etcd_ca.cert, files)
    }

    /// The path of the front proxy CA's certificate, added to `files`.
    pub(super) fn front_proxy_ca(&self, files: &mut Files) -> String {
        let cert = &self.keys.saved.front_proxy_ca.cert;
        self.ca("kube-apiserver-requestheader-ca.pem", cert, files)
    }

    /// The path of the service-account key, added to `files`.
    pub(super) fn service_account_key(&self, files: &mut Files) -> String {
        let path = ssl("kube-service-account-token-key.pem");
        let key = self.keys.saved.service_account_key.expose().as_bytes();
        files.insert(path.clone(), self.file(key, PRIVATE));
        path
    }

    /// The path of the public half, added to `files`.
    pub(super) fn service_account_public(&self, files: &mut Files) -> String {
        let path = ssl("kube-service-account-token.pem");
        let key = self.keys.service_account_public.as_bytes();
        files.insert(path.clone(), self.file(key, PUBLIC));
        path
    }

    fn ca(&self, name: &str, cert: &str, files: &mut Files) -> String {
        let path = ssl(name);
        files.insert(path.clone(), self.file(cert, PUBLIC));
        path
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
        let selinux = self.facts.is_some_and(|facts| {
            facts
                .docker
                .security_options
                .iter()
                .any(|option| option.starts_with("name=selinux"))
        });
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

/// `address:port`, an IPv6 address in brackets.
pub(super) fn host_port(address: &str, port: u16) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}
