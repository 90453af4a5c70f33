//! The `Kubeconfig` objects. The administrator's is made for every `Cluster` and goes with it; the runs for the cluster
//! write its Secret, and the object says whether it is there. Any other requests a user's: [`request`] says what that is
//! and whether it may be had, [`issue`] makes it, [`release`] revokes it.

mod content;
mod issue;
mod release;
mod request;
mod visit;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ObjectReference, Secret as KubeSecret},
    apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::DeserializeGuard,
};
use request::{Allowed, Place, Refusal, Wanted};
use serde_json::json;
pub(super) use visit::Visits;

use super::{
    cluster_object::ClusterObject,
    context::{Context, ReconcileError, labels, owned_by, with_finalizers},
    guarded,
    metrics::Controller,
    queue::{Action, Arrival, Cause, Class},
    reasons::{self, Reasoned},
};
use crate::{
    api::{
        GROUP, KUBECONFIG_KEY, Kubeconfig, KubeconfigReason, KubeconfigStatus, MANAGER, SecretRef,
        UNBIND, VERSION,
        conditions::{ConditionType, Reason, shorten},
        kubeconfig_secret,
    },
    desired::pki::{self, UserAccess},
    error::{ErrorClass, Explain, on_object},
    model::printable_lines,
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
    fn condition(&self) -> (ConditionType, Reason) {
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
        let owner = validate(&there, view);
        // One that an earlier release made is brought to the present form.
        let is_former = there.spec.cluster_ref.is_none() && made_for(&there, view);
        if owner.is_err() || !is_former {
            return Ok(owner);
        }
    }
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Kubeconfig",
        "metadata": {
            "name": name,
            "labels": labels(&name),
            "ownerReferences": [view.owner_reference()],
        },
        "spec": { "clusterRef": { "name": name } },
    });
    let params = PatchParams::apply(MANAGER).force();
    let made = api.patch(&name, &params, &Patch::Apply(&body)).await?;
    Ok(Ok(owned_by(&made)))
}

fn cluster_owner(there: &Kubeconfig) -> Option<&OwnerReference> {
    let mut owners = there.owner_references().iter();
    owners.find(|owner| owner.kind == "Cluster" && owner.api_version.starts_with(GROUP))
}

fn made_for(there: &Kubeconfig, view: &ClusterObject) -> bool {
    cluster_owner(there).is_some_and(|owner| Some(&owner.uid) == view.meta().uid.as_ref())
}

/// May the Secret go with this object?
fn validate(there: &Kubeconfig, view: &ClusterObject) -> Result<Option<OwnerReference>, Taken> {
    let name = there.name_any();
    let cluster = there.spec.cluster(&name);
    let asks_for_a_user = there.spec.user.is_some();
    match cluster_owner(there) {
        Some(owner) if Some(&owner.uid) == view.meta().uid.as_ref() => Ok(owned_by(there)),
        Some(_) => Err(Taken {
            name,
            what: "belongs to an earlier Cluster of this name and is still going away".to_owned(),
            class: ErrorClass::Transient,
        }),
        None if cluster == view.name() && !asks_for_a_user => Ok(owned_by(there)),
        None => Err(Taken {
            what: if asks_for_a_user {
                format!("is a user's for the Cluster `{cluster}`")
            } else {
                format!("is for the Cluster `{cluster}`")
            },
            name,
            class: ErrorClass::User,
        }),
    }
}

/// One pass over one `Kubeconfig`.
pub(super) async fn reconcile(
    object: Arc<DeserializeGuard<Kubeconfig>>,
    ctx: Arc<Context>,
) -> Action {
    let object = match &object.0 {
        Ok(object) => object,
        Err(error) => {
            tracing::warn!(%error, "a Kubeconfig cannot be understood");
            return Action::await_change();
        }
    };
    let pass = Box::pin(pass(object, &ctx));
    match guarded::caught(&ctx, Controller::Kubeconfig, pass).await {
        Ok(action) => action,
        Err(end) => {
            tracing::warn!(text = end.text, "a reconcile was interrupted");
            let uid = object.uid().unwrap_or_default();
            let wait = ctx.backoff.failed(&uid, end.class, rand::random());
            Action::retry(wait)
        }
    }
}

/// What an object needs that changed, or whose time has come.
pub(super) fn arrival(object: &DeserializeGuard<Kubeconfig>, cause: Cause) -> Arrival {
    let class = match cause {
        _ if object.meta().deletion_timestamp.is_some() => Class::Delete,
        Cause::Changed | Cause::Reference => Class::Change,
        Cause::Due => Class::Look,
    };
    Arrival {
        class,
        nodes: 0,
        hangs: false,
        settles: None,
    }
}

async fn pass(object: &Kubeconfig, ctx: &Context) -> Result<Action, ReconcileError> {
    let api: Api<Kubeconfig> = Api::all(ctx.client.clone());
    let name = object.name_any();
    let uid = object.uid().unwrap_or_default();
    let Some(live) = api.get_opt(&name).await? else {
        ctx.visits.forget(&uid);
        ctx.backoff.forget(&uid);
        return Ok(Action::await_change());
    };
    if live.metadata.deletion_timestamp.is_some() {
        return Box::pin(release::release(ctx, &live)).await;
    }
    let options = &ctx.options;
    let allowed = Allowed {
        credentials: &options.credentials_namespace,
        own: &options.namespace,
        namespaces: &options.kubeconfig_namespaces,
        groups: &options.kubeconfig_groups,
    };
    let told = match request::wanted(&name, &live.spec, &allowed) {
        Ok(Wanted::Administrator) => administrator(ctx, &live).await?,
        Ok(Wanted::User(request)) => Box::pin(issue::issue(ctx, &live, &request)).await?,
        // A spec that is not allowed stays so until it is edited, or the operator is restarted.
        Err(refusal) => Told::refused(refusal, Again::Never),
    };
    write_status(ctx, &live, &told).await?;
    if !matches!(told.again, Again::Failed) {
        ctx.backoff.forget(&uid);
    }
    Ok(match told.again {
        Again::Never => Action::await_change(),
        Again::In(wait) => Action::requeue(wait),
        Again::Resync => Action::requeue(ctx.options.resync),
        Again::Failed => {
            let wait = ctx.backoff.failed(&uid, ErrorClass::Host, rand::random());
            Action::retry(wait)
        }
    })
}

/// When an object is passed over again, besides when it changes.
#[derive(Clone, Copy, Debug)]
enum Again {
    Never,
    In(Duration),
    Resync,
    /// As after a failure, later each time.
    Failed,
}

/// What a pass found, for the status.
struct Told {
    reason: KubeconfigReason,
    message: String,
    secret: Option<Place>,
    user: Option<String>,
    server: Option<String>,
    /// When the certificate was issued, when it expires and when it is renewed.
    dates: Option<[Timestamp; 3]>,
    again: Again,
}

impl Told {
    fn issued(again: Again) -> Self {
        let reason = KubeconfigReason::Issued;
        let message = "the Secret has the kubeconfig".to_owned();
        Self::refused(Refusal { reason, message }, again)
    }

    fn refused(Refusal { reason, message }: Refusal, again: Again) -> Self {
        Self {
            reason,
            message: shorten(&printable_lines(&on_object(&message)), MESSAGE),
            secret: None,
            user: None,
            server: None,
            dates: None,
            again,
        }
    }

    fn at(self, secret: &Place) -> Self {
        let secret = Some(secret.clone());
        Self { secret, ..self }
    }

    fn user(self, user: &str) -> Self {
        let user = Some(user.to_owned());
        Self { user, ..self }
    }

    fn access(self, access: &UserAccess) -> Self {
        Self {
            user: Some(access.user.clone()),
            server: Some(access.server().to_owned()),
            dates: Some([access.issued, access.expires, access.renew_at()]),
            ..self
        }
    }
}

/// The longest message that is written, in bytes.
const MESSAGE: usize = 2048;

/// Writes what a pass found, where it is not what the status says already.
async fn write_status(ctx: &Context, live: &Kubeconfig, told: &Told) -> Result<(), ReconcileError> {
    let next = status(live, told, ctx.dependencies.clock.now());
    if live.status.as_ref() == Some(&next) {
        return Ok(());
    }
    let api: Api<Kubeconfig> = Api::all(ctx.client.clone());
    let name = live.name_any();
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Kubeconfig",
        "metadata": { "name": name, "uid": live.metadata.uid },
        "status": next,
    });
    let params = PatchParams::apply(MANAGER).force();
    api.patch_status(&name, &params, &Patch::Apply(&body))
        .await?;
    Ok(())
}

fn status(object: &Kubeconfig, told: &Told, now: Timestamp) -> KubeconfigStatus {
    let generation = object.meta().generation;
    let old = object.status.as_ref().map(|status| &status.conditions);
    let condition = |kind: &str, status: &str| {
        let mut old = old.into_iter().flatten();
        let same = old.find(|old| old.type_ == kind && old.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: told.reason.name().to_owned(),
            message: told.message.clone(),
            observed_generation: generation,
            last_transition_time: same
                .map_or_else(|| Time(now), |old| old.last_transition_time.clone()),
        }
    };
    let ready = condition("Ready", told.reason.ready().name());
    let also = told.reason.also().map(|kind| condition(kind, "True"));
    let [issued_at, expires_at, renew_at] = told.dates.map_or_else(Default::default, |dates| {
        dates.map(|date| Some(date.to_string()))
    });
    let next = KubeconfigStatus {
        observed_generation: generation,
        conditions: std::iter::once(ready).chain(also).collect(),
        secret_ref: told.secret.as_ref().map(|place| SecretRef {
            name: place.name.clone(),
            namespace: Some(place.namespace.clone()),
        }),
        user: told.user.clone(),
        server: told.server.clone(),
        issued_at,
        expires_at,
        renew_at,
    };
    match &object.status {
        // The issued kubeconfig is valid until then, even if its Secret or its Cluster is gone.
        Some(old) if told.dates.is_none() => KubeconfigStatus {
            user: next.user.or_else(|| old.user.clone()),
            server: next.server.or_else(|| old.server.clone()),
            issued_at: old.issued_at.clone(),
            expires_at: old.expires_at.clone(),
            renew_at: old.renew_at.clone(),
            ..next
        },
        Some(_) | None => next,
    }
}

fn content(secret: &KubeSecret) -> Option<&ByteString> {
    secret.data.as_ref()?.get(KUBECONFIG_KEY)
}

/// True for a Secret that was made for this object.
fn is_for(secret: &KubeSecret, object: &Kubeconfig) -> bool {
    let mut owners = secret.owner_references().iter();
    owners.any(|owner| Some(&owner.uid) == object.metadata.uid.as_ref())
}

/// Looks for the administrator's Secret. The run for the cluster makes it, under the cluster's own name; nothing is made
/// here, so that no object gives anybody the administrator's kubeconfig.
async fn administrator(ctx: &Context, object: &Kubeconfig) -> Result<Told, ReconcileError> {
    let cluster = object.name_any();
    let credentials = &ctx.options.credentials_namespace;
    let place = Place {
        name: kubeconfig_secret(&cluster),
        namespace: credentials.clone(),
    };
    let refused = |reason, message: String| {
        let told = Told::refused(Refusal { reason, message }, Again::Resync);
        told.at(&place)
    };
    let there = issue::secrets(ctx, &place).get_opt(&place.name).await?;
    Ok(match there {
        Some(there) if !is_for(&there, object) => refused(
            KubeconfigReason::SecretNotOurs,
            format!(
                "the Secret `{place}` was not made for this Kubeconfig and is left alone; hint: delete it, or give this \
                 Kubeconfig another name"
            ),
        ),
        Some(there) if content(&there).is_some() => {
            let text = content(&there).and_then(|bytes| std::str::from_utf8(&bytes.0).ok());
            let shown = text.and_then(pki::shown);
            let told = Told::issued(Again::Never).at(&place);
            match shown {
                Some(shown) => Told {
                    dates: Some([shown.issued, shown.expires, shown.renew_at()]),
                    user: Some(shown.user),
                    server: Some(shown.server),
                    ..told
                },
                None => told,
            }
        }
        Some(_) | None => match issue::cluster(ctx, &cluster) {
            Some(_) => refused(
                KubeconfigReason::WaitingForCluster,
                format!("the Cluster `{cluster}` has no kubeconfig yet"),
            ),
            None => refused(
                KubeconfigReason::ClusterNotFound,
                format!("there is no Cluster `{cluster}`"),
            ),
        },
    })
}

/// Puts the finalizer on, before the user is bound: from here on a deletion comes to us.
async fn ensure_finalizer(ctx: &Context, live: &Kubeconfig) -> Result<(), ReconcileError> {
    if live.finalizers().iter().any(|name| name == UNBIND) {
        return Ok(());
    }
    let mut finalizers = live.finalizers().to_vec();
    finalizers.push(UNBIND.to_owned());
    let patch = with_finalizers(&live.metadata, &finalizers);
    let api: Api<Kubeconfig> = Api::all(ctx.client.clone());
    let params = PatchParams::default();
    api.patch(&live.name_any(), &params, &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// What an event about an object names.
fn reference(object: &Kubeconfig) -> ObjectReference {
    object.object_ref(&())
}

/// The Kubeconfigs that a Secret of the credentials' namespace is about: the one that it was made for, and where it is the
/// administrator's, which is written again when the CA or the control planes change, all of that Cluster.
pub(super) fn is_about(
    object: &DeserializeGuard<Kubeconfig>,
    secret: &str,
    credentials: &str,
) -> bool {
    let name = object.name_any();
    if kubeconfig_secret(&name) == secret {
        return true;
    }
    let Ok(object) = &object.0 else {
        return false;
    };
    let place = request::place(&name, &object.spec, credentials);
    let is_its_own = place.name == secret && place.namespace == credentials;
    is_its_own || kubeconfig_secret(object.spec.cluster(&name)) == secret
}
