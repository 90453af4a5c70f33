//! The config of a fleet, as a `cluster.yml` and as an object. Pure.

use std::{fmt::Write as _, net::Ipv4Addr};

use serde_json::{Value, json};

use crate::node::Fleet;

/// What a config says besides the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing.
    None,
    /// A flag for every kubelet.
    Flag,
}

/// How many nodes are control planes and have etcd, and nothing else.
pub(crate) const CENTRAL: usize = 3;

/// The name of a node.
pub(crate) fn name(number: usize) -> String {
    format!("n{number:04}")
}

/// Where a node's sshd is: an address of this machine's loopback for each.
pub(crate) fn address(number: usize) -> Ipv4Addr {
    let [.., high, low] = u32::try_from(number + 1).unwrap_or(u32::MAX).to_be_bytes();
    Ipv4Addr::new(127, 77, high, low)
}

/// The address that a node says it has in its cluster.
pub(crate) fn internal_address(number: usize) -> Ipv4Addr {
    let [.., high, low] = address(number).octets();
    Ipv4Addr::new(10, 77, high, low)
}

/// Where a node is for a client that dials no address of its own machine: a range that nothing else has.
pub(crate) fn outside(number: usize) -> Ipv4Addr {
    let [.., high, low] = u32::try_from(number + 1).unwrap_or(u32::MAX).to_be_bytes();
    Ipv4Addr::new(10, 78, high, low)
}

/// The config with the first so many nodes.
pub(crate) fn cluster_yml(nodes: usize, port: u16, change: Change) -> String {
    let mut yaml = String::from("nodes:\n");
    for number in 0..nodes {
        let role = if number < CENTRAL {
            "controlplane, etcd"
        } else {
            "worker"
        };
        let (name, at, internal) = (name(number), address(number), internal_address(number));
        let _ = writeln!(
            yaml,
            "  - {{address: {at}, internal_address: {internal}, port: {port}, user: rke, \
             hostname_override: {name}, role: [{role}]}}"
        );
    }
    // A node has 254 addresses for its pods: a fleet wants a wider range than the default.
    yaml.push_str(
        "ssh_key_path: ~/.ssh/id_rsa\nnetwork: {plugin: flannel}\ningress: {provider: none}\n\
         monitoring: {provider: none}\nservices:\n  \
         kube-controller: {cluster_cidr: 10.128.0.0/10, service_cluster_ip_range: 10.43.0.0/16}\n  \
         kube-api: {service_cluster_ip_range: 10.43.0.0/16}\n",
    );
    if change == Change::Flag {
        yaml.push_str("  kubelet: {extra_args: {max-pods: '120'}}\n");
    }
    yaml
}

/// The config of a whole fleet as a Cluster has it.
pub(crate) fn object(fleet: &Fleet, port: u16) -> Value {
    let nodes = fleet.nodes.iter().enumerate().map(|(at, node)| {
        let roles = if at < CENTRAL {
            json!(["controlplane", "etcd"])
        } else {
            json!(["worker"])
        };
        json!({
            "address": node.machine.address.to_string(), "port": port, "user": "rke",
            "hostname_override": node.machine.name, "role": roles,
        })
    });
    json!({
        "nodes": nodes.collect::<Vec<_>>(),
        "network": {"plugin": "flannel"},
        "ingress": {"provider": "none"},
        "monitoring": {"provider": "none"},
        "services": {
            "kube-controller": {"cluster_cidr": "10.128.0.0/10", "service_cluster_ip_range": "10.43.0.0/16"},
            "kube-api": {"service_cluster_ip_range": "10.43.0.0/16"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_an_address_of_its_own() {
        assert_eq!(address(0).to_string(), "127.77.0.1");
        assert_eq!(address(254).to_string(), "127.77.0.255");
        assert_eq!(address(999).to_string(), "127.77.3.232");
        assert_eq!(internal_address(999).to_string(), "10.77.3.232");
    }
}
