//! How long a step may take. Pure.
//!
//! These are outer bounds: nothing may wait for ever. What waits for something that a person can
//! look at (an add-on's pods) has a shorter patience of its own and ends in a warning.
//!
//! A step that is cut at its bound is a torn step: the next survey sees what it left.

use std::{borrow::Cow, time::Duration};

use crate::{
    error::{Blame, Explain},
    plan::{Action, Target},
};

/// How long an add-on's workloads are waited for before that is a warning.
pub const ADDON_PATIENCE: Duration = Duration::from_secs(300);

/// The bound of an action.
pub const fn limit(action: &Action) -> Duration {
    const SECOND: u64 = 1;
    const MINUTE: u64 = 60 * SECOND;
    Duration::from_secs(match action {
        // One small request or file.
        Action::SaveState
        | Action::SaveStateCopy
        | Action::WriteKubeconfig
        | Action::RemoveKubeconfig
        | Action::DeleteState => MINUTE,
        // A few requests to a daemon that may be busy; a container has 30 s to end by itself.
        Action::Claim { .. }
        | Action::ReleaseClaim
        | Action::WriteFiles { .. }
        | Action::RemoveFiles { .. }
        | Action::PrepareKernel { .. }
        | Action::RunContainer { .. }
        | Action::StartContainer { .. }
        | Action::ReplaceContainer { .. }
        | Action::RemoveContainer { .. }
        | Action::PruneObjects { .. }
        | Action::ApplyAddon { .. } => 3 * MINUTE,
        // Copies an image, restarts a service with its own deadline, or waits for a component
        // or for a node that registers itself.
        Action::ImportPause { .. }
        | Action::ConfigureContainerd { .. }
        | Action::RestoreContainerd
        | Action::AwaitHealthy { .. }
        | Action::AwaitNodeReady { .. }
        | Action::SetNodeMeta { .. }
        | Action::RemoveImages { .. } => 5 * MINUTE,
        Action::AwaitAddon { .. } => ADDON_PATIENCE.as_secs() + MINUTE,
        // Ends every pod, each with its grace period.
        Action::CleanHost { .. } => 10 * MINUTE,
        // Hundreds of megabytes over somebody's slow line.
        Action::PullImage { .. } => 30 * MINUTE,
    })
}

/// A step did not end within its bound.
#[derive(Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Which step.
    pub title: String,
    /// On what.
    pub target: Target,
    /// How long it had.
    pub bound: Duration,
    /// What it said last that it waits for.
    pub waited_for: Option<String>,
}

impl std::fmt::Display for Overdue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            title,
            target,
            bound,
            waited_for,
        } = self;
        let seconds = bound.as_secs();
        write!(f, "`{title}` on `{target}` did not end within {seconds} s")?;
        match waited_for {
            Some(what) => write!(f, "; it waited for {what}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Overdue {}

impl Explain for Overdue {
    fn blame(&self) -> Blame {
        Blame::Transient
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let again = Cow::Borrowed("run it again: what is done is not repeated");
        match &self.target {
            Target::Host(node) => vec![
                format!(
                    "look at the load and the disk of node `{node}`, and at `docker ps -a` there"
                )
                .into(),
                again,
            ],
            Target::Cluster | Target::Local => vec![again],
        }
    }
}
