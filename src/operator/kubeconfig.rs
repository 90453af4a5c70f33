//! The `Kubeconfig` objects: one is made for every `Cluster` and goes with it; each has a Secret
//! `<name>-kubeconfig` in the operator's namespace, and says whether it is there.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::Secret as KubeSecret,
    apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::controller::Action,
};
use serde_json::json;

use super::{
    context::{Context, ReconcileError, labels, owned_by},
    view::View,
};
use crate::{
    api::{
        GROUP, KUBECONFIG_KEY, Kubeconfig, KubeconfigStatus, MANAGER, NameRef, VERSION,
        kubeconfig_secret,
    },
    error::{Blame, Explain},
};

/// Someone else's object has the name.
#[derive(Debug, thiserror::Error)]
#[error("the Kubeconfig `{name}` {what}")]
pub(super) struct Taken {
    name: String,
    what: String,
    blame: Blame,
}

impl Explain for Taken {
    fn blame(&self) -> Blame {
        self.blame
    }

    fn hints(&self) -> Vec<std::borrow::Cow<'static, str>> {
        match self.blame {
            Blame::User => vec![
                format!(
                    "delete it or give it another name: `kubectl delete rkek {}`",
                    self.name
                )
                .into(),
            ],
            Blame::Host | Blame::Transient | Blame::Bug => Vec::new(),
        }
    }
}

/// Makes the `Kubeconfig` of a `Cluster`; the reference is for its Secret.
pub(super) async fn ensure(
    ctx: &Context,
    view: &View,
) -> Result<Result<Option<OwnerReference>, Taken>, ReconcileError> {
    let api: Api<Kubeconfig> = Api::all(ctx.client.clone());
    let name = view.name();
    if let Some(there) = api.get_opt(&name).await? {
        return Ok(judge(&there, view));
    }
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "Kubeconfig",
        "metadata": {
            "name": name,
            "labels": labels(&name),
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": "Cluster",
                "name": name,
                "uid": view.uid(),
                "controller": true,
            }],
        },
        "spec": { "clusterName": name },
    });
    let params = PatchParams::apply(MANAGER).force();
    let made = api.patch(&name, &params, &Patch::Apply(&body)).await?;
    Ok(Ok(owned_by(&made)))
}

/// May the Secret go with this object?
fn judge(there: &Kubeconfig, view: &View) -> Result<Option<OwnerReference>, Taken> {
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
            blame: Blame::Transient,
        }),
        None if there.spec.cluster_name == view.name() => Ok(owned_by(there)),
        None => Err(Taken {
            name,
            what: format!("is for the Cluster `{}`", there.spec.cluster_name),
            blame: Blame::User,
        }),
    }
}

/// One pass over one `Kubeconfig`: the Secret of its own is there, or is copied from that of the
/// cluster; `Ready` says which.
pub(super) async fn reconcile(
    object: Arc<Kubeconfig>,
    ctx: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let api: Api<Kubeconfig> = Api::all(ctx.client.clone());
    let name = object.name_any();
    let Some(live) = api.get_opt(&name).await? else {
        return Ok(Action::await_change());
    };
    if live.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let there = secret_is_there(&ctx, &live).await?;
    let next = status(&live, there, &ctx);
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
    Ok(if there {
        Action::await_change()
    } else {
        Action::requeue(ctx.options.resync)
    })
}

/// True when the Secret has a kubeconfig, made from the cluster's if need be.
async fn secret_is_there(ctx: &Context, object: &Kubeconfig) -> Result<bool, ReconcileError> {
    let secrets: Api<KubeSecret> = Api::namespaced(ctx.client.clone(), &ctx.options.namespace);
    let own = kubeconfig_secret(&object.name_any());
    let has = |secret: &KubeSecret| {
        secret
            .data
            .as_ref()
            .and_then(|data| data.get(KUBECONFIG_KEY))
            .cloned()
    };
    let source = kubeconfig_secret(&object.spec.cluster_name);
    let there = secrets.get_opt(&own).await?.as_ref().and_then(has);
    if own == source {
        return Ok(there.is_some());
    }
    let Some(want) = secrets.get_opt(&source).await?.as_ref().and_then(has) else {
        return Ok(false);
    };
    if there.as_ref() != Some(&want) {
        let body = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": own,
                "labels": labels(&object.spec.cluster_name),
                "ownerReferences": owned_by(object).into_iter().collect::<Vec<_>>(),
            },
            "data": { KUBECONFIG_KEY: want },
        });
        let params = PatchParams::apply(MANAGER).force();
        secrets.patch(&own, &params, &Patch::Apply(&body)).await?;
    }
    Ok(true)
}

fn status(object: &Kubeconfig, there: bool, ctx: &Context) -> KubeconfigStatus {
    let old = object
        .status
        .as_ref()
        .and_then(|status| status.conditions.first());
    let word = if there { "True" } else { "False" };
    let since = old.filter(|old| old.status == word).map_or_else(
        || Time(ctx.parts.clock.now()),
        |old| old.last_transition_time.clone(),
    );
    let cluster = &object.spec.cluster_name;
    let (reason, message) = if there {
        ("Available", "the Secret has the kubeconfig".to_owned())
    } else {
        (
            "Waiting",
            format!("the Cluster `{cluster}` has no kubeconfig yet"),
        )
    };
    let generation = object.meta().generation;
    KubeconfigStatus {
        observed_generation: generation,
        conditions: vec![Condition {
            type_: "Ready".to_owned(),
            status: word.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: since,
        }],
        secret_ref: Some(NameRef {
            name: kubeconfig_secret(&object.name_any()),
        }),
    }
}
