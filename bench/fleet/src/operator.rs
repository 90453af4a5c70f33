//! `make bench-operator`: the operator as a process with many Clusters. This process is their nodes and the management
//! cluster's API. Both have a core of their own, so that what is measured is the operator's.

use std::{
    io::{self, Write as _},
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rke_operator::{api::CLUSTERS, model::Endpoint};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{
    Fallible, config,
    management::{CREDENTIALS, Counts, Management, NAMESPACE},
    node::Fleet,
};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) clusters: usize,
    pub(crate) nodes: usize,
    /// How long the operator is left alone when all are Ready.
    pub(crate) idle: Duration,
}

/// The port of every sshd.
const SSH: u16 = 2222;

/// How many Clusters share the Secret with their key.
const SHARE: usize = 10;

/// How long all of them may take, whatever the aim is.
const LIMIT: Duration = Duration::from_secs(3600);

/// How often it is looked how many are Ready.
const LOOK: Duration = Duration::from_secs(1);

/// How long something small may take to show.
const SOON: Duration = Duration::from_secs(30);

/// How many Clusters hang at the same time.
const HUNG: usize = 16;

/// How many Clusters become invalid at the same time.
const INVALID: usize = 300;

/// The processor that the operator has for itself.
const CORE: &str = "1";

/// Everything that takes part.
struct Bench {
    management: Management,
    fleets: Vec<Arc<Fleet>>,
    operator: Child,
    _folder: TempDir,
}

/// What a process used so far.
#[derive(Clone, Copy, Debug)]
struct Used {
    seconds: f64,
    kib: u64,
    peak: u64,
}

/// Runs all of it, and prints as it goes.
pub(crate) async fn measure(binary: &Path, shape: Shape) -> Fallible<()> {
    let mut bench = Bench::start(binary, shape).await?;
    say(&format!(
        "{} Clusters of {} nodes",
        shape.clusters, shape.nodes
    ))?;
    bench.provision().await?;
    bench.idle(shape.idle).await?;
    if shape.clusters > 2 * HUNG {
        bench.one_secret_changes().await?;
        bench.some_hang().await?;
    }
    if shape.clusters >= SHARE + HUNG + INVALID {
        bench.many_become_invalid().await?;
    }
    bench.operator.kill().await?;
    Ok(())
}

fn say(line: &str) -> Fallible<()> {
    let mut out = io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// The first part of a list of counts, the most frequent first.
fn told(counts: &Counts) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let told: Vec<_> = counts
        .iter()
        .map(|(asked, count)| format!("{asked} {count}"))
        .collect();
    told.join(", ")
}

impl Bench {
    async fn start(binary: &Path, shape: Shape) -> Fallible<Self> {
        let management = Management::start().await?;
        let mut fleets = Vec::new();
        // One more, which is created later.
        for number in 0..=shape.clusters {
            fleets.push(Fleet::outside(number * shape.nodes, shape.nodes, SSH).await?);
        }
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, management.kubeconfig().to_string())?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let operator = Command::new("taskset")
            .args(["--cpu-list", CORE])
            .arg(binary)
            .args(["run", "--namespace", NAMESPACE, "--identity", "bench"])
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .env_clear()
            .env("HOME", folder.path())
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self {
            management,
            fleets,
            operator,
            _folder: folder,
        })
    }

    /// The object of a Cluster, and the Secret that it needs.
    fn create(&self, number: usize) {
        let Some(fleet) = self.fleets.get(number) else {
            return;
        };
        let secret = format!("nodes-{}", number / SHARE);
        if self
            .management
            .api
            .object("secrets", CREDENTIALS, &secret)
            .is_none()
        {
            let key = fleet.nodes.first().map(|node| node.host.private_key());
            let key = BASE64_STANDARD.encode(key.unwrap_or_default());
            let object = json!({
                "metadata": {"name": secret, "namespace": CREDENTIALS, "annotations": {CLUSTERS: "*"}},
                "data": {"ssh-privatekey": key},
            });
            self.management.api.plant("secrets", &object);
        }
        let known_hosts = fleet.nodes.iter().map(|node| {
            let address = node.machine.address.to_string();
            node.host.known_hosts(&Endpoint { address, port: SSH })
        });
        let object = json!({
            "metadata": {"name": name(number)},
            "spec": {
                "config": config::object(fleet, SSH),
                "ssh": {"keySecretRef": {"name": secret}, "knownHosts": known_hosts.collect::<String>()},
            },
        });
        self.management.api.plant("clusters", &object);
    }

    fn clusters(&self) -> Vec<Value> {
        self.management.api.objects("clusters")
    }

    fn used(&self) -> Fallible<Used> {
        let pid = self.operator.id().ok_or("the operator has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            kib.unwrap_or_default()
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = after.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|word| word.parse::<f64>().ok()).sum();
        Ok(Used {
            seconds: ticks / 100.0,
            kib: field("VmRSS:"),
            peak: field("VmHWM:"),
        })
    }

    /// Creates all but the last, and waits until they are Ready.
    async fn provision(&mut self) -> Fallible<()> {
        let count = self.fleets.len() - 1;
        let (begun, before) = (Instant::now(), self.management.counts());
        for number in 0..count {
            self.create(number);
        }
        let mut shown = 0;
        loop {
            tokio::time::sleep(LOOK).await;
            let ready = self
                .clusters()
                .iter()
                .filter(|one| is(one, "Ready", "True"))
                .count();
            if ready * 4 / count > shown {
                shown = ready * 4 / count;
                let took = begun.elapsed().as_secs_f64();
                say(&format!(
                    "| Ready | {ready} of {count} | after {took:.0} s |"
                ))?;
            }
            if ready == count {
                break;
            }
            if begun.elapsed() > LIMIT {
                return Err(
                    format!("only {ready} of {count} are Ready: {:#}", self.unready()).into(),
                );
            }
        }
        let (took, used) = (begun.elapsed(), self.used()?);
        let asked = self.management.since(&before);
        let writes = asked
            .get("patch clusters/status")
            .copied()
            .unwrap_or_default();
        say(&format!(
            "| made | {:.0} s | {:.1} s of a core, at most {} MiB | {:.1} status writes a Cluster and minute |",
            took.as_secs_f64(),
            used.seconds,
            used.peak / 1024,
            each(writes, count, took),
        ))?;
        let largest = self
            .clusters()
            .iter()
            .map(|one| one.to_string().len())
            .max();
        say(&format!(
            "| the largest object | {} KiB | | |",
            largest.unwrap_or_default() / 1024
        ))?;
        say(&format!("  {}", told(&asked)))
    }

    /// What the first that is not Ready says.
    fn unready(&self) -> Value {
        let clusters = self.clusters();
        let first = clusters.iter().find(|one| !is(one, "Ready", "True"));
        first.map_or(Value::Null, |one| one["status"]["conditions"].clone())
    }

    /// Leaves it alone.
    async fn idle(&mut self, time: Duration) -> Fallible<()> {
        // What the last of them still has to say.
        tokio::time::sleep(SOON).await;
        let (before, then) = (self.used()?, self.management.counts());
        let asked_before: usize = self.asked().iter().sum();
        tokio::time::sleep(time).await;
        let (after, asked) = (self.used()?, self.management.since(&then));
        let requests: usize = self.asked().iter().sum::<usize>() - asked_before;
        let of_clusters = asked
            .iter()
            .filter(|(asked, _)| !asked.starts_with("watch") && !asked.ends_with(" leases"));
        let of_clusters: usize = of_clusters.map(|(_, count)| count).sum();
        let count = self.fleets.len() - 1;
        say(&format!(
            "| idle for {} min | {:.3} of a core | {} MiB, at most {} | {:.2} API calls a Cluster and minute; {:.1} requests to its nodes |",
            time.as_secs() / 60,
            (after.seconds - before.seconds) / time.as_secs_f64(),
            after.kib / 1024,
            after.peak / 1024,
            each(of_clusters, count, time),
            each(requests, count, time),
        ))?;
        say(&format!("  {}", told(&asked)))
    }

    /// The requests to the nodes of each Cluster so far.
    fn asked(&self) -> Vec<usize> {
        let asked = self
            .fleets
            .iter()
            .map(|fleet| fleet.asked().iter().map(|asked| asked.all).sum());
        asked.collect()
    }

    /// A Secret changes: its Clusters are looked at, and no others.
    async fn one_secret_changes(&mut self) -> Fallible<()> {
        let connections = |fleet: &Arc<Fleet>| -> usize {
            // A worker is connected to by a look alone.
            fleet.nodes.last().map_or(0, |node| node.host.connections())
        };
        let before: Vec<usize> = self.fleets.iter().map(connections).collect();
        let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
        self.management
            .api
            .patch("secrets", CREDENTIALS, "nodes-0", &touched);
        let begun = Instant::now();
        let mut took = SOON;
        while begun.elapsed() < SOON {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let all =
                (0..SHARE).all(|at| self.fleets.get(at).map(connections) > before.get(at).copied());
            if all {
                took = begun.elapsed().min(took);
            }
        }
        let looked_at = |of: std::ops::Range<usize>| {
            let pairs = self
                .fleets
                .iter()
                .zip(&before)
                .skip(of.start)
                .take(of.len());
            pairs
                .filter(|(fleet, before)| connections(fleet) > **before)
                .count()
        };
        let (users, others) = (looked_at(0..SHARE), looked_at(SHARE..self.fleets.len()));
        say(&format!(
            "| a changed Secret | {users} of its {SHARE} Clusters looked at within {:.1} s | {others} others within {} s | |",
            took.as_secs_f64(),
            SOON.as_secs(),
        ))
    }

    /// Some hang; the one more is made as if they did not.
    async fn some_hang(&mut self) -> Fallible<()> {
        for fleet in self.fleets.iter().skip(SHARE).take(HUNG) {
            for node in &fleet.nodes {
                node.host.freeze();
            }
        }
        for number in SHARE..SHARE + HUNG {
            let asked =
                json!({"metadata": {"annotations": {rke_operator::api::RECONCILE_AT: "hang"}}});
            self.management
                .api
                .patch("clusters", "", &name(number), &asked);
        }
        let (begun, last) = (Instant::now(), self.fleets.len() - 1);
        self.create(last);
        while !self
            .management
            .api
            .object("clusters", "", &name(last))
            .is_some_and(|one| is(&one, "Ready", "True"))
        {
            tokio::time::sleep(Duration::from_millis(200)).await;
            if begun.elapsed() > LIMIT {
                return Err("the one more is not Ready".into());
            }
        }
        say(&format!(
            "| {HUNG} hang | another one is Ready after {:.1} s | | |",
            begun.elapsed().as_secs_f64()
        ))
    }

    /// What an upgrade would do to a config that a new release refuses.
    async fn many_become_invalid(&mut self) -> Fallible<()> {
        let first = SHARE + HUNG;
        let then = self.management.counts();
        let begun = Instant::now();
        for number in first..first + INVALID {
            let edit = json!({"spec": {"config": {"no_such_key": true}}});
            self.management
                .api
                .patch("clusters", "", &name(number), &edit);
        }
        let stalled = || {
            let clusters = self.clusters();
            clusters
                .iter()
                .filter(|one| is(one, "Stalled", "True"))
                .count()
        };
        while stalled() < INVALID {
            tokio::time::sleep(LOOK).await;
            if begun.elapsed() > LIMIT {
                return Err("not all of them are Stalled".into());
            }
        }
        let took = begun.elapsed();
        let asked: usize = self.management.since(&then).values().sum();
        let then = self.management.counts();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let after = self.management.since(&then);
        say(&format!(
            "| {INVALID} invalid at once | all Stalled after {:.1} s | {asked} API calls, {} in the minute after | |",
            took.as_secs_f64(),
            after.values().sum::<usize>(),
        ))?;
        say(&format!("  {}", told(&after)))
    }
}

/// A count as a rate: a Cluster and minute.
#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn each(count: usize, clusters: usize, time: Duration) -> f64 {
    count as f64 / clusters.max(1) as f64 / (time.as_secs_f64() / 60.0).max(f64::MIN_POSITIVE)
}

fn name(number: usize) -> String {
    format!("c{number:04}")
}

fn is(cluster: &Value, kind: &str, status: &str) -> bool {
    let conditions = cluster["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == kind && one["status"] == status)
}
