//! Properties of whole runs: generated configs are read, resolved and brought about by
//! [`rke_operator::converge`] itself, keys and certificates included, on simulated worlds of one to
//! seven nodes. Below that joint only reading and single steps are simulated.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use rke_operator::{
    config::Intent,
    converge::{Error, Goal, Outcome, Purpose, Removal, RemovalOutcome},
    error::{ErrorClass, Obstacle},
    facts::{HostView, Unreachable},
    model::{CLAIM, ClusterId},
    plan::{Action, Plan, enough_answer},
    state::ClusterState,
};

use crate::{
    plan_properties::{Cuts, fresh, given_back},
    sim::{
        Cut, World,
        generate::names,
        mishap::{OnNode, another_claims, happen_on, mishap},
        remote::SimRemote,
        runner::Runner,
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

pub(crate) fn order() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..64)
}

pub(crate) fn cut() -> impl Strategy<Value = Cut> {
    (any::<usize>(), any::<u8>()).prop_map(|(after, torn)| Cut { after, torn })
}

pub(crate) fn block_on<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(run)
}

pub(crate) fn runner(nodes: usize) -> Runner {
    Runner::new(&SimRemote::new(fresh(nodes)), || [1; 32])
}

/// Converges, and there is nothing left to do.
pub(crate) async fn settle(runner: &Runner, intent: &Intent) {
    let goal = Goal::Up(intent);
    let outcome = runner.converge(&goal).await.unwrap();
    assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
    let plan = runner.would(&goal).await.unwrap();
    assert!(plan.is_empty(), "{}", rke_operator::plan::render(&plan));
}

/// From now on no step may take what the cluster has a spare of.
pub(crate) fn serves_all_the_while(runner: &Runner) {
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

pub(crate) fn no_longer_watched(runner: &Runner) {
    runner.remote.watch(|_, _| ());
}

fn switch_off(runner: &Runner, nodes: usize, off: u8) {
    let down = names(nodes)
        .into_iter()
        .enumerate()
        .filter(|(at, _)| off >> at & 1 == 1)
        .map(|(_, name)| {
            let why = Unreachable {
                alike: None,
                obstacle: Obstacle::Silence,
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
pub(crate) async fn dies(runner: &Runner, goal: &impl Purpose, cut: Cut) -> bool {
    let counted = |plan: &Plan| {
        let remote = plan
            .steps()
            .filter(|step| !matches!(step.action, Action::Local(_)));
        let after = cut.after % remote.count().max(1);
        runner.remote.cut(Some(Cut { after, ..cut }));
    };
    drop(runner.converge_seen(goal, counted).await);
    let died = runner.remote.was_cut();
    runner.remote.cut(None);
    died
}

/// The state without what is recorded about a snapshot before a removal.
fn copy(saved: Option<ClusterState>) -> Option<ClusterState> {
    saved.map(|saved| saved.copy())
}

fn happens(runner: &Runner, mishaps: &[OnNode]) {
    let mut shell = runner.memory.shell();
    for mishap in mishaps {
        runner
            .remote
            .world(|world| happen_on(*mishap, world, &mut shell));
    }
    runner.memory.keep(shell);
}

/// From which config to which, in what order of queues, with which nodes off, cut where, and what
/// happens in between.
type Change = ((Wish, Wish), Vec<u8>, u8, (Cut, Option<Cut>), Vec<OnNode>);

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
            let mut plan = String::new();
            let shown = |first: &Plan| plan = rke_operator::plan::render(first);
            match runner.converge_seen(&goal, shown).await {
                Ok(Outcome::Converged { .. } | Outcome::Degraded { .. }) => {}
                // Too few answer for anything.
                Err(Error::HostsUnreachable { .. }) => prop_assert!(off != 0),
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

/// A removal: of a cluster that was built or of one whose building was cut off, with these mishaps
/// and with these nodes off.
type RemovalCase = (Wish, Vec<u8>, Option<Cut>, Cut, Vec<OnNode>, u8);

/// Invariant 15: however often it is cut off, a removal leaves what was there before, and nothing
/// of ours. What does not answer keeps what it has and keeps the state, until it answers again
/// (invariant 1).
#[test]
fn invariant_15_remove_restores_what_was_there_wherever_it_is_cut() {
    let cuts = Cuts::default();
    let strategy = (
        masks().prop_flat_map(wish),
        order(),
        prop::option::of(cut()),
        cut(),
        prop::collection::vec(mishap(), 0..3),
        any::<u8>(),
    );
    let run = |(wish, order, up_cut, cut, mut mishaps, off): RemovalCase| {
        block_on(async {
            let runner = runner(wish.nodes());
            runner.remote.order(&order);
            let before = runner.remote.world(|world| world.clone());
            let intent = wish.intent();
            // Without claim and without a container nothing tells whose the node is.
            let bare = up_cut.is_some();
            match up_cut {
                Some(cut) => drop(dies(&runner, &Goal::Up(&intent), cut).await),
                None => settle(&runner, &intent).await,
            }
            mishaps.retain(|(_, mishap)| {
                mishap.leaves_what_was_there() && !(bare && mishap.takes_the_claim())
            });
            happens(&runner, &mishaps);
            switch_off(&runner, wish.nodes(), off);
            let silent: Vec<_> = runner
                .remote
                .world(|world| world.down.keys().cloned().collect());
            let there = |world: &mut World| {
                let hosts = world.truth.hosts.iter();
                let off = hosts.filter(|(name, _)| silent.contains(name));
                let off: Vec<_> = off.map(|(_, view)| view.clone()).collect();
                off
            };
            let (untouched, saved) = (runner.remote.world(there), runner.memory.shell().saved);
            let goal = Removal(Some(&intent));
            let died = dies(&runner, &goal, cut).await;
            // With every node off there is nothing to cut.
            if silent.is_empty() {
                cuts.count(died);
            }
            match runner.converge(&goal).await.unwrap() {
                RemovalOutcome::Removed { .. } => prop_assert!(silent.is_empty()),
                RemovalOutcome::Incomplete { left, claimed } => {
                    prop_assert!(claimed.is_empty());
                    let left: Vec<_> = left.into_iter().map(|(name, _)| name).collect();
                    prop_assert!(!silent.is_empty());
                    prop_assert_eq!(left, silent.clone());
                    prop_assert_eq!(runner.remote.world(there), untouched);
                    prop_assert_eq!(copy(runner.memory.shell().saved), copy(saved));
                    switch_on(&runner);
                    let outcome = runner.converge(&goal).await.unwrap();
                    let removed = matches!(outcome, RemovalOutcome::Removed { .. });
                    prop_assert!(removed, "{outcome:?}");
                }
            }
            prop_assert_eq!(runner.memory.shell(), crate::sim::Shell::default());
            let after = runner.remote.world(|world| world.clone());
            let lost = |(_, mishap): &OnNode| mishap.takes_the_claim();
            given_back(&before, &after, mishaps.iter().any(lost));
            Ok(())
        })
    };
    TestRunner::new(cases(32)).run(&strategy, run).unwrap();
    cuts.are_real();
}

/// Invariant 3: a node that another cluster has claimed meanwhile, whichever it is, is left alone:
/// `up` does nothing anywhere, and `remove` cleans the others and says which it left.
#[test]
fn a_node_that_another_cluster_has_claimed_is_left_alone() {
    let strategy = (wishes(masks()), order(), any::<u8>());
    let run = |((old, new), order, on): ((Wish, Wish), Vec<u8>, u8)| {
        block_on(async {
            let runner = runner(old.nodes());
            runner.remote.order(&order);
            let before = runner.remote.world(|world| world.clone());
            let (old, new) = (old.intent(), new.intent());
            settle(&runner, &old).await;
            let theirs = runner.remote.world(|world| another_claims(on, world));
            let (world, shell) = (
                runner.remote.world(|world| world.clone()),
                runner.memory.shell(),
            );
            for intent in [&old, &new] {
                let refused = runner.converge(&Goal::Up(intent)).await.unwrap_err();
                let why = refused.to_string();
                prop_assert!(why.contains("belongs to another cluster"), "{why}");
                prop_assert!(why.contains(&theirs.0), "{why}");
            }
            prop_assert!(runner.remote.world(|now| *now == world));
            prop_assert_eq!(runner.memory.shell(), shell.clone());

            let goal = Removal(Some(&new));
            let outcome = runner.converge(&goal).await.unwrap();
            let RemovalOutcome::Incomplete { left, claimed } = outcome else {
                prop_assert!(false, "{outcome:?}");
                return Ok(());
            };
            let left: Vec<_> = left.into_iter().map(|(name, _)| name).collect();
            prop_assert_eq!(left, vec![theirs.clone()]);
            prop_assert_eq!(claimed, BTreeSet::from([theirs.clone()]));
            prop_assert_eq!(copy(runner.memory.shell().saved), copy(shell.saved));
            let after = runner.remote.world(|world| world.clone());
            prop_assert_eq!(
                after.truth.hosts.get(&theirs),
                world.truth.hosts.get(&theirs)
            );
            // The other cluster goes, and what we left there can be cleaned.
            runner.remote.world(|world| {
                if let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&theirs) {
                    facts.containers.remove(CLAIM);
                }
            });
            let outcome = runner.converge(&goal).await.unwrap();
            let removed = matches!(outcome, RemovalOutcome::Removed { .. });
            prop_assert!(removed, "{outcome:?}");
            prop_assert_eq!(runner.memory.shell(), crate::sim::Shell::default());
            given_back(&before, &runner.remote.world(|world| world.clone()), true);
            Ok(())
        })
    };
    TestRunner::new(cases(32)).run(&strategy, run).unwrap();
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
            let removal = Removal(Some(&intents[loser]));
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
            labelled: true,
            ..Wish::plain()
        };
        settle(&runner, &config.intent()).await;
        let have = runner
            .remote
            .world(|world| world.observe(&runner.memory.shell()));
        let first = &names(1)[0];
        assert_eq!(enough_answer([first], [first], &have), Ok(()));
        assert!(have.up(first).unwrap().containers.contains_key("kubelet"));
    });
    assert!(*seen.lock().unwrap() > 10);
}
