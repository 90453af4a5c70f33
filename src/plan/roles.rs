//! Roles that a node has and that the config does not give it any more. Pure. What tells is what is there:
//! the containers of a role, and the member in etcd's own list.

use crate::{
    desired::Desired,
    facts::{Actual, ApiHealth, HostFacts},
    model::{Component, NodeName, Role, label},
};

use super::lost;

/// The components of a control plane, in the order in which they are removed.
pub(super) const CONTROL_PLANE: [Component; 3] = [
    Component::ApiServer,
    Component::ControllerManager,
    Component::Scheduler,
];

/// What of its roles a node of the config gives up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GivenUp {
    /// Its control plane.
    pub(super) control_plane: bool,
    /// Its member of etcd.
    pub(super) etcd: bool,
}

impl GivenUp {
    /// What this node gives up; nothing, where the config does not name it.
    pub(super) fn of(name: &NodeName, want: &Desired, have: &Actual) -> Self {
        let Some(host) = want.hosts.get(name).filter(|_| !want.saved.is_lost(name)) else {
            return Self::default();
        };
        let wanted = |component: Component| host.containers.contains_key(&component);
        let entry = want.saved.inventory.get(name);
        let facts = have.up(name);
        // Of one that does not answer the state tells: it has a role until it was seen without.
        let had = |role| entry.is_some_and(|entry| entry.roles.contains(&role));
        let has = |components: &[Component], role| {
            facts.map_or_else(
                || had(role),
                |facts| {
                    components
                        .iter()
                        .any(|component| is_there(*component, facts, want))
                },
            )
        };
        let is_member = lost::member(name, have).is_some()
            || want.saved.etcd_bootstrap.contains_key(name)
            || has(&[Component::Etcd], Role::Etcd);
        Self {
            control_plane: !wanted(Component::ApiServer) && has(&CONTROL_PLANE, Role::ControlPlane),
            etcd: !wanted(Component::Etcd) && is_member,
        }
    }

    /// True when it gives up something.
    pub(super) const fn any(self) -> bool {
        self.control_plane || self.etcd
    }

    /// The roles, for a sentence.
    pub(super) const fn names(self) -> &'static str {
        match (self.control_plane, self.etcd) {
            (true, true) => "`controlplane` and `etcd`",
            (true, false) => "`controlplane`",
            (false, _) => "`etcd`",
        }
    }
}

/// True while the cluster would be without its API if those went that the config does not want.
pub(super) fn none_that_stays_serves(want: &Desired, have: &Actual) -> bool {
    let mut stay = want.with(Component::ApiServer);
    !stay.any(|name| have.apis.get(name) == Some(&ApiHealth::Serving))
}

/// True if the host has this component's container, and it is this cluster's.
pub(super) fn is_there(component: Component, facts: &HostFacts, want: &Desired) -> bool {
    let fact = facts.container(component);
    fact.is_some_and(|fact| fact.labels.get(label::CLUSTER_ID) == Some(&want.cluster_id.0))
}
