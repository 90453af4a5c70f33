//! A node's state as data, so that "the node is as it was" can be a set difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use lab::Node;

/// Section → lines.
pub(crate) type Snapshot = BTreeMap<String, BTreeSet<String>>;

/// A line that came.
pub(crate) const CAME: char = '+';
/// A line that went.
pub(crate) const WENT: char = '-';

/// What may differ, and why: section, whether the line [`CAME`] or [`WENT`], how the line begins,
/// the reason.
pub(crate) type Allowed = (&'static str, char, &'static str, &'static str);

/// What a living cluster changes by itself: kube-proxy's rules, pods and what carries them.
const LIVES: [(&str, &str, &str); 14] = [
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

/// What a living cluster changes by itself, in both directions.
pub(crate) fn alive() -> Vec<Allowed> {
    let both = |(section, line, why)| [CAME, WENT].map(|sign| (section, sign, line, why));
    LIVES.into_iter().flat_map(both).collect()
}

/// Reads everything that can tell a node from what it was. A tool that is missing ends it: an empty
/// section would pass for a clean one. `find` and `ps` meet things that go while they look, which
/// is no error; whatever else a command has to say is one.
const SCRIPT: &str = r#"
set -euo pipefail
export LC_ALL=C PATH=/lab/bin:$PATH
complaints=$(mktemp -p /run)
trap 'rm -f "$complaints"' EXIT
ps_lines=$(ps -eo user:20,comm --no-headers)
for tool in awk ctr docker find ip ip6tables-legacy ip6tables-nft ipset iptables-legacy iptables-nft \
  nft sha256sum sysctl systemctl; do
  command -v "$tool" > /dev/null || { echo "the node has no $tool" >&2; exit 1; }
done
section() { echo "@@$1"; }

section containers; docker ps -a --no-trunc --format '{{.Names}} {{.ID}} {{.State}}'
section images; docker images --no-trunc --format '{{.Repository}}:{{.Tag}} {{.ID}}'
section volumes; docker volume ls -q
section networks; docker network ls --no-trunc --format '{{.Name}} {{.ID}}'

section pods
ctr namespaces ls -q
for namespace in $(ctr namespaces ls -q); do
  for kind in containers images tasks leases; do
    # Docker's own are in the sections above, and its tasks are numbered anew at every start.
    [ "$namespace" = moby ] || ctr -n "$namespace" "$kind" ls -q | sed "s/^/$namespace $kind /"
  done
  [ "$namespace" = moby ] || ctr -n "$namespace" snapshots ls | awk -v namespace="$namespace" 'NR > 1 { print namespace, "snapshots", $0 }'
done

for tool in iptables-legacy ip6tables-legacy iptables-nft ip6tables-nft; do
  section $tool
  for table in filter nat mangle raw; do $tool -w 5 -t $table -S | sed "s/^/$table /"; done
done
# Whole tables with all that is in them; the counters of rules change by themselves. iptables-nft
# makes tables and chains that are there on every host on first use: while nothing is in them, and
# they let everything pass, they are the same as none.
section nft
nft --stateless list ruleset | awk '
  function tell(line) { if (table != "") { print table; table_of = table; table = "" } print table_of, line }
  /^table / { table = table_of = $2 " " $3
              if ($2 !~ /^ip6?$/ || $3 !~ /^(filter|nat|mangle|raw|security)$/) { print table; table = "" }
              next }
  /^\t(chain|set|map|flowtable|ct|counter|quota|limit|secmark|synproxy) / { block = $1 " " $2; told = 0; base = 0; next }
  /^\t\ttype .* hook .* policy accept;$/ { base = 1; hook = $0; sub(/^\t+/, "", hook); next }
  /^\t}/ { if (!told && !base) tell(block); next }
  /^\t\t/ { if (!told) { tell(block); if (base) tell(block " " hook); told = 1 }
            sub(/^\t+/, ""); sub(/ counter packets [0-9]+ bytes [0-9]+/, ""); tell(block " " $0) }'
section ipsets; ipset save

section files
contents() { find "$1" -xdev -type f -print0 | xargs -0 -r sha256sum | sed -E 's/^([0-9a-f]{16})[0-9a-f]* +(.*)$/\2 is \1/'; }
: > "$complaints"
for root in /etc /opt /home /root /usr/local /usr/libexec /srv /tmp /var/tmp; do
  [ -d "$root" ] || continue
  find "$root" -xdev \( -type f -o -type d -o -type l -o -type p -o -type s \) -printf '%p %y %m %u:%g %l\n' 2>> "$complaints" || true
  contents "$root" 2>> "$complaints" || true
done
find /var/lib /var/log /run -xdev -maxdepth 2 ! -path '/run/systemd/*' ! -path '/run/docker/*' \
  ! -path '/run/containerd/*' ! -path '/var/lib/docker/*' ! -path '/var/log/journal*' \
  ! -path "$complaints" -printf '%p %y %m %u:%g\n' 2>> "$complaints" || true
grep -v 'No such file or directory' "$complaints" >&2 && exit 1

section sysctls
sysctl -a 2> /dev/null | grep -E '^(kernel\.(panic|keys)|vm\.(overcommit|panic)|net\.(bridge|ipv4\.(ip_forward|conf\.(all|default)))|net\.netfilter\.nf_conntrack_(max|tcp))' | grep -v nf_conntrack_count
section links; ip -o link | awk '{ print $2 }' | sed 's/@.*//'
section routes; { ip route; ip -6 route | { grep -v ^fe80 || true; }; } | sed 's/ linkdown//'
section netns; find /run/netns -mindepth 1 -printf '%f\n' 2> /dev/null || true
section mounts; awk '{ print $2, $3 }' /proc/self/mounts
section processes; echo "$ps_lines" | grep -vE ' (ps|sh|bash|awk|sed|sort|grep|sshd.*|kworker.*|systemd-.*|\(sd-.*)$'
section units; systemctl list-units --all --plain --no-legend --type=service,socket,timer,slice | awk '{ print $1, $3 }' | grep -vE '^(user|session|ssh@|sshd@|docker-|run-|rke-lab|systemd-tmpfiles|apt-|dpkg-|e2scrub|fstrim|logrotate|man-db)'
section cgroups; find /sys/fs/cgroup -maxdepth 2 -type d -name 'kube*' -printf '%f\n' | sort -u
"#;

/// Sections that no server has empty: that one is would mean that it was not read.
const NEVER_EMPTY: [&str; 8] = [
    "files",
    "links",
    "mounts",
    "networks",
    "processes",
    "routes",
    "sysctls",
    "units",
];

/// Takes it.
pub(crate) fn take(node: &Node) -> Snapshot {
    // `exec` runs it by sh, which is no bash.
    let script = format!("exec bash <<'LOOK'\n{SCRIPT}\nLOOK\n");
    parsed(&node.sh(&script).expect("the node's state is read"))
}

fn parsed(text: &str) -> Snapshot {
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
    for wanted in NEVER_EMPTY {
        assert!(
            snapshot.get(wanted).is_some_and(|lines| !lines.is_empty()),
            "nothing in section {wanted} of:\n{text}"
        );
    }
    assert!(snapshot.contains_key("cgroups"), "it was cut:\n{text}");
    snapshot
}

/// How long a node has for what ends without anybody's doing: a process or a unit of the system that was met in the
/// middle of its work.
const PASSING: Duration = Duration::from_secs(15);

/// Fails the test unless the node is as it was, but for what is allowed.
#[track_caller]
pub(crate) fn unchanged(node: &Node, before: &Snapshot, allowed: &[Allowed]) {
    let end = Instant::now() + PASSING;
    loop {
        let differs = difference(before, &take(node), allowed);
        if differs.is_empty() {
            return;
        }
        assert!(
            Instant::now() < end,
            "the node is not as it was: {differs:#?}"
        );
    }
}

/// The lines that came and went, those that are allowed left out.
fn difference(before: &Snapshot, after: &Snapshot, allowed: &[Allowed]) -> Vec<String> {
    let mut lines = Vec::new();
    let empty = BTreeSet::new();
    let sections: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for section in sections {
        let was = before.get(section).unwrap_or(&empty);
        let is = after.get(section).unwrap_or(&empty);
        let went = was.difference(is).map(|line| (WENT, line));
        let came = is.difference(was).map(|line| (CAME, line));
        for (sign, line) in went.chain(came) {
            let known = allowed.iter().any(|(where_, which, pattern, _)| {
                where_ == section && *which == sign && line.starts_with(pattern)
            });
            if !known {
                lines.push(format!("{section}: {sign} {line}"));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(lines: &[(&str, &str)]) -> Snapshot {
        let mut snapshot = Snapshot::new();
        for (section, line) in lines {
            let lines = snapshot.entry((*section).to_owned()).or_default();
            lines.insert((*line).to_owned());
        }
        snapshot
    }

    #[test]
    fn an_image_that_may_come_may_not_go() {
        let allowed = [("images", CAME, "rancher/", "system images stay")];
        let (none, one) = (snapshot(&[]), snapshot(&[("images", "rancher/theirs:1")]));
        assert_eq!(difference(&none, &one, &allowed), Vec::<String>::new());
        assert_eq!(
            difference(&one, &none, &allowed),
            ["images: - rancher/theirs:1"]
        );
    }

    #[test]
    fn a_section_that_is_new_is_a_difference() {
        let (none, one) = (snapshot(&[]), snapshot(&[("ipsets", "create theirs")]));
        assert_eq!(difference(&none, &one, &[]), ["ipsets: + create theirs"]);
    }

    #[test]
    #[should_panic(expected = "nothing in section links")]
    fn a_section_that_was_not_read_fails() {
        parsed("@@files\n/etc d\n@@links\n@@cgroups\n");
    }
}
