//! Judges any plan against the invariants, without knowing how it was made. Pure.

use std::collections::BTreeSet;

use super::{Action, Guard, Plan, Step, Target, claim, hosts};
use crate::{
    actual::{Actual, ApiView, HostView},
    config::NodeName,
    desired::{CLAIM, FILES_IMAGE, label},
    state::ClusterId,
};

/// A rule that a plan would break. A plan with one is never run: it is a bug of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Invariant 1: unreachable is never removed, and nothing is done there.
    #[error("node `{0}` does not answer, and the plan acts on it")]
    ActsOnDownHost(NodeName),
    /// A node that the survey did not see.
    #[error("node `{0}` is not part of the survey, and the plan acts on it")]
    ActsOnUnknownHost(NodeName),
    /// Invariant 3: a node belongs to one cluster.
    #[error("node `{0}` belongs to another cluster, and the plan acts on it")]
    ActsOnForeignHost(NodeName),
    /// Invariant 3: the claim comes first.
    #[error("the plan changes node `{0}` before it is claimed")]
    ActsBeforeClaim(NodeName),
    /// Invariant 2: keys are saved before a node bears one.
    #[error("the plan claims node `{0}` before new keys are saved")]
    ClaimsBeforeStateIsSaved(NodeName),
    /// Invariant 3: the claim bears this cluster's id.
    #[error("the plan claims node `{0}` for another cluster")]
    ClaimsForAnother(NodeName),
    /// Invariant 4: what destroys or replaces is guarded by this cluster's id.
    #[error("the plan does `{title}` on `{target}` without the guard of this cluster's claim")]
    Unguarded {
        /// The step.
        title: String,
        /// On what.
        target: Target,
    },
    /// Invariant 1: with the API down, nothing is pruned.
    #[error("the plan prunes objects while the API does not answer")]
    PrunesBlindly,
    /// Invariant 1: etcd is taken away only from a node that is given back.
    #[error("the plan removes etcd from node `{0}` and does not give the node back")]
    RemovesEtcd(NodeName),
    /// A plan brings up or gives back, never both.
    #[error("the plan both brings up and gives back node `{0}`")]
    Mixed(NodeName),
    /// Invariant 3: what was there before stays.
    #[error("the plan would clean what was on node `{0}` before")]
    CleansWhatWasThere(NodeName),
    /// The claim goes last on a node.
    #[error("the plan does something on node `{0}` after it released the claim")]
    ActsAfterRelease(NodeName),
    /// The state goes last of all, and only when every node is known to be clean.
    #[error("the plan deletes the state while {0}")]
    DeletesStateEarly(&'static str),
    /// What disturbs running work says so.
    #[error("the plan restarts containerd on `{0}` and does not say that it disturbs")]
    DisturbsSilently(Target),
}

/// Everything that is wrong with the plan of the cluster `id`; empty for every plan that
/// [`super::up`] and [`super::remove`] make.
pub fn check(plan: &Plan, have: &Actual, id: &ClusterId) -> Vec<Violation> {
    let steps: Vec<&Step> = plan.steps().collect();
    let mut violations = Vec::new();
    let mut claimed: BTreeSet<&NodeName> = BTreeSet::new();
    let mut released: BTreeSet<&NodeName> = BTreeSet::new();
    let mut saved = have.saved.is_some();
    for (index, step) in steps.iter().enumerate() {
        violations.extend(guard(step, id));
        violations.extend(disturbance(step));
        match &step.target {
            Target::Host(host) => {
                if released.contains(host) {
                    violations.push(Violation::ActsAfterRelease(host.clone()));
                }
                violations.extend(host_step(step, host, have, id, &claimed));
                if matches!(step.action, Action::Claim { .. }) {
                    if !saved {
                        violations.push(Violation::ClaimsBeforeStateIsSaved(host.clone()));
                    }
                    claimed.insert(host);
                }
                if matches!(step.action, Action::ReleaseClaim) {
                    released.insert(host);
                }
            }
            Target::Cluster | Target::Local => {}
        }
        saved |= step.action == Action::SaveState;
        let answers = matches!(have.api, ApiView::Up(_));
        if matches!(step.action, Action::PruneObjects { .. }) && !answers {
            violations.push(Violation::PrunesBlindly);
        }
        if step.action == Action::DeleteState {
            violations.extend(deletion(index + 1 == steps.len(), plan, have, id));
        }
    }
    violations.extend(one_direction(&steps));
    violations
}

fn guard(step: &Step, id: &ClusterId) -> Option<Violation> {
    let empty_image = matches!(&step.action, Action::RemoveImages { images }
        if images.iter().all(|image| image == FILES_IMAGE));
    if !step.action.is_destructive() || empty_image {
        return None;
    }
    match &step.guard {
        Some(Guard::ClaimIs(guarded)) if guarded == id => None,
        Some(Guard::ClaimIs(_)) | None => Some(Violation::Unguarded {
            title: super::title(step),
            target: step.target.clone(),
        }),
    }
}

fn disturbance(step: &Step) -> Option<Violation> {
    let restarts = matches!(
        step.action,
        Action::ConfigureContainerd { .. } | Action::RestoreContainerd
    );
    (restarts && step.disturbs.is_none()).then(|| Violation::DisturbsSilently(step.target.clone()))
}

fn host_step(
    step: &Step,
    host: &NodeName,
    have: &Actual,
    id: &ClusterId,
    claimed: &BTreeSet<&NodeName>,
) -> Vec<Violation> {
    let facts = match have.hosts.get(host) {
        Some(HostView::Up(facts)) => facts,
        Some(HostView::Down(_)) => return vec![Violation::ActsOnDownHost(host.clone())],
        None => return vec![Violation::ActsOnUnknownHost(host.clone())],
    };
    let mut violations = Vec::new();
    let owner = facts
        .claim()
        .map(|claim| claim.labels.get(label::CLUSTER_ID));
    match owner {
        Some(Some(owner)) if *owner == id.0 => {}
        Some(_) => violations.push(Violation::ActsOnForeignHost(host.clone())),
        None if claimed.contains(host) => {}
        None => {
            let harmless = step.action.is_wait()
                || matches!(
                    step.action,
                    Action::Claim { .. } | Action::PullImage { .. } | Action::RemoveImages { .. }
                );
            if !harmless {
                violations.push(Violation::ActsBeforeClaim(host.clone()));
            }
        }
    }
    if matches!(&step.action, Action::Claim { cluster_id, .. } if cluster_id != id) {
        violations.push(Violation::ClaimsForAnother(host.clone()));
    }
    if let Action::CleanHost { before } = &step.action {
        let kept = claim::remembered(facts);
        if kept.is_some_and(|kept| !kept.paths.is_subset(&before.paths)) {
            violations.push(Violation::CleansWhatWasThere(host.clone()));
        }
    }
    violations
}

fn deletion(last: bool, plan: &Plan, have: &Actual, id: &ClusterId) -> Option<Violation> {
    if !last {
        return Some(Violation::DeletesStateEarly("something comes after"));
    }
    if plan
        .steps()
        .any(|step| matches!(step.target, Target::Host(_)))
    {
        return Some(Violation::DeletesStateEarly(
            "a node is still being given back",
        ));
    }
    for view in have.hosts.values() {
        match view {
            HostView::Down(_) => {
                return Some(Violation::DeletesStateEarly("a node does not answer"));
            }
            HostView::Up(facts) if hosts::bears(facts, &id.0) => {
                return Some(Violation::DeletesStateEarly("a node still bears its id"));
            }
            HostView::Up(_) => {}
        }
    }
    None
}

/// No host is brought up and given back in one plan, and etcd goes only with its host.
fn one_direction(steps: &[&Step]) -> Vec<Violation> {
    let hosts_of = |wanted: &dyn Fn(&Action) -> bool| -> BTreeSet<&NodeName> {
        let steps = steps.iter().filter(|step| wanted(&step.action));
        steps
            .filter_map(|step| match &step.target {
                Target::Host(host) => Some(host),
                Target::Cluster | Target::Local => None,
            })
            .collect()
    };
    let up = hosts_of(&|action| {
        matches!(
            action,
            Action::RunContainer { .. }
                | Action::ReplaceContainer { .. }
                | Action::StartContainer { .. }
                | Action::WriteFiles { .. }
                | Action::ConfigureContainerd { .. }
        )
    });
    let back = hosts_of(&|action| {
        matches!(
            action,
            Action::CleanHost { .. } | Action::RestoreContainerd | Action::ReleaseClaim
        )
    });
    let etcd = hosts_of(
        &|action| matches!(action, Action::RemoveContainer { name } if name == "etcd" || name == CLAIM),
    );
    let mixed = up
        .intersection(&back)
        .map(|host| Violation::Mixed((*host).clone()));
    let lost = etcd
        .difference(&back)
        .map(|host| Violation::RemovesEtcd((*host).clone()));
    mixed.chain(lost).collect()
}
