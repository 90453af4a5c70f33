//! What running components have of a file: what their containers were made with, whatever is on the node by now.

use std::collections::{BTreeMap, HashMap, HashSet};

use rke_operator::{
    facts::{ContainerState, HostFacts},
    model::{Component, Digest, NodeName, label},
    state::DigestKey,
};

use super::World;

/// The contents of all files that were ever on a node, and what the containers there were made with. Each is read once:
/// worlds are looked at after every step.
pub(crate) struct Contents {
    digest_key: DigestKey,
    seen: HashSet<Vec<u8>>,
    known: BTreeMap<Digest, String>,
    made_with: HashMap<String, BTreeMap<String, Digest>>,
}

impl Contents {
    /// None is known yet.
    pub(crate) fn new(digest_key: DigestKey) -> Self {
        Self {
            digest_key,
            seen: HashSet::new(),
            known: BTreeMap::new(),
            made_with: HashMap::new(),
        }
    }

    /// What is on the nodes now.
    pub(crate) fn learn(&mut self, world: &World) {
        for (_, facts) in hosts(world) {
            for fact in facts.files.iter().flatten().map(|(_, fact)| fact) {
                let content = fact.content.expose();
                if self.seen.contains(content) {
                    continue;
                }
                self.seen.insert(content.clone());
                if let Ok(text) = String::from_utf8(content.clone()) {
                    self.known.insert(self.digest_key.digest(content), text);
                }
            }
            for fact in facts.containers.values() {
                let Some(definition) = fact.labels.get(label::SPEC) else {
                    continue;
                };
                if !self.made_with.contains_key(definition) {
                    let files = fact.applied().expect("a definition").files;
                    self.made_with.insert(definition.clone(), files);
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
            let files = self.made_with[&fact.labels[label::SPEC]].iter();
            let files = files.filter(|(file, _)| takes(file));
            let files = files.map(|(_, digest)| (name.clone(), self.known[digest].clone()));
            files.collect::<Vec<_>>()
        });
        files.collect()
    }
}

fn hosts(world: &World) -> impl Iterator<Item = (&NodeName, &HostFacts)> {
    let hosts = world.truth.hosts.keys();
    hosts.filter_map(|name| Some((name, world.truth.up(name)?)))
}
