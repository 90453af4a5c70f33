//! Everything that stands in the way of `up`, at once. Pure.

use std::collections::BTreeMap;

use super::{
    PlanError, Refusal, conflicts, containerd,
    hosts::{bears, each},
};
use crate::{
    actual::{Actual, HostView},
    config::NodeName,
    desired::Desired,
    error::Blame,
};

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
    let mut seen: BTreeMap<&str, &NodeName> = BTreeMap::new();
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
