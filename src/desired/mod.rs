//! What every host and the cluster's API must have; nothing is left to decide. Pure.
//!
//! One file a component; [`Desired::draw`] puts them together. Where do I add a kubelet flag?
//! `kubelet.rs`. Certificates and the rules of when a key may be made: [`pki`].
//!
//! ```
//! use rke_operator::{
//!     actual::{Actual, ApiView},
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
//! let have = Actual { hosts: [].into(), api: ApiView::Unknown, kubeconfig: None, saved: None };
//! let context = PkiContext {
//!     now: "2026-11-21T12:00:00Z".parse()?,
//!     seed: Seed::new([7; 32]),
//!     recover: false,
//!     held_elsewhere: &[].into(),
//! };
//! let refusal = pki::reconcile(&intent, &have, &context).unwrap_err();
//! assert_eq!(
//!     refusal.to_string(),
//!     "there is no saved state, and node `192.0.2.10` was not looked at",
//! );
//! // With keys, `Desired::draw(&intent, &keys, &have)` is everything that must be.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod addons;
mod apiserver;
pub mod containerd;
mod controller_manager;
mod draw;
mod etcd;
#[cfg(test)]
mod fixture;
pub mod images;
mod kube_proxy;
mod kubelet;
mod node;
pub mod pki;
mod scheduler;
mod service;
mod site;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::{containerd::containerd_config, draw::DrawError};
use crate::{
    config::{NodeName, Taint},
    secret::Secret,
    state::{ClusterId, Saved},
};

/// A keyed digest of a content: equal contents of one cluster have equal digests, and a
/// content cannot be guessed from one without the cluster's keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(pub String);

/// A file on a node, owned by root. Directories it needs are in [`DesiredHost::dirs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredFile {
    /// The bytes.
    pub content: Secret<Vec<u8>>,
    /// Permission bits.
    pub mode: u32,
    /// Keyed digest of `content`.
    pub digest: Digest,
}

/// One bind mount of a component's container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Bind {
    /// Path on the node.
    pub source: String,
    /// Path in the container.
    pub target: String,
    /// `ro`, `rshared`, … comma-separated; may be empty.
    pub options: String,
}

impl From<Bind> for String {
    fn from(bind: Bind) -> Self {
        if bind.options.is_empty() {
            format!("{}:{}", bind.source, bind.target)
        } else {
            format!("{}:{}:{}", bind.source, bind.target, bind.options)
        }
    }
}

impl TryFrom<String> for Bind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut parts = text.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(source), Some(target), options) if !source.is_empty() && !target.is_empty() => {
                Ok(Self {
                    source: source.to_owned(),
                    target: target.to_owned(),
                    options: options.unwrap_or_default().to_owned(),
                })
            }
            (_, _, _) => Err(format!("`{text}` is not `source:target[:options]`")),
        }
    }
}

/// The complete definition of a component's container. Always host network, restart policy
/// `always`, json-file logs. Stored as JSON in the label [`label::SPEC`]: world against label is
/// drift, label against desired is a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Image reference.
    pub image: String,
    /// The program and what comes before its flags.
    pub entrypoint: Vec<String>,
    /// The flags.
    pub command: Vec<String>,
    /// `NAME=value`, sorted.
    pub env: Vec<String>,
    /// Mounts, sorted by target.
    pub binds: Vec<Bind>,
    /// Full access to the node (kubelet, kube-proxy).
    pub privileged: bool,
    /// Shares the node's process ids.
    pub host_pid: bool,
    /// Shares the node's cgroup namespace.
    pub host_cgroupns: bool,
    /// Docker `security_opt`.
    pub security_opts: Vec<String>,
    /// Limits of json-file logs; `None` when the daemon sets its own.
    pub log_limit: Option<LogLimit>,
    /// The files it reads when it starts, by path on the node: a change of one is a change of
    /// the container.
    pub files: BTreeMap<String, Digest>,
}

/// Docker json-file rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimit {
    /// As Docker takes it, e.g. `20m`.
    pub max_size: String,
    /// How many files.
    pub max_file: u32,
}

/// What the node's containerd must be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerdWants {
    /// The pause image, put into the `k8s.io` namespace by us.
    pub sandbox_image: String,
    /// `/opt/cni/bin`.
    pub cni_bin_dir: String,
    /// `/etc/cni/net.d`.
    pub cni_conf_dir: String,
    /// `/etc/containerd/certs.d`.
    pub registry_config_path: String,
}

/// What the node's kernel must have, now and at every boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelWants {
    /// Modules to load.
    pub modules: BTreeSet<String>,
    /// Sysctls, dotted names.
    pub sysctls: BTreeMap<String, String>,
}

/// What the Node object must carry; what others put there is left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMeta {
    /// Labels of ours.
    pub labels: BTreeMap<String, String>,
    /// Annotations of ours.
    pub annotations: BTreeMap<String, String>,
    /// Taints of ours.
    pub taints: Vec<Taint>,
}

/// Everything one host must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredHost {
    /// Directories, path → mode, parents before children by order of the paths.
    pub dirs: BTreeMap<String, u32>,
    /// Files by absolute path.
    pub files: BTreeMap<String, DesiredFile>,
    /// Containers by name, in [`START_ORDER`].
    pub containers: BTreeMap<String, ContainerSpec>,
    /// Images that the node's Docker must have before anything starts.
    pub images: BTreeSet<String>,
    /// containerd's settings.
    pub containerd: ContainerdWants,
    /// Modules and sysctls.
    pub kernel: KernelWants,
    /// The Node object.
    pub node: NodeMeta,
}

/// Identifies an object of the cluster's API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// `apps/v1`.
    pub api_version: String,
    /// `DaemonSet`.
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} `{}`", self.kind, self.name)
        } else {
            write!(f, "{} `{}/{}`", self.kind, self.namespace, self.name)
        }
    }
}

/// An add-on: objects that are applied together (server-side apply, field manager
/// `rke-operator`), pruned by [`label::ADDON`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addon {
    /// `flannel`, `coredns`.
    pub name: String,
    /// In the order in which they are applied, with our labels in place.
    pub objects: BTreeMap<ObjectRef, serde_json::Value>,
    /// The `DaemonSet`s and `Deployment`s that must become available.
    pub workloads: Vec<ObjectRef>,
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
    /// Every add-on name this version knows: objects labelled with one of these and not in
    /// `addons` are pruned.
    pub known_addons: BTreeSet<String>,
    /// What the store must hold.
    pub saved: Saved,
    /// The administrator's kubeconfig.
    pub kubeconfig: Secret<String>,
}

/// The names of component containers in the order in which they start.
pub const START_ORDER: [&str; 6] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
];

/// Container names that RKE v1 uses and we do not: seen without our label, the node is RKE's.
pub const RKE_ONLY: [&str; 3] = ["service-sidekick", "nginx-proxy", "etcd-rolling-snapshots"];

/// The name of the container whose creation claims a node (never started; files are written
/// and read through it).
pub const CLAIM: &str = "rke-operator-claim";

/// The name of the one-off container that works as root on a node.
pub const JOB: &str = "rke-operator-job";

/// The systemd unit of the transaction that changes containerd's configuration on a node.
pub const SWITCH_UNIT: &str = "rke-operator-containerd.service";

/// The empty image of [`CLAIM`], imported by us.
pub const FILES_IMAGE: &str = "rke-operator/files:1";

/// Folders outside `/etc` that a claim makes, with their modes: their contents are root's alone.
pub const CLAIM_DIRS: [(&str, u32); 2] = [(path::ETCD, 0o700), (path::AUDIT_LOG, 0o700)];

/// Labels of Docker containers and of API objects.
pub mod label {
    /// The cluster's id: on every container of ours.
    pub const CLUSTER_ID: &str = "clusterprovisioner.rke.io/cluster-id";
    /// The cluster's name, for people.
    pub const CLUSTER_NAME: &str = "clusterprovisioner.rke.io/cluster-name";
    /// The applied [`super::ContainerSpec`] as JSON.
    pub const SPEC: &str = "clusterprovisioner.rke.io/spec";
    /// On the claim: what was there before us ([`crate::actual::Before`] as JSON).
    pub const BEFORE: &str = "clusterprovisioner.rke.io/before";
    /// On API objects: the add-on they belong to.
    pub const ADDON: &str = "clusterprovisioner.rke.io/addon";
}

/// Paths on a node.
pub mod path {
    /// Configuration and certificates.
    pub const KUBERNETES: &str = "/etc/kubernetes";
    /// Certificates, keys and kubeconfigs, as in RKE.
    pub const SSL: &str = "/etc/kubernetes/ssl";
    /// The copy of the state that control planes keep (0600).
    pub const STATE: &str = "/etc/kubernetes/rke-operator-state.json";
    /// etcd's data on the node.
    pub const ETCD: &str = "/var/lib/etcd";
    /// kube-apiserver's audit log.
    pub const AUDIT_LOG: &str = "/var/log/kube-audit";
    /// kubelet's root.
    pub const KUBELET: &str = "/var/lib/kubelet";
    /// Our containerd configuration, beside the package's own.
    pub const CONTAINERD_CONFIG: &str = "/etc/containerd/rke-operator.toml";
    /// Points containerd at [`CONTAINERD_CONFIG`].
    pub const CONTAINERD_DROP_IN: &str =
        "/etc/systemd/system/containerd.service.d/50-rke-operator.conf";
    /// Modules at boot.
    pub const MODULES_LOAD: &str = "/etc/modules-load.d/rke-operator.conf";
    /// Sysctls at boot.
    pub const SYSCTL: &str = "/etc/sysctl.d/99-rke-operator.conf";
}
