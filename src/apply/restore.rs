//! What a restored API still has of its time, before any kubelet and any controller reads it; and whether nodes run what
//! it does not have.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::future::try_join_all;

use super::{
    cluster,
    executor::{Executor, failed, until},
    limit::PODS_PATIENCE,
    node,
    step::{Done, Reporter, StepError, Warning},
    stop::Stop,
};
use crate::{
    host::Host,
    lease,
    model::{ClusterId, Component, ContainerSpec, NodeName},
    workload,
    workload::{Probe, Restored},
};

/// The container of the API server that only this program reaches.
const NAME: &str = "rke-operator-api";

/// Deletes pods whose kubelets would start them again next to their successors, and the like.
pub(super) async fn clean(
    run: &Executor<'_>,
    name: &NodeName,
    spec: &ContainerSpec,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let saved = run.context.saved()?;
    let mut running = running_pods(run, &saved.cluster_id).await?;
    // A machine on which no kubelet ever ran runs no pod, whatever had its name before.
    let is_new = |name: &&NodeName| {
        let facts = run.context.actual.up(name);
        facts.is_some_and(|facts| !facts.is_of(&saved.cluster_id) && !facts.has_data())
    };
    for name in run.context.desired()?.hosts.keys().filter(is_new) {
        running.entry(name.clone()).or_default();
    }
    let host = run.host(name).await?;
    // Of a run that was ended.
    host.remove(NAME, None).await.map_err(failed)?;
    let started = host.run_container(NAME, spec, &node::stamp(saved)).await;
    started.map_err(failed)?;
    let cleaned = cleaned(run, name, spec, &running, reporter, stop).await;
    host.remove(NAME, None).await.map_err(failed)?;
    let Restored { deleted, left } = cleaned?;
    let warning = (!left.is_empty()).then(|| Warning {
        message: format!(
            "these pods have no controller and no node runs them; their kubelets start them again: {}",
            left.join(", ")
        ),
        hints: vec!["delete those that are not to run: `kubectl delete pod`".to_owned()],
        degrades: false,
    });
    Ok(Done {
        detail: (deleted > 0).then(|| format!("{deleted} objects")),
        warning,
        ..Done::default()
    })
}

async fn cleaned(
    run: &Executor<'_>,
    name: &NodeName,
    spec: &ContainerSpec,
    running: &BTreeMap<NodeName, BTreeSet<String>>,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Restored, StepError> {
    let port = spec.flag("secure-port").next();
    let port = port.and_then(|port| port.parse().ok()).unwrap_or_default();
    let engine = run.context.engine()?;
    let probe = &Probe::new(Component::ApiServer, engine);
    let pause = Duration::from_millis(500);
    until(NAME, pause, reporter, stop, |_| async move {
        Ok(probe.ask(run.hosts.port(name, port)).await)
    })
    .await?;
    let client = run.apis.at(name, port, engine).map_err(failed)?;
    let desired = run.context.desired()?;
    let saved = run.context.saved()?;
    let mut nodes: BTreeSet<NodeName> = desired.hosts.keys().cloned().collect();
    nodes.extend(saved.inventory.keys().cloned());
    let lost = saved.inventory.keys().filter(|name| saved.is_lost(name));
    let lost = lost.filter(|name| !desired.hosts.contains_key(*name));
    let lost = lost.cloned().collect();
    let cleaned = workload::clean_restored(&client, running, &nodes, &lost, lease::RUN.name());
    cleaned.await.map_err(failed)
}

/// The uids of the pods that run on each node that answers.
async fn running_pods(
    run: &Executor<'_>,
    id: &ClusterId,
) -> Result<BTreeMap<NodeName, BTreeSet<String>>, StepError> {
    let hosts = &run.context.actual.hosts;
    let ours = hosts.keys().filter(|name| {
        let facts = run.context.actual.up(name);
        facts.is_some_and(|facts| facts.is_of(id))
    });
    let each = ours.map(|name| async move {
        let host = run.host(name).await?;
        let pods = node::pods(&host, id).await?;
        Ok::<_, StepError>((name.clone(), pods))
    });
    Ok(try_join_all(each).await?.into_iter().collect())
}

/// Waits until the node runs no pod that the API does not have: its kubelet ends them.
pub(super) async fn await_known_pods(
    run: &Executor<'_>,
    name: &NodeName,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let host = &run.host(name).await?;
    let id = run.context.id()?;
    let client = &cluster::api(run).await?;
    let pause = Duration::from_secs(2);
    let known = until("pods", pause, reporter, stop, |_| async move {
        unknown(host, id, client, name).await
    });
    if let Ok(known) = tokio::time::timeout(PODS_PATIENCE, known).await {
        known?;
        return Ok(Done::default());
    }
    let Err(why) = unknown(host, id, client, name).await? else {
        return Ok(Done::default());
    };
    let minutes = PODS_PATIENCE.as_secs() / 60;
    let what = format!("after {minutes} minutes: {why}; no controller begins while that is so");
    let cure = "`docker logs kubelet` says why; `sudo crictl ps` shows its containers";
    Err(node::node_error(host, &what, &[cure]))
}

/// The inner error says how many there are.
async fn unknown(
    host: &Host,
    id: &ClusterId,
    client: &kube::Client,
    name: &NodeName,
) -> Result<Result<(), String>, StepError> {
    if !workload::reports(client, name).await.map_err(failed)? {
        return Ok(Err("its kubelet has not reported yet".to_owned()));
    }
    let running = node::pods(host, id).await?;
    let known = workload::pods_of(client, name).await.map_err(failed)?;
    let left = running.difference(&known).count();
    Ok(match left {
        0 => Ok(()),
        1 => Err("1 that the API does not have still runs".to_owned()),
        left => Err(format!("{left} that the API does not have still run")),
    })
}
