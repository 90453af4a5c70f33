//! Which snapshot a node copies to the bucket. Pure.
//!
//! One copy of each interval is enough, whichever member it is of. The nodes take their snapshots at different times, and
//! the first one whose snapshot is more than half an interval newer than the newest copy makes the next. So one node makes
//! them as long as it can, and another one takes its place when it cannot.

use jiff::{SignedDuration, Timestamp};

use super::{
    prune::Kept,
    record::{Grade, Listed, recurring},
};

/// The node's newest recurring snapshot, if the bucket lacks it and has none that is nearly as new.
pub fn wanted<'a>(
    now: Timestamp,
    interval: u64,
    own: &'a [Listed],
    there: &[Kept],
) -> Option<&'a Listed> {
    let (taken, newest) = recurring(own)
        .filter(|(_, one)| one.grade() != Some(Grade::Failed))
        // Taken by a clock that was ahead: how old it is cannot be known.
        .filter(|(taken, _)| *taken <= now)
        .max_by_key(|(taken, _)| *taken)?;
    let half = SignedDuration::from_secs(i64::try_from(interval / 2).unwrap_or(i64::MAX / 4));
    let nearly = taken.checked_sub(half).unwrap_or(Timestamp::MIN);
    let enough = |copy: &Kept| {
        let same = copy.name == newest.name();
        same || copy.recurring && copy.taken > nearly && copy.taken <= now
    };
    (!there.iter().any(enough)).then_some(newest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshots::record::{Cause, Proof, tests::meta};

    const INTERVAL: i64 = 3600;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn own(second: i64, grade: Grade) -> Listed {
        let mut meta = meta();
        meta.taken_at = at(second);
        Listed {
            file: format!("s{second}.zip"),
            bytes: 1,
            proof: Some(Proof {
                grade,
                at: at(second),
                by: meta.node.clone(),
                etcd_version: None,
                revision: None,
                keys: None,
                seconds: 1,
                why: None,
            }),
            meta: Some(meta),
        }
    }

    fn copy(second: i64) -> Kept {
        Kept {
            name: format!("s{second}"),
            taken: at(second),
            recurring: true,
            proven: true,
        }
    }

    fn chosen(now: i64, own: &[Listed], there: &[Kept]) -> Option<String> {
        let one = wanted(at(now), INTERVAL.unsigned_abs(), own, there)?;
        Some(one.name().to_owned())
    }

    #[test]
    fn the_newest_that_can_be_restored_is_copied_unless_one_is_nearly_as_new() {
        let all = [
            own(1000, Grade::Proven),
            own(5000, Grade::Checked),
            own(6000, Grade::Failed),
        ];
        assert_eq!(chosen(6001, &all, &[]).unwrap(), "s5000");
        assert_eq!(chosen(6001, &all, &[copy(3200)]).unwrap(), "s5000");
        assert_eq!(chosen(6001, &all, &[copy(3201)]), None);
        assert_eq!(chosen(6001, &all, &[copy(5500)]), None);
        assert_eq!(chosen(6001, &all, &[copy(5000)]), None);
        // A copy of the future says nothing, and such a snapshot is not copied.
        assert_eq!(chosen(6001, &all, &[copy(9000)]).unwrap(), "s5000");
        assert_eq!(chosen(1500, &all, &[]).unwrap(), "s1000");
        assert_eq!(chosen(900, &all, &[]), None);
    }

    #[test]
    fn what_a_person_asked_for_does_not_stand_for_the_schedule() {
        let mut asked = copy(5000);
        asked.recurring = false;
        asked.name = "before-upgrade".to_owned();
        let all = [own(5000, Grade::Proven)];
        assert_eq!(chosen(6000, &all, &[asked]).unwrap(), "s5000");
        let mut one = own(6000, Grade::Proven);
        one.meta.as_mut().unwrap().cause = Cause::Asked;
        assert_eq!(chosen(6001, &[one], &[]), None);
    }

    proptest! {
        /// Nodes that may be away at any round: as long as one of them works, each interval and a half gets a copy, and no
        /// two copies are closer to each other than half an interval.
        #[test]
        fn one_copy_of_each_interval(
            offsets in proptest::collection::vec(0..INTERVAL, 1..5),
            away in proptest::collection::vec(any::<u8>(), 30),
        ) {
            let mut there: Vec<Kept> = Vec::new();
            let mut offsets = offsets;
            offsets.sort_unstable();
            offsets.dedup();
            let mut works = Vec::new();
            for (round, away) in (0_i64..).zip(&away) {
                for (node, offset) in offsets.iter().enumerate() {
                    let now = round * INTERVAL + offset;
                    // The first node is always there.
                    if node > 0 && away & (1 << node) != 0 {
                        continue;
                    }
                    works.push(now);
                    let taken = [own(now, Grade::Proven)];
                    if let Some(name) = chosen(now, &taken, &there) {
                        prop_assert_eq!(&name, &format!("s{now}"));
                        there.push(copy(now));
                    }
                    let newest = there.iter().map(|one| one.taken.as_second()).max();
                    prop_assert!(now - newest.unwrap() <= INTERVAL / 2);
                }
            }
            for two in there.windows(2) {
                let between = two[1].taken.as_second() - two[0].taken.as_second();
                prop_assert!(between >= INTERVAL / 2);
            }
        }
    }
}
