//! The add-ons: `monitoring`, `dns`. Pure data.

use super::key::{Key, any, each, flag, list, map, number, section, text};

/// `monitoring`.
pub(super) const MONITORING: &[Key] = &[
    text("provider", "`metrics-server`, or `none` to bring your own.")
        .words(&["metrics-server", "none"])
        .default("metrics-server")
        .used(),
    map(
        "options",
        "Flags of the metrics server without dashes; they take precedence over those of rke-operator.",
    )
    .used(),
    map("node_selector", "Node selector of its pods.").used(),
    any("update_strategy", "Update strategy of its pods.").used(),
    number("replicas", "Number of pods.").default("1").used(),
    each("tolerations", "Tolerations of its pods.", TOLERATION)
        .most(32)
        .used(),
    text(
        "metrics_server_priority_class_name",
        "Priority class of its pods; `system-cluster-critical` when empty.",
    )
    .used(),
];

/// The effects of a taint.
pub(in crate::config) const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A toleration. RKE reads its keys in small letters.
pub(super) const TOLERATION: &[Key] = &[
    text("key", "The taint's key; every taint when empty.").used(),
    text("operator", "`Exists` or `Equal`; `Equal` when empty.")
        .words(&["Exists", "Equal"])
        .used(),
    text("value", "The taint's value.").used(),
    text(
        "effect",
        "`NoSchedule`, `PreferNoSchedule` or `NoExecute`; each of them when empty.",
    )
    .words(EFFECTS)
    .used(),
    number(
        "tolerationSeconds",
        "Seconds until the pod is evicted, with `NoExecute`.",
    )
    .used(),
    number(
        "tolerationseconds",
        "`tolerationSeconds`, as RKE writes it.",
    )
    .used(),
];

/// `dns`.
pub(super) const DNS: &[Key] = &[
    text(
        "provider",
        "`coredns`, or `none` to bring your own. `kube-dns` is refused: CoreDNS has replaced it in Kubernetes since 1.13.",
    )
    .words(&["coredns", "none"])
    .default("coredns")
    .used(),
    section("options", "Settings of the DNS server.", DNS_OPTIONS),
    list(
        "upstreamnameservers",
        "Name servers for names outside of the cluster; those of the node when empty.",
    )
    .used(),
    list(
        "reversecidrs",
        "Address ranges for which the cluster answers reverse lookups; all of them when empty.",
    )
    .used(),
    any(
        "stubdomains",
        "Name servers for specific domains. RKE supports them for kube-dns only.",
    )
    .used(),
    map("node_selector", "Node selector of its pods.").used(),
    section("nodelocal", "A DNS cache on each node.", NODELOCAL),
    any("update_strategy", "Update strategy of its pods.").used(),
    section(
        "linear_autoscaler_params",
        "Number of pods for the size of the cluster. Each `up` computes it; there is no autoscaler pod.",
        LINEAR,
    ),
    each("tolerations", "Tolerations of its pods.", TOLERATION).most(32).used(),
];

const DNS_OPTIONS: &[Key] = &[
    text(
        "coredns_priority_class_name",
        "Priority class of its pods; `system-cluster-critical` when empty.",
    )
    .used(),
    text(
        "coredns_autoscaler_priority_class_name",
        "Priority class of the autoscaler's pod.",
    )
    .same("there is no autoscaler pod"),
    text(
        "kube_dns_priority_class_name",
        "Priority class of kube-dns' pods.",
    )
    .same("kube-dns is not supported"),
    text(
        "kube_dns_autoscaler_priority_class_name",
        "Priority class of its autoscaler's pod.",
    )
    .same("kube-dns is not supported"),
    text(
        "nodelocal_priority_class_name",
        "Only in RKE's documentation; no release of RKE reads it.",
    )
    .ignored("write `node_local_dns_priority_class_name` under `dns.nodelocal`: RKE does not read this name either"),
    text(
        "nodelocal_autoscaler_priority_class_name",
        "Only in RKE's documentation; no release of RKE reads it.",
    )
    .ignored("remove it: RKE does not read it either"),
];

const NODELOCAL: &[Key] = &[
    text(
        "ip_address",
        "The address that it listens on, such as `169.254.20.10`: kubelet sets it as the name server of pods. Without an address there is no cache.",
    )
    .used(),
    any("update_strategy", "Update strategy of its pods.").used(),
    map("node_selector", "Node selector of its pods.").used(),
    text(
        "node_local_dns_priority_class_name",
        "Priority class of its pods; `system-node-critical` when empty.",
    )
    .used(),
];

/// A number that may have a part after a point.
const FRACTION: &str = r"^[0-9]*(\.[0-9]*)?$";

const LINEAR: &[Key] = &[
    number("cores_per_replica", "CPU cores of workers for each pod.")
        .default("128")
        .also(&["0"])
        .pattern(FRACTION)
        .used(),
    number("nodes_per_replica", "Workers for each pod.")
        .default("4")
        .also(&["0"])
        .pattern(FRACTION)
        .used(),
    number("min", "Minimum number of pods.")
        .default("1")
        .also(&["0"])
        .used(),
    number("max", "Maximum number of pods; no maximum when 0.")
        .default("0")
        .used(),
    flag(
        "prevent_single_point_failure",
        "Run at least two pods if there are two workers or more.",
    )
    .default("true")
    .used(),
];
