//! What every host and the cluster's API must have; nothing is left to decide. Pure.
//!
//! One file a component; [`Desired::from_intent`] puts them together. Where do I add a kubelet flag?
//! `kubelet.rs`. Certificates and the rules of when a key may be made: [`pki`].
//!
//! ```
//! use rke_operator::{
//!     facts::Actual,
//!     config::{Intent, RkeConfig, SecretSources},
//!     desired::pki::{self, PkiContext, Seed},
//! };
//!
//! let config = RkeConfig::parse(
//!     "{nodes: [{address: 192.0.2.10, user: ubuntu, role: [controlplane, etcd, worker]}], \
//!       network: {plugin: flannel}, ingress: {provider: none}, monitoring: {provider: none}}",
//! )?;
//! # use russh::keys::{PrivateKey, ssh_key::{LineEnding, private::Ed25519Keypair}};
//! # let key = PrivateKey::from(Ed25519Keypair::from_seed(&[7; 32]));
//! # let key = key.to_openssh(LineEnding::LF)?.to_string();
//! let sources = SecretSources::new("ssh-key", key.into());
//! let intent = Intent::from_config(&config, &sources)?.intent;
//! // Nothing was looked at yet: who could know that there is no cluster to be overwritten?
//! let have = Actual::default();
//! let context = PkiContext {
//!     now: "2026-11-21T12:00:00Z".parse()?,
//!     seed: Seed::new([7; 32]),
//!     recover: None,
//!     accept_etcd: None,
//!     rotate: None,
//!     rotate_key: false,
//!     service_account_key: None,
//!     authorities: None,
//!     restore: None,
//!     held_elsewhere: &[].into(),
//!     lose: &[].into(),
//!     clean: &[].into(),
//!     given: None,
//! };
//! let refusal = pki::reconcile(&intent, &have, &context).unwrap_err();
//! assert_eq!(
//!     refusal.to_string(),
//!     "there is no saved state, and node `192.0.2.10` was not looked at",
//! );
//! // With keys, `Desired::from_intent(&intent, &keys, &have)` is everything that must be.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod addons;
mod admission;
mod apiserver;
mod chart;
pub mod containerd;
mod containers;
mod controller_manager;
mod encryption;
mod etcd;
#[cfg(test)]
mod external_etcd_tests;
#[cfg(test)]
pub(crate) mod fixture;
mod from_intent;
mod host_context;
mod images;
mod kube_proxy;
mod kubelet;
mod network;
mod nginx_proxy;
mod node;
pub mod pki;
mod registries;
mod rotated;
mod scheduler;
mod service;
pub mod snapshot_agent;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use self::{
    addons::wanted_objects,
    chart::{Chart, WantedChart},
    containerd::containerd_config,
    encryption::{KeyRotationError, has_own_key},
    from_intent::{DesiredError, check, etcd_tools},
    images::NeededImages,
    network::peers,
    rotated::Rotated,
};
use crate::{
    model::{
        AgentProgram, BundledImages, ClusterId, Component, ContainerSpec, ContainerdWants, Digest,
        HostNetwork, KernelWants, NodeMeta, NodeName, ObjectRef, Owner, Registries, Secret,
        UpgradeStrategy,
    },
    state::ClusterState,
};

/// A file on a node. Directories it needs are in [`DesiredHost::dirs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredFile {
    /// The bytes.
    pub content: Secret<Vec<u8>>,
    /// Permission bits.
    pub mode: u32,
    /// Whose it is.
    pub owner: Owner,
    /// Keyed digest of `content`.
    pub digest: Digest,
}

/// Everything one host must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredHost {
    /// Directories, path → mode, parents before children by order of the paths.
    pub dirs: BTreeMap<String, u32>,
    /// Files by absolute path.
    pub files: BTreeMap<String, DesiredFile>,
    /// The containers of its components, in the order in which they start.
    pub containers: BTreeMap<Component, ContainerSpec>,
    /// Components that are wanted and that this process cannot make: what is there of them stays as it is.
    pub kept: BTreeSet<Component>,
    /// Images that the node's Docker must have before anything starts.
    pub images: BTreeSet<String>,
    /// containerd's settings.
    pub containerd: ContainerdWants,
    /// Modules and sysctls.
    pub kernel: KernelWants,
    /// Its kubelet does not start where there is swap.
    pub forbids_swap: bool,
    /// Its address, ranges and ports.
    pub network: HostNetwork,
    /// The Node object.
    pub node: NodeMeta,
}

/// An add-on: objects that are applied together (server-side apply, field manager
/// `rke-operator`), pruned by [`crate::model::label::ADDON`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addon {
    /// `flannel`, `coredns`.
    pub name: String,
    /// In the order in which they are applied, with our labels in place.
    pub objects: BTreeMap<ObjectRef, serde_json::Value>,
    /// The `DaemonSet`s and `Deployment`s that must become available.
    pub workloads: Vec<ObjectRef>,
}

/// What is to be done to what is stored in etcd, where its encryption changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// The mark that says what everything was written with is removed, before anything is written in another form.
    Forget,
    /// All of it is rewritten; then the mark says so.
    All {
        /// As an `EncryptionConfiguration` names them.
        resources: BTreeSet<String>,
        /// The name of what it is written with: of a key, never the key.
        with: String,
    },
}

/// Everything: hosts, API objects, and what must outlive the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Whose hosts they are.
    pub cluster_id: ClusterId,
    /// By node name.
    pub hosts: BTreeMap<NodeName, DesiredHost>,
    /// Network first, then the others.
    pub addons: Vec<Addon>,
    /// Those that are charts of the release, the network first.
    pub charts: Vec<WantedChart>,
    /// Every add-on name this version knows: objects labelled with one of these and not in
    /// `addons` are pruned.
    pub known_addons: BTreeSet<String>,
    /// Every chart this version knows: what the cluster has of one that is not in `charts` is pruned.
    pub known_charts: BTreeSet<String>,
    /// How what lives is rolled.
    pub upgrade: UpgradeStrategy,
    /// What the store must hold.
    pub saved: ClusterState,
    /// When certificates end, and which are renewed.
    pub certificates: pki::Certificates,
    /// What is to be done to what is stored.
    pub rewrite: Option<Rewrite>,
    /// Everything that is stored is written as the config says, and no API server reads anything else.
    pub encryption_settled: bool,
    /// Nodes on which components are replaced once more later in the run, because a key or authorities are rotated or
    /// encryption changes; a note says so.
    pub rolls: BTreeSet<NodeName>,
    /// What is signed again before a key of service accounts is dropped.
    pub renewed_tokens: Option<pki::RenewedTokens>,
    /// What else is to be done about authorities that are rotated.
    pub handover: pki::Handover,
    /// Sentences about all this for the plan.
    pub notes: Vec<String>,
    /// The administrator's kubeconfig.
    pub kubeconfig: Secret<String>,
    /// How Docker logs in where it pulls system images.
    pub registries: Registries,
    /// The image that has etcdutl, which reads snapshots.
    pub etcd_tools: String,
    /// The images that nodes are given, in place of those that they would pull.
    pub bundle: Option<BundledImages>,
    /// The program that takes snapshots on nodes, where this process has one.
    pub agent: Option<AgentProgram>,
    /// Nodes that a person lets go by name.
    pub lose: BTreeSet<NodeName>,
    /// Nodes that a person has cleaned by name when they leave, although another Kubernetes is on them.
    pub clean: BTreeSet<NodeName>,
}

impl Desired {
    /// The hosts that must run a component.
    pub fn with(&self, component: Component) -> impl Iterator<Item = &NodeName> {
        let hosts = self.hosts.iter();
        let hosts = hosts.filter(move |(_, host)| host.containers.contains_key(&component));
        hosts.map(|(name, _)| name)
    }
}
