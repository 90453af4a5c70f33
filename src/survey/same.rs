//! What many nodes have alike is kept once.

use std::{collections::BTreeSet, sync::Arc};

use crate::facts::HostFacts;
use crate::model::Secret;

/// Contents of files. Of a thousand nodes each has ten files or so, and two of them are its own.
#[derive(Default)]
pub(super) struct SameContents(BTreeSet<Arc<Secret<Vec<u8>>>>);

impl SameContents {
    /// Lets go of contents that an earlier node had, and takes that node's.
    pub(super) fn keep_once(&mut self, facts: &mut HostFacts) {
        for file in facts.files.iter_mut().flat_map(|files| files.values_mut()) {
            match self.0.get(&file.content) {
                Some(known) => file.content = Arc::clone(known),
                None => {
                    self.0.insert(Arc::clone(&file.content));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{desired::fixture, facts::FileFact};

    fn with(contents: &[&str]) -> HostFacts {
        let files = contents.iter().enumerate().map(|(number, content)| {
            let file = FileFact {
                content: Arc::new(Secret::new(content.as_bytes().to_vec())),
                mode: 0o600,
                uid: 0,
                gid: 0,
                is_dir: false,
            };
            (number.to_string(), file)
        });
        let mut facts = fixture::facts();
        facts.files = Some(files.collect::<BTreeMap<_, _>>());
        facts
    }

    #[test]
    fn equal_contents_of_two_nodes_are_one_and_others_are_as_they_were() {
        let (mut one, mut other) = (with(&["ca", "own 1"]), with(&["ca", "own 2"]));
        let before = (one.clone(), other.clone());
        let mut same = SameContents::default();
        same.keep_once(&mut one);
        same.keep_once(&mut other);
        assert_eq!((&one, &other), (&before.0, &before.1));
        let content = |facts: &HostFacts, name: &str| {
            let files = facts.files.as_ref().unwrap();
            Arc::as_ptr(&files[name].content)
        };
        assert_eq!(content(&one, "0"), content(&other, "0"));
        assert_ne!(content(&one, "1"), content(&other, "1"));
    }
}
