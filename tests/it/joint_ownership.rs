//! Whose a machine is: what is emptied, what is left alone, and what a person says by name. The product's own runs,
//! on simulated worlds.

use rke_operator::{
    converge::{Goal, Outcome, Removal, RemovalOutcome},
    etcd::MemberId,
    facts::HostView,
    model::{ClusterId, NodeName, path},
    plan::{self, Action, ClusterAction, HostAction, Plan},
    state::Membership,
};

use crate::{
    joint_nodes::{all, in_this_order, is_as_the_config_says, of},
    joint_properties::{block_on, runner, settle},
    sim::{Cut, runner::Runner, wish::Wish},
};

fn without(wish: &Wish, nodes: &[usize]) -> Wish {
    Wish {
        without: nodes.iter().map(|node| node - 1).collect(),
        ..wish.clone()
    }
}

/// A cluster of three nodes, the third of which was off whenever anybody looked, and now is another cluster's.
async fn with_a_stranger() -> (Runner, Wish) {
    let runner = runner(3);
    let whole = of(&[0, 0]);
    runner.remote.kill("n3");
    let outcome = runner.converge(&Goal::Up(&whole.intent())).await.unwrap();
    assert!(matches!(outcome, Outcome::Degraded { .. }), "{outcome:?}");
    runner.remote.revive("n3");
    runner.remote.joins_another("n3");
    (runner, whole)
}

/// A cluster of three nodes, the third of which somebody has reset by hand and uses elsewhere.
async fn with_one_reset() -> (Runner, Wish) {
    let runner = runner(3);
    let whole = of(&[0, 0]);
    settle(&runner, &whole.intent()).await;
    runner.remote.joins_another("n3");
    (runner, whole)
}

fn touches(plan: &Plan, node: &str) -> Vec<String> {
    let on_it = |step: &&plan::Step| matches!(&step.action, Action::Host(name, _) if *name == NodeName::from(node));
    plan.steps().filter(on_it).map(plan::title).collect()
}

fn is_node(runner: &Runner, node: &str) -> bool {
    let saved = runner.memory.shell().saved.unwrap();
    saved.inventory.contains_key(&NodeName::from(node))
}

/// E3: folders prove nothing. A machine that no run saw is left as it is when it leaves the config.
#[test]
fn a_machine_that_no_run_saw_is_not_emptied_when_it_leaves() {
    block_on(async {
        let (runner, whole) = with_a_stranger().await;
        let theirs = runner.remote.whole("n3");
        let less = without(&whole, &[3]).intent();
        let plan = runner.plan(&Goal::Up(&less)).await.unwrap();
        let text = plan::render(&plan);
        assert_eq!(touches(&plan, "n3"), [""; 0], "{text}");
        assert!(
            text.contains("n3: another Kubernetes is or was on it"),
            "{text}"
        );
        assert!(text.contains("--clean n3"), "{text}");
        settle(&runner, &less).await;
        assert_eq!(runner.remote.whole("n3"), theirs);
        assert!(!is_node(&runner, "n3"), "nothing of the cluster is there");
    });
}

#[test]
fn a_machine_that_no_run_saw_is_not_emptied_by_a_removal() {
    block_on(async {
        let (runner, whole) = with_a_stranger().await;
        let theirs = runner.remote.whole("n3");
        let outcome = runner
            .converge(&Removal(Some(&whole.intent())))
            .await
            .unwrap();
        let removed = matches!(outcome, RemovalOutcome::Removed { .. });
        assert!(removed, "{outcome:?}");
        assert_eq!(runner.remote.whole("n3"), theirs);
    });
}

/// Consent by name goes on, and the first plan says what is deleted.
#[test]
fn a_stranger_is_cleaned_when_a_person_names_it() {
    block_on(async {
        for removes in [false, true] {
            let (runner, whole) = with_a_stranger().await;
            let less = without(&whole, &[3]).intent();
            let (goal, removal) = (Goal::Up(&less), Removal(Some(&less)));
            let naming = runner.cleaning(&["n3"]);
            let plan = if removes {
                naming.plan(&removal).await
            } else {
                naming.plan(&goal).await
            };
            let text = plan::render(&plan.unwrap());
            assert!(
                text.contains("of another Kubernetes: `/etc/kubernetes/admin.conf`"),
                "{text}"
            );
            if removes {
                let outcome = naming.converge(&removal).await.unwrap();
                let removed = matches!(outcome, RemovalOutcome::Removed { .. });
                assert!(removed, "{outcome:?}");
            } else {
                let outcome = naming.converge(&goal).await.unwrap();
                assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
            }
            let left = runner.remote.whole("n3").system.paths;
            for folder in [path::KUBERNETES, path::ETCD, path::KUBELET] {
                assert!(!left.contains(folder), "{folder}");
            }
            assert_eq!(runner.remote.claimed_by("n3"), None);
        }
    });
}

/// E3, the second sequence: the machine is the one that a run saw, and another cluster's by now.
#[test]
fn a_node_that_was_reset_by_hand_and_joined_elsewhere_stops_by_name() {
    block_on(async {
        let (runner, whole) = with_one_reset().await;
        let theirs = runner.remote.whole("n3");
        let less = without(&whole, &[3]).intent();
        let goal = Goal::Up(&less);
        let Outcome::Degraded { left, .. } = runner.converge(&goal).await.unwrap() else {
            panic!("it is left alone");
        };
        let why = &left[&NodeName::from("n3")].why;
        assert!(
            why.contains("--clean n3") && why.contains("--lose n3"),
            "{why}"
        );
        assert_eq!(runner.remote.whole("n3"), theirs);

        let removal = Removal(Some(&less));
        let RemovalOutcome::Incomplete { claimed, .. } = runner.converge(&removal).await.unwrap()
        else {
            panic!("the state is kept for it");
        };
        assert!(claimed.contains(&NodeName::from("n3")));
        assert_eq!(runner.remote.whole("n3"), theirs);
        let outcome = runner.losing(&["n3"]).converge(&removal).await.unwrap();
        let removed = matches!(outcome, RemovalOutcome::Removed { .. });
        assert!(removed, "{outcome:?}");
        assert_eq!(runner.remote.whole("n3"), theirs);
        assert_eq!(runner.memory.shell().saved, None);
    });
}

#[test]
fn a_node_that_joined_elsewhere_can_be_forgotten_or_cleaned() {
    block_on(async {
        let (runner, whole) = with_one_reset().await;
        let theirs = runner.remote.whole("n3");
        let less = without(&whole, &[3]).intent();
        // Its kubelet is gone, and the API has seen it.
        runner
            .remote
            .world(|world| world.etcd().nodes.remove(&NodeName::from("n3")));
        let outcome = runner
            .losing(&["n3"])
            .converge(&Goal::Up(&less))
            .await
            .unwrap();
        assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
        let saved = runner.memory.shell().saved.unwrap();
        assert_eq!(
            saved.inventory[&NodeName::from("n3")].membership,
            Membership::Lost
        );
        assert_eq!(runner.remote.whole("n3"), theirs);

        let (runner, whole) = with_one_reset().await;
        let less = without(&whole, &[3]).intent();
        let outcome = runner
            .cleaning(&["n3"])
            .converge(&Goal::Up(&less))
            .await
            .unwrap();
        assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
        assert!(!is_node(&runner, "n3"));
        assert!(!runner.remote.whole("n3").system.paths.contains(path::ETCD));
    });
}

/// The mark of another cluster of ours, whose Docker lost everything, is proof that it is not this one's.
#[test]
fn the_mark_of_another_cluster_is_never_emptied_with_or_without_consent() {
    block_on(async {
        let (runner, whole) = with_one_reset().await;
        runner.remote.world(|world| {
            let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&"n3".into()) else {
                panic!("it is there");
            };
            facts.system.cluster_id = Some(ClusterId("b".repeat(32)));
            facts.system.foreign.clear();
            facts.system.listening.clear();
        });
        let theirs = runner.remote.whole("n3");
        let less = without(&whole, &[3]).intent();
        drop(runner.cleaning(&["n3"]).converge(&Goal::Up(&less)).await);
        assert_eq!(runner.remote.whole("n3"), theirs);
        drop(
            runner
                .cleaning(&["n3"])
                .converge(&Removal(Some(&less)))
                .await,
        );
        assert_eq!(runner.remote.whole("n3"), theirs);
    });
}

/// A node of the config that nothing proves to be ours is refused, not claimed again.
#[test]
fn a_machine_that_no_run_saw_does_not_join_over_another_kubernetes() {
    block_on(async {
        let (runner, whole) = with_a_stranger().await;
        let theirs = runner.remote.whole("n3");
        let error = runner
            .converge(&Goal::Up(&whole.intent()))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("another Kubernetes"), "{error}");
        assert_eq!(runner.remote.whole("n3"), theirs);
    });
}

/// Names that say nothing are refused: a typo must not look like consent.
#[test]
fn only_nodes_that_have_left_the_config_are_named_for_cleaning() {
    block_on(async {
        let (runner, whole) = with_one_reset().await;
        let intent = whole.intent();
        for (name, why) in [("n9", "has no node `n9`"), ("n2", "the config names it")] {
            let error = runner
                .cleaning(&[name])
                .converge(&Goal::Up(&intent))
                .await
                .unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    });
}

/// E18: the data of a member that leaves are a spare copy until another look found the others healthy.
#[test]
fn what_a_voter_had_is_deleted_after_a_look_that_saw_the_others_healthy() {
    block_on(async {
        let runner = runner(4);
        let whole = of(&[3, 3, 3]);
        settle(&runner, &whole.intent()).await;
        let less = without(&whole, &[4]);
        let goal = less.intent();
        let plan = runner.plan(&Goal::Up(&goal)).await.unwrap();
        let cleans = |plan: &Plan| {
            let mut steps = plan.steps().filter_map(|step| step.action.on_host());
            steps.any(|(_, action)| matches!(action, HostAction::CleanHost { .. }))
        };
        assert!(!cleans(&plan), "{:#?}", all(&plan));
        let announced = plan.disruptions().any(|(step, what)| {
            matches!(
                &step.action,
                Action::Cluster(ClusterAction::RemoveMember { .. })
            ) && what.contains("etcd's data")
        });
        assert!(announced, "{}", plan::render(&plan));

        // It has left etcd, and then another member's disk dies.
        let leaves = all(&plan)
            .iter()
            .position(|step| step.starts_with("n4: remove member"));
        let mut after = plan
            .steps()
            .filter(|step| !matches!(step.action, Action::Local(_)));
        let after = after
            .position(|step| plan::title(step).starts_with("remove member"))
            .unwrap();
        assert!(leaves.is_some());
        runner.remote.cut(Some(Cut {
            after: after + 1,
            torn: 0,
        }));
        drop(runner.converge(&Goal::Up(&goal)).await);
        runner.remote.cut(None);
        runner.remote.kill("n3");
        let Outcome::Degraded { left, .. } = runner.converge(&Goal::Up(&goal)).await.unwrap()
        else {
            panic!("n3 does not answer");
        };
        let why = &left[&NodeName::from("n4")].why;
        assert!(why.contains("its copy of etcd's data is kept"), "{why}");
        assert!(
            runner.remote.claimed_by("n4").is_some(),
            "it has not been cleaned"
        );
        runner.remote.revive("n3");
        runner.remote.world(crate::sim::World::settle);
        settle(&runner, &goal).await;
        assert_eq!(runner.remote.claimed_by("n4"), None);
    });
}

/// E7: a learner that never started is its node's by its address, and leaves with it.
#[test]
fn a_learner_that_never_started_leaves_with_its_node() {
    block_on(async {
        let runner = runner(4);
        let bare = runner.remote.world(|world| world.clone());
        let (small, grown) = (of(&[]), of(&[0, 3]));
        settle(&runner, &small.intent()).await;
        adds_a_learner(&runner, &grown, "n3").await;
        let less = without(&grown, &[3]);
        settle(&runner, &less.intent()).await;
        is_as_the_config_says(&runner, &less, &bare);
        let other = without(&of(&[0, 3, 3]), &[3]);
        settle(&runner, &other.intent()).await;
        is_as_the_config_says(&runner, &other, &bare);
    });
}

/// Rule 40: one that no node of the config has makes way before a member joins.
#[test]
fn a_learner_that_no_node_owns_makes_way_for_one_that_joins() {
    block_on(async {
        let runner = runner(4);
        let grown = of(&[3]);
        settle(&runner, &of(&[]).intent()).await;
        runner
            .remote
            .world(|world| world.learners.insert("n4".into(), false));
        let plan = runner.plan(&Goal::Up(&grown.intent())).await.unwrap();
        let stray = format!("n2: remove member {} of etcd", MemberId(1004));
        in_this_order(&all(&plan), &[&stray, "n2: join etcd"]);
        settle(&runner, &grown.intent()).await;
        assert!(runner.remote.world(|world| world.learners.is_empty()));
    });
}

/// The learner of a node that joins is its own, whether or not it has a name.
#[test]
fn a_learner_of_a_node_that_joins_stays() {
    block_on(async {
        for started in [false, true] {
            let runner = runner(3);
            let grown = of(&[3]);
            settle(&runner, &of(&[]).intent()).await;
            runner
                .remote
                .world(|world| world.learners.insert("n2".into(), started));
            let plan = runner.plan(&Goal::Up(&grown.intent())).await.unwrap();
            let removes = all(&plan)
                .into_iter()
                .filter(|step| step.contains("remove member"));
            assert_eq!(removes.collect::<Vec<_>>(), [""; 0], "{started}");
            settle(&runner, &grown.intent()).await;
        }
    });
}

/// A run was killed in the middle of a join, and then the config gave the node another role: it has a member of
/// etcd to give up, and nothing that a restart of containerd would take along.
#[test]
fn a_worker_whose_learner_never_started_has_containerd_before_its_kubelet() {
    block_on(async {
        let runner = runner(3);
        settle(&runner, &of(&[]).intent()).await;
        let goal = of(&[0]).intent();
        runner.remote.kill("n2");
        let outcome = runner.converge(&Goal::Up(&goal)).await.unwrap();
        assert!(matches!(outcome, Outcome::Degraded { .. }), "{outcome:?}");
        runner.remote.revive("n2");
        runner
            .remote
            .world(|world| world.learners.insert("n2".into(), false));
        let plan = runner.plan(&Goal::Up(&goal)).await.unwrap();
        let stray = format!("n2: remove member {} of etcd", MemberId(1002));
        let order = ["n2: configure containerd", "n2: run kubelet", &stray];
        in_this_order(&all(&plan), &order);
        settle(&runner, &goal).await;
        assert!(runner.remote.world(|world| world.learners.is_empty()));
    });
}

/// The same on a worker that runs and whose drop-in for containerd is gone: containerd waits until the member is given
/// up, and a kubelet that changes waits for containerd.
#[test]
fn a_kubelet_changes_after_its_containerd_that_waits() {
    block_on(async {
        let runner = runner(2);
        settle(&runner, &of(&[0]).intent()).await;
        runner
            .remote
            .world(|world| world.learners.insert("n2".into(), false));
        runner.remote.host("n2", |facts| {
            let files = facts.files.get_or_insert_default();
            files.remove(path::CONTAINERD_DROP_IN).expect("a drop-in");
        });
        let changed = Wish {
            verbosity: 3,
            ..of(&[0])
        };
        let plan = runner.plan(&Goal::Up(&changed.intent())).await.unwrap();
        let steps = all(&plan);
        assert!(
            !steps.iter().any(|step| step == "n2: replace kubelet"),
            "{steps:?}"
        );
        settle(&runner, &changed.intent()).await;
    });
}

/// A run was killed in the middle of a join: that member comes to its vote before another one is added.
#[test]
fn a_member_that_was_added_before_joins_first() {
    block_on(async {
        let runner = runner(3);
        let grown = of(&[3, 3]);
        settle(&runner, &of(&[]).intent()).await;
        runner
            .remote
            .world(|world| world.learners.insert("n3".into(), false));
        let plan = runner.plan(&Goal::Up(&grown.intent())).await.unwrap();
        in_this_order(&all(&plan), &["n3: join etcd", "n2: join etcd"]);
        settle(&runner, &grown.intent()).await;
    });
}

/// Dies after the member of this node was added and before it started.
async fn adds_a_learner(runner: &Runner, wish: &Wish, node: &str) {
    let goal = wish.intent();
    let plan = runner.plan(&Goal::Up(&goal)).await.unwrap();
    let remote = plan
        .steps()
        .filter(|step| !matches!(step.action, Action::Local(_)));
    let join = format!("{node}: join etcd");
    let titles: Vec<_> = remote
        .map(|step| format!("{}: {}", step.target(), plan::title(step)))
        .collect();
    let after = titles.iter().position(|title| *title == join).unwrap();
    runner.remote.cut(Some(Cut { after, torn: 0 }));
    drop(runner.converge(&Goal::Up(&goal)).await);
    runner.remote.cut(None);
    let added = runner
        .remote
        .world(|world| world.learners.get(&NodeName::from(node)).copied());
    assert_eq!(added, Some(false), "{titles:#?}");
}

/// Rule 34: a node that comes back in the middle of a run was not in the plan that was shown: nothing is deleted or
/// disturbed there by this run, and the next one does it.
#[test]
fn a_node_that_comes_back_in_a_run_is_left_to_the_next_one() {
    block_on(async {
        let runner = runner(3);
        let whole = of(&[0, 0]);
        settle(&runner, &whole.intent()).await;
        let louder = Wish {
            verbosity: 3,
            ..whole.clone()
        };
        runner.remote.kill("n3");
        let goal = louder.intent();
        runner
            .remote
            .watch(|world, _| drop(world.down.remove(&NodeName::from("n3"))));
        let before = runner.remote.whole("n3");
        let Outcome::Degraded { left, .. } = runner.converge(&Goal::Up(&goal)).await.unwrap()
        else {
            panic!("n3 was not in the plan");
        };
        let why = &left[&NodeName::from("n3")].why;
        assert!(
            why.contains("was not in the plan with which this run began"),
            "{why}"
        );
        let (before, after) = (before.containers, runner.remote.whole("n3").containers);
        assert_eq!(before["kubelet"], after["kubelet"]);
        runner.remote.watch(|_, _| ());
        settle(&runner, &goal).await;
        assert_ne!(
            before["kubelet"].labels,
            runner.remote.whole("n3").containers["kubelet"].labels
        );

        // A removal likewise.
        runner.remote.kill("n3");
        runner
            .remote
            .watch(|world, _| drop(world.down.remove(&NodeName::from("n3"))));
        let there = runner.remote.whole("n3");
        let removal = Removal(Some(&goal));
        let RemovalOutcome::Incomplete { left, .. } = runner.converge(&removal).await.unwrap()
        else {
            panic!("n3 was not in the plan");
        };
        assert_eq!(left.len(), 1);
        assert_eq!(runner.remote.whole("n3"), there);
        let outcome = runner.converge(&removal).await.unwrap();
        let removed = matches!(outcome, RemovalOutcome::Removed { .. });
        assert!(removed, "{outcome:?}");
    });
}
