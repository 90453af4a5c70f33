//! The claim on every node, and what it remembers of the time before us. Pure.

use super::{
    Action, Stage, Step, files,
    hosts::{bears, each, stage},
};
use crate::{
    actual::{Actual, Before, HostFacts},
    desired::{Desired, FILES_IMAGE, path},
};

/// The claim comes before every other effect on a node: its fixed name is the lock.
pub(super) fn claim(want: &Desired, have: &Actual) -> Stage {
    stage("claim", want, have, |name, _, facts| {
        if facts.claim().is_some() {
            return Vec::new();
        }
        let mine = bears(facts, &want.cluster_id.0);
        let (before, why) = if mine {
            (
                rebuilt_before(facts),
                "its claim is gone, and its containers are this cluster's",
            )
        } else {
            (before(facts), "a node belongs to one cluster")
        };
        let action = Action::Claim {
            cluster_id: want.cluster_id.clone(),
            cluster_name: want.saved.cluster_name.clone(),
            before,
        };
        vec![Step::on(name, why, action)]
    })
}

/// True when a node has lost its claim: then only the claim is planned, because files are
/// read through it, and the next survey sees them.
pub(super) fn must_look_again(want: &Desired, have: &Actual) -> bool {
    each(want, have)
        .any(|(_, _, facts)| facts.claim().is_none() && bears(facts, &want.cluster_id.0))
}

/// What is on a node that nobody has touched.
fn before(facts: &HostFacts) -> Before {
    let mut images = facts.images.clone();
    images.remove(FILES_IMAGE);
    Before {
        paths: facts.system.paths.clone(),
        sysctls: facts.system.sysctls.clone(),
        modules: facts.system.modules.clone(),
        images,
    }
}

/// What only a Kubernetes makes, and no node may have when it is claimed.
const KUBERNETES_ONLY: [&str; 10] = [
    path::KUBERNETES,
    path::ETCD,
    path::KUBELET,
    "/etc/cni/net.d",
    "/run/flannel",
    "/sys/class/net",
    "/var/lib/cni",
    "/var/log/containers",
    "/var/log/kube-audit",
    "/var/log/pods",
];

/// What must have been on a node whose claim is lost: the folders that no node may have when it
/// is claimed were not there; everything else may have been, and stays.
pub(super) fn rebuilt_before(facts: &HostFacts) -> Before {
    let mut before = before(facts);
    before.paths.retain(|path| {
        !KUBERNETES_ONLY
            .iter()
            .any(|ours| path == ours || files::is_below(path, ours))
    });
    // The values are ours now; what they were is not known any more.
    before.sysctls.clear();
    before
}

/// What the claim remembers of the time before us, if it can be read.
pub(super) fn remembered(facts: &HostFacts) -> Option<Before> {
    facts.claim()?.before()
}
