//! Rules of a node that drop what it forwards, in places where neither kube-proxy nor a network plugin writes. Pure.
//!
//! A packet passes the chains of all tables, those of iptables-legacy and those of nftables: what one accepts, another
//! may drop. kube-proxy and the plugins accept packets of pods in the table to which the node's `iptables` writes, so
//! Docker's `FORWARD` with the policy `DROP` does no harm there.

use std::net::IpAddr;

use ipnet::IpNet;

use super::doctor::{Examined, Finding, warning};
use crate::{
    desired::DesiredHost,
    facts::measured::{DroppingChain, Forwarding, RuleBackend},
    model::RangeOf,
};

/// The range of pods.
pub(super) fn pods(host: &DesiredHost) -> Option<IpNet> {
    let mut ranges = host.network.ranges.iter();
    let range = ranges.find(|range| range.of == RangeOf::Pods);
    range.map(|range| range.net)
}

/// One warning for each such chain. Whether packets are lost is not proven: pods may be accepted by their addresses.
pub(super) fn findings(examined: &Examined<'_>) -> Vec<Finding> {
    let pods = examined.intent.services.cluster_cidr;
    let measured = examined.measured.iter();
    let read = measured.filter_map(|(name, measured)| Some((name, measured.forwarding.as_ref()?)));
    let found = read.flat_map(|(name, forwarding)| {
        in_the_way(forwarding, pods).map(move |(message, hints)| Finding {
            node: Some(name.clone()),
            ..warning(message, hints)
        })
    });
    found.collect()
}

fn in_the_way(
    forwarding: &Forwarding,
    pods: IpNet,
) -> impl Iterator<Item = (String, Vec<String>)> + '_ {
    let written = forwarding.written;
    let chains = forwarding.dropping.iter();
    let chains = chains.filter(move |chain| of_family(chain, pods));
    chains.filter_map(move |chain| {
        let written = written?;
        let is_own = is_of_iptables(chain) && chain.backend == written;
        (!is_own).then(|| told(chain, written, pods))
    })
}

fn of_family(chain: &DroppingChain, pods: IpNet) -> bool {
    let family = match pods.addr() {
        IpAddr::V4(_) => "ip",
        IpAddr::V6(_) => "ip6",
    };
    [family, "inet"].contains(&chain.family.as_str())
}

/// The chain that `iptables` calls `FORWARD`.
fn is_of_iptables(chain: &DroppingChain) -> bool {
    chain.table == "filter" && chain.chain == "FORWARD" && chain.family != "inet"
}

fn told(chain: &DroppingChain, written: RuleBackend, pods: IpNet) -> (String, Vec<String>) {
    let DroppingChain {
        backend,
        family,
        table,
        chain: name,
    } = chain;
    if !is_of_iptables(chain) {
        let rule = |word: &str| {
            let address = if pods.addr().is_ipv4() { "ip" } else { "ip6" };
            format!("`sudo nft insert rule {family} {table} {name} {address} {word} {pods} accept`")
        };
        return (
            format!(
                "the chain `{name}` of nftables' table `{family} {table}` drops what the node forwards, and none of its \
                 rules names pods: their packets are dropped there, whatever kube-proxy and the network plugin accept"
            ),
            vec![format!(
                "let packets of pods through: {} and {}, and both in the file that loads the table \
                 (/etc/nftables.conf)",
                rule("saddr"),
                rule("daddr")
            )],
        );
    }
    let tool = match (backend, pods.addr()) {
        (RuleBackend::Legacy, IpAddr::V4(_)) => "iptables-legacy",
        (RuleBackend::Legacy, IpAddr::V6(_)) => "ip6tables-legacy",
        (RuleBackend::Nft, IpAddr::V4(_)) => "iptables-nft",
        (RuleBackend::Nft, IpAddr::V6(_)) => "ip6tables-nft",
    };
    let other = match written {
        RuleBackend::Legacy => "iptables-legacy",
        RuleBackend::Nft => "nftables",
    };
    (
        format!(
            "`iptables` writes to {other} on this node, and the chain `FORWARD` of {tool} drops what the node forwards: \
             packets of pods are dropped there, whatever kube-proxy and the network plugin accept"
        ),
        vec![
            "restart the node if another `iptables` was chosen since it started (`update-alternatives`): Docker then \
             writes to the same tables"
                .to_owned(),
            format!(
                "otherwise `sudo {tool} -S FORWARD` shows the rules, and `sudo {tool} -P FORWARD ACCEPT` lets packets \
                 through until the next restart"
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(written: &str, dropping: &str, pods: &str) -> Vec<String> {
        let output = format!("@@iptables\n{written}\n@@dropping\n{dropping}\n@@end\n");
        let forwarding = Forwarding::parse(&output).unwrap();
        let found = in_the_way(&forwarding, pods.parse().unwrap());
        found
            .map(|(message, hints)| format!("{message} {}", hints.join(" ")))
            .collect()
    }

    const NFT: &str = "iptables v1.8.9 (nf_tables)";
    const LEGACY: &str = "iptables v1.8.9 (legacy)";

    #[test]
    fn a_chain_that_drops_does_harm_where_there_are_no_rules_for_pods() {
        let count = |written, dropping| found(written, dropping, "10.42.0.0/16").len();
        // Docker's own, where kube-proxy writes, too.
        assert_eq!(count(NFT, "nft ip filter FORWARD"), 0);
        assert_eq!(count(LEGACY, "legacy ip filter FORWARD"), 0);
        assert_eq!(count("iptables v1.6.1", "legacy ip filter FORWARD"), 0);
        // In the other place.
        assert_eq!(count(NFT, "legacy ip filter FORWARD"), 1);
        assert_eq!(count(LEGACY, "nft ip filter FORWARD"), 1);
        // Of a file of nftables.
        assert_eq!(count(NFT, "nft inet filter forward"), 1);
        assert_eq!(count(NFT, "nft inet filter FORWARD"), 1);
        assert_eq!(count(NFT, "nft ip mine forward"), 1);
        // Of addresses that pods do not have.
        assert_eq!(
            count(NFT, "nft ip6 mine forward\nlegacy ip6 filter FORWARD"),
            0
        );
        // What is not known.
        assert_eq!(count("", "legacy ip filter FORWARD"), 0);
        assert_eq!(count(NFT, "nonsense"), 0);
    }

    #[test]
    fn the_hints_are_commands_for_that_chain() {
        let native = found(NFT, "nft inet fw forward", "10.42.0.0/16").remove(0);
        let rule = "`sudo nft insert rule inet fw forward ip saddr 10.42.0.0/16 accept`";
        assert!(native.contains(rule), "{native}");
        let six = found(NFT, "legacy ip6 filter FORWARD", "fd42::/56").remove(0);
        assert!(
            six.contains("`sudo ip6tables-legacy -P FORWARD ACCEPT`"),
            "{six}"
        );
        let docker = found(LEGACY, "nft ip filter FORWARD", "10.42.0.0/16").remove(0);
        assert!(
            docker.contains("`iptables` writes to iptables-legacy"),
            "{docker}"
        );
        assert!(
            docker.contains("`sudo iptables-nft -S FORWARD`"),
            "{docker}"
        );
    }
}
