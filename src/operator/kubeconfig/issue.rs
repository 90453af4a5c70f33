//! A user's kubeconfig is made: the user bound in the Cluster, the certificate issued with the Cluster's CA, the Secret
//! written. What is wanted, whether it is stale and when it is renewed is decided elsewhere
//! ([`request`](super::request), [`pki::user_access`]).

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret as KubeSecret};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, PostParams},
    runtime::reflector::ObjectRef,
};

use super::{
    Again, Told, content, is_for,
    request::{self, Binding, Place, Refusal, Request},
    visit,
};
use crate::{
    api::{Kubeconfig, KubeconfigReason},
    desired::pki::{self, NewBecause, Seed, UserAccess, UserRequest},
    error::with_causes,
    operator::{
        applied,
        cluster_object::{ClusterObject, cluster_resource},
        context::{Context, ReconcileError, explained, owned_by},
        environment,
        events::{Notice, publish_about},
        memory::{self, Kept},
    },
    state::ClusterState,
};

/// The Cluster of that name, as the watch has it.
pub(super) fn cluster(ctx: &Context, name: &str) -> Option<ClusterObject> {
    let about = ObjectRef::new_with(name, cluster_resource());
    let object = ctx.caches.clusters.get(&about)?;
    Some(ClusterObject::new((*object).clone()))
}

fn waits(message: impl Into<String>) -> Refusal {
    Refusal {
        reason: KubeconfigReason::WaitingForCluster,
        message: message.into(),
    }
}

/// One pass over an object that requests a user's kubeconfig.
pub(super) async fn issue(
    ctx: &Context,
    live: &Kubeconfig,
    request: &Request,
) -> Result<Told, ReconcileError> {
    let told = |refusal: Refusal| {
        let told = Told::refused(refusal, Again::Resync);
        told.at(&request.secret).user(&request.user)
    };
    let (view, saved) = match its_cluster(ctx, &request.cluster).await {
        Ok(found) => found,
        Err(refusal) => return Ok(told(refusal)),
    };
    super::ensure_finalizer(ctx, live).await?;
    if let Some(refusal) = Box::pin(another_name(ctx, &view, &saved, request)).await? {
        return Ok(told(refusal));
    }
    let secret = match there(ctx, live, &request.secret).await? {
        Ok(secret) => secret,
        Err(refusal) => return Ok(told(refusal)),
    };
    let (name, uid) = (live.name_any(), live.uid().unwrap_or_default());
    let (binding, now_bound) = visit::bind(ctx, &view, &saved, (&name, &uid), request).await?;
    if now_bound {
        let note = format!(
            "`{}` is bound to ClusterRole `{}` in the Cluster `{}`",
            request.user, request.role, request.cluster
        );
        say(ctx, live, &Notice::normal("Bound", "Bind", &note)).await;
    }
    let before = secret.as_ref();
    let before = before.map(|secret| content::handed_out(secret, request.format));
    let before = before.unwrap_or_default();
    let unbound = request::unbound(request, &binding, before.pair.is_some());
    let again = match binding {
        Binding::Unseen { .. } => Again::Failed,
        Binding::Is | Binding::Taken => Again::Resync,
    };
    // Who is bound by nothing gets nothing; what was handed out goes on all the same.
    if let Some(refusal) = unbound.clone()
        && before.pair.is_none()
    {
        let told = Told::refused(refusal, again);
        return Ok(told.at(&request.secret).user(&request.user));
    }
    let wanted = UserRequest {
        user: &request.user,
        groups: &request.groups,
        life: request.life,
        server: request.server.as_deref(),
    };
    let seed = Seed::new((ctx.dependencies.entropy)());
    let access = match pki::user_access(&saved, &wanted, &before, ctx.now(), &seed) {
        Ok(access) => access,
        Err(error) => {
            let reason = KubeconfigReason::CannotSign;
            let message = explained(&error);
            return Ok(told(Refusal { reason, message }));
        }
    };
    if let Err(refusal) = write(ctx, live, request, secret, &access).await? {
        return Ok(told(refusal));
    }
    let told = match (unbound, &access.late) {
        (Some(refusal), _) => Told::refused(refusal, again),
        (None, Some(late)) => Told::refused(
            Refusal {
                reason: KubeconfigReason::Renewing,
                message: format!("it is not renewed: {}", explained(late)),
            },
            Again::Resync,
        ),
        (None, None) => {
            let wait = request::pause(ctx.now(), access.renew_at(), rand::random());
            Told::issued(Again::In(wait))
        }
    };
    Ok(told.at(&request.secret).access(&access))
}

/// The Cluster and its state, or what is waited for.
async fn its_cluster(
    ctx: &Context,
    name: &str,
) -> Result<(ClusterObject, Box<ClusterState>), Refusal> {
    let Some(view) = cluster(ctx, name) else {
        return Err(Refusal {
            reason: KubeconfigReason::ClusterNotFound,
            message: format!("there is no Cluster `{name}`"),
        });
    };
    if view.deleted_at().is_some() {
        return Err(waits(format!("the Cluster `{name}` is being deleted")));
    }
    match memory::read(ctx, &view).await {
        Ok(Kept::Ours(saved)) => Ok((view, saved)),
        Ok(Kept::Absent | Kept::Anothers(_)) => {
            Err(waits(format!("the Cluster `{name}` is not built yet")))
        }
        Err(error) => Err(Refusal {
            reason: KubeconfigReason::NotYetKnown,
            message: explained(&error),
        }),
    }
}

/// The API servers are not known by the host of the requested server: by the config that was applied, where it is kept.
async fn another_name(
    ctx: &Context,
    view: &ClusterObject,
    saved: &ClusterState,
    request: &Request,
) -> Result<Option<Refusal>, ReconcileError> {
    let Some(host) = request.server.as_deref().and_then(request::host) else {
        return Ok(None);
    };
    let unknown = |why: String| {
        Ok(Some(Refusal {
            reason: KubeconfigReason::NotYetKnown,
            message: format!("the names of the API servers are not known: {why}"),
        }))
    };
    let spec = match view.spec() {
        Ok(spec) => spec,
        Err(path) => return unknown(format!("`{path}` of the Cluster cannot be understood")),
    };
    let wanted = match environment::wanted(ctx, &view.name(), &spec).await {
        Ok(wanted) => wanted,
        Err(error) => return unknown(explained(&error)),
    };
    let former = applied::read(ctx, view, saved).await?;
    let former = former.and_then(|text| wanted.former(text).ok());
    let intent = former.map_or(wanted.intent, |former| former.intent);
    if pki::is_api_name(&intent, host) {
        return Ok(None);
    }
    Ok(Some(Refusal {
        reason: KubeconfigReason::ServerNotInCertificate,
        message: format!(
            "the API servers' certificate does not have the name `{host}`; hint: add it to `authentication.sans` of the \
             Cluster's config"
        ),
    }))
}

pub(super) fn secrets(ctx: &Context, place: &Place) -> Api<KubeSecret> {
    Api::namespaced(ctx.client.clone(), &place.namespace)
}

/// The Secret, if it is there and was made for this object.
async fn there(
    ctx: &Context,
    live: &Kubeconfig,
    place: &Place,
) -> Result<Result<Option<KubeSecret>, Refusal>, ReconcileError> {
    let found = match secrets(ctx, place).get_opt(&place.name).await {
        Ok(found) => found,
        Err(error) => return forbidden(ctx, place, error).map(Err),
    };
    Ok(match found {
        Some(secret) if !is_for(&secret, live) => Err(Refusal {
            reason: KubeconfigReason::SecretNotOurs,
            message: format!(
                "the Secret `{place}` was not made for this Kubeconfig and is left alone; hint: delete it, or create a \
                 Kubeconfig with another `secret.name`"
            ),
        }),
        found => Ok(found),
    })
}

/// A right that the operator lacks in a namespace that is not its own is that namespace's affair.
fn forbidden(ctx: &Context, place: &Place, error: kube::Error) -> Result<Refusal, ReconcileError> {
    let no = matches!(&error, kube::Error::Api(status) if status.is_forbidden());
    if !no || place.namespace == ctx.options.credentials_namespace {
        return Err(error.into());
    }
    Ok(Refusal {
        reason: KubeconfigReason::NamespaceNotAllowed,
        message: format!(
            "the operator may not write the Secret `{place}`: {}; hint: give its account a Role in `{}` to get, create, \
             update and delete Secrets",
            with_causes(&error),
            place.namespace
        ),
    })
}

/// Writes the Secret, where it is not as it must be.
async fn write(
    ctx: &Context,
    live: &Kubeconfig,
    request: &Request,
    there: Option<KubeSecret>,
    access: &UserAccess,
) -> Result<Result<(), Refusal>, ReconcileError> {
    let labels = content::labels(request);
    let data = content::data(access, request);
    let is_there = there.is_some();
    if there
        .as_ref()
        .is_some_and(|secret| content::has(secret, &labels, &data))
    {
        return Ok(Ok(()));
    }
    let place = &request.secret;
    let secret = filled(there, live, place, labels, data);
    let (api, params) = (secrets(ctx, place), PostParams::default());
    let written = if is_there {
        api.replace(&place.name, &params, &secret).await
    } else {
        api.create(&params, &secret).await
    };
    if let Err(error) = written {
        return forbidden(ctx, place, error).map(Err);
    }
    let what = match access.new {
        None => "what it leads to has changed",
        Some(NewBecause::None) => "issued",
        Some(NewBecause::Different) => "issued again, as what it was issued for has changed",
        Some(NewBecause::Renewal) => "renewed",
    };
    let note = format!(
        "the certificate of `{}` in the Secret `{place}`: {what}; it is valid until {}",
        request.user, access.expires
    );
    say(ctx, live, &Notice::normal("Issued", "Issue", &note)).await;
    Ok(Ok(()))
}

/// The Secret as it was read, which fails to be written when another came meanwhile, or a new one; what others added to
/// it stays.
fn filled(
    there: Option<KubeSecret>,
    live: &Kubeconfig,
    place: &Place,
    labels: BTreeMap<String, String>,
    data: BTreeMap<String, ByteString>,
) -> KubeSecret {
    let mut secret = there.unwrap_or_else(|| KubeSecret {
        metadata: ObjectMeta {
            name: Some(place.name.clone()),
            namespace: Some(place.namespace.clone()),
            owner_references: owned_by(live).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        ..KubeSecret::default()
    });
    secret.labels_mut().extend(labels);
    secret.data.get_or_insert_default().extend(data);
    secret
}

/// Publishes an event about an object.
pub(super) async fn say(ctx: &Context, object: &Kubeconfig, notice: &Notice) {
    let uid = object.uid().unwrap_or_default();
    publish_about(ctx, &uid, &super::reference(object), notice).await;
}
