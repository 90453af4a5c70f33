//! Empties a node of its pods through the eviction API, so that every `PodDisruptionBudget` is kept:
//! side by side, as `kubectl drain` does, over one watch of the node's pods.

use std::{collections::BTreeSet, time::Duration};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams, Preconditions},
    runtime::{
        WatchStreamExt,
        reflector::{self, Store},
        watcher::{self, Event, watcher},
    },
};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    Waiting, WorkloadError,
    drain::goes,
    objects::{may_pass, patiently, within},
};
use crate::{
    error::with_causes,
    model::{DrainRules, NodeName},
};

/// How many evictions are in flight at once. A webhook may take seconds for each.
const WIDTH: usize = 32;

/// How long until an eviction that was refused is requested again.
const RETRY: Duration = Duration::from_secs(2);

/// Evicts the pods of a node until the last of them is gone or `patience` is over: then the error names
/// those that are left, and why.
pub(super) async fn empty(
    client: &Client,
    node: &NodeName,
    rules: &DrainRules,
    patience: Duration,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    let end = Instant::now() + patience;
    let mut pods = Pods::follow(client, node);
    let mut accepted = BTreeSet::new();
    let mut left = format!("pods of node `{node}` to be listed");
    for tries in 1.. {
        let found = match timeout_at(end, pods.remaining()).await {
            Ok(Ok(found)) => found,
            // The watch retries automatically.
            Ok(Err(why)) => {
                waiting(why.clone(), tries);
                left = why;
                continue;
            }
            Err(_elapsed) => return Err(overdue(left, patience)),
        };
        if found.is_empty() && on_node(client, node).await?.iter().all(|pod| !goes(pod)) {
            return Ok(());
        }
        let asked = evict_all(client, &found, rules, &mut accepted);
        let Ok(reasons) = timeout_at(end, asked).await else {
            return Err(overdue(left, patience));
        };
        let reasons = reasons?;
        let refused = accepted.len() < found.len();
        let what = described(&reasons);
        left = format!("node `{node}` to be empty: {what}");
        let remaining = end.saturating_duration_since(Instant::now()).as_secs();
        waiting(format!("{what}; {remaining} s left"), tries);
        // Something changes, or it is time to ask again.
        let again = if refused || found.is_empty() {
            end.min(Instant::now() + RETRY)
        } else {
            end
        };
        tokio::select! {
            () = pods.changed() => {}
            () = sleep_until(again) => {}
        }
        if Instant::now() >= end {
            return Err(overdue(left, patience));
        }
    }
    Ok(())
}

fn overdue(waiting_for: String, after: Duration) -> WorkloadError {
    WorkloadError::Overdue { waiting_for, after }
}

fn described(reasons: &[String]) -> String {
    let first = reasons.first().map_or("its pods end", String::as_str);
    match reasons.len() {
        0 | 1 => first.to_owned(),
        many => format!("{first} and {} more", many - 1),
    }
}

/// Requests the eviction of each pod that no accepted request is about; gives what each waits for, those
/// that are refused first.
async fn evict_all(
    client: &Client,
    found: &[Pod],
    rules: &DrainRules,
    accepted: &mut BTreeSet<String>,
) -> Result<Vec<String>, WorkloadError> {
    let uids: BTreeSet<String> = found.iter().filter_map(ResourceExt::uid).collect();
    accepted.retain(|uid| uids.contains(uid));
    let asked: Vec<_> = found
        .iter()
        .map(|pod| request(client, pod, rules.grace_period, accepted))
        .collect();
    let asked = stream::iter(asked);
    let answers: Vec<_> = asked.buffer_unordered(WIDTH).collect().await;
    let (mut refused, mut ending) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer? {
            (uid, Eviction::Ends(why)) => {
                accepted.insert(uid);
                ending.push(why);
            }
            (_, Eviction::Refused(why)) => refused.push(why),
        }
    }
    refused.sort();
    ending.sort();
    refused.append(&mut ending);
    Ok(refused)
}

async fn request(
    client: &Client,
    pod: &Pod,
    grace_period: Option<u32>,
    accepted: &BTreeSet<String>,
) -> Result<(String, Eviction), WorkloadError> {
    let uid = pod.uid().unwrap_or_default();
    if accepted.contains(&uid) {
        return Ok((uid, Eviction::Ends(ends(pod))));
    }
    let answer = evict(client, pod, grace_period).await?;
    Ok((uid, answer))
}

/// The pods of one node, as a watch shows them.
struct Pods {
    store: Store<Pod>,
    events: stream::BoxStream<'static, Result<Event<Pod>, watcher::Error>>,
    listed: bool,
}

impl Pods {
    fn follow(client: &Client, node: &NodeName) -> Self {
        let (store, writer) = reflector::store();
        let pods: Api<Pod> = Api::all(client.clone());
        let of_node = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        Self {
            store,
            events: reflect(watcher(pods, of_node), writer).boxed(),
            listed: false,
        }
    }

    /// Those that have to go. The error says why they cannot be listed yet.
    async fn remaining(&mut self) -> Result<Vec<Pod>, String> {
        while !self.listed {
            match self.events.next().await {
                Some(Ok(event)) => self.listed = matches!(event, Event::InitDone),
                Some(Err(error)) => return Err(with_causes(&error)),
                None => return Err("the watch of its pods ended".to_owned()),
            }
        }
        let pods = self.store.state();
        let left = pods.iter().filter(|pod| goes(pod));
        Ok(left.map(|pod| Pod::clone(pod)).collect())
    }

    /// Until the next change. A watch that fails is one, too: the store may be behind.
    async fn changed(&mut self) {
        if self.events.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

fn reflect(
    events: impl Stream<Item = watcher::Result<Event<Pod>>> + Send + 'static,
    writer: reflector::store::Writer<Pod>,
) -> impl Stream<Item = watcher::Result<Event<Pod>>> + Send + 'static {
    events.default_backoff().reflect(writer)
}

pub(super) async fn on_node(client: &Client, node: &NodeName) -> Result<Vec<Pod>, WorkloadError> {
    let pods: Api<Pod> = Api::all(client.clone());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let doing = format!("list the pods of node `{node}`");
    let all = patiently(&doing, || pods.list(&of_node)).await?;
    Ok(all.items)
}

/// The result of the request for an eviction, and what is waited for.
pub(super) enum Eviction {
    /// The pod is on its way, or gone.
    Ends(String),
    /// Not now: to be requested again.
    Refused(String),
}

impl Eviction {
    pub(super) fn waits_for(self) -> String {
        match self {
            Self::Ends(why) | Self::Refused(why) => why,
        }
    }
}

fn ends(pod: &Pod) -> String {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    format!("pod `{namespace}/{name}` ends")
}

/// Requests the eviction of a pod that is not on its way yet, of this one and not of another one of its name.
pub(super) async fn evict(
    client: &Client,
    pod: &Pod,
    grace_period: Option<u32>,
) -> Result<Eviction, WorkloadError> {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(Eviction::Ends(ends(pod)));
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let params = EvictParams {
        delete_options: Some(DeleteParams {
            grace_period_seconds: grace_period,
            preconditions: Some(Preconditions {
                uid: pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        }),
        ..EvictParams::default()
    };
    let not_yet = |why: &dyn std::fmt::Display| {
        Eviction::Refused(format!(
            "pod `{namespace}/{name}` may not be evicted yet: {why}"
        ))
    };
    match within(pods.evict(&name, &params)).await {
        Ok(_) => Ok(Eviction::Ends(ends(pod))),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            Ok(Eviction::Ends(ends(pod)))
        }
        // 429: a budget does not allow it now. 500: two budgets select it, or a webhook fails.
        Err(kube::Error::Api(status)) if matches!(status.code, 429 | 500..) => {
            Ok(not_yet(&status.message))
        }
        Err(error) if may_pass(&error) => Ok(not_yet(&with_causes(&error))),
        Err(error) => {
            let doing = format!("evict pod `{namespace}/{name}`");
            Err(WorkloadError::api(doing, error))
        }
    }
}
