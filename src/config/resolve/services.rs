//! `services`: images, flags, mounts and environment of each component, and the address ranges.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::{IpNet, Ipv4Net};
use serde_json::Value as Json;

use super::{Found, backup, bucket, encryption, etcd_data, fits, values};
use crate::{
    config::{
        cursor::Cursor,
        intent::{AuditLog, PodSecurity, ServiceExtras, Services},
        problem::Problem,
    },
    model::{Bind, path, quoted},
};

/// `None` only when a problem was found.
pub(super) fn read(at: &Cursor<'_>, found: &mut Found) -> Option<Services> {
    let before = found.problems.len();
    let etcd = extras(&at.get("etcd"), found);
    etcd_data::check(&at.get("etcd"), found);
    let kube_api = extras(&at.get("kube-api"), found);
    let kube_controller = extras(&at.get("kube-controller"), found);
    let scheduler = extras(&at.get("scheduler"), found);
    let kubelet = extras(&at.get("kubelet"), found);
    elsewhere(&at.get("kubelet").get("extra_binds"), found);
    let kubeproxy = extras(&at.get("kubeproxy"), found);
    kubelet_folder(&at.get("kubelet"), found);
    let snapshots = backup::read(&at.get("etcd"), found);
    let snapshot_bucket = bucket::read(&at.get("etcd"), found).map(Box::new);
    let cluster_cidr = range(
        &at.get("kube-controller").get("cluster_cidr"),
        (8, 23),
        found,
    );
    let service_range = service_range(at, found);
    if let (Some(pods), Some(services)) = (cluster_cidr, service_range) {
        disjoint(at, pods, services, found);
    }
    let cluster_dns_server = service_range.and_then(|range| dns_server(at, range, found));
    let service_node_port_range =
        node_ports(&at.get("kube-api").get("service_node_port_range"), found);
    let cluster_domain = domain(&at.get("kubelet").get("cluster_domain"), found);
    let fail_swap_on = values::flag_or_default(&at.get("kubelet").get("fail_swap_on"), found);
    let api = at.get("kube-api");
    let always_pull_images = values::flag_or_default(&api.get("always_pull_images"), found);
    let audit_log = audit_log(&api.get("audit_log"), found);
    let pod_security = pod_security(&api.get("pod_security_configuration"), found);
    let event_rate_limit = event_rate_limit(&api.get("event_rate_limit"), found);
    let admission_plugins = admission_plugins(&api.get("admission_configuration"), found);
    let secrets_encryption = encryption::read(&api, found);
    if found.problems.len() > before {
        return None;
    }
    Some(Services {
        etcd,
        snapshots,
        snapshot_bucket,
        kube_api,
        kube_controller,
        scheduler,
        kubelet,
        kubeproxy,
        cluster_cidr: cluster_cidr?.into(),
        service_cluster_ip_range: service_range?.into(),
        service_node_port_range: service_node_port_range?,
        cluster_domain,
        cluster_dns_server: cluster_dns_server?,
        fail_swap_on,
        always_pull_images,
        audit_log,
        pod_security,
        event_rate_limit,
        admission_plugins,
        secrets_encryption,
    })
}

/// What mounts and what cleans a node knows one folder of kubelet's: drivers of volumes, logins of registries, `remove`.
fn kubelet_folder(kubelet: &Cursor<'_>, found: &mut Found) {
    for list in ["extra_args", "extra_args_array"] {
        let entries = kubelet.get(list).entries().into_iter();
        let mut folders = entries.filter(|(name, _)| fits::flag_name(name) == "root-dir");
        let Some((_, at)) = folders.next() else {
            continue;
        };
        let usual = at
            .scalar()
            .is_some_and(|text| text.trim_end_matches('/') == path::KUBELET);
        if !at.has_nothing() && !usual {
            found.problem(at.problem("kubelet's folder stays `/var/lib/kubelet`").hint(
                "remove it; to have the folder on another disk, mount that there before the node joins: \
                 `/data/kubelet /var/lib/kubelet none bind 0 0` in /etc/fstab",
            ));
        }
    }
}

fn extras(at: &Cursor<'_>, found: &mut Found) -> ServiceExtras {
    let mut extras = ServiceExtras::default();
    for (name, (value, text)) in values::map(&at.get("extra_args"), found) {
        if values::is_flag(name, &value, found) {
            let known = extras
                .extra_args
                .insert(fits::flag_name(name), text.to_owned());
            once(known.is_none(), &value, found);
        }
    }
    for (name, list) in values::entries(&at.get("extra_args_array"), found) {
        if values::is_flag(name, &list, found) {
            let texts = values::texts(&list, found).into_iter();
            let texts = texts.map(|(_, text)| text.to_owned()).collect();
            let known = extras.extra_args_array.insert(fits::flag_name(name), texts);
            once(known.is_none(), &list, found);
        }
    }
    let mut targets = BTreeSet::new();
    for (item, text) in values::texts(&at.get("extra_binds"), found) {
        match bind_target(text) {
            None => found.problem(item.problem("is not a bind mount").detail(text).hint(
                "`source:target` or `source:target:options`, both absolute paths, e.g. \
                     `/etc/ssl:/etc/ssl:ro`",
            )),
            Some(target) if !targets.insert(target) => {
                found.problem(item.problem("another bind has this target").detail(text));
            }
            Some(_) => extras
                .extra_binds
                .extend(Bind::try_from(text.to_owned()).ok()),
        }
    }
    for (item, text) in values::texts(&at.get("extra_env"), found) {
        match text.split_once('=') {
            Some((name, value)) if is_variable(name) => {
                // As in Docker: of two with one name, the last.
                extras
                    .extra_env
                    .insert(name.to_owned(), value.to_owned().into());
            }
            // The text may be a password: it is no detail.
            Some(_) | None => found.problem(item.problem("is not `NAME=value`")),
        }
    }
    extras
}

/// The programs read `_` in the name of a flag as `-`.
fn once(is_first: bool, at: &Cursor<'_>, found: &mut Found) {
    if !is_first {
        let problem = at.key_problem("this flag is there with `-` and with `_` in its name");
        found.problem(problem.hint("keep one of the two"));
    }
}

/// kubelet works in the node's own file system: there every path is where it is.
fn elsewhere(at: &Cursor<'_>, found: &mut Found) {
    for item in at.items() {
        let bind = item.scalar().and_then(|text| {
            let target = bind_target(text)?;
            let source = text.split(':').next()?.trim_end_matches('/');
            (source != target).then_some(text)
        });
        if let Some(bind) = bind {
            let problem = item
                .problem("kubelet sees a path of the node only where it is")
                .detail(bind);
            found.problem(problem.hint(
                "remove it, and name the node's own path in what uses it; or mount it there on the node itself",
            ));
        }
    }
}

/// There is one unless the config says otherwise, with RKE's settings where it names none.
fn audit_log(at: &Cursor<'_>, found: &mut Found) -> Option<AuditLog> {
    let enabled = values::flag_or_default(&at.get("enabled"), found);
    let at = at.get("configuration");
    let mut number = |key: &str| values::number_or_default(&at.get(key), found);
    let (max_age, max_backup, max_size) =
        (number("max_age"), number("max_backup"), number("max_size"));
    let format = values::word(&at.get("format"), "is not a format of the audit log", found);
    let policy = audit_policy(&at.get("policy"), found);
    enabled.then(|| AuditLog {
        max_age,
        max_backup,
        max_size,
        format: format.to_owned(),
        policy,
    })
}

/// A word that must be there, and one of these.
fn one_of(at: &Cursor<'_>, words: &[&str], otherwise: &str, found: &mut Found) {
    let written = values::text(at, found);
    if !written.is_some_and(|written| words.contains(&written)) {
        let problem = at.problem(otherwise);
        let problem = problem.hint(format!("write one of {}", quoted(words)));
        found.problem(written.into_iter().fold(problem, Problem::detail));
    }
}

/// An API server does not start with a policy that says nothing, or a level that it does not know.
fn audit_policy(at: &Cursor<'_>, found: &mut Found) -> Option<Json> {
    const LEVELS: [&str; 4] = ["None", "Metadata", "Request", "RequestResponse"];
    let policy = values::object(at, &["audit.k8s.io/v1"], "Policy", found)?;
    for rule in values::mappings(&at.get("rules"), found) {
        one_of(
            &rule.get("level"),
            &LEVELS,
            "is not a level of the audit log",
            found,
        );
    }
    Some(policy.into())
}

/// The plugin's settings, RKE's where the config has none; `None` where it is off.
fn event_rate_limit(at: &Cursor<'_>, found: &mut Found) -> Option<Json> {
    const API: &str = "eventratelimit.admission.k8s.io/v1alpha1";
    let enabled = values::flag_or_default(&at.get("enabled"), found);
    let at = at.get("configuration");
    let written = values::object(&at, &[API], "Configuration", found);
    if written.is_some() {
        for limit in values::mappings(&at.get("limits"), found) {
            limit_of_events(&limit, found);
        }
    }
    let settings = written.map_or_else(
        || {
            serde_json::json!({
                "apiVersion": API,
                "kind": "Configuration",
                "limits": [{"type": "Server", "qps": 5000, "burst": 20000}],
            })
        },
        Json::from,
    );
    enabled.then_some(settings)
}

/// An API server does not start with a limit of another type, or of nothing.
fn limit_of_events(limit: &Cursor<'_>, found: &mut Found) {
    const TYPES: [&str; 4] = ["Server", "Namespace", "User", "SourceAndObject"];
    one_of(
        &limit.get("type"),
        &TYPES,
        "is not a type of a limit",
        found,
    );
    for key in ["qps", "burst"] {
        let at = limit.get(key);
        let text = at.scalar();
        if !text.is_some_and(|text| text.parse::<u32>().is_ok_and(|number| number > 0)) {
            let problem = at.problem("must be a whole number, 1 or more");
            found.problem(text.into_iter().fold(problem, Problem::detail));
        }
    }
}

/// The plugins of an `AdmissionConfiguration` by name. RKE dropped all but its own two; here each is taken.
fn admission_plugins(at: &Cursor<'_>, found: &mut Found) -> BTreeMap<String, Json> {
    let versions = [
        "apiserver.config.k8s.io/v1",
        "apiserver.config.k8s.io/v1alpha1",
    ];
    let mut plugins = BTreeMap::new();
    if values::object(at, &versions, "AdmissionConfiguration", found).is_none() {
        return plugins;
    }
    for plugin in values::mappings(&at.get("plugins"), found) {
        let name = plugin.get("name");
        match values::text(&name, found) {
            None => found.problem(name.problem("a plugin needs a name")),
            Some(text) => {
                if plugins.insert(text.to_owned(), plugin.json()).is_some() {
                    found.problem(name.problem("another plugin has this name").detail(text));
                }
            }
        }
    }
    plugins
}

fn pod_security(at: &Cursor<'_>, found: &mut Found) -> PodSecurity {
    match values::word(at, "is not a level of RKE's", found) {
        "restricted" => PodSecurity::Restricted,
        _ => PodSecurity::Privileged,
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_whitespace() || c.is_control())
}

const BIND_OPTIONS: &[&str] = &[
    "ro",
    "rw",
    "z",
    "Z",
    "shared",
    "rshared",
    "slave",
    "rslave",
    "private",
    "rprivate",
    "cached",
    "consistent",
    "delegated",
];

fn bind_target(text: &str) -> Option<&str> {
    let mut parts = text.split(':');
    let (source, target, options) = (parts.next()?, parts.next()?, parts.next());
    let valid = parts.next().is_none()
        && source.starts_with('/')
        && target.starts_with('/')
        && target.trim_end_matches('/').len() > 1
        && options.is_none_or(|options| options.split(',').all(|o| BIND_OPTIONS.contains(&o)));
    valid.then(|| target.trim_end_matches('/'))
}

/// A range whose prefix is within bounds; the default when absent.
fn range(at: &Cursor<'_>, (widest, narrowest): (u8, u8), found: &mut Found) -> Option<Ipv4Net> {
    let default = at.default();
    let text = values::or_default(at, found);
    let problem = |message: String| at.problem(message).detail(text);
    let (problem, range) = if text.contains(',') {
        (
            problem("two address families are not supported yet".to_owned()),
            None,
        )
    } else {
        match text.parse::<IpNet>() {
            Err(_) => (
                problem("is not a valid CIDR".to_owned())
                    .hint(format!("write one like `{default}`")),
                None,
            ),
            Ok(IpNet::V6(_)) => (problem("IPv6 is not supported yet".to_owned()), None),
            Ok(IpNet::V4(range)) if (widest..=narrowest).contains(&range.prefix_len()) => {
                return Some(range.trunc());
            }
            Ok(IpNet::V4(range)) => (
                problem(format!("must be between /{widest} and /{narrowest} wide")),
                Some(range.trunc()),
            ),
        }
    };
    found.problem(problem);
    range
}

/// RKE has the service range in two places; they must agree, and one is enough.
fn service_range(at: &Cursor<'_>, found: &mut Found) -> Option<Ipv4Net> {
    let api = at.get("kube-api").get("service_cluster_ip_range");
    let controller = at.get("kube-controller").get("service_cluster_ip_range");
    let read = |at: &Cursor<'_>, found: &mut Found| range(at, (12, 28), found);
    match (api.is_empty(), controller.is_empty()) {
        (_, true) => read(&api, found),
        (true, false) => read(&controller, found),
        (false, false) => {
            let (one, other) = (read(&api, found), read(&controller, found));
            let (one, other) = (one?, other?);
            if one != other {
                found.problem(
                    controller
                        .problem("differs from `services.kube-api.service_cluster_ip_range`")
                        .detail(format!("{other}, and there {one}"))
                        .hint("write the same range in both places, or in one"),
                );
            }
            Some(one)
        }
    }
}

fn disjoint(at: &Cursor<'_>, pods: Ipv4Net, services: Ipv4Net, found: &mut Found) {
    if pods.contains(&services) || services.contains(&pods) {
        let place = [
            at.get("kube-controller").get("cluster_cidr"),
            at.get("kube-api").get("service_cluster_ip_range"),
            at.get("kube-controller").get("service_cluster_ip_range"),
        ];
        let written = place.iter().find(|at| !at.is_empty()).unwrap_or(at);
        found.problem(
            written
                .problem("the ranges of pods (`cluster_cidr`) and services (`service_cluster_ip_range`) overlap")
                .detail(format!("{pods} and {services}"))
                .hint("pods and services need separate ranges; RKE's are `10.42.0.0/16` and `10.43.0.0/16`"),
        );
    }
}

fn dns_server(at: &Cursor<'_>, range: Ipv4Net, found: &mut Found) -> Option<IpAddr> {
    let at = at.get("kubelet").get("cluster_dns_server");
    let written = values::text(&at, found);
    let text = written.unwrap_or_else(|| at.default());
    let tenth = range
        .hosts()
        .nth(9)
        .map_or_else(String::new, |ip| ip.to_string());
    let Ok(address) = text.parse::<IpAddr>() else {
        found.problem(
            at.problem("is not an address")
                .detail(text)
                .hint("write one out of the service range"),
        );
        return None;
    };
    let inside = IpNet::from(range).contains(&address);
    let first = range.hosts().next().map(IpAddr::from);
    let edge =
        address == IpAddr::from(range.network()) || address == IpAddr::from(range.broadcast());
    if !inside || edge {
        let problem = match written {
            Some(_) => at.problem("lies outside of `service_cluster_ip_range`").detail(text),
            None => at.problem(
                "not set, and RKE's default `10.43.0.10` lies outside of `service_cluster_ip_range`",
            ),
        };
        // The range is the config's value: the proposal is for terminals.
        let problem = match written {
            Some(text) => {
                problem.detail(format!("{text}; the range is {range}: write e.g. {tenth}"))
            }
            None => problem.detail(format!("the range is {range}: write e.g. {tenth}")),
        };
        found.problem(problem.hint("choose an address in that range; by convention the tenth"));
        return None;
    }
    if Some(address) == first {
        found.problem(
            at.problem("the first address of the service range is the API server's own")
                .detail(format!("{text}; write e.g. {tenth}"))
                .hint("choose another address; by convention the tenth"),
        );
        return None;
    }
    Some(address)
}

/// `None` only when a problem was found.
fn node_ports(at: &Cursor<'_>, found: &mut Found) -> Option<(u16, u16)> {
    let text = values::or_default(at, found);
    let parsed = text
        .split_once('-')
        .and_then(|(low, high)| Some((low.parse::<u16>().ok()?, high.parse::<u16>().ok()?)));
    let range = parsed.filter(|(low, high)| *low > 0 && low < high);
    if range.is_none() {
        let problem = at.problem("is not a range of ports").detail(text);
        found.problem(problem.hint(format!("write one like `{}`", at.default())));
    }
    range
}

fn domain(at: &Cursor<'_>, found: &mut Found) -> String {
    let domain = values::or_default(at, found);
    if !values::is_dns_name(domain) {
        found.problem(
            at.problem("is not a DNS domain")
                .detail(domain)
                .hint("write one like `cluster.local`"),
        );
    }
    domain.to_owned()
}
