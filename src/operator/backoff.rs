//! When to try again: depends on who has to act, and on the number of failures. The counts are kept per uid
//! and reset on success, so that a new object with an old name starts from zero.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::error::ErrorClass;

/// How often each object failed in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff(Mutex<HashMap<String, u32>>);

impl Backoff {
    /// Counts a failure and says how long to wait; `jitter` is in `0.0..1.0`.
    pub(super) fn failed(&self, uid: &str, class: ErrorClass, jitter: f64) -> Duration {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(uid.to_owned()).or_default();
        let delay = delay(class, *count, jitter);
        *count = count.saturating_add(1);
        delay
    }

    /// Forgets an object: it is well, or gone.
    pub(super) fn forget(&self, uid: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.remove(uid);
    }
}

/// The wait after `count` earlier failures: doubling from a base to a cap, and up to a fifth
/// more by jitter.
fn delay(class: ErrorClass, count: u32, jitter: f64) -> Duration {
    let (base, cap) = match class {
        // The watch wakes us when an object changes; a cure on a node does not, hence the look
        // every ten minutes.
        ErrorClass::User => (600, 600),
        ErrorClass::Host => (60, 600),
        ErrorClass::Transient => (2, 60),
        ErrorClass::Bug => (600, 3600),
    };
    let (base, cap) = (Duration::from_secs(base), Duration::from_secs(cap));
    doubled(base, count, cap).mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 5.0)
}

/// `base`, doubled so many times; `cap` at most.
pub(super) fn doubled(base: Duration, times: u32, cap: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_cap_and_start_afresh_after_success() {
        let backoff = Backoff::default();
        let waits = |n: usize| -> Vec<u64> {
            (0..n)
                .map(|_| backoff.failed("a", ErrorClass::Host, 0.0).as_secs())
                .collect()
        };
        assert_eq!(waits(6), [60, 120, 240, 480, 600, 600]);
        backoff.forget("a");
        assert_eq!(backoff.failed("a", ErrorClass::Host, 0.0).as_secs(), 60);
        assert_eq!(backoff.failed("b", ErrorClass::Transient, 0.0).as_secs(), 2);
    }

    #[test]
    fn jitter_only_adds() {
        assert_eq!(delay(ErrorClass::Transient, 0, 1.0).as_millis(), 2400);
        assert_eq!(delay(ErrorClass::Bug, 200, 0.0).as_secs(), 3600);
    }
}
