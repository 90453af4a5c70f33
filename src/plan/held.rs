//! Why something that differs is left as it is for now, as data. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Guard;
use crate::{
    etcd::Quorum,
    model::{Component, NodeName, label},
};

/// Something that differs and is left as it is for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// What.
    pub what: Waits,
    /// Why.
    pub why: Held,
}

/// What is left as it is for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waits {
    /// This component of the node.
    Component(Component),
    /// containerd's configuration.
    Containerd,
    /// The node's member of etcd has yet to join.
    Member,
    /// The node has roles that the config does not give it.
    Roles,
    /// The node is no longer in the config.
    Leaver,
    /// The node was given up.
    Lost,
    /// Whatever differs on the node.
    Node,
    /// Whatever else differs anywhere.
    All,
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Component(component) => component.fmt(f),
            Self::Containerd => f.write_str("containerd"),
            Self::Member => f.write_str("member of etcd"),
            Self::Roles => f.write_str("roles"),
            Self::Leaver | Self::Lost | Self::Node => f.write_str("node"),
            Self::All => f.write_str("cluster"),
        }
    }
}

/// Why something that differs is left as it is for now. Shown as a sentence fragment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Held {
    /// The node does not answer: why.
    Silent(String),
    /// What the cluster holds is looked at before anything is written to it.
    ApiFirst,
    /// Files of a node are read through its claim, which is gone.
    ClaimFirst,
    /// What is of the time before a restore goes first.
    FormerFirst,
    /// It joins when the restored cluster serves.
    RestoreFirst,
    /// What has failed goes back first.
    PutBackFirst,
    /// Its new definition has failed on a node, and is not tried again automatically.
    Refused {
        /// Where.
        node: NodeName,
        /// How.
        why: String,
    },
    /// What is left of the node that was given up goes before a new one joins.
    RemainsFirst,
    /// It was given up and is back.
    Back,
    /// etcd and control planes change only while all of their nodes answer, and this one does not.
    SilentNode(NodeName),
    /// A problem of etcd that has to be solved first.
    EtcdProblem(String),
    /// etcd does not serve, or it is unknown whether it does.
    EtcdDoesNotServe(NoQuorum),
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

impl Held {
    /// The reason, as one word for programs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Silent(_) => "Silent",
            Self::ApiFirst => "ApiFirst",
            Self::ClaimFirst => "ClaimFirst",
            Self::FormerFirst => "FormerFirst",
            Self::RestoreFirst => "RestoreFirst",
            Self::PutBackFirst => "PutBackFirst",
            Self::Refused { .. } => "Refused",
            Self::RemainsFirst => "RemainsFirst",
            Self::Back => "Back",
            Self::SilentNode(_) => "SilentNode",
            Self::EtcdProblem(_) => "EtcdProblem",
            Self::EtcdDoesNotServe(_) => "EtcdDoesNotServe",
            Self::Guard(_) => "Guard",
            Self::OlderApiServer { .. } => "OlderApiServer",
            Self::SilentApiServer(_) => "SilentApiServer",
            Self::Untold { .. } => "Untold",
            Self::FewerVoters { .. } => "FewerVoters",
            Self::NoApi => "NoApi",
            Self::NoApiServerStays => "NoApiServerStays",
            Self::GivesUpRoles => "GivesUpRoles",
            Self::Stranger(_) => "Stranger",
            Self::SpareCopy(_) => "SpareCopy",
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why) => f.write_str(why),
            Self::ApiFirst => {
                f.write_str("what the cluster holds is looked at before anything is written to it")
            }
            Self::ClaimFirst => {
                f.write_str("files of a node are read through its claim, which is gone")
            }
            Self::FormerFirst => {
                f.write_str("what is of the time before the restore is stopped first")
            }
            Self::RestoreFirst => f.write_str("it joins when the restored cluster serves"),
            Self::PutBackFirst => f.write_str("what has failed goes back first"),
            Self::Refused { node, why } => write!(
                f,
                "its new definition failed on `{node}`, and is not tried again until it is another one, or `up --retry` (of \
                 a `Cluster`: the annotation `{}`) asks for it: {why}",
                label::RETRY
            ),
            Self::RemainsFirst => {
                f.write_str("it joins as a new node when nothing of the old one is left")
            }
            Self::Back => f.write_str("it was given up and is back"),
            Self::SilentNode(node) => write!(
                f,
                "etcd and control planes change only while all of their nodes answer, and `{node}` \
                 does not"
            ),
            Self::EtcdProblem(what) | Self::Guard(what) | Self::Stranger(what) => f.write_str(what),
            Self::EtcdDoesNotServe(quorum) => f.write_str(quorum.sentence()),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoQuorum {
    /// Voters answered, and none of them could reach a majority.
    Lost,
    /// The members contradict one another.
    Disagree,
    /// None answered.
    Unknown,
    /// It has no members of this cluster.
    External,
}

impl NoQuorum {
    /// Why etcd is not relied on; `None`: it serves.
    pub(super) const fn of(quorum: &Quorum) -> Option<Self> {
        match quorum {
            Quorum::Serving { .. } => None,
            Quorum::Lost => Some(Self::Lost),
            Quorum::Disagree => Some(Self::Disagree),
            Quorum::Unknown => Some(Self::Unknown),
            Quorum::External(_) => Some(Self::External),
        }
    }

    pub(super) const fn sentence(self) -> &'static str {
        match self {
            Self::Lost => "etcd has no quorum",
            Self::Disagree => "etcd's members do not agree on one leader",
            Self::Unknown => "no member of etcd could be asked",
            Self::External => "etcd is external, and has no members of this cluster",
        }
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
