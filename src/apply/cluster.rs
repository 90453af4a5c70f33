//! Effects on the provisioned cluster's API, through a control plane's SSH connection.

use std::time::Duration;

use super::{
    effects::{EffectError, Effects, bug, failed},
    limit::ADDON_PATIENCE,
    step::{Done, Reporter, StepError, Warning},
    stop::Stop,
};
use crate::{
    actual::control_planes,
    config::NodeName,
    desired::{Addon, NodeMeta, ObjectRef},
    workload::{self, Waited, WorkloadError},
};

/// A node that pulls its first images slowly is no failure yet.
const NODE_READY: Duration = Duration::from_secs(240);

/// The API of the first control plane that answers.
async fn api(run: &Effects<'_>) -> Result<kube::Client, StepError> {
    let saved = run.saved()?;
    let engine = run.engine()?;
    let mut last = None;
    for (name, _) in control_planes(saved, &run.actual.hosts) {
        match run.hosts.get(name).await {
            Ok(host) => return workload::through(host, engine).map_err(failed),
            Err(down) => last = Some(down),
        }
    }
    Err(last.map_or_else(
        || bug("there is no control plane to ask"),
        |down| failed(EffectError::Down(down)),
    ))
}

pub(super) async fn apply_addon(
    run: &Effects<'_>,
    name: &str,
    objects: &[ObjectRef],
) -> Result<Done, StepError> {
    let addon = addon(run, name)?;
    let client = api(run).await?;
    let wanted = addon
        .objects
        .iter()
        .filter(|(object, _)| objects.contains(object));
    workload::apply_objects(&client, wanted)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn prune(run: &Effects<'_>, objects: &[ObjectRef]) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::prune(&client, objects).await.map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn set_node_meta(
    run: &Effects<'_>,
    node: &NodeName,
    meta: &NodeMeta,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::set_node_meta(&client, node, meta, reporter, stop)
        .await
        .map_err(ended)?;
    Ok(Done::default())
}

pub(super) async fn await_node_ready(
    run: &Effects<'_>,
    node: &NodeName,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::await_node_ready(&client, node, NODE_READY, reporter, stop)
        .await
        .map_err(ended)?;
    Ok(Done::default())
}

pub(super) async fn await_addon(
    run: &Effects<'_>,
    name: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let workloads = &addon(run, name)?.workloads;
    let client = api(run).await?;
    let waited =
        workload::await_workloads(&client, workloads, ADDON_PATIENCE, reporter, stop).await;
    match waited.map_err(ended)? {
        Waited::Ready => Ok(Done::default()),
        Waited::StillWaiting(why) => Ok(Done {
            detail: None,
            warning: Some(Warning {
                message: format!("add-on `{name}` is not available yet: {why}"),
                hints: vec!["it may still come up; `up` again looks once more".to_owned()],
            }),
        }),
    }
}

/// A wait that the stop signal ended is no failure.
fn ended(error: WorkloadError) -> StepError {
    match error {
        WorkloadError::Stopped(_) => StepError::Stopped,
        error @ (WorkloadError::Credentials(_)
        | WorkloadError::Api { .. }
        | WorkloadError::Overdue { .. }
        | WorkloadError::UnknownKind(_)) => failed(error),
    }
}

pub(super) async fn save_state_copy(run: &Effects<'_>) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::save_state_copy(&client, run.saved()?)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

fn addon<'a>(run: &'a Effects<'_>, name: &str) -> Result<&'a Addon, StepError> {
    let addons = &run.desired()?.addons;
    addons
        .iter()
        .find(|addon| addon.name == name)
        .ok_or_else(|| bug("no such add-on"))
}
