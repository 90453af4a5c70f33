//! What goes wrong around the operator, and what it then says and does: a management cluster that
//! refuses, hangs or fails; objects of others under our names; mistakes in an edit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use rke_operator::{
    apply::step::Warning,
    error::ErrorClass,
    model::label,
    plan::{Action, ClusterAction, HostAction},
};
use serde_json::{Value, json};

use crate::{
    cli_support::private_key,
    fake_api::{FakeApi, HANGS},
    operator_rig::{
        CREDENTIALS, NAMESPACE, Rig, SOON, clock, cluster, condition, is, key_secret, message,
        minutes, reason, settled,
    },
    sim::remote::{Purpose, SimFailure, SimRemote, Surveys, Turn},
};

fn edit() -> Value {
    json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}})
}

/// A Secret that cannot be read at the moment is nobody's mistake, and is read again soon (O4).
#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_read_is_read_again_soon() {
    for path in ["/secrets/nodes", "/secrets/a-kubeconfig"] {
        let rig = Rig::start(&["n1"]);
        rig.api
            .fault(move |method, at| (method == Method::GET && at.ends_with(path)).then_some(500));
        rig.create(&cluster("a", "n1")).await;
        let told = rig
            .until("a", |cluster| reason(cluster, "Reconciling") == "Retrying")
            .await;
        assert_eq!(condition(&told, "Stalled"), None, "{path}");
        let unreadable = path.ends_with("nodes");
        assert_eq!(is(&told, "ConfigValid", "Unknown"), unreadable, "{path}");
        rig.api.mend();
        let mended = tokio::time::Instant::now();
        rig.ready("a").await;
        assert!(mended.elapsed().as_secs() < 90, "{path}");
    }
}

/// A deletion ends when its record cannot be written: for good, or for an hour; the event is the
/// record then (O5).
#[tokio::test(start_paused = true)]
async fn a_deletion_ends_without_a_place_for_its_record() {
    for (code, longest) in [(403, 1810), (404, 1810), (413, 1810), (500, 5500)] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        rig.nodes.kill("n1");
        rig.api
            .fault(move |_, path| path.contains("/configmaps").then_some(code));
        rig.api.delete("clusters", "", "a");
        let deleted = tokio::time::Instant::now();
        tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
        assert_eq!(rig.api.object("clusters", "", "a"), None, "{code}");
        let orphaned = rig.events("Orphaned");
        assert_eq!(orphaned.len(), 1, "{code}");
        assert!(orphaned[0].contains("`n1` (10.0.0.1)"), "{}", orphaned[0]);
        assert!(orphaned[0].contains("cannot be written"), "{}", orphaned[0]);
        let gone = rig.api.deleted_at("clusters", "a").unwrap();
        let took = gone.duration_since(deleted).as_secs();
        assert!(took <= longest, "{code}: ended after {took} s");
    }
}

/// Records of earlier objects of the name make room for this one (O5).
#[tokio::test(start_paused = true)]
async fn a_record_finds_room() {
    let rig = Rig::start(&["n1"]);
    let old = json!({"metadata": {"name": "a-orphaned", "namespace": NAMESPACE},
        "data": {"old.json": "x".repeat(1_040_000)}});
    rig.api.plant("configmaps", &old);
    rig.create(&cluster("a", "n1")).await;
    let built = rig.ready("a").await;
    rig.nodes.kill("n1");
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    let map = rig
        .api
        .object("configmaps", NAMESPACE, "a-orphaned")
        .unwrap();
    let uid = built["metadata"]["uid"].as_str().unwrap();
    assert!(map["data"][format!("{uid}.json")].is_string());
}

/// An object that waits for its turn says so first, with its place (O6).
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_turn_says_so() {
    let nodes = SimRemote::bare(&["n1", "n2", "n3"]);
    let rig = Rig::with(nodes, FakeApi::new(clock()), |options| {
        options.limits.changes = 1;
    });
    let halt = rig.nodes.halt(Purpose::Up, 0);
    for (name, node, place) in [
        ("a", "n1", None),
        ("b", "n2", Some("0 before it")),
        ("c", "n3", Some("1 before it")),
    ] {
        rig.create(&cluster(name, node)).await;
        let told = rig
            .until(name, |cluster| is(cluster, "Reconciling", "True"))
            .await;
        assert_eq!(told["status"]["observedGeneration"], 1);
        let queued = reason(&told, "Reconciling") == "Queued";
        assert_eq!(queued, place.is_some(), "{name}");
        let text = message(&told, "Reconciling");
        assert!(text.contains(place.unwrap_or_default()), "{name}: {text}");
    }
    halt.go_on();
    let moved = |cluster: &Value| message(cluster, "Reconciling").contains("0 before it");
    rig.ready("a").await;
    rig.until("c", moved).await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        halt.go_on();
    }
    rig.ready("b").await;
    rig.ready("c").await;
}

/// A request that is never answered ends, and keeps nothing from anybody (O7).
#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_ends() {
    for path in ["/secrets/nodes", "/clusters/a", "/clusters/a/status"] {
        let rig = Rig::start(&["n1", "n2"]);
        let hanging = Arc::new(AtomicBool::new(true));
        let hangs = Arc::clone(&hanging);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        rig.api.fault(move |_, at| {
            let hangs = at.ends_with(path) && hangs.load(Ordering::SeqCst);
            hangs.then(|| {
                count.fetch_add(1, Ordering::SeqCst);
                HANGS
            })
        });
        rig.create(&cluster("a", "n1")).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        let tries = asked.load(Ordering::SeqCst);
        assert!((2..=40).contains(&tries), "{path}: asked {tries} times");
        hanging.store(false, Ordering::SeqCst);
        rig.ready("a").await;
    }
}

/// A panic in one pass, in a step or in a survey, is that cluster's misfortune: it is told, and the
/// others go on (O8).
#[tokio::test(start_paused = true)]
async fn a_panic_ends_one_pass() {
    for in_step in [true, false] {
        let rig = Rig::start(&["n1", "n2"]);
        if in_step {
            rig.nodes.script(|_, _, step| match &step.action {
                Action::Host(_, HostAction::ConfigureContainerd { .. }) => Turn::Panic,
                _ => Turn::Go,
            });
        } else {
            rig.nodes.surveys(Surveys::Panic);
        }
        rig.create(&cluster("a", "n1")).await;
        let told = rig
            .until("a", |cluster| is(cluster, "Stalled", "True"))
            .await;
        assert_eq!(reason(&told, "Stalled"), "InternalError", "{in_step}");
        assert!(!told["status"].to_string().contains("hunter2"), "{in_step}");
        assert_eq!(rig.event("InternalError").await.len(), 1, "{in_step}");
        let events = rig.api.objects("events");
        assert!(!json!(events).to_string().contains("hunter2"), "{in_step}");
        rig.nodes.script(|_, _, _| Turn::Go);
        rig.nodes.surveys(Surveys::Answer);
        rig.create(&cluster("b", "n2")).await;
        rig.ready("b").await;
        rig.ready("a").await;
    }
}

/// A typo in an edit: the cluster serves, and is looked at as before (O9).
#[tokio::test(start_paused = true)]
async fn a_typo_does_not_blind_the_operator() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let typo = json!({"spec": {"config": {"kubernetes_versoin": "v1.34.4"}}});
    rig.api.patch("clusters", "", "a", &typo);
    let told = rig
        .until("a", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    assert!(is(&told, "Available", "True"), "it serves");
    assert_eq!(
        condition(&told, "Available").unwrap()["observedGeneration"],
        2
    );
    assert_eq!(reason(&told, "Ready"), "SpecNotApplied");
    assert!(message(&told, "Ready").contains("kubernetes_versoin"));
    assert!(
        is(&told, "Provisioned", "True"),
        "what was applied was applied"
    );
    assert!(is(&told, "NodesHealthy", "True"));
    rig.nodes.kill("n1");
    let dead = rig
        .until("a", |cluster| is(cluster, "NodesReachable", "False"))
        .await;
    assert!(is(&dead, "Available", "Unknown"), "never stale");
    assert!(is(&dead, "ConfigValid", "False"));
    rig.nodes.revive("n1");
    rig.api.patch(
        "clusters",
        "",
        "a",
        &json!({"spec": {"config": {"kubernetes_versoin": null}}}),
    );
    rig.ready("a").await;
}

/// A valid edit leaves Available alone while it is applied.
#[tokio::test(start_paused = true)]
async fn an_edit_does_not_touch_available() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.api.patch("clusters", "", "a", &edit());
    rig.until("a", |cluster| {
        settled(cluster) && cluster["metadata"]["generation"] == 2
    })
    .await;
    let versions = rig.api.history("clusters");
    let after = versions
        .iter()
        .skip_while(|object| object["metadata"]["generation"] == 1);
    let mut changing = 0;
    for object in after {
        assert!(is(object, "Available", "True"), "{}", object["status"]);
        changing += usize::from(reason(object, "Ready") == "SpecNotApplied");
    }
    assert!(changing > 0, "Ready says that the edit is not applied yet");
}

/// Secrets of others under our names are neither overwritten nor deleted (O11).
#[tokio::test(start_paused = true)]
async fn secrets_of_others_are_left_alone() {
    for labelled in [false, true] {
        let rig = Rig::start(&["n1"]);
        let mut theirs = json!({
            "metadata": {"name": "a-kubeconfig", "namespace": CREDENTIALS},
            "data": {"value": "dGhlaXJz"},
        });
        if labelled {
            // Even one with our label: it was not made for this object.
            theirs["metadata"]["labels"] = json!({ label::CLUSTER_NAME: "a" });
        }
        rig.api.plant("secrets", &theirs);
        rig.create(&cluster("a", "n1")).await;
        let told = rig
            .until("a", |cluster| is(cluster, "Stalled", "True"))
            .await;
        let text = message(&told, "Stalled");
        assert!(text.contains("a-kubeconfig"), "{text}");
        let object = |rig: &Rig| {
            rig.api
                .object("secrets", CREDENTIALS, "a-kubeconfig")
                .unwrap()
        };
        assert_eq!(object(&rig)["data"], theirs["data"]);
        let kubeconfig = rig
            .api
            .until("kubeconfigs", "", "a", |object| {
                object.is_some_and(|object| reason(object, "Ready") == "SecretNotOurs")
            })
            .await
            .unwrap();
        assert!(is(&kubeconfig, "Ready", "False"));
        if labelled {
            continue;
        }
        rig.api.delete("clusters", "", "a");
        rig.gone("a").await;
        assert_eq!(object(&rig)["data"], theirs["data"]);
    }
}

/// What a Kubeconfig without its cluster says.
#[tokio::test(start_paused = true)]
async fn a_kubeconfig_names_what_it_waits_for() {
    let rig = Rig::start(&["n1"]);
    let mine = json!({"metadata": {"name": "a"}, "spec": {"clusterRef": {"name": "a"}}});
    rig.api.plant("kubeconfigs", &mine);
    let until = |why: &'static str| {
        rig.api.until("kubeconfigs", "", "a", move |object| {
            object.is_some_and(|object| reason(object, "Ready") == why)
        })
    };
    until("ClusterNotFound").await;
    rig.nodes.kill("n1");
    rig.create(&cluster("a", "n1")).await;
    until("WaitingForCluster").await;
    rig.nodes.revive("n1");
    until("Issued").await;
}

/// A removal does not wait for machines that were never claimed: a mistyped address (O12).
#[tokio::test(start_paused = true)]
async fn a_mistyped_node_does_not_hold_a_deletion_up() {
    let rig = Rig::start(&["n1"]);
    rig.nodes.kill("n1");
    rig.create(&cluster("a", "n1")).await;
    rig.until("a", |cluster| is(cluster, "NodesReachable", "False"))
        .await;
    rig.api.delete("clusters", "", "a");
    let deleted = tokio::time::Instant::now();
    rig.gone("a").await;
    assert!(deleted.elapsed() < Duration::from_secs(60));

    // The same in an edit of a cluster that was built: its own node is cleaned, and that is all.
    let rig = Rig::start(&["n1", "n9"]);
    rig.nodes.kill("n9");
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let mistyped =
        json!({"spec": {"config": {"nodes": cluster("a", "n9")["spec"]["config"]["nodes"]}}});
    rig.api.patch("clusters", "", "a", &mistyped);
    rig.until("a", |cluster| {
        cluster["status"]["observedGeneration"] == 2 && is(cluster, "Ready", "False")
    })
    .await;
    rig.api.delete("clusters", "", "a");
    let deleted = tokio::time::Instant::now();
    rig.gone("a").await;
    assert!(deleted.elapsed() < Duration::from_secs(60));
    assert_eq!(rig.nodes.containers("n1"), 0);
}

/// Two causes one after the other are two events, each with its own words (O13); a repair is no
/// second "Provisioned" (O18).
#[tokio::test(start_paused = true)]
async fn events_tell_what_happened() {
    let rig = Rig::start(&["n1"]);
    let mut causes = ["the first cause", "the second cause"].into_iter();
    rig.nodes.script(move |_, index, _| {
        let cause = (index == 0).then(|| causes.next()).flatten();
        cause.map_or(Turn::Go, |cause| {
            Turn::Fail(SimFailure::new(ErrorClass::Transient, cause))
        })
    });
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let notes = rig.events("Retrying");
    for cause in ["the first cause", "the second cause"] {
        assert!(notes.iter().any(|note| note.contains(cause)), "{notes:?}");
    }
    rig.nodes.take("n1", "kube-scheduler");
    rig.event("Healed").await;
    assert_eq!(rig.events("Provisioned").len(), 1);
}

/// A right that is missing is named on the object and asked for with growing pauses (O14).
#[tokio::test(start_paused = true)]
async fn a_missing_right_is_named() {
    for (method, path) in [
        (Method::GET, "/secrets/nodes"),
        (Method::GET, "/kubeconfigs/a"),
        (Method::GET, "/secrets/a-state"),
        (Method::PATCH, "/kubeconfigs/a"),
    ] {
        let rig = Rig::start(&["n1"]);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let of = method.clone();
        rig.api.fault(move |method, at| {
            let hit = *method == of && at.ends_with(path);
            hit.then(|| {
                count.fetch_add(1, Ordering::SeqCst);
                403
            })
        });
        rig.create(&cluster("a", "n1")).await;
        let told = rig
            .until("a", |cluster| is(cluster, "Stalled", "True"))
            .await;
        assert_eq!(reason(&told, "Stalled"), "PermissionDenied", "{path}");
        let text = message(&told, "Stalled");
        assert!(text.contains("cannot") && text.contains(path), "{text}");
        tokio::time::sleep(Duration::from_secs(1800)).await;
        let tries = asked.load(Ordering::SeqCst);
        assert!(tries <= 20, "{path}: asked {tries} times in half an hour");
        rig.api.mend();
        rig.ready("a").await;
    }
}

/// A run that leaves nodes as they are is no end of the spec: it says which, and is tried again.
#[tokio::test(start_paused = true)]
async fn a_degraded_run_is_reported_and_tried_again() {
    let rig = Rig::start(&["n1", "n2"]);
    let fail = |why: &'static str| {
        rig.nodes.script(move |_, _, step| match &step.action {
            Action::Host(node, HostAction::PullImage { .. } | HostAction::RunContainer { .. })
                if node.0 == "n2" =>
            {
                let failure = SimFailure::new(ErrorClass::Host, why);
                Turn::Fail(failure.hint("look at its disk"))
            }
            _ => Turn::Go,
        });
    };
    fail("no space left");
    let mut two = cluster("a", "n1");
    let worker = json!({
        "address": "10.0.0.2",
        "hostname_override": "n2",
        "user": "core",
        "role": ["worker"],
    });
    let nodes = two["spec"]["config"]["nodes"].as_array_mut().unwrap();
    nodes.push(worker);
    rig.create(&two).await;
    let degraded = |cluster: &Value| reason(cluster, "Reconciling") == "HostUnavailable";
    let told = rig.until("a", degraded).await;
    assert_eq!(reason(&told, "Provisioned"), "Degraded");
    assert!(is(&told, "Available", "True"), "what was built serves");
    assert_eq!(condition(&told, "Stalled"), None);
    for kind in ["Provisioned", "Reconciling"] {
        let text = message(&told, kind);
        assert!(text.contains("`n2`: pull "), "{kind}: {text}");
        assert!(text.contains("no space left"), "{kind}: {text}");
        assert!(text.contains("hint: look at its disk"), "{kind}: {text}");
        assert!(!text.contains("`n1`"), "{kind}: {text}");
    }
    assert_eq!(rig.event("Degraded").await.len(), 1);
    assert_eq!(rig.events("Provisioned").len(), 0);
    rig.nodes.script(|_, _, _| Turn::Go);
    let built = rig.ready("a").await;
    assert_eq!(built["status"]["nodeSummary"], "2/2");

    // A repair that is left half done unmakes nothing that was applied.
    fail("the disk fails");
    rig.nodes.take("n2", "kube-proxy");
    let told = rig.until("a", degraded).await;
    assert!(is(&told, "Provisioned", "True"));
    assert!(message(&told, "Reconciling").contains("the disk fails"));
    rig.nodes.script(|_, _, _| Turn::Go);
    rig.ready("a").await;
    assert!(rig.nodes.has("n2", "kube-proxy"));
}

/// Warnings of the config and of the last run stand in the status (O15).
#[tokio::test(start_paused = true)]
async fn warnings_are_kept() {
    let rig = Rig::start(&["n1"]);
    rig.nodes.script(|_, _, step| match &step.action {
        Action::Cluster(ClusterAction::AwaitAddon { addon }) if addon == "coredns" => {
            Turn::Warn(Warning {
                message: "coredns is slow".to_owned(),
                hints: vec!["look at its pods".to_owned()],
                degrades: false,
            })
        }
        _ => Turn::Go,
    });
    let mut warned = cluster("a", "n1");
    let taint =
        json!({"key": "node-role.kubernetes.io/etcd", "effect": "NoExecute", "value": "true"});
    warned["spec"]["config"]["nodes"][0]["taints"] = json!([taint, taint]);
    rig.create(&warned).await;
    let built = rig.ready("a").await;
    let warnings = built["status"]["warnings"].as_array().unwrap().clone();
    let has = |text: &str| {
        let mut all = warnings.iter().map(|warning| warning.as_str().unwrap());
        all.any(|warning| warning.contains(text))
    };
    assert!(has("nodes[0].taints"), "{warnings:?}");
    assert!(
        has("coredns is slow; hint: look at its pods"),
        "{warnings:?}"
    );
    // A look does not forget what the run said.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.cluster("a")["status"]["warnings"], json!(warnings));
}

/// The survey after a run that failed ends when the object is deleted (O16).
#[tokio::test(start_paused = true)]
async fn a_survey_after_a_run_can_be_stopped() {
    let rig = Rig::start(&["n1"]);
    let halt = rig.create_and_halt(3).await;
    rig.nodes.surveys(Surveys::Hang);
    rig.nodes
        .script(|_, _, _| Turn::Fail(SimFailure::new(ErrorClass::Host, "told to fail")));
    halt.go_on();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.nodes.counts().hanging, 1, "the run's own do not");
    // Those of the removal are answered; that one is not.
    rig.nodes.surveys(Surveys::Answer);
    rig.nodes.script(|_, _, _| Turn::Go);
    rig.api.delete("clusters", "", "a");
    let deleted = tokio::time::Instant::now();
    rig.gone("a").await;
    assert!(deleted.elapsed() < Duration::from_secs(60));
}

/// A deletion is over when its time is, whatever is still under way (O16).
#[tokio::test(start_paused = true)]
async fn a_deletion_ends_by_its_deadline() {
    for (timeout, seconds) in [("20s", 20), ("10m", 600)] {
        for hang in [None, Some("/secrets/a-state"), Some("/secrets")] {
            let rig = Rig::start(&["n1"]);
            let mut short = cluster("a", "n1");
            short["spec"]["deletion"] = json!({ "timeout": timeout });
            rig.create(&short).await;
            rig.ready("a").await;
            rig.nodes.script(|_, _, _| Turn::AwaitStop);
            let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds);
            if let Some(path) = hang {
                rig.api.fault(move |_, at| {
                    let late = tokio::time::Instant::now() >= deadline;
                    (at.ends_with(path) && !late).then_some(HANGS)
                });
                // A pass hangs already when the deletion comes.
                let touch = json!({"metadata": {"labels": {"touched": "yes"}}});
                rig.api.patch("secrets", CREDENTIALS, "nodes", &touch);
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            rig.api.delete("clusters", "", "a");
            rig.gone("a").await;
            let late = deadline.elapsed().as_secs();
            assert!(late <= 5, "{timeout}, {hang:?}: {late} s late");
        }
    }
}

/// Another key in the Secret stops a run that logs in with the old one (O17).
#[tokio::test(start_paused = true)]
async fn a_changed_key_stops_a_run() {
    let rig = Rig::start(&["n1"]);
    let halt = rig.create_and_halt(3).await;
    // Another Secret is no reason to stop.
    let mut other = key_secret();
    other["metadata"]["name"] = json!("others");
    rig.api.plant("secrets", &other);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.nodes.counts().ups, 1);
    halt.lift();
    let renewed = json!({"data": {"ssh-privatekey": BASE64_STANDARD.encode(private_key())}});
    rig.api.patch("secrets", CREDENTIALS, "nodes", &renewed);
    let changed = tokio::time::Instant::now();
    rig.ready("a").await;
    assert!(changed.elapsed() < SOON, "its step has longer");
    assert_eq!(rig.nodes.counts().ups, 2);
}

/// Status and state lost at once: the object's own note says that there were nodes, so they are
/// looked at, dead or alive, and only the deadline ends the deletion (O3).
#[tokio::test(start_paused = true)]
async fn a_deletion_without_state_and_status_is_not_a_removal() {
    for dead in [false, true] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        let (api, nodes) = rig.stop().await;
        api.delete("secrets", NAMESPACE, "a-state");
        api.patch_status("clusters", "", "a", &json!({"status": null}));
        if dead {
            nodes.kill("n1");
        }
        api.delete("clusters", "", "a");
        let rig = Rig::with(nodes, api, |_| {});
        let deleted = tokio::time::Instant::now();
        rig.gone("a").await;
        assert!(deleted.elapsed() >= Duration::from_secs(1790), "{dead}");
        rig.nodes.revive("n1");
        assert!(rig.nodes.claimed_by("n1").is_some(), "nothing was touched");
        let record = rig.api.object("configmaps", NAMESPACE, "a-orphaned");
        assert!(record.is_some(), "{dead}");
    }
}

/// Orphans a cluster of that name; its state stays.
async fn orphan(rig: &Rig, name: &str) {
    rig.nodes.kill("n1");
    let soon = json!({"spec": {"deletion": {"timeout": "30s"}}});
    rig.api.patch("clusters", "", name, &soon);
    rig.api.delete("clusters", "", name);
    rig.gone(name).await;
    rig.nodes.revive("n1");
}

/// A state belongs to an object, not to a name: the namesake of an orphan has no part in its
/// nodes until a person names the cluster (O2).
#[tokio::test(start_paused = true)]
async fn a_namesake_of_an_orphan_has_no_part_in_its_nodes() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let id = rig.nodes.claimed_by("n1").unwrap();
    let containers = rig.nodes.containers("n1");
    orphan(&rig, "a").await;

    rig.create(&cluster("a", "n1")).await;
    let told = rig
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&told, "Stalled"), "StateConflict");
    assert!(message(&told, "Stalled").contains(&id), "it names the id");
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(
        rig.nodes.containers("n1"),
        containers,
        "nothing was touched"
    );
    let state = rig.api.object("secrets", NAMESPACE, "a-state");
    assert!(state.is_some(), "and the orphan's keys are kept");

    let take_over = |id: &str| json!({"metadata": {"annotations": {"clusterprovisioner.rke.io/take-over": id}}});
    rig.create(&cluster("a", "n1")).await;
    rig.api
        .patch("clusters", "", "a", &take_over(&"0".repeat(32)));
    let conflict = |cluster: &Value| reason(cluster, "Stalled") == "StateConflict";
    rig.until("a", conflict).await;
    tokio::time::sleep(Duration::from_secs(1300)).await;
    assert!(conflict(&rig.cluster("a")), "another id is no consent");
    rig.api.patch("clusters", "", "a", &take_over(&id));
    let taken = rig.ready("a").await;
    assert_eq!(taken["status"]["clusterID"], json!(id));
    let annotations = rig.cluster("a")["metadata"]["annotations"].clone();
    assert!(
        annotations["clusterprovisioner.rke.io/take-over"].is_null(),
        "used once"
    );
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1"), 0);
}

/// What the operator remembers is in the state, from the first save on: whose it is, and what was
/// applied (O2, O3). Nothing of it is in the copies that nodes have.
#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_in_the_state() {
    let rig = Rig::start(&["n1"]);
    // The state is saved before the first step on a node; the run ends there.
    let halt = rig.create_and_halt(0).await;
    let saved = rig
        .api
        .until("secrets", NAMESPACE, "a-state", |secret| secret.is_some())
        .await;
    let memory = |secret: &Value| state_in(secret)["operator"].clone();
    let uid = rig.cluster("a")["metadata"]["uid"].clone();
    assert_eq!(memory(&saved.unwrap()), json!({ "uid": uid }));
    halt.lift();
    rig.api.patch("clusters", "", "a", &edit());
    rig.ready("a").await;
    let state = rig.api.object("secrets", NAMESPACE, "a-state").unwrap();
    let memory = memory(&state);
    assert_eq!(memory["uid"], uid);
    assert_eq!(memory["applied"]["generation"], 2);
    assert_eq!(memory["applied"]["digest"].as_str().unwrap().len(), 32);
    assert!(state["metadata"]["annotations"].is_null());
}

/// A status that was lost is written anew, and nothing is applied for it (O3).
#[tokio::test(start_paused = true)]
async fn a_lost_status_is_no_new_spec() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    let built = rig.ready("a").await;
    let (api, nodes) = rig.stop().await;
    api.patch_status("clusters", "", "a", &json!({"status": null}));
    let runs = nodes.counts().ups;
    let rig = Rig::with(nodes, api, |_| {});
    let again = rig.ready("a").await;
    assert_eq!(rig.nodes.counts().ups, runs);
    assert_eq!(rig.events("Provisioned").len(), 1, "not even an empty run");
    for field in [
        "clusterID",
        "version",
        "nodes",
        "endpoints",
        "desiredVersion",
    ] {
        assert_eq!(again["status"][field], built["status"][field], "{field}");
    }
    // What an edit of something else than the config means: nothing to apply.
    let slower = json!({"spec": {"deletion": {"timeout": "1h"}}});
    rig.api.patch("clusters", "", "a", &slower);
    rig.until("a", |cluster| {
        cluster["metadata"]["generation"] == 2 && settled(cluster)
    })
    .await;
    assert_eq!(rig.nodes.counts().ups, runs);
    assert_eq!(rig.events("Provisioned").len(), 1, "not even an empty run");
}

/// The state that a Secret holds.
fn state_in(secret: &Value) -> Value {
    let text = secret["data"]["state.json"].as_str().unwrap();
    let text = BASE64_STANDARD.decode(text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Another client writes the state of a cluster.
fn rewritten(api: &FakeApi, secret: &str, edit: impl FnOnce(&mut Value)) {
    let there = api.object("secrets", NAMESPACE, secret).unwrap();
    let mut state = state_in(&there);
    edit(&mut state);
    let text = BASE64_STANDARD.encode(state.to_string());
    let data = json!({"data": {"state.json": text}});
    api.patch("secrets", NAMESPACE, secret, &data);
}

/// The state of a cluster under another object's uid, as a backup may bring it back.
fn given_to_another(api: &FakeApi) {
    rewritten(api, "a-state", |state| {
        state["operator"]["uid"] = json!("another");
    });
}

/// An older operator comes back and meets what a newer release made: a spec, a status and a state of that release. What it
/// does not know it reports or leaves, it touches no node, and each object can be deleted.
#[tokio::test(start_paused = true)]
async fn an_older_operator_leaves_what_a_newer_release_made() {
    let rig = Rig::start(&["n1", "n2", "n3"]);
    for (name, node) in [("a", "n1"), ("b", "n2"), ("c", "n3")] {
        rig.create(&cluster(name, node)).await;
        rig.ready(name).await;
    }
    let (api, nodes) = rig.stop().await;
    let runs = |nodes: &SimRemote| (nodes.counts().ups, nodes.counts().removals);
    let before = runs(&nodes);
    let spec = json!({"spec": {"backups": {"every": "12h"}, "changes": "AtNight"}});
    api.patch("clusters", "", "a", &spec);
    let mut conditions = api.object("clusters", "", "b").unwrap()["status"]["conditions"].clone();
    conditions.as_array_mut().unwrap().push(json!({
        "type": "Audited", "status": "False", "reason": "Late", "message": "since yesterday",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let status = json!({"status": {
        "conditions": conditions,
        "shards": 3,
        "lastRun": {"outcome": "Postponed"},
        "pendingPlan": {"digest": "d", "reason": "Season", "createdAt": "soon"},
    }});
    api.patch_status("clusters", "", "b", &status);
    rewritten(&api, "c-state", |state| {
        state["version"] = json!(1000);
        state["readableSince"] = json!("9.0.0");
    });

    let rig = Rig::with(nodes, api, |_| {});
    let told = rig
        .until("a", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    let text = message(&told, "ConfigValid");
    assert!(text.contains("spec.changes"), "{text}");
    let told = rig
        .until("c", |cluster| is(cluster, "Stalled", "True"))
        .await;
    let text = message(&told, "Stalled");
    assert!(
        text.contains("rke-operator 9.0.0 and later read it"),
        "{text}"
    );
    minutes(30).await;
    let well = rig.ready("b").await;
    assert!(condition(&well, "Audited").is_some(), "it is another's");
    assert!(is(&rig.cluster("a"), "Available", "True"));
    assert_eq!(runs(&rig.nodes), before, "a node was touched");

    for name in ["a", "b", "c"] {
        rig.api.delete("clusters", "", name);
    }
    for name in ["a", "b", "c"] {
        rig.gone(name).await;
    }
    assert_eq!(rig.nodes.containers("n1") + rig.nodes.containers("n2"), 0);
    assert!(
        rig.nodes.claimed_by("n3").is_some(),
        "its state is not understood"
    );
}

/// A state that is another object's from one moment to the next is not written, and is told (O2).
#[tokio::test(start_paused = true)]
async fn a_state_that_was_replaced_is_not_written() {
    let rig = Rig::start(&["n1"]);
    let api = rig.api.clone();
    rig.nodes.script(move |_, index, _| {
        if index == 3 {
            given_to_another(&api);
        }
        Turn::Go
    });
    rig.create(&cluster("a", "n1")).await;
    let told = rig
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&told, "Stalled"), "StateConflict");
    let state = rig.api.object("secrets", NAMESPACE, "a-state").unwrap();
    let text = state_in(&state).to_string();
    assert!(text.contains("another") && !text.contains("applied"));
}

/// An object that had a cluster is not removed because the state under its name is another's (O3).
#[tokio::test(start_paused = true)]
async fn a_deletion_with_anothers_state_is_not_a_removal() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let (api, nodes) = rig.stop().await;
    given_to_another(&api);
    api.delete("clusters", "", "a");
    let rig = Rig::with(nodes, api, |_| {});
    let deleted = tokio::time::Instant::now();
    rig.gone("a").await;
    assert!(deleted.elapsed() >= Duration::from_secs(1790));
    assert!(rig.nodes.claimed_by("n1").is_some(), "nothing was touched");
    let record = rig.api.object("configmaps", NAMESPACE, "a-orphaned");
    assert!(record.is_some());
}

/// A namesake that was created during a run gets nothing of what is said about the earlier object.
#[tokio::test(start_paused = true)]
async fn a_namesake_gets_no_status_of_another() {
    let rig = Rig::start(&["n1"]);
    let api = rig.api.clone();
    let replaced = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&replaced);
    rig.nodes.script(move |_, index, _| {
        if index == 3 && !once.swap(true, Ordering::SeqCst) {
            let bare = json!({"metadata": {"finalizers": []}});
            api.patch("clusters", "", "a", &bare);
            api.delete("clusters", "", "a");
            api.plant("clusters", &cluster("a", "n1"));
        }
        Turn::Go
    });
    rig.create(&cluster("a", "n1")).await;
    let first = rig.cluster("a")["metadata"]["uid"].clone();
    let told = rig
        .until("a", |cluster| reason(cluster, "Stalled") == "StateConflict")
        .await;
    assert_ne!(told["metadata"]["uid"], first);
    let history = rig.api.history("clusters");
    let namesakes = history.iter().filter(|a| a["metadata"]["uid"] != first);
    for namesake in namesakes {
        assert_eq!(namesake["status"]["clusterID"], Value::Null);
        assert_eq!(namesake["status"]["progress"], Value::Null);
    }
}

/// The Kubeconfig of an earlier object of the name is waited for, and not taken.
#[tokio::test(start_paused = true)]
async fn the_kubeconfig_of_an_earlier_object_is_not_taken() {
    let rig = Rig::start(&["n1"]);
    let theirs = json!({
        "metadata": {"name": "a", "ownerReferences": [{
            "apiVersion": "clusterprovisioner.rke.io/v1alpha1",
            "kind": "Cluster",
            "name": "a",
            "uid": "earlier",
        }]},
        "spec": {"clusterName": "a"},
    });
    rig.api.plant("kubeconfigs", &theirs);
    rig.create(&cluster("a", "n1")).await;
    let told = rig
        .until("a", |cluster| reason(cluster, "Reconciling") == "Retrying")
        .await;
    assert!(message(&told, "Reconciling").contains("earlier Cluster"));
    assert_eq!(rig.nodes.counts().ups, 0);
    rig.api.delete("kubeconfigs", "", "a");
    rig.ready("a").await;
}

/// A watch whose version is too old begins with a list: what changed, came and went meanwhile is seen.
#[tokio::test(start_paused = true)]
async fn an_expired_watch_begins_again() {
    let rig = Rig::start(&["n1", "n2", "n3"]);
    for (name, node) in [("a", "n1"), ("b", "n2")] {
        rig.create(&cluster(name, node)).await;
        rig.ready(name).await;
    }
    rig.api.silence_watches(true);
    rig.api.patch("clusters", "", "a", &edit());
    let bare = json!({"metadata": {"finalizers": []}});
    rig.api.patch("clusters", "", "b", &bare);
    rig.api.delete("clusters", "", "b");
    rig.create(&cluster("c", "n3")).await;
    rig.api.expire_watches();
    rig.api.silence_watches(false);
    let begun = tokio::time::Instant::now();
    rig.ready("c").await;
    rig.until("a", |object| {
        settled(object) && object["metadata"]["generation"] == 2
    })
    .await;
    assert!(begun.elapsed() < SOON);
    assert_eq!(rig.api.object("clusters", "", "b"), None);
    // Those that are there are looked at as before.
    let _ = rig.nodes.asked();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = rig.nodes.asked();
    let often = |node: &str| asked.get(&node.into()).copied().unwrap_or_default();
    assert!(often("n3") >= 8 && often("n2") == 0, "{asked:?}");
}

/// A status that is wiped while the operator runs is written again by the next look, and nothing is applied for it.
#[tokio::test(start_paused = true)]
async fn a_status_that_is_wiped_is_written_again() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    let built = rig.ready("a").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let runs = rig.nodes.counts().ups;
    rig.api
        .patch_status("clusters", "", "a", &json!({"status": null}));
    let wiped = tokio::time::Instant::now();
    let again = rig.ready("a").await;
    assert!(wiped.elapsed() < Duration::from_secs(90));
    assert_eq!(again["status"]["clusterID"], built["status"]["clusterID"]);
    assert_eq!(rig.nodes.counts().ups, runs);
}

/// The namespace of the states and the one of the keys go while a cluster is removed: the removal ends with what it has
/// read, or its deadline ends it, and another Cluster notices nothing.
#[tokio::test(start_paused = true)]
async fn namespaces_that_go_in_the_middle_of_a_deletion() {
    for namespace in [NAMESPACE, CREDENTIALS] {
        let rig = Rig::start(&["n1", "n2"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        let halt = rig.nodes.halt(Purpose::Removal, 1);
        rig.api.delete("clusters", "", "a");
        let deleted = tokio::time::Instant::now();
        halt.reached().await;
        halt.lift();
        for secret in rig.api.objects("secrets") {
            if secret["metadata"]["namespace"] == namespace {
                let name = secret["metadata"]["name"].as_str().unwrap();
                rig.api.delete("secrets", namespace, name);
            }
        }
        halt.go_on();
        rig.gone("a").await;
        assert!(deleted.elapsed() <= Duration::from_secs(30 * 60 + 5));
        let is_clean = rig.nodes.claimed_by("n1").is_none();
        let is_recorded = rig
            .api
            .object("configmaps", NAMESPACE, "a-orphaned")
            .is_some();
        assert!(is_clean != is_recorded, "{namespace}: {is_clean}");
        if namespace == CREDENTIALS {
            rig.api.plant("secrets", &key_secret());
        }
        rig.create(&cluster("b", "n2")).await;
        rig.ready("b").await;
    }
}
