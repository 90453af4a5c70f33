//! Why something with the cluster's API did not work.

use std::{borrow::Cow, error::Error as StdError, time::Duration};

use crate::{
    desired::ObjectRef,
    error::{Blame, Explain},
};

/// Why something with the cluster's API did not work.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// Our own certificate or key cannot be used.
    #[error("the administrator's certificate cannot be used: {0}")]
    Credentials(String),
    /// A request failed.
    #[error("cannot {doing} through the cluster's API")]
    Api {
        /// `apply DaemonSet …`.
        doing: String,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
        /// Whose turn it is.
        blame: Blame,
    },
    /// It did not become what was waited for.
    #[error("waited {} s for {waiting_for}", .after.as_secs())]
    Overdue {
        /// What.
        waiting_for: String,
        /// How long.
        after: Duration,
    },
    /// The stop signal was given.
    #[error("stopped while waiting for {0}")]
    Stopped(String),
    /// An object of a kind that [`super::read()`] does not look at: once applied, nobody would see
    /// it again.
    #[error("{0} is of a kind that is never read back")]
    UnknownKind(ObjectRef),
}

impl WorkloadError {
    /// A request that failed: transient unless the server says that it will not change its mind.
    pub(super) fn api(doing: impl Into<String>, source: kube::Error) -> Self {
        let refused =
            matches!(&source, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422));
        let blame = if refused {
            Blame::Bug
        } else {
            Blame::Transient
        };
        Self::Api {
            doing: doing.into(),
            source: Box::new(source),
            blame,
        }
    }
}

impl Explain for WorkloadError {
    fn blame(&self) -> Blame {
        match self {
            Self::Credentials(_) | Self::UnknownKind(_) => Blame::Bug,
            Self::Api { blame, .. } => *blame,
            Self::Overdue { .. } | Self::Stopped(_) => Blame::Transient,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Credentials(_) | Self::UnknownKind(_) | Self::Stopped(_) => Vec::new(),
            Self::Api { blame, .. } => match blame {
                Blame::Bug => vec!["please report this".into()],
                Blame::User | Blame::Host | Blame::Transient => vec![
                    "look at `docker logs kube-apiserver` on a control plane".into(),
                    "run it again: what is done is not repeated".into(),
                ],
            },
            Self::Overdue { .. } => {
                vec!["run it again to go on waiting: what is done is not repeated".into()]
            }
        }
    }
}
