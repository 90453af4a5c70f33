//! `network`: the plugin and its options. RKE takes an option from `options`, or from the section that is
//! named after the plugin.

use std::net::IpAddr;

use super::{
    Found,
    pods::{self, Runs},
    values,
};
use crate::{
    config::{
        cursor::Cursor,
        network::{Backend, Calico, Canal, Flannel, Network},
    },
    model::quoted,
};

const INSTEAD: &str = "write `plugin: canal`, which is RKE's default, `flannel`, `calico`, or `none` to bring your own";

/// The options, and the plugin that they belong to.
const OPTIONS: &[(&str, &str)] = &[
    ("flannel_iface", "flannel"),
    ("flannel_backend_type", "flannel"),
    ("flannel_backend_port", "flannel"),
    ("flannel_backend_vni", "flannel"),
    ("kube_flannel_priority_class_name", "flannel"),
    ("canal_iface", "canal"),
    ("canal_flannel_backend_type", "canal"),
    ("canal_flannel_backend_port", "canal"),
    ("canal_flannel_backend_vni", "canal"),
    ("canal_flex_volume_plugin_dir", "canal"),
    ("calico_flex_volume_plugin_dir", "calico"),
];

/// What both plugins append to the folder.
const DRIVER: &str = "/nodeagent~uds";

/// `None` only when a problem was found.
pub(super) fn read(at: &Cursor<'_>, found: &mut Found) -> Option<Network> {
    let before = found.problems.len();
    let plugin = plugin(&at.get("plugin"), found)?;
    for (name, owner) in OPTIONS {
        let option = at.get("options").get(name);
        let default = option.default();
        let says = option
            .scalar()
            .is_some_and(|text| !text.is_empty() && !text.eq_ignore_ascii_case(default));
        if says && *owner != plugin {
            let problem = option.problem("has no effect: it belongs to another network plugin");
            found.warning(problem);
        }
    }
    for owner in ["flannel", "canal"] {
        let iface = at.get(&format!("{owner}_network_provider")).get("iface");
        if owner != plugin && !iface.is_empty() {
            let problem = iface.problem("has no effect: it belongs to another network plugin");
            found.warning(problem);
        }
    }
    let network = match plugin {
        "flannel" => Network::Flannel(Box::new(flannel(at, found))),
        "canal" => Network::Canal(Box::new(canal(at, found))),
        "calico" => Network::Calico(Box::new(calico(at, found))),
        _ => {
            for name in [
                "mtu",
                "node_selector",
                "tolerations",
                "update_strategy",
                "values",
            ] {
                without_effect(
                    &at.get(name),
                    "rke-operator installs no network plugin",
                    found,
                );
            }
            Network::None
        }
    };
    (found.problems.len() == before).then_some(network)
}

fn plugin<'a>(at: &Cursor<'a>, found: &mut Found) -> Option<&'a str> {
    let (message, hint) = match values::text(at, found) {
        None => return Some(at.default()),
        Some(known) if at.words().contains(&known) => return Some(known),
        Some("weave") => (
            "weave is not supported: it was discontinued, and RKE removed it in 1.30",
            "write `plugin: canal`: a new cluster needs nothing else",
        ),
        Some("aci") => (
            "Cisco ACI's plugin is not supported: no release of rke-operator includes it",
            "write `plugin: none` and install it yourself, or `plugin: canal`",
        ),
        Some(other) => {
            let problem = at.problem("unknown network plugin").detail(other);
            found.problem(problem.hint(INSTEAD));
            return None;
        }
    };
    found.problem(at.problem(message).hint(hint));
    None
}

/// It is written, and changes nothing.
fn without_effect(at: &Cursor<'_>, why: &str, found: &mut Found) {
    let zero = at.scalar() == Some("0");
    if !at.has_nothing() && !zero {
        found.warning(at.problem(format!("has no effect: {why}")));
    }
}

fn flannel(at: &Cursor<'_>, found: &mut Found) -> Flannel {
    let options = at.get("options");
    let mtu = at.get("mtu");
    if values::number(&mtu, found).is_some_and(|mtu| mtu > 0) {
        let problem = mtu.problem("flannel takes no MTU: it works it out from the interface");
        found.problem(problem.hint("remove `mtu`"));
    }
    let tolerates = "flannel's pods tolerate every taint";
    without_effect(&at.get("tolerations"), tolerates, found);
    without_effect(&at.get("values"), "flannel is no chart", found);
    Flannel {
        iface: iface(at, "flannel", found),
        backend: backend(&options, "flannel", found),
        priority_class: pods::priority_class(
            &options.get("kube_flannel_priority_class_name"),
            found,
        ),
        node_selector: values::labels(&at.get("node_selector"), found),
        update_strategy: pods::update_strategy(&at.get("update_strategy"), Runs::DaemonSet, found),
    }
}

fn canal(at: &Cursor<'_>, found: &mut Found) -> Canal {
    let options = at.get("options");
    let selector = at.get("node_selector");
    if !values::labels(&selector, found).is_empty() {
        let problem = selector.problem("canal runs on every node: its chart knows no selector");
        found.problem(problem.hint("remove `node_selector`"));
    }
    let strategy = at.get("update_strategy");
    let one = serde_json::json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    let given = pods::update_strategy(&strategy, Runs::DaemonSet, found);
    if given.is_some_and(|given| given != one) {
        let why = "canal's pods are replaced one after the other";
        without_effect(&strategy, why, found);
    }
    let tolerations = at.get("tolerations");
    pods::tolerations(&tolerations, found);
    let why = "canal's pods tolerate every taint, and its controllers those of their chart";
    without_effect(&tolerations, why, found);
    Canal {
        iface: iface(at, "canal", found),
        backend: backend(&options, "canal_flannel", found),
        mtu: mtu(&at.get("mtu"), found),
        volume_plugins: volume_plugins(&options.get("canal_flex_volume_plugin_dir"), found),
        values: values::json_map(&at.get("values"), found),
    }
}

fn calico(at: &Cursor<'_>, found: &mut Found) -> Calico {
    let options = at.get("options");
    Calico {
        mtu: mtu(&at.get("mtu"), found),
        volume_plugins: volume_plugins(&options.get("calico_flex_volume_plugin_dir"), found),
        node_selector: values::labels(&at.get("node_selector"), found),
        tolerations: pods::tolerations(&at.get("tolerations"), found),
        update_strategy: pods::update_strategy(&at.get("update_strategy"), Runs::DaemonSet, found),
        values: values::json_map(&at.get("values"), found),
    }
}

fn iface(at: &Cursor<'_>, plugin: &str, found: &mut Found) -> Option<String> {
    let places = [
        at.get("options").get(&format!("{plugin}_iface")),
        at.get(&format!("{plugin}_network_provider")).get("iface"),
    ];
    let mut given = None;
    for at in places {
        let Some(text) = values::text(&at, found) else {
            continue;
        };
        // What Linux takes as a name; flannel takes an address, too.
        let is_name = text.len() <= 15 && !text.contains(|c: char| c.is_whitespace() || c == '/');
        let fits = is_name || text.parse::<IpAddr>().is_ok();
        if !fits {
            let problem = at.problem("is not the name of a network interface");
            found.problem(problem.detail(text));
        }
        given.get_or_insert_with(|| text.to_owned());
    }
    given
}

fn backend(options: &Cursor<'_>, prefix: &str, found: &mut Found) -> Backend {
    const KINDS: [&str; 5] = ["vxlan", "host-gw", "wireguard", "udp", "ipip"];
    let at = options.get(&format!("{prefix}_backend_type"));
    let kind = values::or_default(&at, found).to_ascii_lowercase();
    if !KINDS.contains(&kind.as_str()) {
        let problem = at
            .problem("is not a backend of flannel")
            .detail(kind.as_str());
        found.problem(problem.hint(format!("write one of {}", quoted(KINDS))));
    }
    let at = options.get(&format!("{prefix}_backend_port"));
    let port = u16::try_from(above_zero(&at, found)).unwrap_or_else(|_| {
        found.problem(at.problem("is not a port"));
        0
    });
    let at = options.get(&format!("{prefix}_backend_vni"));
    let vni = above_zero(&at, found);
    if vni >= 1 << 24 {
        found.problem(at.problem("must be less than 16777216"));
    }
    Backend { kind, port, vni }
}

/// 0 is the default, as in RKE.
fn above_zero(at: &Cursor<'_>, found: &mut Found) -> u32 {
    let written = values::number(at, found).filter(|number| *number > 0);
    written
        .or_else(|| at.default().parse().ok())
        .unwrap_or_default()
}

/// RKE's default is `None`: kubelet looks in another folder here, and that is the charts' default.
fn volume_plugins(at: &Cursor<'_>, found: &mut Found) -> Option<String> {
    let text = values::text(at, found).filter(|text| *text != at.default())?;
    let folder = text.trim_end_matches('/').strip_suffix(DRIVER);
    if folder.is_none_or(|folder| !folder.starts_with('/')) {
        let problem = at
            .problem("is not a folder of this volume plugin")
            .detail(text);
        found.problem(problem.hint("write an absolute path that ends with `/nodeagent~uds`"));
    }
    folder.map(str::to_owned)
}

/// What pods' interfaces get; 0 is left to the plugin.
fn mtu(at: &Cursor<'_>, found: &mut Found) -> Option<u32> {
    /// Every host of IPv4 takes packets of this size, in bytes.
    const LEAST: u32 = 576;
    let mtu = values::number(at, found).filter(|mtu| *mtu > 0)?;
    if mtu < LEAST {
        let problem = at.problem(format!("must be 0 or at least {LEAST} bytes"));
        found.problem(problem.detail(mtu.to_string()));
    }
    Some(mtu)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use crate::config::resolve::tests::{GOOD, and, bad, good};

    fn network(network: &str) -> String {
        GOOD.replace("network: {plugin: flannel}", &format!("network: {network}"))
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        assert_snapshot!(bad(&network("{plugin: aci}")));
        assert_snapshot!(bad(&network(
            "{plugin: flannel, mtu: 1400, node_selector: {a b: c}, update_strategy: {strategy: Recreate}, options: {flannel_iface: a b, flannel_backend_type: gre, flannel_backend_port: 65536, flannel_backend_vni: 16777216}}"
        )));
        assert_snapshot!(bad(&network(
            "{plugin: canal, mtu: x, node_selector: {a: b}, options: {canal_flex_volume_plugin_dir: /opt}, values: [a]}"
        )));
        assert_snapshot!(bad(&network(
            "{plugin: cilium, weave_network_provider: {password: hunter2}}"
        )));
    }

    #[test]
    fn what_no_kernel_takes_is_refused() {
        assert_snapshot!(bad(&network("{plugin: canal, mtu: 50, options: {canal_iface: interface-with-16}}")), @"
        `network.mtu` (line 5): must be 0 or at least 576 bytes | 50
        `network.options.canal_iface` (line 5): is not the name of a network interface | interface-with-16
        ");
        good(&network(
            "{plugin: canal, mtu: 1400, options: {canal_iface: 10.0.0.1}}",
        ));
    }

    #[test]
    fn keys_without_effect_are_reported() {
        let told = |network: &str| {
            let warnings = good(network).warnings;
            let warnings = warnings.iter().map(ToString::to_string);
            warnings.collect::<Vec<_>>().join("\n")
        };
        assert_snapshot!(told(&network(
            "{plugin: canal, update_strategy: {strategy: OnDelete}, tolerations: [{operator: Exists}], options: {flannel_iface: eth1, canal_iface: eth1, canal_priority_class_name: low, calico_cloud_provider: aws}}"
        )));
        assert_eq!(
            told(&network(
                "{plugin: canal, update_strategy: {strategy: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}, options: {flannel_backend_type: VXLAN, canal_flannel_backend_port: 8472}}"
            )),
            ""
        );
        assert_snapshot!(told(&network("{plugin: none, mtu: 1400, values: {a: b}}")));
        assert_snapshot!(told(&and("").replace(
            "ingress: {provider: none}",
            "ingress: {provider: traefik, options: {a: b}, default_backend: true}"
        )));
    }
}
