//! Puts the components together: [`Desired::draw`]. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    ContainerSpec, ContainerdWants, Desired, DesiredHost, addons, apiserver, containerd,
    controller_manager, etcd, kube_proxy, kubelet, node, path,
    pki::Keys,
    scheduler,
    site::{Files, PRIVATE, PUBLIC, Site},
};
use crate::{
    actual::Actual,
    config::{Intent, NodeName, Role},
    error::{Blame, Explain},
    state::codec,
};

impl Desired {
    /// Everything that every host and the API must have. The same arguments give the same bytes.
    pub fn draw(intent: &Intent, keys: &Keys, have: &Actual) -> Result<Self, DrawError> {
        let mut hosts = BTreeMap::new();
        for (name, node) in &intent.nodes {
            let site = Site {
                intent,
                keys,
                name,
                node,
                facts: have.up(name),
            };
            hosts.insert(name.clone(), host(&site)?);
        }
        Ok(Self {
            cluster_id: keys.saved.cluster_id.clone(),
            hosts,
            addons: addons::wanted(intent),
            known_addons: addons::KNOWN.into_iter().map(str::to_owned).collect(),
            saved: keys.saved.clone(),
            kubeconfig: keys.kubeconfig.clone(),
        })
    }
}

type Component = fn(&Site<'_>) -> Result<(ContainerSpec, Files), DrawError>;

/// Who runs where. `None`: on every node.
const COMPONENTS: [(&str, Option<Role>, Component); 6] = [
    ("etcd", Some(Role::Etcd), etcd::draw),
    ("kube-apiserver", Some(Role::ControlPlane), apiserver::draw),
    (
        "kube-controller-manager",
        Some(Role::ControlPlane),
        controller_manager::draw,
    ),
    ("kube-scheduler", Some(Role::ControlPlane), scheduler::draw),
    ("kubelet", None, kubelet::draw),
    ("kube-proxy", None, kube_proxy::draw),
];

fn host(site: &Site<'_>) -> Result<DesiredHost, DrawError> {
    let mut files = Files::new();
    let mut containers = BTreeMap::new();
    for (name, role, component) in COMPONENTS {
        if role.is_none_or(|role| site.node.roles.contains(&role)) {
            let (spec, reads) = component(site)?;
            files.extend(reads);
            containers.insert(name.to_owned(), spec);
        }
    }
    let dirs = BTreeMap::from([
        (path::KUBERNETES.to_owned(), 0o755),
        (path::SSL.to_owned(), 0o755),
    ]);
    if site.node.roles.contains(&Role::ControlPlane) {
        // What brings the cluster back when every other copy is lost.
        let state = codec::encode(&site.keys.saved);
        files.insert(
            path::STATE.to_owned(),
            site.file(state.expose().as_bytes(), PRIVATE),
        );
    }
    let kernel = node::kernel();
    for (path, text) in [
        (path::MODULES_LOAD, node::modules_file(&kernel)),
        (path::SYSCTL, node::sysctl_file(&kernel)),
    ] {
        files.insert(path.to_owned(), site.file(text, PUBLIC));
    }
    let pause = &site.intent.images.pause;
    let images: BTreeSet<String> = containers
        .values()
        .map(|spec| spec.image.clone())
        .chain([pause.clone()])
        .collect();
    Ok(DesiredHost {
        dirs,
        files,
        containers,
        images,
        containerd: ContainerdWants {
            sandbox_image: pause.clone(),
            cni_bin_dir: "/opt/cni/bin".to_owned(),
            cni_conf_dir: "/etc/cni/net.d".to_owned(),
            registry_config_path: "/etc/containerd/certs.d".to_owned(),
        },
        kernel,
        node: node::meta(site.node),
    })
}

/// Why there is no picture of what must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DrawError {
    /// A bind that is none.
    #[error("node `{node}`: `services.{service}.extra_binds`: {why}")]
    Bind {
        /// The node.
        node: NodeName,
        /// The key in `services`.
        service: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A bind that could not have the effect that it has in RKE.
    #[error(
        "node `{node}`: `services.{service}.extra_binds`: `{bind}` cannot be made: {service} works in the node's own file system"
    )]
    HostView {
        /// The node.
        node: NodeName,
        /// The key in `services`.
        service: &'static str,
        /// The bind, as written.
        bind: String,
    },
    /// containerd's configuration is not understood.
    #[error("node `{node}`")]
    Containerd {
        /// The node.
        node: NodeName,
        /// Why.
        #[source]
        source: containerd::ContainerdConfigError,
    },
    /// Keys of another intent were given.
    #[error("node `{node}` has no key `{stem}`")]
    NoKey {
        /// The node.
        node: NodeName,
        /// Which.
        stem: String,
    },
}

impl Explain for DrawError {
    fn blame(&self) -> Blame {
        match self {
            Self::Bind { .. } | Self::HostView { .. } => Blame::User,
            Self::Containerd { source, .. } => source.blame(),
            Self::NoKey { .. } => Blame::Bug,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::HostView { .. } => vec![
                "it sees every path of the node as it is: make the source available at the target on the node (a bind mount in /etc/fstab), and take the line away".into(),
            ],
            Self::Containerd { source, .. } => source.hints(),
            Self::Bind { .. } | Self::NoKey { .. } => Vec::new(),
        }
    }
}
