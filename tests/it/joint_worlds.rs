//! Lives of clusters with what goes wrong around them: machines that no run saw, machines that somebody uses elsewhere,
//! members of etcd that never started, steps that fail, nodes that go away and come back in the middle of a run.
//! Whatever happens, three things hold at every step of every run: nothing is done to a machine without proof
//! that it is this cluster's; no node is disturbed that the first plan of the run did not name; and what has
//! a spare serves.

use std::collections::BTreeSet;

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use rke_operator::{
    converge::{Error, Goal, Outcome},
    error::ErrorClass,
    model::{ClusterId, NodeName},
    plan::{Action, Plan, Step, Target},
};

use crate::{
    joint_nodes::of,
    joint_properties::{block_on, cut, no_longer_watched, order, runner},
    sim::{
        Cut,
        remote::{SimFailure, Turn},
        runner::Runner,
        wish::Wish,
    },
};

/// A number that picks a step, or none.
type Pick = Option<usize>;

/// What happens in a life. Bits are nodes.
#[derive(Clone, Debug)]
struct Life {
    masks: Vec<u8>,
    /// Off in the first run, if they are only workers.
    off: u8,
    /// Used by somebody else from then on, if they are only workers.
    elsewhere: u8,
    leave: u8,
    /// Its member was added by somebody and never started.
    stray: Option<u8>,
    order: Vec<u8>,
    cut: Option<Cut>,
    fails: Pick,
    /// Goes away before the second run, and comes back at some step of it.
    blinks: Option<(u8, usize)>,
}

fn life() -> impl Strategy<Value = Life> {
    let masks = prop::collection::vec(prop_oneof![Just(0u8), Just(0u8), 0..4u8], 1..6);
    let bits = (any::<u8>(), any::<u8>(), any::<u8>());
    let chance = (
        prop::option::weighted(0.3, any::<u8>()),
        prop::option::weighted(0.5, cut()),
        prop::option::weighted(0.3, 0..40usize),
        prop::option::weighted(0.4, (any::<u8>(), 0..40usize)),
    );
    (masks, bits, order(), chance).prop_map(
        |(masks, (off, elsewhere, leave), order, (stray, cut, fails, blinks))| Life {
            masks,
            off,
            elsewhere,
            leave,
            stray,
            order,
            cut,
            fails,
            blinks,
        },
    )
}

impl Life {
    /// The workers among these nodes, by their names. The first node is never one.
    fn workers(&self, bits: u8) -> BTreeSet<NodeName> {
        let masks = self.masks.iter().enumerate();
        let workers = masks.filter(|(at, mask)| **mask == 0 && bits >> at & 1 == 1);
        workers
            .map(|(at, _)| NodeName(format!("n{}", at + 2)))
            .collect()
    }

    /// Any node but the first.
    fn node(&self, pick: u8) -> NodeName {
        NodeName(format!("n{}", usize::from(pick) % self.masks.len() + 2))
    }
}

/// The nodes that a plan disturbs, and those that answer and of which it says that they stay as they are for now.
fn announced(plan: &Plan, goal: &Goal<'_>, off: &BTreeSet<NodeName>) -> BTreeSet<NodeName> {
    let disturbed = plan.disruptions().filter_map(|(step, _)| step.node());
    let mut all: BTreeSet<NodeName> = disturbed.cloned().collect();
    for note in plan.notes.iter().filter(|note| note.is_left) {
        let left: Vec<NodeName> = match (&note.target, goal) {
            (Some(Target::Host(name)), _) => vec![name.clone()],
            (None, Goal::Up(intent)) => intent.nodes.keys().cloned().collect(),
            (_, _) => Vec::new(),
        };
        all.extend(left.into_iter().filter(|name| !off.contains(name)));
    }
    all
}

/// A run during which the three things hold; `back`: a node that comes back at that step.
async fn holds(
    runner: &Runner,
    goal: &Goal<'_>,
    theirs: &BTreeSet<NodeName>,
    back: Option<(NodeName, usize)>,
) -> Result<Outcome, Error> {
    let first = runner.plan(goal).await?;
    let off = runner
        .remote
        .world(|world| world.down.keys().cloned().collect());
    let (announced, theirs) = (announced(&first, goal, &off), theirs.clone());
    let id: Option<ClusterId> = runner.memory.shell().saved.map(|saved| saved.cluster_id);
    let up = matches!(goal, Goal::Up(_));
    let spare = runner.remote.world(|world| {
        let id = id.as_ref().filter(|_| up);
        let members = id.is_some_and(|id| world.member_count(id) > 2 && world.has_quorum(id));
        (
            members,
            id.is_some_and(|id| members && world.serving(id) > 1),
        )
    });
    let mut steps = 0;
    let text = rke_operator::plan::render(&first);
    runner.remote.watch(move |world, step: &Step| {
        steps += 1;
        if let Some((node, at)) = &back
            && steps > *at
        {
            world.down.remove(node);
        }
        if let Action::Host(node, _) = &step.action {
            assert!(
                !theirs.contains(node),
                "it is somebody else's: {step:?}\n{text}"
            );
        }
        if let (Some(node), Some(what)) = (step.node(), &step.disturbs) {
            assert!(
                announced.contains(node),
                "{node} was not announced: {what}\n{text}"
            );
        }
        let (members, apis) = spare;
        let id = id.as_ref();
        assert!(
            !members || id.is_some_and(|id| world.has_quorum(id)),
            "{step:?}\n{text}"
        );
        assert!(
            !apis || id.is_some_and(|id| world.serving(id) > 0),
            "{step:?}\n{text}"
        );
    });
    let outcome = runner.converge(goal).await;
    no_longer_watched(runner);
    outcome
}

fn fails_once(runner: &Runner, at: Pick) {
    runner.remote.script(move |_, number, step| {
        if Some(number) == at && matches!(step.action, Action::Host(..)) {
            Turn::Fail(SimFailure::new(ErrorClass::Host, "it fails"))
        } else {
            Turn::Go
        }
    });
}

async fn lives(life: Life) -> Result<(), TestCaseError> {
    let runner = runner(life.masks.len() + 1);
    runner.remote.order(&life.order);
    let whole = of(&life.masks);
    let Some(intent) = whole.checked() else {
        return Ok(());
    };
    for node in life.workers(life.off) {
        runner.remote.kill(&node.0);
    }
    let nobody = BTreeSet::new();
    let first = holds(&runner, &Goal::Up(&intent), &nobody, None).await;
    prop_assert!(first.is_ok(), "{first:?}");

    // Time passes, and others work on the machines.
    for node in life.workers(life.off) {
        runner.remote.revive(&node.0);
    }
    let theirs = life.workers(life.elsewhere);
    for node in &theirs {
        runner.remote.joins_another(&node.0);
    }
    let before: Vec<_> = theirs
        .iter()
        .map(|node| runner.remote.whole(&node.0))
        .collect();
    let untouched = |runner: &Runner| {
        let now: Vec<_> = theirs
            .iter()
            .map(|node| runner.remote.whole(&node.0))
            .collect();
        now == before
    };
    if let Some(pick) = life.stray {
        let node = life.node(pick);
        let id = runner.memory.shell().saved.unwrap().cluster_id;
        runner.remote.world(|world| {
            if !world.members[&id.0].contains(&node) {
                world.learners.insert(node, false);
            }
        });
    }
    // All that is somebody else's leaves the config, and perhaps more.
    let leaves = |at: &usize| {
        let name = NodeName(format!("n{}", at + 1));
        theirs.contains(&name) || (*at == usize::from(life.leave) % 8)
    };
    let less = Wish {
        without: (1..=life.masks.len()).filter(leaves).collect(),
        ..whole
    };
    let Some(less) = less.checked() else {
        return Ok(());
    };
    let goal = Goal::Up(&less);
    let back = life.blinks.map(|(pick, at)| (life.node(pick), at));
    if let Some((node, _)) = back.as_ref().filter(|(node, _)| !theirs.contains(node)) {
        runner.remote.kill(&node.0);
    }
    fails_once(&runner, life.fails);
    if let Some(Cut { after, torn }) = life.cut {
        let after = after % 60;
        runner.remote.cut(Some(Cut { after, torn }));
        drop(holds(&runner, &goal, &theirs, None).await);
        runner.remote.cut(None);
    }
    drop(holds(&runner, &goal, &theirs, back.clone()).await);
    fails_once(&runner, None);
    prop_assert!(untouched(&runner));
    runner.remote.world(|world| {
        world.down.clear();
        world.settle();
    });
    // Too much at once is refused, and then nothing was done; else it comes to its end.
    let mut refused = false;
    for _ in 0..4 {
        match holds(&runner, &goal, &theirs, None).await {
            Ok(Outcome::Converged { .. }) => break,
            Ok(Outcome::Degraded { .. }) => {}
            Ok(other) => prop_assert!(false, "{other:?}"),
            Err(Error::Plan(_)) => refused = true,
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }
    prop_assert!(untouched(&runner));
    let strays = runner.remote.world(|world| world.learners.len());
    prop_assert!(refused || strays <= 1);

    let goal = Goal::Remove(Some(&less));
    let removed = holds(&runner, &goal, &theirs, None).await;
    prop_assert!(removed.is_ok(), "{removed:?}");
    prop_assert!(untouched(&runner));
    // What is left is cleaned when a person names it.
    let Some(saved) = runner.memory.shell().saved else {
        return Ok(());
    };
    let named: Vec<&str> = saved.inventory.keys().map(|name| name.0.as_str()).collect();
    let named = runner.cleaning(&named);
    let outcome = holds(&named, &goal, &BTreeSet::new(), None).await;
    prop_assert!(
        matches!(outcome, Ok(Outcome::Converged { .. })),
        "{outcome:?}"
    );
    Ok(())
}

/// A part of the ordinary number, as each life is some runs: `make worlds` makes as many as it is told.
#[test]
fn lives_of_clusters_among_other_peoples_machines() {
    let regressions = FileFailurePersistence::Direct("tests/it/joint_worlds.regressions");
    let config = ProptestConfig {
        cases: (ProptestConfig::default().cases / 32).max(1),
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::default()
    };
    let run = |life: Life| block_on(lives(life));
    TestRunner::new(config).run(&life(), run).unwrap();
}
