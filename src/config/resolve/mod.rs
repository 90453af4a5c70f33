//! From a well-formed document to an [`Intent`]: defaults applied, references resolved,
//! everything checked that can be checked without a node. Pure.

mod cluster;
mod images;
mod keys;
mod nodes;
mod services;
mod values;
mod version;

use super::{
    intent::Intent,
    judge,
    problem::{Problem, Problems},
    rke::RkeConfig,
    sources::Sources,
};
use crate::desired::images::Catalogue;

/// A config that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// What the user wants.
    pub intent: Intent,
    /// What the user should know all the same, in the order of the document.
    pub warnings: Vec<Problem>,
}

/// What was found on the way.
#[derive(Default)]
struct Found {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Found {
    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn warning(&mut self, warning: Problem) {
        self.warnings.push(warning);
    }
}

impl Intent {
    /// Judges the whole config and resolves it. `Err` carries every problem, not the first.
    pub fn from_config(config: &RkeConfig, sources: &dyn Sources) -> Result<Resolved, Problems> {
        let catalogue = Catalogue::builtin().map_err(|error| {
            Problem::new("", "the built-in catalogue is broken").detail(error.to_string())
        })?;
        let mut found = Found::default();
        judge::walk(&config.root(), &mut found.problems);
        let intent = cluster::read(&config.root(), sources, &catalogue, &mut found);
        match (intent, Problems::new(found.problems)) {
            (Some(intent), None) => {
                found.warnings.sort_by_key(Problem::position);
                Ok(Resolved {
                    intent,
                    warnings: found.warnings,
                })
            }
            (_, Some(problems)) => Err(problems),
            // Unreachable by the readers' contract: they give `None` only with a problem.
            (None, None) => Err(Problem::new("", "the config cannot be resolved").into()),
        }
    }
}

#[cfg(test)]
mod tests;
