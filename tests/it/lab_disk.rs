//! etcd and the disk that its data is on.

use std::time::Duration;

use lab::Profile;

use crate::real::Site;

const MINUTES: Duration = Duration::from_secs(240);

/// The disk goes: the mount point below is empty, as on a node that booted without it.
const UNMOUNT: &str = "docker stop etcd && mv /var/lib/etcd/member /var/lib/etcd-disk";
const MOUNT: &str = "rm -rf /var/lib/etcd/member && mv /var/lib/etcd-disk /var/lib/etcd/member";

#[test]
fn etcd_without_its_disk_does_not_start_and_an_empty_one_is_not_written_to() {
    let site = Site::new("disk", Profile::Plain);
    site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());
    assert_eq!(
        site.state()["operator"]["populated"],
        true,
        "what was seen is remembered"
    );

    let node = site.node();
    node.sh(UNMOUNT).expect("the disk goes");
    let started = node
        .sh("docker start etcd 2>&1 || true")
        .expect("Docker's answer");
    assert!(started.contains("/var/lib/etcd/member"), "{started}");
    let up = site.run(&["up", "--yes"]);
    assert_ne!(up.status, 0, "{up:?}");
    assert!(up.stderr.contains("/var/lib/etcd/member"), "{}", up.stderr);
    node.sh("test ! -e /var/lib/etcd/member")
        .expect("nobody made it");

    // Someone makes the folder: etcd is empty, and the API has nothing.
    node.sh(
        "mkdir -m 700 /var/lib/etcd/member && docker start etcd && docker restart kube-apiserver",
    )
    .expect("they start");
    Site::eventually("an empty API answers", MINUTES, || {
        let listed = site.kubectl(&["get", "configmaps", "-A"]);
        listed.status == 0 && !listed.stdout.contains("coredns")
    });
    let up = site.run(&["up", "--yes"]);
    assert_ne!(up.status, 0, "{up:?}");
    assert!(
        up.stderr.contains("etcd has lost its data"),
        "{}",
        up.stderr
    );
    let secrets = site
        .kubectl(&["get", "secrets", "-n", "kube-system"])
        .well();
    assert!(
        !secrets.stdout.contains("rke-operator-state"),
        "{}",
        secrets.stdout
    );

    node.sh(&format!(
        "docker stop etcd && {MOUNT} && docker start etcd && docker restart kube-apiserver"
    ))
    .expect("the disk is back");
    Site::eventually("the node is Ready", MINUTES, || site.is_ready());
    site.run(&["up", "--yes"]).well();
    assert!(
        site.kubectl(&["get", "configmaps", "-A"])
            .well()
            .stdout
            .contains("coredns")
    );
}
