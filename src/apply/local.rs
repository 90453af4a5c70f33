//! What we keep where we run: the state and the kubeconfig.

use std::io;

use super::{
    executor::{ExecutorError, failed},
    remote::Context,
    step::{Done, StepError},
};
use crate::{
    desired::pki,
    state::{ClusterState, kubeconfig::KubeconfigStore},
};

pub(super) async fn save_state(context: &Context<'_>) -> Result<Done, StepError> {
    let saved = &context.desired()?.saved;
    context
        .environment
        .store
        .save(saved, context.revision)
        .await
        .map_err(failed)?;
    Ok(Done {
        detail: Some(context.environment.store.place()),
        ..Done::default()
    })
}

pub(super) async fn delete_state(context: &Context<'_>) -> Result<Done, StepError> {
    context.environment.store.delete().await.map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn write_kubeconfig(context: &Context<'_>) -> Result<Done, StepError> {
    let kubeconfig = &context.desired()?.kubeconfig;
    let store = &context.environment.kubeconfig;
    let kept = kept(context).await?;
    let saved = store.save(kubeconfig).await;
    saved.map_err(|source| kubeconfig_error(context, source))?;
    let detail = store.place() + &kept.as_deref().map(kept_as).unwrap_or_default();
    Ok(Done {
        detail: Some(detail),
        ..Done::default()
    })
}

pub(super) async fn remove_kubeconfig(context: &Context<'_>) -> Result<Done, StepError> {
    let store = &context.environment.kubeconfig;
    let kept = kept(context).await?;
    let removed = store.remove().await;
    removed.map_err(|source| kubeconfig_error(context, source))?;
    Ok(Done {
        detail: kept.map(|kept| store.place() + &kept_as(&kept)),
        ..Done::default()
    })
}

/// The place of the copy that a step keeps before it replaces or removes the kubeconfig.
async fn kept(context: &Context<'_>) -> Result<Option<String>, StepError> {
    let store = context.environment.kubeconfig.as_ref();
    let kept = set_aside(store, context.saved()?).await;
    kept.map_err(|source| kubeconfig_error(context, source))
}

/// Keeps a copy of a kubeconfig that has something else in it than what was written for this cluster: another cluster's,
/// or contexts that were added. The place of the copy, if there is one.
pub(crate) async fn set_aside(
    store: &dyn KubeconfigStore,
    saved: &ClusterState,
) -> io::Result<Option<String>> {
    match store.load().await? {
        Some(there) if !pki::is_ours_alone(&there, saved) => store.set_aside().await,
        Some(_) | None => Ok(None),
    }
}

/// Where that copy is, to be read after the place of the kubeconfig.
pub(crate) fn kept_as(copy: &str) -> String {
    format!("; what else was in it is kept as {copy}")
}

fn kubeconfig_error(context: &Context<'_>, source: std::io::Error) -> StepError {
    failed(ExecutorError::Kubeconfig {
        place: context.environment.kubeconfig.place(),
        source,
    })
}
