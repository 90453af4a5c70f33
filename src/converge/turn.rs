//! One run at a time changes a cluster: a run that would do something holds a Lease there, and
//! another one waits for it, then looks again. Guards hold just before each step; what two runs do
//! between look and effect, this alone keeps apart.
//!
//! The lease is where the cluster is. While no API server answers nobody can take it; what may be
//! done then is little ([`crate::plan`] says what) and harms nobody who does the same.

use std::time::Duration;

use tokio::time::Instant;

use super::{Error, Iteration};
use crate::{
    actual::ApiView,
    apply::{
        event::{Event, Events, RunOutcome},
        run::Report,
        stop::{Stop, StopCause},
    },
    error::with_causes,
    lease,
    lease::{Election, Held, Seen},
};

const NAMESPACE: &str = "kube-system";

/// How long another run is waited for.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// How long an API that answered a moment ago is waited for: another run may be restarting it.
const SILENCE: Duration = Duration::from_secs(90);
/// How often it is looked whether the other one is done.
const LOOK: Duration = Duration::from_secs(2);

/// What became of a plan that waited for its turn.
pub(super) enum InTurn {
    /// It was run.
    Ran(Report),
    /// It had to wait: what it was made of is no longer true.
    LookAgain,
    /// It was told to stop before it began.
    Stopped(StopCause),
}

/// Whose turn it is.
enum Turn {
    /// This run's.
    Ours(Box<Held>),
    /// This run's, which had to wait: what it saw before is no longer true.
    LookAgain,
    /// Nobody can take it.
    Nobodys,
    /// It was told to stop meanwhile.
    Stopped(StopCause),
}

impl Iteration<'_> {
    /// Runs the plan when no other run changes the cluster. What only waits is nobody's turn.
    pub(super) async fn in_turn(
        &self,
        number: u32,
        events: &Events,
        stop: &Stop,
    ) -> Result<InTurn, Error> {
        let plan = &self.survey.plan;
        let turn = if plan.only_waits() {
            Turn::Nobodys
        } else {
            Box::pin(self.turn(events, stop)).await?
        };
        let held = match turn {
            Turn::Ours(held) => held,
            Turn::Nobodys => {
                return Ok(InTurn::Ran(self.run(plan, number, events, stop).await));
            }
            Turn::LookAgain => return Ok(InTurn::LookAgain),
            Turn::Stopped(cause) => return Ok(InTurn::Stopped(cause)),
        };
        let run = async |stop: Stop| self.run(plan, number, events, &stop).await;
        let (report, held) = held.during(stop, run).await;
        match held {
            Some(held) => held.release().await,
            None if report.outcome == RunOutcome::Stopped => return Err(Error::TurnLost),
            None => {}
        }
        Ok(InTurn::Ran(report))
    }

    /// Waits until no other run changes the cluster.
    async fn turn(&self, events: &Events, stop: &Stop) -> Result<Turn, Error> {
        if !matches!(self.survey.actual.api(), ApiView::Up(_)) {
            return Ok(Turn::Nobodys);
        }
        let Ok(client) = self.session.api(self.context()).await else {
            return Ok(Turn::Nobodys);
        };
        let (identity, clock) = (&self.environment.identity, self.environment.clock.clone());
        let election = Election::new(lease::RUN, client, NAMESPACE, identity, clock);
        let begun = Instant::now();
        let mut heard = begun;
        let mut seen: Option<Seen> = None;
        let mut told = String::new();
        loop {
            match election.attempt(&mut seen).await {
                Ok(Some(held)) if told.is_empty() => return Ok(Turn::Ours(Box::new(held))),
                Ok(Some(held)) => {
                    held.release().await;
                    return Ok(Turn::LookAgain);
                }
                Ok(None) => {
                    heard = Instant::now();
                    let holder = seen.as_ref().map(Seen::holder).unwrap_or_default();
                    if begun.elapsed() >= PATIENCE {
                        return Err(Error::Busy {
                            holder: lease::told(holder),
                            minutes: PATIENCE.as_secs() / 60,
                        });
                    }
                    if told != holder {
                        holder.clone_into(&mut told);
                        let holder = lease::told(holder);
                        events.emit(Event::TurnAwaited { holder }).await;
                    }
                }
                Err(error) => {
                    // An answer that is no: it will be none to anybody else either.
                    let refused = matches!(error, kube::Error::Api(_));
                    if refused || heard.elapsed() >= SILENCE {
                        let why = with_causes(&error);
                        tracing::debug!(%why, "goes on without the lease of the cluster");
                        let waited = !told.is_empty();
                        return Ok(if waited {
                            Turn::LookAgain
                        } else {
                            Turn::Nobodys
                        });
                    }
                }
            }
            tokio::select! {
                cause = stop.stopped() => return Ok(Turn::Stopped(cause)),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}
