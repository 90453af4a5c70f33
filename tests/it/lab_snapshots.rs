//! Recurring snapshots on a real node: taken by the program that `up` puts there, restored for trial, and for real; and
//! copied to a bucket, from which they come back.

use std::time::Duration;

use lab::{Profile, S3};
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

/// The names of those that were restored for trial, the newest last.
fn proven(node: &Value) -> Vec<String> {
    proven_since(node, 0)
}

/// The same, of those that have all that etcd had at a revision.
fn proven_since(node: &Value, revision: i64) -> Vec<String> {
    let snapshots = node["snapshots"].as_array().expect("a list").iter();
    snapshots
        .filter(|one| one["proof"]["grade"] == "Proven")
        .filter(|one| one["meta"]["revision"].as_i64() >= Some(revision))
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
    // A snapshot may be taken before the object is made and be proven after it: the revision tells.
    let revision = ["configmap", "early"];
    let revision = get(&site, &revision, "{.metadata.resourceVersion}").stdout;
    let revision = revision.parse().expect("a revision");
    Site::eventually("two are proven, and one has the object", LIMIT, || {
        let node = listed(&site);
        proven(&node).len() > 1 && !proven_since(&node, revision).is_empty()
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

    // As before an upgrade, the node lacks the image that the config names: that of the program which runs there is used.
    let lacking = "system_images: {etcd_tools: registry.lab:5000/none:v0}\n";
    site.write_config("cluster.yml", &with(&format!("{schedule}{lacking}")));
    let save = ["etcd", "snapshot-save", "--name", "before", "-o", "json"];
    let saved = site.run_static(&save).well().stdout;
    let saved: Value = serde_json::from_str(&saved).expect("JSON");
    assert_eq!(saved["saved"]["n1"]["grade"], "Proven", "{saved}");
    for command in ["verify", "snapshot-delete"] {
        let named = ["etcd", command, "--name", "before"];
        site.run_static(&named).well();
    }
    site.write_config("cluster.yml", &with(schedule));

    // Another look into it, and the end of one.
    let all = proven(&listed(&site));
    let [.., gone, kept] = &all[..] else {
        panic!("two of them: {all:?}");
    };
    let verify = ["etcd", "verify", "--name", kept];
    let said = site.run_static(&verify).well().stdout;
    assert!(
        said.contains("is proven") && said.contains("keys"),
        "{said}"
    );
    let plain = "install -m 600 /etc/hostname /opt/rke/etcd-snapshots/plain";
    site.node().sh(plain).expect("a file of a person");
    let delete = |name: &str| site.run_static(&["etcd", "snapshot-delete", "--name", name]);
    for (name, status, words) in [
        ("plain", 3, "was left alone"),
        ("nowhere", 1, "it is not there"),
        (gone, 0, "deleted"),
    ] {
        let run = delete(name);
        assert_eq!(run.status, status, "{run:?}");
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(said.contains(words), "{said}");
    }
    Site::eventually("it is no longer listed", LIMIT, || {
        !proven(&listed(&site)).contains(gone)
    });
    assert!(files(&site).contains("plain"));

    // What was written and compacted goes back to the disk.
    let fills = "for i in $(seq 20); do
                   head -c 1000000 /dev/zero | tr '\\0' x | docker exec -i etcd etcdctl put /filling/$i
                 done
                 docker exec etcd etcdctl del --prefix /filling/
                 revision=$(docker exec etcd etcdctl get / -w json | sed 's/.*\"revision\":\\([0-9]*\\).*/\\1/')
                 docker exec etcd etcdctl compact --physical $revision";
    site.node().sh(fills).expect("etcd takes it");
    let said = site.run(&["etcd", "defrag", "-o", "json"]).well().stdout;
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let bytes = |when: &str| said["members"][0][when].as_u64().expect("bytes");
    assert!(bytes("after") + 15_000_000 < bytes("before"), "{said}");
    assert!(site.is_ready());

    // The newest is restored; what was made since is gone.
    let newest = proven(&listed(&site)).pop().expect("a snapshot");
    apply(
        &site,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: late, namespace: default}}",
    );
    let restore = ["etcd", "snapshot-restore", "--name", &newest, "--yes"];
    let asked = site.run_static(&restore[..4]);
    assert!(asked.stderr.contains("configmaps: 1"), "{asked:?}");
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

    let folder = tempfile::tempdir().expect("a folder");
    let log = &mut std::io::stderr();
    let server = S3::for_lab(&site.lab, folder.path(), log).expect("a server of S3");
    let objects = server.bucket("backups").expect("a bucket").join("prod");
    let bucket = serde_json::json!({"services": {"etcd": {
        "backup_config": {"s3backupconfig": {
            "endpoint": server.endpoint(),
            "bucket_name": "backups",
            "folder": "prod",
            "custom_ca": server.ca().expect("a certificate"),
            "access_key": S3::ACCESS_KEY,
            "secret_key": S3::SECRET_KEY,
        }},
    }}});
    site.write_config("cluster.yml", &with(&bucket.to_string()));
    site.run_static(&["up", "--yes"]).well();
    Site::eventually("a recurring one is copied", LIMIT, || {
        let table = site.run(&["etcd", "snapshot-list"]).well().stdout;
        let row = |line: &str| line.starts_with("bucket") && line.contains("schedule");
        table.lines().any(row) && site.run(&["status"]).stdout.contains("newest copy of")
    });

    let inspected = site.node().sh(&inspect).expect("a container");
    assert!(!inspected.contains(S3::SECRET_KEY), "{inspected}");

    // `snapshot-save --s3` proves its snapshot and copies it. When the node has lost its files, the copy is restored.
    let named = [
        "etcd",
        "snapshot-save",
        "--name",
        "asked",
        "--s3",
        "-o",
        "json",
    ];
    let saved = site.run_static(&named).well().stdout;
    let saved: Value = serde_json::from_str(&saved).expect("JSON");
    let saved = &saved["saved"]["n1"];
    assert_eq!(saved["grade"], "Proven", "{saved}");
    assert!(
        saved["copied"]
            .as_str()
            .is_some_and(|it| it.contains("backups/prod")),
        "{saved}"
    );
    assert!(objects.join("asked.zip").is_file());
    apply(
        &site,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: later, namespace: default}}",
    );
    let lost = "rm -rf /opt/rke/etcd-snapshots/*";
    site.node().sh(lost).expect("an empty folder");
    let restore = [
        "etcd",
        "snapshot-restore",
        "--name",
        "asked",
        "--s3",
        "--yes",
    ];
    let said = site.run_static(&restore).well().stderr;
    assert!(said.contains("copied `asked` from the bucket"), "{said}");
    let names = get(&site, &["configmaps"], "{.items[*].metadata.name}").stdout;
    assert!(
        names.contains("early") && !names.contains("later"),
        "{names}"
    );
    let newest = "asked".to_owned();

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
    let run = delete(&newest);
    assert_eq!(run.status, 1, "nothing takes snapshots there: {run:?}");
    assert!(
        run.stderr.contains("wants no recurring snapshots"),
        "{run:?}"
    );
    site.run_static(&["remove", "--yes"]).well();
    assert!(files(&site).contains(&newest));
}
