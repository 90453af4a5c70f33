//! Turns: how many clusters are worked on at once, and who is next. First come, first served.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Slots, and those who wait for one.
pub(super) struct Queue {
    slots: Semaphore,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    next: u64,
    waiting: BTreeSet<u64>,
}

impl Queue {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots: Semaphore::new(slots),
            line: Mutex::default(),
        }
    }

    /// A slot, when one is free and nobody waits.
    pub(super) fn free(&self) -> Option<SemaphorePermit<'_>> {
        self.slots.try_acquire().ok()
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
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.slots.acquire().await.ok()
    }
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
        let queue = Queue::new(1);
        let slot = queue.free();
        assert!(slot.is_some() && queue.free().is_none());
        let (first, second, third) = (queue.line_up(), queue.line_up(), queue.line_up());
        assert_eq!((first.ahead(), second.ahead(), third.ahead()), (0, 1, 2));
        drop(second);
        assert_eq!((first.ahead(), third.ahead()), (0, 1));
        drop(first);
        assert_eq!(third.ahead(), 0);
    }
}
