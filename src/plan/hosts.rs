//! The claim on every node, and everything that stands in the way of it. Pure.

use super::{Action, Note, PlanError, Refusal, Stage, Step, Target, conflicts, containerd, files};
use crate::{
    actual::{Actual, Before, HostFacts, HostView},
    config::NodeName,
    desired::{CLAIM, Desired, DesiredHost, FILES_IMAGE, label, path},
    error::Blame,
};

impl Stage {
    /// The steps of one concern.
    pub(super) fn of(
        name: &'static str,
        width: usize,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        Self {
            name: name.into(),
            width: width.max(1),
            steps: steps.into_iter().collect(),
        }
    }
}

/// Every wanted host that answered.
pub(super) fn each<'a>(
    want: &'a Desired,
    have: &'a Actual,
) -> impl Iterator<Item = (&'a NodeName, &'a DesiredHost, &'a HostFacts)> {
    want.hosts
        .iter()
        .filter_map(|(name, host)| have.up(name).map(|facts| (name, host, facts)))
}

/// A stage over every host at once.
pub(super) fn stage(
    stage: &'static str,
    want: &Desired,
    have: &Actual,
    steps: impl Fn(&NodeName, &DesiredHost, &HostFacts) -> Vec<Step>,
) -> Stage {
    let steps = each(want, have).flat_map(|(name, host, facts)| steps(name, host, facts));
    Stage::of(stage, want.hosts.len(), steps)
}

/// The claim comes before every other effect on a node: its fixed name is the lock.
pub(super) fn claim(want: &Desired, have: &Actual) -> Stage {
    stage("claim", want, have, |name, _, facts| {
        if facts.claim().is_some() {
            return Vec::new();
        }
        let mine = bears(facts, &want.cluster_id.0);
        let (before, why) = if mine {
            (
                rebuilt_before(facts),
                "its claim is gone, and its containers are this cluster's",
            )
        } else {
            (before(facts), "a node belongs to one cluster")
        };
        let action = Action::Claim {
            cluster_id: want.cluster_id.clone(),
            cluster_name: want.saved.cluster_name.clone(),
            before,
        };
        vec![Step::on(name, why, action)]
    })
}

/// True when a node has lost its claim: then only the claim is planned, because files are
/// read through it, and the next survey sees them.
pub(super) fn must_look_again(want: &Desired, have: &Actual) -> bool {
    each(want, have)
        .any(|(_, _, facts)| facts.claim().is_none() && bears(facts, &want.cluster_id.0))
}

/// True when a container of the host, the claim included, bears this cluster's id.
pub(super) fn bears(facts: &HostFacts, id: &str) -> bool {
    facts.containers.values().any(|fact| {
        fact.labels
            .get(label::CLUSTER_ID)
            .is_some_and(|found| found == id)
    })
}

/// What is on a node that nobody has touched.
fn before(facts: &HostFacts) -> Before {
    let mut images = facts.images.clone();
    images.remove(FILES_IMAGE);
    Before {
        paths: facts.system.paths.clone(),
        sysctls: facts.system.sysctls.clone(),
        modules: facts.system.modules.clone(),
        images,
    }
}

/// What only a Kubernetes makes, and no node may have when it is claimed.
const KUBERNETES_ONLY: [&str; 10] = [
    path::KUBERNETES,
    path::ETCD,
    path::KUBELET,
    "/etc/cni/net.d",
    "/run/flannel",
    "/sys/class/net",
    "/var/lib/cni",
    "/var/log/containers",
    "/var/log/kube-audit",
    "/var/log/pods",
];

/// What must have been on a node whose claim is lost: the folders that no node may have when it
/// is claimed were not there; everything else may have been, and stays.
pub(super) fn rebuilt_before(facts: &HostFacts) -> Before {
    let mut before = before(facts);
    before.paths.retain(|path| {
        !KUBERNETES_ONLY
            .iter()
            .any(|ours| path == ours || files::is_below(path, ours))
    });
    // The values are ours now; what they were is not known any more.
    before.sysctls.clear();
    before
}

/// Everything that stands in the way of `up`, at once.
pub(super) fn refusals(want: &Desired, have: &Actual) -> Result<(), PlanError> {
    let mut refusals = Vec::new();
    for (name, host) in &want.hosts {
        match have.hosts.get(name) {
            Some(HostView::Up(facts)) => {
                refusals.extend(conflicts::of(want, name, host, facts));
                if let Err(refusal) = containerd::difference(name, host, facts) {
                    refusals.push(*refusal);
                }
            }
            Some(HostView::Down(down)) => refusals.push(Refusal {
                node: Some(name.clone()),
                message: down.why.clone(),
                hints: down.hints.clone(),
                blame: down.blame,
            }),
            None => refusals.push(Refusal {
                node: Some(name.clone()),
                message: format!("node `{name}` was not looked at"),
                hints: Vec::new(),
                blame: Blame::Bug,
            }),
        }
    }
    refusals.extend(no_longer_named(want, have));
    refusals.extend(one_machine_twice(want, have));
    PlanError::unless_empty(refusals)
}

/// A node that left the config is not forgotten while it bears something of this cluster, and
/// not while it does not answer.
fn no_longer_named<'a>(want: &'a Desired, have: &'a Actual) -> impl Iterator<Item = Refusal> + 'a {
    let gone = have
        .hosts
        .iter()
        .filter(|(name, _)| !want.hosts.contains_key(*name));
    gone.filter_map(|(name, view)| {
        let state = match view {
            HostView::Up(facts) if bears(facts, &want.cluster_id.0) => {
                "is still a part of this cluster"
            }
            HostView::Up(_) => return None,
            HostView::Down(_) => "does not answer",
        };
        Some(Refusal {
            node: Some(name.clone()),
            message: format!("node `{name}` is no longer in the config and {state}"),
            hints: vec![
                format!("write `{name}` into the config again: renaming a node, or taking one away, is not supported yet"),
                "or give the whole cluster back with `rke-operator remove`".to_owned(),
            ],
            blame: Blame::User,
        })
    })
}

fn one_machine_twice(want: &Desired, have: &Actual) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut seen: std::collections::BTreeMap<&str, &NodeName> = std::collections::BTreeMap::new();
    for (name, _, facts) in each(want, have) {
        let id = facts.system.machine_id.as_str();
        if id.is_empty() {
            continue;
        }
        if let Some(other) = seen.insert(id, name) {
            refusals.push(Refusal {
                node: Some(name.clone()),
                message: format!("nodes `{other}` and `{name}` are one machine (machine-id `{id}`)"),
                hints: vec![
                    "name each machine once".to_owned(),
                    "on cloned machines: `sudo rm /etc/machine-id && sudo systemd-machine-id-setup`, then reboot".to_owned(),
                ],
                blame: Blame::User,
            });
        }
    }
    refusals
}

/// What a person should know about a node before it is used.
pub(super) fn notes(want: &Desired, have: &Actual) -> Vec<Note> {
    each(want, have)
        .filter(|(_, _, facts)| facts.claim().is_none())
        .flat_map(|(name, host, facts)| {
            let note = |text| Note {
                target: Some(Target::Host(name.clone())),
                text,
            };
            let runtime = facts.docker.default_runtime.as_str();
            let runtime = (!runtime.is_empty() && runtime != "runc").then(|| {
                note(format!(
                    "Docker's default runtime is `{runtime}`; pods run on containerd and need \
                     its equivalent there"
                ))
            });
            let proxy = facts.docker.proxy.as_ref().map(|_| {
                note(
                    "Docker uses an HTTP proxy; containerd, which pulls the images of pods, is \
                     not told of it yet: set it in a drop-in of containerd.service"
                        .to_owned(),
                )
            });
            let firewall = facts.system.firewalld.then(|| note(firewalld(host)));
            [runtime, proxy, firewall].into_iter().flatten()
        })
        .collect()
}

fn firewalld(host: &DesiredHost) -> String {
    let range = |component: &str, flag: &str| {
        let command = &host.containers.get(component)?.command;
        command
            .iter()
            .find_map(|word| word.strip_prefix(flag)?.strip_prefix('='))
    };
    let ranges = [
        range("kube-controller-manager", "--cluster-cidr"),
        range("kube-apiserver", "--service-cluster-ip-range"),
    ];
    let mut commands: Vec<String> = ranges
        .into_iter()
        .flatten()
        .flat_map(|ranges| ranges.split(','))
        .map(|range| format!("`sudo firewall-cmd --permanent --zone=trusted --add-source={range}`"))
        .collect();
    commands.push("`sudo firewall-cmd --permanent --add-port=6443/tcp`".to_owned());
    commands.push("`sudo firewall-cmd --reload`".to_owned());
    format!(
        "firewalld is active and rejects the traffic of pods: {}",
        commands.join(", ")
    )
}

/// What the claim remembers of the time before us, if it can be read.
pub(super) fn remembered(facts: &HostFacts) -> Option<Before> {
    let claim = facts.containers.get(CLAIM)?;
    serde_json::from_str(claim.labels.get(label::BEFORE)?).ok()
}

/// Files outside the folders that go away as a whole.
pub(super) const LOOSE_FILES: [&str; 2] = [path::MODULES_LOAD, path::SYSCTL];
