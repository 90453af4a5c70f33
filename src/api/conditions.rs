//! Conditions: one table of types for code, definitions and documentation, and the one way to
//! write them.
//!
//! - [`merge`] takes what a pass found and gives the list to write: `lastTransitionTime` moves
//!   only with `status`, `observedGeneration` is that of the judged object.
//! - A type that a pass did not judge keeps what was said before, with the generation it was
//!   said about; one that was never judged is written as `Unknown`, so all are there on the
//!   first visit.
//! - `Reconciling`, `Stalled`, `Paused`, `Deleting` are there only while they are true.
//!
//! ```
//! use rke_operator::api::conditions::{ConditionType, Findings, merge};
//!
//! let mut findings = Findings::new();
//! findings.set(ConditionType::ConfigValid, true, "Valid", "the config is valid");
//! let first = merge(&[], &findings, 1, jiff::Timestamp::UNIX_EPOCH);
//! let again = merge(&first, &findings, 1, "2030-01-01T00:00:00Z".parse()?);
//! assert_eq!(first, again, "nothing new, nothing to write");
//! # Ok::<(), jiff::Error>(())
//! ```

use std::{borrow::Cow, collections::BTreeMap, fmt};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Every type of condition, in the order in which they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The summary that people wait for.
    Ready,
    /// The config was applied from end to end.
    Provisioned,
    /// The config can be understood.
    ConfigValid,
    /// Every node answers.
    NodesReachable,
    /// etcd serves.
    EtcdHealthy,
    /// The API answers.
    ControlPlaneHealthy,
    /// Every node is Ready.
    NodesHealthy,
    /// Add-ons are there.
    AddonsApplied,
    /// No difference is left.
    UpToDate,
    /// A run is under way.
    Reconciling,
    /// Waits for a person.
    Stalled,
    /// Told to do nothing.
    Paused,
    /// Being taken down.
    Deleting,
}

/// One row of the table in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The type.
    pub kind: ConditionType,
    /// What `True` means.
    pub means: &'static str,
}

impl ConditionType {
    /// Every type, and what `True` means.
    pub const TABLE: [Row; 13] = [
        row(
            Self::Ready,
            "the API answers, etcd has quorum, every node that the config names is Ready, and the spec is applied",
        ),
        row(
            Self::Provisioned,
            "the config was applied from end to end; its observedGeneration is moved by a run only",
        ),
        row(
            Self::ConfigValid,
            "the config can be understood, and everything that it refers to is there",
        ),
        row(
            Self::NodesReachable,
            "every node answers over SSH and its Docker does",
        ),
        row(Self::EtcdHealthy, "etcd has quorum"),
        row(
            Self::ControlPlaneHealthy,
            "the API answers, the controller manager and the scheduler run",
        ),
        row(
            Self::NodesHealthy,
            "every node that the config names is Ready in the cluster",
        ),
        row(
            Self::AddonsApplied,
            "every add-on is applied and its workloads are available",
        ),
        row(Self::UpToDate, "the nodes carry what the spec says"),
        row(Self::Reconciling, "a run is under way, or due"),
        row(
            Self::Stalled,
            "it waits for a person: trying again will not help",
        ),
        row(Self::Paused, "the operator was told to leave it alone"),
        row(
            Self::Deleting,
            "the nodes are being given back; the message lists what remains",
        ),
    ];

    /// The name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Provisioned => "Provisioned",
            Self::ConfigValid => "ConfigValid",
            Self::NodesReachable => "NodesReachable",
            Self::EtcdHealthy => "EtcdHealthy",
            Self::ControlPlaneHealthy => "ControlPlaneHealthy",
            Self::NodesHealthy => "NodesHealthy",
            Self::AddonsApplied => "AddonsApplied",
            Self::UpToDate => "UpToDate",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::Paused => "Paused",
            Self::Deleting => "Deleting",
        }
    }

    /// Written only while it is true, as kstatus reads it.
    pub const fn only_when_true(self) -> bool {
        match self {
            Self::Ready
            | Self::Provisioned
            | Self::ConfigValid
            | Self::NodesReachable
            | Self::EtcdHealthy
            | Self::ControlPlaneHealthy
            | Self::NodesHealthy
            | Self::AddonsApplied
            | Self::UpToDate => false,
            Self::Reconciling | Self::Stalled | Self::Paused | Self::Deleting => true,
        }
    }
}

const fn row(kind: ConditionType, means: &'static str) -> Row {
    Row { kind, means }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It is so.
    True,
    /// It is not.
    False,
    /// Nobody knows at the moment.
    Unknown,
}

impl Truth {
    /// The word in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Truth {
    fn from(truth: bool) -> Self {
        if truth { Self::True } else { Self::False }
    }
}

/// What was found about one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Is it so?
    pub truth: Truth,
    /// One CamelCase word.
    pub reason: Cow<'static, str>,
    /// What, where, what next; the same words while nothing changes.
    pub message: String,
}

/// What one pass found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings(BTreeMap<ConditionType, Verdict>);

impl Findings {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Notes one.
    pub fn set(
        &mut self,
        kind: ConditionType,
        truth: impl Into<Truth>,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        let verdict = Verdict {
            truth: truth.into(),
            reason: reason.into(),
            message: message.into(),
        };
        self.0.insert(kind, verdict);
    }

    /// What was noted about a type.
    pub fn get(&self, kind: ConditionType) -> Option<&Verdict> {
        self.0.get(&kind)
    }

    /// True when a type was noted as true.
    pub fn holds(&self, kind: ConditionType) -> bool {
        self.get(kind)
            .is_some_and(|verdict| verdict.truth == Truth::True)
    }
}

/// The longest message that is written, in bytes.
const MAX_MESSAGE: usize = 2048;

/// The list to write for `generation`, out of the one that is there and what was found.
pub fn merge(
    old: &[Condition],
    findings: &Findings,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    ConditionType::TABLE
        .iter()
        .filter_map(|row| one(row.kind, old, findings, generation, now))
        .collect()
}

fn one(
    kind: ConditionType,
    old: &[Condition],
    findings: &Findings,
    generation: i64,
    now: Timestamp,
) -> Option<Condition> {
    let before = old.iter().find(|condition| condition.type_ == kind.name());
    let Some(verdict) = findings.get(kind) else {
        if kind.only_when_true() {
            return None;
        }
        return Some(before.cloned().unwrap_or_else(|| Condition {
            type_: kind.name().to_owned(),
            status: Truth::Unknown.name().to_owned(),
            reason: "NotYetKnown".to_owned(),
            message: "not looked at yet".to_owned(),
            observed_generation: Some(generation),
            last_transition_time: Time(now),
        }));
    };
    if kind.only_when_true() && verdict.truth != Truth::True {
        return None;
    }
    let status = verdict.truth.name();
    let since = before
        .filter(|before| before.status == status)
        .map_or(Time(now), |before| before.last_transition_time.clone());
    Some(Condition {
        type_: kind.name().to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.clone().into_owned(),
        message: shorten(&verdict.message, MAX_MESSAGE),
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

    fn found(truth: bool, message: &str) -> Findings {
        let mut findings = Findings::new();
        findings.set(ConditionType::Ready, truth, "Because", message);
        findings
    }

    fn ready(conditions: &[Condition]) -> &Condition {
        conditions.iter().find(|c| c.type_ == "Ready").unwrap()
    }

    #[test]
    fn the_table_has_every_type_once_and_in_order() {
        let kinds: Vec<_> = ConditionType::TABLE.iter().map(|row| row.kind).collect();
        assert!(kinds.is_sorted_by(|a, b| a < b), "{kinds:?}");
    }

    #[test]
    fn all_are_there_on_the_first_visit_but_those_that_are_only_there_when_true() {
        let first = merge(&[], &Findings::new(), 1, at(1));
        let names: Vec<_> = first.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(
            names,
            [
                "Ready",
                "Provisioned",
                "ConfigValid",
                "NodesReachable",
                "EtcdHealthy",
                "ControlPlaneHealthy",
                "NodesHealthy",
                "AddonsApplied",
                "UpToDate"
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
    fn what_was_not_judged_keeps_the_generation_it_was_judged_for() {
        let first = merge(&[], &found(true, "one"), 1, at(1));
        let second = merge(&first, &Findings::new(), 2, at(2));
        assert_eq!(ready(&second), ready(&first));
    }

    #[test]
    fn passing_states_are_there_only_while_true() {
        let mut findings = Findings::new();
        findings.set(ConditionType::Reconciling, true, "Applying", "on its way");
        findings.set(ConditionType::Stalled, false, "No", "not stalled");
        let names = |conditions: &[Condition]| {
            conditions
                .iter()
                .filter(|c| c.type_ == "Reconciling" || c.type_ == "Stalled")
                .map(|c| c.type_.clone())
                .collect::<Vec<_>>()
        };
        let first = merge(&[], &findings, 1, at(1));
        assert_eq!(names(&first), ["Reconciling"]);
        let second = merge(&first, &Findings::new(), 1, at(2));
        assert!(names(&second).is_empty());
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shorten("grßöße", 5), "gr…");
        assert_eq!(shorten("abc", 3), "abc");
        assert!(shorten(&"ß".repeat(2000), 1024).len() <= 1024);
    }
}
