//! The network between nodes is proven: the ports that they dial before anything is written, the traffic of pods at the end of `up`,
//! and whenever somebody looks.

use lab::{LabSpec, Node, Profile};

use crate::{
    lab_many::{ALL, WORKER},
    real::{Run, Site, snapshot},
};

/// Drops what comes in from another node.
fn drops(node: &Node, from: &Node, what: &str, on: bool) {
    let verb = if on { "-I" } else { "-D" };
    let from = from.address();
    let rule = format!("iptables -w {verb} INPUT -s {from} {what} -j DROP");
    node.sh(&rule).expect(&rule);
}

#[track_caller]
fn says(run: &Run, status: i32, words: &[&str]) {
    assert_eq!(run.status, status, "{run:?}");
    let said = format!("{}{}", run.stdout, run.stderr);
    for word in words {
        assert!(said.contains(word), "no {word} in {said}");
    }
}

#[test]
fn a_firewall_between_nodes_is_told_before_and_what_it_keeps_from_pods_after() {
    let spec = LabSpec::own("reach");
    let spec = spec.node("n1", Profile::Plain).node("n2", Profile::Plain);
    let site = Site::of(&spec);
    site.names(&[("n1", ALL), ("n2", WORKER)]);
    let (n1, n2) = (site.lab.node("n1"), site.lab.node("n2"));
    let kubelet = "-p tcp --dport 10250";
    // What iptables makes when it is first used is there before, too.
    drops(n2, n1, kubelet, true);
    drops(n2, n1, kubelet, false);
    let before = [n1, n2].map(|node| (node, snapshot::take(node)));

    drops(n2, n1, kubelet, true);
    let up = site.run(&["up", "--yes"]);
    let words = [
        "node `n1`",
        "10250 (kubelet)",
        "node `n2`",
        "let 10250/tcp in",
    ];
    says(&up, 2, &words);
    says(&site.run(&["plan"]), 2, &words);
    drops(n2, n1, kubelet, false);
    for (node, before) in &before {
        snapshot::unchanged(node, before, &[]);
    }

    // No program of ours listens there that could be tried before.
    let pods = "-p udp --dport 8472";
    drops(n2, n1, pods, true);
    let up = site.run(&["up", "--yes"]);
    let words = ["does not reach pods on", "`n1`", "`n2`", "8472/udp"];
    says(&up, 3, &words);
    says(&site.run(&["status"]), 3, &words);
    drops(n2, n1, pods, false);
    site.run(&["up", "--yes"]).well();
    says(&site.run(&["status"]), 0, &[]);
    site.run(&["remove", "--yes"]).well();
}
