//! How many round trips a run has one after the other, counted: the product's own `up` and `remove` on a
//! fake node behind a line that delays every byte, by a clock that stands still while anybody works. What
//! the same run takes longer on that line than on one without delay is its trips and nothing else.
//!
//! The bounds are only ever lowered. On a line of 300 ms they were 33 with nothing to do, 90 for `remove`,
//! and of a fresh `up` 138 in all and 112 beside programs that start. The kernel is prepared, the images are
//! there.

#![expect(
    clippy::print_stdout,
    reason = "the numbers are what a reader of this test wants"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fmt::Write as _,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use rke_operator::{
    api::LastSnapshot,
    apply::{
        event::{Event, Events},
        remote::OverSsh,
        stop::Stopper,
    },
    config::{Credential, Intent, RkeConfig, SecretSources},
    converge::{self, Consent, Convergence, Goal, Outcome, Purpose, Removal, RemovalOutcome},
    environment::{Clock, Environment, KeyRing},
    host::{Dial, KnownHosts, Policy, Stream},
    model::{Endpoint, NodeName, secret::Secret},
    plan::Plan,
    state::{ClusterState, Loaded, StateError, Store, kubeconfig::KubeconfigStore},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    config,
    fake::{Access, FakeNet},
    node::{self, Fleet, Node, Pace},
};

/// A line that is long, and one that is longer than Docker's channels were once kept.
const LINES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(300)];

/// What programs take on a real node: an API server until it serves, and the first pods.
const REAL: Pace = Pace {
    api: Duration::from_millis(3500),
    ready: Duration::from_millis(4500),
};

/// A line whose far end is so far away.
#[derive(Clone)]
struct Line {
    net: FakeNet,
    way: Duration,
}

impl Dial for Line {
    fn dial<'a>(&'a self, to: &'a Endpoint) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        async move {
            sleep(2 * self.way).await;
            let theirs = self.net.dial(to).await?;
            let (ours, near) = tokio::io::duplex(1 << 20);
            let (from_us, to_us) = tokio::io::split(near);
            let (from_them, to_them) = tokio::io::split(theirs);
            tokio::spawn(late(from_us, to_them, self.way));
            tokio::spawn(late(from_them, to_us, self.way));
            Ok(Box::new(ours) as Box<dyn Stream>)
        }
        .boxed()
    }
}

/// Everything arrives, in order, that much later.
async fn late(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, way: Duration) {
    let (sent, mut under_way) = mpsc::unbounded_channel();
    let sends = async move {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            if sent
                .send((Instant::now() + way, bytes[..count].to_vec()))
                .is_err()
            {
                break;
            }
        }
    };
    let arrives = async move {
        while let Some((when, bytes)) = under_way.recv().await {
            sleep_until(when).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(sends, arrives);
}

/// State and kubeconfig, in memory.
#[derive(Default)]
struct Memory {
    saved: Mutex<(u64, Option<ClusterState>)>,
    kubeconfig: Mutex<Option<Secret<String>>>,
}

impl Store for Memory {
    fn load(&self) -> BoxFuture<'_, Result<Loaded, StateError>> {
        let (revision, saved) = self.saved.lock().unwrap().clone();
        let loaded = saved.map_or(Loaded::Absent, |saved| Loaded::Present {
            saved: Box::new(saved),
            revision: revision.to_string(),
        });
        futures::future::ready(Ok(loaded)).boxed()
    }

    fn save<'a>(
        &'a self,
        new: &'a ClusterState,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<(), StateError>> {
        let mut kept = self.saved.lock().unwrap();
        *kept = (kept.0 + 1, Some(new.clone()));
        futures::future::ready(Ok(())).boxed()
    }

    fn delete(&self) -> BoxFuture<'_, Result<(), StateError>> {
        self.saved.lock().unwrap().1 = None;
        futures::future::ready(Ok(())).boxed()
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}

impl KubeconfigStore for Memory {
    fn load(&self) -> BoxFuture<'_, io::Result<Option<Secret<String>>>> {
        futures::future::ready(Ok(self.kubeconfig.lock().unwrap().clone())).boxed()
    }

    fn save<'a>(&'a self, kubeconfig: &'a Secret<String>) -> BoxFuture<'a, io::Result<()>> {
        *self.kubeconfig.lock().unwrap() = Some(kubeconfig.clone());
        futures::future::ready(Ok(())).boxed()
    }

    fn remove(&self) -> BoxFuture<'_, io::Result<()>> {
        *self.kubeconfig.lock().unwrap() = None;
        futures::future::ready(Ok(())).boxed()
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}

struct Unattended;

impl KeyRing for Unattended {
    fn credential<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Credential, String>> {
        futures::future::ready(Err("the config has it".to_owned())).boxed()
    }
}

impl Consent for Unattended {
    type Refusal = Infallible;

    fn ask<'a>(&'a self, _: &'a Plan) -> BoxFuture<'a, Result<(), Infallible>> {
        futures::future::ready(Ok(())).boxed()
    }
}

/// Nodes with every role behind a line, and who runs `up` and `remove` on them.
struct Site {
    line: Line,
    nodes: Vec<Node>,
    memory: Arc<Memory>,
    intent: Intent,
    /// What happens when a step of that title begins, once.
    mishap: Mutex<Option<(&'static str, Mishap)>>,
}

type Mishap = Box<dyn FnOnce() + Send>;

/// What a run took, and when each of its steps was done.
struct Run {
    took: Duration,
    steps: Vec<(String, Duration)>,
}

impl Site {
    fn new(nodes: usize, round_trip: Duration, pace: Pace) -> Self {
        Self::of((0..nodes).map(node::bare).collect(), round_trip, pace)
    }

    fn of(made: Vec<Node>, round_trip: Duration, pace: Pace) -> Self {
        let at = |number| Endpoint {
            address: config::address(number).to_string(),
            port: 22,
        };
        let hosts = made.iter().enumerate();
        let hosts = hosts.map(|(number, node)| (at(number), node.host.clone()));
        let net = FakeNet(hosts.collect());
        let fleet = Fleet::of(made.clone(), 22, pace).unwrap();
        for node in &made {
            crate::server::open_ports(&fleet, node);
        }
        tokio::spawn(crate::control::run(fleet));
        let mut yaml = "nodes:\n".to_owned();
        for (number, node) in made.iter().enumerate() {
            let _ = writeln!(
                yaml,
                "  - {{address: {}, internal_address: {}, user: rke, hostname_override: {}, \
                 role: [controlplane, etcd, worker]}}",
                config::address(number),
                node.machine.address,
                node.machine.name,
            );
        }
        yaml.push_str(
            "network: {plugin: flannel}\ningress: {provider: none}\n\
             monitoring: {provider: none}\n",
        );
        let config = RkeConfig::parse(&yaml).expect("a config");
        let sources = SecretSources::new("ssh", made[0].host.private_key().into());
        let intent = Intent::from_config(&config, &sources).expect("an intent");
        Self {
            line: Line {
                net,
                way: round_trip / 2,
            },
            nodes: made,
            memory: Arc::default(),
            intent: intent.intent,
            mishap: Mutex::default(),
        }
    }

    fn environment(&self) -> Environment {
        let known = self.line.net.0.iter();
        let known = known.map(|(endpoint, host)| host.known_hosts(endpoint));
        let known = KnownHosts::from_text("test", &known.collect::<String>(), Policy::Strict);
        Environment {
            remote: Arc::new(OverSsh::new(Arc::new(self.line.clone()))),
            host_keys: Arc::new(known),
            store: Arc::clone(&self.memory) as Arc<dyn Store>,
            kubeconfig: Arc::clone(&self.memory) as Arc<dyn KubeconfigStore>,
            key_ring: Arc::new(Unattended),
            recover: None,
            accept_etcd: None,
            rotate: None,
            rotate_key: false,
            retry: false,
            service_account_key: None,
            authorities: None,
            restore: None,
            held_elsewhere: BTreeSet::new(),
            lose: BTreeSet::new(),
            clean: BTreeSet::new(),
            last_snapshot: LastSnapshot::Skip,
            home: None,
            given: None,
            bundle: None,
            identity: "a test".to_owned(),
            clock: Clock::new(jiff::Timestamp::now),
            entropy: || [7; 32],
        }
    }

    async fn up(&self) -> Run {
        let (run, outcome) = self.run(&Goal::Up(&self.intent)).await;
        let converged = matches!(outcome, Outcome::Converged { .. });
        assert!(converged, "{outcome:?} after {:#?}", run.steps);
        run
    }

    async fn remove(&self) -> Run {
        let (run, outcome) = self.run(&Removal(Some(&self.intent))).await;
        let removed = matches!(outcome, RemovalOutcome::Removed { .. });
        assert!(removed, "{outcome:?} after {:#?}", run.steps);
        for node in &self.nodes {
            assert!(node.host.docker().containers.is_empty());
        }
        run
    }

    fn meets(&self, title: &str) {
        let mut mishap = self.mishap.lock().unwrap();
        if let Some((_, happens)) = mishap.take_if(|(at, _)| title.contains(*at)) {
            happens();
        }
    }

    async fn run<P: Purpose>(&self, purpose: &P) -> (Run, P::Outcome) {
        let environment = self.environment();
        let (_stopper, stop) = Stopper::new();
        let (events, mut stream) = Events::channel(64);
        let begun = Instant::now();
        let run = async {
            let outcome =
                converge::converge(purpose, &environment, &Unattended, &events, &stop).await;
            drop(events);
            (outcome, begun.elapsed())
        };
        let listen = async {
            let mut steps = Vec::new();
            while let Some(event) = stream.recv().await {
                if let Event::StepStarted { title, .. } = &event {
                    self.meets(title);
                }
                if let Event::StageStarted { name, .. } = &event {
                    steps.push((format!("[{name}]"), begun.elapsed()));
                } else if let Event::StepFinished { title, .. } = event {
                    steps.push((title, begun.elapsed()));
                }
            }
            steps
        };
        let ((outcome, took), steps) = Box::pin(async { tokio::join!(run, listen) }).await;
        match outcome {
            Ok(Convergence::Settled(outcome)) => (Run { took, steps }, outcome),
            Ok(Convergence::Stopped(cause)) => panic!("{cause:?} after {steps:#?}"),
            Err(error) => panic!("{error:?} after {steps:#?}"),
        }
    }
}

/// What one and the same run takes on a line, and on none.
struct Counted {
    near: Run,
    far: Run,
    round_trip: Duration,
}

impl Counted {
    fn trips(&self) -> f64 {
        let more = self.far.took.saturating_sub(self.near.took);
        more.as_secs_f64() / self.round_trip.as_secs_f64()
    }

    /// More than these are a failure, which tells where they are.
    fn at_most(&self, what: &str, bound: u32) {
        let trips = self.trips();
        println!("{what}: {trips:.2} trips of {:?}", self.round_trip);
        assert!(
            trips.round() <= f64::from(bound),
            "{what} has {trips:.2} round trips of {:?} and may have {bound}:\n{}",
            self.round_trip,
            self.table()
        );
    }

    /// How many trips each step ended after.
    fn table(&self) -> String {
        let near: BTreeMap<&str, Duration> = self
            .near
            .steps
            .iter()
            .map(|(title, at)| (title.as_str(), *at))
            .collect();
        let mut table = String::new();
        let mut last = 0.0;
        for (title, at) in &self.far.steps {
            let there = near.get(title.as_str()).copied().unwrap_or_default();
            let trips = at.saturating_sub(there).as_secs_f64() / self.round_trip.as_secs_f64();
            let _ = writeln!(table, "{trips:7.2} {:+6.2}  {title}", trips - last);
            last = trips;
        }
        table
    }
}

/// Fresh `up`, nothing to do, and removal. The node has the images, and its kernel is prepared.
async fn measured(round_trip: Duration, pace: Pace) -> [Run; 3] {
    let before = Site::new(1, Duration::ZERO, Pace::default());
    before.up().await;
    let files = before.nodes[0].host.docker().files.clone();
    before.remove().await;
    let node = node::booted(0, files);
    node.host.docker().images = before.nodes[0].host.docker().images.clone();
    let site = Site::of(vec![node], round_trip, pace);
    [site.up().await, site.up().await, site.remove().await]
}

async fn counted(round_trip: Duration, pace: Pace) -> [Counted; 3] {
    let near = measured(Duration::ZERO, pace).await;
    let far = measured(round_trip, pace).await;
    let mut both = near.into_iter().zip(far).map(|(near, far)| Counted {
        near,
        far,
        round_trip,
    });
    std::array::from_fn(|_| both.next().expect("three runs"))
}

/// E23: whoever waits for the API goes on through the connection that is there by then.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_does_not_end_a_wait() {
    for title in [
        "wait for the node",
        "set node labels",
        "to be healthy",
        "wait for coredns",
    ] {
        let site = Site::new(1, Duration::from_millis(50), REAL);
        let host = site.nodes[0].host.clone();
        let cut = move || {
            tokio::spawn(async move {
                sleep(Duration::from_millis(200)).await;
                host.cut();
            });
        };
        *site.mishap.lock().unwrap() = Some((title, Box::new(cut)));
        let run = site.up().await;
        assert!(
            site.mishap.lock().unwrap().is_none(),
            "no step has {title:?}: {:#?}",
            run.steps
        );
        assert!(
            run.took < Duration::from_secs(60),
            "{title}: {:?}",
            run.took
        );
    }
}

/// What was asked before a node's Docker has told what runs there counts only where it has told.
#[tokio::test(start_paused = true)]
async fn what_a_node_serves_whose_docker_does_not_answer_counts_for_nothing() {
    let site = Site::new(3, Duration::from_millis(50), Pace::default());
    site.up().await;
    for Node { host, machine } in &site.nodes {
        host.faults(|faults| faults.access = Access::Denied);
        let seen = converge::inspect(&site.intent, &site.environment()).await;
        let seen = seen.expect("an inspection").actual;
        let name = NodeName::from(machine.name.as_str());
        assert_eq!(seen.apis.len(), 2, "{:?}", seen.apis);
        assert!(!seen.apis.contains_key(&name));
        assert!(seen.cluster.is_some(), "another one has told");
        assert!(!seen.etcd.silent.contains_key(&name));
        let members = seen.etcd.members.values();
        let mut on = members.filter_map(|member| Some(&member.status.as_ref()?.0));
        assert!(!on.any(|node| *node == name));
        host.faults(|faults| faults.access = Access::Open);
    }
}

/// E22: one API server of three is killed in the middle of a run; its node answers all the same.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_dies_is_not_the_only_one() {
    let site = Site::new(3, Duration::from_millis(50), REAL);
    let host = site.nodes[0].host.clone();
    let kill = move || {
        let mut docker = host.docker();
        let server = docker.containers.get_mut("kube-apiserver");
        "exited".clone_into(&mut server.expect("it runs").state);
    };
    *site.mishap.lock().unwrap() = Some(("apply flannel", Box::new(kill)));
    let run = site.up().await;
    assert!(site.mishap.lock().unwrap().is_none(), "{:#?}", run.steps);
    assert!(run.took < Duration::from_secs(60), "{:?}", run.took);
}

#[tokio::test(start_paused = true)]
async fn round_trips_are_counted_and_only_become_fewer() {
    for round_trip in LINES {
        let [fresh, idle, removed] = counted(round_trip, Pace::default()).await;
        idle.at_most("`up` with nothing to do", 12);
        removed.at_most("`remove`", 40);
        fresh.at_most("a fresh `up`, every trip", 67);
    }
}

/// Programs take their time to start, and a trip beside that is free.
#[tokio::test(start_paused = true)]
async fn a_fresh_up_waits_for_programs_and_not_for_the_line() {
    for round_trip in LINES {
        let [fresh, ..] = counted(round_trip, REAL).await;
        fresh.at_most("a fresh `up`", 48);
    }
}
