//! Nodes that come and go by an edit of a `Cluster`.

use serde_json::{Value, json};

use crate::{
    operator_rig::{Rig, cluster, message, reason},
    sim::remote::Turn,
};

/// The nodes of `config`, in its words.
fn nodes(named: &[(&str, &[&str])]) -> Value {
    let each = named.iter().map(|(name, roles)| {
        let number = name.trim_start_matches('n');
        json!({
            "address": format!("10.0.0.{number}"),
            "hostname_override": name,
            "user": "core",
            "role": roles,
        })
    });
    json!({"spec": {"config": {"nodes": each.collect::<Vec<_>>()}}})
}

const ALL: &[&str] = &["controlplane", "etcd", "worker"];
const WORKER: &[&str] = &["worker"];

/// Provisioned with the present spec, with that many nodes.
async fn has(rig: &Rig, count: usize) {
    let cluster = rig
        .until("a", |cluster| {
            let generation = &cluster["metadata"]["generation"];
            let status = &cluster["status"];
            status["nodeSummary"] == format!("{count}/{count}")
                && status["observedGeneration"] == *generation
                && reason(cluster, "Reconciling").is_empty()
        })
        .await;
    assert_eq!(cluster["status"]["nodes"]["total"], count, "{cluster:#}");
}

#[tokio::test(start_paused = true)]
async fn an_edit_adds_a_node_and_another_takes_it_away() {
    let rig = Rig::start(&["n1", "n2", "n3"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let grown = [("n1", ALL), ("n2", ALL), ("n3", ALL)];
    rig.api.patch("clusters", "", "a", &nodes(&grown));
    has(&rig, 3).await;
    for node in ["n2", "n3"] {
        assert!(rig.nodes.has(node, "etcd") && rig.nodes.has(node, "kube-apiserver"));
    }
    // The first one may go as any other.
    rig.api.patch("clusters", "", "a", &nodes(&grown[1..]));
    has(&rig, 2).await;
    assert_eq!(
        (rig.nodes.containers("n1"), rig.nodes.claimed_by("n1")),
        (0, None)
    );
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n2") + rig.nodes.containers("n3"), 0);
}

/// What takes too much is told, and nothing is done until it is edited again.
#[tokio::test(start_paused = true)]
async fn an_edit_that_takes_too_much_is_stalled() {
    let rig = Rig::start(&["n1", "n2", "n3"]);
    let mut three = cluster("a", "n1");
    let all = nodes(&[("n1", ALL), ("n2", WORKER), ("n3", WORKER)]);
    three["spec"]["config"]["nodes"] = all["spec"]["config"]["nodes"].clone();
    rig.create(&three).await;
    rig.ready("a").await;
    rig.nodes.script(|_, _, step| panic!("{step:?}"));
    rig.api.patch("clusters", "", "a", &nodes(&[("n1", ALL)]));
    let stalled = rig
        .until("a", |cluster| !reason(cluster, "Stalled").is_empty())
        .await;
    let said = message(&stalled, "Stalled");
    assert!(said.contains("more than a third of the 3 nodes"), "{said}");
    rig.nodes.script(|_, _, _| Turn::Go);
    let fewer = [("n1", ALL), ("n3", WORKER)];
    rig.api.patch("clusters", "", "a", &nodes(&fewer));
    has(&rig, 2).await;
    assert_eq!(rig.nodes.claimed_by("n2"), None);
}
