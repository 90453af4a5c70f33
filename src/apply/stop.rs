//! Stopping is one signal: Ctrl-C, SIGTERM, a lost lease, a changed or deleted object, the end of a run's time limit.
//! Every wait, pull and drain selects on it; effects in flight finish.
//!
//! A process that holds a lease may act until an instant that each renewal moves on. This instant is
//! part of the signal: a process that was frozen past it finds at its next step that the lease is
//! over, even if no task has given the signal yet.

use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

/// Why a run must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopCause {
    /// Ctrl-C or SIGTERM.
    Signal,
    /// The object was deleted, replaced or edited.
    ObjectChanged,
    /// The time that the run was given is over.
    TimeOver,
    /// Another process leads now.
    LeaseLost,
}

/// The listening end, cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop {
    own: watch::Receiver<Signal>,
    /// What stops this one too.
    outer: Option<Box<Self>>,
}

/// The signalling end.
#[derive(Debug)]
pub struct Stopper(watch::Sender<Signal>);

#[derive(Clone, Copy, Debug, Default)]
struct Signal {
    given: Option<StopCause>,
    /// Until when the lease lets this process act; `None` where there is no lease.
    lease: Option<Instant>,
}

impl Signal {
    fn cause(&self) -> Option<StopCause> {
        let over = self.lease.is_some_and(|end| Instant::now() >= end);
        self.given.or(over.then_some(StopCause::LeaseLost))
    }
}

impl Stopper {
    /// A signal that has not been given yet, and its listener.
    pub fn new() -> (Self, Stop) {
        Self::with(None)
    }

    /// As [`new`](Self::new), for a part of the work that `outer` stops with all the rest.
    pub fn within(outer: &Stop) -> (Self, Stop) {
        Self::with(Some(Box::new(outer.clone())))
    }

    fn with(outer: Option<Box<Stop>>) -> (Self, Stop) {
        let (tx, own) = watch::channel(Signal::default());
        (Self(tx), Stop { own, outer })
    }

    /// Gives the signal; the first cause stays.
    pub fn stop(&self, cause: StopCause) {
        self.0.send_if_modified(|now| {
            let first = now.cause().is_none();
            if first {
                now.given = Some(cause);
            }
            first
        });
    }

    /// The lease lasts until then: a renewal. One that comes too late changes nothing.
    pub fn lease_until(&self, end: Instant) {
        self.0.send_if_modified(|now| {
            let first = now.cause().is_none();
            if first {
                now.lease = Some(end);
            }
            first
        });
    }
}

impl Stop {
    /// The cause, if the signal was given or the lease is over.
    pub fn cause(&self) -> Option<StopCause> {
        let outer = || self.outer.as_ref().and_then(|outer| outer.cause());
        self.own.borrow().cause().or_else(outer)
    }

    /// Resolves when there is a [cause](Self::cause); never, if the signalling end is gone
    /// without one.
    pub async fn stopped(&self) -> StopCause {
        match &self.outer {
            None => given(self.own.clone()).await,
            Some(outer) => {
                tokio::select! {
                    cause = given(self.own.clone()) => cause,
                    cause = Box::pin(outer.stopped()) => cause,
                }
            }
        }
    }
}

async fn given(mut signal: watch::Receiver<Signal>) -> StopCause {
    loop {
        let now = *signal.borrow_and_update();
        if let Some(cause) = now.cause() {
            return cause;
        }
        let over = async {
            match now.lease {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        let changed = async {
            // The signalling end is gone: there will be no signal and no renewal.
            if signal.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = changed => {}
            () = over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_not_renewed_is_a_stop() {
        let (stopper, stop) = Stopper::new();
        let start = Instant::now();
        let seconds = |seconds| start + Duration::from_secs(seconds);
        stopper.lease_until(seconds(10));
        let told = async { (stop.stopped().await, Instant::now()) };
        let renewed = async {
            tokio::time::sleep_until(seconds(9)).await;
            assert_eq!(stop.cause(), None);
            stopper.lease_until(seconds(15));
            tokio::time::sleep_until(seconds(14)).await;
            assert_eq!(stop.cause(), None);
        };
        let (told, ()) = tokio::join!(told, renewed);
        assert_eq!(told, (StopCause::LeaseLost, seconds(15)));
        // Too late: what was stopped does not go on.
        stopper.lease_until(seconds(30));
        stopper.stop(StopCause::Signal);
        assert_eq!(stop.cause(), Some(StopCause::LeaseLost));
    }

    /// While the process is frozen, no task runs; the first check after that finds the lease over without a signal.
    #[tokio::test(start_paused = true)]
    async fn a_check_after_the_end_of_a_lease_sees_it_without_a_signal() {
        let (stopper, stop) = Stopper::new();
        stopper.lease_until(Instant::now() + Duration::from_secs(10));
        drop(stopper);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(stop.cause(), Some(StopCause::LeaseLost));
        assert_eq!(stop.stopped().await, StopCause::LeaseLost);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_stops_with_the_whole_and_alone() {
        let (whole, outer) = Stopper::new();
        let (part, stop) = Stopper::within(&outer);
        whole.lease_until(Instant::now() + Duration::from_secs(10));
        assert_eq!(stop.cause(), None);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(stop.cause(), Some(StopCause::LeaseLost));
        assert_eq!(stop.stopped().await, StopCause::LeaseLost);
        drop(part);
        let (part, stop) = Stopper::within(&Stopper::new().1);
        part.stop(StopCause::ObjectChanged);
        assert_eq!(stop.stopped().await, StopCause::ObjectChanged);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_cause_stays() {
        let (stopper, stop) = Stopper::new();
        stopper.stop(StopCause::ObjectChanged);
        stopper.stop(StopCause::Signal);
        assert_eq!(stop.stopped().await, StopCause::ObjectChanged);
        let (stopper, stop) = Stopper::new();
        drop(stopper);
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, stop.stopped()).await.is_err());
    }
}
