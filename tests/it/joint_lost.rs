//! Nodes that are gone for good: the product's own runs, on simulated worlds.

use std::collections::BTreeSet;

use proptest::{
    prelude::*,
    test_runner::{FileFailurePersistence, TestRunner},
};
use rke_operator::{
    converge::{Error, Goal, Outcome},
    error::{ErrorClass, Explain, Obstacle},
    etcd::{Alarm, AlarmKind, MemberId},
    facts::{HostView, NodeFact, Unreachable},
    model::{CLAIM, NodeName, Role, label},
    plan::{self, Held, Note, Plan},
    state::Membership,
};

use crate::{
    joint_nodes::{all, in_this_order, of},
    joint_properties::{
        block_on, cut, dies, no_longer_watched, order, runner, serves_all_the_while, settle,
    },
    plan_properties::Cuts,
    sim::{Cut, World, bare_host, runner::Runner, wish::Wish},
};

/// Roles: bit 0 is etcd, bit 1 the control plane.
const CENTRAL: u8 = 3;
const WORKER: u8 = 0;

fn without(wish: &Wish, nodes: &[usize]) -> Wish {
    Wish {
        without: nodes.iter().map(|node| node - 1).collect(),
        ..wish.clone()
    }
}

fn silent(why: &str) -> Unreachable {
    Unreachable {
        alike: None,
        obstacle: Obstacle::Silence,
        class: ErrorClass::Host,
        why: why.to_owned(),
        hints: Vec::new(),
    }
}

fn switch_off(runner: &Runner, node: &str) {
    runner.remote.kill(node);
}

pub(crate) fn cut_off(runner: &Runner, node: &str) {
    let why = silent("no route to it from here");
    runner
        .remote
        .world(|world| world.cut_off.insert(node.into(), why));
}

/// Another machine stands at the address of a node, or the same one with nothing on it.
pub(crate) fn install_anew(runner: &Runner, node: &str, machine_id: &str) {
    let name = NodeName::from(node);
    let mut facts = bare_host(&name);
    machine_id.clone_into(&mut facts.system.machine_id);
    runner.remote.world(|world| {
        let view = HostView::Reachable(Box::new(facts));
        world.truth.hosts.insert(name.clone(), view);
        world.answering.remove(&name);
    });
}

async fn refused(runner: &Runner, wish: &Wish) -> Error {
    let (world, shell) = (
        runner.remote.world(|world| world.clone()),
        runner.memory.shell(),
    );
    let error = runner
        .converge(&Goal::Up(&wish.intent()))
        .await
        .unwrap_err();
    assert!(
        runner.remote.world(|now| *now == world),
        "nothing was written: {error}"
    );
    assert_eq!(runner.memory.shell(), shell, "{error}");
    error
}

async fn plan_of(runner: &Runner, wish: &Wish) -> Plan {
    runner.plan(&Goal::Up(&wish.intent())).await.unwrap()
}

fn membership(runner: &Runner, node: &str) -> Option<Membership> {
    let saved = runner.memory.shell().saved.unwrap();
    let entry = saved.inventory.get(&NodeName::from(node))?;
    assert_eq!(
        entry.lost_at.is_some(),
        entry.membership == Membership::Lost,
        "a tombstone says when"
    );
    Some(entry.membership)
}

/// Who is a Node and a member of etcd is as the config says; what is lost is a tombstone.
fn goes_on_without(runner: &Runner, wish: &Wish, lost: &[&str]) {
    let intent = wish.intent();
    let named: BTreeSet<&NodeName> = intent.nodes.keys().collect();
    let saved = runner.memory.shell().saved.unwrap();
    runner.remote.world(|world| {
        let nodes = &world.truth.cluster.as_ref().unwrap().nodes;
        assert_eq!(nodes.keys().collect::<BTreeSet<_>>(), named);
        let members = intent.with_role(Role::Etcd).map(|(name, _)| name);
        let there = &world.members[&saved.cluster_id.0];
        assert_eq!(
            there.iter().collect::<BTreeSet<_>>(),
            members.collect::<BTreeSet<_>>()
        );
    });
    for name in lost {
        assert_eq!(membership(runner, name), Some(Membership::Lost), "{name}");
        assert!(!saved.etcd_bootstrap.contains_key(&NodeName::from(*name)));
    }
    for name in named {
        assert_eq!(membership(runner, &name.0), Some(Membership::Active));
    }
}

/// O31: one that answers and lets nobody in is not called lost: its own error and cure come first.
#[test]
fn a_node_that_answers_and_lets_nobody_in_is_not_called_lost() {
    block_on(async {
        let runner = runner(3);
        let whole = of(&[WORKER, WORKER]);
        settle(&runner, &whole.intent()).await;
        let why = Unreachable {
            alike: None,
            obstacle: Obstacle::Other,
            class: ErrorClass::User,
            why: "the host key of node `n3` is not known".to_owned(),
            hints: vec!["record it".to_owned()],
        };
        runner
            .remote
            .world(|world| world.cut_off.insert("n3".into(), why));
        let error = refused(&runner, &without(&whole, &[3])).await;
        let said = error.to_string();
        assert!(!said.contains("does not answer"), "{said}");
        assert!(
            said.contains("cannot log in to clean it: the host key of node `n3` is not known"),
            "{said}"
        );
        assert_eq!(error.hints()[0], "record it");
    });
}

/// Rule 10: whoever does not answer is taken away only when a person names it.
#[test]
fn a_worker_that_is_gone_goes_with_consent_by_name_and_leaves_a_tombstone() {
    block_on(async {
        let runner = runner(3);
        let whole = of(&[WORKER, WORKER]);
        settle(&runner, &whole.intent()).await;
        switch_off(&runner, "n3");
        let less = without(&whole, &[3]);
        let error = refused(&runner, &less).await;
        assert_eq!(error.class(), ErrorClass::User);
        let said = error.to_string();
        assert!(
            said.contains("`n3` is no longer in the config and does not answer"),
            "{said}"
        );
        let hints = error.hints().join("\n");
        assert!(hints.contains("--lose n3"), "{hints}");
        assert!(
            hints.contains("clusterprovisioner.rke.io/lose: n3"),
            "{hints}"
        );

        let losing = runner.losing(&["n3"]);
        let plan = plan_of(&losing, &less).await;
        in_this_order(
            &all(&plan),
            &[
                "local: save the state",
                "n3: say that the node is out of service",
                "n3: delete the Node object",
            ],
        );
        let disturbs = plan.disruptions().any(|(step, what)| {
            step.node() == Some(&"n3".into()) && what.contains("the node is given up")
        });
        assert!(disturbs, "{}", plan::render(&plan));
        settle_losing(&losing, &less).await;
        goes_on_without(&runner, &less, &["n3"]);
        // Nobody waits for it any more, and nobody has to ask for it again.
        settle(&runner, &less.intent()).await;
    });
}

/// Converges with consent, and there is nothing left to do without.
async fn settle_losing(losing: &Runner, wish: &Wish) {
    let intent = wish.intent();
    let outcome = losing.converge(&Goal::Up(&intent)).await.unwrap();
    assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
    let rest = losing.losing(&[]).plan(&Goal::Up(&intent)).await.unwrap();
    assert!(rest.is_empty(), "{}", plan::render(&rest));
}

/// Rules 4 and 12: its member leaves first, its Node says that it is out of service, and then goes.
#[test]
fn a_member_that_is_gone_leaves_etcd_before_its_node_goes() {
    block_on(async {
        let runner = runner(4);
        let whole = of(&[CENTRAL, CENTRAL, WORKER]);
        settle(&runner, &whole.intent()).await;
        for lost in [1, 3] {
            let name = format!("n{lost}");
            switch_off(&runner, &name);
            let less = without(&whole, &[lost]);
            refused(&runner, &less).await;
            let losing = runner.losing(&[&name]);
            let plan = all(&plan_of(&losing, &less).await);
            in_this_order(
                &plan,
                &[
                    "local: save the state",
                    &format!("{name}: remove member {lost} of etcd"),
                    &format!("{name}: say that the node is out of service"),
                    &format!("{name}: delete the Node object"),
                    "n2: replace kube-apiserver",
                ],
            );
            serves_all_the_while(&runner);
            settle_losing(&losing, &less).await;
            no_longer_watched(&runner);
            goes_on_without(&runner, &less, &[&name]);
            // A fresh machine under its name joins as any other: there is nothing left of the old one.
            runner.remote.revive(&name);
            install_anew(&runner, &name, &format!("a new {name}"));
            let plan = all(&plan_of(&runner, &whole).await);
            assert!(plan.contains(&format!("{name}: join etcd")), "{plan:#?}");
            settle(&runner, &whole.intent()).await;
            goes_on_without(&runner, &whole, &[]);
        }
    });
}

/// Whoever is cut off from us alone is alive: its kubelet reports, or etcd hears from its member.
#[test]
fn a_node_that_only_we_do_not_reach_is_not_given_up() {
    block_on(async {
        let runner = runner(4);
        let whole = of(&[CENTRAL, CENTRAL, WORKER]);
        settle(&runner, &whole.intent()).await;
        for node in [3, 4] {
            let name = format!("n{node}");
            cut_off(&runner, &name);
            let error = refused(&runner.losing(&[&name]), &without(&whole, &[node])).await;
            assert_eq!(error.class(), ErrorClass::Host);
            let said = error.to_string();
            assert!(said.contains("its kubelet runs"), "{said}");
            runner.remote.world(|world| world.cut_off.clear());
        }
        // Its kubelet is gone, and its member serves.
        cut_off(&runner, "n3");
        runner.remote.take("n3", "kubelet");
        let error = refused(&runner.losing(&["n3"]), &without(&whole, &[3])).await;
        let said = error.to_string();
        assert!(said.contains("etcd hears from member 3"), "{said}");
    });
}

/// A name that needs no consent is an error: it would be the consent to something else later.
#[test]
fn consent_names_only_what_is_lost() {
    block_on(async {
        let runner = runner(3);
        let whole = of(&[WORKER, WORKER]);
        settle(&runner, &whole.intent()).await;
        let less = without(&whole, &[3]);
        for (name, wish, why) in [
            ("n7", &whole, "the cluster has no node `n7`"),
            ("n3", &less, "`n3` is not lost: it answers"),
            (
                "n2",
                &less,
                "`n2` is not lost: the config names it, and its machine answers",
            ),
        ] {
            let error = refused(&runner.losing(&[name]), wish).await;
            assert_eq!(error.class(), ErrorClass::User);
            assert!(error.to_string().contains(why), "{error}");
        }
        switch_off(&runner, "n3");
        let error = refused(&runner.losing(&["n3"]), &whole).await;
        let why = "one that does not answer is left as it is until the config no longer names it";
        assert!(error.to_string().contains(why), "{error}");
    });
}

/// What no consent allows: etcd's majority and the last API server that serves.
#[test]
fn no_consent_gives_away_the_quorum_or_the_last_control_plane() {
    block_on(async {
        // Two of three members.
        let runner = runner(4);
        let whole = of(&[CENTRAL, CENTRAL, WORKER]);
        settle(&runner, &whole.intent()).await;
        switch_off(&runner, "n2");
        switch_off(&runner, "n3");
        let less = without(&whole, &[2, 3]);
        let said = refused(&runner.losing(&["n2", "n3"]), &less)
            .await
            .to_string();
        assert!(
            said.contains("2 of 3 members of etcd would leave"),
            "{said}"
        );
        assert!(said.contains("etcd does not serve"), "{said}");
        // One that answers, and one that does not.
        runner.remote.revive("n2");
        let said = refused(&runner.losing(&["n2", "n3"]), &less)
            .await
            .to_string();
        assert!(
            said.contains("2 of 3 members of etcd would leave"),
            "{said}"
        );
    });
    block_on(async {
        // The other one is yet to join.
        let runner = runner(4);
        let whole = of(&[1, 1]);
        settle(&runner, &whole.intent()).await;
        let less = without(&of(&[1, 1, 2]), &[1]);
        let said = refused(&runner, &less).await.to_string();
        assert!(
            said.contains("no API server that serves would be left"),
            "{said}"
        );
        switch_off(&runner, "n1");
        let said = refused(&runner.losing(&["n1"]), &less).await.to_string();
        assert!(said.contains("no API server answers"), "{said}");
    });
}

/// More than a third goes when each is named, whether it answers or not.
#[test]
fn more_than_a_third_goes_only_when_each_is_named() {
    block_on(async {
        let runner = runner(5);
        let whole = of(&[WORKER, WORKER, WORKER, WORKER]);
        settle(&runner, &whole.intent()).await;
        switch_off(&runner, "n5");
        let less = without(&whole, &[3, 4, 5]);
        for names in [&["n5"][..], &["n3", "n5"]] {
            let said = refused(&runner.losing(names), &less).await.to_string();
            assert!(said.contains("more than a third of the 5 nodes"), "{said}");
        }
        let losing = runner.losing(&["n3", "n4", "n5"]);
        settle_losing(&losing, &less).await;
        goes_on_without(&runner, &less, &["n5"]);
        assert_eq!(membership(&runner, "n3"), None);
        assert_eq!(runner.remote.containers("n4"), 0);
    });
}

/// A cluster of which a node is given up, if it may be: half of etcd's members nobody gives up.
async fn one_is_lost(
    masks: &[u8],
    index: prop::sample::Index,
    order: &[u8],
) -> Option<(Runner, Wish, Wish, String)> {
    let whole = of(masks);
    let runner = runner(whole.nodes());
    runner.remote.order(order);
    settle(&runner, &whole.intent()).await;
    let node = index.index(masks.len()) + 2;
    let name = format!("n{node}");
    switch_off(&runner, &name);
    let less = without(&whole, &[node]);
    let losing = runner.losing(&[&name]);
    if losing.would(&Goal::Up(&less.intent())).await.is_err() {
        refused(&losing, &less).await;
        return None;
    }
    Some((runner, whole, less, name))
}

fn cases() -> ProptestConfig {
    let regressions = FileFailurePersistence::Direct("tests/it/joint_lost.regressions");
    ProptestConfig {
        cases: (ProptestConfig::default().cases / 42).max(1),
        failure_persistence: Some(Box::new(regressions)),
        ..ProptestConfig::default()
    }
}

/// Which cluster, which of its nodes, in what order of queues, and where it is cut.
type Loss = (Vec<u8>, prop::sample::Index, Vec<u8>, Cut);

fn loss() -> impl Strategy<Value = Loss> {
    let masks = prop::collection::vec(0..4u8, 1..6);
    (masks, any::<prop::sample::Index>(), order(), cut())
}

/// The state says that it is lost before anything is done about it: whoever goes on need not ask.
#[test]
fn what_was_given_up_goes_wherever_it_is_cut() {
    let cuts = Cuts::default();
    let run = |(masks, index, order, cut): Loss| {
        block_on(async {
            let Some((runner, _, less, name)) = one_is_lost(&masks, index, &order).await else {
                return Ok(());
            };
            let intent = less.intent();
            serves_all_the_while(&runner);
            let losing = runner.losing(&[&name]);
            cuts.count(dies(&losing, &Goal::Up(&intent), cut).await);
            settle(&runner, &intent).await;
            no_longer_watched(&runner);
            goes_on_without(&runner, &less, &[&name]);
            Ok(())
        })
    };
    TestRunner::new(cases()).run(&loss(), run).unwrap();
    cuts.are_real();
}

/// And it comes back, as it was.
#[test]
fn what_was_given_up_joins_again_wherever_it_is_cut() {
    let run = |(masks, index, order, cut): Loss| {
        block_on(async {
            let Some((runner, whole, less, name)) = one_is_lost(&masks, index, &order).await else {
                return Ok(());
            };
            settle_losing(&runner.losing(&[&name]), &less).await;
            comes_back(&runner, &name);
            let plan = plan_of(&runner, &less).await;
            prop_assert!(plan.is_empty(), "{}", plan::render(&plan));
            dies(&runner, &Goal::Up(&whole.intent()), cut).await;
            settle(&runner, &whole.intent()).await;
            goes_on_without(&runner, &whole, &[]);
            Ok(())
        })
    };
    TestRunner::new(cases()).run(&loss(), run).unwrap();
}

/// Its kubelet registers it again.
fn comes_back(runner: &Runner, name: &str) {
    runner.remote.revive(name);
    runner.remote.world(|world| {
        let node = NodeFact {
            uid: "another".to_owned(),
            ready: true,
            ..NodeFact::default()
        };
        world.etcd().nodes.insert(name.into(), node);
    });
}

/// A machine that was given up and comes back is named and left alone, until the config names it: then
/// it is cleaned, and joins as a new node.
#[test]
fn a_machine_that_comes_back_is_cleaned_before_it_joins() {
    block_on(async {
        let runner = runner(4);
        let whole = of(&[CENTRAL, CENTRAL, WORKER]);
        settle(&runner, &whole.intent()).await;
        switch_off(&runner, "n3");
        let less = without(&whole, &[3]);
        settle_losing(&runner.losing(&["n3"]), &less).await;
        comes_back(&runner, "n3");
        let plan = plan_of(&runner, &less).await;
        assert!(plan.is_empty(), "{}", plan::render(&plan));
        let mut notes = plan.notes.iter();
        let told = notes.any(|note| note.text.contains("was given up and is back"));
        assert!(told, "{:?}", plan.notes);
        let plan = all(&plan_of(&runner, &whole).await);
        in_this_order(
            &plan,
            &[
                "n3: drain",
                "n3: remove kubelet",
                "n3: delete the Node object",
                "n3: clean up after Kubernetes",
                "n3: release the node",
            ],
        );
        assert!(!plan.contains(&"n3: join etcd".to_owned()), "{plan:#?}");
        settle(&runner, &whole.intent()).await;
        goes_on_without(&runner, &whole, &[]);
    });
}

/// Rule 11: another machine under a node's name, and the same one installed anew.
#[test]
fn another_machine_under_a_name_joins_only_after_the_old_one_was_given_up() {
    for machine_id in ["another", "machine n3"] {
        block_on(async {
            let runner = runner(4);
            let whole = of(&[CENTRAL, CENTRAL, WORKER]);
            settle(&runner, &whole.intent()).await;
            install_anew(&runner, "n3", machine_id);
            let error = refused(&runner, &whole).await;
            assert_eq!(error.class(), ErrorClass::User);
            let said = error.to_string();
            let why = if machine_id == "another" {
                "another machine answers as node `n3` (machine-id `another`, and the node's is \
                 `machine n3`)"
            } else {
                "nothing of this cluster is on node `n3`, which is a member of etcd"
            };
            assert!(said.contains(why), "{said}");
            let hints = error.hints().join("\n");
            assert!(hints.contains("--lose n3"), "{hints}");
            let losing = runner.losing(&["n3"]);
            let plan = all(&plan_of(&losing, &whole).await);
            in_this_order(
                &plan,
                &[
                    "local: save the state",
                    "n3: remove member 3 of etcd",
                    "n3: delete the Node object",
                ],
            );
            let on_host = ["n3: claim for cluster a", "n3: join etcd", "n3: drain"];
            assert!(
                !plan.iter().any(|step| on_host.contains(&step.as_str())),
                "{plan:#?}"
            );
            serves_all_the_while(&runner);
            settle_losing(&losing, &whole).await;
            goes_on_without(&runner, &whole, &[]);
            let saved = runner.memory.shell().saved.unwrap();
            let entry = &saved.inventory[&NodeName::from("n3")];
            assert_eq!(entry.machine_id.as_deref(), Some(machine_id));
        });
    }
}

/// A machine with somebody else's Kubernetes stands at the address of a node that was given up.
#[test]
fn what_is_on_another_machine_is_not_cleaned() {
    block_on(async {
        let runner = runner(2);
        let whole = of(&[WORKER]);
        settle(&runner, &whole.intent()).await;
        install_anew(&runner, "n2", "another");
        runner.remote.world(|world| {
            let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&"n2".into()) else {
                panic!("it is there");
            };
            facts.system.paths.insert("/var/lib/kubelet".to_owned());
        });
        refused(&runner, &whole).await;
        let said = refused(&runner.losing(&["n2"]), &whole).await.to_string();
        assert!(said.contains("/var/lib/kubelet"), "{said}");
    });
}

/// What is on a machine moves to another name; its claim says whose it is, or an older one does not.
fn moves(world: &mut World, from: &str, to: &str, named: bool) {
    let mut view = world.truth.hosts[&NodeName::from(from)].clone();
    if let HostView::Reachable(facts) = &mut view
        && !named
    {
        let claim = facts.containers.get_mut(CLAIM).unwrap();
        claim.labels.remove(label::NODE);
    }
    world.truth.hosts.insert(to.into(), view);
}

/// Rule 11: two addresses that were exchanged, and one machine under another name.
#[test]
fn exchanged_addresses_and_a_rename_are_refused() {
    for named in [true, false] {
        block_on(async {
            let runner = runner(5);
            let five = of(&[CENTRAL, CENTRAL, WORKER, CENTRAL]);
            let whole = without(&five, &[5]);
            settle(&runner, &whole.intent()).await;
            let settled = runner.remote.world(|world| world.clone());
            runner.remote.world(|world| {
                moves(world, "n3", "n5", named);
                moves(world, "n2", "n3", named);
                moves(world, "n5", "n2", named);
            });
            for runner in [runner.clone(), runner.losing(&["n2"])] {
                let said = refused(&runner, &whole).await.to_string();
                for why in [
                    "the machine of node `n2` is node `n3` of this cluster",
                    "the machine of node `n3` is node `n2` of this cluster",
                ] {
                    assert!(said.contains(why) || said.contains("is not lost"), "{said}");
                }
            }
            runner.remote.world(|world| {
                *world = settled;
                moves(world, "n3", "n5", named);
            });
            let renamed = without(&five, &[3]);
            let said = refused(&runner, &renamed).await.to_string();
            let why = "the machine of node `n5` is node `n3` of this cluster";
            assert!(said.contains(why), "{said}");
        });
    }
}

/// Members that move to other nodes: whoever is not told of the new ones would be without etcd.
#[test]
fn no_member_leaves_while_an_api_server_is_not_told() {
    block_on(async {
        let runner = runner(5);
        let whole = of(&[1, 1, 2, 1]);
        settle(&runner, &without(&whole, &[5]).intent()).await;
        cut_off(&runner, "n4");
        let ended = runner.converge(&Goal::Up(&whole.intent())).await.unwrap();
        assert!(matches!(ended, Outcome::Degraded { .. }), "{ended:?}");
        let less = without(&whole, &[2]);
        let plan = runner.plan(&Goal::Up(&less.intent())).await.unwrap();
        let steps = all(&plan);
        assert!(
            !steps
                .iter()
                .any(|step| step.starts_with("n2: remove member")),
            "{steps:#?}"
        );
        let told = plan.notes.iter().any(|note| {
            note.text
                .contains("the API server on `n1` is not replaced yet")
        });
        assert!(told, "{:?}", plan.notes);
        runner.remote.world(|world| world.cut_off.clear());
        settle(&runner, &less.intent()).await;
    });
}

/// Whatever else waits for the join, too.
fn stays_as_a_voter(plan: &Plan) {
    let held = |note: &&Note| {
        let left = note.held.as_ref().map(|left| &left.why);
        matches!(left, Some(Held::FewerVoters { stay: 2, wanted: 3 }))
    };
    assert_eq!(
        plan.notes.iter().filter(held).count(),
        1,
        "{:#?}",
        plan.notes
    );
}

/// A member leaves when the one that takes its place votes, and not before.
#[test]
fn no_member_leaves_for_one_that_cannot_join() {
    block_on(async {
        let runner = runner(4);
        let whole = of(&[3, 3, 1]);
        settle(&runner, &without(&whole, &[4]).intent()).await;
        let alarm = Alarm {
            member: MemberId(1),
            kind: AlarmKind::NoSpace,
        };
        runner.remote.world(|world| world.alarms.insert(alarm));
        let moved = without(&whole, &[2]);
        let plan = runner.plan(&Goal::Up(&moved.intent())).await.unwrap();
        let steps = all(&plan);
        assert!(
            !steps.iter().any(|step| step.starts_with("n2: ")),
            "{steps:#?}"
        );
        stays_as_a_voter(&plan);
        runner.remote.world(|world| world.alarms.clear());
        // It was left out meanwhile: what comes after is judged anew.
        let why = silent("its disk is full");
        runner
            .remote
            .world(|world| world.cut_off.insert("n4".into(), why));
        stays_as_a_voter(&runner.plan(&Goal::Up(&moved.intent())).await.unwrap());
        runner.converge(&Goal::Up(&moved.intent())).await.unwrap();
        let id = runner.memory.shell().saved.unwrap().cluster_id;
        assert_eq!(runner.remote.world(|world| world.member_count(&id)), 3);
        runner.remote.world(|world| world.cut_off.clear());
        settle(&runner, &moved.intent()).await;
    });
}
