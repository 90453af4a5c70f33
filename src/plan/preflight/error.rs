//! Why there is no plan: everything that prevents it, at once. Pure.

use std::borrow::Cow;

use crate::{
    error::{ErrorClass, Explain, distinct},
    facts::UnreachableNodes,
    model::NodeName,
};

/// One thing that prevents `up`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreflightError {
    /// On which node, if on one.
    pub node: Option<NodeName>,
    /// What, naming the node and the owner of what prevents the run.
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
    /// Why nodes do not answer without which nothing can be done; the last of the errors says so.
    pub down: Vec<UnreachableNodes>,
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
                down: Vec::new(),
            })
        }
    }
}

impl std::fmt::Display for PreflightErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let indent = if let [only] = self.errors.as_slice() {
            f.write_str(&only.message)?;
            "  "
        } else {
            write!(f, "preflight found {} problems:", self.errors.len())?;
            for error in &self.errors {
                write!(f, "\n  {}", error.message)?;
            }
            "    "
        };
        if let ([_], [only]) = (self.errors.as_slice(), self.down.as_slice()) {
            return write!(f, ": {}", only.named());
        }
        for (index, group) in self.down.iter().enumerate() {
            let colon = if index == 0 { ":" } else { "" };
            write!(f, "{colon}\n{indent}{}", group.named())?;
        }
        Ok(())
    }
}

impl std::error::Error for PreflightErrors {}

impl Explain for PreflightErrors {
    fn class(&self) -> ErrorClass {
        let classes = self.errors.iter().map(|error| error.class);
        let classes = classes.chain(self.down.iter().map(|group| group.class));
        ErrorClass::first(classes).unwrap_or(ErrorClass::Transient)
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let hints = self.errors.iter().flat_map(|error| &error.hints);
        let hints = hints.chain(self.down.iter().flat_map(|group| &group.hints));
        let hints = distinct(hints).into_iter();
        hints.cloned().map(Cow::Owned).collect()
    }

    fn apart_from_nodes(&self) -> Option<String> {
        let errors = self.errors.iter().map(|error| error.message.as_str());
        (!self.down.is_empty()).then(|| errors.collect::<Vec<_>>().join("\n"))
    }
}
