//! Text of others as a terminal, a log or an event may show it. Pure.

use std::{borrow::Cow, fmt};

/// Whether a character only shows itself: no control character, which could move the cursor or
/// colour the terminal, and none that turns the direction of the text around it.
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// As [`printable`], of a text of several lines, which stay lines.
pub fn printable_lines(text: &str) -> String {
    let lines = text.split('\n').map(printable);
    lines.collect::<Vec<_>>().join("\n")
}

/// The text with everything else escaped: `\u{1b}[31m`, `\n`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return Cow::Borrowed(text);
    }
    let escaped = text.chars().fold(String::new(), |mut all, c| {
        if is_printable(c) {
            all.push(c);
        } else {
            all.extend(c.escape_default());
        }
        all
    });
    Cow::Owned(escaped)
}

/// Names in a sentence: `` `a`, `b` ``.
pub fn quoted(names: impl IntoIterator<Item: fmt::Display>) -> String {
    let names = names.into_iter().map(|name| format!("`{name}`"));
    names.collect::<Vec<_>>().join(", ")
}

/// The same with no more than the first: `` `a`, `b` and 3 more ``.
pub fn quoted_first(most: usize, names: impl IntoIterator<Item: fmt::Display>) -> String {
    let mut names = names.into_iter();
    let first = quoted(names.by_ref().take(most));
    match names.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_act_on_a_terminal_is_escaped() {
        for (text, shown) in [
            ("plain ü 😀", "plain ü 😀"),
            ("a\u{1b}[31mred", "a\\u{1b}[31mred"),
            ("two\nlines\t", "two\\nlines\\t"),
            ("\u{9b}0m", "\\u{9b}0m"),
            ("abc\u{202e}cba", "abc\\u{202e}cba"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn names_are_quoted_and_those_after_the_first_are_counted() {
        assert_eq!(quoted(["a"]), "`a`");
        assert_eq!(quoted(["a", "b"]), "`a`, `b`");
        assert_eq!(quoted_first(2, ["a", "b"]), "`a`, `b`");
        assert_eq!(quoted_first(2, ["a", "b", "c"]), "`a`, `b` and 1 more");
        assert_eq!(quoted_first(2, ["a", "b", "c", "d"]), "`a`, `b` and 2 more");
    }
}
