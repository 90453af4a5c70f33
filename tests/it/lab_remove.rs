//! `remove` gives the node back: what is different afterwards is a short list, with reasons.

use lab::Profile;

use crate::real::{
    Site,
    snapshot::{self, CAME},
};

/// Everything that may differ, at most ten entries.
pub(crate) const ALLOWED: &[snapshot::Allowed] = &[
    (
        "images",
        CAME,
        "rancher/",
        "system images stay unless asked: the next `up` needs no pull",
    ),
    (
        "images",
        CAME,
        "nginx:",
        "the same, on nodes without a control plane",
    ),
    (
        "files",
        CAME,
        "/run/xtables.lock",
        "the lock file of iptables itself, empty",
    ),
    (
        "files",
        CAME,
        "/run/netns",
        "the folder of `ip netns`, empty",
    ),
    (
        "mounts",
        CAME,
        "/run/netns",
        "that folder, as `ip netns` mounts it",
    ),
    (
        "mounts",
        CAME,
        "/run/docker/netns/default",
        "Docker's own, since the first container in the host's network",
    ),
    (
        "pods",
        CAME,
        "moby",
        "Docker's own namespace in containerd, since the first container",
    ),
    (
        "files",
        CAME,
        "/var/lib/containerd/io.containerd.content.v1.content",
        "containerd's own folder, since the first image",
    ),
    ("files", CAME, "/opt/rke d ", "the folder of the next one"),
    (
        "files",
        CAME,
        "/opt/rke/etcd-snapshots",
        "the last snapshot, and the folder with RKE's name",
    ),
];

#[test]
fn remove_gives_the_node_back_and_harms_nobody() {
    let site = Site::new("remove", Profile::Plain);
    assert!(ALLOWED.len() <= 10);
    // Someone else's container, image, network and volume.
    site.node()
        .sh(
            "docker network create theirs && docker volume create theirs && \
             docker pull -q library/nginx:1.26.3 && docker tag library/nginx:1.26.3 theirs:1 && \
             docker run -d --name theirs --network theirs -v theirs:/data theirs:1",
        )
        .expect("someone else's container");
    let before = snapshot::take(site.node());

    site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());
    let refused = site.run(&["remove"]);
    assert_eq!(refused.status, 1, "no terminal and no --force: {refused:?}");
    assert!(site.is_ready(), "nothing was done");

    let removed = site.run(&["remove", "--force"]).well();
    snapshot::unchanged(site.node(), &before, ALLOWED);
    let kept = site
        .node()
        .sh("cd /opt/rke/etcd-snapshots; ls -A; stat -c '%a %U' *");
    let kept = kept.expect("the last snapshot");
    let (name, mode) = kept.split_once('\n').expect("one file");
    assert!(name.starts_with("before-removal_"), "{kept}");
    assert_eq!(mode, "600 root");
    let said =
        format!("the last snapshot of etcd is `/opt/rke/etcd-snapshots/{name}` on node `n1`");
    assert!(removed.stderr.contains(&said), "{removed:?}");
    assert!(!site.path("kube_config_cluster.yml").exists());

    // Again: nothing there is success; and the node takes a new cluster.
    site.run(&["remove", "--force"]).well();
    site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());

    site.run(&["remove", "--force", "--no-snapshot"]).well();
    let kept = site.node().sh("ls -A /opt/rke/etcd-snapshots");
    assert_eq!(kept.expect("the folder"), name, "no second one");
}
