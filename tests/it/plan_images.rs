//! Images of a bundle in plans: loaded where they would be pulled, imported once, and refused for other machines.

use std::collections::BTreeSet;

use rke_operator::{
    catalog::familiar,
    desired::Desired,
    error::Explain as _,
    facts::{Actual, HostView},
    model::{BundledImage, BundledImages, ImagePlatform, NodeName},
    plan::{self, HostAction, Plan},
};

use crate::sim::{
    Knobs, Shell, World, bare_host, desired,
    generate::names,
    world::{converge_up, plan_up},
};

const POD: &str = "example.com/coredns:1";

/// A bundle with everything that the hosts pull, and one image of pods.
fn want() -> Desired {
    let mut want = desired("a", &names(3), &Knobs::default());
    let docker = want.hosts.values().flat_map(|host| &host.images);
    let docker: BTreeSet<String> = docker.map(|image| familiar(image)).collect();
    let image = || BundledImage {
        bytes: 42_000_000,
        platform: ImagePlatform::of_node("x86_64"),
    };
    let all = docker.into_iter().chain([POD.to_owned()]);
    want.bundle = Some(BundledImages {
        file: "images.tar".to_owned(),
        images: all.map(|name| (name, image())).collect(),
        pods: [POD.to_owned()].into(),
        lacks: BTreeSet::new(),
        unlisted: BTreeSet::new(),
    });
    want
}

fn fresh() -> World {
    let hosts = names(3).into_iter();
    World::new(hosts.map(|name| (name.clone(), bare_host(&name))))
}

fn on_hosts(plan: &Plan, is_one: impl Fn(&HostAction) -> bool) -> Vec<&NodeName> {
    let steps = plan.steps().filter_map(|step| step.action.on_host());
    let steps = steps.filter(|(_, action)| is_one(action));
    steps.map(|(node, _)| node).collect()
}

fn checked(want: &Desired, have: &Actual) -> Plan {
    let plan = plan_up(want, have).unwrap();
    assert_eq!(plan::check(&plan, have, &want.cluster_id), []);
    plan
}

#[test]
fn nothing_is_pulled_and_every_node_gets_the_images_of_pods_before_its_kubelet() {
    let plan = checked(&want(), &fresh().observe(&Shell::default()));
    let pulls = |action: &HostAction| matches!(action, HostAction::PullImage { .. });
    assert_eq!(on_hosts(&plan, pulls), Vec::<&NodeName>::new());
    let loads = |action: &HostAction| {
        matches!(
            action,
            HostAction::LoadImage {
                bytes: 42_000_000,
                ..
            }
        )
    };
    assert!(!on_hosts(&plan, loads).is_empty());
    let imports = |action: &HostAction| matches!(action, HostAction::ImportImage { image, .. } if image == POD);
    assert_eq!(on_hosts(&plan, imports).len(), 3);
    let stage = |name: &str| plan.stages.iter().position(|stage| stage.name == name);
    assert!(stage("claim") < stage("images"));
    assert!(stage("images") < stage("import") && stage("import") < stage("start"));
}

#[test]
fn what_was_imported_once_is_not_imported_again() {
    let (mut world, mut shell) = (fresh(), Shell::default());
    let want = want();
    converge_up(&mut world, &want, &mut shell);
    assert!(checked(&want, &world.observe(&shell)).is_empty());
    // One that comes with the next bundle.
    let mut next = want.clone();
    let bundle = next.bundle.as_mut().unwrap();
    let image = bundle.images[POD].clone();
    bundle.images.insert("example.com/new:1".to_owned(), image);
    bundle.pods.insert("example.com/new:1".to_owned());
    let plan = checked(&next, &world.observe(&shell));
    let titles: BTreeSet<String> = plan.steps().map(plan::title).collect();
    let title = "import example.com/new:1 into containerd (42 MB)".to_owned();
    assert_eq!(titles, [title].into());
    converge_up(&mut world, &next, &mut shell);
    // Without a bundle nothing of it matters.
    let without = Desired {
        bundle: None,
        ..want
    };
    assert!(checked(&without, &world.observe(&shell)).is_empty());
}

#[test]
fn what_the_bundle_does_not_have_is_pulled_and_noted() {
    let mut want = want();
    let bundle = want.bundle.as_mut().unwrap();
    let mut of_docker = bundle.images.keys().filter(|name| *name != POD);
    let first = of_docker.next().unwrap().clone();
    bundle.images.remove(&first);
    bundle.lacks.insert("example.com/metrics:1".to_owned());
    let plan = checked(&want, &fresh().observe(&Shell::default()));
    let notes: Vec<&str> = plan.notes.iter().map(|note| note.text.as_str()).collect();
    let note = notes
        .iter()
        .find(|note| note.starts_with("the bundle `images.tar` does not have"));
    let note = note.unwrap_or_else(|| panic!("{notes:?}"));
    assert!(
        note.contains("`example.com/metrics:1`") && note.contains(&format!("`{first}`")),
        "{note}"
    );
}

#[test]
fn images_for_other_machines_are_refused() {
    let mut world = fresh();
    let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&NodeName::from("n2")) else {
        panic!("the host is up");
    };
    facts.docker.architecture = "aarch64".to_owned();
    let refused = plan_up(&want(), &world.observe(&Shell::default())).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("node `n2` is linux/arm64") && text.contains("is for linux/amd64"),
        "{text}"
    );
    assert!(
        refused
            .hints()
            .iter()
            .any(|hint| hint.contains("--platform linux/arm64"))
    );
}
