//! `-o json`: what each command prints is what its schema says, and a command that fails prints how it ended as its last
//! object, with the exit code of the process. The examples of the documentation are real output:
//! `UPDATE_JSON=1 cargo nextest run --test it cli_json::examples` writes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
    process::Stdio,
    sync::OnceLock,
};

use jiff::Timestamp;
use rke_operator::{
    api::observed::ObservedCluster,
    cli::{
        output::{
            json::{self, Ended},
            results::{ClusterList, NamedResult, PlanResult, SaveResult},
            schema::{Prints, ROWS, Row, schema},
        },
        snapshot_list::{OnNode, Snapshots},
    },
    converge::Goal,
    error::{ErrorClass, Obstacle},
    etcd::defrag::{Defragmented, Shrunk},
    facts::Unreachable,
    model::NodeName,
    snapshots::{
        Answer, SavedOnce,
        record::{Cause, Grade, Listed, Meta, Proof},
    },
    status::{Served, Status, certificates},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    cli_clusters,
    cli_node::Site,
    cli_status,
    cli_support::{Context, Ran},
    joint_properties::{block_on, runner},
    status::{five, made, of, one_of_each, seen},
};

/// Nodes where nothing answers.
const NOWHERE: &str = "\
cluster_name: a
nodes:
- {address: 127.0.0.1, port: 1, user: rke, hostname_override: n1, role: [controlplane, etcd, worker]}
- {address: 127.0.0.2, port: 1, user: rke, hostname_override: n2, role: [controlplane, etcd, worker]}
network: {plugin: flannel}
ingress: {provider: none}
services: {etcd: {snapshot: false}}
";

fn row(command: &str) -> &'static Row {
    let row = ROWS.iter().find(|row| row.command == command);
    row.unwrap_or_else(|| panic!("{command} has no row"))
}

/// The schema of a command. A field that it does not name is an error here; programs are to ignore it.
fn validator(row: &Row) -> &'static jsonschema::Validator {
    static ALL: OnceLock<BTreeMap<String, jsonschema::Validator>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut strict = schema();
        let mut parts = BTreeSet::new();
        part_of_others(&strict, &mut parts);
        for (name, definition) in strict["$defs"].as_object_mut().unwrap() {
            let is_type = name.starts_with(|first: char| first.is_ascii_uppercase());
            let is_whole = is_type && !parts.contains(name);
            if is_whole && let Some(definition) = definition.as_object_mut() {
                definition.insert("unevaluatedProperties".to_owned(), false.into());
            }
        }
        let of = |row: &Row| {
            let mut one = strict.clone();
            one["$ref"] = format!("#/$defs/{}", row.definition()).into();
            let validator = jsonschema::validator_for(&one).expect("a schema");
            (row.definition(), validator)
        };
        ROWS.iter().map(of).collect()
    });
    &all[&row.definition()]
}

/// Types whose fields are among those of another object.
fn part_of_others(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let whole = fields.get("$ref").and_then(Value::as_str);
            if let Some(whole) = whole.filter(|_| fields.contains_key("properties")) {
                found.insert(whole.trim_start_matches("#/$defs/").to_owned());
            }
            fields
                .values()
                .for_each(|field| part_of_others(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| part_of_others(item, found)),
        _ => {}
    }
}

#[track_caller]
fn validate(row: &Row, value: &Value) {
    let errors = validator(row).iter_errors(value);
    let errors: Vec<String> = errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{}: {errors:#?}\n{value:#}", row.command);
}

fn is_ended(value: &Value) -> bool {
    value["event"] == "ended"
}

/// What a command printed, each object checked against the schema: events with how it ended, a result, or how it ended.
#[track_caller]
pub(crate) fn checked(command: &str, ran: &Ran) -> Vec<Value> {
    let row = row(command);
    let stream = serde_json::Deserializer::from_str(&ran.stdout).into_iter();
    let printed: Result<Vec<Value>, _> = stream.collect();
    let printed = printed.unwrap_or_else(|error| panic!("{command}: {error}: {ran}"));
    for value in &printed {
        validate(row, value);
    }
    let last = printed
        .last()
        .unwrap_or_else(|| panic!("{command} printed nothing: {ran}"));
    let ended = printed.iter().filter(|value| is_ended(value)).count();
    match row.prints {
        Prints::Events => {
            assert_eq!(ran.stdout.lines().count(), printed.len(), "{ran}");
            assert!(ended == 1 && is_ended(last), "{command}: {ran}");
        }
        Prints::Result(_) => {
            assert_eq!(printed.len(), 1, "{command}: {ran}");
            assert!(ended == 0 || ran.code != Some(0), "{command}: {ran}");
        }
    }
    if is_ended(last) {
        assert_eq!(last["exitCode"], json!(ran.code), "{command}: {ran}");
    }
    printed
}

/// A command line for each row.
fn arguments(row: &Row) -> Vec<&'static str> {
    let mut words: Vec<&str> = row.command.split(' ').collect();
    words.extend_from_slice(match row.name() {
        "up" | "cert rotate" | "encrypt rotate-key" | "etcd recover" => &["--yes"],
        "remove" => &["--force"],
        "etcd snapshot-restore" => &["--name", "a", "--yes"],
        "node reboot" | "node reset" => &["n1", "--yes"],
        "images load" => &["bundle.tar"],
        "etcd verify" | "etcd snapshot-delete" => &["--name", "a"],
        _ => &[],
    });
    words.extend(["-o", "json"]);
    words
}

/// Runs every command, and gives how each ended that failed.
fn each(context: &Context, more: &[&str]) -> BTreeMap<&'static str, Value> {
    let mut failed = BTreeMap::new();
    for row in ROWS {
        let ran = context.run(&[&arguments(row)[..], more].concat());
        let mut printed = checked(row.command, &ran);
        let last = printed.pop().unwrap();
        if is_ended(&last) {
            assert_eq!(last["result"], "failed", "{}: {ran}", row.command);
            let message = last["message"].as_str().unwrap();
            assert!(!message.is_empty(), "{}: {ran}", row.command);
            assert!(ran.stderr.contains("error: "), "{}: {ran}", row.command);
            failed.insert(row.command, last);
        }
    }
    failed
}

/// All but `version`, which has a result.
#[track_caller]
fn all_but(failed: &BTreeMap<&str, Value>, results: &[&str]) {
    let with_result: Vec<&str> = ROWS.iter().map(|row| row.command).collect();
    let with_result = with_result.into_iter();
    let mut with_result: Vec<&str> = with_result
        .filter(|command| !failed.contains_key(command))
        .collect();
    let mut results = results.to_vec();
    with_result.sort_unstable();
    results.sort_unstable();
    assert_eq!(with_result, results);
}

#[test]
fn every_command_without_a_config_prints_how_it_ended() {
    let failed = each(&Context::new(), &[]);
    all_but(&failed, &["version"]);
    for (command, ended) in failed {
        assert_eq!(ended["exitCode"], 1, "{command}");
        assert_eq!(ended["class"], "user", "{command}");
        assert_ne!(ended["hints"], json!([]), "{command}");
    }
}

#[test]
fn every_command_with_a_config_that_is_wrong_prints_how_it_ended() {
    let context = Context::with(&NOWHERE.replace("plugin: flannel", "plugni: hunter2"));
    let failed = each(&context, &[]);
    all_but(&failed, &["version"]);
    for (command, ended) in failed {
        assert!(!ended.to_string().contains("hunter2"), "{command}");
        // These read the state first, or no config.
        if !["status --all", "cert info"].contains(&command) {
            assert_eq!(ended["problems"][0]["path"], "network.plugni", "{command}");
        }
    }
}

#[test]
fn every_command_without_a_state_prints_how_it_ended() {
    let failed = each(&Context::with(NOWHERE), &[]);
    all_but(
        &failed,
        &[
            "version",
            "validate",
            "validate --connect",
            "doctor",
            "status",
            "etcd members",
            "images list",
        ],
    );
    for command in ["etcd snapshot-save", "etcd snapshot-list", "cert info"] {
        let message = failed[command]["message"].as_str().unwrap();
        assert!(
            message.contains("no cluster state found"),
            "{command}: {message}"
        );
    }
}

#[test]
fn every_command_without_a_node_that_answers_prints_how_it_ended() {
    let context = Context::with(NOWHERE);
    cli_status::keep(&context, &cli_status::state());
    let failed = each(&context, &[]);
    all_but(
        &failed,
        &[
            "version",
            "validate",
            "validate --connect",
            "doctor",
            "status",
            "etcd members",
            "etcd snapshot-list",
            "cert info",
            "images list",
        ],
    );
    for command in ["up", "plan", "etcd snapshot-save", "etcd defrag"] {
        assert_eq!(
            failed[command]["exitCode"], 2,
            "{command}: {}",
            failed[command]
        );
    }
}

#[test]
fn every_command_line_that_is_wrong_prints_how_it_ended() {
    let failed = each(&Context::new(), &["--no-such-flag"]);
    all_but(&failed, &[]);
    for (command, ended) in failed {
        assert_eq!(ended["exitCode"], 1, "{command}");
        let message = "unexpected argument '--no-such-flag' found";
        assert_eq!(ended["message"], message, "{command}");
    }
    let help = Context::new().run(&["status", "-o", "json", "--help"]);
    assert_eq!(help.code, Some(0), "{help}");
    assert!(!help.stdout.contains("ended"), "{help}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_as_the_schema_says() {
    let site = Site::new().await;
    for command in [
        "plan",
        "validate",
        "validate --connect",
        "doctor",
        "status",
        "etcd members",
        "images list",
        "version",
    ] {
        let ran = site.run(&arguments(row(command))).await;
        let printed = checked(command, &ran);
        assert!(!is_ended(&printed[0]), "{ran}");
    }
    cli_status::keep(&site.context, &cli_status::state());
    for command in ["cert info", "etcd snapshot-list"] {
        let ran = site.run(&arguments(row(command))).await;
        let printed = checked(command, &ran);
        assert!(!is_ended(&printed[0]), "{ran}");
    }
}

/// The fake node has no component that comes up: the run begins, and ends with an error or without that node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_as_the_schema_says() {
    let site = Site::new().await;
    let ran = site.run(&["up", "--yes", "-o", "json"]).await;
    let printed = checked("up", &ran);
    let begun = printed.iter().any(|event| event["event"] == "stepStarted");
    assert!(begun, "{ran}");
}

/// Ctrl-C leaves a last object, too: of a result that was not printed, and after the lines of `--watch`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_is_how_it_ended() {
    let site = Site::new().await;
    let args = ["status", "--watch", "1", "-o", "json"];
    let mut command = tokio::process::Command::from(site.context.command(&args));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    validate(row("status"), &serde_json::from_str(&first).unwrap());
    let pid = child.id().unwrap().to_string();
    let mut kill = tokio::process::Command::new("kill");
    assert!(kill.args(["-INT", &pid]).status().await.unwrap().success());
    let mut last = first;
    while let Some(line) = lines.next_line().await.unwrap() {
        last = line;
    }
    let last: Value = serde_json::from_str(&last).unwrap();
    validate(row("status"), &last);
    let stopped = json!({"event": "ended", "result": "stopped", "exitCode": 130});
    assert_eq!(last, stopped);
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
}

mod examples {
    use super::*;

    /// Compares an example of the documentation with what is printed now.
    fn is(name: &str, text: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = root.join("src/cli/output/examples").join(name);
        if std::env::var_os("UPDATE_JSON").is_some() {
            fs::write(&path, text).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        let update =
            "`UPDATE_JSON=1 cargo nextest run --test it cli_json::examples`, then `make docs`";
        assert_eq!(there, text, "{name} is stale: {update}");
    }

    fn result(command: &str, value: &Value) {
        validate(row(command), value);
        let name = row(command).definition();
        is(&format!("{name}.json"), &format!("{value:#}\n"));
    }

    fn value(result: &impl Serialize) -> Value {
        serde_json::to_value(result).unwrap()
    }

    fn parsed(ran: &Ran) -> Value {
        serde_json::from_str(&ran.stdout).unwrap()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn of_the_command_line() {
        let context = Context::with(&NOWHERE.replace("port: 1,", "port: 22,"));
        result(
            "validate",
            &parsed(&context.run(&arguments(row("validate")))),
        );
        let mut images = parsed(&context.run(&arguments(row("images list"))));
        let shown = ["hardened-coredns", "hardened-etcd"];
        images["images"].as_array_mut().unwrap().retain(|image| {
            let name = image["name"].as_str().unwrap();
            shown.iter().any(|part| name.contains(part))
        });
        result("images list", &images);
        // One of every release: the page does not change with it.
        let mut version = parsed(&context.run(&arguments(row("version"))));
        version["rkeOperator"] = "v0.1.0".into();
        result("version", &version);
        let failed = Context::new().run(&["status", "-o", "json"]);
        is("failed.json", &format!("{:#}\n", parsed(&failed)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_doctor() {
        let site = Site::new().await;
        site.node.docker().has_every_image = Some(1);
        site.node.docker().info["NCPU"] = json!(1);
        let ran = site.run(&["doctor", "--no-write", "-o", "json"]).await;
        let mut told = parsed(&ran);
        told["nodes"][0]["address"] = "192.0.2.1:22".into();
        told["nodes"][0]["roundTripMicroseconds"] = 830.into();
        result("doctor", &one_of_each(&told));
    }

    #[test]
    fn of_a_cluster() {
        block_on(async {
            let runner = made(&five(), 5).await;
            let inspection = seen(&runner, &five()).await;
            let status = Status::of(&inspection.seen());
            let mut shown = value(&status);
            shown["cluster"]["id"] = "0f1e2d3c4b5a69788796a5b4c3d2e1f0".into();
            result("status", &one_of_each(&shown));
            result("etcd members", &one_of_each(&value(&status.etcd)));
            let desired = inspection.desired.as_ref();
            let all = certificates(&inspection.actual, desired, &Served::new(), inspection.now);
            let of_node = all.iter().find(|one| one.node.is_some());
            result(
                "cert info",
                &value(&of_node.into_iter().collect::<Vec<_>>()),
            );
        });
    }

    #[test]
    fn of_a_run() {
        block_on(async {
            let wish = of(&[]);
            let runner = runner(1);
            let intent = wish.intent();
            let goal = Goal::Up(&intent);
            let plan = runner.would(&goal).await.unwrap();
            let mut shown = value(&PlanResult::of(&plan));
            let stages = shown["stages"].as_array_mut().unwrap();
            stages.retain(|stage| stage["queues"][0]["node"].is_string());
            // What an action holds is not shortened.
            stages.truncate(1);
            let queues = stages[0]["queues"].as_array_mut().unwrap();
            queues.truncate(1);
            queues[0]["steps"].as_array_mut().unwrap().truncate(1);
            result("plan", &shown);
            let (_, events) = runner.converge_told(&goal).await;
            // The first step, and the end.
            let step = events
                .iter()
                .position(|event| value(event)["event"] == "stepFinished");
            let shown = events[..=step.unwrap()].iter().chain(events.last());
            let mut text = String::new();
            for event in shown {
                let mut event = value(event);
                validate(row("up"), &event);
                if event.get("took").is_some() {
                    event["took"] = 1240.into();
                }
                let _ = writeln!(text, "{event}");
            }
            let ended = Ended::Converged {
                changed: true,
                kubeconfig: Some("kube_config_cluster.yml".to_owned()),
                last_snapshot: None,
            };
            let mut last = Vec::new();
            json::ended(&mut last, &ended).unwrap();
            text.push_str(std::str::from_utf8(&last).unwrap());
            is("events.jsonl", &text);
        });
    }

    #[test]
    fn of_clusters() {
        let mut object = cli_clusters::healthy("production");
        object["metadata"]["generation"] = 1.into();
        object["metadata"]["creationTimestamp"] = "2029-12-31T00:00:00Z".into();
        object["status"]["lastSurvey"] = "2029-12-31T23:58:00Z".into();
        let cluster = ObservedCluster::read(&object, time("2030-01-01T00:00:00Z"));
        let clusters = vec![cluster];
        result("status --all", &value(&ClusterList { clusters }));
    }

    fn meta() -> Meta {
        Meta {
            format: 1,
            cluster_id: "0f1e2d3c4b5a69788796a5b4c3d2e1f0".parse().unwrap(),
            cluster_name: "a".to_owned(),
            node: "n1".into(),
            member: "8e9e05c52164694d".to_owned(),
            etcd_cluster_id: "cdf818194e3a8c32".to_owned(),
            etcd_version: "3.6.7".to_owned(),
            kubernetes_version: "v1.34.4".to_owned(),
            taken_at: time("2030-01-01T00:00:00Z"),
            cause: Cause::Scheduled,
            revision: 41_220,
            revision_after: 41_224,
            keys: 812,
            bytes: 7_340_064,
            sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned(),
            operator: "v0.1.0".to_owned(),
        }
    }

    fn proof() -> Proof {
        Proof {
            grade: Grade::Proven,
            at: time("2030-01-01T00:00:09Z"),
            by: "n1".into(),
            etcd_version: Some("3.6.7".to_owned()),
            revision: Some(41_223),
            keys: Some(812),
            seconds: 4,
            why: None,
        }
    }

    fn silent() -> BTreeMap<NodeName, Unreachable> {
        let silent = Unreachable {
            alike: None,
            class: ErrorClass::Host,
            why: "cannot reach node `n2` (192.0.2.2): connection refused".to_owned(),
            hints: vec!["is sshd running on it?".to_owned()],
            obstacle: Obstacle::Silence,
        };
        BTreeMap::from([("n2".into(), silent)])
    }

    #[test]
    fn of_snapshots() {
        let name = "rke_etcd_snapshot_2030-01-01T00:00:00Z";
        let path = format!("/opt/rke/etcd-snapshots/{name}.zip");
        let saved = SavedOnce {
            path,
            bytes: 2_097_152,
            sha256: meta().sha256,
            grade: Some(Grade::Proven),
            why: None,
            copied: None,
            not_copied: None,
        };
        let save = SaveResult {
            name,
            saved: BTreeMap::from([("n1".into(), saved)]),
            failed: silent(),
        };
        result("etcd snapshot-save", &value(&save));
        let listed = Listed {
            file: format!("{name}.zip"),
            bytes: 2_097_152,
            meta: Some(meta()),
            proof: Some(proof()),
        };
        let on = OnNode {
            next: Some(time("2030-01-01T06:00:00Z")),
            failure: None,
            snapshots: vec![listed],
            copy_failure: None,
            copies: None,
        };
        let list = Snapshots {
            nodes: BTreeMap::from([("n1".into(), on)]),
            bucket: None,
            unreachable: silent(),
        };
        result("etcd snapshot-list", &value(&list));
        for (command, answer) in [
            ("etcd verify", Answer::Verified(proof())),
            ("etcd snapshot-delete", Answer::Deleted),
        ] {
            let named = NamedResult {
                name,
                nodes: BTreeMap::from([("n1".into(), answer)]),
                failed: BTreeMap::new(),
            };
            result(command, &value(&named));
        }
    }

    #[test]
    fn of_databases() {
        let shrunk = Shrunk {
            node: "n1".into(),
            before: 734_003_200,
            after: 52_428_800,
        };
        let done = Defragmented {
            members: vec![shrunk],
            disarmed: 0,
        };
        result("etcd defrag", &value(&done));
    }
}
