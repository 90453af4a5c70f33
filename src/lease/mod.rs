//! Leader election with a Lease, as Kubernetes' own components do it: of several candidates, only the
//! holder acts. There are two Leases: [`OPERATOR`], among the operator's processes, and [`RUN`], in the
//! provisioned cluster, among all runs that change it.
//!
//! The holder renews its record. A candidate takes the Lease when it was released, when its holder is
//! a process of this machine that has exited, or when the record has not changed for as long as it
//! says. The candidate measures that by its own clock, so two clocks are never compared. Each write
//! carries the resource version that was read, so two candidates cannot take it at once.
//!
//! The holder may act for [`Terms::deadline`] from the moment it requested its last renewal, and that
//! bound is part of its [stop signal](Stopper::lease_until): a process that was frozen finds it at
//! its next step. Others wait for [`Terms::duration`], so an effect in flight has the difference to
//! finish.

mod process;

use std::{convert::Infallible, time::Duration};

use futures::{channel::oneshot, future::Either};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;

use crate::{
    apply::stop::{Stop, StopCause, Stopper},
    environment::Clock,
    error::with_causes,
};

pub(crate) use process::{this_process, told};

/// How a lease is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Its name.
    name: &'static str,
    /// How long a record that does not change is respected.
    duration: Duration,
    /// How long the holder acts without a renewal.
    deadline: Duration,
    /// How often the holder renews, and the others look.
    retry: Duration,
    /// The holder goes on while the server does not answer: then no other candidate gets the lease either.
    outlives_silence: bool,
}

impl Terms {
    /// Logs why a request failed: as a warning, unless the holder may go on without an answer.
    fn tell(&self, error: &kube::Error, what: &str) {
        let why = with_causes(error);
        if self.outlives_silence {
            tracing::debug!(%why, "{what}");
        } else {
            tracing::warn!(%why, "{what}");
        }
    }

    /// The name of the Lease.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }
}

/// Which of the operator's processes acts; in its own namespace.
pub(crate) const OPERATOR: Terms = Terms {
    name: "rke-operator",
    duration: Duration::from_secs(15),
    deadline: Duration::from_secs(10),
    retry: Duration::from_secs(1),
    outlives_silence: false,
};

/// Which run changes a cluster; in its `kube-system`. A run restarts the very API servers that keep
/// it: their silence is no reason to leave a cluster half done.
pub(crate) const RUN: Terms = Terms {
    name: "rke-operator-run",
    duration: Duration::from_secs(60),
    deadline: Duration::from_secs(40),
    retry: Duration::from_secs(5),
    outlives_silence: true,
};

/// How long a request may take: one that hangs must leave time for others.
const ANSWER: Duration = Duration::from_secs(4);

/// A process that had an answer from the server within this time can reach it. Shorter than
/// [`Terms::deadline`], so that a holder whose server falls silent after that still has its lease.
const RECENT: Duration = Duration::from_secs(25);

/// A candidate.
#[derive(Clone)]
pub(crate) struct Election {
    terms: Terms,
    leases: Api<Lease>,
    identity: String,
    clock: Clock,
}

/// The lease, as it was written last, and until when it lets this process act.
pub(crate) struct Held {
    election: Election,
    lease: Lease,
    until: Instant,
}

/// Another holder's record, and since when this process has seen it unchanged.
pub(crate) struct Seen {
    spec: LeaseSpec,
    since: Instant,
}

impl Seen {
    /// Since when the record is unchanged: since now, unless the last look saw the same record.
    fn again(last: Option<Self>, spec: LeaseSpec, now: Instant) -> Self {
        match last {
            Some(last) if last.spec == spec => last,
            Some(_) | None => Self { spec, since: now },
        }
    }

    /// The holder's identity; empty when there is none.
    pub(crate) fn holder(&self) -> &str {
        self.spec.holder_identity.as_deref().unwrap_or_default()
    }

    /// May `identity` take it? A holder of the same name is this process's predecessor.
    fn is_free(&self, identity: &str, now: Instant) -> bool {
        let seconds = self.spec.lease_duration_seconds.unwrap_or_default();
        let lasts = u64::try_from(seconds).map_or(RUN.duration, Duration::from_secs);
        let holder = self.holder();
        holder.is_empty()
            || holder == identity
            || process::has_ended(holder)
            || now.duration_since(self.since) >= lasts
    }
}

impl Election {
    /// For the lease in that namespace.
    pub(crate) fn new(
        terms: Terms,
        client: Client,
        namespace: &str,
        identity: &str,
        clock: Clock,
    ) -> Self {
        Self {
            terms,
            leases: Api::namespaced(client, namespace),
            identity: identity.to_owned(),
            clock,
        }
    }

    /// Waits until this process holds the lease; `None` when it is stopped before that.
    pub(crate) async fn win(self, stop: &Stop) -> Option<Held> {
        let mut seen: Option<Seen> = None;
        let mut said = String::new();
        loop {
            if stop.cause().is_some() {
                return None;
            }
            match self.attempt(&mut seen).await {
                Ok(Some(held)) => return Some(held),
                Ok(None) => {
                    let holder = seen.as_ref().map(Seen::holder).unwrap_or_default();
                    if said != holder {
                        tracing::info!(holder, "waits for the lease");
                        holder.clone_into(&mut said);
                    }
                }
                Err(error) => {
                    let why = with_causes(&error);
                    if said != why {
                        tracing::warn!(%why, "cannot take the lease");
                        why.clone_into(&mut said);
                    }
                }
            }
            tokio::select! {
                _ = stop.stopped() => return None,
                () = tokio::time::sleep(self.terms.retry) => {}
            }
        }
    }

    /// Takes the lease if it is free; `seen` has the record of the one that holds it. Not to be
    /// dropped half way: a lease that is written and forgotten would keep others waiting.
    pub(crate) async fn attempt(&self, seen: &mut Option<Seen>) -> kube::Result<Option<Held>> {
        let asked = Instant::now();
        let taken = self.take(seen).await?;
        Ok(taken.map(|lease| {
            tracing::info!(identity = self.identity, "holds the lease");
            Held {
                election: self.clone(),
                lease,
                until: asked + self.terms.deadline,
            }
        }))
    }

    async fn take(&self, seen: &mut Option<Seen>) -> kube::Result<Option<Lease>> {
        let Some(there) = in_time(self.leases.get_opt(self.terms.name)).await? else {
            return match self.create().await {
                // Another was quicker.
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
                created => created.map(Some),
            };
        };
        let spec = there.spec.clone().unwrap_or_default();
        let now = Instant::now();
        let last = seen.take();
        let record = seen.insert(Seen::again(last, spec, now));
        if !record.is_free(&self.identity, now) {
            return Ok(None);
        }
        match self.write(&there, self.next(&record.spec)).await {
            // Another was quicker, or the holder is back.
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(None),
            written => written.map(Some),
        }
    }

    async fn create(&self) -> kube::Result<Lease> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.terms.name.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(self.next(&LeaseSpec::default())),
        };
        in_time(self.leases.create(&PostParams::default(), &lease)).await
    }

    /// The record with this process as its holder.
    fn next(&self, before: &LeaseSpec) -> LeaseSpec {
        let now = Some(MicroTime(self.clock.now()));
        let ours = before.holder_identity.as_ref() == Some(&self.identity);
        let transitions = before.lease_transitions.unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.terms.duration.as_secs()).ok(),
            acquire_time: if ours {
                before.acquire_time.clone()
            } else {
                now.clone()
            },
            renew_time: now,
            lease_transitions: Some(if before.holder_identity.is_none() || ours {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            preferred_holder: None,
            strategy: None,
        }
    }

    /// Fails with a conflict when another client wrote the Lease since `there` was read.
    async fn write(&self, there: &Lease, spec: LeaseSpec) -> kube::Result<Lease> {
        let lease = Lease {
            metadata: ObjectMeta {
                managed_fields: None,
                ..there.metadata.clone()
            },
            spec: Some(spec),
        };
        in_time(
            self.leases
                .replace(self.terms.name, &PostParams::default(), &lease),
        )
        .await
    }
}

/// What came of a renewal.
enum Renewal {
    Renewed,
    /// Another process holds it, or its record names no holder: which of the two.
    Lost(String),
}

impl Held {
    /// Renews while the work goes on, and stops the work when the lease is lost. Returns the result of
    /// the work, and the lease if it is still held. `heard` returns when the work last had an answer from
    /// the server: the server is not silent when only the renewals get no answer.
    pub(crate) async fn during<T, F: Future<Output = T>>(
        self,
        stop: &Stop,
        heard: impl Fn() -> Option<Instant>,
        work: impl FnOnce(Stop) -> F,
    ) -> (T, Option<Self>) {
        let (stopper, stop) = Stopper::within(stop);
        let (done, is_done) = oneshot::channel::<Infallible>();
        let kept = self.keep(stopper, heard, async {
            let _ = is_done.await;
        });
        let working = async {
            let came_of_it = work(stop.clone()).await;
            drop(done);
            came_of_it
        };
        let (kept, came_of_it) = futures::join!(kept, Box::pin(working));
        let lost = stop.cause() == Some(StopCause::LeaseLost);
        (came_of_it, kept.filter(|_| !lost))
    }

    /// Renews until `done`; then it is still held. `None` when it was lost; then `stopper` has given the signal.
    async fn keep(
        mut self,
        stopper: Stopper,
        heard: impl Fn() -> Option<Instant>,
        done: impl Future<Output = ()>,
    ) -> Option<Self> {
        let Terms {
            deadline,
            retry,
            outlives_silence,
            ..
        } = self.election.terms;
        let mut done = std::pin::pin!(done);
        // Since when no renewal comes through.
        let mut failing: Option<Instant> = None;
        loop {
            stopper.lease_until(self.until);
            let pause = std::pin::pin!(tokio::time::sleep(retry));
            if let Either::Left(_) = futures::future::select(&mut done, pause).await {
                return Some(self);
            }
            let asked = Instant::now();
            let renewal = self.renew().await;
            let over = Instant::now() >= self.until;
            let why = match renewal {
                Ok(Renewal::Renewed) if !over => {
                    self.until = asked + deadline;
                    failing = None;
                    continue;
                }
                // Meanwhile the stop signal said that the lease is over.
                Ok(Renewal::Renewed) => "it was renewed too late".to_owned(),
                Ok(Renewal::Lost(why)) => why,
                Err(error) if !over => {
                    // While the work gets answers, others get them too, and may take the lease.
                    let since = *failing.get_or_insert(asked);
                    let silent = heard().is_none_or(|when| when < since || when.elapsed() > RECENT);
                    if outlives_silence && silent {
                        self.until = asked + deadline;
                    }
                    self.election.terms.tell(&error, "cannot renew the lease");
                    continue;
                }
                Err(error) => with_causes(&error),
            };
            tracing::error!(%why, "the lease is lost");
            stopper.stop(StopCause::LeaseLost);
            return None;
        }
    }

    async fn renew(&mut self) -> kube::Result<Renewal> {
        let election = &self.election;
        let spec = self.lease.spec.clone().unwrap_or_default();
        let written = election.write(&self.lease, election.next(&spec)).await;
        let there = match written {
            Ok(lease) => {
                self.lease = lease;
                return Ok(Renewal::Renewed);
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                in_time(election.leases.get_opt(election.terms.name)).await?
            }
            Err(error) => return Err(error),
        };
        // Deleted, it is created again; edited, it is lost only when it no longer names this process.
        let Some(there) = there else {
            self.lease = election.create().await?;
            return Ok(Renewal::Renewed);
        };
        let spec = there.spec.clone().unwrap_or_default();
        match spec.holder_identity.as_deref() {
            Some(holder) if holder == election.identity => {
                self.lease = election.write(&there, election.next(&spec)).await?;
                Ok(Renewal::Renewed)
            }
            Some(holder) if !holder.is_empty() => Ok(Renewal::Lost(format!("{holder} holds it"))),
            Some(_) | None => Ok(Renewal::Lost("its record names no holder".to_owned())),
        }
    }

    /// Releases it, so that the next candidate need not wait.
    pub(crate) async fn release(self) {
        let Self {
            election, lease, ..
        } = self;
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(election.clock.now())),
            ..lease.spec.clone().unwrap_or_default()
        };
        match election.write(&lease, spec).await {
            Ok(_) => tracing::info!(identity = election.identity, "released the lease"),
            Err(error) => election.terms.tell(&error, "cannot release the lease"),
        }
    }
}

async fn in_time<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    tokio::time::timeout(ANSWER, request)
        .await
        .unwrap_or_else(|_| {
            let why = format!("no answer within {} s", ANSWER.as_secs());
            Err(kube::Error::Service(why.into()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(holder: &str, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            ..LeaseSpec::default()
        }
    }

    /// By this process's own clock, from when it first saw the record; a change starts the time again.
    #[test]
    fn a_record_that_does_not_move_is_respected_for_as_long_as_it_says() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let seen = Seen::again(None, record("b", 15), at(0));
        let seen = Seen::again(Some(seen), record("b", 15), at(14));
        assert!(!seen.is_free("a", at(14)));
        assert!(seen.is_free("a", at(15)));
        let moved = LeaseSpec {
            renew_time: Some(MicroTime(jiff::Timestamp::UNIX_EPOCH)),
            ..record("b", 15)
        };
        let seen = Seen::again(Some(seen), moved, at(14));
        assert!(!seen.is_free("a", at(28)));
        assert!(seen.is_free("a", at(29)));
    }

    #[test]
    fn a_released_lease_and_ones_own_are_free_at_once() {
        let now = Instant::now();
        assert!(Seen::again(None, record("", 1), now).is_free("a", now));
        assert!(Seen::again(None, record("a", 15), now).is_free("a", now));
        assert!(Seen::again(None, LeaseSpec::default(), now).is_free("a", now));
        // Nonsense is not a reason to hurry.
        assert!(!Seen::again(None, record("b", -3), now).is_free("a", now));
    }
}
