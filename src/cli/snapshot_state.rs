//! The state out of a snapshot, for a restore where it is lost with everything else.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{
    report::{CliError, Failure},
    session::Session,
    snapshot_restore::{agent, with_etcd},
};
use crate::{
    config::Intent,
    converge::{self, Dialled, RestoreError},
    desired,
    environment::Environment,
    etcd::snapshot::{Found, SnapshotName},
    facts::Unreachable,
    host::pool::Hosts,
    model::{NodeName, Secret},
    snapshots::{
        HeldState, OnNode,
        seek::{self, SnapshotFiles, Sought},
    },
    state::{ClusterState, Loaded, StateError, Store, codec},
};

/// As the first node tells that has the snapshot. Whose it is the state says: it must be that of the config's cluster.
pub(super) async fn held(
    name: &SnapshotName,
    intent: &Intent,
    environment: &Environment,
    session: &Session,
) -> Result<ClusterState, CliError> {
    let (hosts, nodes) = with_etcd(intent, None, environment).await;
    let (id, image) = (converge::id_of(None), desired::etcd_tools(intent));
    let sought = Sought {
        name,
        id: &id,
        image: &image,
        login: intent.registries.login(&image),
        say: &|said| session.screen.print_unless_quiet(said),
    };
    let mut found = Vec::new();
    let Dialled { up, mut down } = converge::dial_all(&hosts, nodes).await;
    for node in &up {
        match hosts.look(node, sought).await {
            Ok(Found::Whole { .. }) => {
                let place = environment.store.place();
                let said = format!(
                    "{node}: reads the state out of `{}`, as {place} is not there",
                    name.as_str()
                );
                session.screen.print_unless_quiet(&said);
                let (held, document) = asked(&hosts, node, sought, intent).await?;
                let state = match (held, document) {
                    (HeldState::Is, Some(document)) => {
                        read(&document).map_err(|why| unreadable(name, node, why))?
                    }
                    (HeldState::Unreadable { why }, _) => {
                        return Err(unreadable(name, node, why).into());
                    }
                    (HeldState::Encrypted, _) => {
                        return Err(Failure::StateEncrypted { place }.into());
                    }
                    (HeldState::Is | HeldState::Absent, _) => {
                        return Err(Failure::StateNotHeld { place }.into());
                    }
                };
                is_of_the_config(&state, intent)?;
                let (has, id) = (&state.cluster_name, &state.cluster_id);
                let said = format!("{node}: it is that of cluster `{has}` (id `{id}`)");
                session.screen.print_unless_quiet(&said);
                return Ok(state);
            }
            Ok(Found::Zipped) => {
                found.push(format!("{node}: `{}` is there as a zip", name.as_str()));
            }
            Ok(Found::Not(what)) => found.push(format!("{node}: `{}` {what}", name.as_str())),
            Err(why) => down.push((node.clone(), why)),
        }
    }
    Err(RestoreError::on_none(found, down).into())
}

/// What the program on the node says, and the document that it has written.
async fn asked(
    hosts: &Hosts,
    node: &NodeName,
    sought: Sought<'_>,
    intent: &Intent,
) -> Result<(HeldState, Option<Secret<Vec<u8>>>), CliError> {
    let agent = &agent(intent)?;
    let asked = async {
        let host = hosts.get(node).await?;
        seek::tools(&host, sought).await?;
        let on_node = OnNode {
            host: &host,
            id: sought.id,
            image: sought.image,
            agent,
        };
        let held = on_node.state(sought.name).await;
        held.map_err(|error| Unreachable::of(&error))
    };
    let asked = asked.await;
    asked.map_err(|why| unreadable(sought.name, node, why.why).into())
}

fn read(document: &Secret<Vec<u8>>) -> Result<ClusterState, String> {
    let text = std::str::from_utf8(document.expose()).map_err(|error| error.to_string())?;
    codec::decode(text)
}

fn unreadable(name: &SnapshotName, node: &NodeName, why: String) -> RestoreError {
    RestoreError::Unreadable {
        name: name.as_str().to_owned(),
        node: node.0.clone(),
        why,
    }
}

fn is_of_the_config(state: &ClusterState, intent: &Intent) -> Result<(), Failure> {
    if state.cluster_name == intent.cluster_name {
        return Ok(());
    }
    Err(Failure::StateOfAnother {
        id: state.cluster_id.0.clone(),
        has: state.cluster_name.clone(),
        wants: intent.cluster_name.clone(),
    })
}

/// The store, which gives this state as long as it has none: it is written with what a run begins, and not before a person
/// has agreed.
pub(super) fn until_saved(store: Arc<dyn Store>, state: ClusterState) -> Arc<dyn Store> {
    Arc::new(UntilSaved { store, state })
}

struct UntilSaved {
    store: Arc<dyn Store>,
    state: ClusterState,
}

/// The revision of what is not written yet.
const UNWRITTEN: &str = "unwritten";

impl Store for UntilSaved {
    fn load(&self) -> BoxFuture<'_, Result<Loaded, StateError>> {
        Box::pin(async {
            let loaded = self.store.load().await?;
            Ok(match loaded {
                Loaded::Absent => Loaded::Present {
                    saved: Box::new(self.state.clone()),
                    revision: UNWRITTEN.to_owned(),
                },
                present @ Loaded::Present { .. } => present,
            })
        })
    }

    fn save<'a>(
        &'a self,
        saved: &'a ClusterState,
        revision: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        self.store
            .save(saved, revision.filter(|revision| *revision != UNWRITTEN))
    }

    fn delete(&self) -> BoxFuture<'_, Result<(), StateError>> {
        self.store.delete()
    }

    fn place(&self) -> String {
        self.store.place()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{file::FileStore, tests::saved};

    #[tokio::test]
    async fn the_state_is_written_with_what_a_run_begins_and_in_the_place_of_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = || FileStore::new(folder.path().join("state.json"));
        let before = saved("a");
        let stores = [(); 2].map(|()| until_saved(Arc::new(file()), before.clone()));
        for store in &stores {
            let loaded = store.load().await.unwrap();
            assert!(matches!(loaded, Loaded::Present { saved, .. } if *saved == before));
            assert!(matches!(file().load().await, Ok(Loaded::Absent)));
        }
        let mut next = before.clone();
        next.serial += 1;
        let [first, second] = &stores;
        first.save(&next, Some(UNWRITTEN)).await.unwrap();
        let late = second.save(&before, Some(UNWRITTEN)).await;
        assert!(matches!(late, Err(StateError::Conflict { .. })), "{late:?}");
        for store in &stores {
            let loaded = store.load().await.unwrap();
            assert!(matches!(loaded, Loaded::Present { saved, .. } if *saved == next));
        }
    }
}
