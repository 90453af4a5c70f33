//! When a node takes its next snapshot. Pure.
//!
//! Each node divides time into slots of one interval. Slots begin at a different time on each node, so that nodes do not
//! all work at once. A snapshot is due while the present slot has none. So a restart neither adds nor skips a snapshot,
//! several that were missed while the node was off are made up by one, and a clock that was set back causes one snapshot.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use super::settings::Settings;

/// How long a failure is waited for: after the last of them, until the next slot.
pub(super) const PAUSES: [Duration; 3] = [
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(25 * 60),
];

/// The slots of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    interval: i64,
    offset: i64,
}

/// Attempts that failed, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// The beginning of the slot that they were in.
    pub slot: Timestamp,
    /// How many.
    pub count: usize,
    /// When the last one ended.
    pub last: Timestamp,
}

impl Slots {
    /// Those of a node of a cluster.
    pub fn of(settings: &Settings) -> Self {
        let interval = i64::try_from(settings.policy.interval).unwrap_or(i64::MAX / 4);
        let interval = interval.clamp(1, i64::MAX / 4);
        let name = format!("{} {}", settings.cluster_id, settings.node);
        let digest = Sha256::digest(name);
        let eight = digest.first_chunk().copied().unwrap_or_default();
        let offset = i64::from_be_bytes(eight).rem_euclid(interval);
        Self { interval, offset }
    }

    /// The beginning of the slot that a time is in.
    pub fn begins(self, now: Timestamp) -> Timestamp {
        let now = now.as_second();
        let into = (now - self.offset).rem_euclid(self.interval);
        Timestamp::from_second(now - into).unwrap_or(Timestamp::MIN)
    }

    /// The beginning of the slot after it.
    fn ends(self, begins: Timestamp) -> Timestamp {
        let length = SignedDuration::from_secs(self.interval);
        begins.checked_add(length).unwrap_or(Timestamp::MAX)
    }

    /// When the next one is to be taken; `now` or before: at once. `taken`: when those that are there were taken.
    pub fn next(
        self,
        now: Timestamp,
        taken: impl IntoIterator<Item = Timestamp>,
        failures: Option<Failures>,
    ) -> Timestamp {
        let begins = self.begins(now);
        let mut taken = taken.into_iter();
        if taken.any(|taken| begins <= taken && taken <= now) {
            return self.ends(begins);
        }
        match failures {
            Some(Failures { slot, count, last }) if slot == begins => {
                match count.checked_sub(1).and_then(|at| PAUSES.get(at)) {
                    // A clock that was set back makes no pause longer.
                    Some(pause) => last.min(now).saturating_add(*pause).unwrap_or(now),
                    None => self.ends(begins),
                }
            }
            Some(_) | None => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        model::{ClusterId, NodeName, Retention, SnapshotPolicy},
        snapshots::settings,
    };

    fn slots(interval: u64, node: &str) -> Slots {
        Slots::of(&settings::Settings {
            cluster_id: ClusterId("c-1".to_owned()),
            cluster_name: "prod".to_owned(),
            node: NodeName::from(node),
            kubernetes_version: "v1.34.4".to_owned(),
            policy: SnapshotPolicy {
                interval,
                retention: Retention::Newest(6),
                timeout: 300,
                safe_timestamp: false,
            },
            bucket: None,
            ca: String::new(),
            cert: String::new(),
            key: String::new(),
        })
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn one_is_taken_in_each_slot() {
        let slots = slots(3600, "n1");
        let begins = slots.begins(at(1_000_000));
        let inside = begins.as_second() + 100;
        assert_eq!(slots.next(at(inside), [], None), at(inside));
        let before = at(begins.as_second() - 1);
        assert_eq!(slots.next(at(inside), [before], None), at(inside));
        let next = at(begins.as_second() + 3600);
        assert_eq!(slots.next(at(inside), [at(inside - 50)], None), next);
        assert_eq!(slots.next(next, [at(inside)], None), next);
    }

    #[test]
    fn nodes_take_theirs_at_different_times() {
        let begins = |node: &str| slots(12 * 3600, node).begins(at(1_000_000_000));
        assert_ne!(begins("n1"), begins("n2"));
        assert_eq!(begins("n1"), begins("n1"));
    }

    #[test]
    fn a_failure_is_tried_again_three_times_and_then_in_the_next_slot() {
        let slots = slots(12 * 3600, "n1");
        let begins = slots.begins(at(1_000_000));
        let now = at(begins.as_second() + 10);
        let after = |count| {
            let failures = Failures {
                slot: begins,
                count,
                last: now,
            };
            let next = slots.next(now, [], Some(failures));
            next.as_second() - now.as_second()
        };
        assert_eq!([1, 2, 3].map(after), [60, 300, 1500]);
        assert_eq!(after(4), 12 * 3600 - 10);
    }

    proptest! {
        /// A clock that jumps forward and back, a program that is restarted at any time: no slot has two unless the clock
        /// went back, and when the clock stands still long enough, there is one in the present slot.
        #[test]
        fn no_jump_of_the_clock_skips_a_slot_or_takes_two(
            interval in 60_i64..100_000,
            jumps in proptest::collection::vec(-200_000_i64..200_000, 1..40),
        ) {
            let slots = slots(interval.unsigned_abs(), "n1");
            let mut now = 1_700_000_000_i64;
            let mut taken: Vec<Timestamp> = Vec::new();
            for jump in jumps {
                now += jump;
                if slots.next(at(now), taken.iter().copied(), None) <= at(now) {
                    let begins = slots.begins(at(now));
                    prop_assert!(!taken.iter().any(|taken| *taken >= begins && *taken <= at(now)));
                    taken.push(at(now));
                }
                let next = slots.next(at(now), taken.iter().copied(), None);
                prop_assert!(next > at(now));
                prop_assert!(next.as_second() - now <= interval);
                let begins = slots.begins(at(now));
                prop_assert!(taken.iter().any(|taken| *taken >= begins && *taken <= at(now)));
            }
        }
    }
}
