//! Rows in columns under a heading, as branches of a tree; and sentences that are wrapped.

use super::{Page, Paint, screen::clip};
use crate::model::wrapped;

/// How a cell is painted. The words alone carry the meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// As it is.
    Calm,
    /// Something to look at.
    Warn,
    /// Something that is wrong.
    Bad,
}

/// A cell.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }

    pub(super) fn calm(text: impl Into<String>) -> Self {
        Self::toned(text, Tone::Calm)
    }

    /// What is not known.
    pub(super) fn or_dash(text: Option<String>) -> Self {
        Self::calm(text.unwrap_or_else(|| "-".to_owned()))
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }

    fn painted(&self, width: usize, paint: Paint) -> String {
        let padding = " ".repeat(width.saturating_sub(self.width()));
        let text = match self.tone {
            Tone::Calm => self.text.clone(),
            Tone::Warn => paint.warn(&self.text),
            Tone::Bad => paint.bad(&self.text),
        };
        text + &padding
    }
}

/// A branch of the tree: a heading, and a row for each of its leaves. The first cell is the name.
pub(super) struct Branch {
    pub(super) heading: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// Between columns.
const GAP: usize = 2;
/// Before a leaf's name: `├─ `.
const TWIG: usize = 3;
/// A name is not clipped below this.
const SHORTEST: usize = 8;
/// What the last column of a plain table has before names are clipped.
const LAST: usize = 24;

/// The branches, with their names in one column. Where the page is too narrow, names are clipped.
pub(super) fn tree(branches: &[Branch], page: Page) -> String {
    let columns: Vec<Vec<usize>> = branches.iter().map(widths).collect();
    let name = columns.iter().filter_map(|widths| widths.first());
    let name = name.copied().max().unwrap_or(0);
    let name = columns
        .iter()
        .map(|widths| {
            let others: usize = widths.iter().skip(1).map(|width| width + GAP).sum();
            let room = page.columns.map(|page| page.saturating_sub(others));
            room.map_or(name, |room| name.min(room.max(TWIG + SHORTEST)))
        })
        .min()
        .unwrap_or(name);
    let mut lines = Vec::new();
    for (branch, mut widths) in branches.iter().zip(columns) {
        if let Some(first) = widths.first_mut() {
            *first = name;
        }
        lines.push(String::new());
        let heading: Vec<Cell> = branch
            .heading
            .iter()
            .map(|text| Cell::calm(*text))
            .collect();
        lines.push(line("", &heading, &widths, page.paint));
        for (at, row) in branch.rows.iter().enumerate() {
            let last = at + 1 == branch.rows.len();
            let twig = if last { "└─ " } else { "├─ " };
            lines.push(line(twig, row, &widths, page.paint));
        }
    }
    lines.join("\n")
}

/// A plain table, one line a row. Where the page is too narrow, names are clipped first, down to a limit, and then the
/// last column.
pub(super) fn plain(heading: &[&'static str], rows: &[Vec<Cell>], page: Page) -> String {
    let heading: Vec<Cell> = heading.iter().map(|text| Cell::calm(*text)).collect();
    let all = || std::iter::once(&heading).chain(rows);
    let mut widths: Vec<usize> = vec![0; heading.len()];
    for row in all() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let last = widths.pop().unwrap_or(0);
    let gaps = GAP * widths.len();
    let others: usize = widths.iter().skip(1).sum::<usize>() + gaps;
    if let (Some(columns), Some(name)) = (page.columns, widths.first_mut()) {
        let room = columns.saturating_sub(others + last.min(LAST));
        *name = (*name).min(room.max(SHORTEST));
    }
    let used = widths.iter().sum::<usize>() + gaps;
    let room = page
        .columns
        .map_or(last, |columns| columns.saturating_sub(used).max(SHORTEST));
    widths.push(last.min(room));
    let shown = all().map(|row| {
        let clipped = row.iter().zip(&widths);
        let clipped: Vec<Cell> = clipped
            .map(|(cell, width)| Cell::toned(clip(&cell.text, *width), cell.tone))
            .collect();
        line("", &clipped, &widths, page.paint)
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// As wide as the widest cell of each column. Names stand behind their twigs.
fn widths(branch: &Branch) -> Vec<usize> {
    let mut widths: Vec<usize> = branch
        .heading
        .iter()
        .map(|text| text.chars().count())
        .collect();
    for row in &branch.rows {
        for (at, (width, cell)) in widths.iter_mut().zip(row).enumerate() {
            let twig = if at == 0 { TWIG } else { 0 };
            *width = (*width).max(cell.width() + twig);
        }
    }
    widths
}

fn line(twig: &str, cells: &[Cell], widths: &[usize], paint: Paint) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if at == 0 {
            let room = width.saturating_sub(twig.chars().count());
            let name = Cell::toned(clip(&cell.text, room), cell.tone);
            line.push_str(twig);
            line.push_str(&name.painted(room, paint));
        } else {
            line.push_str(&" ".repeat(GAP));
            line.push_str(&cell.painted(*width, paint));
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// A sentence behind a head, wrapped at words on a terminal; see [`wrapped`].
pub(super) fn paragraph(head: &str, text: &str, page: Page) -> String {
    wrapped(head, text, page.columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Page = Page {
        paint: Paint::OFF,
        columns: Some(24),
    };

    #[test]
    fn names_are_clipped_where_the_page_is_narrow_and_colour_moves_nothing() {
        let branch = |paint| {
            let branch = Branch {
                heading: vec!["workers", "NODE", "AGE"],
                rows: vec![
                    vec![
                        Cell::calm("worker-1.example.com"),
                        Cell::toned("Ready", Tone::Calm),
                        Cell::calm("3d"),
                    ],
                    vec![
                        Cell::calm("n2"),
                        Cell::toned("NotReady", Tone::Bad),
                        Cell::calm("4h"),
                    ],
                ],
            };
            tree(&[branch], Page { paint, ..NARROW })
        };
        assert_eq!(
            branch(Paint::OFF),
            "\nworkers      NODE      AGE\n├─ worker-…  Ready     3d\n└─ n2        NotReady  4h"
        );
        assert!(branch(Paint::ON).contains("\x1b[1;31mNotReady\x1b[0m  4h"));
    }
}
