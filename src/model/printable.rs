//! Text of others as a terminal, a log or an event may show it. Pure.

use std::borrow::Cow;

/// Whether a character only shows itself: no control character, which could move the cursor or
/// colour the terminal, and none that turns the direction of the text around it.
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
}
