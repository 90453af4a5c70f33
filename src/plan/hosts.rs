//! Walks over the wanted hosts that answered. Pure.

use super::{Stage, Step};
use crate::{
    actual::{Actual, HostFacts},
    config::NodeName,
    desired::{Desired, DesiredHost, label},
};

impl Stage {
    /// The steps of one concern.
    pub(super) fn of(
        name: &'static str,
        width: usize,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        Self {
            name: name.into(),
            width: width.max(1),
            steps: steps.into_iter().collect(),
        }
    }
}

/// Every wanted host that answered.
pub(super) fn each<'a>(
    want: &'a Desired,
    have: &'a Actual,
) -> impl Iterator<Item = (&'a NodeName, &'a DesiredHost, &'a HostFacts)> {
    want.hosts
        .iter()
        .filter_map(|(name, host)| have.up(name).map(|facts| (name, host, facts)))
}

/// A stage over every host at once.
pub(super) fn stage(
    stage: &'static str,
    want: &Desired,
    have: &Actual,
    steps: impl Fn(&NodeName, &DesiredHost, &HostFacts) -> Vec<Step>,
) -> Stage {
    let steps = each(want, have).flat_map(|(name, host, facts)| steps(name, host, facts));
    Stage::of(stage, want.hosts.len(), steps)
}

/// True when a container of the host, the claim included, bears this cluster's id.
pub(super) fn bears(facts: &HostFacts, id: &str) -> bool {
    facts.containers.values().any(|fact| {
        fact.labels
            .get(label::CLUSTER_ID)
            .is_some_and(|found| found == id)
    })
}
