//! The guards of a step, evaluated on the live node right before the step is carried out: the
//! product's own executor, SSH and Docker clients, against a fake node (T1).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rke_operator::{
    apply::{
        event::{Event, Events, StepId},
        remote::{Context, OverSsh, Remote, RemoteSession, RemoteStep},
        step::{Done, Reporter, StepError},
        stop::Stopper,
    },
    converge::{Goal, Removal},
    desired::pki::{EngineClients, Seed, engine_clients},
    environment::Environment,
    error::ErrorClass,
    etcd::MemberId,
    facts::{Actual, Baseline, HostView, NodeRecord},
    host::{Dial, KnownHosts, Policy, Stamp},
    model::{CLAIM, Component, ContainerSpec, HELPER, NodeName, Owner, label},
    plan::{Action, Cause, Guard, HostAction, Step},
    state::ClusterState,
};
use serde_json::json;

use crate::{
    fake::{Access, FakeContainer, FakeHost, FakeNet, Faults, target},
    plan_properties::fresh,
    sim::{bare_host, remote::SimRemote, runner::Runner, wish::Wish},
};

const IMAGE: &str = "rancher/hardened-etcd:v3.6";
const OTHER: &str = "ffffffffffffffffffffffffffffffff";

fn n1() -> NodeName {
    NodeName::from("n1")
}

fn spec(flag: &str) -> Box<ContainerSpec> {
    Box::new(ContainerSpec {
        image: IMAGE.to_owned(),
        entrypoint: vec!["etcd".to_owned()],
        command: vec![flag.to_owned()],
        bootstrap_args: vec![],
        env: vec![],
        binds: vec![],
        mounts: vec![],
        user: Owner::ROOT,
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
        security_opts: vec![],
        tmpfs: Vec::new(),
        cap_drop: Vec::new(),
        log_limit: None,
        files: BTreeMap::new(),
        certificates: BTreeMap::new(),
    })
}

/// A claimed node that runs etcd, and a run that has surveyed it.
struct Surveyed {
    fake: FakeHost,
    environment: Environment,
    saved: ClusterState,
    engine: EngineClients,
    actual: Actual,
    /// How many requests there were before the run's first step.
    asked: usize,
    before: String,
}

impl Surveyed {
    async fn new() -> Self {
        // The keys and certificates of a cluster, as the product makes them.
        let runner = Runner::new(&SimRemote::new(fresh(1)), || [1; 32]);
        let intent = Wish::plain().intent();
        runner.converge(&Goal::Up(&intent)).await.unwrap();
        let saved = runner.memory.shell().saved.unwrap();
        let seed = Seed::new([2; 32]);
        let engine = engine_clients(&saved, runner.environment().clock.now(), &seed).unwrap();

        let fake = FakeHost::new();
        {
            let mut docker = fake.docker();
            docker.images.insert(IMAGE.to_owned(), 1);
            docker.work = Box::new(|_, _| (0, "@@rke-operator done\n".to_owned()));
        }
        let host = fake.connect().await.unwrap();
        host.import_empty_image().await.unwrap();
        let record = NodeRecord {
            cluster_id: saved.cluster_id.clone(),
            cluster_name: saved.cluster_name.clone(),
            node: Some(n1()),
            before: Baseline::default(),
        };
        host.create_claim(record.labels().unwrap()).await.unwrap();
        host.run_container(
            "etcd",
            &spec("--v=1"),
            &Stamp::first(&saved.cluster_id, "a"),
        )
        .await
        .unwrap();
        let mut facts = bare_host(&n1());
        facts.containers = host.containers().await.unwrap();
        let actual = Actual {
            hosts: [(n1(), HostView::Reachable(Box::new(facts)))].into(),
            saved: Some(Box::new(saved.clone())),
            ..Actual::default()
        };
        let asked = fake.requests().len();
        let mut surveyed = Self {
            fake,
            environment: runner.environment(),
            saved,
            engine,
            actual,
            asked,
            before: String::new(),
        };
        surveyed.remember();
        surveyed
    }

    /// What the node has now is what a step must not change.
    fn remember(&mut self) {
        self.before = self.node();
    }

    /// Everything that the node has.
    fn node(&self) -> String {
        let docker = self.fake.docker();
        let containers = docker.containers.iter().map(|(name, container)| {
            let labels = container.labels();
            format!("{name} {} {} {labels:?}", container.id, container.state)
        });
        let containers: Vec<String> = containers.collect();
        format!("{containers:#?}\n{:?}\n{:?}", docker.images, docker.paths())
    }

    fn changed_labels(&self, change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>)) {
        let mut docker = self.fake.docker();
        let claim = docker.containers.get_mut(CLAIM).unwrap();
        change(claim.body["Labels"].as_object_mut().unwrap());
    }

    /// The id of the container `etcd`, as the survey saw it.
    fn seen(&self) -> &str {
        &self.actual.up(&n1()).unwrap().containers["etcd"].id
    }

    /// The guards that a planner puts on the replacement of one container.
    fn guards(&self) -> Vec<Guard> {
        vec![
            Guard::ClaimIs {
                id: self.saved.cluster_id.clone(),
                node: n1(),
            },
            Guard::ContainerIs {
                node: n1(),
                name: "etcd".to_owned(),
                id: self.seen().to_owned(),
            },
        ]
    }

    fn step(&self, action: HostAction) -> Step {
        Step {
            cause: Cause::Change,
            why: "a test".into(),
            changes: vec![],
            guards: self.guards(),
            disturbs: None,
            action: Action::Host(n1(), action),
        }
    }

    /// What destroys or replaces.
    fn steps(&self) -> [Step; 3] {
        let name = "etcd".to_owned();
        let actions = [
            HostAction::RemoveContainer { name },
            HostAction::ReplaceContainer {
                component: Component::Etcd,
                spec: spec("--v=2"),
                keep: false,
            },
            HostAction::CleanHost {
                before: Baseline::default(),
            },
        ];
        actions.map(|action| self.step(action))
    }

    fn session(&self, dial: Arc<dyn Dial>) -> Box<dyn RemoteSession> {
        let endpoint = FakeHost::endpoint();
        let known = self.fake.known_hosts(&endpoint);
        let keys = KnownHosts::from_text("test", &known, Policy::Strict);
        let mut session = OverSsh::new(dial).session(Arc::new(keys));
        session.aim([(n1(), Ok(target(endpoint, self.fake.login())))].into());
        session
    }

    const fn context(&self) -> Context<'_> {
        Context {
            environment: &self.environment,
            actual: &self.actual,
            desired: None,
            saved: Some(&self.saved),
            revision: None,
            engine: Some(&self.engine),
            snapshot_tools: None,
        }
    }

    async fn act(&self, step: &Step) -> Result<Done, StepError> {
        self.act_over(Arc::new(self.fake.dial()), step).await
    }

    async fn act_over(&self, dial: Arc<dyn Dial>, step: &Step) -> Result<Done, StepError> {
        self.act_in(&*self.session(dial), step).await
    }

    async fn act_in(&self, session: &dyn RemoteSession, step: &Step) -> Result<Done, StepError> {
        let (events, _received) = Events::channel(8);
        let (_stopper, stop) = Stopper::new();
        let reporter = Reporter::new(events, StepId { stage: 0, step: 0 });
        let step = RemoteStep::of(step).unwrap();
        session.act(step, self.context(), &reporter, &stop).await
    }

    /// The run asked Docker for no change, and there is none.
    #[track_caller]
    fn nothing_was_done(&self, what: &str) {
        let asked = self.fake.requests().split_off(self.asked);
        let changing: Vec<_> = asked.iter().filter(|asked| asked.method != "GET").collect();
        assert!(changing.is_empty(), "{what}: {changing:?}");
        assert_eq!(self.node(), self.before, "{what}");
    }
}

/// What somebody else may do to a node between a survey and a step, and what the run then says.
type Meanwhile = (&'static str, fn(&Surveyed));

const MEANWHILE: [Meanwhile; 5] = [
    ("is now claimed by cluster `ffff", |site| {
        site.changed_labels(|labels| {
            labels.insert(label::CLUSTER_ID.to_owned(), json!(OTHER));
        });
    }),
    ("names no cluster any more", |site| {
        site.changed_labels(|labels| {
            labels.remove(label::CLUSTER_ID);
        });
    }),
    ("is no longer claimed by cluster", |site| {
        site.fake.docker().containers.remove(CLAIM);
    }),
    ("was re-created since the survey", |site| {
        let mut docker = site.fake.docker();
        let id = docker.new_id();
        docker.containers.get_mut("etcd").unwrap().id = id;
    }),
    ("is gone since the survey", |site| {
        site.fake.docker().containers.remove("etcd");
    }),
];

#[tokio::test]
async fn a_step_is_not_carried_out_where_a_guard_does_not_hold_any_more() {
    for (says, meanwhile) in MEANWHILE {
        let mut site = Surveyed::new().await;
        meanwhile(&site);
        site.remember();
        for step in site.steps() {
            let ended = site.act(&step).await;
            let Err(StepError::Guard(why)) = &ended else {
                panic!("{says}: {:?} ended with {ended:?}", step.action);
            };
            assert!(why.contains(says) && why.contains("`n1`"), "{says}: {why}");
            site.nothing_was_done(says);
        }
    }
}

/// E26: what is seen is as young as one question, however many guards there are.
#[tokio::test(start_paused = true)]
async fn guards_look_at_each_thing_once_and_at_all_of_them_at_once() {
    let site = Surveyed::new().await;
    let mut step = site.step(HostAction::StartContainer {
        component: Component::Etcd,
    });
    step.guards.extend(site.guards());
    let answer = Duration::from_secs(10);
    site.fake.faults(|faults| faults.slow = Some(answer));
    let begun = tokio::time::Instant::now();
    site.act(&step).await.unwrap();
    let asked = site.fake.requests().split_off(site.asked);
    let mut paths: Vec<&str> = asked.iter().map(|asked| asked.path.as_str()).collect();
    paths[1..3].sort_unstable();
    let (claim, etcd) = (format!("/containers/{CLAIM}/json"), "/containers/etcd/json");
    assert_eq!(paths, ["/_ping", etcd, &claim, "/containers/etcd/start"]);
    let took = begun.elapsed();
    assert!(took < 4 * answer, "{took:?}");
}

/// What a change keeps and what goes back, on a node.
#[tokio::test]
async fn a_change_keeps_the_former_container_and_it_goes_back() {
    let component = Component::Etcd;
    let kept = component.kept();
    let mut site = Surveyed::new().await;
    let former = site.seen().to_owned();
    let policy = |site: &Surveyed, name: &str| {
        let container = site.fake.docker().containers[name].clone();
        let policy = container.body["HostConfig"]["RestartPolicy"]["Name"].clone();
        (container.id, container.state, policy)
    };
    let change = site.step(HostAction::ReplaceContainer {
        component,
        spec: spec("--v=2"),
        keep: true,
    });
    site.act(&change).await.unwrap();
    let stopped = (former.clone(), "exited".to_owned(), json!("no"));
    assert_eq!(policy(&site, kept), stopped);
    assert_eq!(
        site.fake.docker().containers["etcd"].body["Cmd"],
        json!(["--v=2"])
    );

    // The next look, and the new one goes.
    let host = site.fake.connect().await.unwrap();
    let mut facts = bare_host(&n1());
    facts.containers = host.containers().await.unwrap();
    let view = HostView::Reachable(Box::new(facts));
    site.actual.hosts.insert(n1(), view);
    let back = site.step(HostAction::PutBack { component });
    site.act(&back).await.unwrap();
    assert!(!site.fake.docker().containers.contains_key(kept));
    let runs = (former, "running".to_owned(), json!("always"));
    assert_eq!(policy(&site, "etcd"), runs);
}

/// A container of the name of what is kept, and of another owner.
#[tokio::test]
async fn what_another_owner_calls_like_a_kept_container_stays() {
    let component = Component::Etcd;
    let site = Surveyed::new().await;
    let theirs = FakeContainer::foreign(IMAGE);
    let kept = component.kept().to_owned();
    site.fake.docker().containers.insert(kept.clone(), theirs);
    let running = site.seen().to_owned();
    let components = [component].into();
    let remove = site.step(HostAction::RemoveKept { components });
    site.act(&remove).await.unwrap();
    assert!(site.fake.docker().containers.contains_key(&kept));
    let back = site.step(HostAction::PutBack { component });
    let ended = site.act(&back).await;
    assert!(matches!(ended, Err(StepError::Guard(_))), "{ended:?}");
    let docker = site.fake.docker();
    assert!(docker.containers.contains_key(&kept));
    assert_eq!(docker.containers["etcd"].id, running);
}

/// The claim itself has no guard but its name: whoever holds that keeps the node.
#[tokio::test]
async fn a_claim_that_another_cluster_has_made_meanwhile_is_not_taken() {
    let mut site = Surveyed::new().await;
    (MEANWHILE[0].1)(&site);
    site.remember();
    let claim = Step {
        guards: Vec::new(),
        ..site.step(HostAction::Claim {
            cluster_id: site.saved.cluster_id.clone(),
            cluster_name: site.saved.cluster_name.clone(),
            before: Baseline::default(),
        })
    };
    let ended = site.act(&claim).await;
    let Err(StepError::Guard(why)) = &ended else {
        panic!("{ended:?}");
    };
    assert_eq!(why, "node `n1` was claimed by another cluster");
    assert_eq!(site.node(), site.before);
}

#[tokio::test]
async fn a_step_is_carried_out_where_its_guards_hold() {
    let site = Surveyed::new().await;
    let [remove, replace, clean] = site.steps();
    site.act(&clean).await.unwrap();
    let helpers = || {
        let asked = site.fake.requests();
        let helper = |path: &str| path.ends_with("/create") || path.ends_with("/start");
        let made = asked.iter().filter(|asked| helper(&asked.path));
        let made = made.filter(|asked| asked.target.contains(HELPER));
        made.count()
    };
    assert_eq!(helpers(), 2, "made and started");

    site.act(&replace).await.unwrap();
    let now = site.fake.docker().containers["etcd"].clone();
    assert_ne!(now.id, site.seen());
    assert_eq!(now.state, "running");
    assert_eq!(now.body["Cmd"], json!(["--v=2"]));

    // The survey's container is gone by now, and the one of that name is not the survey's.
    let ended = site.act(&remove).await;
    assert!(matches!(ended, Err(StepError::Guard(_))), "{ended:?}");
    assert!(site.fake.docker().containers.contains_key("etcd"));

    let site = Surveyed::new().await;
    site.act(&site.steps()[0]).await.unwrap();
    assert!(!site.fake.docker().containers.contains_key("etcd"));
    assert!(site.fake.docker().containers.contains_key(CLAIM));
}

/// The steps that the planner guards, of a change and of a removal, on a node that another cluster
/// has claimed since.
#[tokio::test]
async fn no_guarded_step_of_a_plan_touches_a_node_that_another_cluster_has_claimed() {
    let runner = Runner::new(&SimRemote::new(fresh(1)), || [1; 32]);
    let (old, new) = (
        Wish::plain(),
        Wish {
            verbosity: 3,
            ..Wish::plain()
        },
    );
    let (old, new) = (old.intent(), new.intent());
    runner.converge(&Goal::Up(&old)).await.unwrap();
    let mut site = Surveyed::new().await;
    assert_eq!(
        site.saved.cluster_id,
        runner.memory.shell().saved.unwrap().cluster_id,
        "the same seed makes the same cluster"
    );
    (MEANWHILE[0].1)(&site);
    site.remember();
    let mut tried = Vec::new();
    let plans = [
        runner.plan(&Goal::Up(&new)).await.unwrap(),
        runner.plan(&Removal(Some(&old))).await.unwrap(),
    ];
    for plan in plans {
        for step in plan.steps().filter(|step| !step.guards.is_empty()) {
            let title = rke_operator::plan::title(step);
            let ended = site.act(step).await;
            let guarded =
                matches!(&ended, Err(StepError::Guard(why)) if why.contains(MEANWHILE[0].0));
            assert!(guarded, "{title}: {ended:?}");
            site.nothing_was_done(&title);
            tried.push(title);
        }
    }
    for what in ["replace kubelet", "remove etcd", "clean", "release"] {
        let named = tried.iter().any(|title| title.contains(what));
        assert!(named, "{what} is not among {tried:#?}");
    }
}

/// Where nothing answers, nothing is known of etcd, of the API servers and of the nodes.
#[tokio::test(start_paused = true)]
async fn a_guard_of_the_whole_cluster_does_not_hold_where_nothing_answers() {
    let site = Surveyed::new().await;
    let guards = [
        Guard::EtcdStable,
        Guard::QuorumWithout(MemberId(1)),
        Guard::ApiServesWithout(NodeName::from("n2")),
        Guard::AtMostUnavailable {
            most: 1,
            with: n1(),
        },
    ];
    for guard in guards {
        for mut step in site.steps() {
            step.guards = vec![guard.clone()];
            let ended = site.act(&step).await;
            assert!(
                matches!(ended, Err(StepError::Guard(_))),
                "{guard:?}: {ended:?}"
            );
            site.nothing_was_done(&format!("{guard:?}"));
        }
    }
}

/// A look that fails is no proof: the step is tried again while what fails may pass, and then it
/// has failed.
#[tokio::test(start_paused = true)]
async fn a_step_whose_guard_cannot_be_looked_at_is_not_carried_out() {
    let faults: [fn(&mut Faults); 2] = [
        |faults| faults.access = Access::NotRunning,
        |faults| faults.access = Access::Denied,
    ];
    for fault in faults {
        let site = Surveyed::new().await;
        site.fake.faults(fault);
        for step in site.steps() {
            let ended = site.act(&step).await;
            assert!(matches!(ended, Err(StepError::Failed(_))), "{ended:?}");
            site.nothing_was_done("Docker does not answer");
        }
    }
    let site = Surveyed::new().await;
    for step in site.steps() {
        let nowhere = Arc::new(FakeNet::default());
        let ended = site.act_over(nowhere, &step).await;
        assert!(matches!(ended, Err(StepError::Failed(_))), "{ended:?}");
        site.nothing_was_done("the node does not answer");
    }
    // Docker fails in the middle of a run.
    let mut site = Surveyed::new().await;
    let session = site.session(Arc::new(site.fake.dial()));
    let component = Component::Etcd;
    let runs = site.step(HostAction::StartContainer { component });
    site.act_in(&*session, &runs).await.unwrap();
    site.asked = site.fake.requests().len();
    site.fake.faults(|faults| faults.internal_errors = true);
    for step in site.steps() {
        let ended = site.act_in(&*session, &step).await;
        assert!(matches!(ended, Err(StepError::Failed(_))), "{ended:?}");
        site.nothing_was_done("Docker fails");
    }
}

/// A step that is tried again evaluates its guards again.
#[tokio::test(start_paused = true)]
async fn a_guard_is_evaluated_again_before_another_try() {
    let site = Surveyed::new().await;
    site.fake
        .faults(|faults| faults.broken = vec!["kubelet".to_owned()]);
    let step = Step {
        guards: vec![site.guards()[0].clone()],
        ..site.step(HostAction::RunContainer {
            component: Component::Kubelet,
            spec: spec("--v=1"),
        })
    };
    let (events, mut received) = Events::channel(8);
    let (_stopper, stop) = Stopper::new();
    let reporter = Reporter::new(events, StepId { stage: 0, step: 0 });
    let session = site.session(Arc::new(site.fake.dial()));
    let takes_the_node = async {
        let Some(Event::StepProgress { waiting_for, .. }) = received.recv().await else {
            panic!("the first try did not fail");
        };
        let waiting_for = waiting_for.unwrap();
        assert!(waiting_for.starts_with("another try"), "{waiting_for}");
        (MEANWHILE[0].1)(&site);
        // It would start now.
        site.fake.faults(|faults| faults.broken.clear());
    };
    let (ended, ()) = tokio::join!(
        session.act(
            RemoteStep::of(&step).unwrap(),
            site.context(),
            &reporter,
            &stop
        ),
        takes_the_node
    );
    assert!(matches!(ended, Err(StepError::Guard(_))), "{ended:?}");
    assert_eq!(site.fake.docker().containers["kubelet"].state, "created");
}

/// A program says that it does not know a flag: that is the error, and the node is as it was.
#[tokio::test]
async fn flags_are_tried_and_leave_nothing() {
    let site = Surveyed::new().await;
    let specs = BTreeMap::from([(Component::Etcd, *spec("--gone=1"))]);
    let step = site.step(HostAction::TryFlags { specs });
    site.act(&step).await.unwrap();
    assert_eq!(site.node(), site.before);

    let says = "{\"level\":\"info\"}\nflag provided but not defined: -gone\nSee 'etcd --help'.\n";
    site.fake.docker().work = Box::new(|_, _| (2, says.to_owned()));
    let Err(StepError::Failed(error)) = site.act(&step).await else {
        panic!("it does not know the flag");
    };
    let told = error.to_string();
    for word in [
        "`n1`",
        "`etcd`",
        IMAGE,
        "flag provided but not defined: -gone",
    ] {
        assert!(told.contains(word), "no {word} in {told}");
    }
    assert_eq!(error.class(), ErrorClass::User);
    assert_eq!(site.node(), site.before);
}
