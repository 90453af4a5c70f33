//! `ingress`. Pure data.

use super::{
    addons::TOLERATION,
    key::{Key, any, each, flag, map, number, text},
};

/// How pods may look up names.
const DNS_POLICIES: &[&str] = &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];

/// `ingress`.
pub(super) const INGRESS: &[Key] = &[
    text(
        "provider",
        "`nginx`, `traefik`, or `none` to bring your own. nginx was retired upstream in March 2026; RKE does not support traefik.",
    )
    .words(&["nginx", "traefik", "none"])
    .default("nginx")
    .used(),
    map("options", "Settings of nginx.").used(),
    map("node_selector", "Node selector of its pods, among the workers.").used(),
    map("extra_args", "Flags of the controller without dashes; an empty value is the bare flag.").used(),
    text("dns_policy", "DNS policy of its pods: `ClusterFirst`, `ClusterFirstWithHostNet`, `Default` or `None`.")
        .words(DNS_POLICIES)
        .default("ClusterFirst")
        .used(),
    any("extra_envs", "Additional environment variables, as in a container.").secret().used(),
    any("extra_volumes", "Additional volumes, as in a pod.").used(),
    any("extra_volume_mounts", "Additional volume mounts, as in a container.").used(),
    any("update_strategy", "Update strategy of its pods.").used(),
    number("http_port", "Port for HTTP on the node.")
        .default("80")
        .also(&["0"])
        .used(),
    number("https_port", "Port for HTTPS on the node.")
        .default("443")
        .also(&["0"])
        .used(),
    text(
        "network_mode",
        "How its ports are exposed: `hostPort`, `hostNetwork`, or `none` to bring your own Service.",
    )
    .words(&["hostPort", "hostNetwork", "none"])
    .default("hostPort")
    .used(),
    each(
        "tolerations",
        "Tolerations of the default backend; the controller tolerates every taint.",
        TOLERATION,
    )
    .most(32).used(),
    flag(
        "default_backend",
        "A server for requests that no Ingress matches.",
    )
    .used(),
    text(
        "default_http_backend_priority_class_name",
        "Priority class of that server's pod.",
    )
    .used(),
    text(
        "nginx_ingress_controller_priority_class_name",
        "Priority class of the controller's pods.",
    )
    .used(),
    flag(
        "default_ingress_class",
        "Make its IngressClass the default.",
    )
    .default("true")
    .used(),
    text(
        "ingress_priority_class_name",
        "Only in RKE's documentation; no release of RKE reads it.",
    )
    .ignored("write `nginx_ingress_controller_priority_class_name`: RKE does not read this name either"),
    any(
        "values",
        "Not in RKE: values for the chart (`rke2-ingress-nginx`, `rke2-traefik`); they take precedence over those of rke-operator.",
    )
    .secret()
    .used(),
];
