//! What is worth an Event between two statuses of an object: it was available or ready and no longer is, or is again and
//! how long it was not; what differs; what waits; certificates that end. Pure, but for remembering since when.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::events::Notice;
use crate::api::conditions::{ConditionStatus, ConditionType, Reason};

/// Since when objects are not available, or not ready. A condition tells only since when it has its present status, and
/// `Unknown` may be between two others.
#[derive(Debug, Default)]
pub(super) struct Outages(Mutex<HashMap<(String, ConditionType), Timestamp>>);

impl Outages {
    fn with<T>(
        &self,
        with: impl FnOnce(&mut HashMap<(String, ConditionType), Timestamp>) -> T,
    ) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin(&self, uid: &str, kind: ConditionType, at: Timestamp) {
        self.with(|since| {
            since.entry((uid.to_owned(), kind)).or_insert(at);
        });
    }

    fn end(&self, uid: &str, kind: ConditionType) -> Option<Timestamp> {
        self.with(|since| since.remove(&(uid.to_owned(), kind)))
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.with(|since| since.retain(|(of, _), _| of != uid));
    }
}

/// The Events between two lists of conditions of one object.
pub(super) fn transitions(
    before: &[Condition],
    after: &[Condition],
    uid: &str,
    outages: &Outages,
) -> Vec<Notice> {
    let kinds = [ConditionType::Available, ConditionType::Ready];
    let summary = kinds
        .into_iter()
        .filter_map(|kind| lost_or_regained(kind, before, after, uid, outages));
    let reported = [
        ConditionType::UpToDate,
        ConditionType::CertificatesValid,
        ConditionType::BackedUp,
    ];
    let news = reported
        .into_iter()
        .filter_map(|kind| news(kind, before, after));
    summary.chain(news).collect()
}

fn find(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    let mut conditions = conditions.iter();
    conditions.find(|condition| condition.type_ == kind.name())
}

fn is_true(condition: &Condition) -> bool {
    condition.status == ConditionStatus::True.name()
}

fn lost_or_regained(
    kind: ConditionType,
    before: &[Condition],
    after: &[Condition],
    uid: &str,
    outages: &Outages,
) -> Option<Notice> {
    let (was, is) = (find(before, kind)?, find(after, kind)?);
    let at = is.last_transition_time.0;
    match (is_true(was), is_true(is)) {
        (true, false) => {
            outages.begin(uid, kind, at);
            let note = format!("{}: {}", is.reason, is.message);
            let reason = format!("Not{}", kind.name());
            // A cluster that is not ready because its spec was edited is not at fault.
            Some(if is.reason == Reason::SpecNotApplied.name() {
                Notice::normal(&reason, "Survey", &note)
            } else {
                Notice::warning(&reason, "Survey", &note)
            })
        }
        (false, true) => {
            let since = outages.end(uid, kind);
            let since = since.unwrap_or(was.last_transition_time.0);
            let lasted = SignedDuration::from_secs(at.duration_since(since).as_secs());
            let note = format!("{}; it was not for {lasted:#}", is.message);
            Some(Notice::normal(kind.name(), "Survey", &note))
        }
        (true, true) | (false, false) => None,
    }
}

/// What a person wants to hear of once: each time that the reason or what it says is another.
fn news(kind: ConditionType, before: &[Condition], after: &[Condition]) -> Option<Notice> {
    let is = find(after, kind)?;
    let was = find(before, kind);
    if was.is_some_and(|was| was.reason == is.reason && was.message == is.message) {
        return None;
    }
    let named = |reasons: &[Reason]| reasons.iter().any(|reason| reason.name() == is.reason);
    if named(&[
        Reason::Drifted,
        Reason::ExpiringSoon,
        Reason::AuthorityEnding,
        Reason::Expired,
        Reason::NotTaken,
        Reason::Overdue,
        Reason::Unproven,
    ]) {
        Some(Notice::warning(&is.reason, "Survey", &is.message))
    } else if named(&[Reason::AwaitingApproval, Reason::UpdateAvailable]) {
        Some(Notice::normal(&is.reason, "Survey", &is.message))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn condition(kind: ConditionType, status: &str, reason: Reason, second: i64) -> Condition {
        Condition {
            type_: kind.name().to_owned(),
            status: status.to_owned(),
            reason: reason.name().to_owned(),
            message: format!("{} {second}", kind.name()),
            observed_generation: None,
            last_transition_time: Time(Timestamp::from_second(second).unwrap()),
        }
    }

    fn told(notices: &[Notice]) -> Vec<(bool, &str, &str)> {
        let told = notices.iter();
        told.map(|one| (one.warning, &*one.reason, &*one.note))
            .collect()
    }

    /// Through `Unknown`, and after a change of leader, which knows the conditions only.
    #[test]
    fn an_outage_lasts_from_its_first_moment_to_its_last() {
        let available = |status, reason, second| {
            vec![condition(ConditionType::Available, status, reason, second)]
        };
        let good = available("True", Reason::Available, 0);
        let blind = available("Unknown", Reason::Unreachable, 100);
        let down = available("False", Reason::APIServerDown, 160);
        let again = available("True", Reason::Available, 300);
        let outages = Outages::default();
        let between = |before: &[Condition], after: &[Condition], outages: &Outages| {
            transitions(before, after, "1", outages)
        };
        assert_eq!(
            told(&between(&good, &blind, &outages)),
            [(true, "NotAvailable", "Unreachable: Available 100")]
        );
        assert!(between(&blind, &down, &outages).is_empty());
        assert_eq!(
            told(&between(&down, &again, &outages)),
            [(false, "Available", "Available 300; it was not for 3m 20s")]
        );
        assert_eq!(
            told(&between(&down, &again, &Outages::default())),
            [(false, "Available", "Available 300; it was not for 2m 20s")]
        );
        assert!(between(&again, &again, &outages).is_empty());
        assert!(between(&[], &good, &outages).is_empty(), "nothing was lost");
    }

    /// Whatever differs is reported when it is found, and again when something else differs.
    #[test]
    fn what_is_found_is_reported_once() {
        let kind = ConditionType::UpToDate;
        let up_to_date = |reason, second| vec![condition(kind, "False", reason, second)];
        let outages = Outages::default();
        for (reason, warning) in [
            (Reason::Drifted, true),
            (Reason::AwaitingApproval, false),
            (Reason::UpdateAvailable, false),
        ] {
            let (one, other) = (up_to_date(reason, 1), up_to_date(reason, 2));
            for before in [&[][..], &other] {
                let notices = transitions(before, &one, "1", &outages);
                assert_eq!(told(&notices), [(warning, reason.name(), "UpToDate 1")]);
            }
            assert!(transitions(&one, &one, "1", &outages).is_empty());
        }
        let rolling = up_to_date(Reason::RollingOut, 1);
        assert!(transitions(&[], &rolling, "1", &outages).is_empty());
    }

    /// An edit makes a cluster not ready until it is applied: that is no warning.
    #[test]
    fn what_was_asked_for_is_no_warning() {
        let ready = |status, reason| vec![condition(ConditionType::Ready, status, reason, 1)];
        let outages = Outages::default();
        for (reason, warning) in [
            (Reason::SpecNotApplied, false),
            (Reason::NotAvailable, true),
        ] {
            let good = ready("True", Reason::Ready);
            let notices = transitions(&good, &ready("False", reason), "1", &outages);
            assert_eq!(notices[0].warning, warning, "{reason}");
        }
    }
}
