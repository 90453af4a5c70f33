//! Whether nodes reach the UDP ports of each other by which the packets of pods travel, before anything listens there.
//! Pure.
//!
//! The kernel of a node answers a datagram to a closed port: the port was reached. It need not answer, so silence alone
//! is a warning. It is an error once nothing arrived at a program that listened there.

use std::collections::BTreeMap;

use super::doctor::{Examined, Finding, PEERS, Severity, others, warning};
use crate::{
    desired::{Desired, DesiredHost},
    error::ErrorClass,
    facts::{Actual, Barrier, measured::Unanswered},
    model::{NodeName, OpenPort, PeerPort, Protocol, quoted_first},
    plan,
};

/// How many nodes a message names.
const NAMED: usize = 5;

/// The UDP ports of a node by which the packets of pods come in.
pub(super) fn ports(host: &DesiredHost) -> impl Iterator<Item = u16> {
    let ports = host.network.ports.iter();
    let ports = ports.filter(|port| port.protocol == Protocol::Udp && port.carries_pods());
    ports.map(|port| port.ports.0)
}

/// Those of other nodes that answer, and whose they are; of a large cluster those of the next nodes.
pub(super) fn to_others(
    want: &Desired,
    have: &Actual,
    name: &NodeName,
) -> BTreeMap<PeerPort, NodeName> {
    let others = others(want, have, name).filter_map(|(other, host)| {
        let address = host.network.address.as_ref()?.to_string();
        Some((other, host, address))
    });
    let peers = others.take(PEERS).flat_map(|(other, host, address)| {
        ports(host).map(move |port| {
            let address = address.clone();
            (PeerPort { address, port }, other.clone())
        })
    });
    peers.collect()
}

/// One finding for each port that does not let nodes in, with all of these.
pub(super) fn findings(examined: &Examined<'_>) -> Vec<Finding> {
    let mut from: BTreeMap<&Unanswered, Vec<&NodeName>> = BTreeMap::new();
    for (name, measured) in examined.measured {
        for unanswered in &measured.unanswered {
            from.entry(unanswered).or_default().push(name);
        }
    }
    let found = from.into_iter();
    found
        .filter_map(|(unanswered, from)| finding(examined, unanswered, &from))
        .collect()
}

fn finding(examined: &Examined<'_>, found: &Unanswered, from: &[&NodeName]) -> Option<Finding> {
    let PeerPort { address, port } = &found.peer;
    let mut nodes = examined.intent.nodes.iter();
    let (to, _) = nodes.find(|(_, node)| node.internal_address.to_string() == *address)?;
    // A node that does not answer at all is reported already.
    let facts = examined.actual.up(to)?;
    let open = OpenPort::udp(*port, OpenPort::OF_PODS);
    let (what, who) = (open.what, quoted_first(NAMED, from));
    let (nodes, verb, get) = if from.len() > 1 {
        ("nodes", "do not", "get")
    } else {
        ("node", "does not", "gets")
    };
    let why = match found.how {
        Barrier::Silent => "nothing arrived at a program that listened there",
        Barrier::Rejected => "the network says that there is no way",
        Barrier::Forbidden => "the node's own firewall forbids it",
        // The ports of components tell of it.
        Barrier::UnknownName => return None,
    };
    let mut hints = vec![plan::open_port_hint(from, to, facts, &[&open], found.how)];
    if found.proven {
        return Some(Finding {
            node: Some(to.clone()),
            severity: Severity::Error,
            class: ErrorClass::Host,
            message: format!(
                "{nodes} {who} {verb} reach UDP port {port} ({what}) of node `{to}` at {address}: {why}"
            ),
            hints,
            down: None,
        });
    }
    hints.push(
        "if the node only keeps its answers to itself, nothing is wrong: once pods run, `rke-operator status` (a \
         `Cluster` has the condition `NodesHealthy`) shows whether their packets arrive"
            .to_owned(),
    );
    Some(Finding {
        node: Some(to.clone()),
        ..warning(
            format!(
                "{nodes} {who} {get} no answer from UDP port {port} ({what}) of node `{to}` at {address}: a firewall \
                 may drop the datagrams, or the node's answers, and neither is proven"
            ),
            hints,
        )
    })
}
