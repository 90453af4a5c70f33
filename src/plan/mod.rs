//! The difference between what must be and what is, as data. Pure.
//!
//! [`up`] and [`remove`] make plans, [`check`] judges any plan against the invariants,
//! [`render`] prints one. A plan can be printed, compared, serialised and simulated: nothing in
//! it is a closure, and nothing in it is secret. May use pure functions only; must not read a
//! clock, a file or the network.
//!
//! ```
//! use rke_operator::{
//!     actual::{Actual, ApiView},
//!     plan,
//! };
//!
//! // No host, no state: nothing is ours, so there is nothing to give back.
//! let have = Actual {
//!     hosts: Default::default(),
//!     api: ApiView::Unknown,
//!     kubeconfig: None,
//!     saved: None,
//! };
//! let plan = plan::remove(None, &have)?;
//! assert!(plan.is_empty());
//! assert_eq!(plan::render(&plan), "Plan: nothing to do\n");
//! # Ok::<(), plan::PlanError>(())
//! ```

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize};

mod addons;
mod admission;
mod advice;
mod check;
mod claim;
mod conflicts;
mod containerd;
mod containers;
mod diff;
mod files;
mod guard;
mod health;
mod hosts;
mod images;
mod kernel;
mod nodes;
mod refusal;
mod remove;
mod render;
mod state;
mod sweep;
mod up;

pub use check::{Violation, check};
pub use containerd::config_digest;
pub use guard::holds;
pub use refusal::{PlanError, Refusal};
pub use remove::remove;
pub use render::{render, title};
pub use up::up;

use crate::{
    actual::Before,
    config::NodeName,
    desired::{ContainerSpec, ContainerdWants, Digest, KernelWants, NodeMeta, ObjectRef},
    state::ClusterId,
};

/// What the run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Goal {
    /// Make the world as the intent says.
    Up,
    /// Give every node back.
    Remove,
}

/// Everything a run will do, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// One after the other.
    pub stages: Vec<Stage>,
    /// What it waits for or leaves alone, and why.
    pub notes: Vec<Note>,
}

impl Plan {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.stages.iter().all(|stage| stage.steps.is_empty())
    }

    /// Every step in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.stages.iter().flat_map(|stage| &stage.steps)
    }

    /// True when no step has an effect: all that is left is to wait. A run whose plan after
    /// a completed round only waits has converged; what is still slow was warned about.
    pub fn only_waits(&self) -> bool {
        self.steps().all(|step| step.action.is_wait())
    }

    /// True for the plan that ends a removal: the survey before it saw that nothing of the
    /// cluster is left, so there is nothing to look at again once it is done (and nothing to
    /// tell our nodes by).
    pub fn deletes_state(&self) -> bool {
        self.steps().any(|step| step.action == Action::DeleteState)
    }

    /// The steps that disturb what runs, and what they disturb: these want consent.
    pub fn disruptions(&self) -> impl Iterator<Item = (&Step, &str)> {
        self.steps()
            .filter_map(|step| step.disturbs.as_deref().map(|what| (step, what)))
    }
}

/// Steps that belong together. Up to `width` hosts at once; one host's steps in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// One word: `claim`, `images`, `containerd`, `files`, `start`, …
    pub name: Cow<'static, str>,
    /// How many hosts at once.
    pub width: usize,
    /// The steps; those of one target run in order.
    pub steps: Vec<Step>,
}

/// What a step acts on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Target {
    /// A node, over SSH and Docker.
    Host(NodeName),
    /// The cluster's API.
    Cluster,
    /// Where we run: store and kubeconfig.
    Local,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(name) => write!(f, "{name}"),
            Self::Cluster => f.write_str("cluster"),
            Self::Local => f.write_str("local"),
        }
    }
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// On what.
    pub target: Target,
    /// Why, in words that a stranger understands.
    pub why: Cow<'static, str>,
    /// The fields that differ, for replacements and applies.
    pub changes: Vec<FieldChange>,
    /// What must still hold at that moment, evaluated live.
    pub guard: Option<Guard>,
    /// What running work it disturbs; `Some` wants consent.
    pub disturbs: Option<String>,
    /// The effect.
    pub action: Action,
}

impl Step {
    pub(super) fn new(target: Target, why: impl Into<Cow<'static, str>>, action: Action) -> Self {
        Self {
            target,
            why: why.into(),
            changes: Vec::new(),
            guard: None,
            disturbs: None,
            action,
        }
    }

    pub(super) fn on(host: &NodeName, why: impl Into<Cow<'static, str>>, action: Action) -> Self {
        Self::new(Target::Host(host.clone()), why, action)
    }

    /// Only while the host's claim bears this id.
    pub(super) fn guarded(mut self, id: &ClusterId) -> Self {
        self.guard = Some(Guard::ClaimIs(id.clone()));
        self
    }

    pub(super) fn changing(mut self, changes: Vec<FieldChange>) -> Self {
        self.changes = changes;
        self
    }

    pub(super) fn disturbing(mut self, what: impl Into<String>) -> Self {
        self.disturbs = Some(what.into());
        self
    }
}

/// One field that differs. Values of files are keyed digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// `image`, `command --v`, `files /etc/kubernetes/ssl/kube-ca.pem`.
    pub field: String,
    /// `None`: was not there.
    pub from: Option<String>,
    /// `None`: goes away. What cannot be known before is `known after …`.
    pub to: Option<String>,
}

/// What must hold just before a step; a guard that fails means "plan again".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guard {
    /// The host's claim bears this id.
    ClaimIs(ClusterId),
}

/// Said in a plan, beside its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// About what, if about one thing.
    pub target: Option<Target>,
    /// What, and why.
    pub text: String,
}

/// Something whose health can be awaited on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Component {
    /// `http://127.0.0.1:2381/health`.
    Etcd,
    /// `/readyz` with the administrator's certificate.
    ApiServer,
    /// `https://127.0.0.1:10257/healthz`.
    ControllerManager,
    /// `https://127.0.0.1:10259/healthz`.
    Scheduler,
    /// `http://127.0.0.1:10248/healthz`.
    Kubelet,
    /// `http://127.0.0.1:10256/healthz`.
    KubeProxy,
}

impl Component {
    /// Every component, in the order of [`crate::desired::START_ORDER`].
    pub const ALL: [Self; 6] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kubelet,
        Self::KubeProxy,
    ];

    /// The name of its container.
    pub const fn container(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
        }
    }

    /// The TCP ports that it listens on.
    pub const fn ports(self) -> &'static [u16] {
        match self {
            Self::Etcd => &[2379, 2380, 2381],
            Self::ApiServer => &[6443],
            Self::ControllerManager => &[10257],
            Self::Scheduler => &[10259],
            Self::Kubelet => &[10248, 10250],
            Self::KubeProxy => &[10249, 10256],
        }
    }
}

/// A file of a [`Action::WriteFiles`]: its content is in `Desired`, by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// Keyed digest of the content.
    pub digest: Digest,
    /// Permission bits.
    pub mode: u32,
}

/// The whole effect surface. Closed: `apply/act.rs` has one arm for each, and so has the
/// simulated world. Each says why an interruption in the middle is harmless.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Writes `Desired::saved` to the store: create-only, or compare-and-swap on the revision
    /// that the survey loaded. Visible in the next load.
    SaveState,
    /// Creates the claim container (and the empty image it needs): its fixed name is the lock.
    /// Visible as a container.
    Claim {
        /// Whose claim.
        cluster_id: ClusterId,
        /// For people.
        cluster_name: String,
        /// What was there before us.
        before: Before,
    },
    /// Pulls with the node's Docker. A torn pull leaves no tag; repeating it is harmless.
    PullImage {
        /// Reference.
        image: String,
    },
    /// Writes directories and files through the claim, in one archive, and reads the digests
    /// back. Not atomic: a torn write is seen as a different content.
    WriteFiles {
        /// Path → mode.
        dirs: BTreeMap<String, u32>,
        /// By path.
        files: BTreeMap<String, FileRef>,
    },
    /// Deletes files of ours (never directories that were there before). Visible in the files.
    RemoveFiles {
        /// Paths.
        paths: BTreeSet<String>,
    },
    /// Loads modules and sets sysctls now (the files for the next boot are written with the
    /// others). Visible in the system facts; repeating is harmless.
    PrepareKernel {
        /// What.
        wants: KernelWants,
    },
    /// One transaction on the node under systemd-run: our file and drop-in, checked by the
    /// node's own containerd, restart, CRI probed, switched back by itself on failure. Visible
    /// in the files; repeating is harmless.
    ConfigureContainerd {
        /// The settings.
        wants: ContainerdWants,
        /// Digest of the file that will be written (computed from the node's own dump).
        digest: Digest,
    },
    /// Copies the pause image from Docker into containerd's `k8s.io` namespace. Repeating is
    /// harmless; it runs when containerd was configured or kubelet's container is created.
    ImportPause {
        /// Reference.
        image: String,
    },
    /// Creates and starts a component. Torn: created but not started, which the next survey sees.
    RunContainer {
        /// Name.
        name: String,
        /// Definition, goes into the label.
        spec: Box<ContainerSpec>,
    },
    /// Starts a container of ours that should run and does not. Repeating is harmless.
    StartContainer {
        /// Name.
        name: String,
    },
    /// Removes (with its anonymous volumes) and runs anew. Torn: gone, which the next survey sees.
    ReplaceContainer {
        /// Name.
        name: String,
        /// The new definition.
        spec: Box<ContainerSpec>,
    },
    /// Stops and removes, with anonymous volumes. Gone is success.
    RemoveContainer {
        /// Name.
        name: String,
    },
    /// Waits, bounded, until a component is healthy. No effect.
    AwaitHealthy {
        /// What.
        component: Component,
    },
    /// Server-side apply of an add-on's objects, in order. Visible in the objects; repeating is harmless.
    ApplyAddon {
        /// Which.
        addon: String,
        /// Those that differ.
        objects: Vec<ObjectRef>,
    },
    /// Deletes objects of ours that are no longer wanted. Gone is success.
    PruneObjects {
        /// Which.
        objects: Vec<ObjectRef>,
    },
    /// Sets our labels, annotations and taints on the Node object of the step's host, and takes
    /// those of ours away that are no longer wanted. Waits, bounded, until kubelet has made the
    /// object. Visible in the Node.
    SetNodeMeta {
        /// What.
        meta: NodeMeta,
    },
    /// Waits, bounded, until the node is Ready in the API. No effect.
    AwaitNodeReady {
        /// Which.
        node: NodeName,
    },
    /// Waits, bounded, until an add-on's workloads are available; then a warning, never a
    /// failure. No effect.
    AwaitAddon {
        /// Which.
        addon: String,
    },
    /// Writes the copy of the state into `kube-system`. Visible in `ApiFacts::state_copy`.
    SaveStateCopy,
    /// Writes the administrator's kubeconfig (0600, or a Secret). Visible in `Actual::kubeconfig`.
    WriteKubeconfig,
    /// As root on the node, in one one-off container: ends pods and sandboxes of `k8s.io`,
    /// unmounts below kubelet's root, removes links, network namespaces, iptables chains, our
    /// files for the next boot, folders and sysctls that were not there before.
    /// `/etc/kubernetes`, `/etc/cni/net.d`, `/var/lib/etcd` and `/var/lib/kubelet` can only have
    /// been there empty: those are emptied and stay. Repeating is harmless.
    CleanHost {
        /// What was there before us and stays.
        before: Before,
    },
    /// Takes our containerd file and drop-in away and restarts containerd, in a transaction
    /// like [`Action::ConfigureContainerd`]. Repeating is harmless.
    RestoreContainerd,
    /// Removes images that we pulled (never those that were there before). Gone is success.
    RemoveImages {
        /// References.
        images: BTreeSet<String>,
    },
    /// Removes the claim and its empty image: the last act on a node. Gone is success.
    ReleaseClaim,
    /// Removes the kubeconfig. Gone is success.
    RemoveKubeconfig,
    /// Deletes the state: the last act of a removal. Gone is success.
    DeleteState,
}

impl Action {
    /// True for the actions that only wait and have no effect.
    pub const fn is_wait(&self) -> bool {
        match self {
            Self::AwaitHealthy { .. } | Self::AwaitNodeReady { .. } | Self::AwaitAddon { .. } => {
                true
            }
            Self::SaveState
            | Self::Claim { .. }
            | Self::PullImage { .. }
            | Self::WriteFiles { .. }
            | Self::RemoveFiles { .. }
            | Self::PrepareKernel { .. }
            | Self::ConfigureContainerd { .. }
            | Self::ImportPause { .. }
            | Self::RunContainer { .. }
            | Self::StartContainer { .. }
            | Self::ReplaceContainer { .. }
            | Self::RemoveContainer { .. }
            | Self::ApplyAddon { .. }
            | Self::PruneObjects { .. }
            | Self::SetNodeMeta { .. }
            | Self::SaveStateCopy
            | Self::WriteKubeconfig
            | Self::CleanHost { .. }
            | Self::RestoreContainerd
            | Self::RemoveImages { .. }
            | Self::ReleaseClaim
            | Self::RemoveKubeconfig
            | Self::DeleteState => false,
        }
    }

    /// True for the actions that destroy or replace something on a host: each needs a guard.
    pub const fn is_destructive(&self) -> bool {
        match self {
            Self::WriteFiles { .. }
            | Self::RemoveFiles { .. }
            | Self::ConfigureContainerd { .. }
            | Self::ReplaceContainer { .. }
            | Self::RemoveContainer { .. }
            | Self::CleanHost { .. }
            | Self::RestoreContainerd
            | Self::RemoveImages { .. }
            | Self::ReleaseClaim => true,
            Self::SaveState
            | Self::Claim { .. }
            | Self::PullImage { .. }
            | Self::PrepareKernel { .. }
            | Self::ImportPause { .. }
            | Self::RunContainer { .. }
            | Self::StartContainer { .. }
            | Self::AwaitHealthy { .. }
            | Self::ApplyAddon { .. }
            | Self::PruneObjects { .. }
            | Self::SetNodeMeta { .. }
            | Self::AwaitNodeReady { .. }
            | Self::AwaitAddon { .. }
            | Self::SaveStateCopy
            | Self::WriteKubeconfig
            | Self::RemoveKubeconfig
            | Self::DeleteState => false,
        }
    }
}
