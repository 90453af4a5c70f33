//! A snapshot of the node's member of etcd, before something that cannot be undone.

use super::node_error;
use crate::{
    apply::{
        executor::{Executor, bug, failed},
        limit::SNAPSHOT_PATIENCE,
        step::{Done, StepError, Warning},
    },
    host::Host,
    snapshots::{
        SavedOnce, WantedSnapshot,
        record::{Cause, Grade},
        save_once,
    },
    state::SnapshotPlace,
};

/// Saves it. One that cannot be restored is a failure; where it was not copied to the bucket, that is a warning.
pub(in crate::apply) async fn save_snapshot(
    run: &Executor<'_>,
    host: &Host,
    name: &str,
    cause: Cause,
) -> Result<Done, StepError> {
    let name = name.parse();
    let name = name.map_err(|_| bug("a snapshot is saved under a name that is none"))?;
    let tools = run.context.snapshot_tools;
    let wanted = WantedSnapshot {
        name: &name,
        cause,
        bucket: tools.and_then(|tools| tools.bucket.as_ref()),
        limit: SNAPSHOT_PATIENCE,
        again: true,
    };
    let saved = Box::pin(save_once(host, run.context.id()?, tools, wanted)).await;
    let SavedOnce {
        path,
        bytes: _,
        sha256: _,
        grade,
        why,
        copied,
        not_copied,
    } = saved.map_err(failed)?;
    if grade == Some(Grade::Failed) {
        let why = why.unwrap_or_default();
        let what = format!("the snapshot `{path}` cannot be restored: {why}");
        let hint = "`rke-operator status` (a `Cluster` has `status.conditions`) shows how etcd is";
        return Err(node_error(host, &what, &[hint]));
    }
    let node = &host.name;
    let warning = not_copied.map(|why| Warning {
        message: format!("the snapshot `{path}` on node `{node}` is in no bucket: {why}"),
        hints: vec!["copy the file from the node".to_owned()],
        degrades: false,
    });
    Ok(Done {
        detail: Some(path.clone()),
        warning,
        saved: Some(SnapshotPlace {
            path,
            bucket: copied,
        }),
    })
}
