//! The table of hints, on real nodes: what the operator notices over the connections that it keeps, how fast it says so,
//! and how fast it is cured. Two Clusters at once, each with rows of its own. Once each row; `make bench-hints` runs them
//! `HINTS_ROUNDS` times, or only those with `HINTS_ONLY` in their names, and appends the median and the worst of each to
//! the file `HINTS_TABLE`.

use std::{
    env, fs,
    io::Write,
    thread,
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

/// Three control planes with etcd.
const HIGHLY_AVAILABLE: &str = "hints";

/// A control plane and a worker: the budget of hints is each Cluster's own, so two of them take half the time.
const SMALL: &str = "hints-small";

/// A cluster built or settled again.
const MINUTES: Duration = Duration::from_secs(900);

/// How long a fault may take to be cured where nothing else is said, with a busy machine.
const CURED: Duration = Duration::from_secs(120);

/// A row: a fault, when it is seen, and its end.
struct Row {
    name: &'static str,
    cluster: &'static str,
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

/// Nodes `n2`, `n3` and `n4` are the control planes of one Cluster; `n5` and `n6` control plane and worker of the other.
const ROWS: [Row; 6] = [
    Row {
        name: "a container of a control plane stopped",
        cluster: SMALL,
        fault: ("n5", "docker stop --time 0 kube-scheduler"),
        seen: "ControlPlaneHealthy",
        within: seconds(2),
        cure: None,
    },
    Row {
        name: "a container of a control plane removed",
        cluster: SMALL,
        fault: ("n5", "docker rm --force kube-controller-manager"),
        seen: "ControlPlaneHealthy",
        within: seconds(2),
        cure: None,
    },
    Row {
        name: "an API server hangs",
        cluster: HIGHLY_AVAILABLE,
        fault: ("n3", "docker kill --signal STOP kube-apiserver"),
        seen: "ControlPlaneHealthy",
        within: seconds(15),
        cure: Some("docker kill --signal CONT kube-apiserver"),
    },
    Row {
        name: "a member of etcd does not follow",
        cluster: HIGHLY_AVAILABLE,
        fault: ("n4", "docker kill --signal STOP etcd"),
        seen: "EtcdHealthy",
        within: seconds(45),
        cure: Some("docker kill --signal CONT etcd"),
    },
    Row {
        name: "a control plane cut off",
        cluster: HIGHLY_AVAILABLE,
        fault: ("n4", CUT),
        seen: "NodesReachable",
        within: seconds(15),
        cure: Some(HEAL),
    },
    Row {
        name: "kubelet of a worker stopped",
        cluster: SMALL,
        fault: ("n6", "docker stop --time 0 kubelet"),
        seen: "NodesHealthy",
        within: seconds(60),
        cure: None,
    },
];

/// Not commands of a node, but of the lab.
const CUT: &str = "cut";
const HEAL: &str = "heal";

/// What one round of a row took.
struct Took {
    seen: Duration,
    cured: Duration,
}

/// Creates the Clusters, and waits until the operator keeps connections to their nodes.
fn watched() -> (Management, Operator) {
    let management = Management::with("hints", &["n2", "n3", "n4", "n5", "n6"]);
    let small: [(&str, &[&str]); 2] = [("n5", ALL), ("n6", WORKER)];
    let large: [(&str, &[&str]); 3] = [("n2", ALL), ("n3", CENTRAL), ("n4", CENTRAL)];
    create(&management, SMALL, "n5", &small);
    create(&management, HIGHLY_AVAILABLE, "n2", &large);
    let operator = management.operator();
    for cluster in [SMALL, HIGHLY_AVAILABLE] {
        management.settled(cluster, MINUTES);
    }
    // The reconcile after the run connects.
    thread::sleep(seconds(90));
    (management, operator)
}

fn create(management: &Management, cluster: &str, first: &str, nodes: &[(&str, &[&str])]) {
    let mut sample = management.sample(cluster, management.site().lab.node(first));
    sample["spec"]["config"] = management.config_of(cluster, nodes);
    management.send(&["create"], &sample).well();
}

fn does(management: &Management, node: &str, what: &str) {
    let node = management.site().lab.node(node);
    match what {
        CUT => node.cut_from_tool().expect("it is cut off"),
        HEAL => node.heal().expect("it is healed"),
        command => {
            node.sh(command).expect("the command of the fault");
        }
    }
}

/// One round.
fn round(management: &Management, row: &Row, strict: bool) -> Took {
    let (node, fault) = row.fault;
    let begun = Instant::now();
    does(management, node, fault);
    // `kubectl` and a busy machine have their part in what is seen from here.
    let (limit, cured) = if strict {
        (row.within + seconds(10), CURED)
    } else {
        (MINUTES, MINUTES)
    };
    let what = format!("{} is False", row.seen);
    let is_false = |cluster: &Value| is(cluster, row.seen, "False");
    management.until(row.cluster, &what, limit, is_false);
    let seen = begun.elapsed();
    if let Some(cure) = row.cure {
        does(management, node, cure);
    }
    let mended = Instant::now();
    let well = |cluster: &Value| is(cluster, row.seen, "True") && is_settled(cluster);
    management.until(row.cluster, row.name, cured, well);
    let from = if row.cure.is_some() { mended } else { begun };
    Took {
        seen,
        cured: from.elapsed(),
    }
}

/// The rows of one Cluster, each so many times.
fn rounds(management: &Management, rows: &[&Row], rounds: usize) {
    for row in rows {
        let mut took = Vec::new();
        for _ in 0..rounds {
            let begun = Instant::now();
            took.push(round(management, row, rounds == 1));
            let pace = if rounds == 1 { REST } else { PACE };
            thread::sleep(pace.saturating_sub(begun.elapsed()).max(REST));
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
    let of = |cluster: &str| -> Vec<&Row> {
        let rows = ROWS.iter().filter(|row| row.cluster == cluster);
        rows.filter(|row| row.name.contains(&only)).collect()
    };
    let (large, small) = (of(HIGHLY_AVAILABLE), of(SMALL));
    assert!(
        !large.is_empty() || !small.is_empty(),
        "no row is called `{only}`"
    );
    let (management, operator) = watched();
    thread::scope(|scope| {
        for rows in [large, small] {
            let management = &management;
            scope.spawn(move || self::rounds(management, &rows, rounds));
        }
    });
    for cluster in [SMALL, HIGHLY_AVAILABLE] {
        management.delete(cluster);
    }
    for cluster in [SMALL, HIGHLY_AVAILABLE] {
        management.gone(cluster, MINUTES);
    }
    operator.stop();
}
