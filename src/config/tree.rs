//! The document as written: a tree of scalars, lists and mappings with their places. The one
//! module that knows the YAML library. Pure.
//!
//! Scalars keep the text that stands in the file, so that `1.30` stays `1.30` and a label `no`
//! stays `no`: what a scalar means is decided by the key that reads it, as in Go's YAML. Only what is
//! handed on as it is, an object of Kubernetes, takes what YAML makes of it ([`Node::to_json`]).

use std::ops::Range;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{
    Location, Spanned,
    options::{DuplicateKeyPolicy, NonFiniteFloatPolicy},
};

use super::{
    problem::{Place, Problem, Problems},
    rke::MAX_BYTES,
};
use crate::model::Secret;

/// A value and where it stands. `place` is `None` when it did not come from text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) place: Option<Place>,
    /// Where its text stands when `place` is an alias of it (`*name`).
    pub(super) defined: Option<Place>,
    /// YAML reads this scalar as a bool or a number.
    pub(super) typed: bool,
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
    pub(super) fn from_yaml(source: &str) -> Result<Self, Problems> {
        let options = serde_saphyr::options! {
            legacy_octal_numbers: true,
            with_snippet: false,
            // Far above what a thousand nodes need; aliases count each time they are used.
            budget: serde_saphyr::budget! { max_nodes: 100_000, max_events: 400_000, flow_nesting_limit: MAX_BYTES },
            duplicate_keys: DuplicateKeyPolicy::PassThrough,
            non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        };
        serde_saphyr::with_deserializer_from_str_with_options(source, options, |yaml| {
            Spanned::<Raw>::deserialize(yaml)
        })
        .map(|raw| Self::from_raw(raw, source))
        .map_err(|error| not_yaml(&error, source).into())
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
        Self {
            value,
            place: None,
            defined: None,
            typed: matches!(json, Json::Bool(_) | Json::Number(_)),
        }
    }

    /// What YAML makes of it, the last of equal keys. Numbers that JSON does not have stay text.
    pub(super) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Scalar(text) if self.typed => serde_saphyr::from_str(text.expose())
                .unwrap_or_else(|_| Json::String(text.expose().clone())),
            Value::Scalar(text) => Json::String(text.expose().clone()),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.node.to_json()))
                .collect(),
        }
    }

    fn from_raw(raw: Spanned<Raw>, source: &str) -> Self {
        let place = Place::of(&raw.referenced, source);
        let defined =
            Place::of(&raw.defined, source).filter(|defined| Some(defined) != place.as_ref());
        let typed = matches!(raw.value, Raw::Typed(_));
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
        Self {
            value,
            place,
            defined,
            typed,
        }
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
    let bare = error.without_snippet();
    let place = error
        .location()
        .and_then(|location| Place::of(&location, source));
    if matches!(bare, serde_saphyr::Error::MultipleDocuments { .. }) {
        let problem = Problem::new("", "the file holds more than one document");
        return Problem {
            place: place.map(|place| separator(place, source)),
            ..problem.hint("remove the `---`")
        };
    }
    let problem = if is_too_much(bare) {
        Problem::new(
            "",
            "the document is nested too deeply, or has too many values or aliases",
        )
        .hint("this is a limit of rke-operator, not an error in the YAML: no RKE config comes near it")
    } else {
        let words = bare.to_string();
        let words = without_quotes(&words);
        // This one quotes nothing, and may be said where the line may not be shown.
        let message = if words == "alias references unknown anchor" {
            "the document is not valid YAML: an alias (`*name`) has no anchor (`&name`) before it"
        } else {
            "the document is not valid YAML"
        };
        let problem = Problem::new("", message).detail(words);
        if words.starts_with("tabs ") {
            problem.hint("indent with spaces")
        } else {
            problem
        }
    };
    Problem { place, ..problem }
}

/// The `---` above the second document, which the parser finds at its first key.
fn separator(place: Place, source: &str) -> Place {
    let lines = source.split_inclusive('\n').take(place.line);
    let mut start = 0;
    let mut found = None;
    for (index, line) in lines.enumerate() {
        if line.starts_with("---") {
            found = Some((index + 1, start));
        }
        start += line.len();
    }
    found.map_or(place, |(line, start)| Place {
        line,
        column: 1,
        span: start..start + 3,
    })
}

/// The library's words as far as they quote nothing of the document; the place is shown by our own.
fn without_quotes(words: &str) -> &str {
    let words = words.split(" at line ").next().unwrap_or_default();
    let words = words.split(": ").next().unwrap_or_default();
    let quotes = words.match_indices(['`', '"', '\'']).find(|(at, quote)| {
        let quoted = words.get(at + quote.len()..).unwrap_or_default();
        quoted.starts_with(char::is_alphanumeric)
            && !words
                .get(..*at)
                .unwrap_or_default()
                .ends_with(char::is_alphanumeric)
    });
    let end = quotes.map_or(words.len(), |(at, _)| at);
    words.get(..end).unwrap_or_default().trim_end()
}

/// Whether the document exceeds one of the parser's limits.
fn is_too_much(error: &serde_saphyr::Error) -> bool {
    use serde_saphyr::Error;
    if let Error::AliasError { error, .. } = error {
        return is_too_much(error.without_snippet());
    }
    matches!(
        error,
        Error::Budget { .. }
            | Error::AliasReplayCounterOverflow { .. }
            | Error::AliasReplayLimitExceeded { .. }
            | Error::AliasExpansionLimitExceeded { .. }
            | Error::AliasReplayStackDepthExceeded { .. }
    )
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
