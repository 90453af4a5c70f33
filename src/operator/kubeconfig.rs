//! The `Kubeconfig` objects: one is made for every `Cluster` and goes with it; each has a Secret
//! `<name>-kubeconfig` in the credentials' namespace, and says whether it is there.

use std::sync::Arc;

use k8s_openapi::{
    ByteString,
    api::core::v1::Secret as KubeSecret,
    apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::DeserializeGuard,
    runtime::{controller::Action, reflector::ObjectRef},
};
use serde_json::json;

use super::{
    cluster_object::{ClusterObject, cluster_resource},
    context::{Context, ReconcileError, labels, owned_by},
    guarded,
    metrics::Controller,
    reasons::{self, Reasoned},
};
use crate::{
    api::{
        GROUP, KUBECONFIG_KEY, Kubeconfig, KubeconfigReason, KubeconfigStatus, MANAGER, NameRef,
        VERSION,
        conditions::{ConditionType, Reason},
        kubeconfig_secret,
    },
    error::{ErrorClass, Explain},
};

/// Someone else's object has the name.
#[derive(Debug, thiserror::Error)]
#[error("the Kubeconfig `{name}` {what}")]
pub(super) struct Taken {
    name: String,
    what: String,
    class: ErrorClass,
}

impl Explain for Taken {
    fn class(&self) -> ErrorClass {
        self.class
    }

    fn hints(&self) -> Vec<std::borrow::Cow<'static, str>> {
        match self.class {
            ErrorClass::User => vec![
                format!(
                    "delete it or give it another name: `kubectl delete rkek {}`",
                    self.name
                )
                .into(),
            ],
            ErrorClass::Host | ErrorClass::Transient | ErrorClass::Bug => Vec::new(),
        }
    }
}

impl Reasoned for Taken {
    fn verdict(&self) -> (ConditionType, Reason) {
        reasons::by_class(self.class, Reason::NameTaken)
    }
}

/// Makes the `Kubeconfig` of a `Cluster`; the reference is for its Secret.
pub(super) async fn ensure(
    ctx: &Context,
    view: &ClusterObject,
) -> Result<Result<Option<OwnerReference>, Taken>, ReconcileError> {
    let api: Api<Kubeconfig> = Api::all(ctx.client.clone());
    let name = view.name();
    if let Some(there) = api.get_opt(&name).await? {
        return Ok(validate(&there, view));
    }
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Kubeconfig",
        "metadata": {
            "name": name,
            "labels": labels(&name),
            "ownerReferences": [view.owner_reference()],
        },
        "spec": { "clusterName": name },
    });
    let params = PatchParams::apply(MANAGER).force();
    let made = api.patch(&name, &params, &Patch::Apply(&body)).await?;
    Ok(Ok(owned_by(&made)))
}

/// May the Secret go with this object?
fn validate(there: &Kubeconfig, view: &ClusterObject) -> Result<Option<OwnerReference>, Taken> {
    let name = there.name_any();
    let owner = there
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "Cluster" && owner.api_version.starts_with(GROUP));
    match owner {
        Some(owner) if Some(&owner.uid) == view.meta().uid.as_ref() => Ok(owned_by(there)),
        Some(_) => Err(Taken {
            name,
            what: "belongs to an earlier Cluster of this name and is still going away".to_owned(),
            class: ErrorClass::Transient,
        }),
        None if there.spec.cluster_name == view.name() => Ok(owned_by(there)),
        None => Err(Taken {
            name,
            what: format!("is for the Cluster `{}`", there.spec.cluster_name),
            class: ErrorClass::User,
        }),
    }
}

/// One pass over one `Kubeconfig`: `Ready` says whether its Secret is there.
pub(super) async fn reconcile(
    object: Arc<DeserializeGuard<Kubeconfig>>,
    ctx: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let object = match &object.0 {
        Ok(object) => object,
        Err(error) => {
            tracing::warn!(%error, "a Kubeconfig cannot be understood");
            return Ok(Action::await_change());
        }
    };
    match guarded::caught(&ctx, Controller::Kubeconfig, pass(object, &ctx)).await {
        Ok(action) => {
            ctx.backoff.forget(&object.uid().unwrap_or_default());
            Ok(action)
        }
        Err(end) => {
            tracing::warn!(text = end.text, "a pass did not end");
            let uid = object.uid().unwrap_or_default();
            let wait = ctx.backoff.failed(&uid, end.class, rand::random());
            Ok(Action::requeue(wait))
        }
    }
}

async fn pass(object: &Kubeconfig, ctx: &Context) -> Result<Action, ReconcileError> {
    let api: Api<Kubeconfig> = Api::all(ctx.client.clone());
    let name = object.name_any();
    let Some(live) = api.get_opt(&name).await? else {
        return Ok(Action::await_change());
    };
    if live.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let found = secret(ctx, &live).await?;
    let next = status(&live, found, ctx);
    if live.status.as_ref() != Some(&next) {
        let body = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "Kubeconfig",
            "metadata": { "name": name, "uid": live.metadata.uid },
            "status": next,
        });
        let params = PatchParams::apply(MANAGER).force();
        api.patch_status(&name, &params, &Patch::Apply(&body))
            .await?;
    }
    Ok(match found {
        // A name that is not allowed stays so: both are immutable.
        KubeconfigReason::Issued | KubeconfigReason::NameNotAllowed => Action::await_change(),
        KubeconfigReason::WaitingForCluster
        | KubeconfigReason::ClusterNotFound
        | KubeconfigReason::SecretNotOurs => Action::requeue(ctx.options.resync),
    })
}

fn content(secret: &KubeSecret) -> Option<&ByteString> {
    secret.data.as_ref()?.get(KUBECONFIG_KEY)
}

/// True for a Secret that was made for this object.
fn is_for(secret: &KubeSecret, object: &Kubeconfig) -> bool {
    let mut owners = secret.owner_references().iter();
    owners.any(|owner| Some(&owner.uid) == object.metadata.uid.as_ref())
}

/// Looks for the Secret of a `Kubeconfig`. The run for the cluster makes it, under the cluster's own
/// name; nothing is made here, so that no name of an object gives anybody a kubeconfig.
async fn secret(ctx: &Context, object: &Kubeconfig) -> Result<KubeconfigReason, ReconcileError> {
    let cluster = &object.spec.cluster_name;
    if *cluster != object.name_any() {
        return Ok(KubeconfigReason::NameNotAllowed);
    }
    let secrets: Api<KubeSecret> =
        Api::namespaced(ctx.client.clone(), &ctx.options.credentials_namespace);
    let there = secrets.get_opt(&kubeconfig_secret(cluster)).await?;
    Ok(match there {
        Some(there) if !is_for(&there, object) => KubeconfigReason::SecretNotOurs,
        Some(there) if content(&there).is_some() => KubeconfigReason::Issued,
        Some(_) | None => {
            let about = ObjectRef::new_with(cluster, cluster_resource());
            match ctx.caches.clusters.get(&about) {
                Some(_) => KubeconfigReason::WaitingForCluster,
                None => KubeconfigReason::ClusterNotFound,
            }
        }
    })
}

fn status(object: &Kubeconfig, found: KubeconfigReason, ctx: &Context) -> KubeconfigStatus {
    let old = object
        .status
        .as_ref()
        .and_then(|status| status.conditions.first());
    let word = match found {
        KubeconfigReason::Issued => "True",
        KubeconfigReason::WaitingForCluster
        | KubeconfigReason::ClusterNotFound
        | KubeconfigReason::SecretNotOurs
        | KubeconfigReason::NameNotAllowed => "False",
    };
    let since = old.filter(|old| old.status == word).map_or_else(
        || Time(ctx.dependencies.clock.now()),
        |old| old.last_transition_time.clone(),
    );
    let cluster = &object.spec.cluster_name;
    let secret = kubeconfig_secret(&object.name_any());
    let message = match found {
        KubeconfigReason::Issued => "the Secret has the kubeconfig".to_owned(),
        KubeconfigReason::WaitingForCluster => {
            format!("the Cluster `{cluster}` has no kubeconfig yet")
        }
        KubeconfigReason::ClusterNotFound => format!("there is no Cluster `{cluster}`"),
        KubeconfigReason::SecretNotOurs => format!(
            "the Secret `{}/{secret}` was not made for this Kubeconfig and is left alone; hint: \
             delete it, or give this Kubeconfig another name",
            ctx.options.credentials_namespace
        ),
        KubeconfigReason::NameNotAllowed => format!(
            "a Kubeconfig has the name of its Cluster: `{cluster}` has one already; hint: delete \
             this one"
        ),
    };
    let generation = object.meta().generation;
    KubeconfigStatus {
        observed_generation: generation,
        conditions: vec![Condition {
            type_: "Ready".to_owned(),
            status: word.to_owned(),
            reason: found.name().to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: since,
        }],
        secret_ref: (found != KubeconfigReason::NameNotAllowed).then_some(NameRef { name: secret }),
    }
}
