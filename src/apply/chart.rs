//! Executor of the charts: rendered on a node, applied to the cluster.

use super::{
    cluster,
    executor::{Executor, ExecutorError, bug, failed},
    limit::ADDON_PATIENCE,
    node,
    step::{Done, Reporter, StepError, Warning},
    stop::Stop,
};
use crate::{
    desired::WantedChart,
    model::{AppliedObject, NodeName},
    workload::{self, ChartApply, Waited},
};

pub(super) async fn apply(
    run: &Executor<'_>,
    name: &str,
    node: &NodeName,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let want = wanted(run, name)?;
    let host = run.host(node).await?;
    reporter.waiting(format!("helm on node `{node}`"), 0);
    let outputs = node::render(&host, run.context.id()?, want).await?;
    if stop.cause().is_some() {
        return Err(StepError::Stopped);
    }
    let outputs: Vec<&str> = outputs
        .iter()
        .map(|output| output.expose().as_str())
        .collect();
    let apply = ChartApply {
        name,
        namespace: &want.chart.namespace,
        digest: &want.digest,
        outputs: &outputs,
    };
    let client = cluster::api(run).await?;
    let waiting = |what, tries| reporter.waiting(what, tries);
    let applied = workload::apply_chart(&client, run.kinds, &apply, &waiting);
    let stay = cluster::unless_stopped(stop, Box::pin(applied))
        .await?
        .map_err(failed)?;
    Ok(done(name, &stay))
}

pub(super) async fn wait(
    run: &Executor<'_>,
    name: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = cluster::watched(run).await?;
    let workloads = workload::chart_workloads(&client, run.kinds, name)
        .await
        .map_err(failed)?;
    let waiting = |what, tries| reporter.waiting(what, tries);
    let silent = run.context.actual.silent_nodes();
    let waited = workload::await_workloads(&client, &workloads, &silent, ADDON_PATIENCE, &waiting);
    match cluster::unless_stopped(stop, Box::pin(waited)).await? {
        Waited::Ready => Ok(Done::default()),
        Waited::StillWaiting(why) => Ok(cluster::still_waiting(name, &why)),
    }
}

pub(super) async fn prune(run: &Executor<'_>, name: &str) -> Result<Done, StepError> {
    let client = cluster::api(run).await?;
    let stay = workload::prune_chart(&client, run.kinds, name)
        .await
        .map_err(failed)?;
    Ok(done(name, &stay))
}

/// Warns of the objects that stay: rke-operator no longer manages them.
fn done(name: &str, stay: &[AppliedObject]) -> Done {
    if stay.is_empty() {
        return Done::default();
    }
    let stay: Vec<String> = stay
        .iter()
        .map(|applied| applied.object.to_string())
        .collect();
    Done {
        warning: Some(Warning {
            message: format!(
                "of {name} these stay, because others may use them: {}",
                stay.join(", ")
            ),
            hints: vec!["delete them with `kubectl delete` when nothing needs them".to_owned()],
            degrades: false,
        }),
        ..Done::default()
    }
}

/// Adds a hint to the error of a pull if the image is one that rke-operator needs for charts.
pub(super) fn explain(run: &Executor<'_>, image: &str, error: StepError) -> StepError {
    let charts = run.context.desired.map(|desired| &desired.charts);
    let charts = || charts.into_iter().flatten();
    let (what, key) = if charts().any(|want| want.runtime == image) {
        ("which has the charts of add-ons", "runtime")
    } else if charts().any(|want| want.helm == image) {
        ("which renders the charts of add-ons", "klipper_helm")
    } else {
        return error;
    };
    match error {
        StepError::Failed(source) => {
            let hint = format!(
                "mirror it, and name the mirror as `{key}` under `system_images`, or bring network and ingress \
                 controller yourself"
            );
            let mut hints = source.hints();
            hints.insert(0, hint.into());
            failed(ExecutorError::ChartImage {
                image: image.to_owned(),
                what,
                class: source.class(),
                hints,
                source,
            })
        }
        StepError::Guard(_) | StepError::Stopped => error,
    }
}

fn wanted<'a>(run: &'a Executor<'_>, name: &str) -> Result<&'a WantedChart, StepError> {
    let charts = &run.context.desired()?.charts;
    let mut charts = charts.iter();
    charts
        .find(|want| want.chart.name == name)
        .ok_or_else(|| bug("no such chart"))
}
