//! The nodes that are being read at this moment: for a person who waits.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::model::NodeName;

/// The nodes, shared by who reads them and who shows them.
#[derive(Clone, Debug, Default)]
pub struct Awaited(Arc<Mutex<BTreeMap<NodeName, usize>>>);

impl Awaited {
    /// A node is being read until the value is dropped.
    pub fn begin(&self, node: &NodeName) -> AwaitedNode {
        self.change(|nodes| *nodes.entry(node.clone()).or_default() += 1);
        AwaitedNode {
            of: self.clone(),
            node: node.clone(),
        }
    }

    /// Those that have not answered everything yet.
    pub fn nodes(&self) -> Vec<NodeName> {
        let mut names = Vec::new();
        self.change(|nodes| names.extend(nodes.keys().cloned()));
        names
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<NodeName, usize>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A node that is being read.
#[derive(Debug)]
pub struct AwaitedNode {
    of: Awaited,
    node: NodeName,
}

impl Drop for AwaitedNode {
    fn drop(&mut self) {
        self.of.change(|nodes| {
            if let Some(readers) = nodes.get_mut(&self.node) {
                *readers -= 1;
                if *readers == 0 {
                    nodes.remove(&self.node);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_awaited_until_its_last_reader_is_done() {
        let awaited = Awaited::default();
        let (first, second) = (awaited.begin(&"n1".into()), awaited.begin(&"n1".into()));
        let other = awaited.begin(&"n2".into());
        assert_eq!(awaited.nodes(), ["n1".into(), "n2".into()]);
        drop((first, other));
        assert_eq!(awaited.nodes(), ["n1".into()]);
        drop(second);
        assert_eq!(awaited.nodes(), []);
    }
}
