//! The snapshot of etcd before a removal, through `converge` itself: one at most, and before anything is stopped.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use rke_operator::{
    api::LastSnapshot,
    config::Intent,
    converge::{Error, Removal, RemovalOutcome},
    error::{ErrorClass, Explain},
    model::Component,
    plan::{HostAction, Step},
    state::RemovalSnapshot,
};

use crate::{
    joint_nodes::{all, of},
    joint_properties::{block_on, dies, runner, settle},
    sim::{
        Cut, Shell,
        remote::{SimFailure, SimRemote, Turn},
        runner::Runner,
    },
};

/// A cluster of three members that serves.
async fn cluster() -> (Runner, Intent) {
    let (runner, intent) = (runner(3), of(&[3, 3]).intent());
    settle(&runner, &intent).await;
    assert!(runner.memory.shell().saved.unwrap().memory.populated);
    (runner, intent)
}

/// The same cluster, before anything more happens to it.
pub(crate) fn again(runner: &Runner) -> Runner {
    let world = runner.remote.world(|world| world.clone());
    let copy = Runner::new(&SimRemote::new(world), || [1; 32]);
    copy.memory.keep(runner.memory.shell());
    copy
}

pub(crate) fn is_snapshot(step: &Step) -> bool {
    let action = step.action.on_host();
    action.is_some_and(|(_, action)| matches!(action, HostAction::SaveSnapshot { .. }))
}

pub(crate) fn files(runner: &Runner) -> Vec<(String, String)> {
    runner.remote.world(|world| {
        let files = world.files.iter();
        files
            .map(|(node, name)| (node.0.clone(), name.clone()))
            .collect()
    })
}

/// From now on nothing is stopped or cleaned without a snapshot.
fn nothing_is_stopped_before(runner: &Runner) {
    runner.remote.watch(|world, step| {
        let stops = step.action.is_destructive();
        assert!(!stops || !world.files.is_empty(), "{step:?}");
    });
}

/// From now on a snapshot fails on these nodes.
pub(crate) fn fails_on(runner: &Runner, nodes: &'static [&'static str]) -> Arc<AtomicUsize> {
    let tries = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tries);
    runner.remote.script(move |_, _, step| {
        let node = step.node().map(|node| node.0.as_str());
        if !is_snapshot(step) || !node.is_some_and(|node| nodes.contains(&node)) {
            return Turn::Go;
        }
        count.fetch_add(1, Ordering::Relaxed);
        Turn::Fail(SimFailure::new(ErrorClass::Host, "no room is left"))
    });
    tries
}

/// Removes all of it. Where the last snapshot is.
async fn removed(runner: &Runner, intent: &Intent) -> Option<RemovalSnapshot> {
    let outcome = runner.converge(&Removal(Some(intent))).await.unwrap();
    let RemovalOutcome::Removed { last_snapshot, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(runner.memory.shell(), Shell::default());
    last_snapshot
}

fn runs(runner: &Runner, component: Component) -> bool {
    runner.remote.world(|world| {
        let mut hosts = world
            .truth
            .hosts
            .keys()
            .cloned()
            .collect::<Vec<_>>()
            .into_iter();
        hosts.any(|name| world.runs(&name, component).is_some())
    })
}

#[test]
fn a_removal_saves_one_snapshot_first_and_says_where_it_is() {
    block_on(async {
        let (runner, intent) = cluster().await;
        let plan = runner.plan(&Removal(Some(&intent))).await.unwrap();
        let steps = all(&plan);
        let name = "before-removal_2030-01-01T00-00-00Z";
        assert_eq!(steps[0], "n1: save a snapshot of etcd");
        assert_eq!(steps.iter().filter(|step| step.contains("save")).count(), 1);

        nothing_is_stopped_before(&runner);
        let last = removed(&runner, &intent).await.unwrap();
        insta::assert_snapshot!(last.place().unwrap(), @"`/opt/rke/etcd-snapshots/before-removal_2030-01-01T00-00-00Z` on node `n1`");
        assert_eq!(files(&runner), [("n1".to_owned(), name.to_owned())]);

        let (runner, intent) = cluster().await;
        let skipping = runner.saving(LastSnapshot::Skip);
        assert_eq!(removed(&skipping, &intent).await, None);
        assert_eq!(files(&skipping), []);
    });
}

/// The process may be killed when the file is there and the state does not say so yet.
#[test]
fn wherever_a_removal_is_cut_it_takes_one_snapshot_and_before_anything_is_stopped() {
    block_on(async {
        let (whole, intent) = cluster().await;
        let goal = Removal(Some(&intent));
        let steps = all(&whole.plan(&goal).await.unwrap()).len();
        assert!(steps > 20, "{steps}");
        let cuts = (0..steps).map(|after| (after, 0));
        // The file is there.
        for (after, torn) in cuts.chain([(0, 1)]) {
            for policy in [LastSnapshot::Required, LastSnapshot::BestEffort] {
                let runner = again(&whole).saving(policy);
                nothing_is_stopped_before(&runner);
                dies(&runner, &goal, Cut { after, torn }).await;
                let later = runner.at("2030-01-01T00:30:00Z");
                let last = removed(&later, &intent).await;
                let last = last.unwrap_or_else(|| panic!("none after {after}, {torn}"));
                assert_eq!(files(&later), [(last.node.0, last.name)], "{after}, {torn}");
            }
        }
    });
}

/// What was stored meanwhile would be missing.
#[test]
fn a_cluster_that_went_on_is_saved_again() {
    block_on(async {
        let (runner, intent) = cluster().await;
        let goal = Removal(Some(&intent));
        let cut = Cut { after: 1, torn: 0 };
        assert!(dies(&runner, &goal, cut).await);
        assert!(runs(&runner, Component::ApiServer));
        let later = runner.at("2030-01-01T01:00:00Z");
        assert_eq!(
            later
                .plan(&goal)
                .await
                .unwrap()
                .steps()
                .filter(|step| is_snapshot(step))
                .count(),
            1
        );

        // `up` says that it goes on.
        settle(&runner, &intent).await;
        assert_eq!(
            runner.memory.shell().saved.unwrap().memory.last_snapshot,
            None
        );
        let later = runner.at("2030-01-01T00:01:00Z");
        removed(&later, &intent).await.unwrap();
        assert_eq!(files(&later).len(), 2);

        // Nothing newer can be had.
        let (runner, intent) = cluster().await;
        let goal = Removal(Some(&intent));
        assert!(dies(&runner, &goal, cut).await);
        runner.switch_off("n2");
        runner.switch_off("n3");
        let later = runner
            .at("2030-02-01T00:00:00Z")
            .saving(LastSnapshot::Required);
        let plan = later.plan(&goal).await.unwrap();
        assert!(!plan.steps().any(is_snapshot));
        assert!(plan.steps().any(|step| step.action.is_destructive()));

        // Nothing is stored where no API server runs.
        let (runner, intent) = cluster().await;
        let goal = Removal(Some(&intent));
        for after in 1.. {
            assert!(dies(&runner, &goal, Cut { after, torn: 0 }).await);
            if !runs(&runner, Component::ApiServer) {
                break;
            }
        }
        let later = runner.at("2030-02-01T00:00:00Z");
        removed(&later, &intent).await.unwrap();
        assert_eq!(files(&later).len(), 1);
    });
}

#[test]
fn a_snapshot_that_is_required_and_fails_stops_nothing_and_the_next_node_saves_it() {
    block_on(async {
        let (runner, intent) = cluster().await;
        let runner = runner.saving(LastSnapshot::Required);
        let goal = Removal(Some(&intent));
        let whole = runner.remote.world(|world| world.truth.clone());
        let tries = fails_on(&runner, &["n1"]);
        let error = runner.converge(&goal).await.unwrap_err();
        assert!(matches!(error, Error::Step { .. }), "{error:?}");
        assert_eq!(tries.load(Ordering::Relaxed), 1);
        assert!(runner.remote.world(|world| world.truth == whole));

        nothing_is_stopped_before(&runner);
        let last = removed(&runner, &intent).await.unwrap();
        assert_eq!(last.node, "n2".into());
        assert_eq!(files(&runner), [("n2".to_owned(), last.name)]);
    });
}

#[test]
fn a_snapshot_that_is_not_required_and_fails_is_tried_once() {
    block_on(async {
        let (runner, intent) = cluster().await;
        let tries = fails_on(&runner, &["n1", "n2", "n3"]);
        assert_eq!(removed(&runner, &intent).await, None);
        assert_eq!(tries.load(Ordering::Relaxed), 1);
    });
}

/// Two of three members are off: nothing can be saved.
#[test]
fn without_a_member_that_serves_it_says_so_or_refuses() {
    block_on(async {
        let (runner, intent) = cluster().await;
        runner.switch_off("n2");
        runner.switch_off("n3");
        let goal = Removal(Some(&intent));
        let plan = runner.plan(&goal).await.unwrap();
        assert!(!plan.steps().any(is_snapshot));
        assert!(plan.steps().any(|step| step.action.is_destructive()));
        let said: Vec<_> = plan.notes.iter().map(|note| note.text.as_str()).collect();
        insta::assert_snapshot!(said[0], @"no snapshot of etcd is saved before the removal: no member of etcd serves, and node `n2` does not answer: it is off");

        let strict = runner.saving(LastSnapshot::Required);
        let error = strict.converge(&goal).await.unwrap_err();
        insta::assert_snapshot!(error, @"the cluster is removed only after a snapshot of etcd was saved, and none can be saved: no member of etcd serves, and node `n2` does not answer: it is off");
        let hints = error.hints().join("\n");
        assert!(hints.contains("lastSnapshot: Skip"), "{hints}");
        assert!(runs(&runner, Component::Etcd));

        // With all nodes off there is nothing that could be saved either.
        runner.switch_off("n1");
        let error = strict.converge(&goal).await.unwrap_err();
        assert!(matches!(error, Error::Plan(_)), "{error:?}");

        runner.switch_on();
        assert!(removed(&strict, &intent).await.is_some());
        let left = strict.converge(&goal).await.unwrap();
        let nothing = matches!(left, RemovalOutcome::Removed { changed: false, .. });
        assert!(nothing, "{left:?}");
    });
}

/// A cluster that has stored nothing needs no snapshot, whichever policy applies.
#[test]
fn a_cluster_that_never_served_needs_none() {
    block_on(async {
        let (runner, intent) = (runner(3), of(&[3, 3]).intent());
        let runner = runner.saving(LastSnapshot::Required);
        let goal = rke_operator::converge::Goal::Up(&intent);
        for after in 0.. {
            assert!(dies(&runner, &goal, Cut { after, torn: 0 }).await);
            if runs(&runner, Component::Etcd) {
                break;
            }
        }
        assert_eq!(removed(&runner, &intent).await, None);
        assert_eq!(files(&runner), []);
    });
}
