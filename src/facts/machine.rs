//! The machine under a host: its system, network, kernel and containerd. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::model::{ClusterId, Firewall, NodeName, PeerPort, Secret, path};

/// The system below Docker, read by one unprivileged SSH command.
#[expect(clippy::struct_excessive_bools, reason = "each is a separate fact")]
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
    /// Those of `paths` that are directories and empty except for `lost+found`: an unused mount point
    /// does not count as another Kubernetes.
    pub empty: BTreeSet<String>,
    /// Modules that are loaded or built in, among those we want.
    pub modules: BTreeSet<String>,
    /// Current values of the sysctls that Kubernetes or we set.
    pub sysctls: BTreeMap<String, String>,
    /// Those of `paths` that are directories which the SSH user may not read: their content is unknown.
    pub unreadable: BTreeSet<String>,
    /// The files by which Docker knows the authorities of registries.
    #[serde(default)]
    pub docker_certs: BTreeSet<String>,
    /// The cluster whose claim wrote its id here ([`crate::model::path::CLUSTER_ID`]); outlives the
    /// claim.
    pub cluster_id: Option<ClusterId>,
    /// Files that rke-operator wrote outside of `/etc/kubernetes`: containerd's configuration and drop-in,
    /// modules, sysctls.
    pub ours: BTreeSet<String>,
    /// Mount points below kubelet's root and etcd's data.
    pub mounts: BTreeSet<String>,
    /// Those of [`Self::WRITTEN`] that are on a file system which is mounted read-only, with its mount point.
    #[serde(default)]
    pub read_only: BTreeMap<String, String>,
    /// Those of [`Self::EXECUTED`] that are on a file system which is mounted with `noexec`, with its mount point.
    #[serde(default)]
    pub no_exec: BTreeMap<String, String>,
    /// SELinux, where it is enforced; `None`: it is off or permissive.
    #[serde(default)]
    pub selinux: Option<SelinuxPolicy>,
    /// What other distributions of Kubernetes write, as far as it is there ([`crate::model::path::OF_ANOTHER_KUBERNETES`], and
    /// static manifests).
    #[serde(default)]
    pub foreign: BTreeSet<String>,
    /// How many pods run on this node's containerd (their shims).
    pub pods: u64,
    /// The node's clock when the script ran, seconds since 1970; `None` if it did not tell.
    pub clock: Option<i64>,
    /// The node's own addresses.
    pub addresses: BTreeSet<String>,
    /// The one that its default route starts from: kubelet announces it unless a flag names another.
    /// Always an IP address, whatever the node says.
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
    /// It has swap in use.
    #[serde(default)]
    pub swap: bool,
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
    /// Tells one boot of the machine from the next; `None` where the node does not tell.
    #[serde(default)]
    pub boot: Option<String>,
    /// The key by which its sshd was verified, as in `authorized_keys`.
    #[serde(default)]
    pub host_key: Option<String>,
    /// Host keys of the bastions through which it was reached, starting with the one that is dialled from here.
    #[serde(default)]
    pub bastion_keys: Vec<String>,
}

impl SystemFacts {
    /// The folders that a node's components, containerd, pods of network plugins and rke-operator write to.
    pub const WRITTEN: [&str; 15] = [
        "/etc/cni/net.d",
        "/etc/containerd",
        "/etc/kubernetes",
        "/etc/modules-load.d",
        "/etc/sysctl.d",
        "/etc/systemd/system",
        Self::PLUGINS,
        path::SNAPSHOTS,
        "/var/lib/cni",
        "/var/lib/containerd",
        Self::DOCKER,
        path::ETCD,
        path::KUBELET,
        path::AUDIT_LOG,
        "/var/log/pods",
    ];

    /// The folders from which programs are executed in place. Where Docker and containerd use overlayfs, they mount each
    /// container again, without the options of the mount below.
    pub const EXECUTED: [&str; 3] = [Self::PLUGINS, Self::DOCKER, path::KUBELET];

    /// Where containerd finds the programs of network plugins.
    pub const PLUGINS: &str = "/opt/cni/bin";

    /// Docker's usual root.
    pub const DOCKER: &str = "/var/lib/docker";

    /// The programs that a network plugin and a removal call on the node itself.
    pub const TOOLS: [&str; 2] = ["ip", "iptables"];

    /// The modules that rules and tunnels are made of.
    pub const NEEDED_MODULES: [&str; 9] = [
        "ipip",
        "vxlan",
        "wireguard",
        "xt_addrtype",
        "xt_comment",
        "xt_conntrack",
        "xt_mark",
        "xt_nat",
        "xt_statistic",
    ];

    /// Those of [`Self::NEEDED_MODULES`] that only some ways from node to node need.
    pub const TUNNEL_MODULES: [&str; 3] = ["ipip", "vxlan", "wireguard"];

    /// The firewalls that are active.
    pub fn firewalls(&self) -> impl Iterator<Item = Firewall> {
        let firewalld = self.firewalld.then_some(Firewall::Firewalld);
        let ufw = self.services.contains("ufw").then_some(Firewall::Ufw);
        firewalld.into_iter().chain(ufw)
    }

    /// The interface by which packets leave for the other nodes, and its MTU: the one that has this address, or the one
    /// of the default route.
    pub fn way_out(&self, own: Option<IpAddr>) -> Option<(&str, u32)> {
        let of = |address: IpAddr| {
            let (name, interface) = self.interface_of(address)?;
            Some((name, interface.mtu?))
        };
        let route = self.route_address.as_ref().and_then(|it| it.parse().ok());
        own.and_then(of).or_else(|| route.and_then(of))
    }

    /// The interface that has this address, with its name.
    pub fn interface_of(&self, address: IpAddr) -> Option<(&str, &Interface)> {
        let mut all = self.interfaces.iter();
        all.find(|(_, interface)| interface.addresses.contains(&address))
            .map(|(name, interface)| (name.as_str(), interface))
    }
}

/// The policy of a SELinux that is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SelinuxPolicy {
    /// It knows the types of containers, as far as the node tells.
    WithContainers,
    /// It does not: a container that is labelled cannot start.
    WithoutContainers,
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
#[expect(clippy::struct_excessive_bools, reason = "each is a separate fact")]
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
