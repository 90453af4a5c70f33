//! How a living cluster is changed: how many nodes at once, which of them are cordoned or drained,
//! and which release goes first.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rke_operator::{
    desired::Desired,
    error::{ErrorClass, Obstacle},
    etcd::{Alarm, AlarmKind, MemberId, Quorum},
    facts::{Actual, ApiHealth, ClockFact, ContainerState, HostView, Unreachable},
    model::{
        Component, Digest, DrainRules, ImageVersion, KubernetesVersion, MaxUnavailable, NodeName,
        Secret, UpgradeStrategy, image_version, label, path,
    },
    plan::{self, Action, Cause, ClusterAction, Guard, HostAction, Plan, Stage, Step},
};

use crate::{
    plan_properties::fresh,
    sim::{
        Ended, Knobs, Shell, World, desired,
        generate::{names, with_roles},
        knobs,
        world::{converge_up, plan_up},
    },
};

/// Three nodes with etcd and a control plane, and so many workers.
fn wish(workers: usize, knobs: &Knobs, upgrade: UpgradeStrategy) -> Desired {
    let masks: Vec<u8> = [3, 3].into_iter().chain(vec![0; workers]).collect();
    let mut want = with_roles(desired("a", &names(workers + 3), knobs), &masks);
    want.upgrade = upgrade;
    want
}

/// Such a cluster, and the shell that has its state.
fn settled(workers: usize) -> (World, Shell) {
    let (mut world, mut shell) = (fresh(workers + 3), Shell::default());
    let want = wish(workers, &Knobs::default(), UpgradeStrategy::default());
    converge_up(&mut world, &want, &mut shell);
    (world, shell)
}

/// What every kubelet is replaced for.
fn louder() -> Knobs {
    Knobs {
        verbosity: 3,
        ..Knobs::default()
    }
}

fn node(number: usize) -> NodeName {
    NodeName(format!("n{number}"))
}

fn silence(world: &mut World, name: &NodeName) {
    let down = Unreachable {
        alike: None,
        obstacle: Obstacle::Silence,
        class: ErrorClass::Host,
        why: "it is off".to_owned(),
        hints: vec![],
    };
    world.down.insert(name.clone(), down);
}

/// The stage that replaces the kubelets of workers.
fn workers(plan: &Plan) -> Option<&Stage> {
    let mut stages = plan.stages.iter().filter(|stage| stage.name == "kubelets");
    stages.find(|stage| stage.queues.iter().all(|queue| queue.node > Some(node(3))))
}

fn of(plan: &Plan, name: &NodeName) -> Vec<String> {
    let stage = plan.stages.iter().filter(|stage| stage.name == "kubelets");
    let queues = stage.flat_map(|stage| &stage.queues);
    let steps = queues.filter(|queue| queue.node.as_ref() == Some(name));
    steps
        .flat_map(|queue| queue.steps.iter().map(plan::title))
        .collect()
}

fn fact<'a>(world: &'a mut World, name: &NodeName) -> &'a mut rke_operator::facts::NodeFact {
    world.etcd().nodes.get_mut(name).unwrap()
}

#[test]
fn no_pod_comes_to_a_node_whose_kubelet_changes() {
    let (world, shell) = settled(1);
    let want = wish(1, &louder(), UpgradeStrategy::default());
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    assert_eq!(
        of(&plan, &node(4)),
        [
            "cordon",
            "import rancher/mirrored-pause:3.0 into containerd",
            "replace kubelet",
            "wait for kubelet to be healthy",
            "wait for the node to be Ready",
            "replace kube-proxy",
            "wait for kube-proxy to be healthy",
            "uncordon"
        ]
    );
}

#[test]
fn pods_go_first_where_the_config_says_so_and_by_its_rules() {
    let (world, shell) = settled(1);
    let rules = DrainRules {
        force: true,
        timeout: 7,
        ..DrainRules::default()
    };
    let upgrade = UpgradeStrategy {
        drain: Some(rules),
        ..UpgradeStrategy::default()
    };
    let plan = plan_up(&wish(1, &louder(), upgrade), &world.observe(&shell)).unwrap();
    let titles = of(&plan, &node(4));
    assert_eq!(titles.first().map(String::as_str), Some("drain"));
    assert_eq!(titles.last().map(String::as_str), Some("uncordon"));
    let drains = plan.steps().filter_map(|step| match &step.action {
        Action::Cluster(ClusterAction::Drain { rules, .. }) => Some((step, *rules)),
        _ => None,
    });
    let drains: Vec<(&Step, Option<DrainRules>)> = drains.collect();
    assert_eq!(drains.len(), 4);
    for (step, given) in drains {
        assert_eq!(given, Some(rules));
        assert!(step.disturbs.is_some(), "a drain wants consent");
        let bound = |guard: &Guard| matches!(guard, Guard::AtMostUnavailable { .. });
        assert!(step.guards.iter().any(bound), "{:?}", step.guards);
    }
}

#[test]
fn what_needs_no_new_kubelet_leaves_pods_and_nodes_alone() {
    let (world, shell) = settled(2);
    let knobs = Knobs {
        labelled: true,
        scheduler: false,
        replicas: 2,
        ..Knobs::default()
    };
    let upgrade = UpgradeStrategy {
        drain: Some(DrainRules::default()),
        ..UpgradeStrategy::default()
    };
    let plan = plan_up(&wish(2, &knobs, upgrade), &world.observe(&shell)).unwrap();
    let sets_aside = |step: &Step| {
        matches!(
            step.action,
            Action::Cluster(ClusterAction::Cordon { .. } | ClusterAction::Drain { .. })
        )
    };
    assert!(!plan.is_empty());
    assert!(!plan.steps().any(sets_aside), "{}", plan::render(&plan));
}

#[test]
fn what_a_person_cordoned_stays_cordoned() {
    let (mut world, mut shell) = settled(1);
    fact(&mut world, &node(4)).unschedulable = true;
    let want = wish(1, &louder(), UpgradeStrategy::default());
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    assert!(!of(&plan, &node(4)).contains(&"cordon".to_owned()));
    converge_up(&mut world, &want, &mut shell);
    assert!(fact(&mut world, &node(4)).unschedulable);
    assert!(!fact(&mut world, &node(1)).unschedulable);
}

#[test]
fn a_cordon_that_a_run_left_is_taken_back() {
    let (mut world, shell) = settled(1);
    leave_cordoned(&mut world, &node(4));
    let want = wish(1, &Knobs::default(), UpgradeStrategy::default());
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let steps: Vec<&Step> = plan.steps().collect();
    assert_eq!(steps.len(), 1, "{}", plan::render(&plan));
    let uncordon = ClusterAction::Uncordon { node: node(4) };
    assert_eq!(steps[0].action, Action::Cluster(uncordon));
    assert_eq!(steps[0].cause, Cause::Drift, "the operator does it unasked");
}

/// As a run leaves it that was cut off.
fn leave_cordoned(world: &mut World, name: &NodeName) {
    let left = fact(world, name);
    left.unschedulable = true;
    let ours = (label::CORDONED.to_owned(), "true".to_owned());
    left.annotations.extend([ours]);
}

/// Else their pods have nowhere to go, and the drain waits for ever.
#[test]
fn a_cordon_that_a_run_left_is_taken_back_before_others_are_drained() {
    let upgrade = UpgradeStrategy {
        drain: Some(DrainRules::default()),
        ..UpgradeStrategy::default()
    };
    let (old, mut shell) = settled(2);
    let want = wish(2, &louder(), upgrade);
    let mut world = old.clone();
    converge_up(&mut world, &want, &mut shell);
    let back = |world: &mut World, name: &NodeName| {
        let view = old.truth.hosts[name].clone();
        world.truth.hosts.insert(name.clone(), view);
    };
    back(&mut world, &node(4));
    leave_cordoned(&mut world, &node(5));
    let titles = |world: &World| {
        let plan = plan_up(&want, &world.observe(&shell)).unwrap();
        let all = plan.steps().filter_map(|step| {
            let node = step.node()?;
            Some(format!("{node}: {}", plan::title(step)))
        });
        all.filter(|title| title.contains("drain") || title.contains("cordon"))
            .collect::<Vec<_>>()
    };
    let expected = ["n5: uncordon", "n4: drain", "n4: uncordon"];
    assert_eq!(titles(&world), expected);
    // One that is still to be rolled stays out, and goes first.
    back(&mut world, &node(5));
    let expected = ["n5: drain", "n5: uncordon", "n4: drain", "n4: uncordon"];
    assert_eq!(titles(&world), expected);
}

#[test]
fn as_many_workers_at_once_as_may_be_down() {
    let upgrade = UpgradeStrategy {
        workers: MaxUnavailable::Percent(50),
        ..UpgradeStrategy::default()
    };
    let (mut world, shell) = settled(6);
    let want = wish(6, &louder(), upgrade);
    let width = |world: &World| {
        let plan = plan_up(&want, &world.observe(&shell)).unwrap();
        let stage = workers(&plan)?;
        let kubelet = |step: &Step| plan::title(step) == "replace kubelet";
        let queues = stage.queues.iter();
        let changed = queues
            .filter(|queue| queue.steps.iter().any(kubelet))
            .count();
        (changed > 0).then_some((stage.width, changed))
    };
    assert_eq!(width(&world), Some((3, 6)));
    // Those that are down already take their places.
    silence(&mut world, &node(7));
    assert_eq!(width(&world), Some((2, 5)));
    silence(&mut world, &node(8));
    assert_eq!(width(&world), Some((1, 4)));
    silence(&mut world, &node(9));
    assert_eq!(width(&world), None);
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let notes: Vec<&str> = plan.notes.iter().map(|note| note.text.as_str()).collect();
    let why = "`kubelet` is not replaced yet: 4 nodes would not be Ready (n4, n7, n8, n9), more than \
               the allowed 3";
    assert!(notes.contains(&why), "{notes:#?}");
    // A control plane's turn does not depend on them.
    assert!(of(&plan, &node(2)).contains(&"replace kubelet".to_owned()));
}

/// What is healed, or ends soon, does not wait for a node that may never come back.
#[test]
fn a_stopped_kubelet_is_healed_whoever_else_is_down() {
    let (mut world, shell) = settled(3);
    silence(&mut world, &node(5));
    silence(&mut world, &node(6));
    let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&node(4)) else {
        panic!("it is on");
    };
    let kubelet = facts.containers.get_mut("kubelet").unwrap();
    kubelet.labels.remove(label::SPEC);
    let want = wish(3, &Knobs::default(), UpgradeStrategy::default());
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    assert!(of(&plan, &node(4)).contains(&"replace kubelet".to_owned()));
}

fn upgrade() -> impl Strategy<Value = UpgradeStrategy> {
    let most = prop_oneof![
        (1..4u16).prop_map(MaxUnavailable::Nodes),
        (1..101u8).prop_map(MaxUnavailable::Percent),
    ];
    (most.clone(), most, any::<bool>()).prop_map(|(workers, control_planes, drain)| {
        UpgradeStrategy {
            workers,
            control_planes,
            drain: drain.then(DrainRules::default),
        }
    })
}

/// Nodes of a kind, among those that were there, that a run has made unavailable, or that were so.
fn unavailable(
    world: &World,
    shell: &Shell,
    want: &Desired,
    there: &[NodeName],
    central: bool,
) -> usize {
    let seen = world.observe(shell);
    let Some(api) = &seen.cluster else { return 0 };
    let nodes = api.nodes.iter().filter(|(name, _)| {
        let host = want.hosts.get(*name);
        let has = |component| host.is_some_and(|host| host.containers.contains_key(&component));
        let is_central = has(Component::Etcd) || has(Component::ApiServer);
        host.is_some() && there.contains(name) && is_central == central
    });
    nodes
        .filter(|(_, node)| !node.ready || node.is_cordoned_by_us())
        .count()
}

/// The oldest API server that runs, and the newest kubelet or kube-proxy.
fn skew(world: &World) -> Option<(ImageVersion, ImageVersion)> {
    let hosts = world.truth.hosts.keys();
    let facts: Vec<_> = hosts.filter_map(|name| world.truth.up(name)).collect();
    let versions = |components: &'static [Component]| {
        let facts = facts.iter();
        facts.flat_map(move |facts| {
            let of = components.iter();
            of.filter_map(|component| image_version(&facts.container(*component)?.image))
        })
    };
    let oldest = versions(&[Component::ApiServer]).min()?;
    let newest = versions(&[Component::Kubelet, Component::KubeProxy]).max()?;
    Some((oldest, newest))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: Some(Box::new(
        proptest::test_runner::FileFailurePersistence::Direct("tests/it/plan_rolls.regressions"),
    )), ..ProptestConfig::default() })]

    /// Any roles, any strategy, any of the nodes down, a node that is new, and another release: a
    /// change never takes more nodes of a kind than may be down, and never has a kubelet that is
    /// newer than an API server. What a person cordoned stays as it is.
    #[test]
    fn no_roll_takes_too_many_nodes_and_no_kubelet_is_newer_than_an_api_server(
        masks in prop::collection::vec(0..4u8, 0..7),
        old in knobs(),
        new in knobs(),
        minor in 33..35u8,
        upgrade in upgrade(),
        order in prop::collection::vec(any::<u8>(), 1..200),
        (off, theirs, late) in any::<(u8, u8, bool)>(),
    ) {
        let all = names(masks.len() + 1);
        let (mut world, mut shell) = (fresh(all.len()), Shell::default());
        let wish = |masks: &[u8], knobs: &Knobs| {
            let mut want = with_roles(desired("a", &names(masks.len() + 1), knobs), masks);
            want.upgrade = upgrade;
            want
        };
        let old = Knobs { minor, ..old };
        // The last node may come with the change; as a worker, for a member joins otherwise.
        let late = late && masks.last() == Some(&0);
        let first = &masks[..masks.len() - usize::from(late)];
        converge_up(&mut world, &wish(first, &old), &mut shell);
        let want = wish(&masks, &new);
        for (at, name) in all.iter().enumerate() {
            if theirs >> (at % 8) & 1 == 1 && let Some(node) = world.etcd().nodes.get_mut(name) {
                node.unschedulable = true;
            }
            if off >> (at % 8) & 1 == 1 {
                silence(&mut world, name);
            }
        }
        let there = &all[..=first.len()];
        let mut order = order.iter().copied().cycle();
        for _ in 0..6 {
            let Ok(plan) = plan_up(&want, &world.observe(&shell)) else { break };
            let before = [true, false].map(|central| unavailable(&world, &shell, &want, there, central));
            let kinds = [true, false].map(|central| {
                let of_kind = |name: &&NodeName| {
                    let containers = &want.hosts[*name].containers;
                    let has = |component| containers.contains_key(&component);
                    (has(Component::Etcd) || has(Component::ApiServer)) == central
                };
                let count = want.hosts.keys().filter(of_kind).count();
                let most = if central { upgrade.control_planes } else { upgrade.workers };
                most.of(count)
            });
            let id = world.observe(&shell).saved.map(|saved| saved.cluster_id.clone());
            let served = id.is_some_and(|id| world.serving(&id) > 0);
            let ended = world.run_interleaved(&plan, Some(&want), &mut shell, &mut order, |world, step| {
                let shell = Shell { saved: Some(want.saved.clone()), ..Shell::default() };
                for (at, central) in [true, false].into_iter().enumerate() {
                    let now = unavailable(world, &shell, &want, there, central);
                    assert!(
                        !served || now <= before[at].max(kinds[at]),
                        "{now} of {} after {step:?}", kinds[at]
                    );
                }
                if let Some((oldest, newest)) = skew(world) {
                    assert!(newest <= oldest, "kubelet {newest:?}, API server {oldest:?} after {step:?}");
                }
            });
            prop_assert!(
                matches!(ended, Ended::Completed | Ended::PlanAgain(_)),
                "{:?}", ended
            );
        }
        for (at, name) in all.iter().enumerate() {
            if let Some(node) = world.etcd().nodes.get(name) {
                let marked = theirs >> (at % 8) & 1 == 1 && !(late && at + 1 == all.len());
                prop_assert_eq!(node.unschedulable, marked, "{}", name);
            }
        }
    }
}

#[test]
fn a_minor_release_with_pods_in_place_is_said() {
    let (mut world, mut shell) = (fresh(4), Shell::default());
    let old = Knobs {
        minor: 33,
        ..Knobs::default()
    };
    converge_up(
        &mut world,
        &wish(1, &old, UpgradeStrategy::default()),
        &mut shell,
    );
    let said = |upgrade| {
        let plan = plan_up(&wish(1, &Knobs::default(), upgrade), &world.observe(&shell)).unwrap();
        let mut notes = plan.notes.iter();
        notes.any(|note| note.text.contains("another minor release"))
    };
    assert!(said(UpgradeStrategy::default()));
    assert!(!said(UpgradeStrategy {
        drain: Some(DrainRules::default()),
        ..UpgradeStrategy::default()
    }));
}

/// The control planes first, then controllers and kubelets.
#[test]
fn api_servers_take_a_release_before_anything_that_asks_them() {
    let (mut world, mut shell) = (fresh(5), Shell::default());
    let old = Knobs {
        minor: 33,
        ..Knobs::default()
    };
    let none = UpgradeStrategy::default();
    converge_up(&mut world, &wish(1, &old, none), &mut shell);
    // A fifth node comes with the new release.
    let plan = plan_up(&wish(2, &Knobs::default(), none), &world.observe(&shell)).unwrap();
    let steps: Vec<&Step> = plan.steps().collect();
    let last = steps.iter().rposition(|step| {
        matches!(
            step.action.on_host(),
            Some((
                _,
                HostAction::ReplaceContainer {
                    component: Component::ApiServer,
                    ..
                }
            ))
        )
    });
    let first = steps.iter().position(|step| {
        matches!(
            step.action.on_host(),
            Some((
                _,
                HostAction::ReplaceContainer {
                    component: Component::Kubelet | Component::KubeProxy,
                    ..
                } | HostAction::RunContainer {
                    component: Component::Kubelet | Component::KubeProxy,
                    ..
                }
            ))
        )
    });
    assert!(last.unwrap() < first.unwrap(), "{}", plan::render(&plan));
}

/// Whoever asks it has lost it once, and would be away for a minute if it went again at once.
#[test]
fn an_api_server_is_not_replaced_twice_within_two_minutes() {
    const NOW: i64 = 1_800_000_000;
    let new = Knobs {
        minor: 33,
        ..Knobs::default()
    };
    let waits = |server: i64, client: i64, serves: bool| {
        let (mut world, mut shell) = (fresh(4), Shell::default());
        let none = UpgradeStrategy::default();
        converge_up(&mut world, &wish(1, &new, none), &mut shell);
        let mut have = world.observe(&shell);
        let Some(HostView::Reachable(facts)) = have.hosts.get_mut(&node(2)) else {
            panic!("it answers");
        };
        facts.clock = Some(ClockFact {
            unix_seconds: NOW,
            uncertainty_ms: 0,
        });
        for (name, age) in [
            ("kube-apiserver", server),
            ("kube-controller-manager", client),
        ] {
            facts.containers.get_mut(name).unwrap().started = Some(NOW - age);
        }
        if !serves {
            let why = "it hangs".to_owned();
            have.apis.insert(node(2), ApiHealth::Unreachable(why));
        }
        let plan = plan_up(&wish(1, &Knobs::default(), none), &have).unwrap();
        let titles: Vec<(Option<NodeName>, String)> = plan
            .steps()
            .map(|step| (step.node().cloned(), plan::title(step)))
            .filter(|(_, title)| title.ends_with("kube-apiserver") && !title.starts_with("try"))
            .collect();
        let wait = (
            Some(node(2)),
            "wait for the clients of kube-apiserver".to_owned(),
        );
        let replace = (Some(node(2)), "replace kube-apiserver".to_owned());
        let at = titles.iter().position(|step| *step == replace).unwrap();
        let waits = titles
            .iter()
            .filter(|(_, title)| title.starts_with("wait"))
            .count();
        assert!(waits <= 1, "{titles:?}");
        waits == 1 && titles[at - 1] == wait
    };
    assert!(waits(20, 500, true));
    assert!(waits(149, 500, true));
    assert!(!waits(150, 500, true), "they are back");
    assert!(!waits(-20, 500, true), "its clock was set back");
    assert!(!waits(20, 15, true), "they began after it");
    assert!(!waits(20, 500, false), "nobody has it");
}

/// A kubelet that is yet to start on a node that serves would not find its CRI.
#[test]
fn containerd_is_configured_before_a_kubelet_that_is_missing() {
    let (mut world, shell) = settled(2);
    let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&node(1)) else {
        panic!("it is on");
    };
    facts.containers.remove("kubelet");
    let files = facts.files.as_mut().unwrap();
    files.remove(path::CONTAINERD_CONFIG);
    let want = wish(2, &Knobs::default(), UpgradeStrategy::default());
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let at = |wanted: fn(&HostAction) -> bool| {
        let mut steps = plan.steps().filter_map(|step| step.action.on_host());
        let at = steps.position(|(name, action)| *name == node(1) && wanted(action));
        at.unwrap_or_else(|| panic!("{}", plan::render(&plan)))
    };
    let configured = at(|action| matches!(action, HostAction::ConfigureContainerd { .. }));
    let started = at(|action| {
        let kubelet = Component::Kubelet;
        matches!(action, HostAction::RunContainer { component, .. } if *component == kubelet)
    });
    assert!(configured < started, "{}", plan::render(&plan));
}

/// On such machines Docker goes down with containerd, and etcd and the API server with Docker.
#[test]
fn containerd_is_configured_on_one_member_after_the_other() {
    let (mut world, shell) = settled(2);
    for view in world.truth.hosts.values_mut() {
        let HostView::Reachable(facts) = view else {
            panic!("it is on");
        };
        facts.system.containerd.docker_bound = true;
        facts
            .files
            .as_mut()
            .unwrap()
            .remove(path::CONTAINERD_CONFIG);
    }
    let want = wish(2, &Knobs::default(), UpgradeStrategy::default());
    let have = world.observe(&shell);
    let plan = plan_up(&want, &have).unwrap();
    let stages: Vec<&Stage> = plan
        .stages
        .iter()
        .filter(|stage| stage.name == "containerd")
        .collect();
    let nodes = |stage: &Stage| {
        stage
            .queues
            .iter()
            .map(|queue| queue.node.clone().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(stages.len(), 2, "{}", plan::render(&plan));
    assert_eq!(nodes(stages[0]), [node(1), node(2), node(3)]);
    assert_eq!(stages[0].width, 1);
    assert_eq!(nodes(stages[1]), [node(4), node(5)]);
    for queue in &stages[0].queues {
        let waits = queue
            .steps
            .iter()
            .filter(|step| step.action.is_wait())
            .count();
        assert_eq!(waits, 3, "etcd, the API server, the node");
        let restarts = queue
            .steps
            .iter()
            .find(|step| !step.guards.is_empty())
            .unwrap();
        let quorum = |guard: &Guard| matches!(guard, Guard::QuorumWithout(_));
        let api = |guard: &Guard| matches!(guard, Guard::ApiServesWithout(_));
        assert!(restarts.guards.iter().any(quorum), "{:?}", restarts.guards);
        assert!(restarts.guards.iter().any(api), "{:?}", restarts.guards);
    }
    // Two at once are a bug of ours.
    let mut together = plan.clone();
    for stage in &mut together.stages {
        stage.width = 2;
    }
    let violations = plan::check(&together, &have, &want.cluster_id);
    assert_eq!(violations, [plan::Violation::RestartsTogether]);
}

/// Kubelets of several nodes at once only where each counts those that are down.
#[test]
fn a_plan_that_counts_no_node_is_a_bug() {
    let (world, shell) = settled(4);
    let upgrade = UpgradeStrategy {
        workers: MaxUnavailable::Nodes(2),
        ..UpgradeStrategy::default()
    };
    let want = wish(4, &louder(), upgrade);
    let have = world.observe(&shell);
    let mut plan = plan_up(&want, &have).unwrap();
    assert_eq!(workers(&plan).map(|stage| stage.width), Some(2));
    assert_eq!(plan::check(&plan, &have, &want.cluster_id), []);
    for stage in &mut plan.stages {
        for step in stage.queues.iter_mut().flat_map(|queue| &mut queue.steps) {
            step.guards
                .retain(|guard| !matches!(guard, Guard::AtMostUnavailable { .. }));
        }
    }
    let violations = plan::check(&plan, &have, &want.cluster_id);
    let together = plan::Violation::ReplacesTogether(Component::Kubelet);
    assert_eq!(violations, [together]);
}

/// Whatever is replaced by another program or with other flags was tried before, on its node, and
/// before anything of the running cluster is touched.
#[test]
fn new_flags_are_tried_before_anything_is_replaced() {
    let (world, shell) = settled(1);
    let want = wish(1, &louder(), UpgradeStrategy::default());
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let steps: Vec<&Step> = plan.steps().collect();
    let place = |wanted: &dyn Fn(&HostAction) -> bool| {
        let found = steps.iter().enumerate().filter_map(|(place, step)| {
            let (node, action) = step.action.on_host()?;
            wanted(action).then_some((place, node.clone()))
        });
        found.collect::<Vec<_>>()
    };
    let tried = place(&|action| matches!(action, HostAction::TryFlags { .. }));
    let replaced = place(&|action| matches!(action, HostAction::ReplaceContainer { .. }));
    assert!(tried.last().unwrap().0 < replaced.first().unwrap().0);
    let nodes = |places: &[(usize, NodeName)]| -> BTreeSet<NodeName> {
        places.iter().map(|(_, node)| node.clone()).collect()
    };
    assert_eq!(nodes(&tried), nodes(&replaced));
}

/// With a file that the API servers read and that goes with the change of them.
fn reading(mut want: Desired) -> Desired {
    for host in want.hosts.values_mut() {
        let Some(spec) = host.containers.get_mut(&Component::ApiServer) else {
            continue;
        };
        let file = host.files.values().next().unwrap().clone();
        spec.files
            .insert(path::WEBHOOK.to_owned(), file.digest.clone());
        host.files.insert(path::WEBHOOK.to_owned(), file);
    }
    want
}

/// Docker makes an empty folder where a file is missing that a container reads, and the container does not start again.
#[test]
fn a_file_stays_while_what_reads_it_is_not_replaced() {
    let (mut world, mut shell) = settled(1);
    let plain = wish(1, &Knobs::default(), UpgradeStrategy::default());
    converge_up(&mut world, &reading(plain.clone()), &mut shell);

    let mut one_is_off = world.clone();
    silence(&mut one_is_off, &node(2));
    let plan = plan_up(&plain, &one_is_off.observe(&shell)).unwrap();
    assert!(plan.is_empty(), "{}", plan::render(&plan));

    let plan = plan_up(&plain, &world.observe(&shell)).unwrap();
    let places = |title: &str| {
        let steps = plan.steps().enumerate();
        let found = steps.filter(|(_, step)| plan::title(step) == title);
        found
            .map(|(place, step)| (place, step.cause))
            .collect::<Vec<_>>()
    };
    let replaced = places("replace kube-apiserver");
    let removed = places("remove /etc/kubernetes/rke-operator-token-webhook.yaml");
    assert_eq!(
        (replaced.len(), removed.len()),
        (3, 3),
        "{}",
        plan::render(&plan)
    );
    assert!(replaced.last().unwrap().0 < removed[0].0);
    // Where only what is damaged is mended, neither happens.
    assert!(removed.iter().all(|(_, cause)| *cause == Cause::Change));
    assert!(plan.unasked().is_empty());
}

fn replaces_etcd(step: &Step) -> bool {
    let action = step.action.on_host();
    matches!(
        action,
        Some((
            _,
            HostAction::ReplaceContainer {
                component: Component::Etcd,
                ..
            }
        ))
    )
}

/// Where nobody can tell whether the others serve, a restart may be the end of the quorum.
#[test]
fn nothing_of_etcd_changes_while_it_is_unknown_whether_it_serves() {
    let (world, shell) = settled(0);
    let want = wish(0, &louder(), UpgradeStrategy::default());
    for quorum in [Quorum::Disagree, Quorum::Lost, Quorum::Unknown] {
        let mut have = world.observe(&shell);
        have.etcd.quorum = quorum;
        let plan = plan_up(&want, &have).unwrap();
        let changes = plan.steps().filter(|step| step.cause == Cause::Change);
        assert_eq!(
            changes.filter(|step| replaces_etcd(step)).count(),
            0,
            "{}",
            plan::render(&plan)
        );
        let told = |number| {
            let target = Some(plan::Target::Host(node(number)));
            let mut notes = plan.notes.iter();
            notes.any(|note| {
                note.is_left
                    && note.target == target
                    && note.text.contains("`etcd` is not replaced yet")
            })
        };
        assert!(
            (1..=3).all(told) || !have.saved.as_ref().unwrap().memory.populated,
            "{:?}",
            plan.notes
        );
    }
}

/// Whatever differs has a step or a reason, in every plan that the worlds of these tests come to: `plan_up` looks. A plan
/// that is silent about something is found.
#[test]
fn what_a_plan_is_silent_about_is_found() {
    let (world, shell) = settled(1);
    let want = wish(1, &louder(), UpgradeStrategy::default());
    let mut have = world.observe(&shell);
    have.etcd.alarms.insert(Alarm {
        member: MemberId(1),
        kind: AlarmKind::NoSpace,
    });
    let plan = plan_up(&want, &have).unwrap();
    let held = plan.notes.iter().filter_map(|note| note.held.as_ref());
    let held: BTreeSet<(String, &str)> = held
        .map(|left| (left.what.to_string(), left.why.reason()))
        .collect();
    let all = ["etcd", "kube-apiserver", "kubelet"].map(|what| (what.to_owned(), "EtcdProblem"));
    assert!(held.is_superset(&all.into()), "{held:?}");
    let without_notes = Plan {
        notes: Vec::new(),
        ..plan.clone()
    };
    let silent = plan::unexplained(&without_notes, &want, &have);
    assert!(
        silent.iter().any(|what| what.starts_with("n4: kubelet")),
        "{silent:?}"
    );
    // Of a new cluster each stage does something that nothing else says.
    let have = fresh(4).observe(&Shell::default());
    let plan = plan_up(&want, &have).unwrap();
    for stage in [
        "images",
        "kernel",
        "files",
        "containerd",
        "start",
        "clients",
        "addons",
    ] {
        let mut without = plan.clone();
        without.stages.retain(|other| other.name != stage);
        let silent = plan::unexplained(&without, &want, &have);
        assert!(!silent.is_empty(), "{stage}");
    }
}

/// Who does not run is missed by nobody: a flag that keeps it from starting is taken back.
#[test]
fn a_member_that_does_not_run_is_mended_whatever_the_others_say() {
    let (mut world, shell) = settled(0);
    let want = wish(0, &louder(), UpgradeStrategy::default());
    let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&node(2)) else {
        panic!("it is there");
    };
    let etcd = facts.containers.get_mut("etcd").unwrap();
    etcd.state = ContainerState::Restarting(1);
    let mut have = world.observe(&shell);
    have.etcd.quorum = Quorum::Unknown;
    let plan = plan_up(&want, &have).unwrap();
    let replaced = plan.steps().filter(|step| replaces_etcd(step));
    let nodes: Vec<_> = replaced.filter_map(Step::node).collect();
    assert_eq!(nodes, [&node(2)], "{}", plan::render(&plan));
}

/// A node is left out where its image cannot be had: its API server stays old, and is in every proxy's list.
#[test]
fn who_is_left_out_holds_back_what_must_not_be_newer() {
    let (mut world, mut shell) = settled(1);
    let newer = Knobs {
        minor: 35,
        ..Knobs::default()
    };
    let want = wish(1, &newer, UpgradeStrategy::default());
    let mut plan = plan_up(&want, &world.observe(&shell)).unwrap();
    for stage in &mut plan.stages {
        stage.queues.retain(|queue| queue.node != Some(node(1)));
    }
    let ended = world.run(&plan, Some(&want), &mut shell, None);
    assert!(matches!(ended, Ended::PlanAgain(_)), "{ended:?}");
    let (oldest, newest) = skew(&world).unwrap();
    assert!(
        newest <= oldest,
        "kubelet {newest:?}, API server {oldest:?}"
    );
    // Planned again without that node, and with it.
    silence(&mut world, &node(1));
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    world.run(&plan, Some(&want), &mut shell, None);
    let (oldest, newest) = skew(&world).unwrap();
    assert!(
        newest <= oldest,
        "kubelet {newest:?}, API server {oldest:?}"
    );
    world.down.clear();
    converge_up(&mut world, &want, &mut shell);
}

/// The database grows in most of the members' quota: more of it is the cure.
#[test]
fn more_quota_is_given_while_the_database_is_nearly_full() {
    let (world, shell) = settled(0);
    let quota = |bytes: u64| {
        let mut want = wish(0, &Knobs::default(), UpgradeStrategy::default());
        for host in want.hosts.values_mut() {
            let etcd = host.containers.get_mut(&Component::Etcd).unwrap();
            etcd.command.push(format!("--quota-backend-bytes={bytes}"));
        }
        want
    };
    let mut have = world.observe(&shell);
    for member in have.etcd.members.values_mut() {
        let (_, status) = member.status.as_mut().unwrap();
        status.db_size = 1_700 << 20;
        status.quota = Some(2 << 30);
    }
    have.etcd.alarms.insert(Alarm {
        member: MemberId(1),
        kind: AlarmKind::NoSpace,
    });
    let plan = plan_up(&quota(8 << 30), &have).unwrap();
    let stage = plan
        .stages
        .iter()
        .find(|stage| stage.name == "etcd")
        .unwrap();
    assert_eq!(
        (stage.width, stage.queues.len()),
        (1, 3),
        "{}",
        plan::render(&plan)
    );
    for step in stage.steps().filter(|step| replaces_etcd(step)) {
        let member = have.etcd.on(step.node().unwrap()).unwrap();
        assert!(
            step.guards.contains(&Guard::QuorumWithout(member)),
            "{:?}",
            step.guards
        );
        assert!(
            !step.guards.contains(&Guard::EtcdStable),
            "{:?}",
            step.guards
        );
    }
    // Less of it is none, and neither is another flag beside.
    for want in [
        quota(1 << 30),
        wish(0, &louder(), UpgradeStrategy::default()),
    ] {
        let plan = plan_up(&want, &have).unwrap();
        assert_eq!(plan.steps().filter(|step| replaces_etcd(step)).count(), 0);
    }
}

/// A member that may never come back is no reason to let the certificates of the others end.
#[test]
fn certificates_that_end_do_not_wait_for_a_broken_member() {
    let (mut world, mut shell) = settled(0);
    converge_up(&mut world, &with_certificate("old"), &mut shell);
    let renewed = |urgent: bool| {
        let mut want = with_certificate("new");
        let paths = [1, 2].map(|number| (node(number), BTreeSet::from([CERTIFICATE.to_owned()])));
        let paths = BTreeMap::from(paths);
        want.certificates.renewed.clone_from(&paths);
        if urgent {
            want.certificates.urgent = paths;
        }
        want
    };
    let mut have = world.observe(&shell);
    let broken = have.etcd.on(&node(3)).unwrap();
    have.etcd.members.get_mut(&broken).unwrap().status = None;
    let replaced = |want: &Desired| {
        let plan = plan_up(want, &have).unwrap();
        let steps = plan
            .steps()
            .filter(|step| replaces_etcd(step) && step.cause == Cause::Expiry);
        steps.cloned().collect::<Vec<_>>()
    };
    assert_eq!(replaced(&renewed(false)).len(), 0, "months are left");
    let steps = replaced(&renewed(true));
    assert_eq!(steps.len(), 2);
    for step in steps {
        assert!(
            step.disturbs
                .is_some_and(|what| what.contains("does not answer until")),
            "it wants consent"
        );
    }
}

/// Members whose certificates have ended reach each other only when all have new ones; and a controller that begins before
/// the kubelets can report again would take their nodes for lost.
#[test]
fn where_all_certificates_have_ended_members_come_together_and_controllers_last() {
    let (mut world, mut shell) = settled(2);
    let reading = |text: &str| reading_certificates(2, text);
    converge_up(&mut world, &reading("old"), &mut shell);
    let mut want = reading("new");
    let hosts = want.hosts.iter();
    let paths = hosts.map(|(name, host)| (name.clone(), host.files.keys().cloned().collect()));
    want.certificates.renewed = paths.collect();
    want.certificates.ended = want.certificates.renewed.clone();

    let mut have = world.observe(&shell);
    have.etcd.quorum = Quorum::Lost;
    for member in have.etcd.members.values_mut() {
        member.status = None;
    }
    for health in have.apis.values_mut() {
        *health = ApiHealth::Unreachable("certificate has expired".to_owned());
    }
    have.cluster = None;
    have.saved.as_mut().unwrap().memory.populated = true;
    let plan = plan_up(&want, &have).unwrap();
    let text = plan::render(&plan);
    let replaced = replacements(&plan);
    let members = [1, 2, 3].map(|number| (Component::Etcd, node(number)));
    let servers = [1, 2, 3].map(|number| (Component::ApiServer, node(number)));
    assert_eq!(replaced, [members, servers].concat(), "{text}");
    let is_wait = |step: &&Step| {
        let healthy = HostAction::AwaitHealthy {
            component: Component::Etcd,
        };
        step.action
            .on_host()
            .is_some_and(|(_, action)| *action == healthy)
    };
    let first_wait = plan.steps().position(|step| is_wait(&step)).unwrap();
    let after = plan
        .steps()
        .skip(first_wait)
        .filter(|step| replaces_etcd(step));
    assert_eq!(after.count(), 0, "each waits for the others: {text}");
    assert!(text.contains("its certificates have ended"), "{text}");
    assert!(!text.contains("others serve"), "{text}");

    let ended = world.run(&plan, Some(&want), &mut shell, None);
    assert!(matches!(ended, Ended::Completed), "{ended:?}");
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let order = replacements(&plan);
    let at = |wanted: &[Component]| {
        let all = order.iter().enumerate();
        let these = all.filter(|(_, (component, _))| wanted.contains(component));
        these.map(|(place, _)| place).collect::<Vec<_>>()
    };
    let kubelets = at(&[Component::Kubelet]);
    let controllers = at(&[Component::ControllerManager, Component::Scheduler]);
    assert_eq!((kubelets.len(), controllers.len()), (5, 6), "{order:?}");
    assert!(
        kubelets.iter().max() < controllers.iter().min(),
        "{order:?}"
    );
    let ended = world.run(&plan, Some(&want), &mut shell, None);
    assert!(matches!(ended, Ended::Completed), "{ended:?}");
    let rest = plan_up(&want, &world.observe(&shell)).unwrap();
    assert_eq!(replacements(&rest), [], "{}", plan::render(&rest));
}

/// What a plan replaces, in order.
fn replacements(plan: &Plan) -> Vec<(Component, NodeName)> {
    let replaced = plan.steps().filter_map(|step| match step.action.on_host() {
        Some((node, HostAction::ReplaceContainer { component, .. })) => {
            Some((*component, node.clone()))
        }
        Some(_) | None => None,
    });
    replaced.collect()
}

/// Each component reads a certificate of its own.
fn reading_certificates(workers: usize, text: &str) -> Desired {
    let mut want = wish(workers, &Knobs::default(), UpgradeStrategy::default());
    for host in want.hosts.values_mut() {
        let mut file = host.files.values().next().unwrap().clone();
        file.content = Secret::new(text.as_bytes().to_vec());
        file.digest = Digest(text.to_owned());
        for (component, spec) in &mut host.containers {
            let path = format!("/etc/kubernetes/ssl/{}.pem", component.container());
            spec.files.insert(path.clone(), file.digest.clone());
            host.files.insert(path, file.clone());
        }
    }
    want
}

const CERTIFICATE: &str = "/etc/kubernetes/ssl/kube-etcd-192-0-2-1.pem";

/// etcd reads a certificate.
fn with_certificate(text: &str) -> Desired {
    let mut want = wish(0, &Knobs::default(), UpgradeStrategy::default());
    for host in want.hosts.values_mut() {
        let mut file = host.files.values().next().unwrap().clone();
        file.content = Secret::new(text.as_bytes().to_vec());
        file.digest = Digest(text.to_owned());
        let etcd = host.containers.get_mut(&Component::Etcd).unwrap();
        etcd.files
            .insert(CERTIFICATE.to_owned(), file.digest.clone());
        host.files.insert(CERTIFICATE.to_owned(), file);
    }
    want
}

/// Nothing tells which etcd an image without a version has: the plan says so before it runs.
#[test]
fn an_image_of_etcd_without_a_version_is_named() {
    let named = |image: Option<&str>| {
        let mut want = wish(1, &Knobs::default(), UpgradeStrategy::default());
        for host in want.hosts.values_mut() {
            if let (Some(spec), Some(image)) = (host.containers.get_mut(&Component::Etcd), image) {
                image.clone_into(&mut spec.image);
                host.images.insert(image.to_owned());
            }
        }
        want
    };
    let (mut world, mut shell) = (fresh(4), Shell::default());
    converge_up(&mut world, &named(None), &mut shell);
    let warned = |want: &Desired, have: &Actual| {
        let plan = plan_up(want, have).unwrap();
        let notes = plan.notes.iter();
        notes
            .filter(|note| note.text.contains("is no version"))
            .count()
    };
    let want = named(Some("registry.local/etcd:prod"));
    let members = want.with(Component::Etcd).count();
    assert_eq!(warned(&want, &world.observe(&shell)), members);
    converge_up(&mut world, &want, &mut shell);
    assert_eq!(warned(&want, &world.observe(&shell)), 0);
}

/// An image that is named by its digest says nothing of its release: what runs does.
#[test]
fn a_release_is_what_runs_whatever_the_images_are_called() {
    let nameless = |minor: u8| {
        let knobs = Knobs {
            minor,
            ..Knobs::default()
        };
        let mut want = wish(1, &knobs, UpgradeStrategy::default());
        want.saved.kubernetes_version = Some(KubernetesVersion {
            major: 1,
            minor: minor.into(),
            patch: 4,
        });
        for host in want.hosts.values_mut() {
            for (component, spec) in &mut host.containers {
                if *component != Component::Etcd {
                    spec.image = format!("registry.local/kubernetes@sha256:{minor}");
                    host.images.insert(spec.image.clone());
                }
            }
        }
        want
    };
    let (mut world, mut shell) = (fresh(4), Shell::default());
    converge_up(&mut world, &nameless(35), &mut shell);
    let mut have = world.observe(&shell);
    have.versions = (1..=3).map(|number| (node(number), (1, 35, 4))).collect();
    for fact in have.cluster.as_mut().unwrap().nodes.values_mut() {
        fact.kubelet_version = "v1.35.4".to_owned();
    }
    // Never back.
    let error = plan_up(&nameless(34), &have).unwrap_err();
    assert!(
        error.to_string().contains("going back is not supported"),
        "{error}"
    );
    // And not two at once.
    let error = plan_up(&nameless(37), &have).unwrap_err();
    assert!(
        error.to_string().contains("one minor release at a time"),
        "{error}"
    );
    // API servers before kubelets.
    let plan = plan_up(&nameless(36), &have).unwrap();
    let guarded = plan.steps().filter(|step| {
        matches!(
            step.action.on_host(),
            Some((
                _,
                HostAction::ReplaceContainer {
                    component: Component::Kubelet,
                    ..
                }
            ))
        )
    });
    for step in guarded {
        let waits = |guard: &Guard| {
            matches!(
                guard,
                Guard::ApiServersAtLeast {
                    version: (1, 36, 4),
                    ..
                }
            )
        };
        assert!(step.guards.iter().any(waits), "{:?}", step.guards);
    }
}
