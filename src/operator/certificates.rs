//! When the certificates of a cluster end, as a condition. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{
        CertificateStatus,
        conditions::{ConditionSet, ConditionType, Reason, shorten},
    },
    desired::pki::{Certificates, Expiry},
    model::quoted,
};

/// Before its end a certificate that nothing renews by itself (an authority) is told of.
const NOTICE: SignedDuration = SignedDuration::from_hours(90 * 24);

/// Judges what a survey read, by a clock that the nodes do not contradict (invariant 16).
pub(super) fn judge(certificates: &Certificates, now: Timestamp, conditions: &mut ConditionSet) {
    let kind = ConditionType::CertificatesValid;
    let Some(earliest) = &certificates.earliest else {
        let message = "no certificate was read yet";
        conditions.set(kind, Reason::NotYetKnown, message);
        return;
    };
    let mut message = earliest.sentence(now);
    let renewed = !certificates.renewed.is_empty();
    let left = earliest.at.duration_since(now);
    let reason = if earliest.is_over(now) {
        Reason::Expired
    } else if renewed || left < NOTICE {
        Reason::ExpiringSoon
    } else {
        Reason::Valid
    };
    if renewed {
        message.push_str("; those that end soon are renewed on: ");
        message.push_str(&quoted(certificates.renewed.keys()));
    }
    conditions.set(kind, reason, message);
}

/// The one that ends first, for the status.
pub(super) fn earliest(certificates: &Certificates) -> Option<CertificateStatus> {
    let Expiry { at, what } = certificates.earliest.as_ref()?;
    Some(CertificateStatus {
        earliest_expiry: at.to_string(),
        component: shorten(what, 512),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::conditions::ConditionStatus;

    fn after(days: i64) -> Timestamp {
        let hours = SignedDuration::from_hours(24 * days);
        Timestamp::UNIX_EPOCH.checked_add(hours).unwrap()
    }

    fn judged(certificates: &Certificates, day: i64) -> (Reason, ConditionStatus, String) {
        let mut conditions = ConditionSet::new();
        judge(certificates, after(day), &mut conditions);
        let kind = ConditionType::CertificatesValid;
        let state = conditions.get(kind).unwrap();
        let status = conditions.status(kind).unwrap();
        (state.reason, status, state.message.clone())
    }

    /// R15: days that are left, and what is done about it.
    #[test]
    fn what_ends_is_told_in_days() {
        let mut all = Certificates::default();
        let (reason, status, _) = judged(&all, 0);
        assert_eq!(
            (reason, status),
            (Reason::NotYetKnown, ConditionStatus::Unknown)
        );
        all.earliest = Some(Expiry {
            at: after(365),
            what: "`kube-proxy.pem` of node `n1`".to_owned(),
        });
        for (day, reason, status, words) in [
            (0, Reason::Valid, ConditionStatus::True, "in 365 days"),
            (275, Reason::Valid, ConditionStatus::True, "in 90 days"),
            (
                276,
                Reason::ExpiringSoon,
                ConditionStatus::True,
                "in 89 days",
            ),
            (
                365,
                Reason::Expired,
                ConditionStatus::False,
                "expired 0 days ago",
            ),
            (
                370,
                Reason::Expired,
                ConditionStatus::False,
                "expired 5 days ago",
            ),
        ] {
            let (is, stands, message) = judged(&all, day);
            assert_eq!((is, stands), (reason, status), "day {day}");
            assert!(
                message.contains(words) && message.contains("kube-proxy"),
                "{message}"
            );
        }
        all.renewed
            .insert("n1".into(), BTreeSet::from(["a".to_owned()]));
        let (reason, _, message) = judged(&all, 250);
        assert_eq!(reason, Reason::ExpiringSoon);
        assert!(message.contains("renewed on: `n1`"), "{message}");
        let told = earliest(&all).unwrap();
        assert_eq!(told.earliest_expiry, "1971-01-01T00:00:00Z");
    }
}
