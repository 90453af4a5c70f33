//! Rows in columns under a heading, as branches of a tree; and sentences that are wrapped.

use std::collections::BTreeSet;

use super::{Page, Paint, screen::clip};
use crate::{error::on_command_line, model::wrapped};

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
        Self::calm(text.unwrap_or_else(|| DASH.to_owned()))
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

/// What is not known.
const DASH: &str = "-";
/// Between columns.
const GAP: usize = 2;
/// Before a leaf's name: `├─ `.
const TWIG: usize = 3;
/// A name is not clipped below this.
const SHORTEST: usize = 8;
/// Columns are omitted before a name that is no longer than this is clipped: a row is found by its name.
const WHOLE: usize = 16;
/// What the last column of a plain table has before longer names are clipped.
const LAST: usize = 24;
/// What it has before columns are omitted.
const LEAST: usize = 14;

/// The branches, with their names in one column. Where the page is too narrow, names are clipped, as long as they
/// stay different, and then the spare columns are omitted, the first of them first.
pub(super) fn tree(branches: &[Branch], spare: &[&str], page: Page) -> String {
    let rows = branches.iter().flat_map(|branch| &branch.rows);
    let shortest = shortest(rows.clone());
    let tables: Vec<Vec<Vec<Cell>>> = branches
        .iter()
        .map(|branch| {
            let table = headed(&branch.heading, &branch.rows);
            fitted(table, spare, page, |widths| {
                TWIG + shortest + behind_name(widths)
            })
        })
        .collect();
    let columns: Vec<Vec<usize>> = tables.iter().map(|table| twigged(table)).collect();
    let name = columns.iter().filter_map(|widths| widths.first());
    let name = name.copied().max().unwrap_or(0);
    let room = columns
        .iter()
        .map(|widths| {
            let room = page.columns;
            let room = room.map(|page| page.saturating_sub(behind_name(widths)));
            room.map_or(name, |room| {
                name.min(room.max(TWIG + shortest.min(SHORTEST)))
            })
        })
        .min()
        .unwrap_or(name);
    let (cut, width) = Cut::of(rows, room.saturating_sub(TWIG));
    let name = name.min(width + TWIG);
    let mut lines = Vec::new();
    for (table, mut widths) in tables.iter().zip(columns) {
        if let Some(first) = widths.first_mut() {
            *first = name;
        }
        lines.push(String::new());
        for (at, row) in table.iter().enumerate() {
            let (twig, cut) = match at {
                0 => ("", Cut::End),
                last if last + 1 == table.len() => ("└─ ", cut),
                1.. => ("├─ ", cut),
            };
            lines.push(line(twig, row, &widths, (page.paint, cut)));
        }
    }
    lines.join("\n")
}

/// A plain table, one line a row. If the page is too narrow, columns without a known value are omitted; then
/// names are clipped, as long as they stay different, and the last column; then the spare columns are omitted, the
/// first of them first.
pub(super) fn plain(
    heading: &[&'static str],
    spare: &[&str],
    rows: &[Vec<Cell>],
    page: Page,
) -> String {
    let titled = heading.first().map_or(0, |title| title.chars().count());
    let shortest = shortest(rows.iter()).max(titled);
    let table = fitted(headed(heading, rows), spare, page, |widths| {
        let last = widths.last().copied().unwrap_or(0);
        shortest + behind_name(widths) - last + last.min(LEAST)
    });
    let mut widths = widest(&table);
    let last = widths.pop().unwrap_or(0);
    let gaps = GAP * widths.len();
    let others: usize = widths.iter().skip(1).sum::<usize>() + gaps;
    let mut cut = Cut::End;
    if let (Some(columns), Some(name)) = (page.columns, widths.first_mut()) {
        let room = |last: usize| columns.saturating_sub(others + last);
        let room = match room(last.min(LEAST)) {
            enough if enough >= shortest => room(last.min(LAST)).max(shortest),
            _ => SHORTEST,
        };
        let (how, width) = Cut::of(table.iter().skip(1), room);
        cut = how;
        *name = (*name).min(width);
    }
    let used = widths.iter().sum::<usize>() + gaps;
    let room = page
        .columns
        .map_or(last, |columns| columns.saturating_sub(used).max(SHORTEST));
    widths.push(last.min(room));
    let shown = table.iter().enumerate().map(|(at, row)| {
        let others = row.iter().zip(&widths).skip(1);
        let others = others.map(|(cell, width)| Cell {
            text: clip(&cell.text, *width),
            tone: cell.tone,
        });
        let row: Vec<Cell> = row.iter().take(1).cloned().chain(others).collect();
        let cut = if at == 0 { Cut::End } else { cut };
        line("", &row, &widths, (page.paint, cut))
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// The rows under their heading.
fn headed(heading: &[&'static str], rows: &[Vec<Cell>]) -> Vec<Vec<Cell>> {
    let heading = heading.iter().map(|text| Cell::calm(*text)).collect();
    std::iter::once(heading)
        .chain(rows.iter().cloned())
        .collect()
}

/// The table without the columns that do not fit: those without a known value, then the spare ones, as long as what it
/// needs at least, from the widths of its columns, is more than the page has.
fn fitted(
    table: Vec<Vec<Cell>>,
    spare: &[&str],
    page: Page,
    least: impl Fn(&[usize]) -> usize,
) -> Vec<Vec<Cell>> {
    let Some(columns) = page.columns else {
        return table;
    };
    let widths = widest(&table);
    let whole = widths.first().copied().unwrap_or(0) + behind_name(&widths);
    if whole <= columns {
        return table;
    }
    let mut table = known(&table);
    for name in spare {
        if least(&widest(&table)) <= columns {
            break;
        }
        let heading = table.first();
        let at = heading.and_then(|row| row.iter().position(|cell| cell.text == *name));
        if let Some(at) = at {
            for row in &mut table {
                row.remove(at);
            }
        }
    }
    table
}

/// What names have before columns are omitted.
fn shortest<'a>(rows: impl Iterator<Item = &'a Vec<Cell>> + Clone) -> usize {
    let names = rows.clone().filter_map(|row| row.first());
    match names.map(Cell::width).max() {
        Some(longest) if longest > WHOLE => Cut::of(rows, SHORTEST).1,
        longest => longest.unwrap_or(0),
    }
}

/// What stands behind the names, with the gaps.
fn behind_name(widths: &[usize]) -> usize {
    widths.iter().skip(1).map(|width| width + GAP).sum()
}

/// As wide as the widest cell of each column.
fn widest(table: &[Vec<Cell>]) -> Vec<usize> {
    let columns = table.first().map_or(0, Vec::len);
    let widths = (0..columns).map(|at| {
        let cells = table.iter().filter_map(|row| row.get(at));
        cells.map(Cell::width).max().unwrap_or(0)
    });
    widths.collect()
}

/// The table without the columns that have a dash in every row. The first is the heading.
fn known(table: &[Vec<Cell>]) -> Vec<Vec<Cell>> {
    let columns = table.first().map_or(0, Vec::len);
    let is_known = |at: &usize| {
        let mut cells = table.iter().skip(1).filter_map(|row| row.get(*at));
        cells.any(|cell| cell.text != DASH)
    };
    let columns: Vec<usize> = (0..columns).filter(is_known).collect();
    let rows = table.iter();
    rows.map(|row| {
        columns
            .iter()
            .filter_map(|at| row.get(*at))
            .cloned()
            .collect()
    })
    .collect()
}

/// Where names are clipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// `worker-1…`
    End,
    /// `…168.7.11`: addresses of one network differ at their end.
    Front,
}

impl Cut {
    /// How the first cells of rows are clipped to about that width, and to which one: clipped, different names stay
    /// different.
    fn of<'a>(rows: impl Iterator<Item = &'a Vec<Cell>>, room: usize) -> (Self, usize) {
        let names: BTreeSet<&str> = rows
            .filter_map(|row| row.first())
            .map(|cell| cell.text.as_str())
            .collect();
        let longest = names.iter().map(|name| name.chars().count()).max();
        let longest = longest.unwrap_or(0);
        for width in room.min(longest)..longest {
            for cut in [Self::End, Self::Front] {
                let clipped: BTreeSet<String> =
                    names.iter().map(|name| cut.clip(name, width)).collect();
                if clipped.len() == names.len() {
                    return (cut, width);
                }
            }
        }
        (Self::End, longest.max(room))
    }

    fn clip(self, text: &str, width: usize) -> String {
        let length = text.chars().count();
        match self {
            Self::End => clip(text, width),
            Self::Front if length <= width => text.to_owned(),
            Self::Front => {
                let rest = text.chars().skip(length + 1 - width.max(1));
                std::iter::once('…').chain(rest).collect()
            }
        }
    }
}

/// As wide as the widest cell of each column. Names stand behind their twigs.
fn twigged(table: &[Vec<Cell>]) -> Vec<usize> {
    let mut widths = widest(table);
    let names = table.iter().skip(1).filter_map(|row| row.first());
    let longest = names.map(|name| name.width() + TWIG).max();
    if let (Some(first), Some(longest)) = (widths.first_mut(), longest) {
        *first = (*first).max(longest);
    }
    widths
}

fn line(twig: &str, cells: &[Cell], widths: &[usize], (paint, cut): (Paint, Cut)) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if at == 0 {
            let room = width.saturating_sub(twig.chars().count());
            let name = Cell::toned(cut.clip(&cell.text, room), cell.tone);
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
pub(in crate::cli) fn paragraph(head: &str, text: &str, page: Page) -> String {
    wrapped(head, &on_command_line(text), page.columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Page = Page {
        paint: Paint::OFF,
        columns: Some(24),
    };

    /// C14: `127.0.0…` three times.
    #[test]
    fn names_that_are_clipped_stay_different() {
        let row = |name: &str| {
            vec![
                Cell::calm(name),
                Cell::or_dash(None),
                Cell::calm("does not answer"),
            ]
        };
        let heading = ["NODE", "CPU", "SYSTEM"];
        let rows = ["192.168.77.101", "192.168.77.102"].map(row);
        assert_eq!(
            plain(&heading, &[], &rows, NARROW),
            "NODE      SYSTEM\n….77.101  does not answ…\n….77.102  does not answ…"
        );
        let rows = ["worker-1.dc1.example", "worker-2.dc1.example"].map(row);
        assert_eq!(
            plain(&heading, &[], &rows, NARROW),
            "NODE       SYSTEM\nworker-1…  does not ans…\nworker-2…  does not ans…"
        );
        let wide = Page {
            columns: Some(80),
            ..NARROW
        };
        assert!(
            plain(&heading, &[], &rows, wide).starts_with("NODE                  CPU  SYSTEM\n")
        );
    }

    #[test]
    fn spare_columns_are_omitted_in_their_order_and_only_as_many_as_it_takes() {
        let heading = ["NODE", "MEMBER", "SIZE", "BY", "STATE"];
        let cells = ["worker-1.example", "a1b2c3", "40 MiB", "timer", "good"];
        let rows = [cells.map(Cell::calm).to_vec()];
        let at = |columns| {
            let columns = Some(columns);
            plain(&heading, &["BY", "SIZE"], &rows, Page { columns, ..NARROW })
        };
        assert_eq!(
            at(46),
            "NODE              MEMBER  SIZE    BY     STATE\nworker-1.example  a1b2c3  40 MiB  timer  good"
        );
        assert_eq!(
            at(45),
            "NODE              MEMBER  SIZE    STATE\nworker-1.example  a1b2c3  40 MiB  good"
        );
        assert_eq!(
            at(31),
            "NODE              MEMBER  STATE\nworker-1.example  a1b2c3  good"
        );
        // What is not spare stays, and then names are clipped.
        assert_eq!(at(30), at(10));
        assert_eq!(at(10), "NODE      MEMBER  STATE\nworker-…  a1b2c3  good");
    }

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
            tree(&[branch], &[], Page { paint, ..NARROW })
        };
        assert_eq!(
            branch(Paint::OFF),
            "\nworkers      NODE      AGE\n├─ worker-…  Ready     3d\n└─ n2        NotReady  4h"
        );
        assert!(branch(Paint::ON).contains("\x1b[1;31mNotReady\x1b[0m  4h"));
    }
}
