//! `etcd snapshot-list`: what every node with etcd has. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    args::{EtcdLook, Output},
    dispatch::DEGRADED,
    environment, intent,
    kubeconfig::state,
    output::{Page, snapshot_list::render},
    print,
    report::CliError,
    session::{STOPPED, Session},
    snapshot::with_etcd,
    status::opening,
};
use crate::{
    converge::RestoreError,
    etcd::snapshot,
    facts::Unreachable,
    host::pool::Hosts,
    model::{ClusterId, NodeName},
    snapshots::{
        self,
        record::{Copies, LastFailure, Listed},
    },
};

/// What every node has, for programs.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshots {
    /// The nodes that answered, by name.
    pub nodes: BTreeMap<NodeName, OnNode>,
    /// The copies in the bucket; none if no node copies to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<InBucket>,
    /// The nodes that did not answer, by name, and why.
    pub unreachable: BTreeMap<NodeName, Unreachable>,
}

/// Copies of snapshots in a bucket.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InBucket {
    /// The bucket, for people.
    pub bucket: String,
    /// The node that listed it last.
    pub seen_by: NodeName,
    /// When it listed it.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub looked: jiff::Timestamp,
    /// The objects, by name.
    pub snapshots: Vec<Listed>,
}

/// The snapshots of a node.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SnapshotsOfNode")]
pub struct OnNode {
    /// When it takes the next one; none if it takes no recurring snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub next: Option<jiff::Timestamp>,
    /// The last attempt, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<LastFailure>,
    /// The files in the folder, by name.
    pub snapshots: Vec<Listed>,
    /// The last attempt to copy one to the bucket, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_failure: Option<LastFailure>,
    /// What it saw in the bucket.
    #[serde(skip)]
    pub copies: Option<Copies>,
}

/// What the node that looked last has seen in the bucket.
pub fn bucket(nodes: &BTreeMap<NodeName, OnNode>) -> Option<InBucket> {
    let each = nodes.iter().filter_map(|(node, found)| {
        let copies = found.copies.as_ref()?;
        Some((copies.looked?, node, copies))
    });
    let (looked, node, copies) = each.max_by_key(|(looked, ..)| *looked)?;
    Some(InBucket {
        bucket: copies.bucket.clone(),
        seen_by: node.clone(),
        looked,
        snapshots: copies.snapshots.clone(),
    })
}

/// Runs it.
pub(super) async fn list(args: &EtcdLook, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    if intent.etcd.external().is_some() {
        return Err(RestoreError::ExternalEtcd.into());
    }
    let environment = environment::open(file, opening(args.accept_new_host_keys), session)?;
    let saved = state(file, &environment).await?;
    let (hosts, nodes) = with_etcd(&intent, &saved, &environment).await;
    let names: BTreeSet<NodeName> = nodes.into_iter().collect();
    let each = names.iter().map(|node| on(&hosts, node, &saved.cluster_id));
    let answers = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        answers = join_all(each) => answers,
    };
    let mut all = Snapshots {
        nodes: BTreeMap::new(),
        bucket: None,
        unreachable: BTreeMap::new(),
    };
    for (node, answer) in names.into_iter().zip(answers) {
        match answer {
            Ok(found) => {
                all.nodes.insert(node, found);
            }
            Err(why) => {
                all.unreachable.insert(node, why);
            }
        }
    }
    all.bucket = bucket(&all.nodes);
    match args.output {
        Output::Text => print::data(&render(&all, Page::stdout()))?,
        Output::Json => print::json(&all)?,
    }
    Ok(if all.unreachable.is_empty() {
        0
    } else {
        DEGRADED
    })
}

/// By the program on the node; where there is none, what its folder has.
async fn on(hosts: &Hosts, node: &NodeName, id: &ClusterId) -> Result<OnNode, Unreachable> {
    let host = hosts.get(node).await?;
    if let Ok(stream) = host.local_port(snapshots::PORT).await
        && let Ok(report) = snapshots::report(stream).await
    {
        return Ok(OnNode {
            next: Some(report.next),
            failure: report.failure,
            snapshots: report.snapshots,
            copy_failure: report
                .copies
                .as_ref()
                .and_then(|copies| copies.failure.clone()),
            copies: report.copies,
        });
    }
    let files = snapshot::list(&host, id).await;
    let files = files.map_err(|error| Unreachable::of(&error))?;
    let snapshots = files.into_iter().map(|(file, bytes)| Listed {
        file,
        bytes,
        meta: None,
        proof: None,
    });
    Ok(OnNode {
        next: None,
        failure: None,
        snapshots: snapshots.collect(),
        copy_failure: None,
        copies: None,
    })
}
