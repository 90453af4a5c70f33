//! From a well-formed document to an [`Intent`]: defaults applied, references resolved,
//! everything checked that can be checked without a node. Pure.

mod access;
mod addons;
mod addresses;
mod backup;
mod bucket;
mod cloud;
mod cluster;
mod dns;
mod encryption;
mod etcd;
mod etcd_data;
mod fits;
mod images;
mod ingress;
mod keys;
mod monitoring;
mod network;
mod nodes;
mod pods;
mod portable;
mod rancher;
mod ranges;
mod registries;
mod roles;
mod services;

mod upgrade;
mod values;
mod version;

pub use bucket::BucketWords;
pub use portable::{means_the_same, portable};
pub(crate) use values::is_host;

use super::{
    cursor::Cursor,
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
}

/// Rancher keeps RKE's config below this key, next to Rancher's own keys.
const WRAPPER: &str = "rancher_kubernetes_engine_config";

/// What is wrong with it, and with what stands below it, all at once.
fn wrapped(config: &RkeConfig, sources: &dyn Sources, catalogue: &Catalogue) -> Vec<Problem> {
    let root = config.root();
    let at = root.get(WRAPPER);
    let mut problems = vec![
        at.problem("this is a cluster of Rancher; RKE's own config is what stands below this key")
            .hint("move everything below it to the top level, and remove the keys next to it"),
    ];
    let Some(inner) = at.node() else {
        return problems;
    };
    let (inner, spelled) = rancher::as_rke(inner);
    problems.extend(spelled);
    let root = Cursor::document(&inner);
    let mut found = Found::walked(&root);
    cluster::read(&root, sources, catalogue, &mut found);
    for problem in &mut found.problems {
        if problem.path == "nodes" && problem.place.is_none() {
            problem.hint = Some(
                "what Rancher exports has no nodes: add each with its `address` and `role`"
                    .to_owned(),
            );
        }
    }
    problems.append(&mut found.problems);
    problems
}

/// A file of another program, or one of the operator's own objects: one problem instead of one for each key.
fn kind_of_object(root: &Cursor<'_>) -> Option<Problem> {
    let text = |key: &str| root.get(key).scalar().map(str::to_owned);
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let group = api_version.split('/').next().unwrap_or_default();
    let at = root.get("kind");
    Some(if group == OWN_GROUP && kind == "Cluster" {
        at.problem("this is a `Cluster` object, which the operator reads")
            .hint("`kubectl apply -f FILE`; the command line takes what stands below `spec.config`")
    } else if group == OWN_GROUP {
        at.problem("this is an object of the operator's")
            .hint("`kubectl apply -f FILE`")
    } else {
        let whose = match group {
            "k0sctl.k0sproject.io" => "this is a file of k0sctl",
            "kubeadm.k8s.io" => "this is a file of kubeadm",
            "cluster.x-k8s.io" | "controlplane.cluster.x-k8s.io" => {
                "this is an object of the Cluster API"
            }
            "provisioning.cattle.io" | "management.cattle.io" => "this is an object of Rancher",
            "kubeone.k8c.io" | "kubeone.io" => "this is a file of KubeOne",
            "kubekey.kubesphere.io" => "this is a file of KubeKey",
            _ => "this is an object of Kubernetes",
        };
        at.problem(format!("{whose}, not a `cluster.yml` of RKE"))
            .hint("`rke-operator config` writes a `cluster.yml` to begin with")
    })
}

const OWN_GROUP: &str = "clusterprovisioner.rke.io";

/// What was found on the way.
#[derive(Default)]
struct Found {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Found {
    /// What the schema says about it.
    fn walked(root: &Cursor<'_>) -> Self {
        let validate::Validated { problems, warnings } = validate::walk(root);
        Self { problems, warnings }
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn warning(&mut self, warning: Problem) {
        self.warnings.push(warning);
    }
}

impl Intent {
    /// What its release cannot run of it: for one that was validated for another release.
    pub fn unfit(&self) -> Option<Problems> {
        Problems::new(fits::of_intent(self))
    }

    /// Validates the whole config and resolves it. `Err` carries every problem, not the first.
    pub fn from_config(config: &RkeConfig, sources: &dyn Sources) -> Result<Resolved, Problems> {
        let catalogue = Catalogue::builtin().map_err(|error| {
            Problem::new("", "the built-in catalogue is broken").detail(error.to_string())
        })?;
        if config.root().get(WRAPPER).is_written() {
            let problems = Problems::new(wrapped(config, sources, catalogue));
            return Err(problems.unwrap_or_else(|| Problem::new("", "the config is empty").into()));
        }
        if let Some(problem) = kind_of_object(&config.root()) {
            return Err(problem.into());
        }
        let mut found = Found::walked(&config.root());
        let intent = cluster::read(&config.root(), sources, catalogue, &mut found);
        validate::without_echoes(&mut found.problems);
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
mod node_tests;
#[cfg(test)]
mod rke_tests;
#[cfg(test)]
mod ssh_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod used_tests;
#[cfg(test)]
mod ways_tests;
