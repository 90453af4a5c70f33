//! Why something that differs is left as it is for now, as data. Pure.

use std::fmt;

use super::Guard;
use crate::{etcd::Quorum, model::NodeName};

/// Why something that differs is left as it is for now. Shown as a sentence fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// etcd and control planes change only while all of their nodes answer, and this one does not.
    SilentNode(NodeName),
    /// What etcd has to be cured of first.
    EtcdProblem(String),
    /// It cannot be told whether etcd serves, or it does not.
    EtcdDoesNotServe(Quorum),
    /// What must hold while it is away does not hold: what was found.
    Guard(String),
    /// It would be newer than the API server on this node, which is not replaced yet.
    OlderApiServer {
        /// Where.
        node: NodeName,
        /// Why that is not replaced.
        why: Box<Self>,
    },
    /// It may be newer than the API server on this node, which does not answer.
    SilentApiServer(NodeName),
    /// The API server on this node does not know of etcd's members yet that take over.
    Untold {
        /// Where.
        node: NodeName,
        /// Why that is not replaced.
        why: Box<Self>,
    },
    /// etcd would have fewer voters than the config asks for.
    FewerVoters {
        /// So many would stay.
        stay: usize,
        /// So many nodes have etcd in the config.
        wanted: usize,
    },
    /// The cluster's API does not answer.
    NoApi,
    /// No API server serves of those that stay.
    NoApiServerStays,
    /// The node gives up roles first.
    GivesUpRoles,
    /// Nothing proves that the machine is this cluster's: what is known of it.
    Stranger(String),
    /// Its copy of etcd's data is a spare one until the others are well without it.
    SpareCopy(Box<Self>),
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SilentNode(node) => write!(
                f,
                "etcd and control planes change only while all of their nodes answer, and `{node}` \
                 does not"
            ),
            Self::EtcdProblem(what) | Self::Guard(what) | Self::Stranger(what) => f.write_str(what),
            Self::EtcdDoesNotServe(quorum) => f.write_str(does_not_serve(quorum)),
            Self::OlderApiServer { node, why } => write!(
                f,
                "it would be newer than the API server on `{node}`, which is not replaced yet: {why}"
            ),
            Self::SilentApiServer(node) => write!(
                f,
                "it may be newer than the API server on `{node}`, which does not answer"
            ),
            Self::Untold { node, why } => {
                write!(f, "the API server on `{node}` is not replaced yet: {why}")
            }
            Self::FewerVoters { stay, wanted } => write!(
                f,
                "etcd would have {stay} voting members, and the config asks for {wanted}: a member \
                 leaves when those that take its place have joined"
            ),
            Self::NoApi => f.write_str("the cluster's API does not answer"),
            Self::NoApiServerStays => f.write_str("no API server serves of those that stay"),
            Self::GivesUpRoles => f.write_str("the node gives up roles first"),
            Self::SpareCopy(why) => write!(
                f,
                "its copy of etcd's data is kept until the other members are healthy: {why}"
            ),
        }
    }
}

/// Why etcd is not relied on.
pub(super) const fn does_not_serve(quorum: &Quorum) -> &'static str {
    match quorum {
        Quorum::Serving { .. } => "etcd serves",
        Quorum::Lost => "etcd has no quorum",
        Quorum::Disagree => "etcd's members do not agree on one leader",
        Quorum::Unknown => "no member of etcd could be asked",
        Quorum::External(_) => "etcd is external, and has no members of this cluster",
    }
}

/// What was worked out of a component that is to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    /// What must hold just before.
    pub(super) guards: Vec<Guard>,
    /// Why it is left as it is for now, if it is.
    pub(super) held: Option<Held>,
}

/// When what is new on a node may start, of the release that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Every API server has it.
    Now,
    /// They get it in this plan.
    AfterApiServers,
    /// One does not get it yet; why.
    NotYet(Held),
}
