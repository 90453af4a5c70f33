//! How many nodes one process works on at the same time, whichever clusters they belong to: the memory that a
//! reconcile needs grows with them. A large cluster is one at a time; the small ones share the rest, and those that
//! hang have a part of it that the others do not need. Pure.

use super::order::Lane;

/// Clusters with more nodes are large.
pub(in crate::operator) const LARGE: usize = 200;

/// The nodes of small clusters that answer.
pub(super) const PROMPT: usize = 300;

/// The nodes of small clusters that hang.
pub(super) const SLOW: usize = 200;

/// A part of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Share {
    Small(Lane),
    Large,
}

/// How much of it is used.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    prompt: usize,
    slow: usize,
    large: usize,
}

impl Share {
    /// The part that a cluster of so many nodes needs.
    pub(super) const fn of(lane: Lane, nodes: usize) -> Self {
        if nodes > LARGE {
            Self::Large
        } else {
            Self::Small(lane)
        }
    }

    /// How much of it that is.
    fn size(self, nodes: usize) -> usize {
        match self {
            Self::Small(_) => nodes.max(1),
            Self::Large => 1,
        }
    }
}

impl Budget {
    const fn part(&mut self, share: Share) -> (&mut usize, usize) {
        match share {
            Share::Small(Lane::Prompt) => (&mut self.prompt, PROMPT),
            Share::Small(Lane::Slow) => (&mut self.slow, SLOW),
            Share::Large => (&mut self.large, 1),
        }
    }

    /// True where there is room for so many nodes.
    pub(super) fn fits(&self, share: Share, nodes: usize) -> bool {
        let (used, total) = match share {
            Share::Small(Lane::Prompt) => (self.prompt, PROMPT),
            Share::Small(Lane::Slow) => (self.slow, SLOW),
            Share::Large => (self.large, 1),
        };
        used + share.size(nodes) <= total
    }

    /// Takes a share that fits.
    pub(super) fn take(&mut self, share: Share, nodes: usize) {
        *self.part(share).0 += share.size(nodes);
    }

    /// Gives it back.
    pub(super) fn give(&mut self, share: Share, nodes: usize) {
        let (used, _) = self.part(share);
        *used = used.saturating_sub(share.size(nodes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Budget {
        /// Nothing of it is used beyond what there is.
        pub(in crate::operator::queue) fn holds(&self) -> bool {
            self.prompt <= PROMPT && self.slow <= SLOW && self.large <= 1
        }
    }

    #[test]
    fn one_large_cluster_at_a_time_and_no_small_one_waits_for_it() {
        let mut budget = Budget::default();
        let [small, slow] = [Lane::Prompt, Lane::Slow].map(|lane| Share::of(lane, LARGE));
        let large = Share::of(Lane::Slow, LARGE + 1);
        assert_eq!(large, Share::of(Lane::Prompt, 1000), "whichever lane");
        budget.take(large, 1000);
        assert!(!budget.fits(large, LARGE + 1));
        budget.take(small, LARGE);
        assert!(!budget.fits(small, LARGE));
        assert!(budget.fits(small, 0), "there is room for one node");
        // Those that hang take nothing from those that do not.
        assert!(budget.fits(slow, LARGE));
        budget.take(slow, LARGE);
        assert!(!budget.fits(slow, 1));
        budget.give(large, 1000);
        budget.give(small, LARGE);
        assert!(budget.fits(large, 1000) && budget.fits(small, LARGE));
        assert!(budget.holds());
    }
}
