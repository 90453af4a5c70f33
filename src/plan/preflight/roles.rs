//! Changes of roles that wait for another change. Pure.

use super::PreflightError;
use crate::{
    desired::{Desired, DesiredHost},
    error::ErrorClass,
    etcd::Quorum,
    facts::Actual,
    model::{Component, NodeName},
    plan::{release, roles::GivenUp},
};

/// Refuses what cannot be done in one run, with the order in which it can.
pub(super) fn errors(
    want: &Desired,
    have: &Actual,
    name: &NodeName,
    host: &DesiredHost,
) -> Vec<PreflightError> {
    let roles = GivenUp::of(name, want, have);
    let unmade = roles.etcd && !was_made(have);
    let unmade = unmade.then(|| error(
        name,
        format!(
            "node `{name}` is to give up the role `etcd`, and the cluster was not created yet: its first members \
            start together"
        ),
        format!(
            "add the role `etcd` of `{name}` to the config again, run `up`, and then remove it"
        ),
    ));
    let newer = roles.control_plane && is_upgraded(name, host, want, have);
    let newer = newer.then(|| error(
        name,
        format!(
            "node `{name}` is to give up the role `controlplane`, and the config asks for another minor release of \
            Kubernetes: its kubelet would be newer than the API server that it still has"
        ),
        "change the roles first, with the `kubernetes_version` that the cluster has; then the version"
            .to_owned(),
    ));
    unmade.into_iter().chain(newer).collect()
}

/// True when etcd serves, or has served.
fn was_made(have: &Actual) -> bool {
    let serves = matches!(have.etcd.quorum, Quorum::Serving { .. });
    serves
        || have
            .saved
            .as_ref()
            .is_some_and(|saved| saved.memory.populated)
}

fn is_upgraded(name: &NodeName, host: &DesiredHost, want: &Desired, have: &Actual) -> bool {
    let runs = release::runs(Component::ApiServer, name, have);
    let kubelet = host.containers.get(&Component::Kubelet);
    let wanted = kubelet.and_then(|spec| release::wanted(Component::Kubelet, spec, want));
    runs.zip(wanted)
        .is_some_and(|(runs, wanted)| (wanted.0, wanted.1) > (runs.0, runs.1))
}

fn error(name: &NodeName, message: String, hint: String) -> PreflightError {
    PreflightError {
        node: Some(name.clone()),
        message,
        hints: vec![hint],
        class: ErrorClass::User,
    }
}
