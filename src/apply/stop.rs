//! Stopping is one signal: Ctrl-C, SIGTERM, a changed or deleted object. Every wait, pull and
//! drain selects on it; effects in flight finish.

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Why a run must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopCause {
    /// Ctrl-C or SIGTERM.
    Signal,
    /// The object was deleted, replaced or edited.
    ObjectChanged,
    /// Another process leads now.
    LeaseLost,
}

/// The listening end, cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<Option<StopCause>>);

/// The signalling end.
#[derive(Debug)]
pub struct Stopper(watch::Sender<Option<StopCause>>);

impl Stopper {
    /// A signal that has not been given yet, and its listener.
    pub fn new() -> (Self, Stop) {
        let (tx, rx) = watch::channel(None);
        (Self(tx), Stop(rx))
    }

    /// Gives the signal; the first cause stays.
    pub fn stop(&self, cause: StopCause) {
        self.0.send_if_modified(|now| {
            let first = now.is_none();
            if first {
                *now = Some(cause);
            }
            first
        });
    }
}

impl Stop {
    /// The cause, if the signal was given.
    pub fn cause(&self) -> Option<StopCause> {
        *self.0.borrow()
    }

    /// Resolves when the signal is given; never, if the signalling end is gone without one.
    pub async fn stopped(&self) -> StopCause {
        let mut rx = self.0.clone();
        match rx
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|cause| *cause)
        {
            Some(cause) => cause,
            None => std::future::pending().await,
        }
    }
}
