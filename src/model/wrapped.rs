//! Sentences that are wrapped at words. Pure.

/// An indentation of more than this part of a line leaves too little room for the sentence.
const DEEPEST: usize = 3;
/// The indentation in its place.
const SHALLOW: usize = 4;

/// A sentence behind a head, wrapped at words so that a line has no more than so many columns. What comes below stands
/// under the sentence, or is indented a little where the head is long. `None`: nothing is wrapped.
pub fn wrapped(head: &str, text: &str, columns: Option<usize>) -> String {
    let mut used = head.chars().count();
    let Some(columns) = columns else {
        return format!("{head}{text}");
    };
    let indent = if used > columns / DEEPEST {
        used.min(SHALLOW)
    } else {
        used
    };
    let mut out = head.to_owned();
    for (at, word) in text.split_whitespace().enumerate() {
        let width = word.chars().count();
        if at > 0 && used + 1 + width > columns {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        } else if at > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_below_stands_under_the_sentence_unless_the_head_is_long() {
        let text = "the sentence is longer than the page is wide";
        assert_eq!(
            wrapped("  n1  ", text, Some(24)),
            "  n1  the sentence is\n      longer than the\n      page is wide"
        );
        assert_eq!(
            wrapped("  n1 … n3, db: ", text, Some(24)),
            "  n1 … n3, db: the\n    sentence is longer\n    than the page is\n    wide"
        );
        assert_eq!(wrapped("  n1  ", text, None), format!("  n1  {text}"));
    }
}
