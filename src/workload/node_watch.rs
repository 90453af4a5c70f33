//! The Node objects as they change: whether each is Ready, and nothing else of them.

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    runtime::watcher::{self, Event, watcher},
};

use super::{connect::each_at_most, read::fact};
use crate::{
    error::with_causes,
    facts::NodeHealth,
    model::{NodeName, printable},
};

/// How many Nodes come in one answer of the list.
const PAGE: u32 = 500;

/// The most of one answer, and so of one line of a watch: a Node with 50 images has 30 KiB, and a watch of 1000 Nodes ends
/// after five minutes with half of this.
const ANSWER: usize = 32 << 20;

/// How much is kept of why a Node is not Ready, in characters.
const REASON: usize = 256;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// A list begins: what was known before does not count.
    Begins,
    /// It is, or has become.
    Is(NodeName, NodeHealth),
    /// It was deleted.
    Gone(NodeName),
    /// The list is complete.
    Complete,
}

/// Follows the Node objects through that client, until the first error.
pub fn follow_nodes(client: &Client) -> impl Stream<Item = Result<NodeChange, String>> + use<> {
    let nodes: Api<Node> = Api::all(each_at_most(client, ANSWER));
    let config = watcher::Config::default().page_size(PAGE);
    watcher(nodes, config).map(|event| {
        Ok(match event.map_err(|error| with_causes(&error))? {
            Event::Init => NodeChange::Begins,
            Event::InitApply(node) | Event::Apply(node) => is(&node),
            Event::Delete(node) => NodeChange::Gone(NodeName(node.name_any())),
            Event::InitDone => NodeChange::Complete,
        })
    })
}

fn is(node: &Node) -> NodeChange {
    let told = fact(node);
    let message = printable(&told.message).chars().take(REASON).collect();
    let health = NodeHealth {
        ready: told.ready,
        message,
    };
    NodeChange::Is(NodeName(node.name_any()), health)
}
