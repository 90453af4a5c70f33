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
        "`nginx`, `traefik`, or `none` to bring your own. nginx was retired by its makers in March 2026; RKE knows no traefik.",
    )
    .words(&["nginx", "traefik", "none"])
    .default("nginx")
    .used(),
    map("options", "Settings of nginx.").used(),
    map("node_selector", "Where its pods run, among the workers.").used(),
    map("extra_args", "Flags of the controller without dashes; an empty value is the bare flag.").used(),
    text("dns_policy", "How its pods look up names: `ClusterFirst`, `ClusterFirstWithHostNet`, `Default` or `None`.")
        .words(DNS_POLICIES)
        .default("ClusterFirst")
        .used(),
    any("extra_envs", "More variables, as a pod has them.").secret().used(),
    any("extra_volumes", "More volumes, as a pod has them.").used(),
    any("extra_volume_mounts", "More mounts, as a container has them.").used(),
    any("update_strategy", "How its pods are replaced.").used(),
    number("http_port", "The node's port of HTTP.")
        .default("80")
        .also(&["0"])
        .used(),
    number("https_port", "The node's port of HTTPS.")
        .default("443")
        .also(&["0"])
        .used(),
    text(
        "network_mode",
        "How its ports are reached: `hostPort`, `hostNetwork`, or `none` for a Service of your own.",
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
        "The priority of that server's pod.",
    )
    .used(),
    text(
        "nginx_ingress_controller_priority_class_name",
        "The priority of the controller's pods.",
    )
    .used(),
    flag(
        "default_ingress_class",
        "Whether its class is the default one.",
    )
    .default("true")
    .used(),
    text(
        "ingress_priority_class_name",
        "Of RKE's documentation; no release of RKE reads it.",
    )
    .ignored("write `nginx_ingress_controller_priority_class_name`: RKE does not read this name either"),
    any(
        "values",
        "Ours: laid over the values of the chart (`rke2-ingress-nginx`, `rke2-traefik`) last.",
    )
    .secret()
    .used(),
];
