//! The `ClusterOperation`s of a `Cluster`. They have no separate reconcile: the Cluster's carries out the oldest one
//! before it looks at anything else, so that one thing at a time is done to a cluster. Here: which that is, and what is
//! reported of it. What it asks of a run is an [`Errand`].
//!
//! An operation is done once. That it was begun is in the state, by its name: another object of that name, which a backup
//! or Argo CD creates, is refused.

mod errand;

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

pub(super) use errand::{AtOnce, Errand, Replacement};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::DeserializeGuard,
    runtime::reflector::ObjectRef,
};
use serde_json::json;

use super::{
    cluster_object::ClusterObject,
    context::{Context, ReconcileError},
    queue::Action,
};
use crate::{
    api::{
        ClusterOperation, ClusterOperationStatus, GROUP, MANAGER, OperationPhase, OperationPlan,
        OperationReason, VERSION, conditions::shorten,
    },
    error::{on_object, with_causes},
    model::printable_lines,
};

/// The longest message that is written, in bytes.
const MESSAGE: usize = 2048;

/// What is reported of an operation.
pub(super) struct Told {
    pub(super) reason: OperationReason,
    pub(super) message: String,
    /// When it began to change something.
    pub(super) began: Option<Timestamp>,
    /// The last one that was made before that.
    pub(super) plan: Option<OperationPlan>,
}

impl Told {
    /// About one that has changed nothing.
    pub(super) fn new(reason: OperationReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            began: None,
            plan: None,
        }
    }
}

fn api(ctx: &Context) -> Api<ClusterOperation> {
    Api::all(ctx.client.clone())
}

/// What a pass over its Cluster depends on; our own writes are not among it.
pub(super) fn what_matters(object: &DeserializeGuard<ClusterOperation>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let meta = object.meta();
    meta.uid.hash(&mut hasher);
    meta.generation.hash(&mut hasher);
    meta.deletion_timestamp.is_some().hash(&mut hasher);
    hasher.finish()
}

/// Which Clusters the operations are about, those that are gone included.
#[derive(Default)]
pub(super) struct Subjects(HashMap<String, String>);

impl Subjects {
    /// The Cluster of an operation that changed, came or went.
    pub(super) fn touched(&mut self, ctx: &Context, name: &str) -> Option<String> {
        match get(ctx, name) {
            Some(there) => {
                let cluster = there.spec.cluster_ref.name;
                self.0.insert(name.to_owned(), cluster.clone());
                Some(cluster)
            }
            None => self.0.remove(name),
        }
    }
}

/// As the watch has it; `None` also for one that cannot be understood.
fn get(ctx: &Context, name: &str) -> Option<ClusterOperation> {
    let object = ctx.caches.operations.get(&ObjectRef::new(name))?;
    object.0.as_ref().ok().cloned()
}

/// True for one that its run must not go on with.
pub(super) fn is_withdrawn(ctx: &Context, name: &str, uid: &str) -> bool {
    get(ctx, name).is_none_or(|now| {
        let is_other = now.uid().as_deref() != Some(uid);
        is_other || now.metadata.deletion_timestamp.is_some() || now.spec.paused == Some(true)
    })
}

fn phase(object: &ClusterOperation) -> OperationPhase {
    let status = object.status.as_ref();
    status.and_then(|status| status.phase).unwrap_or_default()
}

/// Those of a Cluster, the oldest first.
fn of(ctx: &Context, cluster: &str) -> Vec<ClusterOperation> {
    let all = ctx.caches.operations.state();
    let all = all.iter().filter_map(|object| object.0.as_ref().ok());
    let is_of = |object: &&ClusterOperation| object.spec.cluster_ref.name == cluster;
    let mut found: Vec<_> = all.filter(is_of).cloned().collect();
    found.sort_by_key(|object| {
        let created = object.metadata.creation_timestamp.as_ref();
        (created.map(|at| at.0), object.name_any())
    });
    found
}

fn waits(object: &ClusterOperation) -> bool {
    !phase(object).is_finished() && object.metadata.deletion_timestamp.is_none()
}

/// True where an operation waits for a Cluster of that name.
pub(super) fn waits_for(ctx: &Context, cluster: &str) -> bool {
    of(ctx, cluster).iter().any(waits)
}

/// The one that is next, as it is now; the others report that they wait, and those whose time is over are deleted.
pub(super) async fn next(
    ctx: &Context,
    view: &ClusterObject,
) -> Result<Option<ClusterOperation>, ReconcileError> {
    let all = of(ctx, &view.name());
    expire(ctx, &all).await?;
    let mut next: Option<ClusterOperation> = None;
    for seen in all.iter().filter(|one| waits(one)) {
        adopt(ctx, view, seen).await?;
        if let Some(first) = &next {
            let text = format!("waits for the operation `{}`", first.name_any());
            let told = Told::new(OperationReason::Queued, text);
            tell(ctx, seen, &told).await?;
            continue;
        }
        // The cache may be behind what was written: what ended does not begin again.
        let Some(live) = api(ctx).get_opt(&seen.name_any()).await? else {
            continue;
        };
        if !waits(&live) || live.uid() != seen.uid() {
            continue;
        }
        if live.spec.paused == Some(true) {
            let told = Told::new(OperationReason::Paused, "the spec says `paused: true`");
            tell(ctx, &live, &told).await?;
            continue;
        }
        next = Some(live);
    }
    Ok(next)
}

/// Tells those that wait for a Cluster why none of them runs.
pub(super) async fn wait(ctx: &Context, cluster: &str, why: &str) -> Result<(), ReconcileError> {
    for one in of(ctx, cluster).iter().filter(|one| waits(one)) {
        tell(ctx, one, &Told::new(OperationReason::Queued, why)).await?;
    }
    Ok(())
}

/// There is no such Cluster.
pub(super) async fn without_cluster(ctx: &Context, cluster: &str) -> Action {
    let why = format!("there is no Cluster `{cluster}`");
    match wait(ctx, cluster, &why).await {
        Ok(()) => Action::await_change(),
        Err(error) => {
            tracing::warn!(
                error = with_causes(&error.0),
                "cannot write the status of an operation"
            );
            Action::requeue(ctx.options.resync)
        }
    }
}

/// Deletes the objects that were to be kept only so long.
async fn expire(ctx: &Context, all: &[ClusterOperation]) -> Result<(), ReconcileError> {
    let now = ctx.dependencies.clock.now();
    for one in all.iter().filter(|one| is_expired(one, now)) {
        let preconditions = Preconditions {
            uid: one.uid(),
            resource_version: None,
        };
        let params = DeleteParams::default().preconditions(preconditions);
        unless_gone(api(ctx).delete(&one.name_any(), &params).await)?;
    }
    Ok(())
}

fn is_expired(object: &ClusterOperation, now: Timestamp) -> bool {
    let status = object.status.as_ref();
    let ended = status.and_then(|status| status.finished_at.as_ref()?.parse::<Timestamp>().ok());
    let kept = object.spec.ttl_seconds_after_finished;
    let kept = kept.map(SignedDuration::from_secs);
    phase(object).is_finished()
        && object.metadata.deletion_timestamp.is_none()
        && ended
            .zip(kept)
            .is_some_and(|(ended, kept)| now.duration_since(ended) >= kept)
}

/// Makes it go with its Cluster: a Cluster of the same name that comes later is not what it was meant for.
async fn adopt(
    ctx: &Context,
    view: &ClusterObject,
    object: &ClusterOperation,
) -> Result<(), ReconcileError> {
    let owner = view.owner_reference();
    if object
        .owner_references()
        .iter()
        .any(|it| it.uid == owner.uid)
    {
        return Ok(());
    }
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "ClusterOperation",
        "metadata": {
            "name": object.name_any(),
            "uid": object.metadata.uid,
            "ownerReferences": [owner],
        },
    });
    let params = PatchParams::apply(MANAGER).force();
    let name = object.name_any();
    let patched = api(ctx).patch(&name, &params, &Patch::Apply(&body)).await;
    unless_gone(patched)
}

/// An object that was deleted meanwhile, or whose name another one has, is no matter of its Cluster's any more.
fn unless_gone<T>(answer: kube::Result<T>) -> Result<(), ReconcileError> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// Writes what is reported of it, if that is news.
pub(super) async fn tell(
    ctx: &Context,
    object: &ClusterOperation,
    told: &Told,
) -> Result<(), ReconcileError> {
    let next = status(object, told, ctx.dependencies.clock.now());
    if object.status.as_ref() == Some(&next) {
        return Ok(());
    }
    let name = object.name_any();
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "ClusterOperation",
        "metadata": { "name": name, "uid": object.metadata.uid },
        "status": next,
    });
    let params = PatchParams::apply(MANAGER).force();
    let api = api(ctx);
    let body = Patch::Apply(&body);
    unless_gone(api.patch_status(&name, &params, &body).await)
}

fn status(object: &ClusterOperation, told: &Told, now: Timestamp) -> ClusterOperationStatus {
    let old = object.status.clone().unwrap_or_default();
    let phase = told.reason.phase(told.began.is_some());
    let message = shorten(&printable_lines(&on_object(&told.message)), MESSAGE);
    let generation = object.metadata.generation;
    let condition = |kind: &str, status: &str| {
        let mut old = old.conditions.iter();
        let same = old.find(|old| old.type_ == kind && old.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: told.reason.name().to_owned(),
            message: message.clone(),
            observed_generation: generation,
            last_transition_time: same
                .map_or_else(|| Time(now), |old| old.last_transition_time.clone()),
        }
    };
    let conditions = match phase {
        OperationPhase::Pending | OperationPhase::Running => {
            vec![
                condition("Complete", "False"),
                condition("Reconciling", "True"),
            ]
        }
        OperationPhase::Succeeded => vec![condition("Complete", "True")],
        OperationPhase::Failed | OperationPhase::Refused => {
            vec![condition("Complete", "False"), condition("Stalled", "True")]
        }
    };
    ClusterOperationStatus {
        observed_generation: generation,
        phase: Some(phase),
        started_at: told.began.map(|at| at.to_string()).or(old.started_at),
        finished_at: old
            .finished_at
            .or_else(|| phase.is_finished().then(|| now.to_string())),
        plan: told.plan.clone().or(old.plan),
        conditions,
    }
}
