//! Why something with a member of etcd did not work.

use std::{borrow::Cow, error::Error as StdError, time::Duration};

use super::view::MemberId;
use crate::{
    error::{ErrorClass, Explain},
    host::https::BadIdentity,
};

/// Why something with a member of etcd did not work.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// Our own certificate or key cannot be used.
    #[error("the engine's certificate for etcd cannot be used")]
    Credentials(#[from] BadIdentity),
    /// No answer.
    #[error("cannot {doing}")]
    NoAnswer {
        /// `read the status of etcd`.
        doing: &'static str,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// No answer in time.
    #[error("cannot {doing}: no answer within {} s", .after.as_secs())]
    Slow {
        /// What.
        doing: &'static str,
        /// How long.
        after: Duration,
    },
    /// An answer that is no yes.
    #[error("etcd refused to {doing}: {message} (code {code})")]
    Refused {
        /// What.
        doing: &'static str,
        /// gRPC's code. One code stands for several causes, so nothing is decided by it.
        code: i64,
        /// What etcd says.
        message: String,
    },
    /// An answer that cannot be read.
    #[error("cannot {doing}: the answer cannot be read")]
    Answer {
        /// What.
        doing: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// What etcd sent could not be written down.
    #[error("cannot write what etcd sent")]
    Written {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An operation names a member that is not there.
    #[error("etcd has no member {0}")]
    NoSuchMember(MemberId),
    /// The member that was asked to hand over the lead does not have it.
    #[error("member {asked} of etcd does not lead")]
    NotTheLeader {
        /// Who was asked.
        asked: MemberId,
    },
}

impl Explain for EtcdError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Credentials(_) | Self::Answer { .. } => ErrorClass::Bug,
            Self::NoAnswer { .. }
            | Self::Slow { .. }
            | Self::Refused { .. }
            | Self::NoSuchMember(_)
            | Self::NotTheLeader { .. } => ErrorClass::Transient,
            Self::Written { .. } => ErrorClass::Host,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::NoAnswer { .. } | Self::Slow { .. } => {
                vec!["look at `docker logs etcd` on the node".into()]
            }
            Self::Credentials(_)
            | Self::Refused { .. }
            | Self::Answer { .. }
            | Self::Written { .. }
            | Self::NoSuchMember(_)
            | Self::NotTheLeader { .. } => Vec::new(),
        }
    }
}
