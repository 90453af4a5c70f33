//! `dns`: the provider, where names are asked for, and how its pods run.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use ipnet::IpNet;

use super::{
    Found,
    pods::{self, Runs},
    values,
};
use crate::{
    config::{
        cursor::Cursor,
        dns::{CoreDns, Dns, NodeLocal},
    },
    model::Linear,
};

/// `None` only when a problem was found.
pub(super) fn read(at: &Cursor<'_>, found: &mut Found) -> Option<Dns> {
    const INSTEAD: &str = "write `provider: coredns`, or `provider: none` to bring your own";
    let before = found.problems.len();
    let provider = at.get("provider");
    let none = match values::text(&provider, found) {
        Some("coredns") | None => false,
        Some("none") => true,
        Some("kube-dns") => {
            let problem = provider
                .problem("kube-dns is not supported: Kubernetes replaced it with CoreDNS in 1.13");
            found.problem(problem.hint(
                "write `provider: coredns`: upstreamnameservers, stubdomains and the name of the Service stay as they are",
            ));
            false
        }
        Some(other) => {
            let problem = provider.problem("unknown DNS provider").detail(other);
            found.problem(problem.hint(INSTEAD));
            false
        }
    };
    let dns = core_dns(at, found);
    if none && dns.node_local.is_some() {
        let problem = at.get("nodelocal").get("ip_address");
        let problem = problem.problem("the cache asks the cluster's CoreDNS, and there is none");
        found.problem(problem.hint("remove `nodelocal`, or write `provider: coredns`"));
    }
    let dns = if none {
        Dns::None
    } else {
        Dns::CoreDns(Box::new(dns))
    };
    (found.problems.len() == before).then_some(dns)
}

fn core_dns(at: &Cursor<'_>, found: &mut Found) -> CoreDns {
    let options = at.get("options");
    CoreDns {
        upstreams: servers(&at.get("upstreamnameservers"), found),
        reverse: reverse(&at.get("reversecidrs"), found),
        stub_domains: stub_domains(&at.get("stubdomains"), found),
        node_selector: values::labels(&at.get("node_selector"), found),
        tolerations: pods::tolerations(&at.get("tolerations"), found),
        update_strategy: pods::update_strategy(&at.get("update_strategy"), Runs::Deployment, found),
        priority_class: pods::priority_class(&options.get("coredns_priority_class_name"), found),
        linear: linear(&at.get("linear_autoscaler_params"), found),
        node_local: node_local(&at.get("nodelocal"), found),
    }
}

/// What may stand behind CoreDNS's `forward`. More than 15 it does not take.
fn servers(at: &Cursor<'_>, found: &mut Found) -> Vec<String> {
    let servers: Vec<_> = values::texts(at, found)
        .into_iter()
        .map(|(at, text)| {
            if !is_server(text) {
                let problem = at.problem("is not a name server").detail(text);
                found.problem(problem.hint(
                    "write an address, `address:port`, `tls://address`, or the path of a resolv.conf",
                ));
            }
            text.to_owned()
        })
        .collect();
    if servers.len() > 15 {
        found.problem(at.problem("CoreDNS takes 15 name servers at most"));
    }
    servers
}

fn is_server(text: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !matches!(c, '{' | '}' | '#' | '"');
    if !text.chars().all(plain) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let address = ["tls://", "dns://"]
        .into_iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let address = address.unwrap_or(text);
    let address = address
        .split_once('%')
        .map_or(address, |(address, _)| address);
    address.parse::<IpAddr>().is_ok() || address.parse::<SocketAddr>().is_ok()
}

/// Ranges, as CoreDNS reads them, or zones.
fn reverse(at: &Cursor<'_>, found: &mut Found) -> Vec<String> {
    let texts = values::texts(at, found).into_iter();
    texts
        .map(|(at, text)| {
            let zone = text.trim_end_matches('.').to_ascii_lowercase();
            let is_zone = zone.rsplit('.').next() == Some("arpa") && is_domain(&zone);
            if !is_zone && text.parse::<IpNet>().is_err() {
                let problem = at.problem("is not a range of addresses").detail(text);
                found.problem(problem.hint("write e.g. `10.0.0.0/8`"));
            }
            text.to_owned()
        })
        .collect()
}

fn stub_domains(at: &Cursor<'_>, found: &mut Found) -> BTreeMap<String, Vec<String>> {
    let mut domains = BTreeMap::new();
    for (name, at) in values::entries(at, found) {
        let domain = name.trim_end_matches('.').to_ascii_lowercase();
        if !is_domain(&domain) {
            found.problem(at.problem("is not the name of a domain"));
        }
        let servers = servers(&at, found);
        if servers.is_empty() && at.has_nothing() {
            found.problem(at.problem("a domain needs a name server"));
        }
        domains.insert(domain, servers);
    }
    domains
}

/// As of a host, and with `_`, which names of services have.
fn is_domain(text: &str) -> bool {
    values::is_dns_name(&text.replace('_', "x"))
}

fn linear(at: &Cursor<'_>, found: &mut Found) -> Linear {
    let default = Linear::default();
    let or = |given: Option<u64>, default| given.filter(|number| *number > 0).unwrap_or(default);
    let min = values::number(&at.get("min"), found).filter(|min| *min > 0);
    let (min, max) = (
        min.unwrap_or(default.min),
        values::number(&at.get("max"), found).unwrap_or(default.max),
    );
    if max > 0 && min > max {
        found.problem(at.get("max").problem("is less than `min`"));
    }
    Linear {
        cores_per_replica: or(
            thousandths(&at.get("cores_per_replica"), found),
            default.cores_per_replica,
        ),
        nodes_per_replica: or(
            thousandths(&at.get("nodes_per_replica"), found),
            default.nodes_per_replica,
        ),
        min,
        max,
        prevent_single_point_failure: values::flag(&at.get("prevent_single_point_failure"), found)
            .unwrap_or(default.prevent_single_point_failure),
    }
}

/// `0.5` is a number, too.
fn thousandths(at: &Cursor<'_>, found: &mut Found) -> Option<u64> {
    let text = values::text(at, found)?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = part.bytes().all(|b| b.is_ascii_digit()) && part.len() <= 3;
    let number = digits
        .then(|| {
            let whole: u32 = whole.parse().ok()?;
            let part: u64 = format!("{part:0<3}").parse().ok()?;
            Some(u64::from(whole) * 1000 + part)
        })
        .flatten();
    if number.is_none() {
        let problem = at.problem("must be a number, 0 or more, with at most three decimals");
        found.problem(problem.detail(text));
    }
    number
}

/// On where it has an address, as in RKE.
fn node_local(at: &Cursor<'_>, found: &mut Found) -> Option<NodeLocal> {
    let address = at.get("ip_address");
    let text = values::text(&address, found);
    let parsed = text.and_then(|text| text.parse::<Ipv4Addr>().ok());
    if let (Some(text), None) = (text, parsed) {
        let problem = address.problem("is not an IPv4 address").detail(text);
        found.problem(problem.hint("write e.g. `169.254.20.10`"));
    }
    if parsed.is_some_and(|address| address.is_loopback() || address.is_unspecified()) {
        let problem = address.problem("pods do not reach this address of their node");
        found.problem(problem.hint("write e.g. `169.254.20.10`"));
    }
    let node_selector = values::labels(&at.get("node_selector"), found);
    let update_strategy = pods::update_strategy(&at.get("update_strategy"), Runs::DaemonSet, found);
    let priority_class = pods::priority_class(&at.get("node_local_dns_priority_class_name"), found);
    Some(NodeLocal {
        address: parsed?,
        node_selector,
        update_strategy,
        priority_class,
    })
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use crate::config::resolve::tests::{and, bad};

    #[test]
    fn all_problems_are_reported_at_once() {
        assert_snapshot!(bad(&and("\
dns:
  upstreamnameservers: [dns.example.com, '192.0.2.1 }', 'tls://192.0.2.1:853', /etc/resolv.conf]
  reversecidrs: [10.0.0.0/40, example.com, 10.in-addr.arpa]
  stubdomains: {'a b': [192.0.2.1], example.com: [], example.org: [ns]}
  node_selector: {a b: c}
  tolerations: [{operator: In}]
  options: {coredns_priority_class_name: A b, other: 1}
  update_strategy: {strategy: OnDelete, rollingUpdate: {maxUnavailable: 101%, most: 1}, more: 1}
  linear_autoscaler_params: {cores_per_replica: -1, nodes_per_replica: 1.2345, min: 3, max: 2, prevent_single_point_failure: 2}
  nodelocal: {ip_address: fd00::1, update_strategy: {type: Recreate}}
monitoring:
  update_strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 0%}}
").replacen("monitoring: {provider: none}\n", "", 1)));
    }

    #[test]
    fn a_cache_needs_a_server_to_ask() {
        assert_snapshot!(bad(&and(
            "dns: {provider: none, nodelocal: {ip_address: 127.0.0.1}}"
        )));
        assert_snapshot!(bad(&and("dns: {provider: bind}")));
    }
}
