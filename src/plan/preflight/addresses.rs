//! The address by which the other nodes know a member of etcd or a control plane stays. Pure. A member's
//! peers have it in their lists, and an API server's clients in theirs: a node that changes it leaves the
//! cluster first and joins it again.
//!
//! A worker's changes in place, and so does the address that SSH dials, where it is another one.

use std::net::Ipv4Addr;

use super::PreflightError;
use crate::{
    desired::{Desired, DesiredHost},
    error::ErrorClass,
    facts::HostFacts,
    model::{Component, ContainerSpec, NodeName, label, path},
    plan::diff::applied,
};

/// The components that read a certificate with the address in its name.
const NAMED: [(Component, &str); 2] = [
    (Component::Kubelet, "kube-kubelet-"),
    (Component::Etcd, "kube-etcd-"),
];

/// Refuses another address for what others rely on.
pub(super) fn errors(
    want: &Desired,
    name: &NodeName,
    host: &DesiredHost,
    facts: &HostFacts,
) -> Option<PreflightError> {
    let ours = |component: Component| {
        let fact = facts.container(component);
        fact.filter(|fact| fact.labels.get(label::CLUSTER_ID) == Some(&want.cluster_id.0))
    };
    let (component, what) = [
        (Component::Etcd, "a member of etcd"),
        (Component::ApiServer, "a control plane"),
    ]
    .into_iter()
    .find(|(component, _)| ours(*component).is_some())?;
    let (was, is) = NAMED.into_iter().find_map(|(reader, stem)| {
        let was = address(&applied(ours(reader)?)?, stem)?;
        let is = address(host.containers.get(&reader)?, stem)?;
        Some((was, is))
    })?;
    (was != is).then(|| PreflightError {
        node: Some(name.clone()),
        message: format!(
            "node `{name}` is {what}, and the others know it as {was}: its internal address cannot be \
             changed to {is} in place (it has `{}`)",
            component.container()
        ),
        hints: vec![
            format!(
                "set its `internal_address` to {was} again; `address`, which SSH connects to, may differ"
            ),
            format!(
                "to change it: remove `{name}` from the config, run `up`, add it again with the new address, and \
                run `up`; at least one other control plane, and a majority of etcd's members, must serve meanwhile"
            ),
        ],
        class: ErrorClass::User,
    })
}

/// The address in the name of a certificate that the component reads, as a person writes it.
fn address(spec: &ContainerSpec, stem: &str) -> Option<String> {
    let mut files = spec.files.keys();
    let dashed = files.find_map(|file| {
        let file = file.strip_prefix(path::SSL)?.strip_prefix('/')?;
        file.strip_prefix(stem)?.strip_suffix("-key.pem")
    })?;
    let dotted = dashed.replace('-', ".");
    let is_v4 = dotted.parse::<Ipv4Addr>().is_ok();
    Some(if is_v4 { dotted } else { dashed.to_owned() })
}
