//! Which nodes are rolled together, and how many of them may be down at once: `upgrade_strategy`.
//! Pure.

use std::collections::BTreeSet;

use crate::{
    desired::Desired,
    facts::ApiView,
    model::{Component, NodeName},
    plan::{Queue, diff::Diff, lost},
};

/// A kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plan) enum Pool {
    /// With etcd or a control plane.
    Central,
    /// All others.
    Workers,
}

impl Pool {
    pub(in crate::plan) fn of(name: &NodeName, want: &Desired) -> Self {
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
    fn most(self, want: &Desired) -> usize {
        let most = match self {
            Self::Central => want.upgrade.control_planes,
            Self::Workers => want.upgrade.workers,
        };
        most.of(self.nodes(want).count())
    }

    /// How many may be begun at once: those that are down and are not among the queues take a place
    /// each. One at least; what may not be begun at all is no queue.
    pub(in crate::plan) fn width(self, queues: &[Queue], diff: &Diff<'_>) -> usize {
        let rolled: BTreeSet<&NodeName> = queues
            .iter()
            .filter_map(|queue| queue.node.as_ref())
            .collect();
        let down = self.nodes(diff.want).filter(|name| is_down(name, diff));
        let down = down.filter(|name| !rolled.contains(name)).count();
        self.most(diff.want).saturating_sub(down).max(1)
    }

    fn nodes(self, want: &Desired) -> impl Iterator<Item = &NodeName> {
        let names = want.hosts.keys();
        names.filter(move |name| Self::of(name, want) == self)
    }
}

/// True for a node that the cluster has and that is not Ready.
fn is_down(name: &NodeName, diff: &Diff<'_>) -> bool {
    lost::node(name, diff.have).is_some_and(|node| !node.ready)
}

/// All nodes of a cluster, counted once for a plan.
pub(in crate::plan) struct Fleet<'a> {
    want: &'a Desired,
    /// Those that the API says are not Ready; `None`: it does not answer.
    down: Option<Vec<&'a NodeName>>,
    central: usize,
    workers: usize,
}

impl<'a> Fleet<'a> {
    pub(in crate::plan) fn of(diff: &Diff<'a>) -> Self {
        let want = diff.want;
        let down = match diff.have.api() {
            ApiView::Up(api) => {
                let down = api.nodes.iter().filter(|(_, node)| !node.ready);
                Some(down.map(|(name, _)| name).collect())
            }
            ApiView::Unknown | ApiView::Unreachable(_) => None,
        };
        Self {
            want,
            down,
            central: Pool::Central.most(want),
            workers: Pool::Workers.most(want),
        }
    }

    /// How many nodes may be down while this one is: `None` where they are not counted. A change waits while as many
    /// of its kind are down as may be; a repair or a renewal does not wait for a node that may never come back.
    pub(super) fn most_with(&self, name: &NodeName, is_change: bool) -> Option<usize> {
        let down = self.down.as_ref().filter(|_| self.want.hosts.len() > 1)?;
        let pool = Pool::of(name, self.want);
        let counts = |other: &NodeName| {
            self.want.hosts.contains_key(other) && Pool::of(other, self.want) == pool
        };
        let others = down.iter().filter(|other| **other != name);
        let others = others.filter(|other| !is_change || !counts(other)).count();
        let most = match pool {
            Pool::Central => self.central,
            Pool::Workers => self.workers,
        };
        Some(others + most)
    }
}
