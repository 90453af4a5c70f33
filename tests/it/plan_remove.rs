//! Plans of `remove` as people read them.

use rke_operator::{
    actual::{Before, Down},
    desired::{CLAIM, FILES_IMAGE, label},
    error::{Blame, Explain},
    plan::{self, Action},
    state::ClusterId,
};

use crate::{
    plan_up::{host, one, settled, titles, world_with},
    sim::{
        Knobs, Shell,
        world::{converge_remove, plan_remove},
    },
};

#[test]
fn a_node_is_given_back() {
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
        &titles[..6],
        [
            "remove kubelet",
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
    assert_eq!(error.blame(), Blame::User);
    insta::assert_snapshot!(error, @"node `n1` belongs to cluster `cluster-a` (id `a`), and the state that would prove that it is this one is not there");
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

#[test]
fn invariant_03_what_was_there_before_is_what_the_claim_remembers() {
    let (mut world, shell) = settled();
    let before = Before {
        paths: ["/opt/cni".to_owned()].into(),
        ..Before::default()
    };
    let claim = host(&mut world).containers.get_mut(CLAIM).unwrap();
    claim.labels.insert(
        label::BEFORE.to_owned(),
        serde_json::to_string(&before).unwrap(),
    );
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    assert!(plan.steps().any(|step| step.action
        == Action::CleanHost {
            before: before.clone()
        }));
}

#[test]
fn invariant_01_a_node_that_does_not_answer_is_noted_and_keeps_the_state() {
    let (mut world, shell) = settled();
    world.down.insert(
        one(),
        Down {
            blame: Blame::Host,
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
        kubeconfig: None,
    };
    let plan = plan::remove(Some(&id), &world.observe(&shell)).unwrap();
    assert_eq!(titles(&plan), ["delete the state"]);
    assert_eq!(plan.notes[0].text, "belongs to cluster `a`: left alone");
}
