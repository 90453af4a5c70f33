//! containerd's configuration, changed in a transaction that undoes itself.

use std::time::Duration;

use super::{
    files::put,
    job::{job, node_error},
};
use crate::{
    apply::{
        effects::{failed, until},
        step::{Done, Reporter, StepError},
        stop::Stop,
    },
    desired::{self, ContainerdWants, SWITCH_UNIT, path},
    host::Host,
    state::ClusterId,
};

const CONTAINERD: &str = include_str!("containerd.sh");
/// Where the containerd transaction leaves its verdict, readable for everyone.
pub(super) const VERDICT: &str = "/run/rke-operator-containerd.result";
/// The script of the containerd transaction while it runs.
const SWITCH: &str = "/etc/containerd/rke-operator-switch.sh";

pub(in crate::apply) async fn configure_containerd(
    host: &Host,
    id: &ClusterId,
    dump: &str,
    wants: &ContainerdWants,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let config = desired::containerd::containerd_config(dump, wants).map_err(failed)?;
    let new = format!("{}.new", path::CONTAINERD_CONFIG);
    put(
        host,
        &[
            (&new, config.into_bytes()),
            (SWITCH, CONTAINERD.as_bytes().to_vec()),
        ],
    )
    .await?;
    switch_containerd(host, id, "configure", reporter, stop).await
}

pub(in crate::apply) async fn restore_containerd(
    host: &Host,
    id: &ClusterId,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    put(host, &[(SWITCH, CONTAINERD.as_bytes().to_vec())]).await?;
    switch_containerd(host, id, "restore", reporter, stop).await
}

/// Hands the transaction to systemd and reads its verdict over SSH: Docker may be away
/// meanwhile. Started twice, the second start waits for the first to end: cut off in the middle,
/// it could not switch back any more.
async fn switch_containerd(
    host: &Host,
    id: &ClusterId,
    verb: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let start = format!(
        "while systemctl is-active --quiet {SWITCH_UNIT}; do sleep 0.2; done; \
         rm -f {VERDICT}; systemctl reset-failed {SWITCH_UNIT} 2>/dev/null; \
         exec systemd-run --no-block --collect --quiet --unit={SWITCH_UNIT} \
         /bin/sh -c 'sh {SWITCH} {verb}; status=$?; rm -f {SWITCH}; exit $status'"
    );
    job(host, id, &start, Duration::from_secs(60)).await?;
    let every = Duration::from_millis(250);
    let verdict = until(
        "containerd's restart",
        every,
        reporter,
        stop,
        |_| async move {
            let read = host
                .exec(&format!("cat {VERDICT}"), Duration::from_secs(10))
                .await;
            let output = read.map_err(failed)?;
            let verdict = output.stdout.trim().to_owned();
            let there = output.status == 0 && !verdict.is_empty();
            Ok(if there {
                Ok(verdict)
            } else {
                Err("no verdict yet".to_owned())
            })
        },
    )
    .await?;
    match verdict.strip_prefix("failed: ") {
        None => Ok(Done::default()),
        Some(why) => Err(node_error(
            host,
            why,
            &[
                "look at it on the node: `journalctl -u containerd`; the file that was tried was derived from `containerd config dump`",
            ],
        )),
    }
}
