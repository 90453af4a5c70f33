//! Effects on the provisioned cluster's API, through a control plane's SSH connection.

use std::{io, sync::Arc, time::Duration};

use futures::FutureExt;

use super::{
    act::{ActError, Effects, bug, failed},
    limit::ADDON_PATIENCE,
    run::{Done, Reporter, StepError, Warning},
    stop::Stop,
};
use crate::{
    actual::HostView,
    config::{NodeName, Role},
    desired::{Addon, NodeMeta, ObjectRef, pki::EngineClient},
    host::Host,
    plan::Component,
    workload::{self, Credentials, Waited, WorkloadError},
};

/// A node that pulls its first images slowly is no failure yet.
const NODE_READY: Duration = Duration::from_secs(240);

/// How the API server knows us.
pub(crate) fn credentials(engine: &EngineClient) -> Credentials {
    let EngineClient { ca, pair } = engine;
    Credentials {
        ca: ca.clone(),
        cert: pair.cert.clone(),
        key: pair.key.clone(),
    }
}

/// A client of the API server on a control plane, through its SSH connection.
pub(crate) fn through(
    host: Arc<Host>,
    engine: &EngineClient,
) -> Result<kube::Client, WorkloadError> {
    let open = move || {
        let host = Arc::clone(&host);
        async move {
            let port = Component::ApiServer.health_port();
            host.local_port(port).await.map_err(io::Error::other)
        }
        .boxed()
    };
    workload::connect(Arc::new(open), &credentials(engine))
}

/// The API of the first control plane that answers.
async fn api(run: &Effects<'_>) -> Result<kube::Client, StepError> {
    let saved = run.saved()?;
    let engine = run.engine()?;
    let mut last = None;
    for (name, entry) in &saved.inventory {
        let up = matches!(run.actual.hosts.get(name), Some(HostView::Up(_)));
        if !up || !entry.roles.contains(&Role::ControlPlane) {
            continue;
        }
        match run.hosts.get(name).await {
            Ok(host) => return through(host, engine).map_err(failed),
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
    let wanted = addon
        .objects
        .iter()
        .filter(|(object, _)| objects.contains(object));
    workload::apply_objects(&client, wanted)
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
