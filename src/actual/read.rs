//! How facts are read: hosts in parallel, then the API servers and etcd's members. Reads only;
//! creates nothing on a node, not even for a moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt, stream};
use kube::Client;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};

use super::{
    facts::{
        Actual, ApiHealth, ClockFact, ClusterFacts, HostFacts, HostView, KeptFacts, OldClients,
        Unreachable, control_planes,
    },
    members,
    same::SameContents,
    system,
};
use crate::{
    desired::pki::EngineClients,
    error::{ErrorClass, Explain, Passing},
    etcd::EtcdView,
    host::{
        Host, HostError,
        pool::{Hosts, NotOpen},
    },
    model::{
        ClientIdentity, Component, ImageVersion, NodeName, Secret, WantedObjects, image_version,
        label, path,
    },
    state::ClusterState,
    workload,
};

/// How many hosts are read at once.
const WIDTH: usize = 32;
/// One unprivileged command of a few milliseconds; a node that swaps gets its time.
const SCRIPT_LIMIT: Duration = Duration::from_secs(20);
/// Until a node whose containerd is being switched is asked again.
const SWITCH_PAUSE: Duration = Duration::from_millis(500);
/// Until a node whose connection was lost is dialled again.
const AWAY_PAUSE: Duration = Duration::from_secs(2);
/// All the questions to one node together, with a connection that is tried again.
const HOST_LIMIT: Duration = Duration::from_secs(100);

/// The folders below which a survey reads files: those that [`crate::desired`] writes to.
const ROOTS: [&str; 8] = [
    path::KUBERNETES,
    path::CONTAINERD_CONFIG,
    path::CONTAINERD_DROP_IN,
    path::FORMER_DROP_IN,
    path::CERTS_D,
    path::DOCKER_CERTS_D,
    path::MODULES_LOAD,
    path::SYSCTL,
];

/// Reads every host that the pool aims at, but for those whose facts are `kept`, then the API.
pub async fn read(
    hosts: &Hosts,
    saved: Option<ClusterState>,
    engine: Option<&EngineClients>,
    kubeconfig: Option<Secret<String>>,
    wanted: &WantedObjects,
    mut kept: KeptFacts,
) -> Actual {
    let mut same = SameContents::default();
    let views: BTreeMap<NodeName, HostView> = stream::iter(hosts.names())
        .map(|name| {
            let facts = kept.remove(&name);
            async move {
                let view = match facts {
                    Some(facts) => HostView::Reachable(facts),
                    None => Box::pin(host_view(hosts, &name)).await,
                };
                (name, view)
            }
        })
        .buffer_unordered(WIDTH)
        .map(|(name, mut view)| {
            if let HostView::Reachable(facts) = &mut view {
                same.keep_once(facts);
            }
            (name, view)
        })
        .collect()
        .await;
    let new = BTreeSet::new();
    let known = saved.as_ref().zip(engine);
    let apis = async {
        if let Some((saved, engine)) = known {
            read_apis(hosts, saved, &engine.api, wanted, &views).await
        } else {
            (BTreeMap::new(), None)
        }
    };
    let etcd = async {
        if let Some(look) = &wanted.etcd {
            members::external(hosts, look, &views).await
        } else if let Some((saved, engine)) = known {
            members::etcd(hosts, saved, &engine.etcd, &views, &new).await
        } else {
            EtcdView::default()
        }
    };
    let ((apis, cluster), etcd) = tokio::join!(Box::pin(apis), Box::pin(etcd));
    Actual {
        hosts: views,
        etcd,
        apis,
        cluster,
        kubeconfig,
        saved: saved.map(Box::new),
    }
}

async fn host_view(hosts: &Hosts, name: &NodeName) -> HostView {
    let facts = async {
        let mut connected = false;
        loop {
            let error = match hosts.open(name).await {
                Ok(host) => {
                    connected = true;
                    match Box::pin(host_facts(&host)).await {
                        Ok(facts) => return Ok(facts),
                        Err(error) if host.is_alive() => return Err(Unreachable::of(&error)),
                        Err(error) => error,
                    }
                }
                Err(NotOpen::Target(down)) => return Err(down),
                Err(NotOpen::Host(error)) => error,
            };
            // A node that was there and is away is waited for; one that never answered is down.
            let waits = connected && error.passing() == Some(Passing::Away);
            if !waits {
                return Err(Unreachable::of(&error));
            }
            sleep(AWAY_PAUSE).await;
        }
    };
    match timeout(HOST_LIMIT, facts).await {
        Ok(Ok(facts)) => HostView::Reachable(Box::new(facts)),
        Ok(Err(down)) => HostView::Unreachable(down),
        Err(_) => HostView::Unreachable(Unreachable {
            class: ErrorClass::Transient,
            why: format!(
                "node `{name}` did not answer within {} s",
                HOST_LIMIT.as_secs()
            ),
            hints: vec![],
        }),
    }
}

async fn host_facts(host: &Host) -> Result<HostFacts, HostError> {
    let arguments = system::arguments(host.address());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (took, output, docker) = loop {
        let asked = Instant::now();
        let script = host.exec_with(system::SCRIPT, &arguments, SCRIPT_LIMIT);
        let (output, docker) = tokio::join!(script, async {
            tokio::try_join!(host.docker_facts(), host.containers(), host.images())
        });
        let output = output?;
        if !system::is_switching(&output.stdout) {
            break (asked.elapsed(), output, docker);
        }
        sleep(SWITCH_PAUSE).await;
    };
    let (docker, containers, images) = docker?;
    let mut system = system::parse(&output.stdout)
        .ok_or_else(|| host.half_an_answer(&format!("{}\n{}", output.stdout, output.stderr)))?;
    // The node tells whole seconds.
    let uncertainty = took + Duration::from_secs(1);
    let clock = system.clock.map(|unix_seconds| ClockFact {
        unix_seconds,
        uncertainty_ms: u32::try_from(uncertainty.as_millis()).unwrap_or(u32::MAX),
    });
    system.no_port_forwarding = !host.forwards_to_ports().await?;
    if !system.free.contains_key(&docker.root_dir) {
        system.free.extend(free_at(host, &docker.root_dir).await?);
        system.free.remove("/var/lib/docker");
    }
    let ours = containers
        .get(crate::model::CLAIM)
        .is_some_and(|claim| claim.labels.contains_key(label::CLUSTER_ID));
    let files = if ours {
        Some(host.read_files(&ROOTS).await?)
    } else {
        None
    };
    Ok(HostFacts {
        docker,
        containers,
        images,
        files,
        system,
        clock,
    })
}

/// Free space at Docker's root, where that is not the usual place.
async fn free_at(host: &Host, root: &str) -> Result<Option<(String, u64)>, HostError> {
    let output = host
        .exec_with("df -Pk \"$1\" 2>/dev/null", &[root], SCRIPT_LIMIT)
        .await?;
    let kib = output.stdout.lines().nth(1).and_then(|line| {
        let word = line.split_whitespace().nth(3)?;
        word.parse::<u64>().ok()
    });
    Ok(kib.map(|kib| (root.to_owned(), kib * 1024)))
}

/// Whether each API server serves, of those control planes that answered and run one.
pub async fn apis(
    hosts: &Hosts,
    saved: &ClusterState,
    engine: &ClientIdentity,
    views: &BTreeMap<NodeName, HostView>,
) -> BTreeMap<NodeName, ApiHealth> {
    read_apis(hosts, saved, engine, &WantedObjects::default(), views)
        .await
        .0
}

/// Asks each control plane that answered and runs an API server of this cluster, all at once,
/// whether it serves; the first that does says what the cluster holds.
async fn read_apis(
    hosts: &Hosts,
    saved: &ClusterState,
    engine: &ClientIdentity,
    wanted: &WantedObjects,
    views: &BTreeMap<NodeName, HostView>,
) -> (BTreeMap<NodeName, ApiHealth>, Option<Box<ClusterFacts>>) {
    let cluster = Mutex::new(None);
    let asked = control_planes(saved, views)
        .filter(|(_, facts)| runs_ours(facts, saved))
        .map(|(name, facts)| {
            let cluster = &cluster;
            let release = wanted.release.filter(|wanted| is_older(facts, *wanted));
            async move {
                // A connection that was lost meanwhile: the server was not asked.
                let host = hosts.get(name).await.ok()?;
                let read = async {
                    let client =
                        workload::through(host, engine).map_err(|error| error.to_string())?;
                    read_api(&client, saved, wanted, cluster).await?;
                    Ok(match release {
                        Some(release) => Some(workload::removed_apis(&client, release).await),
                        None => None,
                    })
                };
                let answer: Result<_, String> = read.await;
                Some((name.clone(), answer))
            }
        });
    let asked: Vec<_> = asked.collect();
    let answers: Vec<_> = stream::iter(asked)
        .buffer_unordered(WIDTH)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let mut old_clients = OldClients::default();
    let mut apis = BTreeMap::new();
    for (name, answer) in answers {
        let health = match answer {
            Ok(told) => {
                match told {
                    Some(Ok(asked)) => old_clients.asked.extend(asked),
                    Some(Err(why)) => drop(old_clients.untold.insert(name.clone(), why)),
                    None => {}
                }
                ApiHealth::Serving
            }
            Err(why) => ApiHealth::Unreachable(format!("node `{name}`: {why}")),
        };
        apis.insert(name, health);
    }
    let cluster: Option<Box<ClusterFacts>> = cluster.into_inner();
    let cluster = cluster.map(|cluster| {
        Box::new(ClusterFacts {
            old_clients,
            ..*cluster
        })
    });
    (apis, cluster)
}

/// What the cluster holds is told by one server for all. One that cannot does not serve, and then
/// the next one tells.
async fn read_api(
    client: &Client,
    saved: &ClusterState,
    wanted: &WantedObjects,
    cluster: &Mutex<Option<Box<ClusterFacts>>>,
) -> Result<(), String> {
    workload::serves(client).await?;
    let mut cluster = cluster.lock().await;
    if cluster.is_none() {
        let facts = workload::held(client, Some(saved), wanted).await?;
        *cluster = Some(Box::new(facts));
    }
    Ok(())
}

/// True where the API server has an older minor release.
fn is_older(facts: &HostFacts, wanted: ImageVersion) -> bool {
    let container = facts.containers.get(Component::ApiServer.container());
    let runs = container.and_then(|container| image_version(&container.image));
    runs.is_some_and(|runs| (runs.0, runs.1) < (wanted.0, wanted.1))
}

fn runs_ours(facts: &HostFacts, saved: &ClusterState) -> bool {
    let container = facts.containers.get(Component::ApiServer.container());
    container.is_some_and(|container| {
        container.labels.get(label::CLUSTER_ID) == Some(&saved.cluster_id.0)
    })
}
