//! Properties of every plan, over generated wishes and worlds. Each plan that is made on the way is
//! also held against `check`.

use std::cell::Cell;

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use rke_operator::facts::{ContainerState, HostView};

use crate::sim::{
    Cut, Ended, Knobs, Shell, World, bare_host, desired,
    generate::names,
    knobs,
    mishap::{OnNode, happen_on, mishap},
    world::{converge_remove, converge_up, plan_remove, plan_up},
};

pub(crate) fn fresh(hosts: usize) -> World {
    World::new(names(hosts).into_iter().map(|name| {
        let facts = bare_host(&name);
        (name, facts)
    }))
}

pub(crate) fn cuts() -> impl Strategy<Value = Vec<Cut>> {
    // A place in the plan, whatever its length: `run` takes it modulo the plan's steps.
    let cut = (any::<usize>(), any::<u8>()).prop_map(|(after, torn)| Cut { after, torn });
    prop::collection::vec(cut, 1..4)
}

fn mishaps() -> impl Strategy<Value = Vec<OnNode>> {
    prop::collection::vec(mishap(), 0..5)
}

/// How many runs were to be cut, and how many were: a property of interruptions that never happen
/// says nothing.
#[derive(Default)]
pub(crate) struct Cuts {
    wanted: Cell<u32>,
    real: Cell<u32>,
}

impl Cuts {
    pub(crate) fn count(&self, real: bool) {
        self.wanted.set(self.wanted.get() + 1);
        self.real.set(self.real.get() + u32::from(real));
    }

    pub(crate) fn are_real(&self) {
        let (wanted, real) = (self.wanted.get(), self.real.get());
        // Of a few, one is more than a tenth.
        let idle = wanted - real;
        assert!(
            idle <= 1.max(wanted / 10),
            "only {real} of {wanted} cuts were real"
        );
    }
}

fn config() -> ProptestConfig {
    let regressions = FileFailurePersistence::Direct("tests/it/plan_properties.regressions");
    ProptestConfig {
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// The same facts give the same plan, whatever was planned before.
    #[test]
    fn invariant_08_the_plan_that_is_shown_is_the_plan_that_runs(
        old in knobs(), new in knobs(), mishaps in mishaps(), hosts in 1..3usize,
    ) {
        let (mut world, mut shell) = (fresh(hosts), Shell::default());
        converge_up(&mut world, &desired("a", &names(hosts), &old), &mut shell);
        for mishap in mishaps {
            happen_on(mishap, &mut world, &mut shell);
        }
        let (want, have) = (desired("a", &names(hosts), &new), world.observe(&shell));
        let shown = plan_up(&want, &have).unwrap();
        prop_assert_eq!(&shown, &plan_up(&want.clone(), &have.clone()).unwrap());
        prop_assert_eq!(plan_remove(&have).unwrap(), plan_remove(&have.clone()).unwrap());
    }

    /// A fresh cluster takes one round, and then there is nothing to do.
    #[test]
    fn a_fresh_world_converges_in_one_round(knobs in knobs(), hosts in 1..3usize) {
        let mut world = fresh(hosts);
        let want = desired("a", &names(hosts), &knobs);
        prop_assert_eq!(converge_up(&mut world, &want, &mut Shell::default()), 1);
    }

    /// Whatever happened to it, and whatever the config says now.
    #[test]
    fn an_old_world_converges(
        old in knobs(), new in knobs(), mishaps in mishaps(), settles in any::<bool>(),
        hosts in 1..3usize,
    ) {
        let (mut world, mut shell) = (fresh(hosts), Shell::default());
        converge_up(&mut world, &desired("a", &names(hosts), &old), &mut shell);
        for mishap in mishaps {
            happen_on(mishap, &mut world, &mut shell);
        }
        if settles {
            world.settle();
        }
        let want = desired("a", &names(hosts), &new);
        prop_assert!(converge_up(&mut world, &want, &mut shell) <= 3);
    }

    /// The world that comes out does not depend on the one that was there.
    #[test]
    fn the_result_depends_on_the_wish_alone(old in knobs(), new in knobs()) {
        let (mut changed, mut shell) = (fresh(1), Shell::default());
        let want = desired("a", &names(1), &new);
        converge_up(&mut changed, &desired("a", &names(1), &old), &mut shell);
        converge_up(&mut changed, &want, &mut shell);
        let (mut direct, mut other) = (fresh(1), Shell::default());
        converge_up(&mut direct, &want, &mut other);
        prop_assert_eq!(shell, other);
        let components = |world: &World| {
            let HostView::Reachable(facts) = &world.truth.hosts[&names(1)[0]] else { unreachable!() };
            let mut etcd = world.clone().etcd().clone();
            for object in etcd.objects.values_mut() {
                object["status"] = serde_json::Value::Null;
            }
            (facts.containers.clone(), facts.files.clone(), etcd.nodes, etcd.objects)
        };
        prop_assert_eq!(components(&changed), components(&direct));
    }

    /// Two clusters whose configs name one host: one wins, and nothing of it is touched.
    #[test]
    fn invariant_03_two_runners_do_not_share_a_host(turns in prop::collection::vec(any::<bool>(), 1..120)) {
        let mut world = fresh(1);
        let wants = [desired("a", &names(1), &Knobs::default()), desired("b", &names(1), &Knobs::default())];
        let mut shells = [Shell::default(), Shell::default()];
        let plans = [0, 1].map(|who| plan_up(&wants[who], &world.observe(&shells[who])).unwrap());
        let mut at: [Option<usize>; 2] = [Some(0), Some(0)];
        let turns = turns.into_iter().map(usize::from).chain(std::iter::repeat_n(0, 60))
            .chain(std::iter::repeat_n(1, 60));
        for who in turns {
            let Some(next) = at[who] else { continue };
            let Some(step) = plans[who].steps().nth(next) else { continue };
            let before = world.clone();
            at[who] = if let Ok(()) = world.step(step, Some(&wants[who]), &mut shells[who]) { Some(next + 1) } else {
                prop_assert_eq!(&world.truth.hosts, &before.truth.hosts, "a refused step does nothing");
                None
            };
        }
        let (winner, loser) = if at[0].is_some() { (0, 1) } else { (1, 0) };
        prop_assert!(at[winner].is_some() && at[loser].is_none(), "exactly one wins");
        prop_assert!(plan_up(&wants[winner], &world.observe(&shells[winner])).unwrap().is_empty());
        let refused = plan_up(&wants[loser], &world.observe(&shells[loser])).unwrap_err();
        prop_assert!(refused.to_string().contains("belongs to another cluster"), "{refused}");
        // And deleting the loser harms nothing.
        let hosts = world.truth.hosts.clone();
        converge_remove(&mut world, &mut shells[loser]);
        prop_assert_eq!(&world.truth.hosts, &hosts);
        prop_assert_eq!(&shells[loser], &Shell::default());
    }
}

/// Cut off anywhere, inside a step too, and again, and again: it converges.
#[test]
fn invariant_06_up_resumes_after_any_interruption() {
    type Case = (Option<Knobs>, Knobs, Vec<Cut>, Vec<OnNode>, usize, bool);
    let seen = Cuts::default();
    let strategy = (
        prop::option::of(knobs()),
        knobs(),
        cuts(),
        mishaps(),
        1..3usize,
        any::<bool>(),
    );
    let run = |(old, knobs, cuts, mishaps, hosts, settles): Case| {
        let (mut world, mut shell) = (fresh(hosts), Shell::default());
        if let Some(old) = old {
            converge_up(&mut world, &desired("a", &names(hosts), &old), &mut shell);
        }
        for mishap in mishaps {
            happen_on(mishap, &mut world, &mut shell);
        }
        let want = desired("a", &names(hosts), &knobs);
        for cut in cuts {
            let plan = plan_up(&want, &world.observe(&shell)).unwrap();
            let ended = world.run(&plan, Some(&want), &mut shell, Some(cut));
            prop_assert!(matches!(ended, Ended::Cut | Ended::Completed), "{ended:?}");
            seen.count(ended == Ended::Cut);
            if settles {
                world.settle();
            }
        }
        converge_up(&mut world, &want, &mut shell);
        Ok(())
    };
    TestRunner::new(config()).run(&strategy, run).unwrap();
    seen.are_real();
}

/// The same for a removal: nothing of ours is left, and what was there before is.
#[test]
fn invariant_06_remove_resumes_after_any_interruption() {
    type Case = (Knobs, Option<Vec<Cut>>, Vec<Cut>, Vec<OnNode>, usize);
    let seen = Cuts::default();
    let strategy = (
        knobs(),
        prop::option::of(cuts()),
        cuts(),
        mishaps(),
        1..3usize,
    );
    let run = |(knobs, up, cuts, mishaps, hosts): Case| {
        let (mut world, mut shell) = (fresh(hosts), Shell::default());
        let before = world.clone();
        let want = desired("a", &names(hosts), &knobs);
        // Without claim and without a container nothing tells whose the node is.
        let bare = up.is_some();
        match up {
            // A bring-up that never ended.
            Some(cuts) => {
                for cut in cuts {
                    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
                    world.run(&plan, Some(&want), &mut shell, Some(cut));
                }
            }
            None => {
                converge_up(&mut world, &want, &mut shell);
            }
        }
        let mut mishaps = mishaps;
        mishaps.retain(|(_, mishap)| {
            mishap.leaves_what_was_there() && !(bare && mishap.takes_the_claim())
        });
        for mishap in &mishaps {
            happen_on(*mishap, &mut world, &mut shell);
        }
        for cut in cuts {
            let plan = plan_remove(&world.observe(&shell)).unwrap();
            let ended = world.run(&plan, None, &mut shell, Some(cut));
            prop_assert!(matches!(ended, Ended::Cut | Ended::Completed), "{ended:?}");
            // What is removed already cannot be cut.
            if !plan.is_empty() {
                seen.count(ended == Ended::Cut);
            }
        }
        converge_remove(&mut world, &mut shell);
        prop_assert!(plan_remove(&world.observe(&shell)).unwrap().is_empty());
        prop_assert_eq!(shell, Shell::default());
        let lost = |(_, mishap): &OnNode| mishap.takes_the_claim();
        given_back(&before, &world, mishaps.iter().any(lost));
        Ok(())
    };
    TestRunner::new(config()).run(&strategy, run).unwrap();
    seen.are_real();
}

/// What `remove` may leave: images that were pulled, modules that were loaded, and that
/// containerd was restarted.
pub(crate) fn given_back(before: &World, after: &World, claim_was_lost: bool) {
    for (name, view) in &before.truth.hosts {
        let (HostView::Reachable(before), HostView::Reachable(after)) =
            (view, &after.truth.hosts[name])
        else {
            unreachable!("both are up");
        };
        let mut after = after.clone();
        assert!(before.images.is_subset(&after.images), "other images stay");
        after.images.clone_from(&before.images);
        after.system.modules.clone_from(&before.system.modules);
        after.system.containerd.started = before.system.containerd.started;
        // With a module come its sysctls.
        let known = &before.system.sysctls;
        after
            .system
            .sysctls
            .retain(|name, _| known.contains_key(name));
        if claim_was_lost {
            // With it went what the sysctls were.
            after.system.sysctls.clone_from(&before.system.sysctls);
        }
        assert_eq!(after.containers, before.containers);
        assert_eq!(after.files, before.files);
        assert_eq!(after.system, before.system);
        assert_eq!(&after, before);
        let others = after
            .containers
            .values()
            .filter(|fact| fact.state == ContainerState::Running);
        assert_eq!(others.count(), 1, "other containers run on");
    }
}
