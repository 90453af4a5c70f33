//! `etcd verify` and `etcd snapshot-delete`: one snapshot, on every node with etcd that has it, one node after the other.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use serde::Serialize;

use super::{
    args::{NamedSnapshot, Output},
    dispatch::DEGRADED,
    environment::{self, Opening},
    intent,
    kubeconfig::state,
    print,
    report::{CliError, Failure},
    session::{STOPPED, Session},
    snapshot::{lines, none_was, with_etcd},
};
use crate::{
    converge::RestoreError,
    error::{ErrorClass, Obstacle},
    facts::Unreachable,
    host::{Host, pool::Hosts},
    model::{ClusterId, NodeName, path, printable},
    snapshots::{
        Answer, OnNode,
        record::{Grade, Proof},
        recurring_image,
    },
};

/// What is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Verify,
    Delete,
}

impl Doing {
    const fn done(self) -> &'static str {
        match self {
            Self::Verify => "verified",
            Self::Delete => "deleted",
        }
    }
}

/// What became of it, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Done<'a> {
    name: &'a str,
    nodes: BTreeMap<NodeName, Answer>,
    failed: BTreeMap<NodeName, Unreachable>,
}

/// Runs it. Exits with 0 where it was proven or deleted on every node that has it.
pub(super) async fn named(
    doing: Doing,
    args: &NamedSnapshot,
    session: &Session,
) -> Result<u8, CliError> {
    let file = &args.config.config;
    let intent = intent::load(file, session)?;
    if intent.etcd.external().is_some() {
        return Err(RestoreError::ExternalEtcd.into());
    }
    if intent.services.snapshots.is_none() {
        return Err(Failure::NoRecurring.into());
    }
    let environment = environment::open(file, Opening::to_change(&args.trust), session)?;
    let saved = state(&environment).await?;
    let agent = intent.agent.as_ref().ok_or(RestoreError::NotStatic)?;
    let (hosts, nodes) = with_etcd(&intent, &saved, &environment).await;
    let mut done = Done {
        name: args.name.as_str(),
        nodes: BTreeMap::new(),
        failed: BTreeMap::new(),
    };
    for node in nodes {
        let one = async {
            let id = &saved.cluster_id;
            let (host, image) = prepared(&hosts, &node, id).await?;
            let on_node = OnNode {
                host: &host,
                id,
                image: &image,
                agent,
            };
            let answer = match doing {
                Doing::Verify => on_node.verify(&args.name).await,
                Doing::Delete => on_node.delete(&args.name).await,
            };
            answer.map_err(|error| Unreachable::of(&error))
        };
        let one = tokio::select! {
            biased;
            _ = session.stop.stopped() => return Ok(STOPPED),
            one = one => one,
        };
        match one {
            Ok(answer) => {
                done.nodes.insert(node, answer);
            }
            Err(why) => {
                done.failed.insert(node, why);
            }
        }
    }
    ended(doing, args, &done)
}

/// A node that takes snapshots, and the image that it takes them with.
async fn prepared(
    hosts: &Hosts,
    node: &NodeName,
    id: &ClusterId,
) -> Result<(Arc<Host>, String), Unreachable> {
    let host = hosts.get(node).await?;
    if let Some(image) = recurring_image(&host, id).await {
        return Ok((host, image));
    }
    Err(Unreachable {
        class: ErrorClass::Host,
        why: "nothing takes snapshots there".to_owned(),
        hints: vec!["`rke-operator up` sets that up".to_owned()],
        obstacle: Obstacle::Other,
    })
}

fn ended(doing: Doing, args: &NamedSnapshot, done: &Done<'_>) -> Result<u8, CliError> {
    if done.nodes.is_empty() {
        return Err(none_was(doing.done(), &done.failed));
    }
    if done.nodes.values().all(|answer| *answer == Answer::Absent) {
        let nodes = done.nodes.keys();
        let found = nodes.map(|node| format!("{node}: it is not there"));
        return Err(RestoreError::NoSuchSnapshot {
            found: found.chain(lines(&done.failed)).collect(),
        }
        .into());
    }
    match args.output {
        Output::Json => print::json(done)?,
        Output::Text => {
            let answers = done
                .nodes
                .iter()
                .map(|(node, answer)| format!("{node}: {}", said(done.name, answer)));
            print::data(
                &answers
                    .chain(lines(&done.failed))
                    .collect::<Vec<_>>()
                    .join("\n"),
            )?;
        }
    }
    let well = done.nodes.values().all(is_well);
    Ok(if well && done.failed.is_empty() {
        0
    } else {
        DEGRADED
    })
}

fn is_well(answer: &Answer) -> bool {
    match answer {
        Answer::Absent | Answer::Deleted => true,
        Answer::Verified(proof) => proof.grade == Grade::Proven,
        Answer::Foreign | Answer::LastProven => false,
    }
}

fn said(name: &str, answer: &Answer) -> String {
    match answer {
        Answer::Absent => format!("has no `{name}`"),
        Answer::Foreign => format!(
            "`{name}` was left alone: rke-operator did not write it for this cluster (it is in `{}`)",
            path::SNAPSHOTS
        ),
        Answer::Deleted => format!("deleted `{name}`"),
        Answer::LastProven => format!(
            "`{name}` stays: the node has no other proven snapshot; `rke-operator etcd snapshot-save` takes one"
        ),
        Answer::Verified(proof) => format!("`{name}` {}", found_out(proof)),
    }
}

fn found_out(proof: &Proof) -> String {
    let mut text = match proof.grade {
        Grade::Proven => "is proven",
        Grade::Checked => "is checked, and was not restored for trial",
        Grade::Saved => "was not looked into",
        Grade::Failed => "cannot be restored",
    }
    .to_owned();
    let known = [
        proof.keys.map(|keys| format!("{keys} keys")),
        proof
            .revision
            .map(|revision| format!("revision {revision}")),
        proof
            .etcd_version
            .as_ref()
            .map(|it| format!("etcd {}", printable(it))),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    if !known.is_empty() {
        let _ = write!(text, " ({})", known.join(", "));
    }
    if let Some(why) = &proof.why {
        let _ = write!(text, ": {}", printable(why));
    }
    text
}
