//! The seam between what is decided and what is met: how a run reads the nodes and their cluster,
//! and how it carries out one step. [`OverSsh`] is the real one; tests put a simulated world in its
//! place, so that everything above it, rounds, plans, order and failures, is the product's own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, join_all},
    stream,
};
use kube::Client;
use tokio::{sync::mpsc, time::Instant};

use super::{
    cluster,
    executor::{Executor, bug, opened},
    node,
    shared::Shared,
    step::{Done, Reporter, StepError},
    stop::Stop,
    watch::{Kept, RemoteWatch, Watched},
};
use crate::{
    bundle::Bundle,
    desired::{Desired, pki::EngineClients},
    environment::Environment,
    error::{ErrorClass, Obstacle, with_causes},
    etcd::{
        self,
        defrag::{DefragError, Defragmentation, Defragmented, Shrunk},
    },
    facts::{
        Actual, KeptFacts, NodeFact, Unreachable,
        measured::{MeasureRequest, Measured},
    },
    host::{
        Awaited, Dial, HostKeys, any_server,
        pool::{ConnectionTarget, Hosts},
    },
    model::{ClientIdentity, ClusterId, NodeName, Secret, WantedObjects},
    plan::{Action, ClusterAction, HostAction, LocalAction, Step},
    snapshots::{self, SnapshotTools, record::Reports, seek::SnapshotFiles},
    state::ClusterState,
    survey,
    workload::{Apis, Kinds},
};

/// How many nodes list their images at once.
const WIDTH: usize = 32;

/// Where nodes are met.
pub trait Remote: Send + Sync {
    /// What one run has open. Nothing is opened yet.
    fn session(&self, host_keys: Arc<dyn HostKeys>) -> Box<dyn RemoteSession>;

    /// The kept connections to these nodes of one cluster. Nothing is opened yet.
    fn watch(
        &self,
        host_keys: Arc<dyn HostKeys>,
        targets: BTreeMap<NodeName, ConnectionTarget>,
        watched: Watched,
    ) -> Box<dyn RemoteWatch>;
}

/// The connections of one run.
pub trait RemoteSession: Send + Sync {
    /// Aims at these nodes from now on; what is open stays open.
    fn aim(&mut self, targets: BTreeMap<NodeName, ConnectionTarget>);

    /// Reads everything, and writes nothing. A node that does not answer is a fact; one whose
    /// facts are `kept` is not asked. The cluster's API says what an apply of `wanted` would change.
    fn read<'a>(
        &'a self,
        saved: Option<ClusterState>,
        engine: Option<&'a EngineClients>,
        kubeconfig: Option<Secret<String>>,
        wanted: &'a WantedObjects,
        kept: KeptFacts,
    ) -> BoxFuture<'a, Actual>;

    /// A client of the cluster's API that outlives each single API server.
    fn api<'a>(&'a self, context: Context<'a>) -> BoxFuture<'a, Result<Client, StepError>>;

    /// A client of the API of that state's cluster, without a survey before: through the first of its control planes that
    /// can be reached.
    fn reach<'a>(
        &'a self,
        saved: &'a ClusterState,
        engine: &'a EngineClients,
    ) -> BoxFuture<'a, Result<Client, StepError>>;

    /// What the programs that take snapshots of etcd on these nodes report.
    fn snapshots<'a>(&'a self, nodes: &'a BTreeSet<NodeName>) -> BoxFuture<'a, Reports>;

    /// The folders of snapshots of the nodes.
    fn files(&self) -> &dyn SnapshotFiles;

    /// Defragments the members of etcd on these nodes, one after the other, if all nodes can be reached; calls `told`
    /// with each as soon as it is done.
    fn defragment<'a>(
        &'a self,
        nodes: &'a [NodeName],
        engine: &'a ClientIdentity,
        told: &'a (dyn Fn(&Shrunk) + Send + Sync),
    ) -> BoxFuture<'a, Result<Defragmented, DefragError>>;

    /// The certificates that these ports of nodes serve, as DER, or why none was seen.
    fn served<'a>(
        &'a self,
        ports: &'a [(NodeName, u16)],
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, String>>>;

    /// Measures nodes. One that does not answer is left out.
    fn measure<'a>(
        &'a self,
        requests: &'a BTreeMap<NodeName, MeasureRequest>,
    ) -> BoxFuture<'a, BTreeMap<NodeName, Measured>>;

    /// The images that each node's containerd has for pods, as it names them, or why it does not tell. Asked as root through
    /// a helper container: a survey does not do so.
    fn pod_images<'a>(
        &'a self,
        nodes: &'a BTreeSet<NodeName>,
        id: Option<&'a ClusterId>,
    ) -> BoxFuture<'a, BTreeMap<NodeName, Result<BTreeSet<String>, Unreachable>>>;

    /// Hands an image of a node to `take`, as `docker save` writes it; one that Docker does not have and containerd has, in a
    /// separate archive.
    fn export<'a>(
        &'a self,
        of: (&'a NodeName, Option<&'a ClusterId>),
        image: &'a str,
        take: mpsc::Sender<Bytes>,
    ) -> BoxFuture<'a, Result<(), StepError>>;

    /// When the cluster's API did something for a step last.
    fn heard(&self) -> Option<Instant>;

    /// Carries out one step: its guards first, on what is there now.
    fn act<'a>(
        &'a self,
        step: RemoteStep<'a>,
        context: Context<'a>,
        reporter: &'a Reporter,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Done, StepError>>;
}

/// A step that is not done where we run.
#[derive(Clone, Copy, Debug)]
pub struct RemoteStep<'a> {
    /// With its guards.
    pub step: &'a Step,
    /// Its effect.
    pub action: RemoteAction<'a>,
}

impl<'a> RemoteStep<'a> {
    /// A step that needs a connection; the error is what another does where we run.
    pub const fn of(step: &'a Step) -> Result<Self, LocalAction> {
        let action = match &step.action {
            Action::Host(node, action) => RemoteAction::Host(node, action),
            Action::Cluster(action) => RemoteAction::Cluster(action),
            Action::Local(action) => return Err(*action),
        };
        Ok(Self { step, action })
    }
}

/// What a connection is needed for.
#[derive(Clone, Copy, Debug)]
pub enum RemoteAction<'a> {
    /// On a node.
    Host(&'a NodeName, &'a HostAction),
    /// In the cluster's API.
    Cluster(&'a ClusterAction),
}

/// What the steps of one plan are carried out with, besides connections.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Stores and settings.
    pub environment: &'a Environment,
    /// What the survey saw.
    pub actual: &'a Actual,
    /// What must be; a removal has none.
    pub desired: Option<&'a Desired>,
    /// The state that steps act under: the desired one, or for a removal the saved one.
    pub saved: Option<&'a ClusterState>,
    /// The revision that the survey loaded.
    pub revision: Option<&'a str>,
    /// The engine's own client certificates.
    pub engine: Option<&'a EngineClients>,
    /// What snapshots are taken with; `None`: the config cannot be read.
    pub snapshot_tools: Option<&'a SnapshotTools>,
}

impl<'a> Context<'a> {
    /// What must be.
    pub fn desired(&self) -> Result<&'a Desired, StepError> {
        self.desired
            .ok_or_else(|| bug("this step needs a desired environment"))
    }

    /// The state that steps act under.
    pub fn saved(&self) -> Result<&'a ClusterState, StepError> {
        self.saved.ok_or_else(|| bug("this step needs a state"))
    }

    /// Who the engine is to the API servers.
    pub fn engine(&self) -> Result<&'a ClientIdentity, StepError> {
        self.engines().map(|engine| &engine.api)
    }

    /// The engine's own client certificates.
    pub fn engines(&self) -> Result<&'a EngineClients, StepError> {
        self.engine
            .ok_or_else(|| bug("this step needs the engine's certificates"))
    }

    /// The images that are loaded.
    pub fn bundle(&self) -> Result<&'a Bundle, StepError> {
        let bundle = self.environment.bundle.as_deref();
        bundle.ok_or_else(|| bug("this step needs a bundle of images"))
    }

    /// Whose steps these are.
    pub fn id(&self) -> Result<&'a ClusterId, StepError> {
        self.saved().map(|saved| &saved.cluster_id)
    }
}

/// Docker on real nodes, over SSH.
pub struct OverSsh {
    dial: Arc<dyn Dial>,
    awaited: Awaited,
}

impl OverSsh {
    /// Over streams that are opened so.
    pub fn new(dial: Arc<dyn Dial>) -> Self {
        Self::shown_in(Awaited::default(), dial)
    }

    /// The same, and which nodes are being read is shown there.
    pub fn shown_in(awaited: Awaited, dial: Arc<dyn Dial>) -> Self {
        Self { dial, awaited }
    }
}

impl Remote for OverSsh {
    fn session(&self, host_keys: Arc<dyn HostKeys>) -> Box<dyn RemoteSession> {
        let hosts = Hosts::shown_in(self.awaited.clone(), Arc::clone(&self.dial), host_keys);
        Box::new(Open {
            apis: Apis::new(&hosts),
            hosts,
            kinds: Kinds::default(),
            nodes: Shared::default(),
        })
    }

    fn watch(
        &self,
        host_keys: Arc<dyn HostKeys>,
        targets: BTreeMap<NodeName, ConnectionTarget>,
        watched: Watched,
    ) -> Box<dyn RemoteWatch> {
        let hosts = Hosts::new(Arc::clone(&self.dial), host_keys);
        hosts.aim(targets);
        Box::new(Kept::new(hosts, watched))
    }
}

struct Open {
    hosts: Hosts,
    apis: Apis,
    kinds: Kinds,
    nodes: Shared<Option<Arc<BTreeMap<NodeName, NodeFact>>>>,
}

impl Open {
    const fn executor<'a>(&'a self, context: Context<'a>) -> Executor<'a> {
        Executor {
            hosts: &self.hosts,
            apis: &self.apis,
            context,
            kinds: &self.kinds,
            nodes: &self.nodes,
        }
    }
}

impl RemoteSession for Open {
    fn aim(&mut self, targets: BTreeMap<NodeName, ConnectionTarget>) {
        self.hosts.aim(targets);
    }

    fn read<'a>(
        &'a self,
        saved: Option<ClusterState>,
        engine: Option<&'a EngineClients>,
        kubeconfig: Option<Secret<String>>,
        wanted: &'a WantedObjects,
        kept: KeptFacts,
    ) -> BoxFuture<'a, Actual> {
        let (hosts, apis) = (&self.hosts, &self.apis);
        survey::read::read(hosts, apis, saved, engine, kubeconfig, wanted, kept).boxed()
    }

    fn api<'a>(&'a self, context: Context<'a>) -> BoxFuture<'a, Result<Client, StepError>> {
        async move { cluster::api(&self.executor(context)).await }.boxed()
    }

    fn reach<'a>(
        &'a self,
        saved: &'a ClusterState,
        engine: &'a EngineClients,
    ) -> BoxFuture<'a, Result<Client, StepError>> {
        cluster::reach(&self.hosts, &self.apis, saved, engine).boxed()
    }

    fn snapshots<'a>(&'a self, nodes: &'a BTreeSet<NodeName>) -> BoxFuture<'a, Reports> {
        snapshots::reports(&self.hosts, nodes).boxed()
    }

    fn files(&self) -> &dyn SnapshotFiles {
        &self.hosts
    }

    fn defragment<'a>(
        &'a self,
        nodes: &'a [NodeName],
        engine: &'a ClientIdentity,
        told: &'a (dyn Fn(&Shrunk) + Send + Sync),
    ) -> BoxFuture<'a, Result<Defragmented, DefragError>> {
        let opened = join_all(nodes.iter().map(|node| self.hosts.get(node)));
        async move {
            let down: Vec<_> = opened.await.into_iter().filter_map(Result::err).collect();
            if !down.is_empty() {
                return Err(DefragError::Unreachable(down));
            }
            let client = |node: &NodeName| match etcd::Client::through(&self.hosts, node, engine) {
                Ok(client) => Ok((node.clone(), client)),
                Err(source) => Err(DefragError::Member {
                    node: node.clone(),
                    source,
                }),
            };
            let clients = nodes.iter().map(client).collect::<Result<_, _>>()?;
            Defragmentation::of(clients).all(told).await
        }
        .boxed()
    }

    fn served<'a>(
        &'a self,
        ports: &'a [(NodeName, u16)],
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, String>>> {
        let each = ports.iter().map(async |(node, port)| {
            let host = self.hosts.get(node).await.map_err(|down| down.why)?;
            let stream = host.local_port(*port).await;
            let stream = stream.map_err(|error| with_causes(&error))?;
            let served = any_server::certificate(stream).await;
            served.map_err(|error| with_causes(&error))
        });
        join_all(each).boxed()
    }

    fn measure<'a>(
        &'a self,
        requests: &'a BTreeMap<NodeName, MeasureRequest>,
    ) -> BoxFuture<'a, BTreeMap<NodeName, Measured>> {
        survey::measure::measure(&self.hosts, requests).boxed()
    }

    fn pod_images<'a>(
        &'a self,
        nodes: &'a BTreeSet<NodeName>,
        id: Option<&'a ClusterId>,
    ) -> BoxFuture<'a, BTreeMap<NodeName, Result<BTreeSet<String>, Unreachable>>> {
        let each = nodes.iter().map(move |name| async move {
            let listed = async {
                let host = opened(&self.hosts, name).await?;
                node::pod_images(&host, id).await
            };
            let listed = listed.await.map_err(|error| match error {
                StepError::Failed(error) => Unreachable::of(&*error),
                StepError::Guard(_) | StepError::Stopped => Unreachable {
                    alike: None,
                    obstacle: Obstacle::Other,
                    class: ErrorClass::Host,
                    why: format!("node `{name}` was not asked"),
                    hints: Vec::new(),
                },
            });
            (name.clone(), listed)
        });
        let each: Vec<_> = each.collect();
        stream::iter(each).buffer_unordered(WIDTH).collect().boxed()
    }

    fn export<'a>(
        &'a self,
        (node, id): (&'a NodeName, Option<&'a ClusterId>),
        image: &'a str,
        take: mpsc::Sender<Bytes>,
    ) -> BoxFuture<'a, Result<(), StepError>> {
        async move {
            let host = opened(&self.hosts, node).await?;
            node::export(&host, id, image, &take).await
        }
        .boxed()
    }

    fn heard(&self) -> Option<Instant> {
        self.apis.heard()
    }

    fn act<'a>(
        &'a self,
        step: RemoteStep<'a>,
        context: Context<'a>,
        reporter: &'a Reporter,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Done, StepError>> {
        async move {
            let executor = self.executor(context);
            executor.remotely(step, reporter, stop).await
        }
        .boxed()
    }
}
