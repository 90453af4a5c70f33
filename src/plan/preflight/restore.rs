//! What prevents a restore. Pure.

use super::{PreflightError, PreflightErrors, lost};
use crate::{
    desired::Desired,
    error::ErrorClass,
    etcd::Quorum,
    facts::{Actual, HostView},
    model::{Component, Role, label::LOSE},
    state::{EtcdEpoch, Membership},
};

/// Every node that may hold or serve data of before must answer: else it would come back with them.
pub(in crate::plan) fn restore(
    want: &Desired,
    have: &Actual,
    epoch: &EtcdEpoch,
) -> Result<(), PreflightErrors> {
    let mut errors = silent(want, have);
    errors.extend(lost::reporting(want, have));
    if epoch.from.is_none() {
        errors.extend(no_survivor(want, have, epoch));
    }
    if have.up(&epoch.first).is_none() || !want.hosts.contains_key(&epoch.first) {
        errors.push(PreflightError {
            node: Some(epoch.first.clone()),
            message: format!(
                "etcd's data are restored on node `{}`, which does not answer or is not in the config",
                epoch.first
            ),
            hints: Vec::new(),
            class: ErrorClass::Host,
        });
    }
    PreflightErrors::unless_empty(errors)
}

/// What keeps etcd from going on with the data of one member: a majority that serves has more than these, and a node that
/// has none gives none. What was begun goes on.
fn no_survivor(want: &Desired, have: &Actual, epoch: &EtcdEpoch) -> Option<PreflightError> {
    let begun = have.saved.as_ref().map_or(0, |saved| saved.restores());
    if begun >= epoch.number {
        return None;
    }
    let first = &epoch.first;
    let has_data = have
        .up(first)
        .is_some_and(|facts| facts.is_of(&want.cluster_id) && facts.has_data());
    let (message, hint) = if matches!(have.etcd.quorum, Quorum::Serving { .. }) {
        (
            "etcd serves: a majority of its members has all data, and one of them would go on with less".to_owned(),
            format!("remove nodes that are gone from the config and name them: `rke-operator up --lose NODE` (a \
            `Cluster` has the annotation `{LOSE}`)"),
        )
    } else if !has_data {
        (
            format!("node `{first}` has no data of this cluster's etcd"),
            "name another node with `--node`, or restore a snapshot: `rke-operator etcd snapshot-restore --name NAME`".to_owned(),
        )
    } else {
        return None;
    };
    Some(PreflightError {
        node: Some(first.clone()),
        message,
        hints: vec![hint],
        class: ErrorClass::User,
    })
}

/// What the restored API has taken since would be lost.
pub(in crate::plan) fn take_back(
    want: &Desired,
    have: &Actual,
    epoch: &EtcdEpoch,
) -> Result<(), PreflightErrors> {
    let serves = have.hosts.keys().filter(|name| {
        let facts = have.up(name);
        let api = facts.and_then(|facts| facts.container(Component::ApiServer));
        api.is_some_and(|api| api.is_of(&want.cluster_id) && api.epoch() >= epoch.number)
    });
    let serves = serves.map(|name| PreflightError {
        node: Some(name.clone()),
        message: format!(
            "the restore of {} cannot be undone: an API server of it was started on node `{name}`, and what was \
             written since would be lost",
            epoch.made_of()
        ),
        hints: vec![
            format!("continue it: `{}`; then another snapshot can be restored", epoch.command()),
        ],
        class: ErrorClass::User,
    });
    PreflightErrors::unless_empty(silent(want, have).into_iter().chain(serves).collect())
}

fn silent(want: &Desired, have: &Actual) -> Vec<PreflightError> {
    let inventory = want.saved.inventory.iter();
    let central = inventory.filter(|(_, entry)| {
        let is_central = |role: &Role| matches!(role, Role::Etcd | Role::ControlPlane);
        entry.membership != Membership::Lost && entry.roles.iter().any(is_central)
    });
    let silent = central.filter_map(|(name, _)| match have.hosts.get(name)? {
        HostView::Reachable(_) => None,
        HostView::Unreachable(down) => Some(PreflightError {
            node: Some(name.clone()),
            message: format!(
                "node `{name}` has etcd or a control plane and cannot be stopped: {}",
                down.why
            ),
            hints: down
                .hints
                .iter()
                .cloned()
                .chain([format!(
                    "if the machine is gone for good: remove `{name}` from the config, and name it with `--lose \
                    {name}` (a `Cluster` \
                     has the annotation `{LOSE}: {name}`)"
                )])
                .collect(),
            class: down.class,
        }),
    });
    silent.collect()
}
