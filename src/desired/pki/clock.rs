//! Whether our clock may judge certificates: not when the nodes contradict it. Pure.

use super::PkiError;
use crate::{
    actual::{Actual, HostView},
    model::NodeName,
};

/// How far a clock may be off. Certificates are valid from an hour before they are made.
const LIMIT_MS: i64 = 5 * 60 * 1000;

/// Refuses when a node's clock and ours are more than five minutes apart: a certificate that is
/// made, renewed or called expired by a wrong clock cuts the cluster's components off.
pub(super) fn agrees(have: &Actual, now: jiff::Timestamp) -> Result<(), PkiError> {
    let clocks: Vec<(&NodeName, i64, i64)> = have
        .hosts
        .iter()
        .filter_map(|(name, view)| {
            let HostView::Reachable(facts) = view else {
                return None;
            };
            let clock = facts.clock?;
            let ahead = clock.unix_seconds.saturating_sub(now.as_second());
            Some((name, ahead, i64::from(clock.uncertainty_ms)))
        })
        .collect();
    let off: Vec<(NodeName, i64)> = clocks
        .iter()
        .filter(|(_, ahead, uncertain)| {
            let apart = ahead.saturating_mul(1000).saturating_abs();
            apart > LIMIT_MS.saturating_add(*uncertain)
        })
        .map(|(name, ahead, _)| ((*name).clone(), *ahead))
        .collect();
    if off.is_empty() {
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
