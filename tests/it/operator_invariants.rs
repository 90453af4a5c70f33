//! The invariants that the operator keeps, each with a test that fails without it. Every test's
//! name begins with the invariant's number.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use rke_operator::{error::ErrorClass, model::ClusterId};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    fake_api::FakeApi,
    operator_rig::{
        CREDENTIALS, NAMESPACE, PLANTED_KEY, Rig, SOON, clock, cluster, condition, is, message,
        planted_line, reason, record, settled,
    },
    sim::remote::{Purpose, SimFailure, SimRemote, Surveys, Turn},
};

fn finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array();
    all.into_iter()
        .flatten()
        .map(|f| f.as_str().unwrap())
        .collect()
}

const OURS: &str = "clusterprovisioner.rke.io/cleanup";

/// Lost keys are read back only when the object asks for it, and a run is told which ids
/// other objects and kept states hold.
#[tokio::test(start_paused = true)]
async fn invariant_02_recovery_is_asked_for_and_other_clusters_ids_are_shown() {
    let rig = Rig::start(&["n1", "n2"]);
    rig.create(&cluster("a", "n1")).await;
    let first = rig.ready("a").await;
    rig.create(&cluster("b", "n2")).await;
    rig.ready("b").await;
    let id = first["status"]["clusterID"].as_str().unwrap().to_owned();
    assert_eq!(rig.nodes.told(), (None, vec![id.clone()]));
    let own: ClusterId = "0123456789abcdef".repeat(2).parse().unwrap();
    let ask = json!({
        "metadata": {"annotations": {"clusterprovisioner.rke.io/recover": own.0}},
        "spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}},
    });
    rig.api.patch("clusters", "", "b", &ask);
    rig.until("b", |cluster| {
        cluster["metadata"]["generation"] == 2 && settled(cluster)
    })
    .await;
    assert_eq!(rig.nodes.told(), (Some(own), vec![id]));
}

/// The same from the keys' side: with the state lost, no new ones are made, and the nodes' copy is
/// read back for the id that the object names, and for no other.
#[tokio::test(start_paused = true)]
async fn invariant_02_lost_keys_are_read_back_for_the_id_that_is_named() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    let built = rig.ready("a").await;
    let before = rig.state("a").unwrap();
    let runs = rig.nodes.counts().ups;
    rig.api.delete("secrets", NAMESPACE, "a-state");
    let recover = |id: &str| {
        let asked = json!({"clusterprovisioner.rke.io/recover": id});
        let patch = json!({"metadata": {"annotations": asked}});
        rig.api.patch("clusters", "", "a", &patch);
    };
    let other = "0".repeat(32);
    for (asks, why, says) in [
        (None, "StateMissing", "is lost"),
        (Some(&other), "ClaimedByOther", other.as_str()),
    ] {
        if let Some(id) = asks {
            recover(id);
        }
        let refused = |cluster: &Value| message(cluster, "Stalled").contains(says);
        let told = rig.until("a", refused).await;
        assert_eq!(reason(&told, "Stalled"), why);
        assert_eq!(rig.state("a"), None, "no new keys");
        assert_eq!(rig.nodes.counts().ups, runs, "nothing was done");
    }
    recover(built["status"]["clusterID"].as_str().unwrap());
    let again = rig.ready("a").await;
    assert_eq!(again["status"]["clusterID"], built["status"]["clusterID"]);
    let asked = &again["metadata"]["annotations"]["clusterprovisioner.rke.io/recover"];
    assert_eq!(*asked, Value::Null, "used once");
    let after = rig.state("a").unwrap();
    for keys in [
        "clusterCa",
        "etcdCa",
        "frontProxyCa",
        "signerCa",
        "serviceAccounts",
    ] {
        assert!(
            !before[keys].is_null() && after[keys] == before[keys],
            "{keys}"
        );
    }
}

/// Without consent for updates, a new release of ours restarts nothing: it says what it would do.
#[tokio::test(start_paused = true)]
async fn invariant_07_another_release_changes_nothing_without_an_edit() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let (api, nodes) = rig.stop().await;
    // As if an older release had applied it, and this one wanted something else.
    let runs = nodes.counts().ups;
    nodes.applied_otherwise("n1", "kube-scheduler", |spec| {
        spec.command.push("--old".to_owned());
    });
    let rig = Rig::with(nodes, api, |_| {});
    let told = rig
        .until("a", |cluster| is(cluster, "UpToDate", "False"))
        .await;
    assert_eq!(reason(&told, "UpToDate"), "UpdateAvailable");
    assert!(is(&told, "Ready", "True"), "it serves all the same");
    assert!(message(&told, "UpToDate").contains("--old"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.nodes.counts().ups, runs);
    // What was taken away behind our back comes back all the same (O1), and nothing else moves.
    rig.nodes.take("n1", "kube-proxy");
    rig.event("Healed").await;
    assert!(rig.nodes.has("n1", "kube-proxy"));
    let old = |rig: &Rig| {
        rig.nodes
            .definition("n1", "kube-scheduler")
            .command
            .contains(&"--old".to_owned())
    };
    assert!(old(&rig), "the update waits");
    assert_eq!(reason(&rig.cluster("a"), "UpToDate"), "UpdateAvailable");
    let edit = json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}});
    rig.api.patch("clusters", "", "a", &edit);
    rig.until("a", |cluster| {
        settled(cluster) && is(cluster, "UpToDate", "True")
    })
    .await;
    assert!(!old(&rig), "an edit lets it");
}

/// R15: certificates that end soon are renewed while the spec stays as it is, and while an update
/// waits for somebody who asks for it.
#[tokio::test(start_paused = true)]
async fn invariant_16_certificates_are_renewed_with_an_unchanged_spec() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    let built = rig.ready("a").await;
    assert_eq!(reason(&built, "CertificatesValid"), "Valid");
    let first = &built["status"]["certificates"];
    let path = first["component"].as_str().unwrap();
    let path = path.split('`').nth(1).unwrap();
    let readers = rig.nodes.readers("n1", path);
    assert!(!readers.is_empty(), "{path}");
    let (file, digest) = (
        rig.nodes.file("n1", path),
        rig.nodes.definition("n1", &readers[0]).files[path].clone(),
    );
    // What does not read it has an update to wait for.
    let other = ["kube-scheduler", "kube-controller-manager"]
        .into_iter()
        .find(|name| !readers.contains(&(*name).to_owned()))
        .unwrap();
    rig.nodes.applied_otherwise("n1", other, |spec| {
        spec.command.push("--old".to_owned());
    });
    let time = |text: &Value| text.as_str().unwrap().parse::<Timestamp>().unwrap();
    let ends = time(&first["earliestExpiry"]);
    // Certificates are valid from an hour before they are made.
    let made = time(&built["metadata"]["creationTimestamp"]);
    let whole = ends.duration_since(made) + SignedDuration::from_hours(1);
    // Less than a third of its time is left, by a minute, and more of that of every other.
    let left = whole / 3 - SignedDuration::from_mins(1);
    let wait = ends.duration_since(rig.api.now()) - left;
    tokio::time::advance(wait.unsigned_abs()).await;
    rig.event("Renewed").await;
    let history = rig.api.history("clusters");
    let renewing = history
        .iter()
        .find(|cluster| reason(cluster, "Reconciling") == "Renewing")
        .unwrap();
    assert_eq!(reason(renewing, "CertificatesValid"), "ExpiringSoon");
    let text = message(renewing, "CertificatesValid");
    let days = left.as_hours() / 24;
    assert!(text.contains(&format!("`{path}`")), "{text}");
    assert!(text.contains(&format!("in {days} days")), "{text}");
    assert!(is(renewing, "CertificatesValid", "True"), "not ended yet");
    let renewed = rig
        .until("a", |cluster| {
            settled(cluster) && reason(cluster, "CertificatesValid") == "Valid"
        })
        .await;
    let next = &renewed["status"]["certificates"];
    assert!(time(&next["earliestExpiry"]) > ends, "{next}");
    assert_ne!(rig.nodes.file("n1", path), file);
    for reader in readers {
        let files = rig.nodes.definition("n1", &reader).files;
        assert_ne!(files[path], digest, "{reader} runs with the new one");
    }
    let words = rig.nodes.definition("n1", other).command;
    assert!(words.contains(&"--old".to_owned()), "nothing else changed");
    for reason in ["ExpiringSoon", "Renewed"] {
        assert_eq!(rig.events(reason).len(), 1, "{reason}");
    }
}

/// An edit stops the run that was started for the object before it.
#[tokio::test(start_paused = true)]
async fn invariant_09_an_edit_stops_a_run() {
    let rig = Rig::start(&["n1"]);
    let halt = rig.create_and_halt(3).await;
    halt.lift();
    let edit = json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}});
    rig.api.patch("clusters", "", "a", &edit);
    let edited = tokio::time::Instant::now();
    let built = rig.ready("a").await;
    assert!(edited.elapsed() < SOON, "its step has longer");
    assert_eq!(
        condition(&built, "Provisioned").unwrap()["observedGeneration"],
        2
    );
    assert_eq!(rig.nodes.counts().ups, 2);
    // What the operator writes itself is not an edit.
    assert_eq!(rig.nodes.counts().removals, 0);
}

/// A deletion stops a run, and the removal that follows finds what the run left.
#[tokio::test(start_paused = true)]
async fn invariant_09_a_deletion_stops_a_run() {
    let rig = Rig::start(&["n1"]);
    rig.create_and_halt(7).await;
    rig.api.delete("clusters", "", "a");
    let deleted = tokio::time::Instant::now();
    rig.gone("a").await;
    assert!(deleted.elapsed() < SOON, "its step has longer");
    assert_eq!(rig.nodes.containers("n1"), 0);
    assert_eq!(rig.api.object("secrets", NAMESPACE, "a-state"), None);
}

/// A removal that had to wait reads the object once more before it wipes: another one of the same
/// name is not what was deleted, even while the watch has not told so yet.
#[tokio::test(start_paused = true)]
async fn invariant_09_a_namesake_is_not_wiped() {
    for tried in [false, true] {
        let nodes = SimRemote::bare(&["n1", "n2"]);
        let rig = Rig::with(nodes, FakeApi::new(clock()), |options| {
            options.limits.deletes = 1;
        });
        for (name, node) in [("a", "n1"), ("b", "n2")] {
            rig.create(&cluster(name, node)).await;
            rig.ready(name).await;
        }
        if tried {
            // The first attempt is noted on the object: the next one writes nothing before it begins.
            rig.nodes.kill("n2");
            rig.api.delete("clusters", "", "b");
            rig.until("b", |cluster| {
                cluster["status"]["remaining"][0]["name"] == "n2"
            })
            .await;
        }
        let halt = rig.nodes.halt(Purpose::Removal, 0);
        rig.api.delete("clusters", "", "a");
        halt.reached().await;
        if tried {
            rig.nodes.revive("n2");
            // Its next attempt waits for that of `a`, whose step may take some minutes.
            tokio::time::sleep(Duration::from_secs(100)).await;
        } else {
            rig.api.delete("clusters", "", "b");
            rig.until("b", |cluster| is(cluster, "Deleting", "True"))
                .await;
        }
        let removals = rig.nodes.counts().removals;
        rig.api.silence_watches(true);
        let bare = json!({"metadata": {"finalizers": []}});
        rig.api.patch("clusters", "", "b", &bare);
        rig.api.plant("clusters", &cluster("b", "n2"));
        halt.go_on();
        rig.gone("a").await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(rig.nodes.counts().removals, removals, "only that of a");
        assert!(rig.nodes.containers("n2") > 0);
        rig.api.silence_watches(false);
        // It has no part in the cluster of the one before it, either.
        rig.until("b", |cluster| reason(cluster, "Stalled") == "StateConflict")
            .await;
        assert!(rig.nodes.containers("n2") > 0);
    }
}

/// The finalizer is there before anything is kept, and before anything is done on a node.
#[tokio::test(start_paused = true)]
async fn invariant_10_the_finalizer_is_there_before_the_first_effect() {
    let rig = Rig::start(&["n1"]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let api = rig.api.clone();
    let is_there = move || {
        let object = api.object("clusters", "", "a").unwrap();
        finalizers(&object).contains(&OURS)
    };
    let (note, there) = (Arc::clone(&seen), is_there.clone());
    rig.api.fault(move |method, path| {
        if method != http::Method::GET && path.contains("/secrets") {
            note.lock().unwrap().push(("kept", there()));
        }
        None
    });
    let note = Arc::clone(&seen);
    rig.nodes.script(move |_, _, _| {
        note.lock().unwrap().push(("done", is_there()));
        Turn::Go
    });
    let mut with_another = cluster("a", "n1");
    with_another["metadata"]["finalizers"] = json!(["example.com/theirs"]);
    rig.create(&with_another).await;
    let built = rig.ready("a").await;
    let first = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(first[0], ("kept", true));
    assert!(first.contains(&("done", true)), "{first:?}");
    assert_eq!(finalizers(&built), ["example.com/theirs", OURS]);
    // Ours goes, theirs stays.
    rig.api.delete("clusters", "", "a");
    let freed = rig
        .until("a", |cluster| !finalizers(cluster).contains(&OURS))
        .await;
    assert_eq!(finalizers(&freed), ["example.com/theirs"]);
    assert_eq!(rig.nodes.containers("n1"), 0);
}

/// A removal that is cut off at any of its steps leaves the finalizer where it is, and the next
/// pass takes it from there.
#[tokio::test(start_paused = true)]
async fn invariant_10_the_finalizer_survives_a_removal_cut_off_at_every_step() {
    let mut cuts = 0;
    while removed_in_spite_of(Cut::Step(cuts)).await {
        cuts += 1;
    }
    assert!(cuts > 8, "a removal has more than {cuts} steps");
    // Its last two steps, where the operator runs.
    for secret in ["a-kubeconfig", "a-state"] {
        let was_cut = removed_in_spite_of(Cut::Secret(secret)).await;
        assert!(was_cut, "the removal takes `{secret}` away");
    }
}

/// Where a removal is cut off, once.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// At that step on a node, from 0.
    Step(usize),
    /// Where that Secret is taken away.
    Secret(&'static str),
}

/// A removal that is cut off there ends all the same. False: it did not come there.
async fn removed_in_spite_of(cut: Cut) -> bool {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let was_cut = Arc::new(Mutex::new(None));
    let (note, api) = (Arc::clone(&was_cut), rig.api.clone());
    // Once: the finalizer as it is at that moment.
    let cuts = move || {
        let first = note.lock().unwrap().is_none();
        let object = api.object("clusters", "", "a").unwrap();
        let there = finalizers(&object).contains(&OURS);
        note.lock().unwrap().get_or_insert(there);
        first
    };
    match cut {
        Cut::Step(step) => rig.nodes.script(move |purpose, index, _| {
            if purpose == Purpose::Removal && index == step && cuts() {
                return Turn::Fail(SimFailure::new(ErrorClass::Transient, "hiccup"));
            }
            Turn::Go
        }),
        Cut::Secret(name) => rig.api.fault(move |method, path| {
            let at = method == http::Method::DELETE && path.ends_with(name);
            (at && cuts()).then_some(500)
        }),
    }
    rig.api.delete("clusters", "", "a");
    let told = rig
        .api
        .until("clusters", "", "a", |object| {
            let failed = |object| {
                let text = message(object, "Deleting");
                text.contains("hiccup") || text.contains("told to refuse")
            };
            object.is_none_or(failed)
        })
        .await;
    if let Some(object) = told {
        assert!(finalizers(&object).contains(&OURS), "{cut:?}");
        assert!(is(&object, "Deleting", "True"), "{cut:?}");
    }
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1"), 0, "{cut:?}");
    let state = rig.api.object("secrets", NAMESPACE, "a-state");
    assert_eq!(state, None, "{cut:?}");
    let was_cut = *was_cut.lock().unwrap();
    assert_ne!(was_cut, Some(false), "{cut:?}: the finalizer was not there");
    was_cut.is_some()
}

/// The same when the process ends at that step, and another one goes on.
#[tokio::test(start_paused = true)]
async fn invariant_10_the_finalizer_survives_the_end_of_the_process() {
    for cut in 0..6 {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        let halt = rig.nodes.halt(Purpose::Removal, cut);
        rig.api.delete("clusters", "", "a");
        halt.reached().await;
        let (api, nodes) = rig.stop().await;
        let left = api.object("clusters", "", "a").unwrap();
        assert!(finalizers(&left).contains(&OURS));
        halt.lift();
        let rig = Rig::with(nodes, api, |_| {});
        rig.gone("a").await;
        assert_eq!(rig.nodes.containers("n1"), 0);
    }
}

/// Between the run's last act, the deletion of the state, and the finalizer: the next pass
/// finds no state, looks at the nodes and sees that all is done.
#[tokio::test(start_paused = true)]
async fn invariant_10_a_removal_that_lost_only_its_last_word_ends() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let api = rig.api.clone();
    let refused = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&refused);
    rig.api.fault(move |method, path| {
        let release = method == http::Method::PATCH
            && path.ends_with("/clusters/a")
            && api.object("secrets", NAMESPACE, "a-state").is_none();
        (release && count.fetch_add(1, Ordering::SeqCst) < 2).then_some(500)
    });
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert!(refused.load(Ordering::SeqCst) >= 2);
    assert_eq!(rig.api.objects("configmaps").len(), 0, "not an orphan");
}

/// Somebody else was faster: an object that is gone has no finalizer to be taken away, and nobody asks
/// for it again.
#[tokio::test(start_paused = true)]
async fn invariant_10_an_object_that_is_gone_is_released() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let api = rig.api.clone();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    rig.api.fault(move |method, path| {
        let release = method == http::Method::PATCH
            && path.ends_with("/clusters/a")
            && api.object("secrets", NAMESPACE, "a-state").is_none();
        (release && count.fetch_add(1, Ordering::SeqCst) == 0).then_some(404)
    });
    rig.api.delete("clusters", "", "a");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// A state that was lost is not a cluster that is gone.
#[tokio::test(start_paused = true)]
async fn invariant_10_a_lost_state_is_not_a_removal() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.api.delete("secrets", NAMESPACE, "a-state");
    rig.api.delete("clusters", "", "a");
    let deleted = tokio::time::Instant::now();
    let stuck = rig
        .until("a", |cluster| reason(cluster, "Stalled") == "StateMissing")
        .await;
    assert!(finalizers(&stuck).contains(&OURS));
    rig.gone("a").await;
    assert!(
        deleted.elapsed() >= Duration::from_secs(30 * 60),
        "only the deadline ends it"
    );
    assert!(
        rig.nodes.claimed_by("n1").is_some(),
        "and it touched nothing"
    );
    assert!(
        rig.api
            .object("configmaps", NAMESPACE, "a-orphaned")
            .is_some()
    );
}

/// When the record cannot be written, the object stays.
#[tokio::test(start_paused = true)]
async fn invariant_10_the_record_is_written_before_the_finalizer_goes() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.nodes.kill("n1");
    rig.api.fault(|method, path| {
        (method != http::Method::GET && path.contains("/configmaps")).then_some(503)
    });
    rig.api.delete("clusters", "", "a");
    // The deadline, and most of the hour in which a failing API is asked again.
    tokio::time::sleep(Duration::from_secs(80 * 60)).await;
    assert!(finalizers(&rig.cluster("a")).contains(&OURS));
    rig.api.mend();
    rig.gone("a").await;
    let record = rig
        .api
        .object("configmaps", NAMESPACE, "a-orphaned")
        .unwrap();
    let text = record["data"]
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap()
        .as_str()
        .unwrap();
    let record: Value = serde_json::from_str(text).unwrap();
    assert_eq!(record["nodes"][0]["name"], "n1");
    assert_eq!(record["nodes"][0]["address"], "10.0.0.1");
    assert_eq!(record["clusterId"], json!(rig.nodes.claimed_by("n1")));
    assert_eq!(record["remaining"][0]["name"], "n1");
    assert_eq!(record["remaining"][0]["reason"], "Unreachable");
    let why = record["remaining"][0]["message"].as_str().unwrap();
    assert!(why.contains("no route to host"), "{why}");
    assert!(
        record["state"]
            .as_str()
            .unwrap()
            .contains("rke-system/a-state")
    );
    let events = rig.api.objects("events");
    assert!(events.iter().any(|event| event["reason"] == "Orphaned"));
}

/// A cluster whose spec nobody can read any more is taken down by what was saved.
#[tokio::test(start_paused = true)]
async fn invariant_11_a_broken_spec_is_removed_by_the_inventory() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.api
        .patch("clusters", "", "a", &json!({"spec": "gone to the dogs"}));
    rig.until("a", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    rig.api.delete("clusters", "", "a");
    let deleted = tokio::time::Instant::now();
    rig.gone("a").await;
    assert!(deleted.elapsed() < Duration::from_secs(60));
    assert_eq!(rig.nodes.containers("n1"), 0);
}

/// An object that was broken from the start, and never touched a node, goes at once.
#[tokio::test(start_paused = true)]
async fn invariant_11_what_never_was_goes_at_once() {
    let rig = Rig::start(&["n1"]);
    let wreck = json!({"metadata": {"name": "a"}, "spec": {"config": 7}});
    rig.api.plant("clusters", &wreck);
    rig.until("a", |cluster| is(cluster, "ConfigValid", "False"))
        .await;
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(rig.nodes.counts().removals, 0);
}

/// Everything wrong at once: the spec broken, the Secret gone, the node dead, the state
/// unreadable. It ends by its deadline, and says what it left.
#[tokio::test(start_paused = true)]
async fn invariant_11_a_deletion_ends_whatever_is_broken() {
    for with_state in [true, false] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        rig.nodes.kill("n1");
        rig.api.delete("secrets", CREDENTIALS, "nodes");
        if !with_state {
            let garbage = json!({"data": {"state.json": "Z2FyYmFnZQ=="}});
            rig.api.patch("secrets", NAMESPACE, "a-state", &garbage);
        }
        rig.api.patch(
            "clusters",
            "",
            "a",
            &json!({"spec": {"ssh": 7, "deletion": {"timeout": "10m"}}}),
        );
        rig.api.delete("clusters", "", "a");
        let deleted = tokio::time::Instant::now();
        rig.until("a", |cluster| is(cluster, "Deleting", "True"))
            .await;
        rig.gone("a").await;
        let took = deleted.elapsed().as_secs();
        assert!((600..660).contains(&took), "ended after {took} s of 600");
        let record = rig
            .api
            .object("configmaps", NAMESPACE, "a-orphaned")
            .unwrap();
        assert!(record["data"].to_string().contains("10.0.0.1"), "{record}");
    }
}

/// A lost SSH key alone: the saved inventory is known and cannot be entered.
#[tokio::test(start_paused = true)]
async fn invariant_11_a_lost_key_is_reported_and_the_deadline_ends_it() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.api.delete("secrets", CREDENTIALS, "nodes");
    rig.api.delete("clusters", "", "a");
    let told = rig
        .until("a", |cluster| {
            cluster["status"]["remaining"][0]["name"] == "n1"
        })
        .await;
    let why = told["status"]["remaining"][0]["message"].as_str().unwrap();
    let missing = "the Secret `rke-system-credentials/nodes` does not exist";
    assert!(why.contains(missing), "{why}");
    rig.gone("a").await;
    assert!(rig.nodes.claimed_by("n1").is_some());
    assert!(
        rig.api
            .object("configmaps", NAMESPACE, "a-orphaned")
            .is_some()
    );
}

/// `Keep` opts out of ending: Stalled, tried for ever, and done when the node is back.
#[tokio::test(start_paused = true)]
async fn invariant_11_keep_is_stalled_and_retried() {
    let rig = Rig::start(&["n1"]);
    let mut keep = cluster("a", "n1");
    keep["spec"]["deletion"] = json!({"timeout": "5m", "onTimeout": "Keep"});
    rig.create(&keep).await;
    rig.ready("a").await;
    rig.nodes.kill("n1");
    rig.api.delete("clusters", "", "a");
    let overdue = rig
        .until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert_eq!(reason(&overdue, "Stalled"), "DeletionOverdue");
    tokio::time::sleep(Duration::from_secs(3000)).await;
    assert!(finalizers(&rig.cluster("a")).contains(&OURS));
    assert_eq!(rig.api.objects("configmaps").len(), 0);
    rig.nodes.revive("n1");
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1"), 0);
}

/// A run that does not end by itself, in a step or in its survey, does not hold the deadline up.
#[tokio::test(start_paused = true)]
async fn invariant_11_the_deadline_ends_a_removal_that_hangs() {
    for in_step in [true, false] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        if in_step {
            rig.nodes.script(|_, _, _| Turn::AwaitStop);
        } else {
            rig.nodes.surveys(Surveys::Hang);
        }
        rig.api.delete("clusters", "", "a");
        let deleted = tokio::time::Instant::now();
        rig.gone("a").await;
        let took = deleted.elapsed().as_secs();
        assert!(
            (1790..=1805).contains(&took),
            "{in_step}: ended after {took} s of 1800"
        );
        let hung = rig.nodes.counts().hanging > 0;
        assert_eq!(hung, !in_step);
        assert_eq!(rig.api.objects("configmaps").len(), 1, "one record");
        let record = record(&rig.api, "a");
        let [left] = &record["remaining"].as_array().unwrap()[..] else {
            panic!("one node: {record:#}");
        };
        assert_eq!(left["name"], "n1");
        let why = left["message"].as_str().unwrap();
        assert!(why.contains("`n1` was not clean"), "{why}");
    }
}

/// Files, and keys in the object, are refused: a Cluster reads Secrets and nothing else.
#[tokio::test(start_paused = true)]
async fn invariant_12_a_cluster_reads_no_files_and_holds_no_keys() {
    for (key, value) in [
        ("ssh_key_path", json!("/etc/shadow")),
        ("ssh_key", json!(*PLANTED_KEY)),
    ] {
        let rig = Rig::start(&["n1"]);
        let mut bad = cluster("a", "n1");
        bad["spec"]["config"]["nodes"][0][key] = value;
        rig.create(&bad).await;
        let told = rig
            .until("a", |cluster| is(cluster, "ConfigValid", "False"))
            .await;
        let text = message(&told, "ConfigValid");
        assert!(text.contains(&format!("nodes[0].{key}")), "{text}");
        assert!(text.contains("keySecretRef"), "{text}");
        assert!(
            !text.contains("shadow") && !text.contains(planted_line()),
            "{text}"
        );
        assert_eq!(rig.nodes.counts().ups, 0);
    }
}

/// Every Secret that is read, watched or written is in the operator's own namespace, and a
/// reference has no way to say otherwise.
#[tokio::test(start_paused = true)]
async fn invariant_13_secrets_stay_in_two_namespaces() {
    let rig = Rig::start(&["n1"]);
    let paths = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&paths);
    rig.api.fault(move |_, path| {
        if path.contains("/secrets") {
            note.lock().unwrap().push(path.to_owned());
        }
        None
    });
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    let inside = |paths: Vec<String>| {
        assert!(paths.len() > 5);
        for path in paths {
            let own = [NAMESPACE, CREDENTIALS].iter().any(|namespace| {
                let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
                path == secrets || path.starts_with(&format!("{secrets}/"))
            });
            assert!(own && !path.contains(".."), "{path}");
        }
    };
    inside(paths.lock().unwrap().clone());
    // A name that would be a path is not a name.
    for name in ["../../kube-system/secrets/x", "kube-system/x"] {
        let mut bad = cluster("b", "n1");
        bad["spec"]["ssh"]["keySecretRef"]["namespace"] = json!("kube-system");
        bad["spec"]["ssh"]["keySecretRef"]["name"] = json!(name);
        rig.api.plant("clusters", &bad);
        let told = rig.until("b", |cluster| !cluster["status"].is_null()).await;
        assert!(is(&told, "Ready", "False"));
        rig.api.delete("clusters", "", "b");
        rig.gone("b").await;
    }
    inside(paths.lock().unwrap().clone());
}

/// One reconcile at a time for an object; and only a run moves `Provisioned`.
#[tokio::test(start_paused = true)]
async fn invariant_14_only_a_run_moves_provisioned() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let go = Arc::new(Notify::new());
    let until = Arc::clone(&go);
    let mut fails = true;
    rig.nodes.script(move |_, index, _| match index {
        0 => Turn::Hold(Arc::clone(&until)),
        1 if std::mem::take(&mut fails) => {
            Turn::Fail(SimFailure::new(ErrorClass::Host, "cannot reach node `n1`"))
        }
        _ => Turn::Go,
    });
    let edit = json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}});
    rig.api.patch("clusters", "", "a", &edit);
    let under_way = rig
        .until("a", |cluster| cluster["status"]["observedGeneration"] == 2)
        .await;
    let provisioned = condition(&under_way, "Provisioned").unwrap();
    assert_eq!(
        provisioned["observedGeneration"], 1,
        "no run for 2 has ended yet"
    );
    assert!(is(&under_way, "Ready", "False"), "2 is not applied");
    go.notify_one();
    let failed = rig
        .until("a", |cluster| is(cluster, "Provisioned", "False"))
        .await;
    assert_eq!(
        condition(&failed, "Provisioned").unwrap()["observedGeneration"],
        2
    );
    go.notify_one();
    rig.ready("a").await;
    assert_eq!(rig.nodes.counts().most, 1, "never two runs for one object");
}

/// Two Clusters name one node: the second is refused, and its deletion harms nothing.
#[tokio::test(start_paused = true)]
async fn invariant_03_a_second_cluster_on_a_node_is_refused_and_harmless() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let owner = rig.nodes.claimed_by("n1");
    rig.create(&cluster("b", "n1")).await;
    let refused = rig
        .until("b", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert!(is(&refused, "Ready", "False"));
    assert_eq!(reason(&refused, "Provisioned"), "Failed");
    assert!(
        message(&refused, "Ready").contains("cluster"),
        "{}",
        message(&refused, "Ready")
    );
    rig.api.delete("clusters", "", "b");
    let deleted = tokio::time::Instant::now();
    rig.gone("b").await;
    assert!(deleted.elapsed() < Duration::from_secs(60));
    assert_eq!(rig.nodes.claimed_by("n1"), owner);
    rig.ready("a").await;
}

/// Deletes have slots of their own: provisions that hang cannot starve them.
#[tokio::test(start_paused = true)]
async fn provisions_do_not_starve_deletes() {
    let nodes = SimRemote::bare(&["n1", "n2", "n3"]);
    let rig = Rig::with(nodes, FakeApi::new(clock()), |options| {
        options.limits.changes = 1;
    });
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let halt = rig.nodes.halt(Purpose::Up, 0);
    rig.create(&cluster("b", "n2")).await;
    halt.reached().await;
    rig.create(&cluster("c", "n3")).await;
    let queued = |cluster: &Value| reason(cluster, "Reconciling") == "Queued";
    rig.until("c", queued).await;
    rig.api.delete("clusters", "", "a");
    let deleted = tokio::time::Instant::now();
    rig.gone("a").await;
    assert!(deleted.elapsed() < SOON, "the step of `b` has longer");
}
