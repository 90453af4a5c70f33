//! Small worlds and what is wanted of them: strategies that shrink to the plainest case.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rke_operator::{
    desired::{
        Addon, Chart, Desired, DesiredFile, DesiredHost, WantedChart,
        pki::{Certificates, Handover},
    },
    model::{
        CertificateRecord, ClusterId, Component, ContainerSpec, ContainerdWants, Digest, Endpoint,
        HostNetwork, KernelWants, KubernetesVersion, NodeMeta, NodeName, ObjectRef, Owner,
        Registries, Role, Taint, UpgradeStrategy, label, path, secret::Secret,
    },
    state::{
        Authority, CaPair, ClusterState, DigestKey, GivenCertificates, InventoryEntry, Membership,
        OperatorMemory, ServiceAccounts,
    },
};
use serde_json::json;

/// What a config may say differently.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a line of a config")]
pub(crate) struct Knobs {
    pub(crate) tag: u8,
    pub(crate) minor: u8,
    pub(crate) verbosity: u8,
    pub(crate) certificate: u8,
    pub(crate) pause: u8,
    pub(crate) labelled: bool,
    pub(crate) tainted: bool,
    pub(crate) scheduler: bool,
    pub(crate) coredns: bool,
    pub(crate) replicas: u8,
    /// 0: flannel and no chart; else canal and nginx, with these values.
    pub(crate) charts: u8,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            tag: 0,
            minor: 34,
            verbosity: 2,
            certificate: 0,
            pause: 0,
            labelled: false,
            tainted: false,
            scheduler: true,
            coredns: true,
            replicas: 1,
            charts: 0,
        }
    }
}

pub(crate) fn knobs() -> impl Strategy<Value = Knobs> {
    (
        0..2u8,
        2..4u8,
        0..2u8,
        0..2u8,
        any::<[bool; 2]>(),
        any::<[bool; 2]>(),
        1..3u8,
        0..3u8,
    )
        .prop_map(
            |(
                tag,
                verbosity,
                certificate,
                pause,
                [labelled, tainted],
                [no_scheduler, no_coredns],
                replicas,
                charts,
            )| {
                Knobs {
                    tag,
                    minor: 34,
                    verbosity,
                    certificate,
                    pause,
                    labelled,
                    tainted,
                    scheduler: !no_scheduler,
                    coredns: !no_coredns,
                    replicas,
                    charts,
                }
            },
        )
}

/// The names of `count` nodes.
pub(crate) fn names(count: usize) -> Vec<NodeName> {
    (1..=count)
        .map(|number| NodeName(format!("n{number}")))
        .collect()
}

/// What the cluster `id` wants of its hosts.
pub(crate) fn desired(id: &str, hosts: &[NodeName], knobs: &Knobs) -> Desired {
    let saved = saved(id, hosts);
    let hosts = hosts
        .iter()
        .map(|name| (name.clone(), host(id, name, knobs)));
    let mut addons = Vec::new();
    if knobs.charts == 0 {
        addons.push(flannel());
    }
    if knobs.coredns {
        addons.push(coredns(knobs));
    }
    Desired {
        bundle: None,
        etcd_tools: "rancher/mirrored-coreos-etcd:v3.6.7".to_owned(),
        agent: None,
        cluster_id: ClusterId(id.to_owned()),
        hosts: hosts.collect(),
        addons,
        charts: charts(knobs),
        known_addons: ["flannel", "coredns"].map(str::to_owned).into(),
        known_charts: ["canal", "nginx"].map(str::to_owned).into(),
        upgrade: UpgradeStrategy::default(),
        saved,
        certificates: Certificates::default(),
        rewrite: None,
        encryption_settled: true,
        rolls: [].into(),
        renewed_tokens: None,
        handover: Handover::default(),
        notes: Vec::new(),
        kubeconfig: Secret::new(format!("kubeconfig of {id}")),
        registries: Registries::default(),
        lose: BTreeSet::new(),
        clean: BTreeSet::new(),
    }
}

/// The charts, with values that differ.
fn charts(knobs: &Knobs) -> Vec<WantedChart> {
    if knobs.charts == 0 {
        return Vec::new();
    }
    let chart = |name: &str| WantedChart {
        chart: Chart {
            name: name.to_owned(),
            chart: format!("rke2-{name}"),
            namespace: "kube-system".to_owned(),
            crds: None,
            values: json!({"a": knobs.charts}),
        },
        runtime: "rke2-runtime:1".to_owned(),
        helm: "klipper-helm:1".to_owned(),
        version: KubernetesVersion {
            major: 1,
            minor: u16::from(knobs.minor),
            patch: 0,
        },
        digest: Digest(format!("{name} {} {}", knobs.charts, knobs.minor)),
    };
    ["canal", "nginx"].map(chart).to_vec()
}

/// Takes roles away, host by host: bit 0 is etcd, bit 1 the control plane. The first host keeps all.
pub(crate) fn with_roles(mut want: Desired, masks: &[u8]) -> Desired {
    for (host, mask) in want.hosts.values_mut().skip(1).zip(masks) {
        if mask & 1 == 0 {
            host.containers.remove(&Component::Etcd);
        }
        if mask & 2 == 0 {
            for component in [
                Component::ApiServer,
                Component::ControllerManager,
                Component::Scheduler,
            ] {
                host.containers.remove(&component);
            }
            let proxy = container("nginx-proxy");
            host.images.insert(proxy.image.clone());
            host.containers.insert(Component::NginxProxy, proxy);
        }
    }
    let has = |name: &NodeName, component: Component| {
        let host = want.hosts.get(name);
        host.is_some_and(|host| host.containers.contains_key(&component))
    };
    for (name, entry) in &mut want.saved.inventory {
        entry.roles.retain(|role| match role {
            Role::Etcd => has(name, Component::Etcd),
            Role::ControlPlane => has(name, Component::ApiServer),
            Role::Worker => true,
        });
    }
    want.saved
        .etcd_bootstrap
        .retain(|name, _| has(name, Component::Etcd));
    let servers: Vec<&NodeName> = want.with(Component::ApiServer).collect();
    let config = file(format!("leads to {servers:?}"), 0o644);
    let read = file(format!("has read {}", config.digest.0), 0o644);
    for host in want.hosts.values_mut() {
        if host.containers.contains_key(&Component::NginxProxy) {
            let files = [(path::PROXY_CONFIG, &config), (path::PROXY_READ, &read)];
            let files = files.map(|(path, file)| (path.to_owned(), file.clone()));
            host.files.extend(files);
        }
    }
    want
}

/// An image that every release has.
fn container(name: &str) -> ContainerSpec {
    ContainerSpec {
        image: "nginx:1.26.3".to_owned(),
        entrypoint: vec![name.to_owned()],
        command: Vec::new(),
        bootstrap_args: Vec::new(),
        env: Vec::new(),
        binds: Vec::new(),
        mounts: Vec::new(),
        user: Owner::ROOT,
        privileged: false,
        host_pid: false,
        host_cgroupns: false,
        security_opts: Vec::new(),
        tmpfs: Vec::new(),
        cap_drop: Vec::new(),
        log_limit: None,
        files: BTreeMap::new(),
        certificates: BTreeMap::new(),
    }
}

fn saved(id: &str, hosts: &[NodeName]) -> ClusterState {
    let ca = |name: &str| {
        Authority::of(CaPair {
            cert: format!("{name} certificate of {id}"),
            key: Some(Secret::new(format!("{name} key of {id}"))),
        })
    };
    let entry = |name: &NodeName| InventoryEntry {
        endpoint: Endpoint {
            address: format!("{name}.example"),
            port: 22,
        },
        user: "core".to_owned(),
        key_source: "~/.ssh/id_ed25519".to_owned(),
        certificate_source: None,
        bastions: Vec::new(),
        docker_socket: "/var/run/docker.sock".to_owned(),
        roles: vec![Role::Etcd, Role::ControlPlane, Role::Worker],
        machine_id: Some(format!("machine {name}")),
        host_keys: Vec::new(),
        membership: Membership::Active,
        lost_at: None,
    };
    ClusterState {
        serial: 1,
        digest_key: DigestKey::new([7; 32]),
        etcd_epoch: None,
        cluster_id: ClusterId(id.to_owned()),
        cluster_name: format!("cluster-{id}"),
        cluster_ca: ca("cluster"),
        etcd_ca: ca("etcd"),
        front_proxy_ca: ca("front proxy"),
        kubernetes_version: None,
        signer_ca: Some(ca("signer")),
        service_accounts: ServiceAccounts {
            signing: Secret::new(format!("service account key of {id}")),
            verifying: vec![format!("public service account key of {id}")],
            next: None,
            issuers: vec!["https://kubernetes.default.svc.cluster.local".to_owned()],
            audiences: Vec::new(),
        },
        encryption: Vec::new(),
        external_etcd: None,
        etcd_bootstrap: hosts
            .iter()
            .map(|name| (name.clone(), format!("https://{name}:2380")))
            .collect(),
        given: GivenCertificates::default(),
        memory: OperatorMemory::default(),
        inventory: hosts
            .iter()
            .map(|name| (name.clone(), entry(name)))
            .collect(),
    }
}

fn file(text: String, mode: u32) -> DesiredFile {
    let digest = Digest(format!("digest of {}", text.trim()));
    DesiredFile {
        content: Secret::new(text.into_bytes()),
        mode,
        owner: Owner::ROOT,
        digest,
    }
}

/// What the certificate of an API server says: another one for the same with each number.
fn certificates(component: Component, knobs: &Knobs) -> BTreeMap<String, CertificateRecord> {
    let record = CertificateRecord {
        fingerprint: knobs.certificate.to_string(),
        subject: "CN=kube-apiserver".to_owned(),
        names: Vec::new(),
        ends: 1_900_000_000,
        issuer: None,
    };
    let read = (component == Component::ApiServer)
        .then(|| (format!("{}/kube-apiserver.pem", path::SSL), record));
    read.into_iter().collect()
}

fn host(id: &str, name: &NodeName, knobs: &Knobs) -> DesiredHost {
    let in_ssl = |file: &str| format!("{}/{file}", path::SSL);
    let certificate = knobs.certificate;
    let files = BTreeMap::from([
        (in_ssl("kube-ca.pem"), file(format!("ca of {id}"), 0o644)),
        (
            in_ssl("kube-apiserver.pem"),
            file(format!("api {certificate} of {name}"), 0o644),
        ),
        (
            in_ssl("kube-node-key.pem"),
            file(format!("key of {name}"), 0o600),
        ),
        (
            path::MODULES_LOAD.to_owned(),
            file("br_netfilter\n".to_owned(), 0o644),
        ),
    ]);
    let images = |component: Component| match component {
        Component::Etcd => "rancher/hardened-etcd:v3.6".to_owned(),
        Component::Snapshots => format!("rancher/mirrored-coreos-etcd:v3.6.{}", knobs.tag),
        _ => format!(
            "rancher/hardened-kubernetes:v1.{}.4-build{}",
            knobs.minor, knobs.tag
        ),
    };
    let containers: BTreeMap<Component, ContainerSpec> = Component::ALL
        .into_iter()
        .filter(|component| knobs.scheduler || *component != Component::Scheduler)
        .filter(|component| *component != Component::NginxProxy)
        .map(|component| {
            let reads = match component {
                Component::ApiServer => vec![in_ssl("kube-ca.pem"), in_ssl("kube-apiserver.pem")],
                Component::Kubelet => vec![in_ssl("kube-ca.pem"), in_ssl("kube-node-key.pem")],
                _ => vec![in_ssl("kube-ca.pem")],
            };
            let digests = reads
                .into_iter()
                .map(|path| (path.clone(), files[&path].digest.clone()));
            let mut command = vec![format!("--v={}", knobs.verbosity)];
            if component == Component::ApiServer {
                command.push("--service-cluster-ip-range=10.43.0.0/16".to_owned());
            }
            if component == Component::ControllerManager {
                command.push("--cluster-cidr=10.42.0.0/16".to_owned());
            }
            let spec = ContainerSpec {
                image: images(component),
                command,
                user: Owner::ROOT,
                privileged: component == Component::Kubelet,
                host_pid: component == Component::Kubelet,
                host_cgroupns: component == Component::Kubelet,
                files: digests.collect(),
                certificates: certificates(component, knobs),
                ..container(component.container())
            };
            (component, spec)
        })
        .collect();
    let pause = format!("rancher/mirrored-pause:3.{}", knobs.pause);
    let images: BTreeSet<String> = containers
        .iter()
        .filter(|(component, _)| **component != Component::Snapshots)
        .map(|(_, spec)| spec.image.clone())
        .chain([pause.clone()])
        .collect();
    DesiredHost {
        kept: BTreeSet::new(),
        dirs: BTreeMap::from([
            (path::KUBERNETES.to_owned(), 0o755),
            (path::SSL.to_owned(), 0o755),
            (path::ETCD.to_owned(), 0o700),
            (path::KUBELET.to_owned(), 0o750),
        ]),
        files,
        containers,
        images,
        containerd: ContainerdWants {
            sandbox_image: pause,
            cni_bin_dir: "/opt/cni/bin".to_owned(),
            cni_conf_dir: "/etc/cni/net.d".to_owned(),
            registry_config_path: "/etc/containerd/certs.d".to_owned(),
            systemd_cgroup: true,
            environment: [].into(),
        },
        kernel: KernelWants {
            modules: ["br_netfilter".to_owned()].into(),
            sysctls: [("net.ipv4.ip_forward".to_owned(), "1".to_owned())].into(),
        },
        forbids_swap: false,
        network: HostNetwork::default(),
        node: NodeMeta {
            labels: knobs
                .labelled
                .then(|| ("zone".to_owned(), "a".to_owned()))
                .into_iter()
                .chain([(
                    "node-role.kubernetes.io/worker".to_owned(),
                    "true".to_owned(),
                )])
                .collect(),
            annotations: [(
                "rke.cattle.io/internal-ip".to_owned(),
                "10.0.0.1".to_owned(),
            )]
            .into(),
            taints: knobs
                .tainted
                .then(|| Taint {
                    key: "only".to_owned(),
                    value: "us".to_owned(),
                    effect: "NoSchedule".to_owned(),
                })
                .into_iter()
                .collect(),
        },
    }
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn manifest(addon: &str, spec: &serde_json::Value) -> serde_json::Value {
    json!({"metadata": {"labels": {label::ADDON: addon}}, "spec": spec})
}

fn flannel() -> Addon {
    let account = object("v1", "ServiceAccount", "kube-system", "flannel");
    let daemons = object("apps/v1", "DaemonSet", "kube-system", "flannel");
    Addon {
        name: "flannel".to_owned(),
        objects: BTreeMap::from([
            (account, manifest("flannel", &json!({}))),
            (
                daemons.clone(),
                manifest("flannel", &json!({"template": {"hostNetwork": true}})),
            ),
        ]),
        workloads: vec![daemons],
    }
}

fn coredns(knobs: &Knobs) -> Addon {
    let config = object("v1", "ConfigMap", "kube-system", "coredns");
    let deployment = object("apps/v1", "Deployment", "kube-system", "coredns");
    Addon {
        name: "coredns".to_owned(),
        objects: BTreeMap::from([
            (config, manifest("coredns", &json!({}))),
            (
                deployment.clone(),
                manifest("coredns", &json!({"replicas": 1, "v": knobs.replicas})),
            ),
        ]),
        workloads: vec![deployment],
    }
}
