//! Turns: how many clusters are worked on at once, and who is next. First come, first served, as far as
//! the [budget](super::budget) for nodes goes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::budget::Budget;

/// Slots, and those who wait for one.
pub(super) struct Queue {
    budget: Arc<Budget>,
    slots: Semaphore,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    next: u64,
    waiting: BTreeSet<u64>,
}

impl Queue {
    pub(super) fn new(slots: usize, budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            slots: Semaphore::new(slots),
            line: Mutex::default(),
        }
    }

    /// A slot for a cluster of so many nodes, when one is free and nobody waits.
    pub(super) fn free(&self, nodes: usize) -> Option<Slot<'_>> {
        Some(Slot {
            _share: self.budget.free(nodes)?,
            _slot: self.slots.try_acquire().ok()?,
        })
    }

    /// A place at the end of the line.
    pub(super) fn line_up(&self) -> Place<'_> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let number = line.next;
        line.next += 1;
        line.waiting.insert(number);
        Place {
            queue: self,
            number,
        }
    }

    /// A slot as soon as there is one; `None` never comes while the operator runs.
    pub(super) async fn turn(&self, nodes: usize) -> Option<Slot<'_>> {
        // In this order: a cluster that waits for other large ones takes no slot from the small ones.
        let share = self.budget.turn(nodes).await?;
        Some(Slot {
            _share: share,
            _slot: self.slots.acquire().await.ok()?,
        })
    }
}

/// A turn, until it goes out of scope.
pub(super) struct Slot<'a> {
    _share: SemaphorePermit<'a>,
    _slot: SemaphorePermit<'a>,
}

/// A place in the line; it is given up when this goes out of scope.
pub(super) struct Place<'a> {
    queue: &'a Queue,
    number: u64,
}

impl Place<'_> {
    /// How many come first.
    pub(super) fn ahead(&self) -> usize {
        let line = self.queue.line.lock();
        let line = line.unwrap_or_else(PoisonError::into_inner);
        line.waiting.range(..self.number).count()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let line = self.queue.line.lock();
        let mut line = line.unwrap_or_else(PoisonError::into_inner);
        line.waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_moves_up_when_those_before_it_go() {
        let queue = Queue::new(1, &Arc::default());
        let slot = queue.free(1);
        assert!(slot.is_some() && queue.free(1).is_none());
        let (first, second, third) = (queue.line_up(), queue.line_up(), queue.line_up());
        assert_eq!((first.ahead(), second.ahead(), third.ahead()), (0, 1, 2));
        drop(second);
        assert_eq!((first.ahead(), third.ahead()), (0, 1));
        drop(first);
        assert_eq!(third.ahead(), 0);
    }
}
