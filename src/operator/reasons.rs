//! Which condition an error belongs in, and with which reason. Pure; decided by variants, never
//! by texts.

use crate::{
    api::conditions::{ConditionSet, ConditionType, Reason},
    converge::Error,
    desired::pki::PkiError,
    error::{ErrorClass, Explain},
    state::StateError,
};

/// An error with a condition and a reason.
pub(super) trait Reasoned: Explain {
    /// `Stalled` with that reason for what only a user can change, `Reconciling` for the rest.
    fn condition(&self) -> (ConditionType, Reason) {
        by_class(self.class(), Reason::PreflightFailed)
    }

    /// The reason in `ConfigValid`, where the error is about the config.
    fn invalid(&self) -> Option<Reason> {
        None
    }
}

/// By the class, where no variant is more specific; `user` is the reason for what a user must change.
pub(super) const fn by_class(class: ErrorClass, user: Reason) -> (ConditionType, Reason) {
    match class {
        ErrorClass::User => (ConditionType::Stalled, user),
        ErrorClass::Host => (ConditionType::Reconciling, Reason::HostUnavailable),
        ErrorClass::Transient => (ConditionType::Reconciling, Reason::Retrying),
        ErrorClass::Bug => (ConditionType::Stalled, Reason::InternalError),
    }
}

/// The conditions of a cluster of which nothing was seen: nothing that was true before is claimed.
pub(super) fn unseen(why: &str) -> ConditionSet {
    let mut conditions = ConditionSet::new();
    for kind in ConditionType::HEALTH {
        // `Unreachable` says of nodes that they do not answer, which is not known.
        let reason = if kind == ConditionType::NodesReachable {
            Reason::NotYetKnown
        } else {
            Reason::Unreachable
        };
        conditions.set(kind, reason, why);
    }
    for kind in [ConditionType::BackedUp, ConditionType::UpToDate] {
        conditions.set(kind, Reason::Unreachable, why);
    }
    conditions
}

/// Sets the condition of an error.
pub(super) fn note(conditions: &mut ConditionSet, condition: (ConditionType, Reason), text: &str) {
    conditions.set(condition.0, condition.1, text);
}

impl Reasoned for Error {
    fn invalid(&self) -> Option<Reason> {
        match self {
            Self::Plan(errors) if errors.immutable => Some(Reason::ImmutableField),
            Self::Plan(_)
            | Self::State(_)
            | Self::Pki(_)
            | Self::Home
            | Self::Kubeconfig { .. }
            | Self::Desired(_)
            | Self::UnknownRelease { .. }
            | Self::Unfit { .. }
            | Self::HostsUnreachable { .. }
            | Self::Busy { .. }
            | Self::TurnLost
            | Self::Restoring { .. }
            | Self::Step { .. }
            | Self::Unsafe(_)
            | Self::Unsettled { .. } => None,
        }
    }

    fn condition(&self) -> (ConditionType, Reason) {
        match self {
            Self::State(error) => error.condition(),
            Self::Pki(error) => pki(error),
            Self::Plan(_) => match self.class() {
                // What a node's owner must settle is tried again, but not waited for.
                ErrorClass::User | ErrorClass::Host => {
                    (ConditionType::Stalled, Reason::PreflightFailed)
                }
                class @ (ErrorClass::Transient | ErrorClass::Bug) => {
                    by_class(class, Reason::PreflightFailed)
                }
            },
            Self::Home => (ConditionType::Stalled, Reason::SelfManaged),
            Self::Kubeconfig { .. } => by_class(self.class(), Reason::PermissionDenied),
            Self::Desired(_)
            | Self::UnknownRelease { .. }
            | Self::Unfit { .. }
            | Self::HostsUnreachable { .. }
            | Self::Busy { .. }
            | Self::TurnLost
            | Self::Restoring { .. }
            | Self::Step { .. }
            | Self::Unsafe(_)
            | Self::Unsettled { .. } => by_class(self.class(), Reason::PreflightFailed),
        }
    }
}

impl Reasoned for StateError {
    fn condition(&self) -> (ConditionType, Reason) {
        match self {
            Self::Unreadable { .. } => (ConditionType::Stalled, Reason::StateUnreadable),
            Self::Conflict { .. } | Self::Io { .. } => {
                by_class(self.class(), Reason::PermissionDenied)
            }
        }
    }
}

fn pki(error: &PkiError) -> (ConditionType, Reason) {
    match error {
        PkiError::NewButClaimed { .. }
        | PkiError::RecoverOther { .. }
        | PkiError::RecoverHeld { .. }
        | PkiError::RecoverName { .. } => (ConditionType::Stalled, Reason::ClaimedByOther),
        PkiError::NewButPki { .. }
        | PkiError::NewButEtcd { .. }
        | PkiError::NewButUnreadable { .. }
        | PkiError::RecoverNoCopy { .. }
        | PkiError::RecoverBadCopy { .. }
        | PkiError::RecoverInventory { .. }
        | PkiError::RecoverNowhere { .. } => by_class(error.class(), Reason::StateMissing),
        PkiError::Outdated { .. } | PkiError::Forgotten { .. } => {
            (ConditionType::Stalled, Reason::StateConflict)
        }
        PkiError::Damaged { .. } => (ConditionType::Stalled, Reason::StateUnreadable),
        PkiError::Clock { .. }
        | PkiError::TooManyEncryptions { .. }
        | PkiError::KeyRotation(_)
        | PkiError::ServiceAccountKey(_)
        | PkiError::Authority(_)
        | PkiError::NewButDown { .. }
        | PkiError::NewButUnseen { .. }
        | PkiError::Given { .. }
        | PkiError::NotGiven { .. }
        | PkiError::NoCaKey { .. }
        | PkiError::Internal { .. } => by_class(error.class(), Reason::PreflightFailed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::Obstacle,
        facts::Unreachable,
        model::ClusterId,
        plan::{PreflightError, PreflightErrors},
    };

    fn unreachable(class: ErrorClass) -> Error {
        let down = Unreachable {
            alike: None,
            obstacle: Obstacle::Other,
            class,
            why: "no route".to_owned(),
            hints: Vec::new(),
        };
        Error::HostsUnreachable {
            down: vec![("n1".into(), down)],
            why: None,
            changed: false,
        }
    }

    fn preflight(class: ErrorClass) -> Error {
        Error::Plan(PreflightErrors {
            errors: vec![PreflightError {
                node: None,
                message: "port 6443 is taken".to_owned(),
                hints: Vec::new(),
                class,
            }],
            immutable: false,
            down: Vec::new(),
        })
    }

    /// An error that only a user can solve is Stalled, a temporary one is Reconciling, and no
    /// error of a node is reported as a mistake in the config (O18).
    #[test]
    fn each_error_has_its_reason() {
        use ConditionType::{Reconciling, Stalled};
        let place = || "Secret `rke-system/a-state`".to_owned();
        let claimed = PkiError::NewButClaimed {
            node: "n1".into(),
            id: ClusterId("0".repeat(32)),
            name: "other".to_owned(),
        };
        let etcd = PkiError::NewButEtcd {
            node: "n1".into(),
            path: "/var/lib/etcd".to_owned(),
        };
        let unreadable = StateError::Unreadable {
            place: place(),
            why: "it is cut off".to_owned(),
            newer: false,
        };
        for (error, kind, reason) in [
            (
                unreachable(ErrorClass::Host),
                Reconciling,
                Reason::HostUnavailable,
            ),
            (
                unreachable(ErrorClass::User),
                Stalled,
                Reason::PreflightFailed,
            ),
            (
                preflight(ErrorClass::User),
                Stalled,
                Reason::PreflightFailed,
            ),
            (
                preflight(ErrorClass::Host),
                Stalled,
                Reason::PreflightFailed,
            ),
            (
                preflight(ErrorClass::Transient),
                Reconciling,
                Reason::Retrying,
            ),
            (Error::Pki(claimed), Stalled, Reason::ClaimedByOther),
            (Error::Pki(etcd), Stalled, Reason::StateMissing),
            (Error::State(unreadable), Stalled, Reason::StateUnreadable),
            (
                Error::State(StateError::Conflict { place: place() }),
                Reconciling,
                Reason::Retrying,
            ),
            (Error::Unsafe(Vec::new()), Stalled, Reason::InternalError),
        ] {
            assert_eq!(error.condition(), (kind, reason), "{error}");
        }
    }
}
