//! The controllers and what wakes them. The watch takes objects as they are, so that one whose
//! spec cannot be understood is reconciled like any other (invariant 11).

use std::{
    collections::BTreeSet,
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret as KubeSecret},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, PartialObjectMeta},
    core::DeserializeGuard,
    runtime::{
        Controller, PredicateConfig, WatchStreamExt,
        controller::{self, Action},
        predicates,
        reflector::{ObjectRef, Store, store::Writer},
        watcher,
    },
};
use tokio::sync::watch;
use tracing::Instrument;

use super::{
    OperatorOptions, cluster,
    cluster_object::{cluster_resource, config_maps_of, file_of, secrets_of},
    context::{Caches, Context, Dependencies, ReconcileError},
    files::POLL,
    health::{BEAT, Health, Phase},
    home::ServerTime,
    kubeconfig,
};
use crate::{
    api::{Kubeconfig, REQUESTS},
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
    let moved = move || tick.send_modify(|count: &mut u64| *count = count.wrapping_add(1));
    let writer = Writer::new(cluster_resource());
    let seen = writer.as_reader();
    let secrets_writer = Writer::<PartialObjectMeta<KubeSecret>>::default();
    let maps_writer = Writer::<PartialObjectMeta<ConfigMap>>::default();
    let ctx = Context::new(
        options,
        client,
        dependencies,
        Caches {
            clusters: seen.clone(),
            secrets: secrets_writer.as_reader(),
            config_maps: maps_writer.as_reader(),
            news,
        },
        Arc::clone(health),
        time,
        stop.clone(),
    )
    .shown();
    let streams = Streams {
        clusters: writer,
        secrets: secrets_writer,
        config_maps: maps_writer,
    };
    let clusters = clusters(&ctx, streams, moved);
    let kubeconfigs = kubeconfigs(&ctx);
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

/// Where the watches write what they see.
struct Streams {
    clusters: Writer<DynamicObject>,
    secrets: Writer<PartialObjectMeta<KubeSecret>>,
    config_maps: Writer<PartialObjectMeta<ConfigMap>>,
}

/// Reconciles the Clusters. `moved`: called when one of the caches has changed.
fn clusters(
    ctx: &Arc<Context>,
    streams: Streams,
    moved: impl Fn() + Clone + Send + Sync + 'static,
) -> impl Future<Output = ()> {
    let seen = streams.clusters.as_reader();
    let told = moved.clone();
    let objects = watcher(ctx.clusters.clone(), watcher::Config::default())
        .default_backoff()
        .inspect(noted(&ctx.health, "the Clusters"))
        .reflect(streams.clusters)
        // Notify after the cache was updated, so that waiters see the new object.
        .inspect(move |_| told())
        .touched_objects()
        .predicate_filter(what_matters, PredicateConfig::default());
    let what = "the Secrets with credentials";
    let secrets = credentials_seen(ctx, what, streams.secrets, moved.clone());
    let what = "the ConfigMaps with configs";
    let config_maps = credentials_seen(ctx, what, streams.config_maps, moved.clone());
    let files = changed_files(Arc::clone(ctx)).inspect(move |_| moved());
    let ended = ctx.stop.clone();
    Controller::for_stream_with(objects, seen.clone(), cluster_resource())
        .watches_stream(
            secrets,
            users_of(seen.clone(), |object| secrets_of(object).collect()),
        )
        .watches_stream(
            config_maps,
            users_of(seen, |object| config_maps_of(object).collect()),
        )
        .reconcile_on(files)
        .graceful_shutdown_on(async move {
            ended.stopped().await;
        })
        .run(reconcile_cluster, again, Arc::clone(ctx))
        .for_each(|result| {
            log("Cluster", result);
            std::future::ready(())
        })
}

/// What changes in the namespace of the credentials, of one kind.
fn credentials_seen<K>(
    ctx: &Arc<Context>,
    what: &'static str,
    writer: Writer<PartialObjectMeta<K>>,
    moved: impl Fn() + Send + 'static,
) -> impl Stream<Item = Result<PartialObjectMeta<K>, watcher::Error>> + Send + 'static
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    watcher(credentials::<K>(ctx), watcher::Config::default())
        .default_backoff()
        .inspect(noted(&ctx.health, what))
        .reflect(writer)
        .inspect(move |_| moved())
        .touched_objects()
        .predicate_filter(predicates::resource_version, PredicateConfig::default())
}

/// Reconciles the Kubeconfigs.
fn kubeconfigs(ctx: &Arc<Context>) -> impl Future<Output = ()> {
    // One that cannot be understood is its own affair.
    let all = Api::<DeserializeGuard<Kubeconfig>>::all(ctx.client.clone());
    let kubeconfigs = Controller::new(all, watcher::Config::default());
    let made_for = kubeconfigs_of(kubeconfigs.store(), ctx);
    let ended = ctx.stop.clone();
    kubeconfigs
        .watches(
            credentials::<KubeSecret>(ctx),
            watcher::Config::default(),
            made_for,
        )
        .graceful_shutdown_on(async move {
            ended.stopped().await;
        })
        .run(reconcile_kubeconfig, again, Arc::clone(ctx))
        .for_each(|result| {
            log("Kubeconfig", result);
            std::future::ready(())
        })
}

/// Every line that is logged meanwhile has the name of the Cluster.
fn reconcile_cluster(
    object: Arc<DynamicObject>,
    ctx: Arc<Context>,
) -> impl Future<Output = Result<Action, ReconcileError>> {
    let span = tracing::info_span!("reconcile", cluster = object.name_any());
    cluster::reconcile(object, ctx).instrument(span)
}

/// The same for a Kubeconfig.
fn reconcile_kubeconfig(
    object: Arc<DeserializeGuard<Kubeconfig>>,
    ctx: Arc<Context>,
) -> impl Future<Output = Result<Action, ReconcileError>> {
    let span = tracing::info_span!("reconcile", kubeconfig = object.name_any());
    kubeconfig::reconcile(object, ctx).instrument(span)
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
    for annotation in REQUESTS {
        object.annotations().get(annotation).hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// What is in the namespace of the credentials, without its contents.
fn credentials<K>(ctx: &Context) -> Api<PartialObjectMeta<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(ctx.client.clone(), &ctx.options.credentials_namespace)
}

/// The Kubeconfigs that a Secret is about.
fn kubeconfigs_of(
    seen: Store<DeserializeGuard<Kubeconfig>>,
    ctx: &Context,
) -> impl Fn(PartialObjectMeta<KubeSecret>) -> Vec<ObjectRef<DeserializeGuard<Kubeconfig>>>
+ Send
+ Sync
+ 'static {
    let credentials = ctx.options.credentials_namespace.clone();
    move |secret| {
        let name = secret.name_any();
        seen.state()
            .iter()
            .filter(|object| kubeconfig::is_about(object, &name, &credentials))
            .map(|object| ObjectRef::from_obj(&**object))
            .collect()
    }
}

/// The clusters whose config is in a file that has changed. As long as anything reads from it, the files are looked at
/// again and again.
fn changed_files(ctx: Arc<Context>) -> impl Stream<Item = ObjectRef<DynamicObject>> {
    let looks = stream::unfold(ctx, |ctx| async {
        tokio::time::sleep(POLL).await;
        let objects = ctx.caches.clusters.state();
        let paths: BTreeSet<&str> = objects.iter().filter_map(|one| file_of(one)).collect();
        let paths: Vec<String> = paths.into_iter().map(str::to_owned).collect();
        let changed = ctx.files.changed(&paths).await;
        let reads = |object: &&Arc<DynamicObject>| {
            file_of(object).is_some_and(|path| changed.iter().any(|one| one == path))
        };
        let users = objects.iter().filter(reads);
        let users = users.map(|object| ObjectRef::from_obj_with(&**object, cluster_resource()));
        let users: Vec<_> = users.collect();
        Some((stream::iter(users), ctx))
    });
    looks.flatten()
}

/// The clusters that refer to an object by its name: one that was mended wakes them.
fn users_of<K>(
    seen: Store<DynamicObject>,
    references: impl Fn(&DynamicObject) -> Vec<&str> + Send + Sync + 'static,
) -> impl Fn(PartialObjectMeta<K>) -> Vec<ObjectRef<DynamicObject>> + Send + Sync + 'static
where
    K: Resource<DynamicType = ()>,
{
    move |changed| {
        let name = changed.name_any();
        seen.state()
            .iter()
            .filter(|object| references(object).contains(&&*name))
            .map(|object| ObjectRef::from_obj_with(&**object, cluster_resource()))
            .collect()
    }
}

/// Never asked: a pass tells its own end. The type of a controller wants it.
fn again<K>(_: Arc<K>, error: &ReconcileError, _: Arc<Context>) -> Action {
    let error = with_causes(error);
    tracing::warn!(error, "a reconcile was interrupted");
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
        Err(error) => {
            let error = with_causes(&error);
            tracing::debug!(kind, error, "a reconcile was interrupted");
        }
    }
}
