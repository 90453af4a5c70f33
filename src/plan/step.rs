//! One effect with its reason, its cause and what must hold just before it. Pure.

use std::{borrow::Cow, collections::BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, ClusterAction, HostAction, LocalAction};
use crate::{
    etcd::MemberId,
    model::{ClusterId, FieldChange, ImageVersion, NodeName, ObjectRef},
};

/// What a step acts on, or whose Node object it is about: for people and events.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Target {
    /// A node.
    Host(NodeName),
    /// The cluster's API.
    Cluster,
    /// Where rke-operator runs: its state and the kubeconfig.
    Local,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(name) => write!(f, "{name}"),
            Self::Cluster => f.write_str("cluster"),
            Self::Local => f.write_str("local"),
        }
    }
}

/// Why something differs, as data. While the intent is unchanged the operator applies everything
/// but [`Cause::Change`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[schemars(rename = "StepCause")]
pub enum Cause {
    /// It was never there.
    New,
    /// It was changed on the node or in the cluster: always repaired.
    Drift,
    /// What is wanted is not what was applied: an edit, a new release of rke-operator, or facts of
    /// the node that the definition depends on.
    Change,
    /// A certificate expires soon.
    Expiry,
    /// Nothing wants it any more, or the node leaves.
    Leave,
    /// A machine or a member takes the place of a lost one.
    Replace,
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Why, as data.
    pub cause: Cause,
    /// Why, in words that a stranger understands.
    pub why: Cow<'static, str>,
    /// The fields that differ, for replacements and applies.
    pub changes: Vec<FieldChange>,
    /// What must still hold at that moment, evaluated live; all of it.
    pub guards: Vec<Guard>,
    /// What running work it disturbs; `Some` wants consent.
    pub disturbs: Option<String>,
    /// The effect.
    pub action: Action,
}

impl Step {
    fn new(cause: Cause, why: impl Into<Cow<'static, str>>, action: Action) -> Self {
        Self {
            cause,
            why: why.into(),
            changes: Vec::new(),
            guards: Vec::new(),
            disturbs: None,
            action,
        }
    }

    pub(super) fn on(
        host: &NodeName,
        cause: Cause,
        why: impl Into<Cow<'static, str>>,
        action: HostAction,
    ) -> Self {
        Self::new(cause, why, Action::Host(host.clone(), action))
    }

    pub(super) fn cluster(
        cause: Cause,
        why: impl Into<Cow<'static, str>>,
        action: ClusterAction,
    ) -> Self {
        Self::new(cause, why, Action::Cluster(action))
    }

    pub(super) fn local(
        cause: Cause,
        why: impl Into<Cow<'static, str>>,
        action: LocalAction,
    ) -> Self {
        Self::new(cause, why, Action::Local(action))
    }

    /// True for a change of what exists, which has to be requested.
    pub fn is_asked(&self) -> bool {
        match &self.action {
            Action::Host(..) | Action::Cluster(_) => self.cause == Cause::Change,
            Action::Local(_) => false,
        }
    }

    /// What it acts on, or whose Node object it is about.
    pub fn target(&self) -> Target {
        match (&self.action, self.node()) {
            (_, Some(node)) => Target::Host(node.clone()),
            (Action::Local(_), None) => Target::Local,
            (Action::Cluster(_) | Action::Host(..), None) => Target::Cluster,
        }
    }

    /// The node that it is on or about, if one.
    pub const fn node(&self) -> Option<&NodeName> {
        self.action.node()
    }

    /// Only while the host's claim belongs to this id.
    pub(super) fn guarded(self, id: &ClusterId) -> Self {
        let Some(node) = self.node().cloned() else {
            return self;
        };
        self.only_if(Guard::ClaimIs {
            id: id.clone(),
            node,
        })
    }

    /// True for a step that depends on other nodes: if one of them was left out meanwhile, it is planned again.
    pub(super) fn relies_on_others(&self) -> bool {
        let leaves = matches!(
            self.action,
            Action::Cluster(ClusterAction::Drain { .. } | ClusterAction::RemoveMember { .. })
        );
        leaves || self.guards.iter().any(Guard::is_about_others)
    }

    /// Only while this holds, too.
    pub(super) fn only_if(mut self, guard: Guard) -> Self {
        self.guards.push(guard);
        self
    }

    pub(super) fn changing(mut self, changes: Vec<FieldChange>) -> Self {
        self.changes = changes;
        self
    }

    pub(super) fn disturbing(mut self, what: impl Into<String>) -> Self {
        self.disturbs = Some(what.into());
        self
    }
}

/// What must hold just before a step, checked against facts that are read at that moment. A guard that
/// fails means "plan again".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guard {
    /// The claim on this node belongs to this id.
    ClaimIs {
        /// Whose.
        id: ClusterId,
        /// Where.
        node: NodeName,
    },
    /// The container of that name on this node is still the one that the survey saw.
    ContainerIs {
        /// Where.
        node: NodeName,
        /// Its name.
        name: String,
        /// Docker's id.
        id: String,
    },
    /// The container of that name on this node is of a life of etcd's data before this one, or is gone.
    IsFormer {
        /// Where.
        node: NodeName,
        /// Its name.
        name: String,
        /// The present life.
        epoch: u32,
    },
    /// etcd keeps its quorum without this member.
    QuorumWithout(MemberId),
    /// etcd serves when this member is one no more.
    ServesAfterRemoval(MemberId),
    /// Every voter names one leader, and no alarm is set.
    EtcdStable,
    /// Neither we nor its peers hear from this member of etcd.
    MemberIsSilent(MemberId),
    /// The node's kubelet does not report: its Node is the one that the survey saw and not Ready, or
    /// is gone.
    NodeIsDown {
        /// Whose.
        node: NodeName,
        /// The uid of its Node; `None`: there was none.
        uid: Option<String>,
    },
    /// Another API server than this node's answers.
    ApiServesWithout(NodeName),
    /// The API servers on these nodes have this release, or a newer one: what must not be newer comes.
    ApiServersAtLeast {
        /// The release.
        version: ImageVersion,
        /// Where.
        on: BTreeSet<NodeName>,
    },
    /// At most so many nodes are not Ready, this one counted as one of them.
    AtMostUnavailable {
        /// How many.
        most: usize,
        /// The node that will not be for a moment.
        with: NodeName,
    },
    /// This object in the cluster's API is still the one that the survey saw, and an add-on's.
    ObjectIs {
        /// Which.
        object: ObjectRef,
        /// Its uid.
        uid: String,
    },
}
