//! A plan as data: stages one after the other, in each of them queues side by side. Pure.

use std::{borrow::Cow, collections::BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Action, Cause, ClusterAction, HostAction, LocalAction, Note, Step};
use crate::model::{NodeName, path};

/// Everything a run will do, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// One after the other.
    pub stages: Vec<Stage>,
    /// What it waits for or leaves alone, and why.
    pub notes: Vec<Note>,
}

impl Plan {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.stages.iter().all(Stage::is_empty)
    }

    /// Every step: stage by stage, queue by queue.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.stages.iter().flat_map(Stage::steps)
    }

    /// True for the plan that puts former containers back, and does nothing else.
    pub fn puts_back(&self) -> bool {
        let mut steps = self.steps().filter_map(|step| step.action.on_host());
        steps.any(|(_, action)| matches!(action, HostAction::PutBack { .. }))
    }

    /// The part that is applied while no change was requested: everything except differences between
    /// what is wanted and what was applied. The state and the kubeconfig are written all the same: that
    /// disturbs nothing, and the other steps rely on them.
    #[must_use]
    pub fn unasked(&self) -> Self {
        self.part(|steps| steps.retain(|step| !step.is_asked()))
    }

    /// The part without which certificates would end: what they are renewed with and what reads them, and the waits
    /// that come after that on the same node. The state, its copies and the kubeconfig are kept as in [`Self::unasked`].
    #[must_use]
    pub fn renewals(&self) -> Self {
        self.part(|steps| {
            let mut renews = false;
            steps.retain(|step| {
                renews |= step.cause == Cause::Expiry;
                let waits = renews && step.action.is_wait();
                step.cause == Cause::Expiry || waits || keeps_state(step)
            });
        })
    }

    /// The plan with what is left of each queue.
    pub(super) fn part(&self, keep: impl Fn(&mut Vec<Step>)) -> Self {
        let mut part = self.clone();
        for stage in &mut part.stages {
            for queue in &mut stage.queues {
                keep(&mut queue.steps);
            }
            stage.queues.retain(|queue| !queue.steps.is_empty());
        }
        part.stages.retain(|stage| !stage.is_empty());
        part
    }

    /// True when no step has an effect: all that is left is to wait.
    pub fn only_waits(&self) -> bool {
        self.steps().all(|step| step.action.is_wait())
    }

    /// True for the plan that ends a removal: the survey before it saw that nothing of the
    /// cluster is left, so there is nothing to look at again once it is done (and nothing to
    /// tell our nodes by).
    pub fn deletes_state(&self) -> bool {
        self.steps()
            .any(|step| step.action == Action::Local(LocalAction::DeleteState))
    }

    /// The steps that disturb running workloads or components, and what they disturb: these need consent.
    pub fn disruptions(&self) -> impl Iterator<Item = (&Step, &str)> {
        self.steps()
            .filter_map(|step| step.disturbs.as_deref().map(|what| (step, what)))
    }
}

/// True for what keeps the state and its copies, and for the kubeconfig.
pub(super) fn keeps_state(step: &Step) -> bool {
    match &step.action {
        Action::Local(_) | Action::Cluster(ClusterAction::SaveStateCopy) => true,
        Action::Host(_, HostAction::WriteFiles { files, .. }) => {
            step.cause == Cause::New && files.contains_key(path::STATE)
        }
        Action::Host(..) | Action::Cluster(_) => false,
    }
}

/// Queues that belong together. Up to `width` of them at once, begun in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// One word: `claim`, `images`, `containerd`, `files`, `start`, …
    pub name: Cow<'static, str>,
    /// How many queues at once.
    pub width: usize,
    /// What a failure in one queue means for the others and for what comes after.
    pub on_failure: OnFailure,
    /// In the order in which they begin.
    pub queues: Vec<Queue>,
}

impl Stage {
    /// Every step: queue by queue.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.queues.iter().flat_map(|queue| &queue.steps)
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.steps.is_empty())
    }

    /// True where something is done on a node that is left, and what the other nodes are decides whether it
    /// may be: a plan that lost a node is another plan.
    pub fn relies_on_others(&self, dropped: &BTreeSet<NodeName>) -> bool {
        let is_left = |queue: &&Queue| {
            !queue
                .node
                .as_ref()
                .is_some_and(|node| dropped.contains(node))
        };
        let mut steps = self
            .queues
            .iter()
            .filter(is_left)
            .flat_map(|queue| &queue.steps);
        steps.any(Step::relies_on_others)
    }

    /// All steps of one node are one queue, in the order in which they come; so are those that
    /// are on no node. Waits that a roll needs between two steps are steps of the same queue.
    pub(crate) fn of(
        name: &'static str,
        width: usize,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        let mut queues: Vec<Queue> = Vec::new();
        for step in steps {
            let node = step.node().cloned();
            match queues.iter_mut().find(|queue| queue.node == node) {
                Some(queue) => queue.steps.push(step),
                None => queues.push(Queue {
                    node,
                    steps: vec![step],
                }),
            }
        }
        Self {
            name: name.into(),
            width: width.max(1),
            on_failure: OnFailure::FinishRunning,
            queues,
        }
    }

    /// Two stages one after the other: the steps of the second are those that are `later`.
    pub(super) fn apart(self, later: impl Fn(&Step) -> bool) -> [Self; 2] {
        let mut second = Self {
            queues: Vec::new(),
            ..self.clone()
        };
        let mut first = self;
        for queue in &mut first.queues {
            let steps = std::mem::take(&mut queue.steps);
            let (last, steps): (Vec<_>, Vec<_>) = steps.into_iter().partition(&later);
            queue.steps = steps;
            second.queues.push(Queue {
                node: queue.node.clone(),
                steps: last,
            });
        }
        for stage in [&mut first, &mut second] {
            stage.queues.retain(|queue| !queue.steps.is_empty());
        }
        [first, second]
    }

    /// The same with independent steps in parallel: each has its own queue. Those of a node that are
    /// `in_order` stay one queue.
    pub(super) fn side_by_side(mut self, in_order: impl Fn(&Step) -> bool) -> Self {
        let mut queues = Vec::new();
        let mut deepest = 1;
        for Queue { node, steps } in self.queues {
            let (together, alone): (Vec<_>, Vec<_>) = steps.into_iter().partition(&in_order);
            let alone = alone.into_iter().map(|step| vec![step]);
            let each: Vec<_> = alone
                .chain([together])
                .filter(|one| !one.is_empty())
                .collect();
            deepest = deepest.max(each.len());
            queues.extend(each.into_iter().map(|steps| Queue {
                node: node.clone(),
                steps,
            }));
        }
        self.width = self.width.saturating_mul(deepest);
        self.queues = queues;
        self
    }

    /// What a failure means here.
    pub(super) fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }
}

/// Steps that run one after the other: those of one node, on the node and about its object in the
/// API; or those that concern no single node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Whose failure a failure here is.
    pub node: Option<NodeName>,
    /// In order.
    pub steps: Vec<Step>,
}

/// What a failure in one queue of a stage means for the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFailure {
    /// Nothing goes on: queues end before their next step, and so does the run.
    EndRun,
    /// A roll stops at the first node that it breaks: queues that have begun finish, none begins
    /// any more, and the run ends.
    FinishRunning,
    /// The node of that queue is left out of everything that comes, as long as enough are left;
    /// the other queues go on. A failure on no node ends the run.
    DropNode {
        /// Enough for what.
        while_left: Enough,
    },
}

/// How many nodes must be left for a run to go on without those that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Enough {
    /// More than half of these: the members of a new etcd.
    Quorum(BTreeSet<NodeName>),
    /// One of these.
    OneOf(BTreeSet<NodeName>),
    /// All of these.
    All(Vec<Self>),
}

impl Enough {
    /// True when, without the nodes that failed, enough are left.
    pub fn left(&self, failed: &BTreeSet<NodeName>) -> bool {
        let left = |of: &BTreeSet<NodeName>| of.difference(failed).count();
        match self {
            Self::Quorum(of) => left(of) > of.len() / 2,
            Self::OneOf(of) => left(of) > 0,
            Self::All(all) => all.iter().all(|enough| enough.left(failed)),
        }
    }
}
