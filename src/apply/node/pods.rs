//! The pods with running processes on a node, read from their cgroups, without the kubelet or the API.

use std::{collections::BTreeSet, time::Duration};

use super::helper::{run_helper, succeeded};
use crate::{apply::step::StepError, host::Host, model::ClusterId};

/// The name of the cgroup of a pod's process has the pod's uid, with `_` for `-` where systemd manages it.
const SCRIPT: &str = "cat /proc/[0-9]*/cgroup 2>/dev/null \
    | grep -oE 'pod[0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}' | sort -u | sed 's/^/rke-operator: /' || true";

const LIMIT: Duration = Duration::from_secs(60);

/// The UIDs of pods with running processes.
pub(in crate::apply) async fn pods(
    host: &Host,
    id: &ClusterId,
) -> Result<BTreeSet<String>, StepError> {
    let output = run_helper(host, id, SCRIPT, &[""; 0], LIMIT).await?;
    succeeded(host, &output, "its processes cannot be looked at", &[])?;
    Ok(uids(&output.log))
}

fn uids(log: &str) -> BTreeSet<String> {
    let lines = log.lines();
    let uids = lines.filter_map(|line| line.strip_prefix("rke-operator: pod"));
    uids.map(|uid| uid.trim().replace('_', "-")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_read_however_the_cgroup_is_named() {
        let log = "rke-operator: pod1b4e28ba-2fa1-11d2-883f-0016d3cca427\n\
                   rke-operator: pod1b4e28ba_2fa1_11d2_883f_0016d3cca427\nsomething else\n";
        let uid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427".to_owned();
        assert_eq!(uids(log), [uid].into());
    }
}
