//! Which snapshots a node no longer keeps. Pure.
//!
//! Only recurring snapshots of this cluster are ever in question: what a person asked for, and what others wrote, is
//! theirs. The newest that was proven stays, and so do the three newest, whatever the policy says.
//!
//! A clock that was ahead leaves snapshots of the future. None of the present is deleted for them: else each would go as
//! soon as it was taken.

use std::cmp::Reverse;

use jiff::Timestamp;

use crate::model::Retention;

/// So many recurring snapshots stay in any case.
const ALWAYS: usize = 3;

/// A snapshot of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// When it was taken.
    pub taken: Timestamp,
    /// It was taken by the schedule.
    pub recurring: bool,
    /// It was restored for trial and read.
    pub proven: bool,
}

/// The names of those that go.
pub fn expired(now: Timestamp, snapshots: &[Kept], retention: Retention) -> Vec<&str> {
    let (past, future): (Vec<&Kept>, _) = snapshots.iter().partition(|one| one.taken <= now);
    [past, future]
        .iter()
        .flat_map(|those| expired_of(now, those, retention))
        .collect()
}

/// The same, of those that were all taken up to now, or all by a clock that was ahead.
fn expired_of<'a>(now: Timestamp, snapshots: &[&'a Kept], retention: Retention) -> Vec<&'a str> {
    let proven = snapshots.iter().filter(|one| one.proven);
    let newest_proven = proven.map(|one| one.taken).max();
    let recurring = snapshots.iter().copied().filter(|one| one.recurring);
    let mut recurring: Vec<&Kept> = recurring.collect();
    recurring.sort_by_key(|one| (Reverse(one.taken), &one.name));
    let old = |at: usize, one: &Kept| match retention {
        Retention::Newest(count) => at >= usize::try_from(count).unwrap_or(usize::MAX),
        Retention::Younger(seconds) => {
            let age = now.as_second().saturating_sub(one.taken.as_second());
            u64::try_from(age).is_ok_and(|age| age > seconds)
        }
    };
    let each = recurring.into_iter().enumerate();
    each.filter(|(at, one)| *at >= ALWAYS && old(*at, one))
        .filter(|(_, one)| !(one.proven && Some(one.taken) == newest_proven))
        .map(|(_, one)| one.name.as_str())
        .collect()
}

/// True where no other snapshot of the node was proven.
pub fn is_last_proven(name: &str, snapshots: &[Kept]) -> bool {
    let mut proven = snapshots.iter().filter(|one| one.proven);
    proven.next().is_some_and(|one| one.name == name) && proven.next().is_none()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn kept(hours: i64, recurring: bool, proven: bool) -> Kept {
        Kept {
            name: format!("s{hours}"),
            taken: at(hours * 3600),
            recurring,
            proven,
        }
    }

    #[test]
    fn the_oldest_go_by_number_or_by_age() {
        let all: Vec<Kept> = (1..=8).map(|hour| kept(hour, true, true)).collect();
        let now = at(8 * 3600);
        let six = expired(now, &all, Retention::Newest(6));
        assert_eq!(six, ["s2", "s1"]);
        let young = expired(now, &all, Retention::Younger(4 * 3600));
        assert_eq!(young, ["s3", "s2", "s1"]);
        assert_eq!(expired(now, &all, Retention::Newest(0)).len(), 5);
    }

    #[test]
    fn none_of_the_present_goes_for_those_of_the_future() {
        let mut all: Vec<Kept> = (101..=108).map(|hour| kept(hour, true, true)).collect();
        all.push(kept(9, true, true));
        all.push(kept(10, true, true));
        let gone = expired(at(10 * 3600), &all, Retention::Newest(4));
        assert_eq!(gone, ["s104", "s103", "s102", "s101"]);
    }

    #[test]
    fn what_a_person_asked_for_stays() {
        let mut all: Vec<Kept> = (2..=9).map(|hour| kept(hour, true, false)).collect();
        all.push(kept(1, false, false));
        let gone = expired(at(1_000_000), &all, Retention::Newest(3));
        assert_eq!(gone, ["s6", "s5", "s4", "s3", "s2"]);
    }

    #[test]
    fn the_newest_proven_one_stays_however_old_it_is() {
        let mut all: Vec<Kept> = (1..=9).map(|hour| kept(hour, true, false)).collect();
        all[1].proven = true;
        all[0].proven = true;
        let gone = expired(at(9 * 3600), &all, Retention::Newest(3));
        assert_eq!(gone, ["s6", "s5", "s4", "s3", "s1"]);
    }

    proptest! {
        #[test]
        fn there_are_never_fewer_than_one_proven_and_three_in_all(
            snapshots in proptest::collection::vec((0_i64..1000, any::<bool>(), any::<bool>()), 0..30),
            now in 0_i64..2000,
            retention in prop_oneof![
                (0_u32..10).prop_map(Retention::Newest),
                (0_u64..5_000_000).prop_map(Retention::Younger),
            ],
        ) {
            let all: Vec<Kept> = snapshots
                .into_iter()
                .enumerate()
                .map(|(at, (hour, recurring, proven))| Kept {
                    name: format!("s{at}"),
                    ..kept(hour, recurring, proven)
                })
                .collect();
            let gone = expired(at(now * 3600), &all, retention);
            let (left, lost): (Vec<&Kept>, Vec<&Kept>) =
                all.iter().partition(|one| !gone.contains(&one.name.as_str()));
            prop_assert!(lost.iter().all(|one| one.recurring));
            let recurring = all.iter().filter(|one| one.recurring).count();
            let still = left.iter().filter(|one| one.recurring).count();
            prop_assert!(still >= recurring.min(ALWAYS));
            let proven = |all: &mut dyn Iterator<Item = &Kept>| {
                all.filter(|one| one.proven).map(|one| one.taken).max()
            };
            prop_assert_eq!(proven(&mut all.iter()), proven(&mut left.iter().copied()));
            let present = |one: &&Kept| one.recurring && one.taken <= at(now * 3600);
            let newest = all.iter().filter(present).map(|one| one.taken).max();
            let still = left.into_iter().filter(present).map(|one| one.taken).max();
            prop_assert_eq!(newest, still);
        }
    }
}
