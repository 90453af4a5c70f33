//! Nodes that come and go by an edit of a `Cluster`.

use rke_operator::{facts::HostView, model::NodeName};
use serde_json::{Value, json};

use crate::{
    operator_rig::{Rig, cluster, message, minutes, reason},
    sim::{bare_host, remote::Turn},
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
const THREE: [(&str, &[&str]); 3] = [("n1", ALL), ("n2", ALL), ("n3", ALL)];

/// A Cluster of three nodes with every role.
fn three() -> Value {
    let mut three = cluster("a", "n1");
    three["spec"]["config"]["nodes"] = nodes(&THREE)["spec"]["config"]["nodes"].clone();
    three
}

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
    rig.api.patch("clusters", "", "a", &nodes(&THREE));
    has(&rig, 3).await;
    for node in ["n2", "n3"] {
        assert!(rig.nodes.has(node, "etcd") && rig.nodes.has(node, "kube-apiserver"));
    }
    // The first one may go as any other.
    rig.api.patch("clusters", "", "a", &nodes(&THREE[1..]));
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

const LOSE: &str = "clusterprovisioner.rke.io/lose";

fn lose(names: &str) -> Value {
    json!({"metadata": {"annotations": {LOSE: names}}})
}

/// The consent to a loss waits with the change that it is for; meanwhile the cluster is kept without the node.
#[tokio::test(start_paused = true)]
async fn a_loss_waits_with_the_change_that_needs_it() {
    let rig = Rig::start(&["n1", "n2", "n3"]);
    let mut three = three();
    three["spec"]["changes"] = json!("Approve");
    rig.create(&three).await;
    rig.ready("a").await;
    rig.nodes.kill("n3");
    let mut edit = nodes(&THREE[..2]);
    edit["metadata"] = lose("n3")["metadata"].clone();
    rig.api.patch("clusters", "", "a", &edit);
    rig.until("a", |cluster| {
        reason(cluster, "UpToDate") == "AwaitingApproval"
    })
    .await;
    rig.nodes.take("n1", "kube-proxy");
    minutes(60).await;
    assert!(rig.nodes.has("n1", "kube-proxy"), "it is healed");
    let waiting = rig.cluster("a");
    assert_eq!(waiting["metadata"]["annotations"][LOSE], "n3");
    assert_eq!(waiting["status"]["nodes"]["total"], 3);
    let digest = &waiting["status"]["pendingPlan"]["digest"];
    let approve = json!({"clusterprovisioner.rke.io/approve": digest});
    let approve = json!({"metadata": {"annotations": approve}});
    rig.api.patch("clusters", "", "a", &approve);
    has(&rig, 2).await;
    rig.until("a", |cluster| {
        cluster["metadata"]["annotations"][LOSE].is_null()
    })
    .await;
}

/// Rule 14: what is lost goes when a person names it, and the name is used once.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_lost_goes_when_the_annotation_names_it() {
    let rig = Rig::start(&["n1", "n2", "n3"]);
    rig.create(&three()).await;
    rig.ready("a").await;
    rig.nodes.kill("n3");
    rig.nodes.script(|_, _, step| panic!("{step:?}"));
    rig.api.patch("clusters", "", "a", &nodes(&THREE[..2]));
    let stalled = |words: &'static str| {
        let rig = &rig;
        async move {
            let said = |cluster: &Value| message(cluster, "Stalled").contains(words);
            rig.until("a", |cluster| {
                !reason(cluster, "Stalled").is_empty() && said(cluster)
            })
            .await
        }
    };
    let cluster = stalled("`n3` is no longer in the config and does not answer").await;
    let said = message(&cluster, "Stalled");
    assert!(said.contains(&format!("{LOSE}: n3")), "{said}");
    // Another name is no consent, and stays until a person takes it away.
    rig.api.patch("clusters", "", "a", &lose("n2"));
    stalled("`n2` is not lost").await;
    rig.nodes.script(|_, _, _| Turn::Go);
    rig.api.patch("clusters", "", "a", &lose("n3"));
    has(&rig, 2).await;
    let cluster = rig
        .until("a", |cluster| {
            cluster["metadata"]["annotations"][LOSE].is_null()
        })
        .await;
    assert!(reason(&cluster, "Stalled").is_empty(), "{cluster:#}");
    rig.nodes.world(|world| {
        let there = &world.truth.cluster.as_ref().unwrap().nodes;
        assert!(!there.contains_key(&"n3".into()));
        let mut members = world.members.values();
        assert!(!members.any(|members| members.contains(&"n3".into())));
    });
    // A deletion does not wait for it.
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1") + rig.nodes.containers("n2"), 0);
}

/// A machine that was installed anew joins under its name when that was named.
#[tokio::test(start_paused = true)]
async fn a_machine_that_was_installed_anew_joins_when_the_annotation_names_it() {
    let rig = Rig::start(&["n1", "n2", "n3"]);
    let mut three = cluster("a", "n1");
    let named = [("n1", ALL), ("n2", ALL), ("n3", ALL)];
    three["spec"]["config"]["nodes"] = nodes(&named)["spec"]["config"]["nodes"].clone();
    rig.create(&three).await;
    rig.ready("a").await;
    rig.nodes.world(|world| {
        let name = NodeName::from("n3");
        let mut facts = bare_host(&name);
        "another".clone_into(&mut facts.system.machine_id);
        world
            .truth
            .hosts
            .insert(name.clone(), HostView::Reachable(Box::new(facts)));
        world.answering.remove(&name);
    });
    let said = |cluster: &Value| message(cluster, "Stalled");
    let stalled = rig
        .until("a", |cluster| {
            said(cluster).contains("another machine answers as node `n3`")
        })
        .await;
    assert!(
        said(&stalled).contains(&format!("{LOSE}: n3")),
        "{stalled:#}"
    );
    rig.api.patch("clusters", "", "a", &lose("n3"));
    rig.until("a", |cluster| {
        cluster["metadata"]["annotations"][LOSE].is_null()
            && cluster["status"]["nodeSummary"] == "3/3"
            && reason(cluster, "Stalled").is_empty()
    })
    .await;
    assert!(rig.nodes.has("n3", "etcd") && rig.nodes.has("n3", "kube-apiserver"));
}
