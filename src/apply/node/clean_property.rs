//! Whatever lies on a node that is not ours, and whenever the script is killed: that stays, with its
//! content. On a real `sh`, with real mounts and real iptables.

use proptest::{prelude::*, test_runner::TestRunner};

use super::tests::Node;

/// What people and other programs have on a node: files below folders that we write to or empty a
/// part of, and whether their folder was there before us.
const FILES: [&str; 12] = [
    "/etc/cni/net.d/87-podman-bridge.conflist",
    "/etc/cni/net.d/nerdctl-bridge.conflist",
    "/etc/containerd/certs.d/theirs/hosts.toml",
    "/etc/containerd/config.toml",
    "/etc/modules-load.d/theirs.conf",
    "/etc/sysctl.d/98-theirs.conf",
    "/opt/cni/bin/theirs",
    "/run/netns/cni-of-podman",
    "/srv/theirs/file",
    "/var/lib/cni/networks/podman/10.88.0.2",
    "/var/lib/cni/results/podman-b-eth0",
    "/var/log/theirs",
];

/// Their mounts: where, and what makes them. All of them carry `file`, with a line in it.
const MOUNTS: [(&str, &str); 6] = [
    ("/var/lib/kubelet/theirs", "mount -t tmpfs theirs"),
    ("/var/lib/etcd/backup", "mount --bind $root/srv/bound"),
    ("/etc/kubernetes/of people", "mount --bind $root/srv/bound"),
    ("/opt/cni/bin/mounted", "mount --bind $root/srv/bound"),
    ("/var/log/pods/mounted", "mount -t tmpfs theirs"),
    ("/srv/disk", "mount -t tmpfs theirs"),
];

/// Rules of others in a table that ours share.
const RULES: &str = r#"
iptables -w -t nat -N THEIRS; iptables -w -t nat -N CNI-bbbb; iptables -w -t nat -N CNI-HOSTPORT-DNAT
iptables -w -t nat -A THEIRS -m comment --comment '$(touch '$root'/pwned)`touch '$root'/pwned`' -j ACCEPT
iptables -w -t nat -A PREROUTING -j THEIRS
iptables -w -t nat -A POSTROUTING -m comment --comment 'name: "podman" id: "2"' -j CNI-bbbb
rules() { iptables-save -t nat | sed '/^#/d; s/\[.*\]//'; }
rules >$root/rules
iptables -w -t nat -N KUBE-SERVICES; iptables -w -t nat -N CNI-aaaa
iptables -w -t nat -A PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES
iptables -w -t nat -A POSTROUTING -m comment --comment 'name: "cbr0" id: "1"' -j CNI-aaaa
"#;

/// A containerd with one container of the cluster, which is gone after `rm` or `kill`; it records every call.
const CTR: &str = r#"
here=$(dirname "$0")
echo "$*" >>"$here/asked"
case "$*" in
*namespaces*ls*) printf 'k8s.io\nmoby\ntheirs\n' ;;
*' tasks ls'* | *' containers ls'*) [ -e "$here/gone" ] || echo ours ;;
*' containers rm'*) : >"$here/gone" ;;
*' tasks rm'* | *' tasks kill'*) : >"$here/gone" ;;
esac"#;

/// The cluster's files on it.
const OURS: [&str; 6] = [
    "/etc/kubernetes/ssl/a.pem",
    "/etc/cni/net.d/10-flannel.conflist",
    "/opt/cni/bin/flannel",
    "/var/lib/etcd/member/wal",
    "/var/lib/kubelet/config.json",
    "/var/lib/kubelet/pods/u/file",
];

fn node(files: &[&str], had: bool) -> Node {
    let mut node = Node::new();
    node.containerd(CTR);
    for file in OURS {
        node.file(file, "ours");
    }
    let result = "{\"networkName\":\"podman\",\"sandbox\":\"/var/run/netns/cni-of-podman\"}";
    for file in files {
        node.file(
            file,
            if file.contains("results") {
                result
            } else {
                "theirs"
            },
        );
    }
    node.file("/srv/bound/file", "a line\n");
    node.file("/srv/volume/file", "a line\n");
    node.file("/var/lib/kubelet/pods/u/volumes/v/.keep", "");
    // A claim remembers programs one by one, and everything else by its folder.
    node.had(&[
        "/opt/cni/bin",
        "/opt/cni/bin/theirs",
        "/opt/cni/bin/mounted",
    ]);
    if had {
        node.had(&["/etc/cni/net.d", "/etc/cni/net.d/87-podman-bridge.conflist"]);
        node.had(&["/etc/cni/net.d/nerdctl-bridge.conflist", "/var/lib/cni"]);
        node.had(&["/var/lib/cni/networks", "/var/lib/cni/results"]);
    }
    node
}

/// What makes the world in the namespaces of the test, and the kills: how long each run gets.
fn script(mounts: &[(&str, &str)], kills: &[u32]) -> String {
    let mut script = String::from(RULES);
    script += "mount --bind $root/srv/volume $root/var/lib/kubelet/pods/u/volumes/v\n";
    for (at, make) in mounts {
        let at = format!("\"$root{at}\"");
        let lines = format!("mkdir -p {at}; {make} {at}; echo 'a line' >{at}/file\n");
        script.push_str(&lines);
    }
    for kill in kills {
        let run = format!(
            "timeout -s KILL 0.{kill:03} sh -c \"$script\" rke-operator --root \"$root\" \"$@\" \
             >/dev/null 2>&1 || true\n"
        );
        script.push_str(&run);
    }
    script
}

#[test]
fn what_is_not_ours_survives_any_order_of_kills() {
    // A case is some runs of a script with hundreds of processes. The runner is asked itself: the
    // macro takes the number of cases from the environment, whatever is written here.
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 12,
        max_shrink_iters: 16,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let strategy = (
        prop::sample::subsequence(FILES.to_vec(), 0..=FILES.len()),
        prop::sample::subsequence(MOUNTS.to_vec(), 0..=MOUNTS.len()),
        prop::collection::vec(1..600u32, 0..3),
        any::<bool>(),
    );
    let run = runner.run(&strategy, |(files, mounts, kills, had)| {
        let node = node(&files, had);
        let mut look =
            "rules | diff - $root/rules && echo same rules; cat $root/srv/volume/file\n".to_owned();
        for (at, _) in &mounts {
            let line = format!("mountpoint -q \"$root{at}\" && cat \"$root{at}/file\"\n");
            look.push_str(&line);
        }
        look += "true";
        let (report, output) = node.clean_between(&script(&mounts, &kills), &look);
        let lines = "a line\n".repeat(mounts.len() + 1);
        prop_assert!(output.contains(&format!("same rules\n{lines}")), "{output}");
        for file in files {
            prop_assert!(node.has(file), "{file}: {output}");
        }
        prop_assert!(node.has("/srv/bound/file") && !node.has("/pwned"));
        // Only what is mounted in a folder that must go keeps it.
        let inside = |folder: &str| {
            mounts
                .iter()
                .any(|(at, _)| at.starts_with(&format!("{folder}/")))
        };
        let folders = ["/etc/kubernetes", "/var/lib/etcd", "/var/lib/kubelet"];
        for folder in folders {
            prop_assert_eq!(node.has(folder), inside(folder), "{}: {}", folder, &output);
        }
        prop_assert_eq!(
            report.is_clean(),
            !folders.into_iter().any(inside),
            "{:?}",
            report
        );
        let asked = node.text("/programs/asked");
        let others = |line: &&str| {
            !line.contains("--namespace k8s.io") && !line.ends_with("namespaces ls -q")
        };
        let told: Vec<&str> = asked.lines().filter(others).collect();
        let known = |line: &&str| line.ends_with("namespaces rm k8s.io");
        prop_assert!(told.iter().all(known), "{told:?}");
        Ok(())
    });
    run.unwrap();
}
