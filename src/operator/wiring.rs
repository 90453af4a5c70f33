//! The controllers and what wakes them. The watch takes objects as they are, so that one whose
//! spec cannot be understood is reconciled like any other (invariant 11).

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams, PartialObjectMeta},
    runtime::{
        Controller, PredicateConfig, WatchStreamExt,
        controller::{self, Action},
        predicates,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use tokio::sync::watch;

use super::{
    OperatorError, OperatorOptions, cluster,
    context::{Clock, Context, Parts, ReconcileError},
    engine::Real,
    kubeconfig,
    view::{cluster_resource, key_secret},
};
use crate::{
    api::{Kubeconfig, RECOVER},
    apply::stop::Stop,
    host::TcpDial,
};

/// Runs the operator until it is told to stop; runs under way end at their next step first.
pub async fn run(
    options: OperatorOptions,
    client: Client,
    stop: Stop,
) -> Result<(), OperatorError> {
    run_with(options, client, real_parts(), stop).await
}

#[expect(
    clippy::disallowed_methods,
    reason = "the shell is where the time comes from"
)]
fn real_parts() -> Parts {
    Parts {
        engine: Arc::new(Real),
        dial: Arc::new(TcpDial),
        clock: Clock::new(jiff::Timestamp::now),
        now: jiff::Timestamp::now,
        entropy: rand::random,
    }
}

/// As [`run`], with other parts.
pub async fn run_with(
    options: OperatorOptions,
    client: Client,
    parts: Parts,
    stop: Stop,
) -> Result<(), OperatorError> {
    check(&client).await?;
    let writer = reflector::store::Writer::new(cluster_resource());
    let seen = writer.as_reader();
    let (tick, news) = watch::channel(0_u64);
    let ctx = Arc::new(Context::new(
        options,
        client.clone(),
        parts,
        seen.clone(),
        news,
        stop.clone(),
    ));
    let objects = watcher(ctx.clusters.clone(), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        // The cache has it by now: whoever waits for news finds them.
        .inspect(move |_| tick.send_modify(|count| *count = count.wrapping_add(1)))
        .touched_objects()
        .predicate_filter(what_matters, PredicateConfig::default());
    let ended = stop.clone();
    let clusters = Controller::for_stream_with(objects, seen.clone(), cluster_resource())
        .watches_stream(secrets(&ctx), users_of(seen))
        .graceful_shutdown_on(async move {
            ended.stopped().await;
        })
        .run(cluster::reconcile, again, Arc::clone(&ctx))
        .for_each(|result| {
            log("Cluster", result);
            std::future::ready(())
        });
    let ended = stop;
    let kubeconfigs = Controller::new(Api::<Kubeconfig>::all(client), watcher::Config::default())
        .owns(own_secrets(&ctx), watcher::Config::default())
        .graceful_shutdown_on(async move {
            ended.stopped().await;
        })
        .run(kubeconfig::reconcile, again, Arc::clone(&ctx))
        .for_each(|result| {
            log("Kubeconfig", result);
            std::future::ready(())
        });
    tokio::join!(clusters, kubeconfigs);
    Ok(())
}

/// Says at once what would otherwise be a retry for ever.
async fn check(client: &Client) -> Result<(), OperatorError> {
    let one = ListParams::default().limit(1);
    let clusters: Api<DynamicObject> = Api::all_with(client.clone(), &cluster_resource());
    clusters
        .list_metadata(&one)
        .await
        .map_err(|source| refusal("clusters.clusterprovisioner.rke.io", source))?;
    Api::<Kubeconfig>::all(client.clone())
        .list_metadata(&one)
        .await
        .map_err(|source| refusal("kubeconfigs.clusterprovisioner.rke.io", source))?;
    Ok(())
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "kube's errors, of which two tell something here"
)]
fn refusal(what: &str, source: kube::Error) -> OperatorError {
    let what = what.to_owned();
    match &source {
        kube::Error::Api(status) if status.is_not_found() => {
            OperatorError::NoDefinitions { what, source }
        }
        kube::Error::Api(status) if status.is_forbidden() => {
            OperatorError::Forbidden { what, source }
        }
        _ => OperatorError::Unreachable(source),
    }
}

/// What a pass depends on; our own writes to the status are not among it.
#[expect(
    clippy::unnecessary_wraps,
    reason = "what a predicate of kube's is asked for"
)]
fn what_matters(object: &DynamicObject) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let meta = &object.metadata;
    meta.uid.hash(&mut hasher);
    meta.generation.hash(&mut hasher);
    meta.deletion_timestamp.is_some().hash(&mut hasher);
    meta.finalizers.hash(&mut hasher);
    object.annotations().get(RECOVER).hash(&mut hasher);
    Some(hasher.finish())
}

fn own_secrets(ctx: &Context) -> Api<KubeSecret> {
    Api::namespaced(ctx.client.clone(), &ctx.options.namespace)
}

/// Secrets of the operator's namespace, without their contents, when they change.
fn secrets(
    ctx: &Context,
) -> impl Stream<Item = Result<PartialObjectMeta<KubeSecret>, watcher::Error>> + Send + 'static {
    let namespace = &ctx.options.namespace;
    let secrets: Api<PartialObjectMeta<KubeSecret>> =
        Api::namespaced(ctx.client.clone(), namespace);
    watcher(secrets, watcher::Config::default())
        .default_backoff()
        .touched_objects()
        .predicate_filter(predicates::resource_version, PredicateConfig::default())
}

/// The clusters whose key a Secret has: a Secret that was mended wakes them.
fn users_of(
    seen: Store<DynamicObject>,
) -> impl Fn(PartialObjectMeta<KubeSecret>) -> Vec<ObjectRef<DynamicObject>> + Send + Sync + 'static
{
    move |secret| {
        let name = secret.name_any();
        seen.state()
            .iter()
            .filter(|object| key_secret(object) == Some(&name))
            .map(|object| ObjectRef::from_obj_with(&**object, cluster_resource()))
            .collect()
    }
}

/// The management cluster refused or did not answer: soon again, with jitter.
fn again<K>(_: Arc<K>, error: &ReconcileError, _: Arc<Context>) -> Action {
    tracing::warn!(%error, "a pass did not end");
    Action::requeue(Duration::from_secs(2).mul_f64(1.0 + rand::random::<f64>()))
}

fn log<K, Q>(
    kind: &'static str,
    result: Result<(ObjectRef<K>, Action), controller::Error<ReconcileError, Q>>,
) where
    K: kube::core::Resource<DynamicType: std::fmt::Debug + std::hash::Hash + Eq>,
    Q: std::error::Error + 'static,
{
    match result {
        Ok((object, action)) => tracing::debug!(kind, %object, ?action, "a pass ended"),
        Err(controller::Error::ObjectNotFound(_)) => {}
        Err(error) => tracing::debug!(kind, %error, "a pass did not end"),
    }
}
