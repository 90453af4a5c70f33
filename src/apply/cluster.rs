//! Effects on the provisioned cluster's API, through a control plane's SSH connection.

use super::{
    act::{ActError, Effects, bug, failed},
    run::{Done, Reporter, StepError, Warning},
    stop::Stop,
};
use crate::{
    actual::HostView,
    config::{NodeName, Role},
    desired::{Addon, NodeMeta, ObjectRef},
    error::Blame,
    workload::{self, Access, Awaited},
};

/// The API of the first control plane that answers.
async fn api(run: &Effects<'_>) -> Result<kube::Client, StepError> {
    let saved = run.saved()?;
    let engine = run
        .engine
        .ok_or_else(|| bug("this step needs the engine's certificate"))?;
    let mut last = None;
    for (name, entry) in &saved.inventory {
        let up = matches!(run.actual.hosts.get(name), Some(HostView::Up(_)));
        if !up || !entry.roles.contains(&Role::ControlPlane) {
            continue;
        }
        match run.hosts.get(name).await {
            Ok(host) => {
                return workload::connect(&Access::new(&host, saved, engine)).map_err(failed);
            }
            Err(down) => last = Some(down),
        }
    }
    Err(last.map_or_else(
        || bug("there is no control plane to ask"),
        |down| failed(ActError::Down(down)),
    ))
}

pub(super) async fn apply_addon(
    run: &Effects<'_>,
    name: &str,
    objects: &[ObjectRef],
) -> Result<Done, StepError> {
    let addon = addon(run, name)?;
    let client = api(run).await?;
    workload::apply(&client, addon, objects)
        .await
        .map_err(failed)?;
    Ok(Done {
        detail: Some(format!("{} objects", objects.len())),
        warning: None,
    })
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
) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::set_node_meta(&client, node, meta)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn await_node_ready(
    run: &Effects<'_>,
    node: &NodeName,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = api(run).await?;
    match workload::await_node_ready(&client, node, reporter, stop).await {
        Awaited::Ready => Ok(Done::default()),
        Awaited::Stopped => Err(StepError::Stopped),
        Awaited::NotYet(why) => Err(failed(ActError::Node {
            message: format!("node `{node}` is not Ready: {why}"),
            hints: vec![format!(
                "look at kubelet on `{node}`: `docker logs --tail 50 kubelet`"
            )],
            blame: Blame::Host,
        })),
    }
}

pub(super) async fn await_addon(
    run: &Effects<'_>,
    name: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let addon = addon(run, name)?;
    let client = api(run).await?;
    match workload::await_workloads(&client, addon, reporter, stop).await {
        Awaited::Ready => Ok(Done::default()),
        Awaited::Stopped => Err(StepError::Stopped),
        Awaited::NotYet(why) => Ok(Done {
            detail: None,
            warning: Some(Warning {
                message: format!("add-on `{name}` is not available yet: {why}"),
                hints: vec!["it may still come up; `up` again looks once more".to_owned()],
            }),
        }),
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
