//! Whether our clock may decide about certificates: not when the nodes contradict it. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::PkiError;
use crate::{
    config::{Intent, NodeIntent},
    error::{ErrorClass, Obstacle},
    facts::{Actual, HostView, Unreachable},
    model::{NodeName, Role},
};

/// How far a clock may be off. Certificates are valid from an hour before they are made.
const LIMIT_MS: i64 = 5 * 60 * 1000;

/// Refuses when the clock of a control plane or a member of etcd and ours are more than five minutes apart: a certificate
/// that is made, renewed or called expired by a wrong clock cuts the cluster's components off. Another node is left out
/// instead ([`left_out`]): it gets no certificate, and does not stop the run.
pub(super) fn agrees(intent: &Intent, have: &Actual, now: Timestamp) -> Result<(), PkiError> {
    let clocks = clocks(have, now);
    let off: Vec<(NodeName, i64)> = clocks
        .iter()
        .filter(|clock| clock.is_off())
        .map(|clock| (clock.node.clone(), clock.ahead))
        .collect();
    let stops = |(name, _): &(NodeName, i64)| intent.nodes.get(name).is_some_and(is_central);
    if !off.iter().any(stops) {
        return Ok(());
    }
    // Most nodes against us, and all in one direction: then the wrong clock is ours.
    let most = clocks.len() > 1 && off.len() * 2 > clocks.len();
    let one_way =
        off.iter().all(|(_, ahead)| *ahead > 0) || off.iter().all(|(_, ahead)| *ahead < 0);
    Err(PkiError::Clock {
        ours: most && one_way,
        off,
    })
}

/// The nodes of the intent that a run leaves as they are because of their clocks, and why. The clock of a node that
/// leaves does not matter.
pub fn left_out(intent: &Intent, have: &Actual, now: Timestamp) -> BTreeMap<NodeName, Unreachable> {
    let off = clocks(have, now).into_iter().filter(Clock::is_off);
    let off = off.filter(|clock| {
        let node = intent.nodes.get(clock.node);
        node.is_some_and(|node| !is_central(node))
    });
    off.map(|clock| {
        let why = Unreachable {
            alike: None,
            class: ErrorClass::Host,
            why: format!(
                "the clock of node `{}` is {} this machine's",
                clock.node,
                apart(clock.ahead)
            ),
            hints: vec![
                "set the clock of that node (`timedatectl`, chrony): until then it is left as it is"
                    .to_owned(),
            ],
            obstacle: Obstacle::Other,
        };
        (clock.node.clone(), why)
    })
    .collect()
}

fn is_central(node: &NodeIntent) -> bool {
    node.roles.contains(&Role::Etcd) || node.roles.contains(&Role::ControlPlane)
}

/// A node's clock against ours.
struct Clock<'a> {
    node: &'a NodeName,
    /// Seconds.
    ahead: i64,
    uncertain_ms: i64,
}

impl Clock<'_> {
    const fn is_off(&self) -> bool {
        let apart = self.ahead.saturating_mul(1000).saturating_abs();
        apart > LIMIT_MS.saturating_add(self.uncertain_ms)
    }
}

fn clocks(have: &Actual, now: Timestamp) -> Vec<Clock<'_>> {
    let hosts = have.hosts.iter();
    hosts
        .filter_map(|(node, view)| {
            let HostView::Reachable(facts) = view else {
                return None;
            };
            let clock = facts.clock?;
            Some(Clock {
                node,
                ahead: clock.unix_seconds.saturating_sub(now.as_second()),
                uncertain_ms: i64::from(clock.uncertainty_ms),
            })
        })
        .collect()
}

/// The refusal as a sentence.
pub(super) fn sentence(ours: bool, off: &[(NodeName, i64)]) -> String {
    if ours {
        let each: Vec<String> = off
            .iter()
            .map(|(name, ahead)| format!("{} node `{name}`'s", apart(ahead.saturating_neg())))
            .collect();
        return format!(
            "the clock of this machine is wrong: it is {}",
            each.join(", ")
        );
    }
    let each: Vec<String> = off
        .iter()
        .map(|(name, ahead)| format!("that of node `{name}` is {} this machine's", apart(*ahead)))
        .collect();
    format!("clocks contradict each other: {}", each.join(", "))
}

fn apart(ahead: i64) -> String {
    let seconds = ahead.saturating_abs();
    let span = match seconds {
        0..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    };
    let way = if ahead < 0 { "behind" } else { "ahead of" };
    format!("{span} {way}")
}
