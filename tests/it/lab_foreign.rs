//! What is not ours survives `up` and `remove` with its content: ten kinds of things that people and
//! other programs have on a node, most of them named as Kubernetes or its network would name theirs.

use std::time::Duration;

use lab::{Node, Profile};

use crate::{
    lab_remove::ALLOWED,
    real::{Site, snapshot},
};

const UP: &[&str] = &["up", "--yes"];
const REMOVE: &[&str] = &["remove", "--force"];

/// What there is, and what makes it.
const THINGS: [(&str, &str); 12] = [
    (
        "a container with an image, a network and a volume of its own",
        "docker network create theirs; docker volume create theirs
         docker pull --quiet library/nginx:1.26.3; docker tag library/nginx:1.26.3 theirs:1
         docker run --detach --name theirs --network theirs --volume theirs:/data theirs:1
         docker exec theirs sh -c 'echo precious > /data/file'",
    ),
    (
        "images in containerd: in the namespace that Kubernetes will use, and in another",
        "pull() { ctr -n $1 images pull --hosts-dir /etc/containerd/certs.d docker.io/rancher/mirrored-pause:3.6; }
         pull k8s.io; pull theirs
         ctr -n theirs containers create docker.io/rancher/mirrored-pause:3.6 theirs",
    ),
    (
        "a network namespace and chains of another program that uses CNI",
        "ip netns add cni-11111111-2222-3333-4444-555555555555
         iptables-nft -t nat -N CNI-aaaaaaaaaaaaaaaaaaaaaaaa
         iptables-nft -t nat -A CNI-aaaaaaaaaaaaaaaaaaaaaaaa -d 10.88.0.0/16 -m comment --comment 'name: \"theirs\" id: \"abc\"' -j ACCEPT
         iptables-nft -t nat -A POSTROUTING -s 10.88.0.5/32 -m comment --comment 'name: \"theirs\" id: \"abc\"' -j CNI-aaaaaaaaaaaaaaaaaaaaaaaa",
    ),
    (
        "rules of an administrator, one with a comment that a shell must not read",
        "iptables-legacy -N THEIRS; iptables-legacy -A INPUT -j THEIRS
         iptables-legacy -A THEIRS -p tcp --dport 9999 -m comment --comment '$(touch /tmp/read-by-a-shell)' -j DROP",
    ),
    (
        "a table of nftables with a set",
        "nft add table inet theirs; nft add set inet theirs allowed '{ type ipv4_addr; }'
         nft add element inet theirs allowed '{ 192.0.2.1 }'
         nft add chain inet theirs input '{ type filter hook input priority 10; }'
         nft add rule inet theirs input ip saddr @allowed accept",
    ),
    (
        "a set of addresses",
        "/lab/bin/ipset create theirs hash:ip; /lab/bin/ipset add theirs 192.0.2.7",
    ),
    (
        "a link with a route",
        "ip link add theirs0 type bridge; ip address add 192.0.2.1/24 dev theirs0; ip link set theirs0 up; ip route add 198.51.100.0/24 dev theirs0",
    ),
    (
        "another program's network configuration and plugin",
        "mkdir -p /etc/cni/net.d /opt/cni/bin
         echo '{\"cniVersion\":\"0.4.0\",\"name\":\"theirs\",\"plugins\":[{\"type\":\"theirs\"}]}' > /etc/cni/net.d/87-theirs.conflist
         printf '#!/bin/sh\\nexit 1\\n' > /opt/cni/bin/theirs; chmod 0755 /opt/cni/bin/theirs",
    ),
    (
        "files in the folders that we write to",
        "mkdir -p /etc/containerd/certs.d/theirs.example /etc/modules-load.d /etc/sysctl.d
         echo '# theirs' > /etc/containerd/certs.d/theirs.example/hosts.toml
         echo '# theirs' > /etc/modules-load.d/theirs.conf; echo '# theirs' > /etc/sysctl.d/98-theirs.conf
         echo precious > /tmp/theirs; mkdir -p /usr/libexec/theirs && echo precious > /usr/libexec/theirs/file",
    ),
    (
        "a disk that is mounted somewhere else",
        "mkdir -p /srv/theirs && mount -t tmpfs theirs /srv/theirs && echo precious > /srv/theirs/file",
    ),
    (
        "a service",
        "systemd-run --quiet --unit theirs sleep infinity",
    ),
    (
        "a sysctl",
        "sysctl --quiet --write net.ipv4.conf.default.rp_filter=2",
    ),
];

/// What the snapshot does not look into.
fn contents(node: &Node) -> String {
    node.sh(
        "docker exec theirs cat /data/file; docker inspect --format '{{.State.Pid}}' theirs
         cat /srv/theirs/file; systemctl show --property MainPID theirs
         ip netns exec cni-11111111-2222-3333-4444-555555555555 ip -o link | wc -l",
    )
    .expect("what is not ours is there")
}

/// Kills `args` soon after the steps of these numbers have begun, a run each.
fn killed(site: &Site, args: &[&str], steps: &[usize]) {
    for number in steps {
        let mut begun = 0;
        site.kill_when(args, |_| {
            begun += 1;
            (begun == *number).then_some(Duration::from_millis(150))
        })
        .expect("the kill met a living run");
    }
}

/// Rules that lead into kube-proxy's chains, and so go with them. A pod with `NET_ADMIN` may write
/// any comment into one.
fn hostile_comments(node: &Node) {
    for comment in [
        "$(touch /root/substituted)",
        "`touch /root/backquoted`",
        "'; touch /root/quoted; '",
        "\"; touch /root/double-quoted; \"",
    ] {
        let quoted = comment.replace('\'', r"'\''");
        for tool in ["iptables-nft", "iptables-legacy"] {
            node.sh(&format!(
                "{tool} -t filter -N KUBE-HOSTILE 2> /dev/null
                 {tool} -t filter -A INPUT -m comment --comment '{quoted}' -j KUBE-HOSTILE"
            ))
            .expect("a hostile rule");
        }
    }
}

#[test]
fn what_is_not_ours_survives_with_its_content() {
    let site = Site::new("foreign", Profile::Plain);
    let node = site.node();
    for (what, script) in THINGS {
        node.sh(&format!("set -e\n{script}")).expect(what);
    }
    let (before, inside) = (snapshot::take(node), contents(node));

    killed(&site, UP, &[4, 12]);
    site.run(UP).well();
    assert!(site.is_ready());
    assert_eq!(contents(node), inside);

    // Files that people put beside ours: authorities for OIDC, certificates of webhooks.
    let beside = "/etc/kubernetes/ssl/oidc-ca.pem /etc/kubernetes/ssl/webhooks/tls.crt";
    node.sh(&format!(
        "mkdir -p /etc/kubernetes/ssl/webhooks; echo theirs | tee {beside}"
    ))
    .expect("files beside ours");
    hostile_comments(node);
    site.run(UP).well();
    let kept = node.sh(&format!("cat {beside}"));
    assert_eq!(kept.expect("they are there"), "theirs\ntheirs");

    killed(&site, REMOVE, &[1, 2]);
    site.run(REMOVE).well();
    snapshot::unchanged(node, &before, ALLOWED);
    assert_eq!(contents(node), inside);
}
