//! The operator: clusters as objects of a management cluster. Wiring, watches, and reports about the
//! clusters; no provisioning logic, which is in [`crate::converge`].
//!
//! | File | What |
//! |---|---|
//! | `wiring` | the two controllers, and what wakes them |
//! | `lead` | from a process to its end: definitions, lease, controllers |
//! | `health` | what a kubelet asks |
//! | `metrics` | what Prometheus asks |
//! | `installed` | whether the definitions suit, and whether they are going away |
//! | `home` | the management cluster as a cluster: its identity, its time |
//! | `cluster` | the one reconcile of a `Cluster`: what is to be done (`arrival`: what it needs first; `apply`: a run; `report`: what is reported at the end; `details`: node by node, pure; `operate`: an operation) |
//! | `removal`, `orphan` | its end, by cleaning or by record |
//! | `kubeconfig` | the `Kubeconfig` objects (`request`: what they ask for, pure; `content`: their Secrets, pure; `issue`, `visit`, `release`) |
//! | `operation` | the `ClusterOperation`s of a Cluster: which is next, what is reported of it (`errand`: what it asks of a run) |
//! | `environment` | what a run needs, out of two namespaces |
//! | `sources`, `files` | what a `Cluster` refers to: Secrets, ConfigMaps, files |
//! | `run`, `last_run` | one run, stopped when the object changes; what the status has of it afterwards (pure) |
//! | `memory` | in the state: which object it belongs to, and what was applied |
//! | `prober` | what happens in clusters between two surveys, over connections that are kept |
//! | `queue` | what is reconciled next: our own queue over the watches of kube |
//! | `shallow` | an answer of any depth, cut to one that can be read (pure) |
//! | `guarded`, `patience` | what a refusal, a panic and a silent API do not do to others |
//! | `reasons` | which condition an error belongs in (pure) |
//! | `ready` | the summary of the conditions, and how far a spec is (pure) |
//! | `status`, `events` | the two places where results are reported |
//! | `transitions` | which changes of a status are an Event |
//!
//! [`crate::status`] determines the health of a cluster; this module writes it to the object.
//!
//! May touch: the management cluster's API, within the rights of two namespaces (its own with the
//! states, and that of the credentials; those that a user allows for kubeconfigs) and our own kinds; the
//! API of a cluster that was made, to bind a user; the ports of its probes and metrics, and the two files
//! of the latter's certificate; the files of `--config-root` (`files`). Must not: nodes (they are
//! [`crate::converge`]'s), other files, world.

mod applied;
mod approval;
mod backoff;
mod cluster;
mod cluster_object;
mod context;
mod environment;
mod events;
mod files;
mod guarded;
mod health;
mod home;
mod installed;
mod kubeconfig;
mod last_run;
mod lead;
mod memory;
mod metrics;
mod operation;
mod orphan;
mod patience;
mod prober;
mod queue;
mod ready;
mod reasons;
mod removal;
mod run;
mod shallow;
mod sources;
mod status;
mod transitions;
mod wiring;

use std::{borrow::Cow, io, net::SocketAddr, path::PathBuf, time::Duration};

pub use context::Dependencies;
pub use installed::{OLDEST, Unsuited};
use ipnet::IpNet;
pub use lead::{run, run_with};
use metrics::NotServed;
pub use metrics::{CertificateError, CertificateFiles, MetricsOptions};
pub(crate) use patience::readable;
pub use prober::ProberOptions;

use crate::{
    error::{ErrorClass, Explain},
    model::AgentProgram,
};

/// How the operator runs.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// Its own: states, records of orphans, the lease.
    pub namespace: String,
    /// What people put in, SSH keys, and take out, kubeconfigs. Who may write there can neither
    /// read nor make a state.
    pub credentials_namespace: String,
    /// Its name in the lease; `None`: it acts whether or not another does.
    pub identity: Option<String>,
    /// Where it answers probes.
    pub probes: Option<SocketAddr>,
    /// Where it serves its metrics.
    pub metrics: Option<MetricsOptions>,
    /// How often a cluster that is well is looked at.
    pub resync: Duration,
    /// How clusters are watched between two looks.
    pub prober: ProberOptions,
    /// How many clusters at once.
    pub limits: Limits,
    /// The ranges of addresses that nodes and bastions may have; empty: any.
    pub allowed_node_cidrs: Vec<IpNet>,
    /// The folder whose files may be the configs of Clusters; `None`: none may.
    pub config_root: Option<PathBuf>,
    /// The groups that a `Kubeconfig` may request; empty: none.
    pub kubeconfig_groups: Vec<String>,
    /// Additional namespaces for the Secrets of `Kubeconfig` objects; empty: only the credentials namespace.
    pub kubeconfig_namespaces: Vec<String>,
    /// The program that takes snapshots on nodes.
    pub agent: Option<AgentProgram>,
}

impl OperatorOptions {
    /// For that namespace, with the defaults for the rest.
    pub fn new(namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        Self {
            credentials_namespace: credentials_namespace(&namespace),
            namespace,
            identity: None,
            probes: None,
            metrics: None,
            resync: Duration::from_secs(60),
            prober: ProberOptions::default(),
            limits: Limits::default(),
            allowed_node_cidrs: Vec::new(),
            config_root: None,
            kubeconfig_groups: Vec::new(),
            kubeconfig_namespaces: Vec::new(),
            agent: None,
        }
    }
}

/// Where credentials are, unless another namespace is named.
pub fn credentials_namespace(namespace: &str) -> String {
    format!("{namespace}-credentials")
}

/// How many clusters are processed at once, separately for each kind of work.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Removals.
    pub deletes: usize,
    /// Runs towards a spec.
    pub changes: usize,
    /// Looks at settled clusters.
    pub checks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deletes: 32,
            changes: 16,
            checks: 16,
        }
    }
}

/// Why the operator could not start.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The definitions are not installed.
    #[error("the management cluster does not know `{what}`")]
    NoDefinitions {
        /// The missing resource.
        what: String,
        /// What it said.
        #[source]
        source: kube::Error,
    },
    /// The installed definitions do not suit.
    #[error("the definition `{what}` {why}")]
    Definition {
        /// The definition.
        what: String,
        /// What is wrong with it.
        why: Unsuited,
    },
    /// The management cluster's Kubernetes is too old.
    #[error(
        "the management cluster runs Kubernetes {version}; v1.{OLDEST} is the oldest that the operator runs on"
    )]
    TooOld {
        /// What it says.
        version: String,
    },
    /// The account may not do what the operator must.
    #[error("the management cluster does not allow to {verb} `{what}`")]
    Forbidden {
        /// What was tried.
        verb: &'static str,
        /// The resource.
        what: String,
        /// What it said.
        #[source]
        source: kube::Error,
    },
    /// The API does not answer.
    #[error("cannot reach the management cluster")]
    Unreachable(#[source] kube::Error),
    /// The port for probes.
    #[error("cannot answer probes at {address}")]
    Probes {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The port for metrics.
    #[error("cannot serve metrics at {address}")]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The certificate for metrics.
    #[error("cannot serve metrics over HTTPS")]
    Certificate(#[source] CertificateError),
    /// Another process may act now.
    #[error("the lease was lost: another operator may act now")]
    LeaseLost,
}

impl OperatorError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "kube's errors, of which two tell something here"
    )]
    fn reading(verb: &'static str, what: &str, source: kube::Error) -> Self {
        let what = what.to_owned();
        match &source {
            kube::Error::Api(status) if status.is_not_found() => {
                Self::NoDefinitions { what, source }
            }
            kube::Error::Api(status) if status.is_forbidden() => {
                Self::Forbidden { verb, what, source }
            }
            _ => Self::Unreachable(source),
        }
    }
}

impl From<NotServed> for OperatorError {
    fn from(why: NotServed) -> Self {
        match why {
            NotServed::Certificate(error) => Self::Certificate(error),
            NotServed::Port { address, source } => Self::Metrics { address, source },
        }
    }
}

impl Explain for OperatorError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NoDefinitions { .. }
            | Self::Definition { .. }
            | Self::TooOld { .. }
            | Self::Forbidden { .. }
            | Self::Probes { .. }
            | Self::Metrics { .. }
            | Self::Certificate(_) => ErrorClass::User,
            Self::Unreachable(_) | Self::LeaseLost => ErrorClass::Transient,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::NoDefinitions { .. } | Self::Definition { .. } => {
                vec!["`rke-operator crd | kubectl apply -f -` installs the definitions".into()]
            }
            Self::TooOld { .. } => {
                vec!["upgrade it, or run the operator in another cluster".into()]
            }
            Self::Forbidden { .. } => {
                vec!["`deploy/rbac.yaml` has every right that it needs".into()]
            }
            Self::Unreachable(_) => {
                vec!["does `kubectl version` answer with the same kubeconfig?".into()]
            }
            Self::Probes { .. } => {
                vec!["`--health-probe-bind-address` names another address or port".into()]
            }
            Self::Metrics { .. } => {
                vec!["`--metrics-bind-address` names another address or port, or `0`".into()]
            }
            Self::Certificate(_) => vec![
                "`--metrics-cert` and `--metrics-key` name a certificate and its key in PEM; without \
                 them one is generated"
                    .into(),
            ],
            Self::LeaseLost => vec![
                "it could not renew it within 10 s: is the API server slow, or was the process \
                 stopped?"
                    .into(),
            ],
        }
    }
}
