//! Nodes whose pods do not reach those of others, as one case a node, with what may be in the way. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    desired::Desired,
    error::{ErrorClass, Obstacle},
    facts::{Actual, Barrier, HostView, NoTraffic, Unreachable},
    model::{NodeName, OpenPort, Protocol, quoted_first},
};

/// How many nodes a message names.
const NAMED: usize = 5;

/// By the node that tried. Of a node that is not Ready, or does not answer, that alone is shown: of one that is off the
/// API says for 40 s that it is Ready.
pub(crate) fn missing(
    actual: &Actual,
    desired: Option<&Desired>,
) -> BTreeMap<NodeName, Unreachable> {
    let mut by_node: BTreeMap<&NodeName, Vec<&NoTraffic>> = BTreeMap::new();
    for pair in actual.cluster.iter().flat_map(|facts| &facts.no_traffic) {
        let nodes = actual.cluster.as_ref().map(|facts| &facts.nodes);
        let ready = |name| {
            let silent = matches!(actual.hosts.get(name), Some(HostView::Unreachable(_)));
            let node = nodes.and_then(|nodes| nodes.get(name));
            !silent && node.is_some_and(|node| node.ready)
        };
        if ready(&pair.from) && ready(&pair.to) {
            by_node.entry(&pair.from).or_default().push(pair);
        }
    }
    let cases = by_node.into_iter();
    let cases = cases.map(|(from, pairs)| (from.clone(), case(from, &pairs, desired)));
    cases.collect()
}

fn case(from: &NodeName, pairs: &[&NoTraffic], desired: Option<&Desired>) -> Unreachable {
    let to = quoted_first(NAMED, pairs.iter().map(|pair| &pair.to));
    let first = pairs.first();
    let came_back = match first.map(|pair| pair.how) {
        Some(Barrier::Rejected | Barrier::Forbidden) => "the network says that there is no way",
        Some(Barrier::Silent | Barrier::UnknownName) | None => "nothing comes back",
    };
    let pod = first.map(|pair| pair.pod.to_string()).unwrap_or_default();
    let host = desired.and_then(|desired| desired.hosts.get(from));
    let ports = host.iter().flat_map(|host| &host.network.ports);
    let carriers: Vec<&OpenPort> = ports.filter(|port| port.carries_pods()).collect();
    let mut hints = Vec::new();
    if !carriers.is_empty() {
        let words: Vec<String> = carriers.iter().map(ToString::to_string).collect();
        // In one order whichever of them tried, so that one cut between two nodes is one hint.
        let both: BTreeSet<&NodeName> = pairs.iter().map(|pair| &pair.to).chain([from]).collect();
        hints.push(format!(
            "the packets of pods travel between nodes by {}: let that in on {}, in their firewalls, in the network \
             between them and in the cloud",
            words.join(", "),
            quoted_first(NAMED, both)
        ));
    }
    if carriers.iter().any(|port| port.protocol == Protocol::Udp) {
        hints.push(
            "some network cards send tunnelled packets with wrong checksums: it is that if pods reach each other after \
             `sudo ethtool -K flannel.1 tx-checksum-ip-generic off` on both nodes"
                .to_owned(),
        );
    }
    Unreachable {
        alike: None,
        class: ErrorClass::Host,
        why: format!(
            "it does not reach pods on {to} (CoreDNS at {pod}): {came_back}, so its own pods do not reach them either"
        ),
        hints,
        obstacle: Obstacle::Other,
    }
}
