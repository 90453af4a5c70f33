//! Which nodes are rolled together, and how many of them may be down at once: `upgrade_strategy`.
//! Pure.

use super::nodes;
use crate::{
    desired::Desired,
    model::{Component, NodeName},
    plan::{Queue, diff::Diff},
};

/// A kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    /// With etcd or a control plane.
    Central,
    /// All others.
    Workers,
}

impl Pool {
    pub(super) fn of(name: &NodeName, want: &Desired) -> Self {
        let has = |component: Component| {
            let host = want.hosts.get(name);
            host.is_some_and(|host| host.containers.contains_key(&component))
        };
        if has(Component::Etcd) || has(Component::ApiServer) {
            Self::Central
        } else {
            Self::Workers
        }
    }

    /// How many of its nodes may be down at once.
    pub(super) fn most(self, want: &Desired) -> usize {
        let most = match self {
            Self::Central => want.upgrade.control_planes,
            Self::Workers => want.upgrade.workers,
        };
        most.of(self.nodes(want).count())
    }

    /// How many may be begun at once: those that are down and are not among the queues take a place
    /// each. One at least; what may not be begun at all is no queue.
    pub(super) fn width(self, queues: &[Queue], diff: &Diff<'_>) -> usize {
        let rolled = |name: &NodeName| {
            let mut queues = queues.iter();
            queues.any(|queue| queue.node.as_ref() == Some(name))
        };
        let down = self.nodes(diff.want).filter(|name| is_down(name, diff));
        let down = down.filter(|name| !rolled(name)).count();
        self.most(diff.want).saturating_sub(down).max(1)
    }

    fn nodes(self, want: &Desired) -> impl Iterator<Item = &NodeName> {
        let names = want.hosts.keys();
        names.filter(move |name| Self::of(name, want) == self)
    }
}

/// True for a node that the cluster has and that is not Ready.
pub(super) fn is_down(name: &NodeName, diff: &Diff<'_>) -> bool {
    nodes::seen(diff.have, name).is_some_and(|node| !node.ready)
}
