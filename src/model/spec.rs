//! What is specified for a node and its containers, as labels and plans carry it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{EnvVar, Owner};

/// A keyed digest of a content: equal contents of one cluster have equal digests, and a
/// content cannot be guessed from one without the cluster's keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(pub String);

/// One bind mount of a component's container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Bind {
    /// Path on the node.
    pub source: String,
    /// Path in the container.
    pub target: String,
    /// `ro`, `rshared`, … comma-separated; may be empty.
    pub options: String,
}

impl From<Bind> for String {
    fn from(bind: Bind) -> Self {
        if bind.options.is_empty() {
            format!("{}:{}", bind.source, bind.target)
        } else {
            format!("{}:{}:{}", bind.source, bind.target, bind.options)
        }
    }
}

impl TryFrom<String> for Bind {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut parts = text.splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(source), Some(target), options) if !source.is_empty() && !target.is_empty() => {
                Ok(Self {
                    source: source.to_owned(),
                    target: target.to_owned(),
                    options: options.unwrap_or_default().to_owned(),
                })
            }
            (_, _, _) => Err(format!("`{text}` is not `source:target[:options]`")),
        }
    }
}

/// The complete definition of a component's container. Always host network, restart policy
/// `always`, json-file logs. Stored as JSON in the label [`super::label::SPEC`]: world against label is
/// drift, label against desired is a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Image reference.
    pub image: String,
    /// The program and what comes before its flags.
    pub entrypoint: Vec<String>,
    /// The flags.
    pub command: Vec<String>,
    /// Flags that only the first start of a new member needs: given when the container is
    /// created, after `command`, and never compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bootstrap_args: Vec<String>,
    /// Sorted by name.
    pub env: Vec<EnvVar>,
    /// Mounts, sorted by target.
    pub binds: Vec<Bind>,
    /// Mounts whose source must be there: Docker makes none, and does not start the container
    /// without it. Sorted by target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Bind>,
    /// Folders in memory, which are empty at each start. Sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tmpfs: Vec<String>,
    /// The user that it runs as, within the container and outside.
    #[serde(default, skip_serializing_if = "Owner::is_root")]
    pub user: Owner,
    /// Full access to the node (kubelet, kube-proxy).
    pub privileged: bool,
    /// Shares the node's process ids.
    pub host_pid: bool,
    /// Shares the node's cgroup namespace.
    pub host_cgroupns: bool,
    /// Docker `security_opt`.
    pub security_opts: Vec<String>,
    /// Docker `cap_drop`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_drop: Vec<String>,
    /// Limits of json-file logs; `None` when the daemon sets its own.
    pub log_limit: Option<LogLimit>,
    /// The files it reads when it starts, by path on the node: a change of one is a change of
    /// the container.
    pub files: BTreeMap<String, Digest>,
    /// What the certificates among them say, by path: a process goes on with those that it was started with,
    /// whatever is in its files by now. On record only, and never compared: releases before had none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub certificates: BTreeMap<String, CertificateRecord>,
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRecord {
    /// Tells it from all others.
    pub fingerprint: String,
    /// The subject that it names.
    pub subject: String,
    /// The names and addresses that it is good for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Its end, in seconds since 1970.
    pub ends: i64,
    /// The common name of the authority that has signed it; earlier releases did not write it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}

impl CertificateRecord {
    /// True for another certificate for the same.
    pub fn is_renewed_by(&self, other: &Self) -> bool {
        let same = self.subject == other.subject && self.names == other.names;
        same && self.fingerprint != other.fingerprint
    }
}

/// etcd's flags that only a member without data reads.
const BOOTSTRAP_FLAGS: [&str; 3] = [
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
];

impl ContainerSpec {
    /// True for a flag, `--name=value`, that only the first start of a new member needs. It counts
    /// as one wherever it stands: what a container runs has all its flags in one list, and so have
    /// labels of releases that did not tell these apart.
    pub fn is_bootstrap_flag(word: &str) -> bool {
        let name = word.trim_start_matches('-');
        let name = name.split_once('=').map_or(name, |(name, _)| name);
        word.starts_with("--") && BOOTSTRAP_FLAGS.contains(&name)
    }

    /// The values of a flag, `--name=value`, in the order in which they are given.
    pub fn flag<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let words = self.command.iter();
        words.filter_map(move |word| {
            let word = word.strip_prefix("--")?;
            word.strip_prefix(name)?.strip_prefix('=')
        })
    }

    /// The words after the entrypoint with which a container is created.
    pub fn words(&self) -> Vec<String> {
        let words = self.command.iter().chain(&self.bootstrap_args);
        words.cloned().collect()
    }
}

/// Docker json-file rotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimit {
    /// As Docker takes it, e.g. `20m`.
    pub max_size: String,
    /// How many files.
    pub max_file: u32,
}

/// What the node's containerd must be configured with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerdWants {
    /// The pause image, put into the `k8s.io` namespace by us.
    pub sandbox_image: String,
    /// `/opt/cni/bin`.
    pub cni_bin_dir: String,
    /// `/etc/cni/net.d`.
    pub cni_conf_dir: String,
    /// `/etc/containerd/certs.d`.
    pub registry_config_path: String,
    /// systemd manages the cgroups of pods, not containerd itself.
    pub systemd_cgroup: bool,
    /// Environment of its unit: the proxies that Docker uses.
    pub environment: BTreeMap<String, String>,
}

/// What the node's kernel must have, now and at every boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelWants {
    /// Modules to load.
    pub modules: BTreeSet<String>,
    /// Sysctls, dotted names.
    pub sysctls: BTreeMap<String, String>,
}

/// What the Node object must carry; what others put there is left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMeta {
    /// rke-operator's labels.
    pub labels: BTreeMap<String, String>,
    /// rke-operator's annotations.
    pub annotations: BTreeMap<String, String>,
    /// rke-operator's taints.
    pub taints: Vec<Taint>,
}

/// A Kubernetes taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value, may be empty.
    #[serde(default)]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Identifies an object of the cluster's API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// `apps/v1`.
    pub api_version: String,
    /// `DaemonSet`.
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} `{}`", self.kind, self.name)
        } else {
            write!(f, "{} `{}/{}`", self.kind, self.namespace, self.name)
        }
    }
}
