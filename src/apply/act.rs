//! One match over [`Action`]: the whole effect surface. What to do was decided in `plan`; an
//! `if` about the cluster does not belong here.
//!
//! Guards are evaluated on the live world just before the effect. Waits select on the stop
//! signal; effects in flight finish.

use std::{sync::Arc, time::Duration};

use super::{
    cluster, local, node,
    run::{Act, Done, Reporter, StepError},
    stop::Stop,
};
use crate::{
    actual::Actual,
    config::NodeName,
    desired::{CLAIM, ClusterId, Desired, FILES_IMAGE, pki::EngineClient},
    error::{Blame, Explain},
    host::{Host, pool::Hosts},
    plan::{self, Action, Guard, Step, Target},
    state::Saved,
    world::World,
};

/// Carries out the steps of one plan.
pub struct Effects<'a> {
    /// Stores and settings.
    pub world: &'a World,
    /// The connections of this run.
    pub hosts: &'a Hosts<'a>,
    /// What the survey saw.
    pub actual: &'a Actual,
    /// What must be; a removal has none.
    pub desired: Option<&'a Desired>,
    /// The state that steps act under: the desired one, or for a removal the saved one.
    pub saved: Option<&'a Saved>,
    /// The revision that the survey loaded.
    pub revision: Option<&'a str>,
    /// The engine's own client certificate.
    pub engine: Option<&'a EngineClient>,
}

impl Act for Effects<'_> {
    async fn act(&self, step: &Step, reporter: &Reporter, stop: &Stop) -> Result<Done, StepError> {
        match &step.target {
            Target::Host(name) => {
                let host = self.host(name).await?;
                self.check(step.guard.as_ref(), &host).await?;
                Box::pin(self.effect(&step.action, Some(&host), reporter, stop)).await
            }
            Target::Cluster | Target::Local => {
                Box::pin(self.effect(&step.action, None, reporter, stop)).await
            }
        }
    }
}

impl Effects<'_> {
    async fn effect(
        &self,
        action: &Action,
        host: Option<&Host>,
        reporter: &Reporter,
        stop: &Stop,
    ) -> Result<Done, StepError> {
        let on = || host.ok_or_else(|| bug("this step needs a host"));
        match action {
            Action::SaveState => local::save_state(self).await,
            Action::Claim {
                cluster_id,
                cluster_name,
                before,
            } => {
                let there = self.facts(on()?)?.images.contains(FILES_IMAGE);
                node::claim(on()?, cluster_id, cluster_name, before, there).await
            }
            Action::PullImage { image } => node::pull(on()?, image, reporter, stop).await,
            Action::WriteFiles { dirs, files } => {
                node::write_files(on()?, self.desired()?, dirs, files).await
            }
            Action::RemoveFiles { paths } => node::remove_files(on()?, self.id()?, paths).await,
            Action::PrepareKernel { wants } => node::prepare_kernel(on()?, self.id()?, wants).await,
            Action::ConfigureContainerd { wants, digest: _ } => {
                let dump = &self.facts(on()?)?.system.containerd.dump;
                node::configure_containerd(on()?, self.id()?, dump, wants, reporter, stop).await
            }
            Action::ImportPause { image } => node::import_pause(on()?, self.id()?, image).await,
            Action::RunContainer { name, spec } => {
                node::run_container(on()?, name, spec, self.saved()?).await
            }
            Action::StartContainer { name } => node::start_container(on()?, name).await,
            Action::ReplaceContainer { name, spec } => {
                node::remove_container(on()?, name).await?;
                node::run_container(on()?, name, spec, self.saved()?).await
            }
            Action::RemoveContainer { name } => node::remove_container(on()?, name).await,
            Action::AwaitHealthy { component } => {
                node::await_healthy(self, on()?, *component, reporter, stop).await
            }
            Action::ApplyAddon { addon, objects } => {
                cluster::apply_addon(self, addon, objects).await
            }
            Action::PruneObjects { objects } => cluster::prune(self, objects).await,
            Action::SetNodeMeta { meta } => {
                cluster::set_node_meta(self, &on()?.name, meta, reporter, stop).await
            }
            Action::AwaitNodeReady { node } => {
                cluster::await_node_ready(self, node, reporter, stop).await
            }
            Action::AwaitAddon { addon } => cluster::await_addon(self, addon, reporter, stop).await,
            Action::SaveStateCopy => cluster::save_state_copy(self).await,
            Action::WriteKubeconfig => local::write_kubeconfig(self).await,
            Action::CleanHost { before } => node::clean(on()?, self.id()?, before).await,
            Action::RestoreContainerd => {
                node::restore_containerd(on()?, self.id()?, reporter, stop).await
            }
            Action::RemoveImages { images } => node::remove_images(on()?, images).await,
            Action::ReleaseClaim => node::release_claim(on()?, self.id()?).await,
            Action::RemoveKubeconfig => local::remove_kubeconfig(self).await,
            Action::DeleteState => local::delete_state(self).await,
        }
    }

    /// The connection to a node.
    pub(super) async fn host(&self, name: &NodeName) -> Result<Arc<Host>, StepError> {
        self.hosts
            .get(name)
            .await
            .map_err(|down| failed(ActError::Down(down)))
    }

    async fn check(&self, wanted: Option<&Guard>, host: &Host) -> Result<(), StepError> {
        let Some(wanted) = wanted else { return Ok(()) };
        let claim = host.container(CLAIM).await.map_err(failed)?;
        plan::holds(wanted, claim.as_ref()).map_err(StepError::Guard)
    }

    /// What must be.
    pub(super) fn desired(&self) -> Result<&Desired, StepError> {
        self.desired
            .ok_or_else(|| bug("this step needs a desired world"))
    }

    /// The state that steps act under.
    pub(super) fn saved(&self) -> Result<&Saved, StepError> {
        self.saved.ok_or_else(|| bug("this step needs a state"))
    }

    /// The engine's own certificate.
    pub(super) fn engine(&self) -> Result<&EngineClient, StepError> {
        self.engine
            .ok_or_else(|| bug("this step needs the engine's certificate"))
    }

    fn id(&self) -> Result<&ClusterId, StepError> {
        self.saved().map(|saved| &saved.cluster_id)
    }

    fn facts(&self, host: &Host) -> Result<&crate::actual::HostFacts, StepError> {
        self.actual
            .up(&host.name)
            .ok_or_else(|| bug("this step needs the host's facts"))
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

/// A plan that its effects cannot serve: ours.
pub(super) fn bug(what: &'static str) -> StepError {
    failed(ActError::Bug(what))
}

/// Errors of effects that no layer below names.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// The node cannot be reached any more.
    #[error("{}", .0.why)]
    Down(crate::actual::Down),
    /// Something on the node did not do what it was told.
    #[error("{message}")]
    Node {
        /// What, with the node's name.
        message: String,
        /// Cures.
        hints: Vec<String>,
        /// Whose turn it is.
        blame: Blame,
    },
    /// The kubeconfig.
    #[error("cannot write the kubeconfig {place}")]
    Kubeconfig {
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Ours.
    #[error("{0}")]
    Bug(&'static str),
}

impl Explain for ActError {
    fn blame(&self) -> Blame {
        match self {
            Self::Down(down) => down.blame,
            Self::Node { blame, .. } => *blame,
            Self::Kubeconfig { .. } => Blame::User,
            Self::Bug(_) => Blame::Bug,
        }
    }

    fn hints(&self) -> Vec<std::borrow::Cow<'static, str>> {
        match self {
            Self::Down(down) => down.hints.iter().cloned().map(Into::into).collect(),
            Self::Node { hints, .. } => hints.iter().cloned().map(Into::into).collect(),
            Self::Kubeconfig { .. } | Self::Bug(_) => vec![],
        }
    }
}
