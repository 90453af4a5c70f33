//! The kinds of certificates of a node: which exist, what they are called on disk, and what
//! each must contain. Pure.
//!
//! Names and folder are RKE's (`/etc/kubernetes/ssl/kube-…`). Unlike in RKE, each node has its own
//! certificates, no two nodes share a key, and etcd trusts a dedicated authority.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;

use super::cert::{LeafSpec, San, Usage};
use crate::{
    config::{Intent, NodeIntent},
    desired::host_context::announced,
    facts::HostFacts,
    model::{Component, NodeName, Role},
};

/// A certificate on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CertKind {
    /// etcd, as a server, as a peer, and for `etcdctl` in its container.
    Etcd,
    /// kube-apiserver's serving certificate.
    ApiServer,
    /// kube-apiserver as etcd's client.
    ApiServerEtcdClient,
    /// kube-apiserver as kubelet's client.
    ApiServerKubeletClient,
    /// kube-apiserver as the aggregated API servers' client.
    FrontProxyClient,
    /// kube-controller-manager as the API's client.
    ControllerManager,
    /// kube-scheduler as the API's client.
    Scheduler,
    /// kubelet as the API's client: the node's own identity.
    Node,
    /// kubelet's serving certificate.
    Kubelet,
    /// kube-proxy as the API's client.
    KubeProxy,
    /// What takes snapshots of etcd, as etcd's client.
    EtcdSnapshot,
}

/// Which authority signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// The cluster's.
    Cluster,
    /// etcd's.
    Etcd,
    /// The front proxy's.
    FrontProxy,
}

impl CertKind {
    /// Every one.
    pub const ALL: [Self; 11] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ApiServerEtcdClient,
        Self::ApiServerKubeletClient,
        Self::FrontProxyClient,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Node,
        Self::Kubelet,
        Self::KubeProxy,
        Self::EtcdSnapshot,
    ];

    /// The role that a node needs to have it; `None`: every node has it.
    pub(super) const fn role(self) -> Option<Role> {
        match self {
            Self::Etcd | Self::EtcdSnapshot => Some(Role::Etcd),
            Self::ApiServer
            | Self::ApiServerEtcdClient
            | Self::ApiServerKubeletClient
            | Self::FrontProxyClient
            | Self::ControllerManager
            | Self::Scheduler => Some(Role::ControlPlane),
            Self::Node | Self::Kubelet | Self::KubeProxy => None,
        }
    }

    /// The component that reads it.
    pub(super) const fn reader(self) -> Component {
        match self {
            Self::Etcd => Component::Etcd,
            Self::ApiServer
            | Self::ApiServerEtcdClient
            | Self::ApiServerKubeletClient
            | Self::FrontProxyClient => Component::ApiServer,
            Self::ControllerManager => Component::ControllerManager,
            Self::Scheduler => Component::Scheduler,
            Self::Node | Self::Kubelet => Component::Kubelet,
            Self::KubeProxy => Component::KubeProxy,
            Self::EtcdSnapshot => Component::Snapshots,
        }
    }

    /// True when a node has it. For an external etcd, the API servers have a certificate that the authority of that
    /// etcd signed.
    pub(super) fn is_for(self, intent: &Intent, node: &NodeIntent) -> bool {
        let external = intent.etcd.external().is_some();
        let has_it = self.role().is_none_or(|role| node.roles.contains(&role));
        let wanted = self.is_required() || intent.recurring_snapshots().is_some();
        has_it && wanted && !(external && self.signer() == Signer::Etcd)
    }

    /// False where a cluster goes on without it: a person who signs with an authority of etcd may not have made it.
    pub(super) fn is_required(self) -> bool {
        self != Self::EtcdSnapshot
    }

    /// File name without `.pem` and `-key.pem`.
    pub(crate) fn stem(self, node: &NodeIntent) -> String {
        match self {
            Self::Etcd => format!("kube-etcd-{}", suffix(node)),
            Self::ApiServer => "kube-apiserver".to_owned(),
            Self::ApiServerEtcdClient => "kube-apiserver-etcd-client".to_owned(),
            Self::ApiServerKubeletClient => "kube-apiserver-kubelet-client".to_owned(),
            Self::FrontProxyClient => "kube-apiserver-proxy-client".to_owned(),
            Self::ControllerManager => "kube-controller-manager".to_owned(),
            Self::Scheduler => "kube-scheduler".to_owned(),
            Self::Node => "kube-node".to_owned(),
            Self::Kubelet => format!("kube-kubelet-{}", suffix(node)),
            Self::KubeProxy => "kube-proxy".to_owned(),
            Self::EtcdSnapshot => "kube-etcd-snapshot".to_owned(),
        }
    }

    /// The file names that a user's certificate may have, without `.pem`: the node's own before the one of all nodes.
    /// Each node has a separate identity to the API and to etcd, so for those certificates no shared file is accepted.
    pub(super) fn given_names(self, node: &NodeIntent) -> Vec<String> {
        let stem = self.stem(node);
        let own = format!("{stem}-{}", suffix(node));
        match self {
            Self::Etcd | Self::Kubelet => vec![stem],
            Self::Node => vec![own],
            Self::ApiServer
            | Self::ApiServerEtcdClient
            | Self::ApiServerKubeletClient
            | Self::FrontProxyClient
            | Self::ControllerManager
            | Self::Scheduler
            | Self::KubeProxy
            | Self::EtcdSnapshot => vec![own, stem],
        }
    }

    /// The name that one is asked for by.
    pub(super) fn wanted_name(self, intent: &Intent, node: &NodeIntent) -> String {
        let mut names = self.given_names(node);
        let several = intent.with_role(Role::ControlPlane).count() > 1;
        if self == Self::ApiServer && several {
            return names.swap_remove(0);
        }
        names.pop().unwrap_or_default()
    }

    pub(super) const fn signer(self) -> Signer {
        match self {
            Self::Etcd | Self::ApiServerEtcdClient | Self::EtcdSnapshot => Signer::Etcd,
            Self::FrontProxyClient => Signer::FrontProxy,
            Self::ApiServer
            | Self::ApiServerKubeletClient
            | Self::ControllerManager
            | Self::Scheduler
            | Self::Node
            | Self::Kubelet
            | Self::KubeProxy => Signer::Cluster,
        }
    }

    /// What it must say on this node, of which `facts` are known.
    pub(super) fn spec(
        self,
        intent: &Intent,
        name: &NodeName,
        node: &NodeIntent,
        facts: Option<&HostFacts>,
    ) -> LeafSpec {
        match self {
            Self::Etcd => LeafSpec {
                cn: "kube-etcd".to_owned(),
                orgs: BTreeSet::new(),
                sans: inner_names(name, node)
                    .chain(["127.0.0.1", "localhost"].map(San::of))
                    .collect(),
                also: outer_name(node),
                usage: Usage::Both,
            },
            Self::ApiServer => LeafSpec {
                cn: "kube-apiserver".to_owned(),
                orgs: BTreeSet::new(),
                sans: api_names(intent)
                    .chain(inner_names(name, node))
                    .chain(outer_name(node))
                    .collect(),
                also: BTreeSet::new(),
                usage: Usage::Server,
            },
            Self::ApiServerEtcdClient => client("kube-apiserver-etcd-client", None),
            Self::ApiServerKubeletClient => client(KUBELET_CLIENT, None),
            Self::FrontProxyClient => client("kube-apiserver-proxy-client", None),
            Self::ControllerManager => client("system:kube-controller-manager", None),
            Self::Scheduler => client("system:kube-scheduler", None),
            Self::Node => client(&format!("system:node:{name}"), Some("system:nodes")),
            Self::Kubelet => LeafSpec {
                cn: format!("system:node:{name}"),
                orgs: BTreeSet::from(["system:nodes".to_owned()]),
                sans: inner_names(name, node)
                    .chain(
                        facts
                            .and_then(|facts| announced(intent, name, node, &facts.system))
                            .map(|address| San::of(&address)),
                    )
                    .collect(),
                also: outer_name(node),
                usage: Usage::Server,
            },
            Self::KubeProxy => client("system:kube-proxy", None),
            Self::EtcdSnapshot => client("kube-etcd-snapshot", None),
        }
    }
}

/// The user that kube-apiserver is to a kubelet; the add-on `cluster-access` lets it in.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// A client certificate.
pub(super) fn client(cn: &str, org: Option<&str>) -> LeafSpec {
    LeafSpec {
        cn: cn.to_owned(),
        orgs: org.map(ToOwned::to_owned).into_iter().collect(),
        sans: BTreeSet::new(),
        also: BTreeSet::new(),
        usage: Usage::Client,
    }
}

/// RKE's suffix of a node's own files: the internal address with dashes for dots.
fn suffix(node: &NodeIntent) -> String {
    node.internal_address
        .to_string()
        .to_lowercase()
        .replace(['.', ':'], "-")
}

/// What the other nodes call it.
fn inner_names(name: &NodeName, node: &NodeIntent) -> impl Iterator<Item = San> {
    [San::from(&node.internal_address), San::of(&name.0)].into_iter()
}

/// The address that SSH and the kubeconfig dial: of a node's servers only an API server is reached
/// there. The other certificates are not replaced when it changes.
fn outer_name(node: &NodeIntent) -> BTreeSet<San> {
    let address = &node.endpoint.address;
    // A dot at the end of a name is for resolvers alone.
    [San::of(address.strip_suffix('.').unwrap_or(address))].into()
}

/// What every API server is called. Besides it has its own names alone: one more control plane is no
/// new certificate for the others.
fn api_names(intent: &Intent) -> impl Iterator<Item = San> {
    let domain = &intent.services.cluster_domain;
    let fixed = [
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ];
    fixed
        .into_iter()
        .map(San::of)
        .chain([San::of(&format!("kubernetes.default.svc.{domain}"))])
        .chain([San::Ip(first_address(
            intent.services.service_cluster_ip_range,
        ))])
        .chain(intent.sans.iter().map(|name| San::of(name)))
}

/// The address of the Service `kubernetes`: the range's first but one.
fn first_address(range: IpNet) -> IpAddr {
    match range.network() {
        IpAddr::V4(network) => IpAddr::V4(u32::from(network).saturating_add(1).into()),
        IpAddr::V6(network) => IpAddr::V6(u128::from(network).saturating_add(1).into()),
    }
}
