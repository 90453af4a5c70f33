//! containerd's configuration, changed in a transaction that undoes itself.

use std::{sync::PoisonError, time::Duration};

use super::{
    files::put,
    helper::{helper_then, node_error},
};
use crate::{
    apply::{
        executor::{failed, until},
        step::{Done, Reporter, StepError},
        stop::Stop,
    },
    desired,
    facts::ContainerdFacts,
    host::Host,
    model::{ClusterId, ContainerdWants, SWITCH_UNIT, path},
};

const CONTAINERD: &str = include_str!("containerd.sh");
const START: &str = include_str!("containerd-start.sh");
/// Waits on the node for the result file, for some seconds: each `exec` costs two round trips.
const AWAIT: &str = "\
i=0
until [ -s \"$1\" ] || [ \"$i\" -ge 160 ]; do
  i=$((i + 1))
  sleep 0.05
done
cat \"$1\"
";
/// Where the containerd transaction leaves its result, readable for everyone.
pub(super) const RESULT: &str = "/run/rke-operator-containerd.result";
/// The script of the containerd transaction while it runs.
pub(super) const SWITCH: &str = "/etc/containerd/rke-operator-switch.sh";
/// The configuration and the drop-in until the transaction takes them.
pub(super) const NEW_CONFIG: &str = "/etc/containerd/rke-operator.toml.new";
pub(super) const DROP_IN: &str = "/etc/containerd/rke-operator-drop-in.new";

pub(in crate::apply) async fn configure_containerd(
    host: &Host,
    id: &ClusterId,
    facts: &ContainerdFacts,
    wants: &ContainerdWants,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let config = desired::containerd::containerd_config(&facts.dump, wants).map_err(failed)?;
    let drop_in = desired::containerd::drop_in(&facts.command, &wants.environment);
    put(
        host,
        &[
            (NEW_CONFIG, config.into_bytes()),
            (DROP_IN, drop_in.into_bytes()),
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
    switch_containerd(host, id, "restore", reporter, stop).await
}

/// Hands the transaction to systemd and reads its result over SSH: Docker may be unavailable
/// meanwhile. A second start waits for the first transaction to end: if that was cut off in the
/// middle, it could not switch back any more.
async fn switch_containerd(
    host: &Host,
    id: &ClusterId,
    verb: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let arguments = [
        SWITCH_UNIT,
        RESULT,
        SWITCH,
        CONTAINERD,
        verb,
        path::CONTAINERD_CONFIG,
        path::CONTAINERD_DROP_IN,
        DROP_IN,
        path::FORMER_DROP_IN,
    ];
    let limit = Duration::from_secs(60);
    let first = read_result(host, stop);
    let first = helper_then(host, id, START, &arguments, limit, first).await?;
    let first = std::sync::Mutex::new(Some(first));
    let first = &first;
    let result = until(
        "containerd's restart",
        Duration::ZERO,
        reporter,
        stop,
        |_| async move {
            let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let read = match first {
                Some(read) => read,
                None => read_result(host, stop).await,
            };
            Ok(read?.ok_or_else(|| "no result yet".to_owned()))
        },
    )
    .await?;
    match result {
        SwitchResult::Done => Ok(Done::default()),
        SwitchResult::Failed(why) => Err(node_error(
            host,
            &why,
            &[
                "look at it on the node: `journalctl -u containerd`; the file that was tried was derived from `containerd config dump`",
            ],
        )),
    }
}

async fn read_result(host: &Host, stop: &Stop) -> Result<Option<SwitchResult>, StepError> {
    let limit = Duration::from_secs(20);
    tokio::select! {
        read = host.exec_with(AWAIT, &[RESULT], limit) => {
            let output = read.map_err(failed)?;
            Ok(SwitchResult::of(&output.stdout))
        }
        _ = stop.stopped() => Err(StepError::Stopped),
    }
}

/// How the transaction ended.
#[derive(Debug, PartialEq, Eq)]
enum SwitchResult {
    Done,
    Failed(String),
}

impl SwitchResult {
    /// Reads the marked line; any other is no result.
    fn of(text: &str) -> Option<Self> {
        let words = text
            .lines()
            .find_map(|line| line.strip_prefix("@@rke-operator containerd "))?;
        match words.strip_prefix("failed: ") {
            Some(why) => Some(Self::Failed(why.to_owned())),
            None if words == "ok" => Some(Self::Done),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SwitchResult;

    /// R28: the output of a login shell in front of the result once made a failure look like success.
    #[test]
    fn only_a_marked_line_is_a_result() {
        let failed = SwitchResult::Failed("it does not start".to_owned());
        let line = "@@rke-operator containerd failed: it does not start\n";
        assert_eq!(SwitchResult::of(line).as_ref(), Some(&failed));
        assert_eq!(SwitchResult::of(&format!("Welcome!\n{line}")), Some(failed));
        assert_eq!(
            SwitchResult::of("Welcome!\n@@rke-operator containerd ok\n"),
            Some(SwitchResult::Done)
        );
        for none in ["", "ok\n", "Welcome!\n", "@@rke-operator containerd \n"] {
            assert_eq!(SwitchResult::of(none), None, "{none}");
        }
    }
}
