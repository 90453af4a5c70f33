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
        Below::Section(keys) => match (&node.value, key.as_list) {
            (Value::List(items), Some(keys)) => each(items, keys, found),
            (Value::Null | Value::Scalar(_) | Value::List(_) | Value::Map(_), _) => {
                section(node, keys, found);
            }
        },
        Below::Each(keys) => match &node.value {
            Value::List(items) => each(items, keys, found),
            Value::Null | Value::Scalar(_) | Value::Map(_) => everything(node, Names::Shown, found),
        },
        Below::Nothing => by_name(node, found),
    }
}

fn each(items: &[Node], keys: &[Key], found: &mut Vec<Range<usize>>) {
    for item in items {
        section(item, keys, found);
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
