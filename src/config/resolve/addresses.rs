//! Where nodes are: addresses that SSH and other nodes can reach, each of one node.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use super::{Found, nodes::Named};
use crate::{
    config::{
        cursor::Cursor,
        intent::Services,
        problem::Problem,
        ssh_config::{SshHost, SshJump},
        ssh_names::{ipv6, is_dialled, plain},
    },
    model::Role,
};

/// Where SSH dials a machine whose `address` is at `at`: `HostName` of the SSH config, else the address. `None`: a
/// problem says why it is not dialled.
pub(super) fn dialled(
    at: &Cursor<'_>,
    address: &str,
    ssh: Option<&SshHost>,
    found: &mut Found,
) -> Option<String> {
    if let Some(why) = ssh.and_then(|ssh| ssh.no_place.as_ref()) {
        found.problem(at.problem("the SSH config has no usable `HostName` for it").detail(why).hint(
            "correct it in the SSH config, write the address itself here, or use `--no-ssh-config` (a `Cluster` has no SSH config)",
        ));
        return None;
    }
    let named = ssh.and_then(|ssh| ssh.host_name.as_deref());
    let place = named.map_or_else(|| plain(address), Cow::Borrowed);
    if !is_dialled(&place) {
        not_dialled(at, address, found);
        return None;
    }
    let Some((message, hint)) = of_no_machine(&place) else {
        return Some(place.into_owned());
    };
    let problem = at.problem(message).detail(place);
    found.problem(Problem {
        hint: hint.map(str::to_owned),
        ..problem
    });
    None
}

/// The same of a machine that only `ProxyJump` names; `at`: the address of what is reached through it.
pub(super) fn of_jump(
    at: &Cursor<'_>,
    jump: &SshJump,
    ssh: &SshHost,
    found: &mut Found,
) -> Option<String> {
    let place = ssh.host_name.as_ref().unwrap_or(&jump.address);
    let why = match (&ssh.no_place, of_no_machine(place)) {
        (Some(why), _) => why.clone(),
        (None, _) if !is_dialled(place) => {
            format!("`{place}` is neither a host name nor an IP address")
        }
        (None, Some((why, _))) => format!("`{place}` {why}"),
        (None, None) => return Some(place.clone()),
    };
    let problem =
        at.problem("`ProxyJump` of the SSH config names a machine that cannot be dialled");
    found.problem(problem.detail(format!("of `{}`: {why}", jump.address)).hint(
        "correct its `HostName` in the SSH config, write `bastion_host`, or use `--no-ssh-config` (a `Cluster` has no SSH config)",
    ));
    None
}

/// What is wrong with an address that no machine has, and the cure, where there is one.
fn of_no_machine(place: &str) -> Option<(&'static str, Option<&'static str>)> {
    match ipv6(place) {
        Some((ip, _)) if ip.is_unspecified() || ip.is_multicast() => Some((NO_MACHINE, None)),
        Some((ip, None)) if ip.is_unicast_link_local() => Some((
            "is a link-local address without its interface",
            Some(
                "write the interface of the machine that dials it behind the address: `fe80::1%eth0`",
            ),
        )),
        None if place.parse().is_ok_and(has_no_machine) => Some((NO_MACHINE, None)),
        Some(_) | None => None,
    }
}

const NO_MACHINE: &str = "is no address of a single machine";

fn not_dialled(at: &Cursor<'_>, address: &str, found: &mut Found) {
    let problem = at
        .problem("is neither a host name nor an IP address")
        .detail(address);
    found.problem(if address.contains('@') {
        problem.hint("write the user in `user`")
    } else if address.contains(':') {
        problem.hint("write the port in `port`")
    } else {
        problem
    });
}

/// SSH may use IPv6; the cluster itself has IPv4 addresses. `dialled`: where SSH dials the node.
pub(super) fn check_family(
    node: &Cursor<'_>,
    dialled: &str,
    internal: Option<&str>,
    roles: &BTreeSet<Role>,
    found: &mut Found,
) {
    let Some((_, zone)) = ipv6(dialled) else {
        return;
    };
    let at = node.get("address");
    if internal.is_none() {
        let problem = at.problem("is an IPv6 address, which only SSH can use");
        found.problem(problem.detail(dialled).hint(
            "write the node's IPv4 address, at which other nodes reach it, in `internal_address`",
        ));
    }
    if zone.is_some() && roles.contains(&Role::ControlPlane) {
        let problem = at.problem(
            "is a link-local address, at which clients of the API server do not reach a control plane",
        );
        found.problem(problem.detail(dialled).hint(
            "write an address that is valid beyond the link; nodes without the role `controlplane` may have this one",
        ));
    }
}

/// `0.0.0.0`, and the addresses of multicast and broadcast.
const fn has_no_machine(address: Ipv4Addr) -> bool {
    address.is_unspecified() || address.is_multicast() || address.is_broadcast()
}

pub(super) fn check_internal(at: &Cursor<'_>, internal: &str, found: &mut Found) {
    match internal.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) if address.is_loopback() || has_no_machine(address) => {
            let problem = at.problem("is no address at which other nodes reach this one");
            found.problem(problem.detail(internal).hint(
                "write the address of an interface of the node, one that `ip addr` shows there",
            ));
        }
        Ok(IpAddr::V4(_)) => {}
        Ok(IpAddr::V6(_)) => found.problem(only_ipv4(at, internal)),
        Err(_) if ipv6(internal).is_some() => found.problem(only_ipv4(at, internal)),
        Err(_) => found.problem(
            at.problem("must be an IPv4 address")
                .detail(internal)
                .hint("kubelet, etcd and the API server advertise it: a host name cannot be used"),
        ),
    }
}

fn only_ipv4(at: &Cursor<'_>, internal: &str) -> Problem {
    let problem = at.problem("IPv6 is not supported yet within a cluster");
    problem
        .detail(internal)
        .hint("write the node's IPv4 address; `address`, which SSH dials, may be of IPv6")
}

/// Two nodes that `HostName` of the SSH config leads to one machine; of others [`unique`] tells.
pub(super) fn apart(nodes: &[Named<'_>], found: &mut Found) {
    let mut known: BTreeMap<_, &Named<'_>> = BTreeMap::new();
    for named in nodes {
        let endpoint = &named.node.endpoint;
        let address = endpoint.address.to_lowercase();
        let address = address
            .strip_suffix('.')
            .map_or(address.clone(), str::to_owned);
        let place = (address, endpoint.port);
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

/// Two entries with the same address or name would configure one machine twice. Nodes behind one public address, each
/// with a forwarded port, are distinguished by their internal addresses.
pub(super) fn unique(items: &[Cursor<'_>], found: &mut Found) {
    let mut addresses = BTreeMap::new();
    let mut endpoints: BTreeMap<String, Vec<&Cursor<'_>>> = BTreeMap::new();
    let mut names = BTreeMap::new();
    for item in items {
        // `n1.` and `n1` are one machine, and one name.
        let text = |key| {
            let text = plain(item.get(key).scalar().unwrap_or_default());
            text.strip_suffix('.').unwrap_or(&text).to_lowercase()
        };
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
                            .hint("pods, services and nodes need separate ranges"),
                    );
                }
            }
        }
    }
}
