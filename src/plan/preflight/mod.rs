//! Everything that prevents `up`, at once. Pure.

use std::collections::BTreeMap;

mod addresses;
mod error;
mod external_etcd;
mod host;
mod leavers;
mod lost;
mod machine;
mod network;
mod packages;
mod ranges;
mod reach;
mod reboot;
mod restore;
mod roles;
mod version;

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
    facts::{Actual, ApiView, HostView},
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
    errors.extend(too_few(want, have));
    errors.extend(etcd_lost_its_data(have));
    errors.extend(lost::errors(want, have));
    errors.extend(leavers::errors(want, have));
    errors.extend(one_machine_twice(diff));
    PreflightErrors::unless_empty(errors).map_err(|errors| PreflightErrors {
        immutable,
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

/// A survey never fails because of a host. But without a control plane, or without a majority of
/// etcd's hosts, nothing can be brought about: says which of both it is. An external etcd has no hosts: whether
/// that answers, [`external_etcd`] tells.
pub fn enough_answer<'a>(
    etcd: impl IntoIterator<Item = &'a NodeName>,
    control_planes: impl IntoIterator<Item = &'a NodeName>,
    have: &Actual,
) -> Result<(), String> {
    let (up, down): (Vec<_>, Vec<_>) = etcd.into_iter().partition(|name| have.up(name).is_some());
    if have.etcd.external().is_none() && up.len() <= down.len() {
        let all = up.len() + down.len();
        let (needs, answer) = (all / 2 + 1, up.len());
        return Err(format!(
            "etcd needs {needs} of its {all} nodes, and {answer} can be worked on"
        ));
    }
    let mut planes = control_planes.into_iter();
    if planes.any(|name| have.up(name).is_some()) {
        return Ok(());
    }
    Err("no control plane can be worked on".to_owned())
}

fn too_few(want: &Desired, have: &Actual) -> Vec<PreflightError> {
    let with = |component| want.with(component);
    let Err(why) = enough_answer(with(Component::Etcd), with(Component::ApiServer), have) else {
        return Vec::new();
    };
    let silent = want
        .hosts
        .keys()
        .filter_map(|name| match have.hosts.get(name) {
            Some(HostView::Unreachable(down)) => Some(PreflightError {
                node: Some(name.clone()),
                message: down.why.clone(),
                hints: down.hints.clone(),
                class: down.class,
            }),
            Some(HostView::Reachable(_)) | None => None,
        });
    let first = PreflightError {
        node: None,
        message: format!("nothing is changed while that is so: {why}"),
        hints: Vec::new(),
        class: ErrorClass::Host,
    };
    // Where there is one node, what is the matter with it says it all.
    let first = (want.hosts.len() > 1).then_some(first);
    first.into_iter().chain(silent).collect()
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

fn one_machine_twice(diff: &Diff<'_>) -> Vec<PreflightError> {
    let mut errors = Vec::new();
    let mut seen: BTreeMap<&str, &NodeName> = BTreeMap::new();
    for (name, host) in &diff.hosts {
        let id = host.facts.system.machine_id.as_str();
        if id.is_empty() {
            continue;
        }
        if let Some(other) = seen.insert(id, name) {
            errors.push(PreflightError {
                node: Some((*name).clone()),
                message: format!("nodes `{other}` and `{name}` are one machine (machine-id `{id}`)"),
                hints: vec![
                    "name each machine once".to_owned(),
                    "on cloned machines: `sudo rm /etc/machine-id && sudo systemd-machine-id-setup`, then reboot".to_owned(),
                ],
                class: ErrorClass::User,
            });
        }
    }
    errors
}
