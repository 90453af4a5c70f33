//! Nodes with two networks: what nodes and pods send to one another takes that of `internal_address`, although the default
//! route leaves by the other one.

use lab::{LabSpec, Node, Profile};
use serde_json::json;

use crate::{
    lab_many::{ALL, WORKER, names},
    real::{Site, beside::ran},
};

const NODES: [&str; 2] = ["n1", "n2"];
/// A hundred packets of a thousand bytes.
const PINGS: &str = "ping -q -c 100 -i 0.02 -s 1000";
const SENT: u64 = 100 * 1000;

/// A second network of a lab's nodes. It goes before the lab does.
struct Inner {
    name: String,
    containers: Vec<String>,
}

impl Inner {
    fn of(site: &Site) -> Self {
        let lab = site.lab.name();
        let name = format!("rke-lab-{lab}-inner");
        let label = format!("{}={lab}", lab::LABEL);
        let create = ["network", "create", "--internal", "--label", &label, &name];
        ran("docker", &create);
        let mut inner = Self {
            name,
            containers: Vec::new(),
        };
        for node in NODES {
            let container = site.lab.node(node).container().to_owned();
            ran("docker", &["network", "connect", &inner.name, &container]);
            inner.containers.push(container);
        }
        inner
    }

    /// A node's address in it.
    fn address(&self, node: &Node) -> String {
        let networks = format!("(index .NetworkSettings.Networks \"{}\")", self.name);
        let format = format!("{{{{{networks}.IPAddress}}}}");
        ran(
            "docker",
            &["inspect", "--format", &format, node.container()],
        )
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let docker = |args: &[&str]| {
            let _ = std::process::Command::new("docker").args(args).output();
        };
        for container in &self.containers {
            docker(&["network", "disconnect", "--force", &self.name, container]);
        }
        docker(&["network", "rm", &self.name]);
    }
}

/// The interface of a node that has this address.
fn interface(node: &Node, address: &str) -> String {
    let script = format!("ip -o -4 address show to {address}/32");
    let found = node.sh(&script).expect("its interfaces");
    let name = found.split_whitespace().nth(1);
    name.unwrap_or_else(|| panic!("{address}: {found}"))
        .to_owned()
}

/// How many bytes have left by it.
fn sent(node: &Node, interface: &str) -> u64 {
    let script = format!("cat /sys/class/net/{interface}/statistics/tx_bytes");
    let bytes = node.sh(&script).expect("a counter");
    bytes.trim().parse().expect("a number")
}

/// The address of CoreDNS's pod on a node.
fn pod_on(site: &Site, node: &str) -> String {
    let path = "jsonpath={range .items[*]}{.spec.nodeName} {.status.podIP}{\"\\n\"}{end}";
    let selector = ["-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns"];
    let pods = [&selector[..], &["-o", path]].concat();
    let pods = site.kubectl(&pods).well().stdout;
    let mut found = pods.lines().filter_map(|line| line.split_once(' '));
    let found = found.find(|(on, _)| *on == node);
    found
        .unwrap_or_else(|| panic!("no pod on {node}: {pods}"))
        .1
        .to_owned()
}

#[test]
fn traffic_between_nodes_takes_the_network_of_internal_address() {
    let spec = NODES
        .iter()
        .fold(LabSpec::own("ha-networks"), |spec, name| {
            spec.node(name, Profile::Plain)
        });
    let site = Site::of(&spec);
    let inner = Inner::of(&site);
    let addresses = NODES.map(|name| inner.address(site.lab.node(name)));
    site.names(&[("n1", ALL), ("n2", WORKER)]);
    site.edits(|config| {
        for (at, address) in addresses.iter().enumerate() {
            config["nodes"][at]["internal_address"] = json!(address);
        }
    });
    site.run(&["up", "--yes"]).well();
    assert_eq!(site.ready(), names(&NODES));

    for (name, address) in NODES.iter().zip(&addresses) {
        let node = site.lab.node(name);
        let (outer, inner) = (
            interface(node, &node.address().to_string()),
            interface(node, address),
        );
        assert_ne!(outer, inner);
        let route = node.sh("ip route show default").expect("a route");
        assert!(route.contains(&format!("dev {outer}")), "{route}");
        let overlay = node.sh("ip -d link show flannel.1").expect("flannel");
        let wanted = format!("local {address} dev {inner} ");
        assert!(overlay.contains(&wanted), "no `{wanted}`: {overlay}");
    }
    let first = site.lab.node("n1");
    let outer = interface(first, &first.address().to_string());
    let inner = interface(first, &addresses[0]);
    let before = [&outer, &inner].map(|name| sent(first, name));
    let ping = format!("{PINGS} {}", pod_on(&site, "n2"));
    first.sh(&ping).expect("a pod of the other node");
    let after = [&outer, &inner].map(|name| sent(first, name));
    let [by_outer, by_inner] = [0, 1].map(|at| after[at] - before[at]);
    assert!(
        by_inner >= SENT && by_outer < SENT / 2,
        "{by_outer}, {by_inner}"
    );
    site.run(&["remove", "--force"]).well();
}
