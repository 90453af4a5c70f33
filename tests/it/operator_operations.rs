//! `ClusterOperation`s: each is done once, one at a time, and what cannot be undone waits for a person.

use std::sync::{Arc, Mutex};

use rke_operator::{
    facts::ContainerState,
    model::{AgentProgram, Component},
    plan::HostAction,
};
use serde_json::{Value, json};

use crate::{
    fake_api::FakeApi,
    operator_rig::{Rig, clock, cluster, is, message, minutes, reason, settled, the_scheduler_is},
    sim::remote::{Purpose, SimRemote, Turn},
};

const PLURAL: &str = "clusteroperations";

fn operation(name: &str, kind: &str, more: &Value) -> Value {
    let mut spec = json!({"clusterRef": {"name": "a"}, "type": kind});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn rotation(name: &str, stage: &str) -> Value {
    operation(name, "RotateCA", &json!({"rotateCA": {"stage": stage}}))
}

fn reboot(name: &str) -> Value {
    operation(name, "Reboot", &json!({"reboot": {"nodes": ["n1"]}}))
}

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

const ALL: &[&str] = &["controlplane", "etcd", "worker"];
const WORKER: &[&str] = &["worker"];

/// The same cluster with these nodes after `n1`.
fn with_nodes(roles: &[&[&str]]) -> Value {
    let mut object = cluster("a", "n1");
    let nodes = object["spec"]["config"]["nodes"].as_array_mut().unwrap();
    for (number, role) in (2..).zip(roles) {
        let mut node = nodes[0].clone();
        node["address"] = format!("10.0.0.{number}").into();
        node["hostname_override"] = format!("n{number}").into();
        node["role"] = json!(role);
        nodes.push(node);
    }
    object
}

async fn built() -> Rig {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig
}

impl Rig {
    fn asks(&self, object: &Value) -> Value {
        self.api.plant(PLURAL, object)
    }

    /// Waits until an operation is in that phase for that reason.
    async fn operation_is(&self, name: &str, is_phase: &str, why: &str) -> Value {
        let holds = |object: Option<&Value>| {
            object.is_some_and(|it| phase(it) == is_phase && reason(it, "Complete") == why)
        };
        self.api.until(PLURAL, "", name, holds).await.unwrap()
    }

    async fn succeeds(&self, name: &str) -> Value {
        self.operation_is(name, "Succeeded", "Succeeded").await
    }

    fn approve(&self, name: &str, digest: &str) {
        let patch = json!({"spec": {"approve": digest}});
        self.api.patch(PLURAL, "", name, &patch);
    }

    fn authority(&self) -> String {
        self.nodes.file("n1", "/etc/kubernetes/ssl/kube-ca.pem")
    }

    /// How often the machine of `n1` was rebooted.
    fn reboots(&self) -> usize {
        self.nodes.world(|world| {
            let node = world.truth.up(&"n1".into()).unwrap();
            node.system.boot.clone().unwrap().matches('+').count()
        })
    }
}

/// Certificates, keys and authorities: the object says how it goes on, the Cluster is Ready again, and what cannot be undone
/// waits for approval of its plan.
#[tokio::test(start_paused = true)]
async fn authorities_are_rotated_in_two_stages_of_which_the_second_waits() {
    let rig = built().await;
    let former = rig.authority();
    rig.asks(&rotation("start", "Start"));
    let started = rig.succeeds("start").await;
    assert!(message(&started, "Complete").contains("stage Complete"));
    assert!(started["status"]["startedAt"].is_string());
    assert!(started["status"]["finishedAt"].is_string());
    assert!(is(&started, "Complete", "True"));
    assert_eq!(started["metadata"]["ownerReferences"][0]["name"], "a");
    rig.ready("a").await;
    let both = rig.authority();
    assert!(both.contains(former.trim()) && both != former);
    let history = rig.api.history("clusters");
    assert!(
        history
            .iter()
            .any(|it| reason(it, "Reconciling") == "Operating")
    );

    rig.asks(&rotation("complete", "Complete"));
    let waiting = rig
        .operation_is("complete", "Pending", "AwaitingApproval")
        .await;
    let plan = &waiting["status"]["plan"];
    let digest = plan["digest"].as_str().unwrap().to_owned();
    assert!(message(&waiting, "Complete").contains(&digest));
    assert!(plan["steps"].as_i64().unwrap() > 0);
    assert!(
        plan["text"].as_str().unwrap().contains("kube-ca.pem"),
        "{plan}"
    );
    // Meanwhile the cluster is looked after.
    the_scheduler_is(ContainerState::Exited(1), &rig);
    rig.event("Healed").await;
    rig.approve("complete", "another");
    minutes(60).await;
    assert_eq!(rig.authority(), both, "nothing was begun");
    let still = rig
        .operation_is("complete", "Pending", "AwaitingApproval")
        .await;
    assert_eq!(still["status"]["plan"]["digest"], *digest, "the same plan");
    assert!(message(&still, "Complete").contains("another plan"));
    rig.approve("complete", &digest);
    rig.succeeds("complete").await;
    rig.ready("a").await;
    assert!(!rig.authority().contains(former.trim()));
}

#[tokio::test(start_paused = true)]
async fn certificates_and_keys_are_rotated() {
    let rig = built().await;
    let api_server = "/etc/kubernetes/ssl/kube-apiserver.pem";
    let scheduler = "/etc/kubernetes/ssl/kube-scheduler.pem";
    let before = [api_server, scheduler].map(|path| rig.nodes.file("n1", path));
    // Certificates that were issued in this minute are not issued again.
    minutes(10).await;
    let only = json!({"rotateCertificates": {"services": ["kube-apiserver"]}});
    rig.asks(&operation("one", "RotateCertificates", &only));
    rig.succeeds("one").await;
    assert_ne!(rig.nodes.file("n1", api_server), before[0]);
    assert_eq!(rig.nodes.file("n1", scheduler), before[1]);
    let stage = json!({"rotateServiceAccountKey": {"stage": "Start"}});
    rig.asks(&operation("key", "RotateServiceAccountKey", &stage));
    rig.succeeds("key").await;
    // The config asks for no encryption.
    rig.asks(&operation("encryption", "RotateEncryptionKey", &json!({})));
    let refused = rig
        .operation_is("encryption", "Refused", "NotPossible")
        .await;
    assert!(is(&refused, "Stalled", "True"));
    assert!(
        message(&refused, "Complete").contains("secrets_encryption"),
        "{refused:#}"
    );
    rig.ready("a").await;
}

/// Whatever makes an object of that name again: nothing is done twice.
#[tokio::test(start_paused = true)]
async fn an_operation_that_comes_back_runs_nothing() {
    let rig = built().await;
    rig.asks(&reboot("once"));
    let first = rig.succeeds("once").await;
    assert_eq!(rig.reboots(), 1);
    // A GitOps tool applies it again; a backup restores it with what it had.
    for (nth, of_backup) in [false, true].into_iter().enumerate() {
        rig.api.delete(PLURAL, "", "once");
        let mut again = reboot("once");
        if of_backup {
            again["metadata"]["ownerReferences"] = first["metadata"]["ownerReferences"].clone();
        }
        rig.asks(&again);
        let refused = rig.operation_is("once", "Refused", "NameUsed").await;
        assert!(
            message(&refused, "Complete").contains("another name"),
            "{nth}"
        );
    }
    minutes(60).await;
    assert_eq!(rig.reboots(), 1);
    rig.asks(&reboot("twice"));
    rig.succeeds("twice").await;
    assert_eq!(rig.reboots(), 2, "another name is another operation");
}

/// What was approved for another object, or for another world, approves nothing.
#[tokio::test(start_paused = true)]
async fn an_approval_of_another_object_approves_nothing() {
    let rig = built().await;
    rig.asks(&rotation("start", "Start"));
    rig.succeeds("start").await;
    rig.asks(&rotation("complete", "Complete"));
    let waiting = rig
        .operation_is("complete", "Pending", "AwaitingApproval")
        .await;
    let digest = waiting["status"]["plan"]["digest"].clone();
    rig.api.delete(PLURAL, "", "complete");
    for name in ["complete", "other"] {
        let mut approved = rotation(name, "Complete");
        approved["spec"]["approve"] = digest.clone();
        rig.asks(&approved);
        rig.operation_is(name, "Pending", "AwaitingApproval").await;
        minutes(30).await;
        rig.operation_is(name, "Pending", "AwaitingApproval").await;
        rig.api.delete(PLURAL, "", name);
    }
}

/// The oldest first, and no two at once; a paused one lets the others pass.
#[tokio::test(start_paused = true)]
async fn operations_of_a_cluster_run_one_after_the_other() {
    let rig = built().await;
    let mut paused = reboot("paused");
    paused["spec"]["paused"] = json!(true);
    rig.asks(&paused);
    rig.operation_is("paused", "Pending", "Paused").await;
    let halt = rig.nodes.halt(Purpose::Up, 0);
    rig.asks(&reboot("first"));
    halt.reached().await;
    rig.asks(&reboot("second"));
    rig.operation_is("first", "Running", "Running").await;
    let seen = rig.operation_is("second", "Pending", "Queued").await;
    assert!(message(&seen, "Complete").contains("`first`"), "{seen:#}");
    halt.lift();
    halt.go_on();
    rig.succeeds("first").await;
    rig.succeeds("second").await;
    assert_eq!(rig.reboots(), 2);
    let unpaused = json!({"spec": {"paused": false}});
    rig.api.patch(PLURAL, "", "paused", &unpaused);
    rig.succeeds("paused").await;
    assert_eq!(rig.reboots(), 3);
}

/// Without a Cluster, with one that is paused, that is not built, or not understood: it waits and says for what.
#[tokio::test(start_paused = true)]
async fn an_operation_waits_for_its_cluster() {
    let rig = Rig::start(&["n1"]);
    rig.asks(&reboot("early"));
    let waiting = rig.operation_is("early", "Pending", "Queued").await;
    assert!(message(&waiting, "Complete").contains("no Cluster `a`"));
    let halt = rig.create_and_halt(3).await;
    let not_built = |object: Option<&Value>| {
        object.is_some_and(|it| message(it, "Complete").contains("not built"))
    };
    rig.api.until(PLURAL, "", "early", not_built).await;
    rig.api
        .patch("clusters", "", "a", &json!({"spec": {"paused": true}}));
    halt.lift();
    minutes(10).await;
    assert_eq!(rig.reboots(), 0);
    rig.api
        .patch("clusters", "", "a", &json!({"spec": {"paused": false}}));
    rig.ready("a").await;
    rig.succeeds("early").await;
    assert_eq!(rig.reboots(), 1);

    rig.api
        .patch("clusters", "", "a", &json!({"spec": {"paused": true}}));
    rig.asks(&reboot("later"));
    rig.operation_is("later", "Pending", "Paused").await;
    let wrong = json!({"spec": {"paused": false, "config": {"network": {"plugin": "weave"}}}});
    rig.api.patch("clusters", "", "a", &wrong);
    let not_understood = |object: Option<&Value>| {
        object.is_some_and(|it| message(it, "Complete").contains("not understood"))
    };
    rig.api.until(PLURAL, "", "later", not_understood).await;
    assert_eq!(rig.reboots(), 1);
}

/// One that its person deletes or pauses stops at its next step, and the Cluster is looked after again.
#[tokio::test(start_paused = true)]
async fn an_operation_that_is_withdrawn_stops() {
    for pauses in [false, true] {
        let rig = built().await;
        let halt = rig.nodes.halt(Purpose::Up, 0);
        rig.asks(&reboot("one"));
        halt.reached().await;
        if pauses {
            let paused = json!({"spec": {"paused": true}});
            rig.api.patch(PLURAL, "", "one", &paused);
        } else {
            rig.api.delete(PLURAL, "", "one");
        }
        // The watch tells the run, which waits for nothing then.
        minutes(1).await;
        halt.lift();
        halt.go_on();
        rig.until("a", settled).await;
        minutes(30).await;
        assert_eq!(rig.reboots(), 0);
        if pauses {
            let unpaused = json!({"spec": {"paused": false}});
            rig.api.patch(PLURAL, "", "one", &unpaused);
            rig.succeeds("one").await;
            assert_eq!(rig.reboots(), 1, "it goes on");
        }
    }
}

/// Ended at any step, the next process goes on with it, and does nothing twice.
#[tokio::test(start_paused = true)]
async fn an_operation_goes_on_after_the_operator_was_killed() {
    for step in 0..6 {
        let rig = built().await;
        let halt = rig.nodes.halt(Purpose::Up, step);
        rig.asks(&reboot("one"));
        let ended = tokio::select! {
            () = halt.reached() => false,
            _ = rig.succeeds("one") => true,
        };
        let (api, nodes): (FakeApi, SimRemote) = if ended {
            assert!(step > 2, "a reboot has more steps");
            rig.stop().await
        } else {
            halt.lift();
            rig.stop().await
        };
        let rig = Rig::with(nodes, api, |_| {});
        rig.succeeds("one").await;
        minutes(60).await;
        assert_eq!(rig.reboots(), 1, "ended at step {step}");
    }
}

/// What does not come to an end has failed when its time is over; the time is counted from its begin on.
#[tokio::test(start_paused = true)]
async fn an_operation_has_a_deadline() {
    let rig = built().await;
    rig.nodes.script(|_, _, step| {
        if rke_operator::plan::title(step).contains("reboot") {
            crate::sim::remote::Turn::Fail(crate::sim::remote::SimFailure::new(
                rke_operator::error::ErrorClass::Host,
                "it does not want to",
            ))
        } else {
            crate::sim::remote::Turn::Go
        }
    });
    let mut short = reboot("one");
    short["spec"]["activeDeadlineSeconds"] = json!(600);
    rig.asks(&short);
    rig.operation_is("one", "Running", "Retrying").await;
    let failed = rig.operation_is("one", "Failed", "DeadlineExceeded").await;
    let text = message(&failed, "Complete");
    assert!(
        text.contains("600 s") && text.contains("does not want to"),
        "{text}"
    );
    let at = |field: &str| -> jiff::Timestamp {
        failed["status"][field].as_str().unwrap().parse().unwrap()
    };
    let took = at("finishedAt").duration_since(at("startedAt")).as_secs();
    assert!((600..700).contains(&took), "{took}");
    rig.event("OperationFailed").await;
    rig.ready("a").await;
}

/// An object that is to be kept only so long is deleted then.
#[tokio::test(start_paused = true)]
async fn a_finished_operation_is_kept_as_long_as_it_says() {
    let rig = built().await;
    let mut brief = reboot("brief");
    brief["spec"]["ttlSecondsAfterFinished"] = json!(1800);
    rig.asks(&brief);
    rig.asks(&reboot("kept"));
    rig.succeeds("brief").await;
    rig.succeeds("kept").await;
    minutes(20).await;
    assert!(rig.api.object(PLURAL, "", "brief").is_some());
    minutes(30).await;
    assert!(rig.api.object(PLURAL, "", "brief").is_none());
    assert!(rig.api.object(PLURAL, "", "kept").is_some());
}

/// A cluster that looks settled is left in peace by operations that have ended.
#[tokio::test(start_paused = true)]
async fn operations_that_ended_cost_nothing() {
    let rig = built().await;
    rig.asks(&reboot("one"));
    rig.succeeds("one").await;
    rig.ready("a").await;
    minutes(30).await;
    let before = rig.api.writes().len();
    minutes(120).await;
    let writes = rig.api.writes();
    let of_operations = |write: &&String| write.contains(PLURAL);
    assert_eq!(writes[before..].iter().filter(of_operations).count(), 0);
}

fn restore(name: &str, snapshot: &str) -> Value {
    operation(name, "Restore", &json!({"restore": {"snapshot": snapshot}}))
}

impl Rig {
    /// How many restores the state tells of.
    fn restores(&self) -> u64 {
        let state = self.state("a").unwrap();
        state["etcdEpoch"]["number"].as_u64().unwrap_or_default()
    }

    /// A snapshot, and a cordon since.
    fn takes_a_snapshot(&self) {
        self.nodes.world(|world| {
            world.snapshot("s1");
            let node = world.etcd().nodes.get_mut(&"n1".into());
            node.unwrap().unschedulable = true;
        });
    }

    fn is_cordoned(&self) -> bool {
        let cordoned =
            |world: &mut crate::sim::World| world.etcd().nodes[&"n1".into()].unschedulable;
        self.nodes.world(cordoned)
    }
}

/// On each node with etcd; the message says where.
#[tokio::test(start_paused = true)]
async fn a_snapshot_is_taken_on_request() {
    let rig = built().await;
    let named = json!({"snapshot": {"name": "s1"}});
    rig.asks(&operation("named", "Snapshot", &named));
    let done = rig.succeeds("named").await;
    let text = message(&done, "Complete");
    assert_eq!(text, "n1: `/opt/rke/etcd-snapshots/s1`");
    rig.asks(&operation("unnamed", "Snapshot", &json!({})));
    let done = rig.succeeds("unnamed").await;
    assert!(message(&done, "Complete").contains("rke_etcd_snapshot_2030-01-01T"));
    minutes(1).await;
    rig.nodes.kill("n1");
    rig.asks(&operation("down", "Snapshot", &json!({})));
    let tried = rig.operation_is("down", "Running", "Retrying").await;
    assert!(message(&tried, "Complete").starts_with("n1: "), "{tried:#}");
    rig.nodes.revive("n1");
    rig.succeeds("down").await;
    let taken = rig.nodes.world(|world| world.snapshots.len());
    assert_eq!(taken, 3);
}

fn agent() -> AgentProgram {
    AgentProgram {
        file: "/nowhere/rke-operator".into(),
        sha256: "0123456789abcdef".repeat(4),
        architecture: "x86_64".to_owned(),
    }
}

/// Its result is what the nodes find: a snapshot that cannot be restored for trial, or that none has, is a failure at once.
#[tokio::test(start_paused = true)]
async fn a_snapshot_is_restored_for_trial() {
    let rig = Rig::with(SimRemote::bare(&["n1"]), FakeApi::new(clock()), |options| {
        options.agent = Some(agent());
    });
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let verify = |name: &str, snapshot: &str| {
        operation(name, "Verify", &json!({"verify": {"snapshot": snapshot}}))
    };
    for name in ["good", "bad"] {
        rig.nodes.world(|world| world.snapshot(name));
    }
    rig.asks(&verify("good", "good"));
    let done = rig.succeeds("good").await;
    let text = message(&done, "Complete");
    assert_eq!(text, "n1: `good` is proven (10 keys, revision 1000)");
    for (snapshot, found) in [
        ("bad", "n1: `bad` cannot be restored"),
        ("none", "n1: it is not there"),
    ] {
        rig.asks(&verify(snapshot, snapshot));
        let failed = rig.operation_is(snapshot, "Failed", "NotProven").await;
        assert!(message(&failed, "Complete").contains(found), "{failed:#}");
    }
    rig.nodes.kill("n1");
    rig.asks(&verify("down", "good"));
    rig.operation_is("down", "Running", "Retrying").await;
    rig.nodes.revive("n1");
    rig.succeeds("down").await;
}

/// A node that is away may have it: that is not known before it answers.
#[tokio::test(start_paused = true)]
async fn a_snapshot_that_a_node_that_is_away_may_have_is_sought_again() {
    let remote = SimRemote::bare(&["n1", "n2", "n3"]);
    let rig = Rig::with(remote, FakeApi::new(clock()), |options| {
        options.agent = Some(agent());
    });
    rig.create(&with_nodes(&[ALL, ALL])).await;
    rig.ready("a").await;
    rig.nodes.kill("n2");
    rig.asks(&operation(
        "none",
        "Verify",
        &json!({"verify": {"snapshot": "none"}}),
    ));
    let tried = rig.operation_is("none", "Running", "Retrying").await;
    let text = message(&tried, "Complete");
    assert!(
        text.contains("no node that answers has the snapshot"),
        "{text}"
    );
    rig.nodes.revive("n2");
    rig.operation_is("none", "Failed", "NotProven").await;
}

#[tokio::test(start_paused = true)]
async fn the_members_of_etcd_are_defragmented() {
    let rig = built().await;
    rig.nodes.kill("n1");
    rig.asks(&operation("defragment", "Defragment", &json!({})));
    rig.operation_is("defragment", "Running", "Retrying").await;
    rig.nodes.revive("n1");
    let done = rig.succeeds("defragment").await;
    let text = message(&done, "Complete");
    assert_eq!(text, "n1: 4 KiB before, 2 KiB after");
}

/// A restore waits for approval of its plan, the Cluster says so while it runs, and the snapshot's data are there in the end.
#[tokio::test(start_paused = true)]
async fn a_snapshot_is_restored_once_it_is_approved() {
    let rig = built().await;
    rig.takes_a_snapshot();
    rig.asks(&restore("none", "s2"));
    let refused = rig.operation_is("none", "Refused", "NotPossible").await;
    assert!(
        message(&refused, "Complete").contains("`s2` is not there"),
        "{refused:#}"
    );
    rig.asks(&restore("back", "s1"));
    let waiting = rig
        .operation_is("back", "Pending", "AwaitingApproval")
        .await;
    minutes(30).await;
    assert!(rig.is_cordoned(), "nothing was begun");
    let digest = waiting["status"]["plan"]["digest"].as_str().unwrap();
    rig.approve("back", digest);
    rig.succeeds("back").await;
    rig.ready("a").await;
    assert!(!rig.is_cordoned());
    assert_eq!(rig.restores(), 1);
    let history = rig.api.history("clusters");
    assert!(
        history
            .iter()
            .any(|it| reason(it, "Available") == "Restoring")
    );
    // The same once more is another restore, of another object.
    rig.api.delete(PLURAL, "", "back");
    let mut again = restore("back", "s1");
    again["spec"]["approve"] = json!(digest);
    rig.asks(&again);
    rig.operation_is("back", "Refused", "NameUsed").await;
    minutes(30).await;
    assert_eq!(rig.restores(), 1);
}

/// Ended at any step, the next process goes on with the same restore.
#[tokio::test(start_paused = true)]
async fn a_restore_goes_on_after_the_operator_was_killed() {
    for step in [0, 2, 6, 12, 20] {
        let rig = built().await;
        rig.takes_a_snapshot();
        rig.asks(&restore("back", "s1"));
        let waiting = rig
            .operation_is("back", "Pending", "AwaitingApproval")
            .await;
        let halt = rig.nodes.halt(Purpose::Up, step);
        rig.approve(
            "back",
            waiting["status"]["plan"]["digest"].as_str().unwrap(),
        );
        tokio::select! {
            () = halt.reached() => {}
            _ = rig.succeeds("back") => {}
        }
        halt.lift();
        let (api, nodes) = rig.stop().await;
        let rig = Rig::with(nodes, api, |_| {});
        rig.succeeds("back").await;
        rig.ready("a").await;
        minutes(60).await;
        assert_eq!(rig.restores(), 1, "ended at step {step}");
        assert!(!rig.is_cordoned(), "ended at step {step}");
    }
}

fn reset(name: &str, node: &str) -> Value {
    operation(name, "Reset", &json!({"reset": {"node": node}}))
}

/// A control plane and a worker.
async fn with_a_worker() -> Rig {
    let rig = Rig::start(&["n1", "n2"]);
    rig.create(&with_nodes(&[WORKER])).await;
    rig.ready("a").await;
    rig
}

impl Rig {
    /// Counts how often a node is cleaned from now on.
    fn cleanings(&self) -> Arc<Mutex<Vec<String>>> {
        let cleaned = Arc::new(Mutex::new(Vec::new()));
        let counted = Arc::clone(&cleaned);
        self.nodes.script(move |_, _, step| {
            if let Some((node, HostAction::CleanHost { .. })) = step.action.on_host() {
                counted.lock().unwrap().push(node.to_string());
            }
            Turn::Go
        });
        cleaned
    }

    fn is_a_node(&self, node: &str) -> bool {
        self.nodes.world(|world| {
            let runs = world.truth.up(&node.into()).unwrap();
            runs.container(Component::Kubelet).is_some()
                && world.etcd().nodes.contains_key(&node.into())
        })
    }
}

/// The node leaves, is cleaned and joins again, once its plan is approved; the Cluster is Ready again.
#[tokio::test(start_paused = true)]
async fn a_node_is_reset_once_it_is_approved() {
    let rig = with_a_worker().await;
    let cleaned = rig.cleanings();
    for (name, node, why) in [
        ("other", "n3", "the config has no node `n3`; its nodes are"),
        ("last", "n1", "no other node has the role"),
    ] {
        rig.asks(&reset(name, node));
        let refused = rig.operation_is(name, "Refused", "NotPossible").await;
        assert!(message(&refused, "Complete").contains(why), "{refused:#}");
    }
    rig.asks(&reset("one", "n2"));
    let waiting = rig.operation_is("one", "Pending", "AwaitingApproval").await;
    minutes(60).await;
    assert!(cleaned.lock().unwrap().is_empty());
    rig.approve("one", waiting["status"]["plan"]["digest"].as_str().unwrap());
    rig.succeeds("one").await;
    rig.ready("a").await;
    assert!(rig.is_a_node("n2"));
    minutes(60).await;
    assert_eq!(*cleaned.lock().unwrap(), ["n2"]);
}

/// The other member of etcd would be without a majority.
#[tokio::test(start_paused = true)]
async fn one_of_two_members_of_etcd_is_not_reset() {
    let rig = Rig::start(&["n1", "n2"]);
    rig.create(&with_nodes(&[ALL])).await;
    rig.ready("a").await;
    let cleaned = rig.cleanings();
    rig.asks(&reset("one", "n2"));
    let refused = rig.operation_is("one", "Refused", "NotPossible").await;
    let text = message(&refused, "Complete");
    assert!(text.contains("1 of 2 members of etcd"), "{text}");
    minutes(60).await;
    assert!(cleaned.lock().unwrap().is_empty());
    rig.ready("a").await;
}

/// What the config says and was not done yet comes first: the approval is of the node alone.
#[tokio::test(start_paused = true)]
async fn a_node_is_not_reset_while_the_cluster_differs_from_its_config() {
    let rig = with_a_worker().await;
    let cleaned = rig.cleanings();
    let services = json!({"kube-api": {"extra_args": {"v": "4"}}});
    let edit = json!({"spec": {"changes": "Approve", "config": {"services": services}}});
    rig.api.patch("clusters", "", "a", &edit);
    rig.until("a", |cluster| {
        reason(cluster, "UpToDate") == "AwaitingApproval"
    })
    .await;
    rig.asks(&reset("one", "n2"));
    let waits = rig.operation_is("one", "Pending", "Retrying").await;
    assert!(
        message(&waits, "Complete").contains("comes first"),
        "{waits:#}"
    );
    let back = json!({"spec": {"changes": "Automatic"}});
    rig.api.patch("clusters", "", "a", &back);
    let waiting = rig.operation_is("one", "Pending", "AwaitingApproval").await;
    rig.approve("one", waiting["status"]["plan"]["digest"].as_str().unwrap());
    rig.succeeds("one").await;
    assert_eq!(*cleaned.lock().unwrap(), ["n2"]);
}

/// Ended at any step, the next process goes on: the node has left once, and is a node again.
#[tokio::test(start_paused = true)]
async fn a_reset_goes_on_after_the_operator_was_killed() {
    for step in [0, 1, 2, 4, 6, 8, 10, 14, 18, 24] {
        let rig = with_a_worker().await;
        rig.asks(&reset("one", "n2"));
        let waiting = rig.operation_is("one", "Pending", "AwaitingApproval").await;
        let halt = rig.nodes.halt(Purpose::Up, step);
        rig.approve("one", waiting["status"]["plan"]["digest"].as_str().unwrap());
        tokio::select! {
            () = halt.reached() => {}
            _ = rig.succeeds("one") => {}
        }
        halt.lift();
        let (api, nodes) = rig.stop().await;
        let rig = Rig::with(nodes, api, |_| {});
        let cleaned = rig.cleanings();
        rig.succeeds("one").await;
        rig.ready("a").await;
        assert!(rig.is_a_node("n2"), "ended at step {step}");
        minutes(60).await;
        assert!(cleaned.lock().unwrap().len() < 2, "ended at step {step}");
    }
}

/// Nodes that the cluster does not have are not begun with.
#[tokio::test(start_paused = true)]
async fn only_nodes_of_the_cluster_are_drained() {
    let rig = with_a_worker().await;
    let drain = json!({"drain": {"nodes": ["n2", "n3"]}});
    rig.asks(&operation("one", "Drain", &drain));
    let refused = rig.operation_is("one", "Refused", "NotPossible").await;
    assert_eq!(
        message(&refused, "Complete"),
        "the cluster has no node `n3`; its nodes are `n1`, `n2`"
    );
}
