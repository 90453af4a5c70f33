//! Problems for the terminal of the person who wrote the file: the line, the key, the cure.
//!
//! A snippet quotes the document, which may hold passwords: never into status, events or logs.
//! Pure: gives a string.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::problem::{Problem, Problems};

impl Problems {
    /// All of them as `rustc` would print them. `name` is the file's, `source` its text.
    pub fn render(&self, name: &str, source: &str, colour: bool) -> String {
        let reports: Vec<String> = self
            .iter()
            .map(|problem| problem.render(name, source, colour))
            .collect();
        reports.join("\n\n")
    }
}

impl Problem {
    /// This one as an error; see [`Problems::render`].
    pub fn render(&self, name: &str, source: &str, colour: bool) -> String {
        self.report(Level::ERROR, name, source, colour)
    }

    /// The same as a warning.
    pub fn render_warning(&self, name: &str, source: &str, colour: bool) -> String {
        self.report(Level::WARNING, name, source, colour)
    }

    fn report(&self, level: Level<'_>, name: &str, source: &str, colour: bool) -> String {
        let title = if self.path.is_empty() {
            self.message.clone()
        } else {
            format!("`{}`: {}", self.path, self.message)
        };
        let mut group = Group::with_title(level.primary_title(title));
        let label = self.detail.clone().unwrap_or_default();
        match &self.place {
            Some(place) => {
                let span = pointed_at(source, &place.span);
                // What stands above the carets need not stand beside them.
                let written = source.get(span.clone()).unwrap_or_default();
                let label = Some(label)
                    .filter(|label| written.trim_matches(['\'', '"']) != label)
                    .unwrap_or_default();
                group = group.element(
                    Snippet::source(source)
                        .path(name)
                        .annotation(AnnotationKind::Primary.span(span).label(label)),
                );
            }
            None if label.is_empty() => {}
            None => group = group.element(Level::NOTE.message(label)),
        }
        if let Some(hint) = &self.hint {
            group = group.element(Level::HELP.message(hint.clone()));
        }
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let report: &[Group<'_>] = &[group];
        renderer.render(report)
    }
}

/// The span, widened to a word when it is empty and cut at the end of its line.
fn pointed_at(source: &str, span: &Range<usize>) -> Range<usize> {
    let start = span.start.min(source.len());
    let rest = source.get(start..).unwrap_or_default();
    let line = rest.find('\n').unwrap_or(rest.len());
    let length = if span.is_empty() {
        rest.find(|c: char| c.is_whitespace() || c == ':')
            .unwrap_or(rest.len())
    } else {
        span.len()
    };
    start..(start + length.min(line)).min(source.len())
}
