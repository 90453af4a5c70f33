//! Rolls a component back after its change failed in this run, and ends the run. Decides by which steps failed and what
//! the survey saw; whether anything can go back is decided on facts of the next look ([`plan::refuse`]).

use super::{Convergence, Error, Settled, Survey, failed, look::SoFar, settled};
use crate::{
    apply::step::{Failure, Warning},
    error::{distinct, with_causes},
    facts::Actual,
    model::{Component, NodeName, label},
    plan::{self, Action, Broken, Cause, ClusterAction, HostAction, Plan, Step},
    state::Refused,
};

/// What has failed in a run and may go back.
pub(super) struct GoingBack {
    /// What the run fails with where nothing goes back.
    failure: Failure,
    /// Each component that has failed.
    pub(super) broken: Vec<Broken>,
}

impl GoingBack {
    /// `Err`: none of these failures is one of a change whose former container is kept.
    pub(super) fn of(
        mut failures: Vec<Failure>,
        survey: &Survey,
    ) -> Result<Box<Self>, Vec<Failure>> {
        let broken: Vec<Broken> = failures
            .iter()
            .filter_map(|failure| broken(failure, survey))
            .collect();
        let is_first = |failure: &Failure| self::broken(failure, survey).is_some();
        match failures.iter().position(is_first) {
            Some(at) => Ok(Box::new(Self {
                failure: failures.swap_remove(at),
                broken,
            })),
            None => Err(failures),
        }
    }

    /// The failure alone: nothing went back, or that failed too.
    pub(super) fn failed(self) -> Error {
        failed(self.failure)
    }

    /// The end of the run, when nothing more goes back; the error where nothing did.
    pub(super) fn settled<R>(
        self,
        survey: Survey,
        so_far: SoFar,
        changed: bool,
        warnings: Vec<Warning>,
    ) -> Result<Convergence<Settled, R>, Error> {
        let back = self.ended(&survey)?;
        let warnings = distinct(warnings.into_iter().chain(back));
        Ok(settled(survey, so_far, changed, warnings))
    }

    /// What there is to say of it.
    fn ended(self, survey: &Survey) -> Result<Vec<Warning>, Error> {
        let desired = survey.desired.as_ref();
        let saved = survey.actual.saved.as_ref();
        let all = saved.map_or(&[][..], |saved| &saved.memory.refused);
        let is = |refused: &&Refused| {
            let mut broken = self.broken.iter();
            broken.any(|it| it.component == refused.component && it.node == refused.node)
        };
        let back: Vec<Warning> = all.iter().filter(is).map(went_back).collect();
        if !back.is_empty() {
            return Ok(back);
        }
        let why = self.broken.iter().find_map(|broken| {
            let want = desired?;
            plan::why_it_stands(broken, want, &survey.actual)
        });
        let mut error = failed(self.failure);
        if let Error::Step { stands, .. } = &mut error {
            *stands = why;
        }
        Err(error)
    }
}

fn went_back(refused: &Refused) -> Warning {
    let Refused {
        component,
        node,
        why,
        ..
    } = refused;
    Warning {
        message: format!(
            "`{component}` failed with its new definition on node `{node}`, and the former container runs there again; no \
             further node was changed: {why}"
        ),
        hints: vec![
            format!("correct what the config says of `{component}`: another definition is tried"),
            format!(
                "or try the same again: `rke-operator up --retry` (a `Cluster` has the annotation `{}`)",
                label::RETRY
            ),
        ],
        degrades: true,
    }
}

/// What a failure says of a component whose former container is kept.
fn broken(failure: &Failure, survey: &Survey) -> Option<Broken> {
    let (node, component) = about(&failure.step)?;
    // A connection that was lost is none of the component's.
    let is_sign = failure.error.passing().is_none();
    let is_kept = was_kept(node, component, &survey.actual) || keeps(node, component, &survey.plan);
    (is_sign && is_kept).then(|| Broken {
        node: node.clone(),
        component,
        awaited: failure.step.action.is_wait(),
        why: with_causes(&*failure.error),
    })
}

/// The component that fails where this step does. A node that was never Ready says nothing of its kubelet.
fn about(step: &Step) -> Option<(&NodeName, Component)> {
    match &step.action {
        Action::Host(
            node,
            HostAction::AwaitHealthy { component }
            | HostAction::RunContainer { component, .. }
            | HostAction::StartContainer { component }
            | HostAction::ReplaceContainer { component, .. },
        ) => Some((node, *component)),
        Action::Cluster(ClusterAction::AwaitNodeReady { node }) if step.cause != Cause::New => {
            Some((node, Component::Kubelet))
        }
        Action::Host(..) | Action::Cluster(_) | Action::Local(_) => None,
    }
}

fn was_kept(node: &NodeName, component: Component, have: &Actual) -> bool {
    let saved = have.saved.as_ref();
    let facts = have.up(node);
    facts.zip(saved).is_some_and(|(facts, saved)| {
        let kept = facts.kept(component, &saved.cluster_id, saved.epoch());
        kept.is_some()
    })
}

fn keeps(node: &NodeName, component: Component, plan: &Plan) -> bool {
    let mut steps = plan.steps().filter_map(|step| step.action.on_host());
    steps.any(|(on, action)| {
        on == node
            && matches!(action, HostAction::ReplaceContainer { component: is, keep: true, .. } if *is == component)
    })
}
