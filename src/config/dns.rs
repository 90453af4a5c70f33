//! What `dns` asks for. Pure data.

use std::{collections::BTreeMap, net::Ipv4Addr};

use serde::Serialize;

use crate::model::Linear;

/// The DNS add-on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Dns {
    /// `CoreDNS`.
    CoreDns(Box<CoreDns>),
    /// The user brings one.
    None,
}

/// `dns`, where its provider is `CoreDNS`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoreDns {
    /// Where other names are asked for; the node's own servers when empty.
    pub upstreams: Vec<String>,
    /// Ranges and zones whose addresses are looked up in the cluster; all when empty.
    pub reverse: Vec<String>,
    /// Name servers for single domains.
    pub stub_domains: BTreeMap<String, Vec<String>>,
    /// Labels of the nodes that its pods run on.
    pub node_selector: BTreeMap<String, String>,
    /// Its pods', as Kubernetes has them.
    pub tolerations: Vec<serde_json::Value>,
    /// How its pods are replaced, as a Deployment has it.
    pub update_strategy: Option<serde_json::Value>,
    /// Its pods'; `None`: that of the cluster's own.
    pub priority_class: Option<String>,
    /// How many pods (`linear_autoscaler_params`).
    pub linear: Linear,
    /// A cache of names on each node.
    pub node_local: Option<NodeLocal>,
}

/// `dns.nodelocal`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeLocal {
    /// Where it listens on each node.
    pub address: Ipv4Addr,
    /// Labels of the nodes that have one.
    pub node_selector: BTreeMap<String, String>,
    /// How its pods are replaced, as a `DaemonSet` has it.
    pub update_strategy: Option<serde_json::Value>,
    /// Its pods'; `None`: that of what a node cannot do without.
    pub priority_class: Option<String>,
}
