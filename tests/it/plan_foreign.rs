//! What is not ours, over generated worlds: containers, images, files, folders, links and mounts of
//! other people and programs, most of them named as ours might be. Whatever the order of kills,
//! `up` and `remove` never touch them. The scripts that clean a node have a property of their own,
//! with real mounts, chains and namespaces (`src/apply/node/clean_property.rs`).

use std::collections::BTreeMap;

use proptest::prelude::*;
use rke_operator::facts::{ContainerFact, ContainerState, HostFacts, HostView};

use crate::{
    plan_properties::{cuts, fresh},
    sim::{
        Cut, Ended, Shell, World, desired, effect,
        generate::names,
        knobs,
        world::{converge_remove, converge_up, plan_remove, plan_up},
    },
};

const CONTAINERS: [&str; 7] = [
    "theirs",
    "etcd-backup",
    "kube-proxy-exporter",
    "kubelet-theirs",
    "nginx",
    "rke-operator-theirs",
    "share-mnt",
];

/// `rancher/…` are names that we use ourselves.
const IMAGES: [&str; 4] = [
    "rancher/mirrored-pause:3.6",
    "rancher/theirs:1",
    "registry.example/etcd:v3.6",
    "theirs:1",
];

/// In folders that only a claimed node may have.
const FILES: [&str; 5] = [
    "/etc/kubernetes/theirs.yaml",
    "/etc/kubernetes/ssl/oidc-ca.pem",
    "/etc/kubernetes/ssl/kube-ca.pem.backup",
    "/etc/kubernetes/ssl/kube-etcd-theirs.txt",
    "/etc/kubernetes/ssl/webhooks/tls.crt",
];

const PATHS: [&str; 9] = [
    "/etc/cni",
    "/etc/cni/net.d",
    "/etc/cni/net.d/87-podman-bridge.conflist",
    "/opt/cni/bin",
    "/opt/cni/bin/theirs",
    "/run/netns",
    "/sys/class/net/cni0",
    "/var/lib/cni",
    "/var/log/pods",
];

const MOUNTS: [&str; 2] = ["/var/lib/etcd/backup", "/var/lib/kubelet/theirs"];

fn some(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(of, 0..=of.len())
}

/// What is not ours on a host.
#[derive(Debug, Clone)]
struct Theirs {
    containers: Vec<(&'static str, ContainerState)>,
    images: Vec<&'static str>,
    files: Vec<&'static str>,
    paths: Vec<&'static str>,
    mounts: Vec<&'static str>,
}

fn theirs() -> impl Strategy<Value = Theirs> {
    let states = [
        ContainerState::Running,
        ContainerState::Created,
        ContainerState::Exited(1),
    ];
    let states = prop::collection::vec(prop::sample::select(states.to_vec()), CONTAINERS.len());
    let lists = (
        some(&CONTAINERS),
        some(&IMAGES),
        some(&FILES),
        some(&PATHS),
        some(&MOUNTS),
    );
    (lists, states).prop_map(
        |((containers, images, files, paths, mounts), states)| Theirs {
            containers: containers.into_iter().zip(states).collect(),
            images,
            files,
            paths,
            mounts,
        },
    )
}

impl Theirs {
    fn container(name: &str, state: ContainerState) -> ContainerFact {
        ContainerFact {
            id: format!("id of {name}"),
            labels: BTreeMap::from([(
                "com.docker.compose.project".to_owned(),
                "theirs".to_owned(),
            )]),
            state,
            runs: None,
            image: "theirs:1".to_owned(),
            started: None,
        }
    }

    /// Before us.
    fn put_on(&self, facts: &mut HostFacts) {
        for (name, state) in &self.containers {
            let container = Self::container(name, *state);
            facts.containers.insert((*name).to_owned(), container);
        }
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        facts.images.extend(owned(&self.images));
        facts.system.paths.extend(owned(&self.paths));
        facts.system.mounts.extend(owned(&self.mounts));
    }

    /// While the node is ours.
    fn put_beside_ours(&self, facts: &mut HostFacts) {
        for path in &self.files {
            let file = effect::file(path.as_bytes(), 0o640);
            facts
                .files
                .get_or_insert_default()
                .insert((*path).to_owned(), file);
        }
    }

    fn are_on(&self, facts: &HostFacts, beside_ours: bool) {
        for (name, state) in &self.containers {
            let there = facts.containers.get(*name);
            assert_eq!(there, Some(&Self::container(name, *state)), "{name}");
        }
        for image in &self.images {
            assert!(facts.images.contains(*image), "{image}");
        }
        for path in &self.paths {
            assert!(facts.system.paths.contains(*path), "{path}");
        }
        for mount in &self.mounts {
            assert!(facts.system.mounts.contains(*mount), "{mount}");
        }
        let there = facts.files.as_ref();
        for path in self.files.iter().filter(|_| beside_ours) {
            let file = there.and_then(|files| files.get(*path));
            let whole = effect::file(path.as_bytes(), 0o640);
            assert_eq!(file, Some(&whole), "{path}");
        }
    }
}

fn first(world: &World) -> &HostFacts {
    match &world.truth.hosts[&names(1)[0]] {
        HostView::Reachable(facts) => facts,
        HostView::Unreachable(_) => unreachable!("it is up"),
    }
}

fn first_mut(world: &mut World) -> &mut HostFacts {
    match world.truth.hosts.get_mut(&names(1)[0]) {
        Some(HostView::Reachable(facts)) => facts,
        _ => unreachable!("it is up"),
    }
}

/// Runs plans that are cut off, and looks after each.
fn killed(
    world: &mut World,
    shell: &mut Shell,
    want: Option<&rke_operator::desired::Desired>,
    cuts: Vec<Cut>,
    mut look: impl FnMut(&World),
) {
    for cut in cuts {
        let have = world.observe(shell);
        let plan = match want {
            Some(want) => plan_up(want, &have),
            None => plan_remove(&have),
        };
        let ended = world.run(&plan.unwrap(), want, shell, Some(cut));
        assert!(matches!(ended, Ended::Cut | Ended::Completed), "{ended:?}");
        look(world);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_not_ours_survives_any_order_of_kills(
        theirs in theirs(), old in knobs(), new in knobs(),
        ups in cuts(), edits in cuts(), removes in cuts(),
    ) {
        let (mut world, mut shell) = (fresh(1), Shell::default());
        theirs.put_on(first_mut(&mut world));
        let (old, new) = (desired("a", &names(1), &old), desired("a", &names(1), &new));
        let before = |world: &World| theirs.are_on(first(world), false);
        let beside = |world: &World| theirs.are_on(first(world), true);

        killed(&mut world, &mut shell, Some(&old), ups, before);
        converge_up(&mut world, &old, &mut shell);
        before(&world);

        theirs.put_beside_ours(first_mut(&mut world));
        killed(&mut world, &mut shell, Some(&new), edits, beside);
        converge_up(&mut world, &new, &mut shell);
        beside(&world);

        killed(&mut world, &mut shell, None, removes, before);
        converge_remove(&mut world, &mut shell);
        before(&world);
    }
}
