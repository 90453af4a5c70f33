//! One read for all callers that ask while it waits for its turn: the guards of a roll ask for all Node
//! objects before each step, a hundred of them at once.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

/// A read whose answer may be shared. Guarantee: the read that a caller gets the answer of began
/// after the call. So those that wait for a read that runs share the next one.
#[derive(Debug)]
pub(super) struct Shared<T> {
    asked: AtomicU64,
    last: Mutex<Option<Answer<T>>>,
}

/// What was read last.
#[derive(Debug)]
struct Answer<T> {
    /// How many had asked when the read began.
    asked: u64,
    value: T,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self {
            asked: AtomicU64::new(0),
            last: Mutex::new(None),
        }
    }
}

impl<T: Clone> Shared<T> {
    /// Reads, unless another caller's read has begun since this was called: then that answer counts.
    pub(super) async fn read<F>(&self, read: impl FnOnce() -> F) -> T
    where
        F: Future<Output = T>,
    {
        let mine = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        if let Some(answer) = &*last
            && answer.asked >= mine
        {
            return answer.value.clone();
        }
        let asked = self.asked.load(Ordering::SeqCst);
        let value = read().await;
        *last = Some(Answer {
            asked,
            value: value.clone(),
        });
        value
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, pin::pin};

    use futures::{FutureExt, future::join_all};
    use tokio::task::yield_now;

    use super::*;

    /// Counts the reads; each takes a while, and its answer is the time at which it began.
    async fn counted(begun: &Cell<u64>) -> u64 {
        begun.set(begun.get() + 1);
        let answer = begun.get();
        for _ in 0..5 {
            yield_now().await;
        }
        answer
    }

    /// The first one's read runs when the others ask; it may have begun before what they wait for.
    #[tokio::test]
    async fn who_asks_during_a_read_gets_the_next_one_and_shares_it() {
        let (shared, begun) = (Shared::default(), Cell::new(0));
        let mut answers = join_all((0..100).map(|_| shared.read(|| counted(&begun)))).await;
        assert_eq!(answers.remove(0), 1);
        assert_eq!(answers, [2; 99]);
        assert_eq!(begun.get(), 2);
    }

    #[tokio::test]
    async fn what_was_read_before_is_never_given() {
        let (shared, begun) = (Shared::default(), Cell::new(0));
        for time in 1..=3 {
            assert_eq!(shared.read(|| counted(&begun)).await, time);
        }
    }

    /// A step that is stopped during its read.
    #[tokio::test]
    async fn a_read_that_is_dropped_gives_no_answer() {
        let (shared, begun) = (Shared::default(), Cell::new(0));
        {
            let mut dropped = pin!(shared.read(|| counted(&begun)));
            assert_eq!(dropped.as_mut().now_or_never(), None);
        }
        assert_eq!(shared.read(|| counted(&begun)).await, 2);
    }
}
