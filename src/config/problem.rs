//! What is wrong with a config: all of it at once, each with its path and line.
//!
//! A problem's `message` and `hint` never carry a value and may go into a status condition or an
//! event; `detail` may carry one and is for the terminal of the person who wrote the file.

use std::{borrow::Cow, fmt, ops::Range};

use crate::{
    error::{ErrorClass, Explain, distinct},
    model::printable,
};

/// Where something stands in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// In bytes.
    pub span: Range<usize>,
}

/// One thing that is wrong, or worth a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `nodes[0].port`; empty for the whole document.
    pub path: String,
    /// `None` when the config is an object and has no lines.
    pub place: Option<Place>,
    /// What is wrong, without any value: safe for status and events.
    pub message: String,
    /// The value, or what the system said about it: for terminals only.
    pub detail: Option<String>,
    /// The cure, without any value of the config.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem without place, detail and hint.
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            place: None,
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    /// Adds the value: seen on terminals only.
    #[must_use]
    pub(crate) fn detail(self, detail: impl Into<String>) -> Self {
        Self {
            detail: Some(detail.into()),
            ..self
        }
    }

    /// Adds the cure.
    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// For sorting: what has no place comes first.
    pub(crate) fn position(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.span.start)
    }

    /// The line, from 1.
    pub fn line(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.line)
    }
}

/// Path, line and message; no value.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.path.as_str(), self.line()) {
            ("", None) => {}
            ("", Some(line)) => write!(f, "line {line}: ")?,
            (path, None) => write!(f, "`{path}`: ")?,
            (path, Some(line)) => write!(f, "`{path}` (line {line}): ")?,
        }
        f.write_str(&printable(&self.message))
    }
}

/// Everything that is wrong with a config: at least one problem, in the order of the document.
///
/// `Display` is one line without values; [`Problems::render`] is for the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// `None` when nothing is wrong.
    pub(crate) fn new(mut found: Vec<Problem>) -> Option<Self> {
        found.sort_by_key(Problem::position);
        found.dedup();
        (!found.is_empty()).then_some(Self(found))
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => write!(f, "the config is not valid: {only}"),
            several => {
                write!(f, "the config has {} problems: ", several.len())?;
                for (index, problem) in several.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}{problem}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Problems {}

impl Explain for Problems {
    fn class(&self) -> ErrorClass {
        ErrorClass::User
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let hints = distinct(self.0.iter().filter_map(|problem| problem.hint.as_ref()));
        hints.into_iter().cloned().map(Cow::Owned).collect()
    }
}
