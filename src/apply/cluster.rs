//! Executor on the provisioned cluster's API, through a control plane's SSH connection.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

use super::{
    executor::{Executor, bug, failed, opened},
    limit::{
        ADDON_PATIENCE, DETACH_PATIENCE, EVICT_PATIENCE, NODE_PATIENCE, TOKENS_PATIENCE,
        drain_patience,
    },
    node::cause_in_log,
    step::{Done, Reporter, StepError, Warning},
    stop::Stop,
};
use crate::{
    desired::{Addon, pki::EngineClients},
    facts::{ApiHealth, NodeFact, RebootMark, control_planes},
    host::pool::Hosts,
    model::{Component, DrainRules, NodeMeta, NodeName, ObjectRef, Role},
    state::{ClusterState, Membership},
    workload,
    workload::{Apis, Crashes, Waited, WorkloadError},
};

/// How often its activity is checked.
const SLICE: Duration = Duration::from_secs(10);
/// Less than this, written meanwhile, are logs.
const GROWTH: u64 = 1_000_000;

/// What containerd has written on a node since the wait began, the images of its first pods, and
/// how long it has written nothing.
#[derive(Default)]
struct Pulled {
    used: Option<u64>,
    bytes: u64,
    idle: Duration,
}

impl Pulled {
    /// What is used there now, in bytes, if it can be read.
    async fn used(run: &Executor<'_>, node: &NodeName) -> Option<u64> {
        let (root, _) = run.context.actual.up(node)?.system.containerd.folders();
        let host = run.host(node).await.ok()?;
        let script = "df -Pk \"$1\" | awk 'NR == 2 { print $3 }'";
        let limit = Duration::from_secs(10);
        let read = host.exec_with(script, &[root.as_str()], limit).await;
        let kib: u64 = read.ok()?.stdout.trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// Another look after `waited`; true when more was written since the last one. A look that
    /// fails is no growth.
    fn grows(&mut self, used: Option<u64>, waited: Duration) -> bool {
        let more = used.map_or(0, |used| {
            used.saturating_sub(self.used.replace(used).unwrap_or(used))
        });
        self.bytes += more;
        let grows = more >= GROWTH;
        self.idle = if grows {
            Duration::ZERO
        } else {
            self.idle + waited
        };
        grows
    }
}

/// The API of whichever control plane answers, for as long as one does.
pub(super) async fn api(run: &Executor<'_>) -> Result<kube::Client, StepError> {
    let planes = reached(run).await?;
    run.apis.any(planes, run.context.engine()?).map_err(failed)
}

/// Connects to a cluster's API without a survey: tries the control planes in its state one after the other.
pub(super) async fn reach(
    hosts: &Hosts,
    apis: &Apis,
    saved: &ClusterState,
    engine: &EngineClients,
) -> Result<kube::Client, StepError> {
    let planes = saved.inventory.iter().filter(|(_, entry)| {
        entry.membership != Membership::Lost && entry.roles.contains(&Role::ControlPlane)
    });
    let mut planes: Vec<&NodeName> = planes.map(|(name, _)| name).collect();
    planes.sort_by_key(|name| {
        let stays = saved.inventory[*name].membership == Membership::Active;
        (hosts.is_away(name), !stays)
    });
    let mut last = None;
    for name in &planes {
        match opened(hosts, name).await {
            Ok(_) => return apis.any(planes, &engine.api).map_err(failed),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| bug("the state has no control plane")))
}

/// The same for a wait, which keeps its requests open.
pub(super) async fn watched(run: &Executor<'_>) -> Result<kube::Client, StepError> {
    let planes = reached(run).await?;
    run.apis
        .waiting(planes, run.context.engine()?)
        .map_err(failed)
}

/// The control planes, of which one at least is connected: where none is, the step fails as the nodes do.
async fn reached<'r>(run: &'r Executor<'_>) -> Result<Vec<&'r NodeName>, StepError> {
    let planes = planes(run)?;
    let mut last = None;
    for name in &planes {
        match run.host(name).await {
            Ok(_) => return Ok(planes),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| bug("there is no control plane to ask")))
}

/// The control planes that were reached. Those that stay and serve are asked first.
fn planes<'r>(run: &'r Executor<'_>) -> Result<Vec<&'r NodeName>, StepError> {
    let saved = run.context.saved()?;
    let mut planes: Vec<&NodeName> = control_planes(saved, &run.context.actual.hosts)
        .map(|(name, _)| name)
        .collect();
    let desired = run.context.desired;
    planes.sort_by_key(|name| {
        let stays = saved.inventory[*name].membership == Membership::Active
            && desired
                .is_none_or(|desired| desired.with(Component::ApiServer).any(|it| it == *name));
        let serves = run.context.actual.apis.get(*name) == Some(&ApiHealth::Serving);
        (run.hosts.is_away(name), !stays, !serves)
    });
    Ok(planes)
}

/// The Node objects as they are now, if the API answers.
pub(super) async fn nodes(run: &Executor<'_>) -> Option<Arc<BTreeMap<NodeName, NodeFact>>> {
    let client = api(run).await.ok()?;
    workload::nodes(&client).await.ok().map(Arc::new)
}

/// One object as it is now.
pub(super) async fn object(
    run: &Executor<'_>,
    object: &ObjectRef,
) -> Result<Option<Value>, StepError> {
    let client = api(run).await?;
    workload::read_object(&client, run.kinds, object)
        .await
        .map_err(failed)
}

pub(super) async fn apply_addon(
    run: &Executor<'_>,
    name: &str,
    objects: &[ObjectRef],
) -> Result<Done, StepError> {
    let addon = addon(run, name)?;
    let client = api(run).await?;
    let wanted = addon
        .objects
        .iter()
        .filter(|(object, _)| objects.contains(object));
    workload::apply_objects(&client, run.kinds, wanted)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn prune(run: &Executor<'_>, objects: &[ObjectRef]) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::prune(&client, run.kinds, objects)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn set_node_meta(
    run: &Executor<'_>,
    node: &NodeName,
    meta: &NodeMeta,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = watched(run).await?;
    let waiting = |what, tries| reporter.waiting(what, tries);
    let registered = workload::await_registered(&client, node, NODE_PATIENCE, &waiting);
    match unless_stopped(stop, Box::pin(registered)).await? {
        Ok(()) => {}
        Err(WorkloadError::Overdue { waiting_for, after }) => {
            let cause = kubelet_says(run, node).await;
            let waiting_for = joined(waiting_for, cause.as_ref());
            return Err(failed(WorkloadError::Overdue { waiting_for, after }));
        }
        Err(error) => return Err(failed(error)),
    }
    workload::set_node_meta(&client, node, meta)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn await_node_ready(
    run: &Executor<'_>,
    node: &NodeName,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = watched(run).await?;
    let (mut pulled, mut crashes) = (Pulled::default(), Crashes::default());
    let mut cause = None;
    loop {
        let waiting = |what: String, tries| reporter.waiting(joined(what, cause.as_ref()), tries);
        let ready = workload::await_node_ready(&client, node, SLICE, &waiting);
        let (waiting_for, after) = match unless_stopped(stop, Box::pin(ready)).await? {
            Ok(()) => return Ok(Done::default()),
            Err(WorkloadError::Overdue { waiting_for, after }) => (waiting_for, after),
            Err(error) => return Err(failed(error)),
        };
        // While it pulls images it does something.
        if pulled.grows(Pulled::used(run, node).await, after) {
            reporter.progress(pulled.bytes, 0, "bytes");
        }
        cause = match workload::crash_on_node(&client, node).await {
            Some(found) => Some(crashes.explain(&client, &found).await),
            None => workload::pulling(&client, "kube-system", Some(node)).await,
        };
        let overdue = pulled.idle >= NODE_PATIENCE;
        if overdue && cause.is_none() {
            cause = kubelet_says(run, node).await;
        }
        if overdue || (cause.is_some() && crashes.is_over()) {
            let (waiting_for, after) = (joined(waiting_for, cause.as_ref()), pulled.idle);
            return Err(failed(WorkloadError::Overdue { waiting_for, after }));
        }
    }
}

/// What is waited for, and why one level below.
fn joined(waiting_for: String, cause: Option<&String>) -> String {
    match cause {
        Some(cause) => format!("{waiting_for}; {cause}"),
        None => waiting_for,
    }
}

/// The line of kubelet's log that says why its node is not Ready, or not there.
async fn kubelet_says(run: &Executor<'_>, node: &NodeName) -> Option<String> {
    let host = run.host(node).await.ok()?;
    let cause = cause_in_log(&host, Component::Kubelet.container()).await?;
    Some(format!("the log of its kubelet: {cause}"))
}

pub(super) async fn await_addon(
    run: &Executor<'_>,
    name: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let workloads = &addon(run, name)?.workloads;
    let client = watched(run).await?;
    let waiting = |what, tries| reporter.waiting(what, tries);
    let silent = run.context.actual.silent_nodes();
    let waited = workload::await_workloads(&client, workloads, &silent, ADDON_PATIENCE, &waiting);
    match unless_stopped(stop, Box::pin(waited)).await? {
        Waited::Ready => Ok(Done::default()),
        Waited::StillWaiting(why) => Ok(still_waiting(name, &why)),
    }
}

/// What pods need to reach one another, and to find one another by name.
const ESSENTIAL: [&str; 4] = ["canal", "calico", "coredns", "flannel"];

/// An add-on that is slow.
pub(super) fn still_waiting(name: &str, why: &str) -> Done {
    Done {
        warning: Some(Warning {
            message: format!("add-on `{name}` is not available yet: {why}"),
            hints: vec![
                "`kubectl -n kube-system get pods` shows its pods; `rke-operator up` (of a `Cluster`: the \
                 next pass) waits for it again"
                    .to_owned(),
            ],
            degrades: ESSENTIAL.contains(&name),
        }),
        ..Done::default()
    }
}

/// A wait, which only watches, until it ends or the stop signal is given.
pub(super) async fn unless_stopped<T>(
    stop: &Stop,
    wait: impl Future<Output = T>,
) -> Result<T, StepError> {
    tokio::select! {
        waited = wait => Ok(waited),
        _cause = stop.stopped() => Err(StepError::Stopped),
    }
}

pub(super) async fn cordon(run: &Executor<'_>, node: &NodeName) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::cordon(&client, node).await.map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn uncordon(run: &Executor<'_>, node: &NodeName) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::uncordon(&client, node).await.map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn begin_reboot(
    run: &Executor<'_>,
    node: &NodeName,
    request: &str,
    from: &str,
) -> Result<Done, StepError> {
    let client = api(run).await?;
    let mark = RebootMark {
        request: request.to_owned(),
        from: from.to_owned(),
    };
    workload::begin_reboot(&client, node, &mark)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn finish_reboot(
    run: &Executor<'_>,
    node: &NodeName,
    request: &str,
) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::finish_reboot(&client, node, request)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn drain(
    run: &Executor<'_>,
    node: &NodeName,
    rules: Option<&DrainRules>,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = watched(run).await?;
    let waiting = |what, tries| reporter.waiting(what, tries);
    let drained = workload::drain(&client, node, rules, drain_patience(rules), &waiting);
    unless_stopped(stop, Box::pin(drained))
        .await?
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn out_of_service(
    run: &Executor<'_>,
    node: &NodeName,
    uid: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = watched(run).await?;
    let waiting = |what, tries| reporter.waiting(what, tries);
    let detached = workload::out_of_service(&client, node, uid, DETACH_PATIENCE, &waiting);
    match unless_stopped(stop, Box::pin(detached)).await? {
        Ok(Waited::Ready) => Ok(Done::default()),
        Ok(Waited::StillWaiting(why)) => Ok(Done {
            warning: Some(Warning {
                message: format!("volumes of node `{node}` are still attached: {why}"),
                hints: vec![
                    "Kubernetes detaches them by force some minutes after the Node object is \
                     deleted: `kubectl get volumeattachments`"
                        .to_owned(),
                ],
                degrades: false,
            }),
            ..Done::default()
        }),
        Err(error) => Err(failed(error)),
    }
}

pub(super) async fn delete_node(
    run: &Executor<'_>,
    node: &NodeName,
    uid: &str,
) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::delete_node(&client, node, uid)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn evict(
    run: &Executor<'_>,
    workload: &ObjectRef,
    pod: &str,
    uid: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = watched(run).await?;
    let waiting = |what, tries| reporter.waiting(what, tries);
    let pod = (workload.namespace.as_str(), pod, uid);
    let evicted = workload::evict_one(&client, pod, EVICT_PATIENCE, &waiting);
    unless_stopped(stop, Box::pin(evicted))
        .await?
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn save_state_copy(run: &Executor<'_>) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::save_state_copy(&client, run.context.saved()?)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn forget_written(run: &Executor<'_>) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::forget(&client).await.map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn rewrite_stored(
    run: &Executor<'_>,
    resources: &BTreeSet<String>,
    with: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = api(run).await?;
    let progress = |done, total| reporter.progress(done, total, "objects");
    let rewritten = workload::rewrite(&client, resources, with, &progress);
    unless_stopped(stop, Box::pin(rewritten))
        .await?
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn renew_tokens(
    run: &Executor<'_>,
    secrets: &BTreeSet<ObjectRef>,
    key: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = watched(run).await?;
    let waiting = |what, tries| reporter.waiting(what, tries);
    let renewed = workload::renew_tokens(&client, secrets, key, TOKENS_PATIENCE, &waiting);
    unless_stopped(stop, Box::pin(renewed))
        .await?
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn await_authorities(
    run: &Executor<'_>,
    bundle: &str,
    reporter: &Reporter,
    stop: &Stop,
) -> Result<Done, StepError> {
    let client = watched(run).await?;
    let waiting = |what, tries| reporter.waiting(what, tries);
    let handed_out = workload::await_authorities(&client, bundle, TOKENS_PATIENCE, &waiting);
    unless_stopped(stop, Box::pin(handed_out))
        .await?
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn restart_pods(
    run: &Executor<'_>,
    workloads: &BTreeSet<ObjectRef>,
    authority: &str,
) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::restart_pods(&client, workloads, authority)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

pub(super) async fn forget_authorities(
    run: &Executor<'_>,
    version: &str,
) -> Result<Done, StepError> {
    let client = api(run).await?;
    workload::forget_authorities(&client, version)
        .await
        .map_err(failed)?;
    Ok(Done::default())
}

fn addon<'a>(run: &'a Executor<'_>, name: &str) -> Result<&'a Addon, StepError> {
    let addons = &run.context.desired()?.addons;
    addons
        .iter()
        .find(|addon| addon.name == name)
        .ok_or_else(|| bug("no such add-on"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::stop::{StopCause, Stopper};

    /// R26: a slow line is no failure while it carries something.
    #[test]
    fn what_is_written_is_progress() {
        let mut pulled = Pulled::default();
        let mut look = |used| {
            let grows = pulled.grows(used, SLICE);
            (grows, pulled.idle.as_secs(), pulled.bytes)
        };
        assert_eq!(look(Some(5_000_000_000)), (false, 10, 0), "the first look");
        assert_eq!(look(Some(5_000_000_100)), (false, 20, 100), "logs");
        assert_eq!(look(Some(5_010_000_100)), (true, 0, 10_000_100));
        assert_eq!(look(None), (false, 10, 10_000_100), "a look that fails");
        assert_eq!(look(Some(5_012_000_100)), (true, 0, 12_000_100));
        assert_eq!(look(Some(4_000_000_000)), (false, 10, 12_000_100), "less");
        assert_eq!(look(Some(4_002_000_000)), (true, 0, 14_000_100));
        // An hour of slow pulling, and then nothing: only the latter counts.
        for minute in 1..=60 {
            look(Some(4_002_000_000 + minute * 2_000_000));
        }
        let rest = (1..=NODE_PATIENCE.as_secs() / SLICE.as_secs()).map(|_| look(None).1);
        assert_eq!(rest.last(), Some(NODE_PATIENCE.as_secs()));
    }

    #[tokio::test]
    async fn a_wait_ends_on_the_stop_signal_and_that_is_no_failure() {
        let (stopper, stop) = Stopper::new();
        let done = unless_stopped(&stop, std::future::ready(7)).await;
        assert!(matches!(done, Ok(7)));
        let wait = unless_stopped(&stop, std::future::pending::<()>());
        stopper.stop(StopCause::Signal);
        assert!(matches!(wait.await, Err(StepError::Stopped)));
    }
}
