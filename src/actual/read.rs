//! How facts are read: hosts in parallel, and the API through a control plane. Reads only;
//! creates nothing on a node, not even for a moment.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, stream};
use tokio::time::{sleep, timeout};

use super::{
    facts::{Actual, ApiView, Down, HostFacts, HostView, control_planes},
    system,
};
use crate::{
    config::NodeName,
    desired::{label, path, pki::EngineClient},
    error::Blame,
    host::{Host, HostError, pool::Hosts},
    secret::Secret,
    state::Saved,
    workload,
};

/// How many hosts are read at once.
const WIDTH: usize = 32;
/// One unprivileged command of a few milliseconds; a node that swaps gets its time.
const SCRIPT_LIMIT: Duration = Duration::from_secs(20);
/// Until a node whose containerd is being switched is asked again.
const SWITCH_PAUSE: Duration = Duration::from_millis(500);
/// All the questions to one node together.
const HOST_LIMIT: Duration = Duration::from_secs(60);

/// The folders below which a survey reads files: those that [`crate::desired`] writes to.
const ROOTS: [&str; 5] = [
    path::KUBERNETES,
    path::CONTAINERD_CONFIG,
    path::CONTAINERD_DROP_IN,
    path::MODULES_LOAD,
    path::SYSCTL,
];

/// Reads every host that the pool aims at, then the API.
pub async fn read(
    hosts: &Hosts<'_>,
    saved: Option<Saved>,
    engine: Option<&EngineClient>,
    kubeconfig: Option<Secret<String>>,
) -> Actual {
    let views: BTreeMap<NodeName, HostView> = stream::iter(hosts.names())
        .map(|name| async move {
            let view = Box::pin(host_view(hosts, &name)).await;
            (name, view)
        })
        .buffer_unordered(WIDTH)
        .collect()
        .await;
    let api = match (&saved, engine) {
        (Some(saved), Some(engine)) => api_view(hosts, saved, engine, &views).await,
        (_, _) => ApiView::Unknown,
    };
    Actual {
        hosts: views,
        api,
        kubeconfig,
        saved: saved.map(Box::new),
    }
}

async fn host_view(hosts: &Hosts<'_>, name: &NodeName) -> HostView {
    let facts = async {
        let host = hosts.get(name).await?;
        Box::pin(host_facts(&host))
            .await
            .map_err(|error| Down::of(&error))
    };
    match timeout(HOST_LIMIT, facts).await {
        Ok(Ok(facts)) => HostView::Up(Box::new(facts)),
        Ok(Err(down)) => HostView::Down(down),
        Err(_) => HostView::Down(Down {
            blame: Blame::Transient,
            why: format!(
                "node `{name}` did not answer within {} s",
                HOST_LIMIT.as_secs()
            ),
            hints: vec![],
        }),
    }
}

async fn host_facts(host: &Host) -> Result<HostFacts, HostError> {
    let script = system::script();
    let (output, docker) = loop {
        let (output, docker) = tokio::join!(host.exec(&script, SCRIPT_LIMIT), async {
            tokio::try_join!(host.docker_facts(), host.containers(), host.images())
        });
        let output = output?;
        if !system::is_switching(&output.stdout) {
            break (output, docker);
        }
        sleep(SWITCH_PAUSE).await;
    };
    let (docker, containers, images) = docker?;
    let system = system::parse(&output.stdout)
        .ok_or_else(|| host.half_an_answer(&format!("{}\n{}", output.stdout, output.stderr)))?;
    let ours = containers
        .get(crate::desired::CLAIM)
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
    })
}

/// Asks the first control plane that answered and runs an API server of this cluster.
async fn api_view(
    hosts: &Hosts<'_>,
    saved: &Saved,
    engine: &EngineClient,
    views: &BTreeMap<NodeName, HostView>,
) -> ApiView {
    let mut why = None;
    for (name, facts) in control_planes(saved, views) {
        let ours = facts
            .containers
            .get("kube-apiserver")
            .is_some_and(|container| {
                container.labels.get(label::CLUSTER_ID) == Some(&saved.cluster_id.0)
            });
        if !ours {
            continue;
        }
        let Ok(host) = hosts.get(name).await else {
            continue;
        };
        let client = match workload::through(host, engine) {
            Ok(client) => client,
            Err(error) => {
                why = Some(error.to_string());
                continue;
            }
        };
        match workload::read(&client, Some(saved)).await {
            ApiView::Down(text) => why = Some(format!("node `{name}`: {text}")),
            view @ (ApiView::Up(_) | ApiView::Unknown) => return view,
        }
    }
    why.map_or(ApiView::Unknown, ApiView::Down)
}
