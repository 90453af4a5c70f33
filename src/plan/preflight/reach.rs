//! Whether nodes reach the ports of each other that they will dial, as far as it can be tried before anything listens
//! there. Pure. A port that refuses was reached; one that a firewall drops is found in no log later, only in waits.

use std::collections::BTreeMap;

use super::PreflightError;
use crate::{
    desired::Desired,
    error::ErrorClass,
    facts::{Actual, Barrier, HostFacts},
    model::{NodeName, OpenPort, PeerPort, quoted_first},
};

/// How many nodes a message names.
const NAMED: usize = 5;

/// One error for each port that does not let nodes in, with all of these.
pub(super) fn errors(want: &Desired, have: &Actual) -> Vec<PreflightError> {
    let mut barriers: BTreeMap<(&PeerPort, Barrier), Vec<&NodeName>> = BTreeMap::new();
    for name in want.hosts.keys() {
        let tried = have.up(name).map(|facts| &facts.system.unreached);
        for unreached in tried.into_iter().flatten() {
            let barrier = (&unreached.peer, unreached.how);
            barriers.entry(barrier).or_default().push(name);
        }
    }
    let told = barriers.into_iter().filter_map(|((peer, how), from)| {
        let address = peer.address.as_str();
        let (to, port) = want.hosts.iter().find_map(|(name, host)| {
            let its = host.network.address.as_ref()?.to_string() == address;
            let mut ports = host.network.ports.iter();
            let port = ports.find(|port| its && port.has_tcp(peer.port))?;
            Some((name, port))
        })?;
        // A node that does not answer at all is reported already.
        let facts = have.up(to)?;
        Some(error(&from, to, facts, port, peer, how))
    });
    told.collect()
}

fn error(
    from: &[&NodeName],
    to: &NodeName,
    facts: &HostFacts,
    open: &OpenPort,
    PeerPort { address, port }: &PeerPort,
    how: Barrier,
) -> PreflightError {
    let many = from.len() > 1;
    let (nodes, do_not, know) = if many {
        ("nodes", "do not", "do not know")
    } else {
        ("node", "does not", "does not know")
    };
    let who = format!("{nodes} {}", quoted_first(NAMED, from));
    let what = open.what;
    let message = match how {
        Barrier::UnknownName => format!("{who} {know} the name `{address}` of node `{to}`"),
        Barrier::Silent => format!(
            "{who} {do_not} reach TCP port {port} ({what}) of node `{to}` at {address}: nothing answers"
        ),
        Barrier::Rejected => format!(
            "{who} {do_not} reach TCP port {port} ({what}) of node `{to}` at {address}: the network says that there \
             is no way"
        ),
        Barrier::Forbidden => format!(
            "{who} {do_not} reach TCP port {port} ({what}) of node `{to}` at {address}: the node's own firewall \
             forbids it"
        ),
    };
    PreflightError {
        node: Some(to.clone()),
        message,
        hints: vec![cure(from, to, facts, open, how)],
        class: ErrorClass::Host,
    }
}

/// How to let nodes in at a port.
pub(crate) fn cure(
    from: &[&NodeName],
    to: &NodeName,
    facts: &HostFacts,
    open: &OpenPort,
    how: Barrier,
) -> String {
    match (how, facts.system.firewalls().next()) {
        (Barrier::UnknownName, _) => format!(
            "an `internal_address` that is an IP address, or a line in /etc/hosts on {}",
            quoted_first(NAMED, from)
        ),
        (Barrier::Forbidden, _) => format!(
            "let {open} out on {}: `sudo nft list ruleset` shows the rule",
            quoted_first(NAMED, from)
        ),
        (Barrier::Silent | Barrier::Rejected, Some(firewall)) => {
            let rules = std::iter::once(open.rule(firewall)).chain(firewall.reload());
            format!(
                "{} is active on node `{to}`: {}",
                firewall.name(),
                rules.collect::<Vec<_>>().join(", ")
            )
        }
        (Barrier::Silent | Barrier::Rejected, None) => format!(
            "let {open} in from the other nodes: in a firewall on `{to}` (`sudo nft list ruleset`), between the nodes, \
             or in the cloud (its security groups); if `internal_address` is in another network, check that one"
        ),
    }
}
