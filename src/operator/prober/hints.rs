//! When a difference between what a prober and what the last survey saw is a hint: once, a moment after it began, and
//! however much there is, not more often than a budget allows. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::sight::Difference;

/// So long a difference lasts before it is a hint: what stops and starts again within it is none, and what belongs
/// together comes together.
const SETTLES: Duration = Duration::from_millis(300);

/// How many hints there may be at once, and after how long there may be another one.
const BURST: u32 = 3;
const REFILL: Duration = Duration::from_secs(60);

/// What becomes of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It is a hint, when its time has come.
    Fresh,
    /// A hint was given for it, or a survey saw the cluster after it began.
    Told,
}

/// The differences of one cluster. All times are since the same moment.
#[derive(Debug)]
pub(super) struct Hints {
    open: BTreeMap<Difference, (Duration, Course)>,
    /// A run is in progress.
    run: bool,
    tokens: u32,
    /// When the last token came.
    refilled: Duration,
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            run: false,
            tokens: BURST,
            refilled: Duration::ZERO,
        }
    }
}

impl Hints {
    /// These are the differences now.
    pub(super) fn sees(&mut self, now: Duration, differences: BTreeSet<Difference>) {
        self.open
            .retain(|difference, _| differences.contains(difference));
        for difference in differences {
            self.open.entry(difference).or_insert((now, Course::Fresh));
        }
    }

    /// A survey that began then has seen the cluster: what differs from it all the same, and began before, is no news.
    pub(super) fn surveyed(&mut self, began: Duration) {
        for (since, course) in self.open.values_mut() {
            if *since < began {
                *course = Course::Told;
            }
        }
    }

    /// A run begins or ends: what it causes is no hint.
    pub(super) const fn runs(&mut self, run: bool) {
        self.run = run;
    }

    /// When the next hint is due, as things are.
    pub(super) fn due(&self) -> Option<Duration> {
        if self.run {
            return None;
        }
        let fresh = self
            .open
            .values()
            .filter(|(_, course)| *course == Course::Fresh);
        let first = fresh.map(|(since, _)| *since).min()?;
        let due = first + SETTLES;
        Some(if self.tokens > 0 {
            due
        } else {
            due.max(self.refilled + REFILL)
        })
    }

    /// Takes the hint that is due, if one is: all that is new.
    pub(super) fn take(&mut self, now: Duration) -> Option<Vec<Difference>> {
        if self.due()? > now {
            return None;
        }
        self.refill(now);
        self.tokens = self.tokens.saturating_sub(1);
        let fresh = self.open.iter_mut();
        let fresh = fresh.filter(|(_, (_, course))| *course == Course::Fresh);
        let told = fresh.map(|(difference, (_, course))| {
            *course = Course::Told;
            difference.clone()
        });
        Some(told.collect())
    }

    fn refill(&mut self, now: Duration) {
        while self.tokens < BURST && now.saturating_sub(self.refilled) >= REFILL {
            self.tokens += 1;
            self.refilled += REFILL;
        }
        if self.tokens == BURST {
            self.refilled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::NodeName;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn some(nodes: &[u8]) -> BTreeSet<Difference> {
        let nodes = nodes.iter();
        nodes
            .map(|node| Difference::Answers(NodeName(format!("n{node}")), false))
            .collect()
    }

    #[test]
    fn a_difference_is_a_hint_once() {
        let mut hints = Hints::default();
        assert_eq!(hints.due(), None);
        hints.sees(at(10), some(&[1]));
        assert_eq!(hints.due(), Some(at(10) + SETTLES));
        assert_eq!(hints.take(at(10)), None, "it may pass");
        hints.sees(at(10), some(&[1, 2]));
        let told = hints.take(at(11)).unwrap();
        assert_eq!(told.len(), 2, "what belongs together");
        hints.sees(at(12), some(&[1, 2]));
        assert_eq!(hints.due(), None);
        hints.sees(at(13), some(&[2]));
        hints.sees(at(14), some(&[1, 2]));
        assert_eq!(hints.take(at(15)), Some(some(&[1]).into_iter().collect()));
    }

    /// What passes within the moment is none.
    #[test]
    fn what_is_over_at_once_is_no_hint() {
        let mut hints = Hints::default();
        hints.sees(at(10), some(&[1]));
        hints.sees(at(10) + SETTLES / 2, some(&[]));
        assert_eq!(hints.due(), None);
    }

    /// What was so before a survey began is known by it; what came while it was in progress may have escaped it.
    #[test]
    fn what_a_survey_has_seen_is_no_hint() {
        let mut hints = Hints::default();
        hints.sees(at(10), some(&[1]));
        hints.sees(at(20), some(&[1, 2]));
        hints.surveyed(at(15));
        assert_eq!(hints.take(at(30)), Some(some(&[2]).into_iter().collect()));
    }

    #[test]
    fn during_a_run_there_is_no_hint_and_after_it_what_is_left_is_one() {
        let mut hints = Hints::default();
        hints.runs(true);
        hints.sees(at(10), some(&[1]));
        assert_eq!((hints.due(), hints.take(at(60))), (None, None));
        hints.runs(false);
        assert!(hints.take(at(60)).is_some());
    }

    proptest! {
        /// However often what comes and goes: not more hints than the budget has.
        #[test]
        fn hints_have_a_budget(flaps in prop::collection::vec((0..4u8, 0..5000u64), 1..400)) {
            let mut hints = Hints::default();
            let (mut now, mut given) = (Duration::ZERO, 0_u32);
            for (which, pause) in flaps {
                hints.sees(now, some(&[which]));
                now += Duration::from_millis(pause);
                given += u32::from(hints.take(now).is_some());
                hints.sees(now, some(&[]));
            }
            let minutes = u32::try_from(now.as_secs() / 60).unwrap();
            prop_assert!(given <= BURST + minutes, "{given} in {now:?}");
        }

        /// Whatever is there long enough becomes a hint.
        #[test]
        fn no_difference_is_forgotten(pauses in prop::collection::vec(1..2000u64, 1..50)) {
            let mut hints = Hints::default();
            let mut now = Duration::ZERO;
            for (number, pause) in pauses.into_iter().enumerate() {
                let node = u8::try_from(number).unwrap();
                hints.sees(now, some(&[node]));
                now += Duration::from_millis(pause);
                drop(hints.take(now));
            }
            hints.sees(now, some(&[200]));
            let due = hints.due().unwrap();
            prop_assert!(due <= now + SETTLES.max(REFILL));
            prop_assert!(hints.take(due).is_some());
        }
    }
}
