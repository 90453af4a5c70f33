//! Many names of nodes in few words: `worker-1 … worker-97, db`. Pure.

use std::{cmp::Ordering, collections::BTreeSet};

use super::NodeName;

/// A list of more parts than this is cut by [`some_ranges`].
const PARTS: usize = 4;

/// A range stands for at least so many names.
const RANGE: usize = 3;

/// All names; those that count on without a gap as first and last.
pub fn ranges(names: &BTreeSet<&NodeName>) -> String {
    let parts: Vec<_> = parts(names).into_iter().map(|(text, _)| text).collect();
    parts.join(", ")
}

/// The first of these ranges, and how many nodes there are besides.
pub fn some_ranges(names: &BTreeSet<&NodeName>) -> String {
    let parts = parts(names);
    if parts.len() <= PARTS {
        return ranges(names);
    }
    let (shown, more) = parts.split_at(PARTS - 1);
    let shown: Vec<_> = shown.iter().map(|(text, _)| text.as_str()).collect();
    let more: usize = more.iter().map(|(_, count)| count).sum();
    format!("{} and {more} more", shown.join(", "))
}

/// Each range or name with how many names it stands for, in the order in which people count.
fn parts(names: &BTreeSet<&NodeName>) -> Vec<(String, usize)> {
    let mut names: Vec<_> = names.iter().map(|name| (pieces(&name.0), *name)).collect();
    names.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut found = Vec::new();
    let mut rest = names.as_slice();
    while let Some((first, tail)) = rest.split_first() {
        let length = 1 + run(first, tail);
        let (run, after) = rest.split_at(length);
        match run.last() {
            Some((_, last)) if length >= RANGE => {
                found.push((format!("{} … {last}", first.1), length));
            }
            Some(_) | None => found.extend(run.iter().map(|(_, name)| (name.to_string(), 1))),
        }
        rest = after;
    }
    found
}

/// How many of these count on from the first, each by one and all at the same place.
fn run(first: &(Vec<Piece<'_>>, &NodeName), rest: &[(Vec<Piece<'_>>, &NodeName)]) -> usize {
    let mut before = &first.0;
    let mut counting = None;
    for (at, (next, _)) in rest.iter().enumerate() {
        match follows(before, next) {
            Some(place) if counting.is_none_or(|counting| counting == place) => {
                counting = Some(place);
            }
            Some(_) | None => return at,
        }
        before = next;
    }
    rest.len()
}

/// Where the second name has the next number and is otherwise the first.
fn follows(one: &[Piece<'_>], next: &[Piece<'_>]) -> Option<usize> {
    if one.len() != next.len() {
        return None;
    }
    let mut differ = one.iter().zip(next).enumerate();
    let (place, (one, next)) = differ.find(|(_, (one, next))| one != next)?;
    let rest_is_equal = differ.all(|(_, (one, next))| one == next);
    (rest_is_equal && next.is_after(one)).then_some(place)
}

/// A name's digits and what is between them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Piece<'a> {
    Number(Number<'a>),
    Text(&'a str),
}

impl Piece<'_> {
    fn is_after(&self, other: &Self) -> bool {
        let (Self::Number(next), Self::Number(one)) = (self, other) else {
            return false;
        };
        let plain = |number: &Number<'_>| !number.digits.starts_with('0');
        let alike = next.digits.len() == one.digits.len() || (plain(next) && plain(one));
        alike && one.value.checked_add(1) == Some(next.value)
    }
}

/// Digits; compared by their value first.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Number<'a> {
    value: u64,
    digits: &'a str,
}

impl Ord for Number<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.value, self.digits).cmp(&(other.value, other.digits))
    }
}

impl PartialOrd for Number<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn pieces(name: &str) -> Vec<Piece<'_>> {
    let is_digit = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    let mut found = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = is_digit(rest);
        let end = rest.find(|c: char| c.is_ascii_digit() != digits);
        let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
        found.push(match piece.parse() {
            Ok(value) if digits => Piece::Number(Number {
                value,
                digits: piece,
            }),
            Ok(_) | Err(_) => Piece::Text(piece),
        });
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str], text: impl Fn(&BTreeSet<&NodeName>) -> String) -> String {
        let names: Vec<_> = names
            .iter()
            .map(|name| NodeName((*name).to_owned()))
            .collect();
        text(&names.iter().collect())
    }

    #[test]
    fn names_that_count_on_are_a_range() {
        for (names, text) in [
            (&["n1"][..], "n1"),
            (&["n1", "n2"], "n1, n2"),
            (&["n1", "n2", "n3"], "n1 … n3"),
            (&["n9", "n10", "n11", "n8"], "n8 … n11"),
            (&["n08", "n09", "n10"], "n08 … n10"),
            (&["n8", "n09", "n10"], "n8, n09, n10"),
            (&["n1", "n2", "n3", "n5"], "n1 … n3, n5"),
            (
                &["192.0.2.9", "192.0.2.10", "192.0.2.11"],
                "192.0.2.9 … 192.0.2.11",
            ),
            (
                &[
                    "w1.dc1.example",
                    "w2.dc1.example",
                    "w3.dc1.example",
                    "w1.dc2.example",
                ],
                "w1.dc1.example, w1.dc2.example, w2.dc1.example, w3.dc1.example",
            ),
            (
                &["w1.dc2.example", "w2.dc2.example", "w3.dc2.example"],
                "w1.dc2.example … w3.dc2.example",
            ),
            (&["a", "b", "c"], "a, b, c"),
            (
                &["n99999999999999999999", "n99999999999999999998", "n1"],
                "n1, n99999999999999999998, n99999999999999999999",
            ),
        ] {
            assert_eq!(of(names, ranges), text, "{names:?}");
        }
    }

    #[test]
    fn a_long_list_is_cut_and_counts_the_rest() {
        let names = ["a", "b", "n1", "n2", "n3", "x", "y", "z"];
        assert_eq!(of(&names, ranges), "a, b, n1 … n3, x, y, z");
        assert_eq!(of(&names, some_ranges), "a, b, n1 … n3 and 3 more");
        assert_eq!(of(&names[..5], some_ranges), "a, b, n1 … n3");
    }

    #[test]
    fn nothing_is_counted_twice_or_lost() {
        use proptest::prelude::*;
        proptest!(|(names in proptest::collection::btree_set("[ab]{0,2}-?[0-9]{1,2}(\\.x[0-9])?", 1..40))| {
            let names: Vec<_> = names.into_iter().map(NodeName).collect();
            let names: BTreeSet<_> = names.iter().collect();
            let counted: usize = parts(&names).iter().map(|(_, count)| count).sum();
            prop_assert_eq!(counted, names.len());
        });
    }
}
