//! The end of a user's kubeconfig: its Secret deleted, and the user unbound in the Cluster, which is what revokes it. That
//! is tried for a while; then the object goes all the same, with an event that names what is left.

use jiff::SignedDuration;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};

use super::{
    Again, Told, is_for, issue,
    request::{self, Refusal},
    visit,
};
use crate::{
    api::{Kubeconfig, KubeconfigReason, UNBIND},
    error::{ErrorClass, with_causes},
    operator::{
        cluster_object::ClusterObject,
        context::{Context, ReconcileError, explained, with_finalizers},
        events::Notice,
        memory::{self, Kept},
        queue::Action,
    },
    workload::UserBinding,
};

/// How long it is tried, counted from the deletion; one attempt always takes place.
const LIMIT: SignedDuration = SignedDuration::from_mins(10);

/// The result of deleting the user's binding.
enum Unbound {
    /// It is gone.
    Done,
    /// There is no Cluster to visit any more, or there never was one.
    Gone,
    /// It may be there; why.
    Left(String),
}

/// One pass over an object that is being deleted.
pub(super) async fn release(ctx: &Context, live: &Kubeconfig) -> Result<Action, ReconcileError> {
    let uid = live.uid().unwrap_or_default();
    if !live.finalizers().iter().any(|name| name == UNBIND) {
        ctx.visits.forget(&uid);
        return Ok(Action::await_change());
    }
    erase(ctx, live).await;
    let name = live.name_any();
    let cluster = live.spec.cluster(&name).to_owned();
    match unbind(ctx, &name, &cluster).await? {
        Unbound::Done => {
            let note = format!("the user is unbound in the Cluster `{cluster}`");
            issue::say(ctx, live, &Notice::normal("Unbound", "Unbind", &note)).await;
        }
        Unbound::Gone => {
            // Without a state its nodes were cleaned.
            if memory::has_state(ctx, &cluster).await? {
                let why =
                    format!("there is no Cluster `{cluster}` any more, and its state is kept");
                tell_left(ctx, live, &why).await;
            }
        }
        Unbound::Left(why) => {
            if let Some(left) = left(ctx, live) {
                let refusal = Refusal {
                    reason: KubeconfigReason::WaitingForCluster,
                    message: format!("it is deleted, and the user is not unbound yet: {why}"),
                };
                let told = Told::refused(refusal, Again::Failed);
                super::write_status(ctx, live, &told).await?;
                let class = ErrorClass::Transient;
                let wait = ctx.backoff.failed(&uid, class, rand::random());
                return Ok(Action::requeue(wait.min(left)));
            }
            tell_left(ctx, live, &why).await;
        }
    }
    let_go(ctx, live).await?;
    ctx.visits.forget(&uid);
    ctx.backoff.forget(&uid);
    Ok(Action::await_change())
}

/// The time that is left for it; `None`: it is over.
fn left(ctx: &Context, live: &Kubeconfig) -> Option<std::time::Duration> {
    let deleted = live.metadata.deletion_timestamp.as_ref()?.0;
    let end = deleted.checked_add(LIMIT).ok()?;
    let left = std::time::Duration::try_from(end.duration_since(ctx.now())).ok()?;
    (!left.is_zero()).then_some(left)
}

async fn unbind(ctx: &Context, name: &str, cluster: &str) -> Result<Unbound, ReconcileError> {
    // The watch may be behind: a Cluster that it does not know may be there.
    let Some(object) = ctx.clusters.get_opt(cluster).await? else {
        return Ok(Unbound::Gone);
    };
    let view = ClusterObject::new(object);
    Ok(match memory::read(ctx, &view).await {
        Ok(Kept::Absent | Kept::Anothers(_)) => Unbound::Gone,
        Err(error) => Unbound::Left(explained(&error)),
        Ok(Kept::Ours(saved)) => match visit::unbind(ctx, &view, &saved, name).await? {
            Ok(()) => Unbound::Done,
            Err(why) => Unbound::Left(why),
        },
    })
}

/// What may be left, in an event and the log.
async fn tell_left(ctx: &Context, live: &Kubeconfig, why: &str) {
    let name = live.name_any();
    let binding = UserBinding::name(&name);
    let status = live.status.as_ref();
    let until = status.and_then(|status| status.expires_at.clone());
    let until = until.map_or_else(String::new, |until| {
        format!(", with a certificate that is valid until {until}")
    });
    let note = format!(
        "the user may still be bound, by ClusterRoleBinding `{binding}`{until}: {why}; hint: delete that \
         ClusterRoleBinding, if the cluster is there"
    );
    tracing::warn!(kubeconfig = name, binding, why, "a user is not unbound");
    let notice = Notice::warning("NotUnbound", "Unbind", &note);
    issue::say(ctx, live, &notice).await;
}

/// Deletes the Secret at once; where that fails it goes with the object.
async fn erase(ctx: &Context, live: &Kubeconfig) {
    let name = live.name_any();
    let place = request::place(&name, &live.spec, &ctx.options.credentials_namespace);
    let secrets = issue::secrets(ctx, &place);
    let erased = async {
        let there = secrets.get_opt(&place.name).await?;
        let Some(there) = there.filter(|secret| is_for(secret, live)) else {
            return Ok(());
        };
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: there.metadata.uid,
            resource_version: None,
        });
        match secrets.delete(&place.name, &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map(drop),
        }
    };
    if let Err(error) = erased.await {
        let (secret, error) = (place.to_string(), with_causes(&error));
        tracing::warn!(
            kubeconfig = name,
            secret,
            error,
            "cannot delete a Secret yet"
        );
    }
}

/// Takes our finalizer off.
async fn let_go(ctx: &Context, live: &Kubeconfig) -> kube::Result<()> {
    let finalizers = live.finalizers().iter().filter(|name| *name != UNBIND);
    let finalizers: Vec<String> = finalizers.cloned().collect();
    let patch = with_finalizers(&live.metadata, &finalizers);
    let api: Api<Kubeconfig> = Api::all(ctx.client.clone());
    let params = PatchParams::default();
    let name = live.name_any();
    match api.patch(&name, &params, &Patch::Merge(&patch)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        patched => patched.map(drop),
    }
}
