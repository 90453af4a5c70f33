//! Recurring snapshots on a real node: taken by the program that `up` puts there, restored for trial, and for real.

use std::time::Duration;

use lab::Profile;
use serde_json::Value;

use crate::{
    lab_restore::{apply, get},
    real::Site,
};

const LIMIT: Duration = Duration::from_secs(120);
const AGENT: &str = "etcd-rolling-snapshots";

/// What the node has, as a program reads it.
fn listed(site: &Site) -> Value {
    let said = site.run(&["etcd", "snapshot-list", "-o", "json"]).well();
    let all: Value = serde_json::from_str(&said.stdout).expect("JSON");
    all["nodes"]["n1"].clone()
}

/// The names of those that were restored for trial.
fn proven(node: &Value) -> Vec<String> {
    let snapshots = node["snapshots"].as_array().expect("a list").iter();
    let proven = snapshots.filter(|one| one["proof"]["grade"] == "Proven");
    proven
        .map(|one| one["file"].as_str().expect("a name"))
        .map(|file| file.trim_end_matches(".zip").to_owned())
        .collect()
}

fn files(site: &Site) -> String {
    let node = site.node();
    let listed = node.sh("ls -l /opt/rke/etcd-snapshots; stat -c %a /opt/rke/etcd-snapshots");
    listed.expect("a folder")
}

#[test]
fn a_node_with_etcd_takes_snapshots_that_can_be_restored() {
    let site = Site::new("snapshots", Profile::Plain);
    let config = site.node().cluster_yml("lab").expect("a config");
    let schedule = "services: {etcd: {creation: 1m, retention: 2m}}\n";
    let with = |more: &str| lab::merge(&config, more).expect("a config");
    site.write_config("cluster.yml", &with(schedule));
    site.run_static(&["up", "--yes"]).well();
    apply(
        &site,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: early, namespace: default}}",
    );
    Site::eventually("a snapshot is proven", LIMIT, || {
        !proven(&listed(&site)).is_empty()
    });
    // The first one may be older than the object.
    let before = proven(&listed(&site));
    Site::eventually("another one is proven", LIMIT, || {
        proven(&listed(&site)) != before
    });
    let table = site.run(&["etcd", "snapshot-list"]).well().stdout;
    assert!(
        table.contains("proven") && table.contains("schedule"),
        "{table}"
    );
    let modes = files(&site);
    assert!(
        modes.ends_with("700") && !modes.contains("-rw-r"),
        "{modes}"
    );

    // Another rke-operator, which has no program for nodes, leaves this one as it is.
    let there = site.containers()[AGENT].clone();
    let said = site.run(&["up", "--yes"]).well().stderr;
    assert!(said.contains("not linked statically"), "{said}");
    assert_eq!(site.containers()[AGENT], there);
    let plan = site.run_static(&["plan", "-o", "json"]).well().stdout;
    let plan: rke_operator::plan::Plan = serde_json::from_str(&plan).expect("a plan");
    assert!(plan.only_waits(), "{plan:?}");

    // What its process has are the programs' words, no key, and no capability.
    let inspect = format!(
        "docker inspect {AGENT}; cat /proc/$(docker inspect -f '{{{{.State.Pid}}}}' {AGENT})/status"
    );
    let inspected = site.node().sh(&inspect).expect("a container");
    assert!(!inspected.contains("PRIVATE KEY"), "{inspected}");
    let capabilities = inspected.lines().find(|line| line.starts_with("CapEff"));
    assert!(
        capabilities.is_some_and(|line| line.ends_with("\t0000000000000000")),
        "{capabilities:?}"
    );

    // The newest is restored; what was made since is gone.
    let newest = proven(&listed(&site)).pop().expect("a snapshot");
    apply(
        &site,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: late, namespace: default}}",
    );
    let restore = ["etcd", "snapshot-restore", "--name", &newest, "--yes"];
    site.run_static(&restore).well();
    let names = get(&site, &["configmaps"], "{.items[*].metadata.name}").stdout;
    assert!(
        names.contains("early") && !names.contains("late"),
        "{names}"
    );
    assert_ne!(site.containers()[AGENT], there, "of the restored etcd");
    let before = proven(&listed(&site));
    Site::eventually("one of the restored etcd is proven", LIMIT, || {
        proven(&listed(&site))
            .iter()
            .any(|name| !before.contains(name))
    });

    // None are wanted any more: the program goes, and the snapshots stay.
    let none = "services: {etcd: {snapshot: false}}\n";
    site.write_config("cluster.yml", &with(none));
    site.run_static(&["up", "--yes"]).well();
    assert!(!site.containers().contains_key(AGENT));
    let left = site
        .node()
        .sh("ls /etc/kubernetes/ssl /etc/kubernetes")
        .expect("files");
    assert!(
        !left.contains("kube-etcd-snapshot") && !left.contains("rke-operator-snapshots"),
        "{left}"
    );
    let list = site.run(&["etcd", "snapshot-list"]).well().stdout;
    assert!(
        list.contains(&newest) && list.contains("takes no recurring snapshots"),
        "{list}"
    );
    site.run_static(&["remove", "--yes"]).well();
    assert!(files(&site).contains(&newest));
}
