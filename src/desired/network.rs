//! What the network of a node has to be, by its roles, the network plugin and the ingress controller. Pure.

use std::collections::BTreeSet;

use super::{host_context::HostContext, node};
use crate::{
    config::{Backend, Ingress, Network, NetworkMode},
    model::{EtcdPlace, HostNetwork, OpenPort, Protocol, Range, RangeOf, Reach, Role},
};

/// What kube-proxy's rules and the plugin for ports of the node are made of; built in, or files of the kernel's package.
const RULES: [&str; 6] = [
    "xt_addrtype",
    "xt_comment",
    "xt_conntrack",
    "xt_mark",
    "xt_nat",
    "xt_statistic",
];

pub(super) fn of(context: &HostContext<'_>) -> HostNetwork {
    let (intent, node) = (context.intent, context.node);
    let services = &intent.services;
    HostNetwork {
        address: Some(node.internal_address.clone()),
        key: if node.has_internal_address {
            "internal_address"
        } else {
            "address"
        },
        ranges: vec![
            Range {
                of: RangeOf::Pods,
                net: services.cluster_cidr,
            },
            Range {
                of: RangeOf::Services,
                net: services.service_cluster_ip_range,
            },
        ],
        ports: ports(context),
        ingress: ingress(context),
        modules: modules(&intent.network),
    }
}

/// What a firewall of this node has to let in.
fn ports(context: &HostContext<'_>) -> Vec<OpenPort> {
    let (intent, roles) = (context.intent, &context.node.roles);
    let mut ports = Vec::new();
    if roles.contains(&Role::ControlPlane) {
        ports.push(OpenPort::tcp(6443, Reach::Clients, "the API server"));
    }
    if intent.nodes.len() > 1 {
        if roles.contains(&Role::Etcd) && matches!(intent.etcd, EtcdPlace::Nodes) {
            ports.push(OpenPort::tcp_range(2379, 2380, Reach::Nodes, "etcd"));
        }
        ports.push(OpenPort::tcp(10250, Reach::Nodes, "kubelet"));
        ports.extend(between_pods(&intent.network));
    }
    ports.extend(
        ingress(context)
            .into_iter()
            .map(|port| OpenPort::tcp(port, Reach::Clients, "the ingress controller")),
    );
    ports
}

/// How the packets of pods travel from node to node.
fn between_pods(network: &Network) -> Vec<OpenPort> {
    const PODS: &str = "traffic of pods";
    match network {
        Network::Flannel(flannel) => by_backend(&flannel.backend),
        Network::Canal(canal) => by_backend(&canal.backend),
        Network::Calico(_) => vec![
            OpenPort::tcp(179, Reach::Nodes, "calico's routes (BGP)"),
            OpenPort::tcp(5473, Reach::Nodes, "calico's Typha"),
            OpenPort {
                protocol: Protocol::IpInIp,
                ports: (0, 0),
                from: Reach::Nodes,
                what: PODS,
            },
        ],
        Network::None => Vec::new(),
    }
}

fn by_backend(backend: &Backend) -> Vec<OpenPort> {
    const PODS: &str = "traffic of pods";
    match backend.kind.as_str() {
        "vxlan" => vec![OpenPort::udp(backend.port, PODS)],
        "udp" => vec![OpenPort::udp(8285, PODS)],
        "wireguard" => vec![OpenPort::udp(51820, PODS)],
        "ipip" => vec![OpenPort {
            protocol: Protocol::IpInIp,
            ports: (0, 0),
            from: Reach::Nodes,
            what: PODS,
        }],
        _ => Vec::new(),
    }
}

/// The ports of this node that the ingress controller takes.
fn ingress(context: &HostContext<'_>) -> BTreeSet<u16> {
    let (Ingress::Nginx(options) | Ingress::Traefik(options)) = &context.intent.ingress else {
        return BTreeSet::new();
    };
    let labels = node::meta(context.node).labels;
    let here = context.node.roles.contains(&Role::Worker)
        && node::is_selected(&labels, &options.node_selector);
    if !here || options.network_mode == NetworkMode::None {
        return BTreeSet::new();
    }
    let told = |flag: &str, port: u16| {
        let told = options.extra_args.get(flag);
        told.and_then(|text| text.parse().ok()).unwrap_or(port)
    };
    [
        told("http-port", options.http_port),
        told("https-port", options.https_port),
    ]
    .into()
}

fn modules(network: &Network) -> BTreeSet<String> {
    let backend = match network {
        Network::Flannel(flannel) => Some(&flannel.backend),
        Network::Canal(canal) => Some(&canal.backend),
        Network::Calico(_) | Network::None => None,
    };
    let vxlan = backend.filter(|backend| backend.kind == "vxlan");
    let vxlan = vxlan.map(|_| "vxlan");
    RULES.into_iter().chain(vxlan).map(str::to_owned).collect()
}
