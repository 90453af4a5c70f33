//! Problems for the terminal of the person who wrote the file: the line, the key, the cure.
//!
//! A snippet quotes the document, without what is secret in it: for terminals, never into status or
//! events. Pure: gives a string.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::{
    problem::{Problem, Problems},
    shown::Shown,
};
use crate::{error::on_command_line, model::printable};

impl Problems {
    /// All of them as `rustc` would print them. `name` is the file's, `source` its text.
    pub fn render(&self, name: &str, source: &str, colour: bool) -> String {
        let shown = Shown::of(source);
        let reports: Vec<String> = self
            .iter()
            .map(|problem| problem.report(Level::ERROR, name, source, &shown, colour))
            .collect();
        reports.join("\n\n")
    }
}

impl Problem {
    /// This one as a warning; see [`Problems::render`].
    pub fn render_warning(&self, name: &str, source: &str, colour: bool) -> String {
        self.report(Level::WARNING, name, source, &Shown::of(source), colour)
    }

    fn report(
        &self,
        level: Level<'_>,
        name: &str,
        source: &str,
        shown: &Shown,
        colour: bool,
    ) -> String {
        let title = if self.path.is_empty() {
            printable(&self.message).into_owned()
        } else {
            format!("`{}`: {}", printable(&self.path), printable(&self.message))
        };
        let renderer = if colour {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let name = printable(name).into_owned();
        let mut group = Group::with_title(level.primary_title(title));
        let hidden = self
            .place
            .as_ref()
            .is_some_and(|place| shown.hides(&pointed_at(source, &place.span)));
        let detail = self.detail.as_deref().filter(|_| !hidden);
        let label = detail.map(printable).unwrap_or_default().into_owned();
        // Without a snippet there is nothing to draw a line to.
        let Some(place) = &self.place else {
            let mut text = renderer.render(&[group]);
            let hint = self.hint.as_deref().map(on_command_line);
            let hint = hint.map(|hint| ("help", printable(&hint).into_owned()));
            let note = (!label.is_empty()).then_some(("note", label));
            for (what, said) in note.into_iter().chain(hint) {
                text.extend(["\n  = ", what, ": ", said.as_str()]);
            }
            return text;
        };
        let span = pointed_at(source, &place.span);
        // The line above the carets shows the value already: the label does not repeat it.
        let written = source.get(span.clone()).unwrap_or_default();
        let label = Some(label)
            .filter(|_| detail != Some(written.trim_matches(['\'', '"'])))
            .unwrap_or_default();
        let span = shown.span(&span);
        if shown.may_be_quoted() {
            group = group.element(
                Snippet::source(shown.text.as_str())
                    .path(name)
                    .annotation(AnnotationKind::Primary.span(span).label(label)),
            );
        } else {
            let origin = Origin::path(name)
                .line(place.line)
                .char_column(place.column);
            group = group.element(origin);
            if !label.is_empty() {
                group = group.element(Level::NOTE.message(label));
            }
        }
        if let Some(hint) = &self.hint {
            let hint = on_command_line(hint);
            group = group.element(Level::HELP.message(printable(&hint).into_owned()));
        }
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
