//! What a node's network has to be for its part in a cluster: its address, the ranges that are the cluster's own, the
//! ports that others reach. Pure.
//!
//! One table of ports for all who speak of a firewall: [`HostNetwork::ports`].

use std::{collections::BTreeSet, fmt};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::HostAddress;

/// What a node's network has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNetwork {
    /// The address that the other nodes dial.
    pub address: Option<HostAddress>,
    /// The key that says so: `internal_address` or `address`.
    pub key: &'static str,
    /// The ranges that only the cluster may use.
    pub ranges: Vec<Range>,
    /// The network plugin; `None`: the user brings one.
    pub plugin: Option<Plugin>,
    /// What others reach on this node.
    pub ports: Vec<OpenPort>,
    /// Ports of the node that the ingress controller takes for itself.
    pub ingress: BTreeSet<u16>,
    /// Modules of the kernel that the network plugin and kube-proxy load when they need them.
    pub modules: BTreeSet<String>,
    /// How long packets of pods are, where the network plugin does not find it out itself.
    pub packets: Option<PodPackets>,
}

/// A network plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// flannel.
    Flannel,
    /// canal.
    Canal,
    /// calico.
    Calico,
}

/// How long packets of pods are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodPackets {
    /// The MTU of pods.
    pub mtu: u32,
    /// What the way to other nodes adds to each packet.
    pub tunnel: u32,
}

/// A range of addresses of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Whose.
    pub of: RangeOf,
    /// The addresses.
    pub net: IpNet,
}

/// Who has addresses of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeOf {
    /// Pods.
    Pods,
    /// Services.
    Services,
}

impl RangeOf {
    /// The key of the config that says it.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Pods => "services.kube-controller.cluster_cidr",
            Self::Services => "services.kube-api.service_cluster_ip_range",
        }
    }
}

impl fmt::Display for RangeOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pods => "pods",
            Self::Services => "Services",
        })
    }
}

/// Something that a firewall has to let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPort {
    /// How.
    pub protocol: Protocol,
    /// The first and the last port; 0 where the protocol has none.
    pub ports: (u16, u16),
    /// From where.
    pub from: Reach,
    /// What for, in a few words.
    pub what: &'static str,
}

/// A TCP port of another machine, as a node dials it. Written `192.0.2.10/6443`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PeerPort {
    /// The address or the name.
    pub address: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for PeerPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.port)
    }
}

impl PeerPort {
    /// Understands what [`Self`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, port) = text.rsplit_once('/')?;
        Some(Self {
            address: address.to_owned(),
            port: port.parse().ok()?,
        })
    }
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// IP in IP, number 4.
    IpInIp,
}

/// Who reaches a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The cluster's nodes.
    Nodes,
    /// Clients of the cluster besides.
    Clients,
}

impl OpenPort {
    /// What those are for by which packets of pods travel from node to node.
    pub const OF_PODS: &'static str = "traffic of pods";

    /// A TCP port.
    pub const fn tcp(port: u16, from: Reach, what: &'static str) -> Self {
        Self::tcp_range(port, port, from, what)
    }

    /// Several TCP ports.
    pub const fn tcp_range(first: u16, last: u16, from: Reach, what: &'static str) -> Self {
        Self {
            protocol: Protocol::Tcp,
            ports: (first, last),
            from,
            what,
        }
    }

    /// A UDP port between nodes.
    pub const fn udp(port: u16, what: &'static str) -> Self {
        Self {
            protocol: Protocol::Udp,
            ports: (port, port),
            from: Reach::Nodes,
            what,
        }
    }
}

impl OpenPort {
    /// True for this port, or a range that it lies in.
    pub fn has_tcp(&self, port: u16) -> bool {
        self.protocol == Protocol::Tcp && (self.ports.0..=self.ports.1).contains(&port)
    }

    /// True where the packets of pods travel by it.
    pub fn carries_pods(&self) -> bool {
        self.what == Self::OF_PODS
    }

    /// The command by which a firewall lets it in.
    pub fn rule(&self, firewall: Firewall) -> String {
        match (firewall, self.protocol) {
            (Firewall::Ufw, Protocol::Tcp | Protocol::Udp) => {
                format!("`sudo ufw allow {}`", self.to_string().replace('-', ":"))
            }
            (Firewall::Ufw, Protocol::IpInIp) => {
                "`-A ufw-before-input -p 4 -j ACCEPT` before `COMMIT` in /etc/ufw/before.rules and \
                 `sudo ufw reload`"
                    .to_owned()
            }
            (Firewall::Firewalld, Protocol::Tcp | Protocol::Udp) => {
                format!("`sudo firewall-cmd --permanent --add-port={self}`")
            }
            (Firewall::Firewalld, Protocol::IpInIp) => {
                "`sudo firewall-cmd --permanent --add-protocol=4`".to_owned()
            }
        }
    }
}

impl fmt::Display for OpenPort {
    /// `2379-2380/tcp`, as firewalld has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::IpInIp => return f.write_str("ipip"),
        };
        match self.ports {
            (first, last) if first == last => write!(f, "{first}/{protocol}"),
            (first, last) => write!(f, "{first}-{last}/{protocol}"),
        }
    }
}

impl HostNetwork {
    /// The commands by which a firewall lets in what has to come in.
    pub fn rules(&self, firewall: Firewall) -> Vec<String> {
        let mut rules = Vec::new();
        if firewall == Firewall::Ufw {
            rules.push("`sudo ufw default allow routed`".to_owned());
        }
        for range in &self.ranges {
            match (firewall, range.of) {
                (Firewall::Ufw, RangeOf::Pods) => {
                    rules.push(format!("`sudo ufw allow from {}`", range.net));
                }
                // Nothing comes from the address of a Service.
                (Firewall::Ufw, RangeOf::Services) => {}
                (Firewall::Firewalld, RangeOf::Pods | RangeOf::Services) => rules.push(format!(
                    "`sudo firewall-cmd --permanent --zone=trusted --add-source={}`",
                    range.net
                )),
            }
        }
        rules.extend(self.ports.iter().map(|port| port.rule(firewall)));
        rules.extend(firewall.reload());
        rules
    }
}

/// A firewall whose commands are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firewall {
    /// Ubuntu's.
    Ufw,
    /// That of RHEL, SLES and Fedora.
    Firewalld,
}

impl Firewall {
    /// The command after which its rules count, where they do not at once.
    pub fn reload(self) -> Option<String> {
        (self == Self::Firewalld).then(|| "`sudo firewall-cmd --reload`".to_owned())
    }

    /// As it calls itself.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ufw => "ufw",
            Self::Firewalld => "firewalld",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_firewall_gets_every_port_in_its_own_syntax() {
        let network = HostNetwork {
            ranges: vec![
                Range {
                    of: RangeOf::Pods,
                    net: "10.42.0.0/16".parse().unwrap(),
                },
                Range {
                    of: RangeOf::Services,
                    net: "10.43.0.0/16".parse().unwrap(),
                },
            ],
            ports: vec![
                OpenPort::tcp_range(2379, 2380, Reach::Nodes, "etcd"),
                OpenPort::udp(8472, "pods"),
            ],
            ..HostNetwork::default()
        };
        assert_eq!(
            network.rules(Firewall::Ufw),
            [
                "`sudo ufw default allow routed`",
                "`sudo ufw allow from 10.42.0.0/16`",
                "`sudo ufw allow 2379:2380/tcp`",
                "`sudo ufw allow 8472/udp`",
            ]
        );
        assert_eq!(
            network.rules(Firewall::Firewalld),
            [
                "`sudo firewall-cmd --permanent --zone=trusted --add-source=10.42.0.0/16`",
                "`sudo firewall-cmd --permanent --zone=trusted --add-source=10.43.0.0/16`",
                "`sudo firewall-cmd --permanent --add-port=2379-2380/tcp`",
                "`sudo firewall-cmd --permanent --add-port=8472/udp`",
                "`sudo firewall-cmd --reload`",
            ]
        );
    }
}
