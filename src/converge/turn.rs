//! One run at a time changes a cluster: a run that would do something holds a Lease in the cluster.
//! Another run waits for that Lease, then surveys again. Guards are evaluated just before each step;
//! only the Lease prevents two runs from interfering between a survey and an effect.
//!
//! While no API server answers, no run can take the Lease. A run may then do little ([`crate::plan`]
//! says what), and nothing that conflicts with another run that does the same.

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

/// How long this run waits for another one.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// How long this run waits for an API that answered a moment ago: another run may be restarting it.
const SILENCE: Duration = Duration::from_secs(90);
/// How often this run checks whether the other one has finished.
const LOOK: Duration = Duration::from_secs(2);

/// The outcome of a plan that waited for the lease.
pub(super) enum InTurn {
    /// The plan was run.
    Ran(Report),
    /// The run had to wait: the survey that the plan was made from is out of date.
    LookAgain,
    /// The run was stopped before it executed the plan.
    Stopped(StopCause),
}

/// The outcome of waiting for the lease.
enum Turn {
    /// This run holds it.
    Ours(Box<Held>),
    /// This run could hold it, but had to wait: its survey is out of date.
    LookAgain,
    /// The run goes on without the lease; with a warning where it could not be taken and two runs may collide.
    WithoutLease(Option<Warning>),
    /// The run was stopped meanwhile.
    Stopped(StopCause),
}

/// True for a refusal, which every other run would get as well. A conflict, an overloaded server or an internal
/// error of the server is no refusal.
fn is_no(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if !matches!(status.code, 409 | 429 | 500..))
}

/// The warning to a user who may have started two runs.
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
    /// True where the plan removes every API server.
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

    /// Runs the plan when no other run changes the cluster. A plan that only waits needs no lease.
    pub(super) async fn in_turn(
        &self,
        number: u32,
        events: &Events,
        stop: &Stop,
    ) -> Result<InTurn, Error> {
        let plan = &self.survey.plan;
        let turn = if plan.only_waits() {
            Turn::WithoutLease(None)
        } else {
            Box::pin(self.turn(events, stop)).await?
        };
        let held = match turn {
            // The plan replaces the Lease with that of the snapshot, so it is released before.
            Turn::Ours(held) if self.replaces_etcd() => {
                held.release().await;
                return Ok(InTurn::Ran(self.run(plan, number, events, stop).await));
            }
            Turn::Ours(held) => held,
            Turn::WithoutLease(warning) => {
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
            // No API server is left to release it at.
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
            return Ok(Turn::WithoutLease(None));
        }
        let Ok(client) = self.session.api(self.context()).await else {
            return Ok(Turn::WithoutLease(None));
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
                            Turn::WithoutLease(Some(untaken(&why)))
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
