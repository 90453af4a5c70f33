//! Why something with the cluster's API did not work.

use std::{borrow::Cow, error::Error as StdError, time::Duration};

use crate::{
    error::{ErrorClass, Explain, Passing},
    host::https::BadIdentity,
    model::{NodeName, label},
    workload::RenderedError,
};

/// Why something with the cluster's API did not work.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// Our own certificate or key cannot be used.
    #[error("the engine's certificate cannot be used")]
    Credentials(#[from] BadIdentity),
    /// A request failed.
    #[error("cannot {doing} through the cluster's API")]
    Api {
        /// `apply DaemonSet …`.
        doing: String,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
        /// Who has to act.
        class: ErrorClass,
    },
    /// A Service is refused because of the address that it asks for.
    #[error("{service} cannot have the address {address}: {}", match holder {
        Some(holder) => format!("Service {holder} has it"),
        None => "no Service has it, and the API server still keeps it for a request that was cut off".to_owned(),
    })]
    Address {
        /// The refused one.
        service: String,
        /// What it asks for.
        address: String,
        /// Namespace and name of the Service that has it.
        holder: Option<String>,
        /// What the server said.
        #[source]
        source: Box<Self>,
    },
    /// What helm wrote is not understood.
    #[error("chart {chart} cannot be applied")]
    Rendered {
        /// The add-on.
        chart: String,
        /// Why.
        #[source]
        source: RenderedError,
    },
    /// Objects that a chart has exist already, and belong to another owner.
    #[error("chart {chart} is not applied: another owner has created {}", objects.join(", "))]
    Foreign {
        /// The add-on.
        chart: String,
        /// What is there.
        objects: Vec<String>,
    },
    /// A hook of a chart did not succeed.
    #[error("{job}, a hook of chart {chart}, did not succeed: {why}")]
    Hook {
        /// The add-on.
        chart: String,
        /// The Job.
        job: String,
        /// The command that shows its log.
        log: String,
        /// What the cluster says.
        why: String,
    },
    /// A node that comes back has pods that may not be evicted.
    #[error("node `{node}` is not drained: {}", pods.join(", "))]
    Kept {
        /// Which.
        node: NodeName,
        /// The pods, and what keeps each.
        pods: Vec<String>,
    },
    /// It did not become what was waited for.
    #[error("waited {} s for {waiting_for}", .after.as_secs())]
    Overdue {
        /// What.
        waiting_for: String,
        /// How long.
        after: Duration,
    },
}

impl WorkloadError {
    /// A request that failed: transient unless the server says that it will not change its mind.
    pub(super) fn api(doing: impl Into<String>, source: kube::Error) -> Self {
        let refused =
            matches!(&source, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422));
        let class = if refused {
            ErrorClass::Bug
        } else {
            ErrorClass::Transient
        };
        Self::Api {
            doing: doing.into(),
            source: Box::new(source),
            class,
        }
    }
}

impl Explain for WorkloadError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Credentials(_) | Self::Rendered { .. } => ErrorClass::Bug,
            Self::Api { class, .. } => *class,
            Self::Address {
                holder: Some(_), ..
            }
            | Self::Kept { .. }
            | Self::Foreign { .. } => ErrorClass::User,
            Self::Address { holder: None, .. } | Self::Hook { .. } | Self::Overdue { .. } => {
                ErrorClass::Transient
            }
        }
    }

    fn passing(&self) -> Option<Passing> {
        match self {
            Self::Api { class, .. } => (*class == ErrorClass::Transient).then_some(Passing::Hiccup),
            Self::Address { holder, .. } => holder.is_none().then_some(Passing::Away),
            // These are ends of waits, or nothing that time would change.
            Self::Credentials(_)
            | Self::Rendered { .. }
            | Self::Foreign { .. }
            | Self::Hook { .. }
            | Self::Kept { .. }
            | Self::Overdue { .. } => None,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Credentials(_) => Vec::new(),
            Self::Rendered { chart, .. } => vec![
                format!("values that the config passes on to chart {chart} may have broken it; else please report this").into(),
            ],
            Self::Foreign { chart, .. } => vec![
                "delete or rename them if they are not needed; nothing of the chart was applied".into(),
                format!(
                    "or give them to the chart, to be changed and one day deleted with it: label them `{}={chart}`",
                    label::CHART
                )
                .into(),
            ],
            Self::Hook { log, .. } => vec![
                format!("look at `{log}`").into(),
                "run it again: what is done is not repeated".into(),
            ],
            Self::Api { class, .. } => match class {
                ErrorClass::Bug => vec!["please report this".into()],
                ErrorClass::User | ErrorClass::Host | ErrorClass::Transient => vec![
                    "look at `docker logs kube-apiserver` on a control plane".into(),
                    "run it again: what is done is not repeated".into(),
                ],
            },
            Self::Address { holder: None, .. } => vec![
                "the API server frees it about a minute after it noted it; run it again then".into(),
            ],
            Self::Address {
                holder: Some(holder),
                ..
            } => vec![
                format!("give Service {holder} another address, or none: the cluster's DNS needs this one").into(),
                "or set another `cluster_dns_server` below `services.kubelet`".into(),
            ],
            Self::Kept { .. } => vec![
                "the node is as it was; move these pods, or allow it below \
                 `upgrade_strategy.node_drain_input`"
                    .into(),
                "or write `drain: false`: then nodes are changed with their pods in place".into(),
            ],
            Self::Overdue { .. } => {
                vec!["run it again to go on waiting: what is done is not repeated".into()]
            }
        }
    }
}
