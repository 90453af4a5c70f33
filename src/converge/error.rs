//! Why a convergence fails, and what to do.

use std::{borrow::Cow, fmt};

use crate::{
    config::Problems,
    desired::{DesiredError, pki::PkiError},
    error::{ErrorClass, Explain, distinct},
    facts::{Unreachable, UnreachableNodes, by_cause},
    lease,
    model::{KubernetesVersion, NodeName},
    plan::{PreflightErrors, Step, TooFew, Violation},
    state::StateError,
};

/// Why a convergence failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The keys (invariant 2).
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// What must be cannot be worked out.
    #[error(transparent)]
    Desired(#[from] DesiredError),
    /// The plan is refused.
    #[error(transparent)]
    Plan(#[from] PreflightErrors),
    /// Nodes did not answer, or a step on them failed.
    #[error("{}", hosts_down(why.as_ref(), down, *changed))]
    HostsUnreachable {
        /// The nodes, and why.
        down: Vec<(NodeName, Unreachable)>,
        /// What cannot be done without them, if that is not plain.
        why: Option<TooFew>,
        /// True: the run has changed something before.
        changed: bool,
    },
    /// The config names no release, and that of the cluster is not in the catalogue.
    #[error(
        "the cluster runs Kubernetes {has}, which this release does not know, and the config names none"
    )]
    UnknownRelease {
        /// What the cluster runs.
        has: KubernetesVersion,
    },
    /// The config names no release, the cluster keeps its own, and that one cannot run what the config asks for.
    #[error(
        "the config names no `kubernetes_version`, and the cluster keeps {has}, for which {source}"
    )]
    Unfit {
        /// What the cluster runs.
        has: KubernetesVersion,
        /// What it cannot run.
        source: Problems,
    },
    /// The kubeconfig that is there cannot be read.
    #[error("cannot read the kubeconfig {place}")]
    Kubeconfig {
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another run changes the cluster, and does not end.
    #[error("another run has been changing the cluster for {minutes} minutes: {holder}")]
    Busy {
        /// Who.
        holder: String,
        /// How long it was waited for.
        minutes: u64,
    },
    /// Another run took the cluster over; no further step was begun.
    #[error("another run is changing the cluster")]
    TurnLost,
    /// The cluster that is to be removed is the one that this process runs on.
    #[error("this is the cluster that the operator itself runs on: its nodes are left as they are")]
    Home,
    /// A restore was cut off.
    #[error("a restore of {made_of} was started and is not finished")]
    Restoring {
        /// Of what.
        made_of: String,
        /// The command that goes on with it.
        command: String,
    },
    /// A step failed.
    #[error("{title} on {} failed", .step.target())]
    Step {
        /// What it was doing.
        title: String,
        /// The step.
        step: Box<Step>,
        /// Why.
        #[source]
        error: StepFailure,
        /// Why what was there before does not run again, where it was kept.
        stands: Option<String>,
    },
    /// The plan breaks an invariant: nothing was done.
    #[error("the plan was not safe and did not run: {}", violations(.0))]
    Unsafe(Vec<Violation>),
    /// Every iteration leaves something to do.
    #[error("after {iterations} iterations these steps are still needed: {}", .changing.join("; "))]
    Unsettled {
        /// How many.
        iterations: u32,
        /// The last iteration's steps, and why.
        changing: Vec<String>,
    },
}

/// Why a step failed.
#[derive(Debug)]
pub struct StepFailure(pub(super) Box<dyn Explain + Send + Sync>);

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for StepFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// The nodes that matter, each cause once.
fn mattering(why: Option<&TooFew>, down: &[(NodeName, Unreachable)]) -> Vec<UnreachableNodes> {
    let needed = |name: &NodeName| why.is_none_or(|few| few.nodes.contains(name));
    let down = down.iter().filter(|(name, _)| needed(name));
    by_cause(down.map(|(name, why)| (name, why)))
}

/// One cause on the line of what cannot be done without the nodes; several each on a line.
fn hosts_down(why: Option<&TooFew>, down: &[(NodeName, Unreachable)], changed: bool) -> String {
    let told = mattering(why, down);
    let lines = told.iter().map(|group| format!("\n  {}", group.message));
    let why = why.map(|few| nothing_is_changed(few, changed));
    match (why, told.as_slice()) {
        (None, [only]) => only.message.clone(),
        (Some(why), [only]) => format!("{why}: {}", only.message),
        (None, _) => format!("{} nodes:{}", down.len(), lines.collect::<String>()),
        (Some(why), _) => format!("{why}:{}", lines.collect::<String>()),
    }
}

fn nothing_is_changed(few: &TooFew, changed: bool) -> String {
    let nothing = if changed {
        "nothing more is changed, and what this run has done stays"
    } else {
        "nothing is changed"
    };
    format!("{nothing}: {}", few.why)
}

fn violations(violations: &[Violation]) -> String {
    violations
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

impl Error {
    /// The same of a run that has changed something before.
    pub(super) const fn after_changes(mut self) -> Self {
        if let Self::HostsUnreachable { changed, .. } = &mut self {
            *changed = true;
        }
        self
    }
}

impl Explain for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::State(error) => error.class(),
            Self::Pki(error) => error.class(),
            Self::Desired(error) => error.class(),
            Self::Plan(error) => error.class(),
            Self::HostsUnreachable { down, .. } => {
                let user = down.iter().all(|(_, down)| down.class == ErrorClass::User);
                if user {
                    ErrorClass::User
                } else {
                    ErrorClass::Host
                }
            }
            Self::UnknownRelease { .. }
            | Self::Unfit { .. }
            | Self::Home
            | Self::Restoring { .. } => ErrorClass::User,
            // A Secret that cannot be read at the moment is nobody's fault.
            Self::Kubeconfig { source, .. } if StateError::refused(source) => ErrorClass::User,
            Self::Kubeconfig { .. } | Self::Busy { .. } | Self::TurnLost => ErrorClass::Transient,
            Self::Step { error, .. } => error.0.class(),
            Self::Unsafe(_) | Self::Unsettled { .. } => ErrorClass::Bug,
        }
    }

    fn apart_from_nodes(&self) -> Option<String> {
        match self {
            Self::Plan(error) => error.apart_from_nodes(),
            Self::HostsUnreachable { why, changed, .. } => Some(why.as_ref().map_or_else(
                || "nothing is changed: no node can be used".to_owned(),
                |few| nothing_is_changed(few, *changed),
            )),
            Self::State(_)
            | Self::Pki(_)
            | Self::Desired(_)
            | Self::UnknownRelease { .. }
            | Self::Unfit { .. }
            | Self::Kubeconfig { .. }
            | Self::Busy { .. }
            | Self::TurnLost
            | Self::Home
            | Self::Restoring { .. }
            | Self::Step { .. }
            | Self::Unsafe(_)
            | Self::Unsettled { .. } => None,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::State(error) => error.hints(),
            Self::Pki(error) => error.hints(),
            Self::Desired(error) => error.hints(),
            Self::Plan(error) => error.hints(),
            Self::HostsUnreachable { down, why, .. } => {
                let told = mattering(why.as_ref(), down);
                let hints = told.into_iter().flat_map(|group| group.hints);
                distinct(hints).into_iter().map(Cow::Owned).collect()
            }
            Self::Step { error, stands, .. } => {
                let mut hints = error.0.hints();
                hints.extend(stands.clone().map(Cow::Owned));
                hints
            }
            Self::Unfit { source, .. } => source.hints(),
            Self::UnknownRelease { .. } => vec![
                "use the release of rke-operator that created the cluster, or a newer one".into(),
                "or set `kubernetes_version` in the config".into(),
            ],
            Self::Busy { .. } => vec![
                "nothing was done; run it again when the other run has finished".into(),
                format!(
                    "if that process is gone for good, release its lock: `kubectl -n kube-system delete lease {}`",
                    lease::RUN.name()
                )
                .into(),
            ],
            Self::Home => vec![
                "to remove it, run the operator on another cluster, and take this one over there"
                    .into(),
            ],
            Self::Restoring { command, .. } => vec![
                format!(
                    "to continue it: `{command}` (a `Cluster` has the `ClusterOperation` of the type `Restore`, with the same \
                     snapshot) continues from what is there"
                )
                .into(),
                "to return to the previous state: `rke-operator etcd snapshot-restore --back`"
                    .into(),
            ],
            Self::TurnLost => vec![
                "this run did not renew its Lease in time. Run the command again: it continues where this run stopped"
                    .into(),
            ],
            Self::Kubeconfig { .. } | Self::Unsafe(_) | Self::Unsettled { .. } => vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Obstacle;

    #[test]
    fn several_nodes_are_listed_one_a_line() {
        let down = |name: &str| {
            let why = Unreachable {
                alike: None,
                obstacle: Obstacle::Other,
                class: ErrorClass::Host,
                why: format!("node `{name}` is off"),
                hints: vec!["turn it on".to_owned()],
            };
            (NodeName::from(name), why)
        };
        let of = |names: &[&str], why: Option<&str>| Error::HostsUnreachable {
            down: names.iter().map(|name| down(name)).collect(),
            why: why.map(|why| TooFew {
                why: why.to_owned(),
                nodes: ["n1".into(), "n2".into()].into(),
            }),
            changed: false,
        };
        for (names, why, said) in [
            (&["n1"][..], None, "node `n1` is off"),
            (
                &["n1"],
                Some("too few"),
                "nothing is changed: too few: node `n1` is off",
            ),
            (
                &["n1", "n2"],
                None,
                "2 nodes:\n  node `n1` is off\n  node `n2` is off",
            ),
            (
                &["n1", "n2", "a-worker"],
                Some("too few"),
                "nothing is changed: too few:\n  node `n1` is off\n  node `n2` is off",
            ),
        ] {
            let error = of(names, why);
            assert_eq!(error.to_string(), said);
            assert_eq!(error.hints(), ["turn it on"], "once");
        }
        let later = of(&["n1"], Some("too few")).after_changes();
        assert_eq!(
            later.to_string(),
            "nothing more is changed, and what this run has done stays: too few: node `n1` is off"
        );
    }
}
