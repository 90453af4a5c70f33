//! The claim on every node, and what it remembers of the time before us. Pure.

use super::{hosts, part::Part};
use crate::{
    facts::{Baseline, HostFacts},
    model::{FILES_IMAGE, NodeName, path},
    plan::{
        Cause, HostAction, Step,
        diff::{Diff, HostDiff, is_below},
        ownership::Unclaimed,
    },
};

/// The claim comes before every other effect on a node: its fixed name is the lock.
pub(super) fn claim(diff: &Diff<'_>) -> Part {
    claims(diff, |_| true)
}

/// The claims that nodes of this cluster have lost.
pub(super) fn lost(diff: &Diff<'_>) -> Part {
    claims(diff, |unclaimed| unclaimed != Unclaimed::New)
}

fn claims(diff: &Diff<'_>, of: impl Fn(Unclaimed) -> bool) -> Part {
    let want = diff.want;
    let stage = hosts::stage("claim", diff, |name, host| {
        let facts = host.facts;
        let Some(unclaimed) = unclaimed(name, host, diff).filter(|it| of(*it)) else {
            return Vec::new();
        };
        let (cause, before, why) = match unclaimed {
            Unclaimed::Ours => (
                Cause::Drift,
                rebuilt_before(facts),
                "its claim is gone, and its containers are this cluster's",
            ),
            Unclaimed::Emptied => (
                Cause::Drift,
                rebuilt_before(facts),
                "its Docker has lost every container of this cluster, and the data is there",
            ),
            Unclaimed::New => (Cause::New, before(facts), "a node belongs to one cluster"),
        };
        let action = HostAction::Claim {
            cluster_id: want.cluster_id.clone(),
            cluster_name: want.saved.cluster_name.clone(),
            before,
        };
        vec![Step::on(name, cause, why, action)]
    });
    stage.into()
}

fn unclaimed(name: &NodeName, host: &HostDiff<'_>, diff: &Diff<'_>) -> Option<Unclaimed> {
    let id = &diff.want.cluster_id;
    let none = host.facts.claim().is_none();
    none.then(|| Unclaimed::of(id, name, host.facts, diff.have))
}

/// The nodes of this cluster that have lost their claims: while there are any only these claims are planned, because
/// files are read through them, and the next survey sees them.
pub(super) fn have_lost_it<'a>(diff: &'a Diff<'_>) -> impl Iterator<Item = &'a NodeName> {
    let hosts = diff.hosts.iter();
    let lost = hosts.filter(|(name, host)| {
        unclaimed(name, host, diff).is_some_and(|unclaimed| unclaimed != Unclaimed::New)
    });
    lost.map(|(name, _)| *name)
}

/// What is on a node before rke-operator changes it.
fn before(facts: &HostFacts) -> Baseline {
    let mut images = facts.images.clone();
    images.remove(FILES_IMAGE);
    Baseline {
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
pub(in crate::plan) fn rebuilt_before(facts: &HostFacts) -> Baseline {
    let mut before = before(facts);
    before.paths.retain(|path| {
        !KUBERNETES_ONLY
            .iter()
            .any(|ours| path == ours || is_below(path, ours))
    });
    // The values are ours now; what they were is not known any more.
    before.sysctls.clear();
    before
}

/// What the claim remembers of the time before us, if it can be read.
pub(in crate::plan) fn remembered(facts: &HostFacts) -> Option<Baseline> {
    facts.before()
}
