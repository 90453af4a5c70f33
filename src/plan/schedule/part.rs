//! What a file of `schedule/` plans for one place of the order. Pure.

use crate::plan::{Note, Stage};

/// A row of a table of contents: stages, and the notes that go with them. Where a file holds something back, it gives
/// a note in place of the steps.
#[derive(Default)]
pub(super) struct Part {
    /// One after the other.
    pub(super) stages: Vec<Stage>,
    /// What is left as it is for now and why, and what else there is to know.
    pub(super) notes: Vec<Note>,
}

impl Part {
    /// The same with these notes as well.
    pub(super) fn with_notes(mut self, notes: impl IntoIterator<Item = Note>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// True where something is to be done.
    pub(super) fn has_steps(&self) -> bool {
        !self.stages.iter().all(Stage::is_empty)
    }
}

impl From<Stage> for Part {
    fn from(stage: Stage) -> Self {
        Self {
            stages: vec![stage],
            notes: Vec::new(),
        }
    }
}

impl FromIterator<Note> for Part {
    fn from_iter<T: IntoIterator<Item = Note>>(notes: T) -> Self {
        Self::default().with_notes(notes)
    }
}
