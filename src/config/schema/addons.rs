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
        "Flags of the metrics server without dashes; they win over ours.",
    )
    .used(),
    map("node_selector", "Where its pods run.").used(),
    any("update_strategy", "How its pods are replaced.").used(),
    number("replicas", "How many pods.").default("1").used(),
    each("tolerations", "Tolerations of its pods.", TOLERATION)
        .most(32)
        .used(),
    text(
        "metrics_server_priority_class_name",
        "The priority of its pods; `system-cluster-critical` when empty.",
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
    number("tolerationSeconds", "How long, with `NoExecute`.").used(),
    number("tolerationseconds", "The same, as RKE writes it.").used(),
];

/// `dns`.
pub(super) const DNS: &[Key] = &[
    text(
        "provider",
        "`coredns`, or `none` to bring your own. `kube-dns` is refused: Kubernetes left it in 1.13.",
    )
    .words(&["coredns", "none"])
    .default("coredns")
    .used(),
    section("options", "Settings of the DNS server.", DNS_OPTIONS),
    list(
        "upstreamnameservers",
        "Where names outside of the cluster are asked for; the node's own name servers when empty.",
    )
    .used(),
    list(
        "reversecidrs",
        "Ranges whose addresses are looked up in the cluster; all of them when empty.",
    )
    .used(),
    any(
        "stubdomains",
        "Name servers for single domains. RKE takes them for kube-dns only.",
    )
    .used(),
    map("node_selector", "Where its pods run.").used(),
    section("nodelocal", "A cache of names on each node.", NODELOCAL),
    any("update_strategy", "How its pods are replaced.").used(),
    section(
        "linear_autoscaler_params",
        "How many pods for how many nodes. It is worked out at each `up`; there is no autoscaler pod.",
        LINEAR,
    ),
    each("tolerations", "Tolerations of its pods.", TOLERATION).most(32).used(),
];

const DNS_OPTIONS: &[Key] = &[
    text(
        "coredns_priority_class_name",
        "The priority of its pods; `system-cluster-critical` when empty.",
    )
    .used(),
    text(
        "coredns_autoscaler_priority_class_name",
        "The priority of the autoscaler's pod.",
    )
    .same("there is no autoscaler pod"),
    text(
        "kube_dns_priority_class_name",
        "The priority of kube-dns' pods.",
    )
    .same("kube-dns is not run"),
    text(
        "kube_dns_autoscaler_priority_class_name",
        "The priority of its autoscaler's pod.",
    )
    .same("kube-dns is not run"),
    text(
        "nodelocal_priority_class_name",
        "Of RKE's documentation; no release of RKE reads it.",
    )
    .ignored("write `node_local_dns_priority_class_name` under `dns.nodelocal`: RKE does not read this name either"),
    text(
        "nodelocal_autoscaler_priority_class_name",
        "Of RKE's documentation; no release of RKE reads it.",
    )
    .ignored("remove it: RKE does not read it either"),
];

const NODELOCAL: &[Key] = &[
    text(
        "ip_address",
        "Where it listens, e.g. `169.254.20.10`: kubelet tells pods to ask there. Without it there is no cache.",
    )
    .used(),
    any("update_strategy", "How its pods are replaced.").used(),
    map("node_selector", "Which nodes have one.").used(),
    text(
        "node_local_dns_priority_class_name",
        "The priority of its pods; `system-node-critical` when empty.",
    )
    .used(),
];

/// A number that may have a part after a point.
const FRACTION: &str = r"^[0-9]*(\.[0-9]*)?$";

const LINEAR: &[Key] = &[
    number("cores_per_replica", "Cores of workers for each pod.")
        .default("128")
        .also(&["0"])
        .pattern(FRACTION)
        .used(),
    number("nodes_per_replica", "Workers for each pod.")
        .default("4")
        .also(&["0"])
        .pattern(FRACTION)
        .used(),
    number("min", "At least so many.")
        .default("1")
        .also(&["0"])
        .used(),
    number("max", "At most so many; any number when 0.")
        .default("0")
        .used(),
    flag(
        "prevent_single_point_failure",
        "Two pods as soon as there are two workers.",
    )
    .default("true")
    .used(),
];
