//! Conditions: the one way to note and to write them; [`super::reason`] has the table of types and
//! reasons.
//!
//! - [`merge`] takes what a reconcile found and returns the list to write: `lastTransitionTime` moves
//!   only with `status`, `observedGeneration` is that of the reconciled object.
//! - A type that a reconcile did not check keeps its last status, with the generation that this was
//!   for; one that was never checked is written as `Unknown`, so all types are present after the
//!   first reconcile.
//! - `Reconciling` and `Stalled` are present only while they are true.
//!
//! ```
//! use rke_operator::api::conditions::{ConditionSet, ConditionType, Reason, merge};
//!
//! let mut conditions = ConditionSet::new();
//! conditions.set(ConditionType::ConfigValid, Reason::Valid, "the config is valid");
//! let first = merge(&[], &conditions, 1, jiff::Timestamp::UNIX_EPOCH);
//! let again = merge(&first, &conditions, 1, "2030-01-01T00:00:00Z".parse()?);
//! assert_eq!(first, again, "nothing new, nothing to write");
//! # Ok::<(), jiff::Error>(())
//! ```

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::{error::on_object, model::printable_lines};

pub use super::reason::{ConditionType, REASONS, Reason, ReasonRow, Row};

/// `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It is so.
    True,
    /// It is not.
    False,
    /// It is not known at the moment.
    Unknown,
}

impl ConditionStatus {
    /// What a word in the API says.
    pub fn of(word: &str) -> Self {
        match word {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }

    /// The word in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What was found about one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionState {
    /// Why; the status follows from it.
    pub reason: Reason,
    /// What, where, what next; the same words while nothing changes.
    pub message: String,
}

/// What one pass found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionSet(BTreeMap<ConditionType, ConditionState>);

impl ConditionSet {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Notes one; the status follows from the reason.
    pub fn set(&mut self, kind: ConditionType, reason: Reason, message: impl Into<String>) {
        let state = ConditionState {
            reason,
            message: message.into(),
        };
        self.0.insert(kind, state);
    }

    /// What was noted about a type.
    pub fn get(&self, kind: ConditionType) -> Option<&ConditionState> {
        self.0.get(&kind)
    }

    /// True where nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same, with what another pass noted in its place.
    #[must_use]
    pub fn under(&self, over: &Self) -> Self {
        let mut all = self.clone();
        let over = over.0.iter();
        all.0
            .extend(over.map(|(kind, state)| (*kind, state.clone())));
        all
    }

    /// The status that was noted for a type.
    pub fn status(&self, kind: ConditionType) -> Option<ConditionStatus> {
        self.get(kind).map(|state| kind.status(state.reason))
    }
}

/// The longest message that is written, in bytes.
const MAX_MESSAGE: usize = 2048;

/// The list to write for `generation`, out of the one that is there and what was found.
pub fn merge(
    old: &[Condition],
    conditions: &ConditionSet,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    ConditionType::TABLE
        .iter()
        .filter_map(|row| one(row.kind, old, conditions, generation, now))
        .collect()
}

fn one(
    kind: ConditionType,
    old: &[Condition],
    conditions: &ConditionSet,
    generation: i64,
    now: Timestamp,
) -> Option<Condition> {
    let before = old.iter().find(|condition| condition.type_ == kind.name());
    let Some(found) = conditions.get(kind) else {
        if kind.only_when_true() {
            return None;
        }
        return Some(before.cloned().unwrap_or_else(|| Condition {
            type_: kind.name().to_owned(),
            status: ConditionStatus::Unknown.name().to_owned(),
            reason: Reason::NotYetKnown.name().to_owned(),
            message: "not checked yet".to_owned(),
            observed_generation: Some(generation),
            last_transition_time: Time(now),
        }));
    };
    let status = kind.status(found.reason);
    if kind.only_when_true() && status != ConditionStatus::True {
        return None;
    }
    let status = status.name();
    let since = before
        .filter(|before| before.status == status)
        .map_or(Time(now), |before| before.last_transition_time.clone());
    Some(Condition {
        type_: kind.name().to_owned(),
        status: status.to_owned(),
        reason: found.reason.name().to_owned(),
        // What nodes and servers say is in it.
        message: shorten(&printable_lines(&on_object(&found.message)), MAX_MESSAGE),
        observed_generation: Some(generation),
        last_transition_time: since,
    })
}

/// At most `max` bytes, cut between characters, with a sign of the cut.
pub fn shorten(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub('…'.len_utf8());
    let end = (0..=room).rev().find(|at| text.is_char_boundary(*at));
    let (kept, _) = text.split_at(end.unwrap_or_default());
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn found(is_ready: bool, message: &str) -> ConditionSet {
        let mut conditions = ConditionSet::new();
        let reason = if is_ready {
            Reason::Ready
        } else {
            Reason::NotAvailable
        };
        conditions.set(ConditionType::Ready, reason, message);
        conditions
    }

    fn ready(conditions: &[Condition]) -> &Condition {
        conditions.iter().find(|c| c.type_ == "Ready").unwrap()
    }

    #[test]
    fn all_are_there_on_the_first_visit_but_those_that_are_only_there_when_true() {
        let first = merge(&[], &ConditionSet::new(), 1, at(1));
        let names: Vec<_> = first.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(
            names,
            [
                "Available",
                "Ready",
                "Provisioned",
                "ConfigValid",
                "NodesReachable",
                "EtcdHealthy",
                "ControlPlaneHealthy",
                "NodesHealthy",
                "AddonsApplied",
                "CertificatesValid",
                "BackedUp",
                "UpToDate",
                "Paused",
                "Deleting"
            ]
        );
        assert!(first.iter().all(|c| c.status == "Unknown"));
        assert!(first.iter().all(|c| c.observed_generation == Some(1)));
    }

    #[test]
    fn the_time_moves_only_with_the_status() {
        let first = merge(&[], &found(false, "one"), 1, at(1));
        let second = merge(&first, &found(false, "two"), 2, at(2));
        assert_eq!(ready(&second).last_transition_time, Time(at(1)));
        assert_eq!(ready(&second).message, "two");
        assert_eq!(ready(&second).observed_generation, Some(2));
        let third = merge(&second, &found(true, "two"), 2, at(3));
        assert_eq!(ready(&third).last_transition_time, Time(at(3)));
    }

    #[test]
    fn a_type_that_was_not_checked_keeps_the_generation_it_was_checked_for() {
        let first = merge(&[], &found(true, "one"), 1, at(1));
        let second = merge(&first, &ConditionSet::new(), 2, at(2));
        assert_eq!(ready(&second), ready(&first));
    }

    #[test]
    fn passing_states_are_there_only_while_true() {
        let mut conditions = ConditionSet::new();
        conditions.set(
            ConditionType::Reconciling,
            Reason::Provisioning,
            "on its way",
        );
        conditions.set(
            ConditionType::Stalled,
            Reason::Ready,
            "not one of its reasons",
        );
        let names = |conditions: &[Condition]| {
            conditions
                .iter()
                .filter(|c| c.type_ == "Reconciling" || c.type_ == "Stalled")
                .map(|c| c.type_.clone())
                .collect::<Vec<_>>()
        };
        let first = merge(&[], &conditions, 1, at(1));
        assert_eq!(names(&first), ["Reconciling"]);
        let second = merge(&first, &ConditionSet::new(), 1, at(2));
        assert!(names(&second).is_empty());
    }

    /// A node's words move no cursor.
    #[test]
    fn control_characters_are_escaped_and_lines_stay() {
        let first = merge(&[], &found(false, "a\u{1b}[2J\nb\r"), 1, at(1));
        assert_eq!(ready(&first).message, "a\\u{1b}[2J\nb\\r");
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shorten("grßöße", 5), "gr…");
        assert_eq!(shorten("abc", 3), "abc");
        assert!(shorten(&"ß".repeat(2000), 1024).len() <= 1024);
    }
}
