//! The addresses of the config, compared with those that a node has: its own, those of its name, its routes. Pure.
//! A range of the cluster that is already another network takes that network from the node, or the cluster's
//! from its pods; it is found in no log later.

use std::net::IpAddr;

use super::{PreflightError, mounts, selinux};
use crate::{
    desired::DesiredHost,
    error::ErrorClass,
    facts::{HostFacts, Route, SystemFacts},
    model::{Component, HostAddress, HostNetwork, NodeName, Range, RangeOf, quoted, quoted_first},
};

/// Links that a cluster made, this one or one before it.
const OF_CLUSTERS: [&str; 9] = [
    "cni",
    "flannel",
    "cali",
    "vxlan.calico",
    "vxlan-v6.calico",
    "tunl",
    "kube-",
    "nodelocaldns",
    "wireguard.cali",
];

/// The `internal_address` is one of the node's own: components bind it and announce it.
pub(super) fn address(
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Option<PreflightError> {
    let address = elsewhere(host, facts)?;
    if host.network.key != "internal_address" {
        return None;
    }
    Some(user(
        name,
        format!(
            "node `{name}` does not have {address}, its `internal_address`: its own are {}",
            quoted_first(5, &facts.system.addresses)
        ),
        "set `internal_address` to the address of the node's own at which the other nodes reach it",
    ))
}

/// The address by which the others know it, where the node does not have it, and nothing runs with it yet: what
/// does goes on.
fn elsewhere(host: &DesiredHost, facts: &HostFacts) -> Option<IpAddr> {
    let system = &facts.system;
    let address = host.network.address.as_ref()?.ip()?;
    let known = !system.addresses.is_empty();
    (known && !has(system, address) && !runs_with(facts, address)).then_some(address)
}

/// What is worth a look before the node joins: an address or a name by which the others know it, and which the
/// node itself does not have.
pub(in crate::plan) fn doubts(host: &DesiredHost, facts: &HostFacts) -> Vec<String> {
    let own = quoted_first(5, &facts.system.addresses);
    let member = host.containers.contains_key(&Component::Etcd);
    let outer = elsewhere(host, facts).filter(|_| host.network.key == "address");
    let peers = host.network.ports.iter().any(|port| port.ports.0 == 2379);
    let outer = outer.filter(|_| member && peers).map(|address| {
        format!(
            "{address}, the `address` of this member of etcd, is not one of the node's ({own}): where the other \
             members see its packets come from one of these, they refuse them. `internal_address` names the one at \
             which the nodes reach each other"
        )
    });
    outer
        .into_iter()
        .chain(name_elsewhere(host, facts))
        .chain(too_long(&host.network, &facts.system))
        .chain(mounts::doubts(facts))
        .chain(selinux::doubts(&host.network, facts))
        .collect()
}

/// Packets of pods that do not fit through the interface to the other nodes vanish: connections are made, and hang
/// when they have much to say.
fn too_long(network: &HostNetwork, system: &SystemFacts) -> Option<String> {
    let packets = network.packets?;
    let own = network.address.as_ref().and_then(HostAddress::ip);
    let (interface, mtu) = system.way_out(own)?;
    let fits = mtu.saturating_sub(packets.tunnel);
    (fits < packets.mtu).then(|| {
        format!(
            "packets of pods are up to {} bytes long, and with {} for the tunnel they do not fit through `{interface}`, \
             whose MTU is {mtu}: write `mtu: {fits}` under `network` (or less, if another node has less)",
            packets.mtu, packets.tunnel
        )
    })
}

/// What is on the node's network already where the cluster is to be alone. Of a node that is no part of a cluster yet:
/// afterwards these routes are the cluster's.
pub(super) fn ranges(
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Vec<PreflightError> {
    let mut errors = Vec::new();
    for range in &host.network.ranges {
        let key = range.of.key();
        let hint = format!(
            "write another range as `{key}`, for example one of 10.0.0.0/8 that is in none of the nodes' networks; \
             it cannot be changed later"
        );
        let inside = own_addresses(&facts.system).find(|(_, ip)| range.net.contains(ip));
        if let Some((interface, ip)) = inside {
            errors.push(user(
                name,
                format!(
                    "node `{name}` has the address {ip} (`{interface}`), which lies in {}, the range of {}",
                    range.net, range.of
                ),
                &hint,
            ));
            continue;
        }
        if let Some(route) = facts.system.routes.iter().find(|it| conflicts(it, *range)) {
            errors.push(user(
                name,
                format!(
                    "node `{name}` has a route to {} ({}), which lies in {}, the range of {}: what is there could \
                     no longer be reached from the node, or {} not",
                    route.to,
                    way(route),
                    range.net,
                    range.of,
                    range.of
                ),
                &hint,
            ));
        }
    }
    errors
}

/// What the name that SSH dials means to the node itself, where that is none of its addresses.
fn name_elsewhere(host: &DesiredHost, facts: &HostFacts) -> Option<String> {
    let HostAddress::Name(dialled) = host.network.address.as_ref()? else {
        return None;
    };
    let system = &facts.system;
    let known = !system.resolved.is_empty() && !system.addresses.is_empty();
    let own = |ip: &IpAddr| ip.is_loopback() || has(system, *ip);
    (known && !system.resolved.iter().any(own)).then(|| {
        format!(
            "on this node `{dialled}` means {}, and none of these is an address of the node ({}): the components \
             dial that name",
            quoted(&system.resolved),
            quoted_first(5, &system.addresses)
        )
    })
}

fn user(name: &NodeName, message: String, hint: &str) -> PreflightError {
    PreflightError {
        node: Some(name.clone()),
        message,
        hints: vec![hint.to_owned()],
        class: ErrorClass::User,
    }
}

fn has(system: &SystemFacts, address: IpAddr) -> bool {
    let mut own = system.addresses.iter();
    own.any(|own| own.parse() == Ok(address)) || address.is_loopback()
}

/// True where a component of the node serves at this address already.
fn runs_with(facts: &HostFacts, address: IpAddr) -> bool {
    let text = address.to_string();
    let specs = facts.containers.values().filter_map(|it| it.runs.as_ref());
    specs
        .flat_map(|spec| &spec.command)
        .any(|word| word.contains(&text))
}

/// Those that no cluster gave it.
fn own_addresses(system: &SystemFacts) -> impl Iterator<Item = (&str, IpAddr)> {
    let interfaces = system.interfaces.iter();
    interfaces
        .filter(|(name, _)| !of_a_cluster(name))
        .flat_map(|(name, it)| it.addresses.iter().map(move |ip| (name.as_str(), *ip)))
}

fn of_a_cluster(interface: &str) -> bool {
    OF_CLUSTERS.iter().any(|start| interface.starts_with(start))
}

/// A wider route is none: those to the nodes' parts of the range are narrower. For Services a route that only leads
/// out of some interface is what a node without a way to everywhere needs.
fn conflicts(route: &Route, range: Range) -> bool {
    let is_a_network = match range.of {
        RangeOf::Pods => true,
        RangeOf::Services => route.via.is_some() || route.of_interface,
    };
    is_a_network
        && !route.device.is_empty()
        && !of_a_cluster(&route.device)
        && range.net.contains(&route.to)
}

fn way(route: &Route) -> String {
    match route.via {
        Some(via) => format!("via {via}, `{}`", route.device),
        None => format!("`{}`", route.device),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{facts::Interface, model::PodPackets};

    fn route(text: &str, via: Option<&str>, device: &str) -> Route {
        Route {
            to: text.parse().unwrap(),
            via: via.map(|via| via.parse().unwrap()),
            device: device.to_owned(),
            of_interface: false,
        }
    }

    #[test]
    fn packets_of_pods_that_do_not_fit_are_shown_with_the_length_that_does() {
        let told = |mtu: Option<u32>, packets: Option<(u32, u32)>| {
            let mut system = SystemFacts::default();
            let address: IpAddr = "192.0.2.7".parse().unwrap();
            let interface = Interface {
                mtu,
                addresses: [address].into(),
            };
            system.interfaces.insert("ens3".to_owned(), interface);
            system.route_address = Some(address.to_string());
            let network = HostNetwork {
                packets: packets.map(|(mtu, tunnel)| PodPackets { mtu, tunnel }),
                ..HostNetwork::default()
            };
            too_long(&network, &system)
        };
        let canal = Some((1450, 50));
        assert_eq!(told(Some(1500), canal), None);
        assert_eq!(told(Some(9000), canal), None);
        assert_eq!(told(None, canal), None);
        assert_eq!(told(Some(1400), None), None);
        let told = told(Some(1400), canal).unwrap();
        for words in ["`ens3`", "whose MTU is 1400", "`mtu: 1350` under `network`"] {
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn a_route_inside_a_range_is_somebodys_network() {
        let pods = Range {
            of: RangeOf::Pods,
            net: "10.42.0.0/16".parse().unwrap(),
        };
        let services = Range {
            of: RangeOf::Services,
            ..pods
        };
        let router = Some("192.0.2.1");
        for (route, of_pods, of_services) in [
            (route("10.42.7.0/24", router, "eth0"), true, true),
            (route("10.42.0.0/16", router, "eth0"), true, true),
            (route("10.42.0.0/16", None, "dummy0"), true, false),
            (route("10.42.7.9/32", router, "wg0"), true, true),
            (route("10.0.0.0/8", router, "eth0"), false, false),
            (route("10.43.0.0/24", router, "eth0"), false, false),
            (route("10.42.1.0/24", router, "flannel.1"), false, false),
            (route("10.42.1.0/26", router, "tunl0"), false, false),
            (route("10.42.1.0/26", None, ""), false, false),
            (route("fd00::/64", None, "eth0"), false, false),
        ] {
            assert_eq!(conflicts(&route, pods), of_pods, "{route:?}");
            assert_eq!(conflicts(&route, services), of_services, "{route:?}");
        }
    }
}
