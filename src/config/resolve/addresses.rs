//! Where nodes are: addresses that SSH and other nodes can reach, each of one node.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{Found, nodes::Named, values};
use crate::config::{cursor::Cursor, intent::Services, problem::Problem};

pub(super) fn check(at: &Cursor<'_>, address: &str, found: &mut Found) {
    if values::is_host(address) {
        if address.parse().is_ok_and(is_of_no_machine) {
            let problem = at.problem("is no address of a single machine");
            found.problem(problem.detail(address));
        }
        return;
    }
    let problem = at
        .problem("is neither a host name nor an IPv4 address")
        .detail(address);
    found.problem(if is_ipv6(address) {
        at.problem("IPv6 is not supported yet").detail(address)
    } else if address.contains('@') {
        problem.hint("write the user in `user`")
    } else if address.contains(':') {
        problem.hint("write the port in `port`")
    } else {
        problem
    });
}

/// `0.0.0.0`, and the addresses of multicast and broadcast.
const fn is_of_no_machine(address: Ipv4Addr) -> bool {
    address.is_unspecified() || address.is_multicast() || address.is_broadcast()
}

/// With a zone (`fe80::1%eth0`) and in brackets, too.
fn is_ipv6(text: &str) -> bool {
    let plain = text.trim_start_matches('[');
    let plain = plain.split([']', '%']).next().unwrap_or(plain);
    plain.parse::<Ipv6Addr>().is_ok()
}

pub(super) fn check_internal(at: &Cursor<'_>, internal: &str, found: &mut Found) {
    match internal.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) if address.is_loopback() || is_of_no_machine(address) => {
            let problem = at.problem("is no address at which other nodes reach this one");
            found.problem(problem.detail(internal).hint(
                "write the address of an interface of the node, one that `ip addr` shows there",
            ));
        }
        Ok(IpAddr::V4(_)) => {}
        Ok(IpAddr::V6(_)) => {
            found.problem(at.problem("IPv6 is not supported yet").detail(internal));
        }
        Err(_) if is_ipv6(internal) => {
            found.problem(at.problem("IPv6 is not supported yet").detail(internal));
        }
        Err(_) => found.problem(
            at.problem("must be an IPv4 address")
                .detail(internal)
                .hint("kubelet, etcd and the API server announce it; a name will not do"),
        ),
    }
}

/// Two nodes that `HostName` of the SSH config leads to one machine; of others [`unique`] tells.
pub(super) fn apart(nodes: &[Named<'_>], found: &mut Found) {
    let mut known: BTreeMap<_, &Named<'_>> = BTreeMap::new();
    for named in nodes {
        let endpoint = &named.node.endpoint;
        let place = (endpoint.address.to_lowercase(), endpoint.port);
        let Some(other) = known.insert(place, named) else {
            continue;
        };
        let is_led = |named: &Named<'_>| named.node.ssh_config.contains_key("HostName");
        if is_led(named) || is_led(other) {
            let address = named.at.get("address");
            let problem = address.problem(format!(
                "`HostName` of the SSH config leads to the same machine as `{}`",
                other.at.path()
            ));
            found.problem(problem.detail(endpoint.to_string()));
        }
    }
}

/// Two entries with one address or one name would configure the same machine twice. Behind one public address, where a
/// port leads to each of them, they are told apart by their internal addresses.
pub(super) fn unique(items: &[Cursor<'_>], found: &mut Found) {
    let mut addresses = BTreeMap::new();
    let mut endpoints: BTreeMap<String, Vec<&Cursor<'_>>> = BTreeMap::new();
    let mut names = BTreeMap::new();
    for item in items {
        let text = |key| item.get(key).scalar().unwrap_or_default().to_lowercase();
        let (address, internal, written) = (
            text("address"),
            text("internal_address"),
            text("hostname_override"),
        );
        let others = endpoints.entry(address.clone()).or_default();
        let other = others.first().copied().filter(|_| !address.is_empty());
        others.push(item);
        let at = item.get("address");
        match other {
            Some(_) if others.iter().all(|one| is_apart(one)) && apart_ports(others) => {}
            Some(other) => {
                found.problem(taken(&at, other, "address").detail(address.clone()).hint(
                    "list each node once; nodes behind one address need a `port` each, an `internal_address` and a \
                     `hostname_override`",
                ));
                continue;
            }
            None => {
                if let Some(other) = addresses.get(&address).filter(|_| !address.is_empty()) {
                    found.problem(taken(&at, other, "address").detail(address.clone()));
                    continue;
                }
            }
        }
        // One without an internal address is reached from the others by this one.
        if !address.is_empty() && (internal.is_empty() || internal == address) {
            addresses.insert(address.clone(), item.clone());
        }
        let at = item.get("internal_address");
        if !internal.is_empty() && internal != address {
            let by_address = endpoints
                .get(&internal)
                .and_then(|items| items.first().copied());
            let other = addresses.get(&internal).or(by_address);
            if let Some(other) = other {
                found.problem(taken(&at, other, "address").detail(internal));
                continue;
            }
            addresses.insert(internal, item.clone());
        }
        let at = item.get("hostname_override");
        let name = if written.is_empty() { address } else { written };
        if name.is_empty() {
            continue;
        }
        if let Some(other) = names.get(&name) {
            found.problem(taken(&at, other, "name").detail(name));
        } else {
            names.insert(name, item.clone());
        }
    }
}

/// Whether a node has what tells it from others behind the same address.
fn is_apart(item: &Cursor<'_>) -> bool {
    let own = item.get("internal_address");
    let internal = own.scalar().filter(|text| !text.is_empty());
    internal.is_some() && internal != item.get("address").scalar()
}

fn apart_ports(items: &[&Cursor<'_>]) -> bool {
    let port = |item: &&Cursor<'_>| {
        let at = item.get("port");
        let text = at.scalar().filter(|text| !text.is_empty());
        text.unwrap_or("22").to_owned()
    };
    let ports: BTreeSet<String> = items.iter().map(port).collect();
    ports.len() == items.len()
}

/// Which one has it already.
fn taken(at: &Cursor<'_>, other: &Cursor<'_>, what: &str) -> Problem {
    let line = other.line().map(|line| format!(" (line {line})"));
    at.problem(format!(
        "`{}`{} has this {what}, too",
        other.path(),
        line.unwrap_or_default()
    ))
}

/// A node whose address lies among those of pods or services could not be reached from either.
pub(super) fn outside_of_ranges(nodes: &[Named<'_>], services: &Services, found: &mut Found) {
    for Named { node, at, name: _ } in nodes {
        let own = node
            .has_internal_address
            .then(|| node.internal_address.ip())
            .flatten();
        let addresses = [
            ("address", node.endpoint.address.parse().ok()),
            ("internal_address", own),
        ];
        for (key, address) in addresses {
            let Some(address) = address else {
                continue;
            };
            for (range, owner) in [
                (
                    services.cluster_cidr,
                    "services.kube-controller.cluster_cidr",
                ),
                (
                    services.service_cluster_ip_range,
                    "service_cluster_ip_range",
                ),
            ] {
                if range.contains(&address) {
                    found.problem(
                        at.get(key)
                            .problem(format!("lies inside of `{owner}`"))
                            .detail(format!("{address} in {range}"))
                            .hint("pods, services and nodes need ranges of their own"),
                    );
                }
            }
        }
    }
}
