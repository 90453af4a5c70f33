//! What proves that a node is gone. Pure. A node that does not answer us may be cut off from us alone:
//! then its kubelet still reports to the API, and the other members of etcd hear its member.

use super::Guard;
use crate::{
    etcd::MemberId,
    facts::{Actual, ApiView, NodeFact},
    model::NodeName,
};

/// Its Node object, if the API tells of one.
pub(super) fn node<'a>(name: &NodeName, have: &'a Actual) -> Option<&'a NodeFact> {
    match have.api() {
        ApiView::Up(api) => api.nodes.get(name),
        ApiView::Unknown | ApiView::Unreachable(_) => None,
    }
}

/// Its member of etcd, if it still has one. One that was added and never started is recognised by its address.
pub(super) fn member(name: &NodeName, have: &Actual) -> Option<MemberId> {
    let named = have.etcd.of_node(name).next();
    let named = named.or_else(|| have.unnamed_member(name));
    have.etcd.on(name).or_else(|| named.map(|(id, _)| id))
}

/// That its kubelet does not report.
pub(super) fn is_down(name: &NodeName, have: &Actual) -> Guard {
    Guard::NodeIsDown {
        node: name.clone(),
        uid: node(name, have).map(|node| node.uid.clone()),
    }
}

/// What must hold just before a member is removed that does not answer, and before anything is.
pub(super) fn guards(name: &NodeName, have: &Actual) -> Vec<Guard> {
    let mut guards = vec![is_down(name, have)];
    if let Some(member) = member(name, have) {
        guards.push(Guard::MemberIsSilent(member));
        guards.push(Guard::ServesAfterRemoval(member));
    }
    guards
}
