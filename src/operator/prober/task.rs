//! The task that watches one cluster. Everything that it waits for has an end, and everything that is done again waits
//! for a while first, each time a little longer than before and by chance.

use std::{collections::BTreeMap, convert::Infallible, pin::pin, sync::Arc, time::Duration};

use futures::{StreamExt, future::join_all};
use kube::{api::DynamicObject, runtime::reflector::ObjectRef};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{Followed, ProberOptions, hints::Wake, state::ProbeState};
use crate::{
    apply::watch::RemoteWatch,
    converge::{self, Watching},
    environment::Environment,
    error::{ErrorClass, Obstacle, with_causes},
    facts::{ApiHealth, NodeHealth, Unreachable},
    model::NodeName,
    operator::backoff::doubled,
    state::Loaded,
    workload::NodeChange,
};

/// The wait before a connection, a stream or a state is tried again: doubled each time, up to the other one.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// A connection that lasted so long was a good one: the next one is tried soon.
const LASTS: Duration = Duration::from_secs(60);

/// Until a connection is looked for where none was free.
const FULL: Duration = Duration::from_secs(60);

/// Client certificates and logins are made and read again after so long.
const RENEW: Duration = Duration::from_secs(12 * 3600);

/// How long Docker may take to list the containers.
const LIST: Duration = Duration::from_secs(15);

/// Events that come together are one.
const TOGETHER: Duration = Duration::from_millis(50);

/// So long after the first list there is a second one: events are reported from some moment in between.
const AGAIN: Duration = Duration::from_secs(2);

/// How long the list of Nodes may take.
const NODES: Duration = Duration::from_secs(30);

/// With more Nodes the answer is not believed.
const MOST_NODES: usize = 5000;

/// Watches one cluster.
pub(super) struct Task {
    pub(super) followed: Arc<Followed>,
    pub(super) environment: Environment,
    pub(super) options: ProberOptions,
    pub(super) connections: Arc<Semaphore>,
    pub(super) wake: mpsc::UnboundedSender<ObjectRef<DynamicObject>>,
}

/// When the task ends, whatever the reason, nothing is known any more.
struct Ended(Arc<Followed>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.stop.cancel();
        self.0.change(ProbeState::ends);
    }
}

/// A wait that grows.
#[derive(Default)]
struct Pause(u32);

impl Pause {
    async fn wait(&mut self) {
        let pause = doubled(FIRST, self.0, LONGEST);
        self.0 = self.0.saturating_add(1);
        let jitter = 1.0 + rand::random::<f64>() / 4.0;
        sleep(pause.mul_f64(jitter)).await;
    }

    /// What was tried has worked since then.
    fn worked(&mut self, since: Instant) {
        if since.elapsed() >= LASTS {
            self.0 = 0;
        }
    }
}

impl Task {
    pub(super) async fn run(self) {
        let _ended = Ended(Arc::clone(&self.followed));
        let stop = self.followed.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            never = Box::pin(self.follow()) => match never {},
        }
    }

    async fn follow(&self) -> Infallible {
        let mut pause = Pause::default();
        loop {
            let begun = Instant::now();
            match self.begin().await {
                Ok(watching) => {
                    self.followed
                        .change(|state, now| state.begins(now, &watching.nodes));
                    // Its end is the time to begin again.
                    let _ = timeout(RENEW, Box::pin(self.watch(&watching))).await;
                    self.followed.change(ProbeState::ends);
                }
                Err(why) => {
                    let cluster = &self.followed.about.name;
                    tracing::debug!(cluster, why, "not watched");
                }
            }
            pause.worked(begun);
            pause.wait().await;
        }
    }

    async fn begin(&self) -> Result<Watching, String> {
        let loaded = self.environment.store.load().await;
        let saved = match loaded.map_err(|error| with_causes(&error))? {
            Loaded::Present { saved, .. } => saved,
            Loaded::Absent => return Err("there is no state".to_owned()),
        };
        let watching = converge::watch(&saved, self.options.of_cluster, &self.environment);
        watching.await.map_err(|error| with_causes(&error))
    }

    async fn watch(&self, watching: &Watching) -> Infallible {
        let remote = &*watching.remote;
        let nodes = watching.nodes.iter();
        let nodes = nodes.map(|(name, has_api)| Box::pin(self.node(remote, name, *has_api)));
        let nodes = async {
            join_all(nodes).await;
            std::future::pending().await
        };
        let asks = !watching.watched.members.is_empty();
        tokio::select! {
            never = nodes => never,
            never = Box::pin(self.etcd(remote)), if asks => never,
            never = Box::pin(self.node_objects(remote)) => never,
            never = self.hints() => never,
        }
    }

    /// Keeps the connection to one node.
    async fn node(&self, remote: &dyn RemoteWatch, name: &NodeName, has_api: bool) -> Infallible {
        let mut pause = Pause::default();
        loop {
            let Ok(permit) = self.connections.try_acquire() else {
                self.followed.change(|state, now| state.idle(now, name));
                sleep(FULL.mul_f64(1.0 + rand::random::<f64>())).await;
                continue;
            };
            let begun = Instant::now();
            let why = match remote.connect(name).await {
                Ok(()) => {
                    self.followed.change(|state, now| state.opened(now, name));
                    let containers = Box::pin(self.containers(remote, name));
                    let api = Box::pin(self.api(remote, name));
                    tokio::select! {
                        why = remote.lost(name) => why,
                        never = containers => match never {},
                        never = api, if has_api => match never {},
                    }
                }
                Err(why) => why,
            };
            drop(permit);
            let cluster = &self.followed.about.name;
            tracing::debug!(cluster, node = %name, why = why.why, "a kept connection is not open");
            self.followed
                .change(|state, now| state.lost(now, name, why));
            pause.worked(begun);
            pause.wait().await;
        }
    }

    /// Lists the containers whenever Docker reports that something happened to one.
    async fn containers(&self, remote: &dyn RemoteWatch, name: &NodeName) -> Infallible {
        let mut pause = Pause::default();
        loop {
            let begun = Instant::now();
            if let Err(why) = self.follow_containers(remote, name).await {
                self.followed
                    .change(|state, now| state.lost(now, name, why));
            }
            pause.worked(begun);
            pause.wait().await;
        }
    }

    /// Until Docker reports no more. The error: it does not answer.
    async fn follow_containers(
        &self,
        remote: &dyn RemoteWatch,
        name: &NodeName,
    ) -> Result<(), Unreachable> {
        let mut events = remote.events(name);
        let mut again = pin!(sleep(AGAIN));
        let mut listed_again = false;
        loop {
            let listed = timeout(LIST, remote.containers(name)).await;
            let listed = listed.unwrap_or_else(|_elapsed| Err(no_list(name)))?;
            self.followed
                .change(|state, now| state.listed(now, name, &listed));
            let mut event = tokio::select! {
                event = events.next() => match event {
                    Some(event) => Some(event?),
                    None => return Ok(()),
                },
                () = &mut again, if !listed_again => {
                    listed_again = true;
                    None
                }
            };
            while let Some(news) = event {
                if news.altered {
                    let container = news.name;
                    self.followed
                        .change(|state, now| state.altered(now, name, container));
                }
                event = match timeout(TOGETHER, events.next()).await {
                    Ok(Some(event)) => Some(event?),
                    Ok(None) => return Ok(()),
                    Err(_elapsed) => None,
                };
            }
        }
    }

    /// Asks one API server again and again whether it serves.
    async fn api(&self, remote: &dyn RemoteWatch, name: &NodeName) -> Infallible {
        let limit = self.options.api_limit;
        loop {
            let next = Instant::now() + self.options.api;
            let health = match timeout(limit, remote.serves(name)).await {
                Ok(Ok(())) => ApiHealth::Serving,
                Ok(Err(why)) => ApiHealth::Unreachable(format!("node `{name}`: {why}")),
                Err(_elapsed) => {
                    let seconds = limit.as_secs();
                    let why = format!("node `{name}`: `/readyz` had no answer within {seconds} s");
                    ApiHealth::Unreachable(why)
                }
            };
            self.followed
                .change(|state, now| state.api(now, name, health));
            sleep_until(next).await;
        }
    }

    /// Asks the members of etcd again and again, and when a connection comes or goes.
    async fn etcd(&self, remote: &dyn RemoteWatch) -> Infallible {
        let mut states = self.followed.state.subscribe();
        loop {
            // An error is the end of the process.
            let _ = states.wait_for(ProbeState::knows_links).await;
            let open = states.borrow().open();
            let next = Instant::now() + self.options.etcd;
            if !open.is_empty() {
                let view = remote.etcd().await;
                self.followed.change(|state, now| state.etcd(now, view));
            }
            let moved = states.wait_for(|state| state.open() != open);
            // A connection that comes and goes causes no more questions than one that stays.
            sleep(FIRST).await;
            tokio::select! {
                () = sleep_until(next) => {}
                _ = moved => {}
            }
        }
    }

    /// Follows the Nodes through an API server that serves; through another one when it does no more.
    async fn node_objects(&self, remote: &dyn RemoteWatch) -> Infallible {
        let mut pause = Pause::default();
        loop {
            let begun = Instant::now();
            let through = self.serving().await;
            let mut states = self.followed.state.subscribe();
            let ends = states.wait_for(|state| {
                let plane = state.sight().planes.get(&through);
                !plane.is_some_and(super::sight::Plane::serves)
            });
            tokio::select! {
                why = self.follow_nodes(remote, &through) => {
                    let cluster = &self.followed.about.name;
                    tracing::debug!(cluster, node = %through, why, "the watch of Nodes ended");
                }
                _ = ends => {}
            }
            self.followed.change(|state, now| state.nodes(now, None));
            pause.worked(begun);
            pause.wait().await;
        }
    }

    async fn serving(&self) -> NodeName {
        let mut states = self.followed.state.subscribe();
        loop {
            if let Some(name) = states.borrow_and_update().sight().serving() {
                return name.clone();
            }
            if states.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Until the first error, which is the answer.
    async fn follow_nodes(&self, remote: &dyn RemoteWatch, through: &NodeName) -> String {
        let mut changes = remote.nodes(through);
        let mut nodes: BTreeMap<NodeName, NodeHealth> = BTreeMap::new();
        let mut complete = false;
        let mut begun = Instant::now();
        loop {
            let change = if complete {
                changes.next().await
            } else {
                match timeout(NODES.saturating_sub(begun.elapsed()), changes.next()).await {
                    Ok(change) => change,
                    Err(_elapsed) => return "the list takes too long".to_owned(),
                }
            };
            match change {
                Some(Ok(NodeChange::Begins)) => {
                    (begun, complete) = (Instant::now(), false);
                    nodes.clear();
                }
                Some(Ok(NodeChange::Is(name, health))) => {
                    drop(nodes.insert(name, health));
                    if nodes.len() > MOST_NODES {
                        return format!("there are more than {MOST_NODES} Nodes");
                    }
                }
                Some(Ok(NodeChange::Gone(name))) => drop(nodes.remove(&name)),
                Some(Ok(NodeChange::Complete)) => complete = true,
                Some(Err(why)) => return why,
                None => return "it ended".to_owned(),
            }
            if complete {
                self.followed
                    .change(|state, now| state.nodes(now, Some(nodes.clone())));
            }
        }
    }

    /// Wakes the reconcile when that is due.
    async fn hints(&self) -> Infallible {
        let mut states = self.followed.state.subscribe();
        loop {
            let due = states.borrow_and_update().due();
            let due = due.map(|due| self.followed.begun + due);
            let at = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                moved = states.changed() => if moved.is_err() {
                    std::future::pending::<()>().await;
                },
                () = at => self.give(),
            }
        }
    }

    fn give(&self) {
        let mut wake = None;
        self.followed.change(|state, now| wake = state.take(now));
        let cluster = &self.followed.about.name;
        match wake {
            Some(Wake::Survey(differences)) => {
                let count = differences.len();
                let first = differences.first().map(ToString::to_string);
                tracing::info!(
                    cluster,
                    first,
                    count,
                    "something has changed in the cluster"
                );
            }
            Some(Wake::Report) => tracing::debug!(cluster, "something changes often"),
            None => return,
        }
        // Without anybody who takes it the operator ends.
        let _ = self.wake.send(self.followed.about.clone());
    }
}

fn no_list(name: &NodeName) -> Unreachable {
    Unreachable {
        alike: None,
        class: ErrorClass::Host,
        why: format!(
            "Docker on node `{name}` did not list its containers within {} s",
            LIST.as_secs()
        ),
        hints: vec![],
        obstacle: Obstacle::DockerUnavailable,
    }
}
