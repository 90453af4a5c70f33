//! The folder of snapshots of a node, for what a person asks for: a snapshot is taken; one is looked into and copied there
//! on behalf of a restore, before anything is decided.

use futures::{FutureExt, future::BoxFuture};

use super::{
    Answer, Doing, OnNode, SavedOnce, SnapshotTools, WantedSnapshot, recurring_image, save_once,
};
use crate::{
    error::{ErrorClass, Obstacle},
    etcd::snapshot::{self, Found, SnapshotName},
    facts::Unreachable,
    host::{Host, pool::Hosts},
    model::{AgentProgram, Bucket, ClusterId, NodeName, RegistryLogin},
};

/// A snapshot that a person names.
#[derive(Clone, Copy)]
pub struct Sought<'a> {
    /// Its name.
    pub name: &'a SnapshotName,
    /// The cluster's id, as the label of the helper containers has it.
    pub id: &'a ClusterId,
    /// The image that has etcdutl.
    pub image: &'a str,
    /// What pulls that image.
    pub login: Option<&'a RegistryLogin>,
    /// Told what takes time.
    pub say: &'a (dyn Fn(&str) + Send + Sync),
}

/// The folders of snapshots of the nodes of a run. Nothing of the cluster is changed.
pub trait SnapshotFiles: Send + Sync {
    /// Connects to that node.
    fn reach<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Unreachable>>;

    /// What that node has; a zip of RKE is unpacked next to it.
    fn look<'a>(
        &'a self,
        node: &'a NodeName,
        sought: Sought<'a>,
    ) -> BoxFuture<'a, Result<Found, Unreachable>>;

    /// Its revision, as etcdutl reads it.
    fn revision<'a>(
        &'a self,
        node: &'a NodeName,
        sought: Sought<'a>,
    ) -> BoxFuture<'a, Result<u64, Unreachable>>;

    /// Copies it there from a bucket.
    fn fetch<'a>(
        &'a self,
        node: &'a NodeName,
        sought: Sought<'a>,
        bucket: &'a Bucket,
        agent: &'a AgentProgram,
    ) -> BoxFuture<'a, Result<(), Unreachable>>;

    /// Takes a snapshot of the node's member.
    fn save<'a>(
        &'a self,
        node: &'a NodeName,
        id: &'a ClusterId,
        tools: &'a SnapshotTools,
        wanted: WantedSnapshot<'a>,
    ) -> BoxFuture<'a, Result<SavedOnce, Unreachable>>;

    /// Looks into one once more, or deletes it: by the node's program that takes recurring ones.
    fn named<'a>(
        &'a self,
        node: &'a NodeName,
        id: &'a ClusterId,
        what: (Doing, &'a SnapshotName),
        agent: &'a AgentProgram,
    ) -> BoxFuture<'a, Result<Answer, Unreachable>>;
}

impl SnapshotFiles for Hosts {
    fn reach<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<(), Unreachable>> {
        async move { self.get(node).await.map(drop) }.boxed()
    }

    fn look<'a>(
        &'a self,
        node: &'a NodeName,
        sought: Sought<'a>,
    ) -> BoxFuture<'a, Result<Found, Unreachable>> {
        async move {
            let host = self.get(node).await?;
            let (id, name) = (sought.id, sought.name);
            let found = snapshot::look(&host, id, name).await;
            let found = found.map_err(|error| Unreachable::of(&error))?;
            if found != Found::Zipped {
                return Ok(found);
            }
            let unpacked = snapshot::unpack(&host, id, name).await;
            match unpacked.map_err(|error| Unreachable::of(&error))? {
                Ok(()) => {
                    let found = snapshot::look(&host, id, name).await;
                    found.map_err(|error| Unreachable::of(&error))
                }
                Err(what) => Ok(Found::Not(what)),
            }
        }
        .boxed()
    }

    fn revision<'a>(
        &'a self,
        node: &'a NodeName,
        sought: Sought<'a>,
    ) -> BoxFuture<'a, Result<u64, Unreachable>> {
        async move {
            let host = self.get(node).await?;
            tools(&host, sought).await?;
            let read = snapshot::revision(&host, sought.id, sought.name, sought.image);
            read.await.map_err(|error| Unreachable::of(&error))
        }
        .boxed()
    }

    fn fetch<'a>(
        &'a self,
        node: &'a NodeName,
        sought: Sought<'a>,
        bucket: &'a Bucket,
        agent: &'a AgentProgram,
    ) -> BoxFuture<'a, Result<(), Unreachable>> {
        async move {
            let host = self.get(node).await?;
            tools(&host, sought).await?;
            let on_node = OnNode {
                host: &host,
                id: sought.id,
                image: sought.image,
                agent,
            };
            let fetched = on_node.fetch(bucket, sought.name).await;
            fetched.map_err(|error| Unreachable::of(&error))
        }
        .boxed()
    }

    fn save<'a>(
        &'a self,
        node: &'a NodeName,
        id: &'a ClusterId,
        tools: &'a SnapshotTools,
        wanted: WantedSnapshot<'a>,
    ) -> BoxFuture<'a, Result<SavedOnce, Unreachable>> {
        async move {
            let host = self.get(node).await?;
            let saved = Box::pin(save_once(&host, id, Some(tools), wanted)).await;
            saved.map_err(|error| Unreachable::of(&error))
        }
        .boxed()
    }

    fn named<'a>(
        &'a self,
        node: &'a NodeName,
        id: &'a ClusterId,
        (doing, name): (Doing, &'a SnapshotName),
        agent: &'a AgentProgram,
    ) -> BoxFuture<'a, Result<Answer, Unreachable>> {
        async move {
            let host = self.get(node).await?;
            let image = recurring_image(&host, id).await;
            let on_node = OnNode {
                host: &host,
                id,
                image: &image.ok_or_else(nothing_takes_any)?,
                agent,
            };
            let answer = match doing {
                Doing::Verify => on_node.verify(name).await,
                Doing::Delete => on_node.delete(name).await,
            };
            answer.map_err(|error| Unreachable::of(&error))
        }
        .boxed()
    }
}

fn nothing_takes_any() -> Unreachable {
    Unreachable {
        alike: None,
        class: ErrorClass::Host,
        why: "nothing takes snapshots there".to_owned(),
        hints: vec!["apply the config: that starts the program which takes them".to_owned()],
        obstacle: Obstacle::Other,
    }
}

/// The image is pulled where the node lacks it, which changes nothing in the cluster.
pub async fn tools(host: &Host, sought: Sought<'_>) -> Result<(), Unreachable> {
    let image = sought.image;
    let there = host.images().await;
    if there
        .map_err(|error| Unreachable::of(&error))?
        .contains(image)
    {
        return Ok(());
    }
    (sought.say)(&format!(
        "{}: pulls {image}, which reads the snapshot",
        host.name
    ));
    let pulled = host.pull(image, sought.login, &|_, _| ()).await;
    pulled.map_err(|error| Unreachable::of(&error))?;
    Ok(())
}
