//! How a document is read: by key and index, with the path and place at hand for a problem. Pure.

use std::collections::BTreeMap;

use super::{
    problem::{Place, Problem},
    references::REFERENCE,
    schema::{Below, Key, ROOT},
    tree::{Node, Value},
};
use crate::model::printable;

/// A place in the document, there or not, with its path: how the rest of the module reads.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    node: Option<&'a Node>,
    path: String,
    /// Of the value; of the nearest thing around it when the value is absent.
    place: Option<Place>,
    /// Of the key that it stands under.
    key_place: Option<Place>,
    /// What the schema says about it.
    row: Option<&'static Key>,
    /// The keys that the schema has below it, or in each item of its list.
    keys: &'static [Key],
}

impl<'a> Cursor<'a> {
    /// The whole of a `cluster.yml`.
    pub(super) fn document(node: &'a Node) -> Self {
        Self {
            keys: ROOT,
            ..Self::root(node)
        }
    }

    /// The whole of something that the schema does not know, as a manifest.
    pub(super) fn root(node: &'a Node) -> Self {
        Self {
            node: Some(node),
            path: String::new(),
            place: None,
            key_place: None,
            row: None,
            keys: &[],
        }
    }

    /// What stands here, as it is.
    pub(super) fn node(&self) -> Option<&'a Node> {
        self.node
    }

    /// The value, `None` when absent or null.
    pub(super) fn value(&self) -> Option<&'a Value> {
        self.node
            .map(|node| &node.value)
            .filter(|value| **value != Value::Null)
    }

    /// The value under a key.
    pub(super) fn get(&self, key: &str) -> Self {
        let entry = match self.value() {
            // The last one wins; that there are two is reported elsewhere.
            Some(Value::Map(entries)) => entries.iter().rfind(|entry| entry.key == key),
            Some(Value::Null | Value::Scalar(_) | Value::List(_)) | None => None,
        };
        let plain = key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        let path = match (self.path.as_str(), plain) {
            ("", _) => printable(key).into_owned(),
            (path, true) => format!("{path}.{key}"),
            (path, false) => format!("{path}[\"{}\"]", printable(key)),
        };
        let row = self.keys.iter().find(|row| row.name == key);
        let keys = match row.map(|row| row.kind.below()) {
            Some(Below::Section(keys) | Below::Each(keys)) => keys,
            Some(Below::Nothing) | None => &[],
        };
        match entry {
            Some(entry) => Self {
                node: Some(&entry.node),
                path,
                row,
                keys,
                place: visible(&entry.node, entry.key_place.as_ref())
                    .or_else(|| entry.key_place.clone()),
                key_place: entry.key_place.clone(),
            },
            None => Self {
                node: None,
                path,
                row,
                keys,
                place: self.place.clone(),
                key_place: None,
            },
        }
    }

    /// The items of a list; none when it is something else.
    pub(super) fn items(&self) -> Vec<Self> {
        match self.value() {
            Some(Value::List(items)) => items
                .iter()
                .enumerate()
                .map(|(index, node)| Self {
                    node: Some(node),
                    path: format!("{}[{index}]", self.path),
                    place: node.place.clone(),
                    key_place: None,
                    row: self.row,
                    keys: self.keys,
                })
                .collect(),
            Some(Value::Null | Value::Scalar(_) | Value::Map(_)) | None => Vec::new(),
        }
    }

    /// True for a list, also for one without items.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.value(), Some(Value::List(_)))
    }

    /// The entries of a mapping, the last of equal keys; none when it is something else.
    pub(super) fn entries(&self) -> Vec<(&'a str, Self)> {
        match self.value() {
            Some(Value::Map(entries)) => entries
                .iter()
                .map(|entry| (entry.key.as_str(), self.get(&entry.key)))
                .collect::<BTreeMap<_, _>>()
                .into_iter()
                .collect(),
            Some(Value::Null | Value::Scalar(_) | Value::List(_)) | None => Vec::new(),
        }
    }

    /// The text of a scalar; `None` for everything else.
    pub(super) fn scalar(&self) -> Option<&'a str> {
        match self.value() {
            Some(Value::Scalar(text)) => Some(text.expose()),
            Some(Value::Null | Value::List(_) | Value::Map(_)) | None => None,
        }
    }

    /// What YAML makes of it; null when absent.
    pub(super) fn json(&self) -> serde_json::Value {
        self.node.map_or(serde_json::Value::Null, Node::to_json)
    }

    /// True for a reference to another object, which only a `Cluster` may have in the place of a value.
    pub(super) fn is_reference(&self) -> bool {
        match self.value() {
            Some(Value::Map(entries)) => {
                matches!(entries.as_slice(), [only] if [REFERENCE, "configMapKeyRef"].contains(&only.key.as_str()))
            }
            Some(Value::Null | Value::Scalar(_) | Value::List(_)) | None => false,
        }
    }

    /// True when it says nothing, at any depth.
    pub(super) fn is_empty(&self) -> bool {
        self.node.is_none_or(Node::is_empty)
    }

    /// True when it is absent, null, or an empty text, list or mapping: what an entry of a mapping
    /// holds is not looked at, its name may be what matters.
    pub(super) fn has_nothing(&self) -> bool {
        match self.value() {
            None | Some(Value::Null) => true,
            Some(Value::Scalar(text)) => text.expose().is_empty(),
            Some(Value::List(items)) => items.is_empty(),
            Some(Value::Map(entries)) => entries.is_empty(),
        }
    }

    /// True when there is something, be it an empty list or mapping.
    pub(super) fn is_written(&self) -> bool {
        match self.value() {
            None | Some(Value::Null) => false,
            Some(Value::Scalar(text)) => !text.expose().is_empty(),
            Some(Value::List(_) | Value::Map(_)) => true,
        }
    }

    /// A problem with this value.
    pub(super) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem {
            place: self.place.clone(),
            ..Problem::new(self.path.clone(), message)
        }
    }

    /// A problem with the key that this stands under: it is the name that is wrong.
    pub(super) fn key_problem(&self, message: impl Into<String>) -> Problem {
        Problem {
            place: self.key_place.clone().or_else(|| self.place.clone()),
            ..Problem::new(self.path.clone(), message)
        }
    }

    /// What RKE takes where nothing is written; empty where that is nothing.
    pub(super) fn default(&self) -> &'static str {
        self.row.map_or("", |row| row.default)
    }

    /// Every value that it may have, where they are a few words.
    pub(super) fn words(&self) -> &'static [&'static str] {
        self.row.map_or(&[], |row| row.words)
    }

    /// The line that it stands in, from 1.
    pub(super) fn line(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.line)
    }

    /// As written, e.g. `nodes[0].port`.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

/// Block mappings and lists have empty spans at their first entry, and block scalars begin in the
/// line below their key: there the key is better to point at.
fn visible(node: &Node, key: Option<&Place>) -> Option<Place> {
    let below = |place: &Place| key.is_some_and(|key| key.line < place.line);
    node.place
        .clone()
        .filter(|place| !place.span.is_empty() && !below(place))
}
