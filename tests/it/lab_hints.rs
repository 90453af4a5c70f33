//! The table of hints, on real nodes: what the operator notices over the connections that it keeps, how fast it says so,
//! and how fast it is cured. Once each row; `make bench-hints` runs them `HINTS_ROUNDS` times, or only those with
//! `HINTS_ONLY` in their names, and appends the median and the worst of each to the file `HINTS_TABLE`.

use std::{
    env, fs,
    io::Write,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    lab_many::{ALL, CENTRAL, WORKER},
    real::{
        operator::{Management, Operator, is, is_settled},
        tell,
    },
};

const CLUSTER: &str = "hints";

/// A cluster built or settled again.
const MINUTES: Duration = Duration::from_secs(900);

/// How long a fault may take to be cured where nothing else is said, with a busy machine.
const CURED: Duration = Duration::from_secs(120);

/// A row: a fault, when it is seen, and its end.
struct Row {
    name: &'static str,
    /// On which node, and how.
    fault: (&'static str, &'static str),
    /// The condition that is False then.
    seen: &'static str,
    within: Duration,
    /// What ends it; nothing: the operator does.
    cure: Option<&'static str>,
}

/// From one fault to the next at least, where a row has several rounds: the budget of hints is one a minute.
const PACE: Duration = seconds(65);

/// After the last one at least: what it started has ended.
const REST: Duration = seconds(20);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Nodes `n3` and `n4` have a control plane with etcd each, as `n2` has; `n5` is a worker.
const ROWS: [Row; 6] = [
    Row {
        name: "a container of a control plane stopped",
        fault: ("n3", "docker stop --time 0 kube-scheduler"),
        seen: "ControlPlaneHealthy",
        within: seconds(2),
        cure: None,
    },
    Row {
        name: "a container of a control plane removed",
        fault: ("n3", "docker rm --force kube-controller-manager"),
        seen: "ControlPlaneHealthy",
        within: seconds(2),
        cure: None,
    },
    Row {
        name: "an API server hangs",
        fault: ("n3", "docker kill --signal STOP kube-apiserver"),
        seen: "ControlPlaneHealthy",
        within: seconds(15),
        cure: Some("docker kill --signal CONT kube-apiserver"),
    },
    Row {
        name: "a member of etcd does not follow",
        fault: ("n4", "docker kill --signal STOP etcd"),
        seen: "EtcdHealthy",
        within: seconds(45),
        cure: Some("docker kill --signal CONT etcd"),
    },
    Row {
        name: "a control plane cut off",
        fault: ("n4", CUT),
        seen: "NodesReachable",
        within: seconds(15),
        cure: Some(HEAL),
    },
    Row {
        name: "kubelet of a worker stopped",
        fault: ("n5", "docker stop --time 0 kubelet"),
        seen: "NodesHealthy",
        within: seconds(60),
        cure: None,
    },
];

/// Not commands of a node, but of the lab.
const CUT: &str = "cut";
const HEAL: &str = "heal";

/// A cluster that the operator watches.
struct Watched {
    management: Management,
    operator: Operator,
}

/// What one round of a row took.
struct Took {
    seen: Duration,
    cured: Duration,
}

impl Watched {
    fn new() -> Self {
        let management = Management::with("hints", &["n2", "n3", "n4", "n5"]);
        let nodes: [(&str, &[&str]); 4] = [
            ("n2", ALL),
            ("n3", CENTRAL),
            ("n4", CENTRAL),
            ("n5", WORKER),
        ];
        let mut sample = management.sample(CLUSTER, management.second());
        sample["spec"]["config"] = management.config_of(CLUSTER, &nodes);
        management.send(&["create"], &sample).well();
        let operator = management.operator();
        management.settled(CLUSTER, MINUTES);
        let watched = Self {
            management,
            operator,
        };
        // The reconcile after the run connects.
        std::thread::sleep(seconds(90));
        watched
    }

    fn is_false(&self, kind: &str, since: Instant, limit: Duration) -> Duration {
        let what = format!("{kind} is False");
        self.management
            .until(CLUSTER, &what, limit, |cluster| is(cluster, kind, "False"));
        since.elapsed()
    }

    fn does(&self, node: &str, what: &str) {
        let node = self.management.site().lab.node(node);
        match what {
            CUT => node.cut_from_tool().expect("it is cut off"),
            HEAL => node.heal().expect("it is healed"),
            command => {
                node.sh(command).expect("the command of the fault");
            }
        }
    }

    /// One round.
    fn round(&mut self, row: &Row, strict: bool) -> Took {
        self.operator.skip();
        let (node, fault) = row.fault;
        let begun = Instant::now();
        self.does(node, fault);
        // `kubectl` and a busy machine have their part in what is seen from here.
        let limit = if strict {
            row.within + seconds(10)
        } else {
            MINUTES
        };
        let seen = self.is_false(row.seen, begun, limit);
        if let Some(cure) = row.cure {
            self.does(node, cure);
        }
        let mended = Instant::now();
        let limit = if strict { CURED } else { MINUTES };
        let well = |cluster: &Value| is(cluster, row.seen, "True") && is_settled(cluster);
        self.management.until(CLUSTER, row.name, limit, well);
        let from = if row.cure.is_some() { mended } else { begun };
        Took {
            seen,
            cured: from.elapsed(),
        }
    }
}

fn median(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() - 1])
}

fn line(row: &Row, took: &[Took]) -> String {
    let mut seen: Vec<Duration> = took.iter().map(|took| took.seen).collect();
    let mut cured: Vec<Duration> = took.iter().map(|took| took.cured).collect();
    let ((seen, late), (cured, last)) = (median(&mut seen), median(&mut cured));
    let text = |time: Duration| format!("{:.1}", time.as_secs_f64());
    format!(
        "| {} | {} | {} | {} | {} | {} | {} |",
        row.name,
        took.len(),
        text(row.within),
        text(seen),
        text(late),
        text(cured),
        text(last)
    )
}

#[test]
fn what_happens_in_a_cluster_is_seen_and_cured_as_fast_as_the_table_says() {
    let rounds = env::var("HINTS_ROUNDS").ok();
    let rounds: usize = rounds.map_or(1, |rounds| rounds.parse().expect("a number"));
    let only = env::var("HINTS_ONLY").unwrap_or_default();
    let rows: Vec<&Row> = ROWS.iter().filter(|row| row.name.contains(&only)).collect();
    assert!(!rows.is_empty(), "no row is called `{only}`");
    let mut watched = Watched::new();
    for row in rows {
        let mut took = Vec::new();
        for _ in 0..rounds {
            let begun = Instant::now();
            took.push(watched.round(row, rounds == 1));
            let pace = if rounds == 1 { REST } else { PACE };
            std::thread::sleep(pace.saturating_sub(begun.elapsed()).max(REST));
        }
        let line = line(row, &took);
        tell(&line);
        // Each at once: hours of rows are not lost with the last one.
        if let Ok(path) = env::var("HINTS_TABLE") {
            let file = fs::OpenOptions::new().append(true).create(true).open(path);
            let mut file = file.expect("the table is opened");
            writeln!(file, "{line}").expect("the table is written");
        }
    }
    let Watched {
        management,
        operator,
    } = watched;
    management.delete(CLUSTER);
    management.gone(CLUSTER, MINUTES);
    operator.stop();
}
