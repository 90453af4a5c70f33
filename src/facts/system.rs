//! The script that reads a node's system over SSH, and how its answer is understood. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::Deserialize;

use super::{
    Barrier, Baseline, ContainerdCommand, ContainerdFacts, Interface, Route, SelinuxPolicy,
    SystemFacts, Unreached,
};
use crate::model::{ClusterId, PeerPort, SWITCH_UNIT, is_printable, path};

/// The script: unprivileged, read-only, one round trip.
pub const SCRIPT: &str = concat!(
    include_str!("each.sh"),
    include_str!("reach.sh"),
    include_str!("boot.sh"),
    include_str!("facts.sh")
);

/// The script that prints [`SystemFacts::boot`] and nothing else.
pub const BOOT: &str = concat!(include_str!("boot.sh"), "boot\n");

/// What [`BOOT`] printed. `None` where the node tells nothing.
pub fn boot(output: &str) -> Option<String> {
    Some(output.trim().to_owned()).filter(|boot| boot.len() > 1)
}

/// Where free space is measured; Docker's root is asked for where it is another.
const FREE: [&str; 4] = ["/", "/var/lib", "/var/lib/docker", "/var/lib/containerd"];

/// What the script is to look at on the node that is dialled at this address, and the ports of others that it tries.
pub fn arguments<'a>(address: &str, peers: impl IntoIterator<Item = &'a PeerPort>) -> Vec<String> {
    let name = [address];
    let is_name = address.parse::<IpAddr>().is_err();
    // Each once: the script prints both options.
    let restricted: BTreeSet<&str> = [&SystemFacts::WRITTEN[..], &SystemFacts::EXECUTED]
        .concat()
        .into_iter()
        .collect();
    let restricted = Vec::from_iter(restricted);
    let lists: [(&str, &[&str]); 16] = [
        ("resolve", if is_name { &name } else { &[] }),
        ("tool", &SystemFacts::TOOLS),
        ("needs", &SystemFacts::NEEDED_MODULES),
        ("switch", &[SWITCH_UNIT]),
        ("drop-in", &[path::CONTAINERD_DROP_IN, path::FORMER_DROP_IN]),
        ("path", &Baseline::PATHS),
        ("module", &Baseline::MODULES),
        ("sysctl", &Baseline::SYSCTLS),
        ("cluster-id", &[path::CLUSTER_ID]),
        (
            "ours",
            &[
                path::CONTAINERD_CONFIG,
                path::CONTAINERD_DROP_IN,
                path::FORMER_DROP_IN,
                path::MODULES_LOAD,
                path::SYSCTL,
            ],
        ),
        ("mounts", &[path::KUBELET, path::ETCD]),
        ("foreign", &path::OF_ANOTHER_KUBERNETES),
        ("manifests", &[path::STATIC_MANIFESTS]),
        ("docker-certs", &[path::DOCKER_CERTS_D]),
        ("free", &FREE),
        ("restricted", &restricted),
    ];
    lists
        .iter()
        .flat_map(|(kind, words)| words.iter().map(move |word| format!("{kind}={word}")))
        .chain(peers.into_iter().map(|peer| format!("peer={peer}")))
        .collect()
}

/// The script that tries ports of others, its arguments, and nothing else.
pub const REACH: &str = concat!(
    include_str!("reach.sh"),
    "LC_ALL=C\nexport LC_ALL\nreach \"$@\"\n"
);

/// A line of what [`REACH`] prints.
pub fn unreached(line: &str) -> Option<Unreached> {
    let (peer, how) = line.split_once(' ')?;
    Some(Unreached {
        peer: PeerPort::parse(peer)?,
        how: match how.trim() {
            "silent" => Barrier::Silent,
            "rejected" => Barrier::Rejected,
            "forbidden" => Barrier::Forbidden,
            "unknown-name" => Barrier::UnknownName,
            _ => return None,
        },
    })
}

/// True while a run that was killed still has containerd's configuration changed: what the node
/// says about containerd and Docker is worth nothing until that has ended.
pub fn is_switching(output: &str) -> bool {
    sections(output)
        .get("switching")
        .is_some_and(|text| text.trim() == "yes")
}

/// True where dockerd bounds the logs in files by default: its file and its command line tell.
pub fn bounds_logs(output: &str) -> bool {
    let sections = sections(output);
    let text = |name: &str| sections.get(name).map_or("", |text| text.trim());
    let file: DaemonFile = serde_json::from_str(text("docker-config")).unwrap_or_default();
    let mut flags = text("docker-flags").lines();
    file.log_opts.contains_key("max-size") || flags.any(|flag| flag.contains("max-size="))
}

/// What is read of `daemon.json`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct DaemonFile {
    log_opts: BTreeMap<String, serde_json::Value>,
}

/// Understands the script's output. `None` when it was cut off: half an answer is no answer.
pub fn parse(output: &str) -> Option<SystemFacts> {
    let output = plain(output);
    let sections = sections(&output);
    sections.get("end")?;
    let text = |name: &str| sections.get(name).map_or("", |text| text.trim()).to_owned();
    let lines = |name: &str| {
        sections
            .get(name)
            .map_or("", |text| text)
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
    };
    let pairs = |name: &str| lines(name).filter_map(|line| line.split_once(' '));
    let set = |name: &str| lines(name).map(str::to_owned).collect::<BTreeSet<_>>();
    let addresses = |name: &str| lines(name).filter_map(|word| word.parse::<IpAddr>().ok());
    Some(SystemFacts {
        read_only: restricted(&sections, "ro"),
        no_exec: restricted(&sections, "noexec"),
        selinux: selinux(&set("selinux")),
        distribution: text("distribution")
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        interfaces: interfaces(pairs("interfaces"), pairs("mtu")),
        routes: lines("routes").filter_map(route).collect(),
        resolved: addresses("resolved").collect(),
        unbooted: unbooted(&sections),
        lacking_tools: set("lacking-tools"),
        absent_modules: set("absent-modules"),
        lacking_modules: set("lacking-modules"),
        kernel_gone: text("kernel-gone") == "yes",
        kernel_words: Some(text("kernel-words")).filter(|path| !path.is_empty()),
        boot: boot(&text("boot")),
        hostname: text("hostname"),
        kernel: text("kernel"),
        os: text("os"),
        systemd: text("init") == "systemd",
        containerd: containerd(&sections),
        resolv_conf: text("resolv-conf"),
        listening: lines("listening")
            .filter_map(|hex| u16::from_str_radix(hex, 16).ok())
            .collect(),
        listeners: pairs("listeners")
            .filter_map(|(port, owner)| Some((port.parse().ok()?, owner.trim().to_owned())))
            .collect(),
        paths: lines("paths").map(str::to_owned).collect(),
        empty: lines("empty").map(str::to_owned).collect(),
        modules: lines("modules").map(str::to_owned).collect(),
        sysctls: pairs("sysctls")
            .map(|(k, v)| (k.to_owned(), v.trim().to_owned()))
            .collect(),
        swap: text("swap") == "yes",
        free: pairs("free")
            .filter_map(|(path, kib)| Some((path.to_owned(), kib.parse::<u64>().ok()? * 1024)))
            .collect(),
        unreached: lines("unreached").filter_map(unreached).collect(),
        firewalld: text("firewalld") == "active",
        services: lines("services").map(str::to_owned).collect(),
        resolv_loops: text("resolv-loops") == "yes",
        docker_certs: lines("docker-certs").map(str::to_owned).collect(),
        unreadable: lines("unreadable").map(str::to_owned).collect(),
        cluster_id: Some(text("cluster-id"))
            .filter(|id| !id.is_empty() && !id.contains(char::is_whitespace))
            .map(ClusterId),
        ours: lines("ours").map(str::to_owned).collect(),
        mounts: lines("mounts").map(str::to_owned).collect(),
        foreign: lines("foreign").map(str::to_owned).collect(),
        pods: text("pods").parse().unwrap_or(0),
        clock: text("clock").parse().ok(),
        route_address: addresses("route-address").next().map(|it| it.to_string()),
        addresses: addresses("addresses").map(|it| it.to_string()).collect(),
        // An image that was never started has the word `uninitialized` there.
        machine_id: Some(text("machine-id"))
            .filter(|id| id != "uninitialized")
            .unwrap_or_default(),
        // What the connection tells, and not the script.
        ..SystemFacts::default()
    })
}

/// What a node writes is shown to people: nothing in it moves a cursor.
fn plain(output: &str) -> String {
    let mut plain = String::with_capacity(output.len());
    for c in output.chars() {
        if is_printable(c) || matches!(c, '\n' | '\t') {
            plain.push(c);
        } else {
            plain.extend(c.escape_default());
        }
    }
    plain
}

/// The folders on mounts with this option, and where these are: `ro /etc/kubernetes /etc`.
fn restricted(sections: &BTreeMap<&str, String>, option: &str) -> BTreeMap<String, String> {
    let lines = sections
        .get("restricted")
        .map_or("", String::as_str)
        .lines();
    let lines = lines.filter_map(|line| line.trim().split_once(' '));
    let these = lines.filter(|(told, _)| *told == option);
    // The mount point is written without spaces.
    let pairs = these.filter_map(|(_, rest)| rest.rsplit_once(' '));
    let text = |(folder, at): (&str, &str)| (folder.to_owned(), at.to_owned());
    pairs.map(text).collect()
}

/// Nothing where it is not enforced.
fn selinux(told: &BTreeSet<String>) -> Option<SelinuxPolicy> {
    told.contains("enforcing").then(|| {
        if told.contains("no-container-types") {
            SelinuxPolicy::WithoutContainers
        } else {
            SelinuxPolicy::WithContainers
        }
    })
}

/// `10.42.0.0/16 via 192.0.2.1 dev eth1 proto static`.
fn interfaces<'a>(
    addresses: impl Iterator<Item = (&'a str, &'a str)>,
    mtus: impl Iterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<String, Interface> {
    let mut interfaces: BTreeMap<String, Interface> = BTreeMap::new();
    for (name, address) in addresses {
        let interface = interfaces.entry(name.to_owned()).or_default();
        interface.addresses.extend(address.parse::<IpAddr>());
    }
    for (name, mtu) in mtus {
        if let Some(interface) = interfaces.get_mut(name) {
            interface.mtu = mtu.parse().ok();
        }
    }
    interfaces
}

fn route(line: &str) -> Option<Route> {
    let mut words = line.split_whitespace().peekable();
    // The kinds that have a name: `blackhole 10.0.0.0/8`.
    let to = words.find(|word| {
        word.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':') && word.contains(['.', ':'])
    })?;
    let to = match to.parse::<IpNet>() {
        Ok(net) => net,
        Err(_) => IpNet::from(to.parse::<IpAddr>().ok()?),
    };
    let rest: Vec<&str> = words.collect();
    let after = |key: &str| {
        let at = rest.iter().position(|word| *word == key)?;
        rest.get(at + 1).copied()
    };
    Some(Route {
        to,
        via: after("via").and_then(|word| word.parse().ok()),
        device: after("dev").unwrap_or_default().to_owned(),
        of_interface: after("proto") == Some("kernel"),
    })
}

/// Docker and containerd, if no unit that starts at boot wants them. A containerd that is wanted by a Docker
/// which starts at boot is not listed.
fn unbooted(sections: &BTreeMap<&str, String>) -> BTreeSet<String> {
    let boots = |section: &str| {
        let unit: BTreeMap<&str, &str> = sections
            .get(section)
            .map_or("", |text| text)
            .lines()
            .filter_map(|line| line.split_once('='))
            .collect();
        let text = |key: &str| unit.get(key).copied().unwrap_or_default();
        // An older systemd does not report it, or there is no such unit: unknown.
        let known = text("LoadState") == "loaded" && !text("UnitFileState").is_empty();
        let by: BTreeSet<&str> = [text("WantedBy"), text("RequiredBy")]
            .into_iter()
            .flat_map(str::split_whitespace)
            .collect();
        let target = by.iter().any(|unit| unit.ends_with(".target"));
        (!known || target || text("UnitFileState") == "enabled", by)
    };
    let (docker, _) = boots("docker-unit");
    let (containerd, by) = boots("containerd-unit");
    let mut unbooted = BTreeSet::new();
    if !docker {
        unbooted.insert("docker.service".to_owned());
    }
    if !containerd && !by.contains("docker.service") {
        unbooted.insert("containerd.service".to_owned());
    }
    unbooted
}

fn containerd(sections: &BTreeMap<&str, String>) -> ContainerdFacts {
    let text = |name: &str| sections.get(name).map_or("", |text| text.trim());
    let unit: BTreeMap<&str, &str> = text("containerd-unit")
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    ContainerdFacts {
        socket: text("containerd-socket") == "yes",
        unit: unit.get("LoadState") == Some(&"loaded"),
        version: version(text("containerd-version")),
        dump: text("containerd-dump").to_owned(),
        docker_bound: text("docker-unit")
            .lines()
            .filter(|line| line.starts_with("BindsTo=") || line.starts_with("Requires="))
            .any(|line| line.contains("containerd.service")),
        started: unit
            .get("ExecMainStartTimestampMonotonic")
            .and_then(|micros| micros.parse().ok())
            .unwrap_or(0),
        ctr: !text("ctr").is_empty(),
        command: command(text("containerd-command"), text("containerd-environment")),
    }
}

/// Understands the unit's command line. What is not understood is named, and then nothing is
/// replaced: a data folder that gets lost takes Docker's containers with it.
fn command(line: &str, environment: &str) -> ContainerdCommand {
    let variable = |name: &str| {
        let pairs = environment.split_whitespace();
        pairs
            .filter_map(|pair| pair.split_once('='))
            .find_map(|(key, value)| (key == name).then(|| value.to_owned()))
    };
    let mut words = line.split_whitespace().map(|word| {
        let name = word
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix('}'))
            .or_else(|| word.strip_prefix('$'));
        let word = name.map_or_else(|| Some(word.to_owned()), variable);
        word.filter(|word| word.chars().all(is_plain))
    });
    let odd = |what: &str| ContainerdCommand {
        program: String::new(),
        words: Vec::new(),
        odd: Some(what.to_owned()),
    };
    let program = match words.next() {
        None => return ContainerdCommand::default(),
        Some(Some(program)) if program.starts_with('/') && program.ends_with("/containerd") => {
            program
        }
        Some(_) => return odd(line),
    };
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let Some(word) = word else { return odd(line) };
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (word, words.next().flatten()),
        };
        let Some(value) = value else { return odd(line) };
        match flag.as_str() {
            // Ours takes its place, and says all that it says.
            "--config" | "-c" => {}
            "--root" | "--state" | "--log-level" | "-l" => kept.extend([flag, value]),
            "--address" | "-a" if value == "/run/containerd/containerd.sock" => {}
            _ => return odd(line),
        }
    }
    ContainerdCommand {
        program,
        words: kept,
        odd: None,
    }
}

/// A character that means itself in a unit.
const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | ':' | '=' | ',' | '@' | '+' | '-')
}

/// `containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6` → `1.7.24`.
fn version(line: &str) -> String {
    line.split_whitespace()
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
        .map(|word| {
            word.chars()
                .take_while(|c| c.is_ascii_digit() || *c == '.')
                .collect()
        })
        .unwrap_or_default()
}

/// What stands below each line `@@name`.
pub(super) fn sections(output: &str) -> BTreeMap<&str, String> {
    let mut sections: BTreeMap<&str, String> = BTreeMap::new();
    let mut current = "";
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("@@") {
            current = name;
            sections.entry(name).or_default();
        } else if let Some(text) = sections.get_mut(current) {
            text.push_str(line);
            text.push('\n');
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_script_runs_on_this_machine_and_is_understood() {
        let output = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .args(arguments("localhost", []))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let facts = parse(&text).expect("a whole answer");
        assert!(!facts.kernel.is_empty());
        assert!(facts.free.contains_key("/"), "{:?}", facts.free);
        assert!(facts.clock.is_some_and(|clock| clock > 1_700_000_000));
        assert!(facts.paths.contains("/etc/sysctl.d") || !facts.paths.is_empty());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }

    /// The script with files of a folder in the place of the machine's own.
    fn told(root: &std::path::Path) -> SystemFacts {
        let own = |path: &str| format!("{}{path}", root.display());
        let script = [
            "/run/",
            "/etc/resolv.conf",
            "/proc/net/tcp",
            "/proc/1/",
            "/sys/fs/cgroup",
            "/sys/fs/selinux",
        ]
        .iter()
        .fold(SCRIPT.to_owned(), |script, path| {
            script.replace(path, &own(path))
        });
        let output = Command::new("sh").args(["-c", &script, "sh"]).output();
        parse(&String::from_utf8(output.unwrap().stdout).unwrap()).unwrap()
    }

    fn write(root: &std::path::Path, path: &str, text: &str) {
        let path = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// R27: a name server on any loopback address cannot be reached from a pod.
    #[test]
    fn a_local_resolver_is_looked_behind_whatever_its_address() {
        // What the resolver says, the file behind it, which file is taken, and whether it loops.
        type Case = (
            &'static str,
            Option<(&'static str, &'static str)>,
            &'static str,
            bool,
        );
        const FAR: &str = "nameserver 192.0.2.1\n";
        const OWN: &str = "/etc/resolv.conf";
        let cases: [Case; 7] = [
            (FAR, None, OWN, false),
            (
                "nameserver 127.0.0.53\n",
                Some(("/run/systemd/resolve/resolv.conf", FAR)),
                "/run/systemd/resolve/resolv.conf",
                false,
            ),
            (
                "search example.org\nnameserver 127.0.0.1\n",
                Some(("/run/NetworkManager/no-stub-resolv.conf", FAR)),
                "/run/NetworkManager/no-stub-resolv.conf",
                false,
            ),
            (
                "nameserver ::1\n",
                Some(("/run/dnsmasq/resolv.conf", FAR)),
                "/run/dnsmasq/resolv.conf",
                false,
            ),
            ("nameserver 127.0.1.1\n", None, OWN, true),
            (
                "nameserver 127.0.0.1\n",
                Some(("/run/resolvconf/resolv.conf", "nameserver ::1\n")),
                OWN,
                true,
            ),
            (
                "nameserver 127.0.0.1\nnameserver 192.0.2.1\n",
                None,
                OWN,
                false,
            ),
        ];
        for (resolver, behind, file, loops) in cases {
            let folder = tempfile::tempdir().unwrap();
            write(folder.path(), OWN, resolver);
            if let Some((path, text)) = behind {
                write(folder.path(), path, text);
            }
            let facts = told(folder.path());
            let found = facts
                .resolv_conf
                .strip_prefix(&folder.path().display().to_string());
            assert_eq!(
                (found, facts.resolv_loops),
                (Some(file), loops),
                "{resolver}"
            );
        }
    }

    /// R30: a node with many connections is read in time.
    #[test]
    fn a_hundred_thousand_sockets_are_read_in_a_moment() {
        use std::fmt::Write as _;
        let folder = tempfile::tempdir().unwrap();
        let mut table = String::from("  sl  local_address rem_address   st\n");
        let mut socket = |at: u32, port: u32, state: &str| {
            writeln!(
                table,
                "{at:6}: 0100007F:{port:04X} 0100007F:1234 {state} 0 0 0"
            )
            .unwrap();
        };
        for at in 0..100_000 {
            socket(at, 0x8000 + at % 0x7000, "01");
        }
        socket(100_000, 6443, "0A");
        write(folder.path(), "/proc/net/tcp", &table);
        write(folder.path(), "/proc/net/tcp6", "");
        let begun = std::time::Instant::now();
        let facts = told(folder.path());
        assert_eq!(facts.listening.into_iter().collect::<Vec<_>>(), [6443]);
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }

    /// B2: with `hidepid=2` on /proc process 1 does not exist for others, and systemd runs all the same.
    #[test]
    fn systemd_and_pods_are_seen_where_processes_are_hidden() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "/proc/net/tcp", "");
        assert!(!told(folder.path()).systemd);
        write(folder.path(), "/run/systemd/system/.keep", "");
        let groups = "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice";
        let pod = format!("{groups}/kubepods-burstable-pod12ab.slice/pids.current");
        write(folder.path(), &pod, "3\n");
        let other = "/sys/fs/cgroup/pids/kubepods/besteffort/pod34/pids.current";
        write(folder.path(), other, "1\n");
        let ended = "/sys/fs/cgroup/kubepods.slice/kubepods-pod56.slice/pids.current";
        write(folder.path(), ended, "0\n");
        let facts = told(folder.path());
        assert!(facts.systemd);
        assert_eq!(facts.pods, 2);
    }

    /// B1: empty disks that are mounted for etcd's data and its log; a folder without files has no owner.
    #[test]
    fn folders_without_a_file_are_empty_however_deep() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| format!("{}/{name}", folder.path().display());
        for empty in ["disks/data/lost+found", "disks/wal", "none"] {
            std::fs::create_dir_all(path(empty)).unwrap();
        }
        write(folder.path(), "disks/data/lost+found/#12", "x");
        write(folder.path(), "full/member/snap/db", "x");
        write(folder.path(), "file", "x");
        std::os::unix::fs::symlink(path("disks"), path("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", path("none/link")).unwrap();
        let names = ["disks", "full", "file", "link", "none", "absent"];
        let words = names.map(|name| format!("path={}", path(name)));
        let output = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .args(words)
            .output();
        let facts = parse(&String::from_utf8(output.unwrap().stdout).unwrap()).unwrap();
        assert_eq!(facts.empty, [path("disks"), path("link")].into());
        assert_eq!(facts.unreadable, [].into());
        assert!(facts.paths.contains(&path("full")) && !facts.paths.contains(&path("absent")));
    }

    /// Mount points as the kernel writes them, and what a folder on each may not do.
    #[test]
    fn the_last_mount_above_a_folder_decides_what_may_be_done_there() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        let path = |name: &str| format!("{root}/{name}");
        for name in ["ro", "errors/etc", "var/lib", "my disk", "variant", "over"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::os::unix::fs::symlink(path("var/lib"), path("link")).unwrap();
        let mount = |at: &str, options: &str, whole: &str| {
            let at = path(at).replace(' ', "\\040");
            format!("30 21 8:2 / {at} {options} shared:2 master:1 - ext4 /dev/sda2 {whole}\n")
        };
        let table = [
            "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n".to_owned(),
            mount("ro", "ro,relatime", "rw"),
            mount("errors", "rw,relatime", "ro,errors=remount-ro"),
            mount("var", "rw,nosuid,noexec", "rw"),
            mount("my disk", "rw,noexec", "rw"),
            mount("over", "ro,noexec", "rw"),
            mount("over", "rw", "rw"),
        ];
        write(folder.path(), "/mountinfo", &table.concat());
        let asked = [
            "ro/not/there",
            "errors/etc",
            "var/lib/kubelet",
            "variant",
            "link/docker",
            "my disk",
            "over",
        ];
        let words = asked.map(|name| format!("restricted={}", path(name)));
        let script = SCRIPT.replace("/proc/self/mountinfo", &path("mountinfo"));
        let output = Command::new("sh")
            .args(["-c", &script, "sh"])
            .args(words)
            .output();
        let facts = parse(&String::from_utf8(output.unwrap().stdout).unwrap()).unwrap();
        let pairs = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(name, at)| (path(name), path(at)))
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(
            facts.read_only,
            pairs(&[("ro/not/there", "ro"), ("errors/etc", "errors")])
        );
        assert_eq!(
            facts.no_exec,
            pairs(&[
                ("var/lib/kubelet", "var"),
                ("link/docker", "var"),
                ("my disk", "my\\040disk")
            ])
        );
    }

    #[test]
    fn selinux_counts_where_it_is_enforced() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(told(folder.path()).selinux, None);
        write(folder.path(), "/sys/fs/selinux/enforce", "0");
        assert_eq!(told(folder.path()).selinux, None);
        write(folder.path(), "/sys/fs/selinux/enforce", "1");
        write(folder.path(), "/sys/fs/selinux/context", "");
        let with = Some(SelinuxPolicy::WithContainers);
        assert_eq!(told(folder.path()).selinux, with);
        // The kernel answers this user nothing: nothing is known of the types.
        std::fs::remove_file(folder.path().join("sys/fs/selinux/context")).unwrap();
        std::fs::create_dir(folder.path().join("sys/fs/selinux/context")).unwrap();
        assert_eq!(told(folder.path()).selinux, with);
        let facts = parse("@@selinux\nenforcing\nno-container-types\n@@end\n").unwrap();
        assert_eq!(facts.selinux, Some(SelinuxPolicy::WithoutContainers));
    }

    #[test]
    fn units_that_do_not_start_at_boot_are_named() {
        let unit = |state: &str, by: &str| {
            format!("LoadState=loaded\nUnitFileState={state}\nWantedBy={by}\n")
        };
        let unbooted = |docker: &str, containerd: &str| {
            let text = format!("@@docker-unit\n{docker}@@containerd-unit\n{containerd}@@end\n");
            Vec::from_iter(parse(&text).unwrap().unbooted)
        };
        let multi = "multi-user.target";
        let none: [&str; 0] = [];
        let (on, off) = (unit("enabled", multi), unit("disabled", ""));
        assert_eq!(unbooted(&on, &on), none);
        assert_eq!(unbooted(&off, &on), ["docker.service"]);
        assert_eq!(unbooted(&on, &off), ["containerd.service"]);
        assert_eq!(
            unbooted(&off, &off),
            ["containerd.service", "docker.service"]
        );
        // What Docker starts itself.
        assert_eq!(unbooted(&on, &unit("disabled", "docker.service")), none);
        // Only its socket starts it, and nothing connects to that after a reboot.
        assert_eq!(unbooted(&unit("indirect", ""), &on), ["docker.service"]);
        // A target of people's own, and a systemd that does not tell.
        assert_eq!(unbooted(&unit("static", "cluster.target"), &on), none);
        assert_eq!(unbooted("", ""), none);
    }

    #[test]
    fn what_a_node_says_is_understood_or_left_out() {
        let facts = parse(
            "@@hostname\nn1\u{1b}[31m\n@@machine-id\nuninitialized\n@@addresses\n10.0.0.5\nkubernetes\n\
             @@route-address\nkubernetes.default.svc\n@@interfaces\neth0 10.0.0.5\neth0 fd00::5\n\
             @@mtu\neth0 1450\nlo 65536\n@@routes\n10.42.0.0/16 via 10.0.0.1 dev eth0 proto static\n\
             10.0.0.0/24 dev eth0 proto kernel scope link src 10.0.0.5\n10.42.7.9 dev wg0 scope link\n\
             blackhole 10.44.0.0/24 proto bird\nnonsense\nfd00::/64 dev eth0 proto kernel metric 256\n@@end\n",
        )
        .unwrap();
        assert_eq!(facts.hostname, "n1\\u{1b}[31m");
        assert_eq!(facts.machine_id, "");
        assert_eq!(facts.route_address, None);
        assert_eq!(facts.addresses, ["10.0.0.5".to_owned()].into());
        let (name, interface) = facts.interface_of("fd00::5".parse().unwrap()).unwrap();
        assert_eq!((name, interface.mtu), ("eth0", Some(1450)));
        let routes: Vec<String> = facts
            .routes
            .iter()
            .map(|it| format!("{} {:?} {} {}", it.to, it.via, it.device, it.of_interface))
            .collect();
        assert_eq!(
            routes,
            [
                "10.42.0.0/16 Some(10.0.0.1) eth0 false",
                "10.0.0.0/24 None eth0 true",
                "10.42.7.9/32 None wg0 false",
                "10.44.0.0/24 None  false",
                "fd00::/64 None eth0 true",
            ]
        );
    }

    #[test]
    fn a_cut_answer_is_no_answer() {
        assert_eq!(parse("@@hostname\nn1\n@@kernel\n6.1"), None);
    }

    /// Docker's own answers have the driver and not its options.
    #[test]
    fn dockers_file_and_its_flags_tell_whether_logs_are_bounded() {
        let says = |file: &str, flags: &str| {
            let output = format!("@@docker-config\n{file}\n@@docker-flags\n{flags}\n@@end\n");
            bounds_logs(&output)
        };
        assert!(says("{\"log-opts\": {\"max-size\": \"10m\"}}", "dockerd"));
        assert!(!says("", "dockerd\n-H\nfd://"));
        assert!(says("", "dockerd\n--log-opt\nmax-size=5m"));
        assert!(!says("{\"log-opts\": {\"max-file\": \"3\"}}", ""));
    }

    #[test]
    fn sections_become_facts() {
        let facts = parse(
            "@@hostname\nn1\n@@init\nsystemd\n@@containerd-socket\nyes\n@@containerd-unit\n\
             LoadState=loaded\nExecMainStartTimestampMonotonic=123\n@@containerd-version\n\
             containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1\n\
             @@containerd-dump\nversion = 2\n[plugins]\n@@docker-unit\nBindsTo=\n\
             Requires=docker.socket sysinit.target\n@@listening\n1F90\n0016\n@@listeners\n8080 web.service\n\
             @@paths\n\
             /etc/cni\n@@sysctls\nvm.overcommit_memory 1\n@@free\n/ 2048\n@@end\n",
        )
        .unwrap();
        assert!(facts.systemd && facts.containerd.socket && facts.containerd.unit);
        assert_eq!(facts.containerd.version, "1.7.24");
        assert_eq!(facts.containerd.dump, "version = 2\n[plugins]");
        assert_eq!(facts.containerd.started, 123);
        assert!(!facts.containerd.docker_bound);
        assert_eq!(facts.listening.into_iter().collect::<Vec<_>>(), [22, 8080]);
        assert_eq!(facts.listeners[&8080], "web.service");
        assert!(facts.paths.contains("/etc/cni"));
        assert_eq!(facts.sysctls["vm.overcommit_memory"], "1");
        assert_eq!(facts.free["/"], 2048 * 1024);
    }

    /// R2: what containerd is started with goes on being what it is started with.
    #[test]
    fn the_words_of_the_unit_are_kept_or_named() {
        let plain = command("/usr/bin/containerd", "");
        assert_eq!(plain.program, "/usr/bin/containerd");
        assert_eq!((plain.words, plain.odd), (vec![], None));
        // Flatcar.
        let flatcar = command(
            "/usr/bin/containerd --config ${CONTAINERD_CONFIG}",
            "CONTAINERD_CONFIG=/usr/share/containerd/config.toml",
        );
        assert_eq!((flatcar.words, flatcar.odd), (vec![], None));
        let moved = command(
            "/opt/bin/containerd --root=/data/c -l debug --state /run/c",
            "",
        );
        assert_eq!(moved.program, "/opt/bin/containerd");
        assert_eq!(
            moved.words,
            ["--root", "/data/c", "-l", "debug", "--state", "/run/c"]
        );
        for odd in [
            "/usr/bin/env A=b /usr/bin/containerd",
            "-/usr/bin/containerd",
            "/usr/bin/containerd --address /run/other.sock",
            "/usr/bin/containerd $OPTIONS",
            "/usr/bin/containerd --root \"/data/of people\"",
            "/usr/bin/containerd --root",
            "/usr/bin/containerd oom",
        ] {
            assert_eq!(command(odd, "").odd.as_deref(), Some(odd));
        }
        assert_eq!(command("", "").odd, None, "there is no unit");
    }

    #[test]
    fn data_and_state_are_where_containerd_is_configured() {
        let mut facts = ContainerdFacts::default();
        let usual = (
            "/var/lib/containerd".to_owned(),
            "/run/containerd".to_owned(),
        );
        assert_eq!(facts.folders(), usual);
        facts.dump = "root = \"/data/dump\"\nstate = \"\"".to_owned();
        assert_eq!(facts.folders().0, "/data/dump");
        assert_eq!(facts.folders().1, "/run/containerd");
        facts.command = command("/usr/bin/containerd --root /data/flag", "");
        assert_eq!(facts.folders().0, "/data/flag");
    }

    /// What came back, in the words of bash; a machine's own network shows but two of them.
    #[test]
    fn a_barrier_is_distinguished_from_a_port_that_refuses() {
        use std::os::unix::fs::PermissionsExt as _;

        let programs = tempfile::tempdir().unwrap();
        let bash = programs.path().join("bash");
        let said = "#!/bin/sh\ncase $3 in\n\
                    a/1) exit 0 ;;\n\
                    a/2) echo 'connect: Connection refused' ;;\n\
                    a/3) exec sleep 60 ;;\n\
                    a/4) echo 'connect: No route to host' ;;\n\
                    a/5) echo 'connect: Network is unreachable' ;;\n\
                    a/6) echo 'connect: Operation not permitted' ;;\n\
                    a/7) echo 'a: Name or service not known' ;;\n\
                    a/8) echo '/dev/tcp/a/8: No such file or directory' ;;\n\
                    esac\nexit 1\n";
        std::fs::write(&bash, said).unwrap();
        std::fs::set_permissions(&bash, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = |path: String, ports: &[String]| {
            let mut sh = Command::new("sh");
            let sh = sh.args(["-c", REACH, "sh"]).args(ports).env("PATH", path);
            let told = String::from_utf8(sh.output().unwrap().stdout).unwrap();
            told.lines()
                .map(|line| unreached(line).unwrap())
                .collect::<BTreeSet<_>>()
        };
        let path = "/usr/local/bin:/usr/bin:/bin".to_owned();
        let before = format!("{}:{path}", programs.path().display());
        let ports: Vec<String> = (1..=8).map(|port| format!("a/{port}")).collect();
        let told = run(before, &ports);
        let told: Vec<_> = told.iter().map(|it| (it.peer.port, it.how)).collect();
        assert_eq!(
            told,
            [
                (3, Barrier::Silent),
                (4, Barrier::Rejected),
                (5, Barrier::Rejected),
                (6, Barrier::Forbidden),
                (7, Barrier::UnknownName),
            ]
        );

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap().port();
        let ports = [format!("127.0.0.1/{open}"), "127.0.0.1/1".to_owned()];
        assert_eq!(run(path.clone(), &ports), BTreeSet::new());
        assert_eq!(run(path, &[]), BTreeSet::new());
    }
}
