//! The operator: clusters as objects of a management cluster. Wiring, watches and what is said
//! about them; no provisioning logic, which is [`crate::converge`]'s.
//!
//! | File | What |
//! |---|---|
//! | `wiring` | the two controllers, and what wakes them |
//! | `cluster` | the one reconcile of a `Cluster`: what is to be done (`apply`: a run; `report`: what is said in the end) |
//! | `certificates` | when certificates end (pure) |
//! | `removal`, `orphan` | its end, by cleaning or by record |
//! | `kubeconfig` | the `Kubeconfig` objects |
//! | `environment` | what a run needs, out of one namespace |
//! | `run` | one run, stopped when the object changes |
//! | `memory` | in the state: which object it belongs to, and what was applied |
//! | `queue` | whose turn it is |
//! | `guarded`, `patience` | what a refusal, a panic and a silent API do not do to others |
//! | `reasons` | which condition an error belongs in (pure) |
//! | `probe` | a survey as conditions (pure) |
//! | `status`, `events` | the two places where something is said |
//!
//! May touch: the management cluster's API, within the rights of one namespace and our own
//! kinds. Must not: nodes (they are [`crate::converge`]'s), files, world.

mod backoff;
mod certificates;
mod cluster;
mod cluster_object;
mod context;
mod environment;
mod events;
mod guarded;
mod kubeconfig;
mod memory;
mod orphan;
mod patience;
mod probe;
mod queue;
mod reasons;
mod removal;
mod run;
mod status;
mod wiring;

use std::{borrow::Cow, time::Duration};

pub use context::Dependencies;
pub use wiring::{run, run_with};

use crate::error::{ErrorClass, Explain};

/// How the operator runs.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// Where every Secret is that it reads or writes.
    pub namespace: String,
    /// How often a cluster that is well is looked at.
    pub resync: Duration,
    /// How many clusters at once.
    pub limits: Limits,
}

impl OperatorOptions {
    /// For that namespace, with the defaults for the rest.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            resync: Duration::from_secs(60),
            limits: Limits::default(),
        }
    }
}

/// How many clusters at once, each kind by itself.
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
    /// The account may not do what the operator must.
    #[error("the management cluster does not allow to list `{what}`")]
    Forbidden {
        /// The resource.
        what: String,
        /// What it said.
        #[source]
        source: kube::Error,
    },
    /// The API does not answer.
    #[error("cannot reach the management cluster")]
    Unreachable(#[source] kube::Error),
}

impl Explain for OperatorError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NoDefinitions { .. } | Self::Forbidden { .. } => ErrorClass::User,
            Self::Unreachable(_) => ErrorClass::Transient,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::NoDefinitions { .. } => {
                vec!["`rke-operator crd | kubectl apply -f -` installs the definitions".into()]
            }
            Self::Forbidden { .. } => vec![
                "the operator's account needs the rights on its own kinds, and on Secrets and \
                 ConfigMaps of its namespace"
                    .into(),
            ],
            Self::Unreachable(_) => {
                vec!["does `kubectl version` answer with the same kubeconfig?".into()]
            }
        }
    }
}
