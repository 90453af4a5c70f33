//! One field that differs. Pure.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One field that differs. Values of files are keyed digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldChange {
    /// Which: `image`, `command --v`, `file /etc/hosts`.
    #[schemars(with = "String")]
    pub field: Field,
    /// The former value; none if there was none.
    pub from: Option<String>,
    /// The new value; none if it is removed. What cannot be known before is `known after …`.
    pub to: Option<String>,
}

/// What a field is of. Written as a person reads it: `image`, `command --v`, `file /etc/hosts`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Field {
    /// A container's image.
    Image,
    /// Its program and what comes before the flags.
    Entrypoint,
    /// One of its flags, with its dashes, or a word by its place.
    Flag(String),
    /// A variable of its environment, by name.
    Env(String),
    /// A bind, by its target.
    Bind(String),
    /// A mount whose source must be there, by its target.
    Mount(String),
    /// A file, by its path: of a container one that it reads, else one of a node.
    File(String),
    /// A directory of a node, by its path.
    Directory(String),
    /// Anything else, in words.
    Other(String),
}

/// The words before a name.
type Named = (&'static str, fn(String) -> Field);

/// Those fields of which there are several.
const NAMED: [Named; 6] = [
    ("command", Field::Flag),
    ("env", Field::Env),
    ("bind", Field::Bind),
    ("mount", Field::Mount),
    ("file", Field::File),
    ("directory", Field::Directory),
];

impl Field {
    /// The path, of what has one.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::File(path) | Self::Directory(path) => Some(path),
            Self::Image
            | Self::Entrypoint
            | Self::Flag(_)
            | Self::Env(_)
            | Self::Bind(_)
            | Self::Mount(_)
            | Self::Other(_) => None,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image => f.write_str("image"),
            Self::Entrypoint => f.write_str("entrypoint"),
            Self::Flag(name) => write!(f, "command {name}"),
            Self::Env(name) => write!(f, "env {name}"),
            Self::Bind(target) => write!(f, "bind {target}"),
            Self::Mount(target) => write!(f, "mount {target}"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Directory(path) => write!(f, "directory {path}"),
            Self::Other(words) => f.write_str(words),
        }
    }
}

impl From<Field> for String {
    fn from(field: Field) -> Self {
        field.to_string()
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        let named = NAMED.into_iter().find_map(|(what, field)| {
            let name = text.strip_prefix(what)?.strip_prefix(' ')?;
            Some(field(name.to_owned()))
        });
        match (named, text.as_str()) {
            (Some(field), _) => field,
            (None, "image") => Self::Image,
            (None, "entrypoint") => Self::Entrypoint,
            (None, _) => Self::Other(text),
        }
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_as_it_is_written() {
        let named = NAMED.map(|(_, field)| field("a b".to_owned()));
        let others = [
            Field::Image,
            Field::Entrypoint,
            Field::Other("log limit".to_owned()),
        ];
        for field in named.into_iter().chain(others) {
            assert_eq!(Field::from(field.to_string()), field);
        }
    }
}
