//! The types of conditions, the reasons that each may have, and what each pair means: one table
//! for the code, the documentation and the tests. Pure.
//!
//! The status of a condition follows from its reason, so that the two cannot contradict each
//! other: [`ConditionType::status`] looks it up here.

use std::fmt;

use super::conditions::ConditionStatus;

/// Every type of condition, in the order in which they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The cluster serves.
    Available,
    /// The summary that people wait for.
    Ready,
    /// The config was applied from end to end.
    Provisioned,
    /// The config can be understood.
    ConfigValid,
    /// Every node answers.
    NodesReachable,
    /// Every member of etcd serves.
    EtcdHealthy,
    /// The API answers.
    ControlPlaneHealthy,
    /// Every node is Ready.
    NodesHealthy,
    /// Add-ons are there.
    AddonsApplied,
    /// No certificate has ended.
    CertificatesValid,
    /// Snapshots of etcd are taken and proven.
    BackedUp,
    /// No difference is left.
    UpToDate,
    /// Nothing is changed.
    Paused,
    /// Being taken down.
    Deleting,
    /// A run is in progress or scheduled.
    Reconciling,
    /// Waits for a person.
    Stalled,
}

macro_rules! reasons {
    ($($name:ident),* $(,)?) => {
        /// Every reason that a condition may have; [`REASONS`] says what each means where.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(#[doc = concat!("`", stringify!($name), "`")] $name,)*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word in the API.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

reasons! {
    APIServerDown, AddressNotAllowed, AlarmRaised, Applied, Applying, AuthenticationFailed, AuthorityEnding, Available, AwaitingApproval, BackedUp, ClaimedByOther, ClockSkew, ComponentDown,
    Degraded, Deleting, DeletionOverdue, DeletionProtected, Disabled, DockerUnavailable, Drifted, Expired, ExpiringSoon, External, Failed, Healing, Healthy, HeldBack,
    HostKeyChanged, HostKeyUnknown, HostUnavailable, ImmutableField, InlineSecret,
    InternalError, InvalidConfig, MembersDown, NameTaken, NodesNotReady, NotAvailable, NotDeleting, NotPaused,
    NotProvisioned, NotTaken, NotYetKnown, Operating, Orphaning, Overdue, Paused, PermissionDenied, PreflightFailed, Protected, Provisioned,
    Provisioning, Queued, QuorumLost, Reachable, Ready, Removing, Renewing, Restoring, Retrying, RolledBack, RollingOut,
    SecretMissing, SecretNotGranted, SelfManaged, SourceMissing, SourceUnreadable, SpecNotApplied, StateConflict, StateMissing,
    StateUnreadable, Surveying, Unproven, Unreachable, UpToDate, UpdateAvailable, Valid,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One type in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The type.
    pub kind: ConditionType,
    /// What `True` means.
    pub means: &'static str,
}

/// One reason of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonRow {
    /// The type.
    pub kind: ConditionType,
    /// The reason.
    pub reason: Reason,
    /// The status that goes with it.
    pub status: ConditionStatus,
    /// What it says.
    pub means: &'static str,
}

const fn row(kind: ConditionType, means: &'static str) -> Row {
    Row { kind, means }
}

const fn yes(kind: ConditionType, reason: Reason, means: &'static str) -> ReasonRow {
    ReasonRow {
        kind,
        reason,
        status: ConditionStatus::True,
        means,
    }
}

const fn no(kind: ConditionType, reason: Reason, means: &'static str) -> ReasonRow {
    ReasonRow {
        kind,
        reason,
        status: ConditionStatus::False,
        means,
    }
}

const fn unknown(kind: ConditionType, reason: Reason, means: &'static str) -> ReasonRow {
    ReasonRow {
        kind,
        reason,
        status: ConditionStatus::Unknown,
        means,
    }
}

use ConditionType as T;
use Reason as R;

/// What `Unknown` says for every type that is always written.
const NOT_YET: &str = "not checked yet";
const CANNOT_SEE: &str = "it cannot be determined at the moment";

/// What each reason says, by type, in the order of the documentation.
pub const REASONS: &[ReasonRow] = &[
    yes(
        T::Available,
        R::Available,
        "the API answers, and etcd with it",
    ),
    no(
        T::Available,
        R::APIServerDown,
        "no API server of the cluster answers",
    ),
    no(T::Available, R::QuorumLost, "etcd has lost its quorum"),
    no(
        T::Available,
        R::Restoring,
        "etcd's data is being replaced by a snapshot",
    ),
    yes(
        T::Ready,
        R::Ready,
        "the cluster is available, every node is Ready, the control plane and etcd are healthy, and the spec is \
        applied",
    ),
    no(
        T::Ready,
        R::NotProvisioned,
        "the cluster was never built completely",
    ),
    no(
        T::Ready,
        R::NotAvailable,
        "the cluster is unavailable: see Available",
    ),
    no(
        T::Ready,
        R::NodesNotReady,
        "a node does not answer or is not Ready: see NodesReachable and NodesHealthy",
    ),
    no(
        T::Ready,
        R::ComponentDown,
        "a component of the control plane or a member of etcd is unhealthy: see ControlPlaneHealthy and EtcdHealthy",
    ),
    no(
        T::Ready,
        R::SpecNotApplied,
        "the cluster is available, but the current spec is not applied to it",
    ),
    no(T::Ready, R::Deleting, "the cluster is being removed"),
    yes(
        T::Provisioned,
        R::Provisioned,
        "the spec was applied completely",
    ),
    no(
        T::Provisioned,
        R::Provisioning,
        "the first run for this spec is in progress",
    ),
    no(
        T::Provisioned,
        R::Degraded,
        "the spec was applied to some nodes; others failed or did not answer",
    ),
    no(
        T::Provisioned,
        R::Failed,
        "the last run for this spec failed",
    ),
    yes(
        T::ConfigValid,
        R::Valid,
        "the config is valid, and what it refers to exists",
    ),
    no(
        T::ConfigValid,
        R::InvalidConfig,
        "the spec has errors; the message has their paths",
    ),
    no(
        T::ConfigValid,
        R::InlineSecret,
        "a password or a private key is in the object itself; the message has its path. A cluster that is built is kept as it was applied last",
    ),
    no(
        T::ConfigValid,
        R::ImmutableField,
        "the config asks for another network plugin, range or domain than the cluster has",
    ),
    no(
        T::ConfigValid,
        R::SourceMissing,
        "a Secret, ConfigMap or file that the spec refers to is missing, its key is missing or empty, or it is not \
        granted to this Cluster",
    ),
    unknown(
        T::ConfigValid,
        R::SourceUnreadable,
        "a Secret or ConfigMap that the spec refers to cannot be read at the moment",
    ),
    yes(
        T::NodesReachable,
        R::Reachable,
        "every node answers over SSH, and its Docker does",
    ),
    no(
        T::NodesReachable,
        R::Unreachable,
        "some nodes do not answer; the message says which, and why",
    ),
    no(
        T::NodesReachable,
        R::DockerUnavailable,
        "some nodes answer, but their Docker does not, or the user may not use it",
    ),
    no(
        T::NodesReachable,
        R::AddressNotAllowed,
        "the address of a node is not in `--allowed-node-cidrs`, or is not that of another machine; the operator \
        does not connect to it",
    ),
    no(
        T::NodesReachable,
        R::AuthenticationFailed,
        "some nodes refuse the login with this user and key",
    ),
    no(
        T::NodesReachable,
        R::HostKeyUnknown,
        "the host key of a node is unknown; the message has its fingerprint",
    ),
    no(
        T::NodesReachable,
        R::HostKeyChanged,
        "the host key of a node differs from the recorded one",
    ),
    yes(T::EtcdHealthy, R::Healthy, "every member serves"),
    no(
        T::EtcdHealthy,
        R::MembersDown,
        "etcd has a quorum, but some of its members are down",
    ),
    no(
        T::EtcdHealthy,
        R::AlarmRaised,
        "a member has raised an alarm: with NOSPACE etcd accepts no writes",
    ),
    no(
        T::EtcdHealthy,
        R::QuorumLost,
        "too few members run, or they do not agree on a leader",
    ),
    yes(
        T::EtcdHealthy,
        R::External,
        "etcd is external (`services.etcd.external_urls`), and the API reaches it",
    ),
    yes(
        T::ControlPlaneHealthy,
        R::Healthy,
        "every API server answers, and the controller managers and schedulers run",
    ),
    no(
        T::ControlPlaneHealthy,
        R::APIServerDown,
        "no API server answers",
    ),
    no(
        T::ControlPlaneHealthy,
        R::ComponentDown,
        "a component of a control plane is not running",
    ),
    yes(T::NodesHealthy, R::Healthy, "every node is Ready"),
    no(
        T::NodesHealthy,
        R::NodesNotReady,
        "some nodes are not Ready, a kubelet is not running, or a node does not reach pods on another node",
    ),
    yes(
        T::AddonsApplied,
        R::Applied,
        "every add-on is applied and available",
    ),
    no(
        T::AddonsApplied,
        R::Applying,
        "some add-ons are not applied, or not available yet",
    ),
    yes(
        T::CertificatesValid,
        R::Valid,
        "no certificate expires soon; the message has the days that are left",
    ),
    yes(
        T::CertificatesValid,
        R::ExpiringSoon,
        "certificates expire soon, and are renewed by the operator",
    ),
    no(
        T::CertificatesValid,
        R::AuthorityEnding,
        "a CA expires within 90 days, and is not renewed automatically",
    ),
    no(
        T::CertificatesValid,
        R::Expired,
        "a certificate has expired; those of the nodes are renewed by the operator",
    ),
    unknown(
        T::CertificatesValid,
        R::ClockSkew,
        "the clocks of the nodes and of the operator contradict each other, so no expiry is checked",
    ),
    yes(
        T::BackedUp,
        R::BackedUp,
        "a snapshot of etcd was taken within the last two intervals, one within the last four was proven, and the \
        bucket, if there is one, has a copy from the last two; the message names the newest",
    ),
    no(
        T::BackedUp,
        R::NotTaken,
        "no node takes snapshots, or the first one cannot be taken",
    ),
    no(
        T::BackedUp,
        R::Overdue,
        "the newest snapshot, or the newest copy in the bucket, is older than two intervals",
    ),
    no(
        T::BackedUp,
        R::Unproven,
        "the newest proven snapshot is older than four intervals",
    ),
    unknown(
        T::BackedUp,
        R::Disabled,
        "the config disables recurring snapshots, or etcd is external and its owner takes them",
    ),
    yes(T::UpToDate, R::UpToDate, "the nodes match the spec"),
    no(
        T::UpToDate,
        R::Drifted,
        "something was changed outside of this operator; the operator will correct it",
    ),
    no(
        T::UpToDate,
        R::UpdateAvailable,
        "changes are available although the config is the same (a new release of the operator, or a changed node); \
        approving `status.pendingPlan` or editing the config applies them",
    ),
    no(
        T::UpToDate,
        R::AwaitingApproval,
        "the config was changed, the spec has `changes: Approve`, and `status.pendingPlan` is not approved yet",
    ),
    no(
        T::UpToDate,
        R::HeldBack,
        "something differs and is left as it is for now; the message says what it is, and what it waits for",
    ),
    no(
        T::UpToDate,
        R::RolledBack,
        "a change failed on a node and was rolled back there; it is not retried until the spec changes, or the \
        annotation `clusterprovisioner.rke.io/retry` is set; the message says which, and why",
    ),
    no(T::UpToDate, R::RollingOut, "a run is in progress"),
    no(
        T::UpToDate,
        R::Failed,
        "the last run failed; the message says why",
    ),
    yes(
        T::Paused,
        R::Paused,
        "the spec has `paused: true`: no run starts, nothing is healed, renewed or cleaned",
    ),
    no(T::Paused, R::NotPaused, "the spec does not pause it"),
    no(
        T::Deleting,
        R::NotDeleting,
        "the object is not being deleted",
    ),
    yes(
        T::Deleting,
        R::Removing,
        "the nodes are being cleaned; the message says what is left to do",
    ),
    yes(
        T::Deleting,
        R::Orphaning,
        "the spec has `deletion.policy: Orphan`: the nodes are left as they are, and a record of them is written",
    ),
    yes(
        T::Deleting,
        R::Paused,
        "the spec has `paused: true`: no node is touched; the deadline keeps running",
    ),
    yes(
        T::Deleting,
        R::Protected,
        "the spec has `deletionProtection: true`: no node is touched, and no deadline ends it",
    ),
    yes(
        T::Deleting,
        R::DeletionOverdue,
        "the timeout of the deletion has expired, and `onTimeout` is `Keep`",
    ),
    yes(
        T::Reconciling,
        R::Queued,
        "it waits in the queue; the message has its place",
    ),
    yes(T::Reconciling, R::Surveying, "the nodes are being read"),
    yes(
        T::Reconciling,
        R::Provisioning,
        "the cluster is being built",
    ),
    yes(
        T::Reconciling,
        R::RollingOut,
        "a changed spec is being applied",
    ),
    yes(
        T::Reconciling,
        R::Healing,
        "changes made outside of this operator are being corrected",
    ),
    yes(
        T::Reconciling,
        R::Renewing,
        "certificates that expire soon are being renewed, one component at a time",
    ),
    yes(
        T::Reconciling,
        R::Operating,
        "a `ClusterOperation` is being carried out",
    ),
    yes(
        T::Reconciling,
        R::Retrying,
        "a request failed with a transient error; retried within a minute",
    ),
    yes(
        T::Reconciling,
        R::HostUnavailable,
        "a node does not answer or refuses; retried within ten minutes",
    ),
    yes(T::Stalled, R::InvalidConfig, "the spec must be corrected"),
    yes(
        T::Stalled,
        R::SecretMissing,
        "a Secret that the spec refers to must be created or completed",
    ),
    yes(
        T::Stalled,
        R::SecretNotGranted,
        "a Secret that the spec refers to does not name this Cluster in its annotation `clusterprovisioner.rke.io/clusters`",
    ),
    yes(
        T::Stalled,
        R::SourceMissing,
        "a ConfigMap or file that the spec refers to must be created or completed",
    ),
    yes(
        T::Stalled,
        R::ClaimedByOther,
        "a node belongs to another cluster",
    ),
    yes(
        T::Stalled,
        R::PreflightFailed,
        "something on a node must be settled by its owner first",
    ),
    yes(
        T::Stalled,
        R::NameTaken,
        "an object that this Cluster needs exists and is not this Cluster's",
    ),
    yes(
        T::Stalled,
        R::StateMissing,
        "the nodes belong to a cluster whose state is missing: recover it by its ID",
    ),
    yes(
        T::Stalled,
        R::StateConflict,
        "the state under this name belongs to an earlier object, or a copy of it is newer: the message names the ID \
        to take over or to recover",
    ),
    yes(
        T::Stalled,
        R::StateUnreadable,
        "the state exists and cannot be read",
    ),
    yes(
        T::Stalled,
        R::PermissionDenied,
        "the operator's ServiceAccount lacks a permission; the message names it",
    ),
    yes(
        T::Stalled,
        R::DeletionOverdue,
        "the timeout of the deletion has expired, and the object is kept",
    ),
    yes(
        T::Stalled,
        R::DeletionProtected,
        "it is deleted and protected; the message has the options",
    ),
    yes(
        T::Stalled,
        R::SelfManaged,
        "the Cluster is the one that the operator itself runs on: it is not removed",
    ),
    yes(
        T::Stalled,
        R::InternalError,
        "internal error; retried within the hour",
    ),
];

impl ConditionType {
    /// Every type, and what `True` means.
    pub const TABLE: [Row; 16] = [
        row(
            Self::Available,
            "the cluster serves: the API answers, and etcd has its quorum; an edit of the spec does not touch it",
        ),
        row(
            Self::Ready,
            "the summary: the cluster is available and healthy, and the spec is applied",
        ),
        row(
            Self::Provisioned,
            "the spec was applied completely; only a run changes its observedGeneration",
        ),
        row(
            Self::ConfigValid,
            "the config is valid, and everything that it refers to exists",
        ),
        row(
            Self::NodesReachable,
            "every node answers over SSH and its Docker does",
        ),
        row(Self::EtcdHealthy, "every etcd member is healthy"),
        row(
            Self::ControlPlaneHealthy,
            "every API server answers, and the controller managers and schedulers run",
        ),
        row(Self::NodesHealthy, "every node of the cluster is Ready"),
        row(
            Self::AddonsApplied,
            "every add-on is applied and its workloads are available",
        ),
        row(
            Self::CertificatesValid,
            "no certificate of the cluster has expired; `status.certificates` has the first that will",
        ),
        row(
            Self::BackedUp,
            "recurring snapshots of etcd are taken, proven and copied; `status.snapshots` has their times",
        ),
        row(Self::UpToDate, "the nodes match the spec"),
        row(
            Self::Paused,
            "nothing is changed on the nodes; they are still surveyed",
        ),
        row(
            Self::Deleting,
            "the nodes are being cleaned; `status.remaining` lists what is left",
        ),
        row(Self::Reconciling, "a run is in progress or scheduled"),
        row(
            Self::Stalled,
            "it needs user action; retrying will not help",
        ),
    ];

    /// The name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Ready => "Ready",
            Self::Provisioned => "Provisioned",
            Self::ConfigValid => "ConfigValid",
            Self::NodesReachable => "NodesReachable",
            Self::EtcdHealthy => "EtcdHealthy",
            Self::ControlPlaneHealthy => "ControlPlaneHealthy",
            Self::NodesHealthy => "NodesHealthy",
            Self::AddonsApplied => "AddonsApplied",
            Self::CertificatesValid => "CertificatesValid",
            Self::BackedUp => "BackedUp",
            Self::UpToDate => "UpToDate",
            Self::Paused => "Paused",
            Self::Deleting => "Deleting",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
        }
    }

    /// True for what tells how the cluster is, whatever its spec says: never left as it was by a look that
    /// did not see it.
    pub const HEALTH: [Self; 7] = [
        Self::Available,
        Self::NodesReachable,
        Self::EtcdHealthy,
        Self::ControlPlaneHealthy,
        Self::NodesHealthy,
        Self::AddonsApplied,
        Self::CertificatesValid,
    ];

    /// Written only while it is true, as kstatus reads it.
    pub const fn only_when_true(self) -> bool {
        match self {
            Self::Available
            | Self::Ready
            | Self::Provisioned
            | Self::ConfigValid
            | Self::NodesReachable
            | Self::EtcdHealthy
            | Self::ControlPlaneHealthy
            | Self::NodesHealthy
            | Self::AddonsApplied
            | Self::CertificatesValid
            | Self::BackedUp
            | Self::UpToDate
            | Self::Paused
            | Self::Deleting => false,
            Self::Reconciling | Self::Stalled => true,
        }
    }

    /// The reasons that this type may have, with their meaning; those of `Unknown` last.
    pub fn reasons(self) -> impl Iterator<Item = ReasonRow> {
        let unknowns = [
            unknown(self, R::NotYetKnown, NOT_YET),
            unknown(self, R::Unreachable, CANNOT_SEE),
        ];
        let own = move |reason: Reason| {
            REASONS
                .iter()
                .any(|row| row.kind == self && row.reason == reason)
        };
        REASONS
            .iter()
            .filter(move |row| row.kind == self)
            .copied()
            .chain(
                unknowns
                    .into_iter()
                    .filter(move |row| !self.only_when_true() && !own(row.reason)),
            )
    }

    /// The status that a reason has with this type; a pair that the table does not have says
    /// nothing, and so is `Unknown`.
    pub fn status(self, reason: Reason) -> ConditionStatus {
        self.reasons()
            .find(|row| row.reason == reason)
            .map_or(ConditionStatus::Unknown, |row| row.status)
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_has_every_type_once_and_in_order() {
        let kinds: Vec<_> = ConditionType::TABLE.iter().map(|row| row.kind).collect();
        assert!(kinds.is_sorted_by(|a, b| a < b), "{kinds:?}");
    }

    #[test]
    fn every_type_has_a_way_to_be_true_and_no_reason_twice() {
        for row in ConditionType::TABLE {
            let reasons: Vec<_> = row.kind.reasons().collect();
            let names: BTreeSet<_> = reasons.iter().map(|row| row.reason).collect();
            assert_eq!(names.len(), reasons.len(), "{}", row.kind);
            let has = |status| reasons.iter().any(|row| row.status == status);
            assert!(has(ConditionStatus::True), "{}", row.kind);
            assert_eq!(
                has(ConditionStatus::False) && has(ConditionStatus::Unknown),
                !row.kind.only_when_true(),
                "{}",
                row.kind
            );
        }
    }

    #[test]
    fn no_reason_is_without_a_condition() {
        for reason in Reason::ALL {
            let used = ConditionType::TABLE
                .iter()
                .any(|row| row.kind.reasons().any(|row| row.reason == *reason));
            assert!(used, "{reason}");
        }
        assert_eq!(Reason::APIServerDown.name(), "APIServerDown");
    }

    #[test]
    fn a_pair_that_the_table_does_not_have_says_nothing() {
        let kind = ConditionType::Ready;
        assert_eq!(kind.status(Reason::Ready), ConditionStatus::True);
        assert_eq!(kind.status(Reason::SpecNotApplied), ConditionStatus::False);
        assert_eq!(kind.status(Reason::NotYetKnown), ConditionStatus::Unknown);
        assert_eq!(kind.status(Reason::Valid), ConditionStatus::Unknown);
        // Here the same word is an answer.
        let kind = ConditionType::NodesReachable;
        assert_eq!(kind.status(Reason::Unreachable), ConditionStatus::False);
    }
}
