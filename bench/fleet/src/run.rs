//! Runs the binary against a fleet, and measures it: time from start to exit, the most memory that it
//! had, and how much each node was asked.

use std::{
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use rke_operator::model::Endpoint;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    Fallible,
    config::{self, CENTRAL, Change},
    node::{Asked, Fleet},
};

/// How often the memory is read. The kernel keeps the highest value, so only what is taken in
/// the last moment before the end is missed.
const LOOK: Duration = Duration::from_millis(10);
/// What is told of a run that failed.
const TOLD: usize = 4000;

/// The head of the table whose rows [`Run::row`] gives.
pub(crate) const HEAD: &str = "\
| nodes | | seconds | memory, MiB | requests to nodes | to the API | to a node that is not touched | with nothing to do |
|---|---|---|---|---|---|---|---|";

/// A folder with a config, a key and the host keys.
pub(crate) struct Site<'f> {
    binary: &'f Path,
    fleet: &'f Arc<Fleet>,
    folder: TempDir,
}

/// What a run took.
pub(crate) struct Run {
    took: Duration,
    kib: u64,
    api: usize,
    /// By node, those that are in the config.
    asked: Vec<Asked>,
}

impl<'f> Site<'f> {
    /// For the nodes of a fleet.
    pub(crate) fn new(binary: &'f Path, fleet: &'f Arc<Fleet>) -> Fallible<Self> {
        let folder = tempfile::tempdir()?;
        let ssh = folder.path().join(".ssh");
        std::fs::create_dir_all(&ssh)?;
        std::fs::write(ssh.join("id_rsa"), fleet.nodes[0].host.private_key())?;
        let known = fleet.nodes.iter().enumerate().map(|(number, node)| {
            let endpoint = Endpoint {
                address: config::address(number).to_string(),
                port: fleet.port,
            };
            node.host.known_hosts(&endpoint)
        });
        std::fs::write(ssh.join("known_hosts"), known.collect::<String>())?;
        Ok(Self {
            binary,
            fleet,
            folder,
        })
    }

    /// `up` with so many nodes in the config.
    pub(crate) async fn up(&self, nodes: usize, change: Change) -> Fallible<Run> {
        let at = |name: &str| self.folder.path().join(name);
        std::fs::write(
            at("cluster.yml"),
            config::cluster_yml(nodes, self.fleet.port, change),
        )?;
        let (before, api) = (self.fleet.asked(), self.fleet.requests());
        let (stdout, stderr) = (
            std::fs::File::create(at("stdout"))?,
            std::fs::File::create(at("stderr"))?,
        );
        let begun = Instant::now();
        let mut child = Command::new(self.binary)
            .args(["up", "--yes"])
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()?;
        let status = format!("/proc/{}/status", child.id().unwrap_or_default());
        let mut kib = 0;
        let ended = loop {
            if let Ok(ended) = tokio::time::timeout(LOOK, child.wait()).await {
                break ended?;
            }
            kib = high_water(&status).unwrap_or(0).max(kib);
        };
        let took = begun.elapsed();
        if !ended.success() {
            let said = std::fs::read_to_string(at("stderr"))?;
            let from = said.len().saturating_sub(TOLD);
            let end = said.get(from..).unwrap_or(&said);
            return Err(format!("`up` with {nodes} nodes: {ended}: …{end}").into());
        }
        let asked = self.fleet.asked().into_iter().zip(before);
        let asked = asked.take(nodes).map(|(now, before)| Asked {
            all: now.all - before.all,
        });
        Ok(Run {
            took,
            kib,
            api: self.fleet.requests() - api,
            asked: asked.collect(),
        })
    }
}

/// The most memory that a process had so far, in KiB.
fn high_water(status: &str) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

impl Run {
    /// A row of the table. `idle` is a run with nothing to do: beside it stands what those nodes were
    /// asked that both have, and that are no control planes.
    pub(crate) fn row(&self, nodes: usize, what: &str, idle: Option<&Self>) -> String {
        let total: usize = self.asked.iter().map(|asked| asked.all).sum();
        let untouched = idle.map(|idle| {
            let workers = CENTRAL..idle.asked.len();
            (
                range(&self.asked[workers.clone()]),
                range(&idle.asked[workers]),
            )
        });
        let (ours, theirs) = untouched.unwrap_or_else(|| ("–".to_owned(), "–".to_owned()));
        format!(
            "| {nodes} | {what} | {:.1} | {} | {total} | {} | {ours} | {theirs} |",
            self.took.as_secs_f64(),
            self.kib.div_ceil(1024),
            self.api,
        )
    }
}

/// The least and the most that nodes were asked.
fn range(asked: &[Asked]) -> String {
    let counts = || asked.iter().map(|asked| asked.all);
    match (counts().min(), counts().max()) {
        (Some(least), Some(most)) if least == most => least.to_string(),
        (Some(least), Some(most)) => format!("{least}–{most}"),
        _ => "–".to_owned(),
    }
}
