//! Taking a cluster down. It needs nothing but metadata (invariant 11): the deadline counts from the
//! first attempt, which the object remembers, and is kept by the API server's time; a spec that cannot be understood is a spec that is not there, and
//! every failure ends in "again in …" until the deadline says otherwise. The finalizer goes only
//! for removed or orphaned (invariant 10).

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use super::{
    cluster_object::ClusterObject,
    context::{Context, ReconcileError, explained},
    environment,
    events::{Notice, publish},
    home, installed,
    memory::{self, Kept},
    orphan::{self, Left},
    prober::ProbeView,
    queue::{Action, Class, Slot},
    reasons::{self, Reasoned},
    run::{self, Task, stopped},
    sources::KnownKeys,
    status::{Run, StatusWriter, place},
};
use crate::{
    api::{
        CONFIRM_DELETION, DeletionPolicy, FINALIZER, LenientDeletion, OnTimeout, REMOVAL_BEGAN,
        RemainingNode,
        conditions::{ConditionSet, ConditionStatus, ConditionType, Reason, shorten},
    },
    apply::stop::StopCause,
    config::Intent,
    converge::{self, Convergence, Error, Removal, RemovalOutcome},
    environment::Environment,
    error::{ErrorClass, on_object, with_causes},
    facts::Unreachable,
    model::{NodeName, printable_lines},
    state::{ClusterState, RemovalSnapshot},
};

/// How the API server answers a write that leaves an object invalid.
const INVALID: u16 = 422;

/// The name of the ConfigMap that takes the place of a config that the definition refuses.
const UNREADABLE: &str = "unreadable";

/// How many nodes `status.remaining` names.
const NAMED: usize = 20;

/// What a process that finds the deadline over gives to its first attempt: it may have been away.
const LAST_CHANCE: Duration = Duration::from_secs(300);

/// A note of the first attempt that is older than the deletion is not about it: the object was
/// written down with it, and created again.
const OLDER: SignedDuration = SignedDuration::from_secs(60);

/// The objects that this process has tried to remove.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<HashSet<String>>);

impl Attempts {
    fn with<T>(&self, with: impl FnOnce(&mut HashSet<String>) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// When a deletion ends. It counts from the first attempt: a deletion that could not begin, because
/// the operator was down or the queue was long, is not late.
#[derive(Clone, Copy)]
struct Deadline {
    timeout: Duration,
    on_timeout: OnTimeout,
    /// `None`: nothing was attempted yet.
    began: Option<Timestamp>,
}

impl Deadline {
    fn of(view: &ClusterObject) -> Self {
        let LenientDeletion {
            policy: _,
            timeout,
            on_timeout,
            last_snapshot: _,
        } = view.deletion();
        let deleted = view.deleted_at().unwrap_or(Timestamp::MIN);
        let oldest = deleted.checked_sub(OLDER).unwrap_or(Timestamp::MIN);
        Self {
            timeout,
            on_timeout,
            began: view.removal_began().filter(|began| *began >= oldest),
        }
    }

    /// `None` while nothing was attempted.
    fn at(&self) -> Option<Timestamp> {
        let timeout = SignedDuration::try_from(self.timeout).ok();
        let end = |began: Timestamp| began.checked_add(timeout?).ok();
        self.began.map(|began| end(began).unwrap_or(Timestamp::MAX))
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.at().is_some_and(|end| now >= end)
    }

    /// Until it ends the deletion; `None` when it does not.
    fn left(&self, now: Timestamp) -> Option<Duration> {
        match self.on_timeout {
            OnTimeout::Keep => None,
            OnTimeout::Orphan => {
                let left = self.at()?.duration_since(now);
                Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
            }
        }
    }
}

/// Until the deadline of an object that is being deleted; `None` where none ends it.
pub(super) fn time_left(ctx: &Context, view: &ClusterObject) -> Option<Duration> {
    view.deleted_at()?;
    Deadline::of(view).left(ctx.now())
}

/// One pass over an object that is being deleted.
pub(super) async fn pass(
    ctx: &Context,
    view: &ClusterObject,
    slot: &Slot,
    status: StatusWriter,
) -> Result<Action, ReconcileError> {
    if !view.has_finalizer() {
        ctx.forget(&view.uid());
        return Ok(Action::await_change());
    }
    let reconcile = RemovalReconcile {
        ctx,
        view,
        slot,
        status,
        deadline: Deadline::of(view),
        end: None,
    };
    Box::pin(reconcile.go()).await
}

/// What keeps a removal from its end.
struct RemovalError {
    class: ErrorClass,
    reason: Reason,
    text: String,
    remaining: Vec<RemainingNode>,
}

impl RemovalError {
    fn of(error: &(impl Reasoned + 'static)) -> Self {
        Self {
            class: error.class(),
            reason: error.condition().1,
            text: explained(error),
            remaining: Vec::new(),
        }
    }

    fn state_missing(text: String) -> Self {
        Self {
            class: ErrorClass::User,
            reason: Reason::StateMissing,
            text,
            remaining: Vec::new(),
        }
    }
}

/// How far a reconcile got.
enum RemovalProgress {
    /// Nothing of the cluster is left, and that was seen.
    Removed,
    /// Not yet.
    Incomplete(RemovalError),
    /// Stopped by the stop signal.
    Stopped(StopCause),
    /// The object is no longer there to be removed, or is another one.
    Gone,
    /// The object is deleted with its definition, and no user asked for the cluster to be removed.
    Spared,
}

/// One reconcile of an object that is being deleted.
struct RemovalReconcile<'a> {
    ctx: &'a Context,
    view: &'a ClusterObject,
    slot: &'a Slot,
    status: StatusWriter,
    deadline: Deadline,
    /// When this attempt must be over.
    end: Option<Instant>,
}

impl RemovalReconcile<'_> {
    async fn go(mut self) -> Result<Action, ReconcileError> {
        if self.view.deletion().policy == DeletionPolicy::Orphan {
            return self.let_go().await;
        }
        if self.view.is_protected() {
            return self.hold().await;
        }
        if self.is_late() && self.was_tried() {
            return self.orphan(Left::Late).await;
        }
        if self.view.is_paused() {
            return self.wait_paused().await;
        }
        if let Err(ahead) = self.slot.enter(Class::Delete, self.view.node_count()) {
            self.begin(&place(ahead)).await;
            return Ok(Action::InLine(Class::Delete, self.time_left()));
        }
        self.begin(Run::Remove.starting()).await;
        self.note_beginning().await?;
        let left = self.time_left();
        self.end = left.and_then(|left| Instant::now().checked_add(left));
        let attempt = match left {
            None => self.attempt().await,
            // Nothing in a reconcile outlives the deadline, whatever it waits for.
            Some(left) => match tokio::time::timeout(left, self.attempt()).await {
                Ok(attempt) => attempt,
                Err(_) => return self.orphan(Left::Late).await,
            },
        };
        let came = match attempt {
            Ok(came) => came,
            // The management cluster's API: told, tried again, but not for ever.
            Err(error) => RemovalProgress::Incomplete(RemovalError {
                class: ErrorClass::Transient,
                reason: Reason::Retrying,
                text: with_causes(&error.0),
                remaining: Vec::new(),
            }),
        };
        match came {
            RemovalProgress::Removed => {
                self.release().await?;
                Ok(Action::await_change())
            }
            RemovalProgress::Gone => Ok(Action::await_change()),
            RemovalProgress::Spared => self.orphan(Left::WithItsDefinition).await,
            RemovalProgress::Stopped(cause) => Ok(stopped(cause)),
            RemovalProgress::Incomplete(error) => self.incomplete(error).await,
        }
    }

    /// No node is touched, as the spec asks; an object that never had a cluster leaves none.
    async fn let_go(mut self) -> Result<Action, ReconcileError> {
        let never = self.view.known_id().is_none()
            && matches!(
                memory::read(self.ctx, self.view).await,
                Ok(Kept::Absent | Kept::Anothers(_))
            );
        if never {
            self.release().await?;
            return Ok(Action::await_change());
        }
        let text = "the nodes are left as they are";
        self.say(&Self::conditions(Reason::Orphaning, text)).await;
        self.orphan(Left::AsAsked).await
    }

    /// It is protected, and was deleted past every admission: no node is touched until a person decides.
    async fn hold(mut self) -> Result<Action, ReconcileError> {
        let name = self.view.name();
        let id = self.view.known_id();
        let id = id.map_or_else(String::new, |id| format!(" ({id})"));
        let text = format!(
            "it was deleted and has `deletionProtection: true`: no node is touched. To keep the cluster: set \
             `deletion.policy: Orphan`, create the object again, and take over by the cluster's id{id}. To remove it: set \
             the annotation `{CONFIRM_DELETION}: {name}`"
        );
        let mut conditions = Self::conditions(Reason::Protected, &text);
        conditions.set(ConditionType::Stalled, Reason::DeletionProtected, &text);
        self.status.write(&conditions, |_| {}).await?;
        let notice = Notice::warning(Reason::DeletionProtected.name(), "Remove", &text);
        publish(self.ctx, self.view, &notice).await;
        Ok(Action::await_change())
    }

    /// No node is touched; the deadline goes on.
    async fn wait_paused(mut self) -> Result<Action, ReconcileError> {
        self.note_beginning().await?;
        let text = "it was deleted and is paused: no node is touched before `paused` is false";
        let conditions = Self::conditions(Reason::Paused, text);
        self.status.write(&conditions, |_| {}).await?;
        let left = self.deadline.left(self.ctx.now());
        Ok(left.map_or_else(Action::await_change, Action::requeue))
    }

    fn is_over(&self) -> bool {
        self.deadline.is_over(self.ctx.now())
    }

    /// The deadline is over, and ends the deletion.
    fn is_late(&self) -> bool {
        self.is_over() && self.deadline.on_timeout == OnTimeout::Orphan
    }

    fn was_tried(&self) -> bool {
        self.ctx
            .attempts
            .with(|tried| tried.contains(&self.view.uid()))
    }

    /// What an attempt may take; `None` when no deadline ends it.
    fn time_left(&self) -> Option<Duration> {
        if let Some(end) = self.end {
            return Some(end.saturating_duration_since(Instant::now()));
        }
        let left = self.deadline.left(self.ctx.now())?;
        Some(if left.is_zero() { LAST_CHANCE } else { left })
    }

    /// Notes the first attempt on the object, so that its deadline outlives this process.
    async fn note_beginning(&mut self) -> Result<(), ReconcileError> {
        if self.deadline.began.is_none() {
            let now = self.ctx.now();
            let patch = json!({"metadata": {
                "uid": self.view.uid(),
                "annotations": { REMOVAL_BEGAN: now.to_string() },
            }});
            self.patch(patch).await?;
            self.deadline.began = Some(now);
        }
        let uid = self.view.uid();
        self.ctx.attempts.with(|tried| tried.insert(uid));
        Ok(())
    }

    /// Cleans the nodes that can be cleaned.
    async fn attempt(&mut self) -> Result<RemovalProgress, ReconcileError> {
        let ctx = self.ctx;
        let view = self.view;
        let host_keys = KnownKeys::lenient(ctx, view).await;
        let environment = environment::environment(ctx, view, None, &host_keys).await?;
        let saved = match memory::read(ctx, view).await {
            Ok(Kept::Ours(saved)) => Some(saved),
            Ok(Kept::Absent) => None,
            // An earlier object's nodes are not this one's to clean.
            Ok(Kept::Anothers(_)) if view.known_id().is_none() => {
                return Ok(RemovalProgress::Removed);
            }
            Ok(Kept::Anothers(error)) => {
                return Ok(RemovalProgress::Incomplete(RemovalError::of(&error)));
            }
            Err(error) => return Ok(RemovalProgress::Incomplete(RemovalError::of(&error))),
        };
        let intent = match view.spec() {
            Ok(spec) => environment::wanted(ctx, &view.name(), &spec).await.ok(),
            Err(_) => None,
        };
        let intent = intent.map(|wanted| wanted.intent);
        if !self.still_wanted().await? {
            return Ok(RemovalProgress::Gone);
        }
        let had_one = saved.is_some() || view.known_id().is_some();
        if had_one && installed::goes_away(&ctx.client).await? {
            return Ok(RemovalProgress::Spared);
        }
        match saved {
            Some(saved) => {
                let environment = Environment {
                    home: Some(home::read(&ctx.client, &ctx.options.namespace).await?),
                    ..environment
                };
                let intent = intent.map(|intent| only_inventory(intent, &saved));
                self.run(&environment, intent.as_ref()).await
            }
            None => self.prove(&environment, intent.as_ref()).await,
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
        environment: &Environment,
        intent: Option<&Intent>,
    ) -> Result<RemovalProgress, ReconcileError> {
        let base = Self::conditions(Reason::Removing, "cleans the nodes");
        let task = Task {
            purpose: Removal(intent),
            first: None,
            slot: self.slot,
            run: Run::Remove,
            read: &[],
            limit: self.time_left(),
        };
        let mut unwatched = ProbeView::default();
        let sinks = (&mut self.status, &mut unwatched);
        let run = run::run(self.ctx, self.view, task, environment, sinks, &base);
        let ended = Box::pin(run).await;
        Ok(match ended {
            Ok(Convergence::Settled(RemovalOutcome::Removed {
                changed: _,
                last_snapshot,
            })) => {
                if let Some(place) = last_snapshot.as_ref().and_then(RemovalSnapshot::place) {
                    self.tell_of(&place).await;
                }
                RemovalProgress::Removed
            }
            Ok(Convergence::Settled(RemovalOutcome::Incomplete { left, claimed })) => {
                RemovalProgress::Incomplete(hosts_left(left, &claimed))
            }
            Ok(Convergence::Stopped(cause)) => RemovalProgress::Stopped(cause),
            Err(error) => RemovalProgress::Incomplete(RemovalError::of(&error)),
        })
    }

    /// The last word about the cluster: its state is gone.
    async fn tell_of(&self, place: &str) {
        let text = format!("the cluster is removed; the last snapshot of etcd is {place}");
        tracing::info!(place, "the last snapshot of etcd before the removal");
        let notice = Notice::normal("LastSnapshot", "Remove", &text);
        publish(self.ctx, self.view, &notice).await;
    }

    /// There is no state. Either this object never had a cluster, or a removal was cut off
    /// between its last act and ours, or the state was lost: the nodes that the config names
    /// tell.
    async fn prove(
        &self,
        environment: &Environment,
        intent: Option<&Intent>,
    ) -> Result<RemovalProgress, ReconcileError> {
        // The state is saved before anything else is done anywhere, and the id is noted on the
        // object and in its status from then on. Without any of the three no node was touched,
        // so none is waited for, and one that answers is another cluster's.
        let Some(id) = self.view.known_id() else {
            return Ok(RemovalProgress::Removed);
        };
        let missing = |text: String| {
            let text = format!("the state of cluster {id} is lost: {text}");
            RemovalProgress::Incomplete(RemovalError::state_missing(text))
        };
        if intent.is_none() {
            return Ok(missing(
                "the config cannot be read either, so the nodes are not known; hint: correct the \
                 spec, or wait for the deadline: what is known is recorded then"
                    .to_owned(),
            ));
        }
        let removal = Removal(intent);
        let survey = tokio::select! {
            survey = Box::pin(converge::survey(&removal, environment)) => survey,
            cause = self.ctx.outdated(self.view, &[]) => return Ok(RemovalProgress::Stopped(cause)),
        };
        let survey = match survey {
            Ok(survey) => survey,
            // A node has a cluster, and the operator has nothing with which it could clean it.
            Err(Error::Plan(errors)) => return Ok(missing(explained(&errors))),
            Err(error) => return Ok(RemovalProgress::Incomplete(RemovalError::of(&error))),
        };
        let silent = survey.actual.unreachable();
        let left: Vec<_> = silent
            .map(|(name, down)| (name.clone(), down.clone()))
            .collect();
        if left.is_empty() && survey.plan.is_empty() {
            Ok(RemovalProgress::Removed)
        } else {
            Ok(RemovalProgress::Incomplete(hosts_left(
                left,
                &BTreeSet::new(),
            )))
        }
    }

    /// Not done: says why, and when it is tried again.
    async fn incomplete(mut self, error: RemovalError) -> Result<Action, ReconcileError> {
        if self.is_late() {
            return self.orphan(Left::Late).await;
        }
        let RemovalError {
            class,
            reason,
            text,
            remaining,
        } = error;
        let overdue = self.is_over();
        let mut conditions = Self::conditions(
            if overdue {
                Reason::DeletionOverdue
            } else {
                Reason::Removing
            },
            &text,
        );
        if overdue {
            let message = format!("the time for the deletion is over, and it is kept: {text}");
            let kind = ConditionType::Stalled;
            conditions.set(kind, Reason::DeletionOverdue, message);
        } else {
            let condition = match class {
                ErrorClass::User | ErrorClass::Bug => (ConditionType::Stalled, reason),
                ErrorClass::Host | ErrorClass::Transient => {
                    reasons::by_class(class, Reason::PreflightFailed)
                }
            };
            reasons::note(&mut conditions, condition, &text);
        }
        self.status
            .write(&conditions, |status| {
                status.progress = None;
                status.remaining = remaining;
            })
            .await?;
        let notice = Notice::warning(reason.name(), "Remove", &text);
        publish(self.ctx, self.view, &notice).await;
        // A deletion does not wait for a person for longer than for a node.
        let pace = match class {
            ErrorClass::User | ErrorClass::Host | ErrorClass::Bug => ErrorClass::Host,
            ErrorClass::Transient => ErrorClass::Transient,
        };
        let wait = self
            .ctx
            .backoff
            .failed(&self.view.uid(), pace, rand::random());
        let left = self.deadline.left(self.ctx.now());
        Ok(Action::retry(left.map_or(wait, |left| wait.min(left))))
    }

    /// What is left is recorded first, then the object may go.
    async fn orphan(self, why: Left) -> Result<Action, ReconcileError> {
        let ended = match why {
            Left::Late => self.deadline.at(),
            Left::AsAsked | Left::WithItsDefinition => None,
        };
        let since = ended.or_else(|| self.view.deleted_at());
        let since = since.unwrap_or_else(|| self.ctx.now());
        orphan::record(self.ctx, self.view, self.status.current(), why, since).await?;
        self.release().await?;
        Ok(Action::await_change())
    }

    /// Patches the metadata. The definition may refuse an object with a config that an earlier one took, whatever is
    /// written: then the config leaves the spec, where a deletion does not read it, and nothing keeps the object.
    async fn patch(&self, mut patch: serde_json::Value) -> kube::Result<()> {
        let (name, params) = (self.view.name(), PatchParams::default());
        let clusters = &self.ctx.clusters;
        let patched = clusters.patch(&name, &params, &Patch::Merge(&patch)).await;
        match patched {
            Err(kube::Error::Api(status)) if status.code == INVALID => {
                patch["spec"] = json!({
                    "config": null,
                    "configFrom": {"configMapKeyRef": {"name": UNREADABLE}},
                });
                let patch = Patch::Merge(&patch);
                clusters.patch(&name, &params, &patch).await.map(drop)
            }
            patched => patched.map(drop),
        }
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
        // cannot be added to an object that is being deleted, so none is lost; if another controller
        // removed one meanwhile, the API refuses the patch, and the next reconcile sees that.
        let patch = json!({"metadata": { "finalizers": finalizers, "uid": meta.uid }});
        match self.patch(patch).await {
            Ok(()) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        self.ctx.forget(&self.view.uid());
        self.ctx
            .attempts
            .with(|tried| tried.remove(&self.view.uid()));
        Ok(())
    }

    fn conditions(reason: Reason, text: &str) -> ConditionSet {
        let mut conditions = reasons::unseen("the cluster is being removed");
        conditions.set(ConditionType::Deleting, reason, text);
        let message = "the cluster is being removed";
        conditions.set(ConditionType::Ready, Reason::Deleting, message);
        conditions
    }

    /// The first word about a deletion; what an earlier pass found stays until this one knows
    /// better. A status that cannot be written keeps no cluster from being removed.
    async fn begin(&mut self, text: &str) {
        let already = self.status.current().conditions.iter().any(|condition| {
            condition.type_ == ConditionType::Deleting.name()
                && condition.status == ConditionStatus::True.name()
        });
        if !already || self.status.waits() {
            self.say(&Self::conditions(Reason::Removing, text)).await;
        }
    }

    /// A status that cannot be written holds nothing up.
    async fn say(&mut self, conditions: &ConditionSet) {
        if let Err(error) = self.status.write(conditions, |_| {}).await {
            let text = with_causes(&error);
            tracing::warn!(text, "cannot write what becomes of it");
        }
    }
}

/// The part of a config that a removal can be about: nodes that the state does not name were
/// never claimed, and a mistyped address is not waited for.
fn only_inventory(mut intent: Intent, saved: &ClusterState) -> Intent {
    intent
        .nodes
        .retain(|name, _| saved.inventory.contains_key(name));
    intent
}

/// Nodes that are not clean: they do not answer, or (`claimed`) another cluster has them.
fn hosts_left(left: Vec<(NodeName, Unreachable)>, claimed: &BTreeSet<NodeName>) -> RemovalError {
    let remaining = left
        .iter()
        .take(NAMED)
        .map(|(name, down)| {
            let reason = if claimed.contains(name) {
                Reason::ClaimedByOther
            } else {
                Reason::Unreachable
            };
            RemainingNode {
                name: name.0.clone(),
                reason: reason.name().to_owned(),
                message: shorten(&printable_lines(&on_object(&down.why)), 512),
            }
        })
        .collect();
    RemovalError {
        remaining,
        ..RemovalError::of(&Error::HostsUnreachable {
            down: left,
            why: None,
            changed: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Obstacle;

    #[test]
    fn a_node_that_answers_is_not_called_unreachable() {
        let why = |class, why: &str| Unreachable {
            alike: None,
            obstacle: Obstacle::Other,
            class,
            why: why.to_owned(),
            hints: Vec::new(),
        };
        let left = vec![
            ("n1".into(), why(ErrorClass::Host, "n1 does not answer")),
            ("n2".into(), why(ErrorClass::User, "n2 belongs to another")),
        ];
        let error = hosts_left(left, &["n2".into()].into());
        let told: Vec<_> = error
            .remaining
            .iter()
            .map(|node| (node.name.as_str(), node.reason.as_str()))
            .collect();
        assert_eq!(told, [("n1", "Unreachable"), ("n2", "ClaimedByOther")]);
        let text = "2 nodes:\n  n1 does not answer\n  n2 belongs to another";
        assert_eq!(error.text, text);
    }
}
