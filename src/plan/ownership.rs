//! Which cluster a node belongs to, as far as its contents show. Pure. Only positive evidence counts: a claim, the file
//! that a claim writes, a container or the state of this cluster; or the same machine that a run saw, with nothing of
//! another Kubernetes on it. Folders prove nothing, and a node without evidence belongs to no cluster.

use super::folders;
use crate::{
    facts::{Actual, HostFacts, is_rke},
    model::{ClusterId, NodeName, label},
};

/// What a node that has no claim is to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unclaimed {
    /// Nothing says that it was ever this cluster's.
    New,
    /// Its containers, or the claim's own file, are this cluster's: claimed again.
    Ours,
    /// The same machine that a run saw, with none of rke-operator's containers, with folders that only a cluster fills
    /// and nothing of another Kubernetes: its Docker lost all containers (`docker system prune -a`, another
    /// data root). Claimed again, and then surveyed.
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
    have.is_known_machine(name)
        && facts.claim().is_none()
        && facts.another_cluster(&saved.cluster_id).is_none()
        && have.foreign_on(name).is_empty()
        && folders::filled(facts).next().is_some()
}

/// What is on a machine that nothing proves to be this cluster's, or that another Kubernetes is on: why it is
/// left alone. `None`: nothing is there, or all of it is this cluster's.
pub(super) fn stranger(name: &NodeName, facts: &HostFacts, have: &Actual) -> Option<String> {
    const NAMED: usize = 5;
    let saved = have.saved.as_ref()?;
    let mut signs = have.foreign_on(name);
    let proven = facts.is_of(&saved.cluster_id);
    if proven && signs.is_empty() {
        return None;
    }
    if !proven {
        signs.extend(folders::filled(facts).map(|folder| format!("`{folder}`")));
    }
    let more = signs.len().saturating_sub(NAMED);
    signs.truncate(NAMED);
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    let signs = signs.join(", ");
    let proof = if proven {
        ""
    } else {
        ", and nothing on it shows that it belongs to this cluster"
    };
    (!signs.is_empty()).then(|| format!("another Kubernetes is or was on it{proof}: {signs}{more}"))
}

/// The containers of a cluster of RKE v1 on the host.
pub(super) fn rke_containers(facts: &HostFacts) -> impl Iterator<Item = &str> {
    let containers = facts.containers.iter();
    containers
        .filter(|(name, fact)| !fact.labels.contains_key(label::CLUSTER_ID) && is_rke(name, fact))
        .map(|(name, _)| name.as_str())
}
