//! The whole operator against the fake API server, with the simulated nodes below it: what reads,
//! plans, runs and keeps is the product's own. Time is tokio's, paused: waits of minutes pass at
//! once, and deadlines, certificates, dates of conditions and deletion timestamps all follow the
//! same clock.

use std::{
    cell::Cell,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};
use rke_operator::{
    api::{self, conditions::ConditionType},
    apply::stop::{StopCause, Stopper},
    environment::Clock,
    facts::ContainerState,
    host::ServiceRanges,
    operator::{Dependencies, OperatorError, OperatorOptions, run_with},
};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle};

use crate::{
    cli_support::private_key,
    fake_api::FakeApi,
    sim::{
        fleet::Fleet,
        remote::{Purpose, SimRemote, Turn},
    },
};

/// The name of the operator's client.
pub(crate) const OPERATOR: &str = "operator";

pub(crate) const NAMESPACE: &str = "rke-system";
pub(crate) const CREDENTIALS: &str = "rke-system-credentials";

/// What happens at once happens within this time; a step that waits has three minutes at least.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The private key that the nodes accept: must appear nowhere but in its Secret.
pub(crate) static PLANTED_KEY: LazyLock<String> = LazyLock::new(private_key);

/// A line of that key.
pub(crate) fn planted_line() -> &'static str {
    PLANTED_KEY.lines().nth(2).unwrap()
}

/// The operator, its API server and its nodes.
pub(crate) struct Rig {
    pub(crate) api: FakeApi,
    pub(crate) nodes: SimRemote,
    /// What it knows of the management cluster's Services.
    pub(crate) services: ServiceRanges,
    stopper: Stopper,
    task: JoinHandle<Result<(), OperatorError>>,
}

/// A clock that follows tokio's.
pub(crate) fn clock() -> impl Fn() -> Timestamp + Clone + Send + Sync + 'static {
    let start = tokio::time::Instant::now();
    let epoch: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    move || {
        let passed = SignedDuration::try_from(start.elapsed()).unwrap();
        epoch.checked_add(passed).unwrap()
    }
}

/// Other bytes each time, the same ones in each run of a test: an operator runs on its test's
/// thread.
fn entropy() -> [u8; 32] {
    thread_local!(static DRAWN: Cell<u64> = const { Cell::new(0) });
    let number = DRAWN.get() + 1;
    DRAWN.set(number);
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

impl Rig {
    /// With those nodes, the Secret `nodes`, and an operator that runs.
    pub(crate) fn start(nodes: &[&str]) -> Self {
        Self::with(SimRemote::bare(nodes), FakeApi::new(clock()), |_| {})
    }

    pub(crate) fn with(
        nodes: SimRemote,
        api: FakeApi,
        options: impl FnOnce(&mut OperatorOptions),
    ) -> Self {
        let mut how = OperatorOptions::new(NAMESPACE);
        options(&mut how);
        let dependencies = dependencies(&nodes, &api);
        Self::run(nodes, api, how, dependencies)
    }

    /// One whose own clock is ahead of everybody else's.
    pub(crate) fn ahead(nodes: SimRemote, api: FakeApi, by: Duration) -> Self {
        let by = SignedDuration::try_from(by).unwrap();
        let dependencies = Dependencies {
            clock: {
                let api = api.clone();
                Clock::new(move || api.now().checked_add(by).unwrap())
            },
            ..dependencies(&nodes, &api)
        };
        Self::run(nodes, api, OperatorOptions::new(NAMESPACE), dependencies)
    }

    /// One whose nodes are many worlds; `nodes` is none of them.
    pub(crate) fn of_many(worlds: Fleet, api: FakeApi) -> Self {
        let nodes = SimRemote::bare(&[]);
        let dependencies = Dependencies {
            remote: Arc::new(worlds),
            ..dependencies(&nodes, &api)
        };
        Self::run(nodes, api, OperatorOptions::new(NAMESPACE), dependencies)
    }

    fn run(
        nodes: SimRemote,
        api: FakeApi,
        options: OperatorOptions,
        dependencies: Dependencies,
    ) -> Self {
        let there = |namespace: &&str| api.object("secrets", namespace, "nodes").is_some();
        if ![NAMESPACE, CREDENTIALS].iter().any(there) {
            api.plant("secrets", &key_secret());
        }
        let services = dependencies.services.clone();
        let (stopper, stop) = Stopper::new();
        let task = tokio::spawn(run_with(
            options,
            api.client_of(OPERATOR),
            dependencies,
            stop,
        ));
        Self {
            api,
            nodes,
            services,
            stopper,
            task,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// How the operator ends by itself, within an hour.
    pub(crate) async fn ended(mut self) -> Result<(), OperatorError> {
        let ended = tokio::time::timeout(Duration::from_secs(3600), &mut self.task);
        ended.await.expect("it goes on").unwrap()
    }

    /// Stops the operator in an orderly way; what it managed stays.
    pub(crate) async fn stop(mut self) -> (FakeApi, SimRemote) {
        self.stopper.stop(StopCause::Signal);
        (&mut self.task).await.unwrap().unwrap();
        (self.api.clone(), self.nodes.clone())
    }

    /// Creates the cluster `a` on `n1`; its first run comes to that step, from 0, and waits there.
    pub(crate) async fn create_and_halt(&self, step: usize) -> Halt {
        let halt = self.nodes.halt(Purpose::Up, step);
        self.create(&cluster("a", "n1")).await;
        halt.reached().await;
        halt
    }

    /// `kubectl create`.
    pub(crate) async fn create(&self, cluster: &Value) {
        let clusters: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(
            self.api.client(),
            &kube::api::ApiResource::erase::<api::Cluster>(&()),
        );
        let object = serde_json::from_value(cluster.clone()).unwrap();
        clusters
            .create(&kube::api::PostParams::default(), &object)
            .await
            .unwrap();
    }

    pub(crate) async fn until(&self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let object = self
            .api
            .until("clusters", "", name, |object| object.is_some_and(&holds))
            .await;
        object.unwrap()
    }

    pub(crate) async fn ready(&self, name: &str) -> Value {
        self.until(name, |cluster| {
            settled(cluster) && is(cluster, "Ready", "True")
        })
        .await
    }

    /// Waits for an event with that reason; all notes with it.
    pub(crate) async fn event(&self, reason: &str) -> Vec<String> {
        let there = |_: Option<&Value>| !self.events(reason).is_empty();
        self.api.until("events", "default", "", there).await;
        self.events(reason)
    }

    /// The notes of the events with that reason.
    pub(crate) fn events(&self, reason: &str) -> Vec<String> {
        let events = self.api.objects("events");
        let notes = events.iter().filter(|event| event["reason"] == reason);
        notes
            .map(|event| event["note"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) async fn gone(&self, name: &str) {
        self.api
            .until("clusters", "", name, |object| object.is_none())
            .await;
    }

    /// The state of a cluster, as it is kept.
    pub(crate) fn state(&self, name: &str) -> Option<Value> {
        let secret = self
            .api
            .object("secrets", NAMESPACE, &format!("{name}-state"))?;
        let text = secret["data"]["state.json"].as_str().unwrap();
        let text = BASE64_STANDARD.decode(text).unwrap();
        Some(serde_json::from_slice(&text).unwrap())
    }

    pub(crate) fn cluster(&self, name: &str) -> Value {
        self.api.object("clusters", "", name).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A test that ends takes its operator with it.
        self.stopper.stop(StopCause::Signal);
        if !std::thread::panicking() {
            for object in self.api.history("clusters") {
                is_by_the_table(&object);
            }
        }
    }
}

/// Runs that wait at one of their steps, until they are told to stop.
pub(crate) struct Halt {
    reached: Arc<Notify>,
    go: Arc<Notify>,
    lifted: Arc<AtomicBool>,
}

impl SimRemote {
    /// From now on, runs for that purpose wait before that one of their steps, from 0.
    pub(crate) fn halt(&self, purpose: Purpose, step: usize) -> Halt {
        let halt = Halt {
            reached: Arc::default(),
            go: Arc::default(),
            lifted: Arc::default(),
        };
        let (reached, go) = (Arc::clone(&halt.reached), Arc::clone(&halt.go));
        let lifted = Arc::clone(&halt.lifted);
        self.script(move |of, index, _| {
            if of != purpose || index != step || lifted.load(Ordering::SeqCst) {
                return Turn::Go;
            }
            reached.notify_one();
            Turn::Hold(Arc::clone(&go))
        });
        halt
    }
}

impl Halt {
    /// Waits until a run waits there, an hour at most.
    pub(crate) async fn reached(&self) {
        let reached = tokio::time::timeout(Duration::from_secs(3600), self.reached.notified());
        reached.await.expect("no run came to its step");
    }

    /// One run that waits goes on.
    pub(crate) fn go_on(&self) {
        self.go.notify_one();
    }

    /// Later runs do not wait; one that does already goes on waiting.
    pub(crate) fn lift(&self) {
        self.lifted.store(true, Ordering::SeqCst);
    }
}

fn dependencies(nodes: &SimRemote, api: &FakeApi) -> Dependencies {
    let api = api.clone();
    Dependencies {
        services: ServiceRanges::default(),
        remote: Arc::new(nodes.clone()),
        clock: Clock::new(move || api.now()),
        entropy,
    }
}

/// Every condition of ours that was ever written has a reason of its type, and the status that
/// goes with it.
fn is_by_the_table(object: &Value) {
    for condition in object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let kind = ConditionType::TABLE
            .iter()
            .find(|row| condition["type"] == row.kind.name());
        let Some(row) = kind else { continue };
        let known = row.kind.reasons().any(|known| {
            condition["reason"] == known.reason.name() && condition["status"] == known.status.name()
        });
        assert!(known, "not in the table of conditions: {condition}");
    }
}

/// Puts the scheduler of `n1` into a state, from outside.
pub(crate) fn the_scheduler_is(state: ContainerState, rig: &Rig) {
    rig.nodes.host("n1", |facts| {
        let scheduler = facts.containers.get_mut("kube-scheduler").unwrap();
        scheduler.state = state;
    });
}

/// A condition of an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
}

pub(crate) fn is(object: &Value, kind: &str, status: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == status)
}

pub(crate) fn reason(object: &Value, kind: &str) -> String {
    condition(object, kind).map_or_else(String::new, |condition| {
        condition["reason"].as_str().unwrap().to_owned()
    })
}

pub(crate) fn message(object: &Value, kind: &str) -> String {
    condition(object, kind).map_or_else(String::new, |condition| {
        condition["message"].as_str().unwrap().to_owned()
    })
}

/// The last word is about the present generation, and no run is under way.
pub(crate) fn settled(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
        && condition(object, "Reconciling").is_none()
        && condition(object, "Provisioned")
            .is_some_and(|c| c["observedGeneration"] == object["metadata"]["generation"])
}

/// A Cluster of one node.
pub(crate) fn cluster(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "clusterprovisioner.rke.io/v1alpha1",
        "kind": "Cluster",
        "metadata": { "name": name },
        "spec": {
            "config": {
                "cluster_name": name,
                "nodes": [{
                    "address": "10.0.0.1",
                    "hostname_override": node,
                    "user": "core",
                    "role": ["controlplane", "etcd", "worker"],
                }],
                "network": { "plugin": "flannel" },
                "ingress": { "provider": "none" },
                "monitoring": { "provider": "none" },
            },
            "ssh": { "keySecretRef": { "name": "nodes" } },
        },
    })
}

pub(crate) fn key_secret() -> Value {
    json!({
        "metadata": {
            "name": "nodes", "namespace": CREDENTIALS,
            "annotations": { "clusterprovisioner.rke.io/clusters": "*" },
        },
        "stringData": { "ssh-privatekey": *PLANTED_KEY },
    })
}

pub(crate) fn minutes(minutes: u64) -> tokio::time::Sleep {
    tokio::time::sleep(Duration::from_secs(60 * minutes))
}

/// The record of what a deletion left.
pub(crate) fn record(api: &FakeApi, name: &str) -> Value {
    let map = api.object("configmaps", NAMESPACE, &format!("{name}-orphaned"));
    let map = map.expect("there is a record");
    let text = map["data"].as_object().unwrap().values().next().unwrap();
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

/// Nothing was done to the node, whatever else became of the object.
pub(crate) fn is_untouched(nodes: &SimRemote) {
    assert!(nodes.claimed_by("n1").is_some());
    assert!(nodes.containers("n1") > 0);
    assert_eq!(nodes.counts().removals, 0);
}
