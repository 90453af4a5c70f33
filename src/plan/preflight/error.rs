//! Why there is no plan: everything that prevents it, at once. Pure.

use std::borrow::Cow;

use crate::{
    error::{ErrorClass, Explain},
    model::NodeName,
};

/// One thing that prevents `up`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreflightError {
    /// On which node, if on one.
    pub node: Option<NodeName>,
    /// What, naming the node and whoever owns what is in the way.
    pub message: String,
    /// The cures, most likely first.
    pub hints: Vec<String>,
    /// Who has to act.
    pub class: ErrorClass,
}

impl PreflightError {
    /// Something about a node that its owner must settle.
    pub(in crate::plan) fn host(
        node: &NodeName,
        message: String,
        hints: impl Into<Vec<String>>,
    ) -> Self {
        Self {
            node: Some(node.clone()),
            message,
            hints: hints.into(),
            class: ErrorClass::Host,
        }
    }
}

/// There is no plan. Never empty; nothing was changed anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreflightErrors {
    /// All of them, by node.
    pub errors: Vec<PreflightError>,
    /// Whether the config asks for another value of what a cluster keeps for good: a range, the domain, the plugin.
    pub immutable: bool,
}

impl PreflightErrors {
    /// An error, if anything prevents `up`.
    pub(in crate::plan) fn unless_empty(errors: Vec<PreflightError>) -> Result<(), Self> {
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Self {
                errors,
                immutable: false,
            })
        }
    }
}

impl std::fmt::Display for PreflightErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let [only] = self.errors.as_slice() {
            return f.write_str(&only.message);
        }
        write!(f, "preflight found {} problems:", self.errors.len())?;
        for error in &self.errors {
            write!(f, "\n  {}", error.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for PreflightErrors {}

impl Explain for PreflightErrors {
    fn class(&self) -> ErrorClass {
        let classes = self.errors.iter().map(|error| error.class);
        ErrorClass::first(classes).unwrap_or(ErrorClass::Transient)
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let mut hints: Vec<Cow<'static, str>> = Vec::new();
        for hint in self.errors.iter().flat_map(|error| &error.hints) {
            if !hints.iter().any(|known| known == hint) {
                hints.push(Cow::Owned(hint.clone()));
            }
        }
        hints
    }
}
