//! All machines of a cluster are gone. It goes on on others, with its name, its keys and what was in the newest snapshot in the
//! bucket. Or one with etcd is left.

use std::time::Instant;

use lab::{LabSpec, Profile, S3};
use serde_json::{Value, json};

use crate::{
    lab_many::{ALL, CENTRAL, WORKER, names},
    lab_restore::{LIMIT, apply, get, uid, works},
    real::{Site, publish},
};

/// The node, and its machine.
type Nodes = [(&'static str, &'static str, &'static [&'static str]); 4];

const BEFORE: Nodes = [
    ("n1", "n1", ALL),
    ("n2", "n2", CENTRAL),
    ("n3", "n3", CENTRAL),
    ("n4", "n4", WORKER),
];
const AFTER: Nodes = [
    ("n5", "n5", ALL),
    ("n6", "n6", CENTRAL),
    ("n7", "n7", CENTRAL),
    ("n8", "n8", WORKER),
];

fn names_with_bucket(site: &Site, nodes: &Nodes, backup: &Value) {
    site.names_at(nodes);
    site.edits(|config| config["services"]["etcd"]["backup_config"] = backup.clone());
}

#[test]
fn a_cluster_whose_machines_are_all_gone_goes_on_on_others() {
    let spec = BEFORE
        .iter()
        .chain(&AFTER)
        .fold(LabSpec::own("ha-gone"), |spec, (_, machine, _)| {
            spec.node(machine, Profile::Plain)
        });
    let site = Site::of(&spec);
    let folder = tempfile::tempdir().expect("a folder");
    let log = &mut std::io::stderr();
    let server = S3::for_lab(&site.lab, folder.path(), log).expect("a server of S3");
    server.bucket("backups").expect("a bucket");
    let backup = json!({"s3backupconfig": {
        "endpoint": server.endpoint(),
        "bucket_name": "backups",
        "custom_ca": server.ca().expect("a certificate"),
        "access_key": S3::ACCESS_KEY,
        "secret_key": S3::SECRET_KEY,
    }});
    names_with_bucket(&site, &BEFORE, &backup);
    site.run_static(&["up", "--yes"]).well();
    apply(&site, crate::lab_restore::WORK);
    Site::eventually("the pods run", LIMIT, || works(&site));
    let (id, pod) = (site.cluster_id(), uid(&site, "db-0"));
    site.run_static(&["etcd", "snapshot-save", "--name", "last", "--s3"])
        .well();

    for (_, machine, _) in BEFORE {
        site.lab.node(machine).stop().expect("it is off");
    }
    // So is the machine that had the state.
    std::fs::remove_file(site.path("cluster.rke-operator.json")).expect("a state");
    names_with_bucket(&site, &AFTER, &backup);
    let restore = [
        "etcd",
        "snapshot-restore",
        "--name",
        "last",
        "--s3",
        "--yes",
    ];
    let said = site.run_static(&restore);
    assert_eq!(said.status, 2, "{said:?}");
    assert!(said.stderr.contains("--lose n1"), "{said:?}");
    assert!(!site.path("cluster.rke-operator.json").exists());
    let lose = ["--lose", "n1,n2,n3,n4"];
    let begun = Instant::now();
    site.run_static(&[&restore[..], &lose].concat()).well();
    let took = begun.elapsed();
    publish(
        "HA_TABLE",
        &format!(
            "four machines are gone; the cluster goes on on four others, which had nothing: {:.1} s",
            took.as_secs_f64()
        ),
    );

    assert_eq!(site.cluster_id(), id);
    let maps = get(&site, &["configmaps"], "{.items[*].metadata.name}").stdout;
    assert!(maps.contains("before"), "{maps}");
    // Those of the snapshot ran on machines that are gone.
    Site::eventually("other pods run", LIMIT, || {
        works(&site) && uid(&site, "db-0") != pod
    });
    assert_eq!(site.ready(), names(&["n5", "n6", "n7", "n8"]));
    assert_eq!(
        site.members("n5"),
        names(&["etcd-n5", "etcd-n6", "etcd-n7"])
    );
    site.has_nothing_to_do();
}

/// Two of three members are gone: the third one goes on with all that it has, and takes others in.
#[test]
fn the_last_member_goes_on_with_its_data() {
    let machines = ["n1", "n2", "n3", "n4", "n5"];
    let spec = machines.iter().fold(LabSpec::own("ha-left"), |spec, name| {
        spec.node(name, Profile::Plain)
    });
    let site = Site::of(&spec);
    site.names(&[("n1", ALL), ("n2", ALL), ("n3", ALL)]);
    site.run_static(&["up", "--yes"]).well();
    apply(&site, crate::lab_restore::WORK);
    Site::eventually("the pods run", LIMIT, || works(&site));
    let recover = ["etcd", "recover", "--yes"];
    let said = site.run_static(&recover);
    assert_eq!(said.status, 1, "{said:?}");
    assert!(said.stderr.contains("several nodes"), "{said:?}");
    let said = site.run_static(&["etcd", "recover", "--yes", "--node", "n1"]);
    assert_eq!(said.status, 1, "{said:?}");
    assert!(said.stderr.contains("etcd serves"), "{said:?}");

    apply(
        &site,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: late, namespace: default}}",
    );
    for machine in ["n2", "n3"] {
        site.lab.node(machine).stop().expect("it is off");
    }
    site.names(&[("n1", ALL), ("n4", CENTRAL), ("n5", CENTRAL)]);
    let begun = Instant::now();
    let lose = ["etcd", "recover", "--yes", "--lose", "n2,n3"];
    site.run_static(&lose).well();
    let took = begun.elapsed().as_secs_f64();
    publish(
        "HA_TABLE",
        &format!(
            "two of three members are gone; the third one goes on, and two others join it: {took:.1} s"
        ),
    );
    let maps = get(&site, &["configmaps"], "{.items[*].metadata.name}").stdout;
    assert!(maps.contains("late"), "{maps}");
    Site::eventually("the pods run", LIMIT, || works(&site));
    assert_eq!(site.ready(), names(&["n1", "n4", "n5"]));
    assert_eq!(
        site.members("n1"),
        names(&["etcd-n1", "etcd-n4", "etcd-n5"])
    );
    site.has_nothing_to_do();
}
