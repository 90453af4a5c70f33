//! `etcd snapshot-save`: a snapshot on every node with etcd, one node after the other.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use serde::Serialize;

use super::{
    args::{Output, SnapshotSave},
    dispatch::DEGRADED,
    environment::{self, Opening},
    intent,
    kubeconfig::state,
    print,
    report::{CliError, Failure},
    session::{STOPPED, Session},
};
use crate::{
    config::Intent,
    converge::{Goal, Purpose, targets},
    environment::Environment,
    error::{ErrorClass, distinct},
    etcd::snapshot::{self, Snapshot, SnapshotName},
    facts::Unreachable,
    host::{TcpDial, pool::Hosts},
    model::{ClusterId, NodeName, Role},
    state::ClusterState,
};

/// What became of it, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Done<'a> {
    name: &'a str,
    saved: BTreeMap<NodeName, Snapshot>,
    failed: BTreeMap<NodeName, Unreachable>,
}

/// Runs it. As in RKE it succeeds when one node has saved it; the others are named, and the exit code
/// tells.
pub(super) async fn save(args: &SnapshotSave, session: &Session) -> Result<u8, CliError> {
    if args.s3.is_asked_for() {
        return Err(Failure::NoS3.into());
    }
    let file = &args.config.config;
    let intent = intent::load(file, session)?;
    if intent.etcd.external().is_some() {
        return Err(Failure::ExternalEtcd.into());
    }
    let environment = environment::open(file, Opening::to_change(&args.trust), session)?;
    let saved = state(&environment).await?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => SnapshotName::of_time(environment.clock.now()),
    };
    let (hosts, nodes) = with_etcd(&intent, &saved, &environment).await;
    let mut result = Done {
        name: name.as_str(),
        saved: BTreeMap::new(),
        failed: BTreeMap::new(),
    };
    for node in nodes {
        let one = tokio::select! {
            biased;
            // What is half done is cleared away by the next one.
            _ = session.stop.stopped() => return Ok(STOPPED),
            one = on(&hosts, &node, &saved.cluster_id, &name) => one,
        };
        match one {
            Ok(snapshot) => {
                let said = format!(
                    "{node}: saved `{}` ({} bytes)",
                    snapshot.path, snapshot.bytes
                );
                session.screen.print_unless_quiet(&said);
                result.saved.insert(node, snapshot);
            }
            Err(why) => {
                session.screen.print(&format!("{node}: {}", why.why));
                result.failed.insert(node, why);
            }
        }
    }
    ended(args, &result)
}

/// The nodes that have etcd, and the way to them.
pub(super) async fn with_etcd(
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
) -> (Hosts, Vec<NodeName>) {
    let mut targets = targets(Goal::Up(intent).any(), Some(saved), environment).await;
    let has_etcd = |node: &NodeName| {
        let entry = saved.inventory.get(node);
        entry.is_some_and(|entry| entry.roles.contains(&Role::Etcd))
    };
    targets.retain(|node, _| has_etcd(node));
    let nodes: Vec<NodeName> = targets.keys().cloned().collect();
    let hosts = Hosts::new(Arc::new(TcpDial), Arc::clone(&environment.host_keys));
    hosts.aim(targets);
    (hosts, nodes)
}

fn ended(args: &SnapshotSave, result: &Done<'_>) -> Result<u8, CliError> {
    if result.saved.is_empty() {
        let failed = result.failed.iter();
        return Err(Failure::NoSnapshot {
            failed: failed
                .map(|(node, why)| format!("{node}: {}", why.why))
                .collect(),
            hints: distinct(result.failed.values().flat_map(|why| why.hints.clone())),
            class: result
                .failed
                .values()
                .map(|why| why.class)
                .next()
                .unwrap_or(ErrorClass::Host),
        }
        .into());
    }
    match args.output {
        Output::Json => print::json(result)?,
        Output::Text => {
            let mut text = String::new();
            for (node, Snapshot { path, sha256, .. }) in &result.saved {
                let _ = write!(text, "{}{node} {path} sha256:{sha256}", gap(&text));
            }
            print::data(&text)?;
        }
    }
    Ok(if result.failed.is_empty() {
        0
    } else {
        DEGRADED
    })
}

const fn gap(text: &str) -> &'static str {
    if text.is_empty() { "" } else { "\n" }
}

async fn on(
    hosts: &Hosts,
    node: &NodeName,
    id: &ClusterId,
    name: &SnapshotName,
) -> Result<Snapshot, Unreachable> {
    let host = hosts.get(node).await?;
    let saved = snapshot::save(&host, id, name).await;
    saved.map_err(|error| Unreachable::of(&error))
}
