//! What the operator writes is bound to what it has read: what somebody else does to an object
//! between the two is neither lost nor taken for the operator's own (O11, O17).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use rke_operator::plan::{Action, HostAction};
use serde_json::{Value, json};

use crate::{
    fake_api::{FakeApi, HANGS},
    operator_rig::{CREDENTIALS, NAMESPACE, Rig, cluster, is, settled},
    sim::remote::{Purpose, Turn},
};

const OURS: &str = "clusterprovisioner.rke.io/cleanup";
const THEIRS: &str = "example.com/theirs";
const RECOVER: &str = "clusterprovisioner.rke.io/recover";

/// Does something right before the server gets the next such request, once. It has been done when
/// the flag says so.
fn right_before(
    api: &FakeApi,
    wanted: (Method, &'static str),
    meanwhile: impl FnOnce(&FakeApi) + Send + 'static,
) -> Arc<AtomicBool> {
    after(0, api, wanted, meanwhile)
}

/// The same before the next but so many.
fn after(
    skipped: usize,
    api: &FakeApi,
    wanted: (Method, &'static str),
    meanwhile: impl FnOnce(&FakeApi) + Send + 'static,
) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let (server, told) = (api.clone(), Arc::clone(&done));
    let mut meanwhile = Some(meanwhile);
    let mut left = skipped;
    api.fault(move |method, path| {
        if *method != wanted.0 || !path.ends_with(wanted.1) {
            return None;
        }
        if left > 0 {
            left -= 1;
        } else if let Some(meanwhile) = meanwhile.take() {
            meanwhile(&server);
            told.store(true, Ordering::SeqCst);
        }
        None
    });
    done
}

/// A write of the object `a`, its status left out.
const WRITE: (Method, &str) = (Method::PATCH, "/clusters/a");

/// The object `a` goes at once, and another of its name takes its place; from then on the operator
/// learns nothing of it, so that all that is written to it is of a pass over its predecessor.
fn replaced_before_a_write(rig: &Rig, skipped: usize, namesake: Value) {
    let done = after(skipped, &rig.api, WRITE, move |api| {
        api.delete("clusters", "", "a");
        if api.object("clusters", "", "a").is_some() {
            let free = json!({"metadata": {"finalizers": null}});
            api.patch("clusters", "", "a", &free);
        }
        api.plant("clusters", &namesake);
    });
    let mut first = true;
    rig.api.fault(move |_, path| {
        if !done.load(Ordering::SeqCst) || !path.contains("/clusters/a") {
            return None;
        }
        // The write itself.
        (!std::mem::take(&mut first)).then_some(HANGS)
    });
}

fn finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array();
    let all = all.into_iter().flatten();
    all.map(|name| name.as_str().unwrap()).collect()
}

fn with_finalizers(names: &[&str]) -> Value {
    json!({"metadata": {"finalizers": names}})
}

/// Every version of the object that is there now.
fn versions(rig: &Rig) -> Vec<Value> {
    let uid = rig.cluster("a")["metadata"]["uid"].clone();
    let mut all = rig.api.history("clusters");
    all.retain(|object| object["metadata"]["uid"] == uid);
    all
}

async fn a_while() {
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_came_meanwhile_is_not_lost() {
    let rig = Rig::start(&["n1"]);
    let done = right_before(&rig.api, WRITE, |api| {
        api.patch("clusters", "", "a", &with_finalizers(&[THEIRS]));
    });
    rig.create(&cluster("a", "n1")).await;
    let built = rig.ready("a").await;
    assert!(done.load(Ordering::SeqCst));
    assert_eq!(finalizers(&built), [THEIRS, OURS]);
}

#[tokio::test(start_paused = true)]
async fn a_namesake_gets_no_finalizer_by_a_pass_over_its_predecessor() {
    let rig = Rig::start(&["n1"]);
    replaced_before_a_write(&rig, 0, cluster("a", "n1"));
    rig.create(&cluster("a", "n1")).await;
    a_while().await;
    assert_eq!(versions(&rig).len(), 1, "it is as it was created");
    rig.api.mend();
    let built = rig.ready("a").await;
    assert_eq!(finalizers(&built), [OURS]);
}

#[tokio::test(start_paused = true)]
async fn a_namesake_keeps_its_finalizer_when_its_predecessor_is_released() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let mut namesake = cluster("a", "n1");
    namesake["metadata"]["finalizers"] = json!([OURS]);
    // The first one notes that the removal began.
    replaced_before_a_write(&rig, 1, namesake);
    rig.api.delete("clusters", "", "a");
    a_while().await;
    assert_eq!(rig.nodes.containers("n1"), 0, "the predecessor is removed");
    assert_eq!(versions(&rig).len(), 1, "it is as it was created");
    rig.api.mend();
    rig.ready("a").await;
    for version in versions(&rig) {
        assert_eq!(finalizers(&version), [OURS]);
    }
}

/// The operator takes its own finalizer away, whatever else is written to the object meanwhile,
/// and no other's.
#[tokio::test(start_paused = true)]
async fn a_release_takes_only_our_finalizer_whatever_is_written_meanwhile() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let both = with_finalizers(&[THEIRS, OURS]);
    rig.api.patch("clusters", "", "a", &both);
    // The first write of a removal notes that it began.
    let edited = after(1, &rig.api, WRITE, |api| {
        let edit = json!({"metadata": {"annotations": {"example.com/note": "kept"}}});
        api.patch("clusters", "", "a", &edit);
    });
    let writes = |rig: &Rig| {
        let writes = rig.api.writes().into_iter();
        writes.filter(|line| line.ends_with("/clusters/a")).count()
    };
    let before = writes(&rig);
    rig.api.delete("clusters", "", "a");
    let released = rig
        .until("a", |object| finalizers(object) == [THEIRS])
        .await;
    assert!(edited.load(Ordering::SeqCst));
    assert_eq!(
        released["metadata"]["annotations"]["example.com/note"],
        "kept"
    );
    assert_eq!(writes(&rig), before + 2, "the first write of it is taken");
    rig.api.patch("clusters", "", "a", &with_finalizers(&[]));
    rig.gone("a").await;
}

/// A finalizer that its controller took away meanwhile does not come back, and holds nothing up.
#[tokio::test(start_paused = true)]
async fn a_release_does_not_bring_anothers_finalizer_back() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let both = with_finalizers(&[THEIRS, OURS]);
    rig.api.patch("clusters", "", "a", &both);
    let done = right_before(&rig.api, WRITE, |api| {
        api.patch("clusters", "", "a", &with_finalizers(&[OURS]));
    });
    rig.api.delete("clusters", "", "a");
    let deleted = tokio::time::Instant::now();
    rig.gone("a").await;
    assert!(done.load(Ordering::SeqCst));
    assert!(deleted.elapsed().as_secs() < 120, "{:?}", deleted.elapsed());
    let history = rig.api.history("clusters");
    let mut since = history
        .iter()
        .skip_while(|object| !finalizers(object).contains(&THEIRS))
        .skip_while(|object| finalizers(object) != [OURS]);
    assert!(since.clone().count() > 0);
    assert!(since.all(|object| !finalizers(object).contains(&THEIRS)));
}

fn recover(id: char, verbosity: u8) -> Value {
    json!({
        "metadata": {"annotations": {RECOVER: id.to_string().repeat(32)}},
        "spec": {"config": {"services": {"kubelet": {"extra_args": {"v": verbosity.to_string()}}}}},
    })
}

/// What a person asked for once is done once.
#[tokio::test(start_paused = true)]
async fn a_request_for_recovery_is_taken_away_when_it_is_done() {
    let rig = Rig::start(&["n1"]);
    let mut noted = cluster("a", "n1");
    noted["metadata"]["annotations"] = json!({"example.com/note": "kept"});
    rig.create(&noted).await;
    rig.ready("a").await;
    rig.api.patch("clusters", "", "a", &recover('2', 4));
    let done = |object: &Value| object["metadata"]["generation"] == 2 && settled(object);
    let again = rig.until("a", done).await;
    let told = rig.nodes.told().0;
    assert_eq!(told.unwrap().0, "2".repeat(32));
    let annotations = &again["metadata"]["annotations"];
    assert_eq!(annotations[RECOVER], Value::Null);
    assert_eq!(annotations["example.com/note"], "kept");
}

#[tokio::test(start_paused = true)]
async fn another_request_that_came_meanwhile_is_not_lost() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let asked = right_before(&rig.api, WRITE, |api| {
        api.patch("clusters", "", "a", &recover('3', 5));
    });
    rig.api.patch("clusters", "", "a", &recover('2', 4));
    let done = |object: &Value| object["metadata"]["generation"] == 3 && settled(object);
    let settled = rig.until("a", done).await;
    assert!(asked.load(Ordering::SeqCst));
    let told = rig.nodes.told().0;
    assert_eq!(told.map(|id| id.0), Some("3".repeat(32)));
    assert_eq!(settled["metadata"]["annotations"][RECOVER], Value::Null);
}

/// What a run has not read is not done when the run is.
#[tokio::test(start_paused = true)]
async fn a_request_that_came_during_a_run_is_there_after_it() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let halt = rig.nodes.halt(Purpose::Up, 0);
    rig.api.patch("clusters", "", "a", &recover('2', 4));
    halt.reached().await;
    let another = json!({"metadata": {"annotations": {RECOVER: "3".repeat(32)}}});
    rig.api.patch("clusters", "", "a", &another);
    halt.lift();
    halt.go_on();
    let done = |object: &Value| object["metadata"]["generation"] == 2 && settled(object);
    rig.until("a", done).await;
    let history = rig.api.history("clusters");
    let first = history.iter().find(|object| done(object)).unwrap();
    assert_eq!(first["metadata"]["annotations"][RECOVER], "3".repeat(32));
    // The next run, which has read it, uses it up.
    rig.api.patch("clusters", "", "a", &recover('3', 5));
    let used = |object: &Value| object["metadata"]["annotations"][RECOVER] == Value::Null;
    rig.until("a", used).await;
}

#[tokio::test(start_paused = true)]
async fn a_namesakes_request_is_not_taken_away_by_a_pass_over_its_predecessor() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let mut namesake = cluster("a", "n1");
    namesake["metadata"]["annotations"] = json!({RECOVER: "3".repeat(32)});
    replaced_before_a_write(&rig, 0, namesake);
    rig.api.patch("clusters", "", "a", &recover('2', 4));
    a_while().await;
    assert_eq!(versions(&rig).len(), 1, "it is as it was created");
}

/// A Secret that somebody else puts in the place of a cluster's own is not overwritten.
#[tokio::test(start_paused = true)]
async fn a_secret_that_came_before_the_kubeconfig_is_written_is_left_alone() {
    let rig = Rig::start(&["n1"]);
    let theirs = json!({
        "metadata": {"name": "a-kubeconfig", "namespace": CREDENTIALS},
        "data": {"value": "dGhlaXJz"},
    });
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let planted = theirs.clone();
    let put = (Method::PUT, "/secrets/a-kubeconfig");
    let done = right_before(&rig.api, put, move |api| {
        api.delete("secrets", CREDENTIALS, "a-kubeconfig");
        api.plant("secrets", &planted);
    });
    // Another content is put right.
    let edited = json!({"data": {"value": "ZWRpdGVk"}});
    rig.api
        .patch("secrets", CREDENTIALS, "a-kubeconfig", &edited);
    rig.until("a", |cluster| is(cluster, "Stalled", "True"))
        .await;
    assert!(done.load(Ordering::SeqCst));
    let there = rig.api.object("secrets", CREDENTIALS, "a-kubeconfig");
    assert_eq!(there.unwrap()["data"], theirs["data"]);
}

/// The state, with its keys, is deleted only as this object's: another's that took its place is
/// kept.
#[tokio::test(start_paused = true)]
async fn a_state_that_became_anothers_meanwhile_is_not_deleted() {
    for before_the_delete in [true, false] {
        let rig = Rig::start(&["n1"]);
        rig.create(&cluster("a", "n1")).await;
        rig.ready("a").await;
        if before_the_delete {
            right_before(
                &rig.api,
                (Method::DELETE, "/secrets/a-state"),
                given_to_another,
            );
        } else {
            let api = rig.api.clone();
            rig.nodes.script(move |purpose, _, step| {
                let last = step.action == Action::Host("n1".into(), HostAction::ReleaseClaim);
                if purpose == Purpose::Removal && last {
                    given_to_another(&api);
                }
                Turn::Go
            });
        }
        rig.api.delete("clusters", "", "a");
        a_while().await;
        assert!(rig.api.object("secrets", NAMESPACE, "a-state").is_some());
        assert!(rig.api.object("clusters", "", "a").is_some());
    }
}

/// The state of a cluster under another object's uid, as a backup may bring it back.
fn given_to_another(api: &FakeApi) {
    let secret = api.object("secrets", NAMESPACE, "a-state").unwrap();
    let text = secret["data"]["state.json"].as_str().unwrap();
    let text = BASE64_STANDARD.decode(text).unwrap();
    let mut state: Value = serde_json::from_slice(&text).unwrap();
    state["operator"]["uid"] = json!("another");
    let text = BASE64_STANDARD.encode(state.to_string());
    let data = json!({"data": {"state.json": text}});
    api.patch("secrets", NAMESPACE, "a-state", &data);
}
