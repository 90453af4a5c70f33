//! What is mounted below our folders: nothing that lies on it is deleted, whatever it is, and what
//! cannot be unmounted stops a removal before it deletes.

use std::time::{Duration, Instant};

use lab::Profile;

use crate::{
    lab_remove::ALLOWED,
    real::{Site, snapshot},
};

const UP: &[&str] = &["up", "--yes"];
const REMOVE: &[&str] = &["remove", "--force"];

/// An administrator's own disk at kubelet's folder, and another below etcd's; a bind that is used,
/// and a bind of a folder of the same file system, as a local volume is.
#[test]
fn nothing_that_is_mounted_below_our_folders_is_deleted() {
    let site = Site::new("mounts", Profile::Plain);
    let node = site.node();
    // The second is on the file system of `/etc`; and etcd's folder was there before us.
    node.sh("set -e
         mkdir /var/lib/kubelet && mount -t tmpfs -o size=1g own-disk /var/lib/kubelet
         mkdir /var/lib/kubelet/lost+found
         mkdir /var/lib/theirs /srv/theirs && mkdir /var/lib/etcd
         echo precious | tee /var/lib/theirs/file > /srv/theirs/file")
        .expect("folders");
    let before = snapshot::take(node);
    site.run(UP).well();
    assert!(site.is_ready());
    let volume = "/var/lib/kubelet/plugins/theirs/data";
    node.sh(&format!(
        "set -e
         mkdir -p {volume} && mount --bind /var/lib/theirs {volume}
         mkdir /var/lib/etcd/backup && mount -t tmpfs backup /var/lib/etcd/backup
         echo snapshot > /var/lib/etcd/backup/snapshot.db
         mkdir /etc/kubernetes/theirs && mount --bind /srv/theirs /etc/kubernetes/theirs
         systemd-run --quiet --unit busy --working-directory={volume} sleep infinity"
    ))
    .expect("mounts below our folders");

    let first = site.run(REMOVE);
    assert_ne!(first.status, 0, "it cannot be clean: {first:?}");
    let said = first.stdout + &first.stderr;
    for mount in ["/var/lib/etcd/backup", "/etc/kubernetes/theirs"] {
        assert!(said.contains(mount), "{mount} is not named in:\n{said}");
    }
    assert!(
        site.path("cluster.rke-operator.json").exists(),
        "the state went"
    );
    let precious = "sort -u /var/lib/theirs/file /srv/theirs/file";
    let told = |script: &str| node.sh(script).expect("it is there");
    assert_eq!(told(precious), "precious");
    assert_eq!(told("cat /var/lib/etcd/backup/snapshot.db"), "snapshot");

    node.sh(
        "systemctl stop busy; umount /var/lib/etcd/backup /etc/kubernetes/theirs
         umount /var/lib/kubelet/plugins/theirs/data 2> /dev/null || true",
    )
    .expect("the administrator clears up");
    site.run(REMOVE).well();
    snapshot::unchanged(node, &before, ALLOWED);
    assert_eq!(told(precious), "precious");
    let disk = "findmnt --noheadings --output SOURCE /var/lib/kubelet; ls -A /var/lib/kubelet";
    assert_eq!(told(disk), "own-disk\nlost+found");
}

/// kubelet's folder is a link, and below it is a volume whose server is dead: whoever touches it
/// waits for ever.
#[test]
fn a_mount_that_hangs_below_a_link_does_not_hang_a_removal() {
    let site = Site::new("dead", Profile::Plain);
    let node = site.node();
    node.sh("mkdir /var/lib/data && ln -s data /var/lib/kubelet")
        .expect("a link");
    let before = snapshot::take(node);
    site.run(UP).well();
    assert!(site.is_ready());
    let volume = "/var/lib/data/plugins/theirs/dead";
    node.hang_mount(volume).expect("a mount that hangs");
    let touched = format!("(exec stat {volume}/file) > /dev/null 2>&1 & sleep 2; kill -0 $!");
    node.sh(&touched).expect("who touches it waits");

    for attempt in 1..=2 {
        let begun = Instant::now();
        let removed = site.run(REMOVE);
        assert!(
            begun.elapsed() < Duration::from_secs(180),
            "attempt {attempt} took {:?}: {removed:?}",
            begun.elapsed()
        );
        if removed.status == 0 {
            break;
        }
        let said = removed.stdout + &removed.stderr;
        assert!(said.contains(volume), "attempt {attempt}: {said}");
        node.end_hang().expect("the server is given up");
    }
    node.end_hang().expect("the server is given up");
    site.run(REMOVE).well();
    snapshot::unchanged(node, &before, ALLOWED);
    let mounts = node.sh("grep -c /var/lib/data /proc/self/mounts || true");
    assert_eq!(mounts.expect("mounts"), "0");
}
