//! How a document is read: by key and index, with the path and place at hand for a problem. Pure.

use std::collections::BTreeMap;

use super::{
    problem::{Place, Problem},
    tree::{Node, Value},
};

/// A place in the document, there or not, with its path: how the rest of the module reads.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    node: Option<&'a Node>,
    path: String,
    /// Of the value; of the nearest thing around it when the value is absent.
    place: Option<Place>,
}

impl<'a> Cursor<'a> {
    /// The whole document.
    pub(super) fn root(node: &'a Node) -> Self {
        Self {
            node: Some(node),
            path: String::new(),
            place: None,
        }
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
            ("", _) => key.to_owned(),
            (path, true) => format!("{path}.{key}"),
            (path, false) => format!("{path}[\"{key}\"]"),
        };
        match entry {
            Some(entry) => Self {
                node: Some(&entry.node),
                path,
                place: visible(&entry.node).or_else(|| entry.key_place.clone()),
            },
            None => Self {
                node: None,
                path,
                place: self.place.clone(),
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
                })
                .collect(),
            Some(Value::Null | Value::Scalar(_) | Value::Map(_)) | None => Vec::new(),
        }
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

    /// True when it says nothing, or says one of these.
    pub(super) fn passes(&self, values: &[&str]) -> bool {
        self.node.is_none_or(Node::is_empty)
            || self
                .scalar()
                .is_some_and(|text| values.iter().any(|value| text.eq_ignore_ascii_case(value)))
    }

    /// True for a mapping and for what may be read as an empty one.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.value(), Some(Value::Map(_))) || self.passes(&[])
    }

    /// A problem with this value.
    pub(super) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem {
            place: self.place.clone(),
            ..Problem::new(self.path.clone(), message)
        }
    }

    /// As written, e.g. `nodes[0].port`.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

/// Block mappings and lists have empty spans at their first entry: the key is better to point at.
fn visible(node: &Node) -> Option<Place> {
    node.place.clone().filter(|place| !place.span.is_empty())
}
