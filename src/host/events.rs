//! What Docker reports of a cluster's containers as it happens, and whether the node still answers: for a connection that
//! is kept open.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bollard::query_parameters::{EventsOptionsBuilder, ListContainersOptionsBuilder};
use futures::{Stream, StreamExt};

use super::{containers, error::HostError, machine::Host};
use crate::{
    facts::ContainerFact,
    model::{ClusterId, label, printable},
};

/// The events after which a container may be another one, or in another state. Commands in containers, health checks and
/// copies make far more of them.
const ACTIONS: [&str; 7] = [
    "start", "die", "destroy", "pause", "unpause", "rename", UPDATE,
];
const UPDATE: &str = "update";

/// Something happened to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerEvent {
    /// Its name, as far as Docker reports it.
    pub name: String,
    /// Its limits or its restart policy were changed, which a list of containers does not show.
    pub altered: bool,
}

impl Host {
    /// The containers of a cluster, as the list has them.
    pub async fn listed_of(
        &self,
        id: &ClusterId,
    ) -> Result<BTreeMap<String, ContainerFact>, HostError> {
        let filters = HashMap::from([("label", vec![of(id)])]);
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters)
            .build();
        let list = self.docker().list_containers(Some(options)).await;
        let list = self.done("list containers", list).await?;
        self.at_most(containers::OURS, list.len(), "containers of clusters")?;
        Ok(list.into_iter().filter_map(containers::listed).collect())
    }

    /// What happens to the containers of a cluster from now on, until the connection is lost. An answer is as long as
    /// any other may be; then it is requested again.
    pub fn container_events(
        self: &Arc<Self>,
        id: &ClusterId,
    ) -> impl Stream<Item = Result<ContainerEvent, HostError>> + Send + use<> {
        let filters: HashMap<&str, Vec<String>> = HashMap::from([
            ("type", vec!["container".to_owned()]),
            ("label", vec![of(id)]),
            ("event", ACTIONS.map(str::to_owned).to_vec()),
        ]);
        let options = EventsOptionsBuilder::new().filters(&filters).build();
        let events = self.docker().events(Some(options));
        let host = Arc::clone(self);
        events.then(move |event| {
            let host = Arc::clone(&host);
            async move {
                let event = host.done("report events", event).await?;
                let attributes = event.actor.and_then(|actor| actor.attributes);
                let name = attributes.and_then(|mut attributes| attributes.remove("name"));
                Ok(ContainerEvent {
                    name: printable(&name.unwrap_or_default()).into_owned(),
                    altered: event.action.as_deref() == Some(UPDATE),
                })
            }
        })
    }

    /// Resolves when the connection is lost.
    pub async fn died(&self) -> HostError {
        self.session.died().await
    }

    /// For how long nothing has come from the node. A connection on which nothing else happens asks every 5 s.
    pub fn silence(&self) -> Duration {
        self.session.silence()
    }
}

fn of(id: &ClusterId) -> String {
    format!("{}={id}", label::CLUSTER_ID)
}
