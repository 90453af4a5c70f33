//! What a living cluster goes through one host after the other: three rolls, etcd first, then the
//! control planes, then kubelet and kube-proxy of all nodes. Pure. Controllers whose certificates are renewed are a
//! fourth.
//!
//! A host is one queue with the waits inside, so the next one begins only when this one serves
//! again; a failure ends the roll. What must hold meanwhile is a guard on each step that takes
//! something away; where it does not hold already, the step is left out and a note says why.

use super::{addons, nodes, part::Part, skew, start};
use crate::{
    etcd::Quorum,
    facts::{ApiHealth, ContainerState},
    model::{Component, FieldChange, NodeName, path},
    plan::{
        Cause, ClusterAction, Guard, HostAction, Note, Queue, Stage, Step, Waits,
        diff::{Diff, HostDiff, Need},
        hold::{self, Pool},
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
    stage: "controlplane",
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

/// Controllers whose certificates are renewed. Those that have ended are the reason: a controller that begins before the
/// kubelets can report again takes their nodes for lost.
const CONTROLLERS: Roll = Roll {
    stage: "controllers",
    components: &[Component::ControllerManager, Component::Scheduler],
};

/// Members one at a time, the leader last. Without a quorum those that do not run come together, and those whose
/// certificates have ended: each serves only with the others.
pub(super) fn etcd(diff: &Diff<'_>) -> Part {
    let etcd = &diff.have.etcd;
    let (queues, notes) = match etcd.quorum {
        // There are none.
        Quorum::External(_) => return Part::default(),
        Quorum::Serving { leader } => queues(
            &ETCD,
            diff,
            |_, _| true,
            |name| etcd.on(name) == Some(leader),
        ),
        Quorum::Lost | Quorum::Disagree | Quorum::Unknown => {
            let (queues, notes) = queues(&ETCD, diff, |_, _| true, |_| false);
            let waits =
                |name: &NodeName| !etcd_runs(name, diff) || diff.has_ended(Component::Etcd, name);
            (together(queues, waits), notes)
        }
    };
    Part::from(stage(&ETCD, queues)).with_notes(notes)
}

/// The queues of these nodes as one, in which everything is awaited after it all.
fn together(queues: Vec<Queue>, of: impl Fn(&NodeName) -> bool) -> Vec<Queue> {
    let (these, others): (Vec<Queue>, Vec<Queue>) = queues
        .into_iter()
        .partition(|queue| queue.node.as_ref().is_some_and(&of));
    let steps = these.into_iter().flat_map(|queue| queue.steps);
    let (waits, steps): (Vec<Step>, Vec<Step>) = steps.partition(|step| step.action.is_wait());
    let steps: Vec<Step> = steps.into_iter().chain(waits).collect();
    let first = (!steps.is_empty()).then_some(Queue { node: None, steps });
    first.into_iter().chain(others).collect()
}

/// API server, controller manager, scheduler: one host at a time. Controllers whose certificates are renewed come
/// after the kubelets.
pub(super) fn control_planes(diff: &Diff<'_>) -> Part {
    let serves = |name: &NodeName| diff.have.apis.get(name) == Some(&ApiHealth::Serving);
    let now = |component: Component, name: &NodeName| !is_last(component, name, diff);
    let (queues, notes) = queues(&CONTROL_PLANES, diff, now, serves);
    Part::from(stage(&CONTROL_PLANES, queues))
        .with_notes(notes)
        .with_notes(skew::old_clients(diff))
}

/// The controllers whose certificates are renewed: one host at a time, when the kubelets report again.
pub(super) fn controllers(diff: &Diff<'_>) -> Part {
    let last = |component: Component, name: &NodeName| is_last(component, name, diff);
    let (queues, notes) = queues(&CONTROLLERS, diff, last, |_| false);
    Part::from(stage(&CONTROLLERS, queues)).with_notes(notes)
}

fn is_last(component: Component, name: &NodeName, diff: &Diff<'_>) -> bool {
    let need = diff.hosts.get(name).map(|host| host.need(component));
    let renewed = matches!(need, Some(Need::Replace(Cause::Expiry, ..)));
    renewed && CONTROLLERS.components.contains(&component)
}

/// kubelet and kube-proxy, first where etcd or a control plane is, then on the workers. Nodes that
/// are not Ready come first, and those that a run left cordoned: they are out already.
pub(super) fn nodes(diff: &Diff<'_>) -> Part {
    let serves = |name: &NodeName| {
        let node = nodes::seen(diff.have, name);
        node.is_some_and(|node| node.ready && !node.is_cordoned_by_us())
    };
    let (queues, notes) = queues(&NODES, diff, |_, _| true, serves);
    let (central, workers): (Vec<Queue>, Vec<Queue>) = queues.into_iter().partition(|queue| {
        let name = queue.node.as_ref();
        name.is_some_and(|name| Pool::of(name, diff.want) == Pool::Central)
    });
    let pools = [(Pool::Central, central), (Pool::Workers, workers)];
    let stages = pools.map(|(pool, queues)| Stage {
        width: pool.width(&queues, diff),
        ..stage(&NODES, queues)
    });
    let part = Part {
        stages: stages.into(),
        notes,
    };
    part.with_notes(skew::undrained(diff))
}

fn stage(roll: &Roll, queues: Vec<Queue>) -> Stage {
    Stage {
        queues,
        ..Stage::of(roll.stage, 1, [])
    }
}

/// A queue for each host with something to replace, and what is left out of the roll.
fn queues(
    roll: &Roll,
    diff: &Diff<'_>,
    takes: impl Fn(Component, &NodeName) -> bool,
    last: impl Fn(&NodeName) -> bool,
) -> (Vec<Queue>, Vec<Note>) {
    let (mut queues, mut notes) = (Vec::new(), Vec::new());
    for (name, host) in &diff.hosts {
        let components = roll.components.iter().copied();
        let components = components.filter(|component| takes(*component, name));
        let (steps, left) = queue(components, diff, name, host);
        notes.extend(left);
        if !steps.is_empty() {
            queues.push(Queue {
                node: Some((*name).clone()),
                steps,
            });
        }
    }
    queues.sort_by_key(|queue| queue.node.as_ref().is_some_and(&last));
    (queues, notes)
}

fn etcd_runs(name: &NodeName, diff: &Diff<'_>) -> bool {
    let facts = diff.have.up(name);
    let etcd = facts.and_then(|facts| facts.container(Component::Etcd));
    etcd.is_some_and(|fact| fact.state == ContainerState::Running)
}

/// The steps of a host, and what of it is left as it is for now.
fn queue(
    components: impl Iterator<Item = Component>,
    diff: &Diff<'_>,
    name: &NodeName,
    host: &HostDiff<'_>,
) -> (Vec<Step>, Vec<Note>) {
    let (want, have) = (diff.want, diff.have);
    let (mut steps, mut notes) = (Vec::new(), Vec::new());
    for component in components {
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
        if let Some(why) = host.held(component) {
            let text = format!("`{component}` is not replaced yet: {why}");
            let what = Waits::Component(component);
            notes.push(Note::left(name, text, what, why.clone()));
            continue;
        }
        if component == Component::Kubelet {
            steps.push(start::import_pause(name, host, cause));
        }
        steps.extend(clients_return(component, cause, name, diff));
        let action = HostAction::ReplaceContainer {
            component,
            spec: Box::new(spec.clone()),
            keep: keeps(component, host, diff),
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
        let newer = hold::not_newer(component, name, host, diff);
        for guard in host.guards(component).iter().cloned().chain(newer) {
            step = step.only_if(guard);
        }
        if let Some(what) = disturbs(component, name, diff) {
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
        steps = set_aside(name, steps, host, diff);
    }
    (steps, notes)
}

/// True where the container that is replaced is kept until the run has ended well: its definition changes, and none is
/// kept yet. One that is there is the last that is known to work. Where only the content of files changes none is kept: the
/// former one would read the new files as well. What the API servers encrypt with concerns all of them, and none goes back
/// alone.
pub(super) fn keeps(component: Component, host: &HostDiff<'_>, diff: &Diff<'_>) -> bool {
    let Need::Replace(cause, _, changes) = host.need(component) else {
        return false;
    };
    let is_file = |change: &FieldChange| change.field.path().is_some();
    let encrypts = |change: &FieldChange| change.field.path() == Some(path::ENCRYPTION);
    let rolls = [&ETCD, &CONTROL_PLANES, &NODES];
    let rolled = rolls
        .iter()
        .any(|roll| roll.components.contains(&component));
    let fact = host.facts.container(component);
    let fact = fact.filter(|fact| fact.is_of(&diff.want.cluster_id));
    let changed = fact.is_some_and(|fact| *cause == Cause::Change || fact.is_set_aside());
    let is_free = !host.facts.containers.contains_key(component.kept());
    rolled && changed && is_free && !changes.iter().all(is_file) && !changes.iter().any(encrypts)
}

/// How many seconds after an API server's start its clients have reset their backoff: Kubernetes' clients wait longer
/// after each failed try, up to a minute, and reset after two minutes without one.
const CLIENTS_RETURN: u16 = 150;

/// An API server that its clients have lost lately is left alone until their backoff is reset: after three or four
/// losses within two minutes the leading controller manager waits for so long that it considers all nodes gone.
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
    let why = "its clients lost it a moment ago";
    let action = HostAction::AwaitAge {
        component,
        seconds: CLIENTS_RETURN,
    };
    let lately = (0..i64::from(CLIENTS_RETURN)).contains(&age);
    (client < server && lately).then(|| Step::on(name, cause, why, action))
}

/// The steps of a node whose kubelet changes, between its cordon (or its drain) and what takes that
/// back. A node that is not Ready has no pods to lose; one that a person cordoned stays so.
fn set_aside(name: &NodeName, steps: Vec<Step>, host: &HostDiff<'_>, diff: &Diff<'_>) -> Vec<Step> {
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
            let newer = hold::not_newer(Component::Kubelet, name, host, diff);
            let guards = host.guards(Component::Kubelet).iter().cloned();
            for guard in guards.chain(newer) {
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

/// What a replacement disturbs, and for how long. `None`: nothing that anybody sees.
fn disturbs(component: Component, name: &NodeName, diff: &Diff<'_>) -> Option<&'static str> {
    let want = diff.want;
    let etcd = &diff.have.etcd;
    let member = etcd.on(name).filter(|_| component == Component::Etcd);
    if member.is_some_and(|member| etcd.voters().count() > 2 && !etcd.serves_without(member)) {
        return Some(
            "etcd restarts while another member does not serve: the API does not answer until it is \
             back; pods keep running",
        );
    }
    let spare = match component {
        Component::Etcd => 2,
        Component::ApiServer
        | Component::ControllerManager
        | Component::Scheduler
        | Component::NginxProxy
        | Component::Kubelet
        | Component::KubeProxy
        | Component::Snapshots => 1,
    };
    let ended = diff.has_ended(component, name);
    if ended && component == Component::Etcd {
        return Some("etcd restarts: with certificates that have ended no member reaches another");
    }
    if ended && component == Component::ApiServer {
        return Some(
            "the API server restarts: with a certificate that has ended it serves no client",
        );
    }
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
            | Component::KubeProxy
            | Component::Snapshots,
            _,
        ) => None,
    }
}
