//! What a run asks for and how it ends: the product's own `converge` on a simulated node (T1).

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{FutureExt, future::BoxFuture};
use rke_operator::{
    apply::{
        step::Warning,
        stop::{StopCause, Stopper},
    },
    config::Intent,
    converge::{Consent, Convergence, Declined, Goal, Outcome, Purpose, Removal},
    error::ErrorClass,
    etcd::{Alarm, AlarmKind, MemberId},
    facts::{Barrier, ContainerState, HostFacts, HostView, NoTraffic},
    model::{NodeName, PeerPort, path},
    plan::{Action, ClusterAction, HostAction, Plan, disruptions, title},
    status::Status,
};
use serde_json::Value;

use crate::{
    plan_properties::fresh,
    sim::{
        World,
        generate::names,
        remote::{SimFailure, SimRemote, Turn},
        runner::Runner,
        wish::Wish,
    },
};

fn runner() -> Runner {
    Runner::new(&SimRemote::new(fresh(1)), || [1; 32])
}

async fn settled(intent: &Intent) -> Runner {
    let runner = runner();
    let outcome = runner.converge(&Goal::Up(intent)).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Converged { changed: true, .. }),
        "{outcome:?}"
    );
    runner
}

/// Another verbosity of API server, scheduler and kubelet.
fn changed() -> Intent {
    let wish = Wish {
        verbosity: 3,
        ..Wish::plain()
    };
    wish.intent()
}

fn node(world: &mut World) -> &mut HostFacts {
    match world.truth.hosts.get_mut(&names(1)[0]) {
        Some(HostView::Reachable(facts)) => facts,
        Some(HostView::Unreachable(_)) | None => panic!("the node is there"),
    }
}

type Meanwhile = Box<dyn Fn(usize) + Send + Sync>;

/// Gives these answers in turn, and keeps what it was asked for. While it thinks about an answer
/// something may happen.
struct Answers {
    left: Mutex<VecDeque<bool>>,
    asked: Mutex<Vec<Vec<String>>>,
    meanwhile: Meanwhile,
}

impl Answers {
    fn new(answers: &[bool], meanwhile: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self {
            left: Mutex::new(answers.iter().copied().collect()),
            asked: Mutex::default(),
            meanwhile: Box::new(meanwhile),
        }
    }

    fn asked(&self) -> Vec<Vec<String>> {
        self.asked.lock().unwrap().clone()
    }
}

impl Consent for Answers {
    type Refusal = Declined;

    fn ask<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<(), Declined>> {
        let mut asked = self.asked.lock().unwrap();
        (self.meanwhile)(asked.len());
        asked.push(disruptions(plan));
        let answer = self.left.lock().unwrap().pop_front();
        let answer = answer.expect("it is not asked that often");
        futures::future::ready(answer.then_some(()).ok_or(Declined)).boxed()
    }
}

/// Presses Ctrl-C at the question.
struct Leaves(Stopper);

impl Consent for Leaves {
    type Refusal = Declined;

    fn ask<'a>(&'a self, _: &'a Plan) -> BoxFuture<'a, Result<(), Declined>> {
        self.0.stop(StopCause::Signal);
        futures::future::ready(Err(Declined)).boxed()
    }
}

/// U10: that is no "no", and the exit code is that of a stop.
#[tokio::test]
async fn a_stop_at_the_question_is_a_stop() {
    let runner = settled(&Wish::plain().intent()).await;
    let intent = changed();
    stops_at_the_question(&runner, &Goal::Up(&intent)).await;
    stops_at_the_question(&runner, &Removal(Some(&intent))).await;
}

async fn stops_at_the_question(runner: &Runner, purpose: &impl Purpose<Outcome: Debug>) {
    let (stopper, stop) = Stopper::new();
    let before = runner.remote.world(|world| world.clone());
    let consent = Leaves(stopper);
    let ended = runner.converge_until(purpose, &consent, &stop).await;
    let stopped = matches!(ended, Ok(Convergence::Stopped(StopCause::Signal)));
    assert!(stopped, "{ended:?}");
    assert!(runner.remote.world(|world| *world == before));
}

#[tokio::test]
async fn nothing_is_done_without_consent() {
    let (old, new) = (Wish::plain().intent(), changed());
    let up = Goal::Up(&new);
    does_nothing_without_consent(&runner(), &up).await;
    does_nothing_without_consent(&settled(&old).await, &up).await;
    does_nothing_without_consent(&settled(&old).await, &Removal(Some(&old))).await;
}

async fn does_nothing_without_consent(runner: &Runner, purpose: &impl Purpose<Outcome: Debug>) {
    let would = disruptions(&runner.plan(purpose).await.unwrap());
    assert!(!would.is_empty());
    let before = (
        runner.remote.world(|world| world.clone()),
        runner.memory.shell(),
    );
    let consent = Answers::new(&[false], |_| ());
    let ended = runner.converge_with(purpose, &consent).await.unwrap();
    let Convergence::ConsentRefused {
        refusal: Declined,
        disruptions,
        changed: false,
    } = ended
    else {
        panic!("{ended:?}");
    };
    assert_eq!(disruptions, would);
    assert_eq!(consent.asked(), [would]);
    let after = (
        runner.remote.world(|world| world.clone()),
        runner.memory.shell(),
    );
    assert_eq!(after, before);
}

/// Somebody makes the kubelet's container anew, so that the guard of its replacement does not hold
/// and another iteration replaces it.
fn kubelet_is_remade(remote: &SimRemote) {
    remote.world(|world| {
        let kubelet = node(world).containers.get_mut("kubelet").unwrap();
        "made by someone else".clone_into(&mut kubelet.id);
    });
}

#[tokio::test]
async fn what_was_agreed_to_is_not_asked_again_in_a_later_iteration() {
    let runner = settled(&Wish::plain().intent()).await;
    let new = changed();
    let remote = runner.remote.clone();
    let consent = Answers::new(&[true], move |_| kubelet_is_remade(&remote));
    let replaced = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&replaced);
    runner.remote.watch(move |_, step| {
        if title(step) == "replace kubelet" {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let goal = Goal::Up(&new);
    let ended = runner.converge_with(&goal, &consent).await.unwrap();
    assert!(
        matches!(
            ended,
            Convergence::Settled(Outcome::Converged { changed: true, .. })
        ),
        "{ended:?}"
    );
    assert_eq!(replaced.load(Ordering::SeqCst), 1);
    let [asked] = &consent.asked()[..] else {
        panic!("{:?}", consent.asked());
    };
    assert!(asked.iter().any(|what| what.contains("kubelet restarts")));
}

/// A node with an etcd member is cleaned in a later iteration. The first plan already lists what the cleaning disrupts, so
/// consent is requested once.
#[tokio::test]
async fn a_member_that_leaves_needs_consent_once() {
    let wish = crate::status::of(&[3, 3, 3, 3]);
    let runner = crate::status::made(&wish, 5).await;
    let smaller = crate::status::of(&[3, 3, 3]);
    let consent = Answers::new(&[true], |_| ());
    let intent = smaller.intent();
    let outcome = runner.converge_with(&Goal::Up(&intent), &consent).await;
    let Ok(Convergence::Settled(Outcome::Converged { changed: true, .. })) = outcome else {
        panic!("{outcome:?}");
    };
    let [asked] = &consent.asked()[..] else {
        panic!("{:?}", consent.asked());
    };
    let said = asked.iter().any(|what| {
        what.contains("n5: the node is cleaned: its copy of etcd's data")
            && what.contains("this restarts containerd")
    });
    assert!(said, "{asked:?}");
    assert!(runner.plan(&Goal::Up(&intent)).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_later_iteration_disturbs_besides_is_asked_for() {
    for agrees in [true, false] {
        let runner = settled(&Wish::plain().intent()).await;
        let new = changed();
        let remote = runner.remote.clone();
        let asked_again = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&asked_again);
        let consent = Answers::new(&[true, agrees], move |asked| {
            if asked == 0 {
                kubelet_is_remade(&remote);
                remote.world(|world| {
                    let files = node(world).files.as_mut().unwrap();
                    files.remove(path::CONTAINERD_DROP_IN).unwrap();
                });
            } else {
                *seen.lock().unwrap() = Some(remote.world(|world| world.clone()));
            }
        });
        let goal = Goal::Up(&new);
        let outcome = runner.converge_with(&goal, &consent).await.unwrap();
        let asked = consent.asked();
        let [first, second] = &asked[..] else {
            panic!("{asked:?}");
        };
        let names = |all: &[String], what: &str| all.iter().any(|one| one.contains(what));
        assert!(!names(first, "containerd"), "{first:?}");
        assert!(names(second, "containerd"), "{second:?}");
        let world = runner.remote.world(|world| world.clone());
        let then = asked_again.lock().unwrap().take().unwrap();
        match outcome {
            Convergence::Settled(Outcome::Converged { changed, .. }) => {
                assert!(agrees && changed);
                assert!(runner.plan(&goal).await.unwrap().is_empty());
            }
            Convergence::ConsentRefused {
                refusal: Declined,
                disruptions,
                changed,
            } => {
                assert!(!agrees);
                assert!(changed, "the API server was replaced");
                assert_eq!(&disruptions, second);
                assert!(world == then, "something was done after the refusal");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Workloads of the add-ons that never become available, so that each wait ends with a warning; returns how often each
/// is waited for.
fn nothing_becomes_available(runner: &Runner) -> Arc<Mutex<BTreeMap<String, usize>>> {
    runner.remote.script(|_, _, step| match &step.action {
        Action::Cluster(ClusterAction::AwaitAddon { addon }) => Turn::Warn(Warning {
            message: format!("add-on `{addon}` is not available yet: no endpoint"),
            hints: Vec::new(),
            degrades: false,
        }),
        _ => Turn::Go,
    });
    nothing_stays_available(runner)
}

/// The same where they become available for a moment: each wait ends well.
fn nothing_stays_available(runner: &Runner) -> Arc<Mutex<BTreeMap<String, usize>>> {
    let waits: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let count = Arc::clone(&waits);
    runner.remote.watch(move |world, step| {
        if let Action::Cluster(ClusterAction::AwaitAddon { addon }) = &step.action {
            *count.lock().unwrap().entry(addon.clone()).or_default() += 1;
            for object in world.etcd().objects.values_mut() {
                object["status"] = Value::Null;
            }
        }
    });
    waits
}

/// A slow add-on is a warning: the run does not wait for it once more, and does not fail either.
#[tokio::test]
async fn a_run_that_changed_something_ends_where_only_waits_are_left() {
    let runner = runner();
    let waits = nothing_becomes_available(&runner);
    let intent = Wish::plain().intent();
    let goal = Goal::Up(&intent);
    let outcome = runner.converge(&goal).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Converged { changed: true, .. }),
        "{outcome:?}"
    );
    let waits = waits.lock().unwrap().clone();
    assert!(!waits.is_empty());
    assert!(waits.values().all(|times| *times == 1), "{waits:?}");
    let plan = runner.plan(&goal).await.unwrap();
    assert!(!plan.is_empty() && plan.only_waits());
}

/// What comes and goes is not waited for without end.
#[tokio::test]
async fn a_run_ends_though_what_it_waits_for_comes_and_goes() {
    let runner = runner();
    let waits = nothing_stays_available(&runner);
    let intent = Wish::plain().intent();
    let outcome = runner.converge(&Goal::Up(&intent)).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Converged { changed: true, .. }),
        "{outcome:?}"
    );
    let waits = waits.lock().unwrap().clone();
    assert!(!waits.is_empty());
    assert!(waits.values().all(|times| *times == 3), "{waits:?}");
}

/// What a run sees only once the API answers again is waited for, too: a cluster with a node that
/// is not Ready is not called up.
#[tokio::test]
async fn a_wait_that_shows_in_a_later_survey_is_waited_for() {
    let intent = Wish::plain().intent();
    let runner = settled(&intent).await;
    runner.remote.world(|world| {
        for node in world.etcd().nodes.values_mut() {
            node.ready = false;
        }
        let containers = &mut node(world).containers;
        let api = containers.get_mut("kube-apiserver").unwrap();
        api.state = ContainerState::Exited(1);
    });
    let goal = Goal::Up(&intent);
    let outcome = runner.converge(&goal).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Converged { changed: true, .. }),
        "{outcome:?}"
    );
    let plan = runner.plan(&goal).await.unwrap();
    assert!(plan.is_empty(), "{}", rke_operator::plan::render(&plan));
}

/// The first plan of a run is waited for, and a run that only waited changed nothing.
#[tokio::test]
async fn a_run_that_only_waits_waits_once_and_changes_nothing() {
    let runner = runner();
    let waits = nothing_becomes_available(&runner);
    let intent = Wish::plain().intent();
    let goal = Goal::Up(&intent);
    runner.converge(&goal).await.unwrap();
    waits.lock().unwrap().clear();
    let before = runner.memory.shell();
    let outcome = runner.converge(&goal).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Converged { changed: false, .. }),
        "{outcome:?}"
    );
    let waits = waits.lock().unwrap().clone();
    assert!(!waits.is_empty());
    assert!(waits.values().all(|times| *times == 1), "{waits:?}");
    assert_eq!(runner.memory.shell(), before);
}

/// A flag that the new program does not know: what runs stays as it is.
#[tokio::test]
async fn flags_that_do_not_suit_change_nothing_that_runs() {
    let runner = settled(&Wish::plain().intent()).await;
    let containers = |world: &World| match &world.truth.hosts[&names(1)[0]] {
        HostView::Reachable(facts) => facts.containers.clone(),
        HostView::Unreachable(_) => panic!("the node is there"),
    };
    let before = runner.remote.world(|world| containers(world));
    runner
        .remote
        .script(|_, _, step| match step.action.on_host() {
            Some((_, HostAction::TryFlags { .. })) => {
                Turn::Fail(SimFailure::new(ErrorClass::User, "unknown flag"))
            }
            Some(_) | None => Turn::Go,
        });
    let ended = runner.converge(&Goal::Up(&changed())).await;
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(runner.remote.world(|world| containers(world)), before);
}

/// What a change waits for is no success: the run ends degraded, and says why.
#[tokio::test]
async fn a_change_that_an_alarm_holds_up_is_not_called_done() {
    let plain = Wish::plain().intent();
    let runner = settled(&plain).await;
    runner.remote.world(|world| {
        let alarm = Alarm {
            member: MemberId(0),
            kind: AlarmKind::NoSpace,
        };
        world.alarms.insert(alarm);
    });
    let ended = runner.converge(&Goal::Up(&changed())).await.unwrap();
    let Outcome::Degraded { left, changed, .. } = ended else {
        panic!("{ended:?}");
    };
    assert!(!changed, "nothing is replaced while etcd has an alarm");
    let why = &left[&names(1)[0]].why;
    assert!(
        why.contains("NOSPACE") && why.contains("not replaced yet"),
        "{why}"
    );
    // Whoever wants no change waits for none.
    for goal in [Goal::Up(&plain), Goal::Heal(&self::changed())] {
        let ended = runner.converge(&goal).await.unwrap();
        assert!(matches!(ended, Outcome::Converged { .. }), "{ended:?}");
    }
}

/// Names and the network of pods are part of "up": without them the run ends degraded, and says what is missing.
#[tokio::test]
async fn a_cluster_whose_dns_is_missing_is_degraded() {
    let runner = runner();
    for degrades in [true, false] {
        runner.remote.script(move |_, _, step| match &step.action {
            Action::Cluster(ClusterAction::AwaitAddon { addon }) if addon == "coredns" => {
                Turn::Warn(Warning {
                    message: "add-on `coredns` is not available yet: no endpoint".to_owned(),
                    hints: Vec::new(),
                    degrades,
                })
            }
            _ => Turn::Go,
        });
        let ended = runner.converge(&Goal::Up(&changed())).await.unwrap();
        match ended {
            Outcome::Degraded { left, warnings, .. } if degrades => {
                assert!(left.is_empty(), "no node is to blame: {left:?}");
                assert!(warnings[0].message.contains("no endpoint"), "{warnings:?}");
            }
            Outcome::Converged { .. } if !degrades => {}
            other => panic!("{degrades}: {other:?}"),
        }
    }
}

/// Packets of pods that no node lets through are found in no log: the run says between which nodes, and what lets them in.
#[tokio::test]
async fn a_cluster_whose_nodes_do_not_reach_each_others_pods_is_degraded() {
    let wish = crate::status::five();
    let runner = crate::status::made(&wish, 5).await;
    let pair = |from: &str, to: &str| NoTraffic {
        from: from.into(),
        to: to.into(),
        pod: PeerPort {
            address: "10.42.1.2".to_owned(),
            port: 53,
        },
        how: Barrier::Silent,
    };
    let broken = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(from, to)| pair(from, to)).collect();
        runner.remote.world(|world| {
            world.truth.cluster.as_mut().unwrap().no_traffic = pairs;
        });
    };
    broken(&[("n1", "n2"), ("n1", "n3"), ("n4", "n2")]);
    let ended = runner.converge(&Goal::Up(&wish.intent())).await.unwrap();
    let Outcome::Degraded { left, warnings, .. } = ended else {
        panic!("{ended:?}");
    };
    assert!(left.is_empty(), "no node is left out: {left:?}");
    let [first, second] = warnings.as_slice() else {
        panic!("{warnings:?}");
    };
    for word in ["`n1`", "`n2`", "`n3`", "10.42.1.2/53", "nothing comes back"] {
        assert!(first.message.contains(word), "{first:?}");
    }
    assert!(first.hints[0].contains("8472/udp"), "{first:?}");
    assert!(second.message.contains("`n4`"), "{second:?}");

    // What is wrong with a node says it all: that it is not Ready, or that it is off, which the API does not know yet.
    broken(&[("n1", "n2")]);
    let n2_is_ready = |ready: bool| {
        runner.remote.world(|world| {
            let cluster = world.truth.cluster.as_mut().unwrap();
            cluster.nodes.get_mut(&NodeName::from("n2")).unwrap().ready = ready;
        });
    };
    let blamed = async || {
        let seen = crate::status::seen(&runner, &wish).await;
        let told = Status::of(&seen.seen()).problems;
        told.iter().any(|it| it.message.contains("reach pods"))
    };
    assert!(blamed().await);
    n2_is_ready(false);
    assert!(!blamed().await);
    n2_is_ready(true);
    assert!(blamed().await);
    runner.remote.kill("n2");
    n2_is_ready(true);
    assert!(!blamed().await);
}
