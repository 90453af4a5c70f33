//! What is shipped for monitoring, with a real Prometheus: it scrapes the operator over HTTPS with a token, each
//! expression of the dashboard and of the alerts gives data once, and each alert fires once.

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::real::{
    operator::{Management, NAMESPACE},
    tell,
};

const MINUTES: Duration = Duration::from_secs(240);

/// Enough to take every slot there is, so that others wait.
const HUNG: usize = 60;

/// The shipped rules as Prometheus itself reads them: `groups`.
fn rules() -> Value {
    let shipped = include_str!("../../deploy/monitoring/alerts.yaml");
    let shipped: Value = serde_saphyr::from_str(shipped).expect("YAML");
    json!({"groups": shipped["spec"]["groups"]})
}

/// The same, each with the time that a fault must last taken away.
fn rules_at_once() -> Value {
    let mut rules = rules();
    for rule in rules["groups"][0]["rules"].as_array_mut().expect("rules") {
        rule["for"] = json!("0s");
    }
    rules
}

/// The names of the alerts.
fn alerts() -> BTreeSet<String> {
    let rules = rules();
    let rules = rules["groups"][0]["rules"].as_array().expect("rules");
    let names = rules.iter().filter_map(|rule| rule["alert"].as_str());
    names.map(str::to_owned).collect()
}

/// The expressions of the dashboard.
fn panels() -> BTreeSet<String> {
    let board = include_str!("../../deploy/monitoring/dashboard.json");
    let board: Value = serde_json::from_str(board).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let expressions = targets.filter_map(|target| target["expr"].as_str());
    expressions.map(str::to_owned).collect()
}

/// The folder with Debian's `prometheus` and `promtool`.
fn programs() -> PathBuf {
    lab::prometheus(&mut std::io::stderr()).expect("Debian's prometheus")
}

/// Each alert with the series that lets it fire, and when: its own `for` is over then, and was not before.
const FAULTS: [(&str, &str, &str, &str, &str); 9] = [
    (
        "RkeClusterNotAvailable",
        r#"rke_cluster_condition{name="a",type="Available",status="False"}"#,
        "1+0x300",
        "9m",
        "11m",
    ),
    (
        "RkeClusterStalled",
        r#"rke_cluster_condition{name="a",type="Stalled",status="True"}"#,
        "1+0x300",
        "4m",
        "6m",
    ),
    (
        "RkeClusterDeletionOverdue",
        r#"rke_cluster_condition_reason{name="a",type="Deleting",reason="DeletionOverdue"}"#,
        "1+0x300",
        "4m",
        "6m",
    ),
    (
        "RkeClusterOrphaned",
        "rke_clusters_orphaned_total",
        "0+0x10 1+0x300",
        "10m",
        "12m",
    ),
    // Fifteen days at first; it is not renewed.
    (
        "RkeCertificateExpiring",
        r#"rke_cluster_certificate_not_after_timestamp_seconds{name="a",component="etcd"}"#,
        "1296000+0x3000",
        "24h30m",
        "25h30m",
    ),
    (
        "RkeNotBackedUp",
        r#"rke_cluster_condition{name="a",type="BackedUp",status="False"}"#,
        "1+0x300",
        "29m",
        "31m",
    ),
    (
        "RkeSurveyStale",
        r#"rke_cluster_last_survey_timestamp_seconds{name="a"}"#,
        "0+0x300",
        "69m",
        "75m",
    ),
    ("RkeNoLeader", "rke_leader", "0+0x300", "4m", "6m"),
    (
        "RkeSlotsExhausted",
        r#"rke_slots{class="checks",state="waiting"}"#,
        "1+0x300",
        "29m",
        "31m",
    ),
];

/// `promtool` with the rules as they are shipped: what they wait for, and no longer.
#[test]
fn each_alert_fires_when_its_fault_has_lasted() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, content: &Value| {
        fs::write(folder.path().join(name), content.to_string()).expect("a file");
    };
    write("rules.json", &rules());
    let tests: Vec<Value> = FAULTS
        .iter()
        .map(|(alert, series, values, before, after)| {
            let firing = json!({"eval_time": after, "alertname": alert});
            // A test that names no alert expects none.
            json!({
                "interval": "1m",
                "input_series": [{"series": series, "values": values}],
                "promql_expr_test": [
                    {"expr": format!("count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})"),
                     "eval_time": firing["eval_time"], "exp_samples": [{"labels": "{}", "value": 1}]},
                    {"expr": format!("count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})"),
                     "eval_time": before, "exp_samples": []},
                ],
            })
        })
        .collect();
    let named: BTreeSet<String> = FAULTS.iter().map(|row| row.0.to_owned()).collect();
    assert_eq!(named, alerts(), "an alert without a fault");
    write(
        "tests.json",
        &json!({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests}),
    );
    let promtool = |args: &[&str]| {
        let run = Command::new(programs().join("promtool"))
            .args(args)
            .current_dir(folder.path())
            .output()
            .expect("promtool runs");
        let said = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
        assert!(run.status.success(), "{said}");
        tell(&said);
    };
    promtool(&["check", "rules", "rules.json"]);
    promtool(&["test", "rules", "tests.json"]);
}

/// A Prometheus that scrapes one target; ended when it goes out of scope.
struct Prometheus {
    child: Child,
    url: String,
    /// Expressions that have not given data yet.
    silent: BTreeSet<String>,
    /// Alerts that have not fired yet.
    quiet: BTreeSet<String>,
}

impl Prometheus {
    fn start(folder: &Path, target: &str, token: &str) -> Self {
        let port = free_port();
        fs::write(folder.join("rules.json"), rules_at_once().to_string()).expect("the rules");
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.json"],
            "scrape_configs": [{
                "job_name": "rke-operator-metrics",
                "scheme": "https",
                "tls_config": {"insecure_skip_verify": true},
                "authorization": {"credentials": token},
                "static_configs": [{"targets": [target]}],
            }],
        });
        fs::write(folder.join("prometheus.json"), config.to_string()).expect("the config");
        let listen = format!("127.0.0.1:{port}");
        let child = Command::new(programs().join("prometheus"))
            .arg("--config.file=prometheus.json")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={listen}"))
            .arg("--log.level=warn")
            .current_dir(folder)
            .stdin(Stdio::null())
            .spawn()
            .expect("prometheus starts");
        let rules = rules();
        let rules = rules["groups"][0]["rules"].as_array().expect("rules");
        let expressions = rules.iter().filter_map(|rule| rule["expr"].as_str());
        Self {
            child,
            url: format!("http://{listen}"),
            silent: expressions.map(str::to_owned).chain(panels()).collect(),
            quiet: alerts(),
        }
    }

    /// The series that an expression gives now; none, too, while it starts.
    fn ask(&self, expression: &str) -> Vec<Value> {
        let run = Command::new("curl")
            .args(["--silent", "--max-time", "5", "--get", "--data-urlencode"])
            .arg(format!("query={expression}"))
            .arg(format!("{}/api/v1/query", self.url))
            .output()
            .expect("curl runs");
        let Ok(answer) = serde_json::from_slice::<Value>(&run.stdout) else {
            return Vec::new();
        };
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    /// Notes what gives data and what fires now.
    fn look(&mut self) {
        let gives: Vec<String> = self.silent.iter().cloned().collect();
        for expression in gives {
            if !self.ask(&expression).is_empty() {
                self.silent.remove(&expression);
            }
        }
        for firing in self.ask("ALERTS{alertstate=\"firing\"}") {
            if let Some(name) = firing["metric"]["alertname"].as_str()
                && self.quiet.remove(name)
            {
                tell(&format!("{name} fires"));
            }
        }
    }

    /// Looks until an alert has fired.
    #[track_caller]
    fn fires(&mut self, alert: &str) {
        let end = Instant::now() + MINUTES;
        while self.quiet.contains(alert) {
            assert!(Instant::now() < end, "{alert} does not fire");
            self.look();
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Looks until the expressions with this family give data.
    #[track_caller]
    fn has_data(&mut self, family: &str) {
        let end = Instant::now() + MINUTES;
        while self.silent.iter().any(|one| one.contains(family)) {
            assert!(Instant::now() < end, "{family} has no data");
            self.look();
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// The token of an account that may read the metrics.
fn token(management: &Management) -> String {
    let account = format!("--serviceaccount={NAMESPACE}:prometheus");
    let role = "--clusterrole=metrics-reader";
    for args in [
        &["-n", NAMESPACE, "create", "serviceaccount", "prometheus"][..],
        &[
            "create",
            "clusterrole",
            "metrics-reader",
            "--verb=get",
            "--non-resource-url=/metrics",
        ],
        &["create", "clusterrolebinding", "prometheus", role, &account],
    ] {
        management.kubectl(args).well();
    }
    let token = management.kubectl(&["-n", NAMESPACE, "create", "token", "prometheus"]);
    token.well().stdout.trim().to_owned()
}

/// Looks at a cluster at once, as a person would ask for it.
fn look_at(management: &Management, name: &str, value: &str) {
    let asked = format!("clusterprovisioner.rke.io/reconcile-at={value}");
    management
        .kubectl(&["annotate", "--overwrite", "rkec", name, &asked])
        .well();
}

#[test]
fn every_panel_has_data_and_every_alert_fires() {
    let management = Management::with("monitoring", &["n2", "n3"]);
    let target = format!("127.0.0.1:{}", free_port());
    let operator = management.operator_with(&["--metrics-bind-address", &target]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut prometheus = Prometheus::start(folder.path(), &target, &token(&management));

    let sample = management.sample("minimal", management.second());
    management.send(&["create"], &sample).well();
    management.settled("minimal", MINUTES);
    prometheus.look();

    // A config that says nothing of use.
    let mut broken = management.sample("broken", management.second());
    broken["spec"]["config"]["no_such_key"] = json!(true);
    management.send(&["create"], &broken).well();
    prometheus.fires("RkeClusterStalled");

    // Its API server goes, and nothing is healed.
    management.edit("minimal", &json!({"spec": {"paused": true}}));
    let node = management.second();
    node.sh("docker stop kube-apiserver")
        .expect("it is stopped");
    look_at(&management, "minimal", "1");
    prometheus.fires("RkeClusterNotAvailable");
    let resumed = json!({"spec": {
        "paused": null, "deletion": {"timeout": "2s", "onTimeout": "Keep"},
    }});
    management.edit("minimal", &resumed);
    management.settled("minimal", MINUTES);

    // An image that there is not: a step fails.
    let third = management.site().lab.node("n3");
    let mut unpulled = management.sample("unpulled", third);
    unpulled["spec"]["config"]["system_images"] = json!({"kubernetes": "rancher/none:v1.34.4"});
    management.send(&["create"], &unpulled).well();
    prometheus.has_data("rke_step_failures_total");

    // More clusters than slots, on a node that is cut off: they wait.
    third.cut().expect("the network is cut");
    for number in 0..HUNG {
        let hung = management.sample(&format!("hung-{number}"), third);
        management.send(&["create"], &hung).well();
    }
    prometheus.fires("RkeSlotsExhausted");

    // Its node is cut off, and the deletion has no end; then it may have one.
    management.second().cut().expect("the network is cut");
    management.delete("minimal");
    prometheus.fires("RkeClusterDeletionOverdue");
    management.edit(
        "minimal",
        &json!({"spec": {"deletion": {"onTimeout": "Orphan"}}}),
    );
    prometheus.fires("RkeClusterOrphaned");

    operator.stop();
    prometheus.fires("RkeNoLeader");

    // What takes an hour or a year is `promtool`'s.
    let slow = ["RkeCertificateExpiring", "RkeSurveyStale"].map(str::to_owned);
    assert_eq!(prometheus.quiet, slow.into(), "these have not fired");
    let rules = rules();
    let rules = rules["groups"][0]["rules"].as_array().expect("rules");
    let is_slow = |rule: &&Value| {
        rule["alert"]
            .as_str()
            .is_some_and(|name| prometheus.quiet.contains(name))
    };
    let slow = rules
        .iter()
        .filter(is_slow)
        .filter_map(|rule| rule["expr"].as_str());
    let mut slow: BTreeSet<String> = slow.map(str::to_owned).collect();
    // This operator is not linked statically, and gives nodes no program that takes snapshots: hence that alert.
    slow.insert("time() - rke_cluster_snapshot_timestamp_seconds".to_owned());
    let silent: Vec<_> = prometheus.silent.difference(&slow).collect();
    assert!(silent.is_empty(), "these have no data: {silent:#?}");
}
