//! The add-ons: `ingress`, `monitoring`, `dns`. Pure data.

use super::key::{Key, any, each, flag, later_section, list, map, number, text};

/// `ingress`: only `provider: none` works so far.
pub(super) const INGRESS: &[Key] = &[
    text(
        "provider",
        "`none`; RKE's default `nginx` is not supported yet.",
    )
    .default("nginx")
    .only("none"),
    map("options", "Settings of nginx."),
    map("node_selector", "Where its pods run."),
    map("extra_args", "Flags of the controller."),
    text("dns_policy", "How its pods look up names.").default("ClusterFirst"),
    any("extra_envs", "More variables.").secret(),
    any("extra_volumes", "More volumes."),
    any("extra_volume_mounts", "More mounts."),
    any("update_strategy", "How its pods are replaced."),
    number("http_port", "The port of HTTP.")
        .default("80")
        .also(&["0"]),
    number("https_port", "The port of HTTPS.")
        .default("443")
        .also(&["0"]),
    text("network_mode", "How its ports are reached.").default("hostPort"),
    any("tolerations", "Tolerations of its pods."),
    flag(
        "default_backend",
        "A server for requests that no Ingress matches.",
    ),
    text(
        "default_http_backend_priority_class_name",
        "The priority of that server's pod.",
    ),
    text(
        "nginx_ingress_controller_priority_class_name",
        "The priority of its pods.",
    ),
    flag(
        "default_ingress_class",
        "Whether its class is the default one.",
    )
    .default("true"),
];

/// `monitoring`.
pub(super) const MONITORING: &[Key] = &[
    text("provider", "`metrics-server`, or `none` to bring your own.")
        .default("metrics-server")
        .used(),
    map(
        "options",
        "Flags of the metrics server without dashes; they win over ours.",
    )
    .used(),
    map("node_selector", "Where its pods run.").used(),
    any("update_strategy", "How its pods are replaced."),
    number("replicas", "How many pods.").default("1").used(),
    each("tolerations", "Tolerations of its pods.", TOLERATION).used(),
    text(
        "metrics_server_priority_class_name",
        "The priority of its pods; `system-cluster-critical` when empty.",
    )
    .used(),
];

/// A toleration. RKE reads its keys in small letters.
const TOLERATION: &[Key] = &[
    text("key", "The taint's key; every taint when empty.").used(),
    text("operator", "`Exists` or `Equal`.")
        .default("Equal")
        .used(),
    text("value", "The taint's value.").used(),
    text(
        "effect",
        "`NoSchedule`, `PreferNoSchedule` or `NoExecute`; each of them when empty.",
    )
    .used(),
    number("tolerationSeconds", "How long, with `NoExecute`.").used(),
    number("tolerationseconds", "The same, as RKE writes it.").used(),
];

/// `dns`.
pub(super) const DNS: &[Key] = &[
    text(
        "provider",
        "`coredns`, or `none` to bring your own; `kube-dns` is not supported yet.",
    )
    .default("coredns")
    .used(),
    map("options", "Settings of the DNS server."),
    list(
        "upstreamnameservers",
        "Where names outside of the cluster are asked for.",
    ),
    list(
        "reversecidrs",
        "Ranges whose addresses have names in the cluster.",
    ),
    any("stubdomains", "Name servers for single domains."),
    map("node_selector", "Where its pods run."),
    later_section(
        "nodelocal",
        "A cache of names on each node.",
        &[
            text("ip_address", "Where it listens."),
            any("update_strategy", "How its pods are replaced."),
            map("node_selector", "Where its pods run."),
            text(
                "node_local_dns_priority_class_name",
                "The priority of its pods.",
            ),
        ],
    ),
    any("update_strategy", "How its pods are replaced."),
    later_section(
        "linear_autoscaler_params",
        "How many pods for how many nodes.",
        &[
            number("cores_per_replica", "Cores for each pod.")
                .default("128")
                .also(&["0"]),
            number("nodes_per_replica", "Nodes for each pod.")
                .default("4")
                .also(&["0"]),
            number("min", "At least so many.").default("1").also(&["0"]),
            number("max", "At most so many.").default("0"),
            flag(
                "prevent_single_point_failure",
                "Two pods as soon as there are two nodes.",
            )
            .default("true"),
        ],
    ),
    any("tolerations", "Tolerations of its pods."),
];
