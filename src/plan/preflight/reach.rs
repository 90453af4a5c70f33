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

/// Which nodes do not reach which ports of one address, and what is in the way.
type Barriers<'a> = BTreeMap<(&'a str, Barrier, Vec<&'a NodeName>), Vec<u16>>;

/// One error for each node whose ports do not let the same nodes in, with all of both.
pub(super) fn errors(want: &Desired, have: &Actual) -> Vec<PreflightError> {
    let mut by_port: BTreeMap<(&PeerPort, Barrier), Vec<&NodeName>> = BTreeMap::new();
    for name in want.hosts.keys() {
        let tried = have.up(name).map(|facts| &facts.system.unreached);
        for unreached in tried.into_iter().flatten() {
            let barrier = (&unreached.peer, unreached.how);
            by_port.entry(barrier).or_default().push(name);
        }
    }
    let mut barriers = Barriers::new();
    for ((peer, how), from) in by_port {
        let barrier = (peer.address.as_str(), how, from);
        barriers.entry(barrier).or_default().push(peer.port);
    }
    let told = barriers.iter().filter_map(|((address, how, from), ports)| {
        let (to, host) = want.hosts.iter().find(|(_, host)| {
            let its = host.network.address.as_ref();
            its.is_some_and(|its| its.to_string() == *address)
        })?;
        // A node that does not answer at all is reported already.
        let facts = have.up(to)?;
        let open = |port: &u16| {
            let mut open = host.network.ports.iter();
            Some((*port, open.find(|open| open.has_tcp(*port))?))
        };
        let ports: Vec<(u16, &OpenPort)> = ports.iter().filter_map(open).collect();
        (!ports.is_empty()).then(|| error(from, to, facts, address, &ports, *how))
    });
    told.collect()
}

fn error(
    from: &[&NodeName],
    to: &NodeName,
    facts: &HostFacts,
    address: &str,
    ports: &[(u16, &OpenPort)],
    how: Barrier,
) -> PreflightError {
    let (nodes, do_not) = if from.len() > 1 {
        ("nodes", "do not")
    } else {
        ("node", "does not")
    };
    let who = format!("{nodes} {}", quoted_first(NAMED, from));
    let why = match how {
        Barrier::UnknownName => None,
        Barrier::Silent => Some("nothing answers"),
        Barrier::Rejected => Some("the network says that there is no way"),
        Barrier::Forbidden => Some("the node's own firewall forbids it"),
    };
    let message = if let Some(why) = why {
        let words = ports.iter();
        let words = words.map(|(port, open)| format!("{port} ({})", open.what));
        let words = words.collect::<Vec<_>>().join(", ");
        let s = if ports.len() > 1 { "s" } else { "" };
        format!("{who} {do_not} reach TCP port{s} {words} of node `{to}` at {address}: {why}")
    } else {
        format!("{who} {do_not} know the name `{address}` of node `{to}`")
    };
    let mut open: Vec<&OpenPort> = ports.iter().map(|(_, open)| *open).collect();
    open.dedup();
    PreflightError {
        node: Some(to.clone()),
        message,
        hints: vec![cure(from, to, facts, &open, how)],
        class: ErrorClass::Host,
    }
}

/// How to let nodes in at these ports.
pub(crate) fn cure(
    from: &[&NodeName],
    to: &NodeName,
    facts: &HostFacts,
    open: &[&OpenPort],
    how: Barrier,
) -> String {
    let words = || {
        open.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match (how, facts.system.firewalls().next()) {
        (Barrier::UnknownName, _) => format!(
            "an `internal_address` that is an IP address, or a line in /etc/hosts on {}",
            quoted_first(NAMED, from)
        ),
        (Barrier::Forbidden, _) => format!(
            "let {} out on {}: `sudo nft list ruleset` shows the rule",
            words(),
            quoted_first(NAMED, from)
        ),
        (Barrier::Silent | Barrier::Rejected, Some(firewall)) => {
            let rules = open.iter().map(|open| open.rule(firewall));
            let rules = rules.chain(firewall.reload());
            format!(
                "{} is active on node `{to}`: {}",
                firewall.name(),
                rules.collect::<Vec<_>>().join(", ")
            )
        }
        (Barrier::Silent | Barrier::Rejected, None) => format!(
            "let {} in from the other nodes: in a firewall on `{to}` (`sudo nft list ruleset`), between the nodes, \
             or in the cloud (its security groups); if `internal_address` is in another network, check that one",
            words()
        ),
    }
}
