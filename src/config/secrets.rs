//! Which parts of a document must not be shown: what the schema calls secret, and whatever the
//! schema does not know. Pure.

use std::ops::Range;

use super::{
    schema::{Below, Key, Kind, ROOT},
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
        Value::Scalar(_) | Value::List(_) => everything(node, found),
        Value::Map(entries) => {
            for entry in entries {
                match keys.iter().find(|key| key.name == entry.key) {
                    Some(key) => value(&entry.node, key, found),
                    None => everything(&entry.node, found),
                }
            }
        }
    }
}

fn value(node: &Node, key: &Key, found: &mut Vec<Range<usize>>) {
    match key.kind.below() {
        _ if key.secret => secret(node, key.kind, found),
        Below::Section(keys) => section(node, keys, found),
        Below::Each(keys) => match &node.value {
            Value::List(items) => {
                for item in items {
                    section(item, keys, found);
                }
            }
            Value::Null | Value::Scalar(_) | Value::Map(_) => everything(node, found),
        },
        Below::Nothing => by_name(node, found),
    }
}

/// A mapping where the schema has none may be a text that YAML takes for one, with a password before the colon.
fn secret(node: &Node, kind: Kind, found: &mut Vec<Range<usize>>) {
    if kind.has_names() {
        everything(node, found);
    } else {
        with_names(node, found);
    }
}

fn with_names(node: &Node, found: &mut Vec<Range<usize>>) {
    everything(node, found);
    names_below(node, found);
}

fn names_below(node: &Node, found: &mut Vec<Range<usize>>) {
    match &node.value {
        Value::Null | Value::Scalar(_) => {}
        Value::List(items) => items.iter().for_each(|item| names_below(item, found)),
        Value::Map(entries) => {
            for Entry {
                key_place, node, ..
            } in entries
            {
                found.extend(key_place.iter().map(|place| place.span.clone()));
                names_below(node, found);
            }
        }
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
                    with_names(node, found);
                } else {
                    by_name(node, found);
                }
            }
        }
    }
}

fn everything(node: &Node, found: &mut Vec<Range<usize>>) {
    match &node.value {
        Value::Null => {}
        Value::Scalar(_) => {
            let places = node.place.iter().chain(&node.defined);
            found.extend(places.map(|place| place.span.clone()));
        }
        Value::List(items) => items.iter().for_each(|item| everything(item, found)),
        Value::Map(entries) => entries
            .iter()
            .for_each(|entry| everything(&entry.node, found)),
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

/// Whether a line of a document that cannot be parsed may be shown, after those before it: when all that it names is
/// known and not secret, and it is not below what is not. A line without a name may continue a private key.
pub(super) fn may_be_shown(before: &str, line: &str) -> bool {
    let mut hidden = None;
    for line in before.lines() {
        if hidden.is_none_or(|hidden| ends(hidden, line)) {
            hidden = hides_below(line);
        }
    }
    says_no_secret(line) && hidden.is_none_or(|hidden| ends(hidden, line))
}

fn says_no_secret(line: &str) -> bool {
    let names = names_in(line);
    !names.is_empty() && names.iter().all(|name| is_no_secret(name))
}

fn is_no_secret(name: &str) -> bool {
    let mut keys = Vec::new();
    named(name, ROOT, &mut keys);
    !keys.is_empty() && keys.iter().all(|key| !key.secret)
}

/// Up to where nobody knows what belongs to a value.
#[derive(Clone, Copy)]
enum Hidden {
    /// Until a line that begins at this column, or before it.
    To(usize),
    /// The value is in brackets, whose end may be anywhere.
    Open,
}

/// What a line hides of those after it.
fn hides_below(line: &str) -> Option<Hidden> {
    let text = line.trim_start();
    if text.starts_with('#') {
        return None;
    }
    let bad = names_in(line)
        .into_iter()
        .position(|name| !is_no_secret(name))?;
    let text = text.trim_start_matches(['-', ' ', '\t', '"', '\'']);
    if bad > 0 || text.starts_with(['{', '[']) {
        return Some(Hidden::Open);
    }
    Some(Hidden::To(line.len() - text.len()))
}

/// Whether a line is below nothing of what is hidden: a key, alone or of an item, that begins early enough. The items of
/// a list may begin where its name does; where a tab leads to, everybody sees differently.
fn ends(hidden: Hidden, line: &str) -> bool {
    let Hidden::To(column) = hidden else {
        return false;
    };
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let is_key = |text: &str| {
        let name = text.split(':').next().unwrap_or_default();
        let of_names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '"' | '\'');
        name != text && !name.starts_with('-') && name.trim_end().chars().all(of_names)
    };
    match text.strip_prefix("- ") {
        Some(item) => indent < column && is_key(item.trim_start_matches(' ')),
        None => indent <= column && is_key(text),
    }
}

/// The words before a colon.
fn names_in(line: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = line.split(':').collect();
    parts.pop();
    parts
        .into_iter()
        .map(|part| {
            let part = part.trim_end().trim_end_matches(['"', '\'']);
            let start = part
                .rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
                .map_or(0, |at| at + 1);
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
            ("", false),
        ] {
            assert_eq!(may_be_shown("", line), shown, "{line}");
        }
    }

    #[test]
    fn nothing_below_a_secret_is_shown_whatever_it_is_called() {
        for (before, line, shown) in [
            // `make fuzz` found this one: a tab, below what is secret as a whole.
            (
                "services:\n  kube-api:\n    secrets_encryption_config:\n      custom_config:\n        providers:",
                "        \t- name: hunter2",
                false,
            ),
            ("addons: |\n  # a: b", "  name: hunter2", false),
            ("addons: |\n  kind: Secret\n", "  name: hunter2", false),
            ("addons:\n", "- name: hunter2", false),
            (
                "nodes:\n- address: a\n  ssh_key: |\n    user: b\n",
                "    user: hunter2",
                false,
            ),
            (
                "nodes:\n- address: a\n  ssh_key: |\n    user: b\n",
                "  user: c",
                true,
            ),
            (
                "nodes:\n- address: a\n  ssh_key: |\n    user: b\n",
                "- address: c",
                true,
            ),
            (
                "nodes:\n- address: a\n  ssh_key: |\n    user: b\n",
                " \tuser: c",
                false,
            ),
            ("nodes: [{address: a, ssh_key: 'b\n", "user: hunter2", false),
            ("{addons: 'b\n", "user: hunter2", false),
            (
                "addons: b\n# a comment: here\nnodes:\n",
                "  - address: a",
                true,
            ),
            ("pasword: b\n", "  user: hunter2", false),
            // And this one: what begins where the list does is no item, and no key.
            (
                "ingress:\n  extra_envs:\n",
                "  *none - name: hunter2",
                false,
            ),
            ("ingress:\n  extra_envs:\n", " *none - name: hunter2", false),
            ("ingress:\n  extra_envs:\n", "# name: hunter2", false),
        ] {
            assert_eq!(may_be_shown(before, line), shown, "{before}\n{line}");
        }
    }
}
