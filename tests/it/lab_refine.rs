//! The simulated world is kept honest: on a real node every step of every plan is run by itself,
//! by the product's own way, and what is read afterwards must be what [`crate::sim::effect`] says
//! that the step does. Else the properties of the planner are about another world.

use std::{collections::BTreeSet, fs, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use lab::Profile;
use rke_operator::{
    api::LastSnapshot,
    apply::{
        event::{Event, Events, RunOutcome},
        remote::OverSsh,
        run::Report,
        stop::Stopper,
    },
    config::{Credential, Intent, RkeConfig, SecretSources},
    converge::{Goal, Iteration, Purpose, Removal, survey},
    environment::{Clock, Environment, KeyRing},
    facts::Actual,
    host::{KnownHosts, Policy, TcpDial},
    model::secret::Secret,
    plan::{self, Plan, Queue, Stage, Step},
    state::{file::FileStore, kubeconfig::FileKubeconfig},
};
use serde_json::{Value, json};

use crate::{
    real::{Site, tell},
    sim::{compare::differences, effect},
};

/// The name of the one key.
const KEY: &str = "the lab's key";

/// As many as `converge` allows.
const ROUNDS: u32 = 5;

/// The lab's key, whatever an inventory calls it.
struct OneKey(Secret<String>);

impl KeyRing for OneKey {
    fn credential<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Credential, String>> {
        futures::future::ready(Ok(Credential::Key(self.0.clone(), None))).boxed()
    }
}

fn key(site: &Site) -> Secret<String> {
    Secret::new(fs::read_to_string(site.lab.ssh_key()).expect("the lab's key"))
}

fn config(site: &Site) -> Value {
    let yaml = site.node().cluster_yml("lab").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let node = config["nodes"][0].as_object_mut().expect("a node");
    node.remove("ssh_key_path");
    config
}

/// The config with edits that replace a component, and that reach the Node object.
fn edited(mut config: Value) -> Value {
    config["nodes"][0]["labels"] = json!({"example.com/rack": "r1"});
    config["services"]["kube-api"] = json!({"extra_args": {"v": "1"}});
    config["services"]["scheduler"] = json!({"extra_args": {"v": "3"}});
    config
}

fn intent(site: &Site, config: &Value) -> Intent {
    let config = RkeConfig::from_json(config).expect("a config");
    let sources = SecretSources::new(KEY, key(site));
    Intent::from_config(&config, &sources)
        .expect("an intent")
        .intent
}

fn world(site: &Site) -> Environment {
    let config = site.path("cluster.yml");
    let known_hosts = fs::read_to_string(site.lab.known_hosts()).expect("known hosts");
    Environment {
        remote: Arc::new(OverSsh::new(Arc::new(TcpDial))),
        host_keys: Arc::new(KnownHosts::from_text(
            "the lab",
            &known_hosts,
            Policy::Strict,
        )),
        store: Arc::new(FileStore::next_to(&config)),
        kubeconfig: Arc::new(FileKubeconfig::next_to(&config)),
        key_ring: Arc::new(OneKey(key(site))),
        recover: None,
        accept_etcd: None,
        rotate: None,
        rotate_key: false,
        service_account_key: None,
        retry: false,
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
        entropy: rand::random,
    }
}

/// A plan of one step.
fn alone(stage: &Stage, step: &Step) -> Plan {
    Plan {
        stages: vec![Stage {
            queues: vec![Queue {
                node: step.node().cloned(),
                steps: vec![step.clone()],
            }],
            ..stage.clone()
        }],
        notes: vec![],
    }
}

async fn run(round: &Iteration<'_>, plan: &Plan, number: u32) -> Report {
    let (events, mut stream) = Events::channel(16);
    let (_stopper, stop) = Stopper::new();
    let run = async {
        let report = round.run(plan, number, &events, &stop).await;
        drop(events);
        report
    };
    let listen = async {
        let mut finished = 0;
        while let Some(event) = stream.recv().await {
            finished += usize::from(matches!(event, Event::RunFinished { .. }));
        }
        assert_eq!(finished, 1, "exactly one terminal event");
    };
    tokio::join!(run, listen).0
}

/// Runs every step of a round by itself and holds what is read against the model.
async fn refined(
    round: &Iteration<'_>,
    goal: &impl Purpose,
    world: &Environment,
    number: u32,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut before: Actual = round.survey().actual.clone();
    for stage in &round.survey().plan.stages {
        for step in stage.steps() {
            let title = format!(
                "round {number}, {}: {} on {}",
                stage.name,
                plan::title(step),
                step.target()
            );
            let report = run(round, &alone(stage, step), number).await;
            let why = report
                .failures
                .first()
                .map(|failure| failure.error.to_string());
            assert_eq!(
                report.outcome,
                RunOutcome::Completed,
                "{title}: {why:?} {:?}",
                report.plan_again
            );
            assert_eq!(report.warnings, [], "{title}");
            let seen = survey(goal, world).await;
            let seen = seen
                .unwrap_or_else(|error| panic!("no survey after {title}: {error}"))
                .actual;
            let mut expected = before.clone();
            if let Err(why) = effect::apply(step, round.survey().desired.as_ref(), &mut expected) {
                wrong.push(format!("{title}: the model refuses it: {why}"));
            }
            let found = differences(&expected, &seen);
            wrong.extend(found.into_iter().map(|line| format!("{title}: {line}")));
            tell(&title);
            // What etcd holds does not go when its API server is away for a moment.
            before = match (before.cluster, &seen.cluster) {
                (Some(cluster), None) => Actual {
                    cluster: Some(cluster),
                    ..seen
                },
                _ => seen,
            };
        }
    }
    wrong
}

/// Rounds until nothing is to do; every difference between model and world.
async fn until_done(goal: &impl Purpose, world: &Environment) -> Vec<String> {
    let mut wrong = Vec::new();
    for number in 1..=ROUNDS {
        let round = Iteration::look(goal, world).await;
        let round = round.unwrap_or_else(|error| panic!("round {number}: {error}"));
        let plan = &round.survey().plan;
        if plan.is_empty() {
            return wrong;
        }
        wrong.extend(refined(&round, goal, world, number).await);
        if plan.deletes_state() {
            return wrong;
        }
    }
    panic!("after {ROUNDS} rounds something still changes");
}

#[tokio::test]
async fn every_step_does_what_the_simulation_says() {
    let site = Site::new("refine", Profile::Plain);
    let world = world(&site);
    let fresh = intent(&site, &config(&site));
    let mut wrong = until_done(&Goal::Up(&fresh), &world).await;
    assert!(site.is_ready());
    let intent = intent(&site, &edited(config(&site)));
    wrong.extend(until_done(&Goal::Up(&intent), &world).await);
    wrong.extend(until_done(&Removal(Some(&intent)), &world).await);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
