//! What the reconcilers share: the API, the engine, the cache of the watch, and the limits.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Resource,
    api::DynamicObject,
    runtime::{
        controller::Action,
        events::{Recorder, Reporter},
        reflector::Store,
    },
};
use tokio::sync::{Semaphore, watch};

use super::{
    OperatorOptions,
    backoff::Backoff,
    engine::Engine,
    view::{View, cluster_resource},
};
use crate::{
    api,
    apply::stop::{Stop, StopCause},
    error::{Blame, Explain, with_causes},
    host::Dial,
};

/// Tells the time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// That function's time.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// What is outside, besides the API: exchanged in tests.
#[derive(Clone)]
pub struct Parts {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// How nodes are reached.
    pub dial: Arc<dyn Dial>,
    /// Judges deadlines and dates conditions.
    pub clock: Clock,
    /// The engine's time, for certificates.
    pub now: fn() -> Timestamp,
    /// The engine's randomness.
    pub entropy: fn() -> [u8; 32],
}

/// How many clusters at once, each kind by itself: provisions cannot starve a delete.
pub(super) struct Slots {
    pub(super) deletes: Semaphore,
    pub(super) changes: Semaphore,
    pub(super) checks: Semaphore,
}

/// Shared by all reconciles.
pub(super) struct Context {
    pub(super) options: OperatorOptions,
    pub(super) client: Client,
    pub(super) clusters: Api<DynamicObject>,
    pub(super) parts: Parts,
    /// What the watch knows.
    pub(super) seen: Store<DynamicObject>,
    /// Moves whenever `seen` does.
    pub(super) news: watch::Receiver<u64>,
    pub(super) stop: Stop,
    pub(super) backoff: Backoff,
    pub(super) slots: Slots,
    pub(super) recorder: Recorder,
}

impl Context {
    pub(super) fn new(
        options: OperatorOptions,
        client: Client,
        parts: Parts,
        seen: Store<DynamicObject>,
        news: watch::Receiver<u64>,
        stop: Stop,
    ) -> Self {
        let reporter = Reporter {
            controller: api::MANAGER.to_owned(),
            instance: None,
        };
        let limits = options.limits;
        Self {
            clusters: Api::all_with(client.clone(), &cluster_resource()),
            recorder: Recorder::new(client.clone(), reporter),
            backoff: Backoff::default(),
            slots: Slots {
                deletes: Semaphore::new(limits.deletes),
                changes: Semaphore::new(limits.changes),
                checks: Semaphore::new(limits.checks),
            },
            options,
            client,
            parts,
            seen,
            news,
            stop,
        }
    }

    /// Resolves when a run for `view` must end: told to, or the object is no longer that one
    /// (invariant 9).
    pub(super) async fn outdated(&self, view: &View) -> StopCause {
        let about = view.object_ref();
        let mut news = self.news.clone();
        let changed = async {
            loop {
                news.mark_unchanged();
                let now = self.seen.get(&about);
                if view.outdated_by(now.as_deref()) {
                    return StopCause::ObjectChanged;
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

    /// When to look again after a failure.
    pub(super) fn retry(&self, view: &View, blame: Blame) -> Action {
        Action::requeue(self.backoff.failed(&view.uid(), blame, rand::random()))
    }

    /// When to look again at a cluster that is well.
    pub(super) fn settled(&self, view: &View) -> Action {
        self.backoff.forget(&view.uid());
        let jitter = rand::random::<f64>() / 10.0;
        Action::requeue(self.options.resync.mul_f64(1.0 + jitter))
    }

    pub(super) fn reference(view: &View) -> ObjectReference {
        ObjectReference {
            api_version: Some(format!("{}/{}", api::GROUP, api::VERSION)),
            kind: Some("Cluster".to_owned()),
            name: view.meta().name.clone(),
            uid: view.meta().uid.clone(),
            ..ObjectReference::default()
        }
    }
}

/// Message, causes and cures in one line. Our errors name paths, nodes and the names of
/// Secrets, never values, so whoever may read the object may read this.
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

/// The labels of what belongs to a cluster.
pub(super) fn labels(cluster: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(
        crate::desired::label::CLUSTER_NAME.to_owned(),
        cluster.to_owned(),
    )])
}

/// Why a pass ended without a result: the management cluster's API. Tried again with backoff.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct ReconcileError(#[from] pub(super) kube::Error);
