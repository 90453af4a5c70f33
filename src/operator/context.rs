//! What the reconcilers share: the API, the nodes, the cache of the watch, and the limits.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, Secret as KubeSecret};
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ObjectMeta, PartialObjectMeta},
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};
use tokio::{sync::watch, time::Instant};

use super::{
    Limits, OperatorOptions,
    backoff::Backoff,
    cluster_object::{ClusterObject, cluster_resource},
    environment::KeptIds,
    events::Publisher,
    files::Files,
    health::Health,
    home::ServerTime,
    kubeconfig::Visits,
    metrics::{Controller, Seen},
    operation,
    prober::{ProbeView, Prober},
    queue::{Action, Queue},
    removal::Attempts,
    sources::{SourceVersion, Sources},
    transitions::Outages,
};
use crate::{
    api::{self, ClusterOperation},
    apply::remote::Remote,
    apply::stop::{Stop, StopCause},
    environment::Clock,
    error::{ErrorClass, Explain, with_causes},
    host::ServiceRanges,
    state::ClusterState,
};

/// What is outside, besides the API: exchanged in tests.
#[derive(Clone)]
pub struct Dependencies {
    /// The addresses that no node has: set when the API has answered.
    pub services: ServiceRanges,
    /// How nodes are reached.
    pub remote: Arc<dyn Remote>,
    /// The time, for deadlines, conditions and certificates.
    pub clock: Clock,
    /// Fresh randomness, for keys.
    pub entropy: fn() -> [u8; 32],
}

/// What waits and what is in progress.
pub(super) struct Queues {
    pub(super) clusters: Arc<Queue>,
    pub(super) kubeconfigs: Arc<Queue>,
}

/// What the watches know, without the contents of any Secret.
pub(super) struct Caches {
    /// The objects.
    pub(super) clusters: Store<DynamicObject>,
    /// The Secrets with keys and kubeconfigs.
    pub(super) secrets: Store<PartialObjectMeta<KubeSecret>>,
    /// The ConfigMaps next to them.
    pub(super) config_maps: Store<PartialObjectMeta<ConfigMap>>,
    /// The operations of Clusters.
    pub(super) operations: Store<DeserializeGuard<ClusterOperation>>,
    /// Moves whenever one of them does.
    pub(super) news: watch::Receiver<u64>,
}

/// How many Kubeconfigs at once. One of a user needs the cluster's own API, which may hang.
const KUBECONFIGS: Limits = Limits {
    deletes: 8,
    changes: 8,
    checks: 8,
};

/// How many looks may be missed before what the last one saw is no longer claimed.
const MISSED: u32 = 3;

/// Shared by all reconciles.
pub(super) struct Context {
    pub(super) options: OperatorOptions,
    pub(super) client: Client,
    pub(super) clusters: Api<DynamicObject>,
    pub(super) dependencies: Dependencies,
    pub(super) caches: Caches,
    pub(super) health: Arc<Health>,
    pub(super) stop: Stop,
    pub(super) backoff: Backoff,
    pub(super) queues: Queues,
    pub(super) publisher: Publisher,
    pub(super) attempts: Attempts,
    pub(super) kept: KeptIds,
    pub(super) files: Files,
    pub(super) outages: Arc<Outages>,
    pub(super) visits: Visits,
    pub(super) prober: Prober,
    looks: Mutex<HashMap<String, Instant>>,
    time: ServerTime,
}

impl Context {
    pub(super) fn new(
        options: OperatorOptions,
        client: Client,
        dependencies: Dependencies,
        caches: Caches,
        health: Arc<Health>,
        time: ServerTime,
        stop: Stop,
    ) -> Self {
        let files = Files::new(options.config_root.clone());
        let prober = Prober::new(options.prober);
        Self {
            clusters: Api::all_with(client.clone(), &cluster_resource()),
            publisher: Publisher::new(client.clone()),
            backoff: Backoff::default(),
            queues: Queues {
                clusters: Queue::new(Controller::Cluster, options.limits, &health.metrics),
                kubeconfigs: Queue::new(Controller::Kubeconfig, KUBECONFIGS, &health.metrics),
            },
            options,
            client,
            dependencies,
            caches,
            health,
            stop,
            attempts: Attempts::default(),
            kept: KeptIds::default(),
            files,
            outages: Arc::default(),
            visits: Visits::default(),
            prober,
            looks: Mutex::default(),
            time,
        }
    }

    /// What time it is for the API server, which wrote the objects' dates; where it does not tell,
    /// by this process' clock.
    pub(super) fn now(&self) -> Timestamp {
        let now = self.time.now();
        now.unwrap_or_else(|| self.dependencies.clock.now())
    }

    /// Shared; from now on the metrics show what the watches know.
    pub(super) fn shown(self) -> Arc<Self> {
        let shared = Arc::new(self);
        let this = Arc::downgrade(&shared);
        shared.health.metrics.read_from(move || {
            let this = this.upgrade()?;
            let queues = &this.queues;
            Some(Seen {
                clusters: this.caches.clusters.state(),
                queues: vec![queues.clusters.seen(), queues.kubeconfigs.seen()],
                connections: this.prober.connections(),
            })
        });
        shared
    }

    /// A survey of that object's cluster was done.
    pub(super) fn looked_at(&self, view: &ClusterObject) {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.insert(view.uid(), Instant::now());
    }

    /// True for a cluster that was looked at a short while ago: its conditions are not stale yet.
    pub(super) fn has_just_looked_at(&self, view: &ClusterObject) -> bool {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let last = looks.get(&view.uid());
        last.is_some_and(|last| last.elapsed() < MISSED * self.interval(view))
    }

    /// How often that object's cluster is looked at while it is well: rarely where a prober sees what happens meanwhile.
    fn interval(&self, view: &ClusterObject) -> Duration {
        let OperatorOptions { resync, prober, .. } = &self.options;
        if self.prober.is_connected(&view.uid()) {
            prober.resync.max(*resync)
        } else {
            *resync
        }
    }

    /// What its prober sees of that object's cluster.
    pub(super) fn probed(&self, view: &ClusterObject, saved: &Arc<ClusterState>) -> ProbeView {
        let clock = self.dependencies.clock.clone();
        self.prober.view(&view.uid(), Arc::clone(saved), clock)
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.backoff.forget(uid);
        self.outages.forget(uid);
        self.prober.forget(uid);
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.remove(uid);
    }

    /// Reports that a reconcile is making progress.
    pub(super) fn beat(&self) {
        self.health.beat();
    }

    /// Resolves when a run for `view` must end: by the stop signal, because the object is another one, or because one of
    /// the objects and files that it was read from has other contents (invariant 9). A label that a Secret gets is no reason.
    pub(super) async fn outdated(&self, view: &ClusterObject, read: &[SourceVersion]) -> StopCause {
        let about = view.object_ref();
        let mut news = self.caches.news.clone();
        let sources = Sources::new(self, &view.name());
        let mut read = read.to_vec();
        let changed = async {
            loop {
                news.mark_unchanged();
                let now = self.caches.clusters.get(&about);
                if view.outdated_by(now.as_deref()) {
                    return StopCause::ObjectChanged;
                }
                for read in read.iter_mut().filter(|read| self.is_newer(read)) {
                    match sources.unchanged(read).await {
                        Some(now) => *read = now,
                        None => return StopCause::ObjectChanged,
                    }
                }
                if news.changed().await.is_err() {
                    // The watch ended, and with it the operator.
                    return StopCause::Signal;
                }
            }
        };
        tokio::select! {
            cause = self.stop.stopped() => cause,
            cause = changed => cause,
        }
    }

    /// True when the watch has a later version than the one that was read. An older one is a cache that is behind; one
    /// that is gone ends no run that has logged in.
    fn is_newer(&self, read: &SourceVersion) -> bool {
        let namespace = &self.options.credentials_namespace;
        let (now, then) = match read {
            SourceVersion::Secret { name, version, .. } => {
                let now = self
                    .caches
                    .secrets
                    .get(&ObjectRef::new(name).within(namespace));
                (now.map(|now| now.metadata.clone()), *version)
            }
            SourceVersion::ConfigMap { name, version, .. } => {
                let about = ObjectRef::new(name).within(namespace);
                let now = self.caches.config_maps.get(&about);
                (now.map(|now| now.metadata.clone()), *version)
            }
            SourceVersion::File { path, digest } => return self.files.is_newer(path, digest),
            SourceVersion::Operation { name, uid } => {
                return operation::is_withdrawn(self, name, uid);
            }
        };
        now.and_then(|now| version(now.resource_version.as_deref()))
            .is_some_and(|now| now > then)
    }

    /// When to look again after a failure.
    pub(super) fn retry(&self, view: &ClusterObject, class: ErrorClass) -> Action {
        Action::retry(self.backoff.failed(&view.uid(), class, rand::random()))
    }

    /// When to look again at a cluster that is well.
    pub(super) fn settled(&self, view: &ClusterObject) -> Action {
        self.backoff.forget(&view.uid());
        let jitter = rand::random::<f64>() / 10.0;
        Action::requeue(self.interval(view).mul_f64(1.0 + jitter))
    }

    pub(super) fn reference(view: &ClusterObject) -> ObjectReference {
        ObjectReference {
            api_version: Some(format!("{}/{}", api::GROUP, api::VERSION)),
            kind: Some("Cluster".to_owned()),
            name: view.meta().name.clone(),
            uid: view.meta().uid.clone(),
            ..ObjectReference::default()
        }
    }
}

/// A resourceVersion as the number that it is; API servers compare them so since 1.35.
pub(super) fn version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// Message, causes and cures in one line. Our errors name paths, nodes and the names of
/// Secrets, never values, so everyone who may read the object may read this.
pub(super) fn explained(error: &(impl Explain + 'static)) -> String {
    let mut line = with_causes(error);
    for hint in error.hints() {
        line.push_str("; hint: ");
        line.push_str(&hint);
    }
    line
}

/// Owner references that make the garbage collector take an object with its owner.
pub(super) fn owned_by<K>(
    owner: &K,
) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference>
where
    K: Resource<DynamicType = ()>,
{
    owner.controller_owner_ref(&())
}

/// The patch that gives an object these finalizers. It fails when another client wrote since the object was read, so
/// that no finalizer of others is lost.
pub(super) fn with_finalizers(meta: &ObjectMeta, finalizers: &[String]) -> serde_json::Value {
    serde_json::json!({"metadata": {
        "finalizers": finalizers,
        "resourceVersion": meta.resource_version,
        "uid": meta.uid,
    }})
}

/// The labels of what belongs to a cluster.
pub(super) fn labels(cluster: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(
        crate::model::label::CLUSTER_NAME.to_owned(),
        cluster.to_owned(),
    )])
}

/// Why a reconcile ended without a result: the management cluster's API. Retried with backoff.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct ReconcileError(#[from] pub(super) kube::Error);
