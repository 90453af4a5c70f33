//! Nodes get other roles by an edit of the config: the product's own runs, on simulated worlds.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use rke_operator::{
    config::Intent,
    converge::{Goal, Outcome},
    error::{ErrorClass, Explain},
    facts::{ContainerState, HostView},
    model::{NodeName, Role, path},
};

use crate::{
    joint_nodes::{all, in_this_order, is_as_the_config_says, of, titles},
    joint_properties::{
        block_on, cut, dies, no_longer_watched, order, runner, serves_all_the_while, settle,
    },
    plan_properties::Cuts,
    sim::{Cut, World, runner::Runner, wish::Wish},
};

const WORKER: u8 = 0;
const MEMBER: u8 = 1;
const CONTROL_PLANE: u8 = 2;
const CENTRAL: u8 = 3;
const NO_WORKER: u8 = 4;

async fn refused(runner: &Runner, intent: &Intent) -> String {
    let before = runner.remote.world(|world| world.clone());
    let error = runner.converge(&Goal::Up(intent)).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::User);
    assert!(runner.remote.world(|world| *world == before));
    error.to_string()
}

/// What is on each node: its containers, and the names of its files.
fn shape(world: &World) -> BTreeMap<NodeName, (BTreeSet<String>, BTreeSet<String>)> {
    let hosts = world.truth.hosts.iter();
    let shapes = hosts.map(|(name, view)| {
        let HostView::Reachable(facts) = view else {
            panic!("it is there");
        };
        let containers = facts.containers.keys().cloned().collect();
        let files = facts.files.iter().flatten();
        let files = files.filter(|(_, fact)| !fact.is_dir);
        let files = files.map(|(path, _)| path.clone()).collect();
        (name.clone(), (containers, files))
    });
    shapes.collect()
}

/// As if every node had had its roles from the beginning.
async fn is_as_made_so(runner: &Runner, wish: &Wish) {
    let other = crate::joint_properties::runner(wish.nodes());
    let bare = other.remote.world(|world| world.clone());
    is_as_the_config_says(runner, wish, &bare);
    let outcome = other.converge(&Goal::Up(&wish.intent())).await;
    assert!(
        matches!(outcome, Ok(Outcome::Converged { .. })),
        "{outcome:?}"
    );
    let made = other.remote.world(|world| shape(world));
    assert_eq!(runner.remote.world(|world| shape(world)), made);
}

/// What is replaced, in the plan's order.
fn replaced(plan: &[String]) -> Vec<&str> {
    let steps = plan.iter().map(String::as_str);
    steps.filter(|step| step.contains("replace")).collect()
}

/// Rule 25: nothing asks it any more when its API server goes, its member leaves before its container,
/// and its kubelet has a way to the API again at once. Of the others only API servers restart, which had
/// its member in their lists.
#[test]
fn a_control_plane_becomes_a_worker_when_nothing_relies_on_it_any_more() {
    block_on(async {
        let runner = runner(4);
        settle(&runner, &of(&[CENTRAL, CENTRAL, WORKER]).intent()).await;
        let less = of(&[CENTRAL, WORKER, WORKER]);
        let plan = titles(&runner, &less).await;
        let member = plan
            .iter()
            .find(|step| step.starts_with("n3: remove member"));
        in_this_order(
            &plan,
            &[
                "n4: reload nginx-proxy",
                "n1: replace kube-apiserver",
                "n2: replace kube-apiserver",
                "n3: remove kube-apiserver",
                "n3: remove kube-controller-manager",
                "n3: remove kube-scheduler",
                "n3: run nginx-proxy",
                member.unwrap(),
                "n3: remove etcd",
            ],
        );
        let restarts = ["n1: replace kube-apiserver", "n2: replace kube-apiserver"];
        assert_eq!(replaced(&plan), restarts, "{plan:#?}");
        serves_all_the_while(&runner);
        settle(&runner, &less.intent()).await;
        no_longer_watched(&runner);
        is_as_made_so(&runner, &less).await;
        runner.remote.world(|world| {
            let files = world.truth.up(&"n3".into()).unwrap().files.clone().unwrap();
            for secret in [
                path::STATE,
                "/etc/kubernetes/ssl/kube-service-account-token-key.pem",
                "/etc/kubernetes/ssl/kube-apiserver-etcd-client-key.pem",
                "/etc/kubernetes/ssl/kubecfg-kube-controller-manager.yaml",
            ] {
                assert!(!files.contains_key(secret), "{secret}");
            }
        });
        // It may have them again: its member is another one.
        let again = of(&[CENTRAL, CENTRAL, WORKER]);
        let plan = titles(&runner, &again).await;
        assert!(plan.contains(&"n3: join etcd".to_owned()), "{plan:#?}");
        settle(&runner, &again.intent()).await;
        is_as_made_so(&runner, &again).await;
    });
}

/// Rule 25, in reverse: its member votes before any API server is told of it, and its proxy goes just
/// before its API server takes the port.
#[test]
fn a_worker_becomes_a_control_plane_and_a_member() {
    block_on(async {
        let runner = runner(4);
        settle(&runner, &of(&[CENTRAL, WORKER, WORKER]).intent()).await;
        let more = of(&[CENTRAL, CENTRAL, WORKER]);
        let plan = titles(&runner, &more).await;
        in_this_order(
            &plan,
            &[
                "n3: join etcd",
                "n3: remove nginx-proxy",
                "n3: run kube-apiserver",
                "n3: wait for kube-apiserver to be healthy",
                "n1: replace kube-apiserver",
                "n2: replace kube-apiserver",
                "n3: run kube-controller-manager",
            ],
        );
        let restarts = ["n1: replace kube-apiserver", "n2: replace kube-apiserver"];
        assert_eq!(replaced(&plan), restarts, "{plan:#?}");
        settle(&runner, &more.intent()).await;
        is_as_made_so(&runner, &more).await;
        // One with an API server alone: no other one is told of it.
        let more = of(&[CENTRAL, CENTRAL, CONTROL_PLANE]);
        let plan = titles(&runner, &more).await;
        in_this_order(&plan, &["n4: remove nginx-proxy", "n4: run kube-apiserver"]);
        assert_eq!(replaced(&plan), [""; 0], "{plan:#?}");
        settle(&runner, &more.intent()).await;
        is_as_made_so(&runner, &more).await;
    });
}

/// The one that comes joins while the one that goes is a member, which is asked until it is gone.
#[test]
fn a_member_moves_to_another_node_in_one_edit() {
    block_on(async {
        let runner = runner(4);
        settle(&runner, &of(&[CENTRAL, MEMBER, WORKER]).intent()).await;
        let moved = of(&[CENTRAL, WORKER, MEMBER]);
        let plan = titles(&runner, &moved).await;
        in_this_order(&plan, &["n4: join etcd", "n3: remove etcd"]);
        let id = runner.memory.shell().saved.unwrap().cluster_id;
        runner.remote.watch(move |world, step| {
            assert!(world.member_count(&id) >= 3, "too few after {step:?}");
        });
        settle(&runner, &moved.intent()).await;
        no_longer_watched(&runner);
        is_as_made_so(&runner, &moved).await;
    });
}

/// Rule 25: the taint of a node that is a member alone ends pods whatever their budgets say.
#[test]
fn pods_are_evicted_before_a_taint_ends_them() {
    block_on(async {
        let runner = runner(4);
        settle(&runner, &of(&[CENTRAL, CENTRAL, WORKER]).intent()).await;
        let mut intent = of(&[CENTRAL, CENTRAL, MEMBER | NO_WORKER]);
        let plan = titles(&runner, &intent).await;
        in_this_order(
            &plan,
            &[
                "n4: join etcd",
                "n4: drain",
                "n4: set node labels, annotations and taints",
                "n4: uncordon",
            ],
        );
        settle(&runner, &intent.intent()).await;
        is_as_made_so(&runner, &intent).await;
        // It has the taint, and another label is no reason.
        intent.labelled = true;
        let plan = titles(&runner, &intent).await;
        let drains = plan.iter().filter(|step| step.contains("drain"));
        assert_eq!(drains.collect::<Vec<_>>(), [""; 0]);
    });
}

/// Who only gives up a role counts as one who leaves.
#[test]
fn too_many_do_not_give_up_their_roles_at_once() {
    block_on(async {
        let runner = runner(5);
        let whole = of(&[CENTRAL, CENTRAL, CONTROL_PLANE, CONTROL_PLANE]);
        settle(&runner, &whole.intent()).await;
        for (masks, why) in [
            (
                [CONTROL_PLANE, CONTROL_PLANE, CONTROL_PLANE, CONTROL_PLANE],
                "2 of 3 members of etcd would leave",
            ),
            (
                [CENTRAL, CENTRAL, WORKER, WORKER],
                "`n4`, `n5`, and that is more than a third of the 5 nodes",
            ),
        ] {
            let said = refused(&runner, &of(&masks).intent()).await;
            assert!(said.contains(why), "{said}");
        }
        // With consent by name.
        let less = of(&[CENTRAL, CENTRAL, WORKER, WORKER]);
        assert!(happens(&runner, &less).await);
        is_as_made_so(&runner, &less).await;
    });
}

/// The others are put right first.
#[test]
fn the_last_api_server_that_serves_stays_until_another_one_does() {
    block_on(async {
        let runner = runner(3);
        settle(&runner, &of(&[CONTROL_PLANE, CONTROL_PLANE]).intent()).await;
        runner.remote.end("n1", "kube-apiserver");
        runner.remote.end("n2", "kube-apiserver");
        let less = of(&[CONTROL_PLANE, WORKER]);
        let plan = runner.plan(&Goal::Up(&less.intent())).await.unwrap();
        let steps = all(&plan);
        let removes = steps.iter().filter(|step| step.contains("remove"));
        let removes = removes.filter(|step| !step.contains("remove before-"));
        assert_eq!(removes.collect::<Vec<_>>(), [""; 0]);
        let stays = "does not give up `controlplane` yet: no API server serves of those that stay";
        let mut notes = plan.notes.iter();
        assert!(
            notes.any(|note| note.text.contains(stays)),
            "{:?}",
            plan.notes
        );
        settle(&runner, &less.intent()).await;
        is_as_made_so(&runner, &less).await;
        // In one edit to another node.
        let mut moved = of(&[WORKER, CONTROL_PLANE]).intent();
        let first = moved.nodes.get_mut(&NodeName::from("n1")).unwrap();
        first.roles.remove(&Role::ControlPlane);
        settle(&runner, &of(&[WORKER, WORKER]).intent()).await;
        settle(&runner, &moved).await;
    });
}

/// Rule 6: while another member is away none leaves; what is away is put right first.
#[test]
fn no_member_leaves_while_etcd_would_not_serve_without_it() {
    block_on(async {
        let runner = runner(3);
        settle(&runner, &of(&[CENTRAL, CENTRAL]).intent()).await;
        runner.remote.world(|world| {
            let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&"n2".into()) else {
                panic!("it is there");
            };
            facts.containers.get_mut("etcd").unwrap().state = ContainerState::Exited(1);
        });
        let less = of(&[CENTRAL, WORKER]);
        let plan = runner.plan(&Goal::Up(&less.intent())).await.unwrap();
        let steps = all(&plan);
        let removes = steps.iter().filter(|step| step.contains("remove"));
        let removes = removes.filter(|step| !step.contains("remove before-"));
        assert_eq!(removes.collect::<Vec<_>>(), [""; 0]);
        let stays = "does not give up `controlplane` and `etcd` yet: etcd would not serve";
        let mut notes = plan.notes.iter();
        assert!(
            notes.any(|note| note.text.contains(stays)),
            "{:?}",
            plan.notes
        );
        settle(&runner, &less.intent()).await;
        is_as_made_so(&runner, &less).await;
    });
}

/// Where Docker goes down with containerd it would take along what the node still has of its former roles.
#[test]
fn containerd_is_configured_when_the_node_has_given_up_its_roles() {
    block_on(async {
        let runner = runner(4);
        settle(&runner, &of(&[CENTRAL, CENTRAL, WORKER]).intent()).await;
        let mut less = of(&[CENTRAL, WORKER, WORKER]);
        less.pause = 1;
        let plan = titles(&runner, &less).await;
        let configured = plan
            .iter()
            .filter(|step| step.ends_with("configure containerd"));
        let configured: Vec<&str> = configured.map(|step| &step[..2]).collect();
        assert_eq!(configured, ["n1", "n2", "n4"], "{plan:#?}");
        settle(&runner, &less.intent()).await;
        is_as_made_so(&runner, &less).await;
    });
}

/// What no order of steps makes safe is refused, with the order in which it can be done.
#[test]
fn roles_wait_for_a_cluster_that_is_made_and_do_not_come_with_a_release() {
    block_on(async {
        let runner = runner(3);
        let whole = of(&[CENTRAL, CENTRAL]);
        let goal = whole.intent();
        let begun = runner.plan(&Goal::Up(&goal)).await.unwrap();
        let start = all(&begun).iter().position(|step| step == "n1: run etcd");
        // The state is kept, and no member runs.
        let cut = Cut {
            after: start.unwrap() - 1,
            torn: 0,
        };
        assert!(dies(&runner, &Goal::Up(&goal), cut).await);
        let less = of(&[CENTRAL, WORKER]);
        let said = refused(&runner, &less.intent()).await;
        assert!(said.contains("the cluster was not created yet"), "{said}");
        settle(&runner, &goal).await;
        settle(&runner, &less.intent()).await;
    });
    block_on(async {
        let runner = runner(3);
        settle(
            &runner,
            &of(&[CENTRAL, CONTROL_PLANE]).intent_of(Some("v1.33.13")),
        )
        .await;
        let less = of(&[CENTRAL, WORKER]);
        let said = refused(&runner, &less.intent_of(Some("v1.34.4"))).await;
        assert!(said.contains("another minor release"), "{said}");
        settle(&runner, &less.intent_of(Some("v1.33.13"))).await;
        settle(&runner, &less.intent_of(Some("v1.34.4"))).await;
    });
}

/// Who asks for it: without naming anybody, or by the names that it takes. `None`: nobody may.
async fn asked(runner: &Runner, wish: &Wish) -> Option<Runner> {
    let intent = wish.intent();
    let said = match runner.would(&Goal::Up(&intent)).await {
        Ok(_) => return Some(runner.clone()),
        Err(error) => error.to_string(),
    };
    let names = intent.nodes.keys().map(|name| name.0.as_str());
    let named: Vec<&str> = names
        .filter(|name| said.contains(&format!("`{name}`")))
        .collect();
    let named = runner.losing(&named);
    let may = named.would(&Goal::Up(&intent)).await.is_ok();
    may.then_some(named)
}

/// Converges if somebody may ask for it. False: nobody may.
async fn happens(runner: &Runner, wish: &Wish) -> bool {
    let Some(asked) = asked(runner, wish).await else {
        return false;
    };
    asked.converge(&Goal::Up(&wish.intent())).await.unwrap();
    settle(runner, &wish.intent()).await;
    true
}

/// From any roles to any others, if somebody may have that in one edit; `back`: the edit is taken back after the cut.
/// Whether the run was cut, if there was one.
async fn change(masks: Vec<(u8, u8)>, order: &[u8], cut: Cut, back: bool) -> Option<bool> {
    let (before, after): (Vec<u8>, Vec<u8>) = masks.into_iter().unzip();
    let (before, after) = (of(&before), of(&after));
    let runner = runner(before.nodes());
    runner.remote.order(order);
    settle(&runner, &before.intent()).await;
    let goal = after.intent();
    let asked = asked(&runner, &after).await?;
    serves_all_the_while(&runner);
    let died = dies(&asked, &Goal::Up(&goal), cut).await;
    // Not everything may be taken back: the second member of two stays.
    let taken_back = back && happens(&runner, &before).await;
    let wish = if taken_back { &before } else { &after };
    assert!(taken_back || happens(&runner, &after).await);
    no_longer_watched(&runner);
    is_as_made_so(&runner, wish).await;
    (before != after).then_some(died)
}

/// Cut off in any step: what has a spare serves all the while, and in the end everything is as if it had been made so.
fn wherever_it_is_cut(back: bool) {
    let cuts = Cuts::default();
    // A node has some role.
    let mask = || (0..8u8).prop_map(|mask| if mask == NO_WORKER { WORKER } else { mask });
    let masks = prop::collection::vec((mask(), mask()), 1..6);
    let run = |(masks, order, cut): (Vec<(u8, u8)>, Vec<u8>, Cut)| {
        let died = block_on(change(masks, &order, cut, back));
        if let Some(died) = died {
            cuts.count(died);
        }
        Ok(())
    };
    let regressions = FileFailurePersistence::Direct("tests/it/joint_roles.regressions");
    let config = ProptestConfig {
        cases: (ProptestConfig::default().cases / 32).max(1),
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::default()
    };
    let strategy = (masks, order(), cut());
    TestRunner::new(config).run(&strategy, run).unwrap();
    cuts.are_real();
}

#[test]
fn roles_change_wherever_it_is_cut() {
    wherever_it_is_cut(false);
}

#[test]
fn roles_are_had_again_wherever_their_change_is_cut() {
    wherever_it_is_cut(true);
}

/// What failed once, of what was generated.
#[test]
fn roles_change_where_it_was_cut_once() {
    let cut = |after| Cut { after, torn: 0 };
    block_on(async {
        change(vec![(6, 5)], &[0], cut(15_616_841_243_979_255_127), false).await;
        let masks = vec![(3, 0), (7, 1)];
        change(masks, &[0], cut(7_980_490_760_425_271_587), false).await;
    });
}
