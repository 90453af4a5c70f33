//! How a living cluster is rolled: how many nodes at once, and whether their pods go first. Pure.

use serde::{Deserialize, Serialize};

/// How many nodes of a kind may be down at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaxUnavailable {
    /// So many.
    Nodes(u16),
    /// So many of a hundred, rounded down.
    Percent(u8),
}

impl MaxUnavailable {
    /// More than this RKE never does at once either.
    const MOST: usize = 50;

    /// Of so many nodes: one at least.
    pub fn of(self, all: usize) -> usize {
        let wanted = match self {
            Self::Nodes(nodes) => usize::from(nodes),
            Self::Percent(percent) => all.saturating_mul(usize::from(percent)) / 100,
        };
        wanted.clamp(1, Self::MOST)
    }
}

/// Which pods may be evicted from a node that comes back, and how long they may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRules {
    /// Pods that nothing starts again.
    pub force: bool,
    /// Where a node has pods of `DaemonSet`s: they stay. Otherwise the node is not drained.
    pub ignore_daemonsets: bool,
    /// Pods that lose what they keep in an emptyDir.
    pub delete_local_data: bool,
    /// Seconds for a pod to end; `None`: its own.
    pub grace_period: Option<u32>,
    /// Seconds until it is given up.
    pub timeout: u32,
}

impl Default for DrainRules {
    fn default() -> Self {
        Self {
            force: false,
            ignore_daemonsets: true,
            delete_local_data: false,
            grace_period: None,
            timeout: 120,
        }
    }
}

/// `upgrade_strategy`, with RKE's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeStrategy {
    /// Of the nodes that are workers only.
    pub workers: MaxUnavailable,
    /// Of the nodes with etcd or a control plane.
    pub control_planes: MaxUnavailable,
    /// `Some`: pods are evicted before a kubelet changes.
    pub drain: Option<DrainRules>,
}

impl Default for UpgradeStrategy {
    fn default() -> Self {
        Self {
            workers: MaxUnavailable::Percent(10),
            control_planes: MaxUnavailable::Nodes(1),
            drain: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MaxUnavailable::{Nodes, Percent};

    #[test]
    fn a_percentage_is_rounded_down_and_one_node_at_least() {
        for (most, all, is) in [
            (Percent(10), 5, 1),
            (Percent(10), 29, 2),
            (Percent(10), 30, 3),
            (Percent(100), 7, 7),
            (Percent(10), 1000, 50),
            (Nodes(3), 100, 3),
            (Nodes(3), 0, 3),
            (Nodes(200), 1000, 50),
        ] {
            assert_eq!(most.of(all), is, "{most:?} of {all}");
        }
    }
}
