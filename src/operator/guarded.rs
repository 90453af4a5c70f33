//! Contains failures of a reconcile: a refusal of the management API and a panic are reported on the object
//! and retried with backoff, and neither affects another cluster.

use std::{any::Any, panic::AssertUnwindSafe};

use futures::FutureExt;
use kube::{ResourceExt, api::DynamicObject};

use super::{
    cluster_object::ClusterObject,
    context::{Context, ReconcileError},
    events::{Notice, publish},
    metrics::{Controller, Reconciled},
    queue::Action,
    reasons, removal,
    status::StatusWriter,
};
use crate::{
    api::conditions::{ConditionSet, ConditionType, Reason},
    error::{ErrorClass, with_causes},
};

/// Why a reconcile was interrupted.
pub(super) struct Interrupted {
    pub(super) class: ErrorClass,
    condition: (ConditionType, Reason),
    pub(super) text: String,
}

impl Interrupted {
    fn by_api(error: &ReconcileError) -> Self {
        let text = with_causes(&error.0);
        // A right that the account lacks comes with a person, not with time.
        let forbidden = matches!(&error.0, kube::Error::Api(status) if status.is_forbidden());
        if forbidden {
            return Self {
                class: ErrorClass::Host,
                condition: (ConditionType::Stalled, Reason::PermissionDenied),
                text: format!(
                    "the management cluster refused: {text}; hint: give the operator's account \
                     this right"
                ),
            };
        }
        let class = ErrorClass::Transient;
        Self {
            class,
            condition: reasons::by_class(class, Reason::PermissionDenied),
            text: format!("the management cluster: {text}"),
        }
    }

    fn by_panic(panic: &(dyn Any + Send)) -> Self {
        let why = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        let class = ErrorClass::Bug;
        // The message of a panic may quote anything: it goes to the log only.
        tracing::error!(why, "a reconcile panicked");
        Self {
            class,
            condition: reasons::by_class(class, Reason::InternalError),
            text: "the operator has a bug and gave up on this reconcile; its log has the details"
                .to_owned(),
        }
    }
}

/// Runs a reconcile to its end, whatever its result, and counts it.
pub(super) async fn caught(
    ctx: &Context,
    controller: Controller,
    pass: impl Future<Output = Result<Action, ReconcileError>>,
) -> Result<Action, Interrupted> {
    let counted = ctx.health.metrics.begins(controller);
    let ended = match AssertUnwindSafe(pass).catch_unwind().await {
        Ok(Ok(action)) => Ok(action),
        Ok(Err(error)) => Err(Interrupted::by_api(&error)),
        Err(panic) => Err(Interrupted::by_panic(&*panic)),
    };
    counted.ended(match &ended {
        Ok(Action::AwaitChange) => Reconciled::Success,
        Ok(Action::InLine(..)) => Reconciled::Requeue,
        Ok(Action::Requeue(_) | Action::Retry(_)) => Reconciled::RequeueAfter,
        Err(_) => Reconciled::Error,
    });
    ended
}

/// Reports an interrupted reconcile on its `Cluster`, as far as the API allows it, and returns when to try
/// again.
pub(super) async fn told(ctx: &Context, object: &DynamicObject, end: Interrupted) -> Action {
    let Interrupted {
        class,
        condition,
        text,
    } = end;
    let name = object.name_any();
    tracing::warn!(reason = %condition.1, text, "a reconcile was interrupted");
    let mut seen = ClusterObject::new(object.clone());
    match ctx.clusters.get_opt(&name).await {
        Ok(Some(live)) if live.metadata.uid == object.metadata.uid => {
            let view = ClusterObject::new(live);
            seen = view.clone();
            let mut status = StatusWriter::new(ctx, &view);
            // What a look saw a moment ago still stands, for what passes in a moment.
            let stands = class == ErrorClass::Transient && ctx.has_just_looked_at(&view);
            let mut conditions = if stands || view.deleted_at().is_some() {
                ConditionSet::new()
            } else {
                reasons::unseen("nothing was looked at: see Stalled or Reconciling")
            };
            reasons::note(&mut conditions, condition, &text);
            let written = status
                .write(&conditions, |status| status.progress = None)
                .await;
            if let Err(error) = written {
                let error = with_causes(&error);
                tracing::warn!(error, "and that cannot be written");
            }
            if condition.0 == ConditionType::Stalled {
                let notice = Notice::warning(condition.1.name(), "Reconcile", &text);
                publish(ctx, &view, &notice).await;
            }
        }
        // Gone, replaced, or the API does not answer: there is nowhere to tell it.
        Ok(_) | Err(_) => {}
    }
    let uid = object.uid().unwrap_or_default();
    let wait = ctx.backoff.failed(&uid, class, rand::random());
    // No deletion is late for what went wrong in a pass; one that is late already is tried at its pace.
    let left = removal::time_left(ctx, &seen).filter(|left| !left.is_zero());
    Action::retry(left.map_or(wait, |left| wait.min(left)))
}
