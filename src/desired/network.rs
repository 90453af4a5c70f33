//! What the network of a node has to be, by its roles, the network plugin and the ingress controller. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{host_context::HostContext, node};
use crate::{
    config::{Backend, Canal, Ingress, Intent, Network, NetworkMode, NodeIntent},
    facts::SystemFacts,
    model::{
        EtcdPlace, HostNetwork, NodeName, OpenPort, PeerPort, Plugin, PodPackets, Protocol, Range,
        RangeOf, Reach, Role, Secret,
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
        plugin: match intent.network {
            Network::Flannel(_) => Some(Plugin::Flannel),
            Network::Canal(_) => Some(Plugin::Canal),
            Network::Calico(_) => Some(Plugin::Calico),
            Network::None => None,
        },
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

/// How the packets of pods travel from node to node, and what else the plugin's pods on nodes dial.
fn between_pods(network: &Network) -> Vec<OpenPort> {
    let dialled =
        dialled_by_plugin(network).map(|(port, what)| OpenPort::tcp(port, Reach::Nodes, what));
    let tunnels = tunnels(network).into_iter().map(|tunnel| match tunnel {
        Tunnel::Vxlan(port) | Tunnel::Wireguard(port) | Tunnel::Udp(port) => {
            OpenPort::udp(port, OpenPort::OF_PODS)
        }
        Tunnel::IpInIp => OpenPort {
            protocol: Protocol::IpInIp,
            ports: (0, 0),
            from: Reach::Nodes,
            what: OpenPort::OF_PODS,
        },
    });
    dialled.chain(tunnels).collect()
}

/// The TCP ports of each node that the network plugin dials from every other, and what for.
fn dialled_by_plugin(network: &Network) -> impl Iterator<Item = (u16, &'static str)> + use<> {
    let (bgp, typha) = match network {
        Network::Calico(calico) => (with_bgp(&values(calico.values.as_ref())), true),
        Network::Flannel(_) | Network::Canal(_) | Network::None => (false, false),
    };
    let bgp = bgp.then_some((179, "calico's routes (BGP)"));
    let typha = typha.then_some((5473, "calico's Typha"));
    bgp.into_iter().chain(typha)
}

/// How packets of pods are wrapped on their way to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tunnel {
    /// In datagrams to this port.
    Vxlan(u16),
    /// In datagrams to this port, encrypted.
    Wireguard(u16),
    /// In datagrams to this port, by flanneld itself.
    Udp(u16),
    /// In packets of IP.
    IpInIp,
}

impl Tunnel {
    /// What it adds to each packet, in bytes.
    const fn adds(self) -> u32 {
        match self {
            Self::Vxlan(_) => 50,
            Self::Wireguard(_) => 60,
            Self::Udp(_) => 28,
            Self::IpInIp => 20,
        }
    }

    /// The module of the kernel that it is made with, where the kernel makes it.
    const fn module(self) -> Option<&'static str> {
        match self {
            Self::Vxlan(_) => Some("vxlan"),
            Self::Wireguard(_) => Some("wireguard"),
            Self::Udp(_) => None,
            Self::IpInIp => Some("ipip"),
        }
    }
}

/// None where packets of pods travel as they are.
fn tunnels(network: &Network) -> Vec<Tunnel> {
    match network {
        Network::Flannel(flannel) => of_flannel(&flannel.backend).into_iter().collect(),
        Network::Canal(canal) => of_flannel(&of_canal(canal)).into_iter().collect(),
        Network::Calico(calico) => of_calico(&values(calico.values.as_ref())),
        Network::None => Vec::new(),
    }
}

fn of_flannel(backend: &Backend) -> Option<Tunnel> {
    match backend.kind.as_str() {
        "vxlan" => Some(Tunnel::Vxlan(backend.port)),
        "udp" => Some(Tunnel::Udp(8285)),
        "wireguard" => Some(Tunnel::Wireguard(51820)),
        "ipip" => Some(Tunnel::IpInIp),
        _ => None,
    }
}

/// The user's values are laid over those of the options.
fn of_canal(canal: &Canal) -> Backend {
    let values = values(canal.values.as_ref());
    let flannel = &values["flannel"];
    let mut backend = canal.backend.clone();
    if let Some(kind) = flannel["backend"].as_str() {
        kind.clone_into(&mut backend.kind);
    }
    match port(&flannel["backendPort"]) {
        Some(0) => backend.port = Backend::default().port,
        Some(port) => backend.port = port,
        None => {}
    }
    backend
}

/// IP in IP, unless the user's values say otherwise. Without BGP calico's own choice is VXLAN.
fn of_calico(values: &Value) -> Vec<Tunnel> {
    let usual = if with_bgp(values) { "IPIP" } else { "VXLAN" };
    let network = &values["installation"]["calicoNetwork"];
    let pools = network["ipPools"].as_array();
    let kinds: Vec<&str> = pools.map_or_else(
        || vec!["IPIP"],
        |pools| {
            let kinds = pools.iter();
            let kinds = kinds.map(|pool| pool["encapsulation"].as_str().unwrap_or(usual));
            kinds.collect()
        },
    );
    let felix = &values["felixConfiguration"];
    // `CrossSubnet` wraps some packets.
    let has = |kind: &str| kinds.iter().any(|it| it.starts_with(kind));
    let vxlan = has("VXLAN").then(|| Tunnel::Vxlan(port(&felix["vxlanPort"]).unwrap_or(4789)));
    let ipip = has("IPIP").then_some(Tunnel::IpInIp);
    let encrypted = felix["wireguardEnabled"].as_bool() == Some(true);
    let listens = port(&felix["wireguardListeningPort"]).unwrap_or(51820);
    let wireguard = encrypted.then_some(Tunnel::Wireguard(listens));
    vxlan.into_iter().chain(ipip).chain(wireguard).collect()
}

fn with_bgp(values: &Value) -> bool {
    values["installation"]["calicoNetwork"]["bgp"] != "Disabled"
}

/// The user's values for a chart; null where there are none.
fn values(values: Option<&Secret<String>>) -> Value {
    let text = values.map_or("", |values| values.expose());
    serde_json::from_str(text).unwrap_or_default()
}

fn port(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| port.try_into().ok())
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

/// Of those that the survey looks for: all, but for those of tunnels that there are not.
fn modules(network: &Network) -> BTreeSet<String> {
    let tunnels = tunnels(network);
    let needed = SystemFacts::NEEDED_MODULES.into_iter().filter(|module| {
        let is_its = |tunnel: &Tunnel| tunnel.module() == Some(module);
        !SystemFacts::TUNNEL_MODULES.contains(module) || tunnels.iter().any(is_its)
    });
    needed.map(str::to_owned).collect()
}

/// Of the plugins that do not look at the nodes' interfaces.
fn packets(network: &Network) -> Option<PodPackets> {
    let mtu = match network {
        Network::Canal(canal) => canal.mtu.unwrap_or(CANAL_MTU),
        Network::Calico(calico) => calico.mtu?,
        Network::Flannel(_) | Network::None => return None,
    };
    let tunnel = tunnels(network).into_iter().map(Tunnel::adds).max();
    Some(PodPackets {
        mtu,
        tunnel: tunnel.unwrap_or(0),
    })
}

/// How many ports of others a node tries: those of a very large cluster are alike.
const TRIED: usize = 100;

/// The TCP ports that each node must reach on other nodes and did not need before, by the roles that nodes had: none for
/// a new node. UDP is tried by `doctor`. IP in IP has no ports that could be tried: the traffic of pods shows whether it
/// passes.
pub fn peers<'a>(
    intent: &Intent,
    had: impl Fn(&NodeName) -> Option<&'a [Role]>,
) -> BTreeMap<NodeName, BTreeSet<PeerPort>> {
    let roles = |name| Some((name, had(name)?.iter().copied().collect()));
    let roles: BTreeMap<&NodeName, BTreeSet<Role>> =
        intent.nodes.keys().filter_map(roles).collect();
    let changed = intent.nodes.iter();
    let changed = changed.filter(|(name, node)| roles.get(name) != Some(&node.roles));
    let changed: BTreeSet<&NodeName> = changed.map(|(name, _)| name).collect();
    let of = |(name, node): (&NodeName, &NodeIntent)| {
        let others = intent.nodes.iter().filter(|(other, _)| *other != name);
        // The others need what they needed before.
        let pairs = others.filter(|(other, _)| changed.contains(name) || changed.contains(other));
        let ports = pairs.flat_map(|(other, at)| {
            let before: BTreeSet<u16> = match (roles.get(name), roles.get(other)) {
                (Some(from), Some(to)) => dialled(intent, from, to).collect(),
                _ => BTreeSet::new(),
            };
            let now = dialled(intent, &node.roles, &at.roles);
            let more = now.filter(move |port| !before.contains(port));
            more.map(|port| PeerPort {
                address: at.internal_address.to_string(),
                port,
            })
        });
        (name.clone(), ports.take(TRIED).collect::<BTreeSet<_>>())
    };
    let all = intent.nodes.iter().map(of);
    all.filter(|(_, ports)| !ports.is_empty()).collect()
}

/// The ports of a node with roles that one with others dials.
fn dialled(
    intent: &Intent,
    from: &BTreeSet<Role>,
    to: &BTreeSet<Role>,
) -> impl Iterator<Item = u16> + use<> {
    let plane = from.contains(&Role::ControlPlane);
    let member = matches!(intent.etcd, EtcdPlace::Nodes);
    let clients = member && to.contains(&Role::Etcd) && plane;
    let both = |role| from.contains(&role) && to.contains(&role);
    let peers = member && both(Role::Etcd);
    // A control plane uses its local API server.
    let api = to.contains(&Role::ControlPlane) && !plane;
    let of_plugin = dialled_by_plugin(&intent.network).map(|(port, _)| port);
    [
        (peers || clients, 2379),
        (peers, 2380),
        (api, 6443),
        (plane, 10250),
    ]
    .into_iter()
    .filter_map(|(dials, port)| dials.then_some(port))
    .chain(of_plugin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::fixture;

    const PLANE: &[Role] = &[Role::ControlPlane, Role::Etcd];
    const NODES: [(&str, &str, &[Role]); 4] = [
        ("c1", "10.0.0.1", PLANE),
        ("e2", "10.0.0.2", &[Role::Etcd]),
        ("w3", "10.0.0.3", &[Role::Worker]),
        ("w4", "10.0.0.4", &[Role::Worker]),
    ];

    /// The ports that a node tries, as `address/port`, where these nodes are new.
    fn tried(new: &[&str]) -> BTreeMap<String, Vec<String>> {
        tried_in(&NODES, new)
    }

    fn tried_in(nodes: &[(&str, &str, &[Role])], new: &[&str]) -> BTreeMap<String, Vec<String>> {
        let had = |name: &NodeName| {
            let known = NODES.iter().find(|(it, ..)| *it == name.0)?;
            (!new.contains(&known.0)).then_some(known.2)
        };
        let text = |ports: BTreeSet<PeerPort>| ports.iter().map(ToString::to_string).collect();
        let tried = peers(&fixture::intent_of(nodes), had).into_iter();
        tried.map(|(name, ports)| (name.0, text(ports))).collect()
    }

    /// Those that the node needed before carry the cluster's traffic already.
    #[test]
    fn a_role_that_a_node_is_given_brings_its_ports() {
        let mut nodes = NODES;
        nodes[2].2 = PLANE;
        let tried = tried_in(&nodes, &[]);
        let of = |name: &str| tried.get(name).map(|ports| ports.join(" "));
        let (c1, e2, w3, w4) = (of("c1"), of("e2"), of("w3"), of("w4"));
        assert_eq!(c1.as_deref(), Some("10.0.0.3/2379 10.0.0.3/2380"));
        assert_eq!(
            e2.as_deref(),
            Some("10.0.0.3/2379 10.0.0.3/2380 10.0.0.3/6443")
        );
        let dials = "10.0.0.1/2379 10.0.0.1/2380 10.0.0.1/10250 10.0.0.2/2379 10.0.0.2/2380 10.0.0.2/10250 \
                     10.0.0.4/10250";
        assert_eq!(w3.as_deref(), Some(dials));
        assert_eq!(w4.as_deref(), Some("10.0.0.3/6443"));
        assert_eq!(tried_in(&NODES, &[]), [].into());
    }

    /// What a firewall lets in between nodes, with these values of the chart.
    fn between(network: &Network) -> String {
        let ports = between_pods(network);
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        ports.join(" ")
    }

    fn calico(values: &str) -> Network {
        Network::Calico(Box::new(crate::config::Calico {
            values: Some(Secret::new(values.to_owned())),
            ..crate::config::Calico::default()
        }))
    }

    #[test]
    fn the_ports_between_nodes_are_those_of_how_packets_travel() {
        let flannel = |kind: &str| {
            let backend = Backend {
                kind: kind.to_owned(),
                ..Backend::default()
            };
            let flannel = crate::config::Flannel {
                backend,
                ..crate::config::Flannel::default()
            };
            between(&Network::Flannel(Box::new(flannel)))
        };
        let kinds = ["vxlan", "udp", "wireguard", "ipip", "host-gw"];
        let found = kinds.map(flannel);
        assert_eq!(found, ["8472/udp", "8285/udp", "51820/udp", "ipip", ""]);
        let canal = |values: &str| {
            between(&Network::Canal(Box::new(Canal {
                values: Some(Secret::new(values.to_owned())),
                ..Canal::default()
            })))
        };
        assert_eq!(canal("{}"), "8472/udp");
        assert_eq!(canal(r#"{"flannel": {"backendPort": 4789}}"#), "4789/udp");
        assert_eq!(canal(r#"{"flannel": {"backend": "host-gw"}}"#), "");
        assert_eq!(between(&Network::None), "");
    }

    #[test]
    fn the_values_of_calico_decide_how_packets_travel() {
        let pool = |kind: &str, more: &str| {
            format!(
                r#"{{"installation": {{"calicoNetwork": {{"ipPools": [{{"cidr": "10.42.0.0/16"{kind}}}]{more}}}}}}}"#
            )
        };
        let vxlan = r#", "encapsulation": "VXLANCrossSubnet""#;
        let none = r#", "encapsulation": "None""#;
        let without = r#", "bgp": "Disabled""#;
        for (values, ports) in [
            ("{}".to_owned(), "179/tcp 5473/tcp ipip"),
            (pool(vxlan, ""), "179/tcp 5473/tcp 4789/udp"),
            (pool(vxlan, without), "5473/tcp 4789/udp"),
            (pool("", without), "5473/tcp 4789/udp"),
            (pool(none, ""), "179/tcp 5473/tcp"),
            (
                r#"{"felixConfiguration": {"wireguardEnabled": true}}"#.to_owned(),
                "179/tcp 5473/tcp ipip 51820/udp",
            ),
        ] {
            assert_eq!(between(&calico(&values)), ports, "{values}");
        }
        let needs = |network: &Network, module: &str| modules(network).contains(module);
        let (ipip, vxlan) = (calico("{}"), calico(&pool(vxlan, "")));
        assert!(needs(&ipip, "ipip") && !needs(&ipip, "vxlan"));
        assert!(needs(&vxlan, "vxlan") && !needs(&vxlan, "ipip"));
        assert!(needs(&Network::None, "xt_mark") && !needs(&Network::None, "vxlan"));
    }

    #[test]
    fn nodes_try_the_ports_of_calico_in_both_directions() {
        let mut intent = fixture::intent_of(&[
            ("c1", "10.0.0.1", &[Role::ControlPlane, Role::Etcd]),
            ("w2", "10.0.0.2", &[Role::Worker]),
        ]);
        intent.network = Network::Calico(Box::default());
        let tried = peers(&intent, |_| None);
        let text = |name: &str| {
            let ports = tried[&NodeName::from(name)].iter();
            ports.map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            text("c1"),
            ["10.0.0.2/179", "10.0.0.2/5473", "10.0.0.2/10250"]
        );
        assert_eq!(
            text("w2"),
            ["10.0.0.1/179", "10.0.0.1/5473", "10.0.0.1/6443"]
        );
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
