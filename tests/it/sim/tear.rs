//! What an action leaves when it is cut off in the middle: one arm each. `how` picks among
//! the ways; every way is one that the real effect can leave.

use std::collections::BTreeMap;

use rke_operator::{
    desired,
    desired::Desired,
    facts::{Actual, ContainerState},
    model::{FILES_IMAGE, NodeName, path},
    plan::{Action, ClusterAction, HostAction, LocalAction, Step},
};

use super::effect;

/// Does a part of a step, or nothing, or all of it without anyone hearing of it.
pub(crate) fn tear(step: &Step, how: u8, want: Option<&Desired>, world: &mut Actual) {
    match how % 3 {
        0 => {}
        1 => part(step, how / 3, want, world),
        _ => drop(effect::apply(step, want, world)),
    }
}

fn part(step: &Step, how: u8, want: Option<&Desired>, world: &mut Actual) {
    match &step.action {
        Action::Host(node, action) => on_host(step, node, action, how, want, world),
        Action::Cluster(action) => in_cluster(step, action, how, want, world),
        // Atomic: nothing or all.
        Action::Local(
            LocalAction::SaveState
            | LocalAction::WriteKubeconfig
            | LocalAction::RemoveKubeconfig
            | LocalAction::DeleteState,
        ) => {}
    }
}

#[expect(clippy::too_many_lines, reason = "one arm for each action")]
fn on_host(
    step: &Step,
    node: &NodeName,
    action: &HostAction,
    how: u8,
    want: Option<&Desired>,
    world: &mut Actual,
) {
    match action {
        // Atomic, or without effect: nothing or all.
        HostAction::PullImage { .. }
        | HostAction::LoadImage { .. }
        | HostAction::TryFlags { .. }
        | HostAction::ImportPause { .. }
        | HostAction::ImportImage { .. }
        | HostAction::SetEtcdAside { .. }
        | HostAction::RestoreEtcd { .. }
        | HostAction::PutEtcdBack { .. }
        | HostAction::SaveSnapshot { .. }
        | HostAction::StartContainer { .. }
        | HostAction::ReloadProxy { .. }
        | HostAction::AwaitHealthy { .. }
        | HostAction::AwaitAge { .. } => {}
        HostAction::Claim { .. } => on(node, world, |facts| {
            facts.images.insert(FILES_IMAGE.to_owned());
        }),
        HostAction::WriteFiles { dirs, files } => {
            let some = HostAction::WriteFiles {
                dirs: dirs.clone(),
                files: some(files, how),
            };
            drop(effect::apply(
                &instead(step, Action::Host(node.clone(), some)),
                want,
                world,
            ));
            let last = files.keys().nth(usize::from(how) % files.len().max(1));
            on(node, world, |facts| {
                if let (Some(last), Ok(files)) = (last, effect::files(facts)) {
                    files.insert(last.clone(), effect::file(b"half a fi", 0o600));
                }
            });
        }
        HostAction::RemoveFiles { paths } => on(node, world, |facts| {
            if let (Some(first), Ok(files)) = (paths.first(), effect::files(facts)) {
                files.remove(first);
            }
        }),
        HostAction::PrepareKernel { wants } => on(node, world, |facts| {
            facts.system.modules.extend(wants.modules.iter().cloned());
        }),
        HostAction::ConfigureContainerd { wants, .. } => on(node, world, |facts| {
            let dump = facts.system.containerd.dump.clone();
            if let (Ok(config), Ok(files)) = (
                desired::containerd::containerd_config(&dump, wants),
                effect::files(facts),
            ) {
                let file = effect::file(config.as_bytes(), 0o600);
                files.insert(path::CONTAINERD_CONFIG.to_owned(), file);
            }
        }),
        // Added and never run, or run and without a vote: nothing of it counts before the last.
        HostAction::JoinEtcd { .. } => {
            if !how.is_multiple_of(2) && effect::apply(step, want, world).is_ok() {
                stopped(node, "etcd", world);
            }
        }
        HostAction::RunContainer { component, .. } => {
            if effect::apply(step, want, world).is_ok() {
                stopped(node, component.container(), world);
            }
        }
        HostAction::ReplaceContainer {
            component,
            keep: true,
            ..
        } => match how % 4 {
            // Stopped, kept, or the other one is created and not started.
            0 => on(node, world, |facts| effect::set_aside(*component, facts)),
            1 | 2 => on(node, world, |facts| {
                effect::set_aside(*component, facts);
                drop(effect::rename(
                    component.container(),
                    component.kept(),
                    facts,
                ));
            }),
            _ => {
                if effect::apply(step, want, world).is_ok() {
                    stopped(node, component.container(), world);
                }
            }
        },
        // What has failed is gone, or what was kept has its name and does not run.
        HostAction::PutBack { component } => on(node, world, |facts| {
            if how.is_multiple_of(2) {
                facts.containers.remove(component.container());
            } else {
                drop(effect::put_back(*component, facts));
            }
        }),
        HostAction::RemoveKept { components } => on(node, world, |facts| {
            if let Some(first) = components.first() {
                facts.containers.remove(first.kept());
            }
        }),
        HostAction::ReplaceContainer { component, .. } => {
            if how.is_multiple_of(2) {
                on(node, world, |facts| {
                    drop(facts.containers.remove(component.container()));
                });
            } else if effect::apply(step, want, world).is_ok() {
                stopped(node, component.container(), world);
            }
        }
        HostAction::RemoveContainer { name } => on(node, world, |facts| {
            if let Some(fact) = facts.containers.get_mut(name) {
                fact.state = ContainerState::Exited(137);
            }
        }),
        HostAction::CleanHost { before } => on(node, world, |facts| {
            if let Ok(files) = effect::files(facts) {
                let half = files.len() / 2;
                let keep: Vec<String> = files.keys().take(half).cloned().collect();
                files.retain(|path, _| keep.contains(path) || !effect::read_through_claim(path));
            }
            facts
                .system
                .paths
                .retain(|path| before.paths.contains(path) || path < &"/run".to_owned());
        }),
        HostAction::RestoreContainerd => on(node, world, |facts| {
            if let Ok(files) = effect::files(facts) {
                files.remove(path::CONTAINERD_CONFIG);
            }
        }),
        HostAction::RemoveImages { images } => on(node, world, |facts| {
            if let Some(first) = images.first() {
                facts.images.remove(first);
            }
        }),
        // The run ended while the machine was away.
        HostAction::Reboot { .. } => {
            if !how.is_multiple_of(2) {
                drop(effect::apply(step, want, world));
            }
        }
        HostAction::ReleaseClaim => on(node, world, |facts| {
            facts.containers.remove(rke_operator::model::CLAIM);
            facts.files = None;
        }),
    }
}

fn in_cluster(
    step: &Step,
    action: &ClusterAction,
    how: u8,
    want: Option<&Desired>,
    world: &mut Actual,
) {
    let some = match action {
        // Atomic, or without effect: nothing or all.
        ClusterAction::AwaitNodeReady { .. }
        | ClusterAction::AwaitAddon { .. }
        | ClusterAction::AwaitChart { .. }
        | ClusterAction::Cordon { .. }
        | ClusterAction::Drain { .. }
        | ClusterAction::Uncordon { .. }
        | ClusterAction::BeginReboot { .. }
        | ClusterAction::FinishReboot { .. }
        | ClusterAction::RemoveMember { .. }
        | ClusterAction::OutOfService { .. }
        | ClusterAction::DeleteNode { .. }
        | ClusterAction::Evict { .. }
        | ClusterAction::ForgetWritten
        | ClusterAction::RewriteStored { .. }
        | ClusterAction::RenewTokens { .. }
        | ClusterAction::AwaitAuthorities { .. }
        | ClusterAction::ForgetAuthorities { .. }
        | ClusterAction::CleanRestored { .. }
        | ClusterAction::AwaitKnownPods { .. }
        | ClusterAction::SaveStateCopy => return,
        // The record is begun, and some objects are there or gone.
        ClusterAction::ApplyChart { chart, .. } => {
            if effect::apply(step, want, world).is_ok() {
                begun(chart, how, world);
            }
            return;
        }
        ClusterAction::PruneChart { chart, .. } => {
            begun(chart, 1, world);
            return;
        }
        ClusterAction::RestartPods {
            addon,
            workloads,
            authority,
        } => ClusterAction::RestartPods {
            addon: addon.clone(),
            workloads: workloads
                .iter()
                .take(usize::from(how) % 3)
                .cloned()
                .collect(),
            authority: authority.clone(),
        },
        ClusterAction::ApplyAddon { addon, objects } => ClusterAction::ApplyAddon {
            addon: addon.clone(),
            objects: objects.iter().take(usize::from(how) % 3).cloned().collect(),
        },
        ClusterAction::PruneObjects { objects } => ClusterAction::PruneObjects {
            objects: objects.iter().take(1).cloned().collect(),
        },
        ClusterAction::SetNodeMeta { node, meta } => {
            let mut meta = meta.clone();
            meta.annotations.clear();
            meta.taints.clear();
            ClusterAction::SetNodeMeta {
                node: node.clone(),
                meta,
            }
        }
    };
    drop(effect::apply(
        &instead(step, Action::Cluster(some)),
        want,
        world,
    ));
}

/// A chart that was not applied to its end, or of which an object is gone.
fn begun(chart: &str, how: u8, world: &mut Actual) {
    let Ok(api) = effect::api(world) else { return };
    let Some(fact) = api.charts.get_mut(chart) else {
        return;
    };
    if how.is_multiple_of(2) {
        let mut record = fact.record.clone();
        record.digest = None;
        effect::keep_record(chart, record, api);
    } else {
        let objects = fact.record.objects.iter();
        fact.gone = objects.map(|applied| applied.object.clone()).collect();
    }
}

fn instead(step: &Step, action: Action) -> Step {
    Step {
        action,
        ..step.clone()
    }
}

fn on(
    node: &NodeName,
    world: &mut Actual,
    effect: impl FnOnce(&mut rke_operator::facts::HostFacts),
) {
    if let Ok(facts) = effect::host(node, world) {
        effect(facts);
    }
}

fn stopped(node: &NodeName, name: &str, world: &mut Actual) {
    on(node, world, |facts| {
        if let Some(fact) = facts.containers.get_mut(name) {
            fact.state = ContainerState::Created;
        }
    });
}

fn some<T: Clone>(all: &BTreeMap<String, T>, how: u8) -> BTreeMap<String, T> {
    let count = usize::from(how) % (all.len() + 1);
    all.iter()
        .take(count)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
