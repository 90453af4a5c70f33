//! How many session channels of a connection are open at once: no more than its sshd allows (`MaxSessions`), which it
//! does not say. It refuses one too many, and frees the slot of an ended one a little after we have seen its end.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{carrier::Carries, error::FEWEST_SESSIONS, ssh::OpenError};

/// Of the ten that sshd allows by default.
const MOST: usize = 8;
/// How many of them carry streams to Docker, and to ports, where sshd forwards none.
const TO_DOCKER: usize = 3;
const TO_PORTS: usize = 3;
/// A slot, until it is dropped.
pub(super) type Permit = OwnedSemaphorePermit;

/// The slots of a connection.
pub(super) struct Sessions {
    all: Arc<Semaphore>,
    /// How many there are, as far as is known.
    limit: AtomicUsize,
    to_docker: Arc<Semaphore>,
    to_ports: Arc<Semaphore>,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MOST)),
            limit: AtomicUsize::new(MOST),
            to_docker: Arc::new(Semaphore::new(TO_DOCKER)),
            to_ports: Arc::new(Semaphore::new(TO_PORTS)),
        }
    }

    /// Waits for a slot.
    pub(super) async fn one(&self) -> Result<Permit, OpenError> {
        acquire(&self.all).await
    }

    /// Waits until there may be one stream more of this kind. It takes a slot besides.
    pub(super) async fn of(&self, what: Carries) -> Result<Permit, OpenError> {
        self.carries()?;
        acquire(match what {
            Carries::Docker => &self.to_docker,
            Carries::Port => &self.to_ports,
        })
        .await
    }

    /// An error where there are too few slots for streams.
    fn carries(&self) -> Result<(), OpenError> {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit < FEWEST_SESSIONS {
            return Err(OpenError::FewSessions(limit));
        }
        Ok(())
    }

    /// sshd goes on refusing this one: there are as many as are open without it. Waits for one of those to end, if there
    /// are any, and enough of them.
    pub(super) async fn fewer(
        &self,
        refused: Permit,
        what: Option<Carries>,
    ) -> Option<Result<Permit, OpenError>> {
        let unused = self.all.forget_permits(MOST);
        self.limit.fetch_sub(unused, Ordering::Relaxed);
        let one_less = |limit: usize| (limit > 1).then(|| limit - 1);
        let shrunk = self
            .limit
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        let limit = shrunk.ok()? - 1;
        tracing::debug!(limit, "sshd allows fewer sessions at once (MaxSessions)");
        refused.forget();
        if what.is_some()
            && let Err(few) = self.carries()
        {
            return Some(Err(few));
        }
        Some(self.one().await)
    }
}

async fn acquire(semaphore: &Arc<Semaphore>) -> Result<Permit, OpenError> {
    let permit = Arc::clone(semaphore).acquire_owned().await;
    permit.map_err(|_| OpenError::Lost("closed".to_owned()))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_refused_waits_for_what_is_open() {
        let sessions = Sessions::new();
        let open = sessions.one().await.unwrap();
        let first = sessions.one().await.unwrap();
        let second = sessions.one().await.unwrap();
        let mut first = std::pin::pin!(sessions.fewer(first, None));
        let mut second = std::pin::pin!(sessions.fewer(second, None));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        drop(open);
        let first = first.await.unwrap().unwrap();
        assert!(
            second.as_mut().now_or_never().is_none(),
            "both have the one slot"
        );
        drop(first);
        assert!(second.await.unwrap().is_ok());
        assert!(matches!(
            sessions.of(Carries::Port).await,
            Err(OpenError::FewSessions(1))
        ));
    }

    #[tokio::test]
    async fn with_none_open_a_refusal_is_final() {
        let sessions = Sessions::new();
        let refused = sessions.one().await.unwrap();
        assert!(sessions.fewer(refused, None).await.is_none());
        assert!(matches!(sessions.carries(), Err(OpenError::FewSessions(1))));
    }
}
