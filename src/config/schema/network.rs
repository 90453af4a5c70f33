//! `network`. Pure data.

use super::{
    aci::ACI,
    addons::TOLERATION,
    key::{Key, any, each, flag, later_section, map, number, section, text},
};

/// `network`.
pub(in crate::config) const NETWORK: &[Key] = &[
    text(
        "plugin",
        "`canal`, `flannel`, `calico`, or `none` to bring your own. rke-operator does not support `weave` and `aci`.",
    )
    .words(&["canal", "flannel", "calico", "none"])
    .default("canal")
    .used(),
    section("options", "Options of the plugin.", OPTIONS),
    number(
        "mtu",
        "The MTU of pods, with canal and calico. When 0, canal uses 1450 and calico detects it.",
    )
    .default("0")
    .used(),
    map(
        "node_selector",
        "Node selector of the plugin's pods, with flannel and calico.",
    )
    .used(),
    any(
        "update_strategy",
        "Update strategy of the plugin's pods, with flannel and calico.",
    )
    .used(),
    each(
        "tolerations",
        "Tolerations of calico's controllers; the plugins' own pods tolerate every taint.",
        TOLERATION,
    )
    .most(32).used(),
    any(
        "values",
        "Not in RKE: values for the chart (`rke2-canal`, `rke2-calico`); they take precedence over those of rke-operator.",
    )
    .secret()
    .used(),
    section(
        "calico_network_provider",
        "Options of calico.",
        &[text("cloudprovider", "The cloud.")
            .default("none")
            .same("calico does not use it, in RKE 1.6 neither")],
    ),
    section("canal_network_provider", "Options of canal.", CANAL),
    section("flannel_network_provider", "Options of flannel.", IFACE),
    section(
        "weave_network_provider",
        "Options of weave.",
        &[text("password", "The password for traffic among the nodes.")
            .secret()
            .refused("remove it: weave is no longer maintained")],
    ),
    later_section("aci_network_provider", "Options of Cisco ACI.", ACI)
        .refused("remove it: no release here has Cisco ACI's plugin"),
    flag(
        "enable_br_netfilter",
        "Load the kernel's module br_netfilter on the nodes; since RKE 1.6.",
    )
    .default("true")
    .refused("remove it: without this module Services are not reached from pods of the same node, so it is always loaded"),
    any("caliconetworkprovider", "From releases of RKE before 1.0.")
        .ignored("write it as `calico_network_provider`: RKE 1.6 does not read this name either"),
];

const IFACE: &[Key] = &[text(
    "iface",
    "The network interface to the other nodes; the key under `options` takes precedence.",
)
.used()];

const CANAL: &[Key] = &[
    text(
        "iface",
        "The network interface to the other nodes; the key under `options` takes precedence.",
    )
    .used(),
    text(
        "blackhole_route",
        "A route that drops packets to pods that do not exist; since RKE 1.8.",
    )
    .same("the chart of the release decides"),
];

const VOLUME_PLUGINS: &str = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/nodeagent~uds";

const OPERATOR: &str = "calico's operator runs these pods with its own priorities";
const CHART: &str = "the chart runs these pods as `system-node-critical`";
const NO_WEAVE: &str = "remove it: weave is no longer maintained";

const OPTIONS: &[Key] = &[
    text(
        "flannel_iface",
        "The network interface to the other nodes; that of the default route when empty.",
    )
    .used(),
    text(
        "flannel_backend_type",
        "The backend of flannel: `vxlan`, `host-gw`, `wireguard`, `udp` or `ipip`.",
    )
    .default("vxlan")
    .used(),
    number("flannel_backend_port", "The port for VXLAN.")
        .default("8472")
        .used(),
    number("flannel_backend_vni", "The VXLAN network identifier (VNI).")
        .default("1")
        .used(),
    text(
        "kube_flannel_priority_class_name",
        "Priority class of its pods; `system-node-critical` when empty.",
    )
    .used(),
    text(
        "canal_iface",
        "The network interface to the other nodes; that of the default route when empty.",
    )
    .used(),
    text(
        "canal_flannel_backend_type",
        "The backend of flannel: `vxlan`, `host-gw`, `wireguard`, `udp` or `ipip`.",
    )
    .default("vxlan")
    .used(),
    number(
        "canal_flannel_backend_port",
        "The port for VXLAN. RKE 1.6 ignores it.",
    )
    .default("8472")
    .used(),
    number(
        "canal_flannel_backend_vni",
        "The VXLAN network identifier (VNI). RKE 1.6 ignores it.",
    )
    .default("1")
    .used(),
    text(
        "canal_flex_volume_plugin_dir",
        "The folder of its volume plugin; kubelet's own folder, `/var/lib/kubelet/volumeplugins`, when empty or RKE's default.",
    )
    .default(VOLUME_PLUGINS)
    .used(),
    text("canal_priority_class_name", "Priority class of its pods.").same(CHART),
    text("calico_cloud_provider", "The cloud.")
        .default("none")
        .same("calico does not use it, in RKE 1.6 neither"),
    text(
        "calico_flex_volume_plugin_dir",
        "The folder of its volume plugin; kubelet's own folder, `/var/lib/kubelet/volumeplugins`, when empty or RKE's default.",
    )
    .default(VOLUME_PLUGINS)
    .used(),
    text(
        "calico_node_priority_class_name",
        "Priority class of its pods.",
    )
    .same(OPERATOR),
    text(
        "calico_kube_controllers_priority_class_name",
        "Priority class of its controllers.",
    )
    .same("the chart and calico's operator run them as `system-cluster-critical`"),
    text("weave_password", "The password for traffic among the nodes.")
        .secret()
        .refused(NO_WEAVE),
    text("weave_net_priority_class_name", "Priority class of its pods.").refused(NO_WEAVE),
    // RKE's documentation has these; no release of RKE reads them.
    text("canal_autoscaler_priority_class_name", DOCUMENTED)
        .ignored("remove it: RKE does not read it either"),
    text("calico_priority_class_name", DOCUMENTED)
        .ignored("remove it: RKE does not read it either, it reads `calico_node_priority_class_name`"),
    text("calico_autoscaler_priority_class_name", DOCUMENTED)
        .ignored("remove it: RKE does not read it either"),
    text("flannel_priority_class_name", DOCUMENTED)
        .ignored("write `kube_flannel_priority_class_name`: RKE does not read this name either"),
    text("flannel_autoscaler_priority_class_name", DOCUMENTED)
        .ignored("remove it: RKE does not read it either"),
    text("weave_priority_class_name", DOCUMENTED).ignored(NO_WEAVE),
    text("weave_autoscaler_priority_class_name", DOCUMENTED).ignored(NO_WEAVE),
];

const DOCUMENTED: &str = "Only in RKE's documentation; no release of RKE reads it.";
