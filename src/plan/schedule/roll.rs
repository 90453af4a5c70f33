//! What a living cluster goes through one host after the other: three rolls, etcd first, then the
//! control planes, then kubelet and kube-proxy of all nodes. Pure.
//!
//! A host is one queue with the waits inside, so the next one begins only when this one serves
//! again; a failure ends the roll. What must hold meanwhile is a guard on each step that takes
//! something away; where it does not hold already, the step is left out and a note says why.

use super::{addons, nodes, pool::Pool, skew, start};
use crate::{
    actual::{ApiHealth, ApiView, ContainerState, HostView},
    desired::Desired,
    etcd::Quorum,
    model::{Component, NodeName},
    plan::{
        Cause, ClusterAction, Guard, HostAction, Note, Queue, Stage, Step,
        diff::{Diff, HostDiff, Need},
        guard,
    },
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
    components: &[
        Component::NginxProxy,
        Component::Kubelet,
        Component::KubeProxy,
    ],
};

/// Members one at a time, the leader last. Without a quorum those that do not run come together:
/// each serves only with the others.
pub(super) fn etcd(diff: &Diff<'_>) -> Stage {
    let etcd = &diff.have.etcd;
    match etcd.quorum {
        // There are none.
        Quorum::External(_) => Stage::of(ETCD.stage, 1, []),
        Quorum::Serving { leader } => stage(&ETCD, diff, |name| etcd.on(name) == Some(leader)),
        Quorum::Lost | Quorum::Disagree | Quorum::Unknown => {
            together(stage(&ETCD, diff, |_| false), |name| !etcd_runs(name, diff))
        }
    }
}

/// The queues of these nodes as one, in which everything is awaited after it all.
fn together(roll: Stage, of: impl Fn(&NodeName) -> bool) -> Stage {
    let queues = roll.queues.into_iter();
    let (these, others): (Vec<Queue>, Vec<Queue>) =
        queues.partition(|queue| queue.node.as_ref().is_some_and(&of));
    let steps = these.into_iter().flat_map(|queue| queue.steps);
    let (waits, steps): (Vec<Step>, Vec<Step>) = steps.partition(|step| step.action.is_wait());
    let steps: Vec<Step> = steps.into_iter().chain(waits).collect();
    let first = (!steps.is_empty()).then_some(Queue { node: None, steps });
    Stage {
        queues: first.into_iter().chain(others).collect(),
        ..roll
    }
}

/// API server, controller manager, scheduler: one host at a time.
pub(super) fn control_planes(diff: &Diff<'_>) -> Stage {
    stage(&CONTROL_PLANES, diff, |name| {
        diff.have.apis.get(name) == Some(&ApiHealth::Serving)
    })
}

/// kubelet and kube-proxy, first where etcd or a control plane is, then on the workers. Nodes that
/// are not Ready come first, and those that a run left cordoned: they are out already.
pub(super) fn nodes(diff: &Diff<'_>) -> [Stage; 2] {
    let serves = |name: &NodeName| {
        let node = nodes::seen(diff.have, name);
        node.is_some_and(|node| node.ready && !node.is_cordoned_by_us())
    };
    let all = stage(&NODES, diff, serves);
    let (central, workers): (Vec<Queue>, Vec<Queue>) = all.queues.into_iter().partition(|queue| {
        let name = queue.node.as_ref();
        name.is_some_and(|name| Pool::of(name, diff.want) == Pool::Central)
    });
    [(Pool::Central, central), (Pool::Workers, workers)].map(|(pool, queues)| Stage {
        width: pool.width(&queues, diff),
        queues,
        ..Stage::of(NODES.stage, 1, [])
    })
}

/// What is left out of the rolls, and why.
pub(super) fn notes(diff: &Diff<'_>) -> Vec<Note> {
    let rolls = [ETCD, CONTROL_PLANES, NODES];
    let components = rolls.iter().flat_map(|roll| roll.components);
    components
        .flat_map(|component| {
            diff.hosts.iter().filter_map(|(name, host)| {
                let Need::Replace(cause, ..) = host.need(*component) else {
                    return None;
                };
                let why = held_back(*component, *cause, name, diff)?;
                let text = format!("`{component}` is not replaced yet: {why}");
                Some(Note::left(name, text))
            })
        })
        .collect()
}

fn stage(roll: &Roll, diff: &Diff<'_>, last: impl Fn(&NodeName) -> bool) -> Stage {
    let hosts = diff.hosts.iter();
    let mut queues: Vec<Queue> = hosts
        .map(|(name, host)| Queue {
            node: Some((*name).clone()),
            steps: queue(roll, diff, name, host),
        })
        .filter(|queue| !queue.steps.is_empty())
        .collect();
    queues.sort_by_key(|queue| queue.node.as_ref().is_some_and(&last));
    Stage {
        queues,
        ..Stage::of(roll.stage, 1, [])
    }
}

fn etcd_runs(name: &NodeName, diff: &Diff<'_>) -> bool {
    let facts = diff.have.up(name);
    let etcd = facts.and_then(|facts| facts.container(Component::Etcd));
    etcd.is_some_and(|fact| fact.state == ContainerState::Running)
}

fn queue(roll: &Roll, diff: &Diff<'_>, name: &NodeName, host: &HostDiff<'_>) -> Vec<Step> {
    let (want, have) = (diff.want, diff.have);
    let mut steps = Vec::new();
    for component in roll.components.iter().copied() {
        let (Some(spec), Some(fact)) = (
            host.want.containers.get(&component),
            host.facts.container(component),
        ) else {
            continue;
        };
        let Need::Replace(cause, why, changes) = host.need(component) else {
            continue;
        };
        let cause = *cause;
        if held_back(component, cause, name, diff).is_some() {
            continue;
        }
        if component == Component::Kubelet {
            steps.push(start::import_pause(name, host, cause));
        }
        steps.extend(clients_return(component, cause, name, diff));
        let action = HostAction::ReplaceContainer {
            component,
            spec: Box::new(spec.clone()),
        };
        let same = Guard::ContainerIs {
            node: name.clone(),
            name: component.container().to_owned(),
            id: fact.id.clone(),
        };
        let mut step = Step::on(name, cause, why.clone(), action)
            .changing(changes.clone())
            .guarded(&want.cluster_id)
            .only_if(same);
        for guard in guards(component, cause, name, diff) {
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
    let changes = |step: &Step| match step.action.on_host() {
        Some((_, HostAction::ReplaceContainer { component, .. })) => {
            step.cause == Cause::Change && *component == Component::Kubelet
        }
        Some(_) | None => false,
    };
    if steps.iter().any(changes) {
        set_aside(name, steps, diff)
    } else {
        steps
    }
}

/// How long who asks an API server needs after its start until nobody remembers that it was away: Kubernetes'
/// clients wait longer after each try that failed, up to a minute, and begin anew after two minutes without one.
const CLIENTS_RETURN: u16 = 150;

/// An API server that its clients have lost lately is left alone until they begin anew: after three or four times
/// within two minutes the controller manager that leads is blind for so long that it takes all nodes for gone.
fn clients_return(
    component: Component,
    cause: Cause,
    name: &NodeName,
    diff: &Diff<'_>,
) -> Option<Step> {
    let serves = diff.have.apis.get(name) == Some(&ApiHealth::Serving);
    if component != Component::ApiServer || !serves {
        return None;
    }
    let facts = diff.have.up(name)?;
    let started = |component: Component| facts.container(component)?.started;
    let server = started(Component::ApiServer)?;
    let client = started(Component::ControllerManager)?;
    let age = facts.clock?.unix_seconds.saturating_sub(server);
    let why = "its clients have lost it a moment ago";
    let action = HostAction::AwaitAge {
        component,
        seconds: CLIENTS_RETURN,
    };
    let lately = (0..i64::from(CLIENTS_RETURN)).contains(&age);
    (client < server && lately).then(|| Step::on(name, cause, why, action))
}

/// The steps of a node whose kubelet changes, between its cordon (or its drain) and what takes that
/// back. A node that is not Ready has no pods to lose; one that a person cordoned stays so.
fn set_aside(name: &NodeName, steps: Vec<Step>, diff: &Diff<'_>) -> Vec<Step> {
    let want = diff.want;
    let Some(node) = nodes::seen(diff.have, name).filter(|node| node.ready) else {
        return steps;
    };
    let theirs = node.is_cordoned_by_others();
    let first = match want.upgrade.drain {
        Some(rules) => {
            let action = ClusterAction::Drain {
                node: name.clone(),
                rules: Some(rules),
            };
            let why = "its kubelet changes, and `upgrade_strategy` wants it drained";
            let mut step = Step::cluster(Cause::Change, why, action).guarded(&want.cluster_id);
            for guard in guards(Component::Kubelet, Cause::Change, name, diff) {
                step = step.only_if(guard);
            }
            Some(step.disturbing("the node's pods are evicted and start on other nodes"))
        }
        None if theirs => None,
        None => {
            let action = ClusterAction::Cordon { node: name.clone() };
            let why = "its kubelet changes: no new pod meanwhile";
            Some(Step::cluster(Cause::Change, why, action))
        }
    };
    let last = (!theirs).then(|| {
        let action = ClusterAction::Uncordon { node: name.clone() };
        Step::cluster(Cause::Change, "it is as it must be", action)
    });
    first.into_iter().chain(steps).chain(last).collect()
}

/// What must hold when this component of this host is taken away for a moment: nothing, where it
/// does not serve anyway or is the only one.
pub(super) fn guards(
    component: Component,
    cause: Cause,
    name: &NodeName,
    diff: &Diff<'_>,
) -> Vec<Guard> {
    let (want, have) = (diff.want, diff.have);
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
            let serving = |name: &NodeName| have.apis.get(name) == Some(&ApiHealth::Serving);
            let mut others = have.apis.keys().filter(|other| *other != name);
            // One that goes serves until then.
            let several = want.with(Component::ApiServer).nth(1).is_some() || others.any(serving);
            let serves = serving(name);
            if several && serves {
                vec![Guard::ApiServesWithout(name.clone())]
            } else {
                Vec::new()
            }
        }
        Component::Kubelet => match have.api() {
            ApiView::Up(api) if want.hosts.len() > 1 => {
                let pool = Pool::of(name, want);
                let others = api.nodes.iter().filter(|(other, _)| *other != name);
                let down = others.filter(|(_, node)| !node.ready);
                // A change waits while as many of its kind are down as may be; what is healed or
                // ends soon does not wait for a node that may never come back.
                let down = down.filter(|(other, _)| {
                    let counts = want.hosts.contains_key(*other) && Pool::of(other, want) == pool;
                    cause != Cause::Change || !counts
                });
                vec![Guard::AtMostUnavailable {
                    most: down.count() + pool.most(want),
                    with: name.clone(),
                }]
            }
            ApiView::Up(_) | ApiView::Unknown | ApiView::Unreachable(_) => Vec::new(),
        },
        Component::ControllerManager
        | Component::Scheduler
        | Component::NginxProxy
        | Component::KubeProxy => Vec::new(),
    }
}

/// Why a component is left as it is for now, if it is.
pub(super) fn held_back(
    component: Component,
    cause: Cause,
    name: &NodeName,
    diff: &Diff<'_>,
) -> Option<String> {
    let (want, have) = (diff.want, diff.have);
    let central = match component {
        Component::Etcd
        | Component::ApiServer
        | Component::ControllerManager
        | Component::Scheduler => true,
        Component::NginxProxy | Component::Kubelet | Component::KubeProxy => false,
    };
    if central && cause == Cause::Change {
        let mut all = want
            .with(Component::Etcd)
            .chain(want.with(Component::ApiServer));
        let silent =
            all.find(|name| matches!(have.hosts.get(*name), Some(HostView::Unreachable(_))));
        if let Some(silent) = silent {
            return Some(format!(
                "etcd and control planes change only while all of their nodes answer, and \
                 `{silent}` does not"
            ));
        }
    }
    if cause == Cause::Change
        && let Some(problem) = have.etcd.problems().into_iter().next()
    {
        return Some(problem);
    }
    let guards = guards(component, cause, name, diff);
    let held = guards
        .iter()
        .find_map(|guard| guard::held(guard, have).err());
    held.or_else(|| skew::held_back(component, name, diff))
}

/// What a replacement disturbs, and for how long. `None`: nothing that anybody sees.
fn disturbs(component: Component, want: &Desired) -> Option<&'static str> {
    let spare = match component {
        Component::Etcd => 2,
        Component::ApiServer
        | Component::ControllerManager
        | Component::Scheduler
        | Component::NginxProxy
        | Component::Kubelet
        | Component::KubeProxy => 1,
    };
    let several = want.with(component).nth(spare).is_some();
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
        (
            Component::ControllerManager
            | Component::Scheduler
            | Component::NginxProxy
            | Component::KubeProxy,
            _,
        ) => None,
    }
}
