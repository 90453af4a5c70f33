//! What the fake API server does as a real one: so that the operator's tests mean something.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use rke_operator::api::{Cluster, Kubeconfig};
use serde_json::{Value, json};

use crate::{
    fake_api::FakeApi,
    operator_rig::{clock, cluster},
};

fn clusters(api: &FakeApi) -> Api<DynamicObject> {
    Api::all_with(api.client(), &kube::api::ApiResource::erase::<Cluster>(&()))
}

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn it_says_which_version_it_is() {
    let api = FakeApi::new(clock());
    api.says_it_is("v1.34.4");
    let version = api.client().apiserver_version().await.unwrap();
    assert_eq!(version.git_version, "v1.34.4");
}

#[tokio::test]
async fn our_kinds_are_judged_by_their_schema() {
    let api = FakeApi::new(clock());
    let create = async |change: fn(&mut Value)| {
        let mut value = cluster("a", "n1");
        change(&mut value);
        code(
            clusters(&api)
                .create(&PostParams::default(), &object(&value))
                .await,
        )
    };
    for (text, change) in [
        (
            "spec.sssh: unknown field",
            (|v| v["spec"]["sssh"] = json!(1)) as fn(&mut Value),
        ),
        ("spec.ssh: Required value", |v| {
            v["spec"].as_object_mut().unwrap().remove("ssh");
        }),
        ("spec.changes: Unsupported value", |v| {
            v["spec"]["changes"] = json!("Never");
        }),
        ("between 1s and 720h", |v| {
            v["spec"]["deletion"] = json!({"timeout": "900h"});
        }),
        ("at most 52 characters", |v| {
            v["metadata"]["name"] = json!("x".repeat(60));
        }),
    ] {
        let (code, message) = create(change).await;
        assert_eq!(code, 422, "{message}");
        assert!(message.contains(text), "{message}");
    }
    let made = clusters(&api)
        .create(&PostParams::default(), &object(&cluster("a", "n1")))
        .await
        .unwrap();
    assert_eq!(
        made.data["spec"],
        cluster("a", "n1")["spec"],
        "no default is written into an object"
    );
    let again = clusters(&api)
        .create(&PostParams::default(), &object(&cluster("a", "n1")))
        .await;
    assert_eq!(code(again).0, 409);
}

#[tokio::test]
async fn status_and_spec_are_written_apart_and_generations_follow_the_spec() {
    let api = FakeApi::new(clock());
    let clusters = clusters(&api);
    clusters
        .create(&PostParams::default(), &object(&cluster("a", "n1")))
        .await
        .unwrap();
    let both = json!({
        "spec": {"deletion": {"timeout": "5m"}},
        "status": {"nodeSummary": "1/1"},
    });
    let params = PatchParams::default();
    let main = clusters
        .patch("a", &params, &Patch::Merge(&both))
        .await
        .unwrap();
    assert_eq!(main.metadata.generation, Some(2));
    assert_eq!(main.data.get("status"), None);
    let both = json!({
        "spec": {"deletion": {"timeout": "9m"}},
        "status": {"nodeSummary": "1/1"},
    });
    let status = clusters
        .patch_status("a", &params, &Patch::Merge(&both))
        .await
        .unwrap();
    assert_eq!(status.metadata.generation, Some(2));
    assert_eq!(status.data["spec"]["deletion"]["timeout"], "5m");
    assert_eq!(status.data["status"]["nodeSummary"], "1/1");
    let version = status.metadata.resource_version.clone();
    let same = clusters
        .patch_status("a", &params, &Patch::Merge(&both))
        .await
        .unwrap();
    assert_eq!(
        same.metadata.resource_version, version,
        "no change, no new version"
    );
}

#[tokio::test]
async fn old_versions_and_other_uids_conflict() {
    let api = FakeApi::new(clock());
    let clusters = clusters(&api);
    let made = clusters
        .create(&PostParams::default(), &object(&cluster("a", "n1")))
        .await
        .unwrap();
    let params = PatchParams::default();
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    clusters
        .patch("a", &params, &Patch::Merge(&label))
        .await
        .unwrap();
    let old = json!({"metadata": {"resourceVersion": made.metadata.resource_version, "finalizers": ["a/b"]}});
    assert_eq!(
        code(clusters.patch("a", &params, &Patch::Merge(&old)).await).0,
        409
    );
    let other = json!({"metadata": {"uid": "another", "finalizers": ["a/b"]}});
    assert_eq!(
        code(clusters.patch("a", &params, &Patch::Merge(&other)).await).0,
        409
    );
    assert_eq!(
        code(clusters.replace("a", &PostParams::default(), &made).await).0,
        409
    );
}

#[tokio::test]
async fn an_apply_owns_its_fields_and_takes_away_what_it_no_longer_names() {
    let api = FakeApi::new(clock());
    let maps: Api<ConfigMap> = Api::namespaced(api.client(), "x");
    let body = |data: Value| {
        Patch::Apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data,
        }))
    };
    let one = PatchParams::apply("one").force();
    maps.patch("m", &one, &body(json!({"a": "1", "b": "1"})))
        .await
        .unwrap();
    let two = PatchParams::apply("two");
    maps.patch("m", &two, &body(json!({"c": "2"})))
        .await
        .unwrap();
    assert_eq!(
        code(maps.patch("m", &two, &body(json!({"a": "2"}))).await).0,
        409
    );
    let last = maps
        .patch("m", &one, &body(json!({"a": "3"})))
        .await
        .unwrap();
    let data: Vec<_> = last.data.unwrap().into_iter().collect();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(data, [pair("a", "3"), pair("c", "2")]);
}

#[tokio::test]
async fn finalizers_hold_and_owners_take_with_them() {
    let api = FakeApi::new(clock());
    let mut held = cluster("a", "n1");
    held["metadata"]["finalizers"] = json!(["x/y"]);
    let owner = api.plant("clusters", &held);
    api.plant(
        "kubeconfigs",
        &json!({
            "metadata": {"name": "a", "ownerReferences": [{"uid": owner["metadata"]["uid"]}]},
            "spec": {"clusterRef": {"name": "a"}},
        }),
    );
    api.delete("clusters", "", "a");
    let marked = api.object("clusters", "", "a").unwrap();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["generation"], 2);
    let params = PatchParams::default();
    let more = json!({"metadata": {"finalizers": ["x/y", "new/one"]}});
    let refused = clusters(&api)
        .patch("a", &params, &Patch::Merge(&more))
        .await;
    assert_eq!(code(refused).0, 422);
    let none = json!({"metadata": {"finalizers": []}});
    clusters(&api)
        .patch("a", &params, &Patch::Merge(&none))
        .await
        .unwrap();
    assert_eq!(api.object("clusters", "", "a"), None);
    let kubeconfigs: Api<Kubeconfig> = Api::all(api.client());
    assert!(kubeconfigs.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_watch_tells_what_follows_its_list() {
    let api = FakeApi::new(clock());
    let secret = |name: &str| json!({"metadata": {"name": name, "namespace": "x"}});
    api.plant("secrets", &secret("before"));
    let secrets: Api<Secret> = Api::namespaced(api.client(), "x");
    let list = secrets.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 1);
    let from = list.metadata.resource_version.unwrap();
    let params = WatchParams::default();
    let watch = secrets.watch(&params, &from).await.unwrap();
    api.plant(
        "secrets",
        &json!({"metadata": {"name": "elsewhere", "namespace": "z"}}),
    );
    api.plant("secrets", &secret("after"));
    api.delete("secrets", "x", "before");
    let told: Vec<String> = watch
        .take(2)
        .map_ok(|event| match event {
            WatchEvent::Added(secret) => format!("+{}", secret.metadata.name.unwrap()),
            WatchEvent::Deleted(secret) => format!("-{}", secret.metadata.name.unwrap()),
            other => panic!("{other:?}"),
        })
        .try_collect()
        .await
        .unwrap();
    assert_eq!(told, ["+after", "-before"]);
}

#[tokio::test]
async fn what_is_not_known_is_not_found() {
    let api = FakeApi::new(clock());
    let gadgets: Api<DynamicObject> = Api::all_with(
        api.client(),
        &kube::api::ApiResource {
            group: "example.com".into(),
            version: "v1".into(),
            api_version: "example.com/v1".into(),
            kind: "Gadget".into(),
            plural: "gadgets".into(),
        },
    );
    assert_eq!(code(gadgets.list(&ListParams::default()).await).0, 404);
}

/// The objects that we ship are accepted, and their configs are understood.
#[tokio::test]
async fn samples_are_accepted_and_understood() {
    use rke_operator::config::{Intent, RkeConfig, SecretSources};

    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let value: Value = serde_saphyr::from_str(&text).unwrap();
        if value["kind"] != "Cluster" {
            continue;
        }
        seen += 1;
        let api = FakeApi::new(clock());
        let made = clusters(&api)
            .create(&PostParams::default(), &object(&value))
            .await;
        let made = made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let config = RkeConfig::from_json(&made.data["spec"]["config"]).unwrap();
        let key = crate::cli_support::private_key();
        let sources = SecretSources::new("key", key.into());
        let problems = Intent::from_config(&config, &sources).err();
        assert_eq!(problems, None, "{}", path.display());
    }
    assert!(seen > 0);
}
