//! Effects where we run: the state and the kubeconfig.

use super::{
    effects::{EffectError, Effects, failed},
    step::{Done, StepError},
};

pub(super) async fn save_state(run: &Effects<'_>) -> Result<Done, StepError> {
    let saved = &run.desired()?.saved;
    run.world
        .store
        .save(saved, run.revision)
        .await
        .map_err(failed)?;
    Ok(Done {
        detail: Some(run.world.store.place()),
        warning: None,
    })
}

pub(super) async fn delete_state(run: &Effects<'_>) -> Result<Done, StepError> {
    run.world.store.delete().await.map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn write_kubeconfig(run: &Effects<'_>) -> Result<Done, StepError> {
    let kubeconfig = &run.desired()?.kubeconfig;
    run.world
        .kubeconfig
        .save(kubeconfig)
        .await
        .map_err(|source| kubeconfig_error(run, source))?;
    Ok(Done {
        detail: Some(run.world.kubeconfig.place()),
        warning: None,
    })
}

pub(super) async fn remove_kubeconfig(run: &Effects<'_>) -> Result<Done, StepError> {
    run.world
        .kubeconfig
        .remove()
        .await
        .map_err(|source| kubeconfig_error(run, source))?;
    Ok(Done::default())
}

fn kubeconfig_error(run: &Effects<'_>, source: std::io::Error) -> StepError {
    failed(EffectError::Kubeconfig {
        place: run.world.kubeconfig.place(),
        source,
    })
}
