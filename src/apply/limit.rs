//! How long a step may take. Pure.
//!
//! These are outer bounds: nothing may wait for ever. A wait for something that the user can look
//! at (an add-on's pods) has a shorter limit and ends in a warning.
//!
//! A step that is cut at its bound is a torn step: the next survey sees what it left.

use std::{borrow::Cow, time::Duration};

use crate::{
    error::{ErrorClass, Explain},
    model::DrainRules,
    plan::{Action, ClusterAction, HostAction, LocalAction, Target},
};

/// How long an add-on's workloads are waited for before that is a warning.
pub const ADDON_PATIENCE: Duration = Duration::from_secs(300);

/// How long the pods of a node that leaves may take to go.
pub const DRAIN_PATIENCE: Duration = Duration::from_secs(600);

/// How long the volumes of a node that is lost may take to be detached before that is a warning.
pub const DETACH_PATIENCE: Duration = Duration::from_secs(180);

/// How long a `PodDisruptionBudget` may keep a pod that is to move. A run that was killed while it
/// evicted is in the budget's status for two minutes.
pub const EVICT_PATIENCE: Duration = Duration::from_secs(180);

/// How long Kubernetes may take to sign tokens again.
pub const TOKENS_PATIENCE: Duration = Duration::from_secs(180);

/// How long a drain may take.
pub fn drain_patience(rules: Option<&DrainRules>) -> Duration {
    rules.map_or(DRAIN_PATIENCE, |rules| {
        Duration::from_secs(rules.timeout.into())
    })
}

/// A member of etcd that has not caught up by then is removed again.
pub const CATCHES_UP: Duration = Duration::from_secs(15 * 60);

/// How long a node may do nothing and not register itself, or not become Ready.
pub const NODE_PATIENCE: Duration = Duration::from_secs(240);

/// How long a kubelet may take to end the pods that a restored API does not have, each with its grace period.
pub const PODS_PATIENCE: Duration = Duration::from_secs(600);
/// How long a machine has to come back from a reboot: a server counts its memory, and checks its disks.
pub const REBOOT_PATIENCE: Duration = Duration::from_secs(900);

/// How long a snapshot before something else may take, with its proof and its copy.
pub const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(600);

const MINUTE: Duration = Duration::from_secs(60);

/// The bound of an action.
pub fn limit(action: &Action) -> Duration {
    match action {
        Action::Host(_, action) => on_host(action),
        Action::Cluster(action) => in_cluster(action),
        // One small request or file.
        Action::Local(
            LocalAction::SaveState
            | LocalAction::WriteKubeconfig
            | LocalAction::RemoveKubeconfig
            | LocalAction::DeleteState,
        ) => MINUTE,
    }
}

fn on_host(action: &HostAction) -> Duration {
    if matches!(action, HostAction::SaveSnapshot { .. }) {
        return SNAPSHOT_PATIENCE + MINUTE;
    }
    // Pulls an image, and copies a program of some megabytes over SSH.
    if action.is_optional() {
        return 30 * MINUTE;
    }
    match action {
        // A few requests to a daemon that may be busy; a container has 30 s to exit on request.
        HostAction::Claim { .. }
        | HostAction::ReleaseClaim
        | HostAction::SetEtcdAside { .. }
        | HostAction::PutEtcdBack { .. }
        | HostAction::TryFlags { .. }
        | HostAction::WriteFiles { .. }
        | HostAction::RemoveFiles { .. }
        | HostAction::PrepareKernel { .. }
        | HostAction::RunContainer { .. }
        | HostAction::SaveSnapshot { .. }
        | HostAction::StartContainer { .. }
        | HostAction::ReplaceContainer { .. }
        | HostAction::PutBack { .. }
        | HostAction::RemoveKept { .. }
        | HostAction::ReloadProxy { .. }
        | HostAction::RemoveContainer { .. } => 3 * MINUTE,
        // Copies an image, restarts a service with its own deadline, or waits for a component.
        HostAction::ImportPause { .. }
        | HostAction::ConfigureContainerd { .. }
        | HostAction::RestoreContainerd
        | HostAction::AwaitHealthy { .. }
        | HostAction::AwaitAge { .. }
        | HostAction::RemoveImages { .. } => 5 * MINUTE,
        // A learner's own bound, and what comes before and after it.
        HostAction::JoinEtcd { .. } => CATCHES_UP + 5 * MINUTE,
        // The machine's own bound, and what comes before it.
        HostAction::Reboot { .. } => REBOOT_PATIENCE + 3 * MINUTE,
        // Ends every pod, each with its grace period.
        HostAction::CleanHost { .. } => 10 * MINUTE,
        // Hundreds of megabytes over the connection from where this runs; one that is dead is noticed before.
        HostAction::LoadImage { .. } | HostAction::ImportImage { .. } => 60 * MINUTE,
        // Hundreds of megabytes over a slow network, or gigabytes to a slow disk.
        HostAction::PullImage { .. } | HostAction::RestoreEtcd { .. } => 30 * MINUTE,
    }
}

fn in_cluster(action: &ClusterAction) -> Duration {
    match action {
        ClusterAction::SaveStateCopy
        | ClusterAction::ForgetWritten
        | ClusterAction::ForgetAuthorities { .. } => MINUTE,
        // A hundred objects, and hooks with their own patience.
        ClusterAction::ApplyChart { .. } | ClusterAction::PruneChart { .. } => 10 * MINUTE,
        ClusterAction::PruneObjects { .. } | ClusterAction::ApplyAddon { .. } => 3 * MINUTE,
        ClusterAction::RemoveMember { .. }
        | ClusterAction::RestartPods { .. }
        | ClusterAction::DeleteNode { .. }
        | ClusterAction::Cordon { .. }
        | ClusterAction::Uncordon { .. }
        | ClusterAction::BeginReboot { .. }
        | ClusterAction::FinishReboot { .. } => 2 * MINUTE,
        // An API server starts, and some hundred objects a second.
        ClusterAction::CleanRestored { .. } => 15 * MINUTE,
        ClusterAction::AwaitKnownPods { .. } => PODS_PATIENCE + MINUTE,
        // In addition to the drain's own limit: cordoning, and uncordoning after a failure.
        ClusterAction::Drain { rules, .. } => drain_patience(rules.as_ref()) + 2 * MINUTE,
        ClusterAction::Evict { .. } => EVICT_PATIENCE + MINUTE,
        ClusterAction::OutOfService { .. } => DETACH_PATIENCE + MINUTE,
        ClusterAction::RenewTokens { .. } | ClusterAction::AwaitAuthorities { .. } => {
            TOKENS_PATIENCE + MINUTE
        }
        // Wait for a node that registers itself.
        ClusterAction::SetNodeMeta { .. } => 5 * MINUTE,
        // The images of the node's first pods may come over a slow line. Some hundred objects are rewritten a
        // second; where that is cut, the next run does not write the finished ones again.
        ClusterAction::AwaitNodeReady { .. } | ClusterAction::RewriteStored { .. } => 30 * MINUTE,
        ClusterAction::AwaitAddon { .. } | ClusterAction::AwaitChart { .. } => {
            ADDON_PATIENCE + MINUTE
        }
    }
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
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let again = Cow::Borrowed("run it again: completed steps are not repeated");
        match &self.target {
            Target::Host(node) => vec![
                format!("`docker ps -a` and `docker logs` on node `{node}` show more").into(),
                again,
            ],
            Target::Cluster | Target::Local => vec![again],
        }
    }
}
