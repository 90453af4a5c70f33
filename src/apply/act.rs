//! One match over [`Action`]: the whole effect surface. What to do was decided in `plan`; an
//! `if` about the cluster does not belong here.
//!
//! Guards are evaluated on the live world just before the effect. Waits select on the stop
//! signal; effects in flight finish.

use super::{
    cluster,
    effects::{Effects, bug},
    local, node,
    step::{Act, Done, Reporter, StepError},
    stop::Stop,
};
use crate::{
    desired::FILES_IMAGE,
    host::Host,
    plan::{Action, Step, Target},
};

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
}
