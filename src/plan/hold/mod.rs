//! What differs and is left as it is for now, worked out once for a plan: between what differs and in
//! which order it is mended. Pure.
//!
//! etcd and the control planes are decided first: kubelets wait for API servers, and never the other way
//! round.

pub(super) mod containerd;
mod guards;
mod pool;
mod turn;

pub(super) use self::{
    guards::{guards, not_newer},
    pool::{Fleet, Pool},
    turn::versions,
};
use super::{
    Cause, Guard, back,
    diff::{Diff, HostDiff, Need},
    guard,
    held::{Held, NoQuorum, Replacement, Turn},
};
use crate::{
    facts::{ContainerState, HostView},
    model::{Component, FieldChange, NodeName},
};

/// Those that wait for nothing but etcd and the nodes themselves.
const CENTRAL: [Component; 4] = [
    Component::Etcd,
    Component::ApiServer,
    Component::ControllerManager,
    Component::Scheduler,
];

/// Records what is held back, and why.
pub(super) fn hold_back(diff: &mut Diff<'_>) {
    let central = all(diff, |component| CENTRAL.contains(&component), &Turn::Now);
    keep(diff, central);
    diff.turn = turn::turn(diff);
    let turn = diff.turn.clone();
    let others = all(diff, |component| !CENTRAL.contains(&component), &turn);
    keep(diff, others);
}

type Found = Vec<(NodeName, Component, Replacement)>;

fn all(diff: &Diff<'_>, of: impl Fn(Component) -> bool, turn: &Turn) -> Found {
    let mut found = Vec::new();
    let common = Common::of(diff);
    let fleet = Fleet::of(diff);
    for (name, host) in &diff.hosts {
        for component in Component::ALL.into_iter().filter(|it| of(*it)) {
            let Need::Replace(cause, _, changes) = host.need(component) else {
                continue;
            };
            let guards = guards(component, *cause, changes, name, diff, &fleet);
            let held = refused(component, diff)
                .or_else(|| common.held(component, *cause, changes, host, diff))
                .or_else(|| first_broken(&guards, diff))
                .or_else(|| turn::held(component, name, host, diff, turn))
                .or_else(|| {
                    containerd::before_kubelet(component, *cause, name, host, diff, &fleet)
                });
            found.push(((*name).clone(), component, Replacement { guards, held }));
        }
    }
    found
}

fn keep(diff: &mut Diff<'_>, found: Found) {
    for (name, component, replacement) in found {
        if let Some(host) = diff.hosts.get_mut(&name) {
            host.set_replacement(component, replacement);
        }
    }
}

/// What is the same for every node.
struct Common {
    silent: Option<NodeName>,
    problem: Option<String>,
}

impl Common {
    fn of(diff: &Diff<'_>) -> Self {
        let (want, have) = (diff.want, diff.have);
        let members = want.with(Component::Etcd);
        let mut central = members.chain(want.with(Component::ApiServer));
        let is_silent =
            |name: &&NodeName| matches!(have.hosts.get(*name), Some(HostView::Unreachable(_)));
        Self {
            silent: central.find(is_silent).cloned(),
            problem: have.etcd.problems().into_iter().next(),
        }
    }

    fn held(
        &self,
        component: Component,
        cause: Cause,
        changes: &[FieldChange],
        host: &HostDiff<'_>,
        diff: &Diff<'_>,
    ) -> Option<Held> {
        if cause == Cause::Change {
            if CENTRAL.contains(&component)
                && let Some(silent) = &self.silent
            {
                return Some(Held::SilentNode(silent.clone()));
            }
            if component == Component::Etcd
                && let Some(held) = waits_for_quorum(host, diff)
            {
                return Some(held);
            }
            let cures = component == Component::Etcd && guards::cures(changes, host);
            if let Some(problem) = self.problem.as_ref().filter(|_| !cures) {
                return Some(Held::EtcdProblem(problem.clone()));
            }
        }
        None
    }
}

/// What has failed on one node is tried on none.
fn refused(component: Component, diff: &Diff<'_>) -> Option<Held> {
    let refused = back::refused(component, diff.want, diff.have)?;
    Some(Held::Refused {
        node: refused.node.clone(),
        why: refused.why.clone(),
    })
}

/// The first that does not hold by what the survey saw.
pub(super) fn first_broken(guards: &[Guard], diff: &Diff<'_>) -> Option<Held> {
    let mut broken = guards
        .iter()
        .filter_map(|guard| guard::held(guard, diff.have).err());
    broken.next().map(Held::Guard)
}

/// A mere change of a member waits while it is unknown whether the others serve without it. A member that does
/// not run is no loss; with two members, stopping either stops all of etcd, whatever the other does.
fn waits_for_quorum(host: &HostDiff<'_>, diff: &Diff<'_>) -> Option<Held> {
    let why = NoQuorum::of(&diff.have.etcd.quorum).filter(|why| *why != NoQuorum::External)?;
    let etcd = host.facts.container(Component::Etcd);
    let runs = etcd.is_some_and(|fact| fact.state == ContainerState::Running);
    let members = diff.want.with(Component::Etcd).count();
    let members = members.max(diff.have.etcd.voters().count());
    (runs && members > 2).then_some(Held::EtcdDoesNotServe(why))
}

/// The first API server that is not replaced yet, and so does not know of new members.
pub(super) fn untold(diff: &Diff<'_>) -> Option<Held> {
    let mut hosts = diff.hosts.iter();
    hosts.find_map(|(name, host)| {
        let why = host.held(Component::ApiServer)?;
        Some(Held::Untold {
            node: (*name).clone(),
            why: Box::new(why.clone()),
        })
    })
}

/// Why a member stays that others rely on: the config asks for as many as there are. One that does not
/// serve is no loss, and others join only without it.
pub(super) fn missed(node: &NodeName, diff: &Diff<'_>) -> Option<Held> {
    let etcd = &diff.have.etcd;
    let member = etcd.on(node)?;
    if !etcd.healthy().contains(&member) {
        return None;
    }
    // Those that join do so before anybody leaves, and a failure ends the run.
    let joins = first_broken(&[Guard::EtcdStable], diff).is_none();
    let votes = |name: &&NodeName| {
        let voter = etcd.of_node(name).any(|(_, member)| !member.is_learner);
        voter || joins && diff.hosts.contains_key(name)
    };
    let wanted = diff.want.with(Component::Etcd).count();
    let stay = diff.want.with(Component::Etcd).filter(votes).count();
    (stay < wanted).then_some(Held::FewerVoters { stay, wanted })
}
