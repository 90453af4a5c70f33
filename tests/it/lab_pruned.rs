//! Docker lost everything (its data root was moved, it was reinstalled, somebody pruned): the node
//! still has the cluster's data. `up` brings the same cluster back, and `remove` cleans the node.

use std::fs;

use lab::Profile;

use crate::{
    lab_remove::ALLOWED,
    real::{Site, snapshot},
};

/// What people type when Docker's disk is full.
const PRUNE: &str =
    "docker stop $(docker ps --quiet) && docker system prune --all --force --volumes";

fn lose_everything(site: &Site) {
    site.node()
        .sh(PRUNE)
        .expect("everything is stopped and pruned");
    assert!(site.containers().is_empty(), "{:?}", site.containers());
}

/// The authority by which clients know the cluster.
fn authority(site: &Site) -> String {
    let config = fs::read_to_string(site.path("kube_config_cluster.yml")).expect("a kubeconfig");
    let line = config
        .lines()
        .find(|line| line.contains("certificate-authority-data"));
    line.expect("an authority").trim().to_owned()
}

#[test]
fn a_pruned_node_gets_the_same_cluster_back_or_is_cleaned() {
    let site = Site::new("lost", Profile::Plain);
    let before = snapshot::take(site.node());
    site.run(&["up", "--yes"]).well();
    let theirs = ["create", "configmap", "theirs", "--from-literal=kept=yes"];
    assert_eq!(site.kubectl(&theirs).status, 0);
    let known = authority(&site);
    let uid = [
        "get",
        "namespace",
        "kube-system",
        "-o",
        "jsonpath={.metadata.uid}",
    ];
    let cluster = site.kubectl(&uid).stdout;

    lose_everything(&site);
    site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());
    assert_eq!(authority(&site), known, "another authority");
    assert_eq!(site.kubectl(&uid).stdout, cluster, "another cluster");
    let kept = site.kubectl(&["get", "configmap", "theirs", "-o", "jsonpath={.data.kept}"]);
    assert_eq!(kept.stdout, "yes", "{kept:?}");
    let again = site.run(&["up"]).well();
    assert!(again.stderr.contains("nothing to do"), "{again:?}");

    lose_everything(&site);
    let removed = site.run(&["remove", "--force"]).well();
    snapshot::unchanged(site.node(), &before, ALLOWED);
    assert!(
        !site.path("cluster.rke-operator.json").exists(),
        "{removed:?}"
    );
}
