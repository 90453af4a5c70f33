//! The validated intent: every default applied, every reference resolved. Code downstream neither
//! validates again nor sees the raw document.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::PathBuf,
};

use ipnet::IpNet;

use super::{dns::Dns, ingress::Ingress, manifest::Manifest, network::Network};
use crate::{
    catalog::{Catalogue, Images},
    model::{
        AgentProgram, Bind, Bucket, Endpoint, EtcdPlace, HostAddress, KubernetesVersion, NodeName,
        Owner, Registries, Role, Secret, SnapshotPolicy, Taint, UpgradeStrategy,
    },
};

/// An OpenSSH certificate of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// As `ssh-keygen -s` writes it.
    pub text: String,
    /// Where it came from: `ssh_cert_path` as written, or `ssh_cert`.
    pub source: String,
}

/// What a login proves itself with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A private key, in any format OpenSSH writes (PEM text), and its certificate.
    Key(Secret<String>, Option<Certificate>),
    /// Whichever key the SSH agent has.
    Agent(Agent),
}

/// An SSH agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its socket.
    pub socket: PathBuf,
    /// The public halves of the keys that the config names: they are tried before the agent's others.
    pub named: Vec<String>,
    /// The agent's others are not tried (`IdentitiesOnly yes` of the SSH config).
    pub only_named: bool,
}

impl Credential {
    /// Where its certificate came from.
    pub fn certificate_source(&self) -> Option<String> {
        match self {
            Self::Key(_, certificate) => certificate.as_ref().map(|cert| cert.source.clone()),
            Self::Agent(_) => None,
        }
    }
}

/// [`Login::key_source`] of a login with an SSH agent.
pub const SSH_AGENT: &str = "ssh-agent";

/// How to log in to a node. Equal logins may share nothing: one connection a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user on the node.
    pub user: String,
    /// What it proves itself with.
    pub credential: Credential,
    /// Where the key came from (`ssh_key_path` as written, or `ssh_key`, or a Secret's name, or
    /// [`SSH_AGENT`]), for messages and the inventory.
    pub key_source: String,
    /// Path of the Docker socket on the node.
    pub docker_socket: String,
}

/// A machine through which nodes are reached, or one on the way to that. Two are equal if one connection serves both, whatever
/// their source.
#[derive(Clone, Debug, Eq)]
pub struct Bastion {
    /// Where its sshd is.
    pub endpoint: Endpoint,
    /// How to log in there; Docker is not used on it.
    pub login: Login,
    /// As [`NodeIntent::ssh_config`].
    pub ssh_config: BTreeMap<&'static str, String>,
}

impl PartialEq for Bastion {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            endpoint,
            login,
            ssh_config: _,
        } = self;
        (endpoint, login) == (&other.endpoint, &other.login)
    }
}

/// One node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIntent {
    /// Where sshd is; `endpoint.address` is also the public address of the API server.
    pub endpoint: Endpoint,
    /// How to log in.
    pub login: Login,
    /// What other nodes and the components dial (`internal_address`, else `address`).
    pub internal_address: HostAddress,
    /// True when the user wrote an `internal_address` that differs from `address`.
    pub has_internal_address: bool,
    /// At least one.
    pub roles: BTreeSet<Role>,
    /// Extra node labels.
    pub labels: BTreeMap<String, String>,
    /// Extra taints.
    pub taints: Vec<Taint>,
    /// The machines on the way to it, the one that is dialled from here first: `bastion_host` after what that is
    /// reached through, or `ProxyJump` of the SSH config; empty: it is dialled directly.
    pub bastions: Vec<Bastion>,
    /// What of this comes from the configuration of OpenSSH's client, by its keyword (`HostName`, `User`).
    pub ssh_config: BTreeMap<&'static str, String>,
}

/// What every service takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceExtras {
    /// Flags that replace or extend the defaults; an empty value is the bare `--flag=`.
    pub extra_args: BTreeMap<String, String>,
    /// Flags that are given once for each of these values, after the one that stands already.
    pub extra_args_array: BTreeMap<String, Vec<String>>,
    /// Docker binds, one for each target.
    pub extra_binds: Vec<Bind>,
    /// Variables by name. People put passwords of proxies and the like into them.
    pub extra_env: BTreeMap<String, Secret<String>>,
}

/// `services.kube-api.audit_log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLog {
    /// Days that a file is kept.
    pub max_age: u32,
    /// How many files are kept.
    pub max_backup: u32,
    /// Megabytes of a file.
    pub max_size: u32,
    /// `json` or `legacy`.
    pub format: String,
    /// A `Policy` of `audit.k8s.io`; who did what, without content, when `None`.
    pub policy: Option<serde_json::Value>,
}

/// What a namespace without Pod Security labels may run (`services.kube-api.pod_security_configuration`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSecurity {
    /// Anything.
    Privileged,
    /// What the standard `restricted` lets run; not in `kube-system`.
    Restricted,
}

/// `authentication.webhook`: a server that says whose a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenWebhook {
    /// The kubeconfig that leads to it; JSON.
    pub config: Secret<String>,
    /// How long its answers are kept.
    pub cache_timeout: String,
}

/// `authorization.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Roles.
    #[default]
    Rbac,
    /// Everybody may do everything.
    None,
}

/// `cloud_provider`: a controller of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudProvider {
    /// Its file on every node.
    pub config: Option<Secret<String>>,
}

/// `services.kube-api.secrets_encryption_config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecretsEncryption {
    /// Nothing is encrypted in etcd.
    #[default]
    Off,
    /// Secrets are, with a key that the state keeps.
    Managed,
    /// As this `EncryptionConfiguration` says; JSON.
    Custom(Secret<String>),
}

/// `services.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Services {
    /// `services.etcd`.
    pub etcd: ServiceExtras,
    /// Recurring snapshots of etcd; `None`: none are wanted.
    pub snapshots: Option<SnapshotPolicy>,
    /// Where snapshots are copied to; `None`: they stay on their nodes.
    pub snapshot_bucket: Option<Box<Bucket>>,
    /// `services.kube-api`.
    pub kube_api: ServiceExtras,
    /// `services.kube-controller`.
    pub kube_controller: ServiceExtras,
    /// `services.scheduler`.
    pub scheduler: ServiceExtras,
    /// `services.kubelet`.
    pub kubelet: ServiceExtras,
    /// `services.kubeproxy`.
    pub kubeproxy: ServiceExtras,
    /// Pods (`10.42.0.0/16`).
    pub cluster_cidr: IpNet,
    /// Services (`10.43.0.0/16`).
    pub service_cluster_ip_range: IpNet,
    /// Node ports, inclusive (`30000-32767`).
    pub service_node_port_range: (u16, u16),
    /// `cluster.local`.
    pub cluster_domain: String,
    /// `10.43.0.10`, inside the service range.
    pub cluster_dns_server: IpAddr,
    /// `services.kubelet.fail_swap_on` (RKE's default: false).
    pub fail_swap_on: bool,
    /// `services.kube-api.always_pull_images`.
    pub always_pull_images: bool,
    /// `None`: no audit log.
    pub audit_log: Option<AuditLog>,
    /// `services.kube-api.pod_security_configuration`.
    pub pod_security: PodSecurity,
    /// The settings of the admission plugin `EventRateLimit` (`services.kube-api.event_rate_limit`); `None`
    /// where it is off.
    pub event_rate_limit: Option<serde_json::Value>,
    /// `services.kube-api.admission_configuration.plugins` by name; they win over ours.
    pub admission_plugins: BTreeMap<String, serde_json::Value>,
    /// `services.kube-api.secrets_encryption_config`.
    pub secrets_encryption: SecretsEncryption,
}

/// `monitoring`, where its provider is metrics-server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsServer {
    /// Flags that replace or extend the defaults.
    pub options: BTreeMap<String, String>,
    /// Labels of the nodes that its pods run on.
    pub node_selector: BTreeMap<String, String>,
    /// How many pods.
    pub replicas: u32,
    /// How its pods are replaced, as a Deployment has it.
    pub update_strategy: Option<serde_json::Value>,
    /// Its pods', as Kubernetes has them.
    pub tolerations: Vec<serde_json::Value>,
    /// Its pods'; `None`: that of the cluster's own.
    pub priority_class: Option<String>,
}

/// What the user wants, complete and valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// `cluster_name` (RKE's default: `local`).
    pub cluster_name: String,
    /// `kubernetes_version`; the catalogue's default when the config names none.
    pub version: KubernetesVersion,
    /// Whether the config names a version. Where it does not, a cluster that exists keeps its own.
    pub version_given: bool,
    /// By node name.
    pub nodes: BTreeMap<NodeName, NodeIntent>,
    /// `private_registries`.
    pub registries: Registries,
    /// Every image, resolved.
    pub images: Images,
    /// Those that the config names itself, by RKE's names.
    pub system_images: BTreeMap<String, String>,
    /// `services`.
    pub services: Services,
    /// Where etcd is.
    pub etcd: EtcdPlace,
    /// Whom its members on nodes run as.
    pub etcd_owner: Owner,
    /// `authentication.sans`: names and addresses that every API server has in its certificate.
    pub sans: BTreeSet<String>,
    /// `authentication.webhook`, where the strategy has it.
    pub webhook: Option<TokenWebhook>,
    /// `authorization.mode`.
    pub authorization: Authorization,
    /// `cloud_provider`.
    pub cloud_provider: Option<CloudProvider>,
    /// `network`.
    pub network: Network,
    /// `ingress`.
    pub ingress: Ingress,
    /// `dns`.
    pub dns: Dns,
    /// `monitoring`; `None`: the user brings one.
    pub metrics_server: Option<MetricsServer>,
    /// `addons` and `addons_include`, in their order.
    pub manifests: Vec<Manifest>,
    /// `upgrade_strategy`.
    pub upgrade: UpgradeStrategy,
    /// The program that takes recurring snapshots on nodes, as far as this process has one to give them. Not of the
    /// config: the shell sets it.
    pub agent: Option<AgentProgram>,
}

impl Intent {
    /// The same for a cluster that has a release already: where the config names none, it stays
    /// what it is, so that a newer program moves no cluster. `None` when the catalogue does not
    /// have that release.
    pub fn keeping(
        &self,
        release: KubernetesVersion,
        catalogue: &Catalogue,
    ) -> Option<Cow<'_, Self>> {
        if self.version_given || self.version == release {
            return Some(Cow::Borrowed(self));
        }
        let published = catalogue.images(release)?;
        let images = published.placed(&self.registries).with(&self.system_images);
        Some(Cow::Owned(Self {
            version: release,
            images,
            ..self.clone()
        }))
    }

    /// How snapshots are taken and by which program, where both are known.
    pub fn recurring_snapshots(&self) -> Option<(&SnapshotPolicy, &AgentProgram)> {
        self.services.snapshots.as_ref().zip(self.agent.as_ref())
    }

    /// The same without that node; the error is a role that no other node has, and that a cluster cannot do without.
    pub fn without(&self, node: &NodeName) -> Result<Self, Role> {
        let mut rest = self.clone();
        rest.nodes.remove(node);
        let needed = [Role::ControlPlane, Role::Etcd];
        let lacks = |role: &Role| {
            let outside = *role == Role::Etcd && self.etcd.external().is_some();
            !outside && rest.with_role(*role).next().is_none()
        };
        needed.into_iter().find(lacks).map_or(Ok(rest), Err)
    }

    /// Each machine on the way to a node, once.
    pub fn bastions(&self) -> Vec<&Bastion> {
        let mut all: Vec<&Bastion> = Vec::new();
        for bastion in self.nodes.values().flat_map(|node| &node.bastions) {
            if !all.contains(&bastion) {
                all.push(bastion);
            }
        }
        all
    }

    /// The nodes that carry a role, by name.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = (&NodeName, &NodeIntent)> {
        self.nodes
            .iter()
            .filter(move |(_, node)| node.roles.contains(&role))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::fixture::intent_of;

    #[test]
    fn a_cluster_does_without_a_node_unless_it_is_the_only_one_of_its_role() {
        let (central, worker) = ([Role::ControlPlane], [Role::Worker]);
        let intent = intent_of(&[
            ("n1", "10.0.0.1", &[Role::ControlPlane, Role::Etcd]),
            ("n2", "10.0.0.2", &central),
            ("n3", "10.0.0.3", &worker),
        ]);
        let without = |intent: &Intent, node: &str| {
            let rest = intent.without(&node.into());
            rest.map(|rest| {
                rest.nodes
                    .into_keys()
                    .map(|name| name.0)
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(without(&intent, "n1"), Err(Role::Etcd));
        assert_eq!(without(&intent, "n2").unwrap(), ["n1", "n3"]);
        assert_eq!(without(&intent, "n3").unwrap(), ["n1", "n2"]);
        let fewer = intent.without(&"n2".into()).unwrap();
        assert_eq!(without(&fewer, "n1"), Err(Role::ControlPlane));
    }
}
