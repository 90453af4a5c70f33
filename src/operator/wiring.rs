//! The controllers and what wakes them. The watch takes objects as they are, so that one whose
//! spec cannot be understood is reconciled like any other (invariant 11).

use std::{
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, PartialObjectMeta},
    core::DeserializeGuard,
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
    OperatorOptions, cluster,
    cluster_object::{cluster_resource, secrets_of},
    context::{Caches, Context, Dependencies, ReconcileError},
    health::{BEAT, Health, Phase},
    home::ServerTime,
    kubeconfig,
};
use crate::{
    api::{
        ACCEPT_ETCD, CLEAN, CONFIRM_DELETION, Kubeconfig, LOSE, RECOVER, TAKE_OVER,
        kubeconfig_secret,
    },
    apply::stop::Stop,
    error::with_causes,
};

/// How long the objects may take to be read; then another process may be able to.
const FILL: Duration = Duration::from_secs(60);

/// Why the controllers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// They were told to stop.
    Stopped,
    /// They could not read the objects.
    Unread,
}

/// Runs the controllers until they are told to stop; runs under way end at their next step first.
pub(super) async fn controllers(
    options: OperatorOptions,
    client: Client,
    dependencies: Dependencies,
    health: &Arc<Health>,
    time: ServerTime,
    stop: Stop,
) -> End {
    let (tick, news) = watch::channel(0_u64);
    let moved = Arc::new(move || tick.send_modify(|count| *count = count.wrapping_add(1)));
    let writer = reflector::store::Writer::new(cluster_resource());
    let seen = writer.as_reader();
    let secrets_writer = reflector::store::Writer::<PartialObjectMeta<KubeSecret>>::default();
    let ctx = Arc::new(Context::new(
        options,
        client.clone(),
        dependencies,
        Caches {
            clusters: seen.clone(),
            secrets: secrets_writer.as_reader(),
            news,
        },
        Arc::clone(health),
        time,
        stop.clone(),
    ));
    let told = Arc::clone(&moved);
    let objects = watcher(ctx.clusters.clone(), watcher::Config::default())
        .default_backoff()
        .inspect(noted(health, "the Clusters"))
        .reflect(writer)
        // The cache has it by now: whoever waits for news finds them.
        .inspect(move |_| told())
        .touched_objects()
        .predicate_filter(what_matters, PredicateConfig::default());
    let secrets = watcher(credentials(&ctx), watcher::Config::default())
        .default_backoff()
        .inspect(noted(health, "the Secrets with credentials"))
        .reflect(secrets_writer)
        .inspect(move |_| moved())
        .touched_objects()
        .predicate_filter(predicates::resource_version, PredicateConfig::default());
    let ended = stop.clone();
    let clusters = Controller::for_stream_with(objects, seen.clone(), cluster_resource())
        .watches_stream(secrets, users_of(seen.clone()))
        .graceful_shutdown_on(async move {
            ended.stopped().await;
        })
        .run(cluster::reconcile, again, Arc::clone(&ctx))
        .for_each(|result| {
            log("Cluster", result);
            std::future::ready(())
        });
    let ended = stop.clone();
    // One that cannot be understood is its own affair.
    let all = Api::<DeserializeGuard<Kubeconfig>>::all(client);
    let kubeconfigs = Controller::new(all, watcher::Config::default());
    let made_for = kubeconfigs_of(kubeconfigs.store());
    let kubeconfigs = kubeconfigs
        .watches(credentials(&ctx), watcher::Config::default(), made_for)
        .graceful_shutdown_on(async move {
            ended.stopped().await;
        })
        .run(kubeconfig::reconcile, again, Arc::clone(&ctx))
        .for_each(|result| {
            log("Kubeconfig", result);
            std::future::ready(())
        });
    let all = async {
        tokio::join!(clusters, kubeconfigs);
    };
    let mut all = std::pin::pin!(async {
        tokio::select! {
            () = Box::pin(all) => {}
            // In the same loop: what holds it up holds this up as well.
            never = beats(health) => match never {},
        }
    });
    // Before the objects are read nothing is under way that must end in order.
    tokio::select! {
        () = &mut all => return End::Stopped,
        ready = seen.wait_until_ready() => if ready.is_err() {
            // The watch is gone.
            return End::Unread;
        },
        _ = stop.stopped() => return End::Stopped,
        () = tokio::time::sleep(FILL) => return End::Unread,
    }
    health.enters(Phase::Leading);
    all.await;
    End::Stopped
}

async fn beats(health: &Health) -> Infallible {
    loop {
        health.beat();
        tokio::time::sleep(BEAT).await;
    }
}

/// Notes whether a watch can list what it watches.
fn noted<K>(
    health: &Arc<Health>,
    what: &'static str,
) -> impl Fn(&Result<watcher::Event<K>, watcher::Error>) + Send + 'static {
    let health = Arc::clone(health);
    move |event| match event {
        Ok(_) => health.reads(what),
        Err(watcher::Error::InitialListFailed(error)) => {
            health.cannot_read(what, &with_causes(error));
        }
        // Whether it can be watched is seen below, where it also shows when it can be again.
        Err(error) => tracing::debug!(what, error = with_causes(error), "a watch begins again"),
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
    for annotation in [
        RECOVER,
        TAKE_OVER,
        LOSE,
        CLEAN,
        ACCEPT_ETCD,
        CONFIRM_DELETION,
    ] {
        object.annotations().get(annotation).hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// The Secrets with keys and kubeconfigs, without their contents.
fn credentials(ctx: &Context) -> Api<PartialObjectMeta<KubeSecret>> {
    Api::namespaced(ctx.client.clone(), &ctx.options.credentials_namespace)
}

/// The Kubeconfig that a Secret is about.
fn kubeconfigs_of(
    seen: Store<DeserializeGuard<Kubeconfig>>,
) -> impl Fn(PartialObjectMeta<KubeSecret>) -> Vec<ObjectRef<DeserializeGuard<Kubeconfig>>>
+ Send
+ Sync
+ 'static {
    move |secret| {
        let name = secret.name_any();
        let about =
            |object: &DeserializeGuard<Kubeconfig>| kubeconfig_secret(&object.name_any()) == name;
        seen.state()
            .iter()
            .filter(|object| about(object))
            .map(|object| ObjectRef::from_obj(&**object))
            .collect()
    }
}

/// The clusters that refer to a Secret: one that was mended wakes them.
fn users_of(
    seen: Store<DynamicObject>,
) -> impl Fn(PartialObjectMeta<KubeSecret>) -> Vec<ObjectRef<DynamicObject>> + Send + Sync + 'static
{
    move |secret| {
        let name = secret.name_any();
        seen.state()
            .iter()
            .filter(|object| secrets_of(object).any(|one| one == name))
            .map(|object| ObjectRef::from_obj_with(&**object, cluster_resource()))
            .collect()
    }
}

/// Never asked: a pass tells its own end. The type of a controller wants it.
fn again<K>(_: Arc<K>, error: &ReconcileError, _: Arc<Context>) -> Action {
    tracing::warn!(%error, "a pass did not end");
    Action::requeue(Duration::from_secs(60))
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
