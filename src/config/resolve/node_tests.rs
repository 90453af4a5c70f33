//! Names, addresses and keys of nodes: what kubelet, etcd and SSH would not take is refused where it is written.

use insta::assert_snapshot;

use super::tests::{GOOD, and, bad, good, pem};
use crate::model::NodeName;

fn node(entry: &str) -> String {
    GOOD.replace(
        "  - address: 192.0.2.10\n    user: ubuntu\n    role: [controlplane, etcd, worker]\n",
        &format!("  - {entry}\n"),
    )
}

fn whole(more: &str) -> String {
    node(&format!(
        "{{user: u, role: [controlplane, etcd, worker], {more}}}"
    ))
}

fn nodes(entries: &[&str]) -> String {
    let entries: Vec<String> = entries
        .iter()
        .map(|entry| format!("  - {{user: u, {entry}}}\n"))
        .collect();
    let rest = GOOD.split_once("network:").expect("a network").1;
    format!("nodes:\n{}network:{rest}", entries.concat())
}

/// kubelet has the name in a label, which has at most 63 characters.
#[test]
fn a_name_has_at_most_63_characters() {
    let long = format!("{}.example.com", "a".repeat(52));
    assert_eq!(long.len(), 64);
    assert_snapshot!(bad(&whole(&format!("address: {long}"))), @"
    `nodes[0].address` (line 2): is also the node's name, and longer than 63 characters, which kubelet does not take
      write a shorter name in `hostname_override`
    ");
    assert_snapshot!(bad(&whole(&format!("address: 192.0.2.10, hostname_override: {long}"))), @"
    `nodes[0].hostname_override` (line 2): is not a valid node name | aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example.com
      at most 63 letters, digits, `-` and `.`, beginning and ending with a letter or digit
    ");
    good(&whole(&format!(
        "address: {long}, hostname_override: {}",
        &long[1..]
    )));
    good(&whole(&format!("address: {}", &long[1..])));
    assert_snapshot!(bad(&whole(&format!("address: a, hostname_override: {}", "a".repeat(64)))), @"
    `nodes[0].hostname_override` (line 2): is not a valid node name | aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
      at most 63 letters, digits, `-` and `.`, beginning and ending with a letter or digit
    ");
}

#[test]
fn addresses_that_lead_nowhere() {
    for internal in ["127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255"] {
        let said = bad(&whole(&format!(
            "address: 192.0.2.10, internal_address: {internal}"
        )));
        assert!(
            said.contains("no address at which other nodes reach"),
            "{said}"
        );
    }
    for v6 in ["fe80::1%eth0", "'[2001:db8::1]'", "'2001:db8::1'"] {
        let said = bad(&whole(&format!(
            "address: 192.0.2.10, internal_address: {v6}"
        )));
        assert!(
            said.contains("IPv6 is not supported yet within a cluster"),
            "{said}"
        );
    }
}

/// SSH uses IPv6, and the cluster does not.
#[test]
fn a_node_that_ssh_reaches_by_ipv6() {
    for (written, dialled) in [
        ("fd00:0::1", "fd00::1"),
        ("'[fd00::1]'", "fd00::1"),
        ("'::ffff:192.0.2.1'", "::ffff:192.0.2.1"),
    ] {
        let yaml = whole(&format!(
            "address: {written}, internal_address: 10.0.0.1, hostname_override: n1"
        ));
        let intent = good(&yaml).intent;
        let node = &intent.nodes[&NodeName::from("n1")];
        assert_eq!(node.endpoint.address, dialled);
        assert_eq!(node.internal_address.to_string(), "10.0.0.1");
        assert!(node.has_internal_address);
    }
    let two = nodes(&[
        "address: 10.0.0.1, role: [controlplane, etcd]",
        "address: 'fe80::0:2%eth0', internal_address: 10.0.0.2, hostname_override: n2, port: 2222, role: [worker]",
    ]);
    let intent = good(&two).intent;
    let worker = &intent.nodes[&NodeName::from("n2")];
    assert_eq!(worker.endpoint.to_string(), "[fe80::2%eth0]:2222");

    assert_snapshot!(bad(&whole("address: 'fd00::1'")), @"
    `nodes[0].address` (line 2): is an IPv6 address, which only SSH can use | fd00::1
      write the node's IPv4 address, at which other nodes reach it, in `internal_address`
    `nodes[0].address` (line 2): is an IPv6 address, which cannot be the node's name as well | fd00::1
      write a name in `hostname_override`, such as `node-1`
    ");
    assert_snapshot!(bad(&whole("address: 'fe80::1%eth0', internal_address: 10.0.0.1, hostname_override: n1")), @"
    `nodes[0].address` (line 2): is a link-local address, at which clients of the API server do not reach a control plane | fe80::1%eth0
      write an address that is valid beyond the link; nodes without the role `controlplane` may have this one
    ");
    assert_snapshot!(bad(&whole("address: 'fe80::1', internal_address: 10.0.0.1, hostname_override: n1")), @"
    `nodes[0].address` (line 2): is a link-local address without its interface | fe80::1
      write the interface of the machine that dials it behind the address: `fe80::1%eth0`
    ");
    assert_snapshot!(bad(&whole("address: 'ff02::1', internal_address: 10.0.0.1, hostname_override: n1")), @"`nodes[0].address` (line 2): is no address of a single machine | ff02::1");
    assert_snapshot!(bad(&whole("address: '[2001:db8::1]:22'")), @"
    `nodes[0].address` (line 2): is neither a host name nor an IP address | [2001:db8::1]:22
      write the port in `port`
    ");
    let same = nodes(&[
        "address: 'fd00::1', internal_address: 10.0.0.1, hostname_override: n1, role: [controlplane, etcd]",
        "address: '[fd00:0::1]', internal_address: 10.0.0.2, hostname_override: n2, role: [worker]",
    ]);
    assert_snapshot!(bad(&same), @"
    `nodes[1].address` (line 3): `nodes[0]` (line 2) has this address, too | fd00::1
      list each node once; nodes behind one address need a `port` each, an `internal_address` and a `hostname_override`
    ");
}

/// A dot at the end is for the resolver alone; `_` is in names that Kubernetes does not take.
#[test]
fn a_name_that_only_a_resolver_takes() {
    let intent = good(&whole("address: N1.example.com.")).intent;
    let node = &intent.nodes[&NodeName::from("n1.example.com")];
    assert_eq!(node.endpoint.address, "N1.example.com.");
    assert_eq!(node.internal_address.to_string(), "N1.example.com");
    let intent = good(&whole(
        "address: prod_node_1, hostname_override: prod-node-1",
    ))
    .intent;
    let node = &intent.nodes[&NodeName::from("prod-node-1")];
    assert_eq!(node.endpoint.address, "prod_node_1");
    assert_snapshot!(bad(&whole("address: prod_node_1")), @"
    `nodes[0].address` (line 2): is not a valid node name | prod_node_1
      write a name in `hostname_override`: at most 63 letters, digits, `-` and `.`, as `prod-node-1` for `prod_node_1`
    ");
    let same = nodes(&[
        "address: n1, role: [controlplane, etcd]",
        "address: N1., role: [worker]",
    ]);
    assert_snapshot!(bad(&same), @"
    `nodes[1].address` (line 3): `nodes[0]` (line 2) has this address, too | n1
      list each node once; nodes behind one address need a `port` each, an `internal_address` and a `hostname_override`
    ");
}

/// A router that forwards a port to each of them.
#[test]
fn nodes_behind_one_address_are_distinguished() {
    let two = |first: &str, second: &str| {
        nodes(&[
            &format!("address: 203.0.113.1, role: [controlplane, etcd, worker], {first}"),
            &format!("address: 203.0.113.1, role: [worker], {second}"),
        ])
    };
    let intent = good(&two(
        "port: 2201, internal_address: 10.0.0.1, hostname_override: a",
        "port: 2202, internal_address: 10.0.0.2, hostname_override: b",
    ))
    .intent;
    assert_eq!(intent.nodes.len(), 2);
    assert_snapshot!(bad(&two("port: 2201, hostname_override: a", "port: 2202, hostname_override: b")), @"
    `nodes[1].address` (line 3): `nodes[0]` (line 2) has this address, too | 203.0.113.1
      list each node once; nodes behind one address need a `port` each, an `internal_address` and a `hostname_override`
    ");
    assert_snapshot!(bad(&two(
        "internal_address: 10.0.0.1, hostname_override: a",
        "port: 22, internal_address: 10.0.0.2, hostname_override: b"
    )), @"
    `nodes[1].address` (line 3): `nodes[0]` (line 2) has this address, too | 203.0.113.1
      list each node once; nodes behind one address need a `port` each, an `internal_address` and a `hostname_override`
    ");
    assert_snapshot!(bad(&two(
        "port: 2201, internal_address: 10.0.0.1, hostname_override: a",
        "port: 2202, internal_address: 10.0.0.1, hostname_override: b"
    )), @"`nodes[1].internal_address` (line 3): `nodes[0]` (line 2) has this address, too | 10.0.0.1");
    assert_snapshot!(bad(&two(
        "port: 2201, internal_address: 10.0.0.1",
        "port: 2202, internal_address: 10.0.0.2"
    )), @"`nodes[1].hostname_override` (line 3): `nodes[0]` (line 2) has this name, too | 203.0.113.1");
}

/// One mistake is one problem.
#[test]
fn a_role_that_is_misspelt_is_one_problem() {
    for role in ["master", "control-plane", "controlPlane", "node", "etcds"] {
        let said = bad(&node(&format!(
            "{{address: 192.0.2.10, user: u, role: [{role}]}}"
        )));
        assert!(
            said.contains("unknown role") && !said.contains("no node has"),
            "{said}"
        );
    }
    assert_snapshot!(bad(&node("{address: 192.0.2.10, user: u, role: [master]}")), @"
    `nodes[0].role[0]` (line 2): unknown role | master
      this is `controlplane` here; the roles are `controlplane`, `etcd` and `worker`
    ");
    assert_snapshot!(bad(&node("{address: 192.0.2.10, user: u, role: controlplane}")), @"
    `nodes[0].role` (line 2): must be a list, not a single value
      write it in brackets, as in `role: [worker]`
    ");
    assert_snapshot!(bad(&node("192.0.2.10")), @"
    `nodes[0]` (line 2): must be a mapping, not a single value
      write `- address: ADDRESS`, and its `role` below it
    ");
    assert_snapshot!(bad(&nodes(&["address: a, role: [controlplane, etcd, worker]"]).replace("network:", "  -\nnetwork:")), @"
    `nodes[1]` (line 3): this node is empty
      each node needs an `address` and a `role`, or remove the `-`
    ");
}

/// They may come later, and from elsewhere; RKE does not ask for one either.
#[test]
fn a_cluster_without_a_worker_is_warned_about() {
    let warnings = good(&node(
        "{address: 192.0.2.10, user: u, role: [controlplane, etcd]}",
    ))
    .warnings;
    assert_eq!(warnings.len(), 1);
    assert_snapshot!(warnings[0], @"`nodes` (line 1): no node has the role `worker`");
}

#[test]
fn a_key_that_lost_its_line_breaks() {
    let pem = pem();
    let flat = pem.trim().replace('\n', " ");
    let escaped = pem.trim().replace('\n', "\\n");
    for key in [flat, escaped] {
        let said = bad(&whole(&format!("address: 192.0.2.10, ssh_key: '{key}'")));
        assert!(
            said.contains("the line breaks of this private key are missing"),
            "{said}"
        );
        assert!(!said.contains("MC4C"), "{said}");
    }
}

/// The types of the keys that every node may leave unused.
#[test]
fn common_keys_are_what_they_are_called() {
    for key in ["ssh_key_path", "ssh_cert_path"] {
        for value in ["[a]", "{a: b}"] {
            let said = bad(&and(&format!("{key}: {value}")));
            assert!(
                said.contains(&format!("`{key}` (line 8): must be a single value")),
                "{said}"
            );
            assert!(!said.contains("not set"), "{said}");
        }
    }
    for key in [
        "ssh_agent_auth",
        "bastion_host: {address: 192.0.2.1, ssh_agent_auth",
    ] {
        for value in ["maybe", "1", "[a]"] {
            let end = if key.contains('{') { "}" } else { "" };
            let said = bad(&and(&format!("{key}: {value}{end}")));
            assert!(said.contains("must be"), "{said}");
        }
    }
}
