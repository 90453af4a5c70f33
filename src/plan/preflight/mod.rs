//! Everything that prevents `up`, at once. Pure.

use std::collections::{BTreeMap, BTreeSet};

mod addresses;
mod bundle;
mod error;
mod external_etcd;
mod host;
mod leavers;
mod lost;
mod machine;
mod mounts;
mod network;
mod packages;
mod ranges;
mod reach;
mod reboot;
mod restore;
mod roles;
mod selinux;
mod version;

pub(super) use bundle::fits;
pub use error::{PreflightError, PreflightErrors};
pub use external_etcd::external_etcd;
pub(super) use host::{listener, rke_cluster, state_of_another};
pub use lost::{consent, known};
pub(super) use machine::lacks;
pub(super) use network::doubts;
pub(crate) use reach::cure as open_port_hint;
pub(super) use reboot::reboot;
pub(super) use restore::{restore, take_back};

use super::diff::Diff;
use crate::{
    desired::Desired,
    error::ErrorClass,
    facts::{Actual, ApiView, HostFacts, HostView, UnreachableNodes, by_cause},
    model::{Component, NodeName, Role, path, quoted},
};

/// Everything that prevents `up`, at once.
pub(super) fn errors(diff: &Diff<'_>) -> Result<(), PreflightErrors> {
    let (want, have) = (diff.want, diff.have);
    let mut errors = version::left_behind(want, have);
    let kept = errors.len();
    errors.extend(ranges::errors(want, have));
    errors.extend(ranges::network(want, have));
    let immutable = errors.len() > kept;
    errors.extend(reach::errors(want, have));
    for (name, host) in &want.hosts {
        match have.hosts.get(name) {
            Some(HostView::Reachable(facts)) => {
                errors.extend(host::errors(want, have, name, host, facts));
                // What is left of a node that was given up is cleaned before it joins.
                if !want.saved.is_lost(name) {
                    errors.extend(roles::errors(want, have, name, host));
                    errors.extend(addresses::errors(want, name, host, facts));
                    errors.extend(version::errors(want, have, name, host, facts));
                }
                let diff = diff.hosts.get(name);
                if let Some(Err(error)) = diff.map(|diff| &diff.containerd) {
                    errors.push((**error).clone());
                }
                if let Some((diff, bundle)) = diff.zip(want.bundle.as_ref()) {
                    let missing = diff.images.iter().map(|missing| missing.image);
                    errors.extend(fits(bundle, name, facts, missing));
                }
            }
            // Left as it is, and noted; whether enough answer is checked before there is a plan.
            Some(HostView::Unreachable(_)) => {}
            None => errors.push(PreflightError {
                node: Some(name.clone()),
                message: format!("node `{name}` was not looked at"),
                hints: Vec::new(),
                class: ErrorClass::Bug,
            }),
        }
    }
    errors.extend(etcd_lost_its_data(have));
    errors.extend(lost::errors(want, have));
    errors.extend(leavers::errors(want, have));
    errors.extend(one_machine_twice(diff));
    let few = too_few(want, have).err();
    errors.extend(few.as_ref().map(|few| few.error(have)));
    PreflightErrors::unless_empty(errors).map_err(|errors| PreflightErrors {
        immutable,
        down: few.map_or_else(Vec::new, |few| few.down(have)),
        ..errors
    })
}

/// What a node is to be asked before new keys are thought of: whether another Kubernetes lives there,
/// or left something. Only then is it worth telling that there is no state.
pub fn strangers(have: &Actual) -> Result<(), PreflightErrors> {
    let errors = have.hosts.iter().flat_map(|(name, view)| match view {
        HostView::Reachable(facts) => host::stranger(name, facts),
        HostView::Unreachable(_) => Vec::new(),
    });
    PreflightErrors::unless_empty(errors.collect())
}

/// Too few nodes answer for anything to be brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooFew {
    /// What is missing, as a sentence fragment.
    pub why: String,
    /// The nodes that do not answer and would be needed.
    pub nodes: BTreeSet<NodeName>,
}

impl TooFew {
    /// Who has to act: those who have to for the nodes.
    fn error(&self, have: &Actual) -> PreflightError {
        let classes = self.down(have).into_iter().map(|group| group.class);
        PreflightError {
            node: None,
            message: format!("nothing is changed: {}", self.why),
            hints: Vec::new(),
            class: ErrorClass::first(classes).unwrap_or(ErrorClass::Host),
        }
    }

    fn down(&self, have: &Actual) -> Vec<UnreachableNodes> {
        let down = have.unreachable();
        by_cause(down.filter(|(name, _)| self.nodes.contains(*name)))
    }
}

/// A survey never fails because of a host. But without a control plane, or without a majority of
/// etcd's hosts, nothing can be brought about: says which of both it is. An external etcd has no hosts: whether
/// that answers, [`external_etcd`] tells.
pub fn enough_answer<'a>(
    etcd: impl IntoIterator<Item = &'a NodeName>,
    control_planes: impl IntoIterator<Item = &'a NodeName>,
    have: &Actual,
) -> Result<(), TooFew> {
    if !have.hosts.is_empty() && have.hosts.keys().all(|name| have.up(name).is_none()) {
        let why = "no node can be used".to_owned();
        let nodes = have.hosts.keys().cloned().collect();
        return Err(TooFew { why, nodes });
    }
    let (up, down): (Vec<_>, Vec<_>) = etcd.into_iter().partition(|name| have.up(name).is_some());
    if have.etcd.external().is_none() && up.len() <= down.len() {
        let all = up.len() + down.len();
        let needs = all / 2 + 1;
        let why = match (all, up.len()) {
            (1, _) => "etcd's only node cannot be used".to_owned(),
            (_, 0) => format!("etcd needs {needs} of its {all} nodes, and none can be used"),
            (_, few) => {
                format!("etcd needs {needs} of its {all} nodes, and only {few} can be used")
            }
        };
        let nodes = down.into_iter().cloned().collect();
        return Err(TooFew { why, nodes });
    }
    let planes: BTreeSet<NodeName> = control_planes.into_iter().cloned().collect();
    if planes.iter().any(|name| have.up(name).is_some()) {
        return Ok(());
    }
    Err(TooFew {
        why: "no control plane can be used".to_owned(),
        nodes: planes,
    })
}

fn too_few(want: &Desired, have: &Actual) -> Result<(), TooFew> {
    let with = |component| want.with(component);
    enough_answer(with(Component::Etcd), with(Component::ApiServer), have)
}

/// An etcd that started without its disk serves an empty cluster. Whatever is written to it then
/// prevents the recovery of the real one, and its kubelets end every pod: nothing is written.
fn etcd_lost_its_data(have: &Actual) -> Option<PreflightError> {
    let (Some(saved), ApiView::Up(api)) = (&have.saved, have.api()) else {
        return None;
    };
    if !saved.memory.populated || !api.is_bare() {
        return None;
    }
    if let Some(keyspace) = &saved.external_etcd {
        return Some(external_etcd::lost_its_data(saved, keyspace));
    }
    let members = saved.inventory.iter();
    let members = members.filter(|(_, entry)| entry.roles.contains(&Role::Etcd));
    Some(PreflightError {
        node: None,
        message: format!(
            "etcd has lost its data: the API of cluster `{}` answers, and nothing that this cluster held is in it; \
            nothing is changed while that is so",
            saved.cluster_name
        ),
        hints: vec![
            format!(
                "on {}: `sudo docker stop etcd`, check whether the disk of `{}` is mounted (`findmnt \
                 -T {}`), mount it, `sudo docker start etcd`",
                quoted(members.map(|(name, _)| name)),
                path::ETCD,
                path::ETCD
            ),
            "if the data is gone for good: remove the cluster with `rke-operator remove` (of a `Cluster`: the \
            deletion of the object), and create it again"
                .to_owned(),
        ],
        class: ErrorClass::Host,
    })
}

/// Nodes that have the same machine-id. A machine that is named twice was booted once; those that were cloned from one
/// image were not, and a machine-id that they share would make one of them pass for the other.
fn one_machine_twice(diff: &Diff<'_>) -> Vec<PreflightError> {
    let mut errors = Vec::new();
    let mut seen: BTreeMap<&str, (&NodeName, &HostFacts)> = BTreeMap::new();
    for (name, host) in &diff.hosts {
        let id = host.facts.system.machine_id.as_str();
        if id.is_empty() {
            continue;
        }
        if let Some((other, its)) = seen.insert(id, (name, host.facts)) {
            let boots = its
                .system
                .boot
                .as_ref()
                .zip(host.facts.system.boot.as_ref());
            let is_cloned = boots.is_some_and(|(its, own)| its != own);
            errors.push(if is_cloned {
                cloned(name, other, id)
            } else {
                twice(name, other, id)
            });
        }
    }
    errors
}

const NEW_MACHINE_ID: &str =
    "`sudo rm /etc/machine-id && sudo systemd-machine-id-setup`, then reboot";

fn twice(name: &NodeName, other: &NodeName, id: &str) -> PreflightError {
    PreflightError {
        node: Some(name.clone()),
        message: format!("nodes `{other}` and `{name}` are one machine (machine-id `{id}`)"),
        hints: vec![
            "name each machine once".to_owned(),
            format!("on cloned machines: {NEW_MACHINE_ID}"),
        ],
        class: ErrorClass::User,
    }
}

fn cloned(name: &NodeName, other: &NodeName, id: &str) -> PreflightError {
    PreflightError::host(
        name,
        format!(
            "nodes `{other}` and `{name}` are two machines with the same machine-id (`{id}`), as clones of one image \
             are: it must identify a node, and DHCP may lease both the same address"
        ),
        [
            format!("on `{name}`: {NEW_MACHINE_ID}"),
            "in the image that machines are cloned from, /etc/machine-id must be empty: each creates its own at its \
             first boot"
                .to_owned(),
        ],
    )
}
