//! Nodes that come and go by an edit of the config alone: the product's own runs, on simulated worlds.

use std::collections::BTreeSet;

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use rke_operator::{
    converge::Goal,
    error::{ErrorClass, Explain},
    facts::{ContainerState, HostView},
    model::{CLAIM, Component, NodeName, Role},
    plan::{self, Guard, HostAction, Plan},
};

use crate::{
    joint_properties::{
        block_on, cut, dies, no_longer_watched, order, runner, serves_all_the_while, settle,
    },
    plan_properties::{Cuts, given_back},
    sim::{Cut, World, runner::Runner, wish::Wish},
};

pub(crate) fn of(masks: &[u8]) -> Wish {
    Wish {
        masks: masks.to_vec(),
        ..Wish::plain()
    }
}

/// Who is a node, a member of etcd, a part of the inventory, is what the config says; and what it does
/// not name is as it was before anybody built on it.
pub(crate) fn is_as_the_config_says(runner: &Runner, wish: &Wish, bare: &World) {
    let intent = wish.intent();
    let saved = runner.memory.shell().saved.unwrap();
    let named: BTreeSet<&NodeName> = intent.nodes.keys().collect();
    assert_eq!(saved.inventory.keys().collect::<BTreeSet<_>>(), named);
    runner.remote.world(|world| {
        let nodes = &world.truth.cluster.as_ref().unwrap().nodes;
        assert_eq!(nodes.keys().collect::<BTreeSet<_>>(), named);
        let members: BTreeSet<&NodeName> =
            intent.with_role(Role::Etcd).map(|(name, _)| name).collect();
        assert!(world.learners.is_empty(), "{:?}", world.learners);
        let there = &world.members[&saved.cluster_id.0];
        assert_eq!(there.iter().collect::<BTreeSet<_>>(), members);
        for name in bare.truth.hosts.keys().filter(|name| !named.contains(name)) {
            let only = |world: &World| {
                let mut world = world.clone();
                world.truth.hosts.retain(|other, _| other == name);
                world
            };
            given_back(&only(bare), &only(world), false);
        }
    });
}

pub(crate) async fn titles(runner: &Runner, wish: &Wish) -> Vec<String> {
    let plan = runner.plan(&Goal::Up(&wish.intent())).await.unwrap();
    all(&plan)
}

pub(crate) fn all(plan: &Plan) -> Vec<String> {
    let steps = plan.steps();
    steps
        .map(|step| format!("{}: {}", step.target(), plan::title(step)))
        .collect()
}

/// The places of these steps in the plan, which must be in this order.
pub(crate) fn in_this_order(plan: &[String], wanted: &[&str]) {
    let mut from = 0;
    for step in wanted {
        let at = plan[from..].iter().position(|there| there == step);
        let at = at.unwrap_or_else(|| panic!("`{step}` is not in its place: {plan:#?}"));
        from += at + 1;
    }
}

/// Rules 1, 4 and 21 of many nodes: a member votes before any API server is told of it, and those
/// are told one after the other.
#[test]
fn members_join_one_after_the_other_and_then_the_api_servers_learn_of_them() {
    block_on(async {
        let runner = runner(4);
        let (small, large) = (of(&[2]), of(&[2, 3, 1]));
        settle(&runner, &small.intent()).await;
        let plan = titles(&runner, &large).await;
        in_this_order(
            &plan,
            &[
                "n3: join etcd",
                "n4: join etcd",
                "n1: replace kube-apiserver",
                "n2: replace kube-apiserver",
            ],
        );
        in_this_order(&plan, &["n3: join etcd", "n3: run kube-apiserver"]);
        let etcd = |step: &&String| step.contains("replace etcd") || step.contains("run etcd");
        assert_eq!(plan.iter().find(etcd), None, "{plan:#?}");
        settle(&runner, &large.intent()).await;
    });
}

/// Rules 5 and 19: nobody relies on it any more when it goes, and its pods went first.
#[test]
fn a_node_that_left_the_config_is_drained_removed_and_cleaned() {
    block_on(async {
        let runner = runner(5);
        let bare = runner.remote.world(|world| world.clone());
        settle(&runner, &of(&[3, 3, 3, 0]).intent()).await;
        let mut less = of(&[3, 3, 3, 0]);
        less.without = vec![2];
        let plan = titles(&runner, &less).await;
        let member = plan
            .iter()
            .find(|step| step.starts_with("n3: remove member"));
        in_this_order(
            &plan,
            &[
                "n5: reload nginx-proxy",
                "n1: replace kube-apiserver",
                "n3: drain",
                member.unwrap(),
                "n3: remove kubelet",
                "n3: delete the Node object",
            ],
        );
        settle(&runner, &less.intent()).await;
        is_as_the_config_says(&runner, &less, &bare);
        // It may come again, as a new one.
        let again = of(&[3, 3, 3, 0]);
        let plan = titles(&runner, &again).await;
        assert!(plan.contains(&"n3: join etcd".to_owned()), "{plan:#?}");
        settle(&runner, &again.intent()).await;
        is_as_the_config_says(&runner, &again, &bare);
    });
}

/// The wrong file, and an edit that takes too much: nothing is done.
#[test]
fn too_much_does_not_leave_at_once() {
    block_on(async {
        let runner = runner(5);
        settle(&runner, &of(&[3, 3, 0, 0]).intent()).await;
        let before = runner.remote.world(|world| world.clone());
        for (without, why) in [
            (vec![1, 2], "2 of 3 members of etcd would leave"),
            (vec![1, 3], "more than a third of the 5 nodes"),
        ] {
            let mut less = of(&[3, 3, 0, 0]);
            less.without = without;
            let error = runner
                .converge(&Goal::Up(&less.intent()))
                .await
                .unwrap_err();
            assert_eq!(error.class(), ErrorClass::User);
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(runner.remote.world(|world| *world == before));
    });
}

fn cases() -> ProptestConfig {
    let regressions = FileFailurePersistence::Direct("tests/it/joint_nodes.regressions");
    ProptestConfig {
        cases: (ProptestConfig::default().cases / 21).max(1),
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::default()
    }
}

fn masks(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..4u8, 0..most)
}

/// From one cluster to a larger one. True if the run was cut.
async fn comes(first: &[u8], more: &[u8], order: &[u8], cut: Cut) -> bool {
    let (small, grown) = (of(first), of(&[first, more].concat()));
    let runner = runner(grown.nodes());
    let bare = runner.remote.world(|world| world.clone());
    runner.remote.order(order);
    settle(&runner, &small.intent()).await;
    serves_all_the_while(&runner);
    let goal = grown.intent();
    let died = dies(&runner, &Goal::Up(&goal), cut).await;
    settle(&runner, &goal).await;
    no_longer_watched(&runner);
    is_as_the_config_says(&runner, &grown, &bare);
    died
}

/// All components of a cluster are removed, as an interrupted removal or a person does it: members that joined start with
/// their data as those do that were there from the beginning, or etcd has no quorum again.
#[test]
fn a_cluster_that_grew_comes_back_when_its_containers_are_gone() {
    block_on(async {
        let (small, grown) = (of(&[]), of(&[3, 3, 3]));
        let runner = runner(grown.nodes());
        let bare = runner.remote.world(|world| world.clone());
        settle(&runner, &small.intent()).await;
        settle(&runner, &grown.intent()).await;
        let first = runner.memory.shell().saved.unwrap().etcd_bootstrap;
        assert_eq!(first.len(), 1, "the others joined: {first:?}");
        runner.remote.world(|world| {
            for view in world.truth.hosts.values_mut() {
                let HostView::Reachable(facts) = view else {
                    panic!("every node answers");
                };
                facts.containers.retain(|name, _| name == CLAIM);
            }
        });
        // An etcd member that starts without a quorum serves no client, so all members start before any is queried.
        let goal = grown.intent();
        let plan = runner.plan(&Goal::Up(&goal)).await.unwrap();
        let started = plan.steps().filter_map(|step| match step.action.on_host() {
            Some((
                node,
                HostAction::RunContainer {
                    component: Component::Etcd,
                    ..
                },
            )) => Some(node),
            _ => None,
        });
        assert_eq!(started.count(), goal.nodes.len(), "{plan:?}");
        settle(&runner, &goal).await;
        is_as_the_config_says(&runner, &grown, &bare);
    });
}

/// One node after the other goes, if it may. Which of the runs were cut.
async fn go(masks: &[u8], leavers: &[usize], order: &[u8], cut: Cut) -> Vec<bool> {
    let mut now = of(masks);
    let runner = runner(now.nodes());
    let bare = runner.remote.world(|world| world.clone());
    runner.remote.order(order);
    settle(&runner, &now.intent()).await;
    let mut died = Vec::new();
    for leaver in leavers {
        let leaver = leaver % now.nodes();
        // One that is gone has nothing to do that could be cut.
        if now.without.contains(&leaver) {
            continue;
        }
        let mut less = now.clone();
        less.without.push(leaver);
        let Some(goal) = less.checked() else {
            continue;
        };
        if runner.would(&Goal::Up(&goal)).await.is_err() {
            continue;
        }
        serves_all_the_while(&runner);
        died.push(dies(&runner, &Goal::Up(&goal), cut).await);
        settle(&runner, &goal).await;
        no_longer_watched(&runner);
        is_as_the_config_says(&runner, &less, &bare);
        now = less;
    }
    died
}

/// Cut off in any step: what has a spare serves all the while, and in the end everything is as the config says.
#[test]
fn nodes_come_wherever_it_is_cut() {
    let cuts = Cuts::default();
    let run = |(first, more, order, cut): (Vec<u8>, Vec<u8>, Vec<u8>, Cut)| {
        let died = block_on(comes(&first, &more, &order, cut));
        if !more.is_empty() {
            cuts.count(died);
        }
        Ok(())
    };
    let strategy = (masks(4), masks(4), order(), cut());
    TestRunner::new(cases()).run(&strategy, run).unwrap();
    cuts.are_real();
}

/// The same holds.
#[test]
fn nodes_go_wherever_it_is_cut() {
    let cuts = Cuts::default();
    let run = |(masks, leavers, order, cut): (Vec<u8>, Vec<usize>, Vec<u8>, Cut)| {
        let died = block_on(go(&masks, &leavers, &order, cut));
        for died in died {
            cuts.count(died);
        }
        Ok(())
    };
    let leavers = prop::collection::vec(any::<usize>(), 1..3);
    let strategy = (masks(7), leavers, order(), cut());
    TestRunner::new(cases()).run(&strategy, run).unwrap();
    cuts.are_real();
}

/// What failed once, of what was generated.
#[test]
fn nodes_come_and_go_where_it_was_cut_once() {
    let cut = |after| Cut { after, torn: 106 };
    block_on(async {
        let order = [21, 3, 158, 26, 88, 30, 138, 223, 208, 50, 121, 174];
        go(&[1, 1], &[2], &order, cut(5_797_105_041_537_778_266)).await;
        let order = [234, 100, 53, 37, 172, 73, 20, 108, 224, 38, 163, 182];
        comes(&[1], &[3], &order, cut(17_422_113_866_329_810_402)).await;
        go(&[1, 3], &[2], &order, cut(17_518_012_564_111_237_650)).await;
    });
}

/// Rule 6: who may go is a matter of etcd's voters. While another one is away nobody leaves; what is away
/// is put right first.
#[test]
fn nobody_leaves_while_etcd_would_not_serve_without_them() {
    block_on(async {
        let runner = runner(3);
        settle(&runner, &of(&[3, 3]).intent()).await;
        runner.remote.world(|world| {
            let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&"n2".into()) else {
                panic!("it is there");
            };
            facts.containers.get_mut("etcd").unwrap().state = ContainerState::Exited(1);
        });
        let mut less = of(&[3, 3]);
        less.without = vec![2];
        let plan = runner.plan(&Goal::Up(&less.intent())).await.unwrap();
        let on_leaver = all(&plan)
            .into_iter()
            .filter(|step| step.starts_with("n3: "));
        assert_eq!(on_leaver.collect::<Vec<_>>(), [""; 0]);
        let stays = "stays for now: etcd would not serve when member";
        let mut notes = plan.notes.iter();
        assert!(
            notes.any(|note| note.text.contains(stays)),
            "{:?}",
            plan.notes
        );
        settle(&runner, &less.intent()).await;
        let inventory = runner.memory.shell().saved.unwrap().inventory;
        assert_eq!(inventory.len(), 2);
    });
}

/// One who leaves serves until one who stays does: a roll that was cut off is put right first.
#[test]
fn the_api_server_of_a_leaver_ends_when_another_one_serves() {
    block_on(async {
        let runner = runner(5);
        settle(&runner, &of(&[1, 1, 2, 0]).intent()).await;
        let mut less = of(&[1, 1, 2, 0]);
        less.without = vec![3];
        let steps = |plan| -> Vec<String> {
            let steps = all(&plan).into_iter();
            steps.filter(|step| step.starts_with("n4: ")).collect()
        };
        let whole = runner.plan(&Goal::Up(&less.intent())).await.unwrap();
        let guard = Guard::ApiServesWithout("n4".into());
        let guarded = whole.steps().filter(|step| step.guards.contains(&guard));
        assert_eq!(guarded.count(), 1);
        assert_ne!(steps(whole), [""; 0]);
        runner.remote.end("n1", "kube-apiserver");
        let plan = runner.plan(&Goal::Up(&less.intent())).await.unwrap();
        let stays = "stays for now: no API server serves of those that stay";
        let mut notes = plan.notes.iter();
        assert!(
            notes.any(|note| note.text.contains(stays)),
            "{:?}",
            plan.notes
        );
        assert_eq!(steps(plan), [""; 0]);
        let id = runner.memory.shell().saved.unwrap().cluster_id;
        runner
            .remote
            .watch(move |world, step| assert!(world.serving(&id) > 0, "{step:?}"));
        settle(&runner, &less.intent()).await;
        let inventory = runner.memory.shell().saved.unwrap().inventory;
        assert_eq!(inventory.len(), 4);
    });
}
