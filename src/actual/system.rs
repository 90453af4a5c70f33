//! The script that reads a node's system over SSH, and how its answer is understood. Pure.

use std::collections::BTreeMap;

use super::facts::{Before, ContainerdFacts, SystemFacts};
use crate::desired::SWITCH_UNIT;

/// The script: unprivileged, read-only, one round trip.
pub fn script() -> String {
    include_str!("facts.sh")
        .replace("in PATHS", &format!("in {}", Before::PATHS.join(" ")))
        .replace("in SYSCTLS", &format!("in {}", Before::SYSCTLS.join(" ")))
        .replace("in MODULES", &format!("in {}", Before::MODULES.join(" ")))
        .replace("SWITCH_UNIT", SWITCH_UNIT)
}

/// True while a run that was killed still has containerd's configuration changed: what the node
/// says about containerd and Docker is worth nothing until that has ended.
pub fn is_switching(output: &str) -> bool {
    sections(output)
        .get("switching")
        .is_some_and(|text| text.trim() == "yes")
}

/// Understands the script's output. `None` when it was cut off: half an answer is no answer.
pub fn parse(output: &str) -> Option<SystemFacts> {
    let sections = sections(output);
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
    Some(SystemFacts {
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
        free: pairs("free")
            .filter_map(|(path, kib)| Some((path.to_owned(), kib.parse::<u64>().ok()? * 1024)))
            .collect(),
        firewalld: text("firewalld") == "active",
        machine_id: text("machine-id"),
    })
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
        docker_bound: text("docker-unit").contains("containerd.service"),
        started: unit
            .get("ExecMainStartTimestampMonotonic")
            .and_then(|micros| micros.parse().ok())
            .unwrap_or(0),
    }
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

fn sections(output: &str) -> BTreeMap<&str, String> {
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
        let output = Command::new("sh").arg("-c").arg(script()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let facts = parse(&text).expect("a whole answer");
        assert!(!facts.kernel.is_empty());
        assert!(facts.free.contains_key("/"), "{:?}", facts.free);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }

    #[test]
    fn a_cut_answer_is_no_answer() {
        assert_eq!(parse("@@hostname\nn1\n@@kernel\n6.1"), None);
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
}
