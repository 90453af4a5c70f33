//! TCP to a node.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use ipnet::IpNet;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::{Dial, Stream, error::NOT_ALLOWED};
use crate::model::Endpoint;

/// How long unacknowledged data may stay on the wire. SSH keepalives are not served while a full
/// send buffer is being flushed, so without this a peer that went silent during an upload would
/// never be noticed.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// Opens TCP connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDial;

impl Dial for TcpDial {
    fn dial<'a>(&'a self, to: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        async move {
            let stream = TcpStream::connect((to.address.as_str(), to.port)).await;
            let stream = stream.map_err(|error| explained(error, &to.address))?;
            configured(stream)
        }
        .boxed()
    }
}

/// Links of programs on this machine: what they lead to is on this machine, too.
const OWN: [&str; 6] = ["docker", "br-", "virbr", "cni", "podman", "lxdbr"];

/// A node in an address range that a program of this machine has taken for itself is never found, and nothing says so.
fn explained(error: io::Error, address: &str) -> io::Error {
    let Ok(to) = address.parse::<Ipv4Addr>() else {
        return error;
    };
    let table = std::fs::read("/proc/net/route").unwrap_or_default();
    match link_to(to, &String::from_utf8_lossy(&table)) {
        Some(link) if OWN.iter().any(|start| link.starts_with(start)) => io::Error::new(
            error.kind(),
            format!(
                "{error}; from here `{address}` is in the network of `{link}`, which is this machine's own"
            ),
        ),
        _ => error,
    }
}

/// By which link the kernel sends there: the narrowest route of `/proc/net/route`.
fn link_to(to: Ipv4Addr, table: &str) -> Option<&str> {
    let routes = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Little-endian, as the kernel prints a word of memory.
        let number = |at: usize| {
            u32::from_str_radix(words.get(at)?, 16)
                .ok()
                .map(u32::swap_bytes)
        };
        let (net, mask) = (number(1)?, number(7)?);
        (to.to_bits() & mask == net).then_some((mask, *words.first()?))
    });
    routes.max_by_key(|(mask, _)| *mask).map(|(_, link)| link)
}

fn configured(stream: TcpStream) -> io::Result<Box<dyn Stream>> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    SockRef::from(&stream).set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(Box::new(stream))
}

/// Opens TCP connections to other machines only. A user who may write an address for a shared process to
/// dial must not reach what listens next to that process: addresses of this machine, of the link, and of the Services of
/// the cluster that it runs in. What a name resolves to is checked, at each dial.
#[derive(Clone, Debug, Default)]
pub struct OtherMachines {
    /// Nodes and bastions have addresses in these ranges only; empty: in any.
    pub allowed: Vec<IpNet>,
    /// The addresses of Services: no machine has one. What a bastion host dials is in another network.
    pub services: ServiceRanges,
}

/// The ranges that the Services of the management cluster have addresses of; none until they are known.
#[derive(Clone, Debug, Default)]
pub struct ServiceRanges(Arc<RwLock<Vec<IpNet>>>);

impl ServiceRanges {
    /// They are these.
    pub fn set(&self, ranges: Vec<IpNet>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ranges;
    }

    /// True for the address of a Service.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ranges = self.0.read().unwrap_or_else(PoisonError::into_inner);
        ranges.iter().any(|net| net.contains(&address))
    }
}

impl OtherMachines {
    /// What this process may dial.
    fn may_dial(&self, address: IpAddr) -> io::Result<()> {
        let address = address.to_canonical();
        if self.services.contains(address) {
            return Err(io::Error::new(
                NOT_ALLOWED,
                format!("{address} is the address of a Service of the management cluster"),
            ));
        }
        self.permits(address)
    }

    fn permits(&self, address: IpAddr) -> io::Result<()> {
        let address = address.to_canonical();
        let refused = |why: String| Err(io::Error::new(NOT_ALLOWED, why));
        if is_near(address) {
            return refused(format!("{address} is no address of another machine"));
        }
        if self.allowed.is_empty() || self.allowed.iter().any(|net| net.contains(&address)) {
            return Ok(());
        }
        let allowed: Vec<_> = self.allowed.iter().map(IpNet::to_string).collect();
        refused(format!(
            "{address} is not in the ranges that this operator connects to (--allowed-node-cidrs: {})",
            allowed.join(", ")
        ))
    }
}

impl Dial for OtherMachines {
    fn dial<'a>(&'a self, to: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        async move {
            let found = tokio::net::lookup_host((to.address.as_str(), to.port)).await?;
            let mut refused = None;
            for address in found {
                if let Err(why) = self.may_dial(address.ip()) {
                    refused = Some(why);
                    continue;
                }
                match TcpStream::connect(address).await {
                    Ok(stream) => return configured(stream),
                    Err(error) => refused = Some(explained(error, &to.address)),
                }
            }
            Err(refused.unwrap_or_else(|| io::Error::other("the name has no address")))
        }
        .boxed()
    }

    /// What a name is for a bastion cannot be seen from here.
    fn may_relay(&self, to: &Endpoint) -> io::Result<()> {
        if self.allowed.is_empty() {
            return Ok(());
        }
        match to.address.parse() {
            Ok(address) => self.permits(address),
            Err(_) => Err(io::Error::new(
                NOT_ALLOWED,
                format!(
                    "the bastion host would look up `{}`; with --allowed-node-cidrs a node behind it has an IP address",
                    to.address
                ),
            )),
        }
    }
}

/// True for an address of this machine or of the link, and for what is no machine's.
fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_broadcast()
                || v4.is_multicast()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unicast_link_local()
                || v6.is_unspecified()
                || v6.is_multicast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_route_leads_to_a_node() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                     docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
        let link = |to: &str| link_to(to.parse().unwrap(), table);
        assert_eq!(link("172.17.3.4"), Some("docker0"));
        assert_eq!(link("172.18.3.4"), Some("eth0"));
        assert_eq!(link_to("172.18.3.4".parse().unwrap(), ""), None);
    }

    #[tokio::test]
    async fn what_is_on_this_machine_is_not_dialled() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for address in ["127.0.0.1", "localhost", "::ffff:127.0.0.1"] {
            let to = Endpoint {
                address: address.to_owned(),
                port,
            };
            let error = OtherMachines::default().dial(&to).await.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{address}");
            assert!(TcpDial.dial(&to).await.is_ok() || address != "127.0.0.1");
        }
    }

    /// By the address that is dialled, of a node, of a bastion and of what a bastion dials.
    #[tokio::test]
    async fn addresses_outside_of_the_allowed_ranges_are_not_dialled() {
        let dial = OtherMachines {
            allowed: vec![
                "192.0.2.0/24".parse().unwrap(),
                "2001:db8::/32".parse().unwrap(),
            ],
            services: ServiceRanges::default(),
        };
        let to = |address: &str| Endpoint {
            address: address.to_owned(),
            port: 22,
        };
        for inside in ["192.0.2.1", "::ffff:192.0.2.255", "2001:db8::1"] {
            assert!(dial.permits(inside.parse().unwrap()).is_ok(), "{inside}");
            assert!(dial.may_relay(&to(inside)).is_ok(), "{inside}");
        }
        for outside in ["192.0.3.1", "::ffff:10.0.0.1", "2001:db9::1", "127.0.0.1"] {
            let error = dial.dial(&to(outside)).await.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{outside}");
            assert!(dial.may_relay(&to(outside)).is_err(), "{outside}");
        }
        let named = dial.may_relay(&to("n1.example.com")).unwrap_err();
        assert!(named.to_string().contains("n1.example.com"), "{named}");
        let any = OtherMachines::default();
        assert!(any.may_relay(&to("n1.example.com")).is_ok());
        assert!(any.permits("10.0.0.1".parse().unwrap()).is_ok());
    }

    /// Also where the range is allowed; but what a bastion host dials is in its own network.
    #[tokio::test]
    async fn services_of_the_management_cluster_are_not_dialled() {
        let dial = OtherMachines {
            allowed: vec!["10.0.0.0/8".parse().unwrap()],
            services: ServiceRanges::default(),
        };
        dial.services.set(vec!["10.43.0.0/16".parse().unwrap()]);
        let to = |address: &str| Endpoint {
            address: address.to_owned(),
            port: 22,
        };
        for service in ["10.43.0.1", "::ffff:10.43.255.255"] {
            let error = dial.dial(&to(service)).await.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{service}");
            assert!(error.to_string().contains("a Service"), "{error}");
            assert!(dial.may_relay(&to(service)).is_ok());
        }
        assert!(dial.may_dial("10.44.0.1".parse().unwrap()).is_ok());
    }

    #[test]
    fn addresses_of_other_machines_are_known_from_those_of_this_one() {
        for near in [
            "127.1.2.3",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:169.254.169.254",
        ] {
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        for far in [
            "10.0.0.1",
            "192.168.1.1",
            "172.17.0.2",
            "203.0.113.9",
            "fd00::1",
            "2001:db8::1",
        ] {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
    }
}
