//! What one host said: Docker, its containers and files. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Baseline, NodeRecord, SystemFacts};
use crate::model::{ClusterId, Component, ContainerSpec, Owner, Secret, path};

/// What one host said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Docker's view of itself.
    pub docker: DockerFacts,
    /// Every container of the node's Docker, by name.
    pub containers: BTreeMap<String, ContainerFact>,
    /// Image references (`name:tag`) that the node's Docker has.
    pub images: BTreeSet<String>,
    /// Files below the folders that are ours (`/etc/kubernetes`, our files in `/etc/containerd`,
    /// `/etc/systemd/system/containerd.service.d`, `/etc/modules-load.d`, `/etc/sysctl.d`),
    /// read through the claim container; `None` = unknown until `up` (no claim yet).
    pub files: Option<BTreeMap<String, FileFact>>,
    /// The system below Docker.
    pub system: SystemFacts,
    /// The node's clock; `None` when it was not read.
    pub clock: Option<ClockFact>,
}

/// What a node's clock showed when the survey began: a node may be asked much later, as when a person is asked about its
/// host key first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockFact {
    /// Seconds since 1970, UTC.
    pub unix_seconds: i64,
    /// How far off that may be because the answer took its time.
    pub uncertainty_ms: u32,
}

impl ClockFact {
    /// From what it showed, in whole seconds, to a question that was asked so long after the survey began and took so
    /// long.
    pub fn of(unix_seconds: i64, after: Duration, took: Duration) -> Self {
        let uncertainty = took + Duration::from_secs(1);
        Self {
            unix_seconds: unix_seconds.saturating_sub_unsigned(after.as_secs()),
            uncertainty_ms: u32::try_from(uncertainty.as_millis()).unwrap_or(u32::MAX),
        }
    }
}

impl HostFacts {
    /// The node's settings from before rke-operator's first change, as its claim recorded them. The record file is as
    /// old as the first claim of this cluster; the label may be of a claim that was re-created.
    pub fn before(&self) -> Option<Baseline> {
        let claim = self.claim()?;
        let id = claim.labels.get(crate::model::label::CLUSTER_ID);
        let recorded = self
            .files
            .as_ref()
            .and_then(|files| files.get(crate::model::path::NODE_RECORD))
            .and_then(|fact| NodeRecord::read(&fact.content))
            .filter(|record| id == Some(&record.cluster_id.0));
        recorded
            .map(|record| record.before)
            .or_else(|| claim.before())
    }

    /// True when a container of this node, the claim included, belongs to this cluster; or when the
    /// claim's own file says so, which outlives every container (`docker system prune`, another data
    /// root).
    pub fn is_of(&self, id: &ClusterId) -> bool {
        let mut containers = self.containers.values();
        let label = crate::model::label::CLUSTER_ID;
        self.system.cluster_id.as_ref() == Some(id)
            || containers.any(|fact| fact.labels.get(label) == Some(&id.0))
    }

    /// True when a folder is filled that only a cluster fills.
    pub fn has_data(&self) -> bool {
        let (there, empty) = (&self.system.paths, &self.system.empty);
        let mut folders = [path::KUBERNETES, path::ETCD, path::KUBELET].into_iter();
        folders.any(|folder| there.contains(folder) && !empty.contains(folder))
    }

    /// The container of a component, whichever owner created it.
    pub fn container(&self, component: Component) -> Option<&ContainerFact> {
        self.containers.get(component.container())
    }

    /// The container that a change of a component has kept: it is this cluster's, and of this life of etcd's data.
    pub fn kept(&self, component: Component, id: &ClusterId, epoch: u32) -> Option<&ContainerFact> {
        let fact = self.containers.get(component.kept());
        fact.filter(|fact| fact.is_of(id) && fact.epoch() == epoch)
    }

    /// The images that a bundle brought to the node's containerd, as containerd names them.
    pub fn pod_images(&self) -> BTreeSet<String> {
        let list = self
            .files
            .as_ref()
            .and_then(|files| files.get(path::POD_IMAGES));
        let text = list.map(|fact| String::from_utf8_lossy(fact.content.expose()).into_owned());
        text.iter()
            .flat_map(|text| text.lines())
            .map(str::to_owned)
            .collect()
    }

    /// Who holds this node, if anybody does.
    pub fn claim(&self) -> Option<&ContainerFact> {
        self.containers.get(crate::model::CLAIM)
    }
}

/// `docker version` and `docker info`, as far as we act on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DockerFacts {
    /// The way to it.
    #[serde(default)]
    pub reached: ReachedBy,
    /// `26.1.5`.
    pub version: String,
    /// `1.45`.
    pub api_version: String,
    /// `/var/lib/docker`.
    pub root_dir: String,
    /// `overlay2`; `overlayfs` where containerd keeps Docker's images; empty: not told.
    #[serde(default)]
    pub storage_driver: String,
    /// `cgroupfs` or `systemd`.
    pub cgroup_driver: String,
    /// 1 or 2.
    pub cgroup_version: u8,
    /// `name=seccomp,…`, `name=selinux`, `name=userns`, `name=rootless`.
    pub security_options: Vec<String>,
    /// The daemon's default log driver and whether it limits size.
    pub log_driver: String,
    /// True when `log-opts` already bound the size of logs.
    pub logs_bounded: bool,
    /// `runc`, or e.g. `nvidia`.
    pub default_runtime: String,
    /// The daemon's HTTP proxy, if any: http, https, and what goes without.
    pub proxy: Option<(String, String, String)>,
    /// `linux`/`x86_64` …
    pub architecture: String,
    /// How many processors the machine has; 0: not told.
    #[serde(default)]
    pub processors: u32,
    /// Its memory in bytes; 0: not told.
    #[serde(default)]
    pub memory: u64,
    /// Kinds of cgroup that kubelet needs and that Docker cannot limit: `memory`.
    #[serde(default)]
    pub lacking_cgroups: BTreeSet<String>,
    /// Mirrors of Docker Hub, as URLs.
    pub mirrors: Vec<String>,
    /// Registries that are reached without TLS, or without looking at their certificate.
    pub insecure_registries: Vec<String>,
}

impl DockerFacts {
    /// True where Docker is set to label containers for SELinux, and the system has it.
    pub fn labels_containers(&self) -> bool {
        let mut options = self.security_options.iter();
        options.any(|option| option.starts_with("name=selinux"))
    }
}

/// How Docker is reached over SSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReachedBy {
    /// sshd forwards to its socket.
    #[default]
    Socket,
    /// The Docker command line on the node carries the stream.
    Program,
    /// The same with sudo.
    Sudo,
}

/// A container of the node's Docker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFact {
    /// Docker's id.
    pub id: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// State.
    pub state: ContainerState,
    /// What inspect says it runs, in the shape of a spec (its `files` are those of the label);
    /// only for containers that are labelled with a cluster id. World against label is drift.
    pub runs: Option<ContainerSpec>,
    /// Image reference it was created from.
    pub image: String,
    /// When it last started, in seconds since 1970 by its node's clock; only of a container that is labelled
    /// with a cluster id.
    pub started: Option<i64>,
}

impl ContainerFact {
    /// It was made for that cluster.
    pub fn is_of(&self, id: &ClusterId) -> bool {
        self.labels.get(crate::model::label::CLUSTER_ID) == Some(&id.0)
    }

    /// The life of etcd's data that it was made for; see [`crate::model::label::ETCD_EPOCH`]. A label that cannot be
    /// read is of none, and so before every other.
    pub fn epoch(&self) -> u32 {
        let text = self.labels.get(crate::model::label::ETCD_EPOCH);
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// A run was cut off after it had stopped it to replace it: Docker does not start it again.
    pub const fn is_set_aside(&self) -> bool {
        self.runs.is_none() && matches!(self.state, ContainerState::Exited(_))
    }

    /// The definition that was applied, as the label records it.
    pub fn applied(&self) -> Option<ContainerSpec> {
        serde_json::from_str(self.labels.get(crate::model::label::SPEC)?).ok()
    }

    /// What a claim remembers of the time before us; `None` when it cannot be read.
    pub fn before(&self) -> Option<Baseline> {
        serde_json::from_str(self.labels.get(crate::model::label::BEFORE)?).ok()
    }
}

/// Docker's container states, folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Never started.
    Created,
    /// Running.
    Running,
    /// Docker keeps restarting it; with the last exit code.
    Restarting(i64),
    /// Not running; with the exit code.
    Exited(i64),
    /// Paused, dead or being removed.
    Other,
}

/// A file (or directory) on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFact {
    /// The bytes; empty for a directory. Most files are the same on every node, and kept once.
    pub content: Arc<Secret<Vec<u8>>>,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// True for a directory.
    pub is_dir: bool,
}

impl FileFact {
    /// True where both the user and the group are these.
    pub fn is_of(&self, owner: Owner) -> bool {
        (self.uid, self.gid) == (owner.uid.into(), owner.gid.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However late a node is asked, its clock is compared with the moment at which the survey began.
        #[test]
        fn a_right_clock_is_right_within_its_uncertainty(
            begun in 0_u64..2_000_000_000_000,
            after in 0_u64..1_000_000,
            took in 0_u64..30_000,
            within in 0_u64..30_000,
        ) {
            let millis = Duration::from_millis;
            let shown = (begun + after + within.min(took)) / 1000;
            let clock = ClockFact::of(i64::try_from(shown).unwrap(), millis(after), millis(took));
            let off = i128::from(clock.unix_seconds) * 1000 - i128::from(begun);
            prop_assert!(off.abs() <= i128::from(clock.uncertainty_ms), "{off} ms");
        }
    }
}
