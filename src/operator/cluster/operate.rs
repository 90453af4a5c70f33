//! One operation of a cluster, carried out within its one reconcile. What differs from the config waits meanwhile.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use sha2::{Digest as _, Sha256};

use super::{
    Reconcile,
    at_once::{self, NotDone},
};
use crate::{
    api::{
        ClusterOperation, OperationPlan, OperationReason, OperationType,
        conditions::{ConditionSet, ConditionType, Reason, shorten},
    },
    apply::stop::StopCause,
    converge::{self, Convergence, Error, Goal, Iteration, Named, Outcome, RestoreError},
    environment::Environment,
    error::{ErrorClass, Explain},
    model::printable_lines,
    operator::{
        context::{ReconcileError, explained},
        environment::Wanted,
        events::{Notice, publish},
        memory,
        operation::{self, AtOnce, Errand, Replacement, Told},
        queue::Action,
        run::{self, Task, stopped},
        sources::SourceVersion,
        status::Run,
    },
    plan::{self, Plan},
    state::{BegunOperation, ClusterState, StateError},
    status::cases,
};

/// How long a plan in the status is, in bytes.
const PLAN: usize = 8192;

/// What is reported of one that runs.
const RUNS: &str = "a run of it is in progress";

/// Before the reason why the last run failed, while another one is in progress.
const FAILED: &str = "; the last one failed: ";

/// When one that failed is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// How the reconcile continues after its operation.
pub(super) enum Operated {
    /// It is over.
    Stops(Action),
    /// The cluster is looked at: there is nothing more to do for the operation, or it waits for a person.
    Over,
    /// The cluster is looked at, and the operation is tried again after that time.
    Again(Duration),
}

/// How far an operation is.
struct Operation<'a> {
    object: &'a ClusterOperation,
    name: String,
    uid: String,
    /// When this pass took it up.
    now: Timestamp,
    /// When it began.
    began: Option<Timestamp>,
    /// Which restore of the cluster it is.
    restore: Option<u32>,
    /// Its node has left the cluster, of one that resets a node.
    has_left: bool,
}

impl Operation<'_> {
    fn told(&self, reason: OperationReason, message: impl Into<String>) -> Told {
        Told {
            began: self.began,
            ..Told::new(reason, message)
        }
    }

    /// True for one next to which nothing else is done: the cluster is partly of the time before, or a run by the config
    /// would join a node that is leaving.
    fn is_alone(&self) -> bool {
        let leaves = self.object.spec.kind == OperationType::Reset && !self.has_left;
        self.began.is_some() && (self.restore.is_some() || leaves)
    }

    /// How much of its time is left; `None`: none.
    fn left(&self, now: Timestamp) -> Option<Duration> {
        let all = self.object.spec.deadline();
        let Some(began) = self.began else {
            return Some(all);
        };
        // A clock that was set back gives no more than all of it.
        let passed = now.duration_since(began).max(SignedDuration::ZERO);
        let left = all.checked_sub(passed.unsigned_abs())?;
        (!left.is_zero()).then_some(left)
    }
}

impl Reconcile<'_> {
    /// Its Cluster is paused.
    pub(super) async fn wait_unpaused(
        &self,
        object: &ClusterOperation,
    ) -> Result<(), ReconcileError> {
        let told = Told::new(
            OperationReason::Paused,
            "its Cluster's spec says `paused: true`",
        );
        operation::tell(self.ctx, object, &told).await
    }

    /// Carries it out as far as it goes.
    pub(super) async fn operate(
        &mut self,
        object: &ClusterOperation,
        wanted: &Wanted,
        environment: &Environment,
    ) -> Result<Operated, ReconcileError> {
        let Some(saved) = self.saved.clone() else {
            return Ok(Operated::Over);
        };
        let uid = object.uid().unwrap_or_default();
        let name = object.name_any();
        let known = saved.memory.operations.get(&name);
        if known.is_some_and(|known| known.uid != uid) {
            let text = "an operation of this name was begun on this Cluster by another object; hint: create one with another \
                        name";
            let told = Told::new(OperationReason::NameUsed, text);
            operation::tell(self.ctx, object, &told).await?;
            return Ok(Operated::Over);
        }
        let now = self.ctx.dependencies.clock.now();
        let operation = Operation {
            object,
            name,
            uid,
            now,
            began: known.map(|known| known.at),
            restore: known.and_then(|known| known.restore),
            has_left: known.is_some_and(|known| known.has_left),
        };
        let at = operation.began.unwrap_or(now);
        let errand = Errand::of(&object.spec, &operation.uid, at, &wanted.intent, &saved);
        // It ended, and the process was gone before that was written.
        if known.is_some_and(|known| known.ended.is_some()) {
            let done = errand.as_ref().map_or("it ended", Errand::done);
            return self.succeeded(&operation, done).await;
        }
        let mut errand = match errand {
            Ok(errand) => errand,
            Err(why) => {
                // What the config says now comes first: it may name the node no longer.
                let operation = Operation {
                    has_left: true,
                    ..operation
                };
                return self.kept_from(&operation, &why, ErrorClass::User).await;
            }
        };
        if operation.left(now).is_none() {
            let why = failure(object).unwrap_or("a run of it was in progress");
            return self.overdue(&operation, why).await;
        }
        if let Errand::Restore(replacement) = &mut errand {
            let number = known.and_then(|known| known.restore);
            let is_over = number.is_some_and(|it| saved.restores() >= it);
            if is_over && saved.restoring().is_none() {
                return self.ended_well(&operation, errand.done()).await;
            }
            match self.sought(replacement, wanted, environment, &saved).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    // As long as the state tells of no restore, the cluster is looked after.
                    let operation = Operation {
                        restore: operation.restore.filter(|_| saved.restoring().is_some()),
                        ..operation
                    };
                    let text = explained(&error);
                    return self.kept_from(&operation, &text, error.class()).await;
                }
                Err(cause) => return Ok(Operated::Stops(stopped(cause))),
            }
        }
        let goal = match errand.goal(&wanted.intent) {
            Ok(goal) => goal,
            Err(doing) => {
                let doing = self.at_once(operation, doing, wanted, environment, &saved);
                return Box::pin(doing).await;
            }
        };
        let asked = errand.environment(environment);
        if operation.began.is_some() {
            return self.go_on(&operation, goal, &errand, wanted, &asked).await;
        }
        self.plan(operation, goal, &errand, wanted, &asked).await
    }

    /// The iteration with what there is to do; the error says how the reconcile continues if the survey fails.
    async fn iteration<'w>(
        &mut self,
        operation: &Operation<'_>,
        goal: Goal<'_>,
        wanted: &Wanted,
        environment: &'w Environment,
    ) -> Result<Result<Box<Iteration<'w>>, Operated>, ReconcileError> {
        Ok(match self.observe(goal, wanted, environment).await? {
            Ok(Ok(iteration)) => Ok(iteration),
            Ok(Err(error)) => {
                let text = explained(&error);
                Err(self.kept_from(operation, &text, error.class()).await?)
            }
            Err(cause) => Err(Operated::Stops(stopped(cause))),
        })
    }

    /// Looks what there is to do, and begins it, once it may be begun.
    async fn plan(
        &mut self,
        operation: Operation<'_>,
        goal: Goal<'_>,
        errand: &Errand,
        wanted: &Wanted,
        environment: &Environment,
    ) -> Result<Operated, ReconcileError> {
        if errand.is_leaving() {
            let as_it_is = Goal::Up(&wanted.intent);
            match self
                .iteration(&operation, as_it_is, wanted, environment)
                .await?
            {
                Ok(iteration) if iteration.survey().plan.is_empty() => {}
                Ok(_) => {
                    let why = "the cluster is not as its config says, and that comes first";
                    return self.kept_from(&operation, why, ErrorClass::Host).await;
                }
                Err(operated) => return Ok(operated),
            }
        }
        let looked = self.iteration(&operation, goal, wanted, environment);
        let iteration = match looked.await? {
            Ok(iteration) => iteration,
            Err(operated) => return Ok(operated),
        };
        let plan = &iteration.survey().plan;
        if plan.is_empty() && errand.is_leaving() {
            let why = stays(plan);
            return self.kept_from(&operation, &why, ErrorClass::User).await;
        }
        if plan.is_empty() {
            return self.nothing_to_do(&operation).await;
        }
        let shown = shown(&operation.uid, errand, plan);
        let approved = operation.object.spec.approve.as_deref() == Some(&*shown.digest);
        if errand.wants_approval() && !approved {
            return self.wait_for_approval(&operation, shown).await;
        }
        // Saving that it begins outdates what this look has read of the state.
        drop(iteration);
        let operation = Operation {
            restore: errand.replacement().and_then(Replacement::number),
            ..operation
        };
        match self.begin(operation, Some(shown)).await? {
            Ok(operation) => {
                self.go_on(&operation, goal, errand, wanted, environment)
                    .await
            }
            Err(operated) => Ok(operated),
        }
    }

    /// Remembers that it begins, before anything is done for it.
    async fn begin<'o>(
        &self,
        operation: Operation<'o>,
        plan: Option<OperationPlan>,
    ) -> Result<Result<Operation<'o>, Operated>, ReconcileError> {
        if let Err(error) = self.remember(&operation, operation.now, None).await {
            let (text, class) = (explained(&error), error.class());
            return self.kept_from(&operation, &text, class).await.map(Err);
        }
        let operation = Operation {
            began: Some(operation.now),
            ..operation
        };
        let told = Told {
            plan,
            ..operation.told(OperationReason::Running, RUNS)
        };
        operation::tell(self.ctx, operation.object, &told).await?;
        let note = format!("the operation `{}` begins", operation.name);
        let kind = operation.object.spec.kind.name();
        let notice = Notice::normal("OperationStarted", kind, &note);
        publish(self.ctx, self.view, &notice).await;
        Ok(Ok(operation))
    }

    /// Does what takes no run.
    async fn at_once(
        &mut self,
        operation: Operation<'_>,
        doing: &AtOnce,
        wanted: &Wanted,
        environment: &Environment,
        saved: &ClusterState,
    ) -> Result<Operated, ReconcileError> {
        let intent = &wanted.intent;
        if doing.is_of_etcd() && intent.etcd.external().is_some() {
            let error = RestoreError::ExternalEtcd;
            let text = explained(&error);
            return self.kept_from(&operation, &text, error.class()).await;
        }
        let again = operation.began.is_some();
        let operation = if again {
            operation
        } else {
            match self.begin(operation, None).await? {
                Ok(operation) => operation,
                Err(operated) => return Ok(operated),
            }
        };
        let done = at_once::done(doing, again, intent, saved, environment);
        let left = operation.left(operation.now).unwrap_or_default();
        let read = read(&operation, wanted);
        let done = tokio::select! {
            done = tokio::time::timeout(left, Box::pin(done)) => done,
            cause = self.ctx.outdated(self.view, &read) => {
                return Ok(Operated::Stops(stopped(cause)));
            }
        };
        match done {
            Ok(Ok(text)) => self.ended_well(&operation, &text).await,
            Ok(Err(NotDone::Yet(text, class))) => self.kept_from(&operation, &text, class).await,
            Ok(Err(NotDone::Proven(text))) => self.not_proven(&operation, &text).await,
            Err(_) => self.overdue(&operation, "a node did not end it").await,
        }
    }

    /// A run of it, from wherever it is.
    async fn go_on(
        &mut self,
        operation: &Operation<'_>,
        goal: Goal<'_>,
        errand: &Errand,
        wanted: &Wanted,
        environment: &Environment,
    ) -> Result<Operated, ReconcileError> {
        let (ctx, view) = (self.ctx, self.view);
        let told = match failure(operation.object) {
            Some(last) => {
                let text = format!("{RUNS}{FAILED}{last}");
                operation.told(OperationReason::Running, text)
            }
            None => operation.told(OperationReason::Running, RUNS),
        };
        operation::tell(ctx, operation.object, &told).await?;
        let now = ctx.dependencies.clock.now();
        let read = read(operation, wanted);
        let task = Task {
            purpose: goal,
            first: None,
            slot: self.slot,
            run: Run::Operate,
            read: &read,
            limit: operation.left(now),
        };
        let ended = self.run_of(task, environment).await?;
        let (text, class) = match ended {
            Ok(Convergence::Settled(Outcome::Converged { .. })) if errand.is_leaving() => {
                return self.joins_again(operation).await;
            }
            Ok(Convergence::Settled(Outcome::Converged { .. })) => {
                return self.ended_well(operation, errand.done()).await;
            }
            Ok(Convergence::Settled(Outcome::Degraded { left, .. })) => (
                format!("not done on these nodes:\n{}", cases(&left)),
                ErrorClass::Host,
            ),
            Ok(Convergence::Stopped(cause)) => return Ok(Operated::Stops(stopped(cause))),
            Err(error) => (explained(&error), error.class()),
        };
        let note = format!("the operation `{}`: {text}", operation.name);
        publish(
            ctx,
            view,
            &Notice::warning("OperationRetrying", "Operate", &note),
        )
        .await;
        self.kept_from(operation, &text, class).await
    }

    /// Its node has left the cluster and is clean: the next pass joins it.
    async fn joins_again(&self, operation: &Operation<'_>) -> Result<Operated, ReconcileError> {
        let operation = Operation {
            has_left: true,
            name: operation.name.clone(),
            uid: operation.uid.clone(),
            ..*operation
        };
        let began = operation.began.unwrap_or(operation.now);
        match self.remember(&operation, began, None).await {
            Ok(()) => Ok(Operated::Stops(Action::requeue(Duration::ZERO))),
            Err(error) => {
                let text = explained(&error);
                self.kept_from(&operation, &text, error.class()).await
            }
        }
    }

    /// The run itself.
    async fn run_of(
        &mut self,
        task: Task<'_, '_, Goal<'_>>,
        environment: &Environment,
    ) -> Result<Result<Convergence<Outcome, std::convert::Infallible>, Error>, ReconcileError> {
        let (ctx, view) = (self.ctx, self.view);
        let replaces = matches!(task.purpose, Goal::Restore(_));
        let mut conditions = ConditionSet::new();
        let run = Run::Operate;
        conditions.set(run.condition(), run.reason(), run.starting());
        self.status
            .write(&conditions, |status| status.progress = None)
            .await?;
        let mark = ctx.prober.begin_run(&view.uid());
        let saved = self.saved.as_ref();
        let mut probed = saved
            .map(|saved| ctx.probed(view, saved))
            .unwrap_or_default();
        let running = self.running.lock().await;
        let mut base = ConditionSet::new();
        if replaces {
            let text = "etcd's data is being replaced by a snapshot";
            base.set(ConditionType::Available, Reason::Restoring, text);
        }
        let sinks = (&mut self.status, &mut probed);
        let ended = Box::pin(run::run(ctx, view, task, environment, sinks, &base)).await;
        drop(running);
        drop(mark);
        Ok(ended)
    }

    async fn remember(
        &self,
        operation: &Operation<'_>,
        at: Timestamp,
        ended: Option<Timestamp>,
    ) -> Result<(), StateError> {
        let uid = operation.uid.clone();
        let begun = BegunOperation {
            uid,
            at,
            ended,
            restore: operation.restore,
            has_left: operation.has_left,
        };
        memory::remember_operation(self.ctx, self.view, &operation.name, begun).await
    }

    /// Remembers it first: whatever becomes of the status, it is not done again.
    async fn ended_well(
        &self,
        operation: &Operation<'_>,
        done: &str,
    ) -> Result<Operated, ReconcileError> {
        let now = self.ctx.dependencies.clock.now();
        let began = operation.began.unwrap_or(now);
        if let Err(error) = self.remember(operation, began, Some(now)).await {
            let class = error.class();
            return self.kept_from(operation, &explained(&error), class).await;
        }
        self.succeeded(operation, done).await
    }

    /// Looks for the snapshot on the nodes. Nothing of the cluster is changed.
    async fn sought(
        &self,
        replacement: &mut Replacement,
        wanted: &Wanted,
        environment: &Environment,
        saved: &ClusterState,
    ) -> Result<Result<(), RestoreError>, StopCause> {
        let named = Named {
            name: &replacement.name,
            bucket: wanted.intent.services.snapshot_bucket.as_deref(),
            agent: wanted.intent.agent.as_ref(),
            say: &|said| tracing::info!("{said}"),
        };
        let looks = converge::restore_of(named, &wanted.intent, saved, environment);
        let request = tokio::select! {
            request = Box::pin(looks) => request,
            cause = self.ctx.outdated(self.view, &wanted.read) => return Err(cause),
        };
        Ok(request.map(|request| replacement.request = Some(request)))
    }

    async fn succeeded(
        &self,
        operation: &Operation<'_>,
        done: &str,
    ) -> Result<Operated, ReconcileError> {
        let told = operation.told(OperationReason::Succeeded, done);
        operation::tell(self.ctx, operation.object, &told).await?;
        let note = format!("the operation `{}` ended well: {done}", operation.name);
        let kind = operation.object.spec.kind.name();
        publish(
            self.ctx,
            self.view,
            &Notice::normal("OperationSucceeded", kind, &note),
        )
        .await;
        // The next pass reads the state again: keys and authorities in it may be others now.
        Ok(Operated::Stops(Action::requeue(Duration::ZERO)))
    }

    /// The plan is empty before anything was begun.
    async fn nothing_to_do(&self, operation: &Operation<'_>) -> Result<Operated, ReconcileError> {
        let told = operation.told(OperationReason::Succeeded, "there was nothing to do");
        operation::tell(self.ctx, operation.object, &told).await?;
        Ok(Operated::Over)
    }

    async fn wait_for_approval(
        &self,
        operation: &Operation<'_>,
        plan: OperationPlan,
    ) -> Result<Operated, ReconcileError> {
        let other = if operation.object.spec.approve.is_some() {
            "`spec.approve` names another plan than this one; "
        } else {
            ""
        };
        let text = format!(
            "{other}it cannot be undone, and its plan (`status.plan`) waits for approval: `kubectl patch rkeo {} --type=merge -p \
             '{{\"spec\":{{\"approve\":\"{}\"}}}}'`",
            operation.name, plan.digest
        );
        let told = Told {
            plan: Some(plan),
            ..operation.told(OperationReason::AwaitingApproval, text)
        };
        operation::tell(self.ctx, operation.object, &told).await?;
        Ok(Operated::Over)
    }

    /// One that has begun is tried again until its time is over. Of one that has not, what takes a person is reported once.
    async fn kept_from(
        &self,
        operation: &Operation<'_>,
        why: &str,
        class: ErrorClass,
    ) -> Result<Operated, ReconcileError> {
        let now = self.ctx.dependencies.clock.now();
        if operation.began.is_some() && operation.left(now).is_none() {
            return self.overdue(operation, why).await;
        }
        let never = operation.began.is_none() && class == ErrorClass::User;
        let reason = if never {
            OperationReason::NotPossible
        } else {
            OperationReason::Retrying
        };
        operation::tell(self.ctx, operation.object, &operation.told(reason, why)).await?;
        Ok(if never {
            Operated::Over
        } else if operation.is_alone() {
            Operated::Stops(Action::retry(AGAIN))
        } else {
            Operated::Again(AGAIN)
        })
    }

    /// A snapshot was looked into, and is no good. That is its result: another look would find the same.
    async fn not_proven(
        &self,
        operation: &Operation<'_>,
        text: &str,
    ) -> Result<Operated, ReconcileError> {
        let told = operation.told(OperationReason::NotProven, text);
        self.ended_badly(operation, &told).await
    }

    /// Its time is over: what it left is for the Cluster's own runs.
    async fn overdue(
        &self,
        operation: &Operation<'_>,
        why: &str,
    ) -> Result<Operated, ReconcileError> {
        let text = format!(
            "it did not end within {} s; what kept it last: {why}",
            operation.object.spec.deadline().as_secs()
        );
        let told = operation.told(OperationReason::DeadlineExceeded, text);
        self.ended_badly(operation, &told).await
    }

    async fn ended_badly(
        &self,
        operation: &Operation<'_>,
        told: &Told,
    ) -> Result<Operated, ReconcileError> {
        operation::tell(self.ctx, operation.object, told).await?;
        let note = format!("the operation `{}`: {}", operation.name, told.message);
        publish(
            self.ctx,
            self.view,
            &Notice::warning("OperationFailed", "Operate", &note),
        )
        .await;
        Ok(Operated::Over)
    }
}

/// Why a node does not leave.
fn stays(plan: &Plan) -> String {
    let left = plan.notes.iter().filter(|note| note.is_left);
    let left = left.map(|note| format!("\n{}", note.text));
    format!(
        "the node cannot leave the cluster:{}",
        left.collect::<String>()
    )
}

/// What ends a run for it.
fn read(operation: &Operation<'_>, wanted: &Wanted) -> Vec<SourceVersion> {
    let mut read = wanted.read.clone();
    read.push(SourceVersion::Operation {
        name: operation.name.clone(),
        uid: operation.uid.clone(),
    });
    read
}

/// Why its last run failed, if it did.
fn failure(object: &ClusterOperation) -> Option<&str> {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    let complete = conditions.find(|condition| condition.type_ == "Complete")?;
    if complete.reason == OperationReason::Retrying.name() {
        return Some(&complete.message);
    }
    complete.message.split_once(FAILED).map(|(_, why)| why)
}

/// A plan for the status, and the digest that approves it for that object: its steps, and not what is noted about them,
/// which may tell the time.
fn shown(uid: &str, errand: &Errand, plan: &Plan) -> OperationPlan {
    let digest = Sha256::new().chain_update(uid).chain_update("\n");
    let mut digest = digest.chain_update(errand.fingerprint());
    for step in plan.steps() {
        digest.update(format!("\n{}: {}", step.target(), plan::title(step)));
    }
    OperationPlan {
        digest: hex::encode(&digest.finalize()[..16]),
        steps: i64::try_from(plan.steps().count()).unwrap_or(i64::MAX),
        text: shorten(&printable_lines(&plan::render(plan)), PLAN),
    }
}
