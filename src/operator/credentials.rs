//! What earlier releases kept in the operator's own namespace, and belongs into that of the
//! credentials: SSH keys are copied, kubeconfigs that were made anew there are taken away here.
//!
//! A key is copied only for a cluster whose state says that it logged in with it, and never out of
//! a Secret of ours: no `Cluster` can name a state and so have it shown to others. The Secret that
//! a person made stays: it is theirs.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
    runtime::reflector::ObjectRef,
};

use super::{
    cluster_object::ClusterObject,
    context::Context,
    environment::key_of,
    events::{Notice, publish},
    kubeconfig,
};
use crate::{
    api::{Kubeconfig, kubeconfig_secret},
    model::label,
    state::ClusterState,
};

impl Context {
    fn secrets_in(&self, namespace: &str) -> Api<KubeSecret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn is_apart(&self) -> bool {
        self.options.namespace != self.options.credentials_namespace
    }
}

/// Copies the keys that a cluster logs in with, where they are missing.
pub(super) async fn bring_keys(
    ctx: &Context,
    view: &ClusterObject,
    saved: &ClusterState,
) -> kube::Result<()> {
    if !ctx.is_apart() {
        return Ok(());
    }
    let to = &ctx.options.credentials_namespace;
    let sources = saved.inventory.values().map(|entry| &*entry.key_source);
    for source in sources.collect::<BTreeSet<_>>() {
        let Some((name, key)) = key_of(source) else {
            continue;
        };
        let about = ObjectRef::new(name).within(to);
        if ctx.caches.secrets.get(&about).is_none() {
            bring(ctx, view, name, key).await?;
        }
    }
    Ok(())
}

async fn bring(ctx: &Context, view: &ClusterObject, name: &str, key: &str) -> kube::Result<()> {
    let (from, to) = (&ctx.options.namespace, &ctx.options.credentials_namespace);
    let there = ctx.secrets_in(from).get_opt(name).await?;
    let Some(there) = there.filter(|secret| !is_ours(secret)) else {
        return Ok(());
    };
    let Some(value) = there.data.and_then(|mut data| data.remove(key)) else {
        return Ok(());
    };
    let copy = KubeSecret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([(key.to_owned(), value)].into()),
        ..KubeSecret::default()
    };
    // Created, never replaced: what a person put there meanwhile counts.
    match ctx
        .secrets_in(to)
        .create(&PostParams::default(), &copy)
        .await
    {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
        Err(error) => return Err(error),
    }
    let note = format!(
        "the key `{key}` of the Secret `{from}/{name}` was copied to `{to}/{name}`, where keys \
         belong; hint: when nothing else needs it, `kubectl -n {from} delete secret {name}`"
    );
    publish(
        ctx,
        view,
        &Notice::normal("CredentialsMoved", "Move", &note),
    )
    .await;
    Ok(())
}

/// States, kubeconfigs and whatever else the operator made bear a cluster's name.
fn is_ours(secret: &KubeSecret) -> bool {
    let labels = secret.labels();
    labels.contains_key(label::CLUSTER_ID) || labels.contains_key(label::CLUSTER_NAME)
}

/// Takes away the Secret that an earlier release made for this `Kubeconfig` in the operator's own
/// namespace; to be called when it has one where it belongs.
pub(super) async fn remove_old_kubeconfig(ctx: &Context, object: &Kubeconfig) -> kube::Result<()> {
    if !ctx.is_apart() {
        return Ok(());
    }
    let secrets = ctx.secrets_in(&ctx.options.namespace);
    let name = kubeconfig_secret(&object.name_any());
    let Some(there) = secrets.get_opt(&name).await? else {
        return Ok(());
    };
    if !kubeconfig::is_for(&there, object) {
        return Ok(());
    }
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: there.metadata.uid,
        resource_version: there.metadata.resource_version,
    });
    match secrets.delete(&name, &params).await {
        Ok(_) => Ok(()),
        // It went, or is another by now: the next pass sees what there is.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
