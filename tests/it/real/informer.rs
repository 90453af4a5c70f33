//! What a controller believes that watches a cluster and is not restarted.

use std::{collections::BTreeSet, future::ready};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store},
        watcher::{self, watcher},
    },
};
use tokio::runtime::{Builder, Runtime};

use super::Site;

/// An informer of the `ConfigMap`s in the namespace `default`: it lists once and watches from then on.
pub(crate) struct Informer {
    store: Store<ConfigMap>,
    _runtime: Runtime,
}

impl Informer {
    pub(crate) fn of(site: &Site) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let client =
            runtime.block_on(async { Client::try_from(site.api().await).expect("a client") });
        let (store, writer) = reflector::store();
        let api: Api<ConfigMap> = Api::namespaced(client, "default");
        let changes = watcher(api, watcher::Config::default())
            .default_backoff()
            .reflect(writer);
        runtime.spawn(changes.for_each(|_| ready(())));
        Self {
            store,
            _runtime: runtime,
        }
    }

    /// The names that it believes to be there.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let objects = self.store.state();
        objects.iter().map(|object| object.name_any()).collect()
    }
}
