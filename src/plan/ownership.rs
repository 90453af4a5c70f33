//! Whose a node is, as far as what is on it tells. Pure.

use super::preflight;
use crate::{
    actual::{Actual, ContainerFact, HostFacts},
    model::{ClusterId, NodeName, RKE_ONLY, label},
};

/// RKE v1's label on every container of its own.
const RKE_LABEL: &str = "io.rancher.rke.container.name";

/// What a node that has no claim is to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unclaimed {
    /// Nothing says that it was ever this cluster's.
    New,
    /// Its containers, or the claim's own file, are this cluster's: claimed again.
    Ours,
    /// A node of the inventory that has no container of ours any more, but folders that only a
    /// cluster fills: its Docker lost them all (`docker system prune -a`, another data root). It
    /// is never clean and never another's: claimed again, and then looked at.
    Emptied,
}

impl Unclaimed {
    /// Whatever its claim says, if it has one.
    pub(super) fn of(id: &ClusterId, name: &NodeName, facts: &HostFacts, have: &Actual) -> Self {
        if facts.is_of(id) {
            Self::Ours
        } else if lost_its_containers(name, facts, have) {
            Self::Emptied
        } else {
            Self::New
        }
    }
}

fn lost_its_containers(name: &NodeName, facts: &HostFacts, have: &Actual) -> bool {
    let Some(saved) = &have.saved else {
        return false;
    };
    let Some(entry) = saved.inventory.get(name) else {
        return false;
    };
    // What is on another machine is not this cluster's.
    let is = &facts.system.machine_id;
    let was = entry.machine_id.as_ref();
    let same = is.is_empty() || was.is_none_or(|was| was == is);
    same && facts.claim().is_none()
        && !facts.is_of(&saved.cluster_id)
        && preflight::filled(facts).next().is_some()
}

/// The containers of a cluster of RKE v1 on the host.
pub(super) fn rke_containers(facts: &HostFacts) -> impl Iterator<Item = &str> {
    let containers = facts.containers.iter();
    containers
        .filter(|(name, fact)| !fact.labels.contains_key(label::CLUSTER_ID) && is_rke(name, fact))
        .map(|(name, _)| name.as_str())
}

/// True for a container of RKE's own.
pub(super) fn is_rke(container: &str, fact: &ContainerFact) -> bool {
    // `nginx-proxy` is a name that others like too.
    let proxy = container == "nginx-proxy" && fact.image.contains("rke-tools");
    fact.labels.contains_key(RKE_LABEL) || RKE_ONLY.contains(&container) || proxy
}
