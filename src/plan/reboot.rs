//! What a person asks for when nodes are to be rebooted. Pure.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::{
    facts::{Actual, ApiView, NodeFact},
    model::NodeName,
};

/// A request that was cut off this long ago is begun again.
const GOES_ON_FOR: SignedDuration = SignedDuration::from_hours(12);

/// Nodes to reboot, one after the other in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reboot {
    /// Tells this request from another one. A node that it has rebooted is not rebooted by it again, in whichever run.
    pub id: String,
    /// The nodes.
    pub nodes: Vec<NodeName>,
    /// Whether their pods are evicted before. What `upgrade_strategy` says where it is `None`.
    pub drain: Option<bool>,
}

impl Reboot {
    /// A request of this moment. Its id has no space.
    pub fn new(nodes: Vec<NodeName>, drain: Option<bool>, now: Timestamp) -> Self {
        Self::of(now.to_string(), nodes, drain)
    }

    /// The request with that id, which has no space. A node that is named twice is rebooted once.
    pub fn of(id: String, mut nodes: Vec<NodeName>, drain: Option<bool>) -> Self {
        let mut seen = BTreeSet::new();
        nodes.retain(|name| seen.insert(name.clone()));
        Self { id, nodes, drain }
    }

    /// The same as the request that was cut off before it had rebooted one of these nodes, if there is one.
    #[must_use]
    pub fn going_on(mut self, have: &Actual, now: Timestamp) -> Self {
        let ApiView::Up(api) = have.api() else {
            return self;
        };
        let nodes = self.nodes.iter().filter_map(|name| api.nodes.get(name));
        let mut requests = nodes
            .filter_map(NodeFact::reboot)
            .filter_map(|mark| Some((mark.request.parse::<Timestamp>().ok()?, mark.request)));
        let lately = |(at, _): &(Timestamp, String)| now.duration_since(*at) < GOES_ON_FOR;
        if let Some((_, id)) = requests.find(lately) {
            self.id = id;
        }
        self
    }
}
