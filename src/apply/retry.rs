//! Retries within the run: a failure that may be temporary (a registry that hiccups, Docker that
//! restarts, a node that hangs) does not end it. No other code retries steps. Every step may be
//! repeated (invariant 6), so the whole step is: its guard is evaluated again, and the node is
//! dialled again when its connection is gone.
//!
//! The error's variant, never its text, decides whether a failure is temporary; tries and time are
//! bounded, and each pause is reported.

use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

use super::{
    step::{Reporter, StepError},
    stop::Stop,
};
use crate::error::{Passing, with_causes};

/// A node, or its Docker, may be away this long. The API server frees a Service's address that no
/// Service has after about a minute.
pub(super) const AWAY: Duration = Duration::from_secs(150);
/// How often a step that fails on a node that answers is tried.
const TRIES: u64 = 5;
/// The longest pause.
const PAUSE: Duration = Duration::from_secs(15);

/// Tries until it succeeds, fails for good, or the bounds are reached: then the last error counts.
pub(super) async fn again<T, F>(
    reporter: &Reporter,
    stop: &Stop,
    mut attempt: impl FnMut() -> F,
) -> Result<T, StepError>
where
    F: Future<Output = Result<T, StepError>>,
{
    let mut tries = 0;
    let mut away: Option<Instant> = None;
    loop {
        let error = match attempt().await {
            Err(StepError::Failed(error)) => error,
            ended => return ended,
        };
        tries += 1;
        let goes_on = match error.passing() {
            None => false,
            Some(Passing::Hiccup) => tries < TRIES,
            Some(Passing::Away) => away.get_or_insert_with(Instant::now).elapsed() < AWAY,
        };
        if !goes_on {
            return Err(StepError::Failed(error));
        }
        reporter.waiting(format!("another try: {}", with_causes(&*error)), tries);
        tokio::select! {
            // First: after a process was frozen, both are so.
            biased;
            _ = stop.stopped() => return Err(StepError::Stopped),
            () = tokio::time::sleep(pause(tries)) => {}
        }
    }
}

/// 1, 2, 4 … seconds, a little more or less, so that siblings do not come all at once.
fn pause(tries: u64) -> Duration {
    let doubled = Duration::from_secs(1 << (tries - 1).min(6)).min(PAUSE);
    doubled.mul_f64(rand::rng().random_range(0.8..1.2))
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use super::*;
    use crate::{
        apply::{
            event::{Event, Events, StepId},
            executor::failed,
            stop::{StopCause, Stopper},
        },
        host::{Hop, HostError, Place},
        model::{Endpoint, NodeName},
        workload::WorkloadError,
    };

    fn place() -> Arc<Place> {
        Arc::new(Place {
            node: NodeName::from("n1"),
            endpoint: Endpoint {
                address: "10.0.0.2".to_owned(),
                port: 22,
            },
            user: "rke".to_owned(),
            hop: Hop::Direct,
        })
    }

    fn lost() -> StepError {
        failed(HostError::Lost {
            at: place(),
            why: "closed".to_owned(),
        })
    }

    fn pull(status: Option<u16>) -> StepError {
        failed(HostError::Pull {
            at: place(),
            image: "etcd:1".to_owned(),
            status,
            message: "registry error".to_owned(),
        })
    }

    fn refused() -> StepError {
        failed(HostError::Unreachable {
            at: place(),
            source: io::ErrorKind::ConnectionRefused.into(),
        })
    }

    /// The error that a step gets when it waited for the attempt of another.
    fn shared() -> StepError {
        failed(Arc::new(HostError::Unreachable {
            at: place(),
            source: io::ErrorKind::ConnectionRefused.into(),
        }))
    }

    fn denied() -> StepError {
        failed(HostError::SocketDenied {
            at: place(),
            socket: "/var/run/docker.sock".to_owned(),
            sudo: false,
        })
    }

    /// Fails with each error in turn, then succeeds; returns the tries, the seconds and the result.
    async fn tried(errors: Vec<StepError>) -> (usize, u64, Result<(), StepError>) {
        let (events, _received) = Events::channel(8);
        let (_stopper, stop) = Stopper::new();
        let reporter = Reporter::new(events, StepId { stage: 0, step: 0 });
        let mut errors = errors.into_iter();
        let mut tries = 0;
        let started = Instant::now();
        let result = again(&reporter, &stop, || {
            tries += 1;
            let error = errors.next();
            async move { error.map_or(Ok(()), Err) }
        })
        .await;
        (tries, started.elapsed().as_secs(), result)
    }

    #[tokio::test(start_paused = true)]
    async fn a_temporary_failure_is_tried_again() {
        let errors = vec![
            pull(None),
            pull(Some(500)),
            lost(),
            refused(),
            shared(),
            lost(),
        ];
        let (tries, _, result) = tried(errors).await;
        assert!(result.is_ok());
        assert_eq!(tries, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_on_a_node_that_answers_are_few() {
        let (tries, seconds, result) = tried((0..100).map(|_| pull(None)).collect()).await;
        assert!(matches!(result, Err(StepError::Failed(_))));
        assert_eq!(tries, 5);
        assert!((10..30).contains(&seconds), "{seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_away_is_waited_for_within_a_bound() {
        let (tries, seconds, result) = tried((0..100).map(|_| refused()).collect()).await;
        assert!(matches!(result, Err(StepError::Failed(_))));
        assert!((150..170).contains(&seconds), "{seconds} {tries}");
    }

    fn address(holder: Option<&str>) -> StepError {
        let source = WorkloadError::Overdue {
            waiting_for: "nothing".to_owned(),
            after: Duration::ZERO,
        };
        failed(WorkloadError::Address {
            service: "Service `kube-system/kube-dns`".to_owned(),
            address: "10.43.0.10".to_owned(),
            holder: holder.map(str::to_owned),
            source: Box::new(source),
        })
    }

    /// A killed run leaves such an address, and the server's repair takes a minute.
    #[tokio::test(start_paused = true)]
    async fn a_missing_address_is_waited_for_and_one_that_another_has_is_not() {
        let (tries, seconds, result) = tried((0..9).map(|_| address(None)).collect()).await;
        assert!(result.is_ok() && seconds > 60, "{seconds}");
        assert_eq!(tries, 10);
        let (tries, _, result) = tried(vec![address(Some("shop/web"))]).await;
        assert!(result.is_err());
        assert_eq!(tries, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_person_must_mend_is_not() {
        for error in [
            denied(),
            pull(Some(404)),
            StepError::Guard("no longer claimed".to_owned()),
            StepError::Stopped,
        ] {
            let (tries, seconds, result) = tried(vec![error]).await;
            assert!(result.is_err());
            assert_eq!((tries, seconds), (1, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_are_reported_and_a_stop_ends_them() {
        let (events, mut received) = Events::channel(8);
        let (stopper, stop) = Stopper::new();
        let reporter = Reporter::new(events, StepId { stage: 0, step: 0 });
        let result: Result<(), _> = again(&reporter, &stop, || {
            stopper.stop(StopCause::Signal);
            async { Err(lost()) }
        })
        .await;
        assert!(matches!(result, Err(StepError::Stopped)));
        let Ok(Event::StepProgress { waiting_for, .. }) = received.try_recv() else {
            panic!("nothing was reported");
        };
        let waiting_for = waiting_for.unwrap();
        assert!(waiting_for.starts_with("another try: "), "{waiting_for}");
    }
}
