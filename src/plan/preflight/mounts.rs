//! File systems that are mounted in a way in which a node cannot use them. Pure.
//!
//! `nosuid` and `nodev` do no harm anywhere. `noexec` below the roots of Docker and containerd does none where their
//! images are mounted with overlayfs: the mount of a container does not have the options of the one below it.

use std::collections::BTreeMap;

use crate::{
    desired::DesiredHost,
    facts::{HostFacts, SystemFacts},
    model::{Component, path, quoted},
};

/// Docker's storage drivers that mount nothing: a container runs in a folder of Docker's root.
const IN_PLACE: [&str; 2] = ["btrfs", "vfs"];

/// What a node needs and does not get of its file systems, each with its cure.
pub(super) fn lacks(host: &DesiredHost, facts: &HostFacts) -> Vec<(String, String)> {
    let system = &facts.system;
    let mut lacks = Vec::new();
    let written = by_mount(&system.read_only, |folder| is_written(folder, host, facts));
    for (at, folders) in written {
        lacks.push((
            format!(
                "cannot write to {}: the file system at `{at}` is mounted read-only",
                quoted(folders)
            ),
            format!(
                "`sudo dmesg | grep -i remount` on the node shows whether the kernel did that after an error of the \
                 disk; otherwise remove `ro` from the line of `{at}` in /etc/fstab, and `sudo mount -o remount,rw {at}`"
            ),
        ));
    }
    let executed = by_mount(&system.no_exec, |folder| match folder {
        SystemFacts::PLUGINS => true,
        SystemFacts::DOCKER => {
            is_dockers(facts) && IN_PLACE.contains(&facts.docker.storage_driver.as_str())
        }
        _ => false,
    });
    for (at, folders) in executed {
        lacks.push((
            format!(
                "cannot execute what is in {}: the file system at `{at}` is mounted with `noexec`",
                quoted(folders)
            ),
            without_noexec(at),
        ));
    }
    lacks
}

/// What does not keep the cluster from running, and some pods.
pub(super) fn doubts(facts: &HostFacts) -> Option<String> {
    let at = facts.system.no_exec.get(path::KUBELET)?;
    Some(format!(
        "the file system of `{}` is mounted with `noexec` (at `{at}`), and the volumes of pods are in it: a pod that \
         puts a program into an `emptyDir` cannot run it. {}",
        path::KUBELET,
        without_noexec(at)
    ))
}

fn without_noexec(at: &str) -> String {
    format!(
        "remove `noexec` from the line of `{at}` in /etc/fstab, and `sudo mount -o remount,exec {at}`"
    )
}

/// The folders of each mount point.
fn by_mount(
    folders: &BTreeMap<String, String>,
    is_used: impl Fn(&str) -> bool,
) -> BTreeMap<&str, Vec<&str>> {
    let mut by_mount: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (folder, at) in folders.iter().filter(|(folder, _)| is_used(folder)) {
        by_mount.entry(at).or_default().push(folder);
    }
    by_mount
}

/// True where something is written there for this host.
fn is_written(folder: &str, host: &DesiredHost, facts: &HostFacts) -> bool {
    let runs = |component| host.containers.contains_key(&component);
    match folder {
        path::ETCD | path::SNAPSHOTS => runs(Component::Etcd),
        path::AUDIT_LOG => runs(Component::ApiServer),
        SystemFacts::PLUGINS | "/etc/cni/net.d" | "/var/lib/cni" => host.network.plugin.is_some(),
        SystemFacts::DOCKER => is_dockers(facts),
        "/var/lib/containerd" => facts.system.containerd.folders().0 == folder,
        _ => true,
    }
}

fn is_dockers(facts: &HostFacts) -> bool {
    facts.docker.root_dir == SystemFacts::DOCKER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Network,
        desired::{
            Desired,
            fixture::{blank, facts, intent_of, reuse_or_issue},
        },
        model::Role,
    };

    fn lacking(network: Network, change: fn(&mut HostFacts)) -> Vec<String> {
        let mut intent = intent_of(&[
            ("n1", "10.0.0.1", &[Role::Etcd, Role::ControlPlane]),
            ("n2", "10.0.0.2", &[Role::Worker]),
        ]);
        intent.network = network;
        let have = blank(&intent);
        let keys = reuse_or_issue(&intent, &have, 7).unwrap();
        let want = Desired::from_intent(&intent, &keys, &have).unwrap();
        let mut facts = facts();
        change(&mut facts);
        let lacks = lacks(&want.hosts[&"n2".into()], &facts);
        lacks.into_iter().map(|(what, _)| what).collect()
    }

    fn flannel() -> Network {
        Network::Flannel(Box::default())
    }

    fn on(at: &str, folders: &[&str]) -> BTreeMap<String, String> {
        let folders = folders.iter();
        folders
            .map(|folder| ((*folder).to_owned(), at.to_owned()))
            .collect()
    }

    #[test]
    fn only_what_this_node_writes_to_has_to_be_writable() {
        let others = |facts: &mut HostFacts| {
            // Of etcd and API servers, which this worker has not; of a Docker and a containerd that are elsewhere.
            facts.system.read_only = on(
                "/data",
                &[
                    path::ETCD,
                    path::SNAPSHOTS,
                    path::AUDIT_LOG,
                    SystemFacts::DOCKER,
                    "/var/lib/containerd",
                ],
            );
            "/data/docker".clone_into(&mut facts.docker.root_dir);
            "root = \"/data/containerd\"".clone_into(&mut facts.system.containerd.dump);
        };
        assert_eq!(lacking(flannel(), others), [""; 0]);
        let plugins = |facts: &mut HostFacts| {
            facts.system.read_only = on("/opt", &[SystemFacts::PLUGINS]);
        };
        let told = lacking(flannel(), plugins);
        assert_eq!(
            told,
            ["cannot write to `/opt/cni/bin`: the file system at `/opt` is mounted read-only"]
        );
        assert_eq!(
            lacking(Network::None, plugins),
            [""; 0],
            "the user's are there"
        );
        let two = |facts: &mut HostFacts| {
            facts.system.read_only = on("/", &[path::KUBERNETES]);
            facts.system.read_only.extend(on("/var", &[path::KUBELET]));
        };
        assert_eq!(lacking(flannel(), two).len(), 2, "one for each mount point");
    }

    #[test]
    fn noexec_does_harm_where_programs_run_in_place() {
        let docker = |facts: &mut HostFacts| {
            facts.system.no_exec = on("/var", &[SystemFacts::DOCKER, path::KUBELET]);
        };
        assert_eq!(
            lacking(flannel(), docker),
            [""; 0],
            "overlayfs mounts again"
        );
        let in_place = lacking(flannel(), |facts| {
            facts.system.no_exec = on("/var", &[SystemFacts::DOCKER]);
            "vfs".clone_into(&mut facts.docker.storage_driver);
        });
        assert_eq!(
            in_place,
            [
                "cannot execute what is in `/var/lib/docker`: the file system at `/var` is mounted with `noexec`"
            ]
        );
    }
}
