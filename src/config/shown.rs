//! The text of a document as a terminal may show it: secrets masked, control characters escaped.
//! Pure.

use std::ops::Range;

use super::{secrets, tree::Node};
use crate::model::is_printable;

const MASK: &str = "***";

/// A document's text with some parts replaced.
pub(super) struct Shown {
    pub(super) text: String,
    /// What was replaced, in order: where in the document, and how long it is now.
    edits: Vec<(Range<usize>, usize)>,
    /// Whether the document could be parsed. If not, none of it is shown.
    parsed: bool,
}

impl Shown {
    pub(super) fn of(source: &str) -> Self {
        // In a text that is not YAML, the extent of a value and its parent are unknown, so no secret can be masked.
        let Ok(tree) = Node::from_yaml(source) else {
            return Self {
                text: String::new(),
                edits: Vec::new(),
                parsed: false,
            };
        };
        let mut edits: Vec<(Range<usize>, String)> = secrets::spans(&tree)
            .into_iter()
            .map(|span| (span, MASK.to_owned()))
            .collect();
        edits.extend(
            source
                .char_indices()
                .filter(|(_, c)| !is_printable(*c) && !matches!(c, '\n' | '\t' | '\r'))
                .map(|(at, c)| (at..at + c.len_utf8(), c.escape_default().to_string())),
        );
        edits.sort_by_key(|(span, _)| (span.start, span.end));
        Self::with(source, edits)
    }

    fn with(source: &str, edits: Vec<(Range<usize>, String)>) -> Self {
        let mut text = String::new();
        let mut done = Vec::new();
        let mut at = 0;
        for (span, instead) in edits {
            // A part of what is masked already, or of no length.
            if span.start < at || span.is_empty() {
                continue;
            }
            text.push_str(source.get(at..span.start).unwrap_or_default());
            text.push_str(&instead);
            // A mask of several lines keeps their number.
            let replaced = source.get(span.clone()).unwrap_or_default();
            let lines: String = replaced.chars().filter(|c| *c == '\n').collect();
            text.push_str(&lines);
            at = span.end;
            done.push((span, instead.len() + lines.len()));
        }
        text.push_str(source.get(at..).unwrap_or_default());
        Self {
            text,
            edits: done,
            parsed: true,
        }
    }

    /// The same place in the shown text.
    pub(super) fn span(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.offset(span.start, false);
        start..self.offset(span.end, true).max(start)
    }

    fn offset(&self, at: usize, is_end: bool) -> usize {
        let mut shift = 0_isize;
        for (span, length) in &self.edits {
            let start = span.start.saturating_add_signed(shift);
            if at <= span.start {
                break;
            }
            if at < span.end {
                return if is_end { start + length } else { start };
            }
            shift += length.cast_signed() - span.len().cast_signed();
        }
        at.saturating_add_signed(shift).min(self.text.len())
    }

    /// Whether a place lies in what is masked.
    pub(super) fn hides(&self, span: &Range<usize>) -> bool {
        self.edits
            .iter()
            .any(|(hidden, _)| span.start < hidden.end && hidden.start < span.end)
    }

    /// False for a document that is not YAML: it is not quoted.
    pub(super) const fn may_be_quoted(&self) -> bool {
        self.parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_move_with_what_is_masked() {
        let source = "nodes: [{ssh_key: 'hunter2', user: me, ssh_key_path: a}]\naddons: |\n  one\n  two\nssh_key_path: x\n";
        let shown = Shown::of(source);
        assert_eq!(
            shown.text,
            "nodes: [{ssh_key: ***, user: me, ssh_key_path: a}]\naddons: |\n  ***\n\nssh_key_path: x\n"
        );
        for word in ["user", "me", "ssh_key_path: a", "ssh_key_path: x"] {
            let at = source.find(word).expect("the word");
            let span = shown.span(&(at..at + word.len()));
            assert_eq!(&shown.text[span], word);
        }
        let at = source.find("hunter2").expect("the secret");
        assert_eq!(&shown.text[shown.span(&(at..at + 7))], "***");
        assert!(shown.hides(&(at..at + 7)));
    }
}
