//! Many simulated worlds, each found by the address of its nodes: clusters that have nothing to do with each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::future::BoxFuture;
use rke_operator::{
    apply::{
        remote::{Context, Remote, RemoteSession, RemoteStep},
        step::{Done, Reporter, StepError},
        stop::Stop,
        watch::{RemoteWatch, Watched},
    },
    desired::pki::EngineClients,
    etcd::defrag::{DefragError, Defragmented, Shrunk},
    facts::{
        Actual, KeptFacts, Unreachable,
        measured::{MeasureRequest, Measured},
    },
    host::{HostKeys, pool::ConnectionTarget},
    model::{ClientIdentity, ClusterId, NodeName, WantedObjects, secret::Secret},
    snapshots::{record::Reports, seek::SnapshotFiles},
    state::ClusterState,
};
use tokio::time::Instant;

use super::remote::SimRemote;

/// The worlds, by address.
#[derive(Clone, Default)]
pub(crate) struct Fleet(pub(crate) Arc<BTreeMap<String, SimRemote>>);

impl Remote for Fleet {
    fn session(&self, host_keys: Arc<dyn HostKeys>) -> Box<dyn RemoteSession> {
        Box::new(FleetSession {
            fleet: self.clone(),
            session: SimRemote::bare(&[]).session(Arc::clone(&host_keys)),
            host_keys,
        })
    }

    fn watch(
        &self,
        host_keys: Arc<dyn HostKeys>,
        targets: BTreeMap<NodeName, ConnectionTarget>,
        watched: Watched,
    ) -> Box<dyn RemoteWatch> {
        let world = self.world(&targets).cloned();
        let world = world.unwrap_or_else(|| SimRemote::bare(&[]));
        Remote::watch(&world, host_keys, targets, watched)
    }
}

impl Fleet {
    fn world(&self, targets: &BTreeMap<NodeName, ConnectionTarget>) -> Option<&SimRemote> {
        let mut targets = targets.values().flatten();
        targets.find_map(|target| self.0.get(&target.endpoint.address))
    }
}

struct FleetSession {
    fleet: Fleet,
    session: Box<dyn RemoteSession>,
    host_keys: Arc<dyn HostKeys>,
}

impl RemoteSession for FleetSession {
    fn aim(&mut self, targets: BTreeMap<NodeName, ConnectionTarget>) {
        if let Some(world) = self.fleet.world(&targets) {
            self.session = world.session(Arc::clone(&self.host_keys));
        }
        self.session.aim(targets);
    }

    fn read<'a>(
        &'a self,
        saved: Option<ClusterState>,
        engine: Option<&'a EngineClients>,
        kubeconfig: Option<Secret<String>>,
        wanted: &'a WantedObjects,
        kept: KeptFacts,
    ) -> BoxFuture<'a, Actual> {
        self.session.read(saved, engine, kubeconfig, wanted, kept)
    }

    fn api<'a>(&'a self, context: Context<'a>) -> BoxFuture<'a, Result<kube::Client, StepError>> {
        self.session.api(context)
    }

    fn reach<'a>(
        &'a self,
        saved: &'a ClusterState,
        engine: &'a EngineClients,
    ) -> BoxFuture<'a, Result<kube::Client, StepError>> {
        self.session.reach(saved, engine)
    }

    fn snapshots<'a>(&'a self, _nodes: &'a BTreeSet<NodeName>) -> BoxFuture<'a, Reports> {
        Box::pin(async { Reports::new() })
    }

    fn files(&self) -> &dyn SnapshotFiles {
        self.session.files()
    }

    fn defragment<'a>(
        &'a self,
        nodes: &'a [NodeName],
        engine: &'a ClientIdentity,
        told: &'a (dyn Fn(&Shrunk) + Send + Sync),
    ) -> BoxFuture<'a, Result<Defragmented, DefragError>> {
        self.session.defragment(nodes, engine, told)
    }

    fn served<'a>(
        &'a self,
        ports: &'a [(NodeName, u16)],
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, String>>> {
        self.session.served(ports)
    }

    fn measure<'a>(
        &'a self,
        requests: &'a BTreeMap<NodeName, MeasureRequest>,
    ) -> BoxFuture<'a, BTreeMap<NodeName, Measured>> {
        self.session.measure(requests)
    }

    fn pod_images<'a>(
        &'a self,
        nodes: &'a BTreeSet<NodeName>,
        id: Option<&'a ClusterId>,
    ) -> BoxFuture<'a, BTreeMap<NodeName, Result<BTreeSet<String>, Unreachable>>> {
        self.session.pod_images(nodes, id)
    }

    fn export<'a>(
        &'a self,
        of: (&'a NodeName, Option<&'a ClusterId>),
        image: &'a str,
        take: tokio::sync::mpsc::Sender<bytes::Bytes>,
    ) -> BoxFuture<'a, Result<(), StepError>> {
        self.session.export(of, image, take)
    }

    fn heard(&self) -> Option<Instant> {
        self.session.heard()
    }

    fn act<'a>(
        &'a self,
        step: RemoteStep<'a>,
        context: Context<'a>,
        reporter: &'a Reporter,
        stop: &'a Stop,
    ) -> BoxFuture<'a, Result<Done, StepError>> {
        self.session.act(step, context, reporter, stop)
    }
}
