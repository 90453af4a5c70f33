//! What a run is for, and how it can end, which follows from that. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::Survey;
use crate::{
    apply::{step::Warning, stop::StopCause},
    config::Intent,
    desired::{Desired, Rotated},
    error::{ErrorClass, Obstacle},
    facts::{Actual, Unreachable},
    model::NodeName,
    plan::{Plan, Reboot, Target},
    state::RemovalSnapshot,
};

/// What a run is for: a [`Goal`] for a cluster, or its [`Removal`].
pub trait Purpose: Sync {
    /// The outcome of a run that came as far as it can.
    type Outcome;

    /// The purpose as a value, by which surveys and plans are made.
    fn any(&self) -> AnyPurpose<'_>;

    /// The outcome of this run.
    fn outcome(&self, settled: Settled) -> Self::Outcome;
}

/// Every purpose, as a value.
#[derive(Clone, Copy)]
pub enum AnyPurpose<'a> {
    /// To create, change or heal the cluster.
    Goal(Goal<'a>),
    /// To remove it.
    Removal(Removal<'a>),
}

impl<'a> AnyPurpose<'a> {
    /// What the user wants; `None`: a removal without a config that can be read.
    pub const fn intent(self) -> Option<&'a Intent> {
        match self {
            Self::Goal(goal) => Some(goal.intent()),
            Self::Removal(Removal(intent)) => intent,
        }
    }
}

/// The state that a run brings a cluster to.
#[derive(Clone, Copy)]
pub enum Goal<'a> {
    /// All that the intent says.
    Up(&'a Intent),
    /// As `Up`, without changes that the user did not request: the intent was applied before, so what was changed
    /// outside is put right and certificates that expire soon are renewed, and nothing else changes.
    Heal(&'a Intent),
    /// As `Heal`, and what was changed outside is left as it is: certificates that expire soon are renewed.
    Renew(&'a Intent),
    /// A new key in place of another one, as far as a person wants; nothing else changes. Of encryption: all API servers read
    /// it, then all write with it, then all that is stored is written again, then none reads the former one. Of service
    /// accounts: all API servers verify it, then all sign with it; [`crate::environment::Environment`] says whether the
    /// former one is dropped. Of authorities: everything trusts the new ones, then everything is signed with them; the same.
    RotateKeys(Rotated, &'a Intent),
    /// As `Up`, after etcd's data are replaced by a snapshot: [`crate::environment::Environment::restore`] says which.
    Restore(&'a Intent),
    /// These nodes rebooted, one after the other; nothing else changes.
    Reboot(&'a Reboot, &'a Intent),
}

/// Removes the cluster from every node of the saved inventory, and of the intent, if there still is one.
#[derive(Clone, Copy)]
pub struct Removal<'a>(pub Option<&'a Intent>);

/// How a run ended that did not fail: `O` is the outcome of its [`Purpose`], `R` the refusal of its
/// [`Consent`](super::Consent).
#[derive(Debug)]
pub enum Convergence<O, R> {
    /// It came as far as it can.
    Settled(O),
    /// The plan disturbs workloads, and consent was refused; no step of it was run.
    ConsentRefused {
        /// By what.
        refusal: R,
        /// What it would disrupt, equal disruptions of several nodes in one line.
        disruptions: Vec<String>,
        /// True: an earlier iteration of this run did something.
        changed: bool,
    },
    /// The stop signal was given.
    Stopped(StopCause),
}

impl<O, R> Convergence<O, R> {
    pub(super) fn map<T>(self, outcome: impl FnOnce(O) -> T) -> Convergence<T, R> {
        match self {
            Self::Settled(settled) => Convergence::Settled(outcome(settled)),
            Self::ConsentRefused {
                refusal,
                disruptions,
                changed,
            } => Convergence::ConsentRefused {
                refusal,
                disruptions,
                changed,
            },
            Self::Stopped(cause) => Convergence::Stopped(cause),
        }
    }
}

/// A run that came as far as it can, before its purpose says what that means.
#[derive(Debug)]
pub struct Settled {
    /// The last one.
    pub(super) survey: Survey,
    /// Nodes on which a step failed. The survey has them as unreachable ones, or is older than the failure.
    pub(super) failed: BTreeMap<NodeName, Unreachable>,
    /// False: nothing was done at all.
    pub(super) changed: bool,
    /// Reported on the way.
    pub(super) warnings: Vec<Warning>,
}

/// The outcome of a run for a [`Goal`].
#[derive(Debug)]
pub enum Outcome {
    /// What can converge has; these nodes of the config did not answer, or a step on them failed, or what a
    /// warning names is missing and the cluster does not work as a whole without it.
    Degraded {
        /// The nodes, and why.
        left: BTreeMap<NodeName, Unreachable>,
        /// False: nothing was done at all.
        changed: bool,
        /// Reported on the way.
        warnings: Vec<Warning>,
        /// The last one; `None` where it left nodes alone on which a step failed.
        survey: Option<Box<Survey>>,
    },
    /// The last survey's plan was empty.
    Converged {
        /// False: nothing was done at all.
        changed: bool,
        /// Reported on the way.
        warnings: Vec<Warning>,
        /// The last one.
        survey: Box<Survey>,
    },
}

/// The outcome of a [`Removal`].
#[derive(Debug)]
pub enum RemovalOutcome {
    /// Nothing of the cluster is left.
    Removed {
        /// False: nothing was done at all.
        changed: bool,
        /// The snapshot of etcd that was saved before.
        last_snapshot: Option<RemovalSnapshot>,
    },
    /// The cluster is removed from every node from which it can be. The others do not answer, or are another
    /// cluster's and still have things of this one. The state is kept.
    Incomplete {
        /// The nodes, and why.
        left: Vec<(NodeName, Unreachable)>,
        /// Those of them that answer, and are another cluster's.
        claimed: BTreeSet<NodeName>,
    },
}

impl<'a> Goal<'a> {
    /// What the user wants.
    pub const fn intent(self) -> &'a Intent {
        match self {
            Self::Up(intent)
            | Self::Heal(intent)
            | Self::Renew(intent)
            | Self::RotateKeys(_, intent)
            | Self::Reboot(_, intent)
            | Self::Restore(intent) => intent,
        }
    }
}

impl Purpose for Goal<'_> {
    type Outcome = Outcome;

    fn any(&self) -> AnyPurpose<'_> {
        AnyPurpose::Goal(*self)
    }

    fn outcome(&self, settled: Settled) -> Outcome {
        let Settled {
            survey,
            failed,
            changed,
            mut warnings,
        } = settled;
        warnings.extend(unfinished(*self, &survey));
        // A survey with failed nodes in it shows who was left, not how the cluster is.
        let is_current = failed.is_empty();
        let mut left = left(*self, &survey);
        left.extend(failed);
        let survey = Box::new(survey);
        if left.is_empty() && !warnings.iter().any(|warning| warning.degrades) {
            Outcome::Converged {
                changed,
                warnings,
                survey,
            }
        } else {
            Outcome::Degraded {
                left,
                changed,
                warnings,
                survey: is_current.then_some(survey),
            }
        }
    }
}

impl Purpose for Removal<'_> {
    type Outcome = RemovalOutcome;

    fn any(&self) -> AnyPurpose<'_> {
        AnyPurpose::Removal(*self)
    }

    fn outcome(&self, settled: Settled) -> RemovalOutcome {
        let Settled {
            survey,
            // The survey has them as well. After the one that deletes the state there is no other.
            failed: _,
            changed,
            // Shown while the run was in progress.
            warnings: _,
        } = settled;
        let (mut left, claimed) = (silent(&survey.actual), claimed(&survey));
        // What was given up is not waited for.
        let saved = survey.actual.saved.as_ref();
        left.retain(|name, _| !saved.is_some_and(|saved| saved.is_lost(name)));
        let names = claimed.keys().cloned().collect();
        left.extend(claimed);
        if left.is_empty() {
            let last = saved.and_then(|saved| saved.memory.last_snapshot.clone());
            RemovalOutcome::Removed {
                changed,
                last_snapshot: last.filter(|last| last.saved.is_some()),
            }
        } else {
            RemovalOutcome::Incomplete {
                left: left.into_iter().collect(),
                claimed: names,
            }
        }
    }
}

/// The nodes that are not as the config says, and why.
fn left(goal: Goal<'_>, survey: &Survey) -> BTreeMap<NodeName, Unreachable> {
    let mut left = silent(&survey.actual);
    // What is only healed follows no change, nor what a change waits for.
    if matches!(goal, Goal::Up(_) | Goal::Restore(_) | Goal::Reboot(..)) {
        for (name, why) in waiting(&survey.plan) {
            left.entry(name).or_insert(why);
        }
    }
    left
}

/// What is left of the rotation of a key where nothing more can be done about it in this run.
fn unfinished(goal: Goal<'_>, survey: &Survey) -> Option<Warning> {
    let Goal::RotateKeys(rotated, _) = goal else {
        return None;
    };
    let is_settled = |want: &Desired| match rotated {
        Rotated::EncryptionKey => want.encryption_settled,
        Rotated::ServiceAccountKey => want.saved.service_accounts.next.is_none(),
        Rotated::Authorities => want.saved.cluster_ca.next.is_none(),
    };
    let (message, hint) = match rotated {
        Rotated::EncryptionKey => (
            "the rotation of the encryption key is not complete: what was stored before stays readable",
            "`up` shows and repairs what prevents it, and completes it",
        ),
        Rotated::ServiceAccountKey => (
            "nothing signs with the new service-account key yet: not every API server verifies it",
            "`up` shows and repairs what prevents it; then run the same command again",
        ),
        Rotated::Authorities => (
            "nothing is signed with the new authorities yet: not everything trusts them",
            "`up` shows and repairs what prevents it; then run the same command again",
        ),
    };
    (!survey.desired.as_ref().is_some_and(is_settled)).then(|| Warning {
        message: message.to_owned(),
        hints: vec![hint.to_owned()],
        degrades: true,
    })
}

/// Nodes with changes that wait, each with the reason.
fn waiting(plan: &Plan) -> impl Iterator<Item = (NodeName, Unreachable)> {
    let left = plan.notes.iter().filter(|note| note.is_left);
    left.filter_map(|note| {
        let Some(Target::Host(name)) = &note.target else {
            return None;
        };
        let why = Unreachable {
            alike: None,
            obstacle: Obstacle::Other,
            class: ErrorClass::Host,
            why: note.text.clone(),
            hints: Vec::new(),
        };
        Some((name.clone(), why))
    })
}

/// What a removal leaves to other clusters, and why. The plan that ends one deletes the state: where
/// there is nothing to do and the state is there, it is kept for what is on the nodes that the
/// plan's notes name.
fn claimed(survey: &Survey) -> BTreeMap<NodeName, Unreachable> {
    if survey.actual.saved.is_none() || !survey.plan.is_empty() {
        return BTreeMap::new();
    }
    let notes = survey.plan.notes.iter().filter_map(|note| {
        let Some(Target::Host(name)) = &note.target else {
            return None;
        };
        survey.actual.up(name)?;
        let why = Unreachable {
            alike: None,
            obstacle: Obstacle::Other,
            class: ErrorClass::User,
            why: format!("node `{name}` {}", note.text),
            hints: Vec::new(),
        };
        Some((name.clone(), why))
    });
    notes.collect()
}

/// The hosts that do not answer, and why.
pub(crate) fn silent(actual: &Actual) -> BTreeMap<NodeName, Unreachable> {
    let silent = actual.unreachable();
    silent
        .map(|(name, down)| (name.clone(), down.clone()))
        .collect()
}
