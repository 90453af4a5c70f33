//! What a Node object must carry, and what the node's kernel must have. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    config::NodeIntent,
    model::{KernelWants, NodeMeta, Role, Taint},
};

/// Labels, annotations and taints, with RKE's names.
pub(super) fn meta(node: &NodeIntent) -> NodeMeta {
    let mut labels = node.labels.clone();
    labels.extend(node.roles.iter().map(|role| {
        let label = format!("node-role.kubernetes.io/{}", role.name());
        (label, "true".to_owned())
    }));
    let annotations = BTreeMap::from([
        (
            "rke.cattle.io/external-ip".to_owned(),
            node.endpoint.address.clone(),
        ),
        (
            "rke.cattle.io/internal-ip".to_owned(),
            node.internal_address.to_string(),
        ),
    ]);
    NodeMeta {
        labels,
        annotations,
        taints: taints(node),
    }
}

/// The taints of the node's roles, which go when it is a worker too, and the user's.
pub(super) fn taints(node: &NodeIntent) -> Vec<Taint> {
    let role_taint = |name: &str, effect: &str| Taint {
        key: format!("node-role.kubernetes.io/{name}"),
        value: "true".to_owned(),
        effect: effect.to_owned(),
    };
    let mut taints = Vec::new();
    if !node.roles.contains(&Role::Worker) {
        if node.roles.contains(&Role::Etcd) {
            taints.push(role_taint("etcd", "NoExecute"));
        }
        if node.roles.contains(&Role::ControlPlane) {
            taints.push(role_taint("controlplane", "NoSchedule"));
        }
    }
    taints.extend(node.taints.iter().cloned());
    taints
}

/// Set by kubelet, so that the config has nothing to say about it.
const OS: &str = "kubernetes.io/os";

/// The node selector of an add-on's pods: this one, and Linux.
pub(super) fn on_linux(selector: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut selector = selector.clone();
    let os = selector.entry(OS.to_owned());
    os.or_insert_with(|| "linux".to_owned());
    selector
}

/// True for a node that pods with this selector go to, as far as the config tells.
pub(super) fn is_selected(
    labels: &BTreeMap<String, String>,
    selector: &BTreeMap<String, String>,
) -> bool {
    let mut selector = selector.iter();
    selector.all(|(key, value)| key == OS || labels.get(key) == Some(value))
}

/// Docker 28 and later no longer load `br_netfilter`, and nothing else does.
pub(super) fn kernel() -> KernelWants {
    KernelWants {
        modules: BTreeSet::from(["br_netfilter".to_owned()]),
        sysctls: [
            ("net.bridge.bridge-nf-call-iptables", "1"),
            ("net.ipv4.ip_forward", "1"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect(),
    }
}

/// The modules for `/etc/modules-load.d`.
pub(super) fn modules_file(wants: &KernelWants) -> String {
    lines(wants.modules.iter().cloned())
}

/// The sysctls for `/etc/sysctl.d`.
pub(super) fn sysctl_file(wants: &KernelWants) -> String {
    lines(
        wants
            .sysctls
            .iter()
            .map(|(name, value)| format!("{name} = {value}")),
    )
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.fold(String::new(), |text, line| text + &line + "\n")
}
