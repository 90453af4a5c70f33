//! A key that the schema calls used has an effect: it changes the intent or the warnings.

use std::collections::BTreeSet;

use super::{
    Resolved,
    tests::{pem, resolve},
};
use crate::config::schema::{Answer, Below, Key, Kind, ROOT};

/// Every used key, with a value.
const DOCUMENT: &str = "\
cluster_name: one
kubernetes_version: v1.34.4
ssh_key_path: cluster
bastion_host: {address: 203.0.113.1, port: 22, user: u, ssh_key_path: bastion, through: [{address: 203.0.113.3, port: 22, user: u, ssh_key: '', ssh_key_path: bastion, ssh_agent_auth: false}]}
system_images: {etcd: 'registry.example.com/etcd:1'}
private_registries: [{url: a.example.com, is_default: false, user: a, password: b, ca: '-----BEGIN CERTIFICATE-----'}, {url: b.example.com, ca_path: a.pem}]
nodes:
  - address: 192.0.2.10
    port: 22
    internal_address: 10.0.0.1
    role: [controlplane, etcd, worker]
    hostname_override: node-1
    user: ubuntu
    docker_socket: /var/run/docker.sock
    labels: {a: b}
    taints: [{key: a, value: b, effect: NoSchedule}]
  - {address: 192.0.2.11, user: u, role: [worker], ssh_key_path: node}
  - {address: 192.0.2.12, user: u, role: [worker], ssh_key: PEM}
services:
  etcd: {extra_args: {v: 1}, extra_binds: ['/a:/b'], extra_env: [A=b]}
  kube-api:
    extra_args: {v: 1}
    extra_binds: ['/a:/b']
    extra_env: [A=b]
    service_cluster_ip_range: 10.43.0.0/16
    service_node_port_range: 30000-32767
    audit_log: {enabled: true, configuration: {max_age: 30}}
    event_rate_limit: {enabled: true}
  kube-controller:
    extra_args: {v: 1}
    extra_binds: ['/a:/b']
    extra_env: [A=b]
    cluster_cidr: 10.42.0.0/16
  scheduler: {extra_args: {v: 1}, extra_binds: ['/a:/b'], extra_env: [A=b]}
  kubelet:
    extra_args: {v: 1}
    extra_binds: ['/a:/a']
    extra_env: [A=b]
    cluster_domain: cluster.local
    cluster_dns_server: 10.43.0.10
    fail_swap_on: false
  kubeproxy: {extra_args: {v: 1}, extra_binds: ['/a:/b'], extra_env: [A=b]}
authentication: {sans: [a.example.com]}
cloud_provider: {name: external}
network: {plugin: calico, tolerations: [{key: a, operator: Equal, value: b, effect: NoSchedule}, {key: a, effect: NoExecute, tolerationSeconds: 1}, {key: a, effect: NoExecute, tolerationseconds: 1}]}
dns:
  provider: coredns
  nodelocal: {ip_address: 169.254.20.11}
  tolerations: [{key: a, operator: Equal, value: b, effect: NoSchedule}, {key: a, effect: NoExecute, tolerationSeconds: 1}, {key: a, effect: NoExecute, tolerationseconds: 1}]
ingress: {provider: nginx, tolerations: [{key: a, operator: Equal, value: b, effect: NoSchedule}, {key: a, effect: NoExecute, tolerationSeconds: 1}, {key: a, effect: NoExecute, tolerationseconds: 1}]}
monitoring: {tolerations: [{key: a, operator: Equal, value: b, effect: NoSchedule}, {key: a, effect: NoExecute, tolerationSeconds: 1}, {key: a, effect: NoExecute, tolerationseconds: 1}]}
upgrade_strategy:
  max_unavailable_worker: 10%
  max_unavailable_controlplane: 1
  drain: true
  node_drain_input:
    force: false
    ignore_daemonsets: true
    delete_local_data: false
    grace_period: 30
    timeout: 60
";

/// The key, and another value. The first part says in which of several places.
const CHANGES: &[(&str, &str)] = &[
    ("services.etcd.snapshot", "false"),
    ("services.etcd.creation", "6h"),
    ("services.etcd.retention", "24h"),
    ("services.etcd.backup_config.enabled", "false"),
    ("services.etcd.backup_config.interval_hours", "6"),
    ("services.etcd.backup_config.retention", "3"),
    ("services.etcd.backup_config.timeout", "60"),
    ("services.etcd.backup_config.safe_timestamp", "true"),
    ("cluster_name", "two"),
    (
        "addons",
        "'{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}'",
    ),
    ("addons_include", "[a.yaml]"),
    ("private_registries[].url", "c.example.com"),
    ("private_registries[].user", "c"),
    ("private_registries[].password", "c"),
    ("private_registries[].is_default", "true"),
    (
        "private_registries[].ca",
        "'-----BEGIN CERTIFICATE----- other'",
    ),
    ("private_registries[].ca_path", "b.pem"),
    ("kubernetes_version", "v1.34.3"),
    ("ssh_key_path", "other"),
    ("system_images", "{etcd: 'registry.example.com/etcd:2'}"),
    // `Files` has no agent, and a warning reports that.
    ("ssh_agent_auth", "true"),
    ("bastion_host.ssh_agent_auth", "true"),
    ("bastion_host.address", "203.0.113.2"),
    ("bastion_host.port", "2222"),
    ("bastion_host.user", "root"),
    ("bastion_host.ssh_key", "PEM"),
    ("bastion_host.ssh_key_path", "other"),
    ("bastion_host.through[].ssh_agent_auth", "true"),
    ("bastion_host.through[].address", "203.0.113.2"),
    ("bastion_host.through[].port", "2222"),
    ("bastion_host.through[].user", "root"),
    ("bastion_host.through[].ssh_key", "PEM"),
    ("bastion_host.through[].ssh_key_path", "other"),
    ("nodes[].address", "192.0.2.20"),
    ("nodes[].port", "2222"),
    ("nodes[].internal_address", "10.0.0.2"),
    ("nodes[].role", "[controlplane, etcd]"),
    ("nodes[].hostname_override", "node-2"),
    ("nodes[].user", "root"),
    ("nodes[].docker_socket", "/run/docker.sock"),
    ("nodes[].ssh_key", "PEM"),
    ("nodes[].ssh_key_path", "other"),
    ("nodes[].labels", "{a: c}"),
    ("nodes[].taints[].key", "b"),
    ("nodes[].taints[].value", "c"),
    ("nodes[].taints[].effect", "NoExecute"),
    ("services.etcd.uid", "52034"),
    ("services.etcd.gid", "52034"),
    ("services.kube-api.service_cluster_ip_range", "10.43.0.0/17"),
    ("services.kube-api.service_node_port_range", "30000-30100"),
    ("services.kube-api.always_pull_images", "true"),
    ("services.kube-api.pod_security_configuration", "restricted"),
    ("services.kube-api.audit_log.enabled", "false"),
    ("services.kube-api.audit_log.configuration.max_age", "7"),
    ("services.kube-api.audit_log.configuration.max_backup", "7"),
    ("services.kube-api.audit_log.configuration.max_size", "7"),
    ("services.kube-api.audit_log.configuration.format", "legacy"),
    (
        "services.kube-api.audit_log.configuration.policy",
        "{rules: [{level: Request}]}",
    ),
    ("services.kube-api.event_rate_limit.enabled", "false"),
    (
        "services.kube-api.event_rate_limit.configuration",
        "{limits: [{type: Server, qps: 1, burst: 1}]}",
    ),
    (
        "services.kube-api.admission_configuration",
        "{plugins: [{name: PodSecurity, configuration: {defaults: {enforce: baseline}}}]}",
    ),
    (
        "services.kube-api.secrets_encryption_config.enabled",
        "true",
    ),
    (
        "services.kube-api.secrets_encryption_config.custom_config",
        "{resources: [{resources: [secrets], providers: [{identity: {}}]}]}",
    ),
    ("authentication.sans", "[b.example.com]"),
    ("authentication.strategy", "x509|Webhook"),
    (
        "authentication.webhook.config_file",
        "{clusters: [{cluster: {server: 'https://192.0.2.1'}}]}",
    ),
    ("authentication.webhook.cache_timeout", "10s"),
    ("authorization.mode", "none"),
    ("cloud_provider.name", "null"),
    (
        "cloud_provider.harvesterCloudProvider.cloud_config",
        "config",
    ),
    ("cloud_provider.customCloudProvider", "config"),
    ("services.kube-controller.cluster_cidr", "10.42.0.0/17"),
    (
        "services.kube-controller.service_cluster_ip_range",
        "10.43.0.0/17",
    ),
    ("services.kubelet.cluster_domain", "example.com"),
    ("services.kubelet.cluster_dns_server", "10.43.0.11"),
    ("services.kubelet.fail_swap_on", "true"),
    ("network.plugin", "none"),
    // Of another plugin: a warning says so.
    ("network.options.flannel_iface", "eth1"),
    ("network.options.flannel_backend_type", "host-gw"),
    ("network.options.flannel_backend_port", "8473"),
    ("network.options.flannel_backend_vni", "2"),
    ("network.options.kube_flannel_priority_class_name", "low"),
    ("network.options.canal_iface", "eth1"),
    ("network.options.canal_flannel_backend_type", "host-gw"),
    ("network.options.canal_flannel_backend_port", "8473"),
    ("network.options.canal_flannel_backend_vni", "2"),
    (
        "network.options.canal_flex_volume_plugin_dir",
        "/a/nodeagent~uds",
    ),
    ("network.flannel_network_provider.iface", "eth1"),
    ("network.canal_network_provider.iface", "eth1"),
    (
        "network.options.calico_flex_volume_plugin_dir",
        "/a/nodeagent~uds",
    ),
    ("network.mtu", "1400"),
    ("network.node_selector", "{a: b}"),
    ("network.update_strategy", "{strategy: OnDelete}"),
    ("network.values", "{a: b}"),
    ("network.tolerations[].key", "c"),
    ("network.tolerations[].operator", "null"),
    ("network.tolerations[].value", "c"),
    ("network.tolerations[].effect", "PreferNoSchedule"),
    ("network.tolerations[].tolerationSeconds", "2"),
    ("network.tolerations[].tolerationseconds", "2"),
    ("ingress.provider", "none"),
    ("ingress.options", "{use-http2: 'false'}"),
    ("ingress.node_selector", "{a: b}"),
    ("ingress.extra_args", "{enable-ssl-passthrough: ''}"),
    ("ingress.dns_policy", "Default"),
    ("ingress.extra_envs", "[{name: A, value: b}]"),
    ("ingress.extra_volumes", "[{name: a, emptyDir: {}}]"),
    ("ingress.extra_volume_mounts", "[{name: a, mountPath: /a}]"),
    ("ingress.update_strategy", "{strategy: OnDelete}"),
    ("ingress.http_port", "8080"),
    ("ingress.https_port", "8443"),
    ("ingress.network_mode", "none"),
    ("ingress.tolerations[].key", "c"),
    ("ingress.tolerations[].operator", "null"),
    ("ingress.tolerations[].value", "c"),
    ("ingress.tolerations[].effect", "PreferNoSchedule"),
    ("ingress.tolerations[].tolerationSeconds", "2"),
    ("ingress.tolerations[].tolerationseconds", "2"),
    ("ingress.default_backend", "true"),
    ("ingress.default_http_backend_priority_class_name", "low"),
    (
        "ingress.nginx_ingress_controller_priority_class_name",
        "low",
    ),
    ("ingress.default_ingress_class", "false"),
    ("ingress.values", "{a: b}"),
    ("dns.provider", "none"),
    ("dns.options.coredns_priority_class_name", "low"),
    ("dns.upstreamnameservers", "[192.0.2.53]"),
    ("dns.reversecidrs", "[10.0.0.0/8]"),
    ("dns.stubdomains", "{example.com: [192.0.2.53]}"),
    ("dns.node_selector", "{a: b}"),
    ("dns.nodelocal.ip_address", "169.254.20.10"),
    ("dns.nodelocal.update_strategy", "{strategy: OnDelete}"),
    ("dns.nodelocal.node_selector", "{a: b}"),
    ("dns.nodelocal.node_local_dns_priority_class_name", "low"),
    ("dns.update_strategy", "{strategy: Recreate}"),
    ("dns.linear_autoscaler_params.cores_per_replica", "1"),
    ("dns.linear_autoscaler_params.nodes_per_replica", "0.5"),
    ("dns.linear_autoscaler_params.min", "2"),
    ("dns.linear_autoscaler_params.max", "3"),
    (
        "dns.linear_autoscaler_params.prevent_single_point_failure",
        "false",
    ),
    ("dns.tolerations[].key", "c"),
    ("dns.tolerations[].operator", "null"),
    ("dns.tolerations[].value", "c"),
    ("dns.tolerations[].effect", "PreferNoSchedule"),
    ("dns.tolerations[].tolerationSeconds", "2"),
    ("dns.tolerations[].tolerationseconds", "2"),
    ("monitoring.provider", "none"),
    ("monitoring.options", "{v: 2}"),
    ("monitoring.node_selector", "{a: b}"),
    ("monitoring.replicas", "2"),
    ("monitoring.update_strategy", "{strategy: Recreate}"),
    ("monitoring.tolerations[].key", "c"),
    ("monitoring.tolerations[].operator", "null"),
    ("monitoring.tolerations[].value", "c"),
    ("monitoring.tolerations[].effect", "PreferNoSchedule"),
    ("monitoring.tolerations[].tolerationSeconds", "2"),
    ("monitoring.tolerations[].tolerationseconds", "2"),
    ("monitoring.metrics_server_priority_class_name", "low"),
    ("upgrade_strategy.max_unavailable_worker", "2"),
    ("upgrade_strategy.max_unavailable_controlplane", "50%"),
    ("upgrade_strategy.drain", "false"),
    ("upgrade_strategy.node_drain_input.force", "true"),
    (
        "upgrade_strategy.node_drain_input.ignore_daemonsets",
        "false",
    ),
    (
        "upgrade_strategy.node_drain_input.delete_local_data",
        "true",
    ),
    ("upgrade_strategy.node_drain_input.grace_period", "0"),
    ("upgrade_strategy.node_drain_input.timeout", "0"),
];

/// A certificate is its key's: `ways_tests` has both.
const OF_A_KEY: &[&str] = &[
    "ssh_cert_path",
    "nodes[].ssh_cert",
    "nodes[].ssh_cert_path",
    "bastion_host.ssh_cert",
    "bastion_host.ssh_cert_path",
    "bastion_host.through[].ssh_cert",
    "bastion_host.through[].ssh_cert_path",
];

/// They need each other, and change what `creation` means: tried in the tests of `bucket`.
const OF_A_BUCKET: &[&str] = &[
    "services.etcd.backup_config.s3backupconfig.access_key",
    "services.etcd.backup_config.s3backupconfig.secret_key",
    "services.etcd.backup_config.s3backupconfig.bucket_name",
    "services.etcd.backup_config.s3backupconfig.region",
    "services.etcd.backup_config.s3backupconfig.endpoint",
    "services.etcd.backup_config.s3backupconfig.custom_ca",
    "services.etcd.backup_config.s3backupconfig.folder",
];

/// They need an etcd outside of the cluster, and no node with the role: tried in the tests of `etcd`.
const OF_EXTERNAL_ETCD: &[&str] = &[
    "services.etcd.external_urls",
    "services.etcd.ca_cert",
    "services.etcd.cert",
    "services.etcd.key",
    "services.etcd.path",
];

/// What every service has.
const OF_SERVICES: &[(&str, &str)] = &[
    ("extra_args", "{v: 2}"),
    ("extra_args_array", "{v: [2, 3]}"),
    ("extra_binds", "['/c:/c']"),
    ("extra_env", "[A=c]"),
];

fn used(keys: &[Key], around: &str, out: &mut BTreeSet<String>) {
    for key in keys.iter().filter(|key| key.answer == Answer::Used) {
        let path = if around.is_empty() {
            key.name.to_owned()
        } else {
            format!("{around}.{}", key.name)
        };
        match key.kind.below() {
            Below::Section(below) => used(below, &path, out),
            Below::Each(below) => used(below, &format!("{path}[]"), out),
            Below::Nothing => {
                out.insert(path);
            }
        }
    }
}

/// Sets a value, in the first item of a list that has the key.
fn set(at: &mut serde_json::Value, path: &str, value: &serde_json::Value) {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    if rest.is_empty() {
        at[first] = value.clone();
        return;
    }
    match first.strip_suffix("[]") {
        None => set(&mut at[first], rest, value),
        Some(list) => {
            let items = at[list].as_array_mut().expect("a list");
            let name = rest.split(['.', '[']).next().unwrap_or(rest);
            let item = items.iter_mut().find(|item| item.get(name).is_some());
            set(item.expect("an item with the key"), rest, value);
        }
    }
}

fn changed(document: &serde_json::Value, path: &str, value: &str) -> Resolved {
    let value: serde_json::Value = serde_saphyr::from_str(value).expect("a value");
    let mut document = document.clone();
    set(&mut document, path, &value);
    if path == "services.kube-api.service_cluster_ip_range" {
        // It stands in two places, which must agree.
        set(
            &mut document,
            "services.kube-controller.service_cluster_ip_range",
            &serde_json::Value::Null,
        );
    } else if path == "dns.provider" {
        // The cache asks the cluster's own server.
        set(&mut document, "dns.nodelocal", &serde_json::Value::Null);
    } else if path == "services.kube-controller.service_cluster_ip_range" {
        set(
            &mut document,
            "services.kube-api.service_cluster_ip_range",
            &serde_json::Value::Null,
        );
    }
    let text = document
        .to_string()
        .replace("\"PEM\"", &serde_json::json!(pem()).to_string());
    match resolve(&text) {
        Ok(resolved) => resolved,
        Err(problems) => panic!("{path}: {}", problems.render("cluster.yml", &text, false)),
    }
}

#[test]
fn every_used_key_has_an_effect() {
    let document: serde_json::Value = serde_saphyr::from_str(DOCUMENT).expect("a document");
    let mut missing = BTreeSet::new();
    used(ROOT, "", &mut missing);
    missing.retain(|path| {
        ![OF_A_KEY, OF_A_BUCKET, OF_EXTERNAL_ETCD]
            .concat()
            .contains(&path.as_str())
    });
    let services = [
        "etcd",
        "kube-api",
        "kube-controller",
        "scheduler",
        "kubelet",
        "kubeproxy",
    ];
    let of_services = services.iter().flat_map(|service| {
        let row = move |(key, value): &(&str, &'static str)| {
            (format!("services.{service}.{key}"), *value)
        };
        OF_SERVICES.iter().map(row)
    });
    let changes = CHANGES
        .iter()
        .map(|(path, value)| ((*path).to_owned(), *value));
    // One key for all documents that are compared: `pem` generates a new key pair at each call.
    let fixed = pem();
    let document_text = document
        .to_string()
        .replace("\"PEM\"", &serde_json::json!(fixed).to_string());
    let document: serde_json::Value = serde_json::from_str(&document_text).expect("a document");
    for (path, value) in changes.chain(of_services) {
        let before = changed(&document, "cluster_name", "one");
        let after = changed(&document, &path, value);
        let same = {
            let (mut before, after) = (before.intent.clone(), after.intent.clone());
            // `Files` gives every path the same key, which is generated again for each document.
            for (before, after) in before.nodes.values_mut().zip(after.nodes.values()) {
                let bastions = before.bastions.iter_mut().zip(&after.bastions);
                let bastions = bastions.map(|(before, after)| (&mut before.login, &after.login));
                let login = [(&mut before.login, &after.login)].into_iter();
                for (before, after) in login.chain(bastions) {
                    if before.key_source == after.key_source && after.key_source != "ssh_key" {
                        before.credential = after.credential.clone();
                    }
                }
            }
            before == after
        };
        assert!(
            !same || before.warnings != after.warnings,
            "`{path}` is called used, and a change of it to {value} has no effect"
        );
        missing.remove(&path);
    }
    assert_eq!(
        missing,
        BTreeSet::new(),
        "used keys that are not tried here"
    );
}

/// Keys with a few words for values: their path, whether they are lists, and the words.
fn worded(keys: &[Key], around: &str, out: &mut Vec<(String, bool, &'static [&'static str])>) {
    for key in keys {
        let path = format!("{around}{}", key.name);
        match key.kind.below() {
            Below::Section(below) => worded(below, &format!("{path}."), out),
            Below::Each(below) => worded(below, &format!("{path}[]."), out),
            Below::Nothing if key.words.is_empty() => {}
            Below::Nothing => out.push((path, matches!(key.kind, Kind::List), key.words)),
        }
    }
}

/// A document of one node in which this stands. Items of other lists have a `key`.
fn alone(path: &str, value: &serde_json::Value) -> String {
    let (path, in_node) = match path.strip_prefix("nodes[].") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let below = path.rsplit('.').fold(value.clone(), |below, name| {
        let named = |name: &str, below| serde_json::json!({ name: below });
        match name.strip_suffix("[]") {
            Some(name) => {
                let mut item = below;
                // Of taints and tolerations.
                let is_known = ["private_registries", "through"].contains(&name);
                if !is_known && item.get("key").is_none() {
                    item["key"] = "a".into();
                }
                named(name, serde_json::json!([item]))
            }
            None => named(name, below),
        }
    });
    let mut node = serde_json::json!({"address": "192.0.2.10", "user": "u"});
    let mut document = serde_json::json!({});
    let into = if in_node { &mut node } else { &mut document };
    into.as_object_mut()
        .expect("a mapping")
        .extend(below.as_object().expect("a mapping").clone());
    document["nodes"] = serde_json::json!([node]);
    document.to_string()
}

/// Used keys with a default: their path, and it.
fn defaulted(keys: &[Key], around: &str, out: &mut Vec<(String, Vec<&'static str>)>) {
    for key in keys.iter().filter(|key| key.answer == Answer::Used) {
        let path = format!("{around}{}", key.name);
        match key.kind.below() {
            Below::Section(below) => defaulted(below, &format!("{path}."), out),
            Below::Each(below) => defaulted(below, &format!("{path}[]."), out),
            Below::Nothing if key.default.is_empty() => {}
            Below::Nothing => {
                let values = key.also.iter().chain([&key.default]).copied();
                out.push((path, values.collect()));
            }
        }
    }
}

/// What the reference, the schema for editors and `config --explain` call the default is what is taken.
#[test]
fn the_default_that_is_written_is_the_default_that_is_not() {
    let mut all = Vec::new();
    defaulted(ROOT, "", &mut all);
    assert!(all.len() > 55, "{}", all.len());
    for (path, values) in all {
        let read = |value: &serde_json::Value| {
            let text = alone(&path, value);
            let mut intent = match resolve(&text) {
                Ok(resolved) => resolved.intent,
                Err(problems) => panic!("{path}: {}", problems.render("cluster.yml", &text, false)),
            };
            // Each document has a different key.
            for node in intent.nodes.values_mut() {
                node.login.credential = crate::config::Credential::Key(String::new().into(), None);
            }
            intent
        };
        let without = read(&serde_json::Value::Null);
        for value in values {
            assert_eq!(read(&value.into()), without, "{path}: {value}");
        }
    }
}

/// Used keys of one value or of several, with what cannot be meant.
fn typed(keys: &[Key], around: &str, out: &mut Vec<(String, Kind)>) {
    for key in keys.iter().filter(|key| key.answer == Answer::Used) {
        let path = format!("{around}{}", key.name);
        match key.kind.below() {
            Below::Section(below) => typed(below, &format!("{path}."), out),
            Below::Each(below) => typed(below, &format!("{path}[]."), out),
            Below::Nothing => out.push((path, key.kind)),
        }
    }
}

/// Also in a document where the key may have no effect, a value of the wrong type is reported.
#[test]
fn no_value_of_another_type_is_taken_in_silence() {
    let mut all = Vec::new();
    typed(ROOT, "", &mut all);
    let mut silent = Vec::new();
    for (path, kind) in all {
        let wrong = match kind {
            Kind::Text | Kind::Duration => {
                vec![serde_json::json!(["a"]), serde_json::json!({"a": "b"})]
            }
            Kind::Bool => vec!["maybe".into(), serde_json::json!(["a"]), 1.into()],
            Kind::Number => vec!["x".into(), serde_json::json!(["a"])],
            Kind::List => vec!["a b".into(), serde_json::json!({"a": "b"})],
            Kind::Map => vec!["a b".into(), serde_json::json!(["a"])],
            Kind::Any | Kind::Section(_) | Kind::Each(_) => continue,
        };
        for value in wrong {
            let said = match resolve(&alone(&path, &value)) {
                Ok(resolved) => resolved.warnings.iter().map(ToString::to_string).collect(),
                Err(problems) => vec![problems.to_string()],
            };
            let name = path.rsplit(['.', ']']).next().unwrap_or(&path);
            if !said.iter().any(|said| said.contains(name)) {
                silent.push(format!("{path}: {value}"));
            }
        }
    }
    // Without an `address` there is no bastion.
    insta::assert_snapshot!(silent.join("\n"), @r#"
    bastion_host.port: "x"
    bastion_host.through[].port: "x"
    "#);
}

/// What editors offer and what they mark is what is taken and what is not.
#[test]
fn the_words_of_a_key_are_those_that_are_taken() {
    let mut all = Vec::new();
    worded(ROOT, "", &mut all);
    assert!(all.len() > 15, "{all:?}");
    for (path, is_list, words) in all {
        let value = |words: &[&str]| {
            if is_list {
                serde_json::json!(words)
            } else {
                serde_json::json!(words[0])
            }
        };
        for words in words.chunks(if is_list { words.len() } else { 1 }) {
            let text = alone(&path, &value(words));
            if let Err(problems) = resolve(&text) {
                panic!("{path}: {}", problems.render("cluster.yml", &text, false));
            }
        }
        for word in ["nonsense", &words[0].to_ascii_uppercase()] {
            let text = alone(&path, &value(&[word]));
            assert!(resolve(&text).is_err(), "{path}: {word}");
        }
    }
}
