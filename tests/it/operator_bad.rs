//! Objects that are wrong, `tests/fixtures/objects/bad.yaml`: each is refused where the table says. What comes past
//! admission is reported with its reason and its cure, and not tried again and again. `lab_schema` sends each to a real
//! API server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    fake_api::FakeApi,
    operator_rig::{OPERATOR, Rig, cluster, condition, message, minutes, reason, settled},
};

/// One row.
#[derive(Deserialize)]
pub(crate) struct Bad {
    pub(crate) what: String,
    pub(crate) by: By,
    pub(crate) says: String,
    spec: Value,
    reason: Option<String>,
    stalled: Option<String>,
}

/// Where it is refused.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    Schema,
    Policy,
    Operator,
}

impl Bad {
    pub(crate) fn all() -> Vec<Self> {
        let text = include_str!("../fixtures/objects/bad.yaml");
        serde_saphyr::from_str(text).expect("a table")
    }

    /// The object, under that name.
    pub(crate) fn object(&self, name: &str) -> Value {
        let mut object = cluster(name, "n1");
        object["spec"]["config"]
            .as_object_mut()
            .expect("a config")
            .remove("cluster_name");
        json_patch(&mut object["spec"], &self.spec);
        object
    }
}

/// As `kubectl patch --type=merge` does.
fn json_patch(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (into @ Value::Object(_), Value::Object(patch)) => {
            let into = into.as_object_mut().expect("an object");
            for (key, value) in patch {
                if value.is_null() {
                    into.remove(key);
                } else {
                    json_patch(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

#[test]
fn the_definition_refuses_what_the_table_says() {
    let all = Bad::all();
    assert!(all.len() >= 60);
    let count = |by: By| all.iter().filter(|bad| bad.by == by).count();
    assert!(count(By::Schema) >= 40 && count(By::Policy) >= 10 && count(By::Operator) >= 25);
    for bad in all {
        match (bad.by, FakeApi::admits("Cluster", &bad.object("bad"))) {
            (By::Schema, Err(text)) => {
                assert!(text.contains(&bad.says), "{}: {text}", bad.what);
            }
            (By::Policy | By::Operator, Ok(())) => {}
            (by, other) => panic!("{}: refused by {by:?}, it is {other:?}", bad.what),
        }
    }
}

/// What an idle hour may cost, with what the operator reads for itself: an object that waits for a person is read again
/// every ten minutes at most.
const CALLS: usize = 90;

/// What they say is wrong is the cure as well.
const SAY_IT: [&str; 6] = [
    "the keys of snapshots",
    "a taint without a key",
    "a node without a user",
    "a user of a registry without a password",
    "one machine twice",
    "manifests that are no YAML",
];

/// Also where the policies are not installed.
#[tokio::test(start_paused = true)]
async fn what_comes_past_admission_is_reported_once() {
    let mut wrong = Vec::new();
    for bad in Bad::all() {
        if bad.by == By::Schema {
            continue;
        }
        let rig = Rig::start(&["n1"]);
        rig.create(&bad.object("a")).await;
        let told = rig
            .until("a", |cluster| condition(cluster, "Stalled").is_some())
            .await;
        let text = message(&told, "ConfigValid");
        let told_as = reason(&told, "ConfigValid");
        let as_wanted = match (&bad.reason, bad.by) {
            (Some(wanted), _) => told_as == *wanted,
            // What else is wrong with it may be named instead.
            (None, By::Policy) => ["InlineSecret", "InvalidConfig"].contains(&told_as.as_str()),
            (None, _) => told_as == "InvalidConfig",
        };
        if !as_wanted {
            wrong.push(format!("{}: {told_as}: {text}", bad.what));
        }
        let stalled = bad.stalled.as_deref().unwrap_or("InvalidConfig");
        if reason(&told, "Stalled") != stalled {
            wrong.push(format!("{}: not {stalled}: {text}", bad.what));
        }
        if bad.by == By::Operator && !text.contains(&bad.says) {
            wrong.push(format!("{}: does not say `{}`: {text}", bad.what, bad.says));
        }
        if !text.contains("hint: ") && !SAY_IT.contains(&bad.what.as_str()) {
            wrong.push(format!("{}: no cure: {text}", bad.what));
        }
        assert!(!text.contains("hunter2"), "{}: {text}", bad.what);
        let calls: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let counter = Arc::clone(&calls);
        rig.api.fault_of(move |asked| {
            let call = format!("{} {}", asked.verb, asked.path);
            *counter.lock().unwrap().entry(call).or_default() += 1;
            None
        });
        minutes(60).await;
        let calls = calls.lock().unwrap().clone();
        let all: usize = calls.values().sum();
        assert!(
            all <= CALLS,
            "{}: {all} calls in an hour: {calls:#?}",
            bad.what
        );
        assert_eq!(rig.nodes.containers("n1"), 0, "{}", bad.what);
        rig.api.delete("clusters", "", "a");
        rig.gone("a").await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A null says nothing, wherever it stands.
#[test]
fn a_good_object_is_taken() {
    assert_eq!(FakeApi::admits("Cluster", &cluster("a", "n1")), Ok(()));
    let mut null = cluster("a", "n1");
    null["spec"]["config"]["services"] = json!(null);
    null["spec"]["config"]["nodes"][0]["port"] = json!(null);
    assert_eq!(FakeApi::admits("Cluster", &null), Ok(()));
}

/// Refuses every other patch of a path, with that code.
fn refuse_every_other_patch(rig: &Rig, path: &'static str, code: u16) {
    let mut refuses = false;
    rig.api.fault_of(move |asked| {
        if asked.client != OPERATOR || asked.verb != "patch" || !asked.path.ends_with(path) {
            return None;
        }
        refuses = !refuses;
        refuses.then_some(code)
    });
}

/// A definition may refuse each write to an object whose config an earlier one took. A deletion takes the config out of it.
#[tokio::test(start_paused = true)]
async fn a_deletion_ends_where_the_definition_refuses_the_object() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    refuse_every_other_patch(&rig, "/clusters/a", 422);
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    assert_eq!(rig.nodes.containers("n1"), 0);
}

/// The API server applies nothing to an object of an earlier schema with a value of another type, and takes a merge.
#[tokio::test(start_paused = true)]
async fn a_status_is_written_where_nothing_can_be_applied() {
    let rig = Rig::start(&["n1"]);
    refuse_every_other_patch(&rig, "/clusters/a/status", 500);
    rig.create(&cluster("a", "n1")).await;
    let ready = rig.ready("a").await;
    assert!(ready["status"]["progress"].is_null(), "{ready}");
    assert_eq!(ready["status"]["nodeSummary"], "1/1");
}

/// Without the finalizer a deletion would leave the nodes as they are: none is touched.
#[tokio::test(start_paused = true)]
async fn nothing_is_built_where_the_finalizer_is_refused() {
    let rig = Rig::start(&["n1"]);
    rig.api.fault_of(|asked| {
        let is = asked.verb == "patch" && asked.path.ends_with("/clusters/a");
        is.then_some(422)
    });
    rig.create(&cluster("a", "n1")).await;
    let told = rig
        .until("a", |cluster| reason(cluster, "Stalled") == "InvalidConfig")
        .await;
    assert!(message(&told, "ConfigValid").contains("which an earlier one took"));
    minutes(10).await;
    assert_eq!(rig.nodes.containers("n1"), 0);
    rig.api.mend();
    rig.api.patch(
        "clusters",
        "",
        "a",
        &json!({"metadata": {"annotations": {"clusterprovisioner.rke.io/reconcile-at": "now"}}}),
    );
    rig.ready("a").await;
}

/// What a cluster keeps for good is compared before a run, whatever the source of the config is.
#[tokio::test(start_paused = true)]
async fn another_range_is_reported_in_the_config() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let range = |range: Value| {
        let services = json!({"kube-controller": {"cluster_cidr": range}});
        let patch = json!({"spec": {"config": {"services": services}}});
        rig.api.patch("clusters", "", "a", &patch);
    };
    range(json!("10.44.0.0/16"));
    let told = rig
        .until("a", |cluster| {
            reason(cluster, "ConfigValid") == "ImmutableField"
        })
        .await;
    assert_eq!(reason(&told, "Stalled"), "PreflightFailed");
    let text = message(&told, "ConfigValid");
    assert!(text.contains("cannot be changed to 10.44.0.0/16"), "{text}");
    range(json!(null));
    rig.until("a", |cluster| {
        settled(cluster) && reason(cluster, "ConfigValid") == "Valid"
    })
    .await;
}
