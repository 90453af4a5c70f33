//! The data of etcd's first member out of a snapshot. What was there is set aside, and nothing of it is deleted. Torn
//! anywhere it is done again: the folders say how far it came.

use std::time::Duration;

use super::{
    helper::{node_error, run_helper, succeeded},
    member::mounted,
};
use crate::{
    apply::{
        executor::failed,
        step::{Done, StepError},
    },
    host::{Host, Program},
    model::{ClusterId, path},
    plan::EtcdRestore,
};

const SCRIPT: &str = include_str!("restore.sh");

/// For a rename, or to read a snapshot of some gigabytes once.
const SHORT: Duration = Duration::from_secs(170);
/// For a snapshot of 8 GiB on a slow disk.
const RESTORES: Duration = Duration::from_secs(25 * 60);

/// Moves what the member's folder has aside.
pub(in crate::apply) async fn set_aside(
    host: &Host,
    id: &ClusterId,
    epoch: u32,
) -> Result<Done, StepError> {
    let said = script(host, id, epoch, "aside", &[]).await?;
    match said.first().map(String::as_str) {
        Some("below") => Err(mounted(host, said.get(1).map_or("", String::as_str))),
        Some(_) | None => Ok(Done::default()),
    }
}

/// Makes the data of the first member.
pub(in crate::apply) async fn restore(
    host: &Host,
    id: &ClusterId,
    restore: &EtcdRestore,
) -> Result<Done, StepError> {
    let epoch = restore.epoch;
    let snapshot = format!("{}/{}", path::SNAPSHOTS, restore.snapshot);
    let said = script(host, id, epoch, "ready", &[&snapshot, &restore.sha256]).await?;
    let words: Vec<&str> = said.iter().map(String::as_str).collect();
    let mebibytes = |kibibytes: &str| kibibytes.parse::<u64>().unwrap_or_default() / 1024;
    let folder = match words.as_slice() {
        ["done"] => return Ok(Done::default()),
        ["ready", folder] => *folder,
        ["gone"] => {
            let what = format!("`{snapshot}` is no longer there");
            return Err(node_error(host, &what, &["copy it there again"]));
        }
        ["another"] => {
            let what =
                format!("`{snapshot}` is not the file that was looked at before, or is damaged");
            return Err(node_error(host, &what, &[]));
        }
        ["full", free, needed] => {
            let (free, needed) = (mebibytes(free), mebibytes(needed));
            let what = format!(
                "{free} MiB are left for `{}`, and the restored data may need {needed}",
                path::ETCD
            );
            let cure = "make room there: what is of the time before a restore is in folders `member.before-…`";
            return Err(node_error(host, &what, &[cure]));
        }
        _ => return Err(node_error(host, "the snapshot cannot be looked at", &[])),
    };
    let program = etcdutl(restore, &snapshot, folder);
    let output = host.run_program(&program, id).await.map_err(failed)?;
    succeeded(host, &output, "etcdutl did not restore the snapshot", &[])?;
    set_aside(host, id, epoch).await?;
    script(host, id, epoch, "place", &[]).await?;
    Ok(Done::default())
}

/// What it writes is only this member's: the others join it.
fn etcdutl(restore: &EtcdRestore, snapshot: &str, folder: &str) -> Program {
    let EtcdRestore {
        epoch: _,
        image,
        snapshot: _,
        sha256: _,
        member,
        peer_url,
        token,
        bump,
    } = restore;
    let command = [
        "etcdutl".to_owned(),
        "snapshot".to_owned(),
        "restore".to_owned(),
        snapshot.to_owned(),
        format!("--name={member}"),
        format!("--initial-cluster={member}={peer_url}"),
        format!("--initial-advertise-peer-urls={peer_url}"),
        format!("--initial-cluster-token={token}"),
        format!("--data-dir={folder}"),
        format!("--bump-revision={bump}"),
        // A watch from an old revision fails with "compacted", and its client lists again.
        "--mark-compacted".to_owned(),
    ];
    Program {
        image: image.clone(),
        command: command.to_vec(),
        binds: vec![
            format!("{}:{}:ro", path::SNAPSHOTS, path::SNAPSHOTS),
            format!("{}:{}", path::ETCD, path::ETCD),
        ],
        limit: RESTORES,
    }
}

/// The words that a script answered.
async fn script(
    host: &Host,
    id: &ClusterId,
    epoch: u32,
    what: &str,
    more: &[&str],
) -> Result<Vec<String>, StepError> {
    let epoch = epoch.to_string();
    let arguments: Vec<&str> = [path::ETCD_MEMBER, &epoch, what]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    let output = run_helper(host, id, SCRIPT, &arguments, SHORT).await?;
    succeeded(host, &output, "the folders of etcd's data", &[])?;
    let line = output
        .log
        .lines()
        .find_map(|line| line.strip_prefix("rke-operator: "));
    let words = line.unwrap_or_default().split_whitespace();
    Ok(words.map(str::to_owned).collect())
}
