//! How many nodes one process looks at, whichever clusters they belong to: what a look holds grows with
//! them. A large cluster is one at a time; the small ones share what is left.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Clusters with more nodes are large.
const LARGE: usize = 200;

/// The nodes of small clusters that are looked at, or worked on, at the same time.
const SMALL: usize = 500;

/// The nodes that may be looked at.
pub(super) struct Budget {
    small: Semaphore,
    large: Semaphore,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            small: Semaphore::new(SMALL),
            large: Semaphore::new(1),
        }
    }
}

impl Budget {
    fn of(&self, nodes: usize) -> (&Semaphore, u32) {
        if nodes > LARGE {
            (&self.large, 1)
        } else {
            (&self.small, u32::try_from(nodes.max(1)).unwrap_or(1))
        }
    }

    /// A share for so many nodes, when there is one at once.
    pub(super) fn free(&self, nodes: usize) -> Option<SemaphorePermit<'_>> {
        let (shares, count) = self.of(nodes);
        shares.try_acquire_many(count).ok()
    }

    /// A share as soon as there is one; `None` never comes while the operator runs.
    pub(super) async fn turn(&self, nodes: usize) -> Option<SemaphorePermit<'_>> {
        let (shares, count) = self.of(nodes);
        shares.acquire_many(count).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_cluster_at_a_time_and_no_small_one_waits_for_it() {
        let budget = Budget::default();
        let large = budget.free(1000);
        assert!(large.is_some() && budget.free(LARGE + 1).is_none());
        let small: Vec<_> = (0..SMALL / LARGE)
            .map(|_| budget.free(LARGE).unwrap())
            .collect();
        assert!(budget.free(LARGE).is_none());
        let one = budget.free(0);
        assert!(one.is_some(), "there is room for one node");
        drop((large, small));
        assert!(budget.free(1000).is_some() && budget.free(LARGE).is_some());
    }
}
