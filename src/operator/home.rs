//! The management cluster as a cluster among others: who it is, so that an object that describes it
//! does not wipe it; and its time, by which deadlines are kept whatever this pod's clock says.

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, header};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, Client};
use tokio::time::Instant;

use crate::environment::HomeCluster;

/// The ConfigMap in every namespace that has the CA of the API server.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Reads who the management cluster is.
pub(super) async fn read(client: &Client, namespace: &str) -> kube::Result<HomeCluster> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let system = namespaces.get_metadata("kube-system").await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let root = maps.get_opt(ROOT_CA).await?;
    Ok(HomeCluster {
        uid: system.metadata.uid.unwrap_or_default(),
        ca: root.and_then(|map| map.data?.remove("ca.crt")),
    })
}

/// The time of the API server, as its answers tell it.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerTime(Arc<Mutex<Option<(Timestamp, Instant)>>>);

impl ServerTime {
    /// Takes the date of an answer.
    pub(super) fn hear(&self, headers: &HeaderMap) {
        let date = headers.get(header::DATE).and_then(|date| {
            let date = jiff::fmt::rfc2822::parse(date.to_str().ok()?).ok()?;
            Some(date.timestamp())
        });
        if let Some(date) = date {
            let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *heard = Some((date, Instant::now()));
        }
    }

    /// What time it is there; `None` while no answer had a date.
    pub(super) fn now(&self) -> Option<Timestamp> {
        let (date, at) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let since = SignedDuration::try_from(at.elapsed()).ok()?;
        date.checked_add(since).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_servers_time_goes_on_between_its_answers() {
        let time = ServerTime::default();
        assert_eq!(time.now(), None);
        let mut headers = HeaderMap::new();
        time.hear(&headers);
        assert_eq!(time.now(), None, "no date, no time");
        headers.insert(
            header::DATE,
            "Tue, 01 Jan 2030 00:00:00 GMT".parse().unwrap(),
        );
        time.hear(&headers);
        tokio::time::advance(Duration::from_secs(61)).await;
        let now = time.now().unwrap();
        assert_eq!(now.to_string(), "2030-01-01T00:01:01Z");
        headers.insert(header::DATE, "yesterday".parse().unwrap());
        time.hear(&headers);
        assert_eq!(time.now(), Some(now), "what is no date changes nothing");
    }
}
