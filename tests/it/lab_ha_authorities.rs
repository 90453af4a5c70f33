//! The certificate authorities are rotated on real nodes. A program that knows the former authority alone reaches the API
//! until that is dropped.

use std::{
    fs,
    time::{Duration, Instant},
};

use lab::{LabSpec, Profile};

use crate::{
    lab_many::{ALL, CENTRAL, WORKER},
    real::{Site, publish, reader::Reader, tell},
};

type Nodes<'a> = &'a [(&'a str, &'a [&'a str])];

const ONE: Nodes<'_> = &[("n1", ALL)];
const MANY: Nodes<'_> = &[
    ("n1", ALL),
    ("n2", CENTRAL),
    ("n3", CENTRAL),
    ("n4", WORKER),
    ("n5", WORKER),
];

/// Asks the API of a node's own address, and trusts this file alone. The API answers clients without a certificate, too.
fn asks(file: &str) -> String {
    format!("curl -sS -o /dev/null -m 2 --cacert {file} https://127.0.0.1:6443/readyz")
}

/// How many certificates the API hands out to extension API servers and to pods.
fn handed_out(site: &Site) -> [usize; 2] {
    [
        ("kube-system", "extension-apiserver-authentication"),
        ("default", "kube-root-ca.crt"),
    ]
    .map(|(namespace, name)| {
        let map = ["-n", namespace, "get", "configmap", name, "-o", "json"];
        let text = site.kubectl(&map).well().stdout;
        text.matches("BEGIN CERTIFICATE").count()
    })
}

fn timed(site: &Site, what: &str, args: &[&str]) -> f64 {
    let begun = Instant::now();
    let ran = site.run(args).well();
    let took = begun.elapsed().as_secs_f64();
    tell(&format!("{what} took {took:.1} s\n{}", ran.stderr));
    took
}

/// An API server of a busy machine may be slow to answer at first.
fn nothing_is_left(site: &Site) {
    Site::eventually("nothing to do", Duration::from_secs(120), || {
        let plan = site.run(&["plan"]).well().stdout;
        plan.contains("nothing to do")
    });
}

fn authorities_are_rotated(name: &str, nodes: Nodes<'_>) {
    let spec = nodes.iter().fold(LabSpec::own(name), |spec, (name, _)| {
        spec.node(name, Profile::Plain)
    });
    let site = Site::of(&spec);
    site.names(nodes);
    site.run(&["up", "--yes"]).well();
    let last = nodes.last().expect("a node").0;
    let node = site.lab.node(last);
    node.sh("cp /etc/kubernetes/ssl/kube-ca.pem /tmp/former.pem")
        .expect("a copy");
    let before = fs::read_to_string(site.path("kube_config_cluster.yml")).expect("a file");
    assert_eq!(handed_out(&site), [3, 1]);

    let reader = Reader::asking(&site, node, &asks("/tmp/former.pem"));
    let rotate = ["cert", "rotate", "--rotate-ca", "--yes"];
    let start = timed(&site, "the rotation", &rotate);
    let answers = reader.answers();
    drop(reader);
    tell(&format!(
        "who knows the former authority alone: {answers:?}"
    ));
    assert_eq!(handed_out(&site), [6, 2]);
    let issuer = node
        .sh("openssl x509 -noout -issuer -in /etc/kubernetes/ssl/kube-node.pem")
        .expect("a certificate");
    assert!(issuer.contains("kube-ca-g2"), "{issuer}");
    node.sh(&asks("/tmp/former.pem"))
        .expect("it is trusted by the former authority");
    let after = fs::read_to_string(site.path("kube_config_cluster.yml")).expect("a file");
    assert_ne!(after, before);
    assert_eq!(site.run(&rotate).well().status, 0, "there is nothing to do");
    nothing_is_left(&site);

    let complete = ["cert", "rotate", "--rotate-ca", "--complete", "--yes"];
    let end = timed(&site, "the end of the former authorities", &complete);
    Site::eventually(
        "extensions trust the new ones alone",
        Duration::from_secs(60),
        || handed_out(&site) == [3, 1],
    );
    assert!(node.sh(&asks("/tmp/former.pem")).is_err());
    node.sh(&asks("/etc/kubernetes/ssl/kube-ca.pem"))
        .expect("it is trusted by the new one");
    site.kubectl(&["get", "nodes"]).well();
    nothing_is_left(&site);
    let failed = answers.failed;
    if nodes.len() > 1 {
        assert_eq!(failed, 0, "{answers:?}");
    }
    publish(
        "HA_TABLE",
        &format!(
            "authorities of {} nodes rotated in {start:.1} s and dropped in {end:.1} s; of {} requests of a program that \
             knows the former one alone {failed} failed twice",
            nodes.len(),
            answers.requests
        ),
    );
}

#[test]
fn authorities_of_one_node_are_rotated() {
    authorities_are_rotated("ha-authority", ONE);
}

#[test]
fn authorities_of_five_nodes_are_rotated() {
    authorities_are_rotated("ha-authorities", MANY);
}
