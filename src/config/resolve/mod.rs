//! From a well-formed document to an [`Intent`]: defaults applied, references resolved,
//! everything checked that can be checked without a node. Pure.

mod access;
mod addons;
mod cloud;
mod cluster;
mod dns;
mod encryption;
mod etcd;
mod etcd_data;
mod images;
mod ingress;
mod keys;
mod monitoring;
mod network;
mod nodes;
mod pods;
mod registries;
mod services;
mod upgrade;
mod values;
mod version;

pub use keys::has_passphrase;

use super::{
    intent::Intent,
    problem::{Problem, Problems},
    rke::RkeConfig,
    sources::Sources,
    validate,
};
use crate::catalog::Catalogue;

/// A config that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// What the user wants.
    pub intent: Intent,
    /// What the user should know all the same, in the order of the document.
    pub warnings: Vec<Problem>,
    /// What the config asks for and is not done yet: its keys are kept, and every `up` says so.
    pub later: Vec<Problem>,
}

/// Rancher keeps RKE's config below this key, with keys of its own beside it.
const WRAPPER: &str = "rancher_kubernetes_engine_config";

fn wrapped(config: &RkeConfig) -> Problem {
    config
        .root()
        .get(WRAPPER)
        .problem("this is a cluster of Rancher; RKE's own config is what stands below this key")
        .hint("move everything below it to the top level, and remove the keys beside it")
}

/// What was found on the way.
struct Found {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    later: Vec<Problem>,
}

impl Found {
    fn later(&mut self, what: Problem) {
        self.later.push(what);
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn warning(&mut self, warning: Problem) {
        self.warnings.push(warning);
    }
}

impl Intent {
    /// Validates the whole config and resolves it. `Err` carries every problem, not the first.
    pub fn from_config(config: &RkeConfig, sources: &dyn Sources) -> Result<Resolved, Problems> {
        let catalogue = Catalogue::builtin().map_err(|error| {
            Problem::new("", "the built-in catalogue is broken").detail(error.to_string())
        })?;
        if config.root().get(WRAPPER).is_written() {
            return Err(wrapped(config).into());
        }
        let validate::Validated { problems, warnings } = validate::walk(&config.root());
        let mut found = Found {
            problems,
            warnings,
            later: Vec::new(),
        };
        let intent = cluster::read(&config.root(), sources, catalogue, &mut found);
        match (intent, Problems::new(found.problems)) {
            (Some(intent), None) => {
                found.warnings.sort_by_key(Problem::position);
                Ok(Resolved {
                    intent,
                    warnings: found.warnings,
                    later: found.later,
                })
            }
            (_, Some(problems)) => Err(problems),
            // Unreachable by the readers' contract: they give `None` only with a problem.
            (None, None) => Err(Problem::new("", "the config cannot be resolved").into()),
        }
    }
}

#[cfg(test)]
mod rke_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod used_tests;
#[cfg(test)]
mod ways_tests;
