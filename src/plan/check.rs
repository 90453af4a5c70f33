//! Checks any plan against the invariants, without knowing how it was made. Pure.

use std::collections::BTreeSet;

use super::{
    Action, Cause, ClusterAction, Guard, HostAction, LocalAction, Plan, Stage, Step, Target, lost,
    schedule::remembered,
};
use crate::{
    etcd::Quorum,
    facts::{Actual, ApiHealth, ApiView, ContainerState, HostView},
    model::{CLAIM, ChartRecord, ClusterId, Component, FILES_IMAGE, NodeName, ObjectRef, label},
};

/// A rule that a plan would break. A plan with one is never run: it is a bug in rke-operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Invariant 1: unreachable is never removed, and nothing is done there.
    #[error("node `{0}` does not answer, and the plan acts on it")]
    ActsOnUnreachableHost(NodeName),
    /// A node that the survey did not see.
    #[error("node `{0}` is not part of the survey, and the plan acts on it")]
    ActsOnUnknownHost(NodeName),
    /// Invariant 3: a node belongs to one cluster.
    #[error("node `{0}` belongs to another cluster, and the plan acts on it")]
    ActsOnForeignHost(NodeName),
    /// Invariant 3: the claim comes first.
    #[error("the plan changes node `{0}` before it is claimed")]
    ActsBeforeClaim(NodeName),
    /// Invariant 2: keys are saved before a node has one.
    #[error("the plan claims node `{0}` before new keys are saved")]
    ClaimsBeforeStateIsSaved(NodeName),
    /// Invariant 3: the claim belongs to this cluster's id.
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
    /// Invariant 1: no node is given up that may be alive.
    #[error(
        "the plan removes node `{0}`, which does not answer, without checking whether it is alive"
    )]
    MayBeAlive(NodeName),
    /// Invariant 1: with the API down, nothing is pruned.
    #[error("the plan prunes objects while the API does not answer")]
    PrunesBlindly,
    /// Invariant 1: etcd is removed only from a node that is removed, or whose member has left.
    #[error("the plan removes etcd from node `{0}`, which stays, and not its member before")]
    RemovesEtcd(NodeName),
    /// Invariant 1: the claim is removed only by releasing it.
    #[error("the plan removes the claim from node `{0}` and does not remove the node")]
    RemovesClaim(NodeName),
    /// Invariant 4: one API server at least serves.
    #[error(
        "the plan removes the API server from node `{0}`, which stays, and has no guard that another serves"
    )]
    RemovesApi(NodeName),
    /// A plan sets nodes up or cleans them, never both.
    #[error("the plan both sets up and removes node `{0}`")]
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
    /// Invariant 5: a living cluster is rolled one host after the other.
    #[error("the plan replaces {0} on several nodes at once")]
    ReplacesTogether(Component),
    /// Invariant 5: a living cluster is rolled one host after the other.
    #[error(
        "the plan reboots several nodes at once, or restarts containerd on several with etcd or an API server"
    )]
    RestartsTogether,
    /// Invariant 5: the next host's turn comes when this one serves again.
    #[error("the plan replaces {component} on node `{node}` and does not wait until it is healthy")]
    DoesNotWait {
        /// Where.
        node: NodeName,
        /// What.
        component: Component,
    },
    /// Invariant 4: etcd's quorum is never given away.
    #[error("the plan replaces etcd on node `{0}` and has no guard of its quorum")]
    RisksQuorum(NodeName),
    /// Invariant 4: one API server at least serves.
    #[error("the plan replaces the API server on node `{0}` and has no guard that another serves")]
    RisksApi(NodeName),
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
        violations.extend(life(step, have));
        violations.extend(disturbance(step));
        match &step.action {
            Action::Host(host, action) => {
                if released.contains(host) {
                    violations.push(Violation::ActsAfterRelease(host.clone()));
                }
                violations.extend(host_step(action, host, have, id, &claimed));
                if matches!(action, HostAction::Claim { .. }) {
                    if !saved {
                        violations.push(Violation::ClaimsBeforeStateIsSaved(host.clone()));
                    }
                    claimed.insert(host);
                }
                if matches!(action, HostAction::ReleaseClaim) {
                    released.insert(host);
                }
            }
            Action::Cluster(action) => {
                let answers = matches!(have.api(), ApiView::Up(_));
                let prunes = matches!(
                    action,
                    ClusterAction::PruneObjects { .. } | ClusterAction::PruneChart { .. }
                );
                if prunes && !answers {
                    violations.push(Violation::PrunesBlindly);
                }
            }
            Action::Local(action) => {
                saved |= *action == LocalAction::SaveState;
                if *action == LocalAction::DeleteState {
                    violations.extend(deletion(index + 1 == steps.len(), plan, have, id));
                }
            }
        }
    }
    violations.extend(one_direction(&steps, have));
    violations.extend(plan.stages.iter().flat_map(|stage| rolls(stage, have)));
    violations
}

fn guard(step: &Step, id: &ClusterId) -> Option<Violation> {
    let empty_image = matches!(&step.action, Action::Host(_, HostAction::RemoveImages { images })
        if images.iter().all(|image| image == FILES_IMAGE));
    if !step.action.is_destructive() || empty_image {
        return None;
    }
    let claimed = || {
        step.guards.iter().any(|guard| {
            matches!(guard, Guard::ClaimIs { id: claimed, node }
                if claimed == id && Some(node) == step.node())
        })
    };
    let is_guarded = |object: &ObjectRef| {
        let mut guards = step.guards.iter();
        guards.any(|guard| guard.object() == Some(object))
    };
    let guarded = match &step.action {
        Action::Cluster(ClusterAction::PruneObjects { objects }) => objects.iter().all(is_guarded),
        Action::Cluster(ClusterAction::RestartPods { workloads, .. }) => {
            workloads.iter().all(is_guarded)
        }
        Action::Cluster(ClusterAction::PruneChart { chart, uid }) => {
            let (object, uid) = (ChartRecord::object(chart), uid.clone());
            step.guards.contains(&Guard::ObjectIs { object, uid })
        }
        Action::Cluster(ClusterAction::RemoveMember { member, .. }) => {
            let serves = Guard::ServesAfterRemoval(*member);
            step.guards.contains(&serves)
        }
        // Only the one of that uid goes.
        Action::Cluster(
            ClusterAction::DeleteNode { uid, .. } | ClusterAction::Evict { uid, .. },
        ) => !uid.is_empty(),
        Action::Cluster(ClusterAction::OutOfService { node, .. }) => step
            .guards
            .iter()
            .any(|guard| matches!(guard, Guard::NodeIsDown { node: of, .. } if of == node)),
        Action::Host(..) | Action::Cluster(_) | Action::Local(_) => claimed(),
    };
    (!guarded).then(|| Violation::Unguarded {
        title: super::title(step),
        target: step.target(),
    })
}

/// Invariant 1: a node that does not answer is removed only while neither the API nor etcd hears from it.
fn life(step: &Step, have: &Actual) -> Option<Violation> {
    let node = step.node()?;
    if have.up(node).is_some() {
        return None;
    }
    let is_down = |step: &Step| {
        let mut guards = step.guards.iter();
        guards.any(|guard| matches!(guard, Guard::NodeIsDown { node: of, .. } if of == node))
    };
    let looked = match &step.action {
        Action::Cluster(ClusterAction::RemoveMember { member, .. }) => {
            is_down(step) && step.guards.contains(&Guard::MemberIsSilent(*member))
        }
        Action::Cluster(
            ClusterAction::OutOfService { .. }
            | ClusterAction::DeleteNode { .. }
            | ClusterAction::Drain { .. },
        ) => is_down(step),
        Action::Host(..) | Action::Cluster(_) | Action::Local(_) => true,
    };
    (!looked).then(|| Violation::MayBeAlive(node.clone()))
}

fn disturbance(step: &Step) -> Option<Violation> {
    let restarts = matches!(
        step.action,
        Action::Host(
            _,
            HostAction::ConfigureContainerd { .. }
                | HostAction::RestoreContainerd
                | HostAction::Reboot { .. }
        )
    );
    (restarts && step.disturbs.is_none()).then(|| Violation::DisturbsSilently(step.target()))
}

fn host_step(
    action: &HostAction,
    host: &NodeName,
    have: &Actual,
    id: &ClusterId,
    claimed: &BTreeSet<&NodeName>,
) -> Vec<Violation> {
    let facts = match have.hosts.get(host) {
        Some(HostView::Reachable(facts)) => facts,
        Some(HostView::Unreachable(_)) => {
            return vec![Violation::ActsOnUnreachableHost(host.clone())];
        }
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
            let harmless = matches!(
                action,
                HostAction::AwaitHealthy { .. }
                    | HostAction::AwaitAge { .. }
                    | HostAction::Claim { .. }
                    | HostAction::PullImage { .. }
                    | HostAction::LoadImage { .. }
                    | HostAction::RemoveImages { .. }
            );
            if !harmless {
                violations.push(Violation::ActsBeforeClaim(host.clone()));
            }
        }
    }
    if matches!(action, HostAction::Claim { cluster_id, .. } if cluster_id != id) {
        violations.push(Violation::ClaimsForAnother(host.clone()));
    }
    if let HostAction::CleanHost { before } = action {
        let kept = remembered(facts);
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
    if plan.steps().any(|step| step.action.on_host().is_some()) {
        return Some(Violation::DeletesStateEarly(
            "a node is still being cleaned",
        ));
    }
    let is_lost = |name| {
        let saved = have.saved.as_ref();
        saved.is_some_and(|saved| saved.is_lost(name))
    };
    for (name, view) in &have.hosts {
        match view {
            // It was given up, and is not waited for.
            HostView::Unreachable(_) if is_lost(name) => {}
            HostView::Unreachable(_) => {
                return Some(Violation::DeletesStateEarly("a node does not answer"));
            }
            HostView::Reachable(facts) if facts.is_of(id) => {
                return Some(Violation::DeletesStateEarly(
                    "containers of this cluster are still on a node",
                ));
            }
            HostView::Reachable(_) => {}
        }
    }
    None
}

/// What a stage stops for a moment, and whether the others serve meanwhile.
fn rolls(stage: &Stage, have: &Actual) -> Vec<Violation> {
    let mut violations = Vec::new();
    if restarts_together(stage, have) {
        violations.push(Violation::RestartsTogether);
    }
    for component in Component::ALL {
        let replaces = |step: &&Step| replaces(component, step);
        let rolled = stage
            .queues
            .iter()
            .filter(|queue| queue.steps.iter().any(|step| replaces(&step)));
        if stage.width > 1 && rolled.count() > 1 && !may_roll_together(component, stage) {
            violations.push(Violation::ReplacesTogether(component));
        }
        for queue in &stage.queues {
            let mut steps = queue.steps.iter();
            while let Some(step) = steps.by_ref().find(replaces) {
                let Some(node) = step.node() else { continue };
                let awaits = |step: &&Step| {
                    step.action.on_host() == Some((node, &HostAction::AwaitHealthy { component }))
                };
                let mut meanwhile = steps.clone().take_while(|step| !awaits(step));
                if meanwhile.any(|step| replaces(&step) && runs(component, step, have)) {
                    violations.push(Violation::ReplacesTogether(component));
                }
                // Nothing else waits for it.
                let alone = step.action.is_optional();
                if !alone && !steps.clone().any(|step| awaits(&step)) {
                    let node = node.clone();
                    violations.push(Violation::DoesNotWait { node, component });
                }
                violations.extend(risks(component, step, node, have));
            }
        }
    }
    violations
}

/// False where the step replaces a container that has exited, so that nothing is stopped; and where a member of etcd
/// without a quorum gets another certificate: the members reach each other only when all have theirs.
fn runs(component: Component, step: &Step, have: &Actual) -> bool {
    let serves = matches!(
        have.etcd.quorum,
        Quorum::Serving { .. } | Quorum::External(_)
    );
    if component == Component::Etcd && step.cause == Cause::Expiry && !serves {
        return false;
    }
    let facts = step.node().and_then(|node| have.up(node));
    let fact = facts.and_then(|facts| facts.container(component));
    fact.is_none_or(|fact| fact.state == ContainerState::Running)
}

/// A component of every node may be replaced on several nodes at once, where each kubelet counts those that
/// are down.
fn may_roll_together(component: Component, stage: &Stage) -> bool {
    match component {
        Component::Etcd
        | Component::ApiServer
        | Component::ControllerManager
        | Component::Scheduler => false,
        Component::NginxProxy | Component::KubeProxy | Component::Snapshots => true,
        Component::Kubelet => stage.steps().all(|step| {
            let counts = |guard: &Guard| matches!(guard, Guard::AtMostUnavailable { .. });
            !replaces(component, step) || step.guards.iter().any(counts)
        }),
    }
}

/// containerd takes Docker along on some machines, and with it etcd and the API server of a node.
fn restarts_together(stage: &Stage, have: &Actual) -> bool {
    let restarts = |step: &&Step| match step.action.on_host() {
        Some((_, HostAction::Reboot { .. })) => true,
        Some((node, HostAction::ConfigureContainerd { .. })) => {
            have.up(node).is_some_and(|facts| {
                let central = [Component::Etcd, Component::ApiServer];
                let mut there = central.into_iter();
                there.any(|component| facts.container(component).is_some())
            })
        }
        Some(_) | None => false,
    };
    stage.width > 1 && stage.steps().filter(restarts).count() > 1
}

fn replaces(component: Component, step: &Step) -> bool {
    matches!(step.action.on_host(), Some((_, HostAction::ReplaceContainer { component: replaced, .. }))
        if *replaced == component)
}

fn risks(component: Component, step: &Step, node: &NodeName, have: &Actual) -> Option<Violation> {
    match component {
        Component::Etcd => {
            let member = have.etcd.on(node)?;
            let matters = have.etcd.voters().count() > 2 && have.etcd.healthy().contains(&member);
            let guarded = step.guards.contains(&Guard::QuorumWithout(member));
            // What ends within days is renewed with consent, whatever etcd's other members are.
            let agreed = step.cause == Cause::Expiry && step.disturbs.is_some();
            (matters && !guarded && !agreed).then(|| Violation::RisksQuorum(node.clone()))
        }
        Component::ApiServer => {
            let serving = have.apis.values().filter(|api| **api == ApiHealth::Serving);
            let matters = serving.count() > 1 && have.apis.get(node) == Some(&ApiHealth::Serving);
            let guarded = step.guards.contains(&Guard::ApiServesWithout(node.clone()));
            (matters && !guarded).then(|| Violation::RisksApi(node.clone()))
        }
        Component::ControllerManager
        | Component::Scheduler
        | Component::NginxProxy
        | Component::Kubelet
        | Component::KubeProxy
        | Component::Snapshots => None,
    }
}

/// No host is set up and removed in one plan, and etcd goes only with its host.
fn one_direction(steps: &[&Step], have: &Actual) -> Vec<Violation> {
    let hosts_of = |wanted: &dyn Fn(&HostAction) -> bool| -> BTreeSet<&NodeName> {
        let on_hosts = steps.iter().filter_map(|step| step.action.on_host());
        on_hosts
            .filter(|(_, action)| wanted(action))
            .map(|(host, _)| host)
            .collect()
    };
    let up = hosts_of(&|action| {
        matches!(
            action,
            HostAction::RunContainer { .. }
                | HostAction::JoinEtcd { .. }
                | HostAction::ReplaceContainer { .. }
                | HostAction::PutBack { .. }
                | HostAction::StartContainer { .. }
                | HostAction::WriteFiles { .. }
                | HostAction::ConfigureContainerd { .. }
        )
    });
    let back = hosts_of(&|action| {
        matches!(
            action,
            HostAction::CleanHost { .. } | HostAction::RestoreContainerd | HostAction::ReleaseClaim
        )
    });
    let removes = |component: &str| {
        let is = |action: &HostAction| matches!(action, HostAction::RemoveContainer { name } if name == component);
        let staying = hosts_of(&is)
            .into_iter()
            .filter(|host| !back.contains(*host));
        staying.cloned().collect::<Vec<NodeName>>()
    };
    let claim = removes(CLAIM).into_iter().map(Violation::RemovesClaim);
    let etcd = removes(Component::Etcd.container()).into_iter();
    let etcd = etcd.filter(|host| !leaves_etcd_first(host, steps, have));
    let etcd = etcd.filter(|host| !is_former(Component::Etcd, host, steps, have));
    let etcd = etcd.filter(|host| !puts_back(host, steps));
    let api = removes(Component::ApiServer.container()).into_iter();
    let api = api.filter(|host| {
        let guard = Guard::ApiServesWithout(host.clone());
        !steps
            .iter()
            .any(|step| step.node() == Some(host) && step.guards.contains(&guard))
    });
    let api = api.filter(|host| !is_former(Component::ApiServer, host, steps, have));
    let mixed = up
        .intersection(&back)
        .map(|host| Violation::Mixed((*host).clone()));
    let etcd = etcd.map(Violation::RemovesEtcd);
    let api = api.map(Violation::RemovesApi);
    mixed.chain(claim).chain(etcd).chain(api).collect()
}

/// True where what is removed is of a life of etcd's data before the state's, or before the one that the plan saves.
fn is_former(component: Component, host: &NodeName, steps: &[&Step], have: &Actual) -> bool {
    let known = have.saved.as_ref().map_or(0, |saved| saved.restores());
    let mut before = steps.iter().take_while(|step| !ends(component, host, step));
    let saves = before.any(|step| step.action == Action::Local(LocalAction::SaveState));
    let newest = known + u32::from(saves);
    let fact = have.up(host).and_then(|facts| facts.container(component));
    let is_before = |epoch: u32| fact.is_some_and(|fact| fact.epoch() < epoch);
    let mut removals = steps.iter().filter(|step| ends(component, host, step));
    removals.all(|step| {
        step.guards.iter().any(|guard| {
            matches!(guard, Guard::IsFormer { node, name, epoch }
                if node == host && name == component.container() && *epoch <= newest && is_before(*epoch))
        })
    })
}

/// True where the data of before are put back in place of those of the member that is removed.
fn puts_back(host: &NodeName, steps: &[&Step]) -> bool {
    let after = steps
        .iter()
        .skip_while(|step| !ends(Component::Etcd, host, step));
    let mut after = after.filter_map(|step| step.action.on_host());
    after.any(|(node, action)| node == host && matches!(action, HostAction::PutEtcdBack { .. }))
}

fn ends(component: Component, host: &NodeName, step: &Step) -> bool {
    matches!(&step.action, Action::Host(node, HostAction::RemoveContainer { name })
        if node == host && name == component.container())
}

/// True where etcd's member is removed before its container, or is none any more.
fn leaves_etcd_first(host: &NodeName, steps: &[&Step], have: &Actual) -> bool {
    let at = |wanted: &dyn Fn(&Action) -> bool| steps.iter().position(|step| wanted(&step.action));
    let leaves = at(
        &|action| matches!(action, Action::Cluster(ClusterAction::RemoveMember { node, .. }) if node == host),
    );
    let ends = at(&|action| {
        matches!(action, Action::Host(node, HostAction::RemoveContainer { name })
            if node == host && name == Component::Etcd.container())
    });
    match (leaves, ends) {
        (Some(leaves), Some(ends)) => leaves < ends,
        (None, _) => {
            let serves = matches!(have.etcd.quorum, Quorum::Serving { .. });
            serves && lost::member(host, have).is_none()
        }
        (Some(_), None) => true,
    }
}
