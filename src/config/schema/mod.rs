//! RKE's schema, all of it: which keys there are, which of them are read, and with which values
//! the others may stand in a file. Pure data; `judge` walks a document.
//!
//! A key that is not read yet passes when it is empty or has the value that RKE's default gives
//! (as `rke config` writes it); anything else is "not supported yet". A key that RKE does not have
//! is an error. So nothing is ignored in silence.

mod key;
mod later;

pub(super) use key::{Key, Shape};
use key::{OFF, ZERO, later, later_map, map, read};
use later::{ACI, BASTION, CLOUD_PROVIDER, INGRESS, LINEAR_AUTOSCALER, NODE_LOCAL};

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

pub(super) const NODE: &[Key] = &[
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

pub(super) const SERVICES: &[Key] = &[
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

pub(super) const ETCD: &[Key] = service!(
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

pub(super) const KUBE_API: &[Key] = service!(
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

pub(super) const KUBE_CONTROLLER: &[Key] =
    service!(read("cluster_cidr"), read("service_cluster_ip_range"));

pub(super) const KUBELET: &[Key] = service!(
    read("cluster_domain"),
    later("infra_container_image", &[]),
    read("cluster_dns_server"),
    read("fail_swap_on"),
    // Every kubelet has a serving certificate of its own here: both mean the same.
    later("generate_serving_certificate", &["false", "true"]),
);

pub(super) const NETWORK: &[Key] = &[
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
