//! The objects that the operator writes, as tools that deploy from Git read them: kstatus (Flux, `kubectl apply --prune`,
//! `kustomize` and others), Argo CD with the health script of `deploy/gitops`, and `kubectl diff`.
//!
//! kstatus' rules, from the documentation of `sigs.k8s.io/cli-utils/pkg/kstatus`, for a kind that it does not know:
//!
//! 1. `metadata.deletionTimestamp` is set: `Terminating`.
//! 2. `status.observedGeneration` is there and is not `metadata.generation`: `InProgress`.
//! 3. The first of the conditions `Reconciling=True` and `Stalled=True` in the list: `InProgress` or `Failed`.
//! 4. The condition `Ready`: `True` is `Current`; `False` and `Unknown` are `InProgress`.
//! 5. None of these: `Current`.

use std::collections::BTreeMap;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use mlua::{Lua, Value as LuaValue};
use rke_operator::{
    api::Cluster,
    api::observed::ObservedCluster,
    cli::output::description,
    cli::output::{Page, Paint},
    facts::ContainerState,
};
use serde_json::{Value, json};

use crate::{
    fake_api::FakeApi,
    operator_rig::{Rig, clock, cluster, is, reason, settled, the_scheduler_is},
    sim::remote::{Purpose, SimRemote},
};

const SCRIPT: &str = include_str!("../../deploy/gitops/argocd-health.lua");

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
}

/// What kstatus computes.
fn kstatus(object: &Value) -> &'static str {
    let meta = &object["metadata"];
    if !meta["deletionTimestamp"].is_null() {
        return "Terminating";
    }
    let observed = &object["status"]["observedGeneration"];
    if !observed.is_null() && *observed != meta["generation"] {
        return "InProgress";
    }
    for condition in conditions(object).filter(|one| one["status"] == "True") {
        match condition["type"].as_str() {
            Some("Reconciling") => return "InProgress",
            Some("Stalled") => return "Failed",
            _ => {}
        }
    }
    let ready = conditions(object).find(|one| one["type"] == "Ready");
    match ready.and_then(|ready| ready["status"].as_str()) {
        Some("False" | "Unknown") => "InProgress",
        _ => "Current",
    }
}

/// As Argo CD hands an object to a script: without what is null.
fn to_lua(lua: &Lua, value: &Value) -> LuaValue {
    match value {
        Value::Null => LuaValue::Nil,
        Value::Bool(flag) => LuaValue::Boolean(*flag),
        Value::Number(number) => LuaValue::Number(number.as_f64().unwrap()),
        Value::String(text) => LuaValue::String(lua.create_string(text).unwrap()),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_lua(lua, item));
            LuaValue::Table(lua.create_sequence_from(items).unwrap())
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, field)| (name.as_str(), to_lua(lua, field)));
            LuaValue::Table(lua.create_table_from(fields).unwrap())
        }
    }
}

/// What Argo CD shows: the health, and the message.
fn argo(object: &Value) -> (String, String) {
    let lua = Lua::new();
    lua.globals().set("obj", to_lua(&lua, object)).unwrap();
    let result: mlua::Table = lua.load(SCRIPT).eval().unwrap();
    (
        result.get("status").unwrap(),
        result.get("message").unwrap(),
    )
}

/// What Flux computes with the expressions of `deploy/gitops`: the first that is true, in this order. One that names a field
/// that is not there has no result, and Flux waits.
fn flux(object: &Value) -> &'static str {
    let kustomization: Value =
        serde_saphyr::from_str(include_str!("../../deploy/gitops/flux-kustomization.yaml"))
            .unwrap();
    let check = &kustomization["spec"]["healthCheckExprs"][0];
    let mut context = cel::Context::default();
    for (name, value) in object.as_object().unwrap() {
        context.add_variable(name.as_str(), value).unwrap();
    }
    for (expression, result) in [
        ("inProgress", "InProgress"),
        ("failed", "Failed"),
        ("current", "Current"),
    ] {
        let program = cel::Program::compile(check[expression].as_str().unwrap()).unwrap();
        match program.execute(&context) {
            Ok(cel::Value::Bool(true)) => return result,
            Ok(cel::Value::Bool(false)) => {}
            _ => return "InProgress",
        }
    }
    "InProgress"
}

/// One state of an object, and what each tool must say about it.
struct Case {
    name: &'static str,
    object: Value,
    kstatus: &'static str,
    argo: &'static str,
    /// In Argo CD's message.
    says: &'static str,
}

fn check(cases: &[Case]) {
    for case in cases {
        let (health, message) = argo(&case.object);
        let seen = (kstatus(&case.object), health.as_str());
        assert_eq!(
            seen,
            (case.kstatus, case.argo),
            "{}: {message}: {:#}",
            case.name,
            case.object["status"]
        );
        assert!(message.contains(case.says), "{}: {message}", case.name);
        if case.object["kind"] == "Cluster" && case.kstatus != "Terminating" {
            let with_expressions = if case.name == "new" {
                "InProgress"
            } else {
                case.kstatus
            };
            assert_eq!(flux(&case.object), with_expressions, "{}", case.name);
        }
    }
}

fn patch(rig: &Rig, patch: &Value) {
    rig.api.patch("clusters", "", "a", patch);
}

fn asks_for_verbosity(rig: &Rig, level: &str) {
    let edit = json!({"services": {"kubelet": {"extra_args": {"v": level}}}});
    patch(rig, &json!({"spec": {"config": edit}}));
}

/// Whatever was written at any time: one of the two passing conditions at most, and `Current` only for a spec that is
/// applied or held back by a pause. A description of it has 50 lines at most.
fn holds_of_every_version(rig: &Rig) {
    for object in rig.api.history("clusters") {
        let passing = ["Reconciling", "Stalled"].map(|kind| is(&object, kind, "True"));
        assert_ne!(passing, [true, true], "{object:#}");
        let generation = &object["metadata"]["generation"];
        let applied = conditions(&object).any(|one| {
            one["type"] == "Provisioned"
                && one["status"] == "True"
                && one["observedGeneration"] == *generation
        });
        let paused = is(&object, "Paused", "True");
        if kstatus(&object) == "Current" && !object["status"].is_null() {
            assert!(applied || paused, "{object:#}");
        }
        argo(&object);
        let now = rig.api.now();
        let shown = ObservedCluster::read(&object, now);
        let text = description::render(
            &description::Description {
                cluster: &shown,
                events: Ok(&[]),
                kubeconfig: None,
                credentials: "c",
                namespace: "n",
                now,
            },
            Page {
                paint: Paint::OFF,
                columns: Some(80),
            },
        );
        assert!(text.lines().count() <= 50, "{text}");
    }
}

/// From its creation to its end.
#[tokio::test(start_paused = true)]
async fn each_state_of_a_life_is_understood_by_the_tools() {
    let api = FakeApi::new(clock());
    let new = api.plant("clusters", &cluster("a", "n1"));
    // It is not seen by kstatus that a controller will come (rule 5): docs/gitops.md has the expression that does.
    let mut cases = vec![Case {
        name: "new",
        object: new,
        kstatus: "Current",
        argo: "Progressing",
        says: "waits for the operator",
    }];
    let nodes = SimRemote::bare(&["n1"]);
    let halt = nodes.halt(Purpose::Up, 3);
    let rig = Rig::with(nodes, api, |_| {});
    halt.reached().await;
    let applying = rig
        .until("a", |object| !object["status"]["progress"].is_null())
        .await;
    cases.push(Case {
        name: "applying",
        object: applying,
        kstatus: "InProgress",
        argo: "Progressing",
        says: "Provisioning: ",
    });
    halt.lift();
    halt.go_on();
    cases.push(Case {
        name: "ready",
        object: rig.ready("a").await,
        kstatus: "Current",
        argo: "Healthy",
        says: "the cluster serves",
    });
    asks_for_verbosity(&rig, "4");
    cases.push(Case {
        name: "edited",
        object: rig.cluster("a"),
        kstatus: "InProgress",
        argo: "Progressing",
        says: "has not seen the last edit",
    });
    let rolling = rig
        .until("a", |object| reason(object, "Reconciling") == "RollingOut")
        .await;
    cases.push(Case {
        name: "rolling out",
        object: rolling,
        kstatus: "InProgress",
        argo: "Progressing",
        says: "RollingOut: ",
    });
    rig.ready("a").await;
    patch(
        &rig,
        &json!({"spec": {"config": {"kubernetes_version": "v0.1.0"}}}),
    );
    let failed = rig.until("a", |object| is(object, "Stalled", "True")).await;
    cases.push(Case {
        name: "invalid",
        object: failed,
        kstatus: "Failed",
        argo: "Degraded",
        says: "InvalidConfig: ",
    });
    patch(
        &rig,
        &json!({"spec": {"config": {"kubernetes_version": null}}}),
    );
    rig.ready("a").await;
    rig.nodes.kill("n1");
    let down = rig
        .until("a", |object| {
            settled_or_retried(object) && is(object, "NodesReachable", "False")
        })
        .await;
    cases.push(Case {
        name: "down",
        object: down,
        kstatus: "InProgress",
        argo: "Degraded",
        says: "Unreachable: ",
    });
    rig.nodes.revive("n1");
    rig.ready("a").await;
    let halt = rig.nodes.halt(Purpose::Removal, 1);
    rig.api.delete("clusters", "", "a");
    cases.push(Case {
        name: "deleted",
        object: rig.cluster("a"),
        kstatus: "Terminating",
        argo: "Progressing",
        says: "waits for the operator to delete it",
    });
    halt.reached().await;
    let deleting = rig
        .until("a", |object| is(object, "Deleting", "True"))
        .await;
    cases.push(Case {
        name: "deleting",
        object: deleting,
        kstatus: "Terminating",
        argo: "Progressing",
        says: "Removing: ",
    });
    halt.lift();
    halt.go_on();
    rig.gone("a").await;
    check(&cases);
    holds_of_every_version(&rig);
}

/// The last word of a visit that could not do what it wanted.
fn settled_or_retried(object: &Value) -> bool {
    ["HostUnavailable", "Retrying"].contains(&reason(object, "Reconciling").as_str())
        || settled(object)
}

/// What waits for a person on purpose is no failure and not done; what needs one is.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_person_is_told_from_what_failed() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let mut cases = Vec::new();
    patch(&rig, &json!({"spec": {"drift": "Report"}}));
    rig.until("a", settled).await;
    the_scheduler_is(ContainerState::Exited(1), &rig);
    let drifted = rig
        .until("a", |object| reason(object, "UpToDate") == "Drifted")
        .await;
    cases.push(Case {
        name: "drift is reported",
        object: drifted,
        kstatus: "InProgress",
        argo: "Degraded",
        says: "ComponentDown: ",
    });
    the_scheduler_is(ContainerState::Running, &rig);
    patch(&rig, &json!({"spec": {"changes": "Approve"}}));
    rig.ready("a").await;
    asks_for_verbosity(&rig, "4");
    let waits = rig
        .until("a", |object| {
            reason(object, "UpToDate") == "AwaitingApproval" && settled_but(object)
        })
        .await;
    cases.push(Case {
        name: "awaiting approval",
        object: waits,
        kstatus: "InProgress",
        argo: "Suspended",
        says: "approve=",
    });
    patch(&rig, &json!({"spec": {"paused": true}}));
    let paused = rig
        .until("a", |object| {
            is(object, "Paused", "True") && settled_but(object)
        })
        .await;
    cases.push(Case {
        name: "paused with an edit",
        object: paused,
        kstatus: "InProgress",
        argo: "Suspended",
        says: "Paused: ",
    });
    patch(
        &rig,
        &json!({"spec": {"paused": false, "changes": "Automatic"}}),
    );
    rig.ready("a").await;
    patch(&rig, &json!({"spec": {"paused": true}}));
    let paused = rig
        .until("a", |object| {
            is(object, "Paused", "True") && settled_but(object)
        })
        .await;
    cases.push(Case {
        name: "paused",
        object: paused,
        kstatus: "Current",
        argo: "Suspended",
        says: "Paused: ",
    });
    patch(
        &rig,
        &json!({"spec": {"paused": false, "deletionProtection": true}}),
    );
    rig.ready("a").await;
    rig.api.delete("clusters", "", "a");
    let held = rig.until("a", |object| is(object, "Stalled", "True")).await;
    cases.push(Case {
        name: "protected",
        object: held,
        kstatus: "Terminating",
        argo: "Degraded",
        says: "DeletionProtected: ",
    });
    check(&cases);
    holds_of_every_version(&rig);
}

/// The present generation was seen, and no run is under way.
fn settled_but(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
        && !is(object, "Reconciling", "True")
}

/// A Kubeconfig is there, or waits for its cluster, or cannot be had.
#[tokio::test(start_paused = true)]
async fn the_states_of_a_kubeconfig_are_understood_by_the_tools() {
    let nodes = SimRemote::bare(&["n1"]);
    let halt = nodes.halt(Purpose::Up, 3);
    let rig = Rig::with(nodes, FakeApi::new(clock()), |_| {});
    rig.create(&cluster("a", "n1")).await;
    halt.reached().await;
    let of = async |rig: &Rig, word: &'static str| {
        let there = move |object: Option<&Value>| {
            object.is_some_and(|object| reason(object, "Ready") == word)
        };
        rig.api.until("kubeconfigs", "", "a", there).await.unwrap()
    };
    let waits = of(&rig, "WaitingForCluster").await;
    halt.lift();
    halt.go_on();
    rig.ready("a").await;
    let issued = of(&rig, "Issued").await;
    let mut taken = issued.clone();
    taken["status"]["conditions"][0] = json!({"type": "Ready", "status": "False", "reason": "SecretNotOurs", "message": "it is another owner's"});
    check(&[
        Case {
            name: "waits",
            object: waits,
            kstatus: "InProgress",
            argo: "Progressing",
            says: "WaitingForCluster",
        },
        Case {
            name: "issued",
            object: issued,
            kstatus: "Current",
            argo: "Healthy",
            says: "Issued",
        },
        Case {
            name: "taken",
            object: taken,
            kstatus: "InProgress",
            argo: "Degraded",
            says: "another owner's",
        },
    ]);
}

/// A `ClusterOperation` waits, for a person or not, and ends well or not.
#[tokio::test(start_paused = true)]
async fn the_states_of_an_operation_are_understood_by_the_tools() {
    let rig = Rig::start(&["n1"]);
    rig.create(&cluster("a", "n1")).await;
    rig.ready("a").await;
    let of = async |name: &str, spec: Value, word: &'static str| {
        let there = move |object: Option<&Value>| {
            object.is_some_and(|object| reason(object, "Complete") == word)
        };
        let object = json!({"metadata": {"name": name}, "spec": spec});
        rig.api.plant("clusteroperations", &object);
        let found = rig.api.until("clusteroperations", "", name, there);
        found.await.unwrap()
    };
    let spec = |cluster: &str, more: Value| {
        let mut spec = more;
        spec["clusterRef"] = json!({"name": cluster});
        spec
    };
    let rotation = |stage: &str| json!({"type": "RotateCA", "rotateCA": {"stage": stage}});
    let encryption = json!({"type": "RotateEncryptionKey"});
    let waits = of("waits", spec("b", rotation("Start")), "Queued").await;
    let done = of("done", spec("a", rotation("Start")), "Succeeded").await;
    let refused = of("refused", spec("a", encryption), "NotPossible").await;
    let asks = of("asks", spec("a", rotation("Complete")), "AwaitingApproval").await;
    let case = |name, object, kstatus, argo, says| Case {
        name,
        object,
        kstatus,
        argo,
        says,
    };
    check(&[
        case("waits", waits, "InProgress", "Progressing", "no Cluster"),
        case("done", done, "Current", "Healthy", "Succeeded"),
        case("refused", refused, "Failed", "Degraded", "NotPossible"),
        case("asks", asks, "InProgress", "Suspended", "status.plan"),
    ]);
}

/// Each field that a script reads may be missing or of another type.
#[test]
fn a_health_script_fails_on_no_object() {
    for status in [
        json!(null),
        json!({}),
        json!({"conditions": []}),
        json!({"conditions": [{}, {"type": "Ready"}]}),
    ] {
        for kind in ["Cluster", "Kubeconfig", "ClusterOperation"] {
            for deleted in [json!(null), json!("2030-01-01T00:00:00Z")] {
                let object = json!({"kind": kind, "metadata": {"name": "a", "deletionTimestamp": deleted}, "status": status});
                let (health, message) = argo(&object);
                assert_eq!(health, "Progressing", "{object}");
                assert!(!message.is_empty(), "{object}");
            }
        }
    }
}

/// What is pasted into Argo CD is the script that is tested.
#[test]
fn the_patch_of_argo_cd_has_the_script_for_each_kind() {
    let patch: Value =
        serde_saphyr::from_str(include_str!("../../deploy/gitops/argocd-cm.yaml")).unwrap();
    let data: BTreeMap<String, String> = serde_json::from_value(patch["data"].clone()).unwrap();
    let keys: Vec<&str> = data.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["Cluster", "ClusterOperation", "Kubeconfig"]
            .map(|kind| format!("resource.customizations.health.clusterprovisioner.rke.io_{kind}"))
    );
    for script in data.values() {
        assert_eq!(script.trim_end(), SCRIPT.trim_end());
    }
    assert_eq!(patch["metadata"]["name"], "argocd-cm");
}

/// A tool that applies the same manifest again changes nothing, whatever the operator wrote meanwhile: its finalizer and
/// annotations are its own, and it writes nothing into the spec.
#[tokio::test(start_paused = true)]
async fn a_diff_of_the_manifest_is_clean_in_each_state() {
    let rig = Rig::start(&["n1"]);
    let clusters: Api<DynamicObject> = Api::all_with(
        rig.api.client(),
        &kube::api::ApiResource::erase::<Cluster>(&()),
    );
    let manifest = cluster("a", "n1");
    let params = PatchParams::apply("flux");
    clusters
        .patch("a", &params, &Patch::Apply(&manifest))
        .await
        .unwrap();
    let is_clean = async |state: &str| {
        // What the operator is about to write is written.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let live = rig.cluster("a");
        let would = clusters
            .patch("a", &params.clone().dry_run(), &Patch::Apply(&manifest))
            .await
            .unwrap();
        assert_eq!(serde_json::to_value(would).unwrap(), live, "{state}");
        assert_eq!(live["spec"], manifest["spec"], "{state}");
        let annotations = live["metadata"]["annotations"].as_object();
        let ours = |name: &String| name.starts_with("clusterprovisioner.rke.io/");
        assert!(
            annotations.is_none_or(|all| all.keys().all(ours)),
            "{state}"
        );
    };
    let halt = rig.nodes.halt(Purpose::Up, 3);
    halt.reached().await;
    is_clean("applying").await;
    halt.lift();
    halt.go_on();
    rig.ready("a").await;
    is_clean("ready").await;
    the_scheduler_is(ContainerState::Exited(1), &rig);
    rig.event("Healed").await;
    is_clean("healed").await;
    rig.nodes.kill("n1");
    rig.until("a", |object| is(object, "NodesReachable", "False"))
        .await;
    is_clean("down").await;
}
