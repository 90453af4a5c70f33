//! The validated intent: every default applied, every reference resolved. Nobody downstream
//! validates again and nobody sees the raw document.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// A node's Kubernetes name (`hostname_override`, else the address), lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(pub String);

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs an etcd member.
    Etcd,
    /// Runs kube-apiserver, kube-controller-manager and kube-scheduler.
    ControlPlane,
    /// Takes workloads.
    Worker,
}

/// Where sshd listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// Host name or address, as the user wrote it.
    pub address: String,
    /// TCP port of sshd.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.port == 22 {
            f.write_str(&self.address)
        } else {
            write!(f, "[{}]:{}", self.address, self.port)
        }
    }
}

/// How to log in to a node. Equal logins may share nothing: one connection a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user on the node.
    pub user: String,
    /// The private key, in any format OpenSSH writes (PEM text).
    pub key: Secret<String>,
    /// Where the key came from (`ssh_key_path` as written, or `ssh_key`, or a Secret's name), for messages.
    pub key_source: String,
    /// Path of the Docker socket on the node.
    pub docker_socket: String,
}

/// A Kubernetes taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value, may be empty.
    #[serde(default)]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// One node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIntent {
    /// Where sshd is; `endpoint.address` is also the public address of the API server.
    pub endpoint: Endpoint,
    /// How to log in.
    pub login: Login,
    /// What other nodes and the components dial (`internal_address`, else `address`).
    pub internal_address: String,
    /// True when the user wrote an `internal_address` that differs from `address`.
    pub has_internal_address: bool,
    /// At least one.
    pub roles: BTreeSet<Role>,
    /// Extra node labels.
    pub labels: BTreeMap<String, String>,
    /// Extra taints.
    pub taints: Vec<Taint>,
}

/// A supported Kubernetes release, e.g. `1.34.4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KubernetesVersion {
    /// 1.
    pub major: u16,
    /// 34.
    pub minor: u16,
    /// 4.
    pub patch: u16,
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The images of one cluster, after `system_images` and `services.*.image`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Images {
    /// Has kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy and kubelet on its PATH.
    pub kubernetes: String,
    /// etcd and etcdctl.
    pub etcd: String,
    /// `CoreDNS`.
    pub coredns: String,
    /// flanneld.
    pub flannel: String,
    /// Installs the CNI plugins.
    pub cni_plugins: String,
    /// The sandbox image.
    pub pause: String,
    /// The stream proxy on nodes without a control plane (unused while a cluster has one node).
    pub nginx: String,
}

/// What every service takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceExtras {
    /// Overrides this service's image.
    pub image: Option<String>,
    /// Flags that replace or extend the defaults; an empty value is the bare `--flag=`.
    pub extra_args: BTreeMap<String, String>,
    /// Docker binds, `source:target[:options]`.
    pub extra_binds: Vec<String>,
    /// `NAME=value`.
    pub extra_env: Vec<String>,
}

/// `services.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Services {
    /// `services.etcd`.
    pub etcd: ServiceExtras,
    /// `services.kube-api`.
    pub kube_api: ServiceExtras,
    /// `services.kube-controller`.
    pub kube_controller: ServiceExtras,
    /// `services.scheduler`.
    pub scheduler: ServiceExtras,
    /// `services.kubelet`.
    pub kubelet: ServiceExtras,
    /// `services.kubeproxy`.
    pub kubeproxy: ServiceExtras,
    /// Pods (`10.42.0.0/16`).
    pub cluster_cidr: IpNet,
    /// Services (`10.43.0.0/16`).
    pub service_cluster_ip_range: IpNet,
    /// Node ports, inclusive (`30000-32767`).
    pub service_node_port_range: (u16, u16),
    /// `cluster.local`.
    pub cluster_domain: String,
    /// `10.43.0.10`, inside the service range.
    pub cluster_dns_server: IpAddr,
    /// `services.kubelet.fail_swap_on` (RKE's default: false).
    pub fail_swap_on: bool,
}

/// The network plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Network {
    /// flannel with VXLAN.
    Flannel,
    /// The user brings one.
    None,
}

/// The DNS add-on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Dns {
    /// `CoreDNS`.
    CoreDns,
    /// The user brings one.
    None,
}

/// What the user wants, complete and valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// `cluster_name` (RKE's default: `local`).
    pub cluster_name: String,
    /// `kubernetes_version`.
    pub version: KubernetesVersion,
    /// By node name.
    pub nodes: BTreeMap<NodeName, NodeIntent>,
    /// Every image, resolved.
    pub images: Images,
    /// `services`.
    pub services: Services,
    /// `network.plugin`.
    pub network: Network,
    /// `dns.provider`.
    pub dns: Dns,
}

impl Intent {
    /// The nodes that carry a role, by name.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = (&NodeName, &NodeIntent)> {
        self.nodes
            .iter()
            .filter(move |(_, node)| node.roles.contains(&role))
    }
}
