//! Reads lost keys back from the control planes: invariant 2. Pure.
//!
//! Only for the cluster whose id a person typed, and only when
//! - nobody else here holds that id,
//! - no host that answers belongs to another cluster,
//! - a control plane that answers belongs to it and has a copy that can be read,
//! - the copy's name, addresses and roles are those of the intent.
//!
//! Hosts that do not answer may be missing; the plan names them. Without these rules two configs
//! that name one machine would look like a recovery.

use std::collections::{BTreeMap, BTreeSet};

use super::PkiError;
use crate::{
    actual::{Actual, HostView},
    config::Intent,
    model::{ClusterId, NodeName, Role, path, quoted},
    state::{ClusterState, InventoryEntry, Membership, codec},
};

/// The keys that the control planes keep, if every rule of a recovery holds, and what the plan
/// says about it.
pub(super) fn read_back(
    intent: &Intent,
    have: &Actual,
    id: &ClusterId,
    held_elsewhere: &BTreeSet<ClusterId>,
) -> Result<(ClusterState, String), PkiError> {
    if held_elsewhere.contains(id) {
        return Err(PkiError::RecoverHeld { id: id.clone() });
    }
    nobody_elses(intent, have, id)?;
    let (node, copy) = newest(intent, have, id)?;
    if copy.cluster_name != intent.cluster_name {
        return Err(PkiError::RecoverName {
            node,
            owner: copy.cluster_name,
            name: intent.cluster_name.clone(),
        });
    }
    if let Some(difference) = difference(&copy.inventory, intent) {
        return Err(PkiError::RecoverInventory { node, difference });
    }
    let silent = intent.nodes.keys().filter(|name| have.up(name).is_none());
    let silent = quoted(silent);
    let mut note = format!("the state is read back from node `{node}`");
    if !silent.is_empty() {
        note.push_str("; whether there is a newer copy is not known of ");
        note.push_str(&silent);
    }
    Ok((copy, note))
}

/// No host that answers belongs to another cluster.
fn nobody_elses(intent: &Intent, have: &Actual, id: &ClusterId) -> Result<(), PkiError> {
    let other = intent
        .nodes
        .keys()
        .find_map(|name| Some((name, have.claimed_by(name).filter(|other| other != id)?)));
    match other {
        Some((node, other)) => Err(PkiError::RecoverOther {
            node: node.clone(),
            other,
            id: id.clone(),
        }),
        None => Ok(()),
    }
}

/// The copy that was written last, and whose it is. One that is there and cannot be read is an
/// error, not a copy less: it may be the newest.
fn newest(
    intent: &Intent,
    have: &Actual,
    id: &ClusterId,
) -> Result<(NodeName, ClusterState), PkiError> {
    let mut found: Option<(NodeName, ClusterState)> = None;
    let mut without = None;
    for (name, _) in intent.with_role(Role::ControlPlane) {
        if have.claimed_by(name).as_ref() != Some(id) {
            continue;
        }
        let bad = |why: String| PkiError::RecoverBadCopy {
            node: name.clone(),
            path: path::STATE,
            why,
        };
        let Some(copy) = copy_of(name, have).map_err(bad)? else {
            without = Some(name);
            continue;
        };
        if copy.cluster_id != *id {
            return Err(bad("it is another cluster's".to_owned()));
        }
        match &found {
            Some((_, newer)) if copy.serial < newer.serial => {}
            Some((other, same)) if copy.serial == same.serial => {
                if !same_keys(same, &copy) {
                    return Err(bad(format!("its keys differ from those on node `{other}`")));
                }
            }
            Some(_) | None => found = Some((name.clone(), copy)),
        }
    }
    found.ok_or_else(|| match without {
        Some(node) => PkiError::RecoverNoCopy {
            node: node.clone(),
            path: path::STATE,
        },
        None => PkiError::RecoverNowhere {
            id: id.clone(),
            silent: silent(intent, have),
        },
    })
}

/// The control planes that do not answer.
fn silent(intent: &Intent, have: &Actual) -> Vec<NodeName> {
    intent
        .with_role(Role::ControlPlane)
        .filter(|(name, _)| !matches!(have.hosts.get(*name), Some(HostView::Reachable(_))))
        .map(|(name, _)| name.clone())
        .collect()
}

fn copy_of(name: &NodeName, have: &Actual) -> Result<Option<ClusterState>, String> {
    let file = have
        .up(name)
        .and_then(|facts| facts.files.as_ref())
        .and_then(|files| files.get(path::STATE));
    let Some(file) = file else {
        return Ok(None);
    };
    let text =
        std::str::from_utf8(file.content.expose()).map_err(|_| "it is not text".to_owned())?;
    codec::decode(text).map(Some)
}

fn same_keys(one: &ClusterState, other: &ClusterState) -> bool {
    one.cluster_ca == other.cluster_ca
        && one.etcd_ca == other.etcd_ca
        && one.front_proxy_ca == other.front_proxy_ca
        && one.signer_ca == other.signer_ca
        && one.service_accounts == other.service_accounts
        && one.encryption == other.encryption
}

/// How the copy and the intent differ in what makes a cluster: names, addresses and roles. How *we*
/// log in may differ: the keys may lie elsewhere on the machine that recovers.
fn difference(copy: &BTreeMap<NodeName, InventoryEntry>, intent: &Intent) -> Option<String> {
    let names: BTreeSet<&NodeName> = copy.keys().chain(intent.nodes.keys()).collect();
    names
        .into_iter()
        .find_map(|name| match (copy.get(name), intent.nodes.get(name)) {
            (Some(copy), None) if copy.membership == Membership::Lost => None,
            (Some(_), None) => Some(format!("the config does not name `{name}`")),
            (None, _) => Some(format!("the copy does not name `{name}`")),
            (Some(copy), Some(wanted)) if copy.endpoint != wanted.endpoint => Some(format!(
                "`{name}` is at {} in the copy and at {} in the config",
                copy.endpoint, wanted.endpoint
            )),
            (Some(copy), Some(wanted)) if !copy.roles.iter().eq(&wanted.roles) => {
                Some(format!("the roles of `{name}` differ"))
            }
            (Some(_), Some(_)) => None,
        })
}
