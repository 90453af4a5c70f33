//! What the network of a node has to be, by its roles, the network plugin and the ingress controller. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::{host_context::HostContext, node};
use crate::{
    config::{Backend, Ingress, Intent, Network, NetworkMode, NodeIntent},
    facts::SystemFacts,
    model::{
        EtcdPlace, HostNetwork, NodeName, OpenPort, PeerPort, PodPackets, Protocol, Range, RangeOf,
        Reach, Role,
    },
};

/// The MTU of pods with canal, where the config names none.
pub(super) const CANAL_MTU: u32 = 1450;

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
        packets: packets(&intent.network),
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
    const PODS: &str = OpenPort::OF_PODS;
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
    const PODS: &str = OpenPort::OF_PODS;
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

/// Of those that the survey looks for: all, but for the tunnel's where there is no such tunnel.
fn modules(network: &Network) -> BTreeSet<String> {
    let backend = match network {
        Network::Flannel(flannel) => Some(&flannel.backend),
        Network::Canal(canal) => Some(&canal.backend),
        Network::Calico(_) | Network::None => None,
    };
    let tunnel = backend.is_some_and(|backend| backend.kind == "vxlan");
    let needed = SystemFacts::NEEDED_MODULES.into_iter();
    let needed = needed.filter(|module| tunnel || *module != "vxlan");
    needed.map(str::to_owned).collect()
}

/// Of the plugins that do not look at the nodes' interfaces.
fn packets(network: &Network) -> Option<PodPackets> {
    let (mtu, backend) = match network {
        Network::Canal(canal) => (canal.mtu.unwrap_or(CANAL_MTU), canal.backend.kind.as_str()),
        Network::Calico(calico) => (calico.mtu?, "ipip"),
        Network::Flannel(_) | Network::None => return None,
    };
    let tunnel = match backend {
        "vxlan" => 50,
        "wireguard" => 60,
        "udp" => 28,
        "ipip" => 20,
        _ => 0,
    };
    Some(PodPackets { mtu, tunnel })
}

/// How many ports of others a node tries: those of a very large cluster are alike.
const TRIED: usize = 100;

/// The TCP ports that each node must reach on other nodes, for the pairs with a new node. UDP is tried by
/// `doctor`, and IP in IP later, by the traffic of pods.
pub fn peers(
    intent: &Intent,
    is_new: impl Fn(&NodeName) -> bool,
) -> BTreeMap<NodeName, BTreeSet<PeerPort>> {
    let of = |(name, node): (&NodeName, &NodeIntent)| {
        let others = intent.nodes.iter().filter(|(other, _)| *other != name);
        let pairs = others.filter(|(other, _)| is_new(name) || is_new(other));
        let ports = pairs.flat_map(|(_, other)| {
            dialled(intent, node, other).map(|port| PeerPort {
                address: other.internal_address.to_string(),
                port,
            })
        });
        (name.clone(), ports.take(TRIED).collect::<BTreeSet<_>>())
    };
    let all = intent.nodes.iter().map(of);
    all.filter(|(_, ports)| !ports.is_empty()).collect()
}

/// The ports of one node that the other dials.
fn dialled<'a>(
    intent: &Intent,
    from: &'a NodeIntent,
    to: &'a NodeIntent,
) -> impl Iterator<Item = u16> + use<'a> {
    let plane = from.roles.contains(&Role::ControlPlane);
    let member = matches!(intent.etcd, EtcdPlace::Nodes);
    let clients = member && to.roles.contains(&Role::Etcd) && plane;
    let both = |role| from.roles.contains(&role) && to.roles.contains(&role);
    let peers = member && both(Role::Etcd);
    // A control plane uses its local API server.
    let api = to.roles.contains(&Role::ControlPlane) && !plane;
    [
        (peers || clients, 2379),
        (peers, 2380),
        (api, 6443),
        (plane, 10250),
    ]
    .into_iter()
    .filter_map(|(dials, port)| dials.then_some(port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::fixture;

    /// The ports that a node tries, as `address/port`.
    fn tried(new: &[&str]) -> BTreeMap<String, Vec<String>> {
        let intent = fixture::intent_of(&[
            ("c1", "10.0.0.1", &[Role::ControlPlane, Role::Etcd]),
            ("e2", "10.0.0.2", &[Role::Etcd]),
            ("w3", "10.0.0.3", &[Role::Worker]),
            ("w4", "10.0.0.4", &[Role::Worker]),
        ]);
        let is_new = |name: &NodeName| new.contains(&name.0.as_str());
        let text = |ports: BTreeSet<PeerPort>| ports.iter().map(ToString::to_string).collect();
        let tried = peers(&intent, is_new).into_iter();
        tried.map(|(name, ports)| (name.0, text(ports))).collect()
    }

    fn words(pairs: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
        let words = |ports: &[&str]| ports.iter().map(|port| (*port).to_owned()).collect();
        let pairs = pairs.iter();
        pairs
            .map(|(name, ports)| ((*name).to_owned(), words(ports)))
            .collect()
    }

    #[test]
    fn nodes_try_the_ports_that_they_will_dial_where_one_of_the_two_is_new() {
        assert_eq!(tried(&[]), words(&[]));
        let of_plane: &[&str] = &[
            "10.0.0.2/2379",
            "10.0.0.2/2380",
            "10.0.0.2/10250",
            "10.0.0.3/10250",
            "10.0.0.4/10250",
        ];
        assert_eq!(
            tried(&["c1", "e2", "w3", "w4"]),
            words(&[
                ("c1", of_plane),
                ("e2", &["10.0.0.1/2379", "10.0.0.1/2380", "10.0.0.1/6443"]),
                ("w3", &["10.0.0.1/6443"]),
                ("w4", &["10.0.0.1/6443"]),
            ])
        );
        assert_eq!(
            tried(&["w4"]),
            words(&[("c1", &["10.0.0.4/10250"]), ("w4", &["10.0.0.1/6443"])])
        );
    }
}
