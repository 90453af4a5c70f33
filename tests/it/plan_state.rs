//! What outlives a run is kept as soon as it changes: in the store first, then beside it.

use std::collections::BTreeMap;

use rke_operator::{
    facts::{Baseline, HostView, StateCopy},
    model::{CLAIM, FILES_IMAGE, NodeName, Secret, path},
    plan::{Action, ClusterAction, HostAction, LocalAction, Plan},
    state::{Applied, OperatorMemory, codec},
};

use crate::sim::{
    Knobs, Shell, World, bare_host, desired, effect,
    generate::names,
    world::{converge_up, plan_remove, plan_up},
};

const ID: &str = "0123456789abcdef0123456789abcdef";

/// A world that is as wanted.
fn settled() -> (World, Shell, rke_operator::desired::Desired) {
    let names = names(1);
    let want = desired(ID, &names, &Knobs::default());
    let mut world = World::new(names.iter().map(|name| (name.clone(), bare_host(name))));
    let mut shell = Shell::default();
    converge_up(&mut world, &want, &mut shell);
    (world, shell, want)
}

fn stages(plan: &Plan) -> Vec<&str> {
    plan.stages
        .iter()
        .map(|stage| stage.name.as_ref())
        .collect()
}

#[test]
fn a_changed_state_is_saved_first_and_copied_and_the_plan_names_what_changed() {
    let (world, shell, mut want) = settled();
    assert!(plan_up(&want, &world.observe(&shell)).unwrap().is_empty());
    want.saved.serial += 1;
    want.saved.etcd_ca = want.saved.cluster_ca.clone();
    let entry = want.saved.inventory.values_mut().next().unwrap();
    entry.user = "ubuntu".to_owned();
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    assert_eq!(stages(&plan), ["state", "copies"]);
    let step = plan.steps().next().unwrap();
    assert_eq!(step.action, Action::Local(LocalAction::SaveState));
    let fields: Vec<_> = step
        .changes
        .iter()
        .map(|change| change.field.to_string())
        .collect();
    assert_eq!(fields, ["etcd CA", "inventory n1"]);
    let shown = format!("{step:?}");
    assert!(!shown.contains("key of"), "{shown}");
    assert_eq!(
        plan.steps().last().unwrap().action,
        Action::Cluster(ClusterAction::SaveStateCopy)
    );
}

#[test]
fn what_the_operator_remembers_is_saved_and_no_copy_changes() {
    let (world, shell, mut want) = settled();
    want.saved.memory = OperatorMemory {
        uid: Some("0a1b".to_owned()),
        applied: Some(Applied {
            digest: rke_operator::model::Digest("ab".repeat(16)),
            generation: 2,
        }),
        populated: false,
        refused: Vec::new(),
        operations: BTreeMap::new(),
        last_snapshot: None,
    };
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    assert_eq!(stages(&plan), ["state"]);
}

#[test]
fn a_copy_that_is_lost_and_a_kubeconfig_that_differs_are_written_again() {
    let (mut world, mut shell, want) = settled();
    let copy = std::mem::take(&mut world.etcd().state_copy);
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    assert_eq!(stages(&plan), ["copies"]);
    world.etcd().state_copy = copy;
    for there in [None, Some(Secret::new("another cluster's".to_owned()))] {
        shell.kubeconfig = there;
        let plan = plan_up(&want, &world.observe(&shell)).unwrap();
        assert_eq!(stages(&plan), ["kubeconfig"]);
    }
}

/// Files are read through the claim, so without it nothing is known of them: first the claim.
#[test]
fn a_lost_claim_is_taken_again_before_anything_else_is_planned() {
    let (mut world, shell, _) = settled();
    let name = NodeName::from("n1");
    let want = desired(
        ID,
        std::slice::from_ref(&name),
        &Knobs {
            tag: 1,
            ..Knobs::default()
        },
    );
    let have = world.observe(&shell);
    assert!(stages(&plan_up(&want, &have).unwrap()).contains(&"controlplane"));
    let HostView::Reachable(facts) = world.truth.hosts.get_mut(&name).unwrap() else {
        panic!("it answers");
    };
    facts.containers.remove(CLAIM);
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    assert_eq!(stages(&plan), ["claim"]);
    assert!(
        plan.notes
            .iter()
            .any(|note| note.text.contains("through its claim"))
    );
    let steps: Vec<_> = plan.steps().collect();
    let [step] = steps[..] else {
        panic!("{plan:?}")
    };
    let Action::Host(_, HostAction::Claim { before, .. }) = &step.action else {
        panic!("{step:?}")
    };
    let Baseline {
        paths,
        sysctls,
        images,
        ..
    } = before;
    // Its values are ours by now, and so are Kubernetes' folders and our empty image.
    assert!(sysctls.is_empty(), "{sysctls:?}");
    assert!(
        !paths.iter().any(|path| path.starts_with("/etc/kubernetes")),
        "{paths:?}"
    );
    assert!(paths.contains("/etc/containerd"), "{paths:?}");
    assert!(
        !images.contains(FILES_IMAGE) && images.contains("nginx:1.27"),
        "{images:?}"
    );
}

/// R18: etcd that started without its disk serves an empty cluster, to which nothing is written. A
/// first run that was killed before it wrote anything looks the same, and goes on.
#[test]
fn an_etcd_that_lost_its_data_is_an_alarm_and_never_written_to() {
    let (mut world, mut shell, mut want) = settled();
    let etcd = world.etcd();
    etcd.objects.clear();
    (etcd.state_copy, etcd.marked) = (StateCopy::Absent, false);
    let first = plan_up(&want, &world.observe(&shell)).unwrap();
    assert!(stages(&first).contains(&"addons"), "{first:?}");

    for state in [&mut want.saved, shell.saved.as_mut().unwrap()] {
        state.memory.populated = true;
    }
    let error = plan_up(&want, &world.observe(&shell)).unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("etcd has lost its data"), "{said}");
    let [data] = error.errors.as_slice() else {
        panic!("{error:?}");
    };
    assert!(data.hints[0].contains("on `n1`: `sudo docker stop etcd`"));

    // While its API does not answer nobody knows: nothing is written before it was looked into.
    let mut have = world.observe(&shell);
    have.cluster = None;
    let plan = plan_up(&want, &have).unwrap();
    let last = plan.stages.last().map(|stage| stage.name.as_ref());
    assert_eq!(last, Some("health"), "{plan:?}");

    // A copy of the state that a person deleted is no such thing.
    let (mut world, ..) = settled();
    let etcd = world.etcd();
    (etcd.state_copy, etcd.marked) = (StateCopy::Absent, false);
    let plan = plan_up(&want, &world.observe(&shell)).unwrap();
    assert_eq!(stages(&plan), ["copies"]);
}

/// R36: the claim bears the node's name, so that exchanged addresses and a renamed node are seen
/// before one node gets the certificates and the member of the other.
#[test]
fn a_machine_is_the_node_that_it_was_claimed_as() {
    let names = names(2);
    let want = desired(ID, &names, &Knobs::default());
    let mut world = World::new(names.iter().map(|name| (name.clone(), bare_host(name))));
    let mut shell = Shell::default();
    converge_up(&mut world, &want, &mut shell);
    let mut have = world.observe(&shell);
    let [first, second] = names.as_slice() else {
        panic!("{names:?}");
    };
    let one = have.hosts.remove(first).unwrap();
    let other = have.hosts.insert(second.clone(), one).unwrap();
    have.hosts.insert(first.clone(), other);
    let said = plan_up(&want, &have).unwrap_err().to_string();
    for (name, machine) in [(first, second), (second, first)] {
        let line = format!("the machine of node `{name}` is node `{machine}` of this cluster");
        assert!(said.contains(&line), "{said}");
    }
}

/// Claimed by us, and the copy of the state on it is another cluster's: the address leads to a
/// machine that was theirs before, and its data are theirs.
#[test]
fn a_node_with_the_state_of_another_cluster_is_neither_built_on_nor_emptied() {
    let (mut world, shell, want) = settled();
    let other = "b".repeat(32);
    let theirs = desired(&other, &names(1), &Knobs::default()).saved;
    let copy = codec::encode(&theirs);
    let name = NodeName::from("n1");
    let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&name) else {
        panic!("it answers");
    };
    let file = effect::file(copy.expose().as_bytes(), 0o600);
    facts
        .files
        .get_or_insert_default()
        .insert(path::STATE.to_owned(), file);
    let error = plan_up(&want, &world.observe(&shell)).unwrap_err();
    let said = error.to_string();
    let expected = format!("carries the state of another cluster (id `{other}`)");
    assert!(said.contains(&expected), "{said}");
    let plan = plan_remove(&world.observe(&shell)).unwrap();
    assert!(plan.is_empty(), "{plan:?}");
    let note = &plan.notes[0].text;
    assert!(note.contains(&expected), "{note}");
}
