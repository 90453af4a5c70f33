//! The folders that only a Kubernetes fills, whose ever it is. Pure.

use crate::{facts::HostFacts, model::path};

/// Folders that a node without a claim must not have, unless they are empty (a disk that is
/// mounted there for etcd).
const FOLDERS: [&str; 4] = [path::KUBERNETES, NET_D, path::ETCD, path::KUBELET];

pub(super) const NET_D: &str = "/etc/cni/net.d";

/// The folders that only a Kubernetes fills, and that are not empty here.
pub(super) fn filled(facts: &HostFacts) -> impl Iterator<Item = &'static str> {
    FOLDERS
        .into_iter()
        .filter(|folder| is_there(folder, facts) && !facts.system.empty.contains(*folder))
}

fn is_there(folder: &str, facts: &HostFacts) -> bool {
    let paths = &facts.system.paths;
    if folder != NET_D {
        return paths.contains(folder);
    }
    // containerd makes an empty `net.d` that only root may look into: a file in it counts, unless
    // it is podman's or nerdctl's, which share the folder with Kubernetes.
    let inside = format!("{folder}/");
    paths.iter().any(|path| {
        path.strip_prefix(&inside)
            .is_some_and(|file| !file.contains("podman") && !file.contains("nerdctl"))
    })
}
