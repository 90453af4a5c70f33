//! A `Cluster` from its creation to its end, as its user sees it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rke_operator::etcd::{Alarm, AlarmKind, MemberId};
use serde_json::{Value, json};

use crate::{
    operator_rig::{
        CREDENTIALS, NAMESPACE, PLANTED_KEY, Rig, cluster, condition, is, key_secret, message,
        planted_line, reason, settled,
    },
    sim::{
        World,
        remote::{Purpose, SimRemote, Turn},
    },
};

#[tokio::test(start_paused = true)]
async fn a_cluster_is_built_and_says_so() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    let built = rig.ready("a").await;
    for kind in [
        "Available",
        "Ready",
        "Provisioned",
        "ConfigValid",
        "NodesReachable",
        "EtcdHealthy",
        "ControlPlaneHealthy",
        "NodesHealthy",
        "AddonsApplied",
        "CertificatesValid",
        "UpToDate",
    ] {
        assert!(is(&built, kind, "True"), "{kind}: {}", built["status"]);
    }
    for kind in ["Reconciling", "Stalled"] {
        assert_eq!(condition(&built, kind), None);
    }
    assert_eq!(reason(&built, "Deleting"), "NotDeleting");
    let status = &built["status"];
    assert_eq!(status["nodeSummary"], "1/1");
    assert_eq!(
        status["nodes"],
        json!({"total": 1, "ready": 1, "upToDate": 1, "unreachable": 0})
    );
    assert_eq!(
        status["endpoints"],
        json!([{"url": "https://10.0.0.1:6443", "node": "n1"}])
    );
    assert_eq!(status["kubeconfigRef"]["name"], "a");
    let id = json!(rig.nodes.claimed_by("n1"));
    assert_eq!(status["clusterID"], id);
    let noted = &built["metadata"]["annotations"]["clusterprovisioner.rke.io/cluster-id"];
    assert_eq!(
        *noted, id,
        "for a deletion that finds no state and no status"
    );
    assert_eq!(status.get("progress"), None);
}

#[tokio::test(start_paused = true)]
async fn every_condition_is_there_on_the_first_visit() {
    let rig = Rig::start(&["n1"]);
    rig.nodes.script(|_, _, _| Turn::AwaitStop);
    rig.create(&cluster("a", "n1")).await;
    let first = rig.until("a", |cluster| !cluster["status"].is_null()).await;
    let kinds: Vec<_> = first["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| condition["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "Available",
            "Ready",
            "Provisioned",
            "ConfigValid",
            "NodesReachable",
            "EtcdHealthy",
            "ControlPlaneHealthy",
            "NodesHealthy",
            "AddonsApplied",
            "CertificatesValid",
            "BackedUp",
            "UpToDate",
            "Paused",
            "Deleting",
            "Reconciling",
        ]
    );
    assert!(is(&first, "Ready", "False"));
    assert_eq!(first["status"]["observedGeneration"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_is_looked_at_and_nothing_is_written() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    let built = rig.ready("a").await;
    // The pass that follows the last write, if one did.
    tokio::time::sleep(std::time::Duration::from_secs(100)).await;
    let writes = rig.api.writes();
    let surveys = rig.nodes.counts().surveys;
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    let looked = rig.nodes.counts().surveys - surveys;
    assert!(
        (52..=60).contains(&looked),
        "looked {looked} times in an hour"
    );
    // How old that is, to ten minutes, and nothing else.
    let writes = &rig.api.writes()[writes.len()..];
    assert_eq!(writes.len(), 6, "{writes:?}");
    let of_status = |write: &String| write.ends_with("/clusters/a/status");
    assert!(writes.iter().all(of_status), "{writes:?}");
    let mut now = rig.cluster("a")["status"].clone();
    assert_ne!(now["lastSurvey"], built["status"]["lastSurvey"]);
    now["lastSurvey"] = built["status"]["lastSurvey"].clone();
    assert_eq!(now, built["status"]);
}

/// Once before its steps and once after them, whose answer is the status, too.
#[tokio::test(start_paused = true)]
async fn for_an_edit_the_nodes_are_looked_at_twice() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    tokio::time::sleep(std::time::Duration::from_secs(100)).await;
    let surveys = rig.nodes.counts().surveys;
    let edit = json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}});
    rig.api.patch("clusters", "", "a", &edit);
    rig.until("a", |cluster| {
        cluster["status"]["observedGeneration"] == 2
            && settled(cluster)
            && is(cluster, "UpToDate", "True")
    })
    .await;
    let words = rig.nodes.definition("n1", "kubelet").command;
    assert!(words.iter().any(|word| word == "--v=4"), "{words:?}");
    assert_eq!(rig.nodes.counts().surveys - surveys, 2);
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_takes_ready_away_and_gives_it_back() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.nodes.kill("n1");
    let dead = rig
        .until("a", |cluster| is(cluster, "Ready", "False"))
        .await;
    assert!(is(&dead, "NodesReachable", "False"));
    assert_eq!(reason(&dead, "Ready"), "NotAvailable");
    assert_eq!(reason(&dead, "Reconciling"), "HostUnavailable");
    assert!(is(&dead, "Available", "Unknown"), "nobody can tell");
    assert!(message(&dead, "NodesReachable").contains("is it switched on?"));
    assert!(is(&dead, "EtcdHealthy", "Unknown"));
    assert!(
        is(&dead, "Provisioned", "True"),
        "what was applied was applied"
    );
    assert_eq!(dead["status"]["nodeSummary"], "0/1");
    assert_eq!(dead["status"]["nodes"]["unreachable"], 1);
    rig.nodes.revive("n1");
    rig.ready("a").await;
}

#[tokio::test(start_paused = true)]
async fn conditions_name_what_is_wrong() {
    type Break = fn(&SimRemote);
    let cases: [(&str, &str, &str, Break); 5] = [
        (
            "EtcdHealthy",
            "QuorumLost",
            "container `etcd` has exited with code 1",
            |nodes| nodes.end("n1", "etcd"),
        ),
        (
            "ControlPlaneHealthy",
            "ComponentDown",
            "container `kube-scheduler` has exited",
            |nodes| nodes.end("n1", "kube-scheduler"),
        ),
        (
            "ControlPlaneHealthy",
            "APIServerDown",
            "connection refused",
            |nodes| nodes.world(|world| world.answering.clear()),
        ),
        ("EtcdHealthy", "AlarmRaised", "NOSPACE", |nodes| {
            nodes.world(nospace);
        }),
        (
            "NodesHealthy",
            "NodesNotReady",
            "PLEG is not healthy",
            |nodes| nodes.world(not_ready),
        ),
    ];
    for (kind, why, text, break_it) in cases {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        rig.nodes.script(|_, _, _| Turn::AwaitStop);
        break_it(&rig.nodes);
        let told = rig.until("a", |cluster| is(cluster, kind, "False")).await;
        assert_eq!(reason(&told, kind), why);
        assert!(
            message(&told, kind).contains(text),
            "{}",
            message(&told, kind)
        );
        assert!(is(&told, "Ready", "False"), "{kind}");
        assert!(is(&told, "Provisioned", "True"), "{kind}");
    }
}

/// The API answers `/readyz` all the same, and no write succeeds.
fn nospace(world: &mut World) {
    world.alarms.insert(Alarm {
        member: MemberId(0),
        kind: AlarmKind::NoSpace,
    });
}

fn not_ready(world: &mut World) {
    let node = world.etcd().nodes.get_mut(&"n1".into()).unwrap();
    node.ready = false;
    "PLEG is not healthy".clone_into(&mut node.message);
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_of_another_cluster_is_not_taken() {
    let rig = Rig::start(&["n1"]);
    let theirs = json!({
        "metadata": {"name": "a"},
        "spec": {"clusterRef": {"name": "other"}, "user": "jane", "clusterRole": "view"},
    });
    rig.api.plant("kubeconfigs", &theirs);
    rig.create(&cluster("a", "n1")).await;
    let told = rig
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&told, "Stalled"), "NameTaken");
    assert!(is(&told, "ConfigValid", "True"), "it is not the config");
    assert!(message(&told, "Ready").contains("is a user's for the Cluster `other`"));
    assert_eq!(rig.nodes.counts().ups, 0);
    let kept = rig.api.object("kubeconfigs", "", "a").unwrap();
    assert_eq!(kept["spec"], theirs["spec"]);
}

/// No other name gives anybody the administrator's kubeconfig, in whose name rights may be given (O23).
#[tokio::test(start_paused = true)]
async fn another_kubeconfig_gives_nothing() {
    let rig = Rig::start(&["n1"]);
    let mine = json!({"metadata": {"name": "mine"}, "spec": {"clusterRef": {"name": "a"}}});
    rig.api.plant("kubeconfigs", &mine);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let told = rig
        .api
        .until("kubeconfigs", "", "mine", |object| {
            object.is_some_and(|object| reason(object, "Ready") == "NameNotAllowed")
        })
        .await
        .unwrap();
    assert!(is(&told, "Ready", "False"));
    assert_eq!(told["status"]["secretRef"], Value::Null);
    assert!(
        rig.api
            .object("secrets", CREDENTIALS, "mine-kubeconfig")
            .is_none()
    );
}

/// And the definition refuses it from the start.
#[tokio::test(start_paused = true)]
async fn a_kubeconfig_has_its_clusters_name() {
    let rig = Rig::start(&["n1"]);
    let kubeconfigs: kube::Api<rke_operator::api::Kubeconfig> = kube::Api::all(rig.api.client());
    let named = |name: &str| {
        let spec = rke_operator::api::KubeconfigSpec {
            cluster_ref: Some(rke_operator::api::ClusterRef {
                name: "a".to_owned(),
            }),
            ..rke_operator::api::KubeconfigSpec::default()
        };
        rke_operator::api::Kubeconfig::new(name, spec)
    };
    let params = kube::api::PostParams::default();
    kubeconfigs.create(&params, &named("a")).await.unwrap();
    let refused = kubeconfigs.create(&params, &named("b")).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("needs a user and a clusterRole"),
        "{refused}"
    );
}

/// The id is in two places, and the next run writes each again that somebody took away.
#[tokio::test(start_paused = true)]
async fn the_id_of_a_cluster_is_noted_again() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    let id = rig.ready("a").await["status"]["clusterID"].clone();
    assert!(id.is_string());
    let annotation = "clusterprovisioner.rke.io/cluster-id";
    let noted = |object: &Value| {
        settled(object)
            && object["metadata"]["annotations"][annotation] == id
            && object["status"]["clusterID"] == id
    };
    // No pass is under way that has read what is about to be taken away.
    let quiet = || tokio::time::sleep(std::time::Duration::from_secs(30));
    quiet().await;
    let bare = json!({"metadata": {"annotations": {annotation: null}}});
    rig.api.patch("clusters", "", "a", &bare);
    rig.nodes.take("n1", "kube-scheduler");
    rig.until("a", noted).await;
    quiet().await;
    let lost = json!({"status": {"clusterID": null}});
    rig.api.patch_status("clusters", "", "a", &lost);
    rig.nodes.take("n1", "kube-scheduler");
    rig.until("a", noted).await;
}

/// What a run is for shows while it runs: an edit is rolled out, a difference is healed.
#[tokio::test(start_paused = true)]
async fn up_to_date_says_what_a_run_under_way_is_for() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let halt = rig.nodes.halt(Purpose::Up, 0);
    let edit = json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}});
    rig.api.patch("clusters", "", "a", &edit);
    halt.reached().await;
    let object = rig.cluster("a");
    assert_eq!(reason(&object, "UpToDate"), "RollingOut");
    let told = message(&object, "UpToDate");
    assert!(told.contains("kubelet"), "{told}");
    halt.go_on();
    rig.until("a", settled).await;
    rig.nodes.take("n1", "kube-scheduler");
    halt.reached().await;
    let object = rig.cluster("a");
    assert_eq!(reason(&object, "UpToDate"), "Drifted");
    let told = message(&object, "UpToDate");
    assert!(told.contains("kube-scheduler"), "{told}");
    halt.lift();
    halt.go_on();
    rig.ready("a").await;
}

#[tokio::test(start_paused = true)]
async fn drift_is_healed() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let containers = rig.nodes.containers("n1");
    rig.nodes.take("n1", "kube-scheduler");
    let healed = |cluster: &Value| settled(cluster) && rig.nodes.counts().ups == 2;
    let object = rig.until("a", healed).await;
    assert!(is(&object, "UpToDate", "True") && is(&object, "Ready", "True"));
    assert_eq!(rig.nodes.containers("n1"), containers);
}

#[tokio::test(start_paused = true)]
async fn an_edit_is_applied() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let edit = json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}});
    rig.api.patch("clusters", "", "a", &edit);
    let edited = rig
        .until("a", |cluster| {
            cluster["metadata"]["generation"] == 2 && settled(cluster)
        })
        .await;
    assert!(is(&edited, "Ready", "True"));
    let words = rig.nodes.definition("n1", "kubelet").command;
    assert!(words.contains(&"--v=4".to_owned()), "{words:?}");
}

#[tokio::test(start_paused = true)]
async fn a_manifest_with_an_object_of_an_add_on_is_an_invalid_config() {
    let rig = Rig::start(&["n1"]);
    let mut bad = cluster("a", "n1");
    let object =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: coredns, namespace: kube-system}}";
    bad["spec"]["config"]["addons"] = json!(object);
    rig.create(&bad).await;
    let cluster = rig
        .until("a", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    assert_eq!(reason(&cluster, "ConfigValid"), "InvalidConfig");
    let text = message(&cluster, "ConfigValid");
    assert!(text.contains("ConfigMap `kube-system/coredns`"), "{text}");
    assert_eq!(rig.nodes.counts().ups, 0);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_config_is_told_and_mended() {
    let rig = Rig::start(&["n1"]);
    let mut bad = cluster("a", "n1");
    bad["spec"]["config"]["nodes"][0]["rol"] = json!(["etcd"]);
    bad["spec"]["config"]["nodes"][0]["user"] = json!({"hunter2": true});
    rig.create(&bad).await;
    let told = rig
        .until("a", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    assert!(is(&told, "Stalled", "True"));
    assert_eq!(reason(&told, "ConfigValid"), "InvalidConfig");
    assert_eq!(reason(&told, "Ready"), "NotProvisioned");
    let text = message(&told, "ConfigValid");
    assert!(text.contains("nodes[0].rol"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    assert_eq!(rig.nodes.counts().ups, 0);
    let good = cluster("a", "n1");
    rig.api.patch(
        "clusters",
        "",
        "a",
        &json!({"spec": {"config": {"nodes": good["spec"]["config"]["nodes"]}}}),
    );
    let mended = rig.ready("a").await;
    assert_eq!(condition(&mended, "Stalled"), None);
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_told_and_its_arrival_wakes() {
    let rig = Rig::start(&["n1"]);
    rig.api.delete("secrets", CREDENTIALS, "nodes");
    rig.create(&cluster("a", "n1")).await;
    let told = rig
        .until("a", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    assert_eq!(reason(&told, "ConfigValid"), "SourceMissing");
    assert_eq!(reason(&told, "Stalled"), "SecretMissing");
    assert!(
        message(&told, "ConfigValid").contains("kubectl -n rke-system-credentials create secret")
    );
    let before = tokio::time::Instant::now();
    rig.api.plant("secrets", &key_secret());
    rig.ready("a").await;
    assert!(
        before.elapsed().as_secs() < 60,
        "woken by the Secret, not by the clock"
    );
}

/// A Secret says which Clusters may use it, whatever names it: a spec, or the state of a cluster that is removed (O24).
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_not_granted_is_not_used() {
    let rig = Rig::start(&["n1"]);
    let grant = |names: Value| {
        let annotations = json!({"clusterprovisioner.rke.io/clusters": names});
        let patch = json!({"metadata": {"annotations": annotations}});
        rig.api.patch("secrets", CREDENTIALS, "nodes", &patch);
    };
    grant(json!("b, aa,a-b,**"));
    rig.create(&cluster("a", "n1")).await;
    let told = rig
        .until("a", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    assert_eq!(reason(&told, "ConfigValid"), "SourceMissing");
    assert_eq!(reason(&told, "Stalled"), "SecretNotGranted");
    let cure = "annotate --overwrite secret nodes clusterprovisioner.rke.io/clusters=a";
    assert!(message(&told, "Stalled").contains(cure));
    assert_eq!(rig.nodes.counts().ups, 0);
    grant(json!("b, a"));
    rig.ready("a").await;

    // What was granted is taken back: the nodes are not logged in to, neither to look nor to remove.
    grant(Value::Null);
    rig.until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    rig.api.delete("clusters", "", "a");
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert!(is(&rig.cluster("a"), "Deleting", "True"));
    grant(json!("*"));
    rig.gone("a").await;
}

/// The config may be a cluster.yml in a Secret, which is granted as a key is; an edit of the Secret is an edit of the spec.
#[tokio::test(start_paused = true)]
async fn a_config_may_be_in_a_secret() {
    let rig = Rig::start(&["n1"]);
    let mut object = cluster("a", "n1");
    let spec = object["spec"].as_object_mut().unwrap();
    let mut config = spec.remove("config").unwrap();
    object["spec"]["configFrom"] = json!({"secretKeyRef": {"name": "a-config"}});
    let secret = |config: &Value, names: &str| {
        json!({
            "metadata": {
                "name": "a-config", "namespace": CREDENTIALS,
                "annotations": {"clusterprovisioner.rke.io/clusters": names},
            },
            "data": {"cluster.yml": BASE64_STANDARD.encode(format!("# of our cluster\n{config}\n"))},
        })
    };
    rig.create(&object).await;
    let told = rig
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&told, "Stalled"), "SecretMissing");
    assert!(message(&told, "Stalled").contains("--from-file=cluster.yml=<file>"));
    rig.api.plant("secrets", &secret(&config, "b"));
    rig.until("a", |cluster| {
        reason(cluster, "Stalled") == "SecretNotGranted"
    })
    .await;
    rig.api
        .patch("secrets", CREDENTIALS, "a-config", &secret(&config, "a"));
    rig.ready("a").await;
    rig.until("a", settled).await;
    let runs = rig.nodes.counts().ups;

    config["services"] = json!({"kubelet": {"extra_args": {"v": "4"}}});
    let edited = tokio::time::Instant::now();
    rig.api
        .patch("secrets", CREDENTIALS, "a-config", &secret(&config, "a"));
    rig.until("a", |cluster| {
        settled(cluster) && rig.nodes.counts().ups > runs
    })
    .await;
    assert!(edited.elapsed().as_secs() < 60, "woken by the Secret");
    let kubelet = rig.nodes.definition("n1", "kubelet");
    let command = &kubelet.command;
    assert!(command.contains(&"--v=4".to_owned()), "{command:?}");

    // What cannot be understood is reported with its line, and nothing that stands there.
    config["nodes"][0]["rol"] = json!("hunter2");
    rig.api
        .patch("secrets", CREDENTIALS, "a-config", &secret(&config, "a"));
    let told = rig
        .until("a", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    let text = message(&told, "ConfigValid");
    assert!(text.contains("rol") && text.contains("line 2"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    rig.api.delete("secrets", CREDENTIALS, "a-config");
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(
        rig.nodes.containers("n1"),
        0,
        "its inventory is in the state"
    );
}

/// The last version that was seen is on the object, also while none is.
#[tokio::test(start_paused = true)]
async fn the_kubernetes_version_is_an_annotation() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.nodes
        .world(|world| "v1.34.4".clone_into(&mut world.etcd().version));
    let noted = |cluster: &Value| {
        cluster["metadata"]["annotations"]["clusterprovisioner.rke.io/kubernetes-version"].clone()
    };
    let ready = rig.until("a", |cluster| noted(cluster) == "v1.34.4").await;
    assert_eq!(ready["status"]["version"], "v1.34.4");
    rig.nodes.kill("n1");
    let down = rig
        .until("a", |cluster| is(cluster, "NodesReachable", "False"))
        .await;
    assert_eq!(noted(&down), noted(&ready));
    // What another client wrote there is no version.
    let patch = json!({"metadata": {"annotations": {
        "clusterprovisioner.rke.io/kubernetes-version": "v9.9.9",
    }}});
    rig.api.patch("clusters", "", "a", &patch);
    rig.nodes.revive("n1");
    rig.until("a", |cluster| noted(cluster) == noted(&ready))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_is_told_and_tried_again() {
    let rig = Rig::start(&["n1"]);
    rig.nodes.kill("n1");
    rig.create(&cluster("a", "n1")).await;
    let told = rig
        .until("a", |cluster| is(cluster, "NodesReachable", "False"))
        .await;
    assert!(is(&told, "Provisioned", "False"));
    assert!(is(&told, "Reconciling", "True"));
    assert_eq!(condition(&told, "Stalled"), None);
    rig.nodes.revive("n1");
    rig.ready("a").await;
    let events = rig.api.objects("events");
    assert!(events.iter().any(|event| event["type"] == "Warning"
        && event["reason"] == "HostUnavailable"
        && event["regarding"]["name"] == "a"));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_gives_everything_back() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1"), 0);
    assert_eq!(rig.api.objects("kubeconfigs"), [] as [Value; 0]);
    let names: Vec<_> = rig
        .api
        .objects("secrets")
        .iter()
        .map(|s| s["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["nodes"]);
    assert_eq!(rig.api.objects("configmaps"), [] as [Value; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_kubeconfig_has_a_secret_and_says_when() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    let built = rig.ready("a").await;
    let kubeconfig = rig
        .api
        .until("kubeconfigs", "", "a", |object| {
            object.is_some_and(|object| is(object, "Ready", "True"))
        })
        .await
        .unwrap();
    assert_eq!(kubeconfig["status"]["secretRef"]["name"], "a-kubeconfig");
    let owner = &kubeconfig["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], built["metadata"]["uid"]);
    let secret = rig
        .api
        .object("secrets", CREDENTIALS, "a-kubeconfig")
        .unwrap();
    assert!(secret["data"]["value"].is_string());
    assert_eq!(
        secret["metadata"]["ownerReferences"][0]["uid"],
        kubeconfig["metadata"]["uid"]
    );

    // Taken away by hand, it comes back.
    rig.api.delete("kubeconfigs", "", "a");
    assert_eq!(rig.api.object("secrets", CREDENTIALS, "a-kubeconfig"), None);
    rig.api
        .until("secrets", CREDENTIALS, "a-kubeconfig", |secret| {
            secret.is_some()
        })
        .await;
}

/// Everything that the operator says holds no line of any key: of the one to log in with, of the
/// cluster's and of its nodes', which the state, the kubeconfig and the nodes have.
#[tokio::test(start_paused = true)]
async fn nothing_secret_is_reported() {
    let rig = Rig::start(&["n1"]);
    let mut bad = cluster("bad", "n1");
    bad["spec"]["config"]["nodes"][0]["ssh_key"] = json!(*PLANTED_KEY);
    rig.create(&bad).await;
    rig.until("bad", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let mut secrets = vec![planted_line().to_owned()];
    secrets.extend(rig.nodes.files("n1").iter().flat_map(|file| keys(file)));
    let on_node = secrets.len() - 1;
    for (namespace, name) in [(NAMESPACE, "a-state"), (CREDENTIALS, "a-kubeconfig")] {
        let secret = rig.api.object("secrets", namespace, name).unwrap();
        for (_, value) in secret["data"].as_object().unwrap() {
            secrets.extend(keys(&decoded(value.as_str().unwrap())));
        }
    }
    let kept = secrets.len() - 1 - on_node;
    assert!(on_node > 8 && kept > 4, "{on_node} keys there, {kept} here");
    rig.nodes.kill("n1");
    rig.until("a", |cluster| is(cluster, "Ready", "False"))
        .await;
    rig.nodes.revive("n1");
    rig.ready("a").await;
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    let mut said: Vec<Value> = rig.api.objects("events");
    said.extend(rig.api.objects("kubeconfigs"));
    said.extend(rig.api.objects("configmaps"));
    // Not the spec: there a person wrote a key.
    let history = rig.api.history("clusters").into_iter();
    said.extend(history.map(|cluster| cluster["status"].clone()));
    assert!(rig.api.objects("events").len() > 3);
    for object in said {
        let text = object.to_string();
        for secret in &secrets {
            assert!(!text.contains(secret), "{secret:?} is in {text}");
        }
        assert!(!text.contains("PRIVATE KEY"), "{text}");
    }
}

fn decoded(text: &str) -> String {
    let bytes = BASE64_STANDARD.decode(text).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A line of each private key in a text, in PEM or in JSON; of that in a kubeconfig, a part of the
/// word that it is there, too.
fn keys(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut text = text.replace("\\n", "\n");
    let words = text.split("client-key-data: ").skip(1);
    let words: Vec<String> = words
        .map(|rest| rest.split_whitespace().next().unwrap().to_owned())
        .collect();
    for word in words {
        lines.push(word[100..140].to_owned());
        text.push_str(&decoded(&word));
    }
    let keys = text.split("PRIVATE KEY-----").skip(1).step_by(2);
    // The first line is the same in all keys of a kind.
    lines.extend(keys.map(|key| key.trim().lines().nth(1).unwrap().to_owned()));
    lines
}
