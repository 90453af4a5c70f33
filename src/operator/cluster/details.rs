//! The nodes of a cluster one by one, for its status. Pure.

use crate::{
    api::{EtcdCounts, NodeDetail, NodeState, conditions::shorten},
    model::printable_lines,
    status::{EtcdStatus, NodeStatus, QuorumState},
};

/// How many nodes a status has one by one.
const DETAILS: usize = 20;

/// How long a reason is.
const MESSAGE: usize = 256;

/// The nodes, the worst first and only so many, so that the object of a large cluster stays small. `differs`: a node is
/// not as the spec says.
pub(super) fn details<'s>(
    nodes: impl Iterator<Item = &'s NodeStatus>,
    differs: &dyn Fn(&NodeStatus) -> bool,
) -> Vec<NodeDetail> {
    let mut details: Vec<NodeDetail> = nodes.map(|node| detail(node, differs(node))).collect();
    details.sort_by(|one, other| (one.state, &one.name).cmp(&(other.state, &other.name)));
    details.truncate(DETAILS);
    details
}

fn detail(node: &NodeStatus, differs: bool) -> NodeDetail {
    let why = node
        .unreachable_reason
        .as_ref()
        .or(node.not_ready_reason.as_ref());
    NodeDetail {
        name: node.name.0.clone(),
        address: node.address.clone(),
        roles: node
            .roles
            .iter()
            .map(|role| role.name().to_owned())
            .collect(),
        state: state(node, differs),
        version: node.kubelet_version.clone(),
        message: why.map(|why| shorten(&printable_lines(why), MESSAGE)),
    }
}

const fn state(node: &NodeStatus, differs: bool) -> NodeState {
    match (node.reachable, node.in_config, node.in_cluster, node.ready) {
        (Some(false), ..) => NodeState::Unreachable,
        (_, true, false, _) => NodeState::Joining,
        (_, false, true, _) => NodeState::Leaving,
        (_, _, _, Some(true)) if differs => NodeState::Updating,
        (_, _, _, Some(true)) => NodeState::Ready,
        (_, _, _, Some(false)) => NodeState::NotReady,
        (_, _, _, None) => NodeState::Unknown,
    }
}

/// The members that vote; none where etcd is outside, or where no member answered.
pub(super) fn etcd(status: &EtcdStatus) -> Option<EtcdCounts> {
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    match status.quorum {
        QuorumState::External | QuorumState::Unknown => None,
        QuorumState::Serving | QuorumState::Lost | QuorumState::Disagree => Some(EtcdCounts {
            members: count(status.voters),
            healthy: count(status.healthy_voters),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{NodeName, Role};

    fn node(name: &str) -> NodeStatus {
        NodeStatus {
            name: NodeName(name.to_owned()),
            roles: BTreeSet::from([Role::Worker]),
            in_config: true,
            in_cluster: true,
            given_up: false,
            address: Some("192.0.2.1".to_owned()),
            reachable: Some(true),
            unreachable_reason: None,
            ready: Some(true),
            not_ready_reason: None,
            kubelet_version: None,
            created_at: None,
            age_seconds: None,
            first_certificate_to_end: None,
        }
    }

    #[test]
    fn the_worst_come_first_and_no_more_than_twenty() {
        let mut nodes: Vec<NodeStatus> = (0..30).map(|at| node(&format!("n{at:02}"))).collect();
        nodes[29].reachable = Some(false);
        nodes[29].unreachable_reason = Some("timed\nout".to_owned());
        nodes[28].ready = Some(false);
        nodes[27].in_cluster = false;
        nodes[26].in_config = false;
        nodes[25].ready = None;
        let told = details(nodes.iter(), &|node| node.name.0 == "n24");
        let states: Vec<_> = told.iter().map(|node| (&*node.name, node.state)).collect();
        assert_eq!(
            states[..7],
            [
                ("n29", NodeState::Unreachable),
                ("n28", NodeState::NotReady),
                ("n25", NodeState::Unknown),
                ("n27", NodeState::Joining),
                ("n26", NodeState::Leaving),
                ("n24", NodeState::Updating),
                ("n00", NodeState::Ready),
            ]
        );
        assert_eq!(told.len(), 20);
        assert_eq!(told[0].roles, ["worker"]);
    }
}
