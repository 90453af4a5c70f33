//! Waiting for the cluster: watched, bounded, and saying what for.

use std::{collections::BTreeSet, time::Duration};

use futures::{Stream, StreamExt, future::join_all, stream::BoxStream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{Node, Pod},
    },
};
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt,
        reflector::{self, Store},
        watcher::{self, watch_object, watcher},
    },
};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    WorkloadError,
    available::{Lack, waiting_for},
    crash::Crashes,
    pulls::pulling,
    read::fact,
};
use crate::{
    error::with_causes,
    model::{NodeName, ObjectRef},
};

/// How a wait ended that does not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It is as it should be.
    Ready,
    /// Time is up, or is not spent on it, and this is still missing.
    StillWaiting(String),
}

/// Called with what is waited for, and how often that was checked. To stop waiting, the caller drops the
/// future: a wait only watches.
pub type Waiting<'a> = &'a (dyn Fn(String, u64) + Send + Sync);

/// How often a wait checks whether a pod waits for its image: the pod does not change when it does.
const LOOK: Duration = Duration::from_secs(5);

/// How often it is looked whether anything is left.
const EVERY: Duration = Duration::from_secs(1);

/// Looks until nothing is left to wait for, and no longer than that. Each look says what is.
pub(super) async fn until_nothing_is_left<
    F: Future<Output = Result<Option<String>, WorkloadError>>,
>(
    patience: Duration,
    waiting: Waiting<'_>,
    look: impl Fn() -> F,
) -> Result<(), WorkloadError> {
    let end = Instant::now() + patience;
    let mut tries = 1;
    while let Some(waiting_for) = look().await? {
        if Instant::now() >= end {
            let after = patience;
            return Err(WorkloadError::Overdue { waiting_for, after });
        }
        waiting(waiting_for, tries);
        tries += 1;
        sleep(EVERY).await;
    }
    Ok(())
}

/// So long it is waited for a node that takes a pod: the nodes are Ready by then, and one that a controller
/// of the cluster has yet to admit, as with a cloud, is admitted sooner.
const PLACE_PATIENCE: Duration = Duration::from_secs(120);

/// Why a node that is not there is waited for.
const NOT_REGISTERED: &str = "kubelet has not registered it yet";

/// Waits until kubelet has registered the node in the API.
pub async fn await_registered(
    client: &Client,
    name: &NodeName,
    patience: Duration,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    node(client, name, patience, waiting, |node| {
        node.is_none().then(|| NOT_REGISTERED.to_owned())
    })
    .await
}

/// Waits until the node is Ready in the API.
pub async fn await_node_ready(
    client: &Client,
    name: &NodeName,
    patience: Duration,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    node(client, name, patience, waiting, |node| match node {
        None => Some(NOT_REGISTERED.to_owned()),
        Some(node) => {
            let fact = fact(node);
            (!fact.ready).then_some(fact.message)
        }
    })
    .await
}

/// Waits until `missing` finds nothing missing in the Node object.
async fn node(
    client: &Client,
    name: &NodeName,
    patience: Duration,
    waiting: Waiting<'_>,
    missing: impl Fn(Option<&Node>) -> Option<String> + Send + Sync,
) -> Result<(), WorkloadError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let seen = watch_object(nodes, &name.0).default_backoff().map(|seen| {
        let missing = match seen {
            Ok(node) => missing(node.as_ref())?,
            Err(error) => with_causes(&error),
        };
        Some(Lack::Pods(format!("node `{name}`: {missing}"), None))
    });
    let subject = format!("node `{name}`");
    match until((client, &[]), seen, subject, patience, waiting).await {
        Waited::Ready => Ok(()),
        Waited::StillWaiting(waiting_for) => Err(WorkloadError::Overdue {
            waiting_for,
            after: patience,
        }),
    }
}

/// Waits until `DaemonSet`s and `Deployment`s are available. Late is not a failure: the result
/// says which pod it hangs on, and why. What hangs on silent nodes alone is not waited for.
pub async fn await_workloads(
    client: &Client,
    workloads: &[ObjectRef],
    silent: &BTreeSet<NodeName>,
    patience: Duration,
    waiting: Waiting<'_>,
) -> Waited {
    let namespaces: BTreeSet<&str> = workloads
        .iter()
        .map(|workload| workload.namespace.as_str())
        .collect();
    let mut changes = Vec::new();
    let mut stores = Vec::new();
    for namespace in &namespaces {
        let (daemon_sets, one) = follow::<DaemonSet>(client, namespace);
        let (deployments, two) = follow::<Deployment>(client, namespace);
        let (pods, three) = follow::<Pod>(client, namespace);
        changes.extend([one, two, three]);
        stores.push((daemon_sets, deployments, pods));
    }
    let seen = futures::stream::select_all(changes).map(|change| {
        if let Err(error) = change {
            return Some(Lack::Pods(with_causes(&error), None));
        }
        let mut daemon_sets = Vec::new();
        let mut deployments = Vec::new();
        let mut pods = Vec::new();
        for store in &stores {
            daemon_sets.extend(store.0.state());
            deployments.extend(store.1.state());
            pods.extend(store.2.state());
        }
        waiting_for(workloads, silent, &daemon_sets, &deployments, &pods)
    });
    let first = workloads.first().map(ObjectRef::to_string);
    let namespaces: Vec<&str> = namespaces.into_iter().collect();
    let places = (client, namespaces.as_slice());
    until(places, seen, first.unwrap_or_default(), patience, waiting).await
}

/// A local copy of the objects of one kind, and its changes.
fn follow<K>(
    client: &Client,
    namespace: &str,
) -> (Store<K>, BoxStream<'static, Result<(), watcher::Error>>)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + serde::de::DeserializeOwned
        + 'static,
{
    let (store, writer) = reflector::store();
    let changes = watcher(
        Api::<K>::namespaced(client.clone(), namespace),
        watcher::Config::default(),
    )
    .default_backoff()
    .reflect(writer)
    .map(|change| change.map(|_| ()))
    .boxed();
    (store, changes)
}

/// Follows `seen` until it says that nothing is missing, or time is up: a container that keeps exiting takes
/// no longer than it takes to see that it does, and a pod that no node takes not all of the time. In the namespaces it
/// is looked for images that pods wait for.
async fn until(
    (client, namespaces): (&Client, &[&str]),
    seen: impl Stream<Item = Option<Lack>> + Send,
    subject: String,
    patience: Duration,
    waiting: Waiting<'_>,
) -> Waited {
    let deadline = Instant::now() + patience;
    let mut seen = std::pin::pin!(seen);
    let mut missing = subject;
    let mut crashes = Crashes::default();
    let mut without_place = None;
    let mut tries = 0;
    waiting(missing.clone(), tries);
    loop {
        let end = without_place.map_or(deadline, |since| deadline.min(since + PLACE_PATIENCE));
        match timeout_at(end.min(Instant::now() + LOOK), seen.next()).await {
            Ok(Some(None)) => return Waited::Ready,
            Ok(Some(Some(Lack::Nodes(now)))) => return Waited::StillWaiting(now),
            Ok(Some(Some(Lack::Place(now)))) => {
                tries += 1;
                without_place.get_or_insert_with(Instant::now);
                missing = now;
                waiting(missing.clone(), tries);
            }
            Ok(Some(Some(Lack::Pods(now, crash)))) => {
                tries += 1;
                without_place = None;
                missing = match crash {
                    Some(crash) => format!("{now}; {}", crashes.explain(client, &crash).await),
                    None => now,
                };
                if crashes.is_over() {
                    return Waited::StillWaiting(missing);
                }
                waiting(missing.clone(), tries);
            }
            Err(_) if Instant::now() < end => {
                let looks = namespaces.iter().map(|one| pulling(client, one, None));
                let pulled = join_all(looks).await.into_iter().flatten().next();
                if let Some(pulled) = pulled {
                    tries += 1;
                    waiting(format!("{missing}; {pulled}"), tries);
                }
            }
            Ok(None) | Err(_) => return Waited::StillWaiting(missing),
        }
    }
}
