//! Reads lost keys back from the control planes: invariant 2. Pure.
//!
//! Only for the cluster whose id a person typed, and only when
//! - no other `Cluster` object here holds that id,
//! - no host that answers belongs to another cluster,
//! - a control plane that answers belongs to it and has a copy that can be read,
//! - the copy's name, addresses and roles are those of the intent.
//!
//! Hosts that do not answer may be missing; the plan names them. Without these rules two configs
//! that name one machine would look like a recovery.

use std::collections::{BTreeMap, BTreeSet};

use super::{CopyPlace, PkiError};
use crate::{
    config::Intent,
    facts::{Actual, ApiView, HostView},
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
    refuse_foreign(intent, have, id)?;
    let (node, copy) = newest(intent, have, id)?;
    if copy.cluster_name != intent.cluster_name {
        return Err(PkiError::RecoverName {
            node,
            owner: copy.cluster_name,
            name: intent.cluster_name.clone(),
        });
    }
    if let Some(difference) = difference(&copy.inventory, intent) {
        let place = CopyPlace::Node(node);
        return Err(PkiError::RecoverInventory { place, difference });
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

/// The state of the cluster that the control planes of a config belong to, as it is on them, and a note about
/// it. `None`: no control plane that answers belongs to a cluster. This takes no cluster over, so no id is typed; the other
/// rules hold.
pub fn copy_on_nodes(
    intent: &Intent,
    have: &Actual,
) -> Result<Option<(ClusterState, String)>, PkiError> {
    let mut planes = intent.with_role(Role::ControlPlane);
    let id = planes.find_map(|(name, _)| have.claimed_by(name));
    let read = id.map(|id| read_back(intent, have, &id, &BTreeSet::new()));
    read.transpose()
}

/// The newest state of a cluster of which the store has one that is not: that of a control plane, of `kube-system`, or
/// the store's own, with the keys that any of them has. The same rules hold.
pub(super) fn over(
    saved: &ClusterState,
    intent: &Intent,
    have: &Actual,
    held_elsewhere: &BTreeSet<ClusterId>,
) -> Result<(ClusterState, String), PkiError> {
    let id = &saved.cluster_id;
    if held_elsewhere.contains(id) {
        return Err(PkiError::RecoverHeld { id: id.clone() });
    }
    refuse_foreign(intent, have, id)?;
    let in_cluster = match have.api() {
        ApiView::Up(api) => api.state_copy.state(),
        ApiView::Unknown | ApiView::Unreachable(_) => None,
    };
    let (place, copy) = match (newest(intent, have, id), in_cluster) {
        (Ok((_, on_node)), Some(copy)) if copy.serial > on_node.serial => {
            (CopyPlace::Cluster, copy.clone())
        }
        (Ok((node, copy)), _) => (CopyPlace::Node(node), copy),
        (Err(PkiError::RecoverNoCopy { .. } | PkiError::RecoverNowhere { .. }), Some(copy)) => {
            (CopyPlace::Cluster, copy.clone())
        }
        (Err(error), _) => return Err(error),
    };
    let mut next = if copy.serial >= saved.serial {
        if let Some(difference) = difference(&copy.inventory, intent) {
            return Err(PkiError::RecoverInventory { place, difference });
        }
        ClusterState {
            memory: saved.memory.clone(),
            ..copy.clone()
        }
    } else {
        saved.clone()
    };
    let on_nodes = have
        .hosts
        .keys()
        .filter_map(|name| copy_of(name, have).ok()?);
    let all = on_nodes.chain(in_cluster.cloned()).chain([saved.clone()]);
    for other in all.filter(|other| other.cluster_id == *id) {
        takes_keys(&mut next, &other);
        next.serial = next.serial.max(other.serial);
    }
    // No other copy has this serial.
    next.serial += 1;
    let note = format!(
        "the saved state (serial {}) is replaced by the newest copy, {place} (serial {})",
        saved.serial, copy.serial
    );
    Ok((next, note))
}

/// Whatever was written or signed with one of them stays readable.
fn takes_keys(state: &mut ClusterState, other: &ClusterState) {
    let keys = &mut state.encryption;
    let missing = other.encryption.iter().filter(|key| !keys.contains(key));
    let missing: Vec<_> = missing.cloned().collect();
    keys.extend(missing);
    let accounts = &mut state.service_accounts;
    for public in &other.service_accounts.verifying {
        if !accounts.verifying.contains(public) {
            accounts.verifying.push(public.clone());
        }
    }
    for issuer in &other.service_accounts.issuers {
        if !accounts.issuers.contains(issuer) {
            accounts.issuers.push(issuer.clone());
        }
    }
    for audience in &other.service_accounts.audiences {
        if !accounts.audiences.contains(audience) {
            accounts.audiences.push(audience.clone());
        }
    }
}

/// No host that answers belongs to another cluster.
fn refuse_foreign(intent: &Intent, have: &Actual, id: &ClusterId) -> Result<(), PkiError> {
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

pub(super) fn same_keys(one: &ClusterState, other: &ClusterState) -> bool {
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
