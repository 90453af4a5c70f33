//! What the operator notices over connections that are kept, and how fast: it looks at once, heals, and its conditions
//! are right meanwhile.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rke_operator::{
    etcd::{Alarm, AlarmKind, MemberId},
    facts::ContainerState,
    model::NodeName,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    operator_rig::{OPERATOR, Rig, SOON, cluster, is, message, reason, settled},
    sim::{
        api::{ApiFault, How, Verb},
        remote::{Purpose, SimRemote},
    },
};

/// Three control planes with etcd, and a worker.
fn ha() -> Value {
    let mut object = cluster("a", "n1");
    let nodes = (1..=4).map(|number| {
        let roles = if number == 4 {
            json!(["worker"])
        } else {
            json!(["controlplane", "etcd"])
        };
        json!({
            "address": format!("10.0.0.{number}"), "hostname_override": format!("n{number}"),
            "user": "core", "role": roles,
        })
    });
    object["spec"]["config"]["nodes"] = nodes.collect();
    object
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// That cluster, built, with its control planes connected; the last look was a while ago.
async fn watched() -> Rig {
    let rig = Rig::start(&["n1", "n2", "n3", "n4"]);
    rig.nodes.take_watches();
    rig.create(&ha()).await;
    rig.ready("a").await;
    // The next look connects; the one after that is rare.
    sleep(seconds(150)).await;
    rig
}

impl Rig {
    fn surveys(&self) -> usize {
        self.nodes.counts().surveys
    }

    /// The condition is so within that time, to a tenth of a second.
    async fn soon(&self, limit: Duration, kind: &str, status: &str) -> Value {
        within(limit, &format!("{kind}={status}"), || {
            is(&self.cluster("a"), kind, status)
        })
        .await;
        self.cluster("a")
    }
}

async fn within(limit: Duration, what: &str, holds: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() <= limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(50)).await;
    }
    begun.elapsed()
}

fn hangs(node: &str) -> ApiFault {
    ApiFault {
        server: Some(NodeName::from(node)),
        client: None,
        verb: Verb::Ready,
        how: How::Hangs,
    }
}

/// The first row of the table: seen within 2 s, cured within 10.
#[tokio::test(start_paused = true)]
async fn a_container_of_a_control_plane_that_is_stopped_removed_or_replaced_is_cured_at_once() {
    let rig = watched().await;
    for fault in ["stopped", "removed", "replaced"] {
        sleep(seconds(240)).await;
        let before = rig.surveys();
        rig.nodes.host("n2", |facts| {
            let name = "kube-scheduler".to_owned();
            match fault {
                "stopped" => {
                    facts.containers.get_mut(&name).unwrap().state = ContainerState::Exited(1);
                }
                "removed" => drop(facts.containers.remove(&name)),
                _ => {
                    let fact = facts.containers.get_mut(&name).unwrap();
                    fact.id = "another".to_owned();
                    fact.runs.as_mut().unwrap().command.clear();
                }
            }
        });
        within(seconds(2), fault, || rig.surveys() > before).await;
        let cured = || {
            rig.nodes.host("n2", |facts| {
                let fact = facts.containers.get("kube-scheduler");
                fact.is_some_and(|fact| {
                    fact.state == ContainerState::Running
                        && fact
                            .runs
                            .as_ref()
                            .is_some_and(|runs| !runs.command.is_empty())
                })
            })
        };
        within(seconds(10), fault, cured).await;
    }
}

/// The second row: within 15 s, whichever it is, and nobody is told that the cluster does not serve.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_is_told() {
    let rig = watched().await;
    rig.nodes.world(|world| world.faults.push(hangs("n2")));
    let told = rig.soon(seconds(15), "ControlPlaneHealthy", "False").await;
    assert_eq!(reason(&told, "ControlPlaneHealthy"), "ComponentDown");
    assert!(message(&told, "ControlPlaneHealthy").contains("n2"));
    assert!(is(&told, "Available", "True"));
    rig.nodes.world(|world| world.faults.clear());
    rig.soon(seconds(15), "ControlPlaneHealthy", "True").await;
    rig.soon(SOON, "Ready", "True").await;
}

/// The third row: within 45 s; nothing is done about it.
#[tokio::test(start_paused = true)]
async fn an_alarm_of_etcd_is_told() {
    let rig = watched().await;
    let ups = rig.nodes.counts().ups;
    let alarm = Alarm {
        member: MemberId(1),
        kind: AlarmKind::NoSpace,
    };
    rig.nodes.world(|world| world.alarms.insert(alarm));
    let told = rig.soon(seconds(45), "EtcdHealthy", "False").await;
    assert_eq!(reason(&told, "EtcdHealthy"), "AlarmRaised");
    rig.nodes.world(|world| world.alarms.clear());
    rig.soon(seconds(45), "EtcdHealthy", "True").await;
    assert_eq!(rig.nodes.counts().ups, ups);
}

/// The fourth row, for a control plane: its connection; and back.
#[tokio::test(start_paused = true)]
async fn a_control_plane_that_is_off_is_told_and_so_is_its_return() {
    let rig = watched().await;
    rig.nodes.kill("n3");
    let told = rig.soon(seconds(15), "NodesReachable", "False").await;
    assert!(message(&told, "NodesReachable").contains("n3"));
    assert!(is(&told, "Available", "True"));
    sleep(seconds(600)).await;
    rig.nodes.revive("n3");
    // The connection is tried once a minute.
    rig.soon(seconds(90), "Ready", "True").await;
}

/// The same for a worker, to which no connection is kept: by its Node.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_off_is_told_by_its_node() {
    let rig = watched().await;
    rig.nodes.kill("n4");
    let told = rig.soon(seconds(2), "NodesHealthy", "False").await;
    assert!(message(&told, "NodesHealthy").contains("n4"));
    rig.soon(SOON, "NodesReachable", "False").await;
}

/// One that was alone and off is looked at again as soon as it can be, whatever the wait after a failure is.
#[tokio::test(start_paused = true)]
async fn a_lone_node_that_returns_is_looked_at_at_once() {
    let rig = Rig::start(&["n1"]);
    rig.nodes.take_watches();
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    sleep(seconds(150)).await;
    rig.nodes.kill("n1");
    rig.soon(seconds(15), "Available", "Unknown").await;
    // By now the wait between two looks is ten minutes.
    sleep(seconds(3000)).await;
    rig.nodes.revive("n1");
    rig.soon(seconds(90), "Ready", "True").await;
}

/// The fifth row, on a control plane: there its containers are seen as well.
#[tokio::test(start_paused = true)]
async fn a_kubelet_of_a_control_plane_is_restarted_at_once() {
    let rig = watched().await;
    rig.nodes.end("n1", "kubelet");
    let runs = || rig.nodes.runs("n1", "kubelet");
    within(seconds(10), "kubelet", runs).await;
}

/// A container that comes and goes causes a look now and then, and not one each time.
#[tokio::test(start_paused = true)]
async fn a_container_that_flaps_causes_no_storm() {
    let rig = watched().await;
    let before = rig.surveys();
    for round in 0..300 {
        rig.nodes.host("n2", |facts| {
            let fact = facts.containers.get_mut("kube-scheduler").unwrap();
            fact.state = if round % 2 == 0 {
                ContainerState::Restarting(1)
            } else {
                ContainerState::Running
            };
        });
        sleep(seconds(2)).await;
    }
    let looks = rig.surveys() - before;
    // Each hint is a look, a run and what they see in the end.
    assert!((3..=45).contains(&looks), "{looks} in ten minutes");
}

/// The budget of hints bounds how often a cluster is looked at, and not what its conditions say.
#[tokio::test(start_paused = true)]
async fn what_happens_often_is_told_all_the_same() {
    let rig = watched().await;
    let runs = || rig.nodes.runs("n2", "kube-scheduler");
    for _ in 0..3 {
        rig.nodes.end("n2", "kube-scheduler");
        within(seconds(10), "kube-scheduler", runs).await;
        sleep(seconds(2)).await;
    }
    let surveys = rig.surveys();
    rig.nodes.kill("n3");
    let told = rig.soon(seconds(25), "NodesReachable", "False").await;
    assert!(message(&told, "NodesReachable").contains("n3"));
    assert_eq!(rig.surveys(), surveys, "that is for the next minute");
    within(seconds(60), "a look", || rig.surveys() > surveys).await;
}

/// While a run is in progress what it causes is no hint, and the conditions follow what is seen all the same.
#[tokio::test(start_paused = true)]
async fn conditions_are_right_during_a_run() {
    let rig = watched().await;
    let halt = rig.nodes.halt(Purpose::Up, 2);
    let edit = json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}});
    rig.api.patch("clusters", "", "a", &edit);
    halt.reached().await;
    assert!(is(&rig.cluster("a"), "ControlPlaneHealthy", "True"));
    let surveys = rig.surveys();
    // A step has three minutes.
    rig.nodes.end("n2", "kube-scheduler");
    let told = rig.soon(seconds(2), "ControlPlaneHealthy", "False").await;
    assert_eq!(reason(&told, "Reconciling"), "RollingOut");
    assert!(message(&told, "ControlPlaneHealthy").contains("kube-scheduler"));
    rig.nodes.kill("n3");
    rig.soon(seconds(15), "NodesReachable", "False").await;
    rig.nodes.revive("n3");
    rig.soon(seconds(30), "NodesReachable", "True").await;
    assert!(is(&rig.cluster("a"), "ControlPlaneHealthy", "False"));
    assert_eq!(rig.surveys(), surveys, "nothing looks while it runs");
    halt.lift();
    halt.go_on();
    let done = rig
        .until("a", |cluster| {
            settled(cluster) && is(cluster, "Ready", "True")
        })
        .await;
    assert_eq!(done["status"]["observedGeneration"], 2);
    let after = rig.surveys();
    sleep(seconds(120)).await;
    assert!(rig.surveys() <= after + 1, "what the run did is no hint");
}

/// A cluster that is connected is looked at every ten minutes, and costs the management cluster next to nothing; one
/// that is not is looked at each minute, as without a prober.
#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_one_request_a_minute_at_most() {
    let rig = watched().await;
    let asked: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let counted = Arc::clone(&asked);
    rig.api.fault_of(move |asked| {
        if asked.client == OPERATOR && asked.verb != "watch" {
            let what = format!("{} {}", asked.verb, asked.path);
            *counted.lock().unwrap().entry(what).or_default() += 1;
        }
        None
    });
    let surveys = rig.surveys();
    sleep(seconds(3600)).await;
    let looks = rig.surveys() - surveys;
    assert!((5..=6).contains(&looks), "{looks} looks in an hour");
    let asked = asked.lock().unwrap().clone();
    let all: usize = asked.values().sum();
    assert!(all <= 60, "{all} requests in an hour: {asked:#?}");
}

/// What a person has paused is watched, and left alone.
#[tokio::test(start_paused = true)]
async fn a_paused_cluster_is_watched() {
    let rig = watched().await;
    rig.api
        .patch("clusters", "", "a", &json!({"spec": {"paused": true}}));
    rig.until("a", |cluster| {
        is(cluster, "Paused", "True") && settled(cluster)
    })
    .await;
    sleep(seconds(120)).await;
    let ups = rig.nodes.counts().ups;
    rig.nodes.end("n2", "kube-scheduler");
    rig.soon(seconds(2), "ControlPlaneHealthy", "False").await;
    sleep(seconds(60)).await;
    assert_eq!(rig.nodes.counts().ups, ups);
}

/// Nothing is kept of a cluster that is being deleted, and nothing is tried.
#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_is_watched_no_more() {
    let rig = watched().await;
    let tried = rig.nodes.watches();
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    sleep(seconds(600)).await;
    assert_eq!(rig.nodes.watches(), tried);
}

/// The next leader looks at once and then watches; the one before ends its connections.
#[tokio::test(start_paused = true)]
async fn a_new_leader_looks_at_once() {
    let rig = watched().await;
    let (api, nodes) = rig.stop().await;
    let (surveys, tried) = (nodes.counts().surveys, nodes.watches());
    sleep(seconds(600)).await;
    assert_eq!(nodes.watches(), tried, "who leads no more connects no more");
    nodes.end("n2", "kube-scheduler");
    let rig = Rig::with(nodes, api, |_| {});
    within(seconds(5), "a look", || rig.surveys() > surveys).await;
    rig.until("a", |cluster| {
        settled(cluster) && is(cluster, "Ready", "True")
    })
    .await;
    sleep(seconds(150)).await;
    rig.nodes.end("n1", "kube-scheduler");
    let runs = || rig.nodes.runs("n1", "kube-scheduler");
    within(seconds(10), "kube-scheduler", runs).await;
}

/// With no connection to spare a Cluster is looked at as often as ever.
#[tokio::test(start_paused = true)]
async fn without_a_free_connection_a_cluster_is_looked_at_each_minute() {
    let api = crate::fake_api::FakeApi::new(crate::operator_rig::clock());
    let nodes = SimRemote::bare(&["n1", "n2", "n3", "n4"]);
    nodes.take_watches();
    let rig = Rig::with(nodes, api, |options| options.prober.connections = 2);
    rig.create(&ha()).await;
    rig.ready("a").await;
    sleep(seconds(150)).await;
    let surveys = rig.surveys();
    sleep(seconds(600)).await;
    let looks = rig.surveys() - surveys;
    assert!((8..=11).contains(&looks), "{looks} looks in ten minutes");
    assert!(is(&rig.cluster("a"), "NodesReachable", "True"));
}
