//! One match over each kind of [`Action`](crate::plan::Action): the whole effect surface. What to do
//! was decided in `plan`; an `if` about the cluster does not belong here.
//!
//! Guards are evaluated on the live world just before the effect. Waits select on the stop
//! signal; effects in flight finish.

use super::{
    chart, cluster,
    executor::{Executor, bug},
    last_snapshot::Recorded,
    local, node,
    remote::{Context, RemoteAction, RemoteSession, RemoteStep},
    restore, retry,
    step::{Act, Done, Reporter, StepError},
    stop::Stop,
};
use crate::{
    host::Host,
    plan::{ClusterAction, HostAction, LocalAction, Step},
};

/// The steps of one run: what we keep ourselves is written here, everything else remotely.
pub struct Steps<'a> {
    /// The connections of this run.
    pub session: &'a dyn RemoteSession,
    /// Everything else.
    pub context: Context<'a>,
}

impl Act for Steps<'_> {
    async fn act(&self, step: &Step, reporter: &Reporter, stop: &Stop) -> Result<Done, StepError> {
        match RemoteStep::of(step) {
            Ok(step) => {
                let recorded = Recorded::begin(self.context, step.action).await?;
                let ended = self.session.act(step, self.context, reporter, stop).await;
                match recorded {
                    Some(recorded) => recorded.end(ended).await,
                    None => ended,
                }
            }
            Err(_) if !step.guards.is_empty() => Err(bug("a step where we run has no guards")),
            // What we keep ourselves is not shared by chance: a conflict is a conflict.
            Err(action) => locally(&self.context, action).await,
        }
    }
}

async fn locally(context: &Context<'_>, action: LocalAction) -> Result<Done, StepError> {
    match action {
        LocalAction::SaveState => local::save_state(context).await,
        LocalAction::WriteKubeconfig => local::write_kubeconfig(context).await,
        LocalAction::RemoveKubeconfig => local::remove_kubeconfig(context).await,
        LocalAction::DeleteState => local::delete_state(context).await,
    }
}

impl Executor<'_> {
    /// Runs one step on a node or in the cluster; repeats it after a failure that may be temporary.
    pub(super) async fn remotely(
        &self,
        RemoteStep { step, action }: RemoteStep<'_>,
        reporter: &Reporter,
        stop: &Stop,
    ) -> Result<Done, StepError> {
        let attempt = || {
            Box::pin(async move {
                self.check(&step.guards).await?;
                match action {
                    RemoteAction::Host(node, action) => {
                        let host = self.host(node).await?;
                        self.on_host(action, &host, reporter, stop).await
                    }
                    RemoteAction::Cluster(action) => self.in_cluster(action, reporter, stop).await,
                }
            })
        };
        let done = Box::pin(retry::again(reporter, stop, attempt)).await;
        match action {
            RemoteAction::Host(_, HostAction::PullImage { image }) => {
                done.map_err(|error| chart::explain(self, image, error))
            }
            RemoteAction::Host(..) | RemoteAction::Cluster(_) => done,
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each action")]
    async fn on_host(
        &self,
        action: &HostAction,
        host: &Host,
        reporter: &Reporter,
        stop: &Stop,
    ) -> Result<Done, StepError> {
        match action {
            HostAction::Claim {
                cluster_id,
                cluster_name,
                before,
            } => {
                let facts = self.facts(host)?;
                node::claim(host, cluster_id, cluster_name, before, facts).await
            }
            HostAction::PullImage { image } => {
                let login = self.context.desired()?.registries.login(image);
                node::pull(host, image, login, reporter, stop).await
            }
            HostAction::LoadImage { image, .. } => {
                node::load(host, self.context.bundle()?, image, reporter, stop).await
            }
            HostAction::ImportImage { image, .. } => {
                let id = self.context.saved.map(|saved| &saved.cluster_id);
                let (facts, bundle) = (self.facts(host)?, self.context.bundle()?);
                Box::pin(node::import(host, id, facts, bundle, image, reporter, stop)).await
            }
            HostAction::TryFlags { specs } => {
                node::try_flags(host, specs, self.context.id()?).await
            }
            HostAction::WriteFiles { dirs, files } => {
                node::write_files(host, self.context.desired()?, dirs, files).await
            }
            HostAction::RemoveFiles { paths } => {
                node::remove_files(host, self.context.id()?, paths).await
            }
            HostAction::PrepareKernel { wants } => {
                node::prepare_kernel(host, self.context.id()?, wants).await
            }
            HostAction::ConfigureContainerd { wants, digest: _ } => {
                let containerd = &self.facts(host)?.system.containerd;
                node::configure_containerd(
                    host,
                    self.context.id()?,
                    containerd,
                    wants,
                    reporter,
                    stop,
                )
                .await
            }
            HostAction::ImportPause { image } => {
                let architecture = &self.facts(host)?.docker.architecture;
                node::import_pause(host, self.context.id()?, image, architecture).await
            }
            HostAction::RunContainer { component, spec } => {
                node::prepare(self, host, *component, spec, reporter, stop).await?;
                Box::pin(node::run_missing(self, host, *component, spec)).await
            }
            HostAction::JoinEtcd { spec } => {
                Box::pin(node::join_etcd(self, host, spec, reporter, stop)).await
            }
            HostAction::SetEtcdAside { epoch } => {
                node::set_aside(host, self.context.id()?, *epoch).await
            }
            HostAction::PutEtcdBack { epoch } => {
                node::put_back(host, self.context.id()?, *epoch).await
            }
            HostAction::RestoreEtcd { restore } => {
                node::restore(host, self.context.id()?, restore).await
            }
            HostAction::SaveSnapshot { name, cause, .. } => {
                Box::pin(node::save_snapshot(self, host, name, *cause)).await
            }
            HostAction::StartContainer { component } => {
                Box::pin(node::start_again(self, host, *component)).await
            }
            HostAction::ReplaceContainer {
                component,
                spec,
                keep,
            } => {
                node::prepare(self, host, *component, spec, reporter, stop).await?;
                let former = self.seen(host, component.container())?;
                if *keep {
                    node::keep_container(host, former, *component).await?;
                } else {
                    node::remove_container(host, former).await?;
                }
                Box::pin(node::run_container(self, host, *component, spec)).await
            }
            HostAction::PutBack { component } => {
                let failed = self.seen(host, component.container())?;
                Box::pin(node::put_container_back(self, host, failed, *component)).await
            }
            HostAction::RemoveKept { components } => {
                node::remove_kept(host, self.context.id()?, components).await
            }
            HostAction::ReloadProxy { read } => {
                node::reload_proxy(host, self.context.desired()?, read).await
            }
            HostAction::RemoveContainer { name } => {
                node::remove_container(host, self.seen(host, name)?).await
            }
            HostAction::AwaitHealthy { component } => {
                node::await_healthy(self, host, *component, reporter, stop).await
            }
            HostAction::AwaitAge { component, seconds } => {
                node::await_age(host, *component, *seconds, reporter, stop).await
            }
            HostAction::CleanHost { before } => {
                let containerd = &self.facts(host)?.system.containerd;
                node::clean(host, self.context.id()?, before, containerd).await
            }
            HostAction::RestoreContainerd => {
                node::restore_containerd(host, self.context.id()?, reporter, stop).await
            }
            HostAction::RemoveImages { images } => node::remove_images(host, images).await,
            HostAction::Reboot { from } => {
                Box::pin(node::reboot(self, host, from, reporter, stop)).await
            }
            HostAction::ReleaseClaim => {
                node::release_claim(host, self.context.id()?, self.facts(host)?).await
            }
        }
    }

    async fn in_cluster(
        &self,
        action: &ClusterAction,
        reporter: &Reporter,
        stop: &Stop,
    ) -> Result<Done, StepError> {
        match action {
            ClusterAction::ApplyAddon { addon, objects } => {
                cluster::apply_addon(self, addon, objects).await
            }
            ClusterAction::PruneObjects { objects } => cluster::prune(self, objects).await,
            ClusterAction::SetNodeMeta { node, meta } => {
                cluster::set_node_meta(self, node, meta, reporter, stop).await
            }
            ClusterAction::AwaitNodeReady { node } => {
                cluster::await_node_ready(self, node, reporter, stop).await
            }
            ClusterAction::AwaitAddon { addon } => {
                cluster::await_addon(self, addon, reporter, stop).await
            }
            ClusterAction::ApplyChart { chart, node, .. } => {
                chart::apply(self, chart, node, reporter, stop).await
            }
            ClusterAction::AwaitChart { chart } => chart::wait(self, chart, reporter, stop).await,
            ClusterAction::PruneChart { chart, .. } => chart::prune(self, chart).await,
            ClusterAction::Cordon { node } => cluster::cordon(self, node).await,
            ClusterAction::Drain { node, rules } => {
                cluster::drain(self, node, rules.as_ref(), reporter, stop).await
            }
            ClusterAction::Uncordon { node } => cluster::uncordon(self, node).await,
            ClusterAction::BeginReboot {
                node,
                request,
                from,
            } => cluster::begin_reboot(self, node, request, from).await,
            ClusterAction::FinishReboot { node, request } => {
                cluster::finish_reboot(self, node, request).await
            }
            ClusterAction::RemoveMember { node, member } => {
                node::remove_member(self, node, *member).await
            }
            ClusterAction::OutOfService { node, uid } => {
                cluster::out_of_service(self, node, uid, reporter, stop).await
            }
            ClusterAction::DeleteNode { node, uid } => cluster::delete_node(self, node, uid).await,
            ClusterAction::Evict { workload, pod, uid } => {
                cluster::evict(self, workload, pod, uid, reporter, stop).await
            }
            ClusterAction::ForgetWritten => cluster::forget_written(self).await,
            ClusterAction::RewriteStored { resources, with } => {
                cluster::rewrite_stored(self, resources, with, reporter, stop).await
            }
            ClusterAction::RenewTokens { secrets, key } => {
                cluster::renew_tokens(self, secrets, key, reporter, stop).await
            }
            ClusterAction::AwaitAuthorities { bundle } => {
                cluster::await_authorities(self, bundle, reporter, stop).await
            }
            ClusterAction::RestartPods {
                workloads,
                authority,
                ..
            } => cluster::restart_pods(self, workloads, authority).await,
            ClusterAction::ForgetAuthorities { version } => {
                cluster::forget_authorities(self, version).await
            }
            ClusterAction::CleanRestored { node, spec } => {
                Box::pin(restore::clean(self, node, spec, reporter, stop)).await
            }
            ClusterAction::AwaitKnownPods { node } => {
                restore::await_known_pods(self, node, reporter, stop).await
            }
            ClusterAction::SaveStateCopy => cluster::save_state_copy(self).await,
        }
    }
}
