//! What `network` asks for. Pure data.

use std::collections::BTreeMap;

use crate::model::Secret;

/// The network plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// flannel.
    Flannel(Box<Flannel>),
    /// flannel, and the network policies of calico.
    Canal(Box<Canal>),
    /// calico.
    Calico(Box<Calico>),
    /// The user brings one.
    None,
}

/// How flannel carries packets from node to node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// `vxlan`, `host-gw`, `wireguard`, `udp`, `ipip`.
    pub kind: String,
    /// Of VXLAN.
    pub port: u16,
    /// Of VXLAN.
    pub vni: u32,
}

impl Default for Backend {
    fn default() -> Self {
        Self {
            kind: "vxlan".to_owned(),
            port: 8472,
            vni: 1,
        }
    }
}

/// Options of flannel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flannel {
    /// The interface to the other nodes; that of the default route when `None`.
    pub iface: Option<String>,
    /// How packets travel.
    pub backend: Backend,
    /// Its pods'; `None`: that of what a node cannot do without.
    pub priority_class: Option<String>,
    /// Labels of the nodes that its pods run on.
    pub node_selector: BTreeMap<String, String>,
    /// How its pods are replaced, as a `DaemonSet` has it.
    pub update_strategy: Option<serde_json::Value>,
}

/// Options of canal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Canal {
    /// The interface to the other nodes; that of the default route when `None`.
    pub iface: Option<String>,
    /// How packets travel.
    pub backend: Backend,
    /// Of pods.
    pub mtu: Option<u32>,
    /// Where kubelet looks for volume plugins.
    pub volume_plugins: Option<String>,
    /// Laid over the chart's values last, as JSON.
    pub values: Option<Secret<String>>,
}

/// Options of calico.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calico {
    /// Of pods.
    pub mtu: Option<u32>,
    /// Where kubelet looks for volume plugins.
    pub volume_plugins: Option<String>,
    /// Labels of the nodes that its pods run on.
    pub node_selector: BTreeMap<String, String>,
    /// Of its controllers, besides those of the roles.
    pub tolerations: Vec<serde_json::Value>,
    /// How its pods are replaced, as a `DaemonSet` has it.
    pub update_strategy: Option<serde_json::Value>,
    /// Laid over the chart's values last, as JSON.
    pub values: Option<Secret<String>>,
}
