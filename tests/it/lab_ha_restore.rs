//! A snapshot of 100 MiB is restored to three control planes and two workers: once measured, and once with the program
//! killed at each kind of step. One of 1 GiB is measured.

use std::{collections::BTreeSet, time::Instant};

use lab::{LabSpec, Profile};

use crate::{
    lab_many::{ALL, CENTRAL, WORKER, names},
    lab_many_killed::{killed, met},
    lab_restore::{LIMIT, apply, get, uid, works},
    real::{Site, publish, tell},
};

const NODES: [(&str, &[&str]); 5] = [
    ("n1", ALL),
    ("n2", CENTRAL),
    ("n3", CENTRAL),
    ("n4", WORKER),
    ("n5", WORKER),
];

const RESTORE: [&str; 5] = ["etcd", "snapshot-restore", "--name", "s1", "--yes"];

/// So many transactions of ten values of 100 KiB each, of keys that Kubernetes does not have.
fn fill(mib: u32) -> String {
    format!(
        "for i in $(seq {mib}); do
            {{ echo; for j in $(seq 10); do echo \"put lab/$i/$j $(head -c 76800 /dev/urandom | base64 -w 0)\"; done; echo; echo; }} |
                docker exec -i etcd etcdctl txn >/dev/null
        done"
    )
}

/// A cluster with work and so much more in etcd, of which there is a snapshot. How big that is.
fn saved(site: &Site, mib: u32) -> u64 {
    site.names(&NODES);
    site.run(&["up", "--yes"]).well();
    apply(site, crate::lab_restore::WORK);
    Site::eventually("the pods run", LIMIT, || works(site));
    site.node().sh(&fill(mib)).expect("much in etcd");
    site.run(&["etcd", "snapshot-save", "--name", "s1"]).well();
    let bytes = site.node().sh("stat -c %s /opt/rke/etcd-snapshots/s1");
    let bytes: u64 = bytes.expect("a size").trim().parse().expect("a number");
    assert!(bytes > u64::from(mib) << 20, "{bytes}");
    bytes
}

/// Restores it, and says how long that took.
fn is_measured(site: &Site, bytes: u64, aim: &str) {
    let begun = Instant::now();
    let said = site.run(&RESTORE).well();
    let took = begun.elapsed();
    tell(&format!(
        "restored after {:.1} s\n{}",
        took.as_secs_f64(),
        said.stderr
    ));
    publish(
        "HA_TABLE",
        &format!(
            "a snapshot of {} MiB is restored to the same five nodes: {:.1} s{aim}",
            bytes >> 20,
            took.as_secs_f64()
        ),
    );
}

fn five(name: &str) -> Site {
    let spec = NODES.iter().fold(LabSpec::own(name), |spec, (name, _)| {
        spec.node(name, Profile::Plain)
    });
    Site::of(&spec)
}

/// A pod of the `StatefulSet` that the snapshot does not have, and a `ConfigMap` that it has is gone.
fn changes(site: &Site) {
    let before = uid(site, "db-0");
    site.kubectl(&["delete", "configmap", "before"]).well();
    site.kubectl(&["delete", "pod", "db-0"]).well();
    let other = || works(site) && uid(site, "db-0") != before;
    Site::eventually("another pod runs", LIMIT, other);
}

fn is_restored(site: &Site) {
    let names_of_maps = get(site, &["configmaps"], "{.items[*].metadata.name}").stdout;
    assert!(names_of_maps.contains("before"), "{names_of_maps}");
    Site::eventually("the pods run", LIMIT, || works(site));
    assert_eq!(site.ready(), names(&["n1", "n2", "n3", "n4", "n5"]));
    assert_eq!(
        site.members("n1"),
        names(&["etcd-n1", "etcd-n2", "etcd-n3"])
    );
    let has = get(site, &["pods", "-A"], "{.items[*].metadata.uid}").stdout;
    let has: BTreeSet<&str> = has.split_whitespace().collect();
    Site::eventually("every node runs what the API has", LIMIT, || {
        let script = "cat /proc/[0-9]*/cgroup 2>/dev/null |
            grep -oE 'pod[0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}' | sort -u | tr _ - | sed 's/^pod//'";
        NODES.iter().all(|(name, _)| {
            let runs = site.lab.node(name).sh(script).expect("processes");
            runs.lines().all(|uid| has.contains(uid))
        })
    });
    site.has_nothing_to_do();
}

#[test]
fn a_snapshot_of_1_gib_is_restored() {
    let site = five("ha-gibibyte");
    let bytes = saved(&site, 1024);
    changes(&site);
    is_measured(&site, bytes, "");
    is_restored(&site);
}

#[test]
fn a_snapshot_of_100_mib_is_restored_wherever_the_run_is_killed() {
    let site = five("ha-restore");
    let bytes = saved(&site, 100);
    changes(&site);
    is_measured(&site, bytes, " (aim 120 to a serving API)");
    is_restored(&site);

    changes(&site);
    let kinds = killed(&site, &RESTORE);
    met(
        &kinds,
        &[
            "remove kubelet",
            "restore etcd",
            "must not come back",
            "run kube-apiserver",
            "join etcd",
        ],
    );
    is_restored(&site);
}
