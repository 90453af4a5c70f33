//! RKE's schema, all of it, as one table: each key with its type, its default, whether its value
//! is secret, what is done with it, and a line of documentation. Pure data: `validate` walks a
//! document by it, `secrets` finds by it what must not be shown, `keys` makes the reference of it.
//!
//! A key that is not read passes when it says nothing or has the value that RKE's default gives
//! (as `rke config` writes it). A key that RKE does not have is an error. A key that has nothing to act
//! on here says so in the reference.

mod aci;
mod addons;
mod cloud;
mod ingress;
mod key;
mod network;
mod nodes;
mod services;

pub(super) use addons::EFFECTS;
use addons::{DNS, MONITORING};
use cloud::CLOUD_PROVIDER;
use ingress::INGRESS;
pub(super) use key::{Answer, Below, Key, Kind, boolean};
use key::{any, duration, each, flag, later_section, list, map, number, section, text};
pub(super) use network::NETWORK;
pub(super) use nodes::NODE;
use nodes::{BASTION, WAY};
pub(super) use services::{ETCD, KUBE_API, KUBE_CONTROLLER, KUBELET, SERVICE, SERVICES};

/// The top level of `cluster.yml`.
pub(super) const ROOT: &[Key] = &[
    each("nodes", "The machines of the cluster.", NODE).known_by("address", 1).most(1000).used(),
    section("services", "The components of Kubernetes.", SERVICES),
    section("network", "The network plugin.", NETWORK),
    section("authentication", "How the API server authenticates users.", AUTHENTICATION),
    section("authorization", "How the API server authorizes requests.", AUTHORIZATION),
    any("addons", "Manifests, one YAML document each, applied after the cluster is up. Objects that are removed from them are deleted.").secret().used(),
    list("addons_include", "Files, relative to the config, and URLs of such manifests. Not available in `Cluster` objects.").used(),
    map("system_images", "Images by RKE's names; a name that is missing has the image of the catalogue.").used(),
    text("ssh_key_path", "The private key file for nodes that name no key. When empty: the first of `~/.ssh/id_rsa`, `id_ecdsa`, `id_ed25519` that has no passphrase, else the SSH agent.").default("~/.ssh/id_rsa").used(),
    text("ssh_cert_path", "The file of that key's OpenSSH certificate; not in a `Cluster` object.").used(),
    flag("ssh_agent_auth", "Log in with the keys of an SSH agent, not in a `Cluster` object. Without an agent (`SSH_AUTH_SOCK`) key files are used.").used(),
    flag("ignore_docker_version", "Accept any version of Docker.")
        .same("what Docker can do is checked, not its version"),
    flag("enable_cri_dockerd", "Run pods through cri-dockerd.").default("true")
        .same("pods run on the containerd that Docker brings"),
    text("kubernetes_version", "The release of Kubernetes; the default release of rke-operator when empty. An existing cluster keeps its release.").pattern(VERSION).most(64).used(),
    each("private_registries", "Registries that need a login, have a private CA, or have the system images. Docker and kubelet use these settings.", REGISTRY).most(32).used(),
    section("ingress", "The ingress controller.", INGRESS),
    text("cluster_name", "The cluster's name in its kubeconfig.").default("local").used(),
    section("cloud_provider", "The cloud that the nodes run in.", CLOUD_PROVIDER),
    text("prefix_path", "The folder on the nodes that contains RKE's folders.").default("/"),
    text("win_prefix_path", "The same on Windows nodes."),
    number("addon_job_timeout", "Seconds that RKE waits for an add-on.").default("45")
        .same("add-ons are applied at once, and a run reports how long it waits for them"),
    section(
        "bastion_host",
        "A machine through which the nodes are reached; in a file also a list of them, in the order in which they are dialled.",
        BASTION,
    )
    .or_list(WAY),
    section("monitoring", "The metrics server.", MONITORING),
    later_section("restore", "Restore etcd from a snapshot at the next `up`.", RESTORE).refused(
        "remove it: `rke-operator etcd snapshot-restore --name NAME` (a `Cluster` has the `ClusterOperation` of the type `Restore`) restores a snapshot",
    ),
    any("rotate_certificates", "Replace certificates at the next `up`.").never(
        "remove it: `rke-operator cert rotate` (a `Cluster` has the `ClusterOperation` of the type `RotateCertificates`) replaces certificates",
    ),
    flag("rotate_encryption_key", "Replace the encryption key at the next `up`.").refused(
        "remove it: `rke-operator encrypt rotate-key` (a `Cluster` has the `ClusterOperation` of the type `RotateEncryptionKey`) replaces the key",
    ),
    section("dns", "The cluster's DNS server.", DNS),
    section("upgrade_strategy", "How many nodes may be unavailable while they are changed.", UPGRADE_STRATEGY),
    text("cri_dockerd_stream_server_address", "Address that cri-dockerd listens on.").default("127.0.0.1").same(NO_CRI_DOCKERD),
    number("cri_dockerd_stream_server_port", "Port that cri-dockerd listens on.").default("10010").same(NO_CRI_DOCKERD),
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
        "Additional names and addresses in the API server's certificate.",
    )
    .used(),
    section(
        "webhook",
        "A server that authenticates bearer tokens.",
        &[
            any(
                "config_file",
                "The content of its kubeconfig; when empty, the server is on the node itself, at port 6440.",
            )
            .by_reference()
            .used(),
            duration("cache_timeout", "How long its answers are kept.")
                .default("5s")
                .used(),
        ],
    ),
    map("options", "From releases of RKE before 1.0.")
        .ignored("remove it: RKE 1.6 does not read it either"),
];

const AUTHORIZATION: &[Key] = &[
    text("mode", "`rbac` or `none`.").default("rbac").used(),
    map("options", "Not used by RKE."),
];

const NO_ECR: &str = "remove it: let kubelet run a credential provider of AWS (`services.kubelet.extra_args`: `image-credential-provider-config`), or write a user and a password";

const REGISTRY: &[Key] = &[
    text("url", "Host and port, and optionally a path prefix; one entry for each registry.").default("docker.io").used(),
    text("user", "The user.").used(),
    text("password", "The password. A change restarts nothing; kubelet reads it within five minutes.").by_reference().used(),
    flag("is_default", "Pull from here the system images that `system_images` does not name, including those of charts: `URL/IMAGE`.").used(),
    text("ca", "Not in RKE: the CA certificate of the registry, as PEM.").secret().used(),
    text("ca_path", "Not in RKE: the file of that certificate; not in a `Cluster` object.").used(),
    any("ecrCredentialPlugin", "Only in RKE's documentation; RKE reads `ecr_credential_plugin`.")
        .secret()
        .ignored(NO_ECR),
    section(
        "ecr_credential_plugin",
        "Log in to a registry of AWS.",
        &[
            text("aws_access_key_id", "The access key.").secret().refused(NO_ECR),
            text("aws_secret_access_key", "Its secret.").secret().refused(NO_ECR),
            text("aws_session_token", "The session token.").secret().refused(NO_ECR),
        ],
    ),
];

const RESTORE: &[Key] = &[
    flag("restore", "Whether to restore."),
    text("snapshot_name", "The snapshot to restore."),
];

const UPGRADE_STRATEGY: &[Key] = &[
    text(
        "max_unavailable_worker",
        "How many workers may be unavailable at the same time, as a number or a percentage.",
    )
    .default("10%")
    .used(),
    text(
        "max_unavailable_controlplane",
        "How many nodes with etcd or a control plane may be unavailable at the same time while their kubelets are changed; etcd members and API servers are always replaced one at a time.",
    )
    .default("1")
    .used(),
    flag("drain", "Evict the pods of a node before its kubelet is changed. Otherwise the node is only cordoned.").used(),
    section(
        "node_drain_input",
        "How pods are evicted.",
        &[
            flag("force", "Evict pods without a controller, too: nothing starts them again.").used(),
            flag(
                "ignore_daemonsets",
                "Do not evict pods of DaemonSets.",
            )
            .default("true")
            .used(),
            flag("delete_local_data", "Evict pods with an emptyDir, too: its data are lost.").used(),
            number(
                "grace_period",
                "Seconds for a pod to terminate; the grace period of the pod when negative.",
            )
            .default("-1")
            .used(),
            number("timeout", "Timeout of the eviction, in seconds.")
                .default("120")
                .used(),
        ],
    ),
];
