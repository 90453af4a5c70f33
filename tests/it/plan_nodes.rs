//! Properties of plans for one to seven nodes with any roles, any of them down, the queues of a
//! stage interleaved step by step.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rke_operator::{
    desired::Desired,
    error::{ErrorClass, Obstacle},
    facts::{ContainerState, HostFacts, HostView, Replica, Unreachable},
    model::{Component, NodeName, Taint, path},
    plan::{self, Cause, HostAction, OnFailure, Plan, Step, enough_answer},
};

use crate::{
    plan_properties::fresh,
    sim::{
        Ended, Knobs, Shell, World, desired, effect,
        generate::{names, with_roles},
        knobs,
        world::{Cut, converge_up, plan_up},
    },
};

/// The most nodes.
const MOST: usize = 7;

/// Roles of all nodes but the first, which has every role.
fn masks() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..4u8, 0..MOST)
}

fn order() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

fn wish(masks: &[u8], knobs: &Knobs) -> Desired {
    with_roles(desired("a", &names(masks.len() + 1), knobs), masks)
}

fn with(want: &Desired, component: Component) -> impl Iterator<Item = &NodeName> {
    let hosts = want.hosts.iter();
    let hosts = hosts.filter(move |(_, host)| host.containers.contains_key(&component));
    hosts.map(|(name, _)| name)
}

fn silent() -> Unreachable {
    Unreachable {
        alike: None,
        obstacle: Obstacle::Silence,
        class: ErrorClass::Host,
        why: "it is off".to_owned(),
        hints: vec![],
    }
}

/// Rounds until nothing is to do. After each step the cluster serves as it did before, where it
/// has a spare.
fn converge(world: &mut World, want: &Desired, shell: &mut Shell, order: &[u8]) {
    let mut order = order.iter().copied().cycle();
    for _ in 0..6 {
        let plan = plan_up(want, &world.observe(shell)).unwrap();
        if plan.is_empty() {
            return;
        }
        let id = &want.cluster_id;
        let spare_member = world.member_count(id) > 2 && world.has_quorum(id);
        let spare_api = spare_member && world.serving(id) > 1;
        let ended = world.run_interleaved(&plan, Some(want), shell, &mut order, |world, step| {
            assert!(
                !spare_member || world.has_quorum(id),
                "no quorum after {step:?}"
            );
            let serving = world.serving(id);
            assert!(!spare_api || serving > 0, "no API server after {step:?}");
        });
        // A guard that does not hold any more is a reason to look again.
        assert!(
            matches!(ended, Ended::Completed | Ended::PlanAgain(_)),
            "{ended:?}"
        );
    }
    panic!("something keeps changing");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: Some(Box::new(
        proptest::test_runner::FileFailurePersistence::Direct("tests/it/plan_nodes.regressions"),
    )), ..ProptestConfig::default() })]


    /// Any roles, any of the nodes down: what answers converges, and serves all the while.
    #[test]
    fn invariant_01_no_roll_stops_what_has_a_spare(
        masks in masks(), old in knobs(), new in knobs(), order in order(), off in any::<u8>(),
    ) {
        let (mut world, mut shell) = (fresh(masks.len() + 1), Shell::default());
        let (old, want) = (wish(&masks, &old), wish(&masks, &new));
        converge(&mut world, &old, &mut shell, &order);
        let nodes = names(masks.len() + 1);
        let down = nodes.into_iter().enumerate().filter(|(at, _)| off >> at & 1 == 1);
        world.down = down.map(|(_, name)| (name, silent())).collect();
        let have = world.observe(&shell);
        if enough_answer(with(&want, Component::Etcd), with(&want, Component::ApiServer), &have).is_ok() {
            converge(&mut world, &want, &mut shell, &order);
        } else {
            prop_assert!(plan_up(&want, &have).is_err());
        }
        // They come back.
        world.down.clear();
        world.settle();
        converge(&mut world, &want, &mut shell, &order);
        let mut direct = Shell::default();
        let mut other = fresh(masks.len() + 1);
        converge_up(&mut other, &want, &mut direct);
        for (name, view) in &other.truth.hosts {
            let containers = |world: &World| world.truth.up(name).unwrap().containers.clone();
            prop_assert_eq!(containers(&world), containers(&other), "{}: {:?}", name, view);
        }
    }

    /// A new worker is nobody else's business.
    #[test]
    fn a_new_worker_causes_no_step_on_any_other_host(masks in masks(), knobs in knobs()) {
        let mut more = masks.clone();
        more.push(0);
        let (mut world, mut shell) = (fresh(more.len() + 1), Shell::default());
        let new = names(more.len() + 1).pop().unwrap();
        let old = wish(&masks, &knobs);
        let bare = world.truth.hosts.remove(&new).unwrap();
        converge_up(&mut world, &old, &mut shell);
        world.truth.hosts.insert(new.clone(), bare);
        let plan = plan_up(&wish(&more, &knobs), &world.observe(&shell)).unwrap();
        let on: BTreeSet<_> = plan.steps().filter_map(|step| step.action.on_host()).map(|(node, _)| node).collect();
        prop_assert_eq!(on, [&new].into());
    }

    /// All of a fresh cluster starts side by side: nothing is awaited before everything runs.
    #[test]
    fn invariant_05_a_fresh_cluster_of_any_shape_comes_up_in_one_round(
        masks in masks(), knobs in knobs(), order in order(),
    ) {
        let (mut world, mut shell) = (fresh(masks.len() + 1), Shell::default());
        let want = wish(&masks, &knobs);
        let plan = plan_up(&want, &world.observe(&shell)).unwrap();
        let rolls = plan.steps().filter_map(|step| step.action.on_host());
        let replaces = |action: &HostAction| matches!(action, HostAction::ReplaceContainer { .. });
        prop_assert_eq!(rolls.filter(|(_, action)| replaces(action)).count(), 0);
        let mut order = order.iter().copied().cycle();
        let ended = world.run_interleaved(&plan, Some(&want), &mut shell, &mut order, |_, _| ());
        prop_assert_eq!(ended, Ended::Completed);
        prop_assert!(plan_up(&want, &world.observe(&shell)).unwrap().is_empty());
    }
}

fn node<'a>(world: &'a mut World, name: &NodeName) -> &'a mut HostFacts {
    match world.truth.hosts.get_mut(name) {
        Some(HostView::Reachable(facts)) => facts,
        Some(HostView::Unreachable(_)) | None => panic!("`{name}` is there"),
    }
}

/// A word that nobody asked for: it is to be replaced.
fn change_etcd(world: &mut World, name: &NodeName) {
    let etcd = node(world, name).containers.get_mut("etcd").unwrap();
    let runs = etcd.runs.as_mut().unwrap();
    runs.command.push("--by-hand".to_owned());
}

/// The nodes on which the plan has such a step, in its order.
fn nodes_with(plan: &Plan, wanted: impl Fn(&HostAction) -> bool) -> Vec<&str> {
    let steps = plan.steps().filter_map(|step| step.action.on_host());
    let steps = steps.filter(|(_, action)| wanted(action));
    steps.map(|(name, _)| name.0.as_str()).collect()
}

/// Of three members the others serve meanwhile; the API server beside it loses its own.
#[test]
fn the_api_server_next_to_a_member_that_restarts_is_awaited_and_no_other() {
    let want = wish(&[3, 3], &Knobs::default());
    let (mut world, mut shell) = (fresh(3), Shell::default());
    converge_up(&mut world, &want, &mut shell);
    change_etcd(&mut world, &NodeName::from("n2"));
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let awaits =
        |component| move |action: &HostAction| *action == HostAction::AwaitHealthy { component };
    assert_eq!(nodes_with(&plan, awaits(Component::Etcd)), ["n2"]);
    let apis = nodes_with(&plan, awaits(Component::ApiServer));
    assert_eq!(apis, ["n2"], "{}", plan::render(&plan));
}

/// Of two members the one that runs serves only with the other: whoever begins with it waits for
/// a majority that does not come.
#[test]
fn the_member_that_does_not_run_is_replaced_before_the_one_that_does() {
    let want = wish(&[3], &Knobs::default());
    for stopped in ["n1", "n2"].map(NodeName::from) {
        let (mut world, mut shell) = (fresh(2), Shell::default());
        converge_up(&mut world, &want, &mut shell);
        for name in &names(2) {
            change_etcd(&mut world, name);
        }
        let etcd = node(&mut world, &stopped).containers.get_mut("etcd");
        etcd.unwrap().state = ContainerState::Exited(1);
        let plan = plan_up(&want, &world.observe(&shell)).unwrap();
        let replaces = |action: &HostAction| {
            matches!(
                action,
                HostAction::ReplaceContainer {
                    component: Component::Etcd,
                    ..
                }
            )
        };
        let first = nodes_with(&plan, replaces).first().copied();
        assert_eq!(first, Some(stopped.0.as_str()), "{}", plan::render(&plan));
        converge_up(&mut world, &want, &mut shell);
    }
}

/// Each serves only with the other: who waits for the first before the second is there waits for ever.
#[test]
fn members_that_have_ended_are_replaced_before_one_is_awaited() {
    let want = wish(&[3, 3], &Knobs::default());
    for ended in [2, 3] {
        let (mut world, mut shell) = (fresh(3), Shell::default());
        converge_up(&mut world, &want, &mut shell);
        for name in &names(3) {
            change_etcd(&mut world, name);
        }
        for name in &names(ended) {
            let etcd = node(&mut world, name).containers.get_mut("etcd");
            etcd.unwrap().state = ContainerState::Exited(1);
        }
        let plan = plan_up(&want, &world.observe(&shell)).unwrap();
        let steps = plan
            .steps()
            .map(plan::title)
            .filter(|title| title.contains("etcd"));
        let replaced = steps.take_while(|title| title.starts_with("replace"));
        assert_eq!(replaced.count(), ended, "{}", plan::render(&plan));
        converge_up(&mut world, &want, &mut shell);
    }
}

/// Rule 32: one node less takes not all of it.
#[test]
fn replicas_that_came_to_one_node_are_spread_as_soon_as_another_takes_them() {
    let want = wish(&[0, 0], &Knobs::default());
    let (mut world, mut shell) = (fresh(3), Shell::default());
    converge_up(&mut world, &want, &mut shell);
    let mut dns = want.addons.iter().flat_map(|addon| &addon.workloads);
    let dns = dns.find(|workload| workload.kind == "Deployment").unwrap();
    let at = |world: &mut World, nodes: [&str; 2]| {
        let pods = nodes.iter().enumerate().map(|(number, node)| Replica {
            name: format!("coredns-{number}"),
            uid: format!("uid-{number}"),
            node: Some(NodeName::from(*node)),
        });
        let api = world.truth.cluster.as_mut().unwrap();
        api.replicas.insert(dns.clone(), pods.collect());
    };
    let evicts = |world: &World| {
        let plan = plan_up(&want, &world.observe(&shell)).unwrap();
        plan.steps().map(plan::title).collect::<Vec<_>>()
    };
    at(&mut world, ["n2", "n3"]);
    assert_eq!(evicts(&world), Vec::<String>::new());
    at(&mut world, ["n2", "n2"]);
    assert_eq!(
        evicts(&world),
        ["evict pod `coredns-0`", "wait for coredns"]
    );

    // Nobody else takes it: who is cordoned, who tolerates none, who is not Ready.
    let api = |world: &mut World| world.truth.cluster.clone().unwrap();
    let whole = api(&mut world);
    for broken in 0..3 {
        let mut api = whole.clone();
        for name in ["n1", "n3"].map(NodeName::from) {
            let node = api.nodes.get_mut(&name).unwrap();
            match broken {
                0 => node.unschedulable = true,
                1 => node.taints.push(Taint {
                    key: "theirs".to_owned(),
                    value: String::new(),
                    effect: "NoSchedule".to_owned(),
                }),
                _ => node.ready = false,
            }
        }
        world.truth.cluster = Some(api);
        let titles = evicts(&world);
        let evicted = titles.iter().any(|title| title.starts_with("evict"));
        assert!(!evicted, "{titles:?}");
    }
    // It does not serve: it is waited for, and nothing is taken from it.
    let mut short = whole.clone();
    short.objects.get_mut(dns).unwrap()["status"] =
        serde_json::json!({"updatedReplicas": 1, "availableReplicas": 0});
    world.truth.cluster = Some(short);
    assert_eq!(evicts(&world), ["wait for coredns"]);

    world.truth.cluster = Some(whole);
    converge_up(&mut world, &want, &mut shell);
    let pods = &world.truth.cluster.as_ref().unwrap().replicas[dns];
    assert_ne!(pods[0].node, pods[1].node);
}

/// The others had nothing to do: they are left all the same, and the run ends degraded.
#[test]
fn a_run_that_mends_one_node_may_lose_it() {
    let want = wish(&[0, 0], &Knobs::default());
    let (mut world, mut shell) = (fresh(3), Shell::default());
    converge_up(&mut world, &want, &mut shell);
    let api = world.truth.cluster.as_mut().unwrap();
    api.nodes.get_mut(&NodeName::from("n3")).unwrap().ready = false;
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let stage = plan.stages.iter().find(|stage| stage.name == "nodes");
    let OnFailure::DropNode { while_left } = &stage.unwrap().on_failure else {
        panic!("{plan:?}");
    };
    assert!(while_left.left(&["n3".into()].into()), "{while_left:?}");
    let all = names(3).into_iter().collect();
    assert!(!while_left.left(&all), "{while_left:?}");
}

/// As many pods as there are nodes ready at that moment would go to the first of them.
#[test]
fn what_is_spread_is_applied_when_two_nodes_take_pods() {
    let mut want = wish(&[0, 0], &Knobs::default());
    let objects = want.addons.iter_mut().flat_map(|addon| &mut addon.objects);
    let dns = objects.filter(|(object, _)| object.kind == "Deployment");
    for (_, value) in dns {
        value["spec"]["template"]["spec"]["topologySpreadConstraints"] = serde_json::json!([{}]);
    }
    let (mut world, mut shell) = (fresh(3), Shell::default());
    let order = |world: &World, shell: &Shell| {
        let plan = plan_up(&want, &world.observe(shell)).unwrap();
        let titles: Vec<_> = plan.steps().map(plan::title).collect();
        let at = |title: &str| titles.iter().position(|other| other.starts_with(title));
        (
            at("apply coredns"),
            at("wait for the node to be Ready"),
            at("apply flannel"),
        )
    };
    let (dns, ready, network) = order(&world, &shell);
    assert!(
        network < ready && ready < dns && network.is_some(),
        "{network:?} {ready:?} {dns:?}"
    );

    // One of three is to be awaited: the other two are enough.
    converge_up(&mut world, &want, &mut shell);
    let api = world.truth.cluster.as_mut().unwrap();
    api.objects.retain(|object, _| object.kind != "Deployment");
    api.nodes.get_mut(&NodeName::from("n3")).unwrap().ready = false;
    let (dns, ready, _) = order(&world, &shell);
    assert!(dns < ready && dns.is_some(), "{dns:?} {ready:?}");
    let api = world.truth.cluster.as_mut().unwrap();
    api.nodes.get_mut(&NodeName::from("n2")).unwrap().ready = false;
    let (dns, ready, _) = order(&world, &shell);
    assert!(ready < dns && ready.is_some(), "{ready:?} {dns:?}");
}

/// Rule 26: nginx is told, and nothing is replaced. Whoever is cut off between the file and the word
/// says the word again.
#[test]
fn a_new_control_plane_is_told_to_the_proxies_and_disturbs_nobody() {
    let (mut world, mut shell) = (fresh(4), Shell::default());
    let knobs = Knobs::default();
    let (one, two) = (wish(&[0], &knobs), wish(&[0, 2], &knobs));
    converge_up(&mut world, &one, &mut shell);
    let plan = plan_up(&two, &world.observe(&shell)).unwrap();
    let on_proxy = |plan: &Plan| {
        let steps = plan
            .steps()
            .filter(|step| step.node().is_some_and(|it| it.0 == "n2"));
        steps.map(plan::title).collect::<Vec<_>>()
    };
    let write = "write 1 file and 2 directories";
    let reload = "reload nginx-proxy";
    assert_eq!(on_proxy(&plan), [write, reload]);
    let mut disturbs = plan.disruptions();
    let new = disturbs.all(|(step, _)| step.node().is_some_and(|node| node.0 == "n3"));
    assert!(new, "{}", plan::render(&plan));

    let before_the_word = Cut {
        after: plan
            .steps()
            .position(|step| plan::title(step) == reload)
            .unwrap(),
        torn: 0,
    };
    world.run(&plan, Some(&two), &mut shell, Some(before_the_word));
    let again = plan_up(&two, &world.observe(&shell)).unwrap();
    assert_eq!(on_proxy(&again), [reload]);
    converge_up(&mut world, &two, &mut shell);

    // What a person wrote is put right, and nobody has to ask for it.
    let files = node(&mut world, &NodeName::from("n2"))
        .files
        .as_mut()
        .unwrap();
    let config = files.get_mut(path::PROXY_CONFIG).unwrap();
    *config = effect::file(b"leads elsewhere", 0o644);
    let plan = plan_up(&two, &world.observe(&shell)).unwrap();
    assert_eq!(on_proxy(&plan.unasked()), [write, reload]);
}

/// A member that answers and follows nobody serves nobody: it is put right while the others stay as
/// they are.
#[test]
fn a_member_that_does_not_follow_is_replaced_and_the_others_wait_for_it() {
    let want = wish(&[3, 3], &Knobs::default());
    let (mut world, mut shell) = (fresh(3), Shell::default());
    converge_up(&mut world, &want, &mut shell);
    for name in &names(3) {
        change_etcd(&mut world, name);
    }
    let mut have = world.observe(&shell);
    let strays = NodeName::from("n3");
    let id = have.etcd.on(&strays).unwrap();
    let member = have.etcd.members.get_mut(&id).unwrap();
    member.status.as_mut().unwrap().1.leader = None;
    let plan = plan_up(&want, &have).unwrap();
    let replaces = |action: &HostAction| {
        matches!(
            action,
            HostAction::ReplaceContainer {
                component: Component::Etcd,
                ..
            }
        )
    };
    assert_eq!(
        nodes_with(&plan, replaces),
        ["n3"],
        "{}",
        plan::render(&plan)
    );
}

/// etcd takes no member while one of its own does not follow: not in a plan, and not when that happens
/// just before the step.
#[test]
fn no_member_joins_an_etcd_of_which_a_member_does_not_follow() {
    let (small, mut large) = (
        wish(&[3, 3], &Knobs::default()),
        wish(&[3, 3, 1], &Knobs::default()),
    );
    large.saved.etcd_bootstrap = small.saved.etcd_bootstrap.clone();
    let (mut world, mut shell) = (fresh(4), Shell::default());
    converge_up(&mut world, &small, &mut shell);
    let plan = plan_up(&large, &world.observe(&shell)).unwrap();
    let joins = |step: &&Step| {
        let action = step.action.on_host();
        matches!(action, Some((_, HostAction::JoinEtcd { .. })))
    };
    let after = plan.steps().position(|step| joins(&step)).unwrap();
    let cut = Cut { after, torn: 0 };
    world.run(&plan, Some(&large), &mut shell, Some(cut));
    let join = plan.steps().find(joins).unwrap();
    let stays = world.clone();
    let etcd = node(&mut world, &NodeName::from("n2"))
        .containers
        .get_mut("etcd");
    etcd.unwrap().state = ContainerState::Exited(1);
    let ended = world.step(join, Some(&large), &mut shell);
    assert!(matches!(ended, Err(Ended::PlanAgain(_))), "{ended:?}");

    let mut have = world.observe(&shell);
    let id = have.etcd.on(&NodeName::from("n3")).unwrap();
    have.etcd
        .members
        .get_mut(&id)
        .unwrap()
        .status
        .as_mut()
        .unwrap()
        .1
        .leader = None;
    let waits = plan_up(&large, &have).unwrap();
    assert_eq!(waits.steps().find(joins), None, "{}", plan::render(&waits));
    let mut notes = waits.notes.iter();
    assert!(
        notes.any(|note| note.text.contains("does not join yet")),
        "{:?}",
        waits.notes
    );

    // Nothing keeps it from joining where all follow.
    world = stays;
    world.step(join, Some(&large), &mut shell).unwrap();
    converge_up(&mut world, &large, &mut shell);
}

/// A kubelet that runs makes its Node object no second time: it is started anew, and nobody else is.
#[test]
fn a_node_object_that_somebody_deleted_comes_back() {
    let want = wish(&[3, 3, 0], &Knobs::default());
    let (mut world, mut shell) = (fresh(4), Shell::default());
    converge_up(&mut world, &want, &mut shell);
    let node = NodeName::from("n4");
    world.etcd().nodes.remove(&node).unwrap();
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let replaced: Vec<&Step> = plan
        .steps()
        .filter(|step| step.action.is_destructive())
        .collect();
    assert_eq!(replaced.len(), 1, "{}", plan::render(&plan));
    assert_eq!(plan::title(replaced[0]), "replace kubelet");
    assert_eq!(
        replaced[0].cause,
        Cause::Drift,
        "the operator does it unasked"
    );
    assert!(plan.steps().all(|step| step.node() == Some(&node)));
    converge_up(&mut world, &want, &mut shell);
    assert!(world.etcd().nodes.contains_key(&node));
}
