//! What a step does, in one line without the node. Pure.

use super::{Action, ClusterAction, HostAction, LocalAction, Step};
use crate::model::megabytes;

/// One line that names what a step does, without the node.
pub fn title(step: &Step) -> String {
    match &step.action {
        Action::Host(_, action) => on_host(action),
        Action::Cluster(action) => in_cluster(action),
        Action::Local(action) => match action {
            LocalAction::SaveState => "save the state",
            LocalAction::WriteKubeconfig => "write the kubeconfig",
            LocalAction::RemoveKubeconfig => "remove the kubeconfig",
            LocalAction::DeleteState => "delete the state",
        }
        .to_owned(),
    }
}

fn on_host(action: &HostAction) -> String {
    match action {
        HostAction::Claim { cluster_name, .. } => format!("claim for cluster {cluster_name}"),
        HostAction::PullImage { image } => format!("pull {image}"),
        HostAction::LoadImage { image, bytes } => {
            format!("load {image} from the bundle ({})", megabytes(*bytes))
        }
        HostAction::ImportImage { image, bytes } => {
            format!("import {image} into containerd ({})", megabytes(*bytes))
        }
        HostAction::TryFlags { specs } => match specs.first_key_value() {
            Some((only, _)) if specs.len() == 1 => format!("try the flags of {only}"),
            Some(_) | None => format!("try the flags of {} components", specs.len()),
        },
        HostAction::WriteFiles { dirs, files } => {
            format!("write {}", counted(files.len(), dirs.len()))
        }
        HostAction::RemoveFiles { paths } => match paths.first() {
            Some(only) if paths.len() == 1 => format!("remove {only}"),
            Some(_) | None => format!("remove {} files", paths.len()),
        },
        HostAction::PrepareKernel { .. } => "prepare the kernel".to_owned(),
        HostAction::ConfigureContainerd { .. } => "configure containerd".to_owned(),
        HostAction::ImportPause { image } => format!("import {image} into containerd"),
        HostAction::RunContainer { component, .. } => format!("run {component}"),
        HostAction::JoinEtcd { .. } => "join etcd".to_owned(),
        HostAction::SetEtcdAside { .. } => "set the data of etcd aside".to_owned(),
        HostAction::PutEtcdBack { .. } => "put the former data of etcd back".to_owned(),
        HostAction::RestoreEtcd { restore } => match &restore.snapshot {
            Some(snapshot) => format!("restore etcd from {}", snapshot.name),
            None => "restore etcd from its own data".to_owned(),
        },
        HostAction::SaveSnapshot { .. } => "save a snapshot of etcd".to_owned(),
        HostAction::StartContainer { component } => format!("start {component}"),
        HostAction::ReplaceContainer { component, .. } => format!("replace {component}"),
        HostAction::PutBack { component } => format!("put the former {component} back"),
        HostAction::RemoveKept { components } => {
            let names: Vec<_> = components
                .iter()
                .map(|component| component.kept())
                .collect();
            format!("remove {}", names.join(", "))
        }
        HostAction::ReloadProxy { .. } => "reload nginx-proxy".to_owned(),
        HostAction::RemoveContainer { name } => format!("remove {name}"),
        HostAction::AwaitHealthy { component } => {
            format!("wait for {} to be healthy", component.container())
        }
        HostAction::AwaitAge { component, .. } => {
            format!("wait for the clients of {}", component.container())
        }
        HostAction::CleanHost { .. } => "clean up after Kubernetes".to_owned(),
        HostAction::RestoreContainerd => "restore containerd's configuration".to_owned(),
        HostAction::RemoveImages { images } => format!("remove {}", plural(images.len(), "image")),
        HostAction::Reboot { .. } => "reboot".to_owned(),
        HostAction::ReleaseClaim => "release the node".to_owned(),
    }
}

fn in_cluster(action: &ClusterAction) -> String {
    match action {
        ClusterAction::ApplyAddon { addon, objects } => {
            format!("apply {addon} ({})", plural(objects.len(), "object"))
        }
        ClusterAction::PruneObjects { objects } => match objects.as_slice() {
            [only] => format!("delete {only}"),
            _ => format!("delete {} objects", objects.len()),
        },
        ClusterAction::ApplyChart {
            chart,
            file,
            runtime,
            ..
        } => format!("render and apply {chart} (chart {file} of {runtime})"),
        ClusterAction::AwaitChart { chart } => format!("wait for {chart}"),
        ClusterAction::PruneChart { chart, .. } => format!("delete {chart}"),
        ClusterAction::SetNodeMeta { .. } => "set node labels, annotations and taints".to_owned(),
        ClusterAction::AwaitNodeReady { .. } => "wait for the node to be Ready".to_owned(),
        ClusterAction::AwaitAddon { addon } => format!("wait for {addon}"),
        ClusterAction::Cordon { .. } => "cordon".to_owned(),
        ClusterAction::Drain { .. } => "drain".to_owned(),
        ClusterAction::Uncordon { .. } => "uncordon".to_owned(),
        ClusterAction::BeginReboot { .. } => "record the request to reboot".to_owned(),
        ClusterAction::FinishReboot { .. } => "record the reboot and uncordon".to_owned(),
        ClusterAction::RemoveMember { member, .. } => format!("remove member {member} of etcd"),
        ClusterAction::OutOfService { .. } => "say that the node is out of service".to_owned(),
        ClusterAction::DeleteNode { .. } => "delete the Node object".to_owned(),
        ClusterAction::Evict { pod, .. } => format!("evict pod `{pod}`"),
        ClusterAction::ForgetWritten => {
            "delete the record of how stored objects are encrypted".to_owned()
        }
        ClusterAction::RewriteStored { resources, with } => {
            let resources = resources.iter().map(String::as_str);
            let resources = resources.collect::<Vec<_>>().join(", ");
            format!("write all stored {resources} again with `{with}`")
        }
        ClusterAction::RenewTokens { secrets, .. } => {
            format!(
                "sign the tokens in {} again",
                plural(secrets.len(), "Secret")
            )
        }
        ClusterAction::AwaitAuthorities { .. } => {
            "wait until pods are given the new authorities".to_owned()
        }
        ClusterAction::RestartPods { addon, .. } => format!("restart the pods of {addon}"),
        ClusterAction::ForgetAuthorities { .. } => {
            "have extension API servers forget the former authorities".to_owned()
        }
        ClusterAction::CleanRestored { .. } => {
            "delete what the snapshot has and must not come back".to_owned()
        }
        ClusterAction::AwaitKnownPods { .. } => {
            "wait until the node runs no unknown pod".to_owned()
        }
        ClusterAction::SaveStateCopy => "save a copy of the state in kube-system".to_owned(),
    }
}

pub(super) fn plural(count: usize, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

fn counted(files: usize, dirs: usize) -> String {
    match (files, dirs) {
        (files, 0) => plural(files, "file"),
        (0, 1) => "1 directory".to_owned(),
        (0, dirs) => format!("{dirs} directories"),
        (files, 1) => format!("{} and 1 directory", plural(files, "file")),
        (files, dirs) => format!("{} and {dirs} directories", plural(files, "file")),
    }
}
