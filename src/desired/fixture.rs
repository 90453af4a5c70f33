//! A small world for this folder's tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Desired,
    pki::{Keys, PkiContext, PkiError, Seed, reconcile},
};
use crate::{
    catalog::Images,
    config::{
        AuditLog, Authorization, Credential, Dns, Ingress, Intent, Login, Network, NodeIntent,
        PodSecurity, SecretsEncryption, ServiceExtras, Services,
    },
    error::{ErrorClass, Obstacle},
    facts::{
        Actual, ContainerFact, ContainerState, ContainerdFacts, DockerFacts, FileFact, HostFacts,
        HostView, ReachedBy, SystemFacts, Unreachable,
    },
    model::{
        AgentProgram, CLAIM, ClusterId, Endpoint, EtcdPlace, KubernetesVersion, NodeName, Owner,
        Registries, Retention, Role, Secret, SnapshotPolicy, UpgradeStrategy, label,
    },
};

pub(super) const NONE_HELD: BTreeSet<ClusterId> = BTreeSet::new();
pub(super) const NO_NODE: BTreeSet<NodeName> = BTreeSet::new();

pub(crate) fn now() -> jiff::Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

pub(super) fn node(address: &str, roles: &[Role]) -> NodeIntent {
    NodeIntent {
        endpoint: Endpoint {
            address: address.to_owned(),
            port: 22,
        },
        login: Login {
            user: "rke".to_owned(),
            credential: Credential::Key(Secret::new("a private key".to_owned()), None),
            key_source: "~/.ssh/id_ed25519".to_owned(),
            docker_socket: "/var/run/docker.sock".to_owned(),
        },
        internal_address: address.into(),
        has_internal_address: false,
        roles: roles.iter().copied().collect(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        bastions: Vec::new(),
        ssh_config: BTreeMap::new(),
    }
}

/// One node with all three roles.
pub(crate) fn intent() -> Intent {
    let all = [Role::Etcd, Role::ControlPlane, Role::Worker];
    intent_of(&[("n1", "10.0.0.2", &all)])
}

pub(crate) fn intent_of(nodes: &[(&str, &str, &[Role])]) -> Intent {
    let extras = ServiceExtras::default;
    Intent {
        cluster_name: "local".to_owned(),
        version: KubernetesVersion {
            major: 1,
            minor: 34,
            patch: 4,
        },
        version_given: true,
        nodes: nodes
            .iter()
            .map(|(name, address, roles)| (NodeName::from(*name), node(address, roles)))
            .collect(),
        images: Images {
            kubernetes: "rancher/hardened-kubernetes:v1.34.4".to_owned(),
            etcd: "rancher/hardened-etcd:v3.6.7".to_owned(),
            coredns: "rancher/hardened-coredns:v1.14.1".to_owned(),
            nodelocal: "rancher/hardened-dns-node-cache:1.26.7".to_owned(),
            flannel: "rancher/hardened-flannel:v0.28.1".to_owned(),
            metrics_server: "rancher/hardened-k8s-metrics-server:v0.8.1".to_owned(),
            cni_plugins: "rancher/hardened-cni-plugins:v1.9.0".to_owned(),
            pause: "rancher/mirrored-pause:3.6".to_owned(),
            nginx: "nginx:1.26.3".to_owned(),
            runtime: "rancher/rke2-runtime:v1.34.4-rke2r1".to_owned(),
            klipper_helm: "rancher/klipper-helm:v0.9.14".to_owned(),
        },
        system_images: BTreeMap::new(),
        services: Services {
            etcd: extras(),
            snapshots: Some(SnapshotPolicy {
                interval: 12 * 3600,
                retention: Retention::Younger(72 * 3600),
                timeout: 300,
                safe_timestamp: false,
            }),
            snapshot_bucket: None,
            kube_api: extras(),
            kube_controller: extras(),
            scheduler: extras(),
            kubelet: extras(),
            kubeproxy: extras(),
            cluster_cidr: "10.42.0.0/16".parse().unwrap(),
            service_cluster_ip_range: "10.43.0.0/16".parse().unwrap(),
            service_node_port_range: (30000, 32767),
            cluster_domain: "cluster.local".to_owned(),
            cluster_dns_server: "10.43.0.10".parse().unwrap(),
            fail_swap_on: false,
            always_pull_images: false,
            audit_log: Some(AuditLog {
                max_age: 30,
                max_backup: 10,
                max_size: 100,
                format: "json".to_owned(),
                policy: None,
            }),
            pod_security: PodSecurity::Privileged,
            event_rate_limit: None,
            admission_plugins: [].into(),
            secrets_encryption: SecretsEncryption::Off,
        },
        etcd_owner: Owner::ROOT,
        etcd: EtcdPlace::Nodes,
        sans: BTreeSet::new(),
        webhook: None,
        authorization: Authorization::Rbac,
        cloud_provider: None,
        network: Network::Flannel(Box::default()),
        ingress: Ingress::None,
        dns: Dns::CoreDns(Box::default()),
        metrics_server: None,
        manifests: Vec::new(),
        registries: Registries::default(),
        upgrade: UpgradeStrategy::default(),
        agent: Some(AgentProgram {
            file: "/nowhere/rke-operator".into(),
            sha256: "0123456789abcdef".repeat(4),
            architecture: "x86_64".to_owned(),
        }),
    }
}

/// An ordinary server with Docker and nothing else.
pub(crate) fn facts() -> HostFacts {
    HostFacts {
        docker: DockerFacts {
            reached: ReachedBy::Socket,
            version: "26.1.5".to_owned(),
            api_version: "1.45".to_owned(),
            root_dir: "/var/lib/docker".to_owned(),
            storage_driver: "overlay2".to_owned(),
            cgroup_driver: "systemd".to_owned(),
            cgroup_version: 2,
            security_options: vec!["name=seccomp,profile=builtin".to_owned()],
            log_driver: "json-file".to_owned(),
            logs_bounded: false,
            default_runtime: "runc".to_owned(),
            proxy: None,
            architecture: "x86_64".to_owned(),
            processors: 4,
            memory: 8 << 30,
            mirrors: vec![],
            insecure_registries: vec![],
            lacking_cgroups: BTreeSet::new(),
        },
        containers: BTreeMap::new(),
        images: BTreeSet::new(),
        files: None,
        system: SystemFacts {
            hostname: "n1".to_owned(),
            systemd: true,
            containerd: ContainerdFacts {
                socket: true,
                unit: true,
                dump: "version = 2\n".to_owned(),
                ctr: true,
                ..ContainerdFacts::default()
            },
            resolv_conf: "/run/systemd/resolve/resolv.conf".to_owned(),
            ..SystemFacts::default()
        },
        clock: None,
    }
}

pub(crate) fn up(facts: HostFacts) -> HostView {
    HostView::Reachable(Box::new(facts))
}

pub(super) fn down() -> Unreachable {
    Unreachable {
        alike: None,
        obstacle: Obstacle::Silence,
        class: ErrorClass::Host,
        why: "connection refused".to_owned(),
        hints: vec!["is sshd running?".to_owned()],
    }
}

/// Every node answers and has nothing.
pub(crate) fn blank(intent: &Intent) -> Actual {
    Actual {
        hosts: intent
            .nodes
            .keys()
            .map(|name| (name.clone(), up(facts())))
            .collect(),
        ..Actual::default()
    }
}

/// The world after `desired` was applied.
pub(super) fn applied(desired: &Desired) -> Actual {
    let hosts = desired
        .hosts
        .iter()
        .map(|(name, host)| {
            let mut facts = facts();
            let file = |content: &Secret<Vec<u8>>, mode| FileFact {
                content: Arc::new(content.clone()),
                mode,
                uid: 0,
                gid: 0,
                is_dir: false,
            };
            facts.files = Some(
                host.files
                    .iter()
                    .map(|(path, wanted)| (path.clone(), file(&wanted.content, wanted.mode)))
                    .collect(),
            );
            facts
                .containers
                .insert(CLAIM.to_owned(), claim(&desired.cluster_id));
            (name.clone(), up(facts))
        })
        .collect();
    Actual {
        hosts,
        kubeconfig: Some(desired.kubeconfig.clone()),
        saved: Some(Box::new(desired.saved.clone())),
        ..Actual::default()
    }
}

pub(crate) fn claim(id: &ClusterId) -> ContainerFact {
    ContainerFact {
        id: "c1a1".to_owned(),
        labels: BTreeMap::from([
            (label::CLUSTER_ID.to_owned(), id.0.clone()),
            (label::CLUSTER_NAME.to_owned(), "theirs".to_owned()),
        ]),
        state: ContainerState::Created,
        runs: None,
        image: crate::model::FILES_IMAGE.to_owned(),
        started: None,
    }
}

pub(crate) fn reuse_or_issue(intent: &Intent, have: &Actual, seed: u8) -> Result<Keys, PkiError> {
    reuse_or_issue_at(intent, have, seed, now(), None)
}

pub(super) fn reuse_or_issue_at(
    intent: &Intent,
    have: &Actual,
    seed: u8,
    now: jiff::Timestamp,
    recover: Option<&ClusterId>,
) -> Result<Keys, PkiError> {
    let context = PkiContext {
        now,
        seed: Seed::new([seed; 32]),
        recover,
        accept_etcd: None,
        rotate: None,
        rotate_key: false,
        service_account_key: None,
        authorities: None,
        restore: None,
        held_elsewhere: &NONE_HELD,
        lose: &NO_NODE,
        clean: &NO_NODE,
        given: None,
    };
    reconcile(intent, have, &context)
}

/// A fresh cluster's picture.
pub(super) fn desired(intent: &Intent) -> Desired {
    let have = blank(intent);
    Desired::from_intent(intent, &reuse_or_issue(intent, &have, 7).unwrap(), &have).unwrap()
}
