//! `etcd snapshot-restore` on a real node: what a snapshot holds is back, what was made since is gone, and what ran on is
//! not doubled.

use std::{collections::BTreeSet, fs::File, process::Command, time::Duration};

use lab::Profile;

use crate::real::{Run, Site, informer::Informer};

pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// When an informer that ran on over a restore has to be right again.
const INFORMED: Duration = Duration::from_secs(60);

/// A Deployment and a `StatefulSet` of containers that do nothing, which every node has an image for.
pub(crate) const WORK: &str = r"
apiVersion: v1
kind: ConfigMap
metadata: {name: before, namespace: default}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: 'rancher/mirrored-pause:3.6'}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: default}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: 'rancher/mirrored-pause:3.6'}]
";

pub(crate) fn apply(site: &Site, yaml: &str) {
    site.write_config("objects.yml", yaml);
    let file = site.path("objects.yml").display().to_string();
    site.kubectl(&["apply", "-f", &file]).well();
}

pub(crate) fn get(site: &Site, what: &[&str], path: &str) -> Run {
    let output = format!("jsonpath={path}");
    let mut words = vec!["get"];
    words.extend(what);
    words.extend(["-o", &output]);
    site.kubectl(&words)
}

pub(crate) fn uid(site: &Site, pod: &str) -> String {
    get(site, &["pod", pod], "{.metadata.uid}").stdout
}

pub(crate) fn works(site: &Site) -> bool {
    let web = get(site, &["deployment", "web"], "{.status.availableReplicas}");
    let db = get(site, &["statefulset", "db"], "{.status.availableReplicas}");
    (web.stdout.as_str(), db.stdout.as_str()) == ("2", "1")
}

/// The uids of the pods that run on the node, as its kernel tells.
fn running(site: &Site) -> Vec<String> {
    let script = "cat /proc/[0-9]*/cgroup 2>/dev/null | grep -oE 'pod[0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}' \
                  | sort -u | tr _ - | sed 's/^pod//'";
    let said = site.node().sh(script).expect("processes");
    said.lines().map(str::to_owned).collect()
}

fn in_api(site: &Site) -> Vec<String> {
    let said = get(site, &["pods", "-A"], "{.items[*].metadata.uid}").stdout;
    let mut uids: Vec<String> = said.split_whitespace().map(str::to_owned).collect();
    uids.sort();
    uids
}

fn revision(site: &Site) -> u64 {
    let said = site
        .node()
        .sh("docker exec etcd etcdctl endpoint status -w json")
        .expect("a status");
    let status: serde_json::Value = serde_json::from_str(said.trim()).expect("JSON");
    status[0]["Status"]["header"]["revision"]
        .as_u64()
        .expect("a revision")
}

#[test]
fn a_snapshot_is_restored_on_the_node_that_took_it() {
    let site = Site::new("restore", Profile::Plain);
    site.run(&["up", "--yes"]).well();
    apply(&site, WORK);
    Site::eventually("the pods run", LIMIT, || works(&site));
    let pod = uid(&site, "db-0");
    site.run(&["etcd", "snapshot-save", "--name", "s1"]).well();

    let informer = Informer::of(&site);
    // What the snapshot does not have: an object, and another pod in the place of one that it has.
    apply(
        &site,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: after, namespace: default}}",
    );
    site.kubectl(&["delete", "configmap", "before"]).well();
    site.kubectl(&["delete", "pod", "db-0"]).well();
    Site::eventually("another pod runs", LIMIT, || {
        works(&site) && uid(&site, "db-0") != pod
    });
    let successor = uid(&site, "db-0");
    let web = || {
        get(
            &site,
            &["pods", "-l", "app=web"],
            "{.items[*].metadata.uid}",
        )
        .stdout
    };
    let (untouched, before) = (web(), revision(&site));
    Site::eventually("an informer sees both", INFORMED, || {
        let seen = informer.names();
        seen.contains("after") && !seen.contains("before")
    });

    // Without consent nothing is stopped.
    let refused = site.run(&["etcd", "snapshot-restore", "--name", "s1"]);
    assert_ne!(refused.status, 0);
    assert!(
        refused
            .stderr
            .contains("replaces all that the cluster's API holds"),
        "{}",
        refused.stderr
    );
    assert_eq!(uid(&site, "db-0"), successor);

    site.run(&["etcd", "snapshot-restore", "--name", "s1", "--yes"])
        .well();
    let names = get(&site, &["configmaps"], "{.items[*].metadata.name}").stdout;
    assert!(
        names.contains("before") && !names.contains("after"),
        "{names}"
    );
    Site::eventually("the informer, which ran on, is right", INFORMED, || {
        let there: BTreeSet<_> = names.split_whitespace().map(str::to_owned).collect();
        informer.names() == there
    });
    assert_eq!(
        web(),
        untouched,
        "what the snapshot and the node have goes on"
    );
    // What the snapshot says of its pods is true again before one of them runs.
    let mut third = String::new();
    Site::eventually(
        "a pod runs that is neither of the two before",
        LIMIT,
        || {
            third = uid(&site, "db-0");
            works(&site) && !["", &pod, &successor].contains(&third.as_str())
        },
    );
    Site::eventually("the node runs what the API has", LIMIT, || {
        running(&site) == in_api(&site)
    });
    assert!(
        revision(&site) > before + 900_000_000,
        "no client takes an old object for a new one"
    );
    let kept = site
        .node()
        .sh("ls /var/lib/etcd/member.before-1/snap/db")
        .expect("what was there before");
    assert!(!kept.is_empty());
    assert!(site.is_ready());
    site.has_nothing_to_do();

    // One that is cut off when everything was stopped is taken back, with what was there before.
    apply(
        &site,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: later, namespace: default}}",
    );
    let restore = ["etcd", "snapshot-restore", "--name", "s1", "--yes"];
    let cut = site.kill_when(&restore, |title| {
        title
            .contains("run etcd")
            .then_some(Duration::from_millis(300))
    });
    assert!(cut.is_some(), "the restored etcd was started");
    let refused = site.run(&["up", "--yes"]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("snapshot-restore --back"),
        "{}",
        refused.stderr
    );
    site.run(&["etcd", "snapshot-restore", "--back", "--yes"])
        .well();
    let names = get(&site, &["configmaps"], "{.items[*].metadata.name}").stdout;
    assert!(names.contains("later"), "{names}");
    assert_eq!(uid(&site, "db-0"), third);
    site.has_nothing_to_do();
    let refused = site.run(&["etcd", "snapshot-restore", "--back", "--yes"]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);

    // A second one, of the same data in a file of RKE: its revision is beyond the first's.
    as_rke_writes_it(&site, "s1", "theirs");
    let before = revision(&site);
    site.run(&["etcd", "snapshot-restore", "--name", "theirs", "--yes"])
        .well();
    assert!(revision(&site) > before + 900_000_000);
    let names = get(&site, &["configmaps"], "{.items[*].metadata.name}").stdout;
    assert!(
        names.contains("before") && !names.contains("later"),
        "{names}"
    );
    site.has_nothing_to_do();
}

/// Makes another snapshot out of one on the node: a zip, by the library that RKE's tools write theirs with.
fn as_rke_writes_it(site: &Site, one: &str, other: &str) {
    let folder = "/opt/rke/etcd-snapshots";
    let node = site.node().container();
    let copy = |from: &str, to: &str| {
        let run = Command::new("docker").args(["cp", from, to]).status();
        assert!(run.expect("docker runs").success(), "{from} to {to}");
    };
    let (database, zip) = (site.path("db"), site.path("zip"));
    copy(
        &format!("{node}:{folder}/{one}"),
        &database.display().to_string(),
    );
    site.write_config("rkestate", "{\"desiredState\": {}}");
    let written = Command::new("go")
        .args(["run", "tests/it/rke_zip/main.go"])
        .args([&database, &site.path("rkestate")])
        .arg(other)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdout(File::create(&zip).expect("a file"))
        .status();
    assert!(written.expect("go runs").success());
    let place = format!("{folder}/{other}.zip");
    copy(&zip.display().to_string(), &format!("{node}:{place}"));
    let owned = format!("chown root:root {place} && chmod 0600 {place}");
    site.node().sh(&owned).expect("root's file");
}

#[test]
fn what_is_no_snapshot_of_this_cluster_is_refused_before_anything_stops() {
    let site = Site::new("unrestored", Profile::Plain);
    site.run(&["up", "--yes"]).well();
    site.run(&["etcd", "snapshot-save", "--name", "s1"]).well();
    let node = site.node();
    let folder = "cd /opt/rke/etcd-snapshots &&";
    // One byte of a page; half of the file; another cluster's id, with a hash that is right; a zip.
    let id = site.cluster_id();
    let another = "0".repeat(id.len());
    let script = format!(
        r"{folder} size=$(stat -c %s s1) && cp s1 page &&
        printf x | dd of=page bs=1 seek=9000 conv=notrunc 2>/dev/null &&
        head -c $((size / 2)) s1 >half && touch zipped.zip &&
        head -c $((size - 32)) s1 | sed 's/{id}/{another}/g' >other"
    );
    node.sh(&script).expect("files");
    let hash = node.sh(&format!("{folder} sha256sum other | cut -c 1-64"));
    let hash = hex::decode(hash.expect("a hash").trim()).expect("hex");
    let octal: Vec<String> = hash.iter().map(|byte| format!("\\{byte:03o}")).collect();
    let append = format!("{folder} printf '{}' >>other", octal.concat());
    node.sh(&append).expect("its hash");
    let before = site.containers();
    for (name, says) in [
        ("page", "its hash is another one"),
        ("half", "its hash is another one"),
        ("other", "is not of this cluster"),
        ("zipped", "as a zip that cannot be read"),
        ("none", "is not there"),
    ] {
        let refused = site.run(&["etcd", "snapshot-restore", "--name", name, "--yes"]);
        assert_eq!(refused.status, 1, "{name}: {}", refused.stderr);
        assert!(refused.stderr.contains(says), "{name}: {}", refused.stderr);
    }
    let refused = site.run(&["etcd", "snapshot-restore", "--name", "s1", "--yes", "--s3"]);
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("no bucket is configured"),
        "{}",
        refused.stderr
    );
    assert_eq!(site.containers(), before);
    assert!(site.state()["etcdEpoch"].is_null());
}
