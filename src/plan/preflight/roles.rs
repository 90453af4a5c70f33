//! Changes of roles that this release does not make yet. Pure. Each would take something away that
//! others rely on, and none is done by half.

use super::PreflightError;
use crate::{
    actual::HostFacts,
    desired::{Desired, DesiredHost},
    error::ErrorClass,
    model::{Component, NodeName, label},
};

/// What tells a role: the component that a node with it has.
const TELLING: [(Component, &str); 3] = [
    (Component::Etcd, "etcd"),
    (Component::ApiServer, "controlplane"),
    (Component::NginxProxy, "worker, without controlplane"),
];

/// Refuses what would change the roles of a living node.
pub(super) fn errors(
    want: &Desired,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Vec<PreflightError> {
    let ours = |component: Component| {
        let container = facts.containers.get(component.container());
        container.is_some_and(|fact| fact.labels.get(label::CLUSTER_ID) == Some(&want.cluster_id.0))
    };
    TELLING
        .into_iter()
        .filter(|(component, _)| {
            ours(*component) && !host.containers.contains_key(component.container())
        })
        .map(|(component, role)| PreflightError {
            node: Some(name.clone()),
            message: format!(
                "node `{name}` has `{}`, and the config gives it other roles now: roles of a node \
                 cannot be changed yet",
                component.container()
            ),
            hints: vec![format!("its role was: {role}")],
            class: ErrorClass::User,
        })
        .collect()
}
