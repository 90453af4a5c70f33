//! What a machine lacks to carry a node: a Docker, a system and tools that are recent enough, and
//! room. Pure.

use std::collections::BTreeMap;

use super::{
    PreflightError, mounts,
    packages::{self, Package},
    selinux,
};
use crate::{
    desired::DesiredHost,
    facts::HostFacts,
    model::{Component, NodeName, path, quoted},
};

/// Free space that a fresh node needs at each place where much is written.
const FLOOR: u64 = 2 << 30;

/// Free space where images and data go, on a node that is fresh. Places with the same room are most likely on one file
/// system: they are one problem.
pub(super) fn space(name: &NodeName, facts: &HostFacts) -> Vec<PreflightError> {
    let mut places: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (place, free) in &facts.system.free {
        if *free < FLOOR {
            places.entry(free >> 20).or_default().push(place);
        }
    }
    places
        .into_iter()
        .map(|(free, places)| {
            PreflightError::host(
                name,
                format!(
                    "node `{name}` has {free} MiB free at {}; a new node needs {} MiB",
                    quoted(&places),
                    FLOOR >> 20
                ),
                [
                    format!(
                        "`df -h {}` and `docker system df` on the node show what takes it",
                        places.join(" ")
                    ),
                    "`docker image prune -a` frees what no container uses".to_owned(),
                ],
            )
        })
        .collect()
}

/// What a new node would lack when pods run on it.
pub(super) fn lacking(
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Vec<PreflightError> {
    lacks(host, facts)
        .into_iter()
        .map(|(what, hint)| PreflightError::host(name, format!("node `{name}` {what}"), [hint]))
        .collect()
}

/// What the node lacks that pods or a removal need, each with its cure. A node that runs is not stopped because of it.
pub(in crate::plan) fn lacks(host: &DesiredHost, facts: &HostFacts) -> Vec<(String, String)> {
    let system = &facts.system;
    let mut lacks = Vec::new();
    for tool in &system.lacking_tools {
        let package = if tool == "ip" {
            Package::Ip
        } else {
            Package::Iptables
        };
        lacks.push((
            format!("has no `{tool}`, which network plugins call on the node itself"),
            packages::install(package, system),
        ));
    }
    let cgroups = &facts.docker.lacking_cgroups;
    if !cgroups.is_empty() {
        lacks.push((
            format!(
                "has cgroups without {} (Docker cannot limit it): kubelet does not start",
                quoted(cgroups)
            ),
            kernel_words(system.kernel_words.as_deref(), cgroups.contains("memory")),
        ));
    }
    if host.forbids_swap && system.swap {
        lacks.push((
            "has swap in use, with which kubelet does not start (`fail_swap_on`)".to_owned(),
            "`sudo swapoff -a` on the node, and remove swap from /etc/fstab; or `fail_swap_on: false` under \
             `services.kubelet`"
                .to_owned(),
        ));
    }
    let rules = !proxies_by_nftables(host);
    let needed = |module: &&String| {
        host.network.modules.contains(*module) && (rules || !module.starts_with("xt_"))
    };
    let absent: Vec<&String> = system.absent_modules.iter().filter(needed).collect();
    let lacking: Vec<&String> = system.lacking_modules.iter().filter(needed).collect();
    if system.kernel_gone && !absent.is_empty() {
        lacks.push((
            format!(
                "runs kernel {}, whose modules are no longer in /lib/modules: {} cannot be loaded",
                system.kernel,
                quoted(absent)
            ),
            "restart the node, if its kernel was updated since it started".to_owned(),
        ));
    } else if !lacking.is_empty() {
        lacks.push((
            format!(
                "runs kernel {}, which has no {}: the rules of kube-proxy or the tunnel between pods cannot be created",
                system.kernel,
                quoted(lacking)
            ),
            packages::install(Package::KernelModules, system),
        ));
    }
    lacks.extend(mounts::lacks(host, facts));
    lacks.extend(selinux::lacks(facts));
    lacks
}

/// kube-proxy writes nftables itself, without the modules of iptables.
fn proxies_by_nftables(host: &DesiredHost) -> bool {
    let proxy = host.containers.get(&Component::KubeProxy);
    proxy.is_some_and(|spec| {
        spec.command
            .iter()
            .any(|word| word == "--proxy-mode=nftables")
    })
}

fn kernel_words(file: Option<&str>, memory: bool) -> String {
    let words = "cgroup_enable=memory";
    match file {
        _ if !memory => {
            "enable it in the kernel: `cat /proc/cmdline` on the node shows what disables it"
                .to_owned()
        }
        Some(file) => format!(
            "add `{words} cgroup_memory=1` to the end of the one line of {file} and restart the node"
        ),
        None => format!(
            "add `{words}` to `GRUB_CMDLINE_LINUX` in /etc/default/grub (take `cgroup_disable=memory` out of it), \
             `sudo update-grub` or `sudo grub2-mkconfig -o /boot/grub2/grub.cfg`, and restart the node"
        ),
    }
}

/// Whether it is fresh or not.
pub(super) fn errors(name: &NodeName, facts: &HostFacts) -> Vec<PreflightError> {
    let mut errors = docker(name, facts);
    errors.extend(system(name, facts));
    errors
}

/// A Docker that cannot carry a node.
fn docker(name: &NodeName, facts: &HostFacts) -> Vec<PreflightError> {
    let docker = &facts.docker;
    let mut errors = Vec::new();
    if older(&docker.api_version, (1, 41)) {
        errors.push(PreflightError::host(
            name,
            format!(
                "Docker {} on node `{name}` is too old (API {}); it needs 20.10 (API 1.41) or later",
                docker.version, docker.api_version
            ),
            ["upgrade Docker on the node".to_owned()],
        ));
    }
    let option = |key: &str| {
        docker.security_options.iter().any(|option| {
            option == key || option.split(',').any(|part| part == format!("name={key}"))
        })
    };
    if option("rootless") {
        errors.push(PreflightError::host(
            name,
            format!("Docker on node `{name}` is rootless and cannot run kubelet"),
            [
                "use the node's system-wide Docker (`docker_socket: /var/run/docker.sock`)"
                    .to_owned(),
            ],
        ));
    }
    if option("userns") {
        errors.push(PreflightError::host(
            name,
            format!(
                "Docker on node `{name}` remaps users (`userns-remap`): kubelet cannot be root"
            ),
            ["remove `userns-remap` from /etc/docker/daemon.json and restart Docker".to_owned()],
        ));
    }
    if !["x86_64", "amd64", "aarch64", "arm64"].contains(&docker.architecture.as_str()) {
        errors.push(PreflightError::host(
            name,
            format!(
                "node `{name}` is `{}`; Kubernetes images exist for x86_64 and aarch64",
                docker.architecture
            ),
            ["use another machine".to_owned()],
        ));
    }
    errors
}

/// A system that cannot carry a node.
fn system(name: &NodeName, facts: &HostFacts) -> Vec<PreflightError> {
    let system = &facts.system;
    if !system.systemd {
        return vec![PreflightError::host(
            name,
            format!(
                "node `{name}` does not run systemd, which starts its containerd (there is no \
                 `/run/systemd/system`)"
            ),
            ["use a distribution with systemd".to_owned()],
        )];
    }
    let containerd = &system.containerd;
    let lacks = match (containerd.socket, containerd.unit) {
        (true, true) => return tools(name, facts),
        (false, true) => "its `containerd.service` does not run",
        (true, false) => "its containerd is not a systemd unit",
        (false, false) => "its Docker comes with another containerd",
    };
    vec![PreflightError::host(
        name,
        format!(
            "node `{name}` has no containerd that pods could run on: {lacks} \
             (`/run/containerd/containerd.sock` and `containerd.service` are needed)"
        ),
        [
            "`sudo systemctl enable --now containerd` where the package is installed".to_owned(),
            "otherwise replace the static or snap Docker with the distribution's or Docker's packages"
                .to_owned(),
        ],
    )]
}

/// What the node must let us do besides.
fn tools(name: &NodeName, facts: &HostFacts) -> Vec<PreflightError> {
    let system = &facts.system;
    let containerd = &system.containerd;
    let mut errors = Vec::new();
    if !containerd.ctr {
        errors.push(PreflightError::host(
            name,
            format!("node `{name}` has no `ctr`, the command line of its containerd"),
            ["install the package that has it (`containerd-ctr` on SLES)".to_owned()],
        ));
    }
    if older(&containerd.version, (1, 6)) {
        errors.push(PreflightError::host(
            name,
            format!(
                "containerd {} on node `{name}` is too old; kubelet needs 1.6 or later",
                containerd.version
            ),
            ["upgrade containerd on the node".to_owned()],
        ));
    }
    let files = facts.files.as_ref();
    let drop_ins = [path::CONTAINERD_DROP_IN, path::FORMER_DROP_IN];
    let ours = files.is_some_and(|files| drop_ins.iter().any(|path| files.contains_key(*path)));
    if let Some(odd) = containerd.command.odd.as_ref().filter(|_| !ours) {
        errors.push(PreflightError::host(
            name,
            format!(
                "containerd on node `{name}` is started with flags that rke-operator does not know, so it is not \
                changed: `{odd}`"
            ),
            [
                "`--config`, `--root`, `--state` and `--log-level` are carried over; move \
                 anything else into the file that `--config` names (`systemctl edit containerd`)"
                    .to_owned(),
            ],
        ));
    }
    if system.no_port_forwarding {
        errors.push(PreflightError::host(
            name,
            format!(
                "sshd on node `{name}` forbids connections to the node's own ports, and there is no bash that \
                 would carry them"
            ),
            [
                "the components' health and the cluster's API are checked through them: set \
                 `AllowTcpForwarding local` for this user in sshd's configuration, or install bash"
                    .to_owned(),
            ],
        ));
    }
    errors
}

/// `1.45` against a least version; what cannot be read is taken as new enough.
fn older(version: &str, least: (u32, u32)) -> bool {
    let mut parts = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => (major, minor) < least,
        (_, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::older;

    #[test]
    fn versions_are_numbers() {
        assert!(older("1.40", (1, 41)));
        assert!(!older("1.41", (1, 41)));
        assert!(!older("1.100", (1, 41)));
        assert!(!older("", (1, 41)));
    }
}
