//! Whether nodes reach pods of other nodes: tried on those of CoreDNS, which are on more than one. Reads only.
//!
//! A TCP connection from a node to a pod goes the way that packets of pods go: through the network plugin's tunnel or
//! routes, and back. A pod that refuses was reached. What network policies keep out is no fault of the network.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::{core::v1::Pod, networking::v1::NetworkPolicy};
use kube::{Api, Client, api::ListParams};
use tokio::time::timeout;

use crate::{
    facts::system,
    facts::{Barrier, NoTraffic},
    host::{Host, HostError, pool::Hosts},
    model::{NodeName, PeerPort},
    state::{ClusterState, Membership},
    workload::{pages, within},
};

/// Where the pods are, and how they are found.
const NAMESPACE: &str = "kube-system";
const PODS: &str = "k8s-app=kube-dns";
const DNS: u16 = 53;

/// Until a pod answers a node; routes to a pod that was just made take a moment.
const PATIENCE: Duration = Duration::from_secs(5);
const TRIES: usize = 2;
/// How many connections are tried at once.
const WIDTH: usize = 64;
/// How many pods of other nodes a node tries.
const PODS_EACH: usize = 3;

/// The pairs of nodes between which no packets of pods travel, as far as it could be tried.
pub(super) async fn missing(
    hosts: &Hosts,
    client: &Client,
    saved: &ClusterState,
) -> BTreeSet<NoTraffic> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut found: Vec<(NodeName, PeerPort)> = Vec::new();
    let dns = ListParams::default().labels(PODS);
    let listed = pages::each(&pods, &dns, |pod| found.extend(serving(&pod)));
    if within(listed).await.is_err() {
        return BTreeSet::new();
    }
    let aimed: BTreeSet<NodeName> = hosts.names().into_iter().collect();
    let members = saved.inventory.iter();
    let members = members.filter(|(_, entry)| entry.membership == Membership::Active);
    let members: Vec<&NodeName> = members.map(|(name, _)| name).collect();
    let pairs = members
        .iter()
        .filter(|from| aimed.contains(**from))
        .flat_map(|from| {
            let others = found.iter().filter(|(to, _)| to != *from);
            // Nodes that leave are not proven.
            let others = others.filter(|(to, _)| members.contains(&to));
            others.take(PODS_EACH).map(|(to, pod)| NoTraffic {
                from: (*from).clone(),
                to: to.clone(),
                pod: pod.clone(),
                how: Barrier::Silent,
            })
        });
    let pairs: Vec<NoTraffic> = pairs.collect();
    let missing: BTreeSet<NoTraffic> = stream::iter(pairs)
        .map(|pair| tried(hosts, pair))
        .buffer_unordered(WIDTH)
        .filter_map(std::future::ready)
        .collect()
        .await;
    if missing.is_empty() || has_policies(client).await {
        return BTreeSet::new();
    }
    missing
}

/// A pod that is Ready, by its node and its port.
fn serving(pod: &Pod) -> Option<(NodeName, PeerPort)> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
    let stays = pod.metadata.deletion_timestamp.is_none();
    let node = pod.spec.as_ref()?.node_name.clone()?;
    let address = status.pod_ip.clone().filter(|_| ready && stays)?;
    Some((NodeName(node), PeerPort { address, port: DNS }))
}

async fn tried(hosts: &Hosts, pair: NoTraffic) -> Option<NoTraffic> {
    // A node that does not answer is reported already.
    let host = hosts.get(&pair.from).await.ok()?;
    for _ in 0..TRIES {
        let answer = host.remote_port(&pair.pod.address, pair.pod.port);
        match timeout(PATIENCE, answer).await {
            Ok(Ok(_reached)) => return None,
            Ok(Err(HostError::NotReached {
                forbidden: false, ..
            })) => return refused(&host, pair).await,
            // sshd forwards nothing, or the connection was lost: it was not tried.
            Ok(Err(_)) => return None,
            Err(_elapsed) => {}
        }
    }
    Some(pair)
}

/// sshd does not tell a pod that refuses from a network that does.
async fn refused(host: &Host, pair: NoTraffic) -> Option<NoTraffic> {
    let port = pair.pod.to_string();
    let words = [port.as_str()];
    let output = host.exec_with(system::REACH, &words, 2 * PATIENCE);
    let output = output.await.ok()?;
    let how = output.stdout.lines().find_map(system::unreached)?.how;
    Some(NoTraffic { how, ..pair })
}

/// Policies may keep the nodes out; if it is not known whether there are any, nothing is.
async fn has_policies(client: &Client) -> bool {
    let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), NAMESPACE);
    let one = ListParams::default().limit(1);
    let listed = within(policies.list(&one)).await;
    listed.map_or(true, |listed| !listed.items.is_empty())
}
