//! What happens in clusters that were applied, as soon as it happens: a task for each of them keeps one connection to
//! each of its control planes and wakes the reconcile when what it sees is not what the last survey saw. Meanwhile the
//! conditions follow what it sees, also while a run is in progress.
//!
//! | File | What |
//! |---|---|
//! | `sight` | what is seen, against what a survey saw; which conditions that changes (pure) |
//! | `hints` | which of it is a hint, and when (pure) |
//! | `state` | both, and what a survey and a run do to them (pure) |
//! | `task` | the connections and what is asked over them |
//!
//! A Cluster that is paused is watched like any other: nothing is changed on its nodes, and its conditions are right. One
//! that is being deleted is not: what a removal does would be a hint each time, and a removal reports for itself.
//!
//! May touch: the connections of [`crate::apply::watch`], and the state of a Cluster to know where they lead. Must not:
//! change anything, on nodes or in the management cluster; statuses are written by the reconcile.

mod hints;
mod sight;
mod state;
mod task;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{Stream, stream};
use kube::{api::DynamicObject, runtime::reflector::ObjectRef};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use self::{state::ProbeState, task::Task};
use super::cluster_object::ClusterObject;
use crate::{
    api::conditions::ConditionSet,
    apply::stop::Stop,
    converge,
    environment::{Clock, Environment},
    facts::Actual,
    host::{KnownHosts, Policy},
    model::NodeName,
    state::ClusterState,
};

/// How clusters are watched.
#[derive(Clone, Copy, Debug)]
pub struct ProberOptions {
    /// How often a cluster that is well is surveyed while all its control planes are connected.
    pub resync: Duration,
    /// How often each API server is asked whether it serves, and how long it may take to answer.
    pub api: Duration,
    /// See [`Self::api`].
    pub api_limit: Duration,
    /// How often the members of etcd are asked.
    pub etcd: Duration,
    /// How many connections this process keeps. A Cluster that finds none free is surveyed as often as
    /// without a prober.
    pub connections: usize,
    /// How many of them one Cluster has.
    pub of_cluster: usize,
}

impl Default for ProberOptions {
    fn default() -> Self {
        Self {
            resync: Duration::from_secs(600),
            // A hanging API server is to show in the conditions within 15 s: this, `api_limit`, and up to 2 s for the write.
            api: Duration::from_secs(8),
            api_limit: Duration::from_secs(5),
            etcd: Duration::from_secs(30),
            connections: 2000,
            of_cluster: 7,
        }
    }
}

/// Memory of a kept connection, in bytes: the SSH session, the streams inside it, and what was read from them
/// (docs/measurements.md).
const CONNECTION: u64 = 640 << 10;

/// Memory of the rest of the process, in bytes, at most: its caches, and the runs that its slots allow, one of a large
/// cluster among them.
const REST: u64 = 640 << 20;

impl ProberOptions {
    /// With no more connections than fit below a memory limit, in bytes. A process that is ended for its memory watches
    /// nothing at all.
    pub fn within(limit: u64) -> Self {
        let default = Self::default();
        let fit = limit.saturating_sub(REST) / CONNECTION;
        Self {
            connections: usize::try_from(fit)
                .unwrap_or(usize::MAX)
                .min(default.connections),
            ..default
        }
    }
}

/// Watches the clusters.
pub(super) struct Prober {
    options: ProberOptions,
    begun: Instant,
    clusters: Mutex<HashMap<String, Arc<Followed>>>,
    connections: Arc<Semaphore>,
    orders: mpsc::UnboundedSender<Task>,
    wake: mpsc::UnboundedSender<ObjectRef<DynamicObject>>,
    ends: Mutex<Option<Ends>>,
}

/// The receiving ends, until they are used.
struct Ends {
    orders: mpsc::UnboundedReceiver<Task>,
    wake: Option<mpsc::UnboundedReceiver<ObjectRef<DynamicObject>>>,
}

/// A cluster that is watched.
struct Followed {
    about: ObjectRef<DynamicObject>,
    /// Of what it is reached by.
    mark: u64,
    begun: Instant,
    state: watch::Sender<ProbeState>,
    stop: CancellationToken,
}

impl Followed {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Changes what is known.
    fn change(&self, change: impl FnOnce(&mut ProbeState, Duration)) {
        let now = self.now();
        self.state.send_modify(|state| change(state, now));
    }
}

impl Prober {
    pub(super) fn new(options: ProberOptions) -> Self {
        let (orders, taken) = mpsc::unbounded_channel();
        let (wake, woken) = mpsc::unbounded_channel();
        Self {
            options,
            begun: Instant::now(),
            clusters: Mutex::default(),
            connections: Arc::new(Semaphore::new(options.connections)),
            orders,
            wake,
            ends: Mutex::new(Some(Ends {
                orders: taken,
                wake: Some(woken),
            })),
        }
    }

    /// The Clusters for which there is a hint. The first caller gets them.
    pub(super) fn hints(&self) -> impl Stream<Item = ObjectRef<DynamicObject>> + Send + 'static {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = ends.as_mut().and_then(|ends| ends.wake.take());
        stream::unfold(woken, async |woken| {
            let mut woken = woken?;
            let about = woken.recv().await?;
            Some((about, Some(woken)))
        })
    }

    /// Runs the tasks until `stop`; then every connection is closed at once.
    pub(super) async fn run(&self, stop: &Stop) {
        let ends = self.ends.lock().map(|mut ends| ends.take());
        let Some(mut ends) = ends.unwrap_or_else(|broken| broken.into_inner().take()) else {
            return;
        };
        // With this function the tasks end.
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                _ = stop.stopped() => return,
                task = ends.orders.recv() => match task {
                    Some(task) => drop(tasks.spawn(task.run())),
                    None => return,
                },
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                    if let Err(error) = ended {
                        tracing::warn!(%error, "a task that watched a cluster ended");
                    }
                }
            }
        }
    }

    fn clusters(&self) -> MutexGuard<'_, HashMap<String, Arc<Followed>>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn followed(&self, uid: &str) -> Option<Arc<Followed>> {
        self.clusters().get(uid).cloned()
    }

    /// Watches the cluster of that object from now on, as its state says where it is.
    pub(super) fn watch(
        &self,
        view: &ClusterObject,
        saved: &ClusterState,
        environment: &Environment,
    ) {
        let nodes = converge::control_planes(saved);
        let mark = mark(saved, &nodes);
        let uid = view.uid();
        let mut clusters = self.clusters();
        if let Some(followed) = clusters.get(&uid) {
            if followed.mark == mark && !followed.stop.is_cancelled() {
                return;
            }
            followed.stop.cancel();
        }
        let followed = Arc::new(Followed {
            about: view.object_ref(),
            mark,
            begun: self.begun,
            state: watch::Sender::new(ProbeState::new(saved.cluster_id.clone())),
            stop: CancellationToken::new(),
        });
        clusters.insert(uid, Arc::clone(&followed));
        // What only a run needs is not kept: it grows with the clusters.
        let environment = Environment {
            held_elsewhere: BTreeSet::new(),
            host_keys: Arc::new(KnownHosts::from_text("the state", "", Policy::Strict)),
            ..environment.without_requests()
        };
        // Without anybody who takes it the operator ends.
        let _ = self.orders.send(Task {
            followed,
            environment,
            options: self.options,
            connections: Arc::clone(&self.connections),
            wake: self.wake.clone(),
        });
    }

    /// Watches it no longer: it is gone, is being deleted, or may not be reached by what it was.
    pub(super) fn forget(&self, uid: &str) {
        if let Some(followed) = self.clusters().remove(uid) {
            followed.stop.cancel();
        }
    }

    /// True while all that a hint may come from is connected: then a survey may be rare.
    pub(super) fn is_connected(&self, uid: &str) -> bool {
        let followed = self.followed(uid);
        followed.is_some_and(|followed| followed.state.borrow().sight().is_complete())
    }

    /// For how long a survey has to wait, where hints come so often that their budget is spent.
    pub(super) fn held(&self, uid: &str) -> Option<Duration> {
        let followed = self.followed(uid)?;
        let state = followed.state.borrow();
        state.held(followed.now())
    }

    /// How many connections are open.
    pub(super) fn connections(&self) -> usize {
        let free = self.connections.available_permits();
        self.options.connections.saturating_sub(free)
    }

    /// A survey that began at `began` saw this.
    pub(super) fn surveyed(&self, uid: &str, began: Instant, actual: &Actual) {
        if let Some(followed) = self.followed(uid) {
            let began = began.saturating_duration_since(self.begun);
            followed.change(|state, now| state.surveyed(now, began, actual));
        }
    }

    /// A survey that began at `began` failed.
    pub(super) fn blind(&self, uid: &str, began: Instant) {
        if let Some(followed) = self.followed(uid) {
            let began = began.saturating_duration_since(self.begun);
            followed.change(|state, now| state.blind(now, began));
        }
    }

    /// A run is in progress until the answer is dropped: what it causes is no hint.
    pub(super) fn begin_run(&self, uid: &str) -> RunMark {
        let followed = self.followed(uid);
        if let Some(followed) = &followed {
            followed.change(|state, _| state.runs(true));
        }
        RunMark(followed)
    }

    /// What is seen of that object's cluster, for its status.
    pub(super) fn view(&self, uid: &str, saved: Arc<ClusterState>, clock: Clock) -> ProbeView {
        let followed = self.followed(uid);
        ProbeView(followed.map(|followed| Watcher {
            states: followed.state.subscribe(),
            saved,
            clock,
        }))
    }
}

/// Of what a cluster is reached by: with another one the connections are made again.
fn mark(saved: &ClusterState, nodes: &BTreeMap<NodeName, bool>) -> u64 {
    let mut hasher = DefaultHasher::new();
    saved.cluster_id.0.hash(&mut hasher);
    saved.cluster_ca.bundle().hash(&mut hasher);
    saved.etcd_ca.bundle().hash(&mut hasher);
    saved.external_etcd.is_some().hash(&mut hasher);
    for name in nodes.keys() {
        name.hash(&mut hasher);
        // It has no key: only where keys are.
        if let Some(entry) = saved.inventory.get(name) {
            format!("{entry:?}").hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// A run, for as long as this is there.
pub(super) struct RunMark(Option<Arc<Followed>>);

impl Drop for RunMark {
    fn drop(&mut self) {
        if let Some(followed) = &self.0 {
            followed.change(|state, _| state.runs(false));
        }
    }
}

/// What is seen of a cluster, as its status has it; of one that is not watched nothing.
#[derive(Default)]
pub(super) struct ProbeView(Option<Watcher>);

struct Watcher {
    states: watch::Receiver<ProbeState>,
    saved: Arc<ClusterState>,
    clock: Clock,
}

impl ProbeView {
    /// Resolves when something else may be seen.
    pub(super) async fn changed(&mut self) {
        if let Some(watcher) = &mut self.0
            && watcher.states.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// The conditions that are not as the last survey had them.
    pub(super) fn news(&mut self) -> ConditionSet {
        let Some(watcher) = &mut self.0 else {
            return ConditionSet::new();
        };
        let state = watcher.states.borrow_and_update();
        state.news(&watcher.saved, watcher.clock.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_connections_are_kept_than_fit_into_memory() {
        let connections = |mib: u64| ProberOptions::within(mib << 20).connections;
        assert_eq!(connections(0), 0);
        assert_eq!(connections(640), 0, "all of it is for runs");
        assert_eq!(connections(640 + 64), 102);
        assert_eq!(connections(1024), 614, "as shipped");
        let default = ProberOptions::default().connections;
        assert_eq!(connections(64 << 10), default);
        assert_eq!(ProberOptions::within(u64::MAX).connections, default);
    }
}
