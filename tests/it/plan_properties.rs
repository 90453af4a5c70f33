//! Properties of every plan, over generated wishes and worlds. Each plan that is made on the way is
//! also held against `check`.

use proptest::prelude::*;
use rke_operator::actual::{ContainerState, HostView};

use crate::sim::{
    Cut, Ended, Knobs, Shell, World, bare_host, desired,
    generate::names,
    knobs,
    mishap::{Mishap, happen, mishap},
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

fn mishaps() -> impl Strategy<Value = Vec<Mishap>> {
    prop::collection::vec(mishap(), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: Some(Box::new(
        proptest::test_runner::FileFailurePersistence::Direct("tests/it/plan_properties.regressions"),
    )), ..ProptestConfig::default() })]

    /// The same facts give the same plan, whatever was planned before.
    #[test]
    fn invariant_08_the_plan_that_is_shown_is_the_plan_that_runs(old in knobs(), new in knobs(), mishaps in mishaps()) {
        let (mut world, mut shell) = (fresh(1), Shell::default());
        converge_up(&mut world, &desired("a", &names(1), &old), &mut shell);
        for mishap in mishaps {
            happen(mishap, &mut world, &mut shell);
        }
        let (want, have) = (desired("a", &names(1), &new), world.observe(&shell));
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
    ) {
        let (mut world, mut shell) = (fresh(1), Shell::default());
        converge_up(&mut world, &desired("a", &names(1), &old), &mut shell);
        for mishap in mishaps {
            happen(mishap, &mut world, &mut shell);
        }
        if settles {
            world.settle();
        }
        let want = desired("a", &names(1), &new);
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

    /// Cut off anywhere, inside a step too, and again, and again: it converges.
    #[test]
    fn invariant_06_up_resumes_after_any_interruption(
        old in prop::option::of(knobs()), knobs in knobs(), cuts in cuts(),
        mishaps in mishaps(), hosts in 1..3usize, settles in any::<bool>(),
    ) {
        let (mut world, mut shell) = (fresh(hosts), Shell::default());
        if let Some(old) = old {
            converge_up(&mut world, &desired("a", &names(hosts), &old), &mut shell);
        }
        for mishap in mishaps {
            happen(mishap, &mut world, &mut shell);
        }
        let want = desired("a", &names(hosts), &knobs);
        for cut in cuts {
            let plan = plan_up(&want, &world.observe(&shell)).unwrap();
            let ended = world.run(&plan, Some(&want), &mut shell, Some(cut));
            prop_assert!(matches!(ended, Ended::Cut | Ended::Completed), "{ended:?}");
            if settles {
                world.settle();
            }
        }
        converge_up(&mut world, &want, &mut shell);
    }

    /// The same for a removal: nothing of ours is left, and what was there before is.
    #[test]
    fn invariant_06_remove_resumes_after_any_interruption(
        knobs in knobs(), up in prop::option::of(cuts()), cuts in cuts(), mishaps in mishaps(),
    ) {
        let (mut world, mut shell) = (fresh(1), Shell::default());
        let before = world.clone();
        let want = desired("a", &names(1), &knobs);
        // Without claim and without a container nothing tells whose the node is.
        let bare = up.is_some();
        match up {
            // A bring-up that never ended.
            Some(cuts) => for cut in cuts {
                let plan = plan_up(&want, &world.observe(&shell)).unwrap();
                world.run(&plan, Some(&want), &mut shell, Some(cut));
            },
            None => {
                converge_up(&mut world, &want, &mut shell);
            }
        }
        let mishaps: Vec<Mishap> = mishaps
            .into_iter()
            .filter(|mishap| {
                match mishap {
                    Mishap::ImageGoes(_) | Mishap::PackageConfigChanges => false,
                    Mishap::ClaimGoes | Mishap::DockerIsPruned => !bare,
                    _ => true,
                }
            })
            .collect();
        for mishap in &mishaps {
            happen(*mishap, &mut world, &mut shell);
        }
        for cut in cuts {
            let plan = plan_remove(&world.observe(&shell)).unwrap();
            let ended = world.run(&plan, None, &mut shell, Some(cut));
            prop_assert!(matches!(ended, Ended::Cut | Ended::Completed), "{ended:?}");
        }
        converge_remove(&mut world, &mut shell);
        prop_assert!(plan_remove(&world.observe(&shell)).unwrap().is_empty());
        prop_assert_eq!(shell, Shell::default());
        let unclaimed = mishaps.iter().any(|mishap| matches!(mishap, Mishap::ClaimGoes | Mishap::DockerIsPruned));
        given_back(&before, &world, unclaimed);
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
