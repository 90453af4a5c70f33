//! What every effect works with: the run's connections and stores, what the survey saw and what
//! must be; and how an effect waits and fails.

use std::{borrow::Cow, collections::BTreeMap, io, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};

use super::{
    cluster,
    remote::Context,
    shared::Shared,
    step::{Reporter, StepError},
    stop::Stop,
};
use crate::{
    error::{ErrorClass, Explain},
    facts::{HostFacts, HostView, NodeFact, Unreachable},
    host::{
        Host, HostError,
        pool::{Hosts, NotOpen},
    },
    model::{Component, NodeName},
    plan,
    plan::{Guard, Live, Look},
    state::StateError,
    survey::{members, read},
    workload::{Apis, Kinds},
};

/// A run's connections, and what its steps are carried out with; `act.rs` does it.
pub struct Executor<'a> {
    /// The connections of this run.
    pub hosts: &'a Hosts,
    /// The cluster's API servers, through these.
    pub apis: &'a Apis,
    /// Everything else.
    pub context: Context<'a>,
    /// The kinds that the cluster's API has, as far as this run has asked.
    pub kinds: &'a Kinds,
    /// The Node objects, for all steps that ask at the same time.
    pub(super) nodes: &'a Shared<Option<Arc<BTreeMap<NodeName, NodeFact>>>>,
}

impl Executor<'_> {
    /// The connection to a node.
    pub(super) async fn host(&self, name: &NodeName) -> Result<Arc<Host>, StepError> {
        opened(self.hosts, name).await
    }

    /// Evaluates the guards of a step on the live world: everything that they need is read now.
    pub(super) async fn check(&self, guards: &[Guard]) -> Result<(), StepError> {
        let mut looks: Vec<Look<'_>> = Vec::new();
        for guard in guards {
            if !looks.contains(&guard.look()) {
                looks.push(guard.look());
            }
        }
        // All at once, each once: the oldest answer is one look old when the step acts.
        let asked: Vec<BoxFuture<'_, Result<Live, StepError>>> =
            looks.iter().map(|look| self.look(*look).boxed()).collect();
        let mut answers = join_all(asked).await;
        let mut seen: Vec<(Look<'_>, Live)> = Vec::new();
        for guard in guards {
            let look = guard.look();
            // In the order of the guards: what the first says counts.
            if let Some(place) = looks.iter().position(|other| *other == look) {
                looks.swap_remove(place);
                seen.push((look, answers.swap_remove(place)?));
            }
            let live = seen.iter().find(|(other, _)| *other == look);
            let live = live
                .map(|(_, live)| live)
                .ok_or_else(|| bug("a guard without a look"))?;
            plan::holds(guard, live).map_err(StepError::Guard)?;
        }
        Ok(())
    }

    async fn look(&self, look: Look<'_>) -> Result<Live, StepError> {
        let mut live = Live::default();
        match look {
            Look::Container(node, name) => {
                let host = self.host(node).await?;
                live.container = host.container(name).await.map_err(failed)?;
            }
            Look::Etcd => {
                let (saved, views) = (self.context.saved()?, &self.context.actual.hosts);
                let engine = &self.context.engines()?.etcd;
                // One may have joined in this run.
                let desired = self.context.desired;
                let new = desired.map(|desired| desired.with(Component::Etcd).cloned().collect());
                let new = new.unwrap_or_default();
                live.etcd = Box::pin(members::etcd(self.hosts, saved, engine, views, &new)).await;
            }
            Look::Apis => {
                let views = &self.context.actual.hosts;
                // The guard asks whether it serves new connections, not whether the open ones work.
                live.apis = read::apis(
                    self.hosts,
                    &self.apis.as_a_stranger(),
                    self.context.saved()?,
                    self.context.engine()?,
                    views,
                )
                .await;
            }
            Look::Versions => {
                let views = &self.context.actual.hosts;
                let (saved, engine) = (self.context.saved()?, self.context.engine()?);
                live.versions =
                    read::api_versions(self.hosts, self.apis, saved, engine, views).await;
            }
            Look::Nodes => live.nodes = self.nodes.read(|| cluster::nodes(self)).await,
            Look::Object(object) => live.object = cluster::object(self, object).await?,
        }
        Ok(live)
    }

    /// The id of the container that the survey saw under a name: only that one is removed, and not
    /// another that has its name by now. The name itself, if the survey saw no container of that name.
    pub(super) fn seen<'a>(&'a self, host: &Host, name: &'a str) -> Result<&'a str, StepError> {
        let fact = self.facts(host)?.containers.get(name);
        Ok(fact.map_or(name, |fact| fact.id.as_str()))
    }

    /// What the survey saw of a node. A node that it did not see is surveyed first.
    pub(super) fn facts(&self, host: &Host) -> Result<&HostFacts, StepError> {
        match self.context.actual.hosts.get(&host.name) {
            Some(HostView::Reachable(facts)) => Ok(facts),
            Some(HostView::Unreachable(down)) => {
                Err(failed(ExecutorError::Unreachable(down.clone())))
            }
            None => Err(StepError::Guard(format!(
                "node `{}` was not looked at",
                host.name
            ))),
        }
    }
}

/// Asks `probe` until it has an answer or the stop signal is given; the scheduler's bound ends
/// it otherwise. The inner error says what it waits for, and is reported.
pub(super) async fn until<T, F>(
    what: &str,
    every: Duration,
    reporter: &Reporter,
    stop: &Stop,
    mut probe: impl FnMut(u64) -> F,
) -> Result<T, StepError>
where
    F: Future<Output = Result<Result<T, String>, StepError>>,
{
    let mut tries = 0;
    loop {
        let waiting_for = match probe(tries).await? {
            Ok(answer) => return Ok(answer),
            Err(waiting_for) => waiting_for,
        };
        tries += 1;
        reporter.waiting(format!("{what}: {waiting_for}"), tries);
        tokio::select! {
            _ = stop.stopped() => return Err(StepError::Stopped),
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// An error of an effect as the scheduler takes it.
pub(super) fn failed(error: impl Explain + Send + Sync + 'static) -> StepError {
    StepError::Failed(Box::new(error))
}

/// The connection to a node.
pub(super) async fn opened(hosts: &Hosts, name: &NodeName) -> Result<Arc<Host>, StepError> {
    match hosts.open(name).await {
        Ok(host) => Ok(host),
        Err(NotOpen::Host(error)) => Err(failed(error)),
        Err(NotOpen::Target(down)) => Err(failed(ExecutorError::Unreachable(down))),
    }
}

/// A plan that its effects cannot serve: ours.
pub(super) fn bug(what: &'static str) -> StepError {
    failed(ExecutorError::Bug(what))
}

/// Errors of effects that no layer below names.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The node cannot be reached any more.
    #[error("{}", .0.why)]
    Unreachable(Unreachable),
    /// An operation on the node failed.
    #[error("{message}")]
    Node {
        /// What, with the node's name.
        message: String,
        /// Cures.
        hints: Vec<String>,
        /// Who has to act.
        class: ErrorClass,
    },
    /// An image that charts are rendered with cannot be had.
    #[error("image `{image}` cannot be had, {what}")]
    ChartImage {
        /// Reference.
        image: String,
        /// What it is for.
        what: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
        /// Cures.
        hints: Vec<Cow<'static, str>>,
        /// Who has to act.
        class: ErrorClass,
    },
    /// Docker does not start etcd.
    #[error("etcd does not start")]
    Etcd {
        /// What Docker said.
        #[source]
        source: HostError,
        /// A look at the node found no data of etcd.
        without_data: bool,
    },
    /// The kubeconfig.
    #[error("cannot write the kubeconfig {place}")]
    Kubeconfig {
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Ours.
    #[error("{0}")]
    Bug(&'static str),
}

impl Explain for ExecutorError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable(down) => down.class,
            Self::Node { class, .. } | Self::ChartImage { class, .. } => *class,
            Self::Etcd { source, .. } => source.class(),
            Self::Kubeconfig { source, .. } if StateError::refused(source) => ErrorClass::User,
            Self::Kubeconfig { .. } => ErrorClass::Transient,
            Self::Bug(_) => ErrorClass::Bug,
        }
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        match self {
            Self::Unreachable(down) => down.hints.iter().cloned().map(Into::into).collect(),
            Self::Node { hints, .. } => hints.iter().cloned().map(Into::into).collect(),
            Self::ChartImage { hints, .. } => hints.clone(),
            Self::Etcd {
                source,
                without_data,
            } => {
                let mut hints = source.hints();
                if *without_data {
                    hints.push(
                        "there is no data of etcd in /var/lib/etcd on this node: check whether its \
                         disk is mounted"
                            .into(),
                    );
                    hints.push(
                        "only if the data is lost and other etcd members are healthy: take the node \
                         out of the config, run `up`, and add it again; it joins as a new member"
                            .into(),
                    );
                }
                hints
            }
            Self::Kubeconfig { .. } | Self::Bug(_) => vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Obstacle;

    /// The hints are those of the error on the node, or of the node that could not be reached.
    #[test]
    fn an_error_brings_its_cures() {
        let cures = || vec!["load the module".to_owned()];
        let node = ExecutorError::Node {
            message: "node `n1`: the kernel cannot be prepared".to_owned(),
            hints: cures(),
            class: ErrorClass::Host,
        };
        let away = ExecutorError::Unreachable(Unreachable {
            alike: None,
            obstacle: Obstacle::Other,
            class: ErrorClass::Host,
            why: "it is off".to_owned(),
            hints: cures(),
        });
        for error in [node, away] {
            assert_eq!(error.hints(), cures());
        }
        assert_eq!(ExecutorError::Bug("ours").hints(), [""; 0]);
    }
}
