//! From a process of the operator to the next: who holds the lease acts, who lost it does not, and
//! what an earlier release kept elsewhere moves.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Method;
use rke_operator::{
    api::{SCHEMA_VERSION, definitions},
    operator::OperatorError,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    fake_api::{FakeApi, HANGS},
    operator_rig::{CREDENTIALS, NAMESPACE, Rig, clock, cluster, is, key_secret},
    sim::remote::{SimRemote, Turn},
};

const LEASE: &str = "rke-operator";

fn named(name: &str, nodes: &SimRemote, api: &FakeApi) -> Rig {
    Rig::with(nodes.clone(), api.clone(), |options| {
        options.identity = Some(name.to_owned());
    })
}

fn world() -> (SimRemote, FakeApi) {
    (SimRemote::bare(&["n1"]), FakeApi::new(clock()))
}

fn holder(api: &FakeApi) -> String {
    let lease = api.object("leases", NAMESPACE, LEASE);
    let holder = lease.map(|lease| lease["spec"]["holderIdentity"].clone());
    holder
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

async fn held_by(api: &FakeApi, name: &str) {
    api.until("leases", NAMESPACE, LEASE, |lease| {
        lease.is_some_and(|lease| lease["spec"]["holderIdentity"] == name)
    })
    .await;
}

/// Its lease cannot be written from now on; nobody else's request is harmed.
fn cannot_write_the_lease(api: &FakeApi, code: u16) {
    api.fault(move |method, path| {
        (*method == Method::PUT && path.contains("/leases/")).then_some(code)
    });
}

/// Creates the cluster `a`; the fourth step of each of its runs takes that long. Comes back when
/// the first is at it.
async fn at_a_long_step(rig: &Rig, time: Duration) {
    let begun = Arc::new(Notify::new());
    let told = Arc::clone(&begun);
    rig.nodes.script(move |_, index, _| {
        if index == 3 {
            told.notify_one();
            return Turn::Work(time);
        }
        Turn::Go
    });
    rig.create(&cluster("a", "n1")).await;
    begun.notified().await;
}

/// What is under way ends first, whoever waits goes on then.
#[tokio::test(start_paused = true)]
async fn the_one_that_waits_goes_on_when_the_other_ends() {
    let (nodes, api) = world();
    let first = named("first", &nodes, &api);
    held_by(&api, "first").await;
    let second = named("second", &nodes, &api);
    at_a_long_step(&first, Duration::from_secs(40)).await;
    let steps = nodes.steps();
    let ended = tokio::spawn(first.stop());
    tokio::time::sleep(Duration::from_secs(39)).await;
    assert_eq!(holder(&api), "first", "a step is under way");
    ended.await.unwrap();
    let free = tokio::time::Instant::now();
    assert_eq!(nodes.steps(), steps + 1, "what was under way, and no more");
    held_by(&api, "second").await;
    assert!(
        free.elapsed() < Duration::from_secs(2),
        "{:?}",
        free.elapsed()
    );
    second.ready("a").await;
    let lease = api.object("leases", NAMESPACE, LEASE).unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
}

/// Its requests about the lease fail, or are not answered; all else of it lives on.
#[tokio::test(start_paused = true)]
async fn one_that_cannot_renew_takes_no_further_step_and_ends() {
    for code in [500, HANGS] {
        let (nodes, api) = world();
        let first = named("first", &nodes, &api);
        held_by(&api, "first").await;
        at_a_long_step(&first, Duration::from_secs(30)).await;
        let steps = nodes.steps();
        cannot_write_the_lease(&api, code);
        let begun = tokio::time::Instant::now();
        let ended = first.ended().await;
        assert!(matches!(ended, Err(OperatorError::LeaseLost)), "{ended:?}");
        assert!(begun.elapsed() < Duration::from_secs(40));
        assert_eq!(nodes.steps(), steps + 1, "what was under way, and no more");
        api.mend();
        let second = named("second", &nodes, &api);
        second.ready("a").await;
    }
}

/// SIGSTOP and SIGCONT: time went by in which no task ran.
#[tokio::test(start_paused = true)]
async fn one_that_was_frozen_past_its_lease_takes_no_further_step_and_ends() {
    let (nodes, api) = world();
    let first = named("first", &nodes, &api);
    held_by(&api, "first").await;
    at_a_long_step(&first, Duration::from_millis(100)).await;
    let steps = nodes.steps();
    tokio::time::advance(Duration::from_secs(20)).await;
    let ended = first.ended().await;
    assert!(matches!(ended, Err(OperatorError::LeaseLost)), "{ended:?}");
    assert_eq!(nodes.steps(), steps + 1, "what was under way, and no more");
}

/// A record that does not move is waited for no longer than it says.
#[tokio::test(start_paused = true)]
async fn a_lease_whose_holder_is_gone_is_taken_when_its_time_is_over() {
    let (nodes, api) = world();
    api.plant(
        "leases",
        &json!({
            "metadata": {"name": LEASE, "namespace": NAMESPACE},
            "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15},
        }),
    );
    let begun = tokio::time::Instant::now();
    let rig = named("heir", &nodes, &api);
    held_by(&api, "heir").await;
    let took = begun.elapsed().as_secs();
    assert!((15..=20).contains(&took), "{took}");
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
}

/// Two that begin at once: the second does nothing as long as the first is there.
#[tokio::test(start_paused = true)]
async fn of_two_one_acts() {
    let (nodes, api) = world();
    let first = named("first", &nodes, &api);
    held_by(&api, "first").await;
    let second_nodes = SimRemote::bare(&["n1"]);
    let second = named("second", &second_nodes, &api);
    first.create(&cluster("a", "n1")).await;
    first.ready("a").await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(holder(&api), "first");
    assert_eq!(second_nodes.counts().surveys, 0);
    second.stop().await;
    assert_eq!(
        holder(&api),
        "first",
        "what is not its own it does not give back"
    );
}

/// Somebody who edits or deletes the Lease takes nothing away from its holder.
#[tokio::test(start_paused = true)]
async fn a_lease_that_a_person_touched_is_still_held() {
    let (nodes, api) = world();
    let rig = named("first", &nodes, &api);
    held_by(&api, "first").await;
    let note = json!({"metadata": {"annotations": {"example.com/note": "kept"}}});
    api.patch("leases", NAMESPACE, LEASE, &note);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let lease = api.object("leases", NAMESPACE, LEASE).unwrap();
    assert_eq!(lease["metadata"]["annotations"]["example.com/note"], "kept");
    api.delete("leases", NAMESPACE, LEASE);
    held_by(&api, "first").await;
    let taken = json!({"spec": {"holderIdentity": "another"}});
    api.patch("leases", NAMESPACE, LEASE, &taken);
    let begun = tokio::time::Instant::now();
    let ended = rig.ended().await;
    assert!(begun.elapsed() < Duration::from_secs(3), "the other acts");
    assert!(matches!(ended, Err(OperatorError::LeaseLost)), "{ended:?}");
    assert_eq!(holder(&api), "another");
}

#[tokio::test(start_paused = true)]
async fn definitions_that_do_not_suit_are_an_error_at_the_start() {
    let name = "clusters.clusterprovisioner.rke.io";
    let older = json!({"metadata": {"annotations": {SCHEMA_VERSION: "0"}}});
    let (nodes, api) = world();
    api.patch("customresourcedefinitions", "", name, &older);
    let error = named("a", &nodes, &api).ended().await.unwrap_err();
    assert!(
        matches!(&error, OperatorError::Definition { what, .. } if what == name),
        "{error:?}"
    );
    assert_eq!(holder(&api), "", "it did not even ask for its turn");

    let (nodes, api) = world();
    api.delete("customresourcedefinitions", "", name);
    let error = named("a", &nodes, &api).ended().await.unwrap_err();
    assert!(
        matches!(&error, OperatorError::NoDefinitions { what, .. } if what == name),
        "{error:?}"
    );

    let (nodes, api) = world();
    api.fault(|_, path| path.contains("customresourcedefinitions").then_some(403));
    let error = named("a", &nodes, &api).ended().await.unwrap_err();
    assert!(
        matches!(&error, OperatorError::Forbidden { verb: "get", .. }),
        "{error:?}"
    );
    assert_eq!(definitions().len(), 3);
}

/// Without admission policies nothing guards the definitions; a name of a release that is not known is no reason to stop.
#[tokio::test(start_paused = true)]
async fn a_management_cluster_that_is_too_old_is_an_error_at_the_start() {
    for (release, runs) in [
        ("v1.29.15", false),
        ("v1.29.15+k3s1", false),
        ("v1.30.0-rc.1", true),
        ("v2.0.0", true),
        ("main", true),
    ] {
        let (nodes, api) = world();
        api.says_it_is(release);
        let rig = named("a", &nodes, &api);
        if runs {
            held_by(&api, "a").await;
            assert!(rig.is_running(), "{release}");
            continue;
        }
        let error = rig.ended().await.unwrap_err();
        assert!(
            matches!(&error, OperatorError::TooOld { version } if version == release),
            "{error:?}"
        );
        assert_eq!(holder(&api), "", "it did not even ask for its turn");
    }
}

/// No object can have a Secret of the operator's own namespace shown where others read: not even by a
/// state that says that the cluster logs in with one of that name (O22).
#[tokio::test(start_paused = true)]
async fn nothing_is_copied_for_any_client() {
    let rig = Rig::start(&["n1"]);
    let mut pulls = key_secret();
    pulls["metadata"]["namespace"] = json!(NAMESPACE);
    pulls["metadata"]["name"] = json!("regcred");
    rig.api.plant("secrets", &pulls);
    let mut mine = key_secret();
    mine["metadata"]["name"] = json!("regcred");
    rig.api.plant("secrets", &mine);
    let mut object = cluster("a", "n1");
    object["spec"]["ssh"]["keySecretRef"]["name"] = json!("regcred");
    rig.create(&object).await;
    rig.ready("a").await;
    rig.api.delete("secrets", CREDENTIALS, "regcred");
    rig.until("a", |object| is(object, "ConfigValid", "False"))
        .await;
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert!(rig.api.object("secrets", CREDENTIALS, "regcred").is_none());
}

/// Reviews are requested for who reads the metrics, and for no other.
const FOR_METRICS: [&str; 2] = [
    "tokenreviews.authentication.k8s.io",
    "subjectaccessreviews.authorization.k8s.io",
];

/// Each right of the shipped roles on objects: verb, resource with its group, namespace.
fn shipped() -> Vec<[String; 3]> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(include_str!("../../deploy/rbac.yaml")).unwrap();
    let mut rights = Vec::new();
    for role in documents {
        let namespace = match role["metadata"]["namespace"].as_str() {
            Some("rke-operator") => NAMESPACE,
            Some("rke-operator-credentials") => CREDENTIALS,
            other => other.unwrap_or_default(),
        };
        for rule in role["rules"].as_array().into_iter().flatten() {
            let Some(group) = rule["apiGroups"][0].as_str() else {
                // A path, for scrapers.
                continue;
            };
            let resource = rule["resources"][0].as_str().unwrap();
            let resource = if group.is_empty() {
                resource.to_owned()
            } else {
                format!("{resource}.{group}")
            };
            if FOR_METRICS.contains(&resource.as_str()) {
                continue;
            }
            for verb in rule["verbs"].as_array().unwrap() {
                let verb = verb.as_str().unwrap().to_owned();
                rights.push([verb, resource.clone(), namespace.to_owned()]);
            }
        }
    }
    rights
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

/// Before a node is connected to, the operator knows which addresses are none of a node.
#[tokio::test(start_paused = true)]
async fn the_services_of_the_management_cluster_are_known() {
    let (nodes, api) = world();
    api.plant(
        "servicecidrs",
        &json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.43.0.0/16"]}}),
    );
    let rig = Rig::with(nodes, api, |_| {});
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    assert!(rig.services.contains("10.43.0.1".parse().unwrap()));
    assert!(!rig.services.contains("10.44.0.1".parse().unwrap()));
}

/// The life of a cluster: created, operated on, renewed, orphaned twice, taken over, removed. Waits for nothing
/// to be well.
async fn live(rig: &Rig) {
    let minutes = |minutes: u64| tokio::time::sleep(Duration::from_secs(60 * minutes));
    let mut object = cluster("a", "n1");
    object["spec"]["deletion"] = json!({"timeout": "1m", "onTimeout": "Orphan"});
    object["spec"]["ssh"]["knownHostsFrom"] = json!({"configMapKeyRef": {"name": "hosts"}});
    let map = json!({
        "metadata": {"name": "hosts", "namespace": CREDENTIALS}, "data": {"known_hosts": ""},
    });
    rig.api.plant("configmaps", &map);
    rig.create(&object).await;
    minutes(3).await;
    if rig
        .api
        .object("secrets", CREDENTIALS, "a-kubeconfig")
        .is_some()
    {
        let edited = json!({"data": {"value": "ZWRpdGVk"}});
        rig.api
            .patch("secrets", CREDENTIALS, "a-kubeconfig", &edited);
    }
    minutes(3).await;
    let operation = json!({"metadata": {"name": "once"}, "spec": {
        "clusterRef": {"name": "a"}, "type": "RotateCertificates", "ttlSecondsAfterFinished": 0,
    }});
    rig.api.plant("clusteroperations", &operation);
    minutes(3).await;
    for _ in 0..2 {
        rig.nodes.kill("n1");
        rig.api.delete("clusters", "", "a");
        minutes(3).await;
        rig.nodes.revive("n1");
        if rig.api.object("clusters", "", "a").is_some() {
            return;
        }
        let mut again = object.clone();
        if let Some(state) = rig.state("a") {
            let id = state["clusterId"].clone();
            again["metadata"]["annotations"] = json!({"clusterprovisioner.rke.io/take-over": id});
        }
        rig.create(&again).await;
        minutes(3).await;
    }
    rig.api.delete("clusters", "", "a");
    minutes(3).await;
}

/// Whatever is missing among the rights that `of` takes, somebody is told which one.
async fn is_named(of: impl Fn(&str) -> bool) {
    let rights = shipped();
    let rights = rights.iter().filter(|[_, _, namespace]| of(namespace));
    for [verb, resource, namespace] in rights {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let (nodes, api) = world();
        api.deny(verb, resource, namespace);
        let rig = Rig::with(nodes, api.clone(), |options| {
            // Who leads, renews each second: only where it is about that.
            options.identity = resource.starts_with("leases").then(|| "first".to_owned());
        });
        let life = tokio::time::timeout(Duration::from_secs(8 * 3600), live(&rig));
        life.await.unwrap();
        let ended = if rig.is_running() {
            rig.stop().await;
            String::new()
        } else {
            format!("{:?}", rig.ended().await)
        };
        let bare = resource.split('.').next().unwrap();
        let wanted = format!("cannot {verb} resource \"{bare}\"");
        let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let told = format!(
            "{said}{ended}{:?}{:?}",
            api.history("clusters"),
            api.history("events")
        );
        let told = told.replace('\\', "");
        assert!(
            told.contains(&wanted),
            "{verb} {resource} {namespace}: {said}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_on_its_own_kinds_that_is_missing_is_named() {
    is_named(str::is_empty).await;
}

#[tokio::test(start_paused = true)]
async fn a_right_in_its_own_namespace_that_is_missing_is_named() {
    is_named(|namespace| namespace == NAMESPACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_right_in_another_namespace_that_is_missing_is_named() {
    is_named(|namespace| !["", NAMESPACE].contains(&namespace)).await;
}
