//! What keeps nodes that left the config in the cluster: too much would leave with them. Pure. A wrong
//! file looks like this, too.
//!
//! | What leaves | It answers | It is lost |
//! |---|---|---|
//! | a worker, a control plane, a member of etcd | by the config alone | with consent by name |
//! | more than one node and more than a third of all | with consent by name | with consent by name |
//! | half of etcd's members, or more | never | never |
//! | the last API server that serves | never | never |
//!
//! A node that stays and gives up its control plane or its member of etcd counts as one that leaves. Its API
//! server is no reason to refuse: it stays until another one serves. So does one that leaves while the API
//! server of a node that answers and was of the cluster before is yet to start: a run that was cut off in
//! the middle of a roll is no wrong file.
//!
//! What answers goes by the config alone because it is drained first, leaves etcd while it serves, and can
//! be added again; what is lost takes with it what only it had. Whether it is lost: [`super::lost`].

use std::collections::BTreeSet;

use super::PreflightError;
use crate::{
    desired::Desired,
    error::ErrorClass,
    etcd::{Member, MemberId, member_name},
    facts::{Actual, ApiHealth},
    model::{Component, NodeName, Role, label::LOSE, quoted},
    plan::roles::GivenUp,
    state::Membership,
};

/// Refuses what takes too much.
pub(super) fn errors(want: &Desired, have: &Actual) -> Option<PreflightError> {
    let leaving = leaving(want, have);
    if leaving.is_empty() {
        return None;
    }
    let names = quoted(&leaving);
    let stay = leaving
        .iter()
        .any(|name| GivenUp::of(name, want, have).any());
    let what = if stay {
        "no longer in the config, given up, or without the role `controlplane` or `etcd` that they had"
    } else {
        "no longer in the config, or given up"
    };
    let error = |why: String, hint: String| PreflightError {
        node: None,
        message: format!("{what}: {names}, and {why}; nothing is changed while that is so"),
        hints: vec![
            "check that this is the right file for this cluster".to_owned(),
            hint,
        ],
        class: ErrorClass::User,
    };
    if let Some(why) = never(&leaving, want, have) {
        let hint = "add their replacements first, then remove them one after the other";
        return Some(error(why, hint.to_owned()));
    }
    let unnamed = leaving.iter().any(|name| !want.lose.contains(*name));
    (unnamed && is_mass(want, have)).then(|| {
        let all = nodes(have).count();
        let hint = format!(
            "remove them one after the other, or name each: `--lose NAME` (a `Cluster` has the \
             annotation `{LOSE}`)"
        );
        error(
            format!("that is more than a third of the {all} nodes"),
            hint,
        )
    })
}

/// More than one node, and more than a third of all.
pub(super) fn is_mass(want: &Desired, have: &Actual) -> bool {
    let leaving = leaving(want, have).len();
    leaving > 1 && leaving * 3 > nodes(have).count()
}

/// The nodes that the cluster has, without tombstones.
fn nodes(have: &Actual) -> impl Iterator<Item = &NodeName> {
    let entries = have.saved.iter().flat_map(|saved| &saved.inventory);
    let nodes = entries.filter(|(_, entry)| entry.membership != Membership::Lost);
    nodes.map(|(name, _)| name)
}

/// Those of them that leave with this run.
fn leaving<'a>(want: &'a Desired, have: &'a Actual) -> BTreeSet<&'a NodeName> {
    let goes =
        |name: &&NodeName| !want.hosts.contains_key(*name) || GivenUp::of(name, want, have).any();
    let gone = nodes(have).filter(goes);
    gone.chain(given_up(want, have)).collect()
}

/// The nodes that this run gives up: the state does not have them as lost yet.
pub(super) fn given_up<'a>(want: &'a Desired, have: &Actual) -> BTreeSet<&'a NodeName> {
    let before = have.saved.as_ref();
    let entries = want.saved.inventory.iter();
    let lost = entries.filter(|(_, entry)| entry.membership == Membership::Lost);
    lost.map(|(name, _)| name)
        .filter(|name| before.is_some_and(|saved| !saved.is_lost(name)))
        .collect()
}

/// What no consent allows.
fn never(leaving: &BTreeSet<&NodeName>, want: &Desired, have: &Actual) -> Option<String> {
    let voters = have.etcd.voters().count();
    let members = have.etcd.voters().filter(|voter| {
        let keeps =
            |name: &NodeName| want.hosts.contains_key(name) && !GivenUp::of(name, want, have).etcd;
        let leaves = |name: &NodeName| leaving.contains(name) && !keeps(name);
        let goes = |name: &NodeName| leaves(name) || want.saved.is_lost(name);
        goes_with(voter, want, goes)
    });
    let members = members.count();
    let serves = |name: &&NodeName| have.apis.get(*name) == Some(&ApiHealth::Serving);
    // Of those that stay, each keeps its API server until another one serves.
    let stays = |name: &&NodeName| GivenUp::of(name, want, have).any();
    let mut gone = leaving.iter().copied().filter(|name| !stays(name));
    let saved = have.saved.as_ref();
    let starts = |name: &&NodeName| {
        let entry = saved.and_then(|saved| saved.inventory.get(*name));
        entry.is_some_and(|entry| entry.roles.contains(&Role::ControlPlane))
            && have.up(name).is_some()
    };
    let mut stay = want.with(Component::ApiServer);
    let planes = gone.any(|name| serves(&name)) && !stay.any(|name| serves(&name) || starts(&name));
    if members > 0 && members * 2 >= voters {
        Some(format!(
            "{members} of {voters} members of etcd would leave with them"
        ))
    } else {
        planes.then(|| "no API server that serves would be left".to_owned())
    }
}

/// True for the member of a node that goes.
fn goes_with(
    (_, member): &(MemberId, &Member),
    want: &Desired,
    goes: impl Fn(&NodeName) -> bool,
) -> bool {
    if let Some((on, _)) = &member.status {
        return goes(on);
    }
    let names = want.saved.inventory.keys();
    let mut names = names.filter(|name| member.name == member_name(name));
    names.any(goes)
}
