//! A node's state as data, so that "the node is as it was" can be a set difference.

use std::collections::{BTreeMap, BTreeSet};

use lab::Node;

/// Section → lines.
pub(crate) type Snapshot = BTreeMap<String, BTreeSet<String>>;

/// What may differ after `remove`, and why: pattern of the section, of the line, reason.
pub(crate) type Allowed = (&'static str, &'static str, &'static str);

/// What a living cluster changes by itself: kube-proxy's rules, pods and what carries them.
pub(crate) const ALIVE: &[Allowed] = &[
    ("cgroups", "", "pods"),
    ("iptables-legacy", "", "kube-proxy"),
    ("iptables-nft", "", "kube-proxy"),
    ("ip6tables-legacy", "", "kube-proxy"),
    ("ip6tables-nft", "", "kube-proxy"),
    ("links", "", "pods"),
    ("mounts", "", "pods"),
    ("netns", "", "pods"),
    ("nft", "", "kube-proxy"),
    ("pods", "", "pods"),
    ("processes", "", "pods"),
    ("routes", "", "flannel"),
    ("files", "/run/", "pods"),
    ("files", "/var/", "pods"),
];

const SCRIPT: &str = r#"
echo @@containers; docker ps -a --no-trunc --format '{{.Names}} {{.ID}} {{.State}}'
echo @@images; docker images --no-trunc --format '{{.Repository}}:{{.Tag}} {{.ID}}'
echo @@volumes; docker volume ls -q
echo @@networks; docker network ls --no-trunc --format '{{.Name}} {{.ID}}'
echo @@pods; ctr -n k8s.io containers ls -q 2>/dev/null; ctr -n k8s.io images ls -q 2>/dev/null; ctr -n k8s.io snapshots ls 2>/dev/null | awk 'NR > 1'; ctr namespaces ls -q
for tool in iptables-legacy ip6tables-legacy iptables-nft ip6tables-nft; do
  echo "@@$tool"; for table in filter nat mangle raw; do $tool -t $table -S 2>/dev/null | sed "s/^/$table /"; done
done
echo @@files
for root in /etc /opt /home /root /usr/local /usr/libexec /srv; do
  find "$root" -xdev \( -type f -o -type d -o -type l \) -printf '%p %y %m %u:%g ' \( -type f -exec sh -c 'sha256sum < "$1" | cut -c 1-16' _ {} \; -o -printf '%l\n' \) 2>/dev/null
done
find /var/lib /var/log /run -xdev -maxdepth 2 ! -path '/run/systemd/*' ! -path '/run/docker/*' ! -path '/run/containerd/*' ! -path '/var/lib/docker/*' ! -path '/var/log/journal*' -printf '%p %y %m %u:%g\n' 2>/dev/null
echo @@nft; nft list tables 2>/dev/null
echo @@ipsets; ipset list -n 2>/dev/null
echo @@sysctls; sysctl -a 2>/dev/null | grep -E '^(kernel\.(panic|keys)|vm\.(overcommit|panic)|net\.(bridge|ipv4\.(ip_forward|conf\.(all|default)))|net\.netfilter\.nf_conntrack_(max|tcp))' | grep -v nf_conntrack_count
echo @@links; ip -o link | awk '{ print $2 }' | sed 's/@.*//'
echo @@routes; ip route; ip -6 route 2>/dev/null | grep -v ^fe80
echo @@netns; ls /run/netns 2>/dev/null
echo @@mounts; awk '{ print $2, $3 }' /proc/self/mounts
echo @@processes; ps -eo user:20,comm --no-headers | grep -vE ' (ps|sh|awk|sed|sort|grep|sshd.*|kworker.*|systemd-.*|\(sd-.*)$'
echo @@units; systemctl list-units --all --plain --no-legend --type=service,socket,timer,slice | awk '{ print $1, $3 }' | grep -vE '^(user|session|ssh@|sshd@|docker-|run-|rke-lab|systemd-tmpfiles|apt-|dpkg-|e2scrub|fstrim|logrotate|man-db)'
echo @@cgroups; find /sys/fs/cgroup -maxdepth 2 -type d -name 'kube*' -printf '%f\n' | sort -u
"#;

/// Takes it.
pub(crate) fn take(node: &Node) -> Snapshot {
    let text = node.sh(SCRIPT).expect("the node's state is read");
    let mut snapshot = Snapshot::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("@@") {
            name.clone_into(&mut section);
            snapshot.entry(section.clone()).or_default();
        } else if let Some(lines) = snapshot.get_mut(&section) {
            lines.insert(line.trim_end().to_owned());
        }
    }
    for wanted in ["containers", "files", "mounts", "units", "cgroups"] {
        assert!(
            snapshot.contains_key(wanted),
            "no section {wanted} in:\n{text}"
        );
    }
    snapshot
}

/// Fails the test unless the node is as it was, but for what is allowed.
#[track_caller]
pub(crate) fn unchanged(node: &Node, before: &Snapshot, allowed: &[Allowed]) {
    assert_eq!(
        difference(before, &take(node), allowed),
        Vec::<String>::new()
    );
}

/// The lines that came (`+`) and went (`-`), those that are allowed left out.
fn difference(before: &Snapshot, after: &Snapshot, allowed: &[Allowed]) -> Vec<String> {
    let mut lines = Vec::new();
    for (section, was) in before {
        let empty = BTreeSet::new();
        let is = after.get(section).unwrap_or(&empty);
        let went = was.difference(is).map(|line| ('-', line));
        let came = is.difference(was).map(|line| ('+', line));
        for (sign, line) in went.chain(came) {
            let known = allowed
                .iter()
                .any(|(where_, pattern, _)| *where_ == section && line.starts_with(pattern));
            if !known {
                lines.push(format!("{section}: {sign} {line}"));
            }
        }
    }
    lines
}
