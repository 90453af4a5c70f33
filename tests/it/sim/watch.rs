//! Kept connections to simulated nodes: what is seen over them is the truth, at once.

use std::collections::BTreeMap;

use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use rke_operator::{
    apply::watch::{RemoteWatch, Watched},
    etcd::EtcdView,
    facts::{ApiHealth, ContainerFact, NodeHealth, Unreachable},
    host::ContainerEvent,
    model::NodeName,
    workload::NodeChange,
};
use tokio::sync::watch;

use super::{
    World,
    api::{ApiFault, How, Verb},
    remote::SimRemote,
};

pub(super) struct SimWatch {
    remote: SimRemote,
    watched: Watched,
}

impl SimWatch {
    pub(super) const fn new(remote: SimRemote, watched: Watched) -> Self {
        Self { remote, watched }
    }

    fn sees<T>(&self, of: impl FnOnce(&World) -> T) -> T {
        self.remote.sees(of)
    }

    fn away(&self, node: &NodeName) -> Option<Unreachable> {
        self.sees(|world| world.away(node).cloned())
    }

    /// Resolves when the world moves.
    async fn moves(moved: &mut watch::Receiver<u64>) {
        moved.changed().await.unwrap();
    }

    fn list(&self, node: &NodeName) -> BTreeMap<String, ContainerFact> {
        self.sees(|world| {
            let facts = world.truth.up(node);
            let all = facts.into_iter().flat_map(|facts| &facts.containers);
            let ours = all.filter(|(_, fact)| fact.is_of(&self.watched.id));
            ours.map(|(name, fact)| (name.clone(), fact.clone()))
                .collect()
        })
    }

    fn node_objects(&self) -> BTreeMap<NodeName, NodeHealth> {
        self.sees(|world| {
            let nodes = world
                .truth
                .cluster
                .iter()
                .flat_map(|cluster| &cluster.nodes);
            let nodes = nodes.map(|(name, node)| {
                let health = NodeHealth {
                    ready: node.ready && world.reports(name),
                    message: node.message.clone(),
                };
                (name.clone(), health)
            });
            nodes.collect()
        })
    }
}

impl RemoteWatch for SimWatch {
    fn connect<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Unreachable>> {
        async move {
            let mut moved = self.remote.moved();
            while !self.remote.takes_watches() {
                Self::moves(&mut moved).await;
            }
            self.remote.counts_watch();
            self.away(node).map_or(Ok(()), Err)
        }
        .boxed()
    }

    fn lost<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Unreachable> {
        async move {
            let mut moved = self.remote.moved();
            loop {
                if let Some(down) = self.away(node) {
                    return down;
                }
                Self::moves(&mut moved).await;
            }
        }
        .boxed()
    }

    fn containers<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<BTreeMap<String, ContainerFact>, Unreachable>> {
        let listed = self.away(node).map_or_else(|| Ok(self.list(node)), Err);
        futures::future::ready(listed).boxed()
    }

    fn events<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> BoxStream<'a, Result<ContainerEvent, Unreachable>> {
        let begun = (self.list(node), self.remote.moved());
        stream::unfold(begun, move |(mut before, mut moved)| async move {
            loop {
                Self::moves(&mut moved).await;
                let now = self.list(node);
                if now != before {
                    before = now;
                    let event = ContainerEvent {
                        name: String::new(),
                        altered: false,
                    };
                    return Some((Ok(event), (before, moved)));
                }
            }
        })
        .boxed()
    }

    fn serves<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), String>> {
        let serves = self.sees(|world| {
            let apis = world.apis_for(&self.watched.id, "");
            match apis.get(node) {
                Some(ApiHealth::Serving) => Ok(()),
                Some(ApiHealth::Unreachable(why)) => Err(why.clone()),
                None => Err("connection refused".to_owned()),
            }
        });
        let hangs = |fault: &ApiFault| {
            let here = fault.server.as_ref().is_none_or(|server| server == node);
            here && fault.verb == Verb::Ready && fault.how == How::Hangs
        };
        if self.sees(|world| world.faults.iter().any(hangs)) {
            return std::future::pending().boxed();
        }
        futures::future::ready(serves).boxed()
    }

    fn etcd(&self) -> BoxFuture<'_, EtcdView> {
        let view = self.sees(|world| world.etcd_view(&self.watched.id));
        futures::future::ready(view).boxed()
    }

    fn nodes<'a>(&'a self, _: &'a NodeName) -> BoxStream<'a, Result<NodeChange, String>> {
        let list = self.node_objects().into_iter();
        let list = list.map(|(name, health)| NodeChange::Is(name, health));
        let list: Vec<_> = std::iter::once(NodeChange::Begins)
            .chain(list)
            .chain([NodeChange::Complete])
            .collect();
        let begun = (self.node_objects(), self.remote.moved());
        let changes = stream::unfold(begun, move |(before, mut moved)| async move {
            loop {
                Self::moves(&mut moved).await;
                let now = self.node_objects();
                let is = now
                    .iter()
                    .find(|(name, health)| before.get(*name) != Some(*health));
                let is = is.map(|(name, health)| (name.clone(), health.clone()));
                let gone = before.keys().find(|name| !now.contains_key(*name)).cloned();
                let mut known = before.clone();
                if let Some((name, health)) = is {
                    known.insert(name.clone(), health.clone());
                    return Some((NodeChange::Is(name, health), (known, moved)));
                }
                if let Some(name) = gone {
                    known.remove(&name);
                    return Some((NodeChange::Gone(name), (known, moved)));
                }
            }
        });
        stream::iter(list).chain(changes).map(Ok).boxed()
    }
}
