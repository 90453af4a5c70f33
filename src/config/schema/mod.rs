//! RKE's schema, all of it, as one table: each key with its type, its default, whether its value
//! is secret, what is done with it, and a line of documentation. Pure data: `validate` walks a
//! document by it, `secrets` finds by it what must not be shown, `keys` makes the reference of it.
//!
//! A key that is not read passes when it says nothing or has the value that RKE's default gives
//! (as `rke config` writes it). A key that RKE does not have is an error. So nothing is ignored in
//! silence.

mod aci;
mod addons;
mod cloud;
mod ingress;
mod key;
mod network;
mod nodes;
mod services;

pub(super) use addons::EFFECTS;
pub(super) use key::{Answer, Below, Key, Kind, boolean};
use key::{any, duration, each, flag, later_section, list, map, number, section, text};
pub(super) use network::NETWORK;
pub(super) use nodes::NODE;
pub(super) use services::{ETCD, KUBE_API, KUBE_CONTROLLER, KUBELET, SERVICE, SERVICES};

use addons::{DNS, MONITORING};
use cloud::CLOUD_PROVIDER;
use ingress::INGRESS;
use nodes::BASTION;

/// The top level of `cluster.yml`.
pub(super) const ROOT: &[Key] = &[
    each("nodes", "The machines of the cluster.", NODE).known_by("address", 1).most(1000).used(),
    section("services", "The components of Kubernetes.", SERVICES),
    section("network", "The network plugin.", NETWORK),
    section("authentication", "How the API server knows its users.", AUTHENTICATION),
    section("authorization", "How the API server decides what a user may do.", AUTHORIZATION),
    any("addons", "Manifests, one YAML document each, that are applied after the cluster is up. What is taken out of them is deleted.").secret().used(),
    list("addons_include", "Files, relative to the config, and URLs of such manifests. A `Cluster` object cannot name any.").used(),
    map("system_images", "Images by RKE's names; those of the catalogue where a name is missing.").used(),
    text("ssh_key_path", "The private key for nodes that name none. When empty: the first of `~/.ssh/id_rsa`, `id_ecdsa`, `id_ed25519` that has no passphrase, else the SSH agent.").default("~/.ssh/id_rsa").used(),
    text("ssh_cert_path", "The file of that key's OpenSSH certificate; not in a `Cluster` object.").used(),
    flag("ssh_agent_auth", "Log in with the keys of an SSH agent, not in a `Cluster` object. Without an agent (`SSH_AUTH_SOCK`) key files are used.").used(),
    flag("ignore_docker_version", "Accept any version of Docker.")
        .same("what Docker can do is checked, not its version"),
    flag("enable_cri_dockerd", "Run pods through cri-dockerd.").default("true")
        .same("pods run on the containerd that Docker brings"),
    text("kubernetes_version", "The release of Kubernetes; the newest that our tests prove when empty. An existing cluster keeps its own.").pattern(VERSION).most(64).used(),
    each("private_registries", "Registries that need a login, have their own authority, or have the system images. Docker pulls with it, and kubelet for pods.", REGISTRY).most(32).used(),
    section("ingress", "The ingress controller.", INGRESS),
    text("cluster_name", "The cluster's name in its kubeconfig.").default("local").used(),
    section("cloud_provider", "The cloud that the nodes run in.", CLOUD_PROVIDER),
    text("prefix_path", "Where RKE's folders begin on the nodes.").default("/"),
    text("win_prefix_path", "The same on Windows nodes."),
    number("addon_job_timeout", "Seconds that RKE waits for an add-on.").default("45")
        .same("add-ons are applied at once, and a run reports how long it waits for them"),
    section("bastion_host", "A machine through which the nodes are reached.", BASTION),
    section("monitoring", "The metrics server.", MONITORING),
    later_section("restore", "Restore etcd from a snapshot at the next `up`.", RESTORE),
    any("rotate_certificates", "Replace certificates at the next `up`.")
        .never("remove it: `rke-operator cert rotate` does it when you ask"),
    flag("rotate_encryption_key", "Replace the encryption key at the next `up`."),
    section("dns", "The cluster's DNS server.", DNS),
    section("upgrade_strategy", "How many nodes may be down while they are changed.", UPGRADE_STRATEGY),
    text("cri_dockerd_stream_server_address", "Where cri-dockerd listens.").default("127.0.0.1").same(NO_CRI_DOCKERD),
    number("cri_dockerd_stream_server_port", "Where cri-dockerd listens.").default("10010").same(NO_CRI_DOCKERD),
];

/// A release, in the spellings that people have in files.
const VERSION: &str = r"^(v?1\.[0-9]+\.[0-9]+([-+].+)?)?$";

const NO_CRI_DOCKERD: &str = "there is no cri-dockerd";

const AUTHENTICATION: &[Key] = &[
    text("strategy", "`x509`, or `x509|webhook`.")
        .default("x509")
        .used(),
    list(
        "sans",
        "More names and addresses in the API server's certificate.",
    )
    .used(),
    section(
        "webhook",
        "A server that tells who a token belongs to.",
        &[
            any(
                "config_file",
                "The content of its kubeconfig; one on the node itself, port 6440, when empty.",
            )
            .by_reference()
            .used(),
            duration("cache_timeout", "How long its answers are kept.")
                .default("5s")
                .used(),
        ],
    ),
    map("options", "Of releases of RKE before 1.0.")
        .ignored("remove it: RKE 1.6 does not read it either"),
];

const AUTHORIZATION: &[Key] = &[
    text("mode", "`rbac` or `none`.").default("rbac").used(),
    map("options", "Not used by RKE."),
];

const NO_ECR: &str = "remove it: let kubelet run a credential provider of AWS (`services.kubelet.extra_args`: `image-credential-provider-config`), or write a user and a password";

const REGISTRY: &[Key] = &[
    text("url", "Host and port, and perhaps the beginning of a path; one entry each.").default("docker.io").used(),
    text("user", "The user.").used(),
    text("password", "The password. A change restarts nothing; kubelet reads it again after five minutes at most.").by_reference().used(),
    flag("is_default", "Take the system images from here that `system_images` does not name, those of charts too: `URL/IMAGE`.").used(),
    text("ca", "Ours: the certificate of the authority that signed the registry's, as PEM.").secret().used(),
    text("ca_path", "Ours: the file of that certificate; not in a `Cluster` object.").used(),
    any("ecrCredentialPlugin", "Of RKE's documentation; RKE's files have `ecr_credential_plugin`.")
        .secret()
        .ignored(NO_ECR),
    section(
        "ecr_credential_plugin",
        "Log in to a registry of AWS.",
        &[
            text("aws_access_key_id", "The access key.").secret().refused(NO_ECR),
            text("aws_secret_access_key", "Its secret.").secret().refused(NO_ECR),
            text("aws_session_token", "The session.").secret().refused(NO_ECR),
        ],
    ),
];

const RESTORE: &[Key] = &[
    flag("restore", "Whether to restore."),
    text("snapshot_name", "From which snapshot."),
];

const UPGRADE_STRATEGY: &[Key] = &[
    text(
        "max_unavailable_worker",
        "How many workers at once, as a number or in per cent.",
    )
    .default("10%")
    .used(),
    text(
        "max_unavailable_controlplane",
        "How many nodes with etcd or a control plane at once, for their kubelets; members of etcd and API servers are always replaced one at a time.",
    )
    .default("1")
    .used(),
    flag("drain", "Evict the pods of a node before its kubelet is changed. Without it the node is only cordoned meanwhile.").used(),
    section(
        "node_drain_input",
        "How pods are evicted.",
        &[
            flag("force", "Evict pods that nothing will start again.").used(),
            flag(
                "ignore_daemonsets",
                "Leave pods of DaemonSets where they are.",
            )
            .default("true")
            .used(),
            flag("delete_local_data", "Evict pods that lose an emptyDir.").used(),
            number(
                "grace_period",
                "Seconds for a pod to end; its own when negative.",
            )
            .default("-1")
            .used(),
            number("timeout", "Seconds until the eviction is given up.")
                .default("120")
                .used(),
        ],
    ),
];
