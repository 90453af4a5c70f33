//! What the operator can see, and what it says where it cannot: objects of any depth, an API that
//! refuses, fails or hangs, more clusters than it may look at; and how often it looks.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use rke_operator::api::conditions::ConditionType;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    fake_api::{FakeApi, HANGS},
    operator_rig::{
        CREDENTIALS, NAMESPACE, OPERATOR, Rig, clock, cluster, is, message, reason, settled,
    },
    sim::remote::{SimRemote, Surveys},
};

fn seconds(seconds: u64) -> tokio::time::Sleep {
    tokio::time::sleep(Duration::from_secs(seconds))
}

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
}

fn with_config(name: &str, node: &str, config: &Value) -> Value {
    let mut object = cluster(name, node);
    object["spec"]["config"]["x"] = config.clone();
    object
}

/// One object that is too deep for a parser is that object's affair: where it is listed, where it is
/// watched, and where its metadata are (O20).
#[tokio::test(start_paused = true)]
async fn a_deep_object_stops_nobody() {
    for levels in [96, 130, 300] {
        let api = FakeApi::new(clock());
        let mut first = with_config("aaa", "n1", &deep(levels));
        first["metadata"]["annotations"] = json!({"a": "b"});
        api.plant("clusters", &first);
        api.plant("clusters", &cluster("b", "n2"));
        let nodes = SimRemote::bare(&["n1", "n2", "n3"]);
        let rig = Rig::with(nodes, api, |_| {});
        rig.ready("b").await;
        // And while a watch is open.
        rig.api
            .plant("clusters", &with_config("later", "n3", &deep(levels)));
        for name in ["aaa", "later"] {
            let told = rig
                .until(name, |cluster| is(cluster, "ConfigValid", "False"))
                .await;
            assert_eq!(reason(&told, "ConfigValid"), "InvalidConfig", "{levels}");
            let too_deep = message(&told, "ConfigValid").contains("levels");
            assert_eq!(too_deep, levels > 100, "{}", message(&told, "ConfigValid"));
        }
        rig.create(&cluster("c", "n1")).await;
        rig.ready("c").await;
        rig.api.delete("clusters", "", "aaa");
        rig.gone("aaa").await;
    }
}

/// A Kubeconfig that cannot be understood keeps no other from its Secret.
#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_cannot_be_understood_stops_nobody() {
    let api = FakeApi::new(clock());
    let broken = json!({"metadata": {"name": "aaa"}, "spec": {"clusterName": 7}});
    api.plant("kubeconfigs", &broken);
    let rig = Rig::with(SimRemote::bare(&["n1"]), api, |_| {});
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let issued = |object: Option<&Value>| object.is_some_and(|object| is(object, "Ready", "True"));
    rig.api.until("kubeconfigs", "", "a", issued).await;
}

/// What the process writes to its log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn listen(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }
}

/// A watch that fails is told with its cause, whatever it fails with.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_is_told() {
    for (code, says) in [
        (403, "403"),
        (429, "429"),
        (500, "500"),
        (HANGS, "no answer"),
    ] {
        let log = Log::default();
        let _guard = log.listen();
        let rig = Rig::start(&["n1"]);
        rig.api.fault_of(move |asked| {
            let watches = asked.client == OPERATOR
                && asked.verb == "watch"
                && asked.path.ends_with("/clusters");
            watches.then_some(code)
        });
        seconds(120).await;
        let said = log.text();
        let line = said.lines().find(|line| {
            line.contains("WARN") && line.contains("/clusters") && line.contains(says)
        });
        assert!(line.is_some(), "{code}: {said}");
        drop(rig);
    }
}

/// A leader that cannot read the objects gives its turn to another, and ends when it is told to (O21).
#[tokio::test(start_paused = true)]
async fn who_cannot_read_the_objects_gives_its_turn_away_and_can_be_stopped() {
    for code in [403, 429, 500, HANGS] {
        let api = FakeApi::new(clock());
        let begun = Instant::now();
        // The list at its start is answered.
        let mut answered = 0;
        api.fault_of(move |asked| {
            let lists = asked.client == OPERATOR
                && asked.verb == "list"
                && asked.path.ends_with("/clusters");
            answered += usize::from(lists);
            (lists && answered > 1).then_some(code)
        });
        let rig = Rig::with(SimRemote::bare(&["n1"]), api.clone(), |options| {
            options.identity = Some("first".to_owned());
        });
        let held_by = |name: &'static str| {
            api.until("leases", NAMESPACE, "rke-operator", move |lease| {
                let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str());
                holder.unwrap_or_default() == name
            })
        };
        held_by("first").await;
        held_by("").await;
        assert!(begun.elapsed() < Duration::from_secs(90), "{code}");
        held_by("first").await;
        seconds(5).await;
        let told = Instant::now();
        rig.stop().await;
        assert!(
            told.elapsed() < Duration::from_secs(6),
            "{code}: {:?}",
            told.elapsed()
        );
    }
}

/// Every condition about health is Unknown, and `Ready` is not True.
fn claims_nothing(object: &Value) -> bool {
    let unknown = ConditionType::HEALTH
        .iter()
        .all(|kind| is(object, kind.name(), "Unknown"));
    unknown && !is(object, "Ready", "True")
}

/// Whatever keeps a pass from looking: what was true before is not claimed (O29).
#[tokio::test(start_paused = true)]
async fn what_is_not_seen_is_not_claimed() {
    type Break = fn(&Rig);
    let cases: [(&str, Break); 5] = [
        ("the state may not be read", |rig| {
            rig.api.fault(|method, path| {
                (method == http::Method::GET && path.ends_with("/a-state")).then_some(403)
            });
        }),
        ("the state cannot be understood", |rig| {
            let wreck = json!({"data": {"state.json": "bm8="}});
            rig.api.patch("secrets", NAMESPACE, "a-state", &wreck);
        }),
        ("the state is lost", |rig| {
            rig.api.delete("secrets", NAMESPACE, "a-state");
        }),
        ("a survey panics", |rig| rig.nodes.surveys(Surveys::Panic)),
        ("the right to read a Secret is missing", |rig| {
            rig.api
                .fault(|_, path| path.ends_with("/a-kubeconfig").then_some(403));
        }),
    ];
    for (what, break_it) in cases {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        break_it(&rig);
        let told = rig
            .until("a", |cluster| is(cluster, "Stalled", "True"))
            .await;
        assert!(claims_nothing(&told), "{what}: {:#}", told["status"]);
        rig.api.mend();
    }
}

/// A request that fails for a moment takes nothing away; one that fails for long does.
#[tokio::test(start_paused = true)]
async fn a_look_stands_for_a_while() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let broken = Instant::now();
    rig.api.fault(|method, path| {
        (method == http::Method::GET && path.ends_with("/secrets")).then_some(500)
    });
    let told = rig
        .until("a", |cluster| reason(cluster, "Reconciling") == "Retrying")
        .await;
    assert!(is(&told, "Available", "True"));
    rig.until("a", claims_nothing).await;
    let took = broken.elapsed().as_secs();
    assert!((60..=360).contains(&took), "{took} s");
    rig.api.mend();
    rig.ready("a").await;
}

/// While it is removed nobody says that it serves.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_removed_claims_nothing() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    rig.nodes.kill("n1");
    rig.api.delete("clusters", "", "a");
    let told = rig
        .until("a", |cluster| is(cluster, "Deleting", "True"))
        .await;
    assert!(claims_nothing(&told), "{:#}", told["status"]);
}

/// An annotation that asks for something wakes (O32).
#[tokio::test(start_paused = true)]
async fn each_annotation_that_asks_for_something_wakes() {
    for (annotation, value) in [
        ("lose", "n9".to_owned()),
        ("clean", "n9".to_owned()),
        ("recover", "0".repeat(32)),
        ("take-over", "0".repeat(32)),
    ] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        seconds(10).await;
        let before = rig.nodes.counts().surveys;
        let name = format!("clusterprovisioner.rke.io/{annotation}");
        let asks = json!({"metadata": {"annotations": {name: value}}});
        rig.api.patch("clusters", "", "a", &asks);
        seconds(5).await;
        assert!(rig.nodes.counts().surveys > before, "{annotation}");
    }
}

/// An edit is looked at, applied, and looked at again: what a run saw first and last is not read twice
/// (H14).
#[tokio::test(start_paused = true)]
async fn an_edit_costs_two_surveys() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    seconds(5).await;
    let before = rig.nodes.counts().surveys;
    let edit = json!({"spec": {"config": {"services": {"kubelet": {"extra_args": {"v": "4"}}}}}});
    rig.api.patch("clusters", "", "a", &edit);
    rig.until("a", |cluster| {
        settled(cluster) && cluster["metadata"]["generation"] == 2 && is(cluster, "Ready", "True")
    })
    .await;
    assert_eq!(rig.nodes.counts().surveys - before, 2);
}

/// Drift, too: and what an edit would change besides is still told as what waits.
#[tokio::test(start_paused = true)]
async fn a_heal_costs_two_surveys() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    seconds(5).await;
    let before = rig.nodes.counts().surveys;
    rig.nodes.end("n1", "kube-scheduler");
    rig.event("Healed").await;
    assert_eq!(rig.nodes.counts().surveys - before, 2);
}

/// A management cluster that takes no events holds up no run (O36).
#[tokio::test(start_paused = true)]
async fn events_that_hang_hold_nothing_up() {
    let mut took = Vec::new();
    for hangs in [false, true] {
        let rig = Rig::start(&["n1"]);
        rig.api
            .fault(move |_, path| (hangs && path.contains("/events")).then_some(HANGS));
        let begun = Instant::now();
        rig.create(&cluster("a", "n1")).await;
        rig.until("a", |cluster| is(cluster, "Ready", "True")).await;
        rig.api.delete("clusters", "", "a");
        rig.gone("a").await;
        took.push(begun.elapsed().as_secs());
    }
    assert!(took[1] <= took[0] + 60, "{took:?}");
}

/// A broken spec is looked at in its turn, like any other (O37).
#[tokio::test(start_paused = true)]
async fn clusters_with_a_broken_spec_are_looked_at_in_turn() {
    let names = ["n1", "n2", "n3"];
    let rig = Rig::with(SimRemote::bare(&names), FakeApi::new(clock()), |options| {
        options.limits.checks = 1;
    });
    for name in names {
        rig.create(&cluster(&format!("c-{name}"), name)).await;
        rig.ready(&format!("c-{name}")).await;
    }
    rig.nodes.surveys(Surveys::Hang);
    let typo = json!({"spec": {"config": {"kubernetes_versoin": "v1.34.4"}}});
    for name in names {
        rig.api.patch("clusters", "", &format!("c-{name}"), &typo);
    }
    seconds(10).await;
    assert_eq!(rig.nodes.counts().most_hanging, 1);
}

/// The states are listed once for all clusters, and not once for each.
#[tokio::test(start_paused = true)]
async fn the_states_are_not_listed_for_each_cluster() {
    let names = ["n1", "n2", "n3", "n4"];
    let rig = Rig::start(&names);
    for name in names {
        rig.create(&cluster(&format!("c-{name}"), name)).await;
        rig.ready(&format!("c-{name}")).await;
    }
    let lists = Arc::new(Mutex::new(0));
    let count = Arc::clone(&lists);
    rig.api.fault_of(move |asked| {
        let of_states = asked.path.contains(NAMESPACE) && !asked.path.contains(CREDENTIALS);
        if of_states && asked.verb == "list" && asked.path.ends_with("/secrets") {
            *count.lock().unwrap() += 1;
        }
        None
    });
    seconds(600).await;
    let lists = *lists.lock().unwrap();
    assert!(lists <= 11, "{lists} lists in ten minutes");
}

/// How old the health is: written every ten minutes at most, and only after a survey.
#[tokio::test(start_paused = true)]
async fn the_last_survey_is_reported_in_steps_of_ten_minutes() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let last = || {
        let object = rig.cluster("a");
        let text = object["status"]["lastSurvey"].as_str().unwrap();
        text.parse::<jiff::Timestamp>().unwrap()
    };
    let old = || rig.api.now().as_second() - last().as_second();
    for _ in 0..3 {
        seconds(25 * 60).await;
        assert_eq!(last().as_second() % 600, 0);
        assert!((0..12 * 60).contains(&old()), "{} s", old());
    }
    rig.nodes.surveys(Surveys::Hang);
    let before = last();
    seconds(3600).await;
    assert_eq!(last(), before, "nothing was surveyed");
}
