//! A `cluster.yml` that is well-formed: what RKE's own file format says, not yet what it means.

use super::{
    cursor::Cursor,
    problem::{Problem, Problems},
    secrets,
    tree::{Node, Value},
};

/// The longest config that is read. An object of the operator's cannot be larger either, and the
/// longest file of a thousand nodes is a quarter of it.
pub const MAX_BYTES: usize = 1024 * 1024;

/// A well-formed config document. [`super::Intent::from_config`] validates what is in it.
///
/// There is no `Debug` that prints it: it may hold keys and passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct RkeConfig {
    root: Node,
}

impl RkeConfig {
    /// Reads a `cluster.yml`. Fails only when the text is not YAML, not a mapping, or larger than
    /// [`MAX_BYTES`]; everything else is reported together by [`super::Intent::from_config`].
    pub fn parse(yaml: &str) -> Result<Self, Problems> {
        if yaml.len() > MAX_BYTES {
            return Err(Problem::new("", "the config is larger than 1 MiB").into());
        }
        Self::of(Node::from_yaml(yaml)?)
    }

    /// Reads the `config` object of a `Cluster`. Its problems have paths and no lines.
    pub fn from_json(json: &serde_json::Value) -> Result<Self, Problems> {
        Self::of(Node::from_json(json))
    }

    /// The document as JSON, of equal keys the last.
    pub fn to_json(&self) -> serde_json::Value {
        self.root.to_json()
    }

    /// True for a document, read from a text, with a value that must not be shown: one that is secret by its key, and any
    /// below a key that is not known.
    pub fn holds_secrets(&self) -> bool {
        !secrets::spans(&self.root).is_empty()
    }

    fn of(root: Node) -> Result<Self, Problems> {
        let problem = match &root.value {
            Value::Map(_) => return Ok(Self { root }),
            Value::Null => Cursor::root(&root)
                .problem("the config is empty")
                .hint("it needs at least `nodes`, with an address, a user and roles for each node"),
            other @ (Value::Scalar(_) | Value::List(_)) => Cursor::root(&root).problem(format!(
                "the config is {}, not a mapping of keys",
                other.kind()
            )),
        };
        Err(problem.into())
    }

    pub(super) fn root(&self) -> Cursor<'_> {
        Cursor::document(&self.root)
    }
}

impl std::fmt::Debug for RkeConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RkeConfig(…)")
    }
}
