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
        if owned_by(facts, &id.0) {
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
    saved.inventory.contains_key(name)
        && facts.claim().is_none()
        && !owned_by(facts, &saved.cluster_id.0)
        && preflight::filled(facts).next().is_some()
}

/// True when a container of the host, the claim included, belongs to this cluster's id; or when the
/// claim's own file says so, which outlives every container (`docker system prune`, another data
/// root).
pub(super) fn owned_by(facts: &HostFacts, id: &str) -> bool {
    let marked = facts.system.cluster_id.as_ref();
    marked.is_some_and(|found| found.0 == id)
        || facts.containers.values().any(|fact| {
            fact.labels
                .get(label::CLUSTER_ID)
                .is_some_and(|found| found == id)
        })
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
