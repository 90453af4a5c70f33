//! TCP to a node.

use std::{io, net::Ipv4Addr, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use socket2::SockRef;
use tokio::net::TcpStream;

use super::{Dial, Stream};
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
            stream.set_nodelay(true)?;
            #[cfg(target_os = "linux")]
            SockRef::from(&stream).set_tcp_user_timeout(Some(USER_TIMEOUT))?;
            Ok(Box::new(stream) as Box<dyn Stream>)
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

#[cfg(test)]
mod tests {
    use super::link_to;

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
}
