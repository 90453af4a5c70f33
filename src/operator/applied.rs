//! The config that was applied last, as it was written: what a cluster is kept at while a change of its config waits
//! for a person. In the Secret `<cluster>-applied`, which goes with the object; where it is missing, nothing is healed
//! for as long as a change waits, and nothing else depends on it.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret as KubeSecret};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams},
};

use super::{
    cluster_object::ClusterObject,
    context::{Context, labels},
};
use crate::{api::MANAGER, model::Secret, state::ClusterState};

/// The key of the Secret.
const KEY: &str = "config";

fn name(view: &ClusterObject) -> String {
    format!("{}-applied", view.name())
}

fn secrets(ctx: &Context) -> Api<KubeSecret> {
    Api::namespaced(ctx.client.clone(), &ctx.options.namespace)
}

/// Keeps it.
pub(super) async fn keep(ctx: &Context, view: &ClusterObject, config: &str) -> kube::Result<()> {
    let name = name(view);
    let secret = KubeSecret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(labels(&view.name())),
            owner_references: Some(vec![view.owner_reference()]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            KEY.to_owned(),
            ByteString(config.as_bytes().to_vec()),
        )])),
        ..KubeSecret::default()
    };
    let params = PatchParams::apply(MANAGER).force();
    secrets(ctx)
        .patch(&name, &params, &Patch::Apply(&secret))
        .await?;
    Ok(())
}

/// The config that the state says was applied last, where it is kept.
pub(super) async fn read(
    ctx: &Context,
    view: &ClusterObject,
    saved: &ClusterState,
) -> kube::Result<Option<Secret<String>>> {
    let Some(applied) = &saved.memory.applied else {
        return Ok(None);
    };
    let secret = secrets(ctx).get_opt(&name(view)).await?;
    let kept = secret.and_then(|secret| secret.data?.remove(KEY));
    let text = kept.and_then(|bytes| String::from_utf8(bytes.0).ok());
    let is_that = |text: &String| saved.digest_key.digest(text.as_bytes()) == applied.digest;
    Ok(text.filter(is_that).map(Secret::new))
}
