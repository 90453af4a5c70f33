//! A node that stays and has fewer roles: removes the components that it gives up, each when nothing relies on it
//! any more. Pure.
//!
//! This comes last, as for nodes that leave: by then the proxies of the others use other API servers, and the
//! API servers other members. Then, one node after the other: its API server and controllers go, its own
//! proxy starts on their port at once, so that its kubelet is without the API for a moment only; its
//! member leaves etcd; and the next survey sees keys and files that nothing reads any more, which are
//! pruned. Each part is seen by a survey, so a run that was cut off goes on.

use super::{hosts, part::Part};
use crate::{
    facts::ApiView,
    model::{Component, NodeName},
    plan::{
        Cause, ClusterAction, Guard, HostAction, Note, OnFailure, Stage, Step,
        diff::{Diff, HostDiff, Need},
        held::{Held, NoQuorum, Waits},
        hold, lost,
        roles::{CONTROL_PLANE, GivenUp, is_there, none_that_stays_serves},
    },
};

const WHY: &str = "the config gives this node other roles";

/// One node after the other; a failure ends it.
pub(super) fn give_up(diff: &Diff<'_>) -> Part {
    let (mut steps, mut notes) = (Vec::new(), Vec::new());
    for (name, host) in &diff.hosts {
        let roles = GivenUp::of(name, diff.want, diff.have);
        if !roles.any() {
            continue;
        }
        if let Some(why) = held_back(name, roles, diff) {
            let text = format!("does not give up {} yet: {why}", roles.names());
            notes.push(Note::left(name, text, Waits::Roles, why));
            continue;
        }
        if roles.control_plane {
            steps.extend(control_plane(name, host, diff));
        }
        if roles.etcd {
            steps.extend(member(name, host, diff));
        }
    }
    let stage = Stage::of("roles", 1, steps).on_failure(OnFailure::EndRun);
    Part::from(stage).with_notes(notes)
}

/// True while the node gives up roles: what would restart its components besides waits.
pub(super) fn gives_up(name: &NodeName, diff: &Diff<'_>) -> bool {
    GivenUp::of(name, diff.want, diff.have).any()
}

/// True while its API server has the port that its proxy is to have.
pub(super) fn proxy_waits(component: Component, host: &HostDiff<'_>) -> bool {
    component == Component::NginxProxy && host.facts.container(Component::ApiServer).is_some()
}

/// The proxy goes just before the API server takes its port.
pub(super) fn makes_room(
    name: &NodeName,
    component: Component,
    host: &HostDiff<'_>,
    diff: &Diff<'_>,
) -> Option<Step> {
    let starts = match host.need(component) {
        Need::Run | Need::Start(_) => component == Component::ApiServer,
        Need::Nothing | Need::Replace(..) => false,
    };
    let proxy = Component::NginxProxy;
    let there = starts && is_there(proxy, host.facts, diff.want);
    there.then(|| {
        remove(
            name,
            proxy,
            "the API server of this node takes its port",
            diff,
        )
    })
}

/// Why it cannot be now, if it cannot.
fn held_back(name: &NodeName, roles: GivenUp, diff: &Diff<'_>) -> Option<Held> {
    let (want, have) = (diff.want, diff.have);
    if !matches!(have.api(), ApiView::Up(_)) {
        return Some(Held::NoApi);
    }
    if let Some(untold) = hold::untold(diff) {
        return Some(untold);
    }
    if roles.control_plane && none_that_stays_serves(want, have) {
        return Some(Held::NoApiServerStays);
    }
    if !roles.etcd {
        return None;
    }
    let Some(member) = lost::member(name, have) else {
        return NoQuorum::of(&have.etcd.quorum).map(Held::EtcdDoesNotServe);
    };
    let guards = [Guard::ServesAfterRemoval(member)];
    hold::first_broken(&guards, diff).or_else(|| hold::missed(name, diff))
}

/// Its API server first, which no longer has clients, and then its controllers.
fn control_plane(name: &NodeName, host: &HostDiff<'_>, diff: &Diff<'_>) -> Vec<Step> {
    let there = |component: &Component| is_there(*component, host.facts, diff.want);
    let mut steps = Vec::new();
    for component in CONTROL_PLANE.into_iter().filter(there) {
        let mut step = remove(name, component, WHY, diff);
        if component == Component::ApiServer {
            step = step
                .only_if(Guard::ApiServesWithout(name.clone()))
                .disturbing("one API server ends; the others serve");
        }
        steps.push(step);
    }
    let proxy = Component::NginxProxy;
    if proxy_waits(proxy, host)
        && let Some(spec) = host.want.containers.get(&proxy)
    {
        steps.extend(hosts::step(name, proxy, spec, host));
        let wait = HostAction::AwaitHealthy { component: proxy };
        steps.push(Step::on(name, Cause::Leave, "it was just started", wait));
    }
    steps
}

/// The member leaves before its container is removed: until it leaves, it counts as a voter even when it is gone.
fn member(name: &NodeName, host: &HostDiff<'_>, diff: &Diff<'_>) -> Vec<Step> {
    let leaves = lost::member(name, diff.have).map(|member| {
        let node = name.clone();
        let action = ClusterAction::RemoveMember { node, member };
        let step = Step::cluster(Cause::Leave, WHY, action);
        step.only_if(Guard::ServesAfterRemoval(member))
    });
    let there = is_there(Component::Etcd, host.facts, diff.want);
    let container = there.then(|| remove(name, Component::Etcd, WHY, diff));
    leaves.into_iter().chain(container).collect()
}

fn remove(name: &NodeName, component: Component, why: &'static str, diff: &Diff<'_>) -> Step {
    let action = HostAction::RemoveContainer {
        name: component.container().to_owned(),
    };
    Step::on(name, Cause::Leave, why, action).guarded(&diff.want.cluster_id)
}
