//! What `ingress` asks for. Pure data.

use std::collections::BTreeMap;

use crate::model::Secret;

/// `ingress`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// ingress-nginx.
    Nginx(Box<IngressOptions>),
    /// traefik.
    Traefik(Box<IngressOptions>),
    /// The user brings one.
    None,
}

/// How the controller's ports are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkMode {
    /// At ports of its node.
    #[default]
    HostPort,
    /// It is in the network of its node.
    HostNetwork,
    /// By a Service that the user makes.
    None,
}

/// Options of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressOptions {
    /// nginx' settings.
    pub options: BTreeMap<String, String>,
    /// Flags; an empty value is the bare flag.
    pub extra_args: BTreeMap<String, String>,
    /// Labels of the nodes that its pods run on.
    pub node_selector: BTreeMap<String, String>,
    /// How its pods look up names.
    pub dns_policy: Option<String>,
    /// More variables, a list of `EnvVar` as JSON: there may be passwords in it.
    pub extra_envs: Option<Secret<String>>,
    /// More volumes.
    pub extra_volumes: Vec<serde_json::Value>,
    /// More mounts.
    pub extra_volume_mounts: Vec<serde_json::Value>,
    /// How its pods are replaced, as a `DaemonSet` has it.
    pub update_strategy: Option<serde_json::Value>,
    /// Of the node.
    pub http_port: u16,
    /// Of the node.
    pub https_port: u16,
    /// How its ports are reached.
    pub network_mode: NetworkMode,
    /// Of the default backend; every taint when empty.
    pub tolerations: Vec<serde_json::Value>,
    /// A server for requests that no Ingress matches.
    pub default_backend: bool,
    /// That server's pod's.
    pub backend_priority_class: Option<String>,
    /// The controller's pods'.
    pub priority_class: Option<String>,
    /// Whether its class is the default one.
    pub default_class: bool,
    /// Laid over the chart's values last, as JSON.
    pub values: Option<Secret<String>>,
}
