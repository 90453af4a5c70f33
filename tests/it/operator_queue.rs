//! Many Clusters at once: who waits for whom, and what that costs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::time::Instant;

use crate::{
    fake_api::FakeApi,
    operator_rig::{OPERATOR, Rig, clock, cluster, is, message, reason, settled},
    sim::remote::{Purpose, SimRemote},
};

/// How long a survey waits for a node that hangs.
const HANGS: Duration = Duration::from_secs(100);

fn seconds(seconds: u64) -> tokio::time::Sleep {
    tokio::time::sleep(Duration::from_secs(seconds))
}

fn with_nodes(
    names: &[String],
    options: impl FnOnce(&mut rke_operator::operator::OperatorOptions),
) -> Rig {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Rig::with(SimRemote::bare(&names), FakeApi::new(clock()), options)
}

fn named(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

/// How long a Cluster takes from its creation to its first success.
async fn provisioned(rig: &Rig, name: &str, node: &str) -> Duration {
    let begun = Instant::now();
    rig.create(&cluster(name, node)).await;
    rig.until(name, |object| is(object, "Provisioned", "True"))
        .await;
    begun.elapsed()
}

/// Twenty Clusters whose nodes hang, new ones and ones that were built, make no other wait longer than alone.
#[tokio::test(start_paused = true)]
async fn clusters_that_hang_slow_no_other() {
    let alone = {
        let rig = Rig::start(&["n1"]);
        provisioned(&rig, "a", "n1").await
    };
    for built in [false, true] {
        let nodes = named(24);
        let rig = with_nodes(&nodes, |_| {});
        let (hanging, others) = nodes.split_at(20);
        for node in hanging {
            if built {
                provisioned(&rig, &format!("c-{node}"), node).await;
            }
        }
        for node in hanging {
            rig.nodes.hang(node, HANGS);
            if !built {
                rig.create(&cluster(&format!("c-{node}"), node)).await;
            }
        }
        // From their second try on they are known; each try takes most of the time that is waited for.
        seconds(130).await;
        for node in others {
            let took = provisioned(&rig, &format!("c-{node}"), node).await;
            assert!(
                took <= alone + Duration::from_secs(1),
                "{built}: {took:?} instead of {alone:?}"
            );
            seconds(61).await;
        }
        // A deletion, an edit and a look of the others do not wait, either.
        let first = format!("c-{}", others[0]);
        let edit =
            json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}});
        let begun = Instant::now();
        rig.api.patch("clusters", "", &first, &edit);
        rig.until(&first, |object| {
            settled(object) && object["metadata"]["generation"] == 2
        })
        .await;
        assert!(begun.elapsed() <= alone + Duration::from_secs(5));
        let begun = Instant::now();
        rig.api.delete("clusters", "", &first);
        rig.gone(&first).await;
        assert!(begun.elapsed() <= Duration::from_secs(5));
    }
}

/// Those that hang for the first time hold the slots of all for fifteen seconds.
#[tokio::test(start_paused = true)]
async fn new_clusters_that_hang_hold_others_up_for_a_moment() {
    let nodes = named(21);
    let rig = with_nodes(&nodes, |_| {});
    let (last, hanging) = nodes.split_last().unwrap();
    for node in hanging {
        rig.nodes.hang(node, HANGS);
        rig.create(&cluster(&format!("c-{node}"), node)).await;
    }
    let took = provisioned(&rig, "a", last).await;
    assert!(took <= Duration::from_secs(20), "{took:?}");
}

/// A mistake in an object is told while all slots are used, and so is what needs no node.
#[tokio::test(start_paused = true)]
async fn what_needs_no_node_waits_for_no_slot() {
    let rig = with_nodes(&named(4), |options| options.limits.changes = 1);
    let halt = rig.nodes.halt(Purpose::Up, 0);
    rig.create(&cluster("a", "n0")).await;
    halt.reached().await;
    let mut wrong = cluster("b", "n1");
    wrong["spec"]["config"]["kubernetes_versoin"] = json!("v1.34.4");
    let mut paused = cluster("c", "n2");
    paused["spec"]["paused"] = json!(true);
    rig.create(&wrong).await;
    rig.create(&paused).await;
    rig.create(&cluster("d", "n3")).await;
    seconds(1).await;
    assert!(is(&rig.cluster("b"), "ConfigValid", "False"));
    assert!(is(&rig.cluster("c"), "Paused", "True"));
    assert_eq!(reason(&rig.cluster("d"), "Reconciling"), "Queued");
    // One that waits is edited: it is told what is wrong, and keeps no place.
    let typo = json!({"spec": {"config": {"kubernetes_versoin": "v1.34.4"}}});
    rig.api.patch("clusters", "", "d", &typo);
    seconds(5).await;
    assert!(is(&rig.cluster("d"), "ConfigValid", "False"));
    assert_ne!(reason(&rig.cluster("d"), "Reconciling"), "Queued");
    // And one that waits is deleted at once: it never had a node.
    rig.create(&cluster("e", "n3")).await;
    rig.until("e", |object| reason(object, "Reconciling") == "Queued")
        .await;
    rig.api.delete("clusters", "", "e");
    seconds(2).await;
    assert!(rig.api.object("clusters", "", "e").is_none());
}

/// A deletion in line says so, and its deadline ends it there.
#[tokio::test(start_paused = true)]
async fn a_deletion_in_line_ends_at_its_deadline() {
    let rig = with_nodes(&named(3), |options| options.limits.deletes = 1);
    for name in ["n0", "n1", "n2"] {
        let mut object = cluster(&format!("c-{name}"), name);
        object["spec"]["deletion"] = json!({"timeout": "10m"});
        rig.create(&object).await;
        rig.ready(&format!("c-{name}")).await;
    }
    // It was tried once.
    rig.nodes.kill("n1");
    rig.api.delete("clusters", "", "c-n1");
    let deleted = Instant::now();
    rig.until("c-n1", |object| {
        object["status"]["remaining"][0]["name"] == "n1"
    })
    .await;
    let halt = rig.nodes.halt(Purpose::Removal, 0);
    rig.api.patch(
        "clusters",
        "",
        "c-n0",
        &json!({"spec": {"deletion": {"timeout": "2h"}}}),
    );
    rig.api.delete("clusters", "", "c-n0");
    halt.reached().await;
    rig.api.delete("clusters", "", "c-n2");
    let told = rig
        .until("c-n2", |object| is(object, "Deleting", "True"))
        .await;
    let text = message(&told, "Deleting");
    assert!(text.contains("before it"), "{text}");
    rig.nodes
        .script(|_, _, _| crate::sim::remote::Turn::AwaitStop);
    rig.gone("c-n1").await;
    let took = deleted.elapsed().as_secs();
    assert!((600..=605).contains(&took), "{took}");
}

/// What a settled Cluster costs at the start and at each look: requests besides watches.
#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_few_requests() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    seconds(30).await;
    let (api, nodes) = rig.stop().await;
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    api.fault_of(move |asked| {
        let counts = asked.client == OPERATOR && asked.verb != "watch";
        count.fetch_add(usize::from(counts), Ordering::SeqCst);
        None
    });
    let surveys = nodes.counts().surveys;
    let rig = Rig::with(nodes, api, |_| {});
    seconds(50).await;
    let at_start = requests.swap(0, Ordering::SeqCst);
    assert_eq!(rig.nodes.counts().surveys - surveys, 1);
    seconds(600).await;
    let idle = requests.swap(0, Ordering::SeqCst);
    let looks = rig.nodes.counts().surveys - surveys - 1;
    assert!(at_start <= 60, "{at_start} requests at the start");
    assert!((8..=10).contains(&looks), "{looks} looks");
    assert!(idle <= 12 * looks + 30, "{idle} requests for {looks} looks");
}

/// A hundred edits, one a second: the first ten seconds are one run, and so are the next ones.
#[tokio::test(start_paused = true)]
async fn edits_in_a_row_are_few_runs() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    seconds(5).await;
    let before = rig.nodes.counts().surveys;
    for number in 0..60 {
        let arguments = json!({"v": "4", "node-labels": format!("number={number}")});
        let edit =
            json!({"spec": {"config": {"services": {"kubelet": {"extra_args": arguments}}}}});
        rig.api.patch("clusters", "", "a", &edit);
        seconds(1).await;
    }
    let object = rig.ready("a").await;
    assert_eq!(object["status"]["observedGeneration"], 61);
    let surveys = rig.nodes.counts().surveys - before;
    assert!((4..=24).contains(&surveys), "{surveys}");
    let words = rig.nodes.definition("n1", "kubelet").command;
    assert!(
        words.iter().any(|word| word == "--node-labels=number=59"),
        "{words:?}"
    );
}
