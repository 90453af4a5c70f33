//! What Prometheus asks. The series about Clusters are made of the cache of the watch at each scrape, so that those of a
//! Cluster that is gone are gone, too; what the process did is counted here.
//!
//! | File | What |
//! |---|---|
//! | `families` | the families, and what a status gives (pure) |
//! | `server` | the port |
//! | `access` | who may read them |
//! | `identity` | the port's certificate |

mod access;
mod families;
mod identity;
mod server;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use kube::{Client, ResourceExt, api::DynamicObject};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, prometheus_text},
    metrics::{MetricType, counter::Counter, family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};
use serde::Deserialize;
use tokio::{net::TcpListener, time::Instant};

use self::families::{Family, OF_CLUSTERS, Series, of_cluster};
pub(super) use self::server::{Server, serve};
pub use self::{
    identity::{CertificateError, CertificateFiles},
    server::MetricsOptions,
};
use super::{health, queue};
use crate::{api::ClusterStatus, apply::event::StepOutcome};

/// Upper bounds of the histogram buckets for reconciles and steps, in seconds.
const SECONDS: [f64; 14] = [
    0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
];

type Labels = Vec<(&'static str, &'static str)>;
type Many<M> = family::Family<Labels, M>;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    /// Of `Cluster`s.
    Cluster,
    /// Of `Kubeconfig`s.
    Kubeconfig,
}

impl Controller {
    const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Kubeconfig => "kubeconfig",
        }
    }
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reconciled {
    /// It waits for a change.
    Success,
    /// It waits for a slot.
    Requeue,
    /// It has a time at which it comes again.
    RequeueAfter,
    /// A request to the API failed, or it panicked.
    Error,
}

impl Reconciled {
    const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Requeue => "requeue",
            Self::RequeueAfter => "requeue_after",
            Self::Error => "error",
        }
    }
}

/// What the process that leads works with, at one moment.
pub(super) struct Seen {
    pub(super) clusters: Vec<Arc<DynamicObject>>,
    pub(super) queues: Vec<queue::Seen>,
    /// How many connections are kept.
    pub(super) connections: usize,
}

/// Where it comes from; `None` once its controllers ended.
type Source = Box<dyn Fn() -> Option<Seen> + Send + Sync>;

/// What the process shows.
pub(super) struct Metrics {
    registry: Registry,
    live: Arc<Live>,
    reconciles: Many<Counter>,
    errors: Many<Counter>,
    adds: Many<Counter>,
    retries: Many<Counter>,
    waited: Many<Histogram>,
    worked: Many<Histogram>,
    reconcile_time: Many<Histogram>,
    active: Many<Gauge>,
    steps: Many<Histogram>,
    failures: Many<Counter>,
    orphaned: Counter,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl Metrics {
    pub(super) fn new() -> Arc<Self> {
        fn register(registry: &mut Registry, family: &Family, metric: impl Metric) {
            registry.register(family.registered(), family.means, metric);
        }
        let mut registry = Registry::default();
        let live = Arc::<Live>::default();
        let histograms = || Many::new_with_constructor(histogram as fn() -> Histogram);
        let [reconciles, errors, adds, retries] = [(); 4].map(|()| Many::default());
        let [reconcile_time, waited, worked] = [(); 3].map(|()| histograms());
        let active = Many::default();
        let steps = histograms();
        let failures = Many::default();
        let orphaned = Counter::default();
        let to = &mut registry;
        register(to, &families::RECONCILES, Many::clone(&reconciles));
        register(to, &families::RECONCILE_ERRORS, Many::clone(&errors));
        register(to, &families::ADDS, Many::clone(&adds));
        register(to, &families::RETRIES, Many::clone(&retries));
        register(to, &families::WAITED, Many::clone(&waited));
        register(to, &families::WORKED, Many::clone(&worked));
        register(to, &families::RECONCILE_TIME, Many::clone(&reconcile_time));
        register(to, &families::ACTIVE_WORKERS, Many::clone(&active));
        register(to, &families::STEP_DURATION, Many::clone(&steps));
        register(to, &families::STEP_FAILURES, Many::clone(&failures));
        register(to, &families::ORPHANED, Counter::clone(&orphaned));
        registry.register_collector(Box::new(Arc::clone(&live)));
        Arc::new(Self {
            registry,
            live,
            reconciles,
            errors,
            adds,
            retries,
            waited,
            worked,
            reconcile_time,
            active,
            steps,
            failures,
            orphaned,
        })
    }

    /// Whether this process leads.
    pub(super) fn leads(&self, leads: bool) {
        self.live.leads.store(leads, Ordering::Relaxed);
    }

    /// From now on the series about Clusters come from there.
    pub(super) fn read_from(&self, source: impl Fn() -> Option<Seen> + Send + Sync + 'static) {
        let there = self.live.source.lock();
        let mut there = there.unwrap_or_else(PoisonError::into_inner);
        *there = Some(Box::new(source));
    }

    /// A reconcile begins.
    pub(super) fn begins(self: &Arc<Self>, controller: Controller) -> Reconciling {
        let labels = vec![("controller", controller.name())];
        self.active.get_or_create(&labels).inc();
        Reconciling {
            metrics: Arc::clone(self),
            controller,
            labels,
            begun: Instant::now(),
        }
    }

    /// An object waits that did not before.
    pub(super) fn queued(&self, controller: Controller) {
        self.adds.get_or_create(&named(controller)).inc();
    }

    /// It is tried again after a failure.
    pub(super) fn retried(&self, controller: Controller) {
        self.retries.get_or_create(&named(controller)).inc();
    }

    /// It waited for so long, and is worked on from now on.
    pub(super) fn waited(&self, controller: Controller, time: Duration) {
        let waited = self.waited.get_or_create(&named(controller));
        waited.observe(time.as_secs_f64());
    }

    /// It was worked on for so long.
    pub(super) fn worked(&self, controller: Controller, time: Duration) {
        let worked = self.worked.get_or_create(&named(controller));
        worked.observe(time.as_secs_f64());
    }

    /// A step ended.
    pub(super) fn step(&self, kind: &'static str, outcome: &StepOutcome, took: Duration) {
        let word = match outcome {
            // It was not begun.
            StepOutcome::Skipped => return,
            StepOutcome::Done => "done",
            StepOutcome::Warned { .. } => "warned",
            StepOutcome::Failed { .. } => "failed",
        };
        let labels = vec![("kind", kind), ("outcome", word)];
        self.steps
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
        if let StepOutcome::Failed { .. } = outcome {
            self.failures.get_or_create(&vec![("kind", kind)]).inc();
        }
    }

    /// A Cluster was let go with its nodes as they are.
    pub(super) fn orphaned(&self) {
        self.orphaned.inc();
    }

    /// All of it, as a scrape reads it.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a text does not fail.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }

    /// Opens the port and reads the certificate.
    pub(super) async fn server(
        self: &Arc<Self>,
        options: MetricsOptions,
        namespace: &str,
        client: Client,
        now: Timestamp,
    ) -> Result<(TcpListener, Server), NotServed> {
        let address = options.address;
        let identity = identity::Identity::new(options.certificate, namespace, now);
        let identity = identity.await.map_err(NotServed::Certificate)?;
        let listener = health::listen(address).await;
        let listener = listener.map_err(|source| NotServed::Port { address, source })?;
        let server = Server {
            guard: access::Guard::new(client),
            identity,
            metrics: Arc::clone(self),
            bounds: server::BOUNDS,
        };
        Ok((listener, server))
    }
}

/// Why the metrics are not served.
#[derive(Debug)]
pub(super) enum NotServed {
    Certificate(CertificateError),
    Port {
        address: SocketAddr,
        source: std::io::Error,
    },
}

/// A reconcile in progress.
pub(super) struct Reconciling {
    metrics: Arc<Metrics>,
    controller: Controller,
    labels: Labels,
    begun: Instant,
}

impl Reconciling {
    /// It ended; one that is dropped without, with its process, counts as none.
    pub(super) fn ended(self, how: Reconciled) {
        let metrics = &self.metrics;
        let took = self.begun.elapsed().as_secs_f64();
        metrics
            .reconcile_time
            .get_or_create(&self.labels)
            .observe(took);
        let labels = vec![
            ("controller", self.controller.name()),
            ("result", how.name()),
        ];
        metrics.reconciles.get_or_create(&labels).inc();
        if how == Reconciled::Error {
            metrics.errors.get_or_create(&self.labels).inc();
        }
    }
}

impl Drop for Reconciling {
    fn drop(&mut self) {
        self.metrics.active.get_or_create(&self.labels).dec();
    }
}

/// What is read at each scrape.
#[derive(Default)]
struct Live {
    leads: AtomicBool,
    source: Mutex<Option<Source>>,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    /// Of the process that leads.
    fn seen(&self) -> Option<Seen> {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        source.as_ref()?()
    }
}

impl Collector for Live {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let leads = self.leads.load(Ordering::Relaxed);
        let value = if leads { 1.0 } else { 0.0 };
        let leader = [Series::new(&families::LEADER, [], value)];
        encode(&mut encoder, &families::LEADER, &leader)?;
        let Some(seen) = leads.then(|| self.seen()).flatten() else {
            return Ok(());
        };
        let queues: Vec<Series> = seen.queues.iter().flat_map(of_queue).collect();
        for family in families::OF_QUEUES {
            encode(&mut encoder, family, &queues)?;
        }
        let kept = u32::try_from(seen.connections).unwrap_or(u32::MAX);
        let kept = [Series::new(&families::CONNECTIONS, [], kept.into())];
        encode(&mut encoder, &families::CONNECTIONS, &kept)?;
        let clusters: Vec<Series> = seen.clusters.iter().flat_map(|one| of(one)).collect();
        for family in OF_CLUSTERS {
            encode(&mut encoder, family, &clusters)?;
        }
        Ok(())
    }
}

fn of(object: &DynamicObject) -> Vec<Series> {
    let status = object.data.get("status");
    let status = status.and_then(|status| ClusterStatus::deserialize(status).ok());
    of_cluster(&object.name_any(), &status.unwrap_or_default())
}

fn named(controller: Controller) -> Labels {
    vec![("name", controller.name())]
}

/// What a queue is like. The slots of the Clusters are shown, for they are what a Cluster waits for.
fn of_queue(seen: &queue::Seen) -> Vec<Series> {
    let name = seen.controller.name();
    let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
    let mut all = vec![
        Series::new(&families::MOST_WORKERS, [name], count(seen.most)),
        Series::new(&families::DEPTH, [name], count(seen.depth)),
        Series::new(
            &families::UNFINISHED,
            [name],
            seconds(Some(seen.running.iter().sum())),
        ),
        Series::new(
            &families::LONGEST,
            [name],
            seconds(seen.running.iter().max().copied()),
        ),
    ];
    if seen.controller == Controller::Cluster {
        for (class, slots) in &seen.slots {
            for (state, number) in [
                ("total", slots.total),
                ("used", slots.used),
                ("waiting", slots.waiting),
            ] {
                all.push(Series::new(&families::SLOTS, [class, state], count(number)));
            }
        }
    }
    all
}

/// The series of one family, if there are any.
fn encode(encoder: &mut DescriptorEncoder<'_>, family: &Family, all: &[Series]) -> fmt::Result {
    let mut series = all.iter().filter(|series| series.family == family);
    let Some(first) = series.next() else {
        return Ok(());
    };
    let help = format!("{}.", family.means);
    let name = family.registered();
    let mut metric = encoder.encode_descriptor(name, &help, None, MetricType::Gauge)?;
    for one in std::iter::once(first).chain(series) {
        if one.labels.is_empty() {
            metric.encode_gauge(&one.value)?;
        } else {
            metric
                .encode_family(&one.labels)?
                .encode_gauge(&one.value)?;
        }
    }
    Ok(())
}
