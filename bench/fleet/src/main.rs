//! `make bench-fleet`: how the release binary does with many nodes. This process is the nodes: it
//! serves an sshd, a Docker, the ports of the components, one etcd and one Kubernetes API for each
//! of them on loopback addresses, and starts `rke-operator up` as a user would. Measured are time,
//! memory of that process, and what it asked each node.
//!
//! It uses loopback addresses and a temporary folder, nothing else: no root, no Docker, no lab. The
//! nodes are the fakes of the tests, whose own contract tests keep them honest; what they do not
//! have is the time that programs take to start, images to be pulled, and a network in between. So
//! the figures are what our side costs, not how long a cluster of machines takes.

#![expect(
    clippy::disallowed_methods,
    reason = "it serves in tasks of its own and reads counters of the machine"
)]

mod about;
mod config;
mod control;
mod etcd;
#[path = "../../../tests/it/fake/mod.rs"]
#[expect(
    dead_code,
    unused_imports,
    reason = "shared with the tests, which use all of it"
)]
mod fake;
#[path = "../../../tests/it/fake_api/mod.rs"]
#[expect(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::unwrap_in_result,
    reason = "shared with the tests, which use all of it"
)]
mod fake_api;
mod management;
mod node;
mod operator;
mod run;
mod server;
#[cfg(test)]
mod trips;

use std::{
    error::Error,
    io::{self, Write as _},
    path::PathBuf,
    time::Duration,
};

use self::{config::Change, node::Fleet, operator::Shape, run::Site};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Fallible<()> {
    let mut words = std::env::args_os().skip(1).peekable();
    let many = words.next_if(|word| word == "operator").is_some();
    let binary = words.next().map(PathBuf::from);
    let sizes: Result<Vec<usize>, _> = words
        .map(|word| word.to_string_lossy().parse::<usize>())
        .collect();
    let (Some(binary), sizes) = (binary, sizes?) else {
        return Err(
            "usage: fleet BINARY NODES…, or fleet operator BINARY CLUSTERS NODES MINUTES".into(),
        );
    };
    let binary = std::path::absolute(binary)?;
    if many {
        let &[clusters, nodes, minutes] = sizes.as_slice() else {
            return Err("usage: fleet operator BINARY CLUSTERS NODES MINUTES".into());
        };
        let idle = Duration::from_secs(u64::try_from(minutes)? * 60);
        let shape = Shape {
            clusters,
            nodes,
            idle,
        };
        return operator::measure(&binary, shape).await;
    }
    let mut out = io::stdout();
    writeln!(out, "{}", run::HEAD)?;
    for size in sizes {
        measure(&binary, size, &mut out).await?;
    }
    Ok(())
}

/// Every operation on a fleet of this size, a row each.
async fn measure(binary: &std::path::Path, size: usize, out: &mut io::Stdout) -> Fallible<()> {
    // One more than are in the config at first.
    let fleet = Fleet::start(size + 1).await?;
    let site = Site::new(binary, &fleet)?;
    let mut tell = |row: String| -> Fallible<()> {
        writeln!(out, "{row}")?;
        Ok(out.flush()?)
    };
    let fresh = site.up(size, Change::None).await?;
    tell(fresh.row(size, "fresh `up`", None))?;
    let idle = site.up(size, Change::None).await?;
    tell(idle.row(size, "nothing to do", None))?;
    let changed = site.up(size, Change::Flag).await?;
    tell(changed.row(size, "a kubelet flag on all", None))?;
    let settled = site.up(size, Change::Flag).await?;
    tell(settled.row(size, "nothing to do", None))?;
    let added = site.up(size + 1, Change::Flag).await?;
    tell(added.row(size, "one more", Some(&settled)))?;
    Ok(())
}
