//! Whoever writes to a cluster's API all the while, and counts what was acknowledged.

use std::{
    collections::BTreeSet,
    net::TcpListener,
    ops::Range,
    process::Child,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use lab::Node;
use serde_json::json;

use super::{Site, tell};

/// A time without a write that is worth a line.
const LONG: Duration = Duration::from_secs(3);

/// How long a request is made again that is no write.
const AGAIN: Duration = Duration::from_secs(30);

/// A time without a write that is kept.
const PAUSE: Duration = Duration::from_millis(500);

/// Writes through `127.0.0.1:6443` of a node, as whatever runs there does.
pub(crate) struct Writer {
    /// What the names of its objects begin with, and their label.
    name: String,
    tunnel: Child,
    enough: Arc<AtomicBool>,
    writes: Option<JoinHandle<()>>,
    written: Arc<Mutex<Written>>,
    client: Client,
    begun: Instant,
}

/// What the API has acknowledged, and the times in which it acknowledged nothing.
struct Written {
    names: BTreeSet<String>,
    pauses: Vec<Range<Instant>>,
    last: Instant,
}

impl Written {
    fn acknowledged(&mut self, name: String) {
        let pause = self.last..Instant::now();
        self.last = pause.end;
        let took = pause.end - pause.start;
        if took > LONG {
            tell(&format!("no `{name}` for {:.1} s", took.as_secs_f64()));
        }
        if took > PAUSE {
            self.pauses.push(pause);
        }
        self.names.insert(name);
    }

    /// The longest time without a write since then that is in none of these spans.
    fn longest(&self, since: Instant, but: &[Range<Instant>]) -> Duration {
        let now = self.last..Instant::now();
        let pauses = self.pauses.iter().chain([&now]);
        let counted = pauses.filter(|pause| {
            let mut spans = but.iter();
            pause.end > since && !spans.any(|span| span.start < pause.end && pause.start < span.end)
        });
        let longest = counted
            .map(|pause| pause.end - pause.start.max(since))
            .max();
        longest.unwrap_or_default()
    }
}

impl Writer {
    pub(crate) fn start(site: &Site, node: &Node, runtime: &tokio::runtime::Runtime) -> Self {
        // Of several in one cluster each has names of its own.
        static WRITERS: AtomicUsize = AtomicUsize::new(0);
        let writer = WRITERS.fetch_add(1, Ordering::SeqCst);
        Self::named(&format!("write-{writer}"), site, node, runtime)
    }

    /// One whose objects have this name, which no other one has had in this cluster: an object that is
    /// there already counts as written.
    pub(crate) fn named(
        name: &str,
        site: &Site,
        node: &Node,
        runtime: &tokio::runtime::Runtime,
    ) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("a port").port();
        drop(free);
        let tunnel = site
            .ssh(node)
            .args(["-N", "-L", &format!("127.0.0.1:{port}:127.0.0.1:6443")])
            .spawn()
            .expect("ssh starts");
        let client = runtime.block_on(async {
            let mut config = site.api().await;
            config.cluster_url = format!("https://127.0.0.1:{port}").parse().expect("a URL");
            Client::try_from(config).expect("a client")
        });
        let enough = Arc::new(AtomicBool::new(false));
        let written = Arc::new(Mutex::new(Written {
            names: BTreeSet::new(),
            pauses: Vec::new(),
            last: Instant::now(),
        }));
        let writes = {
            let (client, handle) = (client.clone(), runtime.handle().clone());
            let (enough, written) = (Arc::clone(&enough), Arc::clone(&written));
            let name = name.to_owned();
            std::thread::spawn(move || handle.block_on(write(&client, &name, &enough, &written)))
        };
        Self {
            name: name.to_owned(),
            tunnel,
            enough,
            writes: Some(writes),
            written,
            client,
            begun: Instant::now(),
        }
    }

    /// Writes so many objects more, several at a time, each with this at the begin of its name. All of
    /// them are acknowledged.
    pub(crate) fn many(&self, name: &str, count: usize, runtime: &tokio::runtime::Runtime) {
        let maps: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        let write = |number| {
            let maps = maps.clone();
            let map: ConfigMap = serde_json::from_value(json!({
                "metadata": { "name": format!("{name}-{number}") },
            }))
            .expect("a map");
            async move { maps.create(&PostParams::default(), &map).await }
        };
        let all = stream::iter((0..count).map(write)).buffer_unordered(16);
        let written: Result<Vec<ConfigMap>, _> = runtime.block_on(all.try_collect());
        assert_eq!(written.expect("each is acknowledged").len(), count);
    }

    /// How many writes the API has acknowledged.
    pub(crate) fn count(&self) -> usize {
        self.written.lock().expect("it writes").names.len()
    }

    /// The longest time since then in which nothing was acknowledged, but for these spans.
    pub(crate) fn longest_pause(&self, since: Instant, but: &[Range<Instant>]) -> Duration {
        let written = self.written.lock().expect("it writes");
        written.longest(since, but)
    }

    /// Ends it; whatever was acknowledged must be there.
    pub(crate) fn nothing_is_lost(mut self, runtime: &tokio::runtime::Runtime) {
        let seconds = usize::try_from(self.begun.elapsed().as_secs()).expect("seconds");
        let writes = self.all_is_there(runtime);
        assert!(writes > seconds, "it wrote all the while");
    }

    /// The same, however long it was kept from writing; then what it wrote is deleted. Gives how much that
    /// was.
    pub(crate) fn leaves_nothing(mut self, runtime: &tokio::runtime::Runtime) -> usize {
        let writes = self.all_is_there(runtime);
        let maps: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        let own = ListParams::default().labels(&format!("writer={}", self.name));
        let params = DeleteParams::default();
        // The way there may break once more: what is done again deletes what is left.
        Site::eventually("what it wrote is deleted", AGAIN, || {
            runtime
                .block_on(maps.delete_collection(&params, &own))
                .is_ok()
        });
        writes
    }

    fn all_is_there(&mut self, runtime: &tokio::runtime::Runtime) -> usize {
        self.enough.store(true, Ordering::SeqCst);
        if let Some(writes) = self.writes.take() {
            writes.join().expect("it wrote");
        }
        let written = self.written.lock().expect("it wrote");
        let maps: Api<ConfigMap> = Api::default_namespaced(self.client.clone());
        let mut there = BTreeSet::new();
        Site::eventually("what is there is listed", AGAIN, || {
            let listed = runtime.block_on(maps.list(&ListParams::default()));
            listed
                .map(|maps| {
                    there = maps
                        .into_iter()
                        .filter_map(|map| map.metadata.name)
                        .collect();
                })
                .is_ok()
        });
        tell(&format!(
            "{} writes, longest gap {:.1} s",
            written.names.len(),
            written.longest(self.begun, &[]).as_secs_f64()
        ));
        let lost: Vec<&String> = written.names.difference(&there).collect();
        assert!(lost.is_empty(), "acknowledged and not there: {lost:?}");
        written.names.len()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::SeqCst);
        let _ = self.tunnel.kill();
        let _ = self.tunnel.wait();
    }
}

async fn write(client: &Client, writer: &str, enough: &AtomicBool, written: &Mutex<Written>) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut number = 0;
    while !enough.load(Ordering::SeqCst) {
        let name = format!("{writer}-{number}");
        let metadata = json!({"name": name, "labels": {"writer": writer}});
        let map = serde_json::from_value(json!({"metadata": metadata})).expect("an object");
        let params = PostParams::default();
        let create = tokio::time::timeout(Duration::from_secs(5), maps.create(&params, &map));
        let acknowledged = match create.await {
            Ok(Ok(_)) => true,
            // The answer to the try before was lost.
            Ok(Err(kube::Error::Api(status))) => status.is_already_exists(),
            Ok(Err(_)) | Err(_) => false,
        };
        if acknowledged {
            written.lock().expect("nobody fails").acknowledged(name);
            number += 1;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
