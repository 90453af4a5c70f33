//! What this program does on nodes with etcd: `snapshot-agent` ends at SIGTERM, the others once they are done.

use std::{io, path::Path};

use super::{
    args::{SnapshotAgent, SnapshotOnNode},
    environment, print,
    report::{CliError, Failure},
    session::{STOPPED, Session},
};
use crate::{
    model::{Bucket, path},
    snapshots::{self, Programs},
};

/// Takes recurring snapshots.
pub(super) async fn run(args: &SnapshotAgent, session: &Session) -> Result<u8, CliError> {
    let (programs, clock) = (Programs::in_container(), environment::clock());
    snapshots::run(&args.settings, programs, &clock, &session.stop).await?;
    Ok(0)
}

/// Takes one.
pub(super) async fn take(args: &SnapshotOnNode, session: &Session) -> Result<u8, CliError> {
    let (programs, clock) = (Programs::in_container(), environment::clock());
    let bucket = bucket(args)?;
    let settings = Path::new(path::SNAPSHOT_SETTINGS);
    let taking = snapshots::take(
        settings,
        &programs,
        &clock,
        &args.name,
        (args.cause, args.again),
        bucket.as_ref(),
    );
    let taken = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        taken = Box::pin(taking) => taken?,
    };
    print::line(&taken)?;
    Ok(0)
}

/// Looks into one once more.
pub(super) async fn verify(args: &SnapshotOnNode, session: &Session) -> Result<u8, CliError> {
    let (programs, clock) = (Programs::in_container(), environment::clock());
    let settings = Path::new(path::SNAPSHOT_SETTINGS);
    let answer = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        answer = Box::pin(snapshots::verify(settings, &programs, &clock, &args.name)) => answer?,
    };
    print::line(&answer)?;
    Ok(0)
}

/// Deletes one.
pub(super) fn delete(args: &SnapshotOnNode) -> Result<u8, CliError> {
    let settings = Path::new(path::SNAPSHOT_SETTINGS);
    let answer = snapshots::delete(settings, &Programs::in_container(), &args.name)?;
    print::line(&answer)?;
    Ok(0)
}

/// Reads the state out of one.
pub(super) async fn state(args: &SnapshotOnNode, session: &Session) -> Result<u8, CliError> {
    let (programs, document) = (Programs::in_container(), Path::new(snapshots::DOCUMENT));
    let held = tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        held = Box::pin(snapshots::state(&programs, &args.name, document)) => held?,
    };
    print::line(&held)?;
    Ok(0)
}

/// Copies one from the bucket.
pub(super) async fn fetch(args: &SnapshotOnNode, session: &Session) -> Result<u8, CliError> {
    let bucket = bucket(args)?.ok_or(Failure::NoBucket)?;
    tokio::select! {
        biased;
        _ = session.stop.stopped() => return Ok(STOPPED),
        fetched = snapshots::fetch(&bucket, &args.name, Path::new(path::SNAPSHOTS)) => fetched?,
    }
    Ok(0)
}

fn bucket(args: &SnapshotOnNode) -> Result<Option<Bucket>, CliError> {
    let Some(path) = &args.bucket else {
        return Ok(None);
    };
    let read = std::fs::read(path).and_then(|text| Ok(serde_json::from_slice(&text)?));
    read.map(Some).map_err(|source: io::Error| {
        Failure::Read {
            what: format!("`{}`", path.display()),
            source,
        }
        .into()
    })
}
