//! containerd's configuration: on all nodes at once where rke-operator has nothing yet, node after node elsewhere;
//! before a kubelet that is yet to start, and otherwise with the other rolls. Pure.
//!
//! It takes a restart, and on some machines Docker goes down with it: etcd and the API server of that
//! node, too.

use super::{addons, hosts, nodes, part::Part, start};
use crate::{
    facts::ContainerState,
    model::{Component, NodeName, path},
    plan::{
        ClusterAction, Guard, HostAction, Note, Queue, Stage, Step, config_digest,
        diff::{ContainerdDiff, Diff, HostDiff},
        held::Waits,
        hold::{Fleet, Pool, containerd},
        roles::is_there,
    },
};

/// Of nodes that are new, side by side.
pub(super) fn fresh(diff: &Diff<'_>) -> Part {
    let stage = hosts::preparing("containerd", diff, |name, host| {
        let differs = host.containerd().filter(|_| !is_living(host, diff));
        differs.map_or_else(Vec::new, |differs| configure(name, host, differs, diff))
    });
    stage.into()
}

/// Of nodes that serve and lack their kubelet, which will need it: one after the other.
pub(super) fn without_kubelet(diff: &Diff<'_>) -> Part {
    let (queues, notes) = queues(diff, |_, host| !containerd::has_kubelet(host));
    let stage = Stage {
        queues,
        ..Stage::of("containerd", 1, [])
    };
    Part::from(stage).with_notes(notes)
}

/// Of all others: one with etcd or a control plane after the other, then the workers.
pub(super) fn living(diff: &Diff<'_>) -> Part {
    let mut part = Part::default();
    for pool in [Pool::Central, Pool::Workers] {
        let (queues, notes) = queues(diff, |name, host| {
            containerd::has_kubelet(host) && Pool::of(name, diff.want) == pool
        });
        let width = match pool {
            Pool::Central => 1,
            Pool::Workers => pool.width(&queues, diff),
        };
        part.stages.push(Stage {
            queues,
            ..Stage::of("containerd", width, [])
        });
        part.notes.extend(notes);
    }
    part
}

/// What is done on the living nodes that are meant, and where it is left as it is for now.
fn queues(
    diff: &Diff<'_>,
    meant: impl Fn(&NodeName, &HostDiff<'_>) -> bool,
) -> (Vec<Queue>, Vec<Note>) {
    let fleet = Fleet::of(diff);
    let (mut queues, mut notes) = (Vec::new(), Vec::new());
    for (name, host, differs) in differing(diff).filter(|(name, host, _)| meant(name, host)) {
        let guards = containerd::must_hold(name, host, differs, diff, &fleet);
        if let Some(why) = containerd::held(name, &guards, diff) {
            let text = format!("containerd is not configured yet: {why}");
            notes.push(Note::left(name, text, Waits::Containerd, why));
            continue;
        }
        queues.push(Queue {
            node: Some(name.clone()),
            steps: queue(name, host, differs, guards, diff),
        });
    }
    (queues, notes)
}

/// A kubelet that is paused or has exited reports nothing about its node until it is replaced or started; those
/// steps wait for it themselves.
fn kubelet_runs(host: &HostDiff<'_>) -> bool {
    let kubelet = host.facts.container(Component::Kubelet);
    kubelet.is_some_and(|fact| fact.state == ContainerState::Running)
}

fn differing<'d>(
    diff: &'d Diff<'_>,
) -> impl Iterator<Item = (&'d NodeName, &'d HostDiff<'d>, &'d ContainerdDiff)> {
    let hosts = diff.hosts.iter();
    let hosts = hosts.filter(|(_, host)| is_living(host, diff));
    hosts.filter_map(|(name, host)| Some((*name, host, host.containerd()?)))
}

/// True where the node has a component of this cluster, including one that the config no longer gives it.
fn is_living(host: &HostDiff<'_>, diff: &Diff<'_>) -> bool {
    let mut all = Component::ALL.into_iter();
    all.any(|component| is_there(component, host.facts, diff.want))
}

fn queue(
    name: &NodeName,
    host: &HostDiff<'_>,
    differs: &ContainerdDiff,
    guards: Vec<Guard>,
    diff: &Diff<'_>,
) -> Vec<Step> {
    let cause = differs.cause;
    let mut steps = configure(name, host, differs, diff);
    if let Some(step) = steps.pop() {
        let guards = guards.into_iter();
        steps.push(guards.fold(step, Step::only_if));
    }
    let back = containerd::taken_along(host).map(|component| {
        let wait = HostAction::AwaitHealthy { component };
        Step::on(name, cause, "Docker was restarted with containerd", wait)
    });
    steps.extend(back);
    let ready = nodes::seen(diff.have, name).is_some_and(|node| node.ready);
    if ready && kubelet_runs(host) && addons::has_network(diff.want) {
        let wait = ClusterAction::AwaitNodeReady { node: name.clone() };
        steps.push(Step::cluster(cause, "its containerd was restarted", wait));
    }
    steps
}

fn configure(
    name: &NodeName,
    host: &HostDiff<'_>,
    differs: &ContainerdDiff,
    diff: &Diff<'_>,
) -> Vec<Step> {
    let want = diff.want;
    let digest = config_digest(&want.saved, differs.content.as_bytes());
    let mut changes = differs.changes.clone();
    for change in &mut changes {
        if change.field.path() == Some(path::CONTAINERD_CONFIG) {
            change.to = Some(digest.0.clone());
        }
    }
    let action = HostAction::ConfigureContainerd {
        wants: host.want.containerd.clone(),
        digest,
    };
    let why = "kubelet runs pods on this node's containerd";
    let step = Step::on(name, differs.cause, why, action)
        .changing(changes)
        .guarded(&want.cluster_id)
        .disturbing(hosts::containerd_restarts(host.facts));
    if start::pause_comes_with_kubelet(host) {
        vec![step]
    } else {
        vec![start::import_pause(name, host, differs.cause), step]
    }
}
