//! The document as written: a tree of scalars, lists and mappings with their places. The one
//! module that knows the YAML library. Pure.
//!
//! Scalars keep the text that stands in the file, so that `1.30` stays `1.30` and a label `no`
//! stays `no`: what a scalar means is decided by the key that reads it, as in Go's YAML.

use std::{collections::BTreeMap, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{
    Location, Spanned,
    options::{DuplicateKeyPolicy, NonFiniteFloatPolicy},
};

use super::problem::{Place, Problem};
use crate::secret::Secret;

/// A value and where it stands. `place` is `None` when it did not come from text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Option<Place>,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing after the colon, `~` or `null`.
    Null,
    /// The text of a scalar, without its quotes. It may be a key or a password.
    Scalar(Secret<String>),
    List(Vec<Node>),
    /// In the order of the document; a key may stand twice, which `schema` reports.
    Map(Vec<Entry>),
}

/// A key, where it stands, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_place: Option<Place>,
    pub(super) node: Node,
}

impl Value {
    /// For messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Scalar(_) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl Node {
    /// Parses one YAML document. An empty one is `Null`.
    pub(super) fn from_yaml(source: &str) -> Result<Self, Problem> {
        let options = serde_saphyr::options! {
            legacy_octal_numbers: true,
            with_snippet: false,
            duplicate_keys: DuplicateKeyPolicy::PassThrough,
            non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        };
        serde_saphyr::with_deserializer_from_str_with_options(source, options, |yaml| {
            Spanned::<Raw>::deserialize(yaml)
        })
        .map(|raw| Self::from_raw(raw, source))
        .map_err(|error| not_yaml(&error, source))
    }

    /// The same tree from JSON, without places.
    pub(super) fn from_json(json: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(flag) => Value::Scalar(flag.to_string().into()),
            Json::Number(number) => Value::Scalar(number.to_string().into()),
            Json::String(text) => Value::Scalar(text.clone().into()),
            Json::Array(items) => Value::List(items.iter().map(Self::from_json).collect()),
            Json::Object(entries) => Value::Map(
                entries
                    .iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        key_place: None,
                        node: Self::from_json(value),
                    })
                    .collect(),
            ),
        };
        Self { value, place: None }
    }

    fn from_raw(raw: Spanned<Raw>, source: &str) -> Self {
        let place = Place::of(&raw.referenced, source);
        let value = match raw.value {
            Raw::Null => Value::Null,
            Raw::Text(text) => Value::Scalar(text.into()),
            Raw::Typed(fallback) => Value::Scalar(
                Place::of(&raw.defined, source)
                    .and_then(|place| source.get(place.span))
                    .map_or(fallback, str::to_owned)
                    .into(),
            ),
            Raw::List(items) => Value::List(
                items
                    .into_iter()
                    .map(|item| Self::from_raw(item, source))
                    .collect(),
            ),
            Raw::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| Entry {
                        key_place: Place::of(&key.referenced, source),
                        key: key.value,
                        node: Self::from_raw(value, source),
                    })
                    .collect(),
            ),
        };
        Self { value, place }
    }

    /// True for what says nothing: null, an empty text, list or mapping, at any depth.
    pub(super) fn is_empty(&self) -> bool {
        match &self.value {
            Value::Null => true,
            Value::Scalar(text) => text.expose().is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.iter().all(|entry| entry.node.is_empty()),
        }
    }
}

fn not_yaml(error: &serde_saphyr::Error, source: &str) -> Problem {
    let location = error.location();
    let problem = match error.without_snippet() {
        serde_saphyr::Error::MultipleDocuments { .. } => {
            Problem::new("", "the file holds more than one document").hint("remove the `---`")
        }
        // The library's words may quote the document; the place is told by ours.
        other => Problem::new("", "the document is not valid YAML").detail(
            other
                .to_string()
                .split(" at line ")
                .next()
                .unwrap_or_default(),
        ),
    };
    Problem {
        place: location.and_then(|location| Place::of(&location, source)),
        ..problem
    }
}

impl Place {
    fn of(location: &Location, source: &str) -> Option<Self> {
        let line = usize::try_from(location.line())
            .ok()
            .filter(|line| *line > 0)?;
        let column = usize::try_from(location.column()).unwrap_or(1).max(1);
        Some(Self {
            line,
            column,
            span: Self::bytes(location).unwrap_or_else(|| {
                let start = offset(source, line, column);
                start..start
            }),
        })
    }

    fn bytes(location: &Location) -> Option<Range<usize>> {
        let span = location.span();
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let length = usize::try_from(span.byte_len()?).ok()?;
        Some(start..start.checked_add(length)?)
    }
}

/// The byte at a line and column, for the errors that come without a span.
fn offset(source: &str, line: usize, column: usize) -> usize {
    let before: usize = source
        .split_inclusive('\n')
        .take(line - 1)
        .map(str::len)
        .sum();
    let rest = source.get(before..).unwrap_or_default();
    before
        + rest
            .chars()
            .take(column - 1)
            .map(char::len_utf8)
            .sum::<usize>()
}

/// What the YAML library tells us, before the text of typed scalars is looked up.
enum Raw {
    Null,
    Text(String),
    /// A plain scalar that YAML reads as a bool or a number, in the library's own spelling.
    Typed(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

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
