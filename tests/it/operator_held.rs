//! What holds the operator's hand back, as the spec says: a pause, the protection of an object that is deleted, and a
//! deletion that leaves the nodes as they are.

use std::time::Duration;

use rke_operator::facts::ContainerState;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::operator_rig::{
    NAMESPACE, Rig, cluster, is, is_untouched, message, minutes, reason, record, settled,
    the_scheduler_is,
};

const PREFIX: &str = "clusterprovisioner.rke.io";

fn patch(rig: &Rig, name: &str, patch: &Value) {
    rig.api.patch("clusters", "", name, patch);
}

fn annotate(rig: &Rig, annotation: &str, value: &str) {
    let annotation = format!("{PREFIX}/{annotation}");
    patch(
        rig,
        "a",
        &json!({"metadata": {"annotations": {annotation: value}}}),
    );
}

/// Ready, with these fields in its spec.
async fn ready_with(spec: &Value) -> Rig {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.until("a", settled).await;
    patch(&rig, "a", &json!({ "spec": spec }));
    rig.until("a", settled).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn a_paused_object_builds_nothing_before_it_goes_on() {
    let rig = Rig::start(&["n1"]);
    let mut paused = cluster("a", "n1");
    paused["spec"]["paused"] = json!(true);
    rig.create(&paused).await;
    let told = rig
        .until("a", |cluster| is(cluster, "Paused", "True"))
        .await;
    assert!(is(&told, "ConfigValid", "True"));
    minutes(60).await;
    assert_eq!(rig.nodes.claimed_by("n1"), None);
    assert_eq!(reason(&rig.cluster("a"), "Ready"), "NotProvisioned");
    patch(&rig, "a", &json!({"spec": {"paused": false}}));
    let ready = rig.ready("a").await;
    assert!(is(&ready, "Paused", "False"));
}

/// It is looked at, so that the object says what differs; nothing is healed, and no edit is carried out.
#[tokio::test(start_paused = true)]
async fn a_paused_cluster_is_looked_at_and_left_alone() {
    let rig = ready_with(&json!({"paused": true})).await;
    let runs = rig.nodes.counts().ups;
    the_scheduler_is(ContainerState::Exited(1), &rig);
    let told = rig
        .until("a", |cluster| is(cluster, "ControlPlaneHealthy", "False"))
        .await;
    assert!(is(&told, "UpToDate", "False"));
    assert!(
        is(&told, "Provisioned", "True"),
        "the spec is still applied"
    );
    the_scheduler_is(ContainerState::Running, &rig);
    let edit = json!({"services": {"kubelet": {"extra_args": {"v": "4"}}}});
    patch(&rig, "a", &json!({"spec": {"config": edit}}));
    minutes(60).await;
    assert_eq!(rig.nodes.counts().ups, runs);
    let text = message(&rig.cluster("a"), "UpToDate");
    assert!(text.contains("kubelet"), "{text}");
    assert!(is(&rig.cluster("a"), "Paused", "True"));
    patch(&rig, "a", &json!({"spec": {"paused": null}}));
    rig.until("a", settled).await;
    rig.ready("a").await;
    assert!(rig.nodes.counts().ups > runs);
}

/// A pause touches no node that is to be cleaned; the time for the deletion goes on.
#[tokio::test(start_paused = true)]
async fn a_paused_deletion_waits_and_ends() {
    for goes_on in [true, false] {
        let rig = ready_with(&json!({"paused": true})).await;
        rig.api.delete("clusters", "", "a");
        let deleted = Instant::now();
        let told = rig
            .until("a", |cluster| is(cluster, "Deleting", "True"))
            .await;
        assert_eq!(reason(&told, "Deleting"), "Paused");
        minutes(20).await;
        is_untouched(&rig.nodes);
        if goes_on {
            patch(&rig, "a", &json!({"spec": {"paused": false}}));
            rig.gone("a").await;
            assert_eq!(rig.nodes.containers("n1"), 0);
            assert!(rig.events("Orphaned").is_empty());
        } else {
            rig.gone("a").await;
            let took = deleted.elapsed().as_secs();
            assert!((1800..=1805).contains(&took), "{took} s");
            is_untouched(&rig.nodes);
            assert_eq!(record(&rig.api, "a")["nodes"][0]["name"], "n1");
        }
    }
}

/// A protected object that is deleted past every admission is held, for ever; its message has the ways on.
#[tokio::test(start_paused = true)]
async fn a_protected_deletion_is_held_until_a_person_decides() {
    for confirmed in [true, false] {
        let spec = json!({"deletionProtection": true, "deletion": {"timeout": "1m"}});
        let rig = ready_with(&spec).await;
        rig.api.delete("clusters", "", "a");
        let told = rig
            .until("a", |cluster| is(cluster, "Stalled", "True"))
            .await;
        assert_eq!(reason(&told, "Stalled"), "DeletionProtected");
        assert_eq!(reason(&told, "Deleting"), "Protected");
        let id = rig.nodes.claimed_by("n1").unwrap();
        for way in ["deletion.policy: Orphan", &id, "confirm-deletion: a"] {
            let text = message(&told, "Stalled");
            assert!(text.contains(way), "{way}: {text}");
        }
        // Another name confirms nothing.
        annotate(&rig, "confirm-deletion", "b");
        minutes(24 * 60).await;
        is_untouched(&rig.nodes);
        assert!(is(&rig.cluster("a"), "Deleting", "True"));
        if confirmed {
            annotate(&rig, "confirm-deletion", "a");
        } else {
            patch(
                &rig,
                "a",
                &json!({"spec": {"deletion": {"policy": "Orphan"}}}),
            );
        }
        rig.gone("a").await;
        assert_eq!(rig.nodes.containers("n1") == 0, confirmed);
        assert_eq!(rig.events("Orphaned").is_empty(), confirmed);
    }
}

/// The nodes stay as they are, whether they answer or not, and a new object takes over.
#[tokio::test(start_paused = true)]
async fn a_deletion_may_leave_the_nodes_as_they_are() {
    for answers in [true, false] {
        let rig = ready_with(&json!({"deletion": {"policy": "Orphan"}})).await;
        let runs = rig.nodes.counts().ups;
        let containers = rig.nodes.whole("n1").containers;
        if !answers {
            rig.nodes.kill("n1");
        }
        rig.api.delete("clusters", "", "a");
        let deleted = Instant::now();
        rig.gone("a").await;
        assert!(deleted.elapsed() < Duration::from_secs(5));
        is_untouched(&rig.nodes);
        let record = record(&rig.api, "a");
        assert_eq!(record["nodes"][0]["name"], "n1");
        let why = record["why"].as_str().unwrap();
        assert!(why.contains("deletion.policy"), "{why}");
        assert_eq!(rig.events("Orphaned").len(), 1);
        rig.nodes.revive("n1");
        let id = rig.nodes.claimed_by("n1").unwrap();
        rig.create(&cluster("a", "n1")).await;
        let told = rig
            .until("a", |cluster| is(cluster, "Stalled", "True"))
            .await;
        assert_eq!(reason(&told, "Stalled"), "StateConflict");
        // The namesake never had a cluster, and lets go of none.
        let record = rig.api.object("configmaps", NAMESPACE, "a-orphaned");
        patch(
            &rig,
            "a",
            &json!({"spec": {"deletion": {"policy": "Orphan"}}}),
        );
        rig.api.delete("clusters", "", "a");
        rig.gone("a").await;
        assert_eq!(
            rig.api.object("configmaps", NAMESPACE, "a-orphaned"),
            record
        );
        rig.create(&cluster("a", "n1")).await;
        rig.until("a", |cluster| is(cluster, "Stalled", "True"))
            .await;
        annotate(&rig, "take-over", &id);
        rig.ready("a").await;
        assert_eq!(rig.nodes.claimed_by("n1"), Some(id));
        assert_eq!(rig.nodes.counts().ups, runs + 1, "the copies of the state");
        let runs_there = rig.nodes.whole("n1").containers;
        assert!(runs_there == containers, "and nothing else");
    }
}

/// An object that never had a cluster leaves no record.
#[tokio::test(start_paused = true)]
async fn a_deletion_of_what_never_was_leaves_no_record() {
    let rig = Rig::start(&["n1"]);
    let mut object = cluster("a", "n1");
    object["spec"]["paused"] = json!(true);
    object["spec"]["deletion"] = json!({"policy": "Orphan"});
    rig.create(&object).await;
    rig.until("a", |cluster| is(cluster, "Paused", "True"))
        .await;
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert!(rig.api.objects("configmaps").is_empty());
    assert!(rig.events("Orphaned").is_empty());
}
