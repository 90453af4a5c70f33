//! Why there is no plan: everything that stands in the way, at once. Pure.

use std::borrow::Cow;

use crate::{
    config::NodeName,
    error::{Blame, Explain},
};

/// One thing that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// On which node, if on one.
    pub node: Option<NodeName>,
    /// What, naming the node and whoever owns what is in the way.
    pub message: String,
    /// The cures, most likely first.
    pub hints: Vec<String>,
    /// Whose turn it is.
    pub blame: Blame,
}

impl Refusal {
    /// Something about a node that its owner must settle.
    pub(super) fn host<const N: usize>(
        node: &NodeName,
        message: String,
        hints: [String; N],
    ) -> Self {
        Self {
            node: Some(node.clone()),
            message,
            hints: hints.into(),
            blame: Blame::Host,
        }
    }
}

/// There is no plan. Never empty; nothing was changed anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// All of them, by node.
    pub refusals: Vec<Refusal>,
}

impl PlanError {
    /// An error, if anything stands in the way.
    pub(super) fn unless_empty(refusals: Vec<Refusal>) -> Result<(), Self> {
        if refusals.is_empty() {
            Ok(())
        } else {
            Err(Self { refusals })
        }
    }
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let [only] = self.refusals.as_slice() {
            return f.write_str(&only.message);
        }
        write!(f, "{} things stand in the way:", self.refusals.len())?;
        for refusal in &self.refusals {
            write!(f, "\n  {}", refusal.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for PlanError {}

impl Explain for PlanError {
    /// A person's turn comes first, then the nodes', then what passes by itself.
    fn blame(&self) -> Blame {
        let any = |blame| self.refusals.iter().any(|refusal| refusal.blame == blame);
        [Blame::Bug, Blame::User, Blame::Host]
            .into_iter()
            .find(|blame| any(*blame))
            .unwrap_or(Blame::Transient)
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        let mut hints: Vec<Cow<'static, str>> = Vec::new();
        for hint in self.refusals.iter().flat_map(|refusal| &refusal.hints) {
            if !hints.iter().any(|known| known == hint) {
                hints.push(Cow::Owned(hint.clone()));
            }
        }
        hints
    }
}
