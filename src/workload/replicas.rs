//! The pods of those of rke-operator's Deployments that are spread over several nodes: finds where they run, and
//! evicts one so that it moves to another node.

use std::{collections::BTreeMap, time::Duration};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{Waiting, WorkloadError, evict::evict, objects::within, pages};
use crate::{
    facts::Replica,
    model::{NodeName, ObjectRef, WantedObjects, is_spread},
};

/// How often it is looked whether the pod is gone.
const LOOK: Duration = Duration::from_secs(1);

/// Where the pods are of the Deployments whose pods are to be spread.
pub(super) async fn replicas(
    client: &Client,
    wanted: &WantedObjects,
) -> kube::Result<BTreeMap<ObjectRef, Vec<Replica>>> {
    let spread = wanted
        .objects
        .iter()
        .filter(|(object, value)| object.kind == "Deployment" && is_spread(value));
    let pods = spread.map(|(object, value)| async move {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &object.namespace);
        let its = ListParams::default().labels(&selector(value));
        let mut found = Vec::new();
        pages::each(&pods, &its, |pod| found.extend(replica(&pod))).await?;
        Ok::<_, kube::Error>((object.clone(), found))
    });
    Ok(try_join_all(pods).await?.into_iter().collect())
}

fn selector(deployment: &Value) -> String {
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.into_iter().flatten();
    let pairs = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}

/// One that does not end.
fn replica(pod: &Pod) -> Option<Replica> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    pod.metadata.deletion_timestamp.is_none().then(|| Replica {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        node: node.map(NodeName),
    })
}

/// Evicts the pod of this namespace and name, while it is the one of that uid, and again while its budget does
/// not allow it, until `patience` is over. Gone, or on its way, is success.
pub async fn evict_one(
    client: &Client,
    (namespace, name, uid): (&str, &str, &str),
    patience: Duration,
    waiting: Waiting<'_>,
) -> Result<(), WorkloadError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let end = Instant::now() + patience;
    for tries in 1.. {
        let doing = || format!("read pod `{namespace}/{name}`");
        let pod = within(pods.get_opt(name)).await;
        let pod = pod.map_err(|error| WorkloadError::api(doing(), error))?;
        let Some(pod) = pod.filter(|pod| replica(pod).is_some_and(|pod| pod.uid == uid)) else {
            return Ok(());
        };
        let waiting_for = evict(client, &pod, None).await?.waits_for();
        if Instant::now() >= end {
            return Err(WorkloadError::Overdue {
                waiting_for,
                after: patience,
            });
        }
        waiting(waiting_for, tries);
        sleep(LOOK).await;
    }
    Ok(())
}
