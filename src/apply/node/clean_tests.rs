//! The shell functions run on a real `sh`, with real mounts and real iptables, in a folder instead
//! of `/` and in dedicated namespaces.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    process::Command,
};

use tempfile::TempDir;

use super::*;

/// A node's root in a folder.
pub(super) struct Node {
    folder: TempDir,
    before: Baseline,
    containerd: Option<UnixListener>,
}

impl Node {
    pub(super) fn new() -> Self {
        let node = Self {
            folder: tempfile::tempdir().unwrap(),
            before: Baseline::default(),
            containerd: None,
        };
        node.program("systemctl", "exit 0");
        node
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    pub(super) fn file(&self, path: &str, content: &str) {
        let file = self.path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    pub(super) fn text(&self, path: &str) -> String {
        read(self.path(path))
    }

    /// A program that is found before the machine's own.
    fn program(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt;
        let file = format!("/programs/{name}");
        self.file(&file, &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(self.path(&file), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// containerd answers with what this script says of `ctr`'s arguments.
    pub(super) fn containerd(&mut self, ctr: &str) {
        let socket = self.path("/run/containerd/containerd.sock");
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        self.containerd = Some(UnixListener::bind(socket).unwrap());
        self.program("ctr", ctr);
    }

    pub(super) fn had(&mut self, paths: &[&str]) {
        let paths = paths.iter().map(|path| (*path).to_owned());
        self.before.paths.extend(paths);
    }

    /// Runs `setup` (`$1` is the root), then the script, then `after`, all in dedicated mount and
    /// network namespaces.
    pub(super) fn clean_between(&self, setup: &str, after: &str) -> (CleanReport, String) {
        let mut command = Command::new("unshare");
        if !is_root() {
            command.arg("--map-root-user");
        }
        let outer = "set -e; PATH=$1/programs:$PATH; root=$1 setup=$2 after=$3 script=$4; shift 4; \
             eval \"$setup\"; sh -c \"$script\" rke-operator --root \"$root\" \"$@\"; \
             eval \"$after\"";
        let root = self.root().to_str().unwrap();
        command
            .args(["--mount", "--net", "sh", "-c", outer, "sh", root])
            .args([setup, after, SCRIPT])
            .args(arguments(&self.before, &ContainerdFacts::default()));
        let output = command.output().expect("unshare");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "these tests need root or user namespaces: {out}{err}"
        );
        (CleanReport::of(&out), out + &err)
    }

    fn clean(&self) -> CleanReport {
        self.clean_between("true", "true").0
    }
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout == b"0\n"
}

fn read(file: std::path::PathBuf) -> String {
    String::from_utf8(fs::read(file).unwrap()).unwrap()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(kind, name): &(&str, &str)| ((*kind).to_owned(), (*name).to_owned());
    list.iter().map(owned).collect()
}

#[test]
fn the_clusters_folders_go_and_everything_else_stays() {
    let mut node = Node::new();
    for file in [
        "/etc/kubernetes/ssl/a.pem",
        "/var/lib/etcd/member/wal",
        "/var/lib/kubelet/pods/x/file",
        "/var/log/pods/x/0.log",
        "/etc/cni/net.d/10-flannel.conflist",
        "/etc/cni/net.d/87-podman-bridge.conflist",
        "/var/lib/cni/networks/cbr0/10.42.0.2",
        "/var/lib/cni/networks/podman/10.88.0.2",
        "/opt/cni/bin/bridge",
        "/opt/cni/bin/flannel",
        "/etc/sysctl.d/99-rke-operator.conf",
        "/etc/sysctl.d/10-theirs.conf",
        "/home/people/file",
    ] {
        node.file(file, "x");
    }
    node.had(&["/opt/cni/bin", "/opt/cni/bin/bridge", "/etc/sysctl.d"]);
    assert_eq!(node.clean().message(), "not clean yet: ");
    for gone in [
        "/etc/kubernetes",
        "/var/lib/etcd",
        "/var/lib/kubelet",
        "/var/log/pods",
        "/etc/cni/net.d/10-flannel.conflist",
        "/var/lib/cni/networks/cbr0",
        "/opt/cni/bin/flannel",
        "/etc/sysctl.d/99-rke-operator.conf",
    ] {
        assert!(!node.has(gone), "{gone}");
    }
    for stays in [
        "/etc/cni/net.d/87-podman-bridge.conflist",
        "/var/lib/cni/networks/podman/10.88.0.2",
        "/opt/cni/bin/bridge",
        "/etc/sysctl.d/10-theirs.conf",
        "/home/people/file",
    ] {
        assert!(node.has(stays), "{stays}");
    }
    assert!(node.clean().is_clean(), "it may be repeated");
}

/// R3, R4: a mount point below a folder of the cluster, of another or of the same file system.
#[test]
fn nothing_is_deleted_while_something_is_mounted_below() {
    let node = Node::new();
    node.file("/srv/backup/snapshot", "precious");
    node.file("/srv/local/data", "precious");
    node.file("/var/lib/etcd/member/wal", "x");
    node.file("/var/lib/kubelet/config.json", "x");
    for point in ["/var/lib/etcd/backup", "/var/lib/kubelet/of people"] {
        fs::create_dir_all(node.path(point)).unwrap();
    }
    let setup = "mount --bind $root/srv/backup $root/var/lib/etcd/backup; \
                 mount --bind $root/srv/local \"$root/var/lib/kubelet/of people\"";
    let look = "cat $root/var/lib/etcd/backup/snapshot \"$root/var/lib/kubelet/of people/data\"";
    let (report, output) = node.clean_between(setup, look);
    assert!(output.ends_with("preciousprecious"), "{output}");
    let root = node.root().display();
    assert_eq!(
        report.left,
        pairs(&[
            ("mount", &format!("{root}/var/lib/etcd/backup")),
            ("mount", &format!("{root}/var/lib/kubelet/of\\040people")),
        ])
    );
    assert!(node.has("/srv/backup/snapshot") && node.has("/srv/local/data"));
    assert!(node.has("/var/lib/etcd/member/wal"), "nothing at all");
    // Unmounted, it goes on.
    assert!(node.clean().is_clean());
    assert!(node.has("/srv/backup/snapshot") && !node.has("/var/lib/etcd"));
}

#[test]
fn volumes_of_pods_are_unmounted_and_what_is_in_them_stays() {
    let node = Node::new();
    node.file("/srv/volume/data", "precious");
    for point in [
        "/var/lib/kubelet/pods/u/volumes/local/v",
        "/var/lib/kubelet/pods/u/volume-subpaths/v/c/0",
        "/var/lib/kubelet/plugins/csi/globalmount",
        "/run/containerd/io.containerd.runtime.v2.task/k8s.io/x/rootfs",
    ] {
        fs::create_dir_all(node.path(point)).unwrap();
    }
    let setup = "for to in var/lib/kubelet/pods/u/volumes/local/v \
         var/lib/kubelet/pods/u/volume-subpaths/v/c/0 var/lib/kubelet/plugins/csi/globalmount \
         run/containerd/io.containerd.runtime.v2.task/k8s.io/x/rootfs; do \
         mount --bind $root/srv/volume $root/$to; mount --bind $root/srv/volume $root/$to; done";
    let (report, output) = node.clean_between(setup, "true");
    assert!(report.is_clean(), "{output}");
    assert!(node.has("/srv/volume/data") && !node.has("/var/lib/kubelet"));
}

/// R5: the disks that people mount for kubelet and etcd stay mounted.
#[test]
fn a_disk_at_a_folder_of_the_cluster_stays_mounted_and_is_emptied() {
    let mut node = Node::new();
    for folder in ["/var/lib/kubelet", "/var/lib/etcd"] {
        fs::create_dir_all(node.path(folder)).unwrap();
    }
    node.had(&["/var/lib/kubelet"]);
    let setup = "for to in kubelet etcd; do mount -t tmpfs none $root/var/lib/$to; \
                 mkdir -p $root/var/lib/$to/lost+found $root/var/lib/$to/pods; done";
    let look =
        "for to in kubelet etcd; do mountpoint -q $root/var/lib/$to && ls $root/var/lib/$to; done";
    let (report, output) = node.clean_between(setup, look);
    assert!(report.is_clean(), "{output}");
    assert!(output.ends_with("lost+found\nlost+found\n"), "{output}");
}

/// R34: mounts appear under the real path.
#[test]
fn a_link_at_a_folder_of_the_cluster_stays_and_its_target_is_emptied() {
    let node = Node::new();
    node.file("/data/kubelet/pods/u/v/.keep", "");
    node.file("/data/kubelet/config.json", "x");
    node.file("/srv/volume/data", "precious");
    node.file("/srv/elsewhere/data", "precious");
    fs::create_dir_all(node.path("/var/lib")).unwrap();
    symlink(node.path("/data/kubelet"), node.path("/var/lib/kubelet")).unwrap();
    node.file("/etc/cni/net.d/x", "");
    symlink(
        node.path("/srv/elsewhere"),
        node.path("/etc/cni/net.d/link"),
    )
    .unwrap();
    symlink(node.path("/srv/elsewhere"), node.path("/data/kubelet/link")).unwrap();
    let setup = "mount --bind $root/srv/volume $root/var/lib/kubelet/pods/u/v";
    let (report, output) = node.clean_between(setup, "true");
    assert!(report.is_clean(), "{output}");
    assert!(node.has("/srv/volume/data") && node.has("/srv/elsewhere/data"));
    assert!(node.has("/var/lib/kubelet"), "an administrator's link");
    assert_eq!(fs::read_dir(node.path("/data/kubelet")).unwrap().count(), 0);
    assert!(!node.has("/etc/cni"));
}

#[test]
fn a_link_to_a_whole_disk_is_not_emptied() {
    let node = Node::new();
    node.file("/data/of-people", "precious");
    fs::create_dir_all(node.path("/var/lib")).unwrap();
    symlink(node.path("/data"), node.path("/var/lib/etcd")).unwrap();
    let report = node.clean();
    assert!(node.has("/data/of-people"));
    assert_eq!(report.unknown.len(), 1, "{report:?}");
}

#[test]
fn without_mountinfo_nothing_is_deleted() {
    let node = Node::new();
    node.file("/var/lib/etcd/member/wal", "x");
    node.program("cat", "exit 1");
    let report = node.clean();
    assert!(node.has("/var/lib/etcd/member/wal"));
    assert!(
        report.unknown.iter().any(|(kind, _)| kind == "mounts"),
        "{report:?}"
    );
}

/// R31: as a file server that is gone.
#[test]
fn a_mount_that_hangs_is_taken_out_of_the_tree() {
    let node = Node::new();
    node.file("/srv/volume/data", "precious");
    fs::create_dir_all(node.path("/var/lib/kubelet/pods/u/nfs")).unwrap();
    node.program(
        "umount",
        "case \"$*\" in *-l*) exec /bin/umount \"$@\" ;; *-f*) exit 1 ;; *) exec sleep 600 ;; esac",
    );
    let setup = "mount --bind $root/srv/volume $root/var/lib/kubelet/pods/u/nfs";
    let (report, output) = node.clean_between(setup, "true");
    assert!(report.is_clean(), "{output}");
    assert!(node.has("/srv/volume/data") && !node.has("/var/lib/kubelet"));
}

/// R6: a failure of `ctr` is no absence.
#[test]
fn pods_that_cannot_be_counted_are_unknown() {
    let mut node = Node::new();
    assert!(node.clean().is_clean(), "a node without containerd");
    node.containerd("exit 1");
    let unknown = |report: CleanReport| report.unknown;
    let why = "ctr does not list containerd's namespaces";
    assert_eq!(unknown(node.clean()), pairs(&[("tasks", why)]));
    node.program(
        "ctr",
        "case \"$*\" in *namespaces*ls*) echo k8s.io ;; *tasks*ls*) exit 1 ;; esac",
    );
    let why = "ctr does not list containerd's tasks";
    assert_eq!(unknown(node.clean()), pairs(&[("tasks", why)]));
    node.program("ctr", "case \"$*\" in *namespaces*ls*) echo moby ;; esac");
    assert!(node.clean().is_clean(), "containerd has no such namespace");
}

#[test]
fn tasks_and_their_processes_are_counted() {
    let mut node = Node::new();
    node.containerd(
        "case \"$*\" in *namespaces*ls*) echo k8s.io ;; *tasks*ls*) echo stays ;; esac",
    );
    let shim = "/usr/bin/containerd-shim-runc-v2\0-namespace\0k8s.io\0-id\0x\0";
    node.file("/proc/4711/cmdline", shim);
    let dockers = "/usr/bin/containerd-shim-runc-v2\0-namespace\0moby\0-id\0y\0";
    node.file("/proc/4712/cmdline", dockers);
    let report = node.clean();
    assert_eq!(report.left, pairs(&[("task", "stays"), ("shim", "4711")]));
    assert!(
        report.message().contains("still there: task `stays`"),
        "{}",
        report.message()
    );
}

/// containerd was killed while it started a pod: no task knows the shim, and what it runs.
#[test]
fn a_shim_that_containerd_forgot_is_ended_and_another_containerds_is_not() {
    let mut node = Node::new();
    node.containerd("case \"$*\" in *namespaces*ls*) echo k8s.io ;; esac");
    // Real processes, which look like shims; what is killed is gone from the folder as it is from `/proc`.
    let setup = "shim() {
          sleep 300 >/dev/null 2>&1 & pid=$!
          mkdir -p $root/proc/$pid/task/$pid
          printf '%s\\0' /usr/bin/containerd-shim-runc-v2 -namespace k8s.io -address $1 >$root/proc/$pid/cmdline
        }
        shim $root/run/containerd/containerd.sock; ours=$pid
        sleep 300 >/dev/null 2>&1 & container=$!
        echo $container >$root/proc/$ours/task/$ours/children
        shim /run/k3s/containerd/containerd.sock; theirs=$pid
        (while kill -0 $ours; do sleep 0.1; done; rm -r $root/proc/$ours) >/dev/null 2>&1 &";
    let after = "for pid in $ours $container $theirs; do
          state=$(sed -n 's/^State:.//p' /proc/$pid/status 2>/dev/null) || true
          case $state in ''|Z*) echo gone ;; *) echo alive; kill $pid ;; esac
        done";
    let (left, said) = node.clean_between(setup, after);
    assert!(said.contains("gone\ngone\nalive\n"), "{said}");
    assert!(left.is_clean(), "{said}");
}

/// R8: images of an air gap that lay there before us.
#[test]
fn images_that_were_there_before_us_stay() {
    let mut node = Node::new();
    node.containerd(
        "case \"$*\" in *namespaces*ls*) echo k8s.io ;;
         *images*ls*) printf 'theirs:1\\nours:1\\n' ;;
         *' rm '*) echo \"$*\" >>\"$(dirname \"$0\")/removed\" ;; esac",
    );
    node.file("/etc/containerd/rke-operator-k8s-images", "theirs:1\n");
    assert!(node.clean().is_clean());
    let removed = read(node.path("/programs/removed"));
    assert!(removed.contains("images rm --sync ours:1\n"), "{removed}");
    for theirs in ["theirs:1", "content rm", "snapshots rm", "namespaces rm"] {
        assert!(!removed.contains(theirs), "{removed}");
    }
    // Without a record everything goes, as the namespace is ours alone.
    fs::write(node.path("/etc/containerd/rke-operator-k8s-images"), "").unwrap();
    assert!(node.clean().is_clean());
    let removed = read(node.path("/programs/removed"));
    assert!(removed.contains("theirs:1") && removed.contains("namespaces rm k8s.io"));
}

/// From containerd 2 on shims end with their sandboxes alone, and only while the sandboxes' own tasks
/// are there.
#[test]
fn sandboxes_go_after_their_containers_so_that_their_shims_end() {
    let mut node = Node::new();
    node.containerd(
        "removed=$(dirname \"$0\")/removed; touch \"$removed\"
         has() { ! grep -q \" $1\\$\" \"$removed\"; }
         case \"$*\" in *namespaces*ls*) echo k8s.io ;;
         *sandboxes*ls*) echo 'ID CREATED RUNTIME'; has box && echo 'box 2026-11-23 runc' ;;
         *tasks*ls*) has box && echo box; has one && echo one ;;
         *tasks*kill*|*' rm '*) echo \"$*\" >>\"$removed\" ;; esac; true",
    );
    assert!(node.clean().is_clean());
    let removed = read(node.path("/programs/removed"));
    let ends: Vec<&str> = removed
        .lines()
        .filter_map(|line| Some(line.split_once("--namespace k8s.io ")?.1))
        .filter(|line| line.ends_with(" one") || line.ends_with(" box"))
        .collect();
    assert_eq!(
        ends,
        [
            "tasks kill --all --signal SIGKILL one",
            "sandboxes rm --force box"
        ]
    );
}

/// R9 and R12, on real iptables.
#[test]
fn only_our_rules_and_chains_go_and_a_comment_is_no_command() {
    let mut node = Node::new();
    let id = "f".repeat(64);
    node.containerd(&format!(
        "case \"$*\" in *namespaces*ls*) echo k8s.io ;; *containers*ls*) [ -e \"$0.gone\" ] || echo {id} ;;
         *containers*info*) echo '\"path\": \"/var/run/netns/cni-ours\"' ;; *containers*rm*) : >\"$0.gone\" ;; esac"
    ));
    for netns in ["cni-ours", "cni-result", "cni-of-podman", "people"] {
        node.file(&format!("/run/netns/{netns}"), "");
    }
    let result = |network: &str, netns: &str| {
        format!("{{\"networkName\":\"{network}\",\"sandbox\":\"/var/run/netns/{netns}\"}}")
    };
    node.file(
        "/var/lib/cni/results/cbr0-a-eth0",
        &result("cbr0", "cni-result"),
    );
    node.file(
        "/var/lib/cni/results/podman-b-eth0",
        &result("podman", "cni-of-podman"),
    );
    let setup = format!(
        r#"
        for t in iptables ip6tables; do
          $t -w -t nat -N KUBE-SERVICES; $t -w -t nat -N KUBE-SVC-A; $t -w -t nat -N FLANNEL-POSTRTG
          $t -w -t nat -A KUBE-SERVICES -j KUBE-SVC-A
          $t -w -t nat -A PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES
          $t -w -t nat -A POSTROUTING -m comment --comment 'x$(touch '$root/pwned')`touch '$root/pwned'`"\ -j' -j KUBE-SERVICES
          $t -w -t nat -A POSTROUTING -m comment --comment 'two
-A INPUT -j KUBE-SVC-A' -j ACCEPT
          $t -w -t nat -A POSTROUTING -j FLANNEL-POSTRTG
          $t -w -t nat -N CNI-aaaa; $t -w -t nat -N CNI-bbbb; $t -w -t nat -N CNI-DN-cccc; $t -w -t nat -N CNI-DN-dddd
          $t -w -t nat -N CNI-HOSTPORT-DNAT
          $t -w -t nat -A POSTROUTING -m comment --comment 'name: "cbr0" id: "1"' -j CNI-aaaa
          $t -w -t nat -A POSTROUTING -m comment --comment 'name: "podman" id: "2"' -j CNI-bbbb
          $t -w -t nat -A CNI-HOSTPORT-DNAT -m comment --comment 'dnat name: "other" id: "{id}"' -j CNI-DN-cccc
          $t -w -t nat -A CNI-HOSTPORT-DNAT -m comment --comment 'dnat name: "podman" id: "2"' -j CNI-DN-dddd
          $t -w -t nat -A PREROUTING -m comment --comment KUBE-SERVICES -j ACCEPT
          $t -w -t nat -A PREROUTING -m comment --comment -j -j CNI-HOSTPORT-DNAT
          $t -w -A FORWARD -j ACCEPT
          $t -w -t nat -N CNI-eeee; $t -w -t nat -N cali-PREROUTING
          $t -w -t nat -A POSTROUTING -m comment --comment 'name: "k8s-pod-network" id: "3"' -j CNI-eeee
          $t -w -t nat -A PREROUTING -m comment --comment cali:6gwbT8clXdHdC1b1 -j cali-PREROUTING
        done"#
    );
    let (report, output) =
        node.clean_between(&setup, "iptables -w -t nat -S; ip6tables -w -t nat -S");
    assert_eq!(report.left, []);
    assert!(report.is_clean(), "{output}");
    assert!(!node.has("/pwned"));
    for gone in [
        "-j KUBE-SERVICES",
        "-N KUBE-",
        "-N FLANNEL-",
        "CNI-aaaa",
        "CNI-DN-cccc",
        "CNI-eeee",
        "cali-",
    ] {
        assert!(!output.contains(gone), "{gone}: {output}");
    }
    for stays in [
        "-N CNI-bbbb",
        "-N CNI-DN-dddd",
        "-N CNI-HOSTPORT-DNAT",
        "-j CNI-bbbb",
        "-j CNI-DN-dddd",
        "--comment KUBE-SERVICES -j ACCEPT",
        "-j CNI-HOSTPORT-DNAT",
        "-A INPUT -j KUBE-SVC-A",
    ] {
        assert!(output.matches(stays).count() >= 2, "{stays}: {output}");
    }
    assert!(!node.has("/run/netns/cni-ours") && !node.has("/run/netns/cni-result"));
    assert!(node.has("/run/netns/cni-of-podman") && node.has("/run/netns/people"));
    assert!(node.has("/var/lib/cni/results/podman-b-eth0"));
}

#[test]
fn rules_that_cannot_be_read_are_unknown() {
    let node = Node::new();
    for tool in ["iptables", "ip6tables"] {
        for variant in ["-nft-save", "-legacy-save", "-save"] {
            node.program(&format!("{tool}{variant}"), "exit 3");
        }
    }
    let report = node.clean();
    assert!(!report.is_clean());
    assert!(
        report.unknown.iter().all(|(kind, _)| kind == "chains"),
        "{report:?}"
    );
}

impl Node {
    /// `nft` and `ipset` that keep their tables and sets as files; those whose name ends with
    /// `busy` cannot be deleted.
    fn kernel(&self, tables: &[&str], sets: &[&str]) {
        for table in tables {
            self.file(&format!("/programs/tables/{table}"), "");
        }
        for set in sets {
            self.file(&format!("/programs/sets/{set}"), "");
        }
        self.program(
            "nft",
            "here=$(dirname \"$0\")/tables
             case \"$1 $2\" in
             'list table') [ -e \"$here/$3 $4\" ] ;;
             'delete table') [ ! -e \"$here/$3 busy\" ] && rm \"$here/$3 $4\" ;;
             *) exit 1 ;; esac",
        );
        self.program(
            "ipset",
            "here=$(dirname \"$0\")/sets
             case \"$1 $2\" in
             'list -n') ls \"$here\" ;;
             'destroy '*busy) exit 1 ;;
             'destroy '*) rm \"$here/$2\" ;;
             *) exit 1 ;; esac",
        );
    }
}

/// R33: what kube-proxy leaves in its modes nftables and ipvs.
#[test]
fn tables_and_sets_of_kube_proxy_go_and_those_of_others_stay() {
    let node = Node::new();
    let (tables, sets) = (
        [
            "ip kube-proxy",
            "ip6 kube-proxy",
            "ip people",
            "inet kube-proxy",
        ],
        [
            "KUBE-CLUSTER-IP",
            "KUBE-6-LOOP-BACK",
            "f2b-sshd",
            "MY-KUBE-SET",
        ],
    );
    node.kernel(&tables, &sets);
    let report = node.clean();
    assert!(report.is_clean(), "{report:?}");
    let left = |folder: &str| {
        let entries = fs::read_dir(node.path(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    assert!(
        left("/programs/tables")
            .iter()
            .eq(["inet kube-proxy", "ip people"])
    );
    assert!(
        left("/programs/sets")
            .iter()
            .eq(["MY-KUBE-SET", "f2b-sshd"])
    );
}

#[test]
fn tables_and_sets_of_kube_proxy_that_stay_are_reported() {
    let node = Node::new();
    node.kernel(
        &["ip kube-proxy", "ip6 kube-proxy", "ip6 busy"],
        &["KUBE-CLUSTER-IP", "KUBE-busy", "people-busy"],
    );
    let left = [("table", "ip6 kube-proxy"), ("set", "KUBE-busy")];
    assert_eq!(node.clean().left, pairs(&left));
    assert!(!node.has("/programs/sets/KUBE-CLUSTER-IP"));
}

#[test]
fn links_go_unless_they_were_there() {
    let mut node = Node::new();
    node.program("ip", "rm -r \"$(dirname \"$0\")/../sys/class/net/$3\"");
    for link in ["cni0", "flannel.1", "kube-ipvs0", "eth0"] {
        fs::create_dir_all(node.path("/sys/class/net").join(link)).unwrap();
    }
    node.had(&["/sys/class/net/cni0"]);
    assert!(node.clean().is_clean());
    let there = |link: &str| node.has(&format!("/sys/class/net/{link}"));
    assert!(there("cni0") && there("eth0"));
    assert!(!there("flannel.1") && !there("kube-ipvs0"));
    node.program("ip", "exit 1");
    fs::create_dir_all(node.path("/sys/class/net/flannel.1")).unwrap();
    assert_eq!(node.clean().left, pairs(&[("link", "flannel.1")]));
}

#[test]
fn sysctls_get_their_values_back() {
    let mut node = Node::new();
    node.file("/proc/sys/net/ipv4/ip_forward", "1\n");
    node.file("/proc/sys/kernel/panic", "10\n");
    for (name, value) in [("net.ipv4.ip_forward", "0"), ("kernel.panic", "$(reboot)")] {
        node.before
            .sysctls
            .insert(name.to_owned(), value.to_owned());
    }
    assert!(node.clean().is_clean());
    let value = |path: &str| read(node.path(path));
    assert_eq!(value("/proc/sys/net/ipv4/ip_forward"), "0\n");
    assert_eq!(
        value("/proc/sys/kernel/panic"),
        "$(reboot)\n",
        "data, never code"
    );
}

/// R28: other programs' output is not the answer, and half an answer is none.
#[test]
fn the_report_is_in_marked_lines() {
    let clean = CleanReport::of("welcome to this node\ndone\n@@rke-operator done\nbye\n");
    assert!(clean.is_clean());
    for log in ["", "done", "everything is fine", "@@rke-operator left"] {
        assert!(!CleanReport::of(log).is_clean(), "{log}");
    }
    let report = CleanReport::of(
        "@@rke-operator left mount /a\n@@rke-operator unknown tasks ctr is away\n@@rke-operator done\n",
    );
    assert_eq!(
        report.message(),
        "not clean yet: still there: mount `/a`; tasks could not be checked: ctr is away"
    );
    assert!(report.hints()[0].contains("sudo umount /a"));
    let many = "@@rke-operator left task x\n".repeat(9);
    assert!(CleanReport::of(&many).message().contains("and 4 more"));
}
