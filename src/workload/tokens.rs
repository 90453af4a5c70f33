//! Secrets that hold tokens of service accounts: which key has signed each, and another token in its place. The token
//! controller of Kubernetes makes one where a Secret has none.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Waiting, WorkloadError, objects::patiently, pages, wait::until_nothing_is_left};
use crate::model::ObjectRef;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// The type of these Secrets, as a selector.
pub(super) const SELECTOR: &str = "type=kubernetes.io/service-account-token";
const TOKEN: &str = "token";

/// The Secrets that hold tokens, and the id of the key that signed each. Kubernetes signs one where there is none.
pub(super) async fn signers(client: &Client) -> kube::Result<BTreeMap<ObjectRef, Option<String>>> {
    let mut signers = BTreeMap::new();
    let params = ListParams::default().fields(SELECTOR);
    let all = Api::<KubeSecret>::all(client.clone());
    pages::each(&all, &params, |secret| {
        if let Some(token) = token(&secret) {
            let reference = ObjectRef {
                api_version: "v1".to_owned(),
                kind: "Secret".to_owned(),
                namespace: secret.namespace().unwrap_or_default(),
                name: secret.name_any(),
            };
            signers.insert(reference, key_id(token));
        }
    })
    .await?;
    Ok(signers)
}

/// Its token, if it has one.
fn token(secret: &KubeSecret) -> Option<&[u8]> {
    let token = secret.data.as_ref()?.get(TOKEN)?;
    (!token.0.is_empty()).then_some(token.0.as_slice())
}

/// The key id in the header of a JSON web token.
fn key_id(token: &[u8]) -> Option<String> {
    let header = token.split(|byte| *byte == b'.').next()?;
    let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    let id = header["kid"].as_str()?;
    (!id.is_empty()).then(|| id.to_owned())
}

/// Takes the tokens out that another key has signed, and waits until Kubernetes has made others with this one.
pub async fn renew_tokens(
    client: &Client,
    secrets: &BTreeSet<ObjectRef>,
    key: &str,
    patience: Duration,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    until_nothing_is_left(patience, waiting, || async {
        let mut left = Vec::new();
        for secret in secrets {
            if !is_renewed(client, secret, key).await? {
                left.push(format!("{}/{}", secret.namespace, secret.name));
            }
        }
        let left = (!left.is_empty()).then(|| left.join(", "));
        Ok(left.map(|left| format!("new tokens in the Secrets {left}")))
    })
    .await
}

/// True when the Secret is gone, or has a token of this key. One of another key is taken out, if the Secret has not
/// changed since it was read.
async fn is_renewed(client: &Client, secret: &ObjectRef, key: &str) -> Result<bool, WorkloadError> {
    let api: Api<KubeSecret> = Api::namespaced(client.clone(), &secret.namespace);
    let name = format!("{}/{}", secret.namespace, secret.name);
    let doing = format!("read Secret `{name}`");
    let Some(there) = patiently(&doing, || api.get_opt(&secret.name)).await? else {
        return Ok(true);
    };
    match token(&there) {
        Some(token) if key_id(token).as_deref() == Some(key) => return Ok(true),
        None => return Ok(false),
        Some(_) => {}
    }
    let version = there.resource_version();
    let patch = Patch::Merge(json!({
        "metadata": {"resourceVersion": version},
        "data": {TOKEN: null},
    }));
    let params = PatchParams {
        field_manager: Some(super::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let doing = format!("take the former token out of Secret `{name}`");
    patiently(&doing, || async {
        match api.patch(&secret.name, &params, &patch).await {
            Ok(_) => Ok(()),
            // It changed, or is gone: it is read again.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error),
        }
    })
    .await?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::{super::fake::FakeApi, *};
    use crate::error::Explain as _;

    fn path(name: &str) -> String {
        format!("/api/v1/namespaces/default/secrets/{name}")
    }

    fn reference(name: &str) -> ObjectRef {
        ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }
    }

    /// As Kubernetes makes it.
    fn token(key: Option<&str>) -> String {
        let header = json!({"alg": "ES256", "kid": key.unwrap_or_default()});
        let header = URL_SAFE_NO_PAD.encode(header.to_string());
        STANDARD.encode(format!("{header}.claims.signature"))
    }

    fn secret(name: &str, token: Option<String>) -> Value {
        let mut secret = json!({
            "metadata": {"name": name, "namespace": "default"},
            "type": "kubernetes.io/service-account-token",
            "data": {"namespace": STANDARD.encode("default")},
        });
        if let Some(token) = token {
            secret["data"]["token"] = token.into();
        }
        secret
    }

    fn api() -> FakeApi {
        let api = FakeApi::new();
        api.put(&path("new"), secret("new", Some(token(Some("new")))));
        api.put(&path("old"), secret("old", Some(token(Some("old")))));
        api.put(&path("very-old"), secret("very-old", Some(token(None))));
        api.put(&path("empty"), secret("empty", None));
        let mut other = secret("other", Some(token(Some("old"))));
        other["type"] = "Opaque".into();
        api.put(&path("other"), other);
        api
    }

    #[tokio::test]
    async fn tokens_tell_which_key_has_signed_them() {
        let signers = signers(&api().client()).await.unwrap();
        let expected = [
            ("new", Some("new")),
            ("old", Some("old")),
            ("very-old", None),
        ];
        let expected = expected.map(|(name, key)| (reference(name), key.map(str::to_owned)));
        assert_eq!(signers, expected.into());
    }

    /// One that was signed again by then keeps its token, and one that is gone needs none.
    #[tokio::test(start_paused = true)]
    async fn tokens_of_another_key_are_signed_again() {
        let api = api();
        let client = api.client();
        let secrets = ["new", "old", "gone"].map(reference).into();
        let signs = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let left = api.get(&path("old")).unwrap();
            assert!(left["data"]["token"].is_null(), "{left}");
            assert!(left["data"]["namespace"].is_string());
            api.put(&path("old"), secret("old", Some(token(Some("new")))));
        };
        let patience = Duration::from_secs(60);
        let renews = renew_tokens(&client, &secrets, "new", patience, &|_, _| ());
        let (renewed, ()) = tokio::join!(renews, signs);
        renewed.unwrap();
        let writes = api.log();
        let writes = writes.iter().filter(|line| line.starts_with("PATCH"));
        assert_eq!(
            writes.collect::<Vec<_>>(),
            [&format!("PATCH {}", path("old"))]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_that_are_not_signed_in_time_are_named() {
        let api = api();
        let client = api.client();
        let secrets = [reference("old")].into();
        let patience = Duration::from_secs(60);
        let renewed = renew_tokens(&client, &secrets, "new", patience, &|_, _| ()).await;
        let error = renewed.unwrap_err();
        assert!(error.to_string().contains("default/old"), "{error}");
        assert!(!error.hints().is_empty());
    }
}
