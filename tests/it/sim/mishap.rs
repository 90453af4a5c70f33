//! What may happen to a cluster between two runs, without us.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rke_operator::{
    facts::{ContainerFact, ContainerState, HostFacts, HostView, StateCopy},
    model::{
        CLAIM, ChartRecord, ContainerSpec, FILES_IMAGE, HELPER, NodeName, label, path,
        secret::Secret,
    },
};
use serde_json::json;

use super::World;

/// What may happen to a cluster between two runs, without us.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    ContainerExits(u8),
    ContainerGoes(u8),
    ContainerIsPaused(u8),
    ContainerIsRemade(u8),
    LabelIsLost(u8),
    /// It was started with another certificate than its file has by now.
    ProcessIsOlder(u8),
    FileGoes(u8),
    FileChanges(u8),
    ModeChanges(u8),
    DropInGoes,
    PackageConfigChanges,
    ClaimGoes,
    DockerIsPruned,
    JobIsLeft,
    SysctlChanges,
    ImageGoes(u8),
    ObjectGoes(u8),
    ObjectChanges(u8),
    NodeIsNotReady,
    LabelOfNodeGoes,
    CopyOfStateGoes,
    KubeconfigGoes,
    ApiGoes,
    Reboot,
}

/// On any node: its number, modulo how many there are.
pub(crate) type OnNode = (u8, Mishap);

/// Any of them, on any node.
pub(crate) fn mishap() -> impl Strategy<Value = OnNode> {
    use Mishap as M;
    let what = prop_oneof![
        any::<u8>().prop_map(M::ContainerExits),
        any::<u8>().prop_map(M::ContainerGoes),
        any::<u8>().prop_map(M::ContainerIsPaused),
        any::<u8>().prop_map(M::ContainerIsRemade),
        any::<u8>().prop_map(M::LabelIsLost),
        any::<u8>().prop_map(M::ProcessIsOlder),
        any::<u8>().prop_map(M::FileGoes),
        any::<u8>().prop_map(M::FileChanges),
        any::<u8>().prop_map(M::ModeChanges),
        Just(M::DropInGoes),
        Just(M::PackageConfigChanges),
        Just(M::ClaimGoes),
        Just(M::DockerIsPruned),
        Just(M::JobIsLeft),
        Just(M::SysctlChanges),
        any::<u8>().prop_map(M::ImageGoes),
        any::<u8>().prop_map(M::ObjectGoes),
        any::<u8>().prop_map(M::ObjectChanges),
        Just(M::NodeIsNotReady),
        Just(M::LabelOfNodeGoes),
        Just(M::CopyOfStateGoes),
        Just(M::KubeconfigGoes),
        Just(M::ApiGoes),
        Just(M::Reboot),
    ];
    (any::<u8>(), what)
}

fn nth<K: Ord + Clone, V>(map: &BTreeMap<K, V>, n: u8, keep: impl Fn(&K, &V) -> bool) -> Option<K> {
    let keys: Vec<&K> = map
        .iter()
        .filter(|(k, v)| keep(k, v))
        .map(|(k, _)| k)
        .collect();
    keys.get(usize::from(n) % keys.len().max(1))
        .map(|key| (*key).clone())
}

impl Mishap {
    /// True when the node can be given back as it was before, all the same: it has every image that
    /// it had, and its package's configuration.
    pub(crate) const fn leaves_what_was_there(self) -> bool {
        !matches!(self, Self::ImageGoes(_) | Self::PackageConfigChanges)
    }

    /// True when the node loses its claim.
    pub(crate) const fn takes_the_claim(self) -> bool {
        matches!(self, Self::ClaimGoes | Self::DockerIsPruned)
    }
}

/// Another cluster's claim comes in the place of whatever claim a node has. Returns the node.
pub(crate) fn another_claims(on: u8, world: &mut World) -> NodeName {
    let node = nth(&world.truth.hosts, on, |_, _| true).expect("a world has nodes");
    if let Some(HostView::Reachable(facts)) = world.truth.hosts.get_mut(&node) {
        let claim = ContainerFact {
            id: format!("{CLAIM}-another"),
            labels: BTreeMap::from([
                (label::CLUSTER_ID.to_owned(), "f".repeat(32)),
                (label::CLUSTER_NAME.to_owned(), "another".to_owned()),
            ]),
            state: ContainerState::Created,
            runs: None,
            image: FILES_IMAGE.to_owned(),
            started: None,
        };
        facts.containers.insert(CLAIM.to_owned(), claim);
        facts.images.insert(FILES_IMAGE.to_owned());
    }
    node
}

/// It happens, on the first node.
pub(crate) fn happen(mishap: Mishap, world: &mut World, shell: &mut super::Shell) {
    happen_on((0, mishap), world, shell);
}

/// It happens.
pub(crate) fn happen_on((on, mishap): OnNode, world: &mut World, shell: &mut super::Shell) {
    let Some(node) = nth(&world.truth.hosts, on, |_, _| true) else {
        return;
    };
    match mishap {
        Mishap::ObjectGoes(n) => {
            let etcd = world.etcd();
            // What a chart rendered may go, or its record.
            for fact in etcd.charts.values_mut().filter(|_| n.is_multiple_of(2)) {
                let objects = fact.record.objects.iter();
                fact.gone = objects.map(|applied| applied.object.clone()).collect();
            }
            let objects = &mut etcd.objects;
            if let Some(object) = nth(objects, n, |_, _| true) {
                let value = objects.remove(&object);
                let chart = value.and_then(|value| ChartRecord::chart_of(&object, &value));
                chart.map(|chart| etcd.charts.remove(&chart));
            }
        }
        Mishap::ObjectChanges(n) => {
            let objects = &mut world.etcd().objects;
            if let Some(object) = nth(objects, n, |_, _| true) {
                objects.get_mut(&object).unwrap()["spec"] = json!({"template": "edited"});
            }
        }
        Mishap::NodeIsNotReady => {
            if let Some(fact) = world.etcd().nodes.get_mut(&node) {
                fact.ready = false;
            }
        }
        Mishap::LabelOfNodeGoes => {
            if let Some(fact) = world.etcd().nodes.get_mut(&node) {
                fact.labels.clear();
                fact.taints.clear();
            }
        }
        Mishap::CopyOfStateGoes => {
            let etcd = world.etcd();
            (etcd.state_copy, etcd.marked) = (StateCopy::Absent, false);
        }
        Mishap::KubeconfigGoes => shell.kubeconfig = None,
        Mishap::ApiGoes => world.answering.clear(),
        Mishap::Reboot => {
            world.answering.remove(&node);
            let HostView::Reachable(facts) = world.truth.hosts.get_mut(&node).unwrap() else {
                return;
            };
            facts
                .system
                .sysctls
                .insert("net.ipv4.ip_forward".to_owned(), "0".to_owned());
        }
        Mishap::ContainerExits(_)
        | Mishap::ContainerGoes(_)
        | Mishap::ContainerIsPaused(_)
        | Mishap::ContainerIsRemade(_)
        | Mishap::LabelIsLost(_)
        | Mishap::ProcessIsOlder(_)
        | Mishap::FileGoes(_)
        | Mishap::FileChanges(_)
        | Mishap::ModeChanges(_)
        | Mishap::DropInGoes
        | Mishap::PackageConfigChanges
        | Mishap::ClaimGoes
        | Mishap::DockerIsPruned
        | Mishap::JobIsLeft
        | Mishap::SysctlChanges
        | Mishap::ImageGoes(_) => {
            let HostView::Reachable(facts) = world.truth.hosts.get_mut(&node).unwrap() else {
                return;
            };
            on_host(mishap, facts);
        }
    }
}

/// A renewal that was cut between files and containers: it has the certificate from before.
fn was_started_before(fact: &mut ContainerFact, n: u8) {
    let Some(text) = fact.labels.get(label::SPEC) else {
        return;
    };
    let older = |spec: &mut ContainerSpec| {
        let Some(path) = nth(&spec.certificates, n, |_, _| true) else {
            return;
        };
        let key = path.replace(".pem", "-key.pem");
        for path in [&path, &key] {
            if let Some(digest) = spec.files.get_mut(path) {
                digest.0.push_str(" before");
            }
        }
        let record = spec.certificates.get_mut(&path).unwrap();
        record.fingerprint.push_str(" before");
        record.ends -= 1;
    };
    let mut spec: ContainerSpec = serde_json::from_str(text).unwrap();
    older(&mut spec);
    let text = serde_json::to_string(&spec).unwrap();
    fact.labels.insert(label::SPEC.to_owned(), text);
    fact.runs.iter_mut().for_each(older);
}

fn on_host(mishap: Mishap, facts: &mut HostFacts) {
    let ours = |name: &String, fact: &ContainerFact| {
        fact.labels.contains_key(label::CLUSTER_ID) && name != CLAIM
    };
    let container = |facts: &HostFacts, n| nth(&facts.containers, n, ours);
    let readable = |path: &String, _: &_| super::effect::read_through_claim(path);
    match mishap {
        Mishap::ContainerExits(n) => {
            if let Some(name) = container(facts, n) {
                facts.containers.get_mut(&name).unwrap().state = ContainerState::Exited(1);
            }
        }
        Mishap::ContainerGoes(n) => {
            container(facts, n).map(|name| facts.containers.remove(&name));
        }
        Mishap::ContainerIsPaused(n) => {
            if let Some(name) = container(facts, n) {
                facts.containers.get_mut(&name).unwrap().state = ContainerState::Other;
            }
        }
        Mishap::ContainerIsRemade(n) => {
            if let Some(name) = container(facts, n) {
                let fact = facts.containers.get_mut(&name).unwrap();
                if let Some(runs) = &mut fact.runs {
                    runs.command.push("--by-hand".to_owned());
                }
            }
        }
        Mishap::LabelIsLost(n) => {
            if let Some(name) = container(facts, n) {
                facts
                    .containers
                    .get_mut(&name)
                    .unwrap()
                    .labels
                    .remove(label::SPEC);
            }
        }
        Mishap::ProcessIsOlder(n) => {
            if let Some(name) = container(facts, n) {
                was_started_before(facts.containers.get_mut(&name).unwrap(), n);
            }
        }
        Mishap::FileGoes(n) => {
            let files = facts.files.get_or_insert_default();
            nth(files, n, readable).map(|path| files.remove(&path));
        }
        Mishap::FileChanges(n) => {
            let files = facts.files.get_or_insert_default();
            if let Some(path) = nth(files, n, |path, fact| readable(path, fact) && !fact.is_dir) {
                files.get_mut(&path).unwrap().content =
                    std::sync::Arc::new(Secret::new(b"edited".to_vec()));
            }
        }
        Mishap::ModeChanges(n) => {
            let files = facts.files.get_or_insert_default();
            if let Some(path) = nth(files, n, readable) {
                files.get_mut(&path).unwrap().mode = 0o777;
            }
        }
        Mishap::DropInGoes => {
            facts
                .files
                .get_or_insert_default()
                .remove(path::CONTAINERD_DROP_IN);
        }
        Mishap::PackageConfigChanges => {
            "version = 2\nroot = \"/r\"\n".clone_into(&mut facts.system.containerd.dump);
        }
        Mishap::ClaimGoes => {
            facts.containers.remove(CLAIM);
        }
        Mishap::DockerIsPruned => {
            facts
                .containers
                .retain(|_, fact| !fact.labels.contains_key(label::CLUSTER_ID));
            facts.images.remove(FILES_IMAGE);
        }
        Mishap::JobIsLeft => {
            let Some(claim) = facts.containers.get(CLAIM) else {
                return;
            };
            let job = ContainerFact {
                labels: claim.labels.clone(),
                state: ContainerState::Exited(137),
                ..claim.clone()
            };
            facts.containers.insert(HELPER.to_owned(), job);
        }
        Mishap::SysctlChanges => {
            facts
                .system
                .sysctls
                .insert("net.ipv4.ip_forward".to_owned(), "0".to_owned());
        }
        Mishap::ImageGoes(n) => {
            let images: Vec<String> = facts.images.iter().cloned().collect();
            if let Some(image) = images.get(usize::from(n) % images.len().max(1)) {
                facts.images.remove(image);
            }
        }
        Mishap::ObjectGoes(_)
        | Mishap::ObjectChanges(_)
        | Mishap::NodeIsNotReady
        | Mishap::LabelOfNodeGoes
        | Mishap::CopyOfStateGoes
        | Mishap::KubeconfigGoes
        | Mishap::ApiGoes
        | Mishap::Reboot => unreachable!("these do not happen on a host"),
    }
}
