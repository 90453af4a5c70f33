//! What the Secret of a user's kubeconfig has: rendered, read back, and compared. Pure.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::{ByteString, api::core::v1::Secret as KubeSecret};
use serde::Deserialize;
use serde_json::json;

use super::request::Request;
use crate::{
    api::{KUBECONFIG_KEY, SecretFormat},
    desired::pki::{self, HandedOut, Pair, UserAccess},
    model::{Secret, label},
};

/// How Argo CD finds the Secret of a cluster.
const ARGO_LABEL: (&str, &str) = ("argocd.argoproj.io/secret-type", "cluster");

type Data = BTreeMap<String, ByteString>;

/// The labels that it must have.
pub(super) fn labels(request: &Request) -> BTreeMap<String, String> {
    let name = (label::CLUSTER_NAME.to_owned(), request.cluster.clone());
    let (key, value) = ARGO_LABEL;
    let argo = (key.to_owned(), value.to_owned());
    match request.format {
        SecretFormat::Kubeconfig => BTreeMap::from([name]),
        SecretFormat::ArgoCD => BTreeMap::from([name, argo]),
    }
}

/// The keys that it must have.
pub(super) fn data(access: &UserAccess, request: &Request) -> Data {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    match request.format {
        SecretFormat::Kubeconfig => {
            let kubeconfig = access.kubeconfig();
            BTreeMap::from([(KUBECONFIG_KEY.to_owned(), bytes(kubeconfig.expose()))])
        }
        SecretFormat::ArgoCD => {
            let config = json!({"tlsClientConfig": {
                "insecure": false,
                "caData": STANDARD.encode(&access.ca),
                "certData": STANDARD.encode(&access.pair.cert),
                "keyData": STANDARD.encode(access.pair.key.expose()),
            }});
            let config = Secret::new(config.to_string());
            BTreeMap::from([
                ("name".to_owned(), bytes(&request.cluster)),
                ("server".to_owned(), bytes(access.server())),
                ("config".to_owned(), bytes(config.expose())),
            ])
        }
    }
}

/// What a Secret hands out; nothing where that cannot be read.
pub(super) fn handed_out(secret: &KubeSecret, format: SecretFormat) -> HandedOut {
    let text = |key: &str| {
        let bytes = secret.data.as_ref()?.get(key)?;
        std::str::from_utf8(&bytes.0).ok()
    };
    match format {
        SecretFormat::Kubeconfig => text(KUBECONFIG_KEY)
            .map(pki::handed_out)
            .unwrap_or_default(),
        SecretFormat::ArgoCD => {
            let config =
                text("config").and_then(|text| serde_json::from_str::<ArgoConfig>(text).ok());
            HandedOut {
                server: text("server").map(str::to_owned),
                pair: config.and_then(|config| config.tls.pair()),
            }
        }
    }
}

#[derive(Deserialize)]
struct ArgoConfig {
    #[serde(rename = "tlsClientConfig")]
    tls: ArgoTls,
}

#[derive(Deserialize)]
struct ArgoTls {
    #[serde(rename = "certData")]
    cert: String,
    #[serde(rename = "keyData")]
    key: Secret<String>,
}

impl ArgoTls {
    fn pair(&self) -> Option<Pair> {
        let plain = |data: &str| String::from_utf8(STANDARD.decode(data).ok()?).ok();
        Some(Pair {
            cert: plain(&self.cert)?,
            key: Secret::new(plain(self.key.expose())?),
        })
    }
}

/// True where the Secret has all of it; what others added stays.
pub(super) fn has(secret: &KubeSecret, labels: &BTreeMap<String, String>, data: &Data) -> bool {
    let labelled = secret.metadata.labels.as_ref();
    let there = secret.data.as_ref();
    labels
        .iter()
        .all(|(key, value)| labelled.is_some_and(|own| own.get(key) == Some(value)))
        && data
            .iter()
            .all(|(key, value)| there.is_some_and(|own| own.get(key) == Some(value)))
}
