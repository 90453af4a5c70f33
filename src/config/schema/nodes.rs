//! `nodes` and `bastion_host`. Pure data.

use super::{
    addons::EFFECTS,
    key::{Key, each, flag, list, map, number, text},
};

/// An entry of `nodes`.
pub(in crate::config) const NODE: &[Key] = &[
    text(
        "address",
        "Host name or IP address that SSH connects to; required. An IPv6 address needs an `internal_address` and a `hostname_override`.",
    )
    .most(253)
    .used(),
    number("port", "Port of sshd.").default("22").used(),
    text(
        "internal_address",
        "IPv4 address for traffic among the nodes, if it differs from `address`.",
    )
    .most(253)
    .used(),
    list(
        "role",
        "`controlplane`, `etcd`, `worker`; at least one. The only node of a cluster has all three when empty.",
    )
    .words(&["controlplane", "etcd", "worker"])
    .most(3)
    .used(),
    text(
        "hostname_override",
        "The node's name in Kubernetes; its `address` when empty.",
    )
    .used(),
    text(
        "user",
        "The user to log in as, who must be allowed to use Docker. The user who runs the command when empty, as with `ssh`; required in a `Cluster` object.",
    )
    .used(),
    text("docker_socket", "Docker's socket on the node.")
        .default("/var/run/docker.sock")
        .most(253)
        .used(),
    text(
        "ssh_key",
        "The private key itself; not in a `Cluster` object.",
    )
    .by_reference()
    .used(),
    text(
        "ssh_key_path",
        "The file of the private key; not in a `Cluster` object.",
    )
    .used(),
    text("ssh_cert", "The private key's OpenSSH certificate itself.").used(),
    text(
        "ssh_cert_path",
        "The file of that certificate; not in a `Cluster` object.",
    )
    .used(),
    flag("ssh_agent_auth", "Overwritten by the key at the top level.")
        .ignored("write `ssh_agent_auth` at the top level: RKE too reads only that one"),
    map("labels", "Labels of the Node object.").most(64).used(),
    each("taints", "Taints of the Node object.", TAINT).most(32).used(),
    text("nodeName", "Set by Rancher."),
    text("machine_name", "From releases of RKE before 0.1.2.")
        .ignored("write it as `hostname_override`: RKE does not read this name any more"),
];

const TAINT: &[Key] = &[
    text("key", "The taint's key; required.").used(),
    text("value", "The taint's value.").used(),
    text(
        "effect",
        "`NoSchedule`, `PreferNoSchedule` or `NoExecute`; required.",
    )
    .words(EFFECTS)
    .used(),
    text("timeAdded", "Set by Kubernetes.").ignored("remove it: Kubernetes sets it"),
];

/// `bastion_host`.
pub(super) const BASTION: &[Key] = &[
    BASTION_ADDRESS,
    BASTION_PORT,
    BASTION_USER,
    BASTION_KEY,
    BASTION_KEY_PATH,
    BASTION_CERT,
    BASTION_CERT_PATH,
    BASTION_AGENT,
    flag(
        "ignore_proxy_env_vars",
        "Do not use the proxy of RKE's environment variables.",
    )
    .same("no proxy of the environment is used"),
    each(
        "through",
        "The bastion hosts through which this one is reached, in this order. RKE does not support this.",
        WAY,
    )
    .most(4)
    .used(),
];

/// `bastion_host.through`, and `bastion_host` as a list.
pub(super) const WAY: &[Key] = &[
    BASTION_ADDRESS,
    BASTION_PORT,
    BASTION_USER,
    BASTION_KEY,
    BASTION_KEY_PATH,
    BASTION_CERT,
    BASTION_CERT_PATH,
    BASTION_AGENT,
];

const BASTION_ADDRESS: Key = text(
    "address",
    "Host name or IP address that SSH connects to. The bastion host resolves the addresses of the nodes.",
)
.used();
const BASTION_PORT: Key = number("port", "Port of sshd.").default("22").used();
const BASTION_USER: Key = text(
    "user",
    "The user to log in as; the user who runs the command when empty.",
)
.used();
const BASTION_KEY: Key = text(
    "ssh_key",
    "The private key itself; not in a `Cluster` object.",
)
.by_reference()
.used();
const BASTION_KEY_PATH: Key = text(
    "ssh_key_path",
    "The file of the private key; that of the nodes when empty.",
)
.used();
const BASTION_CERT: Key = text("ssh_cert", "The private key's OpenSSH certificate itself.").used();
const BASTION_CERT_PATH: Key = text("ssh_cert_path", "The file of that certificate.").used();
const BASTION_AGENT: Key = flag("ssh_agent_auth", "Log in with the keys of an SSH agent.").used();
