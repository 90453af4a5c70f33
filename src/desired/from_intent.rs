//! Puts the components together: [`Desired::from_intent`]. Pure.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    Desired, DesiredHost, Rotated, addons, apiserver,
    containerd::{self, CgroupDriver},
    controller_manager, encryption, etcd,
    host_context::{Files, HostContext, PRIVATE, PUBLIC},
    kube_proxy, kubelet, network, nginx_proxy, node,
    pki::Keys,
    registries, scheduler, snapshot_agent,
};
use crate::{
    catalog,
    config::Intent,
    error::{ErrorClass, Explain},
    etcd::ExternalView,
    facts::{Actual, HostFacts},
    model::{
        ClusterId, Component, ContainerSpec, ContainerdWants, NodeName, ObjectRef, Role,
        image_version, label, path, version,
    },
    state::codec,
};

impl Desired {
    /// Everything that every host and the API must have. The same arguments give the same bytes.
    pub fn from_intent(intent: &Intent, keys: &Keys, have: &Actual) -> Result<Self, DesiredError> {
        let (intent, kept) = etcd_never_goes_back(intent, have);
        let intent = &*intent;
        check(intent)?;
        let encryption = encryption::phase(intent, keys, have)?;
        let mut hosts = BTreeMap::new();
        for (name, node) in &intent.nodes {
            let context = HostContext {
                intent,
                keys,
                name,
                node,
                facts: have.up(name),
                etcd: &have.etcd,
                encryption: encryption.file.as_deref(),
            };
            hosts.insert(name.clone(), host(&context)?);
        }
        let rolls = encryption.rolls.then_some(Rotated::EncryptionKey);
        let rolls: Vec<Rotated> = rolls.into_iter().chain(keys.rolls).collect();
        let reads = |host: &DesiredHost| {
            let mut components = host.containers.keys();
            components.any(|component| rolls.iter().any(|rotated| rotated.is_read_by(*component)))
        };
        let rolls = hosts.iter().filter(|(_, host)| reads(host));
        let rolls = rolls.map(|(name, _)| name.clone()).collect();
        Ok(Self {
            cluster_id: keys.saved.cluster_id.clone(),
            hosts,
            addons: addons::wanted(intent, have),
            charts: addons::charts::wanted(intent, keys),
            known_addons: addons::KNOWN.into_iter().map(str::to_owned).collect(),
            known_charts: addons::charts::KNOWN.map(str::to_owned).into(),
            upgrade: intent.upgrade,
            saved: keys.saved.clone(),
            certificates: keys.certificates.clone(),
            rewrite: encryption.stored,
            encryption_settled: encryption.settled,
            rolls,
            renewed_tokens: keys.renewed_tokens.clone(),
            handover: keys.handover.clone(),
            notes: keys
                .notes
                .iter()
                .cloned()
                .chain(controller_manager::warnings(intent))
                .chain(kept)
                .chain(registries::notes(intent, have))
                .chain(silent_members(have))
                .chain(encryption.note.map(str::to_owned))
                .collect(),
            kubeconfig: keys.kubeconfig.clone(),
            registries: intent.registries.clone(),
            etcd_tools: etcd_tools(intent),
            bundle: None,
            agent: intent.agent.clone(),
            lose: BTreeSet::new(),
            clean: BTreeSet::new(),
        })
    }
}

/// Refuses a config that cannot be met, whatever the nodes are like. Both shells call this before they connect.
pub fn check(intent: &Intent) -> Result<(), DesiredError> {
    match addons::claimed_twice(intent) {
        Some((object, addon)) => Err(DesiredError::OwnObject { object, addon }),
        None => Ok(()),
    }
}

/// Of an external etcd: API servers go on with those that answer.
fn silent_members(have: &Actual) -> Vec<String> {
    let external = have.etcd.external();
    external
        .map(ExternalView::silent_members)
        .unwrap_or_default()
}

/// A newer release of Kubernetes may come with an older etcd. What a member has written a younger
/// one may not read: then the newest that runs stays, unless the config names another.
fn etcd_never_goes_back<'i>(
    intent: &'i Intent,
    have: &Actual,
) -> (Cow<'i, Intent>, Option<String>) {
    let wanted = &intent.images.etcd;
    let Some(saved) = have.saved.as_ref() else {
        return (Cow::Borrowed(intent), None);
    };
    let hosts = have.hosts.keys();
    let members = hosts.filter_map(|name| Some((name, have.up(name)?.container(Component::Etcd)?)));
    let ours =
        members.filter(|(_, fact)| fact.labels.get(label::CLUSTER_ID) == Some(&saved.cluster_id.0));
    // What a member says itself, else its image's tag.
    let runs = ours.map(|(name, fact)| {
        let member = have.etcd.on(name).and_then(|id| have.etcd.members.get(&id));
        let status = member.and_then(|member| member.status.as_ref());
        let told = status.and_then(|(_, status)| version(&status.version));
        (told.or_else(|| image_version(&fact.image)), fact)
    });
    let newest = runs.max_by_key(|(version, _)| *version);
    let newer = newest
        .filter(|(version, _)| image_version(wanted).is_some_and(|wanted| *version > Some(wanted)));
    match newer {
        Some((_, fact)) if !intent.system_images.contains_key("etcd") => {
            let note = format!(
                "etcd stays at `{}`: {} comes with `{wanted}`, and etcd does not go back",
                fact.image, intent.version
            );
            let mut intent = intent.clone();
            intent.images.etcd.clone_from(&fact.image);
            (Cow::Owned(intent), Some(note))
        }
        Some(_) | None => (Cow::Borrowed(intent), None),
    }
}

/// The image that has etcdutl, for the members of this cluster.
pub fn etcd_tools(intent: &Intent) -> String {
    let given = intent.system_images.get("etcd_tools").cloned();
    given.unwrap_or_else(|| {
        intent
            .registries
            .place(&catalog::etcd_tools(&intent.images.etcd))
    })
}

type Container = fn(&HostContext<'_>) -> Result<(ContainerSpec, Files), DesiredError>;

/// On which nodes a component runs.
enum On {
    Every,
    With(Role),
    Without(Role),
    /// With etcd, where this process has a program for it.
    SavesSnapshots,
}

impl On {
    fn contains(&self, context: &HostContext<'_>) -> bool {
        let roles = &context.node.roles;
        match self {
            Self::Every => true,
            Self::With(role) => roles.contains(role),
            Self::Without(role) => !roles.contains(role),
            Self::SavesSnapshots => snapshot_agent::runs_on(context),
        }
    }
}

const CONTROL_PLANES: On = On::With(Role::ControlPlane);

/// Where a component runs, and how it is defined.
fn definition(component: Component) -> (On, Container) {
    match component {
        Component::Etcd => (On::With(Role::Etcd), etcd::container),
        Component::ApiServer => (CONTROL_PLANES, apiserver::container),
        Component::ControllerManager => (CONTROL_PLANES, controller_manager::container),
        Component::Scheduler => (CONTROL_PLANES, scheduler::container),
        Component::NginxProxy => (On::Without(Role::ControlPlane), nginx_proxy::container),
        Component::Kubelet => (On::Every, kubelet::container),
        Component::KubeProxy => (On::Every, kube_proxy::container),
        Component::Snapshots => (On::SavesSnapshots, snapshot_agent::container),
    }
}

fn host(context: &HostContext<'_>) -> Result<DesiredHost, DesiredError> {
    let mut files = Files::new();
    let mut containers = BTreeMap::new();
    for component in Component::ALL {
        let (on, container) = definition(component);
        if on.contains(context) {
            let (spec, reads) = container(context)?;
            files.extend(reads);
            containers.insert(component, spec);
        }
    }
    let mut dirs = BTreeMap::from([
        (path::KUBERNETES.to_owned(), 0o755),
        (path::SSL.to_owned(), 0o755),
    ]);
    if makes_a_member(context) {
        dirs.insert(path::ETCD_MEMBER.to_owned(), 0o700);
    }
    if context.node.roles.contains(&Role::ControlPlane) {
        // What brings the cluster back when every other copy is lost.
        let state = codec::encode(&context.keys.saved.copy());
        files.insert(
            path::STATE.to_owned(),
            context.file(state.expose().as_bytes(), PRIVATE),
        );
    }
    if !CONTROL_PLANES.contains(context) {
        dirs.insert(path::PROXY.to_owned(), 0o755);
        files.extend(nginx_proxy::files(context));
    }
    let cloud = context.intent.cloud_provider.as_ref();
    if let Some(text) = cloud.and_then(|cloud| cloud.config.as_ref()) {
        let text = text.expose().as_str();
        files.insert(path::CLOUD_CONFIG.to_owned(), context.file(text, PRIVATE));
    }
    let id = format!("{}\n", context.keys.saved.cluster_id);
    files.insert(path::CLUSTER_ID.to_owned(), context.file(id, PUBLIC));
    files.extend(registries::files(context));
    let kernel = node::kernel();
    for (path, text) in [
        (path::MODULES_LOAD, node::modules_file(&kernel)),
        (path::SYSCTL, node::sysctl_file(&kernel)),
    ] {
        files.insert(path.to_owned(), context.file(text, PUBLIC));
    }
    let pause = &context.intent.images.pause;
    // The image of what takes snapshots is pulled with it, last of all.
    let images: BTreeSet<String> = containers
        .iter()
        .filter(|(component, _)| **component != Component::Snapshots)
        .map(|(_, spec)| spec.image.clone())
        .chain([pause.clone()])
        .collect();
    Ok(DesiredHost {
        dirs,
        files,
        containers,
        kept: snapshot_agent::kept(context),
        images,
        containerd: ContainerdWants {
            sandbox_image: pause.clone(),
            cni_bin_dir: "/opt/cni/bin".to_owned(),
            cni_conf_dir: "/etc/cni/net.d".to_owned(),
            registry_config_path: path::CERTS_D.to_owned(),
            systemd_cgroup: context.cgroup_driver()? == CgroupDriver::Systemd,
            environment: context
                .facts
                .map(|facts| containerd::proxies(&facts.docker))
                .unwrap_or_default(),
        },
        kernel,
        forbids_swap: kubelet::forbids_swap(&context.intent.services),
        network: network::of(context),
        node: node::meta(context.node),
    })
}

/// True when this node's member must be created. A node that has had one keeps its folder; if the
/// folder is gone, the disk is missing, and no empty folder is created in its place.
fn makes_a_member(context: &HostContext<'_>) -> bool {
    let had_one = |facts: &HostFacts| facts.container(Component::Etcd).is_some();
    context.node.roles.contains(&Role::Etcd) && !context.facts.is_some_and(had_one)
}

/// Why there is no picture of what must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesiredError {
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
    /// The user's manifests contain an object of one of rke-operator's add-ons.
    #[error("`addons`: {object} is an object of the add-on {addon}, which would change it back")]
    OwnObject {
        /// The object.
        object: ObjectRef,
        /// The add-on.
        addon: String,
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
    /// An API server has a configuration that the state does not know: what is stored may need it.
    #[error(
        "the API server on node `{node}` reads an encryption configuration that the saved state does not have: what is stored could become unreadable; nothing is changed while that is so"
    )]
    UnknownEncryption {
        /// The node.
        node: NodeName,
        /// The cluster.
        id: ClusterId,
    },
    /// An API server has a configuration of the user's, by a flag.
    #[error(
        "the API server on node `{node}` reads an encryption configuration that `extra_args` named and the config no longer does: what is stored could become unreadable; nothing is changed while that is so"
    )]
    OwnEncryption {
        /// The node.
        node: NodeName,
    },
    /// The config names a file in place of what the API servers need.
    #[error(
        "`services.kube-api.extra_args` names an encryption configuration, and the API server on node `{node}` still needs the one of `secrets_encryption_config`; nothing is changed while that is so"
    )]
    EncryptionInUse {
        /// The node.
        node: NodeName,
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

impl Explain for DesiredError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::HostView { .. }
            | Self::OwnObject { .. }
            | Self::UnknownEncryption { .. }
            | Self::OwnEncryption { .. }
            | Self::EncryptionInUse { .. } => ErrorClass::User,
            Self::Containerd { source, .. } => source.class(),
            Self::NoKey { .. } => ErrorClass::Bug,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::HostView { .. } => vec![
                "it sees every path of the node as it is: make the source available at the target on the node (a bind mount in /etc/fstab), and take the line away".into(),
            ],
            Self::OwnObject { addon, .. } => vec![
                format!("use the options that the config has for {addon}, or switch it off and bring all of it").into(),
            ],
            Self::Containerd { source, .. } => source.hints(),
            Self::UnknownEncryption { id, .. } => vec![
                "continue with the state of the last run of `up`: its state file, or the Secret of the `Cluster`".into(),
                format!("or take over the newest copy: `rke-operator up --recover {id}` (a `Cluster` has the annotation `clusterprovisioner.rke.io/recover: {id}`)").into(),
            ],
            Self::OwnEncryption { .. } => vec![
                "write `encryption-provider-config` into `extra_args` again".into(),
                "to have rke-operator manage it, write what that file says under `secrets_encryption_config.custom_config`, and run `up`; from there it can be changed or switched off".into(),
            ],
            Self::EncryptionInUse { .. } => vec![
                "take `encryption-provider-config` out of `extra_args`, set `secrets_encryption_config.enabled: false`, and run `up` first".into(),
            ],
            Self::NoKey { .. } => Vec::new(),
        }
    }
}
