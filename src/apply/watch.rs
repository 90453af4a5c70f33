//! What the nodes of a cluster are asked while nothing is done to them: over connections that are kept, one to each of
//! them. Reads only.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};

use crate::{
    desired::pki::EngineClients,
    error::{ErrorClass, Obstacle, with_causes},
    etcd::{self, Asked, EtcdView},
    facts::{ContainerFact, Unreachable},
    host::{ContainerEvent, Host, pool::Hosts},
    model::{ClusterId, NodeName},
    workload::{self, Apis, NodeChange},
};

/// So long nothing comes from a node that is then taken to be away: two of the questions that are asked every 5 s were not
/// answered.
pub const SILENCE: Duration = Duration::from_secs(11);

/// How long a member may take to answer. A healthy one answers at once, and one without a leader gives up after 7 s.
const MEMBER: Duration = Duration::from_secs(10);

/// What is watched.
#[derive(Clone)]
pub struct Watched {
    /// Whose containers.
    pub id: ClusterId,
    /// The nodes with a member of etcd that is asked.
    pub members: Vec<NodeName>,
    /// The client certificates that are shown to API servers and members.
    pub engine: EngineClients,
}

/// The kept connections to some nodes of one cluster. Each method but [`connect`](Self::connect) is about the connection
/// that is open.
pub trait RemoteWatch: Send + Sync {
    /// Opens the connection to a node, where none is open.
    fn connect<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Unreachable>>;

    /// Resolves when the connection is lost, or nothing comes from the node any more; the connection is closed then.
    fn lost<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Unreachable>;

    /// The containers of the cluster.
    fn containers<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BTreeMap<String, ContainerFact>, Unreachable>>;

    /// What happens to them from now on.
    fn events<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxStream<'a, Result<ContainerEvent, Unreachable>>;

    /// Whether the API server on a node answers `/readyz`; if not, why.
    fn serves<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), String>>;

    /// What the members say.
    fn etcd(&self) -> BoxFuture<'_, EtcdView>;

    /// The Node objects through the API server on that node, until the first error.
    fn nodes<'a>(&'a self, node: &'a NodeName) -> BoxStream<'a, Result<NodeChange, String>>;
}

/// Over SSH.
pub(super) struct Kept {
    hosts: Hosts,
    apis: Apis,
    watched: Watched,
    open: Mutex<BTreeMap<NodeName, Arc<Host>>>,
    members: BTreeMap<NodeName, Result<etcd::Client, String>>,
}

impl Kept {
    pub(super) fn new(hosts: Hosts, watched: Watched) -> Self {
        let client = |node: &NodeName| {
            let client = etcd::Client::through(&hosts, node, &watched.engine.etcd);
            let client = client.map(|client| client.within(MEMBER));
            (node.clone(), client.map_err(|error| with_causes(&error)))
        };
        Self {
            apis: Apis::new(&hosts),
            members: watched.members.iter().map(client).collect(),
            open: Mutex::default(),
            hosts,
            watched,
        }
    }

    fn host(&self, node: &NodeName) -> Result<Arc<Host>, Unreachable> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(node).cloned().ok_or_else(|| silent(node))
    }
}

/// Nothing comes from a node.
fn silent(node: &NodeName) -> Unreachable {
    Unreachable {
        alike: None,
        class: ErrorClass::Host,
        why: format!("node `{node}` does not answer on its SSH connection any more"),
        hints: vec![],
        obstacle: Obstacle::Silence,
    }
}

impl RemoteWatch for Kept {
    fn connect<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Unreachable>> {
        async move {
            let host = self.hosts.get(node).await?;
            if host.silence() >= SILENCE {
                return Err(silent(node));
            }
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.insert(node.clone(), host);
            Ok(())
        }
        .boxed()
    }

    fn lost<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Unreachable> {
        async move {
            let host = match self.host(node) {
                Ok(host) => host,
                Err(silent) => return silent,
            };
            let why = loop {
                let rest = SILENCE.saturating_sub(host.silence());
                if rest.is_zero() {
                    break silent(node);
                }
                tokio::select! {
                    error = host.died() => break Unreachable::of(&error),
                    () = tokio::time::sleep(rest) => {}
                }
            };
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.remove(node);
            why
        }
        .boxed()
    }

    fn containers<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BTreeMap<String, ContainerFact>, Unreachable>> {
        async move {
            let listed = self.host(node)?.listed_of(&self.watched.id).await;
            listed.map_err(|error| Unreachable::of(&error))
        }
        .boxed()
    }

    fn events<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxStream<'a, Result<ContainerEvent, Unreachable>> {
        let host = match self.host(node) {
            Ok(host) => host,
            Err(why) => return stream::once(std::future::ready(Err(why))).boxed(),
        };
        let events = host.container_events(&self.watched.id);
        let events = events.map(|event| event.map_err(|error| Unreachable::of(&error)));
        events.boxed()
    }

    fn serves<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let client = self.apis.of(node, &self.watched.engine.api);
            let client = client.map_err(|error| with_causes(&error))?;
            workload::serves(&client).await
        }
        .boxed()
    }

    fn etcd(&self) -> BoxFuture<'_, EtcdView> {
        async move {
            let asked = self.members.iter().map(|(node, client)| Asked {
                node: node.clone(),
                client: match self.host(node) {
                    Ok(_) => client.clone(),
                    Err(silent) => Err(silent.why),
                },
                quota: None,
            });
            etcd::read(asked.collect()).await
        }
        .boxed()
    }

    fn nodes<'a>(&'a self, node: &'a NodeName) -> BoxStream<'a, Result<NodeChange, String>> {
        match self.apis.of(node, &self.watched.engine.api) {
            Ok(client) => workload::follow_nodes(&client).boxed(),
            Err(error) => stream::once(std::future::ready(Err(with_causes(&error)))).boxed(),
        }
    }
}
