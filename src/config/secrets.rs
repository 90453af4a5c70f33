//! Which parts of a document must not be shown: what the schema calls secret, and whatever the
//! schema does not know. Pure.

use std::ops::Range;

use super::{
    schema::{Below, Key, ROOT},
    tree::{Entry, Node, Value},
};

/// The bytes of every value that must not be shown, in the order of the document.
pub(super) fn spans(root: &Node) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    section(root, ROOT, &mut found);
    found.sort_by_key(|span| span.start);
    found
}

fn section(node: &Node, keys: &[Key], found: &mut Vec<Range<usize>>) {
    match &node.value {
        Value::Null => {}
        // Something else than the schema says: it may be anything.
        Value::Scalar(_) | Value::List(_) => everything(node, Names::Shown, found),
        Value::Map(entries) => {
            for entry in entries {
                match keys.iter().find(|key| key.name == entry.key) {
                    Some(key) => value(&entry.node, key, found),
                    None => everything(&entry.node, Names::Shown, found),
                }
            }
        }
    }
}

fn value(node: &Node, key: &Key, found: &mut Vec<Range<usize>>) {
    match key.kind.below() {
        _ if key.secret => everything(node, Names::Hidden, found),
        Below::Section(keys) => section(node, keys, found),
        Below::Each(keys) => match &node.value {
            Value::List(items) => {
                for item in items {
                    section(item, keys, found);
                }
            }
            Value::Null | Value::Scalar(_) | Value::Map(_) => everything(node, Names::Shown, found),
        },
        Below::Nothing => by_name(node, found),
    }
}

/// Below a key whose names are the user's, the name tells: a flag `oidc-client-secret`.
fn by_name(node: &Node, found: &mut Vec<Range<usize>>) {
    match &node.value {
        Value::Null | Value::Scalar(_) => {}
        Value::List(items) => items.iter().for_each(|item| by_name(item, found)),
        Value::Map(entries) => {
            for Entry { key, node, .. } in entries {
                if sounds_secret(key) {
                    everything(node, Names::Hidden, found);
                } else {
                    by_name(node, found);
                }
            }
        }
    }
}

/// What becomes of the names in a mapping.
#[derive(Clone, Copy)]
enum Names {
    Shown,
    /// What looks like a mapping may be a text, at whatever depth, with a password before the colon.
    Hidden,
}

fn everything(node: &Node, names: Names, found: &mut Vec<Range<usize>>) {
    match &node.value {
        Value::Null => {}
        Value::Scalar(_) => {
            let places = node.place.iter().chain(&node.defined);
            found.extend(places.map(|place| place.span.clone()));
        }
        Value::List(items) => items.iter().for_each(|item| everything(item, names, found)),
        Value::Map(entries) => {
            for entry in entries {
                if let (Names::Hidden, Some(place)) = (names, &entry.key_place) {
                    found.push(place.span.clone());
                }
                everything(&entry.node, names, found);
            }
        }
    }
}

/// Whether a name is one that people give to secrets. A file's path is none.
fn sounds_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    let secret = [
        "passw",
        "passphrase",
        "secret",
        "token",
        "credential",
        "private",
    ];
    !name.ends_with("file")
        && (secret.iter().any(|word| name.contains(word)) || name.ends_with("key"))
}

/// Whether a line of a document that cannot be parsed may be shown, as far as [`of_broken`] leaves it: when it is a key,
/// and all that it names is known and not secret. Anything else may continue a private key. With a lone carriage return
/// it is several lines to YAML.
pub(super) fn may_be_shown(line: &str) -> bool {
    !line.contains('\r') && key(line).is_some() && names_in(line).into_iter().all(is_no_secret)
}

/// The bytes of a document that cannot be parsed that must not be shown. Where a value ends, and what is below what, nobody
/// knows there: so every value after a line that is not known through and through.
pub(super) fn of_broken(source: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut is_known = true;
    for line in source.split_inclusive('\n') {
        let text = line.trim_end();
        if let Some(key) = key(text).filter(|key| !is_known && key.len() < text.len()) {
            found.push(at + key.len()..at + text.len());
        }
        is_known = is_known && says_no_secret(text);
        at += line.len();
    }
    found
}

/// A comment, a key that may be shown, or one of a list of single values.
fn says_no_secret(line: &str) -> bool {
    let text = line.trim_start();
    text.is_empty()
        || text.starts_with('#') && !text.contains('\r')
        || text.starts_with('-') && !text.contains(':')
        || may_be_shown(line)
}

fn is_no_secret(name: &str) -> bool {
    let mut keys = Vec::new();
    named(name, ROOT, &mut keys);
    !keys.is_empty() && keys.iter().all(|key| !key.secret)
}

/// The beginning of a line that is a key, up to and with its colon and a space.
fn key(line: &str) -> Option<&str> {
    let (before, value) = line.split_once(':')?;
    let name = before.trim_start_matches([' ', '\t', '-', '{', '[', '"', '\'']);
    let name = name.trim_end_matches([' ', '"', '\'']);
    let space = usize::from(value.starts_with(' '));
    let is_key = !name.is_empty() && name.chars().all(is_of_name);
    is_key.then(|| line.get(..=before.len() + space)).flatten()
}

const fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// The words before a colon.
fn names_in(line: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = line.split(':').collect();
    parts.pop();
    parts
        .into_iter()
        .map(|part| {
            let part = part.trim_end().trim_end_matches(['"', '\'']);
            let start = part.rfind(|c| !is_of_name(c)).map_or(0, |at| at + 1);
            part.get(start..)
                .unwrap_or_default()
                .trim_start_matches('-')
        })
        .collect()
}

fn named(name: &str, keys: &'static [Key], found: &mut Vec<&'static Key>) {
    for key in keys {
        if key.name == name {
            found.push(key);
        }
        match key.kind.below() {
            Below::Section(below) | Below::Each(below) => named(name, below, found),
            Below::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_parsed_is_shown_only_when_all_in_it_is_known() {
        for (line, shown) in [
            ("\t- address: 192.0.2.10", true),
            ("  - {address: a, user: b", true),
            ("    ssh_key: hunter2", false),
            ("  - {user: a, password: hunter2", false),
            ("    MIIEpAIBAAKCAQEA", false),
            ("    pasword: hunter2", false),
            ("  hunter2 - name: a", false),
            ("name: a\r  hunter2", false),
            ("", false),
        ] {
            assert_eq!(may_be_shown(line), shown, "{line}");
        }
    }

    /// `make fuzz` found five ways in which what is below a secret looked as if it was not.
    #[test]
    fn after_what_is_not_known_no_value_is_shown() {
        for (before, shown) in [
            ("", true),
            (
                "# password: a\nnodes:\n- address: a\n  role: [etcd]\n",
                true,
            ),
            ("nodes:\n- role:\n  - etcd\n", true),
            ("addons: |\n", false),
            ("  ssh_key: a\n", false),
            ("pasword: b\n", false),
            ("ssh_key |\n", false),
            ("  extra_en]: [vs:\n", false),
            ("extra_envs\n:\n", false),
            ("extra_e\n- nvs:\n", false),
            ("*none name: a\n", false),
            ("ingress: [{extra_envs: [\n", false),
            ("name\tssh_key: a\n", false),
            ("# a\rssh_key\r: |\n", false),
            ("name: a\rssh_key\r: |\n", false),
        ] {
            for end in ["\n", "\r\n"] {
                let before = before.replace('\n', end);
                let document = format!("{before}  - name: hunter2{end}");
                let found = of_broken(&document);
                let last = found.last().map(|span| &document[span.clone()]);
                let value = (!shown).then_some("hunter2");
                assert_eq!(last, value, "{document}");
            }
        }
    }
}
