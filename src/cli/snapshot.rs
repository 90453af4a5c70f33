//! `etcd snapshot-save`: a snapshot on every node with etcd, one node after the other.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use super::{
    args::{Output, S3, SnapshotSave},
    dispatch::DEGRADED,
    environment::{self, Opening},
    intent,
    kubeconfig::state,
    output::results::SaveResult,
    print,
    report::{CliError, Failure},
    session::{STOPPED, Session},
    sources::read_at_most,
};
use crate::{
    config::{BucketWords, Intent, MAX_BYTES},
    converge::{self, AskedSnapshot, Goal, Purpose, RestoreError, SavedSnapshots, targets},
    environment::Environment,
    error::{ErrorClass, distinct},
    etcd::snapshot::SnapshotName,
    facts::Unreachable,
    host::{TcpDial, pool::Hosts},
    model::{Bucket, NodeName, Role, Secret, printable},
    snapshots::{SavedOnce, record::Grade},
    state::ClusterState,
};

/// The bucket of the flags and the config; `None`: no flag of S3 was given.
pub(super) fn bucket(flags: &S3, intent: &Intent) -> Result<Option<Bucket>, CliError> {
    if !flags.is_asked_for() {
        return Ok(None);
    }
    let ca = flags.s3_endpoint_ca.as_deref().map(|path| {
        read_at_most(MAX_BYTES, path).map_err(|source| Failure::Read {
            what: format!("`{}`", path.display()),
            source,
        })
    });
    let words = BucketWords {
        endpoint: flags.s3_endpoint.clone(),
        region: flags.region.clone(),
        name: flags.bucket_name.clone(),
        folder: flags.folder.clone(),
        ca: ca.transpose()?,
        access: flags.access_key.clone().map(Secret::new),
        secret: flags.secret_key.clone().map(Secret::new),
    };
    let bucket = words.over(intent.services.snapshot_bucket.as_deref());
    let bucket = bucket.map_err(Failure::BadBucket)?;
    Ok(Some(bucket.ok_or(Failure::NoBucket)?))
}

fn said(node: &NodeName, saved: &SavedOnce) -> String {
    let mut text = format!("{node}: saved `{}` ({} bytes)", saved.path, saved.bytes);
    let looked = match saved.grade {
        None => "",
        Some(Grade::Proven) => ", proven",
        Some(Grade::Checked) => ", checked, without a trial restore",
        Some(Grade::Saved) => ", not verified",
        Some(Grade::Failed) => ", which cannot be restored",
    };
    text.push_str(looked);
    if let Some(why) = &saved.why {
        let _ = write!(text, ": {}", printable(why));
    }
    if let Some(bucket) = &saved.copied {
        let _ = write!(text, "; copied to the bucket {}", printable(bucket));
    }
    if let Some(why) = &saved.not_copied {
        let _ = write!(text, "; not copied: {}", printable(why));
    }
    text
}

/// Runs it. As in RKE it succeeds when one node has saved it; the others are named, and the exit code
/// tells.
pub(super) async fn save(args: &SnapshotSave, session: &Session) -> Result<u8, CliError> {
    let file = &args.config.config;
    let intent = intent::load(file, session).await?;
    let wanted = bucket(&args.s3, &intent)?;
    let environment = environment::open(file, Opening::to_change(&args.trust), session)?;
    let saved = state(file, &environment).await?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => SnapshotName::of_time(environment.clock.now()),
    };
    let wants = intent.services.snapshots.is_some();
    if wanted.is_some() && wants && intent.agent.is_none() {
        return Err(RestoreError::NotStatic.into());
    }
    let asked = AskedSnapshot {
        name: &name,
        bucket: wanted.as_ref(),
        again: false,
    };
    let show = |node: &NodeName, one: &Result<SavedOnce, Unreachable>| {
        if let Ok(snapshot) = one {
            session.screen.print_unless_quiet(&said(node, snapshot));
        }
    };
    let saving = converge::save_snapshots(asked, &intent, &saved, &environment, show);
    let SavedSnapshots { saved, failed } = tokio::select! {
        biased;
        // What is half done is cleared away by the next one.
        _ = session.stop.stopped() => return Ok(STOPPED),
        done = Box::pin(saving) => done?,
    };
    if saved.is_empty() {
        return Err(none_was("saved", &failed));
    }
    for line in lines(&failed) {
        session.screen.print(&line);
    }
    let result = SaveResult {
        name: name.as_str(),
        saved,
        failed,
    };
    ended(args, &result)
}

/// The nodes that have etcd, and the way to them.
pub(super) async fn with_etcd(
    intent: &Intent,
    saved: &ClusterState,
    environment: &Environment,
) -> (Hosts, Vec<NodeName>) {
    let has_etcd = |node: &NodeName| saved.has_role(node, Role::Etcd);
    reached(intent, Some(saved), environment, has_etcd).await
}

/// The nodes that are taken, of the config and of the state.
pub(super) async fn reached(
    intent: &Intent,
    saved: Option<&ClusterState>,
    environment: &Environment,
    takes: impl Fn(&NodeName) -> bool,
) -> (Hosts, Vec<NodeName>) {
    let mut targets = targets(Goal::Up(intent).any(), saved, environment).await;
    targets.retain(|node, _| takes(node));
    let nodes: Vec<NodeName> = targets.keys().cloned().collect();
    let hosts = Hosts::new(Arc::new(TcpDial), Arc::clone(&environment.host_keys));
    hosts.aim(targets);
    (hosts, nodes)
}

fn ended(args: &SnapshotSave, result: &SaveResult<'_>) -> Result<u8, CliError> {
    match args.output {
        Output::Json => print::json(result)?,
        Output::Text => {
            let mut text = String::new();
            for (node, SavedOnce { path, sha256, .. }) in &result.saved {
                let _ = write!(text, "{}{node} {path} sha256:{sha256}", gap(&text));
            }
            print::data(&text)?;
        }
    }
    let uncopied = |saved: &SavedOnce| saved.not_copied.is_some();
    let bad = |saved: &SavedOnce| saved.grade == Some(Grade::Failed);
    let all = result.saved.values();
    let copied = !all.clone().any(uncopied) || all.clone().any(|saved| saved.copied.is_some());
    Ok(
        if result.failed.is_empty() && copied && !all.clone().any(bad) {
            0
        } else {
            DEGRADED
        },
    )
}

/// No node did it.
pub(super) fn none_was(done: &'static str, failed: &BTreeMap<NodeName, Unreachable>) -> CliError {
    let class = failed.values().map(|why| why.class).next();
    Failure::NoSnapshot {
        done,
        failed: lines(failed).collect(),
        hints: distinct(failed.values().flat_map(|why| why.hints.clone())),
        class: class.unwrap_or(ErrorClass::Host),
    }
    .into()
}

/// A line for each node that failed.
pub(super) fn lines(failed: &BTreeMap<NodeName, Unreachable>) -> impl Iterator<Item = String> {
    let each = failed.iter();
    each.map(|(node, why)| format!("{node}: {}", why.why))
}

const fn gap(text: &str) -> &'static str {
    if text.is_empty() { "" } else { "\n" }
}
