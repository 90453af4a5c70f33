//! One run at a time changes a cluster: a run that would do something holds a Lease there, and
//! another one waits for it, then looks again. Guards hold just before each step; what two runs do
//! between look and effect, this alone keeps apart.
//!
//! The lease is where the cluster is. While no API server answers nobody can take it; what may be
//! done then is little ([`crate::plan`] says what) and harms nobody who does the same.

use std::time::Duration;

use tokio::time::Instant;

use super::{Error, Iteration, Survey};
use crate::{
    apply::{
        event::{Event, Events, RunOutcome},
        run::Report,
        step::Warning,
        stop::{Stop, StopCause},
    },
    error::with_causes,
    facts::ApiView,
    lease,
    lease::{Election, Held, Seen},
    model::{Component, NodeName},
    plan::{Action, ClusterAction, HostAction},
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
    /// Nobody can take it; why, where that is to be said.
    Nobodys(Option<Warning>),
    /// It was told to stop meanwhile.
    Stopped(StopCause),
}

/// An answer that is no: it will be none to anybody else either. Too much to do, or an error of the
/// server's own, is no answer.
fn is_no(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if !matches!(status.code, 409 | 429 | 500..))
}

/// What a person is told who may have started two runs.
fn untaken(why: &str) -> Warning {
    Warning {
        message: format!(
            "the lease `{NAMESPACE}/{}` could not be taken, which keeps two runs apart: {why}",
            lease::RUN.name()
        ),
        hints: vec!["let only one run at a time change this cluster until it can be".to_owned()],
        degrades: false,
    }
}

impl Iteration<'_> {
    /// True where the plan takes away every API server that serves.
    fn leaves_no_api(&self) -> bool {
        let Survey { actual, plan, .. } = &self.survey;
        let goes = |node: &NodeName| {
            let name = Component::ApiServer.container();
            plan.steps().any(|step| {
                let Action::Host(on, HostAction::RemoveContainer { name: goes }) = &step.action
                else {
                    return false;
                };
                on == node && goes == name
            })
        };
        actual.apis.keys().all(goes)
    }

    /// True where the plan replaces what etcd holds.
    fn replaces_etcd(&self) -> bool {
        let mut steps = self.survey.plan.steps();
        steps.any(|step| {
            matches!(
                step.action,
                Action::Cluster(ClusterAction::CleanRestored { .. })
                    | Action::Host(
                        _,
                        HostAction::RestoreEtcd { .. }
                            | HostAction::SetEtcdAside { .. }
                            | HostAction::PutEtcdBack { .. }
                    )
            )
        })
    }

    /// Runs the plan when no other run changes the cluster. What only waits is nobody's turn.
    pub(super) async fn in_turn(
        &self,
        number: u32,
        events: &Events,
        stop: &Stop,
    ) -> Result<InTurn, Error> {
        let plan = &self.survey.plan;
        let turn = if plan.only_waits() {
            Turn::Nobodys(None)
        } else {
            Box::pin(self.turn(events, stop)).await?
        };
        let held = match turn {
            // The restored API has the lease of the time of the snapshot.
            Turn::Ours(held) if self.replaces_etcd() => {
                held.release().await;
                return Ok(InTurn::Ran(self.run(plan, number, events, stop).await));
            }
            Turn::Ours(held) => held,
            Turn::Nobodys(warning) => {
                let mut report = self.run(plan, number, events, stop).await;
                report.warnings.extend(warning);
                return Ok(InTurn::Ran(report));
            }
            Turn::LookAgain => return Ok(InTurn::LookAgain),
            Turn::Stopped(cause) => return Ok(InTurn::Stopped(cause)),
        };
        let run = async |stop: Stop| self.run(plan, number, events, &stop).await;
        let heard = || self.session.heard();
        let (report, held) = held.during(stop, heard, run).await;
        match held {
            // Nobody is there any more to take it back.
            Some(_) if self.leaves_no_api() => {}
            Some(held) => held.release().await,
            None if report.outcome == RunOutcome::Stopped => return Err(Error::TurnLost),
            None => {}
        }
        Ok(InTurn::Ran(report))
    }

    /// Waits until no other run changes the cluster.
    async fn turn(&self, events: &Events, stop: &Stop) -> Result<Turn, Error> {
        if !matches!(self.survey.actual.api(), ApiView::Up(_)) {
            return Ok(Turn::Nobodys(None));
        }
        let Ok(client) = self.session.api(self.context()).await else {
            return Ok(Turn::Nobodys(None));
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
                    if is_no(&error) || heard.elapsed() >= SILENCE {
                        let why = with_causes(&error);
                        tracing::warn!(%why, "goes on without the lease of the cluster");
                        let waited = !told.is_empty();
                        return Ok(if waited {
                            Turn::LookAgain
                        } else {
                            Turn::Nobodys(Some(untaken(&why)))
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
