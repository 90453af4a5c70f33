//! Properties of whole runs: generated configs are read, resolved and brought about by
//! [`rke_operator::converge`] itself, keys and certificates included, on simulated worlds of one to
//! seven nodes. Below that joint only reading and single steps are simulated.

use std::{
    cell::Cell,
    sync::{Arc, Mutex},
};

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use rke_operator::{
    actual::Unreachable,
    config::Intent,
    converge::{Error, Goal, Outcome},
    error::ErrorClass,
    model::ClusterId,
    plan::{Action, enough_answer},
};

use crate::{
    plan_properties::{fresh, given_back},
    sim::{
        Cut,
        generate::names,
        mishap::{Mishap, happen, mishap},
        remote::{Runner, SimRemote},
        wish::{Wish, wish},
    },
};

const MOST: usize = 7;

/// A part of the ordinary number: each case is some runs with real keys.
fn cases(divisor: u32) -> ProptestConfig {
    let regressions = FileFailurePersistence::Direct("tests/it/joint_properties.regressions");
    ProptestConfig {
        cases: (ProptestConfig::default().cases / divisor).max(1),
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::default()
    }
}

fn masks() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..4u8, 0..MOST)
}

/// Two wishes for the same nodes.
fn wishes(masks: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = (Wish, Wish)> {
    masks.prop_flat_map(|masks| (wish(masks.clone()), wish(masks)))
}

fn order() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..64)
}

fn cut() -> impl Strategy<Value = Cut> {
    (any::<usize>(), any::<u8>()).prop_map(|(after, torn)| Cut { after, torn })
}

fn block_on<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(run)
}

fn runner(nodes: usize) -> Runner {
    Runner::new(&SimRemote::new(fresh(nodes)), || [1; 32])
}

/// Converges, and there is nothing left to do.
async fn settle(runner: &Runner, intent: &Intent) {
    let goal = Goal::Up(intent);
    let outcome = runner.converge(&goal).await.unwrap();
    assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
    let plan = runner.plan(&goal).await.unwrap();
    assert!(plan.is_empty(), "{}", rke_operator::plan::render(&plan));
}

/// From now on no step may take what the cluster has a spare of.
fn serves_all_the_while(runner: &Runner) {
    let Some(saved) = runner.memory.shell().saved else {
        return;
    };
    let id: ClusterId = saved.cluster_id;
    let (members, apis) = runner.remote.world(|world| {
        let members = world.member_count(&id) > 2 && world.has_quorum(&id);
        (members, members && world.serving(&id) > 1)
    });
    runner.remote.watch(move |world, step| {
        assert!(
            !members || world.has_quorum(&id),
            "no quorum after {step:?}"
        );
        assert!(
            !apis || world.serving(&id) > 0,
            "no API server after {step:?}"
        );
    });
}

fn no_longer_watched(runner: &Runner) {
    runner.remote.watch(|_, _| ());
}

fn switch_off(runner: &Runner, nodes: usize, off: u8) {
    let down = names(nodes)
        .into_iter()
        .enumerate()
        .filter(|(at, _)| off >> at & 1 == 1)
        .map(|(_, name)| {
            let why = Unreachable {
                class: ErrorClass::Host,
                why: "it is off".to_owned(),
                hints: Vec::new(),
            };
            (name, why)
        })
        .collect();
    runner.remote.world(|world| world.down = down);
}

fn switch_on(runner: &Runner) {
    runner.remote.world(|world| {
        world.down.clear();
        world.settle();
    });
}

/// Dies in one of the steps that it would do, if there are any. True if it did.
async fn dies(runner: &Runner, goal: &Goal<'_>, cut: Cut) -> bool {
    let Ok(plan) = runner.plan(goal).await else {
        return false;
    };
    let remote = plan
        .steps()
        .filter(|step| !matches!(step.action, Action::Local(_)));
    let after = cut.after % remote.count().max(1);
    runner.remote.cut(Some(Cut { after, ..cut }));
    drop(runner.converge(goal).await);
    let died = runner.remote.was_cut();
    runner.remote.cut(None);
    died
}

/// How many runs were to be cut, and how many died.
#[derive(Default)]
struct Cuts {
    wanted: Cell<u32>,
    real: Cell<u32>,
}

impl Cuts {
    fn count(&self, died: bool) {
        self.wanted.set(self.wanted.get() + 1);
        self.real.set(self.real.get() + u32::from(died));
    }

    fn are_real(&self) {
        let (wanted, real) = (self.wanted.get(), self.real.get());
        assert!(
            real * 10 >= wanted * 9,
            "only {real} of {wanted} cuts were real"
        );
    }
}

fn happens(runner: &Runner, mishaps: &[Mishap]) {
    let mut shell = runner.memory.shell();
    for mishap in mishaps {
        runner
            .remote
            .world(|world| happen(*mishap, world, &mut shell));
    }
    runner.memory.keep(shell);
}

/// From which config to which, in what order of queues, with which nodes off, cut where, and what
/// happens in between.
type Change = ((Wish, Wish), Vec<u8>, u8, (Cut, Option<Cut>), Vec<Mishap>);

/// Invariants 1, 5, 6: from any config to any other, with any nodes off, cut off in any step, its
/// queues in any order: what has a spare serves all the while, and in the end there is nothing to do.
#[test]
fn invariant_06_up_converges_wherever_it_is_cut_and_whatever_is_off() {
    let cuts = Cuts::default();
    let strategy = (
        wishes(masks()),
        order(),
        any::<u8>(),
        (cut(), prop::option::of(cut())),
        prop::collection::vec(mishap(), 0..3),
    );
    let run = |((old, new), order, off, (fresh_cut, later_cut), mishaps): Change| {
        block_on(async {
            let runner = runner(old.nodes());
            runner.remote.order(&order);
            let (before, after) = (old.intent(), new.intent());
            // A first run that dies, and one that ends.
            cuts.count(dies(&runner, &Goal::Up(&before), fresh_cut).await);
            settle(&runner, &before).await;
            happens(&runner, &mishaps);
            switch_off(&runner, old.nodes(), off);
            serves_all_the_while(&runner);
            let goal = Goal::Up(&after);
            if let Some(cut) = later_cut {
                dies(&runner, &goal, cut).await;
            }
            let plan = runner.plan(&goal).await;
            let plan = plan.map_or_else(
                |why| why.to_string(),
                |plan| rke_operator::plan::render(&plan),
            );
            match runner.converge(&goal).await {
                Ok(Outcome::Converged { .. } | Outcome::Degraded { .. }) => {}
                // Too few answer for anything.
                Err(Error::HostsUnreachable(_)) => prop_assert!(off != 0),
                other => prop_assert!(false, "{other:?}\n{plan}"),
            }
            no_longer_watched(&runner);
            switch_on(&runner);
            settle(&runner, &after).await;
            Ok(())
        })
    };
    TestRunner::new(cases(32)).run(&strategy, run).unwrap();
    cuts.are_real();
}

/// Invariant 15: however often it is cut off, a removal leaves what was there before, and nothing
/// of ours.
#[test]
fn invariant_15_remove_gives_back_what_was_there_wherever_it_is_cut() {
    let cuts = Cuts::default();
    let strategy = (
        masks().prop_flat_map(wish),
        order(),
        prop::option::of(cut()),
        cut(),
    );
    let run = |(wish, order, up_cut, cut): (Wish, Vec<u8>, Option<Cut>, Cut)| {
        block_on(async {
            let runner = runner(wish.nodes());
            runner.remote.order(&order);
            let before = runner.remote.world(|world| world.clone());
            let intent = wish.intent();
            match up_cut {
                Some(cut) => drop(dies(&runner, &Goal::Up(&intent), cut).await),
                None => settle(&runner, &intent).await,
            }
            let goal = Goal::Remove(Some(&intent));
            cuts.count(dies(&runner, &goal, cut).await);
            let outcome = runner.converge(&goal).await.unwrap();
            prop_assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
            prop_assert_eq!(runner.memory.shell(), crate::sim::Shell::default());
            let after = runner.remote.world(|world| world.clone());
            given_back(&before, &after, false);
            Ok(())
        })
    };
    TestRunner::new(cases(32)).run(&strategy, run).unwrap();
    cuts.are_real();
}

/// Invariant 3: two configs that name one host, run side by side: exactly one wins, the other is
/// refused, and what the winner has is not touched by the loser's removal.
#[test]
fn invariant_03_two_clusters_do_not_share_a_host() {
    let run = |(one, order): (Wish, Vec<u8>)| {
        block_on(async {
            let remote = SimRemote::new(fresh(1));
            remote.order(&order);
            let runners = [
                Runner::new(&remote, || [1; 32]),
                Runner::new(&remote, || [2; 32]),
            ];
            let other = Wish {
                cluster: "b",
                ..one.clone()
            };
            let intents = [one.intent(), other.intent()];
            let goals = [Goal::Up(&intents[0]), Goal::Up(&intents[1])];
            let (a, b) = tokio::join!(
                runners[0].converge(&goals[0]),
                runners[1].converge(&goals[1])
            );
            let won = [&a, &b].map(|end| matches!(end, Ok(Outcome::Converged { .. })));
            prop_assert!(won[0] != won[1], "exactly one wins: {a:?} {b:?}");
            let (winner, loser) = if won[0] { (0, 1) } else { (1, 0) };
            let why = format!("{:?}", if won[0] { b } else { a }.unwrap_err());
            let words = ["Claimed", "belongs to", "claim"];
            prop_assert!(words.iter().any(|word| why.contains(word)), "{why}");
            let there = remote.world(|world| world.truth.hosts.clone());
            // Refused or nothing to do: that depends on whether the loser has kept a state yet.
            let removal = Goal::Remove(Some(&intents[loser]));
            drop(runners[loser].converge(&removal).await);
            prop_assert_eq!(&remote.world(|world| world.truth.hosts.clone()), &there);
            prop_assert!(
                runners[winner]
                    .plan(&goals[winner])
                    .await
                    .unwrap()
                    .is_empty()
            );
            Ok(())
        })
    };
    let strategy = (wish(vec![]), order());
    TestRunner::new(cases(16)).run(&strategy, run).unwrap();
}

/// Invariant 4: two runs of one cluster at the same time, with one state: whatever each of them
/// meets, nothing that has a spare stops serving, and the next run has the cluster as it must be.
#[test]
fn invariant_04_two_runners_of_one_cluster_break_nothing() {
    let run = |((old, new), order): ((Wish, Wish), Vec<u8>)| {
        block_on(async {
            let first = runner(old.nodes());
            first.remote.order(&order);
            let (before, after) = (old.intent(), new.intent());
            settle(&first, &before).await;
            serves_all_the_while(&first);
            let second = first.clone();
            let goal = Goal::Up(&after);
            let ends = tokio::join!(first.converge(&goal), second.converge(&goal));
            no_longer_watched(&first);
            first.remote.world(crate::sim::World::settle);
            settle(&first, &after).await;
            drop(ends);
            Ok(())
        })
    };
    let few = prop::collection::vec(0..4u8, 0..3);
    TestRunner::new(cases(16))
        .run(&(wishes(few), order()), run)
        .unwrap();
}

/// The smallest world by itself, for a look at what fails.
#[test]
fn one_node_comes_up_by_the_products_own_joint() {
    let seen = Arc::new(Mutex::new(0));
    block_on(async {
        let runner = runner(1);
        let count = Arc::clone(&seen);
        runner.remote.watch(move |_, _| *count.lock().unwrap() += 1);
        let config = Wish {
            cluster: "a",
            masks: vec![],
            build: 0,
            verbosity: 2,
            pause: 0,
            labelled: true,
            tainted: false,
            coredns: true,
        };
        settle(&runner, &config.intent()).await;
        let have = runner
            .remote
            .world(|world| world.observe(&runner.memory.shell()));
        let first = &names(1)[0];
        assert!(enough_answer([first], [first], &have));
        assert!(have.up(first).unwrap().containers.contains_key("kubelet"));
    });
    assert!(*seen.lock().unwrap() > 10);
}
