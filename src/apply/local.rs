//! What we keep where we run: the state and the kubeconfig.

use super::{
    executor::{ExecutorError, failed},
    remote::Context,
    step::{Done, StepError},
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
    context
        .environment
        .kubeconfig
        .save(kubeconfig)
        .await
        .map_err(|source| kubeconfig_error(context, source))?;
    Ok(Done {
        detail: Some(context.environment.kubeconfig.place()),
        ..Done::default()
    })
}

pub(super) async fn remove_kubeconfig(context: &Context<'_>) -> Result<Done, StepError> {
    context
        .environment
        .kubeconfig
        .remove()
        .await
        .map_err(|source| kubeconfig_error(context, source))?;
    Ok(Done::default())
}

fn kubeconfig_error(context: &Context<'_>, source: std::io::Error) -> StepError {
    failed(ExecutorError::Kubeconfig {
        place: context.environment.kubeconfig.place(),
        source,
    })
}
