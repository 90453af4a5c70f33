//! The components of a node: their containers, ports and order. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::path;

/// A component of a node: one container, whose health can be awaited. In the order in which they start;
/// written as the name of its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Component {
    /// `http://127.0.0.1:2381/health`.
    #[serde(rename = "etcd")]
    Etcd,
    /// `/readyz` with the administrator's certificate.
    #[serde(rename = "kube-apiserver")]
    ApiServer,
    /// `https://127.0.0.1:10257/healthz`.
    #[serde(rename = "kube-controller-manager")]
    ControllerManager,
    /// `https://127.0.0.1:10259/healthz`.
    #[serde(rename = "kube-scheduler")]
    Scheduler,
    /// On nodes without a control plane, in the place of the API server: `/readyz` of one of them.
    #[serde(rename = "nginx-proxy")]
    NginxProxy,
    /// `http://127.0.0.1:10248/healthz`.
    #[serde(rename = "kubelet")]
    Kubelet,
    /// `http://127.0.0.1:10256/healthz`.
    #[serde(rename = "kube-proxy")]
    KubeProxy,
    /// Recurring snapshots of etcd, next to each member: `http://127.0.0.1:2382/healthz`.
    #[serde(rename = "etcd-rolling-snapshots")]
    Snapshots,
}

impl Component {
    /// Every component, in the order in which they start.
    pub const ALL: [Self; 8] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::Scheduler,
        Self::NginxProxy,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Snapshots,
    ];

    /// The name of its container.
    pub const fn container(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::NginxProxy => "nginx-proxy",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Snapshots => "etcd-rolling-snapshots",
        }
    }

    /// The name of the container that a change keeps, stopped, until the run has ended well. Another one than RKE's,
    /// `old-…`; alone it proves nothing: the container has the labels of before, too.
    pub const fn kept(self) -> &'static str {
        match self {
            Self::Etcd => "before-etcd",
            Self::ApiServer => "before-kube-apiserver",
            Self::ControllerManager => "before-kube-controller-manager",
            Self::Scheduler => "before-kube-scheduler",
            Self::NginxProxy => "before-nginx-proxy",
            Self::Kubelet => "before-kubelet",
            Self::KubeProxy => "before-kube-proxy",
            Self::Snapshots => "before-etcd-rolling-snapshots",
        }
    }

    /// The component whose former container has this name.
    pub fn of_kept(container: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|component| component.kept() == container)
    }

    /// The component whose container has this name.
    pub fn named(container: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|component| component.container() == container)
    }

    /// The TCP ports that it listens on.
    pub const fn ports(self) -> &'static [u16] {
        match self {
            Self::Etcd => &[2379, 2380, 2381],
            Self::ApiServer | Self::NginxProxy => &[6443],
            Self::ControllerManager => &[10257],
            Self::Scheduler => &[10259],
            Self::Kubelet => &[10248, 10250],
            Self::KubeProxy => &[10249, 10256],
            Self::Snapshots => &[2382],
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.container())
    }
}

/// Container names of RKE v1 alone: seen without our label, the node is RKE's.
pub const RKE_ONLY: [&str; 2] = ["service-sidekick", "etcd-rolling-snapshots"];

/// The name of the container whose creation claims a node (never started; files are written
/// and read through it).
pub const CLAIM: &str = "rke-operator-claim";

/// The name of the one-off container that works as root on a node.
pub const HELPER: &str = "rke-operator-job";

/// The name of the container by which `doctor` measures a disk that only root may write to.
pub const MEASUREMENT: &str = "rke-operator-doctor";

/// The ID that labels a [`HELPER`] that loads images onto nodes before there is a cluster.
pub const NO_CLUSTER: &str = "no-cluster";

/// The systemd unit of the transaction that changes containerd's configuration on a node.
pub const SWITCH_UNIT: &str = "rke-operator-containerd.service";

/// The name of the CNI network that canal and calico create.
pub const CALICO_NETWORK: &str = "k8s-pod-network";
/// The name of the CNI network that flannel creates: iptables chains and CNI results contain it.
pub const CNI_NETWORK: &str = "cbr0";

/// The empty image of [`CLAIM`], imported by us.
pub const FILES_IMAGE: &str = "rke-operator/files:1";

/// Folders outside `/etc` that a claim makes, with their modes: their contents are root's alone.
pub const CLAIM_DIRS: [(&str, u32); 2] = [(path::ETCD, 0o700), (path::AUDIT_LOG, 0o700)];
