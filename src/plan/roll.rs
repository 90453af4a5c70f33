//! What a living cluster goes through one host after the other: three rolls, etcd first, then the
//! control planes, then kubelet and kube-proxy of all nodes. Pure.
//!
//! A host is one queue with the waits inside, so the next one begins only when this one serves
//! again; a failure ends the roll. What must hold meanwhile is a guard on each step that takes
//! something away; where it does not hold already, the step is left out and a note says why.

use super::{
    Cause, ClusterAction, Guard, HostAction, Live, Look, Note, Queue, Stage, Step, Target, addons,
    containers::{self, Need},
    guard, hosts, nodes,
};
use crate::{
    actual::{Actual, ApiHealth, ApiView, HostFacts, HostView},
    desired::{Desired, DesiredHost},
    etcd::Quorum,
    model::{Component, NodeName},
};

/// One roll.
struct Roll {
    stage: &'static str,
    /// In the order in which a host's are replaced.
    components: &'static [Component],
}

const ETCD: Roll = Roll {
    stage: "etcd",
    components: &[Component::Etcd],
};

const CONTROL_PLANES: Roll = Roll {
    stage: "control plane",
    components: &[
        Component::ApiServer,
        Component::ControllerManager,
        Component::Scheduler,
    ],
};

const NODES: Roll = Roll {
    stage: "kubelets",
    components: &[Component::Kubelet, Component::KubeProxy],
};

/// Members one at a time, the leader last.
pub(super) fn etcd(want: &Desired, have: &Actual) -> Stage {
    let leader = match have.etcd.quorum {
        Quorum::Serving { leader } => Some(leader),
        Quorum::Lost | Quorum::Disagree | Quorum::Unknown => None,
    };
    stage(&ETCD, want, have, |name| {
        leader.is_some() && have.etcd.on(name) == leader
    })
}

/// API server, controller manager, scheduler: one host at a time.
pub(super) fn control_planes(want: &Desired, have: &Actual) -> Stage {
    stage(&CONTROL_PLANES, want, have, |name| {
        have.apis.get(name) == Some(&ApiHealth::Serving)
    })
}

/// kubelet and kube-proxy: nodes that are not Ready first.
pub(super) fn nodes(want: &Desired, have: &Actual) -> Stage {
    stage(&NODES, want, have, |name| {
        nodes::seen(have, name).is_some_and(|node| node.ready)
    })
}

/// What is left out of the rolls, and why.
pub(super) fn notes(want: &Desired, have: &Actual) -> Vec<Note> {
    let rolls = [ETCD, CONTROL_PLANES, NODES];
    let components = rolls.iter().flat_map(|roll| roll.components);
    components
        .flat_map(|component| {
            hosts::each(want, have).filter_map(|(name, host, facts)| {
                let Need::Replace(cause, ..) = need(*component, want, name, host, facts) else {
                    return None;
                };
                let why = held_back(*component, cause, name, want, have)?;
                Some(Note {
                    target: Some(Target::Host(name.clone())),
                    text: format!("`{}` is not replaced yet: {why}", component.container()),
                })
            })
        })
        .collect()
}

fn stage(roll: &Roll, want: &Desired, have: &Actual, last: impl Fn(&NodeName) -> bool) -> Stage {
    let mut queues: Vec<Queue> = hosts::each(want, have)
        .map(|(name, host, facts)| Queue {
            node: Some(name.clone()),
            steps: queue(roll, want, have, name, host, facts),
        })
        .filter(|queue| !queue.steps.is_empty())
        .collect();
    queues.sort_by_key(|queue| queue.node.as_ref().is_some_and(&last));
    Stage {
        queues,
        ..Stage::of(roll.stage, 1, [])
    }
}

fn queue(
    roll: &Roll,
    want: &Desired,
    have: &Actual,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Vec<Step> {
    let mut steps = Vec::new();
    for component in roll.components.iter().copied() {
        let container = component.container();
        let (Some(spec), Some(fact)) = (
            host.containers.get(container),
            facts.containers.get(container),
        ) else {
            continue;
        };
        let Need::Replace(cause, why, changes) = need(component, want, name, host, facts) else {
            continue;
        };
        if held_back(component, cause, name, want, have).is_some() {
            continue;
        }
        if component == Component::Kubelet {
            steps.push(containers::import_pause(name, host, cause));
        }
        let action = HostAction::ReplaceContainer {
            name: container.to_owned(),
            spec: Box::new(spec.clone()),
        };
        let same = Guard::ContainerIs {
            node: name.clone(),
            name: container.to_owned(),
            id: fact.id.clone(),
        };
        let mut step = Step::on(name, cause, why, action)
            .changing(changes)
            .guarded(&want.cluster_id)
            .only_if(same);
        for guard in guards(component, name, want, have) {
            step = step.only_if(guard);
        }
        if let Some(what) = disturbs(component, want) {
            step = step.disturbing(what);
        }
        steps.push(step);
        let wait = HostAction::AwaitHealthy { component };
        steps.push(Step::on(name, cause, "it was just replaced", wait));
        let ready = nodes::seen(have, name).is_some_and(|node| node.ready);
        if component == Component::Kubelet && ready && addons::has_network(want) {
            let wait = ClusterAction::AwaitNodeReady { node: name.clone() };
            steps.push(Step::cluster(cause, "its kubelet was just replaced", wait));
        }
    }
    steps
}

fn need(
    component: Component,
    want: &Desired,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Need {
    let container = component.container();
    let renewed = want.certificates.renewed.get(name);
    host.containers
        .get(container)
        .map_or(Need::Nothing, |spec| {
            containers::need_now(container, spec, facts, renewed)
        })
}

/// What must hold when this component of this host is taken away for a moment: nothing, where it
/// does not serve anyway or is the only one.
pub(super) fn guards(
    component: Component,
    name: &NodeName,
    want: &Desired,
    have: &Actual,
) -> Vec<Guard> {
    match component {
        Component::Etcd => match have.etcd.on(name) {
            Some(member) if have.etcd.healthy().contains(&member) => {
                match have.etcd.voters().count() {
                    0 | 1 => Vec::new(),
                    // Two need two: it stops for a moment, and that wants consent.
                    2 => vec![Guard::EtcdStable],
                    _ => vec![Guard::EtcdStable, Guard::QuorumWithout(member)],
                }
            }
            Some(_) | None => Vec::new(),
        },
        Component::ApiServer => {
            let several = with(want, Component::ApiServer).nth(1).is_some();
            let serves = have.apis.get(name) == Some(&ApiHealth::Serving);
            if several && serves {
                vec![Guard::ApiServesWithout(name.clone())]
            } else {
                Vec::new()
            }
        }
        Component::Kubelet => match have.api() {
            ApiView::Up(api) if want.hosts.len() > 1 => {
                let others = api.nodes.iter().filter(|(other, _)| *other != name);
                let down = others.filter(|(_, node)| !node.ready).count();
                vec![Guard::AtMostUnavailable {
                    most: down + 1,
                    with: name.clone(),
                }]
            }
            ApiView::Up(_) | ApiView::Unknown | ApiView::Unreachable(_) => Vec::new(),
        },
        Component::ControllerManager | Component::Scheduler | Component::KubeProxy => Vec::new(),
    }
}

/// Why a component is left as it is for now, if it is.
pub(super) fn held_back(
    component: Component,
    cause: Cause,
    name: &NodeName,
    want: &Desired,
    have: &Actual,
) -> Option<String> {
    let central = match component {
        Component::Etcd
        | Component::ApiServer
        | Component::ControllerManager
        | Component::Scheduler => true,
        Component::Kubelet | Component::KubeProxy => false,
    };
    if central && cause == Cause::Change {
        let mut all = with(want, Component::Etcd).chain(with(want, Component::ApiServer));
        let silent =
            all.find(|name| matches!(have.hosts.get(*name), Some(HostView::Unreachable(_))));
        if let Some(silent) = silent {
            return Some(format!(
                "etcd and control planes change only while all of their nodes answer, and \
                 `{silent}` does not"
            ));
        }
    }
    let live = |guard: &Guard| Live {
        container: match guard.look() {
            Look::Container(node, name) => {
                let facts = have.up(node);
                facts.and_then(|facts| facts.containers.get(name).cloned())
            }
            Look::Etcd | Look::Apis | Look::Nodes => None,
        },
        etcd: have.etcd.clone(),
        apis: have.apis.clone(),
        nodes: have.cluster.as_ref().map(|api| api.nodes.clone()),
    };
    let guards = guards(component, name, want, have);
    guards
        .iter()
        .find_map(|guard| guard::holds(guard, &live(guard)).err())
}

fn with(want: &Desired, component: Component) -> impl Iterator<Item = &NodeName> {
    let hosts = want.hosts.iter();
    let hosts = hosts.filter(move |(_, host)| host.containers.contains_key(component.container()));
    hosts.map(|(name, _)| name)
}

/// What a replacement disturbs, and for how long. `None`: nothing that anybody sees.
fn disturbs(component: Component, want: &Desired) -> Option<&'static str> {
    let spare = match component {
        Component::Etcd => 2,
        Component::ApiServer
        | Component::ControllerManager
        | Component::Scheduler
        | Component::Kubelet
        | Component::KubeProxy => 1,
    };
    let several = with(want, component).nth(spare).is_some();
    match (component, several) {
        (Component::Etcd, false) => {
            Some("etcd restarts: the API does not answer for some seconds; pods keep running")
        }
        (Component::Etcd, true) => Some("one member of etcd restarts; the others serve meanwhile"),
        (Component::ApiServer, false) => Some(
            "the API server restarts: the API does not answer for some seconds; pods keep running",
        ),
        (Component::ApiServer, true) => Some("one API server restarts; the others serve meanwhile"),
        (Component::Kubelet, _) => Some(
            "kubelet restarts: pods keep running; none starts or ends on this node for some \
             seconds",
        ),
        (Component::ControllerManager | Component::Scheduler | Component::KubeProxy, _) => None,
    }
}
