//! etcd's data are replaced by a snapshot: the product's own runs, on simulated worlds.

use std::collections::BTreeSet;

use rke_operator::{
    converge::{Error, Goal, Outcome},
    desired::pki::{Restore, RestoreRequest},
    error::{ErrorClass, Explain},
    facts::{ContainerFact, ContainerState},
    model::{Component, NodeName, Role},
    plan::Step,
    state::{Reached, SnapshotRef},
};

use crate::{
    joint_lost::{cut_off, install_anew},
    joint_nodes::{all, in_this_order, is_as_the_config_says, of},
    joint_properties::{block_on, dies, runner, settle},
    plan_properties::Cuts,
    sim::{Cut, World, runner::Runner, wish::Wish},
};

const WORKER: u8 = 0;
const CENTRAL: u8 = 3;
const ETCD: u8 = 1;

/// What acts by what etcd holds.
const LIVES: [Component; 5] = [
    Component::Etcd,
    Component::ApiServer,
    Component::ControllerManager,
    Component::Scheduler,
    Component::Kubelet,
];

pub(crate) fn restore(number: u32) -> RestoreRequest {
    RestoreRequest::Begin(Restore {
        number,
        from: Some(SnapshotRef {
            name: "s1".to_owned(),
            sha256: "ab".repeat(32),
            revision: 1000,
        }),
        begins: 1_000_001_000,
        first: "n2".into(),
    })
}

/// The lives of the containers that run, of all that acts by what etcd holds.
fn lives(world: &World) -> BTreeSet<u32> {
    let hosts = world.truth.hosts.keys();
    let on = hosts.filter(|name| !world.down.contains_key(*name));
    let facts = on.filter_map(|name| world.truth.up(name));
    let all = facts.flat_map(|facts| LIVES.into_iter().filter_map(|it| facts.container(it)));
    let running = all.filter(|fact| fact.state == ContainerState::Running);
    running.map(ContainerFact::epoch).collect()
}

/// Rules 17 and 19: two lives never act at the same time, and controllers begin when every kubelet has.
fn never_two_lives(world: &World, step: &Step) {
    let lives = lives(world);
    assert!(lives.len() <= 1, "{lives:?} after {step:?}");
    if lives.contains(&1) {
        assert_eq!(world.life, 1, "{step:?}");
    }
    let on = |component: Component| {
        let hosts = world.truth.hosts.keys();
        let on = hosts.filter(move |name| {
            let facts = world.truth.up(name);
            facts
                .and_then(|facts| facts.container(component))
                .is_some_and(|fact| fact.state == ContainerState::Running && fact.epoch() == 1)
        });
        on.count()
    };
    if on(Component::ControllerManager) + on(Component::Scheduler) > 0 {
        assert_eq!(on(Component::Kubelet), 4, "{step:?}");
    }
}

/// A cluster of three central nodes and a worker, with a snapshot that is older than a cordon of the worker.
async fn with_a_snapshot() -> (Runner, Wish) {
    let runner = runner(4);
    let wish = of(&[CENTRAL, CENTRAL, WORKER]);
    settle(&runner, &wish.intent()).await;
    runner.remote.world(|world| {
        world.snapshot("s1");
        let worker = world.etcd().nodes.get_mut(&NodeName::from("n4"));
        worker.unwrap().unschedulable = true;
    });
    (runner, wish)
}

/// As the snapshot has it, and as the config says; only the state still tells of the restore.
fn is_restored(runner: &Runner, wish: &Wish) {
    is_as_the_config_says(
        runner,
        wish,
        &crate::joint_properties::runner(4)
            .remote
            .world(|world| world.clone()),
    );
    let epoch = runner.memory.shell().saved.unwrap().etcd_epoch.unwrap();
    assert_eq!((epoch.number, epoch.reached), (1, Reached::Done));
    runner.remote.world(|world| {
        assert!(!world.etcd().nodes[&NodeName::from("n4")].unschedulable);
        assert_eq!(lives(world), [1].into());
        let members = ["n1", "n2", "n3"].map(NodeName::from);
        assert_eq!(world.aside[&1], members.into(), "nothing was lost");
    });
}

#[test]
fn a_restore_stops_everything_then_starts_it_in_the_order_in_which_it_is_safe() {
    block_on(async {
        let (runner, wish) = with_a_snapshot().await;
        let (runner, intent) = (runner.restoring(&restore(1)), wish.intent());
        let plan = runner.plan(&Goal::Restore(&intent)).await.unwrap();
        let disturbs: Vec<_> = plan.disruptions().collect();
        assert_eq!(disturbs.len(), 1, "one question for the whole restore");
        in_this_order(
            &all(&plan),
            &[
                "local: save the state",
                "n4: remove kubelet",
                "n1: remove kube-controller-manager",
                "n1: remove etcd",
                "n1: set the data of etcd aside",
                "n2: restore etcd from s1",
                "n2: run etcd",
                "n2: delete what the snapshot has and must not come back",
                "n1: run kube-apiserver",
                "n4: run kubelet",
                "n4: wait until the node runs no unknown pod",
                "n1: run kube-controller-manager",
            ],
        );
        runner
            .remote
            .watch(|world, step| never_two_lives(world, step));
        let outcome = runner.converge(&Goal::Restore(&intent)).await;
        assert!(
            matches!(outcome, Ok(Outcome::Converged { .. })),
            "{outcome:?}"
        );
        is_restored(&runner, &wish);
        // The same request once more does nothing; neither does a run without it.
        runner.remote.watch(|_, step| panic!("{step:?}"));
        for runner in [&runner, &runner.called("another", &clock())] {
            let outcome = runner.converge(&Goal::Restore(&intent)).await;
            assert!(
                matches!(outcome, Ok(Outcome::Converged { changed: false, .. })),
                "{outcome:?}"
            );
        }
    });
}

fn clock() -> rke_operator::environment::Clock {
    rke_operator::environment::Clock::new(|| "2030-01-01T00:00:00Z".parse().unwrap())
}

/// Rule 24: killed anywhere, the same command ends in the same world, and nothing else is done to the cluster before.
fn goes_on_wherever_it_is_cut(torn: impl Fn(usize) -> u8) {
    let cuts = Cuts::default();
    block_on(async {
        for after in 0..60 {
            let (runner, wish) = with_a_snapshot().await;
            let (runner, intent) = (runner.restoring(&restore(1)), wish.intent());
            runner
                .remote
                .watch(|world, step| never_two_lives(world, step));
            let goal = Goal::Restore(&intent);
            let torn = torn(after);
            cuts.count(dies(&runner, &goal, Cut { after, torn }).await);
            let saved = runner.memory.shell().saved.unwrap();
            if saved.restoring().is_some() {
                let error = runner.converge(&Goal::Up(&intent)).await.unwrap_err();
                assert!(matches!(error, Error::Restoring { .. }), "{error}");
                assert_eq!(error.class(), ErrorClass::User);
            }
            let outcome = runner.converge(&goal).await;
            assert!(
                matches!(outcome, Ok(Outcome::Converged { .. })),
                "{after} {torn}: {outcome:?}"
            );
            is_restored(&runner, &wish);
        }
    });
    cuts.are_real();
}

#[test]
fn wherever_a_restore_is_cut_the_same_command_goes_on() {
    goes_on_wherever_it_is_cut(|_| 0);
}

#[test]
fn within_whichever_step_a_restore_is_cut_the_same_command_goes_on() {
    goes_on_wherever_it_is_cut(|after| [1, 2, 4][after % 3]);
}

/// Rule 24: until an API server of it was started, what was there before goes on, wherever both were cut.
#[test]
fn a_restore_that_was_cut_off_is_taken_back() {
    let (cuts, mut served) = (Cuts::default(), 0);
    block_on(async {
        for after in 0..40 {
            let (runner, wish) = with_a_snapshot().await;
            let intent = wish.intent();
            let goal = Goal::Restore(&intent);
            let torn = [0, 1, 2][after % 3];
            dies(&runner.restoring(&restore(1)), &goal, Cut { after, torn }).await;
            if runner.memory.shell().saved.unwrap().restoring().is_none() {
                continue;
            }
            let back = runner.restoring(&RestoreRequest::TakeBack);
            let again = Cut {
                after: after / 2,
                torn,
            };
            let starts = |world: &World| {
                let mut hosts = world.truth.hosts.keys();
                hosts.any(|name| {
                    let facts = world.truth.up(name).unwrap();
                    let api = facts.container(Component::ApiServer);
                    api.is_some_and(|api| api.epoch() == 1)
                })
            };
            if runner.remote.world(|world| starts(world)) {
                let error = back.converge(&goal).await.unwrap_err();
                assert!(error.to_string().contains("cannot be undone"), "{error}");
                served += 1;
                continue;
            }
            cuts.count(dies(&back, &goal, again).await);
            let outcome = back.converge(&goal).await;
            assert!(
                matches!(outcome, Ok(Outcome::Converged { .. })),
                "{after}: {outcome:?}"
            );
            let saved = runner.memory.shell().saved.unwrap();
            let epoch = saved.etcd_epoch.as_ref().unwrap();
            assert_eq!((epoch.reached, saved.epoch()), (Reached::TakenBack, 0));
            runner.remote.world(|world| {
                let worker = &world.etcd().nodes[&NodeName::from("n4")];
                assert!(worker.unschedulable, "as it was before the restore");
                assert_eq!(lives(world), [0].into());
                assert_eq!(world.life, 0);
            });
            // Another restore is a restore of its own.
            let second = runner.restoring(&restore(2));
            let outcome = second.converge(&goal).await;
            assert!(
                matches!(outcome, Ok(Outcome::Converged { .. })),
                "{after}: {outcome:?}"
            );
            runner
                .remote
                .world(|world| assert_eq!(lives(world), [2].into()));
        }
    });
    cuts.are_real();
    assert!(served > 3, "{served}");
}

/// Rule 23: a worker that was away comes back with a kubelet of before, which goes before anything is done by it.
#[test]
fn a_worker_that_was_away_is_of_this_life_when_it_is_back() {
    block_on(async {
        let (runner, wish) = with_a_snapshot().await;
        let (runner, intent) = (runner.restoring(&restore(1)), wish.intent());
        runner.remote.kill("n4");
        let outcome = runner.converge(&Goal::Restore(&intent)).await;
        let Ok(Outcome::Degraded { left, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(left.into_keys().collect::<Vec<_>>(), [NodeName::from("n4")]);
        runner.remote.revive("n4");
        let plan = runner.plan(&Goal::Up(&intent)).await.unwrap();
        assert_eq!(all(&plan), ["n4: remove kubelet"]);
        settle(&runner, &intent).await;
        runner
            .remote
            .world(|world| assert_eq!(lives(world), [1].into()));
    });
}

/// Rule 23: its API server would go on with data of before.
#[test]
fn nothing_is_begun_while_a_central_node_does_not_answer() {
    block_on(async {
        let (runner, wish) = with_a_snapshot().await;
        let (runner, intent) = (runner.restoring(&restore(1)), wish.intent());
        runner.remote.kill("n1");
        let before = runner.remote.world(|world| world.clone());
        let error = runner.converge(&Goal::Restore(&intent)).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("node `n1` has etcd or a control plane and cannot be stopped"),
            "{text}"
        );
        assert!(runner.remote.world(|world| *world == before));
        assert!(runner.memory.shell().saved.unwrap().etcd_epoch.is_none());
    });
}

/// The nodes of before, and those that take their place.
const GONE: [&str; 4] = ["n1", "n2", "n3", "n4"];

fn restore_on(first: &str) -> RestoreRequest {
    let RestoreRequest::Begin(asked) = restore(1) else {
        unreachable!("it begins");
    };
    let first = first.into();
    RestoreRequest::Begin(Restore { first, ..asked })
}

/// Four nodes with a snapshot, that are off for good, and a config with four others: the first with this mask.
async fn on_other_machines(first: u8) -> (Runner, Wish) {
    let runner = runner(8);
    let wish = |without: std::ops::Range<usize>| Wish {
        masks: vec![CENTRAL, CENTRAL, WORKER, first, CENTRAL, CENTRAL, WORKER],
        without: without.collect(),
        ..of(&[])
    };
    settle(&runner, &wish(4..8).intent()).await;
    runner.remote.world(|world| world.snapshot("s1"));
    for name in GONE {
        runner.switch_off(name);
    }
    let runner = runner.restoring(&restore_on("n5")).losing(&GONE);
    (runner, wish(0..4))
}

/// The config's nodes are the cluster, and nothing of the others is.
fn is_on_other_machines(runner: &Runner, wish: &Wish) {
    let saved = runner.memory.shell().saved.unwrap();
    assert_eq!(saved.etcd_epoch.as_ref().unwrap().reached, Reached::Done);
    for name in GONE {
        assert!(saved.is_lost(&name.into()), "{name}");
    }
    let intent = wish.intent();
    let named: BTreeSet<&NodeName> = intent.nodes.keys().collect();
    runner.remote.world(|world| {
        let nodes = &world.truth.cluster.as_ref().unwrap().nodes;
        assert_eq!(nodes.keys().collect::<BTreeSet<_>>(), named);
        let there: BTreeSet<&NodeName> = world.members[&saved.cluster_id.0].iter().collect();
        let members = intent.with_role(Role::Etcd).map(|(name, _)| name);
        assert_eq!(there, members.collect());
        assert_eq!(lives(world), [1].into());
    });
}

/// Rule 22, all new: the cluster goes on on other machines, also where the one with the snapshot has etcd alone.
#[test]
fn a_cluster_whose_machines_are_gone_goes_on_on_others() {
    block_on(async {
        for first in [CENTRAL, ETCD] {
            let (runner, wish) = on_other_machines(first).await;
            let intent = wish.intent();
            let plan = runner.plan(&Goal::Restore(&intent)).await.unwrap();
            let notes = plan.notes.iter().filter(|note| note.is_left);
            let left: Vec<String> = notes.map(|note| format!("{note:?}")).collect();
            assert_eq!(left.len(), if first == CENTRAL { 3 } else { 1 }, "{left:?}");
            let outcome = runner.converge(&Goal::Restore(&intent)).await;
            assert!(
                matches!(outcome, Ok(Outcome::Converged { .. })),
                "{first}: {outcome:?}"
            );
            is_on_other_machines(&runner, &wish);
            let plan = runner.plan(&Goal::Up(&intent)).await.unwrap();
            assert_eq!(all(&plan), Vec::<String>::new());
        }
    });
}

#[test]
fn wherever_a_restore_on_other_machines_is_cut_the_same_command_goes_on() {
    let cuts = Cuts::default();
    block_on(async {
        for after in (0..100).step_by(3) {
            let torn = [0, 1, 2, 4][after % 4];
            let first = [CENTRAL, ETCD][after % 2];
            let (runner, wish) = on_other_machines(first).await;
            let intent = wish.intent();
            let goal = Goal::Restore(&intent);
            cuts.count(dies(&runner, &goal, Cut { after, torn }).await);
            let outcome = runner.converge(&goal).await;
            assert!(
                matches!(outcome, Ok(Outcome::Converged { .. })),
                "{after} {torn}: {outcome:?}"
            );
            is_on_other_machines(&runner, &wish);
        }
    });
    cuts.are_real();
}

/// Without a word of a person none of them is given up; and none whose kubelet still reports.
#[test]
fn no_machine_is_given_up_for_a_restore_that_was_not_named_or_may_be_alive() {
    block_on(async {
        let (runner, wish) = on_other_machines(CENTRAL).await;
        let intent = wish.intent();
        let before = runner.remote.world(|world| world.clone());
        for (named, why) in [
            (
                &GONE[1..],
                "node `n1` has etcd or a control plane and cannot be stopped",
            ),
            (
                &GONE[..3],
                "node `n4` is no longer in the config and does not answer",
            ),
        ] {
            let error = runner.losing(named).converge(&Goal::Restore(&intent)).await;
            let error = error.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(runner.remote.world(|world| *world == before));

        // Its kubelet reports, and only this program does not reach it.
        let (runner, wish) = with_a_snapshot().await;
        let without = |at: usize| Wish {
            without: vec![at],
            ..wish.clone()
        };
        cut_off(&runner, "n4");
        let alive = runner.restoring(&restore(1)).losing(&["n4"]);
        let error = alive.converge(&Goal::Restore(&without(3).intent())).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("node `n4` is not given up"), "{error}");
        runner.remote.world(|world| world.cut_off.clear());

        let less = without(0);
        runner.switch_off("n1");
        let runner = runner.restoring(&restore(1)).losing(&["n1"]);
        let intent = less.intent();
        let outcome = runner.converge(&Goal::Restore(&intent)).await;
        assert!(
            matches!(outcome, Ok(Outcome::Converged { .. })),
            "{outcome:?}"
        );
    });
}

/// The machines were reinstalled and keep their names: nothing of the cluster is on them.
#[test]
fn a_cluster_whose_machines_were_installed_anew_goes_on_on_them() {
    block_on(async {
        let (runner, wish) = with_a_snapshot().await;
        for name in GONE {
            install_anew(&runner, name, &format!("new {name}"));
        }
        let intent = wish.intent();
        let goal = Goal::Restore(&intent);
        let runner = runner.restoring(&restore(1));
        let error = runner.converge(&goal).await.unwrap_err().to_string();
        assert!(
            error.contains("another machine answers as node `n1`"),
            "{error}"
        );
        let runner = runner.losing(&GONE);
        let outcome = runner.converge(&goal).await;
        assert!(
            matches!(outcome, Ok(Outcome::Converged { .. })),
            "{outcome:?}"
        );
        let saved = runner.memory.shell().saved.unwrap();
        for name in GONE {
            let entry = &saved.inventory[&NodeName::from(name)];
            assert_eq!(entry.machine_id, Some(format!("new {name}")));
            assert!(!saved.is_lost(&name.into()));
        }
        runner
            .remote
            .world(|world| assert_eq!(lives(world), [1].into()));
    });
}

/// Three etcd members, two of them lost; the config without these two; and a request to recover from the third.
async fn with_one_member_left() -> (Runner, Wish) {
    let (runner, wish) = with_a_snapshot().await;
    for name in ["n2", "n3"] {
        runner.switch_off(name);
    }
    let less = Wish {
        without: vec![1, 2],
        ..wish
    };
    let own = RestoreRequest::Begin(Restore {
        number: 1,
        from: None,
        begins: 1_000_000_000,
        first: "n1".into(),
    });
    (runner.restoring(&own).losing(&["n2", "n3"]), less)
}

/// What the member had is there, and nothing of the others is.
fn goes_on_with_one(runner: &Runner) {
    let saved = runner.memory.shell().saved.unwrap();
    let epoch = saved.etcd_epoch.as_ref().unwrap();
    assert_eq!((epoch.reached, &epoch.from), (Reached::Done, &None));
    runner.remote.world(|world| {
        let there: Vec<&NodeName> = world.members[&saved.cluster_id.0].iter().collect();
        assert_eq!(there, [&NodeName::from("n1")]);
        assert_eq!(lives(world), [1].into());
        let nodes = &world.truth.cluster.as_ref().unwrap().nodes;
        assert!(
            nodes[&NodeName::from("n4")].unschedulable,
            "no snapshot has that"
        );
        assert_eq!(nodes.len(), 2);
    });
}

/// Rule 22, one survivor.
#[test]
fn the_last_member_goes_on_with_its_data_wherever_it_is_cut() {
    let cuts = Cuts::default();
    block_on(async {
        for after in 0..60 {
            let (runner, wish) = with_one_member_left().await;
            let intent = wish.intent();
            let goal = Goal::Restore(&intent);
            let torn = [0, 1, 2, 4][after % 4];
            cuts.count(dies(&runner, &goal, Cut { after, torn }).await);
            let outcome = runner.converge(&goal).await;
            assert!(
                matches!(outcome, Ok(Outcome::Converged { .. })),
                "{after} {torn}: {outcome:?}"
            );
            goes_on_with_one(&runner);
        }
    });
    cuts.are_real();
}

/// A majority has all data: one member has no more, and may have less.
#[test]
fn no_member_goes_on_alone_while_etcd_serves_or_it_has_no_data() {
    block_on(async {
        let (runner, wish) = with_one_member_left().await;
        runner.switch_on();
        runner.switch_off("n3");
        let one_less = Wish {
            without: vec![2],
            ..wish.clone()
        };
        let refused = async |runner: &Runner, wish: &Wish| {
            let intent = wish.intent();
            let before = runner.remote.world(|world| world.clone());
            let error = runner.converge(&Goal::Restore(&intent)).await.unwrap_err();
            assert!(runner.remote.world(|world| *world == before));
            error.to_string()
        };
        let error = refused(&runner.losing(&["n3"]), &one_less).await;
        assert!(error.contains("etcd serves"), "{error}");

        let (runner, wish) = with_one_member_left().await;
        install_anew(&runner, "n1", "another");
        let error = refused(&runner.losing(&["n1", "n2", "n3"]), &wish).await;
        assert!(error.contains("node `n1` has no data"), "{error}");
    });
}
