//! Turns: how many clusters are worked on at once, and who is next. First come, first served, as far as
//! the [budget](super::budget) for nodes goes.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::budget::Budget;

/// Slots, and those who wait for one.
pub(super) struct Queue {
    budget: Arc<Budget>,
    total: usize,
    slots: Semaphore,
    waiting: AtomicUsize,
    line: Mutex<Line>,
}

/// How many slots a queue has, how many are used, and how many wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) total: usize,
    pub(super) used: usize,
    pub(super) waiting: usize,
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
            total: slots,
            slots: Semaphore::new(slots),
            waiting: AtomicUsize::new(0),
            line: Mutex::default(),
        }
    }

    /// How it is at the moment.
    pub(super) fn slots(&self) -> Slots {
        Slots {
            total: self.total,
            used: self.total.saturating_sub(self.slots.available_permits()),
            waiting: self.waiting.load(Ordering::Relaxed),
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
        let _waits = Waits::in_line(&self.waiting);
        // In this order: a cluster that waits for other large ones takes no slot from the small ones.
        let share = self.budget.turn(nodes).await?;
        Some(Slot {
            _share: share,
            _slot: self.slots.acquire().await.ok()?,
        })
    }
}

/// Counts one that waits, until it goes out of scope.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn in_line(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

    #[tokio::test]
    async fn slots_and_those_who_wait_are_counted() {
        let queue = Queue::new(2, &Arc::default());
        let counts = |used, waiting| Slots {
            total: 2,
            used,
            waiting,
        };
        assert_eq!(queue.slots(), counts(0, 0));
        let slots = (queue.free(1), queue.free(1));
        assert_eq!(queue.slots(), counts(2, 0));
        let mut turn = Box::pin(queue.turn(1));
        assert!(futures::poll!(&mut turn).is_pending());
        assert_eq!(queue.slots(), counts(2, 1));
        drop(slots);
        let got = turn.await;
        assert_eq!(queue.slots(), counts(1, 0));
        drop(got);
        let mut given_up = Box::pin(queue.turn(1));
        assert!(futures::poll!(&mut given_up).is_ready());
        assert_eq!(queue.slots(), counts(0, 0));
    }

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
