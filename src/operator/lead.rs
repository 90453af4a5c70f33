//! One process from its start to its end: it checks that the definitions are installed, acquires the lease, runs
//! the controllers, and releases the lease when the last of them is done.

use std::{convert::Infallible, sync::Arc, time::Duration};

use ipnet::IpNet;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use tokio::time::Instant;

use super::{
    OperatorError, OperatorOptions,
    cluster_object::cluster_resource,
    context::Dependencies,
    health::{self, Health, Phase},
    home::{self, ServerTime},
    installed, metrics, patience,
    wiring::{self, End},
};
use crate::{
    api::{ClusterOperation, Kubeconfig},
    apply::{remote::OverSsh, stop::Stop},
    environment::Clock,
    host::{OtherMachines, ServiceRanges},
    lease::{self, Election},
};

/// How long a process that could not read the objects leaves the lease to others.
const PAUSE: Duration = Duration::from_secs(20);

/// Runs the operator until the stop signal; runs in progress first stop at their next step.
pub async fn run(
    options: OperatorOptions,
    client: Client,
    stop: Stop,
) -> Result<(), OperatorError> {
    let allowed = options.allowed_node_cidrs.clone();
    run_with(options, client, real_dependencies(allowed), stop).await
}

#[expect(
    clippy::disallowed_methods,
    reason = "the shell is where the time comes from"
)]
fn real_dependencies(allowed: Vec<IpNet>) -> Dependencies {
    let services = ServiceRanges::default();
    let dial = OtherMachines {
        allowed,
        services: services.clone(),
    };
    Dependencies {
        services,
        remote: Arc::new(OverSsh::new(Arc::new(dial))),
        clock: Clock::new(jiff::Timestamp::now),
        entropy: rand::random,
    }
}

/// As [`run`], with other dependencies.
pub async fn run_with(
    options: OperatorOptions,
    client: Client,
    dependencies: Dependencies,
    stop: Stop,
) -> Result<(), OperatorError> {
    let health = Health::new();
    let probes = match options.probes {
        Some(address) => {
            let listener = health::listen(address).await;
            let listener = listener.map_err(|source| OperatorError::Probes { address, source })?;
            Some(health::serve(listener, Arc::clone(&health)))
        }
        None => None,
    };
    let metrics = match options.metrics.clone() {
        Some(metrics) => {
            let (shown, now) = (&health.metrics, dependencies.clock.now());
            let (listener, server) = shown
                .server(metrics, &options.namespace, client.clone(), now)
                .await?;
            Some(metrics::serve(listener, server))
        }
        None => None,
    };
    let led = lead(options, client, dependencies, &health, stop);
    tokio::select! {
        ended = Box::pin(led) => ended,
        never = for_ever(probes) => match never {},
        never = Box::pin(for_ever(metrics)) => match never {},
    }
}

/// Serves, if there is something to serve.
async fn for_ever(served: Option<impl Future<Output = Infallible>>) -> Infallible {
    match served {
        Some(served) => served.await,
        None => std::future::pending().await,
    }
}

async fn lead(
    options: OperatorOptions,
    client: Client,
    dependencies: Dependencies,
    health: &Arc<Health>,
    stop: Stop,
) -> Result<(), OperatorError> {
    let time = ServerTime::default();
    let client = patience::bounded(client, time.clone(), health);
    check(&client).await?;
    let services = home::service_ranges(&client).await?;
    dependencies.services.set(services);
    let Some(identity) = options.identity.clone() else {
        loop {
            let (options, client) = (options.clone(), client.clone());
            let (dependencies, time) = (dependencies.clone(), time.clone());
            match work(options, client, dependencies, health, time, stop.clone()).await {
                End::Stopped => return Ok(()),
                End::Unread => pause(&stop).await,
            }
        }
    };
    let clock = dependencies.clock.clone();
    let namespace = &options.namespace;
    let election = Election::new(lease::OPERATOR, client.clone(), namespace, &identity, clock);
    loop {
        health.enters(Phase::Waiting);
        let Some(held) = election.clone().win(&stop).await else {
            return Ok(());
        };
        let (options, client) = (options.clone(), client.clone());
        let (dependencies, time) = (dependencies.clone(), time.clone());
        let working = |stop| work(options, client, dependencies, health, time, stop);
        match held.during(&stop, || None, working).await {
            (_, None) => return Err(OperatorError::LeaseLost),
            (End::Stopped, Some(held)) => {
                held.release().await;
                return Ok(());
            }
            // Another process may be able to.
            (End::Unread, Some(held)) => {
                held.release().await;
                pause(&stop).await;
            }
        }
    }
}

/// Leaves the turn to others for a while.
async fn pause(stop: &Stop) {
    tokio::select! {
        _ = stop.stopped() => {}
        () = tokio::time::sleep(PAUSE) => {}
    }
}

async fn work(
    options: OperatorOptions,
    client: Client,
    dependencies: Dependencies,
    health: &Arc<Health>,
    time: ServerTime,
    stop: Stop,
) -> End {
    health.enters(Phase::Filling);
    let ending = async {
        stop.stopped().await;
        health.enters(Phase::Ending(Instant::now()));
        std::future::pending::<Infallible>().await
    };
    let controllers =
        wiring::controllers(options, client, dependencies, health, time, stop.clone());
    tokio::select! {
        end = Box::pin(controllers) => end,
        never = ending => match never {},
    }
}

/// Says at once what would otherwise be a retry for ever.
async fn check(client: &Client) -> Result<(), OperatorError> {
    installed::check_release(client).await?;
    installed::check(client).await?;
    let one = ListParams::default().limit(1);
    let clusters: Api<DynamicObject> = Api::all_with(client.clone(), &cluster_resource());
    let reading = |what: &str, source| OperatorError::reading("list", what, source);
    clusters
        .list_metadata(&one)
        .await
        .map_err(|source| reading("clusters.clusterprovisioner.rke.io", source))?;
    Api::<Kubeconfig>::all(client.clone())
        .list_metadata(&one)
        .await
        .map_err(|source| reading("kubeconfigs.clusterprovisioner.rke.io", source))?;
    Api::<ClusterOperation>::all(client.clone())
        .list_metadata(&one)
        .await
        .map_err(|source| reading("clusteroperations.clusterprovisioner.rke.io", source))?;
    Ok(())
}
