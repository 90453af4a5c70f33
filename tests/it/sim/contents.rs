//! What running components have of a file: what their containers were made with, whatever is on the node by now.

use std::collections::BTreeMap;

use rke_operator::{
    facts::{ContainerState, HostFacts},
    model::{Component, Digest, NodeName},
    state::DigestKey,
};

use super::World;

/// The contents of all files that were ever on a node.
pub(crate) struct Contents {
    digest_key: DigestKey,
    known: BTreeMap<Digest, String>,
}

impl Contents {
    /// None is known yet.
    pub(crate) fn new(digest_key: DigestKey) -> Self {
        Self {
            digest_key,
            known: BTreeMap::new(),
        }
    }

    /// What is on the nodes now.
    pub(crate) fn learn(&mut self, world: &World) {
        for (_, facts) in hosts(world) {
            for fact in facts.files.iter().flatten().map(|(_, fact)| fact) {
                let content = fact.content.expose();
                if let Ok(text) = String::from_utf8(content.clone()) {
                    self.known.insert(self.digest_key.digest(content), text);
                }
            }
        }
    }

    /// What each running component has of the files whose path is taken.
    pub(crate) fn of(
        &self,
        world: &World,
        component: Component,
        takes: impl Fn(&str) -> bool,
    ) -> Vec<(NodeName, String)> {
        let containers = hosts(world).filter_map(|(name, facts)| {
            let fact = facts.container(component)?;
            (fact.state == ContainerState::Running).then_some((name, fact))
        });
        let files = containers.flat_map(|(name, fact)| {
            let spec = fact.applied().expect("a definition");
            let files = spec.files.into_iter().filter(|(file, _)| takes(file));
            let files = files.map(|(_, digest)| (name.clone(), self.known[&digest].clone()));
            files.collect::<Vec<_>>()
        });
        files.collect()
    }
}

fn hosts(world: &World) -> impl Iterator<Item = (&NodeName, &HostFacts)> {
    let hosts = world.truth.hosts.keys();
    hosts.filter_map(|name| Some((name, world.truth.up(name)?)))
}
