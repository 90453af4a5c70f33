//! The one reconcile of a `Cluster` (invariant 14): deletion first, on metadata; then
//! `intent → world → converge → status`. It decides when to ask the engine and what to say about
//! the answer, and knows nothing about nodes.

use std::{collections::BTreeMap, sync::Arc};

use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    runtime::controller::Action,
};
use serde_json::json;

use super::{
    context::{Context, ReconcileError, explained},
    events::{Notice, publish},
    kubeconfig, probe, removal,
    run::{self, Ended, stopped},
    status::{Run, StatusWriter},
    view::View,
    world::{self, SpecError},
};
use crate::{
    actual::Down,
    api::{
        ClusterStatus, FINALIZER, NameRef,
        conditions::{ConditionType, Findings, Truth},
    },
    config::{Intent, NodeName},
    converge::{Error, Goal, Outcome, Survey},
    error::{Blame, Explain},
    world::World,
};

/// This release: another one applies nothing by itself (invariant 7).
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// One pass over one object.
pub(super) async fn reconcile(
    object: Arc<DynamicObject>,
    ctx: Arc<Context>,
) -> Result<Action, ReconcileError> {
    // The cache may be behind what we wrote ourselves: conditions are merged into what stands.
    let Some(live) = ctx.clusters.get_opt(&object.name_any()).await? else {
        ctx.backoff.forget(&object.uid().unwrap_or_default());
        return Ok(Action::await_change());
    };
    let view = View::new(live);
    let status = StatusWriter::new(ctx.clusters.clone(), &view, ctx.parts.clock.clone());
    if view.deleted_at().is_some() {
        return removal::pass(&ctx, &view, status).await;
    }
    let view = if view.has_finalizer() {
        view
    } else {
        hold(&ctx, &view).await?
    };
    Pass {
        ctx: &ctx,
        view: &view,
        status,
    }
    .forward()
    .await
}

/// Puts the finalizer on, before the first side effect: from here on a deletion comes to us.
async fn hold(ctx: &Context, view: &View) -> Result<View, ReconcileError> {
    let mut finalizers = view.meta().finalizers.clone().unwrap_or_default();
    finalizers.push(FINALIZER.to_owned());
    let patch = json!({"metadata": {
        "finalizers": finalizers,
        // Fails when someone else wrote meanwhile, so that nobody's finalizer is lost.
        "resourceVersion": view.meta().resource_version,
        "uid": view.meta().uid,
    }});
    let params = PatchParams::default();
    let patched = ctx
        .clusters
        .patch(&view.name(), &params, &Patch::Merge(&patch))
        .await?;
    Ok(View::new(patched))
}

/// A pass that is not a deletion.
struct Pass<'a> {
    ctx: &'a Context,
    view: &'a View,
    status: StatusWriter,
}

impl Pass<'_> {
    async fn forward(self) -> Result<Action, ReconcileError> {
        let spec = self.view.spec().map_err(SpecError::Unreadable);
        let intent = match spec {
            Ok(spec) => world::intent(self.ctx, &spec).await,
            Err(error) => Err(error),
        };
        let intent = match intent {
            Ok(intent) => intent,
            Err(error) => return self.not_understood(&error).await,
        };
        let owner = match kubeconfig::ensure(self.ctx, self.view).await? {
            Ok(owner) => owner,
            Err(error) => return self.failed(&error, Findings::new(), true).await,
        };
        let world = world::world(self.ctx, self.view, owner).await?;
        if self.status.provisioned() {
            self.look(&intent, &world).await
        } else {
            self.apply(&intent, &world, Findings::new()).await
        }
    }

    /// The spec or what it refers to is wrong: nothing is touched until it changes.
    async fn not_understood(mut self, error: &SpecError) -> Result<Action, ReconcileError> {
        let text = explained(error);
        let mut findings = Findings::new();
        let truth = match error.blame() {
            Blame::Transient => Truth::Unknown,
            Blame::User | Blame::Host | Blame::Bug => Truth::False,
        };
        findings.set(ConditionType::ConfigValid, truth, error.reason(), &text);
        findings.set(ConditionType::Ready, false, error.reason(), &text);
        if error.blame() == Blame::User {
            findings.set(ConditionType::Stalled, true, error.reason(), &text);
        }
        self.status
            .write(&findings, |status| status.progress = None)
            .await?;
        Ok(self.ctx.retry(self.view, error.blame()))
    }

    /// The spec is applied: see whether the world still is as it was left.
    async fn look(mut self, intent: &Intent, world: &World) -> Result<Action, ReconcileError> {
        let survey = {
            let Ok(_slot) = self.ctx.slots.checks.acquire().await else {
                return Ok(Action::await_change());
            };
            let goal = Goal::Up(intent);
            tokio::select! {
                survey = self.ctx.parts.engine.survey(&goal, world) => survey,
                cause = self.ctx.outdated(self.view) => return Ok(stopped(cause)),
            }
        };
        let survey = match survey {
            Ok(survey) => survey,
            Err(error) => return self.unseen(intent, &error).await,
        };
        let (mut findings, facts) = probe::probe(intent, &survey, true);
        if survey.plan.is_empty() || survey.plan.only_waits() {
            up_to_date(&mut findings);
            self.report(&findings, facts).await?;
            return Ok(self.ctx.settled(self.view));
        }
        let by = self.status.current().applied_by.clone();
        if by.as_deref().is_some_and(|by| by != RELEASE) {
            let message = format!(
                "this release of the operator would change (an edit of the spec lets it):\n{}",
                probe::differences(&survey.plan)
            );
            let kind = ConditionType::UpToDate;
            findings.set(kind, false, "UpdateAvailable", message);
            self.report(&findings, facts).await?;
            return Ok(self.ctx.settled(self.view));
        }
        self.report(&findings, facts).await?;
        self.apply(intent, world, findings).await
    }

    /// Brings the world to the spec. `base` is what a survey found just before, if one did.
    async fn apply(
        mut self,
        intent: &Intent,
        world: &World,
        base: Findings,
    ) -> Result<Action, ReconcileError> {
        let ctx = self.ctx;
        let slot = tokio::select! {
            slot = ctx.slots.changes.acquire() => slot,
            cause = ctx.outdated(self.view) => return Ok(stopped(cause)),
        };
        let Ok(_slot) = slot else {
            return Ok(Action::await_change());
        };
        let base = self.starting(base).await?;
        let goal = Goal::Up(intent);
        let ended = run::run(ctx, self.view, &goal, world, &mut self.status, &base, None).await;
        let cluster_id = self.status.identity(&*world.store).await;
        self.status
            .write(&base, |status| status.cluster_id = cluster_id)
            .await?;
        match ended {
            Ended::Engine(Ok(Outcome::Converged { .. })) => {
                let survey = ctx.parts.engine.survey(&goal, world).await;
                self.applied(intent, survey).await
            }
            Ended::Engine(Ok(Outcome::Stopped(cause))) | Ended::Dropped(cause) => {
                Ok(stopped(cause))
            }
            Ended::Engine(Ok(Outcome::ConsentRefused { disruptions })) => {
                let mut findings = base;
                let message = disruptions.join("\n");
                findings.set(ConditionType::UpToDate, false, "AwaitingApproval", message);
                self.report(&findings, probe::Facts::default()).await?;
                Ok(ctx.retry(self.view, Blame::User))
            }
            Ended::Engine(Ok(Outcome::RemovalIncomplete { left })) => {
                // Only a removal ends so; told as the hosts that do not answer.
                self.failed(&Error::HostsDown(left), base, false).await
            }
            Ended::Engine(Err(error)) => {
                let base = with_down_hosts(base, &error);
                self.failed(&error, base, false).await
            }
        }
    }

    /// What is said while a run is under way.
    async fn starting(&mut self, mut base: Findings) -> Result<Findings, ReconcileError> {
        base.set(
            ConditionType::ConfigValid,
            true,
            "Valid",
            "the config is valid",
        );
        if !self.status.provisioned() {
            let message = "the spec is not applied yet";
            base.set(ConditionType::Ready, false, Run::Apply.reason(), message);
        }
        let kind = ConditionType::UpToDate;
        base.set(kind, false, "RollingOut", "a run is under way");
        let mut findings = base.clone();
        let run = Run::Apply;
        findings.set(run.condition(), true, run.reason(), run.starting());
        let kubeconfig = self.view.name();
        self.status
            .write(&findings, |status| {
                status.kubeconfig_ref = Some(NameRef { name: kubeconfig });
                status.progress = None;
            })
            .await?;
        Ok(base)
    }

    /// A run came to its end: only here does `Provisioned` move on (invariant 14).
    async fn applied(
        mut self,
        intent: &Intent,
        survey: Result<Survey, Error>,
    ) -> Result<Action, ReconcileError> {
        let ready = probe_or_down(intent, survey);
        let (mut findings, facts, retry) = ready;
        let kind = ConditionType::Provisioned;
        findings.set(kind, true, "Applied", "the config was applied");
        self.status
            .write(&findings, |status| {
                facts.into_status(status);
                status.progress = None;
                status.applied_by = Some(RELEASE.to_owned());
            })
            .await?;
        let done = Notice::normal("Provisioned", "Apply", "the config was applied");
        publish(&self.ctx.recorder, &Context::reference(self.view), &done).await;
        Ok(match retry {
            Some(blame) => self.ctx.retry(self.view, blame),
            None => self.ctx.settled(self.view),
        })
    }

    /// A survey of a settled cluster failed: what cannot be seen is not claimed.
    async fn unseen(mut self, intent: &Intent, error: &Error) -> Result<Action, ReconcileError> {
        let (mut findings, facts) = blind(intent, error);
        findings.set(
            ConditionType::Reconciling,
            true,
            error.blame().reason(),
            "looks again by itself",
        );
        self.report(&findings, facts).await?;
        Ok(self.ctx.retry(self.view, error.blame()))
    }

    /// A run failed.
    async fn failed(
        mut self,
        error: &(impl Explain + 'static),
        mut findings: Findings,
        before_run: bool,
    ) -> Result<Action, ReconcileError> {
        let blame = error.blame();
        let text = explained(error);
        let reason = blame.reason();
        // A repair that fails does not unmake what the survey before it saw.
        let serves = self.status.provisioned()
            && findings.holds(ConditionType::Ready)
            && findings.holds(ConditionType::NodesReachable);
        if !serves {
            findings.set(ConditionType::Ready, false, reason, &text);
        }
        if !before_run {
            findings.set(ConditionType::UpToDate, false, reason, &text);
            if !self.status.provisioned() {
                findings.set(ConditionType::Provisioned, false, reason, &text);
            }
        }
        match blame {
            Blame::User => findings.set(ConditionType::Stalled, true, reason, &text),
            Blame::Host | Blame::Transient | Blame::Bug => {
                let message = "tries again by itself";
                findings.set(ConditionType::Reconciling, true, reason, message);
            }
        }
        self.status
            .write(&findings, |status| status.progress = None)
            .await?;
        let notice = Notice::warning(reason, "Apply", &text);
        publish(&self.ctx.recorder, &Context::reference(self.view), &notice).await;
        Ok(self.ctx.retry(self.view, blame))
    }

    async fn report(
        &mut self,
        findings: &Findings,
        facts: probe::Facts,
    ) -> Result<(), ReconcileError> {
        self.status
            .write(findings, |status| {
                facts.into_status(status);
                status.progress = None;
            })
            .await?;
        Ok(())
    }
}

impl probe::Facts {
    /// What is not known stays as it was; the count of nodes is always known.
    fn into_status(self, status: &mut ClusterStatus) {
        let Self {
            cluster_id,
            version,
            nodes,
            endpoint,
        } = self;
        for (field, fact) in [
            (&mut status.cluster_id, cluster_id),
            (&mut status.version, version),
            (&mut status.nodes, nodes),
            (&mut status.endpoint, endpoint),
        ] {
            if fact.is_some() {
                *field = fact;
            }
        }
    }
}

fn up_to_date(findings: &mut Findings) {
    let kind = ConditionType::UpToDate;
    findings.set(kind, true, "UpToDate", "the nodes carry what the spec says");
}

fn probe_or_down(
    intent: &Intent,
    survey: Result<Survey, Error>,
) -> (Findings, probe::Facts, Option<Blame>) {
    match survey {
        Ok(survey) => {
            let (mut findings, facts) = probe::probe(intent, &survey, true);
            if survey.plan.is_empty() || survey.plan.only_waits() {
                up_to_date(&mut findings);
            }
            (findings, facts, None)
        }
        Err(error) => {
            let (findings, facts) = blind(intent, &error);
            (findings, facts, Some(error.blame()))
        }
    }
}

/// The findings of a survey that failed.
fn blind(intent: &Intent, error: &Error) -> (Findings, probe::Facts) {
    let reason = error.blame().reason();
    let text = explained(error);
    let mut findings = with_down_hosts(Findings::new(), error);
    findings.set(ConditionType::Ready, false, reason, &text);
    for kind in [
        ConditionType::EtcdHealthy,
        ConditionType::ControlPlaneHealthy,
        ConditionType::NodesHealthy,
        ConditionType::AddonsApplied,
        ConditionType::UpToDate,
    ] {
        findings.set(kind, Truth::Unknown, reason, "cannot be seen at the moment");
    }
    let facts = probe::Facts {
        nodes: Some(format!("0/{}", intent.nodes.len())),
        ..probe::Facts::default()
    };
    (findings, facts)
}

/// Adds which nodes do not answer, when that is what the error is about.
fn with_down_hosts(mut findings: Findings, error: &Error) -> Findings {
    if let Error::HostsDown(down) = error {
        let down: BTreeMap<NodeName, Down> = down.iter().cloned().collect();
        probe::down(&down, &mut findings);
    }
    findings
}
