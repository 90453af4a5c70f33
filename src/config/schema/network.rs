//! `network`. Pure data.

use super::{
    aci::ACI,
    key::{Key, any, later_section, map, number, section, text},
};

/// `network`.
pub(in crate::config) const NETWORK: &[Key] = &[
    text(
        "plugin",
        "`flannel`, or `none` to bring your own; RKE's default `canal` is not supported yet.",
    )
    .default("canal")
    .used(),
    section("options", "Options of the plugin.", OPTIONS),
    number("mtu", "The MTU of pods; found out by itself when 0.").default("0"),
    map("node_selector", "Where the plugin's pods run."),
    any("update_strategy", "How the plugin's pods are replaced."),
    any("tolerations", "Tolerations of the plugin's pods."),
    section(
        "calico_network_provider",
        "Options of calico.",
        &[text("cloudprovider", "The cloud.").default("none")],
    ),
    section("canal_network_provider", "Options of canal.", IFACE),
    section("flannel_network_provider", "Options of flannel.", IFACE),
    section(
        "weave_network_provider",
        "Options of weave.",
        &[text("password", "The password among the nodes.")
            .secret()
            .refused("remove it: weave is no longer maintained")],
    ),
    later_section("aci_network_provider", "Options of Cisco ACI.", ACI),
    any("caliconetworkprovider", "Of releases of RKE before 1.0.")
        .ignored("write it as `calico_network_provider`: RKE 1.6 does not read this name either"),
];

const IFACE: &[Key] = &[text("iface", "The network interface.")];

const VOLUME_PLUGINS: &str = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/nodeagent~uds";

const OPTIONS: &[Key] = &[
    text("flannel_iface", "The network interface."),
    text(
        "flannel_backend_type",
        "How packets travel among the nodes.",
    )
    .default("vxlan"),
    number("flannel_backend_port", "The port of VXLAN.").default("8472"),
    number("flannel_backend_vni", "The network of VXLAN.").default("1"),
    text(
        "kube_flannel_priority_class_name",
        "The priority of its pods.",
    ),
    text("canal_iface", "The network interface."),
    text(
        "canal_flannel_backend_type",
        "How packets travel among the nodes.",
    )
    .default("vxlan"),
    number("canal_flannel_backend_port", "The port of VXLAN.").default("8472"),
    number("canal_flannel_backend_vni", "The network of VXLAN.").default("1"),
    text(
        "canal_flex_volume_plugin_dir",
        "Where it puts its volume plugin.",
    )
    .default(VOLUME_PLUGINS),
    text("canal_priority_class_name", "The priority of its pods."),
    text("calico_cloud_provider", "The cloud.").default("none"),
    text(
        "calico_flex_volume_plugin_dir",
        "Where it puts its volume plugin.",
    )
    .default(VOLUME_PLUGINS),
    text(
        "calico_node_priority_class_name",
        "The priority of its pods.",
    ),
    text(
        "calico_kube_controllers_priority_class_name",
        "The priority of its controllers.",
    ),
    text("weave_password", "The password among the nodes.").secret(),
    text("weave_net_priority_class_name", "The priority of its pods."),
];
