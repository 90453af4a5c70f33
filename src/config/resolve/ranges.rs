//! Whether the ranges have room: for each node's part of the pods' addresses, for the pods of a node, and for the ports
//! that the nodes use themselves.

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};

use super::{Found, nodes::Named};
use crate::{
    catalog::accepts::{ValueType, go_uint},
    config::{cursor::Cursor, intent::Services, network::Network},
};

/// The mask of a node's range by default (kube-controller-manager): 256 addresses.
const NODE_MASK: u8 = 24;
/// kube-controller-manager does not start with more parts than 2 to this power.
const MOST_BITS: u8 = 16;
/// Of a node's part: the network, the bridge and the broadcast address.
const NOT_FOR_PODS: u64 = 3;
/// kubelet's default.
const MAX_PODS: u64 = 110;

/// The ports of the components, but for sshd's.
const OWN_PORTS: [u16; 9] = [2379, 2380, 6443, 10248, 10249, 10250, 10256, 10257, 10259];

pub(super) fn check(
    root: &Cursor<'_>,
    nodes: &[Named<'_>],
    services: &Services,
    network: &Network,
    found: &mut Found,
) {
    let at = root.get("services");
    pool_of_calico(&at, services, network, found);
    node_ports(&at, nodes, services, found);
    let flags = &services.kube_controller.extra_args;
    let flag = |name: &str| {
        let text = flags.get(name).filter(|text| !text.is_empty())?;
        Some((name.to_owned(), text.as_str()))
    };
    if flag("allocate-node-cidrs").is_some_and(|(_, text)| text == "false") {
        return;
    }
    let written = flag("node-cidr-mask-size-ipv4").or_else(|| flag("node-cidr-mask-size"));
    let range = services.cluster_cidr.prefix_len();
    let controller = at.get("kube-controller");
    let cluster_cidr = controller.get("cluster_cidr");
    let mask_at = written.as_ref().map_or_else(
        || cluster_cidr.clone(),
        |(name, _)| controller.get("extra_args").get(name),
    );
    let mask = match &written {
        None => NODE_MASK,
        Some((_, text)) => {
            let mask = go_uint(text).and_then(|mask| u8::try_from(mask).ok());
            let Some(mask) = mask.filter(|mask| *mask <= 30) else {
                // What is no number is reported as any other value of a flag.
                if ValueType::Int.takes(text) {
                    let problem =
                        mask_at.problem("is not the width of a node's part of the pods' range");
                    found.problem(problem.detail(*text).hint("write a number like `24`"));
                }
                return;
            };
            mask
        }
    };
    if mask < range || mask - range > MOST_BITS {
        let problem = mask_at
            .problem("kube-controller-manager cannot divide the pods' range among nodes like this");
        found.problem(problem.detail(format!("/{range} into parts of /{mask}")).hint(
            "`node-cidr-mask-size` is at most 16 more than the width of `cluster_cidr`, and not less than it",
        ));
        return;
    }
    let room = 1_u64 << (mask - range);
    if u64::try_from(nodes.len()).is_ok_and(|nodes| nodes > room) {
        let problem = cluster_cidr.problem(format!(
            "has room for {room} nodes, each with its own part of the pods' addresses; the config has {}",
            nodes.len()
        ));
        found.problem(problem.hint("write a wider range"));
    }
    pods_of_a_node(&at, services, network, mask, found);
}

/// flannel and canal assign pod addresses from the node's range; calico manages its blocks independently of it.
fn pods_of_a_node(
    at: &Cursor<'_>,
    services: &Services,
    network: &Network,
    mask: u8,
    found: &mut Found,
) {
    if !matches!(network, Network::Flannel(_) | Network::Canal(_)) {
        return;
    }
    let written = services.kubelet.extra_args.get("max-pods");
    let written = written.filter(|text| !text.is_empty());
    let most = match written {
        None => MAX_PODS,
        Some(text) => {
            let Some(most) = go_uint(text) else {
                // What is no number is reported as any other value of a flag.
                if ValueType::Int.takes(text) {
                    let flag = at.get("kubelet").get("extra_args").get("max-pods");
                    found.problem(
                        flag.problem("must be a whole number, 0 or more")
                            .detail(text),
                    );
                }
                return;
            };
            most
        }
    };
    let room = (1_u64 << (32 - mask)).saturating_sub(NOT_FOR_PODS);
    if most > room {
        let place = if written.is_some() {
            at.get("kubelet").get("extra_args").get("max-pods")
        } else {
            at.get("kube-controller").get("extra_args")
        };
        let problem = place.problem(format!(
            "a node may have {most} pods, and addresses for {room} of them: the others never start"
        ));
        found.warning(problem.hint(format!(
            "write `max-pods: {room}` for kubelet, or a smaller `node-cidr-mask-size` for kube-controller on a new cluster"
        )));
    }
}

/// calico's own default range. In rancher/rke2#3726 canal's pods did not start with pods in it.
fn pool_of_calico(at: &Cursor<'_>, services: &Services, network: &Network, found: &mut Found) {
    let pool = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16));
    let range = services.cluster_cidr;
    let overlap = pool.contains(&range) || range.contains(&pool);
    if overlap && matches!(network, Network::Canal(_)) {
        let problem = at.get("kube-controller").get("cluster_cidr").problem(
            "has addresses of 192.168.0.0/16, with which canal's pods are known not to start",
        );
        found
            .warning(problem.hint("on a new cluster write another range: RKE's is `10.42.0.0/16`"));
    }
}

/// A Service that gets such a port takes what is meant for the component.
fn node_ports(at: &Cursor<'_>, nodes: &[Named<'_>], services: &Services, found: &mut Found) {
    let (low, high) = services.service_node_port_range;
    let ssh = nodes.iter().map(|named| named.node.endpoint.port);
    let mut ports: Vec<u16> = OWN_PORTS
        .into_iter()
        .chain(ssh)
        .filter(|port| (low..=high).contains(port))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    if ports.is_empty() {
        return;
    }
    let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
    let problem = at
        .get("kube-api")
        .get("service_node_port_range")
        .problem(format!(
            "has ports that the nodes use themselves: {}",
            ports.join(", ")
        ));
    found.warning(problem.hint(
        "a Service that gets one of them makes the component unreachable: RKE's range is `30000-32767`",
    ));
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use crate::config::resolve::tests::{and, bad, good};

    fn told(yaml: &str) -> String {
        let warnings = good(yaml).warnings;
        let lines = warnings.iter().map(ToString::to_string);
        lines.collect::<Vec<_>>().join("\n")
    }

    fn services(services: &str) -> String {
        and(&format!("services: {services}"))
    }

    #[test]
    fn the_range_of_pods_has_a_part_for_each_node() {
        assert_snapshot!(bad(&services("{kube-api: {service_cluster_ip_range: 172.20.0.0/16}, kubelet: {cluster_dns_server: 172.20.0.10}, kube-controller: {cluster_cidr: 10.0.0.0/8, extra_args: {node-cidr-mask-size: '25'}}}")), @"
        `services.kube-controller.extra_args.node-cidr-mask-size` (line 8): kube-controller-manager cannot divide the pods' range among nodes like this | /8 into parts of /25
          `node-cidr-mask-size` is at most 16 more than the width of `cluster_cidr`, and not less than it
        ");
        assert_snapshot!(bad(&services("{kube-controller: {extra_args: {node_cidr_mask_size: '12'}}}")), @"
        `services.kube-controller.extra_args.node-cidr-mask-size` (line 8): kube-controller-manager cannot divide the pods' range among nodes like this | /16 into parts of /12
          `node-cidr-mask-size` is at most 16 more than the width of `cluster_cidr`, and not less than it
        ");
        assert_snapshot!(bad(&services("{kube-controller: {extra_args: {node-cidr-mask-size: wide}}}")), @"`services.kube-controller.extra_args.node-cidr-mask-size` (line 8): must be a whole number | wide");
        assert_snapshot!(bad(&services("{kube-controller: {extra_args: {node-cidr-mask-size: '31'}}}")), @"
        `services.kube-controller.extra_args.node-cidr-mask-size` (line 8): is not the width of a node's part of the pods' range | 31
          write a number like `24`
        ");
        let three = "nodes: [{address: 192.0.2.10, user: u, role: [controlplane, etcd, worker]}, {address: 192.0.2.11, user: u, role: [worker]}, {address: 192.0.2.12, user: u, role: [worker]}]\nservices: {kube-controller: {cluster_cidr: 10.42.0.0/23}}\n";
        assert_snapshot!(bad(three), @"
        `services.kube-controller.cluster_cidr` (line 2): has room for 2 nodes, each with its own part of the pods' addresses; the config has 3
          write a wider range
        ");
    }

    #[test]
    fn a_node_has_addresses_for_its_pods() {
        assert_snapshot!(told(&services("{kubelet: {extra_args: {max-pods: '500'}}}")), @"`services.kubelet.extra_args.max-pods` (line 8): a node may have 500 pods, and addresses for 253 of them: the others never start");
        assert_snapshot!(told(&services("{kube-controller: {extra_args: {node-cidr-mask-size: '26'}}}")), @"`services.kube-controller.extra_args` (line 8): a node may have 110 pods, and addresses for 61 of them: the others never start");
        assert_eq!(
            told(&services(
                "{kubelet: {extra_args: {max-pods: '500'}}, kube-controller: {extra_args: {node-cidr-mask-size: '22'}}}"
            )),
            ""
        );
        assert_eq!(
            told(&services("{kubelet: {extra_args: {max-pods: '250'}}}")),
            ""
        );
        assert_snapshot!(bad(&services("{kubelet: {extra_args: {max-pods: many}}}")), @"`services.kubelet.extra_args.max-pods` (line 8): must be a whole number | many");
        assert_snapshot!(bad(&services("{kubelet: {extra_args: {max-pods: '-1'}}}")), @"`services.kubelet.extra_args.max-pods` (line 8): must be a whole number, 0 or more | -1");
    }

    #[test]
    fn ports_of_the_nodes_themselves_are_not_for_services() {
        assert_snapshot!(told(&services("{kube-api: {service_node_port_range: 1-65535}}")), @"`services.kube-api.service_node_port_range` (line 8): has ports that the nodes use themselves: 22, 2379, 2380, 6443, 10248, 10249, 10250, 10256, 10257, 10259");
        assert_eq!(
            told(&services(
                "{kube-api: {service_node_port_range: 20000-40000}}"
            )),
            ""
        );
    }
}
