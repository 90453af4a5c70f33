//! `upgrade_strategy`: how many nodes at once, and whether they are drained.

use super::{Found, values};
use crate::{
    config::cursor::Cursor,
    model::{DrainRules, MaxUnavailable, UpgradeStrategy},
};

/// `None` only when a problem was found.
pub(super) fn read(at: &Cursor<'_>, found: &mut Found) -> Option<UpgradeStrategy> {
    let before = found.problems.len();
    let default = UpgradeStrategy::default();
    let workers = most(&at.get("max_unavailable_worker"), found);
    let control_planes = most(&at.get("max_unavailable_controlplane"), found);
    let rules = rules(&at.get("node_drain_input"), found);
    let drain = values::flag_or_default(&at.get("drain"), found);
    (found.problems.len() == before).then_some(UpgradeStrategy {
        workers: workers.unwrap_or(default.workers),
        control_planes: control_planes.unwrap_or(default.control_planes),
        drain: drain.then_some(rules),
    })
}

fn most(at: &Cursor<'_>, found: &mut Found) -> Option<MaxUnavailable> {
    let text = values::text(at, found)?;
    let most = match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().map(MaxUnavailable::Percent),
        None => text.parse().ok().map(MaxUnavailable::Nodes),
    };
    let most = most.filter(|most| match most {
        MaxUnavailable::Percent(percent) => (1..=100).contains(percent),
        MaxUnavailable::Nodes(nodes) => *nodes > 0,
    });
    if most.is_none() {
        found.problem(
            at.problem("must be a number of nodes, 1 or more, or a percentage, `1%` to `100%`")
                .detail(text),
        );
    }
    most
}

fn rules(at: &Cursor<'_>, found: &mut Found) -> DrainRules {
    let default = DrainRules::default();
    let mut flag = |key| values::flag_or_default(&at.get(key), found);
    let (force, ignore_daemonsets, delete_local_data) = (
        flag("force"),
        flag("ignore_daemonsets"),
        flag("delete_local_data"),
    );
    // RKE takes 0 for its default, and so does every negative grace period.
    let grace_period = seconds(&at.get("grace_period"), found).filter(|seconds| *seconds > 0);
    let timeout = &at.get("timeout");
    let seconds = seconds(timeout, found).unwrap_or_default();
    if seconds < 0 {
        found.problem(timeout.problem("must be a number of seconds, 1 or more"));
    }
    DrainRules {
        force,
        ignore_daemonsets,
        delete_local_data,
        grace_period: grace_period.and_then(|seconds| seconds.try_into().ok()),
        timeout: u32::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds > 0)
            .unwrap_or(default.timeout),
    }
}

fn seconds(at: &Cursor<'_>, found: &mut Found) -> Option<i32> {
    let text = values::text(at, found)?;
    let seconds = text.parse().ok();
    if seconds.is_none() {
        found.problem(at.problem("must be a number of seconds").detail(text));
    }
    seconds
}
