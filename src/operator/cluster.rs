//! The one reconcile of a `Cluster` (invariant 14): deletion first, on metadata; then
//! `intent → world → converge → status`. It decides when to survey and to run, and what to say
//! about the result, and knows nothing about nodes.

mod apply;
mod arrival;
mod at_once;
mod details;
mod operate;
mod report;

use std::sync::Arc;

pub(super) use arrival::arrival;
use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use operate::Operated;
use report::{Facts, Found, provisioned, silent, valid};
use tokio::{sync::Mutex, time::Instant};

use super::{
    applied, approval,
    cluster_object::ClusterObject,
    context::{Context, ReconcileError, explained, with_finalizers},
    environment::{self, SpecError, Wanted},
    events::{Notice, publish},
    guarded, kubeconfig, memory,
    metrics::Controller,
    operation,
    queue::{Action, Class, Slot},
    ready::Stage,
    reasons::{self, Reasoned},
    removal,
    run::stopped,
    sources::KnownKeys,
    status::{Run, StatusWriter, place},
};
use crate::{
    api::{
        Changes, FINALIZER, PendingReason,
        conditions::{ConditionSet, ConditionType, Reason},
    },
    apply::stop::StopCause,
    converge::{self, Goal, Iteration, Removal, Survey},
    environment::Environment,
    error::{Explain, with_causes},
    model::Secret,
    plan::{Cause, Plan, Step},
    state::ClusterState,
    status::{Seen, lines},
};

/// How the API server answers a write that leaves an object invalid.
const INVALID: u16 = 422;

/// One pass over one object. Whatever goes wrong in it is this object's.
pub(super) async fn reconcile(object: Arc<DynamicObject>, ctx: Arc<Context>, slot: Slot) -> Action {
    // What was frozen and woke up begins nothing new.
    if let Some(cause) = ctx.stop.cause() {
        return stopped(cause);
    }
    ctx.beat();
    let pass = Box::pin(pass(&object, &ctx, &slot));
    let action = match guarded::caught(&ctx, Controller::Cluster, pass).await {
        Ok(action) => action,
        Err(end) => guarded::told(&ctx, &object, end).await,
    };
    ctx.beat();
    action
}

/// Writes on an object that waits for a slot how many come first.
pub(super) async fn tell(ctx: &Context, name: &str, ahead: usize) {
    let told = async {
        if let Some(live) = ctx.clusters.get_opt(name).await? {
            let view = ClusterObject::new(live);
            StatusWriter::new(ctx, &view).place(ahead).await?;
        }
        Ok::<_, kube::Error>(())
    };
    if let Err(error) = told.await {
        let error = with_causes(&error);
        tracing::warn!(error, "cannot write how many Clusters come first");
    }
}

async fn pass(
    object: &DynamicObject,
    ctx: &Context,
    slot: &Slot,
) -> Result<Action, ReconcileError> {
    // The cache may be behind what we wrote ourselves: conditions are merged into what stands.
    let Some(live) = ctx.clusters.get_opt(&object.name_any()).await? else {
        ctx.forget(&object.uid().unwrap_or_default());
        return Ok(Action::await_change());
    };
    let view = ClusterObject::new(live);
    if view.deleted_at().is_some() {
        ctx.prober.forget(&view.uid());
        let status = StatusWriter::new(ctx, &view);
        return Box::pin(removal::pass(ctx, &view, slot, status)).await;
    }
    let mut finalizer_refused = false;
    let view = if view.has_finalizer() {
        view
    } else {
        match ensure_finalizer(ctx, &view).await {
            Ok(view) => view,
            // Without a finalizer no node is touched.
            Err(kube::Error::Api(status)) if status.code == INVALID => {
                finalizer_refused = true;
                view
            }
            Err(error) => return Err(error.into()),
        }
    };
    let status = StatusWriter::new(ctx, &view);
    let running = Mutex::new(());
    let reconcile = Reconcile {
        ctx,
        view: &view,
        slot,
        status,
        running: &running,
        refused: false,
        saved: None,
        began: Instant::now(),
    };
    // A deletion and an edit wait for no request of a pass that they outdate; a run ends in an
    // orderly way first.
    let outdated = async {
        let cause = ctx.outdated(&view, &[]).await;
        drop(running.lock().await);
        cause
    };
    if finalizer_refused {
        return Box::pin(reconcile.not_understood(&SpecError::Refused)).await;
    }
    tokio::select! {
        action = Box::pin(reconcile.reconcile_apply()) => action,
        cause = outdated => Ok(stopped(cause)),
    }
}

/// Puts the finalizer on, before the first side effect: from here on a deletion comes to us.
async fn ensure_finalizer(ctx: &Context, view: &ClusterObject) -> kube::Result<ClusterObject> {
    let mut finalizers = view.meta().finalizers.clone().unwrap_or_default();
    finalizers.push(FINALIZER.to_owned());
    let patch = with_finalizers(view.meta(), &finalizers);
    let params = PatchParams::default();
    let patched = ctx
        .clusters
        .patch(&view.name(), &params, &Patch::Merge(&patch))
        .await?;
    Ok(ClusterObject::new(patched))
}

/// A pass that is not a deletion.
struct Reconcile<'a> {
    ctx: &'a Context,
    view: &'a ClusterObject,
    slot: &'a Slot,
    status: StatusWriter,
    /// Locked while a run is in progress.
    running: &'a Mutex<()>,
    /// The config was changed, and is refused although it was understood.
    refused: bool,
    /// The state, where it is this object's.
    saved: Option<Arc<ClusterState>>,
    /// When the last look or run of this pass began.
    began: Instant,
}

impl Reconcile<'_> {
    async fn reconcile_apply(mut self) -> Result<Action, ReconcileError> {
        let last = self.status.last_stage();
        let saved = match memory::recollect(self.ctx, self.view).await? {
            Ok(saved) => saved,
            Err(error) => {
                self.status.set_stage(last);
                self.ctx.prober.forget(&self.view.uid());
                let found = Found::unseen("nothing was looked at: its state is not there to go by");
                return self.failed(&error, found).await;
            }
        };
        let spec = self.view.spec().map_err(SpecError::Unreadable);
        let wanted = match spec {
            Ok(spec) => environment::wanted(self.ctx, &self.view.name(), &spec).await,
            Err(error) => Err(error),
        };
        let text = wanted.as_ref().ok().map(|wanted| wanted.text.expose());
        let stage = saved.as_ref().map_or(Stage::New, |saved| {
            memory::stage(saved, text.map(String::as_str), last)
        });
        self.saved = saved.map(|saved| Arc::new(*saved));
        self.status.set_stage(stage);
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(error) => return self.not_understood(&error).await,
        };
        if let Some(error) = wanted.refused() {
            if stage == Stage::New {
                return self.not_understood(&error).await;
            }
            self.refused = stage == Stage::Changed;
        }
        let owner = match kubeconfig::ensure(self.ctx, self.view).await? {
            Ok(owner) => owner,
            Err(error) => {
                let mut found = Found::unseen("nothing was looked at: see Stalled or Reconciling");
                valid(&mut found.conditions, &wanted);
                return self.failed(&error, found).await;
            }
        };
        let environment =
            environment::environment(self.ctx, self.view, owner, &wanted.host_keys).await?;
        if stage == Stage::New {
            let why = "its Cluster is not built yet";
            operation::wait(self.ctx, &self.view.name(), why).await?;
        }
        match stage {
            // There is nothing to look at, and nothing is built.
            Stage::New if self.view.is_paused() => {
                let mut conditions = ConditionSet::new();
                valid(&mut conditions, &wanted);
                self.report(&conditions, Facts::default()).await?;
                Ok(Action::await_change())
            }
            // There is no cluster to survey yet, and the run makes its own survey.
            Stage::New => {
                self.status.set_pending(None);
                if let Err(ahead) = self.enter(Class::Change) {
                    return self.queued(&wanted, Class::Change, ahead).await;
                }
                let run = Run::Provision;
                let conditions = ConditionSet::new();
                Box::pin(self.apply(&wanted, &environment, run, conditions, None)).await
            }
            Stage::Changed | Stage::Applied => self.built(&wanted, &environment, stage).await,
        }
    }

    /// The cluster is there: what is seen of it is reported at once, and it is looked at in its turn.
    async fn built(
        mut self,
        wanted: &Wanted,
        environment: &Environment,
        stage: Stage,
    ) -> Result<Action, ReconcileError> {
        let prober = &self.ctx.prober;
        if let Some(saved) = &self.saved {
            prober.watch(self.view, saved, environment);
        }
        self.report_probed().await?;
        let operation = operation::next(self.ctx, self.view).await?;
        let operation = match operation {
            Some(operation) if self.view.is_paused() => {
                self.wait_unpaused(&operation).await?;
                None
            }
            operation => operation,
        };
        let is_change = stage == Stage::Changed || operation.is_some();
        let class = if is_change && !self.view.is_paused() {
            Class::Change
        } else {
            Class::Look
        };
        if class == Class::Look
            && let Some(wait) = prober.held(&self.view.uid())
        {
            return Ok(Action::requeue(wait));
        }
        if let Err(ahead) = self.enter(class) {
            return self.queued(wanted, class, ahead).await;
        }
        let Some(operation) = operation else {
            return Box::pin(self.look(wanted, environment)).await;
        };
        match Box::pin(self.operate(&operation, wanted, environment)).await? {
            Operated::Stops(action) => Ok(action),
            Operated::Over => Box::pin(self.look(wanted, environment)).await,
            Operated::Again(wait) => {
                let action = Box::pin(self.look(wanted, environment)).await?;
                Ok(action.within(wait))
            }
        }
    }

    /// From here on the nodes are worked on. `Err`: there is no slot for that, and that many come first.
    fn enter(&self, class: Class) -> Result<(), usize> {
        self.slot.enter(class, self.view.node_count())
    }

    /// There is no slot: an object that looks settled already says nothing, any other says how many come first.
    async fn queued(
        mut self,
        wanted: &Wanted,
        class: Class,
        ahead: usize,
    ) -> Result<Action, ReconcileError> {
        if class != Class::Look || !self.status.has_told() {
            let mut conditions = ConditionSet::new();
            valid(&mut conditions, wanted);
            let kind = ConditionType::Reconciling;
            conditions.set(kind, Reason::Queued, place(ahead));
            self.status.write(&conditions, |_| {}).await?;
        }
        Ok(Action::InLine(class, None))
    }

    /// The spec or what it refers to is wrong: nothing is touched until it changes. The cluster
    /// that was built is looked at all the same, by the saved inventory.
    async fn not_understood(mut self, error: &SpecError) -> Result<Action, ReconcileError> {
        if matches!(error, SpecError::Source(_)) {
            // It may not be reached by that key any more.
            self.ctx.prober.forget(&self.view.uid());
        }
        self.status.set_handled();
        self.status.set_pending(None);
        let why = "the config of its Cluster is not understood";
        operation::wait(self.ctx, &self.view.name(), why).await?;
        let Found {
            mut conditions,
            facts,
        } = match self.status.stage() {
            Stage::New => Found::default(),
            Stage::Changed | Stage::Applied if self.enter(Class::Look).is_err() => {
                let mut conditions = ConditionSet::new();
                refuse(&mut conditions, error);
                self.report(&conditions, Facts::default()).await?;
                return Ok(Action::InLine(Class::Look, None));
            }
            Stage::Changed | Stage::Applied => self.by_inventory(error).await?,
        };
        refuse(&mut conditions, error);
        self.report(&conditions, facts).await?;
        Ok(self.ctx.retry(self.view, error.class()))
    }

    /// What a survey of the saved inventory says, without a config to compare with.
    async fn by_inventory(&mut self, why: &SpecError) -> Result<Found, ReconcileError> {
        let host_keys = KnownKeys::lenient(self.ctx, self.view).await;
        let environment = environment::environment(self.ctx, self.view, None, &host_keys).await?;
        let removal = Removal(None);
        self.began = Instant::now();
        Ok(
            match Box::pin(converge::survey(&removal, &environment)).await {
                Ok(Survey {
                    actual, snapshots, ..
                }) if actual.saved.is_some() => {
                    self.looked_at(&actual);
                    Found::of(&Seen {
                        now: self.ctx.dependencies.clock.now(),
                        intent: None,
                        actual: &actual,
                        snapshots: &snapshots,
                        desired: None,
                        plan: Err(why),
                    })
                }
                Ok(_) => Found::unseen("the state is not there"),
                Err(error) => {
                    self.saw_nothing();
                    Found::blind(&error)
                }
            },
        )
    }

    /// One look towards a goal. `Err`: why there is none.
    async fn observe<'w>(
        &mut self,
        goal: Goal<'_>,
        wanted: &Wanted,
        environment: &'w Environment,
    ) -> Result<Result<Look<'w>, StopCause>, ReconcileError> {
        let ctx = self.ctx;
        // Until the status covers this generation, the object must not look settled.
        let tell = !self.status.has_told();
        if tell {
            let mut conditions = ConditionSet::new();
            valid(&mut conditions, wanted);
            let kind = ConditionType::Reconciling;
            conditions.set(kind, Reason::Surveying, "reads what is there");
            self.status.write(&conditions, |_| {}).await?;
        }
        self.began = Instant::now();
        Ok(tokio::select! {
            look = Box::pin(Iteration::look(&goal, environment)) => Ok(look.map(Box::new)),
            cause = ctx.outdated(self.view, &wanted.read) => Err(cause),
        })
    }

    /// The cluster is there: see how it is, and whether it is as the spec says.
    async fn look(
        mut self,
        wanted: &Wanted,
        environment: &Environment,
    ) -> Result<Action, ReconcileError> {
        let waits = self.status.stage() == Stage::Changed && wanted.changes == Changes::Approve;
        if self.refused || (self.keeps() && !waits) {
            self.status.set_pending(None);
        }
        let goal = Goal::Up(&wanted.intent);
        let iteration = match self.observe(goal, wanted, environment).await? {
            Ok(Ok(iteration)) => iteration,
            Ok(Err(error)) => {
                self.saw_nothing();
                let found = Found::failed(wanted, &error);
                return self.failed(&error, found).await;
            }
            Err(cause) => return Ok(stopped(cause)),
        };
        let survey = iteration.survey();
        let found = self.seen(wanted, survey);
        let approved = !self.refused && self.weigh(wanted, survey).await?;
        let stage = self.status.stage();
        let (run, plan) = match stage {
            Stage::Applied if !approved => {
                let plan = wanted.kept_up(&survey.plan);
                (upkeep(&plan), plan)
            }
            Stage::New => (Run::Provision, survey.plan.clone()),
            Stage::Changed | Stage::Applied => (Run::Change, survey.plan.clone()),
        };
        if self.view.is_paused() {
            return self.looked(wanted, found).await;
        }
        if self.keeps() {
            let former = match survey.actual.saved.as_deref() {
                Some(saved) => applied::read(self.ctx, self.view, saved).await?,
                None => None,
            };
            drop(iteration);
            return Box::pin(self.keep(wanted, environment, former, found)).await;
        }
        if !plan.is_empty() && !plan.only_waits() {
            let set_out = self.set_out(wanted, environment, run, &plan, found, iteration);
            return Box::pin(set_out).await;
        }
        let left = silent(wanted, survey);
        if !left.is_empty() {
            return self.degraded(wanted, &left, found, &[]).await;
        }
        match stage {
            Stage::Applied => self.looked(wanted, found).await,
            Stage::New | Stage::Changed => self.applied(wanted, found, None, &[]).await,
        }
    }

    /// True while the present spec is being brought about: neither applied, nor waiting for a person.
    fn is_under_way(&self) -> bool {
        self.status.stage() != Stage::Applied && !self.keeps()
    }

    /// True while a change of the config waits for a person, or is refused: the cluster is kept as it was applied last.
    fn keeps(&self) -> bool {
        let pending = self.status.pending();
        self.refused || pending.is_some_and(|pending| pending.reason == PendingReason::Approval)
    }

    /// Which of the changes wait for a person, and whether one has approved them.
    async fn weigh(&mut self, wanted: &Wanted, survey: &Survey) -> Result<bool, ReconcileError> {
        let (ctx, view) = (self.ctx, self.view);
        let reason = approval::waits(wanted.changes, self.status.stage(), survey.whole());
        let waiting = reason.zip(survey.actual.saved.as_deref());
        let waiting = waiting.map(|(reason, saved)| {
            let release = env!("CARGO_PKG_VERSION");
            let digest = approval::digest(saved, wanted.text.expose(), release);
            let stands = self.status.pending();
            let stands = stands.filter(|stands| stands.digest == digest);
            let since = stands.map(|stands| stands.created_at.clone());
            let since = since.unwrap_or_else(|| ctx.dependencies.clock.now().to_string());
            approval::pending(digest, reason, survey.whole(), since)
        });
        let approved = waiting
            .as_ref()
            .is_some_and(|plan| view.approves(&plan.digest));
        if approved {
            let by = view
                .approved_by()
                .map_or("a user who gave no name".to_owned(), |name| {
                    format!("`{name}`, as the annotation says")
                });
            let note = format!("the plan that waited was approved by {by}");
            publish(ctx, view, &Notice::normal("PlanApproved", "Approve", &note)).await;
        } else if view.approved().is_some() {
            let note =
                "the approval names another plan than the one that waits: nothing is done by it";
            publish(
                ctx,
                view,
                &Notice::warning("ApprovalOutdated", "Approve", note),
            )
            .await;
            memory::forget_approval(ctx, view).await?;
        }
        self.status.set_pending(waiting.filter(|_| !approved));
        Ok(approved)
    }

    /// While a change waits or is refused: the cluster is looked at, and kept, as it was applied last. Where that is not
    /// known any more, it is looked at only.
    async fn keep(
        mut self,
        wanted: &Wanted,
        environment: &Environment,
        former: Option<Secret<String>>,
        found: Found,
    ) -> Result<Action, ReconcileError> {
        let former = former.map(|text| wanted.former(text));
        let Some(Ok(former)) = former else {
            return self.looked(wanted, found).await;
        };
        // The run that waits carries out what a person requested once.
        let environment = &environment.without_requests();
        let iteration = match self.observe(former.upkeep(), &former, environment).await? {
            Ok(Ok(iteration)) => iteration,
            Ok(Err(error)) => {
                self.saw_nothing();
                let found = Found::failed(&former, &error);
                return self.failed(&error, found).await;
            }
            Err(cause) => return Ok(stopped(cause)),
        };
        let survey = iteration.survey();
        let (found, plan) = (self.seen(&former, survey), survey.plan.clone());
        if plan.is_empty() || plan.only_waits() {
            return self.looked(&former, found).await;
        }
        let run = upkeep(&plan);
        let set_out = self.set_out(&former, environment, run, &plan, found, iteration);
        Box::pin(set_out).await
    }

    /// Says what was seen; nothing is done.
    async fn looked(mut self, wanted: &Wanted, mut found: Found) -> Result<Action, ReconcileError> {
        self.status.set_handled();
        if self.status.stage() == Stage::Applied {
            provisioned(&mut found.conditions);
        }
        self.report_about(wanted, found).await?;
        Ok(self.ctx.settled(self.view))
    }

    /// Says what is about to be done, and does it.
    async fn set_out(
        mut self,
        wanted: &Wanted,
        environment: &Environment,
        run: Run,
        plan: &Plan,
        mut found: Found,
        iteration: Box<Iteration<'_>>,
    ) -> Result<Action, ReconcileError> {
        if self.status.stage() != Stage::Applied {
            let kind = ConditionType::UpToDate;
            let message = lines(plan.steps());
            found.conditions.set(kind, Reason::RollingOut, message);
        }
        let class = match run {
            Run::Heal | Run::Renew => Class::Heal,
            Run::Provision | Run::Change | Run::Operate | Run::Remove => Class::Change,
        };
        let waits = self.enter(class).err();
        let (reason, message) = match waits {
            Some(ahead) => (Reason::Queued, place(ahead)),
            None => (run.reason(), run.starting().to_owned()),
        };
        found.conditions.set(run.condition(), reason, message);
        let base = found.conditions.clone();
        self.report_about(wanted, found).await?;
        if waits.is_some() {
            // What was seen is old by then, and its connections are not kept open for that long.
            return Ok(Action::InLine(class, None));
        }
        Box::pin(self.apply(wanted, environment, run, base, Some(iteration))).await
    }
}

/// Why a spec is refused, in the conditions that it belongs in.
fn refuse(conditions: &mut ConditionSet, error: &SpecError) {
    let text = explained(error);
    conditions.set(ConditionType::ConfigValid, error.reason(), &text);
    reasons::note(conditions, error.condition(), &text);
}

/// What a look gives, or why it cannot.
type Look<'w> = Result<Box<Iteration<'w>>, converge::Error>;

/// What a run that follows no change of the config is called.
fn upkeep(plan: &Plan) -> Run {
    let expires = |step: &Step| step.cause == Cause::Expiry;
    if plan.steps().any(expires) {
        Run::Renew
    } else {
        Run::Heal
    }
}
