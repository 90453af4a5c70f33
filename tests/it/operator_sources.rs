//! Where a Cluster is read from, other than its object: ConfigMaps and files.

use std::{fs, path::Path, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rke_operator::facts::ContainerState;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    fake_api::FakeApi,
    operator_rig::{
        CREDENTIALS, NAMESPACE, Rig, clock, cluster, is, message, minutes, planted_line, reason,
        settled, the_scheduler_is,
    },
    sim::remote::{Purpose, SimRemote},
};

/// A Cluster with another source in the place of its config, and that config.
fn elsewhere(source: &str, value: Value) -> (Value, Value) {
    let mut object = cluster("a", "n1");
    let spec = object["spec"].as_object_mut().unwrap();
    let config = spec.remove("config").unwrap();
    spec.insert(source.to_owned(), value);
    (object, config)
}

fn with_verbosity(config: &Value, level: &str) -> Value {
    let mut config = config.clone();
    config["services"] = json!({"kubelet": {"extra_args": {"v": level}}});
    config
}

fn has_verbosity(rig: &Rig, level: &str) -> bool {
    let kubelet = rig.nodes.definition("n1", "kubelet").command;
    kubelet.contains(&format!("--v={level}"))
}

fn map(name: &str, key: &str, text: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": CREDENTIALS}, "data": {key: text}})
}

fn with_root(root: Option<&Path>) -> Rig {
    let nodes = SimRemote::bare(&["n1"]);
    Rig::with(nodes, FakeApi::new(clock()), |options| {
        options.config_root = root.map(Path::to_owned);
    })
}

async fn stalls(rig: &Rig, why: &str) -> String {
    let stalled = |cluster: &Value| reason(cluster, "Stalled") == why;
    message(&rig.until("a", stalled).await, "Stalled")
}

/// An edit of the ConfigMap is an edit of the spec.
#[tokio::test(start_paused = true)]
async fn a_config_may_be_in_a_config_map() {
    let rig = Rig::start(&["n1"]);
    let source = json!({"configMapKeyRef": {"name": "a-config"}});
    let (object, config) = elsewhere("configFrom", source);
    rig.create(&object).await;
    let text = stalls(&rig, "SourceMissing").await;
    let cure = "create configmap a-config --from-file=cluster.yml=<file>";
    assert!(text.contains(cure), "{text}");
    assert_eq!(reason(&rig.cluster("a"), "ConfigValid"), "SourceMissing");
    let set = |key: &str, text: &str| {
        let map = map("a-config", key, text);
        if rig
            .api
            .object("configmaps", CREDENTIALS, "a-config")
            .is_some()
        {
            rig.api.patch("configmaps", CREDENTIALS, "a-config", &map);
        } else {
            rig.api.plant("configmaps", &map);
        }
    };
    set("other.yml", &config.to_string());
    rig.until("a", |cluster| {
        message(cluster, "Stalled").contains("has no key `cluster.yml`")
    })
    .await;
    set("cluster.yml", &config.to_string());
    rig.ready("a").await;
    let edited = Instant::now();
    let halt = rig.nodes.halt(Purpose::Up, 0);
    set("cluster.yml", &with_verbosity(&config, "4").to_string());
    halt.reached().await;
    // A run towards a config that is no longer the present one ends.
    halt.lift();
    set("cluster.yml", &with_verbosity(&config, "5").to_string());
    halt.go_on();
    rig.until("a", |cluster| settled(cluster) && has_verbosity(&rig, "5"))
        .await;
    assert!(edited.elapsed() < Duration::from_secs(60));
    assert!(!has_verbosity(&rig, "4"));
    rig.api.delete("configmaps", CREDENTIALS, "a-config");
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1"), 0);
}

/// A label on what the object refers to changes nothing, and a run goes on; other contents and a consent that is withdrawn
/// end it.
#[tokio::test(start_paused = true)]
async fn a_label_on_a_source_ends_no_run() {
    let rig = Rig::start(&["n1"]);
    let (object, config) = elsewhere(
        "configFrom",
        json!({"configMapKeyRef": {"name": "a-config"}}),
    );
    let with = |level: &str| {
        map(
            "a-config",
            "cluster.yml",
            &with_verbosity(&config, level).to_string(),
        )
    };
    let edit = |level: &str| {
        rig.api
            .patch("configmaps", CREDENTIALS, "a-config", &with(level))
    };
    rig.api.plant("configmaps", &with("3"));
    rig.create(&object).await;
    rig.ready("a").await;
    assert_eq!(rig.nodes.counts().ups, 1);

    let halt = rig.nodes.halt(Purpose::Up, 0);
    edit("4");
    halt.reached().await;
    let label = json!({"metadata": {"labels": {"team": "one"}}});
    rig.api.patch("configmaps", CREDENTIALS, "a-config", &label);
    rig.api.patch("secrets", CREDENTIALS, "nodes", &label);
    minutes(1).await;
    halt.go_on();
    rig.until("a", |cluster| settled(cluster) && has_verbosity(&rig, "4"))
        .await;
    assert_eq!(rig.nodes.counts().ups, 2, "a run was ended");

    edit("5");
    halt.reached().await;
    halt.lift();
    let withdrawn =
        json!({"metadata": {"annotations": {"clusterprovisioner.rke.io/clusters": "b"}}});
    rig.api.patch("secrets", CREDENTIALS, "nodes", &withdrawn);
    minutes(1).await;
    halt.go_on();
    stalls(&rig, "SecretNotGranted").await;
    assert!(!has_verbosity(&rig, "5"));
}

/// A change of the file is seen within seconds, also while a run is under way; an operator without the folder reads none.
#[tokio::test(start_paused = true)]
async fn a_config_may_be_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prod").join("cluster.yml");
    let (object, config) = elsewhere("configPath", json!("prod/cluster.yml"));
    let rig = with_root(Some(folder.path()));
    rig.create(&object).await;
    let text = stalls(&rig, "SourceMissing").await;
    assert!(
        text.contains("`prod/cluster.yml` of `--config-root`"),
        "{text}"
    );
    fs::create_dir(file.parent().unwrap()).unwrap();
    fs::write(&file, format!("# ours\n{config}\n")).unwrap();
    rig.ready("a").await;
    let edited = Instant::now();
    let halt = rig.nodes.halt(Purpose::Up, 0);
    fs::write(&file, with_verbosity(&config, "4").to_string()).unwrap();
    halt.reached().await;
    halt.lift();
    fs::write(&file, with_verbosity(&config, "5").to_string()).unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await;
    halt.go_on();
    rig.until("a", |cluster| settled(cluster) && has_verbosity(&rig, "5"))
        .await;
    assert!(edited.elapsed() < Duration::from_secs(60));
    assert!(!has_verbosity(&rig, "4"));
    // It cannot be understood: the line is reported, and nothing that stands there.
    let mut broken = config.clone();
    broken["nodes"][0]["rol"] = json!("hunter2");
    fs::write(&file, broken.to_string()).unwrap();
    let told = rig
        .until("a", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    let text = message(&told, "ConfigValid");
    assert!(text.contains("rol") && !text.contains("hunter2"), "{text}");
    // One that is gone leaves the cluster as it is, and it is still looked at.
    fs::remove_file(&file).unwrap();
    stalls(&rig, "SourceMissing").await;
    minutes(10).await;
    assert!(is(&rig.cluster("a"), "Available", "True"));
    assert!(has_verbosity(&rig, "5"));
    let (api, nodes) = rig.stop().await;
    let rig = Rig::with(nodes, api, |_| {});
    let text = stalls(&rig, "InvalidConfig").await;
    assert!(text.contains("--config-root DIR"), "{text}");
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1"), 0);
}

/// Nothing that a Cluster names leads to another file, or shows what is in one.
#[tokio::test(start_paused = true)]
async fn no_cluster_reads_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let key = planted_line();
    fs::write(folder.path().join("key"), key).unwrap();
    std::os::unix::fs::symlink("../key", root.join("link")).unwrap();
    fs::write(root.join("text"), format!("{key}\n")).unwrap();
    for path in ["link", "text"] {
        let rig = with_root(Some(&root));
        let (object, _) = elsewhere("configPath", json!(path));
        rig.create(&object).await;
        let told = rig
            .until("a", |cluster| is(cluster, "Stalled", "True"))
            .await;
        assert!(!told.to_string().contains(key), "{told}");
        assert_eq!(rig.nodes.counts().ups, 0);
    }
}

/// Host keys may be in a ConfigMap or a Secret; without them a new cluster is not built, and an old one is removed all the
/// same, since its state has those that were verified.
#[tokio::test(start_paused = true)]
async fn host_keys_may_be_in_another_object() {
    let rig = Rig::start(&["n1"]);
    let mut object = cluster("a", "n1");
    object["spec"]["ssh"]["knownHostsFrom"] = json!({"configMapKeyRef": {"name": "hosts"}});
    rig.create(&object).await;
    let text = stalls(&rig, "SourceMissing").await;
    assert!(text.contains("--from-file=known_hosts=<file>"), "{text}");
    assert_eq!(rig.nodes.counts().ups, 0);
    rig.api
        .plant("configmaps", &map("hosts", "known_hosts", "# none\n"));
    rig.ready("a").await;
    let from = json!({"configMapKeyRef": null, "secretKeyRef": {"name": "hosts"}});
    rig.api.patch(
        "clusters",
        "",
        "a",
        &json!({"spec": {"ssh": {"knownHostsFrom": from}}}),
    );
    stalls(&rig, "SecretMissing").await;
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1"), 0);
}

/// The cluster `a` with a registry whose password is that.
fn with_password(password: &Value) -> Value {
    let mut object = cluster("a", "n1");
    object["spec"]["config"]["private_registries"] =
        json!([{"url": "registry.example.com", "user": "me", "password": password}]);
    object
}

fn registry_secret(password: &str) -> Value {
    json!({
        "metadata": {
            "name": "registry", "namespace": CREDENTIALS,
            "annotations": {"clusterprovisioner.rke.io/clusters": "a"},
        },
        "data": {"password": BASE64_STANDARD.encode(password)},
    })
}

/// The login of the registry that a node has.
fn knows_password(rig: &Rig, password: &str) -> bool {
    let secret = rig.api.object("secrets", NAMESPACE, "a-applied");
    let config = secret.map(|secret| secret["data"]["config"].as_str().unwrap().to_owned());
    let config = config.map(|text| BASE64_STANDARD.decode(text).unwrap());
    config.is_some_and(|text| String::from_utf8(text).unwrap().contains(password))
}

/// A reference in the config is read with the Secret's consent, and a change of the Secret is a change of the config.
#[tokio::test(start_paused = true)]
async fn a_password_may_be_in_a_secret() {
    let rig = Rig::start(&["n1"]);
    let reference = json!({"secretKeyRef": {"name": "registry"}});
    rig.create(&with_password(&reference)).await;
    let text = stalls(&rig, "SecretMissing").await;
    assert!(text.contains("create secret generic registry"), "{text}");
    let mut secret = registry_secret("planted-1\n");
    secret["metadata"]["annotations"] = json!({});
    rig.api.plant("secrets", &secret);
    let text = stalls(&rig, "SecretNotGranted").await;
    assert!(text.contains("registry"), "{text}");
    rig.api.patch(
        "secrets",
        CREDENTIALS,
        "registry",
        &registry_secret("planted-1\n"),
    );
    rig.ready("a").await;
    assert!(knows_password(&rig, "\"planted-1\""));
    rig.api.patch(
        "secrets",
        CREDENTIALS,
        "registry",
        &registry_secret("planted-2"),
    );
    rig.until("a", |cluster| {
        settled(cluster) && knows_password(&rig, "planted-2")
    })
    .await;
    let told = rig.cluster("a").to_string();
    assert!(
        !told.contains("planted-1") && !told.contains("planted-2"),
        "{told}"
    );
}

/// A cluster whose object has a password of before is kept and healed as it was applied last; it is not changed until the
/// password is in a Secret, and that is no change. A new one is not built.
#[tokio::test(start_paused = true)]
async fn a_cluster_with_a_password_in_its_object_is_kept() {
    let rig = Rig::start(&["n1"]);
    rig.api.plant("secrets", &registry_secret("planted"));
    let reference = json!({"secretKeyRef": {"name": "registry"}});
    rig.create(&with_password(&reference)).await;
    rig.ready("a").await;
    let password = |password: &Value| {
        let spec = with_password(password)["spec"].clone();
        rig.api.patch("clusters", "", "a", &json!({"spec": spec}));
    };
    password(&json!("planted"));
    let told = rig
        .until("a", |cluster| {
            reason(cluster, "ConfigValid") == "InlineSecret"
        })
        .await;
    let text = message(&told, "ConfigValid");
    assert!(text.contains("`private_registries[0].password`"), "{text}");
    assert!(!text.contains("planted"), "{text}");
    assert_eq!(reason(&told, "Stalled"), "InvalidConfig");
    the_scheduler_is(ContainerState::Exited(1), &rig);
    rig.event("Healed").await;
    // A change waits, and the cluster is healed meanwhile.
    let config = with_verbosity(&with_password(&json!("planted"))["spec"]["config"], "4");
    rig.api
        .patch("clusters", "", "a", &json!({"spec": {"config": config}}));
    rig.until("a", |cluster| {
        cluster["status"]["observedGeneration"] == cluster["metadata"]["generation"]
            && reason(cluster, "ConfigValid") == "InlineSecret"
    })
    .await;
    minutes(10).await;
    assert!(!has_verbosity(&rig, "4"));
    the_scheduler_is(ContainerState::Exited(1), &rig);
    minutes(10).await;
    let scheduler = rig
        .nodes
        .host("n1", |facts| facts.containers["kube-scheduler"].state);
    assert_eq!(scheduler, ContainerState::Running);
    assert_eq!(reason(&rig.cluster("a"), "ConfigValid"), "InlineSecret");
    password(&reference);
    rig.until("a", |cluster| settled(cluster) && has_verbosity(&rig, "4"))
        .await;
    assert_eq!(reason(&rig.cluster("a"), "ConfigValid"), "Valid");
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    rig.create(&with_password(&json!("planted"))).await;
    rig.until("a", |cluster| {
        reason(cluster, "ConfigValid") == "InlineSecret"
    })
    .await;
    minutes(10).await;
    assert_eq!(rig.nodes.containers("n1"), 0);
}
