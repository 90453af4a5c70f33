//! `services.etcd.snapshot`, `creation`, `retention` and `backup_config`: recurring snapshots of etcd. Pure.

use super::{Found, values};
use crate::{
    config::cursor::Cursor,
    model::{Retention, SnapshotPolicy, go_duration},
};

const HOUR: u64 = 60 * 60;
/// A snapshot more often is none that anyone needs.
const LEAST: u64 = 60;

/// What is wanted; `None`: no recurring snapshots. RKE takes them by default. In RKE `backup_config: {enabled: false}`
/// does not stop them, which is a bug: what is meant is clear.
pub(super) fn read(etcd: &Cursor<'_>, found: &mut Found) -> Option<SnapshotPolicy> {
    let backup = etcd.get("backup_config");
    // Each is read in any case: what is wrong with it is reported.
    let plain = SnapshotPolicy {
        interval: duration(&etcd.get("creation"), found),
        retention: Retention::Younger(duration(&etcd.get("retention"), found)),
        timeout: number(&backup.get("timeout"), found),
        safe_timestamp: values::flag_or_default(&backup.get("safe_timestamp"), found),
    };
    let interval = number(&backup.get("interval_hours"), found) * HOUR;
    let newest = number(&backup.get("retention"), found);
    let wanted = values::flag_or_default(&etcd.get("snapshot"), found);
    let enabled = values::flag_or_default(&backup.get("enabled"), found);
    // As in RKE: those who run an external etcd take them.
    if !wanted || !enabled || !etcd.get("external_urls").is_empty() {
        return None;
    }
    Some(if backup.has_nothing() {
        plain
    } else {
        SnapshotPolicy {
            interval,
            retention: Retention::Newest(u32::try_from(newest).unwrap_or(u32::MAX)),
            ..plain
        }
    })
}

/// In RKE 0 stands for the default.
fn number(at: &Cursor<'_>, found: &mut Found) -> u64 {
    match values::number_or_default(at, found) {
        0 => at.default().parse().unwrap_or_default(),
        number => number.into(),
    }
}

fn duration(at: &Cursor<'_>, found: &mut Found) -> u64 {
    let text = values::or_default(at, found);
    let seconds = go_duration(text).map(|duration| duration.as_secs());
    match seconds {
        Some(seconds) if seconds >= LEAST => seconds,
        Some(_) => {
            found.problem(at.problem("must be a minute or more").detail(text));
            LEAST
        }
        None => {
            let problem = at.problem("must be a duration, as in `12h` or `90m`");
            found.problem(problem.detail(text));
            LEAST
        }
    }
}
