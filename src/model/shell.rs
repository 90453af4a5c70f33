//! Names of files in commands that a person copies into a shell. Pure.

use std::borrow::Cow;

/// The name as one word of a POSIX shell: in single quotes where it has more than plain characters.
pub fn shell_word(name: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,~".contains(c);
    // A shell expands a `~` at the start.
    if !name.is_empty() && !name.starts_with('~') && name.chars().all(plain) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("'{}'", name.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_or_quotes_stays_one_word() {
        for (name, word) in [
            ("cluster.yml", "cluster.yml"),
            ("a/b-1_2.yml", "a/b-1_2.yml"),
            ("größe.yml", "größe.yml"),
            ("my new.yml", "'my new.yml'"),
            ("it's", r"'it'\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("~x", "'~x'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(name), word);
        }
    }
}
