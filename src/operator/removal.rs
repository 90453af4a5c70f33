//! Taking a cluster down. It needs nothing but metadata (invariant 11): the deadline is judged
//! before anything is read, a spec that cannot be understood is a spec that is not there, and
//! every failure ends in "again in …" until the deadline says otherwise. The finalizer goes only
//! for removed or orphaned (invariant 10).

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use kube::{
    api::{Patch, PatchParams},
    runtime::controller::Action,
};
use serde_json::json;

use super::{
    context::{Context, ReconcileError, explained},
    events::{Notice, publish},
    orphan,
    run::{self, Ended, stopped},
    status::{Run, StatusWriter},
    view::View,
    world,
};
use crate::{
    actual::HostView,
    api::{
        FINALIZER, OnTimeout,
        conditions::{ConditionType, Findings, shorten},
    },
    apply::stop::StopCause,
    config::Intent,
    converge::{Error, Goal, Outcome},
    error::{Blame, Explain},
    state::Loaded,
    world::World,
};

/// How many nodes `status.remaining` names.
const NAMED: usize = 20;

/// One pass over an object that is being deleted.
pub(super) async fn pass(
    ctx: &Context,
    view: &View,
    status: StatusWriter,
) -> Result<Action, ReconcileError> {
    if !view.has_finalizer() {
        ctx.backoff.forget(&view.uid());
        return Ok(Action::await_change());
    }
    let (timeout, on_timeout) = view.deletion_policy();
    let deadline = view
        .deleted_at()
        .and_then(|at| at.checked_add(SignedDuration::try_from(timeout).ok()?).ok());
    let removal = Removal {
        ctx,
        view,
        status,
        deadline: deadline.unwrap_or(Timestamp::MAX),
        on_timeout,
    };
    removal.go().await
}

/// What keeps a removal from its end.
struct Obstacle {
    blame: Blame,
    text: String,
    remaining: BTreeMap<String, String>,
}

impl Obstacle {
    fn of(error: &(impl Explain + 'static)) -> Self {
        Self {
            blame: error.blame(),
            text: explained(error),
            remaining: BTreeMap::new(),
        }
    }
}

/// How far a pass came.
enum Came {
    /// Nothing of the cluster is left, and that was seen.
    Removed,
    /// Not yet.
    Hindered(Obstacle),
    /// Told to stop.
    Stopped(StopCause),
    /// The object is no longer there to be removed, or is another one.
    Gone,
}

struct Removal<'a> {
    ctx: &'a Context,
    view: &'a View,
    status: StatusWriter,
    deadline: Timestamp,
    on_timeout: OnTimeout,
}

impl Removal<'_> {
    async fn go(mut self) -> Result<Action, ReconcileError> {
        if self.over() && self.on_timeout == OnTimeout::Orphan {
            return self.orphan().await;
        }
        self.say(Run::Remove.starting()).await?;
        let came = match self.attempt().await {
            Ok(came) => came,
            // The management cluster's API: told in the log, tried again, but not for ever.
            Err(error) => Came::Hindered(Obstacle {
                blame: Blame::Transient,
                text: error.to_string(),
                remaining: BTreeMap::new(),
            }),
        };
        match came {
            Came::Removed => {
                self.release().await?;
                Ok(Action::await_change())
            }
            Came::Gone => Ok(Action::await_change()),
            Came::Stopped(cause) => Ok(stopped(cause)),
            Came::Hindered(obstacle) => self.hindered(obstacle).await,
        }
    }

    fn over(&self) -> bool {
        self.ctx.parts.clock.now() >= self.deadline
    }

    /// Until the deadline; `None` when it does not end this deletion.
    fn time_left(&self) -> Option<Duration> {
        match self.on_timeout {
            OnTimeout::Keep => None,
            OnTimeout::Orphan => {
                let left = self.deadline.duration_since(self.ctx.parts.clock.now());
                Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
            }
        }
    }

    /// Gives back what can be given back.
    async fn attempt(&mut self) -> Result<Came, ReconcileError> {
        let ctx = self.ctx;
        let view = self.view;
        let world = world::world(ctx, view, None).await?;
        let loaded = match world.store.load().await {
            Ok(loaded) => loaded,
            Err(error) => return Ok(Came::Hindered(Obstacle::of(&error))),
        };
        let state_is_there = match loaded {
            Loaded::Present { .. } => true,
            Loaded::Absent => false,
        };
        // The state is saved before anything else is done anywhere, and its id is written into
        // the status from then on: without either, no node was ever touched for this object.
        if !state_is_there && self.status.current().cluster_id.is_none() {
            return Ok(Came::Removed);
        }
        let intent = match view.spec() {
            Ok(spec) => world::intent(ctx, &spec).await.ok(),
            Err(_) => None,
        };
        let slot = tokio::select! {
            slot = ctx.slots.deletes.acquire() => slot,
            cause = ctx.outdated(view) => return Ok(Came::Stopped(cause)),
            () = within(self.time_left()) => return Ok(Came::Stopped(StopCause::ObjectChanged)),
        };
        let Ok(_slot) = slot else {
            return Ok(Came::Stopped(StopCause::Signal));
        };
        if !self.still_wanted().await? {
            return Ok(Came::Gone);
        }
        if state_is_there {
            self.run(&world, intent.as_ref()).await
        } else {
            self.prove(&world, intent.as_ref()).await
        }
    }

    /// Reads the object once more before anything is wiped: the same one, and still deleted.
    async fn still_wanted(&self) -> Result<bool, ReconcileError> {
        let live = self.ctx.clusters.get_opt(&self.view.name()).await?;
        Ok(live.is_some_and(|live| {
            live.metadata.uid == self.view.meta().uid && live.metadata.deletion_timestamp.is_some()
        }))
    }

    async fn run(
        &mut self,
        world: &World,
        intent: Option<&Intent>,
    ) -> Result<Came, ReconcileError> {
        let base = Self::findings("gives the nodes back");
        let limit = self.time_left();
        let goal = Goal::Remove(intent);
        let ended = run::run(
            self.ctx,
            self.view,
            &goal,
            world,
            &mut self.status,
            &base,
            limit,
        )
        .await;
        Ok(match ended {
            Ended::Engine(Ok(Outcome::Converged { .. })) => Came::Removed,
            Ended::Engine(Ok(Outcome::RemovalIncomplete { left })) => {
                Came::Hindered(hosts_left(left))
            }
            Ended::Engine(Ok(Outcome::ConsentRefused { disruptions })) => {
                Came::Hindered(Obstacle {
                    blame: Blame::Bug,
                    text: format!("consent is missing for: {}", disruptions.join("; ")),
                    remaining: BTreeMap::new(),
                })
            }
            Ended::Engine(Ok(Outcome::Stopped(cause))) | Ended::Dropped(cause) => {
                Came::Stopped(cause)
            }
            Ended::Engine(Err(error)) => Came::Hindered(Obstacle::of(&error)),
        })
    }

    /// There was a state and there is none. After a removal that was cut off between its last
    /// act and ours that is as it should be; otherwise the state was lost. A look at the nodes
    /// tells, where the config still names them.
    async fn prove(&self, world: &World, intent: Option<&Intent>) -> Result<Came, ReconcileError> {
        let unproven = |text: &str| {
            Came::Hindered(Obstacle {
                blame: Blame::User,
                text: text.to_owned(),
                remaining: BTreeMap::new(),
            })
        };
        if intent.is_none() {
            return Ok(unproven(
                "the state is lost and the config cannot be read: nobody knows the nodes; \
                 hint: mend the spec, or let the deadline write down what is known",
            ));
        }
        let goal = Goal::Remove(intent);
        let survey = tokio::select! {
            survey = self.ctx.parts.engine.survey(&goal, world) => survey,
            cause = self.ctx.outdated(self.view) => return Ok(Came::Stopped(cause)),
            () = within(self.time_left()) => return Ok(Came::Stopped(StopCause::ObjectChanged)),
        };
        let survey = match survey {
            Ok(survey) => survey,
            Err(error) => return Ok(Came::Hindered(Obstacle::of(&error))),
        };
        let id = self.status.current().cluster_id.clone();
        let mut left = Vec::new();
        for (name, host) in &survey.actual.hosts {
            match host {
                HostView::Down(down) => left.push((name.clone(), down.clone())),
                HostView::Up(_) => {
                    let claim = survey.actual.claimed_by(name).map(|claim| claim.0);
                    if claim.is_some() && claim == id {
                        return Ok(unproven(&format!(
                            "node `{name}` still belongs to this cluster, and the state that \
                             could take it down is lost; hint: put the Secret of the state back"
                        )));
                    }
                }
            }
        }
        if left.is_empty() && survey.plan.is_empty() {
            Ok(Came::Removed)
        } else {
            Ok(Came::Hindered(hosts_left(left)))
        }
    }

    /// Not done: says why, and when it is tried again.
    async fn hindered(mut self, obstacle: Obstacle) -> Result<Action, ReconcileError> {
        if self.over() && self.on_timeout == OnTimeout::Orphan {
            return self.orphan().await;
        }
        let Obstacle {
            blame,
            text,
            remaining,
        } = obstacle;
        let mut findings = Self::findings(&text);
        findings.set(ConditionType::Deleting, true, blame.reason(), &text);
        if self.over() {
            let message = format!("the time for the deletion is over, and it is kept: {text}");
            findings.set(ConditionType::Stalled, true, "DeletionOverdue", message);
        }
        self.status
            .write(&findings, |status| {
                status.progress = None;
                status.remaining = remaining;
            })
            .await?;
        let notice = Notice::warning(blame.reason(), "Remove", &text);
        publish(&self.ctx.recorder, &Context::reference(self.view), &notice).await;
        // A deletion does not wait for a person for longer than for a node.
        let pace = match blame {
            Blame::User | Blame::Host | Blame::Bug => Blame::Host,
            Blame::Transient => Blame::Transient,
        };
        let wait = self
            .ctx
            .backoff
            .failed(&self.view.uid(), pace, rand::random());
        Ok(Action::requeue(
            self.time_left().map_or(wait, |left| wait.min(left)),
        ))
    }

    /// Time is over: what is left is written down first, then the object may go.
    async fn orphan(self) -> Result<Action, ReconcileError> {
        orphan::record(self.ctx, self.view, self.status.current(), self.deadline).await?;
        self.release().await?;
        Ok(Action::await_change())
    }

    /// Lets the object go.
    async fn release(&self) -> Result<(), ReconcileError> {
        let meta = self.view.meta();
        let finalizers: Vec<&String> = meta
            .finalizers
            .iter()
            .flatten()
            .filter(|finalizer| *finalizer != FINALIZER)
            .collect();
        // Without the version that was read: our own status writes moved it. Others' finalizers
        // cannot be added to an object that is being deleted, so none is lost; one that another
        // controller took away meanwhile is refused by the API, and the next pass sees that.
        let patch = json!({"metadata": { "finalizers": finalizers, "uid": meta.uid }});
        let params = PatchParams::default();
        let name = self.view.name();
        match self
            .ctx
            .clusters
            .patch(&name, &params, &Patch::Merge(&patch))
            .await
        {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        self.ctx.backoff.forget(&self.view.uid());
        Ok(())
    }

    fn findings(text: &str) -> Findings {
        let mut findings = Findings::new();
        let run = Run::Remove;
        findings.set(run.condition(), true, run.reason(), text);
        findings.set(
            ConditionType::Ready,
            false,
            "Deleting",
            "the cluster is being taken down",
        );
        findings
    }

    /// The first word about a deletion; what an earlier pass found stays until this one knows
    /// better.
    async fn say(&mut self, text: &str) -> Result<(), ReconcileError> {
        let already = self
            .status
            .current()
            .conditions
            .iter()
            .any(|condition| condition.type_ == ConditionType::Deleting.name());
        if !already {
            let findings = Self::findings(text);
            self.status.write(&findings, |_| {}).await?;
        }
        Ok(())
    }
}

/// Waits for the end of the time, if it has one.
async fn within(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

fn hosts_left(left: Vec<(crate::config::NodeName, crate::actual::Down)>) -> Obstacle {
    let remaining = left
        .iter()
        .take(NAMED)
        .map(|(name, down)| (name.0.clone(), shorten(&down.why, 512)))
        .collect();
    Obstacle {
        remaining,
        ..Obstacle::of(&Error::HostsDown(left))
    }
}
