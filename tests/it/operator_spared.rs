//! What is no wish to remove a cluster: a definition that goes away, a namespace that is lost, a
//! deletion that nobody could attend to in time; and the one cluster that is never removed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{
    fake_api::FakeApi,
    operator_rig::{
        NAMESPACE, OPERATOR, Rig, clock, cluster, is, is_untouched, message, minutes, reason,
        record, settled,
    },
    sim::{
        fleet::Fleet,
        remote::{SimRemote, Surveys, Turn},
    },
};

const DEFINITION: &str = "clusters.clusterprovisioner.rke.io";

/// `kubectl delete crd` deletes every object, and asks for no cluster to be removed (O25).
#[tokio::test(start_paused = true)]
async fn a_definition_that_is_deleted_wipes_nothing() {
    for waits in [true, false] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        // As the API server does it: the definition waits for its objects, and they are deleted past
        // every admission.
        if waits {
            let cleanup = ["customresourcecleanup.apiextensions.k8s.io"];
            let held = json!({"metadata": {"finalizers": cleanup}});
            rig.api
                .patch("customresourcedefinitions", "", DEFINITION, &held);
        }
        rig.api.delete("customresourcedefinitions", "", DEFINITION);
        rig.api.delete("clusters", "", "a");
        rig.gone("a").await;
        is_untouched(&rig.nodes);
        let why = record(&rig.api, "a");
        assert_eq!(why["nodes"][0]["name"], "n1");
        assert!(why["why"].as_str().unwrap().contains("definition"), "{why}");
        let notes = rig.event("Orphaned").await;
        assert!(notes[0].contains("definition"), "{notes:?}");
    }
}

/// Where nobody can tell whether it goes away, nothing is begun.
#[tokio::test(start_paused = true)]
async fn a_removal_waits_until_the_definition_can_be_read() {
    for code in [403, 429, 500] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        rig.api.fault_of(move |asked| {
            let reads = asked.client == OPERATOR && asked.verb == "get";
            (reads && asked.path.contains("customresourcedefinitions")).then_some(code)
        });
        rig.api.delete("clusters", "", "a");
        minutes(5).await;
        is_untouched(&rig.nodes);
        assert!(is(&rig.cluster("a"), "Deleting", "True"), "{code}");
        rig.api.mend();
        rig.gone("a").await;
        assert_eq!(rig.nodes.containers("n1"), 0);
    }
}

/// The cluster that the operator runs on is removed by no object, whether its API answers or not.
#[tokio::test(start_paused = true)]
async fn the_cluster_that_the_operator_runs_on_is_not_removed() {
    for api_answers in [true, false] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        let system = rig.api.object("namespaces", "", "kube-system").unwrap();
        let uid = system["metadata"]["uid"].as_str().unwrap().to_owned();
        if api_answers {
            rig.nodes.world(|world| world.etcd().uid = Some(uid));
        } else {
            let ca = rig.state("a").unwrap()["clusterCa"]["cert"].clone();
            assert!(ca.is_string());
            let root = json!({
                "metadata": {"name": "kube-root-ca.crt", "namespace": NAMESPACE},
                "data": {"ca.crt": ca},
            });
            rig.api.plant("configmaps", &root);
        }
        rig.api.delete("clusters", "", "a");
        let told = rig
            .until("a", |cluster| is(cluster, "Stalled", "True"))
            .await;
        assert_eq!(reason(&told, "Stalled"), "SelfManaged");
        is_untouched(&rig.nodes);
        rig.gone("a").await;
        is_untouched(&rig.nodes);
        assert_eq!(record(&rig.api, "a")["nodes"][0]["name"], "n1");
    }
}

/// The namespace with the states is lost: nothing is removed, and no new keys are made, whether the
/// nodes answer or not.
#[tokio::test(start_paused = true)]
async fn a_lost_namespace_creates_no_keys() {
    for answers in [true, false] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        // No pass is under way.
        tokio::time::sleep(Duration::from_secs(20)).await;
        let ups = rig.nodes.counts().ups;
        if !answers {
            rig.nodes.kill("n1");
        }
        for secret in rig.api.objects("secrets") {
            if secret["metadata"]["namespace"] == NAMESPACE {
                let name = secret["metadata"]["name"].as_str().unwrap();
                rig.api.delete("secrets", NAMESPACE, name);
            }
        }
        let told = rig
            .until("a", |cluster| is(cluster, "Stalled", "True"))
            .await;
        assert_eq!(reason(&told, "Stalled"), "StateMissing", "{answers}");
        assert!(message(&told, "Stalled").contains("recover"));
        minutes(60).await;
        assert_eq!(rig.state("a"), None);
        assert_eq!(rig.nodes.counts().ups, ups);
        is_untouched(&rig.nodes);
    }
}

/// An operator that was away for longer than the time for a deletion removes what can be removed.
#[tokio::test(start_paused = true)]
async fn a_deletion_while_no_operator_runs_is_not_late() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let (api, nodes) = rig.stop().await;
    api.delete("clusters", "", "a");
    minutes(3 * 60).await;
    let rig = Rig::with(nodes, api, |_| {});
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1"), 0, "it was removed");
    assert!(rig.events("Orphaned").is_empty());
}

/// The same when it went away after its first attempt: it tries once more, and then the time is over.
#[tokio::test(start_paused = true)]
async fn a_new_process_tries_once_before_it_gives_up() {
    for answers in [true, false] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        rig.nodes.kill("n1");
        rig.api.delete("clusters", "", "a");
        minutes(5).await;
        let (api, nodes) = rig.stop().await;
        minutes(60).await;
        if answers {
            nodes.revive("n1");
        }
        let rig = Rig::with(nodes, api, |_| {});
        let begun = tokio::time::Instant::now();
        rig.gone("a").await;
        assert!(begun.elapsed() < Duration::from_secs(310));
        assert_eq!(rig.events("Orphaned").is_empty(), answers);
        assert_eq!(rig.nodes.containers("n1") == 0, answers);
    }
}

/// Whoever waits for one of few slots is not late for that.
#[tokio::test(start_paused = true)]
async fn a_place_in_the_line_is_no_attempt() {
    let nodes = SimRemote::bare(&["n1", "n2"]);
    let rig = Rig::with(nodes, FakeApi::new(clock()), |options| {
        options.limits.deletes = 1;
    });
    let mut first = cluster("a", "n1");
    first["spec"]["deletion"] = json!({"timeout": "40m"});
    let mut second = cluster("b", "n2");
    second["spec"]["deletion"] = json!({"timeout": "1m"});
    for (name, object) in [("a", &first), ("b", &second)] {
        rig.create(object).await;
        rig.ready(name).await;
    }
    rig.nodes.surveys(Surveys::Hang);
    rig.api.delete("clusters", "", "a");
    minutes(1).await;
    rig.nodes.surveys(Surveys::Answer);
    rig.api.delete("clusters", "", "b");
    rig.gone("b").await;
    assert_eq!(rig.nodes.containers("n2"), 0, "it was removed");
    assert!(rig.events("Orphaned").is_empty());
}

/// A pod whose clock is ahead ends no deletion early: the time is the API server's.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_ahead_ends_no_deletion() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.nodes.kill("n1");
    rig.api.tells_the_time();
    rig.api.delete("clusters", "", "a");
    minutes(1).await;
    let (api, nodes) = rig.stop().await;
    nodes.revive("n1");
    let rig = Rig::ahead(nodes, api, Duration::from_secs(24 * 3600));
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1"), 0, "it was removed");
    assert!(rig.events("Orphaned").is_empty());
}

/// An object that was written down while it was deleted, and created again, is a new deletion.
#[tokio::test(start_paused = true)]
async fn the_note_of_an_earlier_deletion_is_not_this_ones() {
    let rig = Rig::start(&["n1"]);
    let mut object = cluster("a", "n1");
    object["metadata"]["annotations"] =
        json!({"clusterprovisioner.rke.io/removal-began": "2029-01-01T00:00:00Z"});
    rig.create(&object).await;
    rig.ready("a").await;
    rig.nodes.kill("n1");
    rig.api.delete("clusters", "", "a");
    let deleted = tokio::time::Instant::now();
    rig.gone("a").await;
    assert!(deleted.elapsed() >= Duration::from_secs(30 * 60));
}

/// The deadline is kept whatever a pass ends in: a panic, and a status that may not be written (O35).
#[tokio::test(start_paused = true)]
async fn the_deadline_is_kept_after_a_panic_and_a_refusal() {
    for panics in [true, false] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.until("a", settled).await;
        if panics {
            rig.nodes.surveys(Surveys::Panic);
        } else {
            rig.nodes.kill("n1");
            rig.api
                .fault(|_, path| path.ends_with("/clusters/a/status").then_some(403));
        }
        rig.api.delete("clusters", "", "a");
        let deleted = tokio::time::Instant::now();
        rig.gone("a").await;
        let took = deleted.elapsed().as_secs();
        assert!(
            (30 * 60..=30 * 60 + 10).contains(&took),
            "{panics}: {took} s"
        );
        assert_eq!(rig.events("Orphaned").len(), 1);
    }
}

/// Copies of a cluster, each in another world and with another object.
fn copies_of(
    first: &Rig,
    count: usize,
    spec: impl Fn(usize) -> Value,
) -> BTreeMap<String, SimRemote> {
    let (object, state) = (first.cluster("a"), first.state("a").unwrap());
    let secret = first.api.object("secrets", NAMESPACE, "a-state").unwrap();
    let world = first.nodes.world(|world| world.clone());
    let mut worlds = BTreeMap::new();
    for at in 0..count {
        let (name, address) = (
            format!("c{at}"),
            format!("10.1.{}.{}", at / 250, at % 250 + 1),
        );
        let mut planted = json!({
            "metadata": {
                "name": name,
                "finalizers": object["metadata"]["finalizers"],
                "annotations": object["metadata"]["annotations"],
            },
            "spec": object["spec"],
        });
        planted["spec"]["config"]["nodes"][0]["address"] = json!(address);
        let more = spec(at).as_object().unwrap().clone();
        planted["spec"].as_object_mut().unwrap().extend(more);
        let planted = first.api.plant("clusters", &planted);
        let mut state = state.clone();
        // The copies on the node are older.
        state["serial"] = json!(state["serial"].as_u64().unwrap() + 1);
        state["operator"]["uid"] = planted["metadata"]["uid"].clone();
        let state = state.to_string().replace("10.0.0.1", &address);
        first.api.plant(
            "secrets",
            &json!({
                "metadata": {"name": format!("{name}-state"), "namespace": NAMESPACE},
                "type": secret["type"],
                "data": {"state.json": BASE64_STANDARD.encode(state)},
            }),
        );
        let nodes = SimRemote::new(world.clone());
        // All removals together take longer than one of them may.
        nodes.script(|_, index, _| match index {
            0 => Turn::Work(Duration::from_secs(20)),
            _ => Turn::Go,
        });
        worlds.insert(address, nodes);
    }
    worlds
}

/// What a script or a prune deletes at once: each object ends as its spec says, none is late because others come first, and
/// no other node is touched.
#[tokio::test(start_paused = true)]
async fn two_hundred_deletions_at_once_touch_what_is_meant() {
    const DELETED: usize = 200;
    let first = Rig::start(&["n1"]);
    first.create(&cluster("a", "n1")).await;
    first.ready("a").await;
    let worlds = copies_of(&first, DELETED + 10, |at| match at % 4 {
        0 | 1 => json!({"deletion": {"timeout": "1m"}}),
        2 => json!({"deletion": {"policy": "Orphan"}}),
        _ => json!({"deletionProtection": true, "deletion": {"timeout": "1m"}}),
    });
    let (api, _) = first.stop().await;
    for at in 0..DELETED {
        api.delete("clusters", "", &format!("c{at}"));
    }
    let rig = Rig::of_many(Fleet(Arc::new(worlds.clone())), api);
    minutes(45).await;
    let mut wrong = Vec::new();
    for at in 0..DELETED + 10 {
        let object = rig.api.object("clusters", "", &format!("c{at}"));
        let address = format!("10.1.{}.{}", at / 250, at % 250 + 1);
        let world = &worlds[&address];
        let clean = world.containers("n1") == 0 && world.claimed_by("n1").is_none();
        let want = match (at < DELETED, at % 4) {
            (true, 0 | 1) => (false, true),
            (true, 2) => (false, false),
            // Protected, or not deleted.
            (true | false, _) => (true, false),
        };
        if (object.is_some(), clean) != want {
            wrong.push((at, object.map(|object| object["status"].clone()), clean));
        }
    }
    assert!(
        wrong.is_empty(),
        "object, its status, is its node clean: {wrong:#?}"
    );
    let orphaned = rig.events("Orphaned").len();
    assert_eq!(orphaned, DELETED / 4, "no deletion was late");
}
