//! Plans of `remove` as people read them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rke_operator::{
    api::LastSnapshot,
    error::{ErrorClass, Explain, Obstacle},
    facts::{Baseline, HostFacts, HostView, Unreachable},
    model::{CLAIM, ClusterId, FILES_IMAGE, Named, NodeName, label, path},
    plan,
    plan::{HostAction, RemovalRequest},
};

use crate::{
    plan_up::{foreign, host, one, settled, titles, world_with},
    sim::{
        Knobs, Shell, bare_host,
        world::{converge_remove, plan_remove},
    },
};

#[test]
fn a_node_is_cleaned() {
    let (world, shell) = settled();
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    insta::assert_snapshot!("remove", plan::render(&plan));
}

#[test]
fn invariant_10_the_state_goes_after_a_survey_has_seen_clean_nodes() {
    let (mut world, mut shell) = settled();
    let first = plan_remove(&world.observe(&shell)).unwrap();
    assert!(!first.deletes_state());
    world.run(&first, None, &mut shell, None);
    let last = plan_remove(&world.observe(&shell)).unwrap();
    assert_eq!(titles(&last), ["remove the kubeconfig", "delete the state"]);
    world.run(&last, None, &mut shell, None);
    assert!(plan_remove(&world.observe(&shell)).unwrap().is_empty());
    assert_eq!(shell, Shell::default());
}

#[test]
fn kubelet_goes_first_and_etcd_last() {
    let (world, shell) = settled();
    let titles = titles(&plan_remove(&world.observe(&shell)).unwrap());
    assert_eq!(
        &titles[..7],
        [
            "remove kubelet",
            "remove etcd-rolling-snapshots",
            "remove kube-proxy",
            "remove kube-scheduler",
            "remove kube-controller-manager",
            "remove kube-apiserver",
            "remove etcd",
        ]
    );
}

#[test]
fn invariant_03_lost_state_is_an_error_that_says_how_to_get_it_back() {
    let (world, _) = settled();
    let error = plan::remove(None, &world.observe(&Shell::default())).unwrap_err();
    assert_eq!(error.class(), ErrorClass::User);
    insta::assert_snapshot!(error, @"node `n1` belongs to cluster `cluster-a` (id `a`), and there is no saved state that says whether that is the cluster to remove");
    assert!(error.hints().iter().any(|hint| hint.contains("--recover")));
}

#[test]
fn a_world_that_was_never_touched_is_not_touched() {
    let world = world_with(|_| {});
    assert!(
        plan::remove(None, &world.observe(&Shell::default()))
            .unwrap()
            .is_empty()
    );
}

/// R41: whoever means to remove a cluster of RKE is not told that there is none.
#[test]
fn a_cluster_of_rke_is_neither_removed_nor_overlooked() {
    let rke = |facts: &mut HostFacts| {
        let labels = [("io.rancher.rke.container.name", "kubelet")];
        let kubelet = foreign("rancher/hyperkube:v1.32.6", &labels);
        facts.containers.insert("kubelet".to_owned(), kubelet);
    };
    let world = world_with(rke);
    let error = plan::remove(None, &world.observe(&Shell::default())).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Host);
    insta::assert_snapshot!(error, @"node `n1` is part of a cluster of RKE v1: `kubelet`");
    let hints = error.hints();
    assert!(
        hints.iter().any(|hint| hint.contains("cluster.rkestate")),
        "{hints:?}"
    );

    // Somebody's proxy is no cluster.
    let world = world_with(|facts| {
        let proxy = foreign("nginx:1", &[]);
        facts.containers.insert("nginx-proxy".to_owned(), proxy);
    });
    let plan = plan::remove(None, &world.observe(&Shell::default())).unwrap();
    assert!(plan.is_empty());
}

#[test]
fn invariant_04_a_lost_claim_is_taken_again_before_anything_goes() {
    let (mut world, mut shell) = settled();
    host(&mut world).containers.remove(CLAIM);
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    assert_eq!(titles(&plan), ["claim for cluster cluster-a"]);
    converge_remove(&mut world, &mut shell);
    assert!(!host(&mut world).system.paths.contains("/etc/kubernetes"));
}

#[test]
fn the_empty_image_of_a_claim_that_never_was_goes() {
    let (mut world, mut shell) = settled();
    world.truth = world_with(|facts| facts.images.extend([FILES_IMAGE.to_owned()])).truth;
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    assert_eq!(titles(&plan), ["remove 1 image"]);
    converge_remove(&mut world, &mut shell);
    assert!(!host(&mut world).images.contains(FILES_IMAGE));
}

/// R1: a node whose Docker lost every container (another data root, a prune) is still ours.
#[test]
fn invariant_15_a_node_without_containers_is_not_clean() {
    let (mut world, mut shell) = settled();
    let facts = host(&mut world);
    facts.containers.clear();
    facts.images.clear();
    facts.files = None;
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    assert_eq!(titles(&plan), ["claim for cluster cluster-a"]);
    converge_remove(&mut world, &mut shell);
    assert!(!host(&mut world).system.paths.contains("/etc/kubernetes"));
}

/// R19: the record on the node is as old as the first claim; a claim that was made again knows less.
#[test]
fn a_claim_that_was_made_again_forgets_nothing() {
    let (mut world, shell) = settled();
    let facts = host(&mut world);
    let recorded = facts.before().unwrap();
    let claim = facts.containers.get_mut(CLAIM).unwrap();
    claim.labels.insert(
        label::BEFORE.to_owned(),
        serde_json::to_string(&Baseline::default()).unwrap(),
    );
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    let clean = HostAction::CleanHost { before: recorded };
    let cleans = |step: &plan::Step| matches!(&step.action, plan::Action::Host(_, action) if *action == clean);
    assert!(plan.steps().any(cleans));
}

#[test]
fn invariant_03_what_was_there_before_is_what_the_claim_remembers() {
    let (mut world, shell) = settled();
    let before = Baseline {
        paths: ["/opt/cni".to_owned()].into(),
        ..Baseline::default()
    };
    let facts = host(&mut world);
    let claim = facts.containers.get_mut(CLAIM).unwrap();
    claim.labels.insert(
        label::BEFORE.to_owned(),
        serde_json::to_string(&before).unwrap(),
    );
    let record = facts.files.as_mut().unwrap().remove(path::NODE_RECORD);
    assert!(record.is_some());
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    let clean = HostAction::CleanHost { before };
    assert!(
        plan.steps()
            .filter_map(|step| step.action.on_host())
            .any(|(_, action)| *action == clean)
    );
}

#[test]
fn invariant_01_a_node_that_does_not_answer_is_noted_and_keeps_the_state() {
    let (mut world, shell) = settled();
    world.down.insert(
        one(),
        Unreachable {
            alike: None,
            obstacle: Obstacle::Silence,
            class: ErrorClass::Host,
            why: "connection refused".to_owned(),
            hints: vec![],
        },
    );
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    assert!(plan.is_empty());
    assert_eq!(
        plan.notes[0].text,
        "does not answer and keeps what it has: connection refused"
    );
}

#[test]
fn invariant_03_another_clusters_node_is_left_alone() {
    let (world, _) = settled();
    let id = ClusterId("b".to_owned());
    let saved = crate::sim::desired("b", &[one()], &Knobs::default()).saved;
    let shell = Shell {
        saved: Some(saved),
        ..Shell::default()
    };
    let plan = plan::remove(Some(&id), &world.observe(&shell)).unwrap();
    assert_eq!(titles(&plan), ["delete the state"]);
    assert_eq!(plan.notes[0].text, "belongs to cluster `a`: left alone");
}

/// Docker lost every container; the data of the cluster is there: it is not clean.
#[test]
fn invariant_15_a_node_whose_docker_lost_everything_is_not_clean() {
    use crate::sim::mishap::{Mishap, happen};
    let (mut world, mut shell) = settled();
    happen(Mishap::DockerIsPruned, &mut world, &mut shell);
    for mark in [Some(ClusterId("a".to_owned())), None] {
        host(&mut world).system.cluster_id = mark;
        let plan = plan_remove(&world.observe(&shell)).unwrap();
        assert_eq!(titles(&plan), ["claim for cluster cluster-a"]);
    }
    converge_remove(&mut world, &mut shell);
    assert!(!host(&mut world).system.paths.contains("/var/lib/cni"));
    assert_eq!(shell, Shell::default());
}

/// E3: it was off whenever anybody looked, and holds another Kubernetes now.
#[test]
fn a_machine_that_answered_in_no_run_so_far_is_not_emptied() {
    let (mut world, mut shell) = settled();
    let two = NodeName::from("n2");
    let saved = shell.saved.as_mut().unwrap();
    let mut entry = saved.inventory[&one()].clone();
    entry.machine_id = None;
    saved.inventory.insert(two.clone(), entry);
    let mut facts = bare_host(&two);
    let folders = ["/etc/kubernetes", "/var/lib/etcd", "/var/lib/kubelet"];
    facts.system.paths.extend(folders.map(str::to_owned));
    facts.files = Some(BTreeMap::new());
    let theirs = HostView::Reachable(Box::new(facts));
    world.truth.hosts.insert(two.clone(), theirs.clone());
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    let on_it = |step: &plan::Step| step.node() == Some(&two);
    assert!(!plan.steps().any(on_it), "{}", plan::render(&plan));
    converge_remove(&mut world, &mut shell);
    assert_eq!(world.truth.hosts[&two], theirs);
}

/// Rule 33: another Kubernetes on a machine of ours stops that node, by name, whichever sign there is of it.
#[test]
fn what_is_foreign_stops_that_node() {
    type Sign = fn(&mut HostFacts);
    let signs: [(Sign, &str); 4] = [
        (
            |facts| {
                let file = "/etc/kubernetes/kubelet.conf".to_owned();
                facts.system.foreign.insert(file);
            },
            "kubelet.conf",
        ),
        (
            |facts| {
                let labels = [("io.rancher.rke.container.name", "service-sidekick")];
                let rke = foreign("rancher/rke-tools:v1", &labels);
                facts.containers.insert("service-sidekick".to_owned(), rke);
            },
            "service-sidekick",
        ),
        (
            |facts| {
                facts.containers.remove("kubelet");
                facts.system.listening.insert(10250);
            },
            "port 10250 of kubelet",
        ),
        (
            |facts| {
                let pod = foreign("web:1", &[]);
                facts.containers.insert("k8s_web_1".to_owned(), pod);
            },
            "containers of pods in Docker",
        ),
    ];
    for (sign, said) in signs {
        for claimed in [true, false] {
            let (mut world, shell) = settled();
            let facts = host(&mut world);
            facts.system.cluster_id = Some(ClusterId("a".to_owned()));
            sign(facts);
            if !claimed {
                facts.containers.remove(CLAIM);
            }
            let have = world.observe(&shell);
            let plan = plan_remove(&have).unwrap();
            assert!(plan.is_empty(), "{}", plan::render(&plan));
            let note = &plan.notes[0].text;
            assert!(note.contains(said) && note.contains("--clean n1"), "{note}");
            let request = RemovalRequest {
                named: Named {
                    clean: [one()].into(),
                    ..Named::default()
                },
                last_snapshot: LastSnapshot::Skip,
                now: Timestamp::UNIX_EPOCH,
            };
            let id = ClusterId("a".to_owned());
            let plan = plan::remove_as(Some(&id), &have, &request).unwrap();
            assert!(!plan.is_empty());
            assert_eq!(plan::check(&plan, &have, &id), []);
        }
    }
}
