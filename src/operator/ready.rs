//! `Ready`: the first thing that keeps a cluster from being ready, and how far its spec is. Pure.

use crate::api::conditions::{ConditionStatus, ConditionType, Reason};

/// How far the present spec is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No spec was ever applied from end to end.
    New,
    /// Another spec was applied, or this one cannot be understood.
    Changed,
    /// This one was applied.
    Applied,
}

/// The summary: the first thing that keeps the cluster from being ready, in order of what depends
/// on what; `conditions` are all that hold at the moment.
pub(super) fn ready(
    status: &dyn Fn(ConditionType) -> (ConditionStatus, String),
    stage: Stage,
) -> (Reason, String) {
    if stage == Stage::New {
        let message = "the cluster has not been built from end to end yet";
        return (Reason::NotProvisioned, message.to_owned());
    }
    for (kind, reason) in [
        (ConditionType::Available, Reason::NotAvailable),
        (ConditionType::NodesReachable, Reason::NodesNotReady),
        (ConditionType::NodesHealthy, Reason::NodesNotReady),
        (ConditionType::EtcdHealthy, Reason::ComponentDown),
        (ConditionType::ControlPlaneHealthy, Reason::ComponentDown),
    ] {
        let (status, message) = status(kind);
        if status != ConditionStatus::True {
            return (reason, format!("{kind} is {}: {message}", status.name()));
        }
    }
    match stage {
        Stage::Applied => (Reason::Ready, "the cluster serves".to_owned()),
        Stage::New | Stage::Changed => {
            let message = "the cluster serves; the present spec is not applied to it";
            (Reason::SpecNotApplied, message.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The summary, by what the others say and how far the spec is.
    #[test]
    fn ready_is_the_first_thing_that_is_missing() {
        use ConditionStatus::{False, True, Unknown};
        use ConditionType as T;
        for (stage, kind, is, want) in [
            (Stage::New, None, True, Reason::NotProvisioned),
            (Stage::Applied, None, True, Reason::Ready),
            (Stage::Changed, None, True, Reason::SpecNotApplied),
            (
                Stage::Applied,
                Some(T::Available),
                Unknown,
                Reason::NotAvailable,
            ),
            (
                Stage::Applied,
                Some(T::Available),
                False,
                Reason::NotAvailable,
            ),
            (
                Stage::Changed,
                Some(T::Available),
                False,
                Reason::NotAvailable,
            ),
            (
                Stage::Applied,
                Some(T::NodesReachable),
                False,
                Reason::NodesNotReady,
            ),
            (
                Stage::Applied,
                Some(T::NodesHealthy),
                False,
                Reason::NodesNotReady,
            ),
            (
                Stage::Applied,
                Some(T::NodesHealthy),
                Unknown,
                Reason::NodesNotReady,
            ),
            (
                Stage::Applied,
                Some(T::EtcdHealthy),
                False,
                Reason::ComponentDown,
            ),
            (
                Stage::Applied,
                Some(T::EtcdHealthy),
                Unknown,
                Reason::ComponentDown,
            ),
            (
                Stage::Applied,
                Some(T::ControlPlaneHealthy),
                False,
                Reason::ComponentDown,
            ),
            (Stage::Applied, Some(T::AddonsApplied), False, Reason::Ready),
        ] {
            let status = |of: ConditionType| {
                let status = if Some(of) == kind { is } else { True };
                (status, "the reason why".to_owned())
            };
            let (reason, message) = ready(&status, stage);
            assert_eq!(reason, want, "{stage:?} {kind:?}");
            let named = is != True && reason != Reason::Ready;
            assert_eq!(message.contains("the reason why"), named, "{message}");
        }
    }
}
