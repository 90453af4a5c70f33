//! What is missing or stands still: run, started, and awaited elsewhere. What differs is replaced
//! in a roll. Pure.

use super::{hosts, join, part::Part, roles, skew};
use crate::{
    facts::ContainerState,
    model::{Component, ContainerSpec, NodeName},
    plan::{
        Action, Cause, HostAction, Note, Step, Target,
        diff::{Diff, HostDiff, Need},
        held::Turn,
        hold,
    },
};

/// What does nothing before the API answers, and is worse off when it was started before: the
/// controller manager exits, the scheduler takes its lease seconds late, and kube-proxy asks again
/// only after pauses that grow, so that services work seconds late. Snapshots
/// come last of all.
const CLIENTS: [Component; 4] = [
    Component::ControllerManager,
    Component::Scheduler,
    Component::KubeProxy,
    Component::Snapshots,
];

/// On all hosts side by side: all of a fresh cluster are started before any is awaited.
pub(super) fn start(diff: &Diff<'_>) -> Part {
    let now = diff.turn == Turn::Now;
    let stage = hosts::preparing("start", diff, |name, host| {
        let mut steps = Vec::new();
        let joins = join::joins(name, host, diff);
        for (component, spec) in &host.want.containers {
            let component = *component;
            let waits = joins && join::STARTS.contains(&component);
            let waits = waits || !now && component == Component::Kubelet;
            let waits = waits || roles::proxy_waits(component, host);
            if CLIENTS.contains(&component) || waits {
                continue;
            }
            steps.extend(roles::makes_room(name, component, host, diff));
            steps.extend(with_pause(name, component, spec, host));
        }
        steps
    });
    Part::from(stage).with_notes(restarting(diff))
}

/// Started when the API answers.
pub(super) fn clients(diff: &Diff<'_>) -> Part {
    let stage = hosts::preparing("clients", diff, |name, host| {
        // On the node of a member that joins, the API server was started just now, and kubelet needs it.
        let late = join::joins(name, host, diff) || diff.turn != Turn::Now;
        let kept_out = skew::keeps_out(host, diff);
        let all = host.want.containers.iter();
        let clients = all.filter(|(component, _)| match component {
            Component::Kubelet => late && !kept_out,
            Component::KubeProxy => !kept_out,
            Component::ControllerManager | Component::Scheduler => true,
            // Snapshots come last of all.
            Component::Etcd
            | Component::ApiServer
            | Component::NginxProxy
            | Component::Snapshots => false,
        });
        clients
            .flat_map(|(component, spec)| {
                let newer = hold::not_newer(*component, name, host, diff);
                let steps = with_pause(name, *component, spec, host);
                steps.map(move |step| match &newer {
                    Some(guard) => step.only_if(guard.clone()),
                    None => step,
                })
            })
            .collect()
    });
    // None of them needs another; kubelet needs the image of every pod.
    let stage = stage.side_by_side(|step| match &step.action {
        Action::Host(_, HostAction::ImportPause { .. }) => true,
        Action::Host(
            _,
            HostAction::RunContainer { component, .. } | HostAction::StartContainer { component },
        ) => *component == Component::Kubelet,
        Action::Host(..) | Action::Cluster(_) | Action::Local(_) => false,
    });
    Part::from(stage).with_notes(skew::late(diff))
}

/// What it takes to start a component; for kubelet also the image of every pod.
pub(super) fn with_pause(
    name: &NodeName,
    component: Component,
    spec: &ContainerSpec,
    host: &HostDiff<'_>,
) -> impl Iterator<Item = Step> {
    let pause = component == Component::Kubelet && pause_comes_with_kubelet(host);
    let pause = pause.then(|| import_pause(name, host, Cause::New));
    pause
        .into_iter()
        .chain(hosts::step(name, component, spec, host))
}

/// When the API servers answer: new ones are asked as soon as they serve, and those that leave are
/// asked no more before they go.
pub(super) fn proxies(diff: &Diff<'_>) -> Part {
    let stage = hosts::preparing("proxies", diff, |name, host| {
        let reload = host.reload.iter().map(|(cause, read)| {
            let action = HostAction::ReloadProxy { read: read.clone() };
            let why = "it sends to the API servers of the file that it has read";
            Step::on(name, *cause, why, action).guarded(&diff.want.cluster_id)
        });
        reload.collect()
    });
    stage.into()
}

/// The pause image goes in before the kubelet that needs it: a run that is cut off between the
/// two is seen, because kubelet is still missing. A roll that puts a kubelet off would put the
/// image off, too.
pub(super) fn pause_comes_with_kubelet(host: &HostDiff<'_>) -> bool {
    *host.need(Component::Kubelet) == Need::Run
}

/// Into containerd's own namespace, where kubelet's sandboxes look for it.
pub(super) fn import_pause(name: &NodeName, host: &HostDiff<'_>, cause: Cause) -> Step {
    let action = HostAction::ImportPause {
        image: host.want.containerd.sandbox_image.clone(),
    };
    Step::on(name, cause, "containerd starts every pod from it", action)
}

/// What keeps restarting is left to Docker and awaited.
fn restarting(diff: &Diff<'_>) -> Vec<Note> {
    let each = diff.hosts.iter().flat_map(|(name, host)| {
        let containers = host.want.containers.keys();
        containers.filter_map(move |component| {
            let fact = host.facts.container(*component)?;
            match fact.state {
                ContainerState::Restarting(code) => {
                    let text = format!(
                        "`{component}` keeps exiting with code {code} and Docker restarts it: \
                         `docker logs {component}` says why"
                    );
                    Some(Note::of(Some(Target::Host((*name).clone())), text))
                }
                ContainerState::Created
                | ContainerState::Running
                | ContainerState::Exited(_)
                | ContainerState::Other => None,
            }
        })
    });
    each.collect()
}
