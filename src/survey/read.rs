//! How facts are read: hosts in parallel, then the API servers and etcd's members. Reads only;
//! creates nothing on a node, not even for a moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, future::join_all, stream};
use kube::Client;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};

use super::{members, same::SameContents, traffic};
use crate::{
    desired::pki::EngineClients,
    error::{ErrorClass, Explain, Obstacle, Passing, with_causes},
    etcd::EtcdView,
    facts::system,
    facts::{
        Actual, ApiHealth, ClockFact, ClusterFacts, ContainerFact, DockerFacts, FileFact,
        HostFacts, HostView, KeptFacts, OldClients, Unreachable, control_planes,
    },
    host::{
        Host, HostError,
        pool::{Hosts, NotOpen},
    },
    model::{
        ClientIdentity, Component, ImageVersion, NodeName, PeerPort, Role, Secret, WantedObjects,
        image_version, label, path,
    },
    state::ClusterState,
    workload::{self, Apis},
};

/// How many hosts are read at once.
pub(super) const WIDTH: usize = 32;
/// One unprivileged command of a few milliseconds; a node that swaps gets its time.
const SCRIPT_LIMIT: Duration = Duration::from_secs(20);
/// Where Docker usually is.
const DOCKER_ROOT: &str = "/var/lib/docker";
/// Until a node whose containerd is being switched is asked again.
const SWITCH_PAUSE: Duration = Duration::from_millis(500);
/// Until a node whose connection was lost is dialled again.
const AWAY_PAUSE: Duration = Duration::from_secs(2);
/// All the questions to one node together, with a connection that is tried again. The first connection has other
/// limits, and a person may be asked about the host's key.
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

/// Reads every host that the pool aims at, except those whose facts are `kept`. In parallel it asks the API
/// servers and etcd members of the saved inventory; it keeps the answers of those on a node that answered and
/// runs one of this cluster.
pub async fn read(
    hosts: &Hosts,
    apis: &Apis,
    saved: Option<ClusterState>,
    engine: Option<&EngineClients>,
    kubeconfig: Option<Secret<String>>,
    wanted: &WantedObjects,
    kept: KeptFacts,
) -> Actual {
    let begun = Instant::now();
    let known = saved.as_ref().zip(engine);
    let planes = async {
        let (saved, engine) = known?;
        Some(Box::pin(ask_apis(hosts, apis, saved, &engine.api, wanted)).await)
    };
    let members = async {
        let (saved, engine) = known.filter(|_| wanted.etcd.is_none())?;
        Some(Box::pin(members::early(hosts, saved, &engine.etcd)).await)
    };
    let views = Box::pin(host_views(hosts, kept, &wanted.peers, begun));
    let (views, planes, members) = tokio::join!(views, planes, members);
    let planes = async {
        let Some(((saved, engine), asked)) = known.zip(planes) else {
            return Planes::default();
        };
        Box::pin(checked(
            asked,
            hosts,
            apis,
            saved,
            &engine.api,
            wanted,
            &views,
        ))
        .await
    };
    let etcd = async {
        if let Some(look) = &wanted.etcd {
            return members::external(hosts, look, &views).await;
        }
        let Some(((saved, engine), asked)) = known.zip(members) else {
            return EtcdView::default();
        };
        Box::pin(members::checked(asked, hosts, saved, &engine.etcd, &views)).await
    };
    let (planes, etcd) = tokio::join!(planes, etcd);
    let since = match (wanted.since, known) {
        (Some(revision), Some((_, engine))) => {
            Box::pin(members::since(hosts, &etcd, &engine.etcd, revision)).await
        }
        (_, _) => None,
    };
    Actual {
        hosts: views,
        etcd,
        since,
        apis: planes.apis,
        versions: planes.versions,
        cluster: planes.cluster,
        untold: planes.untold,
        kubeconfig,
        saved: saved.map(Box::new),
    }
}

async fn host_views(
    hosts: &Hosts,
    mut kept: KeptFacts,
    peers: &BTreeMap<NodeName, BTreeSet<PeerPort>>,
    begun: Instant,
) -> BTreeMap<NodeName, HostView> {
    let mut same = SameContents::default();
    stream::iter(hosts.names())
        .map(|name| {
            let facts = kept.remove(&name);
            async move {
                let view = match facts {
                    Some(facts) => HostView::Reachable(facts),
                    None => Box::pin(host_view(hosts, &name, peers.get(&name), begun)).await,
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
        .await
}

async fn host_view(
    hosts: &Hosts,
    name: &NodeName,
    peers: Option<&BTreeSet<PeerPort>>,
    begun: Instant,
) -> HostView {
    let _shown = hosts.awaited().begin(name);
    let mut open = Box::pin(hosts.open(name)).await;
    let facts = async {
        let mut connected = false;
        loop {
            let error = match open {
                Ok(host) => {
                    connected = true;
                    match Box::pin(host_facts(&host, peers, begun)).await {
                        Ok(facts) => return Ok(facts),
                        Err(error) if host.is_alive() => return Err(Unreachable::of(&error)),
                        Err(error) => Arc::new(error),
                    }
                }
                Err(NotOpen::Target(down)) => return Err(down),
                Err(NotOpen::Host(error)) => error,
            };
            // A node that was there and is away is waited for; one that never answered is down.
            let waits = connected && error.passing() == Some(Passing::Away);
            if !waits {
                return Err(Unreachable::of(&*error));
            }
            sleep(AWAY_PAUSE).await;
            open = hosts.open(name).await;
        }
    };
    match timeout(HOST_LIMIT, facts).await {
        Ok(Ok(facts)) => HostView::Reachable(Box::new(facts)),
        Ok(Err(down)) => HostView::Unreachable(down),
        Err(_) => HostView::Unreachable(Unreachable {
            alike: None,
            obstacle: Obstacle::Silence,
            class: ErrorClass::Transient,
            why: format!(
                "node `{name}` did not answer within {} s",
                HOST_LIMIT.as_secs()
            ),
            hints: vec![],
        }),
    }
}

/// Everything that one node is asked, as much of it at once as there is.
async fn host_facts(
    host: &Host,
    peers: Option<&BTreeSet<PeerPort>>,
    begun: Instant,
) -> Result<HostFacts, HostError> {
    let arguments = system::arguments(host.address(), peers.into_iter().flatten());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let forwards = host.forwards_to_ports();
    let asking = async {
        loop {
            let asked = Instant::now();
            let script = host.exec_with(system::SCRIPT, &arguments, SCRIPT_LIMIT);
            let docker = async { tokio::try_join!(of_docker(host), of_claim(host), host.images()) };
            let script = async { (script.await, asked.elapsed()) };
            let ((output, took), docker) = tokio::join!(script, Box::pin(docker));
            let output = output?;
            if !system::is_switching(&output.stdout) {
                return Ok::<_, HostError>((asked, took, output, docker));
            }
            sleep(SWITCH_PAUSE).await;
        }
    };
    let (asked, forwards) = tokio::join!(asking, forwards);
    let (asked, took, output, docker) = asked?;
    let ((mut docker, free), (containers, files), images) = docker?;
    let mut system = system::parse(&output.stdout)
        .ok_or_else(|| host.half_an_answer(&format!("{}\n{}", output.stdout, output.stderr)))?;
    let clock = system
        .clock
        .map(|shown| ClockFact::of(shown, asked.duration_since(begun), took));
    system.host_key = Some(host.host_key().to_owned());
    system.bastion_keys = host.bastion_keys().to_vec();
    system.no_port_forwarding = !forwards?;
    if let Some(free) = free {
        system.free.extend([free]);
        system.free.remove(DOCKER_ROOT);
    }
    docker.logs_bounded |= system::bounds_logs(&output.stdout);
    Ok(HostFacts {
        docker,
        containers,
        images,
        files,
        system,
        clock,
    })
}

/// Docker's view of itself, and the free space where it is, if that is not the usual place.
async fn of_docker(host: &Host) -> Result<(DockerFacts, Option<(String, u64)>), HostError> {
    let docker = host.docker_facts().await?;
    let free = if docker.root_dir == DOCKER_ROOT {
        None
    } else {
        free_at(host, &docker.root_dir).await?
    };
    Ok((docker, free))
}

/// The containers, and the files of a node that is claimed.
async fn of_claim(
    host: &Host,
) -> Result<
    (
        BTreeMap<String, ContainerFact>,
        Option<BTreeMap<String, FileFact>>,
    ),
    HostError,
> {
    let listed = host.listed().await?;
    let ours = listed
        .get(crate::model::CLAIM)
        .is_some_and(|claim| claim.labels.contains_key(label::CLUSTER_ID));
    let files = async {
        if ours {
            host.read_files(&ROOTS).await.map(Some)
        } else {
            Ok(None)
        }
    };
    tokio::try_join!(host.inspected_all(listed), Box::pin(files))
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
    apis: &Apis,
    saved: &ClusterState,
    engine: &ClientIdentity,
    views: &BTreeMap<NodeName, HostView>,
) -> BTreeMap<NodeName, ApiHealth> {
    of_each_api(hosts, saved, views, |name| async move {
        let served = match apis.of(&name, engine) {
            Ok(client) => workload::serves(&client).await,
            Err(error) => Err(with_causes(&error)),
        };
        Some(health(&name, served))
    })
    .await
}

/// The release of each API server that reports it.
pub async fn api_versions(
    hosts: &Hosts,
    apis: &Apis,
    saved: &ClusterState,
    engine: &ClientIdentity,
    views: &BTreeMap<NodeName, HostView>,
) -> BTreeMap<NodeName, ImageVersion> {
    of_each_api(hosts, saved, views, |name| async move {
        let client = apis.of(&name, engine).ok()?;
        workload::release(&client).await
    })
    .await
}

/// Asks each API server of the cluster on a node that answered, all at once.
async fn of_each_api<T, F: Future<Output = Option<T>>>(
    hosts: &Hosts,
    saved: &ClusterState,
    views: &BTreeMap<NodeName, HostView>,
    ask: impl Fn(NodeName) -> F,
) -> BTreeMap<NodeName, T> {
    let names = control_planes(saved, views)
        .filter(|(_, facts)| runs_ours(facts, saved))
        .map(|(name, _)| name.clone());
    let ask = &ask;
    let asked = names.map(|name| async move {
        // A connection that was lost meanwhile: the server was not asked.
        hosts.get(&name).await.ok()?;
        Some((name.clone(), ask(name).await?))
    });
    let asked: Vec<_> = asked.collect();
    let answers = stream::iter(asked).buffer_unordered(WIDTH);
    answers.filter_map(std::future::ready).collect().await
}

fn health(name: &NodeName, served: Result<(), String>) -> ApiHealth {
    match served {
        Ok(()) => ApiHealth::Serving,
        Err(why) => ApiHealth::Unreachable(format!("node `{name}`: {why}")),
    }
}

/// What the control planes said.
#[derive(Default)]
struct Planes {
    apis: BTreeMap<NodeName, ApiHealth>,
    versions: BTreeMap<NodeName, ImageVersion>,
    cluster: Option<Box<ClusterFacts>>,
    untold: Option<String>,
}

/// The same, before it is known on which of them an API server of this cluster runs.
#[derive(Default)]
struct AskedApis {
    apis: BTreeMap<NodeName, ApiHealth>,
    versions: BTreeMap<NodeName, ImageVersion>,
    /// Who told what the cluster holds.
    cluster: Option<(NodeName, Box<ClusterFacts>)>,
    untold: Option<String>,
}

/// Asks each control plane of the inventory, all at once, whether it serves; the first that does says
/// what the cluster holds, and where it cannot the next one does.
async fn ask_apis(
    hosts: &Hosts,
    apis: &Apis,
    saved: &ClusterState,
    engine: &ClientIdentity,
    wanted: &WantedObjects,
) -> AskedApis {
    let inventory = saved.inventory.iter();
    let planes = inventory.filter(|(_, entry)| entry.roles.contains(&Role::ControlPlane));
    let aimed: BTreeSet<NodeName> = hosts.names().into_iter().collect();
    let planes = planes.map(|(name, _)| name.clone());
    let planes: Vec<NodeName> = planes.filter(|name| aimed.contains(name)).collect();
    ask(planes, hosts, apis, saved, engine, wanted).await
}

async fn ask(
    planes: Vec<NodeName>,
    hosts: &Hosts,
    apis: &Apis,
    saved: &ClusterState,
    engine: &ClientIdentity,
    wanted: &WantedObjects,
) -> AskedApis {
    let told = Mutex::new((None, None));
    let asked = planes.into_iter().map(|name| {
        let told = &told;
        async move {
            // Without the host there is no API server to ask.
            hosts.get(&name).await.ok()?;
            let served = match apis.of(&name, engine) {
                Ok(client) => one_api(&name, hosts, saved, &client, wanted, told).await,
                Err(error) => Err(with_causes(&error)),
            };
            let (served, version) = match served {
                Ok(version) => (Ok(()), version),
                Err(why) => (Err(why), None),
            };
            Some((name.clone(), health(&name, served), version))
        }
    });
    let asked: Vec<_> = asked.collect();
    let answers: Vec<_> = stream::iter(asked)
        .buffer_unordered(WIDTH)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let mut apis = BTreeMap::new();
    let mut versions = BTreeMap::new();
    for (name, health, version) in answers {
        versions.extend(version.map(|version| (name.clone(), version)));
        apis.insert(name, health);
    }
    let (cluster, untold) = told.into_inner();
    AskedApis {
        apis,
        versions,
        cluster,
        untold,
    }
}

/// The facts that an API server gave, with its node; and why one that was asked for them gave none.
type Told = (Option<(NodeName, Box<ClusterFacts>)>, Option<String>);

async fn one_api(
    name: &NodeName,
    hosts: &Hosts,
    saved: &ClusterState,
    client: &Client,
    wanted: &WantedObjects,
    told: &Mutex<Told>,
) -> Result<Option<ImageVersion>, String> {
    // This alone says whether it serves.
    workload::serves(client).await?;
    let held = async {
        let mut told = told.lock().await;
        if told.0.is_none() {
            let held = Box::pin(workload::held(client, wanted));
            match tokio::join!(held, Box::pin(traffic::missing(hosts, client, saved))) {
                (Ok(facts), no_traffic) => {
                    let facts = ClusterFacts {
                        no_traffic,
                        ..facts
                    };
                    told.0 = Some((name.clone(), Box::new(facts)));
                }
                (Err(why), _) => told.1 = Some(format!("node `{name}`: {why}")),
            }
        }
    };
    let ((), version) = tokio::join!(Box::pin(held), workload::release(client));
    Ok(version)
}

/// Keeps of the control planes' answers those of nodes that answered and run an API server of this cluster. Asks all
/// of these again if the facts came from another node, or if one of them could not be reached yet.
async fn checked(
    asked: AskedApis,
    hosts: &Hosts,
    apis: &Apis,
    saved: &ClusterState,
    engine: &ClientIdentity,
    wanted: &WantedObjects,
    views: &BTreeMap<NodeName, HostView>,
) -> Planes {
    let counts: BTreeMap<&NodeName, &HostFacts> = control_planes(saved, views)
        .filter(|(_, facts)| runs_ours(facts, saved))
        .collect();
    let mut asked = asked;
    let teller = asked.cluster.as_ref();
    let stranger = teller.is_some_and(|(name, _)| !counts.contains_key(name));
    // The facts must come from another one, or one could not be reached yet.
    if stranger || counts.keys().any(|name| !asked.apis.contains_key(*name)) {
        let planes = counts.keys().map(|name| (*name).clone()).collect();
        asked = Box::pin(ask(planes, hosts, apis, saved, engine, wanted)).await;
    }
    asked.apis.retain(|name, _| counts.contains_key(name));
    asked.versions.retain(|name, _| counts.contains_key(name));
    let serves = |name: &NodeName| asked.apis.get(name) == Some(&ApiHealth::Serving);
    let older = counts.iter().filter_map(|(name, facts)| {
        let release = wanted.release.filter(|wanted| is_older(facts, *wanted))?;
        serves(name).then_some((*name, release))
    });
    let told = older.map(|(name, release)| async move {
        let told = match apis.of(name, engine) {
            Ok(client) => workload::removed_apis(&client, release).await,
            Err(error) => Err(with_causes(&error)),
        };
        (name.clone(), told)
    });
    let mut old_clients = OldClients::default();
    for (name, told) in join_all(told).await {
        match told {
            Ok(asked) => old_clients.asked.extend(asked),
            Err(why) => drop(old_clients.untold.insert(name, why)),
        }
    }
    let untold = asked.untold.filter(|_| asked.cluster.is_none());
    let cluster = asked.cluster.map(|(_, cluster)| {
        Box::new(ClusterFacts {
            old_clients,
            ..*cluster
        })
    });
    Planes {
        apis: asked.apis,
        versions: asked.versions,
        cluster,
        untold,
    }
}

/// True where the API server has an older minor release.
fn is_older(facts: &HostFacts, wanted: ImageVersion) -> bool {
    let container = facts.container(Component::ApiServer);
    let runs = container.and_then(|container| image_version(&container.image));
    runs.is_some_and(|runs| (runs.0, runs.1) < (wanted.0, wanted.1))
}

fn runs_ours(facts: &HostFacts, saved: &ClusterState) -> bool {
    let container = facts.container(Component::ApiServer);
    container.is_some_and(|container| {
        container.labels.get(label::CLUSTER_ID) == Some(&saved.cluster_id.0)
    })
}
