//! Lives of clusters with what goes wrong around them: machines that no run saw, machines that somebody uses elsewhere,
//! members of etcd that never started, steps that fail, nodes that go away and come back in the middle of a run, API
//! servers that are slow or answer one client only, processes that are older than their files, somebody else with a
//! state from before, and a release that comes with the edit. What holds at every step is in [`crate::joint_watch`].

use std::collections::BTreeSet;

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use rke_operator::{
    config::Intent,
    converge::{Error, Goal, Outcome, Removal, RemovalOutcome},
    environment::Clock,
    error::ErrorClass,
    etcd::{Alarm, AlarmKind, MemberId},
    facts::HostView,
    model::{CLAIM, FILES_IMAGE, NodeName, path},
    plan::Action,
    state::ClusterState,
};

use crate::{
    joint_nodes::of,
    joint_properties::{block_on, cut, order, runner},
    joint_watch::{copy_on, holds, older_than_files, says_one_thing},
    sim::{
        Cut, Shell, World,
        api::{ApiFault, fault},
        mishap::{OnNode, happen_on, mishap},
        remote::{SimFailure, Turn},
        runner::Runner,
        wish::Wish,
    },
};

/// Who asks API servers for something: the one whose life it is, and somebody else.
const CLIENTS: &[&str] = &["a test", "another"];

/// The first member's database has reached its quota.
const NO_SPACE: Alarm = Alarm {
    member: MemberId(1),
    kind: AlarmKind::NoSpace,
};

/// A number that picks a step, or none.
type Pick = Option<usize>;

/// What happens in a life. Bits are nodes.
#[derive(Clone, Debug)]
struct Life {
    masks: Vec<u8>,
    /// What comes with the edit.
    more: Vec<u8>,
    /// It was made with the release before.
    upgrade: bool,
    /// Off in the first run, if they are only workers.
    off: u8,
    /// Used by somebody else from then on, if they are only workers.
    elsewhere: u8,
    leave: u8,
    /// Its member was added by somebody and never started.
    stray: Option<u8>,
    order: Vec<u8>,
    cut: Option<Cut>,
    /// Months later certificates are renewed, and that is cut.
    renewal: Option<Cut>,
    mishaps: Vec<OnNode>,
    faults: Vec<ApiFault>,
    /// Somebody else has the state of before, with the config of before or with that of now.
    another: Option<bool>,
    fails: Pick,
    /// Goes away before the second run, and comes back at some step of it.
    blinks: Option<(u8, usize)>,
    /// etcd has no space from the edit to the end of the second run, so that no member can be added.
    no_space: bool,
}

fn life() -> impl Strategy<Value = Life> {
    let mask = || prop_oneof![Just(0u8), Just(0u8), 0..4u8];
    let masks = (
        prop::collection::vec(mask(), 1..6),
        prop::collection::vec(mask(), 0..2),
        prop::bool::weighted(0.3),
    );
    let bits = (any::<u8>(), any::<u8>(), any::<u8>());
    let chance = (
        prop::option::weighted(0.3, any::<u8>()),
        prop::option::weighted(0.5, cut()),
        prop::option::weighted(0.3, 0..40usize),
        prop::option::weighted(0.4, (any::<u8>(), 0..40usize)),
    );
    let world = (
        prop::option::weighted(0.3, cut()),
        prop::collection::vec(mishap(), 0..3),
        prop::collection::vec(fault(4, CLIENTS), 0..3),
        prop::option::weighted(0.3, any::<bool>()),
        prop::bool::weighted(0.2),
    );
    (masks, bits, order(), chance, world).prop_map(
        |(
            (masks, more, upgrade),
            (off, elsewhere, leave),
            order,
            (stray, cut, fails, blinks),
            (renewal, mishaps, faults, another, no_space),
        )| Life {
            masks,
            more,
            upgrade,
            off,
            elsewhere,
            leave,
            stray,
            order,
            cut,
            renewal,
            mishaps,
            faults,
            another,
            fails,
            blinks,
            no_space,
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

    /// The config that names these nodes, without those of these places.
    fn config(&self, without: impl Fn(usize) -> bool, release: &str) -> Option<Intent> {
        let all = [self.masks.clone(), self.more.clone()].concat();
        let wish = Wish {
            without: (1..=all.len()).filter(|at| without(*at)).collect(),
            ..of(&all)
        };
        if self.upgrade {
            wish.checked_of(release)
        } else {
            wish.checked()
        }
    }
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

/// The serial of the copy on the first node, which is always there.
fn newest_copy(runner: &Runner) -> Option<u64> {
    runner.remote.world(|world| {
        let facts = world.truth.up(&"n1".into())?;
        copy_on(facts).map(|copy| copy.serial)
    })
}

/// Months later. The certificates end soon, and their renewal is cut: it goes on, whoever wrote the files.
async fn renews(runner: &Runner, intent: &Intent, cut: Cut) -> Result<(), TestCaseError> {
    let (goal, nobody) = (Goal::Heal(intent), BTreeSet::new());
    let after = cut.after % 60;
    runner.remote.cut(Some(Cut { after, ..cut }));
    drop(holds(runner, &goal, &nobody, None).await);
    runner.remote.cut(None);
    let mut healed = holds(runner, &goal, &nobody, None).await;
    if matches!(healed, Ok(Outcome::Degraded { .. })) {
        healed = holds(runner, &goal, &nobody, None).await;
    }
    prop_assert!(
        matches!(healed, Ok(Outcome::Converged { .. })),
        "{healed:?}"
    );
    let shell = runner.memory.shell();
    let id = shell.saved.as_ref().unwrap().cluster_id.clone();
    let seen = runner.remote.world(|world| world.observe(&shell));
    prop_assert_eq!(older_than_files(&seen, &id), Vec::<String>::new());
    Ok(())
}

/// Another user runs with an older state; a run that sees a newer copy changes nothing but the claim of a node that has
/// lost it. Returns false if a node outside
/// their config has a newer copy than their state: every run that sees that copy is refused until a user recovers it.
async fn another_runs(
    runner: &Runner,
    former: Shell,
    intent: &Intent,
    theirs: &BTreeSet<NodeName>,
) -> Result<bool, TestCaseError> {
    let serial = former.saved.as_ref().unwrap().serial;
    let another = runner.for_user("another", former);
    let newer = newest_copy(runner).is_some_and(|copy| copy > serial);
    let before = runner.remote.world(|world| world.clone());
    let ended = holds(&another, &Goal::Up(intent), theirs, None).await;
    if newer {
        prop_assert!(ended.is_err(), "{ended:?}");
        // A copy is read through the claim of its node.
        let after = runner.remote.world(|world| world.clone());
        prop_assert!(without_claims(after) == without_claims(before));
    } else if runner.remote.world(|world| *world != before) {
        // It is theirs to go on with.
        let shell = another.memory.shell();
        let is_behind = shell.saved.as_ref().is_some_and(|saved| {
            let mut copies = copies(runner).into_iter();
            copies.any(|copy| copy.cluster_id == saved.cluster_id && copy.serial > saved.serial)
        });
        runner.memory.keep(shell);
        return Ok(!is_behind);
    }
    Ok(true)
}

/// Without the claims, and what is written with one.
fn without_claims(mut world: World) -> World {
    for view in world.truth.hosts.values_mut() {
        if let HostView::Reachable(facts) = view {
            facts.containers.remove(CLAIM);
            facts.images.remove(FILES_IMAGE);
            facts
                .files
                .as_mut()
                .map(|files| files.remove(path::NODE_RECORD));
        }
    }
    world
}

/// The copies of the state on the nodes.
fn copies(runner: &Runner) -> Vec<ClusterState> {
    runner.remote.world(|world| {
        let hosts = world.truth.hosts.keys();
        let up = hosts.filter_map(|name| world.truth.up(name));
        up.filter_map(copy_on).collect()
    })
}

/// A cluster is made, and time passes.
async fn lives(life: Life) -> Result<(), TestCaseError> {
    let first = life.masks.len();
    let runner = runner(first + life.more.len() + 1);
    runner.remote.order(&life.order);
    let Some(intent) = life.config(|at| at > first, "v1.33.13") else {
        return Ok(());
    };
    for node in life.workers(life.off) {
        runner.remote.kill(&node.0);
    }
    let made = holds(&runner, &Goal::Up(&intent), &BTreeSet::new(), None).await;
    prop_assert!(made.is_ok(), "{made:?}");
    let former = runner.memory.shell();
    for node in life.workers(life.off) {
        runner.remote.revive(&node.0);
    }
    let runner = match life.renewal {
        Some(cut) => {
            let later = || "2030-11-01T00:00:00Z".parse().unwrap();
            let later = runner.called(CLIENTS[0], &Clock::new(later));
            renews(&later, &intent, cut).await?;
            later
        }
        None => runner,
    };
    let mut shell = runner.memory.shell();
    for mishap in &life.mishaps {
        runner
            .remote
            .world(|world| happen_on(*mishap, world, &mut shell));
    }
    runner.memory.keep(shell);
    if let Some(pick) = life.stray {
        let node = life.node(pick);
        let id = runner.memory.shell().saved.unwrap().cluster_id;
        runner.remote.world(|world| {
            if !world.members[&id.0].contains(&node) {
                world.learners.insert(node, false);
            }
        });
    }
    // Others work on the machines.
    let theirs = life.workers(life.elsewhere);
    for node in &theirs {
        runner.remote.joins_another(&node.0);
    }
    goes_on(&life, &runner, (former, &intent), &theirs).await
}

/// The config is edited: all that is somebody else's leaves it, and perhaps more; others come. Then it is removed.
async fn goes_on(
    life: &Life,
    runner: &Runner,
    (former, before): (Shell, &Intent),
    theirs: &BTreeSet<NodeName>,
) -> Result<(), TestCaseError> {
    let whole = || -> Vec<_> {
        let nodes = theirs.iter();
        nodes.map(|node| runner.remote.whole(&node.0)).collect()
    };
    let there = whole();
    let leaves = |at: usize| {
        let name = NodeName(format!("n{}", at + 1));
        let may = at <= life.masks.len();
        theirs.contains(&name) || may && at == usize::from(life.leave) % 8
    };
    let Some(less) = life.config(leaves, "v1.34.4") else {
        return Ok(());
    };
    let goal = Goal::Up(&less);
    let back = life.blinks.map(|(pick, at)| (life.node(pick), at));
    if let Some((node, _)) = back.as_ref().filter(|(node, _)| !theirs.contains(node)) {
        runner.remote.kill(&node.0);
    }
    fails_once(runner, life.fails);
    runner.remote.world(|world| {
        world.faults.clone_from(&life.faults);
        world.alarms.extend(life.no_space.then_some(NO_SPACE));
    });
    if let Some(Cut { after, torn }) = life.cut {
        let after = after % 60;
        runner.remote.cut(Some(Cut { after, torn }));
        drop(holds(runner, &goal, theirs, None).await);
        runner.remote.cut(None);
    }
    if let Some(of_before) = life.another {
        let config = if of_before { before } else { &less };
        if !another_runs(runner, former, config, theirs).await? {
            return Ok(());
        }
    }
    drop(holds(runner, &goal, theirs, back).await);
    says_one_thing(runner, &less)
        .await
        .map_err(TestCaseError::fail)?;
    fails_once(runner, None);
    prop_assert_eq!(whole(), there.clone());
    runner.remote.world(|world| {
        world.down.clear();
        world.faults.clear();
        world.alarms.clear();
        world.settle();
    });
    comes_to_its_end(runner, &less, theirs).await?;
    prop_assert_eq!(whole(), there.clone());

    let goal = Removal(Some(&less));
    let removed = holds(runner, &goal, theirs, None).await;
    prop_assert!(removed.is_ok(), "{removed:?}");
    prop_assert_eq!(whole(), there);
    // What is left is cleaned when a person names it.
    let Some(saved) = runner.memory.shell().saved else {
        return Ok(());
    };
    let named: Vec<&str> = saved.inventory.keys().map(|name| name.0.as_str()).collect();
    let outcome = holds(&runner.cleaning(&named), &goal, &BTreeSet::new(), None).await;
    prop_assert!(
        matches!(outcome, Ok(RemovalOutcome::Removed { .. })),
        "{outcome:?}"
    );
    Ok(())
}

/// Too much at once is refused, and then nothing was done; else it comes to its end.
async fn comes_to_its_end(
    runner: &Runner,
    intent: &Intent,
    theirs: &BTreeSet<NodeName>,
) -> Result<(), TestCaseError> {
    let mut refused = false;
    for _ in 0..4 {
        match holds(runner, &Goal::Up(intent), theirs, None).await {
            Ok(Outcome::Converged { .. }) => break,
            Ok(Outcome::Degraded { .. }) => {}
            Err(Error::Plan(_)) => refused = true,
            Err(other) => prop_assert!(false, "{other:?}"),
        }
    }
    let strays = runner.remote.world(|world| world.learners.len());
    prop_assert!(refused || strays <= 1);
    says_one_thing(runner, intent)
        .await
        .map_err(TestCaseError::fail)
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
