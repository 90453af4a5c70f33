//! What keeps nodes that left the config in the cluster: they do not answer, or too much would leave
//! with them. Pure. A wrong file looks like this, too.

use std::collections::BTreeSet;

use super::PreflightError;
use crate::{
    actual::{Actual, ApiHealth, HostView},
    desired::Desired,
    error::ErrorClass,
    model::{Component, NodeName},
};

/// Refuses what this release does not take away.
pub(super) fn errors(want: &Desired, have: &Actual) -> Vec<PreflightError> {
    let gone = have
        .hosts
        .iter()
        .filter(|(name, _)| !want.hosts.contains_key(*name));
    let (up, down): (Vec<_>, Vec<_>) =
        gone.partition(|(_, view)| matches!(view, HostView::Reachable(_)));
    let silent = down.into_iter().map(|(name, _)| silent(name));
    let ours = |name: &NodeName| {
        let saved = have.saved.as_ref();
        saved.is_some_and(|saved| saved.inventory.contains_key(name))
    };
    let up = up.into_iter().map(|(name, _)| name);
    let leaving: BTreeSet<&NodeName> = up.filter(|name| ours(name)).collect();
    silent.chain(too_many(&leaving, want, have)).collect()
}

/// Nothing can be taken from it, and its member may still vote.
fn silent(name: &NodeName) -> PreflightError {
    PreflightError {
        node: Some(name.clone()),
        message: format!("node `{name}` is no longer in the config and does not answer"),
        hints: vec![
            format!(
                "write `{name}` into the config again, or bring it back first: a node that is lost cannot be taken away yet"
            ),
            "or remove the whole cluster with `rke-operator remove`".to_owned(),
        ],
        class: ErrorClass::User,
    }
}

/// Whatever leaves, most of what was there stays.
fn too_many(
    leaving: &BTreeSet<&NodeName>,
    want: &Desired,
    have: &Actual,
) -> Option<PreflightError> {
    let all = have.saved.as_ref().map_or(0, |saved| saved.inventory.len());
    let voters = have.etcd.voters().count();
    let leaves = |member: &&crate::etcd::Member| {
        let on = member.status.as_ref().map(|(node, _)| node);
        on.is_some_and(|node| leaving.contains(node))
    };
    let members = have.etcd.voters().map(|(_, member)| member);
    let members = members.filter(leaves).count();
    let serves = |name: &&NodeName| have.apis.get(*name) == Some(&ApiHealth::Serving);
    let planes = leaving.iter().copied().any(|name| serves(&name))
        && !want.with(Component::ApiServer).any(|name| serves(&name));
    let why = if members > 0 && members * 2 >= voters {
        format!("{members} of {voters} members of etcd would leave with them")
    } else if planes {
        "no API server that serves would be left".to_owned()
    } else if leaving.len() > 1 && leaving.len() * 3 > all {
        format!("that is more than a third of the {all} nodes")
    } else {
        return None;
    };
    let names: Vec<String> = leaving.iter().map(|name| format!("`{name}`")).collect();
    Some(PreflightError {
        node: None,
        message: format!(
            "no longer in the config: {}, and {why}; nothing is changed",
            names.join(", ")
        ),
        hints: vec![
            "look whether this is the right file for this cluster".to_owned(),
            "add what takes their place first, then take them away one after the other".to_owned(),
        ],
        class: ErrorClass::User,
    })
}
