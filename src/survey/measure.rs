//! How nodes are measured: all at once, each over the connection that the survey has open. Creates nothing on a node that
//! stays there.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, future::join_all, stream};
use tokio::time::timeout;

use super::read::WIDTH;
use crate::{
    error::{ErrorClass, Obstacle, with_causes},
    facts::{
        Unreachable,
        measured::{
            self, Forwarding, MeasureRequest, Measured, PROOF, Proof, ProofRequest, ROOT_SCRIPT,
            SCRIPT,
        },
    },
    host::{HelperContainer, Host, pool::Hosts},
    model::{NodeName, RegistryLogin},
};

/// A hundred writes to a slow disk, or packets that do not come back.
const SCRIPT_LIMIT: Duration = Duration::from_secs(30);
/// A program listens for 8 s.
const PROOF_LIMIT: Duration = Duration::from_secs(20);
/// Until a registry has answered; Docker itself waits for 15 s.
const REGISTRY_LIMIT: Duration = Duration::from_secs(20);

/// What each node was measured for. One that does not answer is left out: the survey knows why.
pub(crate) async fn measure(
    hosts: &Hosts,
    requests: &BTreeMap<NodeName, MeasureRequest>,
) -> BTreeMap<NodeName, Measured> {
    let asked = requests.iter().map(|(name, request)| async move {
        let _shown = hosts.awaited().begin(name);
        let host = hosts.get(name).await.ok()?;
        Some((name.clone(), Box::pin(of(&host, request)).await))
    });
    let asked: Vec<_> = asked.collect();
    let mut measured: BTreeMap<NodeName, Measured> = stream::iter(asked)
        .buffer_unordered(WIDTH)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let open = measured::proofs(requests, &measured);
    // Both ends at the same time, however many there are: each is one command of a connection that is open.
    let proofs = open.iter().map(|(name, request)| async move {
        let host = hosts.get(name).await.ok()?;
        Some((name.clone(), Box::pin(prove(&host, name, request)).await?))
    });
    let proofs: Vec<_> = proofs.collect();
    let proofs = join_all(proofs).await.into_iter().flatten().collect();
    measured::proven(requests, &mut measured, &proofs);
    measured
}

/// Nothing where the node did not say enough: then nothing is proven.
async fn prove(host: &Host, name: &NodeName, request: &ProofRequest) -> Option<Proof> {
    let arguments = request.arguments(name);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = host.exec_with(PROOF, &arguments, PROOF_LIMIT).await.ok()?;
    Proof::parse(&output.stdout)
}

async fn of(host: &Host, request: &MeasureRequest) -> Measured {
    let images = request.images.iter();
    let images = images.map(|(image, login)| async move {
        let refused = refused(host, image, login.as_ref()).await?;
        Some((image.clone(), refused))
    });
    let (measured, by_root, images) = tokio::join!(
        Box::pin(by_script(host, request)),
        Box::pin(by_root(host, request)),
        join_all(images)
    );
    let by_root = by_root.unwrap_or_default();
    Measured {
        trip: host.trip(),
        bastion_trips: host.bastion_trips().to_vec(),
        disk: measured::disk(&by_root),
        forwarding: Forwarding::parse(&by_root),
        refused: images.into_iter().flatten().collect(),
        ..measured
    }
}

async fn by_script(host: &Host, request: &MeasureRequest) -> Measured {
    let arguments = request.arguments();
    if arguments.is_empty() {
        return Measured::default();
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let why = match host.exec_with(SCRIPT, &arguments, SCRIPT_LIMIT).await {
        Ok(output) => match Measured::parse(&output.stdout) {
            Some(measured) => return measured,
            None => "its script was cut off".to_owned(),
        },
        Err(error) => with_causes(&error),
    };
    Measured {
        untold: Some(why),
        ..Measured::default()
    }
}

/// What root's script printed, in a container, as everything that root does on a node. Where that fails, nothing is known
/// of it: what prevents a container is found by others.
async fn by_root(host: &Host, request: &MeasureRequest) -> Option<String> {
    let arguments = request.root_arguments();
    if arguments.is_empty() {
        return None;
    }
    let measurement = HelperContainer {
        script: ROOT_SCRIPT.to_owned(),
        arguments,
        limit: SCRIPT_LIMIT,
    };
    let ran = Box::pin(host.run_measurement(&measurement)).await;
    ran.ok().map(|output| output.log)
}

/// Why a registry does not give out an image.
async fn refused(host: &Host, image: &str, login: Option<&RegistryLogin>) -> Option<Unreachable> {
    match timeout(REGISTRY_LIMIT, host.find_image(image, login)).await {
        Ok(found) => found.err().map(|error| Unreachable::of(&error)),
        Err(_) => Some(Unreachable {
            alike: None,
            class: ErrorClass::Host,
            why: format!(
                "node `{}` has no answer of the registry of image `{image}` within {} s",
                host.name,
                REGISTRY_LIMIT.as_secs()
            ),
            hints: vec!["can the node reach the image's registry?".to_owned()],
            obstacle: Obstacle::Other,
        }),
    }
}
