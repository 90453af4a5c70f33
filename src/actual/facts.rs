//! The facts that plans are made of. Unreachable is a fact, not an error. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize};

use crate::{
    config::{NodeName, Role, Taint},
    desired::{ContainerSpec, ObjectRef},
    error::{Blame, Explain, with_causes},
    secret::Secret,
    state::{ClusterId, Saved},
};

/// The world as one survey saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actual {
    /// Every host of the intent and of the saved inventory.
    pub hosts: BTreeMap<NodeName, HostView>,
    /// The cluster's API, as seen through a control plane.
    pub api: ApiView,
    /// The administrator's kubeconfig that the shell keeps, if there is one.
    pub kubeconfig: Option<Secret<String>>,
    /// What the store holds.
    pub saved: Option<Box<Saved>>,
}

/// The inventory's control planes that answered: through one of them the cluster's API is reached.
pub fn control_planes<'a>(
    saved: &'a Saved,
    hosts: &'a BTreeMap<NodeName, HostView>,
) -> impl Iterator<Item = (&'a NodeName, &'a HostFacts)> {
    let planes = saved
        .inventory
        .iter()
        .filter(|(_, entry)| entry.roles.contains(&Role::ControlPlane));
    planes.filter_map(|(name, _)| match hosts.get(name) {
        Some(HostView::Up(facts)) => Some((name, &**facts)),
        Some(HostView::Down(_)) | None => None,
    })
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostView {
    /// It answered.
    Up(Box<HostFacts>),
    /// It did not.
    Down(Down),
}

/// Why a host did not answer, as data: the error that is shown for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// Whose turn it is.
    pub blame: Blame,
    /// The message, with its causes.
    pub why: String,
    /// The cures.
    pub hints: Vec<String>,
}

impl Down {
    /// An error as a fact.
    pub fn of(error: &(dyn Explain + Send + Sync + 'static)) -> Self {
        Self {
            blame: error.blame(),
            why: with_causes(error),
            hints: error.hints().into_iter().map(Cow::into_owned).collect(),
        }
    }
}

/// What one host said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Docker's view of itself.
    pub docker: DockerFacts,
    /// Every container of the node's Docker, by name.
    pub containers: BTreeMap<String, ContainerFact>,
    /// Image references (`name:tag`) that the node's Docker has.
    pub images: BTreeSet<String>,
    /// Files below the folders that are ours (`/etc/kubernetes`, our files in `/etc/containerd`,
    /// `/etc/systemd/system/containerd.service.d`, `/etc/modules-load.d`, `/etc/sysctl.d`),
    /// read through the claim container; `None` = unknown until `up` (no claim yet).
    pub files: Option<BTreeMap<String, FileFact>>,
    /// The system below Docker.
    pub system: SystemFacts,
}

impl HostFacts {
    /// Who holds this node, if anybody does.
    pub fn claim(&self) -> Option<&ContainerFact> {
        self.containers.get(crate::desired::CLAIM)
    }
}

/// `docker version` and `docker info`, as far as we act on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DockerFacts {
    /// `26.1.5`.
    pub version: String,
    /// `1.45`.
    pub api_version: String,
    /// `/var/lib/docker`.
    pub root_dir: String,
    /// `cgroupfs` or `systemd`.
    pub cgroup_driver: String,
    /// 1 or 2.
    pub cgroup_version: u8,
    /// `name=seccomp,…`, `name=selinux`, `name=userns`, `name=rootless`.
    pub security_options: Vec<String>,
    /// The daemon's default log driver and whether it limits size.
    pub log_driver: String,
    /// True when `log-opts` already bound the size of logs.
    pub logs_bounded: bool,
    /// `runc`, or e.g. `nvidia`.
    pub default_runtime: String,
    /// The daemon's HTTP proxy, if any: http, https, and what goes without.
    pub proxy: Option<(String, String, String)>,
    /// `linux`/`x86_64` …
    pub architecture: String,
}

/// A container of the node's Docker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFact {
    /// Docker's id.
    pub id: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// State.
    pub state: ContainerState,
    /// What inspect says it runs, in the shape of a spec (its `files` are those of the label);
    /// only for containers that bear a cluster id. World against label is drift.
    pub runs: Option<ContainerSpec>,
    /// Image reference it was created from.
    pub image: String,
}

impl ContainerFact {
    /// What a claim remembers of the time before us; `None` when it cannot be read.
    pub fn before(&self) -> Option<Before> {
        serde_json::from_str(self.labels.get(crate::desired::label::BEFORE)?).ok()
    }
}

/// Docker's container states, folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Never started.
    Created,
    /// Running.
    Running,
    /// Docker keeps restarting it; with the last exit code.
    Restarting(i64),
    /// Not running; with the exit code.
    Exited(i64),
    /// Paused, dead or being removed.
    Other,
}

/// A file (or directory) on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFact {
    /// The bytes; empty for a directory.
    pub content: Secret<Vec<u8>>,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// True for a directory.
    pub is_dir: bool,
}

/// The system below Docker, read by one unprivileged SSH command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemFacts {
    /// Host name.
    pub hostname: String,
    /// `uname -r`.
    pub kernel: String,
    /// `PRETTY_NAME`.
    pub os: String,
    /// systemd is PID 1.
    pub systemd: bool,
    /// containerd, as far as it can be seen.
    pub containerd: ContainerdFacts,
    /// The `resolv.conf` that kubelet must use (systemd-resolved's stub is looked through).
    pub resolv_conf: String,
    /// TCP ports that something listens on (any address).
    pub listening: BTreeSet<u16>,
    /// Whose they are, where the node tells: the last part of the listener's cgroup, which is a
    /// systemd unit (`k3s.service`) or a container (`docker-<id>.scope`, `<id>`).
    pub listeners: BTreeMap<u16, String>,
    /// Those of [`Before::PATHS`] that exist now.
    pub paths: BTreeSet<String>,
    /// Those of `paths` that are directories and were seen to be empty but for `lost+found`: a
    /// mount point that waits for its data is nobody's Kubernetes.
    pub empty: BTreeSet<String>,
    /// Modules that are loaded or built in, among those we want.
    pub modules: BTreeSet<String>,
    /// Current values of the sysctls that Kubernetes or we set.
    pub sysctls: BTreeMap<String, String>,
    /// Free bytes: path → bytes, for `/`, Docker's root, `/var/lib/containerd`, `/var/lib/etcd`'s parent.
    pub free: BTreeMap<String, u64>,
    /// firewalld is active.
    pub firewalld: bool,
    /// `/etc/machine-id`: tells two addresses of one machine apart from two machines.
    pub machine_id: String,
}

/// containerd on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerdFacts {
    /// `/run/containerd/containerd.sock` is there.
    pub socket: bool,
    /// There is a systemd unit `containerd.service`.
    pub unit: bool,
    /// `1.7.24`, empty if unknown.
    pub version: String,
    /// `containerd config dump` of the *package's* configuration (ours left out), TOML; empty
    /// if it could not be read.
    pub dump: String,
    /// docker.service stops when containerd does (BindsTo/Requires).
    pub docker_bound: bool,
    /// When the unit was last started, monotonic µs: a restart changes it.
    pub started: u64,
}

/// What was on a node before us, remembered on the claim: `remove` deletes only what is not here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Those of [`Self::PATHS`] that existed.
    pub paths: BTreeSet<String>,
    /// Values of the sysctls that Kubernetes changes.
    pub sysctls: BTreeMap<String, String>,
    /// Modules that were loaded.
    pub modules: BTreeSet<String>,
    /// Image references that Docker had.
    pub images: BTreeSet<String>,
}

impl Before {
    /// The paths that Kubernetes, its plugins or we create (network links by their place in
    /// `/sys`). Entries of `/opt/cni/bin` and `/etc/cni/net.d` are recorded one by one as well.
    pub const PATHS: [&str; 25] = [
        "/etc/kubernetes",
        "/etc/kubernetes/ssl",
        "/etc/cni",
        "/etc/cni/net.d",
        "/etc/containerd",
        "/etc/containerd/certs.d",
        "/etc/modules-load.d",
        "/etc/sysctl.d",
        "/etc/systemd/system/containerd.service.d",
        "/opt/cni",
        "/opt/cni/bin",
        "/opt/rke",
        "/run/flannel",
        "/run/netns",
        "/run/xtables.lock",
        "/sys/class/net/cni0",
        "/sys/class/net/flannel.1",
        "/var/lib/calico",
        "/var/lib/cni",
        "/var/lib/etcd",
        "/var/lib/kubelet",
        "/var/log/containers",
        "/var/log/kube-audit",
        "/var/log/pods",
        "/usr/libexec/kubernetes",
    ];

    /// The sysctls that kubelet, kube-proxy, flannel or we change.
    pub const SYSCTLS: [&str; 14] = [
        "kernel.keys.root_maxbytes",
        "kernel.keys.root_maxkeys",
        "kernel.panic",
        "kernel.panic_on_oops",
        "net.bridge.bridge-nf-call-ip6tables",
        "net.bridge.bridge-nf-call-iptables",
        "net.ipv4.conf.all.route_localnet",
        "net.ipv4.ip_forward",
        "net.netfilter.nf_conntrack_max",
        "net.netfilter.nf_conntrack_tcp_be_liberal",
        "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
        "net.netfilter.nf_conntrack_tcp_timeout_established",
        "vm.overcommit_memory",
        "vm.panic_on_oom",
    ];

    /// The modules whose presence is looked at.
    pub const MODULES: [&str; 4] = ["br_netfilter", "nf_conntrack", "overlay", "vxlan"];
}

/// The cluster's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiView {
    /// No keys yet, or no control plane to ask.
    Unknown,
    /// It does not answer.
    Down(String),
    /// It answers `/readyz`.
    Up(Box<ApiFacts>),
}

/// What the API said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiFacts {
    /// Server version, `v1.34.4`.
    pub version: String,
    /// Nodes by name.
    pub nodes: BTreeMap<NodeName, NodeFact>,
    /// Objects that bear [`crate::desired::label::ADDON`], as they are.
    pub objects: BTreeMap<ObjectRef, serde_json::Value>,
    /// The copy of the state in `kube-system` is there and equals the store's.
    pub state_copy: bool,
}

/// A Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFact {
    /// Condition Ready is True.
    pub ready: bool,
    /// Why not.
    pub message: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// All taints.
    pub taints: Vec<Taint>,
    /// `v1.34.4`.
    pub kubelet_version: String,
}

impl Actual {
    /// The host's facts, when it answered.
    pub fn up(&self, name: &NodeName) -> Option<&HostFacts> {
        match self.hosts.get(name) {
            Some(HostView::Up(facts)) => Some(facts),
            Some(HostView::Down(_)) | None => None,
        }
    }

    /// The cluster id that a host's claim bears.
    pub fn claimed_by(&self, name: &NodeName) -> Option<ClusterId> {
        let claim = self.up(name)?.claim()?;
        claim
            .labels
            .get(crate::desired::label::CLUSTER_ID)
            .cloned()
            .map(ClusterId)
    }
}
