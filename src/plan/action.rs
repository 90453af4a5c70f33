//! The whole effect surface, by where an effect happens. Pure.
//!
//! Closed: `apply/act.rs` has one arm for each action, and so has the simulated world. Each says why
//! an interruption in the middle is harmless.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    etcd::MemberId,
    facts::Baseline,
    model::{
        ClusterId, Component, ContainerSpec, ContainerdWants, Digest, DrainRules, KernelWants,
        NodeMeta, NodeName, ObjectRef,
    },
    snapshots::record,
    state::SnapshotRef,
};

/// One effect, by where it happens: what is done on a node cannot lack one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// On a node, over SSH and Docker.
    Host(NodeName, HostAction),
    /// In the cluster's API.
    Cluster(ClusterAction),
    /// Where we run.
    Local(LocalAction),
}

/// What is done on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostAction {
    /// Creates the claim container (and the empty image it needs): its fixed name is the lock.
    /// Visible as a container.
    Claim {
        /// Whose claim.
        cluster_id: ClusterId,
        /// For people.
        cluster_name: String,
        /// What was there before us.
        before: Baseline,
    },
    /// Pulls with the node's Docker. A torn pull leaves no tag; repeating it is harmless.
    PullImage {
        /// Reference.
        image: String,
    },
    /// Streams an image of the bundle into the node's Docker. A torn load leaves no tag; repeating it is harmless.
    LoadImage {
        /// Reference.
        image: String,
        /// Bytes of its archive.
        bytes: u64,
    },
    /// Runs the program of each component once with all of its flags and `--version`, in a separate
    /// container that changes nothing: a flag that the program does not know is an error before any
    /// running container is replaced. It does not check values, or the fields of configuration files.
    /// Repeating it is harmless.
    TryFlags {
        /// What the components' containers would be.
        specs: BTreeMap<Component, ContainerSpec>,
    },
    /// Writes directories and files through the claim, in one archive, and reads the digests
    /// back. Not atomic: a torn write is seen as a different content.
    WriteFiles {
        /// Path → mode.
        dirs: BTreeMap<String, u32>,
        /// By path.
        files: BTreeMap<String, FileRef>,
    },
    /// Deletes rke-operator's files (never directories that existed before). Visible in the files.
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
    /// node's own containerd, restart, CRI probed, reverted automatically on failure. Visible
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
    /// Streams an image of the bundle into containerd's `k8s.io` namespace, pinned. Visible in the list of those that came so,
    /// [`crate::model::path::POD_IMAGES`]; a torn import leaves no image, and repeating is harmless.
    ImportImage {
        /// Reference.
        image: String,
        /// Bytes of its archive.
        bytes: u64,
    },
    /// Creates and starts a component. Torn: created but not started, which the next survey sees.
    RunContainer {
        /// Which.
        #[serde(rename = "name")]
        component: Component,
        /// Definition, goes into the label.
        spec: Box<ContainerSpec>,
    },
    /// Makes this node's etcd a member of the etcd that serves: added as one that follows, run, and
    /// given its vote when it has caught up. Data of a member that etcd does not know are moved
    /// aside. Visible in the container and in etcd's list; repeating is harmless.
    JoinEtcd {
        /// Definition, without the list of members: that is the one of the moment.
        spec: Box<ContainerSpec>,
    },
    /// Moves the data of this node's member aside, for a restore: they are not deleted, and no member of the restored
    /// etcd has them. Visible in the folders; repeating is harmless.
    SetEtcdAside {
        /// Of the restore.
        epoch: u32,
    },
    /// Moves the data that [`HostAction::SetEtcdAside`] has moved back into the member's folder; what a restore has made
    /// there is moved away and kept. Visible in the folders; repeating is harmless.
    PutEtcdBack {
        /// Of the restore.
        epoch: u32,
    },
    /// Makes the data of the first member of a restored etcd from a snapshot, next to those that are there, then moves
    /// these aside and the new ones in their place. Visible in the folders, which say when it is complete; repeating is
    /// harmless.
    RestoreEtcd {
        /// From what, and as whom.
        restore: Box<EtcdRestore>,
    },
    /// Saves a snapshot of this node's member of etcd in the node's folder of snapshots, and in the bucket, where there is
    /// one. It replaces no file. One of that name and cause that an interrupted run has saved is not taken again.
    SaveSnapshot {
        /// Its name.
        name: String,
        /// Why it is taken, for its record.
        cause: record::Cause,
        /// When the first attempt of that name began, of one that the state records: of a removal.
        begun_at: Option<Timestamp>,
        /// Nothing comes after it where it fails; else that is a warning.
        required: bool,
    },
    /// Starts one of rke-operator's containers that should run and does not. Repeating is harmless.
    StartContainer {
        /// Which.
        #[serde(rename = "name")]
        component: Component,
    },
    /// Removes the container (with its anonymous volumes) and runs a new one. If interrupted in between, the container
    /// is missing, which the next survey sees.
    ReplaceContainer {
        /// Which.
        #[serde(rename = "name")]
        component: Component,
        /// The new definition.
        spec: Box<ContainerSpec>,
        /// The former one is not removed: it is stopped, Docker no longer starts it, and it is renamed to
        /// [`Component::kept`]. Torn: it is stopped, or is kept while the other one is missing; the next survey sees both.
        #[serde(default, skip_serializing_if = "is_false")]
        keep: bool,
    },
    /// Removes the container of a component and makes the one that was kept the running one again. Torn: none of the name
    /// is there while one is kept, or the former one does not run; the next survey sees both.
    PutBack {
        /// Which.
        #[serde(rename = "name")]
        component: Component,
    },
    /// Removes the containers that changes of these components have kept, if they are this cluster's. Gone is success.
    RemoveKept {
        /// Which.
        components: BTreeSet<Component>,
    },
    /// Tells nginx-proxy to read its configuration again, and writes down which one that was. No
    /// connection is refused. Visible in that file; repeating is harmless.
    ReloadProxy {
        /// The file that says what was read.
        read: FileRef,
    },
    /// Stops and removes, with anonymous volumes. Gone is success.
    RemoveContainer {
        /// Name: of a component, or of another of rke-operator's containers.
        name: String,
    },
    /// Waits, bounded, until a component is healthy. No effect.
    AwaitHealthy {
        /// What.
        component: Component,
    },
    /// Waits until a component has run this long. No effect.
    AwaitAge {
        /// What.
        component: Component,
        /// How long.
        seconds: u16,
    },
    /// As root on the node, in one one-off container: ends pods and sandboxes of `k8s.io`,
    /// unmounts below kubelet's root, removes links, network namespaces, iptables chains, our
    /// files for the next boot, folders and sysctls that were not there before.
    /// `/etc/kubernetes`, `/etc/cni/net.d`, `/var/lib/etcd` and `/var/lib/kubelet` can only have
    /// been there empty: those are emptied and stay. Repeating is harmless.
    CleanHost {
        /// What was there before us and stays.
        before: Baseline,
    },
    /// Takes our containerd file and drop-in away and restarts containerd, in a transaction
    /// like [`HostAction::ConfigureContainerd`]. Repeating is harmless.
    RestoreContainerd,
    /// Removes images that we pulled (never those that were there before). Gone is success.
    RemoveImages {
        /// References.
        images: BTreeSet<String>,
    },
    /// Reboots the machine, unless another boot than this one runs already, and waits, bounded, until another one does.
    /// Visible in the node's boot; repeating is harmless.
    Reboot {
        /// The boot that ends: [`crate::facts::SystemFacts::boot`].
        from: String,
    },
    /// Removes the claim and its empty image: the last act on a node. Gone is success.
    ReleaseClaim,
}

/// What is done in the cluster's API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterAction {
    /// Server-side apply of an add-on's objects, in order. Visible in the objects; repeating is harmless.
    ApplyAddon {
        /// Which.
        addon: String,
        /// Those that differ.
        objects: Vec<ObjectRef>,
    },
    /// Deletes rke-operator's objects that are no longer wanted. Gone is success.
    PruneObjects {
        /// Which.
        objects: Vec<ObjectRef>,
    },
    /// Renders a chart of the release in two one-off containers on the node, which see nothing of it, and
    /// applies what comes out; what its last rendering had and this one has not is deleted. Visible in
    /// the chart's record, which is unfinished until the end; repeating is harmless.
    ApplyChart {
        /// The add-on.
        chart: String,
        /// Where it is rendered.
        node: NodeName,
        /// Its file in the runtime image, without `.yaml`.
        file: String,
        /// The image that has it.
        runtime: String,
        /// Of all that it is rendered from.
        digest: Digest,
    },
    /// Waits, bounded, until the workloads of a chart are available; then a warning, never a failure.
    /// No effect.
    AwaitChart {
        /// The add-on.
        chart: String,
    },
    /// Deletes what a chart's record lists, and the record last, while it is the one of that uid. Gone is
    /// success.
    PruneChart {
        /// The add-on.
        chart: String,
        /// The record's uid.
        uid: String,
    },
    /// Sets rke-operator's labels, annotations and taints on a Node object, and removes those of them
    /// that are no longer wanted. Waits, bounded, until kubelet has created the object. Visible in
    /// the Node.
    SetNodeMeta {
        /// Whose.
        node: NodeName,
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
    /// Cordons a node, and records that rke-operator did it. A cordon that someone else set is left
    /// to them. Visible in the Node; repeating is harmless.
    Cordon {
        /// Which.
        node: NodeName,
    },
    /// Cordons a node and evicts its pods, bounded; those of `DaemonSet`s stay. Where a node that
    /// comes back cannot be emptied, it is uncordoned and the step fails. Visible in the Node and
    /// its pods; repeating is harmless.
    Drain {
        /// Which.
        node: NodeName,
        /// Which pods may go. `None`: it leaves, and all go.
        rules: Option<DrainRules>,
    },
    /// Removes rke-operator's cordon and a request to reboot the node; a cordon that someone else set stays. Visible in the
    /// Node; repeating is harmless.
    Uncordon {
        /// Which.
        node: NodeName,
    },
    /// Records on a Node that it is to be rebooted. Visible in the Node; repeating is harmless.
    BeginReboot {
        /// Which.
        node: NodeName,
        /// By which request.
        request: String,
        /// The boot of the machine that is to end.
        from: String,
    },
    /// Records on a Node that the request has rebooted it, and takes back rke-operator's cordon, in one write. Visible in
    /// the Node; repeating is harmless.
    FinishReboot {
        /// Which.
        node: NodeName,
        /// By which request.
        request: String,
    },
    /// Takes a node's member out of etcd. Gone is success.
    RemoveMember {
        /// Whose.
        node: NodeName,
        /// Its id.
        member: MemberId,
    },
    /// Says of a node that is lost that it is out of service, so that Kubernetes ends its pods and
    /// detaches its volumes without it, and waits, bounded, until no volume is attached to it; then
    /// a warning. Visible in the Node's taints; repeating is harmless.
    OutOfService {
        /// Whose.
        node: NodeName,
        /// Its uid.
        uid: String,
    },
    /// Deletes a Node object, while it is the one of that uid. Gone is success.
    DeleteNode {
        /// Whose.
        node: NodeName,
        /// Its uid.
        uid: String,
    },
    /// Evicts a pod of one of rke-operator's Deployments, if it still has that uid and as soon as its
    /// `PodDisruptionBudget` allows it: its replacement is scheduled to another node. Gone is success.
    Evict {
        /// Whose pod it is.
        workload: ObjectRef,
        /// Its name.
        pod: String,
        /// Its uid.
        uid: String,
    },
    /// Removes the mark that says what all stored objects were written with. Visible in
    /// `ClusterFacts::written_with`; repeating is harmless.
    ForgetWritten,
    /// Has the API write all objects of some kinds again, so that they are encrypted as the API servers now write, and
    /// then marks that in the cluster. Visible in `ClusterFacts::written_with`, which is set last; repeating is
    /// harmless, and what is written as it must be is not written again.
    RewriteStored {
        /// As an `EncryptionConfiguration` names them.
        resources: BTreeSet<String>,
        /// The name of what they are written with.
        with: String,
    },
    /// Has Kubernetes sign the tokens in Secrets again that another key than this one has signed, and waits, bounded, until
    /// it has. Visible in `ClusterFacts::tokens`; repeating is harmless, and a token of this key is not signed again.
    RenewTokens {
        /// The Secrets.
        secrets: BTreeSet<ObjectRef>,
        /// The id of the key.
        key: String,
    },
    /// Waits, bounded, until every `ConfigMap` `kube-root-ca.crt` and every Secret with a token has these authorities of the
    /// cluster. Kubernetes' controller manager writes them. No effect.
    AwaitAuthorities {
        /// As in `PublishedAuthorities::roots`.
        bundle: String,
    },
    /// Has Kubernetes replace the pods of an add-on's workloads as its rollout says, once for an authority of the cluster: a
    /// program may read it at its start only. Visible in [`crate::model::label::AUTHORITY`]; repeating is harmless.
    RestartPods {
        /// Which.
        addon: String,
        /// Its `DaemonSet`s and `Deployment`s.
        workloads: BTreeSet<ObjectRef>,
        /// The SHA-256 of the authority's certificate.
        authority: String,
    },
    /// Deletes the `ConfigMap` from which extension API servers learn whom to trust, while it has that version: API servers
    /// write it again, without the authorities that they have dropped. Visible in `PublishedAuthorities::extension`;
    /// repeating is harmless.
    ForgetAuthorities {
        /// Its resource version.
        version: String,
    },
    /// Deletes from a restored API what must not come back, before any kubelet and any controller reads it: pods that no
    /// node runs and whose controller makes others, Nodes that rke-operator has set up and that are no longer in the
    /// cluster, and leases of that time. Through an API server that only this program reaches. Repeating is harmless.
    CleanRestored {
        /// Where that API server runs meanwhile.
        node: NodeName,
        /// Its definition.
        spec: Box<ContainerSpec>,
    },
    /// Waits, bounded, until a node runs no pod that the API does not have. No effect.
    AwaitKnownPods {
        /// Which.
        node: NodeName,
    },
    /// Writes the copy of the state into `kube-system`. Visible in `ClusterFacts::state_copy`.
    SaveStateCopy,
}

/// What is done where we run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LocalAction {
    /// Writes `Desired::saved` to the store: create-only, or compare-and-swap on the revision
    /// that the survey loaded. Visible in the next load.
    SaveState,
    /// Writes the administrator's kubeconfig (0600, or a Secret). Visible in `Actual::kubeconfig`.
    WriteKubeconfig,
    /// Removes the kubeconfig. Gone is success.
    RemoveKubeconfig,
    /// Deletes the state: the last act of a removal. Gone is success.
    DeleteState,
}

/// How the first member of a restored etcd is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdRestore {
    /// Of the restore.
    pub epoch: u32,
    /// The image that has etcdutl.
    pub image: String,
    /// A file below [`crate::model::path::SNAPSHOTS`] on the node; `None`: the member's own data.
    pub snapshot: Option<SnapshotRef>,
    /// The member's name.
    pub member: String,
    /// Where its peers will find it.
    pub peer_url: String,
    /// etcd's id of the cluster follows from it: members of another life never join.
    pub token: String,
    /// By how much its revision goes forward, so that no client takes an old object for a new one.
    pub bump: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl HostAction {
    /// See [`Action::is_optional`].
    pub const fn is_optional(&self) -> bool {
        matches!(
            self,
            Self::RunContainer {
                component: Component::Snapshots,
                ..
            } | Self::ReplaceContainer {
                component: Component::Snapshots,
                ..
            } | Self::StartContainer {
                component: Component::Snapshots
            } | Self::SaveSnapshot {
                required: false,
                ..
            }
        )
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Claim { .. } => "claim",
            Self::PullImage { .. } => "pull-image",
            Self::LoadImage { .. } => "load-image",
            Self::TryFlags { .. } => "try-flags",
            Self::WriteFiles { .. } => "write-files",
            Self::RemoveFiles { .. } => "remove-files",
            Self::PrepareKernel { .. } => "prepare-kernel",
            Self::ConfigureContainerd { .. } => "configure-containerd",
            Self::ImportPause { .. } => "import-pause",
            Self::ImportImage { .. } => "import-image",
            Self::RunContainer { .. } => "run-container",
            Self::JoinEtcd { .. } => "join-etcd",
            Self::SetEtcdAside { .. } => "set-etcd-aside",
            Self::RestoreEtcd { .. } => "restore-etcd",
            Self::PutEtcdBack { .. } => "put-etcd-back",
            Self::SaveSnapshot { .. } => "save-snapshot",
            Self::StartContainer { .. } => "start-container",
            Self::ReplaceContainer { .. } => "replace-container",
            Self::PutBack { .. } => "put-back",
            Self::RemoveKept { .. } => "remove-kept",
            Self::ReloadProxy { .. } => "reload-proxy",
            Self::RemoveContainer { .. } => "remove-container",
            Self::AwaitHealthy { .. } => "await-healthy",
            Self::AwaitAge { .. } => "await-age",
            Self::CleanHost { .. } => "clean-host",
            Self::RestoreContainerd => "restore-containerd",
            Self::RemoveImages { .. } => "remove-images",
            Self::Reboot { .. } => "reboot",
            Self::ReleaseClaim => "release-claim",
        }
    }
}

impl ClusterAction {
    const fn kind(&self) -> &'static str {
        match self {
            Self::ApplyAddon { .. } => "apply-addon",
            Self::PruneObjects { .. } => "prune-objects",
            Self::ApplyChart { .. } => "apply-chart",
            Self::AwaitChart { .. } => "await-chart",
            Self::PruneChart { .. } => "prune-chart",
            Self::SetNodeMeta { .. } => "set-node-meta",
            Self::AwaitNodeReady { .. } => "await-node-ready",
            Self::AwaitAddon { .. } => "await-addon",
            Self::Cordon { .. } => "cordon",
            Self::Drain { .. } => "drain",
            Self::Uncordon { .. } => "uncordon",
            Self::BeginReboot { .. } => "begin-reboot",
            Self::FinishReboot { .. } => "finish-reboot",
            Self::RemoveMember { .. } => "remove-member",
            Self::OutOfService { .. } => "out-of-service",
            Self::DeleteNode { .. } => "delete-node",
            Self::Evict { .. } => "evict",
            Self::ForgetWritten => "forget-written",
            Self::RewriteStored { .. } => "rewrite-stored",
            Self::RenewTokens { .. } => "renew-tokens",
            Self::AwaitAuthorities { .. } => "await-authorities",
            Self::RestartPods { .. } => "restart-pods",
            Self::ForgetAuthorities { .. } => "forget-authorities",
            Self::CleanRestored { .. } => "clean-restored",
            Self::AwaitKnownPods { .. } => "await-known-pods",
            Self::SaveStateCopy => "save-state-copy",
        }
    }
}

impl Action {
    /// The node that it is on, or whose Node object it is about.
    pub const fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Host(node, _)
            | Self::Cluster(
                ClusterAction::SetNodeMeta { node, .. }
                | ClusterAction::AwaitNodeReady { node }
                | ClusterAction::Cordon { node }
                | ClusterAction::Drain { node, .. }
                | ClusterAction::Uncordon { node }
                | ClusterAction::BeginReboot { node, .. }
                | ClusterAction::FinishReboot { node, .. }
                | ClusterAction::RemoveMember { node, .. }
                | ClusterAction::OutOfService { node, .. }
                | ClusterAction::DeleteNode { node, .. }
                | ClusterAction::CleanRestored { node, .. }
                | ClusterAction::AwaitKnownPods { node }
                | ClusterAction::ApplyChart { node, .. },
            ) => Some(node),
            Self::Cluster(
                ClusterAction::ApplyAddon { .. }
                | ClusterAction::PruneObjects { .. }
                | ClusterAction::AwaitAddon { .. }
                | ClusterAction::AwaitChart { .. }
                | ClusterAction::PruneChart { .. }
                | ClusterAction::Evict { .. }
                | ClusterAction::ForgetWritten
                | ClusterAction::RewriteStored { .. }
                | ClusterAction::RenewTokens { .. }
                | ClusterAction::RestartPods { .. }
                | ClusterAction::AwaitAuthorities { .. }
                | ClusterAction::ForgetAuthorities { .. }
                | ClusterAction::SaveStateCopy,
            )
            | Self::Local(_) => None,
        }
    }

    /// What kind of step it is, in one word: the label of metrics. One that is written there is not renamed.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Host(_, action) => action.kind(),
            Self::Cluster(action) => action.kind(),
            Self::Local(action) => match action {
                LocalAction::SaveState => "save-state",
                LocalAction::WriteKubeconfig => "write-kubeconfig",
                LocalAction::RemoveKubeconfig => "remove-kubeconfig",
                LocalAction::DeleteState => "delete-state",
            },
        }
    }

    /// What is done on a node, if it is one of those.
    pub const fn on_host(&self) -> Option<(&NodeName, &HostAction)> {
        match self {
            Self::Host(node, action) => Some((node, action)),
            Self::Cluster(_) | Self::Local(_) => None,
        }
    }

    /// True for the actions that nothing else needs: where one fails, the run goes on with a warning, and ends as
    /// degraded.
    pub const fn is_optional(&self) -> bool {
        match self {
            Self::Host(_, action) => action.is_optional(),
            Self::Cluster(_) | Self::Local(_) => false,
        }
    }

    /// True for the actions that only wait and have no effect.
    pub const fn is_wait(&self) -> bool {
        match self {
            Self::Host(_, action) => match action {
                HostAction::AwaitHealthy { .. } | HostAction::AwaitAge { .. } => true,
                HostAction::Claim { .. }
                | HostAction::PullImage { .. }
                | HostAction::LoadImage { .. }
                | HostAction::TryFlags { .. }
                | HostAction::WriteFiles { .. }
                | HostAction::RemoveFiles { .. }
                | HostAction::PrepareKernel { .. }
                | HostAction::ConfigureContainerd { .. }
                | HostAction::ImportPause { .. }
                | HostAction::ImportImage { .. }
                | HostAction::RunContainer { .. }
                | HostAction::JoinEtcd { .. }
                | HostAction::SetEtcdAside { .. }
                | HostAction::RestoreEtcd { .. }
                | HostAction::PutEtcdBack { .. }
                | HostAction::SaveSnapshot { .. }
                | HostAction::StartContainer { .. }
                | HostAction::ReplaceContainer { .. }
                | HostAction::PutBack { .. }
                | HostAction::RemoveKept { .. }
                | HostAction::ReloadProxy { .. }
                | HostAction::RemoveContainer { .. }
                | HostAction::CleanHost { .. }
                | HostAction::RestoreContainerd
                | HostAction::RemoveImages { .. }
                | HostAction::Reboot { .. }
                | HostAction::ReleaseClaim => false,
            },
            Self::Cluster(action) => match action {
                ClusterAction::AwaitNodeReady { .. }
                | ClusterAction::AwaitKnownPods { .. }
                | ClusterAction::AwaitAuthorities { .. }
                | ClusterAction::AwaitAddon { .. }
                | ClusterAction::AwaitChart { .. } => true,
                ClusterAction::ApplyAddon { .. }
                | ClusterAction::ApplyChart { .. }
                | ClusterAction::PruneChart { .. }
                | ClusterAction::PruneObjects { .. }
                | ClusterAction::SetNodeMeta { .. }
                | ClusterAction::Cordon { .. }
                | ClusterAction::Drain { .. }
                | ClusterAction::Uncordon { .. }
                | ClusterAction::BeginReboot { .. }
                | ClusterAction::FinishReboot { .. }
                | ClusterAction::RemoveMember { .. }
                | ClusterAction::OutOfService { .. }
                | ClusterAction::DeleteNode { .. }
                | ClusterAction::Evict { .. }
                | ClusterAction::ForgetWritten
                | ClusterAction::RewriteStored { .. }
                | ClusterAction::RenewTokens { .. }
                | ClusterAction::RestartPods { .. }
                | ClusterAction::ForgetAuthorities { .. }
                | ClusterAction::CleanRestored { .. }
                | ClusterAction::SaveStateCopy => false,
            },
            Self::Local(_) => false,
        }
    }

    /// True for the actions that leave everything as it is: those that wait, and those that try.
    pub const fn is_look(&self) -> bool {
        matches!(self, Self::Host(_, HostAction::TryFlags { .. })) || self.is_wait()
    }

    /// True for the actions that destroy or replace something on a host or in the cluster: each
    /// needs a guard.
    pub const fn is_destructive(&self) -> bool {
        match self {
            Self::Host(_, action) => match action {
                HostAction::WriteFiles { .. }
                | HostAction::RemoveFiles { .. }
                | HostAction::ConfigureContainerd { .. }
                | HostAction::JoinEtcd { .. }
                | HostAction::SetEtcdAside { .. }
                | HostAction::RestoreEtcd { .. }
                | HostAction::PutEtcdBack { .. }
                | HostAction::ReplaceContainer { .. }
                | HostAction::PutBack { .. }
                | HostAction::RemoveKept { .. }
                | HostAction::ReloadProxy { .. }
                | HostAction::RemoveContainer { .. }
                | HostAction::CleanHost { .. }
                | HostAction::RestoreContainerd
                | HostAction::RemoveImages { .. }
                | HostAction::Reboot { .. }
                | HostAction::ReleaseClaim => true,
                HostAction::Claim { .. }
                | HostAction::PullImage { .. }
                | HostAction::LoadImage { .. }
                | HostAction::TryFlags { .. }
                | HostAction::PrepareKernel { .. }
                | HostAction::ImportPause { .. }
                | HostAction::ImportImage { .. }
                | HostAction::RunContainer { .. }
                | HostAction::SaveSnapshot { .. }
                | HostAction::StartContainer { .. }
                | HostAction::AwaitHealthy { .. }
                | HostAction::AwaitAge { .. } => false,
            },
            // An apply sets fields of objects whose names are an add-on's, and deletes nothing.
            Self::Cluster(action) => match action {
                ClusterAction::PruneObjects { .. }
                | ClusterAction::ApplyChart { .. }
                | ClusterAction::PruneChart { .. }
                | ClusterAction::Drain { .. }
                | ClusterAction::RemoveMember { .. }
                | ClusterAction::OutOfService { .. }
                | ClusterAction::DeleteNode { .. }
                | ClusterAction::CleanRestored { .. }
                | ClusterAction::RestartPods { .. }
                | ClusterAction::Evict { .. } => true,
                ClusterAction::ApplyAddon { .. }
                | ClusterAction::SetNodeMeta { .. }
                | ClusterAction::Cordon { .. }
                | ClusterAction::Uncordon { .. }
                | ClusterAction::BeginReboot { .. }
                | ClusterAction::FinishReboot { .. }
                | ClusterAction::AwaitNodeReady { .. }
                | ClusterAction::AwaitKnownPods { .. }
                | ClusterAction::AwaitAddon { .. }
                | ClusterAction::AwaitChart { .. }
                | ClusterAction::ForgetWritten
                | ClusterAction::RewriteStored { .. }
                // Each Secret is read just before its token is signed again.
                | ClusterAction::RenewTokens { .. }
                | ClusterAction::AwaitAuthorities { .. }
                // One that was written since is left alone.
                | ClusterAction::ForgetAuthorities { .. }
                | ClusterAction::SaveStateCopy => false,
            },
            Self::Local(_) => false,
        }
    }
}

/// A file of a [`HostAction::WriteFiles`]: its content is in `Desired`, by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// Keyed digest of the content.
    pub digest: Digest,
    /// Permission bits.
    pub mode: u32,
}
