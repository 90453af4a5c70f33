//! The management cluster as a cluster among others: who it is, so that an object that describes it
//! does not wipe it; and its time, by which deadlines are kept whatever this pod's clock says.

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, header};
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace},
    networking::v1::ServiceCIDR,
};
use kube::{Api, Client, api::ListParams};
use tokio::time::Instant;

use super::OperatorError;
use crate::environment::HomeCluster;

/// The ConfigMap in every namespace that has the CA of the API server.
const ROOT_CA: &str = "kube-root-ca.crt";

/// The resource with the ranges of Services.
const SERVICE_RANGES: &str = "servicecidrs.networking.k8s.io";

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

/// The ranges that its Services have addresses of. Before Kubernetes 1.33 the API tells none of them.
pub(super) async fn service_ranges(client: &Client) -> Result<Vec<IpNet>, OperatorError> {
    let api: Api<ServiceCIDR> = Api::all(client.clone());
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(ranges(&list.items)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Vec::new()),
        Err(source) => Err(OperatorError::reading("list", SERVICE_RANGES, source)),
    }
}

fn ranges(all: &[ServiceCIDR]) -> Vec<IpNet> {
    let specs = all.iter().filter_map(|range| range.spec.as_ref());
    let texts = specs.filter_map(|spec| spec.cidrs.as_ref()).flatten();
    texts.filter_map(|text| text.parse().ok()).collect()
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

    #[test]
    fn every_range_of_services_counts() {
        let all: Vec<ServiceCIDR> = serde_json::from_value(serde_json::json!([
            {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.43.0.0/16", "fd00::/108"]}},
            {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.44.0.0/24"]}},
            {"metadata": {"name": "none"}},
        ]))
        .unwrap();
        let texts: Vec<_> = ranges(&all).iter().map(IpNet::to_string).collect();
        assert_eq!(texts, ["10.43.0.0/16", "fd00::/108", "10.44.0.0/24"]);
    }

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
