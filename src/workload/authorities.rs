//! The authorities of the cluster where its API hands them out: to pods, in a `ConfigMap` of each namespace and in Secrets
//! with tokens; and to extension API servers, in one that API servers write.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Kinds, Waiting, WorkloadError, kinds::locate, objects::patiently, pages, tokens,
    wait::until_nothing_is_left,
};
use crate::{
    facts::{ExtensionTrust, PublishedAuthorities},
    model::{ObjectRef, label},
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Pod, Secret as KubeSecret},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;

/// Of each namespace, as a selector.
const ROOTS: &str = "metadata.name=kube-root-ca.crt";
/// The key in it, and in a Secret with a token.
const CA: &str = "ca.crt";
/// What extension API servers read.
const EXTENSION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
/// The keys in it that hold certificates.
const EXTENSION_KEYS: [&str; 2] = ["client-ca-file", "requestheader-client-ca-file"];
/// How many are named that lack them.
const SHOWN: usize = 5;

/// What is handed out.
pub(super) async fn published(client: &Client) -> kube::Result<PublishedAuthorities> {
    let (namespace, name) = EXTENSION;
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let extension = api.get_opt(name).await?;
    Ok(PublishedAuthorities {
        roots: roots(client).await?,
        extension: extension.map(|map| {
            let data = map.data.as_ref();
            let texts = EXTENSION_KEYS.map(|key| data.and_then(|data| data.get(key)).cloned());
            ExtensionTrust {
                version: map.resource_version().unwrap_or_default(),
                authorities: texts.map(Option::unwrap_or_default).concat(),
            }
        }),
        pods: pods(client).await?,
    })
}

/// Pods that mount a token and have not ended, by what has made them.
async fn pods(client: &Client) -> kube::Result<BTreeMap<ObjectRef, i64>> {
    let mut started = BTreeMap::new();
    let all = Api::<Pod>::all(client.clone());
    pages::each(&all, &ListParams::default(), |pod| {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        let start = status.and_then(|status| status.start_time.as_ref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        if let Some(Time(start)) = start.filter(|_| !has_ended && mounts_a_token(&pod)) {
            let first = started.entry(made_by(&pod)).or_insert(i64::MAX);
            *first = start.as_second().min(*first);
        }
    })
    .await?;
    Ok(started)
}

fn mounts_a_token(pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let projected = volumes
        .into_iter()
        .flatten()
        .filter_map(|volume| volume.projected.as_ref());
    let mut sources = projected
        .filter_map(|volume| volume.sources.as_ref())
        .flatten();
    sources.any(|source| source.service_account_token.is_some())
}

/// The Deployment of a `ReplicaSet`, as `kubectl rollout restart` wants it.
fn made_by(pod: &Pod) -> ObjectRef {
    let owners = pod.owner_references().iter();
    let owner = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true));
    let Some(owner) = owner else {
        return reference("Pod", pod);
    };
    let hash = pod.labels().get("pod-template-hash");
    let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
    let (kind, name) = match deployment.filter(|_| owner.kind == "ReplicaSet") {
        Some(name) => ("Deployment", name),
        None => (owner.kind.as_str(), owner.name.as_str()),
    };
    ObjectRef {
        api_version: owner.api_version.clone(),
        kind: kind.to_owned(),
        namespace: pod.namespace().unwrap_or_default(),
        name: name.to_owned(),
    }
}

/// What pods trust, by what holds it.
async fn roots(client: &Client) -> kube::Result<BTreeMap<ObjectRef, String>> {
    let mut roots = BTreeMap::new();
    let params = ListParams::default().fields(ROOTS);
    let all = Api::<ConfigMap>::all(client.clone());
    pages::each(&all, &params, |map| {
        let text = map.data.as_ref().and_then(|data| data.get(CA));
        let text = text.map(String::as_bytes).unwrap_or_default();
        let holder = reference("ConfigMap", &map);
        roots.insert(holder, PublishedAuthorities::fingerprint(text));
    })
    .await?;
    let params = ListParams::default().fields(tokens::SELECTOR);
    let all = Api::<KubeSecret>::all(client.clone());
    pages::each(&all, &params, |secret| {
        // One that Kubernetes has not filled yet is filled with what is right then.
        if let Some(ByteString(text)) = secret.data.as_ref().and_then(|data| data.get(CA)) {
            let holder = reference("Secret", &secret);
            roots.insert(holder, PublishedAuthorities::fingerprint(text));
        }
    })
    .await?;
    Ok(roots)
}

fn reference(kind: &str, object: &impl ResourceExt) -> ObjectRef {
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    }
}

/// Waits until all that pods trust is this.
pub async fn await_authorities(
    client: &Client,
    bundle: &str,
    patience: Duration,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    until_nothing_is_left(patience, waiting, || async {
        let all = patiently("list what pods trust", || roots(client)).await?;
        let left = all.iter().filter(|(_, text)| *text != bundle);
        let left: Vec<String> = left.map(|(holder, _)| holder.to_string()).collect();
        if left.is_empty() {
            return Ok(None);
        }
        let more = left.len().saturating_sub(SHOWN);
        let mut waiting_for = format!(
            "the new certificate authority in {}",
            left[..left.len() - more].join(", ")
        );
        if more > 0 {
            waiting_for = format!("{waiting_for} and {more} more");
        }
        Ok(Some(waiting_for))
    })
    .await
}

/// Marks the pod templates of these with the authority: Kubernetes replaces pods whose template has changed. Gone is success.
pub async fn restart_pods(
    client: &Client,
    workloads: &BTreeSet<ObjectRef>,
    authority: &str,
) -> Result<(), WorkloadError> {
    let kinds = Kinds::default();
    // Not the field manager that applies the add-on: the mark stays when the add-on is applied again.
    let params = PatchParams {
        field_manager: Some(format!("{}-authorities", super::FIELD_MANAGER)),
        ..PatchParams::default()
    };
    let annotations = json!({label::AUTHORITY: authority});
    let patch = Patch::Merge(json!({
        "spec": {"template": {"metadata": {"annotations": annotations}}},
    }));
    for workload in workloads {
        let api = locate(client, &kinds, workload).await?;
        let doing = format!("restart the pods of {workload}");
        patiently(&doing, || async {
            match api.patch(&workload.name, &params, &patch).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await?;
    }
    Ok(())
}

/// Deletes what extension API servers read, if it was not written since. Gone is success.
pub async fn forget_authorities(client: &Client, version: &str) -> Result<(), WorkloadError> {
    let (namespace, name) = EXTENSION;
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            resource_version: Some(version.to_owned()),
            uid: None,
        }),
        ..DeleteParams::default()
    };
    patiently(
        &format!("delete ConfigMap `{namespace}/{name}`"),
        || async {
            match api.delete(name, &params).await {
                Ok(_) => Ok(()),
                // It was written since, or is gone: the next survey reads it.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
                Err(error) => Err(error),
            }
        },
    )
    .await
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde_json::{Value, json};

    use super::{super::fake::FakeApi, *};
    use crate::error::Explain as _;

    const EXTENSION_PATH: &str =
        "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

    fn map(namespace: &str) -> String {
        format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt")
    }

    fn api() -> FakeApi {
        let api = FakeApi::new();
        for namespace in ["default", "kube-system"] {
            api.put(&map(namespace), json!({"data": {CA: "old"}}));
        }
        let another = "/api/v1/namespaces/default/configmaps/another";
        api.put(another, json!({"data": {CA: "another"}}));
        let extension = json!({"data": {
            "client-ca-file": "cluster\n",
            "requestheader-client-ca-file": "front\n",
            "requestheader-allowed-names": "[]",
        }});
        api.put(EXTENSION_PATH, extension);
        let secret =
            |data: Value| json!({"type": "kubernetes.io/service-account-token", "data": data});
        let path = "/api/v1/namespaces/default/secrets/";
        let data = json!({CA: STANDARD.encode("old"), "token": STANDARD.encode("token")});
        api.put(&format!("{path}token"), secret(data));
        api.put(&format!("{path}empty"), secret(json!({})));
        let token = json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]);
        let pod = |name: &str, owner: Value, year: u16, phase: &str, volumes: &Value| {
            let pod = json!({
                "metadata": {
                    "ownerReferences": owner,
                    "labels": {"pod-template-hash": "5d7"},
                },
                "spec": {"containers": [], "volumes": volumes},
                "status": {"phase": phase, "startTime": format!("{year}-01-01T00:00:00Z")},
            });
            api.put(&format!("/api/v1/namespaces/default/pods/{name}"), pod);
        };
        let owner = |kind: &str, name: &str| {
            json!([{
                "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": true,
            }])
        };
        let set = || owner("ReplicaSet", "coredns-5d7");
        pod("coredns-1", set(), 2027, "Running", &token);
        pod("coredns-2", set(), 2026, "Running", &token);
        pod("coredns-3", set(), 2025, "Succeeded", &token);
        pod(
            "flannel-1",
            owner("DaemonSet", "flannel"),
            2026,
            "Running",
            &token,
        );
        pod("bare", json!([]), 2026, "Running", &token);
        pod("without", json!([]), 2026, "Running", &json!([]));
        api
    }

    #[tokio::test]
    async fn what_is_handed_out_is_read() {
        let published = published(&api().client()).await.unwrap();
        let old = PublishedAuthorities::fingerprint(b"old");
        let roots = published.roots.iter();
        let roots: Vec<(String, bool)> = roots
            .map(|(holder, text)| (holder.to_string(), *text == old))
            .collect();
        let expected = [
            "ConfigMap `default/kube-root-ca.crt`",
            "ConfigMap `kube-system/kube-root-ca.crt`",
            "Secret `default/token`",
        ];
        assert_eq!(roots, expected.map(|name| (name.to_owned(), true)));
        let extension = published.extension.unwrap();
        assert_eq!(extension.authorities, "cluster\nfront\n");
        let pods = published.pods.iter();
        let pods: Vec<String> = pods.map(|(by, start)| format!("{by} {start}")).collect();
        let first = "2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap();
        let first = first.as_second();
        let expected = [
            format!("DaemonSet `default/flannel` {first}"),
            format!("Deployment `default/coredns` {first}"),
            format!("Pod `default/bare` {first}"),
        ];
        let mut sorted = pods.clone();
        sorted.sort();
        assert_eq!(sorted, expected);
        let api = FakeApi::new();
        let nothing = super::published(&api.client()).await.unwrap();
        assert_eq!(nothing, PublishedAuthorities::default());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_handed_out_in_time_is_named() {
        let api = api();
        let client = api.client();
        let (new, patience) = (
            PublishedAuthorities::fingerprint(b"new"),
            Duration::from_secs(60),
        );
        let awaited = || await_authorities(&client, &new, patience, &|_, _| ());
        let error = awaited().await.unwrap_err();
        assert!(error.to_string().contains("default/token"), "{error}");
        assert!(!error.hints().is_empty());
        let writes = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            for namespace in ["default", "kube-system"] {
                api.put(&map(namespace), json!({"data": {CA: "new"}}));
            }
            api.forget("/api/v1/namespaces/default/secrets/token");
        };
        let (awaited, ()) = tokio::join!(awaited(), writes);
        awaited.unwrap();
    }

    #[tokio::test]
    async fn what_was_written_since_is_not_deleted() {
        let api = api();
        let client = api.client();
        let version = || async {
            let published = published(&client).await.unwrap();
            published.extension.unwrap().version
        };
        let former = version().await;
        api.put(EXTENSION_PATH, json!({"data": {}}));
        forget_authorities(&client, &former).await.unwrap();
        assert!(api.get(EXTENSION_PATH).is_some());
        let version = version().await;
        for _ in 0..2 {
            forget_authorities(&client, &version).await.unwrap();
            assert!(api.get(EXTENSION_PATH).is_none());
        }
    }

    /// The rest of the template stays, and what is gone needs no restart.
    #[tokio::test]
    async fn pods_are_restarted_by_a_mark_on_their_template() {
        let api = FakeApi::new();
        let path = "/apis/apps/v1/namespaces/kube-system/deployments/coredns";
        let pods = json!({"metadata": {"labels": {"k8s-app": "kube-dns"}}});
        api.put(path, json!({"spec": {"replicas": 2, "template": pods}}));
        let workload = |name: &str| ObjectRef {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
        };
        let workloads = ["coredns", "gone"].map(workload).into();
        restart_pods(&api.client(), &workloads, "new")
            .await
            .unwrap();
        let marked = &api.get(path).unwrap()["spec"];
        assert_eq!(marked["replicas"], 2);
        let pods = &marked["template"]["metadata"];
        assert_eq!(pods["labels"]["k8s-app"], "kube-dns");
        assert_eq!(pods["annotations"][label::AUTHORITY], "new");
    }
}
