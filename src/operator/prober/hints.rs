//! When a difference between what a prober and what the last survey saw is a hint: once, a moment after it began, and
//! however much there is, not more often than a budget allows. One that waits for the budget is reported meanwhile. Pure.

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

/// How often what waits for the budget is reported, at most.
const REPORTS: Duration = Duration::from_secs(10);

/// What the reconcile is woken for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// A survey, for all that is new.
    Survey(Vec<Difference>),
    /// The conditions alone: the survey waits for the budget.
    Report,
}

/// What becomes of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It is a hint, when its time has come.
    Fresh,
    /// The same, and it was reported.
    Reported,
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
    /// When something was reported last.
    reported: Option<Duration>,
    /// Since when something that was reported, and is over, waits for a survey.
    over: Option<Duration>,
    /// A hint was given, and no survey has begun since.
    awaited: bool,
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            run: false,
            tokens: BURST,
            refilled: Duration::ZERO,
            reported: None,
            over: None,
            awaited: false,
        }
    }
}

impl Hints {
    /// These are the differences now.
    pub(super) fn sees(&mut self, now: Duration, differences: BTreeSet<Difference>) {
        let over = &mut self.over;
        self.open.retain(|difference, (_, course)| {
            let stays = differences.contains(difference);
            if !stays && *course == Course::Reported {
                over.get_or_insert(now);
            }
            stays
        });
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
        self.over = self.over.filter(|since| *since >= began);
        self.awaited = false;
    }

    /// A run begins or ends: what it causes is no hint.
    pub(super) const fn runs(&mut self, run: bool) {
        self.run = run;
    }

    /// When the reconcile is woken next, as things are.
    pub(super) fn due(&self) -> Option<Duration> {
        let both = [self.survey_due(), self.report_due()];
        both.into_iter().flatten().min()
    }

    /// For how long a survey has to wait for the budget, as things are; `None`: none is wanted, or it may begin.
    pub(super) fn held(&self, now: Duration) -> Option<Duration> {
        let wait = self.survey_due()?.checked_sub(now)?;
        (self.tokens == 0 && !self.awaited && !wait.is_zero()).then_some(wait)
    }

    /// When the next hint is due.
    fn survey_due(&self) -> Option<Duration> {
        if self.run {
            return None;
        }
        let first = self.since(|course| course != Course::Told);
        let first = first.into_iter().chain(self.over).min()?;
        let due = first + SETTLES;
        Some(if self.tokens > 0 {
            due
        } else {
            due.max(self.refilled + REFILL)
        })
    }

    /// When the next report is due: of what is new, while there is no survey to be had.
    fn report_due(&self) -> Option<Duration> {
        if self.run || self.tokens > 0 {
            return None;
        }
        let due = self.since(|course| course == Course::Fresh)? + SETTLES;
        Some(self.reported.map_or(due, |last| due.max(last + REPORTS)))
    }

    /// The earliest beginning of a difference with such a course.
    fn since(&self, such: impl Fn(Course) -> bool) -> Option<Duration> {
        let open = self.open.values();
        open.filter(|(_, course)| such(*course))
            .map(|(since, _)| *since)
            .min()
    }

    /// Takes what is due, if something is.
    pub(super) fn take(&mut self, now: Duration) -> Option<Wake> {
        if self.survey_due().is_some_and(|due| due <= now) {
            self.refill(now);
            self.tokens = self.tokens.saturating_sub(1);
            self.over = None;
            self.awaited = true;
            let new = self.turn(Course::Told, |course| course != Course::Told);
            return Some(Wake::Survey(new));
        }
        if self.report_due()? > now {
            return None;
        }
        self.reported = Some(now);
        drop(self.turn(Course::Reported, |course| course == Course::Fresh));
        Some(Wake::Report)
    }

    /// Differences with such a course have another one from now on.
    fn turn(&mut self, next: Course, such: impl Fn(Course) -> bool) -> Vec<Difference> {
        let open = self.open.iter_mut();
        let open = open.filter(|(_, (_, course))| such(*course));
        let moved = open.map(|(difference, (_, course))| {
            *course = next;
            difference.clone()
        });
        moved.collect()
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

    fn survey(nodes: &[u8]) -> Wake {
        Wake::Survey(some(nodes).into_iter().collect())
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
        assert_eq!(
            hints.take(at(11)),
            Some(survey(&[1, 2])),
            "what belongs together"
        );
        hints.sees(at(12), some(&[1, 2]));
        assert_eq!(hints.due(), None);
        hints.sees(at(13), some(&[2]));
        hints.sees(at(14), some(&[1, 2]));
        assert_eq!(hints.take(at(15)), Some(survey(&[1])));
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
        assert_eq!(hints.take(at(30)), Some(survey(&[2])));
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

    /// Three hints in a row, and no more for a minute.
    fn exhausted() -> Hints {
        let mut hints = Hints::default();
        for node in 1..=3 {
            hints.sees(at(u64::from(node)), some(&[node]));
            assert_eq!(hints.take(at(u64::from(node) + 1)), Some(survey(&[node])));
        }
        hints.surveyed(at(5));
        hints.sees(at(5), some(&[]));
        hints
    }

    /// Without it a condition would be wrong until the budget has a hint again.
    #[test]
    fn what_waits_for_the_budget_is_reported_meanwhile() {
        let mut hints = exhausted();
        hints.sees(at(6), some(&[4]));
        let held = hints.held(at(7));
        assert!(held.is_some_and(|wait| wait > at(30)), "{held:?}");
        assert_eq!(hints.take(at(7)), Some(Wake::Report));
        hints.sees(at(8), some(&[4, 5]));
        assert_eq!(hints.take(at(10)), None, "not so often");
        assert_eq!(hints.take(at(17)), Some(Wake::Report));
        assert_eq!(hints.take(at(100)), Some(survey(&[4, 5])));
        hints.sees(at(101), some(&[4, 5, 6]));
        assert_eq!(hints.held(at(101)), None, "the hint was given");
        hints.surveyed(at(102));
        assert_eq!(hints.take(at(103)), None, "as the survey saw it");
    }

    /// What was reported is wrong when it is over, so a survey follows, when there may be one.
    #[test]
    fn what_was_reported_and_is_over_wants_a_survey() {
        let mut hints = exhausted();
        hints.sees(at(6), some(&[4]));
        assert_eq!(hints.take(at(7)), Some(Wake::Report));
        hints.sees(at(8), some(&[]));
        assert_eq!(hints.take(at(30)), None);
        assert_eq!(hints.take(at(100)), Some(survey(&[])));
        assert_eq!(hints.due(), None);
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
                given += u32::from(matches!(hints.take(now), Some(Wake::Survey(_))));
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
            let due = hints.survey_due().unwrap();
            prop_assert!(due <= now + SETTLES.max(REFILL));
            prop_assert!(matches!(hints.take(due), Some(Wake::Survey(_))));
        }
    }
}
