//! The invariants as far as the planner can show them; `docs/invariants.md` lists them all.
//! Those that hold for every world are properties, in `plan_properties`.

use std::collections::{BTreeMap, BTreeSet};

use rke_operator::{
    error::{ErrorClass, Obstacle},
    etcd::MemberId,
    facts::{ApiView, Baseline, ContainerState, Unreachable},
    model::{CLAIM, ClusterId, Component, ContainerdWants, Digest, ObjectRef, label},
    plan,
    plan::{
        Action, Cause, ClusterAction, Guard, HostAction, Live, LocalAction, OnFailure, Plan, Queue,
        Stage, Step, Target, Violation, check,
    },
};

use crate::{
    plan_up::{host, one, settled, titles, want, world_with},
    sim::{
        Ended, Knobs, Shell, desired,
        generate::names,
        world::{plan_remove, plan_up},
    },
};

fn down() -> Unreachable {
    Unreachable {
        alike: None,
        obstacle: Obstacle::Silence,
        class: ErrorClass::Host,
        why: "node `n1` did not answer".to_owned(),
        hints: vec![],
    }
}

fn step(action: Action) -> Step {
    Step {
        cause: Cause::Change,
        why: "for this test".into(),
        changes: vec![],
        guards: vec![Guard::ClaimIs {
            id: id(),
            node: one(),
        }],
        disturbs: Some("for this test".to_owned()),
        action,
    }
}

fn on_host(action: HostAction) -> Step {
    step(Action::Host(one(), action))
}

fn local(action: LocalAction) -> Step {
    step(Action::Local(action))
}

fn is(step: &Step, wanted: impl Fn(&HostAction) -> bool) -> bool {
    step.action
        .on_host()
        .is_some_and(|(_, action)| wanted(action))
}

fn plan_of(steps: impl IntoIterator<Item = Step>) -> Plan {
    let queue = Queue {
        node: Some(one()),
        steps: steps.into_iter().collect(),
    };
    let stage = Stage {
        name: "test".into(),
        width: 1,
        on_failure: OnFailure::EndRun,
        queues: vec![queue],
    };
    Plan {
        stages: vec![stage],
        notes: vec![],
    }
}

fn id() -> ClusterId {
    ClusterId("a".to_owned())
}

fn remove_container(name: &str) -> HostAction {
    HostAction::RemoveContainer {
        name: name.to_owned(),
    }
}

#[test]
fn invariant_01_nothing_is_done_on_a_host_that_is_down() {
    let (mut world, shell) = settled();
    world.down.insert(one(), down());
    let have = world.observe(&shell);
    plan::up(&want(), &have).expect_err("nothing is planned for half a cluster");
    assert!(plan_remove(&have).unwrap().is_empty());
    let bad = plan_of([on_host(remove_container("kubelet"))]);
    assert_eq!(
        check(&bad, &have, &id()),
        [Violation::ActsOnUnreachableHost(one())]
    );
}

#[test]
fn invariant_01_a_host_that_was_not_surveyed_is_not_touched() {
    let (mut world, shell) = settled();
    world.truth.hosts.clear();
    let bad = plan_of([on_host(remove_container("kubelet"))]);
    let violations = check(&bad, &world.observe(&shell), &id());
    assert_eq!(violations, [Violation::ActsOnUnknownHost(one())]);
}

#[test]
fn invariant_01_nothing_is_pruned_while_the_api_is_down() {
    let (mut world, shell) = settled();
    let without = desired(
        "a",
        &names(1),
        &Knobs {
            coredns: false,
            ..Knobs::default()
        },
    );
    let prunes = |plan: &Plan| {
        plan.steps().any(|step| {
            matches!(
                step.action,
                Action::Cluster(ClusterAction::PruneObjects { .. })
            )
        })
    };
    assert!(
        prunes(&plan_up(&without, &world.observe(&shell)).unwrap()),
        "the API answers"
    );
    world.answering.clear();
    let have = world.observe(&shell);
    assert!(matches!(have.api(), ApiView::Unreachable(_)));
    assert!(!prunes(&plan_up(&without, &have).unwrap()));
    let bad = plan_of([step(Action::Cluster(ClusterAction::PruneObjects {
        objects: vec![],
    }))]);
    assert_eq!(check(&bad, &have, &id()), [Violation::PrunesBlindly]);
}

/// Whoever does not answer is taken away only by steps that look whether it lives.
#[test]
fn invariant_01_no_node_is_given_up_that_may_be_alive() {
    let (mut world, shell) = settled();
    world.down.insert(one(), down());
    let have = world.observe(&shell);
    let (node, uid, member) = (one(), "u".to_owned(), MemberId(1));
    let is_down = || Guard::NodeIsDown {
        node: one(),
        uid: Some("u".to_owned()),
    };
    let remove = ClusterAction::RemoveMember {
        node: node.clone(),
        member,
    };
    let taint = ClusterAction::OutOfService {
        node: node.clone(),
        uid: uid.clone(),
    };
    let delete = ClusterAction::DeleteNode { node, uid };
    let silent = Guard::MemberIsSilent(member);
    for (action, looks) in [
        (remove, vec![is_down(), silent]),
        (taint, vec![is_down()]),
        (delete, vec![is_down()]),
    ] {
        let blind = step(Action::Cluster(action));
        let mut seeing = blind.clone();
        seeing.guards.extend(looks);
        let alive = |step: Step| {
            let found = check(&plan_of([step]), &have, &id());
            found.contains(&Violation::MayBeAlive(one()))
        };
        assert!(alive(blind.clone()), "{blind:?}");
        assert!(!alive(seeing.clone()), "{seeing:?}");
    }
}

#[test]
fn invariant_01_a_node_that_left_the_config_is_not_forgotten() {
    let (world, shell) = settled();
    let mut have = world.observe(&shell);
    let mut want = desired("a", &["other".into()], &Knobs::default());
    let free = crate::sim::World::new([("other".into(), crate::sim::bare_host(&"other".into()))]);
    have.hosts.extend(free.observe(&Shell::default()).hosts);
    let error = plan::up(&want, &have).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("no longer in the config, or given up: `n1`"),
        "{said}"
    );
    // A node that was never ours may go.
    want.cluster_id = ClusterId("c".to_owned());
    want.saved.cluster_id = want.cluster_id.clone();
    have.saved = None;
    let plan = plan::up(&want, &have).expect("n1 has nothing of cluster c");
    assert!(plan.steps().all(|step| step.node() != Some(&one())));
}

#[test]
fn invariant_01_etcd_goes_only_with_its_node() {
    let (world, shell) = settled();
    let bad = plan_of([on_host(remove_container("etcd"))]);
    let violations = check(&bad, &world.observe(&shell), &id());
    assert_eq!(violations, [Violation::RemovesEtcd(one())]);
}

#[test]
fn invariant_02_new_keys_are_saved_before_a_node_is_claimed() {
    let have = world_with(|_| {}).observe(&Shell::default());
    let plan = plan_up(&want(), &have).unwrap();
    assert_eq!(
        plan.steps().next().unwrap().action,
        Action::Local(LocalAction::SaveState)
    );
    let without: Vec<Step> = plan.steps().skip(1).cloned().collect();
    let violations = check(&plan_of(without), &have, &id());
    assert!(
        violations.contains(&Violation::ClaimsBeforeStateIsSaved(one())),
        "{violations:?}"
    );
}

#[test]
fn invariant_03_nothing_is_done_before_the_claim() {
    let have = world_with(|_| {}).observe(&Shell::default());
    let plan = plan_up(&want(), &have).unwrap();
    let is_claim = |step: &&Step| is(step, |action| matches!(action, HostAction::Claim { .. }));
    let without: Vec<Step> = plan
        .steps()
        .filter(|step| !is_claim(step))
        .cloned()
        .collect();
    let violations = check(&plan_of(without), &have, &id());
    assert!(
        violations.contains(&Violation::ActsBeforeClaim(one())),
        "{violations:?}"
    );
    let mut claim = plan.steps().find(is_claim).unwrap().clone();
    if let Action::Host(_, HostAction::Claim { cluster_id, .. }) = &mut claim.action {
        *cluster_id = ClusterId("b".to_owned());
    }
    let save = local(LocalAction::SaveState);
    let violations = check(&plan_of([save, claim]), &have, &id());
    assert_eq!(violations, [Violation::ClaimsForAnother(one())]);
}

#[test]
fn invariant_03_nothing_is_done_on_a_node_of_another() {
    let (mut world, shell) = settled();
    let claim = host(&mut world).containers.get_mut(CLAIM).unwrap();
    claim
        .labels
        .insert(label::CLUSTER_ID.to_owned(), "b".to_owned());
    let have = world.observe(&shell);
    plan::up(&want(), &have).expect_err("the node is another cluster's");
    assert!(
        plan_remove(&have).unwrap().is_empty(),
        "and the state stays: containers of a are there"
    );
    let bad = plan_of([on_host(HostAction::StartContainer {
        component: Component::Etcd,
    })]);
    assert_eq!(
        check(&bad, &have, &id()),
        [Violation::ActsOnForeignHost(one())]
    );
}

#[test]
fn invariant_03_what_was_there_before_is_not_cleaned() {
    let (world, shell) = settled();
    let clean = on_host(HostAction::CleanHost {
        before: Baseline::default(),
    });
    let violations = check(&plan_of([clean]), &world.observe(&shell), &id());
    assert_eq!(violations, [Violation::CleansWhatWasThere(one())]);
}

#[test]
fn invariant_04_a_guard_that_fails_stops_the_step() {
    let (mut world, mut shell) = settled();
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    // Between survey and step someone else took the node.
    let claim = host(&mut world).containers.get_mut(CLAIM).unwrap();
    claim
        .labels
        .insert(label::CLUSTER_ID.to_owned(), "b".to_owned());
    let before = world.clone();
    let ended = world.run(&plan, None, &mut shell, None);
    assert!(matches!(ended, Ended::PlanAgain(_)), "{ended:?}");
    assert_eq!(world, before);
}

/// A claim says whose the node is, and nothing of etcd; a Node object is told by its uid.
#[test]
fn invariant_04_what_leaves_has_its_own_guard() {
    let (world, shell) = settled();
    let have = world.observe(&shell);
    let member = MemberId(7);
    let leaves = step(Action::Cluster(ClusterAction::RemoveMember {
        node: one(),
        member,
    }));
    let unguarded = |step: Step| {
        let violations = check(&plan_of([step]), &have, &id());
        matches!(violations.as_slice(), [Violation::Unguarded { .. }])
    };
    assert!(unguarded(leaves.clone()));
    let mut another = leaves.clone();
    another.guards = vec![Guard::ServesAfterRemoval(MemberId(8))];
    assert!(unguarded(another));
    let mut guarded = leaves;
    guarded.guards = vec![Guard::ServesAfterRemoval(member)];
    assert!(!unguarded(guarded));
    for (uid, known) in [("", false), ("0a1b", true)] {
        let node = step(Action::Cluster(ClusterAction::DeleteNode {
            node: one(),
            uid: uid.to_owned(),
        }));
        assert_eq!(unguarded(node), !known, "{uid}");
        let pod = step(Action::Cluster(ClusterAction::Evict {
            workload: ObjectRef {
                api_version: "apps/v1".to_owned(),
                kind: "Deployment".to_owned(),
                namespace: "kube-system".to_owned(),
                name: "coredns".to_owned(),
            },
            pod: "coredns-1".to_owned(),
            uid: uid.to_owned(),
        }));
        assert_eq!(unguarded(pod), !known, "{uid}");
    }
}

#[test]
fn invariant_04_only_objects_that_were_seen_are_deleted() {
    let (world, shell) = settled();
    let without = Knobs {
        coredns: false,
        ..Knobs::default()
    };
    let want = desired("a", &names(1), &without);
    let have = world.observe(&shell);
    let plan = plan_up(&want, &have).unwrap();
    let prune = plan.steps().find(|step| step.action.is_destructive());
    let prune = prune.expect("objects are pruned").clone();
    let Action::Cluster(ClusterAction::PruneObjects { objects }) = &prune.action else {
        panic!("{prune:?}");
    };
    assert_eq!(check(&plan_of([prune.clone()]), &have, &id()), []);
    for index in 0..objects.len() {
        let mut unguarded = prune.clone();
        unguarded.guards.remove(index);
        let violations = check(&plan_of([unguarded]), &have, &id());
        assert!(
            matches!(violations.as_slice(), [Violation::Unguarded { .. }]),
            "{violations:?}"
        );
    }
    // Between survey and step, somebody made one anew, took its label away, or deleted it.
    let meanwhile: [fn(&mut serde_json::Value); 3] = [
        |object| object["metadata"]["uid"] = "another".into(),
        |object| object["metadata"]["labels"] = serde_json::json!({}),
        |object| *object = serde_json::json!({}),
    ];
    for (change, object) in meanwhile
        .iter()
        .flat_map(|change| objects.iter().map(move |object| (change, object)))
    {
        let (mut world, mut shell) = (world.clone(), shell.clone());
        change(world.etcd().objects.get_mut(object).unwrap());
        let before = world.clone();
        let ended = world.run(&plan_of([prune.clone()]), Some(&want), &mut shell, None);
        assert!(matches!(ended, Ended::PlanAgain(_)), "{ended:?}");
        assert_eq!(world, before);
    }
    let (mut world, mut shell) = (world, shell);
    let ended = world.run(&plan_of([prune.clone()]), Some(&want), &mut shell, None);
    assert!(matches!(ended, Ended::Completed), "{ended:?}");
    for object in objects {
        assert!(!world.etcd().objects.contains_key(object), "{object}");
    }
}

#[test]
fn invariant_04_a_guard_needs_a_claim_of_this_cluster() {
    let (mut world, _) = settled();
    let guard = |id: &str| Guard::ClaimIs {
        id: ClusterId(id.to_owned()),
        node: one(),
    };
    let claim = host(&mut world).containers[CLAIM].clone();
    let live = |container| Live {
        container,
        ..Live::default()
    };
    plan::holds(&guard("a"), &live(Some(claim.clone()))).unwrap();
    plan::holds(&guard("a"), &live(None)).unwrap_err();
    plan::holds(&guard("b"), &live(Some(claim.clone()))).unwrap_err();
    let mut unmarked = claim;
    unmarked.labels.clear();
    plan::holds(&guard("a"), &live(Some(unmarked))).unwrap_err();
}

#[test]
fn invariant_04_every_destructive_step_needs_its_guard() {
    let (mut world, shell) = settled();
    let remove = plan_remove(&world.observe(&shell)).unwrap();
    host(&mut world).files.as_mut().unwrap().clear();
    let knobs = Knobs {
        tag: 1,
        scheduler: false,
        ..Knobs::default()
    };
    let have = world.observe(&shell);
    let up = plan_up(&desired("a", &names(1), &knobs), &have).unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    for (plan, index) in [&up, &remove]
        .into_iter()
        .flat_map(|plan| (0..plan.steps().count()).map(move |index| (plan, index)))
    {
        let mut steps: Vec<Step> = plan.steps().cloned().collect();
        if !steps[index].action.is_destructive() {
            continue;
        }
        kinds.insert(
            plan::title(&steps[index])
                .split(' ')
                .next()
                .unwrap()
                .to_owned(),
        );
        let claim = |id: &str, node: &str| Guard::ClaimIs {
            id: ClusterId(id.to_owned()),
            node: node.into(),
        };
        for guards in [vec![], vec![claim("b", "n1")], vec![claim("a", "n2")]] {
            steps[index].guards = guards;
            let violations = check(&plan_of(steps.clone()), &have, &id());
            assert!(
                violations
                    .iter()
                    .any(|violation| matches!(violation, Violation::Unguarded { .. })),
                "{} passes without its guard",
                plan::title(&steps[index])
            );
        }
    }
    let kinds: Vec<_> = kinds.iter().map(String::as_str).collect();
    assert_eq!(
        kinds,
        [
            "clean",
            "configure",
            "release",
            "remove",
            "replace",
            "restore",
            "write"
        ]
    );
}

#[test]
fn invariant_05_everything_starts_before_anything_is_awaited() {
    const CLIENTS: [Component; 4] = [
        Component::ControllerManager,
        Component::Scheduler,
        Component::KubeProxy,
        Component::Snapshots,
    ];
    let hosts = names(3).into_iter().map(|name| {
        let facts = crate::sim::bare_host(&name);
        (name, facts)
    });
    let have = crate::sim::World::new(hosts).observe(&Shell::default());
    let plan = plan_up(&desired("a", &names(3), &Knobs::default()), &have).unwrap();
    let place = |wanted: &dyn Fn(&Action) -> bool| {
        plan.steps()
            .enumerate()
            .filter(|(_, step)| wanted(&step.action))
            .map(|(at, _)| at)
            .collect::<Vec<_>>()
    };
    let starts = place(&|action| {
        matches!(action, Action::Host(_, HostAction::RunContainer { component, .. })
            if !CLIENTS.contains(component))
    });
    let waits = place(&Action::is_wait);
    assert_eq!(starts.len(), 9);
    assert!(starts.last() < waits.first());
    // What needs the API starts when it answers.
    let clients = place(&|action| {
        matches!(action, Action::Host(_, HostAction::RunContainer { component, .. })
            if CLIENTS.contains(component) && *component != Component::Snapshots)
    });
    let api = place(&|action| {
        let component = Component::ApiServer;
        matches!(action, Action::Host(_, action) if *action == HostAction::AwaitHealthy { component })
    });
    assert_eq!((clients.len(), api.len()), (9, 3));
    assert!(api.last() < clients.first());
    let start = plan
        .stages
        .iter()
        .find(|stage| stage.name == "start")
        .unwrap();
    assert_eq!(start.width, 3, "fresh members start side by side");
}

#[test]
fn invariant_05_a_living_cluster_is_rolled_one_at_a_time() {
    let hosts = names(3).into_iter().map(|name| {
        let facts = crate::sim::bare_host(&name);
        (name, facts)
    });
    let (mut world, mut shell) = (crate::sim::World::new(hosts), Shell::default());
    let old = desired("a", &names(3), &Knobs::default());
    crate::sim::world::converge_up(&mut world, &old, &mut shell);
    let new = desired(
        "a",
        &names(3),
        &Knobs {
            verbosity: 3,
            ..Knobs::default()
        },
    );
    let have = world.observe(&shell);
    let plan = plan_up(&new, &have).unwrap();
    let replaced = |stage: &Stage| {
        let queues = stage.queues.iter();
        let nodes = queues.map(|queue| queue.node.as_ref().unwrap().0.as_str());
        nodes.collect::<Vec<_>>().join(" ")
    };
    let rolls: Vec<_> = plan
        .stages
        .iter()
        .filter(|stage| {
            let mut steps = stage.steps();
            steps.any(|step| is(step, |a| matches!(a, HostAction::ReplaceContainer { .. })))
        })
        .map(|stage| (stage.name.as_ref(), stage.width, replaced(stage)))
        .collect();
    // The leader of etcd is n1: its turn is last.
    assert_eq!(
        rolls,
        [
            ("etcd", 1, "n2 n3 n1".to_owned()),
            ("controlplane", 1, "n1 n2 n3".to_owned()),
            ("kubelets", 1, "n1 n2 n3".to_owned()),
            ("snapshots", 3, "n1 n2 n3".to_owned()),
        ]
    );
    assert_eq!(plan.disruptions().count(), 9, "etcd, API server, kubelet");

    // The check sees a roll that is none.
    let mut wide = plan.clone();
    for stage in &mut wide.stages {
        stage.width = 3;
    }
    let violations = check(&wide, &have, &id());
    // Kubelets count those that are down: `plan_rolls` has theirs.
    let mut together = [
        Component::Etcd,
        Component::ApiServer,
        Component::ControllerManager,
        Component::Scheduler,
    ]
    .into_iter();
    assert!(
        together.all(|it| violations.contains(&Violation::ReplacesTogether(it))),
        "{violations:?}"
    );
    let mut blind = plan.clone();
    for stage in &mut blind.stages {
        for queue in &mut stage.queues {
            queue.steps.retain(|step| !step.action.is_wait());
        }
    }
    assert_eq!(check(&blind, &have, &id()).len(), 18, "six on three hosts");
    // Nor is it one where all are taken away first and awaited then.
    let mut hasty = plan.clone();
    for stage in &mut hasty.stages {
        let steps = stage.queues.drain(..).flat_map(|queue| queue.steps);
        let (waits, steps): (Vec<_>, Vec<_>) = steps.partition(|step| step.action.is_wait());
        stage.queues.push(Queue {
            node: None,
            steps: steps.into_iter().chain(waits).collect(),
        });
    }
    let etcd = Violation::ReplacesTogether(Component::Etcd);
    assert!(check(&hasty, &have, &id()).contains(&etcd));
    let mut bold = plan;
    for stage in &mut bold.stages {
        for queue in &mut stage.queues {
            for step in &mut queue.steps {
                step.guards
                    .retain(|guard| matches!(guard, Guard::ClaimIs { .. }));
            }
        }
    }
    let violations = check(&bold, &have, &id());
    for node in names(3) {
        assert!(violations.contains(&Violation::RisksQuorum(node.clone())));
        assert!(violations.contains(&Violation::RisksApi(node)));
    }
}

fn why_of(plan: &Plan, title: &str) -> String {
    let step = plan
        .steps()
        .find(|step| plan::title(step) == title)
        .unwrap();
    step.why.clone().into_owned()
}

#[test]
fn invariant_07_drift_and_change_are_distinguished() {
    let (mut world, shell) = settled();
    let by_hand = |world: &mut crate::sim::World| {
        let scheduler = host(world).containers.get_mut("kube-scheduler").unwrap();
        scheduler.runs.as_mut().unwrap().command = vec!["--v=9".to_owned()];
    };
    let edited = desired(
        "a",
        &names(1),
        &Knobs {
            tag: 1,
            ..Knobs::default()
        },
    );
    let title = "replace kube-scheduler";
    let change = plan_up(&edited, &world.observe(&shell)).unwrap();
    assert_eq!(why_of(&change, title), "definition changed: image");
    by_hand(&mut world);
    let drift = plan_up(&want(), &world.observe(&shell)).unwrap();
    assert_eq!(
        why_of(&drift, title),
        "was changed on the node: command --v"
    );
    assert_eq!(
        drift
            .steps()
            .filter(|step| step.action.is_destructive())
            .count(),
        1
    );
    let both = plan_up(&edited, &world.observe(&shell)).unwrap();
    assert_eq!(
        why_of(&both, title),
        "definition changed: image; and was changed on the node: command --v"
    );
}

#[test]
fn invariant_07_a_file_that_a_component_reads_is_a_part_of_it() {
    let (world, shell) = settled();
    let want = desired(
        "a",
        &names(1),
        &Knobs {
            certificate: 1,
            ..Knobs::default()
        },
    );
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    let replaced: Vec<String> = titles(&plan)
        .into_iter()
        .filter(|title| title.starts_with("replace"))
        .collect();
    assert_eq!(replaced, ["replace kube-apiserver"]);
    assert_eq!(
        why_of(&plan, "replace kube-apiserver"),
        "its certificates were renewed since it was started; definition changed: file \
         /etc/kubernetes/ssl/kube-apiserver.pem"
    );
}

/// What nobody asked for waits, what was taken away comes back, and what ends soon is renewed
/// with what its component reads, whatever else would change.
#[test]
fn invariant_16_what_expires_soon_does_not_wait() {
    let (mut world, mut shell) = settled();
    let update = Knobs {
        certificate: 1,
        tag: 1,
        ..Knobs::default()
    };
    let mut want = desired("a", &names(1), &update);
    let plan = plan_up(&want, &world.observe(&shell)).unwrap().unasked();
    let effects = |plan: &Plan| -> Vec<String> {
        let steps = plan.steps().filter(|step| !step.action.is_wait());
        steps.map(plan::title).collect()
    };
    let pulls = |plan: &Plan| effects(plan).iter().all(|title| title.starts_with("pull"));
    assert!(pulls(&plan), "an update waits: {:?}", effects(&plan));

    let path = "/etc/kubernetes/ssl/kube-apiserver.pem".to_owned();
    want.certificates.renewed = BTreeMap::from([(one(), BTreeSet::from([path]))]);
    host(&mut world).containers.remove("kube-proxy").unwrap();
    let plan = plan_up(&want, &world.observe(&shell)).unwrap().unasked();
    let done: Vec<_> = plan
        .steps()
        .filter(|step| step.action.is_destructive() || step.cause == Cause::Expiry)
        .map(|step| (plan::title(step), step.cause))
        .collect();
    let titles: Vec<&str> = done.iter().map(|(title, _)| title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "pull rancher/hardened-kubernetes:v1.34.4-build1",
            "write 1 file and 2 directories",
            "replace kube-apiserver",
            "wait for kube-apiserver to be healthy"
        ],
        "one component, with the wait behind it"
    );
    assert!(done.iter().all(|(_, cause)| *cause == Cause::Expiry));
    assert_eq!(check(&plan, &world.observe(&shell), &id()), []);
    let ended = world.run(&plan, Some(&want), &mut shell, None);
    assert!(matches!(ended, Ended::Completed), "{ended:?}");
    // What its component reads now is on the node.
    want.certificates.renewed.clear();
    let after = plan_up(&want, &world.observe(&shell)).unwrap();
    let left = effects(&after.unasked());
    assert!(left.is_empty(), "{left:?}");
    assert!(after.steps().any(Step::is_asked), "the rest waits");
    assert!(host(&mut world).containers.contains_key("kube-proxy"));
}

#[test]
fn invariant_10_the_state_outlives_what_it_tells_of() {
    let (mut world, shell) = settled();
    let delete = || local(LocalAction::DeleteState);
    let because = |plan: &Plan, world: &crate::sim::World, shell: &Shell| {
        check(plan, &world.observe(shell), &id())
    };
    let early = |why| vec![Violation::DeletesStateEarly(why)];
    let alone = plan_of([delete()]);
    assert_eq!(
        because(&alone, &world, &shell),
        early("containers of this cluster are still on a node")
    );
    let not_last = plan_of([delete(), local(LocalAction::RemoveKubeconfig)]);
    assert_eq!(
        because(&not_last, &world, &shell),
        early("something comes after")
    );
    let release = plan_of([on_host(HostAction::ReleaseClaim), delete()]);
    assert_eq!(
        because(&release, &world, &shell),
        early("a node is still being cleaned")
    );
    world.down.insert(one(), down());
    assert_eq!(
        because(&alone, &world, &shell),
        early("a node does not answer")
    );
}

#[test]
fn invariant_11_a_removal_needs_only_the_id_and_the_world() {
    let (world, shell) = settled();
    let have = world.observe(&shell);
    let with_api = plan::remove(Some(&id()), &have).unwrap();
    let mut blind = have;
    blind.cluster = None;
    blind.apis.clear();
    blind.kubeconfig = None;
    assert_eq!(plan::remove(Some(&id()), &blind).unwrap(), with_api);
}

#[test]
fn a_node_is_brought_up_or_given_back_never_both() {
    let (world, shell) = settled();
    let start = on_host(HostAction::StartContainer {
        component: Component::Etcd,
    });
    let release = on_host(HostAction::ReleaseClaim);
    let have = world.observe(&shell);
    let violations = check(&plan_of([start.clone(), release.clone()]), &have, &id());
    assert_eq!(violations, [Violation::Mixed(one())]);
    let violations = check(&plan_of([release, start]), &have, &id());
    assert_eq!(
        violations,
        [Violation::ActsAfterRelease(one()), Violation::Mixed(one())]
    );
}

#[test]
fn what_disturbs_says_so() {
    let (world, shell) = settled();
    let mut configure = on_host(HostAction::ConfigureContainerd {
        wants: ContainerdWants {
            sandbox_image: String::new(),
            cni_bin_dir: String::new(),
            cni_conf_dir: String::new(),
            registry_config_path: String::new(),
            systemd_cgroup: true,
            environment: [].into(),
        },
        digest: Digest(String::new()),
    });
    configure.disturbs = None;
    let violations = check(&plan_of([configure]), &world.observe(&shell), &id());
    assert_eq!(
        violations,
        [Violation::DisturbsSilently(Target::Host(one()))]
    );
}

#[test]
fn a_component_that_stands_still_is_started() {
    let (mut world, shell) = settled();
    let etcd = host(&mut world).containers.get_mut("kube-proxy").unwrap();
    etcd.state = ContainerState::Exited(1);
    let plan = plan_up(&want(), &world.observe(&shell)).unwrap();
    assert_eq!(why_of(&plan, "start kube-proxy"), "exited with code 1");
    let component = Component::KubeProxy;
    assert!(plan.steps().any(|step| is(step, |action| *action
        == HostAction::AwaitHealthy { component })));
}

#[test]
fn the_refinement_check_sees_what_the_model_did_not_say() {
    use crate::sim::compare::differences;
    let (mut world, shell) = settled();
    let model = world.observe(&shell);
    assert_eq!(differences(&model, &model), Vec::<String>::new());
    host(&mut world).containers.remove("kubelet");
    host(&mut world).files.as_mut().unwrap().clear();
    let found = differences(&model, &world.observe(&shell));
    assert_eq!(found.len(), 2, "{found:?}");
    let paths = &found[1];
    assert!(!paths.contains("key of n1"), "contents are secret: {paths}");
}

/// Every source file of this package, once each.
fn sources(below: &std::path::Path, found: &mut String) {
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push_str(&String::from_utf8(std::fs::read(&path).unwrap()).unwrap());
        }
    }
}

#[test]
fn the_document_names_tests_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read(root.join("docs/invariants.md")).unwrap();
    let document = String::from_utf8(document).unwrap();
    let mut code = String::new();
    sources(&root.join("src"), &mut code);
    sources(&root.join("tests/it"), &mut code);
    let lists = document
        .split("\nTests: ")
        .skip(1)
        .map(|rest| rest.split("\n\n").next().unwrap());
    let named: Vec<&str> = lists
        .flat_map(|list| list.split('`').skip(1).step_by(2))
        .collect();
    assert!(named.len() > 50, "the lists are read: {named:?}");
    for name in &named {
        assert!(
            code.contains(&format!("fn {name}(")),
            "`{name}` is named and does not exist"
        );
    }
    for file in document.split('`').filter(|span| {
        span.strip_suffix(".rs")
            .is_some_and(|name| !name.contains(' '))
    }) {
        let there = root.join("src").join(file).exists() || root.join(file).exists();
        assert!(there, "`{file}` is named and does not exist");
    }
    let prefix = ["fn ", "invariant_"].concat();
    for found in code.split(&prefix).skip(1) {
        let name = found.split('(').next().unwrap();
        let name = format!("invariant_{name}");
        assert!(
            named.contains(&name.as_str()),
            "`{name}` exists and is not named"
        );
    }
}

/// The files are there, their readers still have the old ones in memory: whoever goes on replaces them, asked or not.
#[test]
fn invariant_16_a_renewal_that_was_cut_goes_on_unasked() {
    let (mut world, mut shell) = settled();
    let renewed = Knobs {
        certificate: 1,
        ..Knobs::default()
    };
    let mut want = desired("a", &names(1), &renewed);
    let path = format!("{}/kube-apiserver.pem", rke_operator::model::path::SSL);
    want.certificates.renewed = BTreeMap::from([(one(), BTreeSet::from([path.clone()]))]);
    let mut plan = plan_up(&want, &world.observe(&shell)).unwrap().unasked();
    let files = plan.stages.iter().position(|stage| stage.name == "files");
    plan.stages.truncate(files.unwrap() + 1); // killed here
    world.run(&plan, Some(&want), &mut shell, None);
    // What is found next: the file on the node is new.
    want.certificates.renewed.clear();
    let next = plan_up(&want, &world.observe(&shell)).unwrap().unasked();
    let titles: Vec<_> = next.steps().map(plan::title).collect();
    assert!(
        titles.contains(&"replace kube-apiserver".to_owned()),
        "{titles:?}"
    );
    let steps = next
        .steps()
        .filter(|step| plan::title(step) == "replace kube-apiserver");
    assert!(steps.into_iter().all(|step| step.cause == Cause::Expiry));
    // For other names it is a change, which waits until somebody asks.
    let server = want.hosts.get_mut(&one()).unwrap();
    let server = server.containers.get_mut(&Component::ApiServer).unwrap();
    let record = server.certificates.get_mut(&path).unwrap();
    record.names.push("api.example.com".to_owned());
    let next = plan_up(&want, &world.observe(&shell)).unwrap().unasked();
    assert!(
        !next
            .steps()
            .any(|step| plan::title(step) == "replace kube-apiserver")
    );
}
