//! Nothing leaves the lab's networks: the nodes have a default route as servers do, and what they
//! send to an address that nobody in the lab has ends at this machine.

use std::{
    io::ErrorKind,
    net::UdpSocket,
    process::Command,
    time::{Duration, Instant},
};

use lab::{Lab, LabSpec, Profile};

use crate::real::tell;

/// A network namespace of this machine, which stands for the world outside of it.
struct Outside;

impl Outside {
    const NAME: &str = "rke-lab-outside";
    /// A network for documentation: nobody has it.
    const HERE: &str = "203.0.113.1/30";
    const THERE: &str = "203.0.113.2";

    fn new() -> Self {
        Self::remove();
        let outside = Self;
        for command in [
            format!("netns add {}", Self::NAME),
            format!(
                "link add lab-out type veth peer name eth0 netns {}",
                Self::NAME
            ),
            format!("address add {} dev lab-out", Self::HERE),
            "link set lab-out up".to_owned(),
            format!("-n {} address add {}/30 dev eth0", Self::NAME, Self::THERE),
            format!("-n {} link set eth0 up", Self::NAME),
            format!("-n {} route add default via 203.0.113.1", Self::NAME),
        ] {
            ip(&command).unwrap_or_else(|error| panic!("ip {command}: {error}"));
        }
        outside
    }

    /// Whether this machine reaches it: a port that nobody listens on is refused by its host.
    fn is_reached_from_here() -> bool {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let soon = Some(Duration::from_millis(200));
        socket.set_read_timeout(soon).expect("a limit");
        socket.connect((Self::THERE, 9)).expect("an address");
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            let _ = socket.send(b"?");
            match socket.recv(&mut [0; 16]) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return true,
                _ => {}
            }
        }
        false
    }

    /// How many echo requests came to it.
    fn echoes() -> u64 {
        let counters =
            ip(&format!("netns exec {} cat /proc/net/snmp", Self::NAME)).expect("counters");
        let lines: Vec<Vec<&str>> = counters
            .lines()
            .filter(|line| line.starts_with("Icmp: "))
            .map(|line| line.split_whitespace().collect())
            .collect();
        let at = lines[0]
            .iter()
            .position(|name| *name == "InEchos")
            .expect("a counter");
        lines[1][at].parse().expect("a number")
    }

    fn remove() {
        let _ = ip("link delete lab-out");
        let _ = ip(&format!("netns delete {}", Self::NAME));
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        Self::remove();
    }
}

fn ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .expect("ip runs");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn what_nodes_send_stays_in_the_lab() {
    let spec = LabSpec::own("network")
        .node("n1", Profile::Plain)
        .node("n2", Profile::Plain);
    let lab = Lab::up(&spec, &mut std::io::stderr()).expect("a lab");
    let (node, other) = (lab.node("n1"), lab.node("n2"));
    let outside = Outside::new();
    assert!(Outside::is_reached_from_here());

    // An address outside, and one of a Service that nobody serves, led outside by this machine.
    let service = "10.43.255.254";
    ip(&format!("route add {service}/32 via {}", Outside::THERE)).expect("a route");
    for address in [Outside::THERE, service] {
        let route = node
            .sh(&format!("ip route get {address}"))
            .expect("a route");
        assert!(route.contains("via"), "{route}");
        let answer = node
            .exec(&format!("ping -c 3 -i 0.2 -W 1 {address}"))
            .expect("ping");
        assert!(!answer.ok(), "{address} answers a node");
    }
    let left = Outside::echoes();
    drop(outside);
    assert_eq!(left, 0, "packets of a node left the lab's network");

    // What the lab's own has to do goes on.
    node.sh(&format!("ping -c 1 -W 5 {}", other.address()))
        .expect("the other node");
    let pulled = node
        .ssh("docker pull --quiet rancher/mirrored-pause:3.6")
        .expect("ssh");
    assert!(pulled.ok(), "{}", pulled.stderr);
    tell("a reboot keeps it so");
    node.reboot().expect("a reboot");
    node.wait_ssh(Duration::from_secs(60)).expect("a login");
    let outside = Outside::new();
    assert!(Outside::is_reached_from_here());
    let answer = node
        .exec(&format!("ping -c 3 -i 0.2 -W 1 {}", Outside::THERE))
        .expect("ping");
    assert!(!answer.ok() && Outside::echoes() == 0);
    drop(outside);
}
