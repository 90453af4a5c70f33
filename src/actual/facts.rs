//! The facts that plans are made of. Unreachable is a fact, not an error. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    actual::ChartFact,
    error::{ErrorClass, Explain, with_causes},
    etcd::{EtcdView, Quorum},
    model::{
        ClusterId, Component, ContainerSpec, ImageVersion, NodeName, ObjectRef, Owner, PeerPort,
        Role, Secret, Taint, path,
    },
    state::{ClusterState, Membership},
};

/// The world as one survey saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actual {
    /// Every host of the intent and of the saved inventory.
    pub hosts: BTreeMap<NodeName, HostView>,
    /// etcd, as its members tell.
    pub etcd: EtcdView,
    /// The API server of each control plane that was asked.
    pub apis: BTreeMap<NodeName, ApiHealth>,
    /// The release of each API server that told it.
    pub versions: BTreeMap<NodeName, ImageVersion>,
    /// What the cluster's API said, read once, through the first API server that serves; `None`:
    /// none does, or there was nothing to ask.
    pub cluster: Option<Box<ClusterFacts>>,
    /// Why no API server told what the cluster holds, though one serves.
    pub untold: Option<String>,
    /// The administrator's kubeconfig that the shell keeps, if there is one.
    pub kubeconfig: Option<Secret<String>>,
    /// What the store holds.
    pub saved: Option<Box<ClusterState>>,
}

/// The inventory's control planes that answered: through one of them the cluster's API is reached.
pub fn control_planes<'a>(
    saved: &'a ClusterState,
    hosts: &'a BTreeMap<NodeName, HostView>,
) -> impl Iterator<Item = (&'a NodeName, &'a HostFacts)> {
    let planes = saved
        .inventory
        .iter()
        .filter(|(_, entry)| entry.roles.contains(&Role::ControlPlane));
    planes.filter_map(|(name, _)| match hosts.get(name) {
        Some(HostView::Reachable(facts)) => Some((name, &**facts)),
        Some(HostView::Unreachable(_)) | None => None,
    })
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostView {
    /// It answered.
    Reachable(Box<HostFacts>),
    /// It did not.
    Unreachable(Unreachable),
}

/// What hosts said a moment ago, where it is still good: those are not asked again.
pub type KeptFacts = BTreeMap<NodeName, Box<HostFacts>>;

/// Why a host did not answer, as data: the error that is shown for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreachable {
    /// Whose turn it is.
    pub class: ErrorClass,
    /// The message, with its causes.
    pub why: String,
    /// The cures.
    pub hints: Vec<String>,
    /// Nothing answers there. False: something does, or nobody called.
    #[serde(default)]
    pub silent: bool,
}

impl Unreachable {
    /// An error as a fact.
    pub fn of(error: &(dyn Explain + Send + Sync + 'static)) -> Self {
        Self {
            class: error.class(),
            why: with_causes(error),
            hints: error.hints().into_iter().map(Cow::into_owned).collect(),
            silent: error.is_silence(),
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
    /// The node's clock; `None` when it was not read.
    pub clock: Option<ClockFact>,
}

/// What a node's clock showed in the middle of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockFact {
    /// Seconds since 1970, UTC.
    pub unix_seconds: i64,
    /// How far off that may be because the answer took its time.
    pub uncertainty_ms: u32,
}

impl HostFacts {
    /// What the node's claim remembers of the time before us. The record beside it is as old as the
    /// first claim of this cluster; the label may be of a claim that was made again.
    pub fn before(&self) -> Option<Baseline> {
        let claim = self.claim()?;
        let id = claim.labels.get(crate::model::label::CLUSTER_ID);
        let recorded = self
            .files
            .as_ref()
            .and_then(|files| files.get(crate::model::path::NODE_RECORD))
            .and_then(|fact| NodeRecord::read(&fact.content))
            .filter(|record| id == Some(&record.cluster_id.0));
        recorded
            .map(|record| record.before)
            .or_else(|| claim.before())
    }

    /// True when a container of this node, the claim included, belongs to this cluster; or when the
    /// claim's own file says so, which outlives every container (`docker system prune`, another data
    /// root).
    pub fn is_of(&self, id: &ClusterId) -> bool {
        let mut containers = self.containers.values();
        let label = crate::model::label::CLUSTER_ID;
        self.system.cluster_id.as_ref() == Some(id)
            || containers.any(|fact| fact.labels.get(label) == Some(&id.0))
    }

    /// True when a folder is filled that only a cluster fills.
    pub fn has_data(&self) -> bool {
        let (there, empty) = (&self.system.paths, &self.system.empty);
        let mut folders = [path::KUBERNETES, path::ETCD, path::KUBELET].into_iter();
        folders.any(|folder| there.contains(folder) && !empty.contains(folder))
    }

    /// The container of a component, whoever made it.
    pub fn container(&self, component: Component) -> Option<&ContainerFact> {
        self.containers.get(component.container())
    }

    /// Who holds this node, if anybody does.
    pub fn claim(&self) -> Option<&ContainerFact> {
        self.containers.get(crate::model::CLAIM)
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
    /// Kinds of cgroup that kubelet needs and that Docker cannot limit: `memory`.
    #[serde(default)]
    pub lacking_cgroups: BTreeSet<String>,
    /// Mirrors of Docker Hub, as URLs.
    pub mirrors: Vec<String>,
    /// Registries that are reached without TLS, or without looking at their certificate.
    pub insecure_registries: Vec<String>,
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
    /// When it started last, in seconds since 1970 by its node's clock; only of one that bears a
    /// cluster id.
    pub started: Option<i64>,
}

impl ContainerFact {
    /// It was made for that cluster.
    pub fn is_of(&self, id: &ClusterId) -> bool {
        self.labels.get(crate::model::label::CLUSTER_ID) == Some(&id.0)
    }

    /// What a claim remembers of the time before us; `None` when it cannot be read.
    pub fn before(&self) -> Option<Baseline> {
        serde_json::from_str(self.labels.get(crate::model::label::BEFORE)?).ok()
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
    /// The bytes; empty for a directory. Most files are the same on every node, and kept once.
    pub content: Arc<Secret<Vec<u8>>>,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// True for a directory.
    pub is_dir: bool,
}

impl FileFact {
    /// True where both the user and the group are these.
    pub fn is_of(&self, owner: Owner) -> bool {
        (self.uid, self.gid) == (owner.uid.into(), owner.gid.into())
    }
}

/// The system below Docker, read by one unprivileged SSH command.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemFacts {
    /// Host name.
    pub hostname: String,
    /// `uname -r`.
    pub kernel: String,
    /// `PRETTY_NAME`.
    pub os: String,
    /// `ID` and `ID_LIKE` of `/etc/os-release`.
    #[serde(default)]
    pub distribution: BTreeSet<String>,
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
    /// Those of [`Baseline::PATHS`] that exist now.
    pub paths: BTreeSet<String>,
    /// Those of `paths` that are directories and were seen to be empty but for `lost+found`: a
    /// mount point that waits for its data is nobody's Kubernetes.
    pub empty: BTreeSet<String>,
    /// Modules that are loaded or built in, among those we want.
    pub modules: BTreeSet<String>,
    /// Current values of the sysctls that Kubernetes or we set.
    pub sysctls: BTreeMap<String, String>,
    /// Those of `paths` that are directories which a user without rights may not look into: nobody
    /// knows what is in them.
    pub unreadable: BTreeSet<String>,
    /// The files by which Docker knows the authorities of registries.
    #[serde(default)]
    pub docker_certs: BTreeSet<String>,
    /// The cluster whose claim wrote its id here ([`crate::model::path::CLUSTER_ID`]); outlives the
    /// claim.
    pub cluster_id: Option<ClusterId>,
    /// Files of ours outside of `/etc/kubernetes` that are there: containerd's configuration and
    /// drop-in, modules, sysctls.
    pub ours: BTreeSet<String>,
    /// Mount points below kubelet's root and etcd's data.
    pub mounts: BTreeSet<String>,
    /// What other distributions of Kubernetes write, as far as it is there ([`path::OF_ANOTHER_KUBERNETES`], and
    /// static manifests).
    #[serde(default)]
    pub foreign: BTreeSet<String>,
    /// How many pods run on this node's containerd (their shims).
    pub pods: u64,
    /// The node's clock when the script ran, seconds since 1970; `None` if it did not tell.
    pub clock: Option<i64>,
    /// The node's own addresses.
    pub addresses: BTreeSet<String>,
    /// The one that its default route starts from: kubelet announces it unless it is told another.
    /// Always an address, and whatever the node says.
    pub route_address: Option<String>,
    /// Its interfaces that have an address, by name.
    #[serde(default)]
    pub interfaces: BTreeMap<String, Interface>,
    /// Its routes, without those to everywhere.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// What the name that SSH dials means to the node itself; empty where it is an address.
    #[serde(default)]
    pub resolved: BTreeSet<IpAddr>,
    /// Units that run now and that nothing starts after a reboot: `docker.service`.
    #[serde(default)]
    pub unbooted: BTreeSet<String>,
    /// Those of [`Self::TOOLS`] that the node does not have.
    #[serde(default)]
    pub lacking_tools: BTreeSet<String>,
    /// Those of [`Self::NEEDED_MODULES`] that are neither loaded nor built in.
    #[serde(default)]
    pub absent_modules: BTreeSet<String>,
    /// Those of `absent_modules` that the kernel has no file of.
    #[serde(default)]
    pub lacking_modules: BTreeSet<String>,
    /// The files of the kernel that runs are gone: it was replaced, and the node not restarted since.
    #[serde(default)]
    pub kernel_gone: bool,
    /// The file with the words for the kernel of a Raspberry Pi.
    #[serde(default)]
    pub kernel_words: Option<String>,
    /// Free bytes: path → bytes, for `/`, Docker's root, `/var/lib/containerd`, `/var/lib/etcd`'s parent.
    pub free: BTreeMap<String, u64>,
    /// The ports of other nodes that it was to try and did not reach.
    #[serde(default)]
    pub unreached: BTreeSet<Unreached>,
    /// firewalld is active.
    pub firewalld: bool,
    /// What else works on the node's network: `ufw` (switched on), `NetworkManager`,
    /// `nm-cloud-setup`.
    pub services: BTreeSet<String>,
    /// Every name server of [`Self::resolv_conf`] is on the node's loopback: a pod that is given
    /// it asks itself.
    pub resolv_loops: bool,
    /// sshd refuses to forward to ports of the node (`AllowTcpForwarding no`).
    pub no_port_forwarding: bool,
    /// `/etc/machine-id`: tells two addresses of one machine apart from two machines.
    pub machine_id: String,
    /// The key by which its sshd was verified, as in `authorized_keys`.
    #[serde(default)]
    pub host_key: Option<String>,
    /// That of the bastion through which it was reached.
    #[serde(default)]
    pub bastion_key: Option<String>,
}

impl SystemFacts {
    /// The programs that a network plugin and a removal call on the node itself.
    pub const TOOLS: [&str; 2] = ["ip", "iptables"];

    /// The modules that rules and tunnels are made of.
    pub const NEEDED_MODULES: [&str; 7] = [
        "vxlan",
        "xt_addrtype",
        "xt_comment",
        "xt_conntrack",
        "xt_mark",
        "xt_nat",
        "xt_statistic",
    ];

    /// The interface that has this address, with its name.
    pub fn interface_of(&self, address: IpAddr) -> Option<(&str, &Interface)> {
        let mut all = self.interfaces.iter();
        all.find(|(_, interface)| interface.addresses.contains(&address))
            .map(|(name, interface)| (name.as_str(), interface))
    }
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The largest packet that it sends, in bytes; `None` when it was not told.
    pub mtu: Option<u32>,
    /// Its addresses that are good beyond the node.
    pub addresses: BTreeSet<IpAddr>,
}

/// A route of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where to.
    pub to: IpNet,
    /// Through which router; `None`: to neighbours, or to nowhere.
    pub via: Option<IpAddr>,
    /// By which interface.
    pub device: String,
    /// The kernel made it for an address of the interface.
    pub of_interface: bool,
}

/// A TCP port of another machine that a node did not reach. One that refuses was reached: nothing listens there yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unreached {
    /// The port.
    pub peer: PeerPort,
    /// What came back.
    pub how: Barrier,
}

/// What stands between a node and a port of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Barrier {
    /// Nothing answers.
    Silent,
    /// Something on the way says that it may not, or that there is no way.
    Rejected,
    /// The node itself may not send there.
    Forbidden,
    /// The node does not know the name.
    UnknownName,
}

/// containerd on the node.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
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
    /// `ctr` is on the node.
    pub ctr: bool,
    /// How the unit starts it (our drop-in left out).
    pub command: ContainerdCommand,
}

/// How a unit starts containerd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerdCommand {
    /// The program's path; empty if it could not be read.
    pub program: String,
    /// What it is given besides its configuration: `--log-level debug`.
    pub words: Vec<String>,
    /// What of the command is not understood; then it is not replaced.
    pub odd: Option<String>,
}

impl ContainerdFacts {
    /// Where containerd keeps its data and its state.
    pub fn folders(&self) -> (String, String) {
        let words = &self.command.words;
        let dump: toml::Table = self.dump.parse().unwrap_or_default();
        let folder = |key: &str, usual: &str| {
            let flag = format!("--{key}");
            let after = words.iter().position(|word| *word == flag);
            let told = after.and_then(|at| words.get(at + 1));
            let dumped = || dump.get(key)?.as_str().map(str::to_owned);
            told.cloned()
                .or_else(dumped)
                .filter(|path| path.starts_with('/'))
                .unwrap_or_else(|| usual.to_owned())
        };
        (
            folder("root", "/var/lib/containerd"),
            folder("state", "/run/containerd"),
        )
    }
}

/// What the claim remembers, as it is kept a second time in [`crate::model::path::NODE_RECORD`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Who claimed the node.
    pub cluster_id: ClusterId,
    /// Its name, for people.
    pub cluster_name: String,
    /// The node's name in that cluster. Releases before this one did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// What was there before.
    pub before: Baseline,
}

impl NodeRecord {
    /// The labels of a claim that remembers this.
    pub fn labels(&self) -> Result<BTreeMap<String, String>, serde_json::Error> {
        use crate::model::label;
        let node = self.node.iter();
        let mut labels: BTreeMap<String, String> = node
            .map(|node| (label::NODE.to_owned(), node.0.clone()))
            .collect();
        labels.extend([
            (label::CLUSTER_ID.to_owned(), self.cluster_id.0.clone()),
            (label::CLUSTER_NAME.to_owned(), self.cluster_name.clone()),
            (
                label::BEFORE.to_owned(),
                serde_json::to_string(&self.before)?,
            ),
        ]);
        Ok(labels)
    }

    /// A file's content, if it is a record.
    pub fn read(content: &Secret<Vec<u8>>) -> Option<Self> {
        serde_json::from_slice(content.expose()).ok()
    }
}

/// What was on a node before us, remembered on the claim: `remove` deletes only what is not here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// Those of [`Self::PATHS`] that existed.
    pub paths: BTreeSet<String>,
    /// Values of the sysctls that Kubernetes changes.
    pub sysctls: BTreeMap<String, String>,
    /// Modules that were loaded.
    pub modules: BTreeSet<String>,
    /// Image references that Docker had.
    pub images: BTreeSet<String>,
}

impl Baseline {
    /// The paths that Kubernetes, its plugins or we create (network links by their place in
    /// `/sys`). Entries of `/opt/cni/bin` and `/etc/cni/net.d` are recorded one by one as well.
    pub const PATHS: [&str; 27] = [
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
        "/sys/class/net/flannel-v6.1",
        "/sys/class/net/kube-ipvs0",
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

/// One control plane's API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApiHealth {
    /// It answers `/readyz`.
    Serving,
    /// It does not; why.
    Unreachable(String),
}

/// The cluster's API, whichever server answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiView<'a> {
    /// No keys yet, or no control plane to ask.
    Unknown,
    /// No server answers; why the last one does not.
    Unreachable(&'a str),
    /// What it said.
    Up(&'a ClusterFacts),
}

/// What the API said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Server version, `v1.34.4`.
    pub version: String,
    /// The uid of the namespace `kube-system`: who the cluster is. Read before a removal only.
    pub uid: Option<String>,
    /// Nodes by name.
    pub nodes: BTreeMap<NodeName, NodeFact>,
    /// Objects that bear [`crate::model::label::ADDON`], as they are.
    pub objects: BTreeMap<ObjectRef, serde_json::Value>,
    /// The charts that were applied, by add-on.
    pub charts: BTreeMap<String, ChartFact>,
    /// What the server would make of those of our objects that are there.
    pub dry_runs: BTreeMap<ObjectRef, DryRun>,
    /// The copy of the state in `kube-system`.
    pub state_copy: StateCopy,
    /// The name of what all that is stored was written with; `None` while that is not known.
    pub written_with: Option<String>,
    /// There is a copy of a state in `kube-system`, whatever it says.
    pub marked: bool,
    /// What goes with the nodes that were asked about.
    pub bound: BTreeMap<NodeName, Bound>,
    /// The pods of those of our Deployments whose pods belong on several nodes, without those that
    /// end.
    pub replicas: BTreeMap<ObjectRef, Vec<Replica>>,
    /// Who uses what the wanted release no longer has; asked before the API servers go to another
    /// minor release only.
    pub old_clients: OldClients,
    /// The nodes that do not reach a pod of another one.
    pub no_traffic: BTreeSet<NoTraffic>,
}

/// A node that does not reach a pod of another node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoTraffic {
    /// The node.
    pub from: NodeName,
    /// The other one.
    pub to: NodeName,
    /// The pod's address and the port that it was tried at.
    pub pod: PeerPort,
    /// What came back.
    pub how: Barrier,
}

/// The copy of the state in `kube-system`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StateCopy {
    /// There is none.
    #[default]
    Absent,
    /// It is there and is not understood; why.
    Unreadable(String),
    /// What it says.
    Is(Box<ClusterState>),
}

impl StateCopy {
    /// What it says.
    pub fn state(&self) -> Option<&ClusterState> {
        match self {
            Self::Is(state) => Some(state),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }
}

/// Kinds that somebody asks for and that a release no longer has, as the API servers tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OldClients {
    /// Asked for since the API servers started.
    pub asked: BTreeSet<RemovedApi>,
    /// The API servers that did not tell, and why.
    pub untold: BTreeMap<NodeName, String>,
}

/// A kind in a version that goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemovedApi {
    /// Group; empty for the core one.
    pub group: String,
    /// Version in it.
    pub version: String,
    /// The plural.
    pub resource: String,
    /// The first minor release without it, `1.32`.
    pub removed_in: String,
}

impl std::fmt::Display for RemovedApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slash = if self.group.is_empty() { "" } else { "/" };
        let (group, version) = (&self.group, &self.version);
        write!(f, "`{}` of `{group}{slash}{version}`", self.resource)
    }
}

/// A pod of a Deployment, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// `None`: it has no node yet.
    pub node: Option<NodeName>,
}

/// What goes with a node that is given up, as far as the API tells: the first of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Persistent volumes that no other node can have.
    pub volumes: BTreeSet<String>,
    /// Volumes that are attached to it, and are detached.
    pub attached: BTreeSet<String>,
    /// Pods that nobody makes anew.
    pub bare_pods: BTreeSet<String>,
    /// Pods that keep something in an emptyDir.
    pub empty_dirs: BTreeSet<String>,
}

impl ClusterFacts {
    /// True when nothing is there of what we put into every cluster: what etcd without its data
    /// looks like.
    pub fn is_bare(&self) -> bool {
        !self.marked && self.objects.is_empty()
    }
}

/// What a server-side apply would do to an object, as the server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// The object would be this.
    Would(serde_json::Value),
    /// The server refuses to try: a webhook that cannot, for one. The reason.
    KnownAfterApply(String),
}

/// A Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFact {
    /// Its uid.
    #[serde(default)]
    pub uid: String,
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
    /// When it was made.
    #[serde(default)]
    pub created: Option<Timestamp>,
    /// It is cordoned: no new pod comes.
    #[serde(default)]
    pub unschedulable: bool,
    /// How many cores it has.
    #[serde(default)]
    pub cores: u32,
}

impl NodeFact {
    /// True when a run of ours cordoned it and did not come to take that back.
    pub fn is_cordoned_by_us(&self) -> bool {
        self.annotations.contains_key(crate::model::label::CORDONED)
    }

    /// True where a pod may go that tolerates nothing.
    pub fn takes_pods(&self) -> bool {
        let mut taints = self.taints.iter();
        self.ready && !self.unschedulable && taints.all(|taint| taint.effect == "PreferNoSchedule")
    }

    /// True when a person cordoned it.
    pub fn is_cordoned_by_others(&self) -> bool {
        self.unschedulable && !self.is_cordoned_by_us()
    }
}

/// What tells that the machine under a node's name is not the one that was a node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Its machine-id is another one, and nothing of the cluster is there.
    Machine {
        /// The one that the state has.
        was: String,
        /// The one that it has.
        is: String,
    },
    /// Nothing of the cluster is there, and etcd and the API know the node: it was installed anew.
    Wiped,
}

impl Actual {
    /// The other node of the inventory whose machine answers under this name. What was given up may
    /// have any name when it comes back.
    pub fn other_name(&self, name: &NodeName) -> Option<&NodeName> {
        let is = self.up(name)?.system.machine_id.as_str();
        let inventory = &self.saved.as_ref()?.inventory;
        let is_it = |node: &NodeName| {
            let entry = inventory.get(node);
            let entry = entry.filter(|entry| entry.membership != Membership::Lost);
            let known = entry.and_then(|entry| entry.machine_id.as_deref());
            !is.is_empty() && known == Some(is)
        };
        let mut others = inventory.keys().filter(|other| *other != name);
        (!is_it(name)).then(|| others.find(|other| is_it(other)))?
    }

    /// What tells that another machine answers under the name of a node that is no tombstone.
    pub fn replaced(&self, name: &NodeName) -> Option<Replaced> {
        let (saved, facts) = (self.saved.as_ref()?, self.up(name)?);
        let entry = saved.inventory.get(name)?;
        if entry.membership == Membership::Lost || facts.is_of(&saved.cluster_id) {
            return None;
        }
        let is = &facts.system.machine_id;
        if let Some(was) = entry.machine_id.as_ref()
            && !is.is_empty()
            && was != is
        {
            let (was, is) = (was.clone(), is.clone());
            return Some(Replaced::Machine { was, is });
        }
        let known = match self.api() {
            ApiView::Up(api) => api.nodes.contains_key(name),
            ApiView::Unknown | ApiView::Unreachable(_) => false,
        };
        let serves = matches!(self.etcd.quorum, Quorum::Serving { .. });
        let member = serves && self.etcd.of_node(name).next().is_some();
        (known && member && !facts.has_data()).then_some(Replaced::Wiped)
    }

    /// The cluster's API, whichever server answers for it.
    pub fn api(&self) -> ApiView<'_> {
        if let Some(facts) = &self.cluster {
            return ApiView::Up(facts);
        }
        let down = self.apis.values().find_map(|api| match api {
            ApiHealth::Unreachable(why) => Some(why.as_str()),
            ApiHealth::Serving => None,
        });
        let down = self.untold.as_deref().or(down);
        down.map_or(ApiView::Unknown, ApiView::Unreachable)
    }

    /// The hosts that did not answer, and why.
    pub fn unreachable(&self) -> impl Iterator<Item = (&NodeName, &Unreachable)> {
        self.hosts.iter().filter_map(|(name, view)| match view {
            HostView::Unreachable(why) => Some((name, why)),
            HostView::Reachable(_) => None,
        })
    }

    /// Nodes that neither we nor the cluster hear of: pods that belong there are not waited for.
    pub fn silent_nodes(&self) -> BTreeSet<NodeName> {
        let nodes = self.cluster.as_ref().map(|api| &api.nodes);
        let unready = |name: &NodeName| {
            let node = nodes.and_then(|nodes| nodes.get(name));
            node.is_some_and(|node| !node.ready)
        };
        let names = self.unreachable().map(|(name, _)| name.clone());
        names.filter(unready).collect()
    }

    /// The host's facts, when it answered.
    pub fn up(&self, name: &NodeName) -> Option<&HostFacts> {
        match self.hosts.get(name) {
            Some(HostView::Reachable(facts)) => Some(facts),
            Some(HostView::Unreachable(_)) | None => None,
        }
    }

    /// The cluster id that a host's claim bears.
    pub fn claimed_by(&self, name: &NodeName) -> Option<ClusterId> {
        let claim = self.up(name)?.claim()?;
        claim
            .labels
            .get(crate::model::label::CLUSTER_ID)
            .cloned()
            .map(ClusterId)
    }
}
