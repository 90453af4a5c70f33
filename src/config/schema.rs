//! RKE's schema, all of it: which keys there are, which of them are read, and with which values
//! the others may stand in a file. Pure data and one walk over the document.
//!
//! A key that is not read yet passes when it is empty or has the value that RKE's default gives
//! (as `rke config` writes it); anything else is "not supported yet". A key that RKE does not have
//! is an error. So nothing is ignored in silence.

use super::{
    problem::Problem,
    schema_later::{ACI, BASTION, CLOUD_PROVIDER, INGRESS, LINEAR_AUTOSCALER, NODE_LOCAL},
    tree::{Cursor, Entry, Value},
};

/// A key and what may stand under it.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
}

/// What may stand under a key.
pub(super) enum Shape {
    /// `resolve` reads and judges it.
    Read,
    /// A mapping with these keys.
    Map(&'static [Key]),
    /// A list of mappings with these keys.
    Each(&'static [Key]),
    /// Not read yet: passes when empty or written as one of these.
    Later(&'static [&'static str]),
    /// Not read yet: passes only when null, because its mere presence is an order to RKE.
    Never,
    /// A mapping that is not read yet: one problem for the whole of it.
    LaterMap(&'static [Key]),
}

pub(super) const fn read(name: &'static str) -> Key {
    Key {
        name,
        shape: Shape::Read,
    }
}

pub(super) const fn later(name: &'static str, passes: &'static [&'static str]) -> Key {
    Key {
        name,
        shape: Shape::Later(passes),
    }
}

const fn map(name: &'static str, keys: &'static [Key]) -> Key {
    Key {
        name,
        shape: Shape::Map(keys),
    }
}

pub(super) const fn later_map(name: &'static str, keys: &'static [Key]) -> Key {
    Key {
        name,
        shape: Shape::LaterMap(keys),
    }
}

/// The values that mean "off" or "not set" for a flag or a number whose default that is.
pub(super) const OFF: &[&str] = &["false"];
pub(super) const ZERO: &[&str] = &["0"];

/// The top level of `cluster.yml`.
pub(super) const ROOT: &[Key] = &[
    Key {
        name: "nodes",
        shape: Shape::Each(NODE),
    },
    map("services", SERVICES),
    map("network", NETWORK),
    map("authentication", AUTHENTICATION),
    map(
        "authorization",
        &[later("mode", &["rbac"]), later("options", &[])],
    ),
    later("addons", &[]),
    later("addons_include", &[]),
    read("system_images"),
    read("ssh_key_path"),
    later("ssh_cert_path", &[]),
    later("ssh_agent_auth", OFF),
    // Docker is judged by what it can do, not by a list of versions: both mean the same here.
    later("ignore_docker_version", &["false", "true"]),
    // Pods run on containerd; `true` is RKE's default for every release in our catalogue.
    later("enable_cri_dockerd", &["true"]),
    read("kubernetes_version"),
    later("private_registries", &[]),
    map("ingress", INGRESS),
    read("cluster_name"),
    map("cloud_provider", CLOUD_PROVIDER),
    later("prefix_path", &["/"]),
    later("win_prefix_path", &[]),
    later("addon_job_timeout", &["0", "45"]),
    later_map("bastion_host", BASTION),
    map("monitoring", MONITORING),
    later_map(
        "restore",
        &[later("restore", OFF), later("snapshot_name", &[])],
    ),
    Key {
        name: "rotate_certificates",
        shape: Shape::Never,
    },
    later("rotate_encryption_key", OFF),
    map("dns", DNS),
    map("upgrade_strategy", UPGRADE_STRATEGY),
    later("cri_dockerd_stream_server_address", &["127.0.0.1"]),
    later("cri_dockerd_stream_server_port", &["10010"]),
];

const NODE: &[Key] = &[
    read("address"),
    read("port"),
    read("internal_address"),
    read("role"),
    read("hostname_override"),
    read("user"),
    read("docker_socket"),
    read("ssh_key"),
    read("ssh_key_path"),
    later("ssh_cert", &[]),
    later("ssh_cert_path", &[]),
    later("ssh_agent_auth", OFF),
    read("labels"),
    Key {
        name: "taints",
        shape: Shape::Each(TAINT),
    },
    later("nodeName", &[]),
];

const TAINT: &[Key] = &[read("key"), read("value"), read("effect")];

const SERVICES: &[Key] = &[
    map("etcd", ETCD),
    map("kube-api", KUBE_API),
    map("kube-controller", KUBE_CONTROLLER),
    map("scheduler", BASE),
    map("kubelet", KUBELET),
    map("kubeproxy", BASE),
];

/// The keys of every service, and with them those of one.
macro_rules! service {
    ($($own:expr),* $(,)?) => {
        &[
            read("image"),
            read("extra_args"),
            later("extra_args_array", &[]),
            read("extra_binds"),
            read("extra_env"),
            later("win_extra_args", &[]),
            later("win_extra_args_array", &[]),
            later("win_extra_binds", &[]),
            later("win_extra_env", &[]),
            $($own),*
        ]
    };
}

const BASE: &[Key] = service!();

const ETCD: &[Key] = service!(
    later("external_urls", &[]),
    later("ca_cert", &[]),
    later("cert", &[]),
    later("key", &[]),
    later("path", &[]),
    later("uid", ZERO),
    later("gid", ZERO),
    // Read only to warn: no snapshots are taken yet.
    read("snapshot"),
    later("creation", &["12h", "12h0m0s"]),
    later("retention", &["72h", "72h0m0s"]),
    map("backup_config", BACKUP),
);

const BACKUP: &[Key] = &[
    later("enabled", OFF),
    later("interval_hours", &["0", "12"]),
    later("retention", &["0", "6"]),
    later("s3backupconfig", &[]),
    later("safe_timestamp", OFF),
    later("timeout", &["0", "300"]),
];

const KUBE_API: &[Key] = service!(
    read("service_cluster_ip_range"),
    read("service_node_port_range"),
    // Files of RKE before 1.6 have it; Kubernetes lost the feature in 1.25.
    later("pod_security_policy", OFF),
    later("pod_security_configuration", &["privileged"]),
    later("always_pull_images", OFF),
    map("secrets_encryption_config", OFF_SWITCH_CUSTOM),
    map("audit_log", AUDIT_LOG),
    later("admission_configuration", &[]),
    map("event_rate_limit", OFF_SWITCH_CONFIGURATION),
);

// RKE's audit log is on by default, and so is ours, with the same settings.
const AUDIT_LOG: &[Key] = &[
    later("enabled", &["true"]),
    map("configuration", AUDIT_CONFIGURATION),
];

const AUDIT_CONFIGURATION: &[Key] = &[
    later("max_age", &["30"]),
    later("max_backup", &["10"]),
    later("max_size", &["100"]),
    later("path", &["/var/log/kube-audit/audit-log.json"]),
    later("format", &["json"]),
    later("policy", &[]),
];

const OFF_SWITCH_CUSTOM: &[Key] = &[later("enabled", OFF), later("custom_config", &[])];
const OFF_SWITCH_CONFIGURATION: &[Key] = &[later("enabled", OFF), later("configuration", &[])];

const KUBE_CONTROLLER: &[Key] = service!(read("cluster_cidr"), read("service_cluster_ip_range"));

const KUBELET: &[Key] = service!(
    read("cluster_domain"),
    later("infra_container_image", &[]),
    read("cluster_dns_server"),
    read("fail_swap_on"),
    // Every kubelet has a serving certificate of its own here: both mean the same.
    later("generate_serving_certificate", &["false", "true"]),
);

const NETWORK: &[Key] = &[
    read("plugin"),
    later("options", &[]),
    later("mtu", ZERO),
    later("node_selector", &[]),
    later("update_strategy", &[]),
    later("tolerations", &[]),
    map(
        "calico_network_provider",
        &[later("cloudprovider", &["none"])],
    ),
    map("canal_network_provider", &[later("iface", &[])]),
    map("flannel_network_provider", &[later("iface", &[])]),
    map("weave_network_provider", &[later("password", &[])]),
    later_map("aci_network_provider", ACI),
];

const AUTHENTICATION: &[Key] = &[
    later("strategy", &["x509"]),
    later("sans", &[]),
    later_map(
        "webhook",
        &[later("config_file", &[]), later("cache_timeout", &["5s"])],
    ),
];

const MONITORING: &[Key] = &[
    read("provider"),
    later("options", &[]),
    later("node_selector", &[]),
    later("update_strategy", &[]),
    later("replicas", &["1"]),
    later("tolerations", &[]),
    later("metrics_server_priority_class_name", &[]),
];

const DNS: &[Key] = &[
    read("provider"),
    later("options", &[]),
    later("upstreamnameservers", &[]),
    later("reversecidrs", &[]),
    later("stubdomains", &[]),
    later("node_selector", &[]),
    later_map("nodelocal", NODE_LOCAL),
    later("update_strategy", &[]),
    later_map("linear_autoscaler_params", LINEAR_AUTOSCALER),
    later("tolerations", &[]),
];

const UPGRADE_STRATEGY: &[Key] = &[
    later("max_unavailable_worker", &["10%"]),
    later("max_unavailable_controlplane", &["1"]),
    later("drain", OFF),
    map("node_drain_input", DRAIN),
];

const DRAIN: &[Key] = &[
    later("force", OFF),
    later("ignore_daemonsets", &["true"]),
    later("delete_local_data", OFF),
    later("grace_period", &["0", "-1"]),
    later("timeout", &["0", "120"]),
];

/// Judges every key of the document.
pub(super) fn walk(root: &Cursor<'_>, found: &mut Vec<Problem>) {
    map_keys(root, ROOT, found);
}

fn map_keys(at: &Cursor<'_>, keys: &[Key], found: &mut Vec<Problem>) {
    match at.value() {
        None => {}
        Some(Value::Map(entries)) => {
            for (index, entry) in entries.iter().enumerate() {
                let first = entries
                    .iter()
                    .take(index)
                    .find(|before| before.key == entry.key);
                if let Some(first) = first {
                    found.push(duplicate(at, entry, first));
                } else if let Some(key) = keys.iter().find(|key| key.name == entry.key) {
                    judge(&at.get(key.name), key, found);
                } else {
                    found.push(unknown(at, entry, keys));
                }
            }
        }
        // `nodes: ""` and the like are empty too.
        Some(Value::Scalar(text)) if text.expose().is_empty() => {}
        Some(other) => found.push(at.problem(format!("must be a mapping, is {}", other.kind()))),
    }
}

fn judge(at: &Cursor<'_>, key: &Key, found: &mut Vec<Problem>) {
    match &key.shape {
        Shape::Read => duplicates_within(at, found),
        Shape::Map(keys) => map_keys(at, keys, found),
        Shape::Each(keys) => match at.value() {
            None => {}
            Some(Value::List(_)) => {
                for item in at.items() {
                    map_keys(&item, keys, found);
                }
            }
            Some(other) => {
                found.push(at.problem(format!("must be a list, is {}", other.kind())));
            }
        },
        Shape::Later(passes) => {
            if !at.passes(passes) {
                found.push(not_supported(at, passes));
            }
        }
        Shape::Never => {
            if at.value().is_some() {
                found.push(not_supported(at, &[]));
            }
        }
        Shape::LaterMap(keys) => {
            let mut inner = Vec::new();
            map_keys(at, keys, &mut inner);
            let unsupported = inner.len();
            inner.retain(|problem| problem.message != NOT_SUPPORTED);
            if inner.len() < unsupported {
                found.push(not_supported(at, &[]));
            }
            found.append(&mut inner);
        }
    }
}

/// Keys that are read but not listed here (labels, flags, images) may still stand twice.
fn duplicates_within(at: &Cursor<'_>, found: &mut Vec<Problem>) {
    if let Some(Value::Map(entries)) = at.value() {
        for (index, entry) in entries.iter().enumerate() {
            if let Some(first) = entries
                .iter()
                .take(index)
                .find(|before| before.key == entry.key)
            {
                found.push(duplicate(at, entry, first));
            }
        }
    }
}

const NOT_SUPPORTED: &str = "not supported yet";

fn not_supported(at: &Cursor<'_>, passes: &[&str]) -> Problem {
    let problem = at.problem(NOT_SUPPORTED);
    let last = problem
        .path
        .rsplit(['.', '['])
        .next()
        .unwrap_or_default()
        .to_owned();
    if let Some(hint) = instead(&problem.path) {
        return problem.hint(hint);
    }
    match passes.first() {
        None => problem.hint(format!("remove `{last}`, or leave it empty")),
        Some(first) => problem.hint(format!("remove `{last}`, or write `{first}`")),
    }
}

/// What works instead, where something does.
fn instead(path: &str) -> Option<&'static str> {
    if path.ends_with(".extra_args_array") {
        Some("write each flag once under `extra_args`")
    } else if path.ends_with(".infra_container_image") {
        Some("write `pod_infra_container` under `system_images`")
    } else if path.ends_with("ssh_agent_auth") {
        Some("name a private key file in `ssh_key_path`")
    } else {
        None
    }
}

fn duplicate(at: &Cursor<'_>, entry: &Entry, first: &Entry) -> Problem {
    let message = match &first.key_place {
        Some(place) => format!("this key is already set in line {}", place.line),
        None => "this key is set twice".to_owned(),
    };
    Problem {
        place: entry.key_place.clone(),
        ..at.get(&entry.key).problem(message)
    }
    .hint("keep one of the two")
}

fn unknown(at: &Cursor<'_>, entry: &Entry, keys: &[Key]) -> Problem {
    let problem = Problem {
        place: entry.key_place.clone(),
        ..at.get(&entry.key).problem("unknown key")
    };
    match owner(&entry.key) {
        Some(place) => problem.hint(format!("`{}` belongs {place}", entry.key)),
        None => match nearest(&entry.key, keys.iter().map(|key| key.name)) {
            Some(name) => problem.hint(format!("did you mean `{name}`?")),
            None => problem,
        },
    }
}

/// The name that was probably meant.
pub(super) fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_', '.'], "");
    let written = plain(written);
    names
        .map(|name| (strsim::damerau_levenshtein(&written, &plain(name)), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Where a key that stands in the wrong place belongs.
fn owner(name: &str) -> Option<&'static str> {
    let has = |keys: &[Key]| keys.iter().any(|key| key.name == name);
    [
        ("at the top level", ROOT),
        ("to a node", NODE),
        ("under `services`", SERVICES),
        ("under `services.kube-api`", KUBE_API),
        ("under `services.kube-controller`", KUBE_CONTROLLER),
        ("under `services.kubelet`", KUBELET),
        ("under `services.etcd`", ETCD),
        ("under `network`", NETWORK),
    ]
    .into_iter()
    .find(|(_, keys)| has(keys))
    .map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tree::Node;

    /// Every key of the schema, with where it stands.
    fn all(keys: &'static [Key], around: &str, out: &mut Vec<(String, &'static Shape)>) {
        for key in keys {
            let path = if around.is_empty() {
                key.name.to_owned()
            } else {
                format!("{around}.{}", key.name)
            };
            match &key.shape {
                Shape::Map(inner) | Shape::LaterMap(inner) => all(inner, &path, out),
                Shape::Each(inner) => all(inner, &format!("{path}[]"), out),
                Shape::Read | Shape::Later(_) | Shape::Never => {}
            }
            out.push((path, &key.shape));
        }
    }

    /// What the walk says about a document with one value in it.
    fn judge_one(path: &str, value: &serde_json::Value) -> Vec<String> {
        let document =
            path.split('.')
                .rev()
                .fold(value.clone(), |inner, key| match key.strip_suffix("[]") {
                    Some(list) => serde_json::json!({ list: [inner] }),
                    None => serde_json::json!({ key: inner }),
                });
        let mut found = Vec::new();
        walk(&Cursor::root(&Node::from_json(&document)), &mut found);
        found.into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn every_key_may_be_empty_or_at_its_default_and_nothing_else() {
        let mut keys = Vec::new();
        all(ROOT, "", &mut keys);
        assert!(keys.len() > 350, "{} keys", keys.len());
        for (path, shape) in keys {
            let empty = judge_one(&path, &serde_json::Value::Null);
            assert_eq!(empty, [""; 0], "{path}: null");
            let other = serde_json::json!("something else");
            match shape {
                Shape::Later(passes) => {
                    for value in *passes {
                        let said = judge_one(&path, &serde_json::json!(value));
                        assert_eq!(said, [""; 0], "{path}: {value}");
                    }
                    for value in [serde_json::json!([]), serde_json::json!({})] {
                        assert_eq!(judge_one(&path, &value), [""; 0], "{path}: {value}");
                    }
                    assert_eq!(judge_one(&path, &other), [NOT_SUPPORTED], "{path}");
                }
                Shape::Never => {
                    assert_eq!(judge_one(&path, &serde_json::json!({})), [NOT_SUPPORTED]);
                }
                Shape::Read => assert_eq!(judge_one(&path, &other), [""; 0], "{path}"),
                Shape::Map(_) | Shape::LaterMap(_) | Shape::Each(_) => {
                    assert_eq!(judge_one(&path, &other).len(), 1, "{path}");
                    let inner = serde_json::json!({"no such key": 1});
                    let said = if matches!(shape, Shape::Each(_)) {
                        judge_one(&format!("{path}[]"), &inner)
                    } else {
                        judge_one(&path, &inner)
                    };
                    assert_eq!(said, ["unknown key"], "{path}");
                }
            }
        }
    }

    #[test]
    fn the_nearest_name_is_close() {
        let names = || ["kube-api", "kube-controller", "role", "user"].into_iter();
        assert_eq!(nearest("kubeApi", names()), Some("kube-api"));
        assert_eq!(nearest("kube_controler", names()), Some("kube-controller"));
        assert_eq!(nearest("rol", names()), Some("role"));
        assert_eq!(nearest("gateway", names()), None);
    }
}
