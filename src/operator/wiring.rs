//! The controllers and what wakes them. The watch takes objects as they are, so that one whose
//! spec cannot be understood is reconciled like any other (invariant 11).

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret as KubeSecret},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, PartialObjectMeta},
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store, store::Writer},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::Instrument;

use super::{
    OperatorOptions, cluster,
    cluster_object::{cluster_resource, config_maps_of, file_of, secrets_of},
    context::{Caches, Context, Dependencies},
    files::POLL,
    health::{BEAT, Health, Phase},
    home::ServerTime,
    kubeconfig, operation,
    queue::{self, Action, Arrival, Cause, Class, Key, Slot, Worker},
};
use crate::{
    api::{ClusterOperation, Kubeconfig, REQUESTS},
    apply::stop::Stop,
    error::with_causes,
};

/// How long the objects may take to be read; then another process may be able to.
const FILL: Duration = Duration::from_secs(60);

/// Why the controllers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The stop signal.
    Stopped,
    /// They could not read the objects.
    Unread,
}

/// Runs the controllers until the stop signal; runs in progress first stop at their next step.
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
    let operations_writer = Writer::default();
    let ctx = Context::new(
        options,
        client,
        dependencies,
        Caches {
            clusters: seen.clone(),
            secrets: secrets_writer.as_reader(),
            config_maps: maps_writer.as_reader(),
            operations: operations_writer.as_reader(),
            news,
        },
        Arc::clone(health),
        time,
        stop.clone(),
    )
    .shown();
    let kubeconfigs_writer = Writer::default();
    let kubeconfigs = Kubeconfigs {
        seen: kubeconfigs_writer.as_reader(),
        ctx: Arc::clone(&ctx),
    };
    let clusters = Clusters(Arc::clone(&ctx));
    let writers = Writers {
        clusters: writer,
        kubeconfigs: kubeconfigs_writer,
        secrets: secrets_writer,
        config_maps: maps_writer,
        operations: operations_writer,
    };
    let mut watches = std::pin::pin!(async {
        tokio::select! {
            () = watches(&clusters, &kubeconfigs, writers, moved) => {}
            // In the same loop: what holds it up holds this up as well.
            never = beats(health) => match never {},
        }
    });
    // Before the objects are read nothing is under way that must end in order.
    tokio::select! {
        () = &mut watches => return End::Unread,
        () = filled(&ctx, &kubeconfigs) => {}
        _ = stop.stopped() => return End::Stopped,
        () = tokio::time::sleep(FILL) => return End::Unread,
    }
    health.enters(Phase::Leading);
    let queues = &ctx.queues;
    let work = async {
        tokio::join!(
            queue::work(&queues.clusters, &clusters, &stop),
            queue::work(&queues.kubeconfigs, &kubeconfigs, &stop),
            ctx.prober.run(&stop),
        )
    };
    tokio::select! {
        _ = Box::pin(work) => End::Stopped,
        // The watches never end.
        () = watches => End::Unread,
    }
}

/// Resolves when every cache has what there is: without one of them a reconcile would not see what it is about change.
async fn filled(ctx: &Context, kubeconfigs: &Kubeconfigs) {
    let caches = &ctx.caches;
    let all = tokio::join!(
        caches.clusters.wait_until_ready(),
        caches.secrets.wait_until_ready(),
        caches.config_maps.wait_until_ready(),
        kubeconfigs.seen.wait_until_ready(),
        caches.operations.wait_until_ready(),
    );
    if let (Ok(()), Ok(()), Ok(()), Ok(()), Ok(())) = all {
        return;
    }
    // The watch is gone, and with it the caller.
    std::future::pending::<()>().await;
}

/// Where the watches write what they see.
struct Writers {
    clusters: Writer<DynamicObject>,
    kubeconfigs: Writer<DeserializeGuard<Kubeconfig>>,
    secrets: Writer<PartialObjectMeta<KubeSecret>>,
    config_maps: Writer<PartialObjectMeta<ConfigMap>>,
    operations: Writer<DeserializeGuard<ClusterOperation>>,
}

/// The Clusters, as a queue works with them.
struct Clusters(Arc<Context>);

impl Clusters {
    fn arrives(&self, name: &str, cause: Cause) {
        let queue = &self.0.queues.clusters;
        queue.arrives(self, &Key::from(name), cause);
    }

    fn get(&self, key: &Key) -> Option<Arc<DynamicObject>> {
        let about = ObjectRef::new_with(key, cluster_resource());
        self.0.caches.clusters.get(&about)
    }

    /// Those that refer to an object by its name: one that was mended wakes them.
    fn that_refer_to(&self, name: &str, references: impl Fn(&DynamicObject) -> Vec<&str>) {
        for object in self.0.caches.clusters.state() {
            if references(&object).contains(&name) {
                self.arrives(&object.name_any(), Cause::Reference);
            }
        }
    }
}

impl Worker for Clusters {
    fn arrival(&self, key: &Key, cause: Cause) -> Option<Arrival> {
        match self.get(key) {
            Some(object) => Some(cluster::arrival(&object, cause)),
            None => operation::waits_for(&self.0, key).then_some(Arrival {
                class: Class::Brief,
                nodes: 0,
                hangs: false,
                settles: None,
            }),
        }
    }

    /// Every line that is logged meanwhile has the name of the Cluster.
    fn reconcile(&self, slot: Slot) -> BoxFuture<'_, Action> {
        let span = tracing::info_span!("reconcile", cluster = &*slot.key);
        let reconcile = async move {
            match self.get(&slot.key) {
                Some(object) => {
                    let ctx = Arc::clone(&self.0);
                    let action = Box::pin(cluster::reconcile(object, ctx, slot)).await;
                    tracing::debug!(kind = "Cluster", ?action, "a pass ended");
                    action
                }
                None => Box::pin(operation::without_cluster(&self.0, &slot.key)).await,
            }
        };
        reconcile.instrument(span).boxed()
    }

    fn tell(&self, key: Key, ahead: usize) -> BoxFuture<'_, ()> {
        let span = tracing::info_span!("reconcile", cluster = &*key);
        let tell = async move { cluster::tell(&self.0, &key, ahead).await };
        tell.instrument(span).boxed()
    }
}

/// The Kubeconfigs: the same.
struct Kubeconfigs {
    seen: Store<DeserializeGuard<Kubeconfig>>,
    ctx: Arc<Context>,
}

impl Kubeconfigs {
    fn arrives(&self, name: &str, cause: Cause) {
        let queue = &self.ctx.queues.kubeconfigs;
        queue.arrives(self, &Key::from(name), cause);
    }

    /// Those that a Secret is about.
    fn of_secret(&self, secret: &str) {
        let credentials = &self.ctx.options.credentials_namespace;
        for object in self.seen.state() {
            if kubeconfig::is_about(&object, secret, credentials) {
                self.arrives(&object.name_any(), Cause::Reference);
            }
        }
    }
}

impl Worker for Kubeconfigs {
    fn arrival(&self, key: &Key, cause: Cause) -> Option<Arrival> {
        let object = self.seen.get(&ObjectRef::new(key))?;
        Some(kubeconfig::arrival(&object, cause))
    }

    fn reconcile(&self, slot: Slot) -> BoxFuture<'_, Action> {
        let span = tracing::info_span!("reconcile", kubeconfig = &*slot.key);
        let reconcile = async move {
            match self.seen.get(&ObjectRef::new(&slot.key)) {
                Some(object) => {
                    let ctx = Arc::clone(&self.ctx);
                    let action = Box::pin(kubeconfig::reconcile(object, ctx)).await;
                    tracing::debug!(kind = "Kubeconfig", ?action, "a pass ended");
                    action
                }
                None => Action::await_change(),
            }
        };
        reconcile.instrument(span).boxed()
    }

    /// They say nothing while they wait.
    fn tell(&self, _: Key, _: usize) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// Watches what there is, for ever. `moved`: called when one of the caches that runs depend on has changed.
async fn watches(
    clusters: &Clusters,
    kubeconfigs: &Kubeconfigs,
    writers: Writers,
    moved: impl Fn() + Clone + Send + Sync + 'static,
) {
    let ctx = &clusters.0;
    let objects = {
        let told = moved.clone();
        let what = "the Clusters";
        reflected(ctx, what, ctx.clusters.clone(), writers.clusters)
            // Notify after the cache was updated, so that waiters see the new object.
            .inspect(move |_| told())
            .flat_map(changes(what_matters))
            .for_each(each(|name| clusters.arrives(name, Cause::Changed)))
    };
    let others = {
        let what = "the Kubeconfigs";
        // One that cannot be understood is its own affair.
        let all = Api::<DeserializeGuard<Kubeconfig>>::all(ctx.client.clone());
        reflected(ctx, what, all, writers.kubeconfigs)
            .flat_map(changes(version))
            .for_each(each(|name| kubeconfigs.arrives(name, Cause::Changed)))
    };
    let operations = {
        let what = "the ClusterOperations";
        let all = Api::<DeserializeGuard<ClusterOperation>>::all(ctx.client.clone());
        let told = moved.clone();
        let mut of = operation::Subjects::default();
        reflected(ctx, what, all, writers.operations)
            .inspect(move |_| told())
            .flat_map(changes(operation::what_matters))
            .for_each(each(move |name| {
                if let Some(cluster) = of.touched(ctx, name) {
                    clusters.arrives(&cluster, Cause::Reference);
                }
            }))
    };
    let secrets = {
        let what = "the Secrets with credentials";
        credentials_seen(ctx, what, writers.secrets, moved.clone()).for_each(each(|name| {
            clusters.that_refer_to(name, |object| secrets_of(object).collect());
            kubeconfigs.of_secret(name);
        }))
    };
    let config_maps = {
        let what = "the ConfigMaps with configs";
        credentials_seen(ctx, what, writers.config_maps, moved.clone()).for_each(each(|name| {
            clusters.that_refer_to(name, |object| config_maps_of(object).collect());
        }))
    };
    let files = changed_files(Arc::clone(ctx)).for_each(|name| {
        moved();
        clusters.arrives(&name, Cause::Reference);
        std::future::ready(())
    });
    let hints = ctx.prober.hints().for_each(|about| {
        clusters.arrives(&about.name, Cause::Reference);
        std::future::ready(())
    });
    tokio::join!(
        objects,
        others,
        operations,
        secrets,
        config_maps,
        files,
        hints
    );
}

/// What to do with each object.
fn each(mut with: impl FnMut(&str)) -> impl FnMut(String) -> std::future::Ready<()> {
    move |name| {
        with(&name);
        std::future::ready(())
    }
}

/// The names of the objects that changed in what `matters`, or are gone, when the cache has it: those of a list when all
/// of it was read.
fn changes<K: Resource>(
    matters: impl Fn(&K) -> u64,
) -> impl FnMut(Result<watcher::Event<K>, watcher::Error>) -> stream::Iter<std::vec::IntoIter<String>>
{
    let mut known: HashMap<String, u64> = HashMap::new();
    let mut listed = HashMap::new();
    move |event| {
        let changed = match event {
            // Told elsewhere.
            Err(_) => Vec::new(),
            Ok(watcher::Event::Init) => {
                listed.clear();
                Vec::new()
            }
            Ok(watcher::Event::InitApply(object)) => {
                listed.insert(object.name_any(), matters(&object));
                Vec::new()
            }
            Ok(watcher::Event::InitDone) => {
                let former = std::mem::replace(&mut known, std::mem::take(&mut listed));
                let changed = known
                    .iter()
                    .filter(|(name, now)| former.get(*name) != Some(*now));
                let gone = former.keys().filter(|name| !known.contains_key(*name));
                let changed = changed.map(|(name, _)| name).chain(gone).cloned();
                let mut changed: Vec<_> = changed.collect();
                // By name: the map has no order, and a test must have one.
                changed.sort_unstable();
                changed
            }
            Ok(watcher::Event::Apply(object)) => {
                let (name, now) = (object.name_any(), matters(&object));
                let changed = known.insert(name.clone(), now) != Some(now);
                if changed { vec![name] } else { Vec::new() }
            }
            Ok(watcher::Event::Delete(object)) => {
                let name = object.name_any();
                known.remove(&name);
                vec![name]
            }
        };
        stream::iter(changed)
    }
}

/// A watch that fills a cache.
fn reflected<K>(
    ctx: &Context,
    what: &'static str,
    api: Api<K>,
    writer: Writer<K>,
) -> impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send + 'static
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    watcher(api, watcher::Config::default())
        .default_backoff()
        .inspect(noted(&ctx.health, what))
        .reflect(writer)
}

/// What changes in the namespace of the credentials, of one kind.
fn credentials_seen<K>(
    ctx: &Context,
    what: &'static str,
    writer: Writer<PartialObjectMeta<K>>,
    moved: impl Fn() + Send + 'static,
) -> impl Stream<Item = String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    reflected(ctx, what, credentials::<K>(ctx), writer)
        .inspect(move |_| moved())
        .flat_map(changes(version))
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
fn what_matters(object: &DynamicObject) -> u64 {
    let mut hasher = DefaultHasher::new();
    let meta = &object.metadata;
    meta.uid.hash(&mut hasher);
    meta.generation.hash(&mut hasher);
    meta.deletion_timestamp.is_some().hash(&mut hasher);
    meta.finalizers.hash(&mut hasher);
    for annotation in REQUESTS {
        object.annotations().get(annotation).hash(&mut hasher);
    }
    hasher.finish()
}

/// Whatever changes in an object.
fn version<K: Resource>(object: &K) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.meta().uid.hash(&mut hasher);
    object.meta().resource_version.hash(&mut hasher);
    hasher.finish()
}

/// What is in the namespace of the credentials, without its contents.
fn credentials<K>(ctx: &Context) -> Api<PartialObjectMeta<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(ctx.client.clone(), &ctx.options.credentials_namespace)
}

/// The clusters whose config is in a file that has changed. As long as anything reads from it, the files are looked at
/// again and again.
fn changed_files(ctx: Arc<Context>) -> impl Stream<Item = String> {
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
        let users: Vec<_> = users.map(|object| object.name_any()).collect();
        Some((stream::iter(users), ctx))
    });
    looks.flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    use super::*;

    /// What a list has counts when it was read to its end: before that the cache does not have it.
    #[test]
    fn a_list_counts_at_its_end_and_what_is_not_in_it_is_gone() {
        let object = |name: &str, version: &str| -> DynamicObject {
            let meta = json!({"metadata": {"name": name, "resourceVersion": version}});
            serde_json::from_value(meta).unwrap()
        };
        let mut changes = changes(version::<DynamicObject>);
        let mut told = |event| -> Vec<String> {
            let names = changes(Ok(event)).collect::<Vec<_>>();
            names.now_or_never().unwrap()
        };
        let nothing: Vec<String> = Vec::new();
        for event in [
            Init,
            InitApply(object("b", "1")),
            InitApply(object("a", "2")),
        ] {
            assert_eq!(told(event), nothing);
        }
        assert_eq!(told(InitDone), ["a", "b"]);
        assert_eq!(told(Apply(object("a", "2"))), nothing);
        assert_eq!(told(Apply(object("a", "3"))), ["a"]);
        assert_eq!(told(Apply(object("c", "4"))), ["c"]);
        assert_eq!(told(Delete(object("c", "4"))), ["c"]);
        // The watch began again: one is gone, one came, one is as it was.
        for event in [
            Init,
            InitApply(object("a", "3")),
            InitApply(object("d", "5")),
        ] {
            assert_eq!(told(event), nothing);
        }
        assert_eq!(told(InitDone), ["b", "d"]);
    }
}
