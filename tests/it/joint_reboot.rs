//! Nodes are rebooted on request: the product's own runs, on simulated worlds.

use jiff::Timestamp;
use rke_operator::{
    config::Intent,
    converge::{self, Goal, Outcome},
    error::{ErrorClass, Explain},
    facts::NodeFact,
    model::{NodeName, label},
    plan::{Action, Guard, HostAction, Reboot, Step},
};

use crate::{
    joint_nodes::{all, in_this_order, of},
    joint_properties::{block_on, dies, runner, settle},
    plan_properties::Cuts,
    sim::{Cut, World, runner::Runner},
};

const WORKER: u8 = 0;
const CENTRAL: u8 = 3;

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn request(nodes: &[&str], drain: Option<bool>) -> Reboot {
    let nodes = nodes.iter().map(|name| NodeName::from(*name)).collect();
    Reboot::new(nodes, drain, at("2030-01-01T00:00:00Z"))
}

/// The same command once more, an hour later.
async fn again(runner: &Runner, intent: &Intent, nodes: &[&str], now: &str) -> Reboot {
    let names = nodes.iter().map(|name| NodeName::from(*name)).collect();
    let request = Reboot::new(names, None, at(now));
    let goal = Goal::Reboot(&request, intent);
    let survey = converge::survey(&goal, &runner.environment())
        .await
        .unwrap();
    request.going_on(&survey.actual, at(now))
}

async fn cluster() -> (Runner, Intent) {
    let runner = runner(4);
    let intent = of(&[CENTRAL, CENTRAL, WORKER]).intent();
    settle(&runner, &intent).await;
    (runner, intent)
}

/// How often its machine was rebooted.
fn reboots(world: &World, node: &str) -> usize {
    let boot = world.truth.up(&node.into()).unwrap().system.boot.clone();
    boot.unwrap().matches('+').count()
}

fn node(world: &mut World, node: &str) -> NodeFact {
    world.etcd().nodes[&NodeName::from(node)].clone()
}

fn is_as_before(runner: &Runner) {
    runner.remote.world(|world| {
        for name in ["n1", "n2", "n3", "n4"] {
            let node = node(world, name);
            assert!(!node.unschedulable && node.reboot().is_none(), "{node:?}");
        }
    });
}

/// Nothing is away but the one node whose turn it is.
fn one_at_a_time(world: &World, step: &Step) {
    let api = world.truth.cluster.as_ref().unwrap();
    let cordoned = api.nodes.values().filter(|node| node.unschedulable);
    assert!(cordoned.count() <= 1, "{step:?}");
}

#[test]
fn nodes_reboot_one_after_the_other_and_serve_again_before_the_next() {
    block_on(async {
        let (runner, intent) = cluster().await;
        let request = request(&["n4", "n1"], None);
        let goal = Goal::Reboot(&request, &intent);
        let plan = runner.plan(&goal).await.unwrap();
        in_this_order(
            &all(&plan),
            &[
                "n4: record the request to reboot",
                "n1: record the request to reboot",
                "n4: cordon",
                "n4: reboot",
                "n4: wait for kubelet to be healthy",
                "n4: wait for the node to be Ready",
                "n4: record the reboot and uncordon",
                "n1: cordon",
                "n1: reboot",
                "n1: wait for etcd to be healthy",
                "n1: record the reboot and uncordon",
            ],
        );
        assert!(plan.disruptions().count() >= 2, "both ask for consent");
        let reboot = |step: &&Step| {
            let on = step.action.on_host();
            on.is_some_and(|(node, action)| {
                node.0 == "n1" && matches!(action, HostAction::Reboot { .. })
            })
        };
        let step = plan.steps().find(reboot).unwrap();
        let has = |of: fn(&Guard) -> bool| step.guards.iter().any(of);
        assert!(has(|it| matches!(it, Guard::EtcdStable)), "{step:?}");
        assert!(has(|it| matches!(it, Guard::QuorumWithout(_))), "{step:?}");
        assert!(
            has(|it| matches!(it, Guard::ApiServesWithout(_))),
            "{step:?}"
        );
        assert!(
            has(|it| matches!(it, Guard::AtMostUnavailable { .. })),
            "{step:?}"
        );
        runner
            .remote
            .watch(|world, step| one_at_a_time(world, step));
        let outcome = runner.converge(&goal).await;
        assert!(
            matches!(outcome, Ok(Outcome::Converged { changed: true, .. })),
            "{outcome:?}"
        );
        is_as_before(&runner);
        runner.remote.world(|world| {
            let times = ["n1", "n2", "n3", "n4"].map(|name| reboots(world, name));
            assert_eq!(times, [1, 0, 0, 1]);
        });
        // The same request once more does nothing; another one reboots again.
        let outcome = runner.converge(&goal).await;
        assert!(
            matches!(outcome, Ok(Outcome::Converged { changed: false, .. })),
            "{outcome:?}"
        );
        let next = again(&runner, &intent, &["n4"], "2030-01-01T01:00:00Z").await;
        runner
            .converge(&Goal::Reboot(&next, &intent))
            .await
            .unwrap();
        runner
            .remote
            .world(|world| assert_eq!(reboots(world, "n4"), 2));
        let plan = runner.plan(&Goal::Up(&intent)).await.unwrap();
        assert!(plan.is_empty(), "{plan:?}");
    });
}

/// Killed anywhere, the same command goes on, and no machine is rebooted twice.
#[test]
fn wherever_it_is_cut_the_same_command_goes_on_and_reboots_nothing_twice() {
    let cuts = Cuts::default();
    block_on(async {
        for after in 0..48 {
            let (runner, intent) = cluster().await;
            let nodes = ["n4", "n1", "n2"];
            let first = request(&nodes, None);
            let torn = [0, 1, 2][after % 3];
            let cut = Cut { after, torn };
            cuts.count(dies(&runner, &Goal::Reboot(&first, &intent), cut).await);
            let next = again(&runner, &intent, &nodes, "2030-01-01T01:00:00Z").await;
            // Cut after the last write there is nothing to go on with: the command is another request.
            let is_finished = runner.remote.world(|world| {
                let mut nodes = nodes.iter();
                nodes.all(|name| node(world, name).was_rebooted_by(&first.id))
            });
            if is_finished {
                is_as_before(&runner);
                continue;
            }
            runner
                .remote
                .watch(|world, step| one_at_a_time(world, step));
            let outcome = runner.converge(&Goal::Reboot(&next, &intent)).await;
            assert!(
                matches!(outcome, Ok(Outcome::Converged { .. })),
                "{after}: {outcome:?}"
            );
            is_as_before(&runner);
            runner.remote.world(|world| {
                let times = ["n1", "n2", "n3", "n4"].map(|name| reboots(world, name));
                assert_eq!(times, [1, 1, 0, 1], "{after} {torn}");
            });
        }
    });
    cuts.are_real();
}

/// A request for two nodes that was cut off while the first one was away.
async fn cut_off(runner: &Runner, intent: &Intent) -> Reboot {
    let request = request(&["n4", "n1"], None);
    let cut = Cut { after: 3, torn: 0 };
    assert!(dies(runner, &Goal::Reboot(&request, intent), cut).await);
    request
}

/// `up` takes back what a run that was cut off has left; then the command begins again.
#[test]
fn up_ends_a_request_that_was_cut_off() {
    block_on(async {
        let (runner, intent) = cluster().await;
        let first = cut_off(&runner, &intent).await;
        settle(&runner, &intent).await;
        is_as_before(&runner);
        let later = again(&runner, &intent, &["n4"], "2030-01-01T01:00:00Z").await;
        assert_ne!(later.id, first.id);
    });
}

#[test]
fn a_request_of_yesterday_is_begun_again() {
    block_on(async {
        let (runner, intent) = cluster().await;
        let first = cut_off(&runner, &intent).await;
        let soon = again(&runner, &intent, &["n1"], "2030-01-01T11:00:00Z").await;
        assert_eq!(soon.id, first.id);
        let late = again(&runner, &intent, &["n1"], "2030-01-02T00:00:00Z").await;
        assert_ne!(late.id, first.id);
    });
}

#[test]
fn the_cordon_of_a_person_stays_and_a_drain_is_asked_for() {
    block_on(async {
        let (runner, intent) = cluster().await;
        runner.remote.world(|world| {
            let node = world.etcd().nodes.get_mut(&NodeName::from("n4"));
            node.unwrap().unschedulable = true;
        });
        let (plain, drained) = (request(&["n4"], None), request(&["n4"], Some(true)));
        let drains = |plan: &rke_operator::plan::Plan| all(plan).contains(&"n4: drain".to_owned());
        let plan = runner.plan(&Goal::Reboot(&drained, &intent)).await.unwrap();
        assert!(drains(&plan), "{plan:?}");
        let goal = Goal::Reboot(&plain, &intent);
        let plan = runner.plan(&goal).await.unwrap();
        assert!(
            !drains(&plan) && !all(&plan).contains(&"n4: cordon".to_owned()),
            "{plan:?}"
        );
        runner.converge(&goal).await.unwrap();
        runner.remote.world(|world| {
            let node = node(world, "n4");
            assert!(node.unschedulable && !node.annotations.contains_key(label::CORDONED));
            assert_eq!(reboots(world, "n4"), 1);
        });
    });
}

/// A member is not rebooted while another one is down.
#[test]
fn a_node_without_which_etcd_would_stop_is_left_and_the_run_is_degraded() {
    block_on(async {
        let (runner, intent) = cluster().await;
        runner.switch_off("n2");
        let request = request(&["n1"], None);
        let outcome = runner
            .converge(&Goal::Reboot(&request, &intent))
            .await
            .unwrap();
        let Outcome::Degraded { left, .. } = outcome else {
            panic!("{outcome:?}");
        };
        let why = &left[&NodeName::from("n1")].why;
        assert!(why.starts_with("is not rebooted: "), "{why}");
        runner
            .remote
            .world(|world| assert_eq!(reboots(world, "n1"), 0));
    });
}

#[test]
fn a_node_that_is_not_in_the_cluster_or_does_not_answer_is_refused_before_anything_is_done() {
    block_on(async {
        let (runner, intent) = cluster().await;
        runner.remote.watch(|_, step| {
            assert!(matches!(step.action, Action::Local(_)), "{step:?}");
        });
        let unknown = request(&["n4", "n9"], None);
        let error = runner
            .converge(&Goal::Reboot(&unknown, &intent))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "node `n9` is not in the cluster");
        assert_eq!(error.class(), ErrorClass::User);
        runner.switch_off("n4");
        let silent = request(&["n4"], None);
        let error = runner
            .converge(&Goal::Reboot(&silent, &intent))
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("node `n4` cannot be rebooted over SSH: "),
            "{text}"
        );
    });
}
