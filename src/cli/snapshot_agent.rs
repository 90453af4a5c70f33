//! `snapshot-agent`: the program on nodes with etcd. Ends at SIGTERM.

use super::{args::SnapshotAgent, environment, report::CliError, session::Session};
use crate::snapshots::{self, Programs};

/// Runs it.
pub(super) async fn run(args: &SnapshotAgent, session: &Session) -> Result<u8, CliError> {
    let (programs, clock) = (Programs::in_container(), environment::clock());
    snapshots::run(&args.settings, programs, &clock, &session.stop).await?;
    Ok(0)
}
