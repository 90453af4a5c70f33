//! What must hold while a component is stopped for a moment. Pure.

use super::pool::Fleet;
use crate::{
    etcd::view::quota,
    facts::ApiHealth,
    model::{Component, Field, FieldChange, NodeName},
    plan::{
        Cause, Guard,
        diff::{Diff, HostDiff, Need},
        held::Turn,
        release,
    },
};

/// What must hold while this component of this host is stopped for a moment: nothing, where it
/// does not serve anyway or is the only one.
pub(in crate::plan) fn guards(
    component: Component,
    cause: Cause,
    changes: &[FieldChange],
    name: &NodeName,
    diff: &Diff<'_>,
    fleet: &Fleet<'_>,
) -> Vec<Guard> {
    match component {
        Component::Etcd => etcd(cause, changes, name, diff),
        Component::ApiServer => api_server(name, diff),
        Component::Kubelet => {
            let most = fleet.most_with(name, cause == Cause::Change);
            let guard = most.map(|most| Guard::AtMostUnavailable {
                most,
                with: name.clone(),
            });
            guard.into_iter().collect()
        }
        Component::ControllerManager
        | Component::Scheduler
        | Component::NginxProxy
        | Component::KubeProxy
        | Component::Snapshots => Vec::new(),
    }
}

fn etcd(cause: Cause, changes: &[FieldChange], name: &NodeName, diff: &Diff<'_>) -> Vec<Guard> {
    let etcd = &diff.have.etcd;
    let Some(member) = etcd.on(name) else {
        return Vec::new();
    };
    if !etcd.healthy().contains(&member) {
        return Vec::new();
    }
    let quorum = Guard::QuorumWithout(member);
    // What cures etcd, or ends, does not wait until nothing is wrong with it.
    let host = diff.hosts.get(name);
    let cures = host.is_some_and(|host| cures(changes, host)) && !etcd.problems().is_empty();
    let waits = cause != Cause::Expiry && !cures;
    match (etcd.voters().count(), waits) {
        (0 | 1, _) | (2, false) => Vec::new(),
        // Two need two: it stops for a moment, and that wants consent.
        (2, true) => vec![Guard::EtcdStable],
        (_, true) => vec![Guard::EtcdStable, quorum],
        (_, false) if ends_within_days(changes, name, diff) && !etcd.serves_without(member) => {
            Vec::new()
        }
        (_, false) => vec![quorum],
    }
}

fn api_server(name: &NodeName, diff: &Diff<'_>) -> Vec<Guard> {
    let (want, have) = (diff.want, diff.have);
    let serving = |name: &NodeName| have.apis.get(name) == Some(&ApiHealth::Serving);
    let mut others = have.apis.keys().filter(|other| *other != name);
    // One that goes serves until then.
    let several = want.with(Component::ApiServer).nth(1).is_some() || others.any(serving);
    if several && serving(name) {
        vec![Guard::ApiServesWithout(name.clone())]
    } else {
        Vec::new()
    }
}

/// True for a change that gives etcd space: a larger quota, and at most other flags and variables with it.
pub(super) fn cures(changes: &[FieldChange], host: &HostDiff<'_>) -> bool {
    let fact = host.facts.container(Component::Etcd);
    let has = fact.and_then(|fact| quota(fact.runs.as_ref()?));
    let wanted = host.want.containers.get(&Component::Etcd);
    let grows = has.is_some_and(|has| wanted.and_then(quota).is_some_and(|wanted| wanted > has));
    let small = |change: &FieldChange| matches!(change.field, Field::Flag(_) | Field::Env(_));
    grows && !changes.is_empty() && changes.iter().all(small)
}

/// True for certificates that end within days: nothing waits for a member that may never come back.
fn ends_within_days(changes: &[FieldChange], name: &NodeName, diff: &Diff<'_>) -> bool {
    let urgent = diff.want.certificates.urgent.get(name);
    urgent.is_some_and(|paths| {
        let mut read = changes.iter().filter_map(|change| change.field.path());
        read.any(|path| paths.contains(path))
    })
}

/// That the API servers have the release that is wanted, where they get it in this plan, for what must not be newer.
pub(in crate::plan) fn not_newer(
    component: Component,
    name: &NodeName,
    host: &HostDiff<'_>,
    diff: &Diff<'_>,
) -> Option<Guard> {
    let comes = match host.need(component) {
        Need::Run => true,
        Need::Replace(..) => super::turn::is_newer(component, name, host, diff),
        Need::Nothing | Need::Start(_) => false,
    };
    if diff.turn != Turn::AfterApiServers || !super::turn::waits(component) || !comes {
        return None;
    }
    let spec = host.want.containers.get(&component)?;
    let version = release::wanted(component, spec, diff.want)?;
    let answers = |name: &&NodeName| diff.hosts.contains_key(name);
    let on = diff.want.with(Component::ApiServer).filter(answers);
    Some(Guard::ApiServersAtLeast {
        version,
        on: on.cloned().collect(),
    })
}
