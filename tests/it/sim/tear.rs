//! What an action leaves when it is cut off in the middle: one arm each. `how` picks among
//! the ways; every way is one that the real effect can leave.

use std::collections::BTreeMap;

use rke_operator::{
    actual::{Actual, ContainerState},
    desired::{self, Desired, FILES_IMAGE, path},
    plan::{Action, Step},
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

#[expect(clippy::too_many_lines, reason = "one arm for each action")]
fn part(step: &Step, how: u8, want: Option<&Desired>, world: &mut Actual) {
    match &step.action {
        // Atomic, or without effect: nothing or all.
        Action::SaveState
        | Action::PullImage { .. }
        | Action::ImportPause { .. }
        | Action::StartContainer { .. }
        | Action::AwaitHealthy { .. }
        | Action::AwaitNodeReady { .. }
        | Action::AwaitAddon { .. }
        | Action::SaveStateCopy
        | Action::WriteKubeconfig
        | Action::RemoveKubeconfig
        | Action::DeleteState => {}
        Action::Claim { .. } => on(step, world, |facts| {
            facts.images.insert(FILES_IMAGE.to_owned());
        }),
        Action::WriteFiles { dirs, files } => {
            let some = Step {
                action: Action::WriteFiles {
                    dirs: dirs.clone(),
                    files: some(files, how),
                },
                ..step.clone()
            };
            drop(effect::apply(&some, want, world));
            let last = files.keys().nth(usize::from(how) % files.len().max(1));
            on(step, world, |facts| {
                if let (Some(last), Ok(files)) = (last, effect::files(facts)) {
                    files.insert(last.clone(), effect::file(b"half a fi", 0o600));
                }
            });
        }
        Action::RemoveFiles { paths } => on(step, world, |facts| {
            if let (Some(first), Ok(files)) = (paths.first(), effect::files(facts)) {
                files.remove(first);
            }
        }),
        Action::PrepareKernel { wants } => on(step, world, |facts| {
            facts.system.modules.extend(wants.modules.iter().cloned());
        }),
        Action::ConfigureContainerd { wants, .. } => on(step, world, |facts| {
            let dump = facts.system.containerd.dump.clone();
            if let (Ok(config), Ok(files)) = (
                desired::containerd::containerd_config(&dump, wants),
                effect::files(facts),
            ) {
                let file = effect::file(config.as_bytes(), 0o600);
                files.insert(path::CONTAINERD_CONFIG.to_owned(), file);
            }
        }),
        Action::RunContainer { name, .. } => {
            if effect::apply(step, want, world).is_ok() {
                stopped(step, name, world);
            }
        }
        Action::ReplaceContainer { name, .. } => {
            if how.is_multiple_of(2) {
                on(step, world, |facts| drop(facts.containers.remove(name)));
            } else if effect::apply(step, want, world).is_ok() {
                stopped(step, name, world);
            }
        }
        Action::RemoveContainer { name } => on(step, world, |facts| {
            if let Some(fact) = facts.containers.get_mut(name) {
                fact.state = ContainerState::Exited(137);
            }
        }),
        Action::ApplyAddon { addon, objects } => {
            let some = Action::ApplyAddon {
                addon: addon.clone(),
                objects: objects.iter().take(usize::from(how) % 3).cloned().collect(),
            };
            drop(effect::apply(
                &Step {
                    action: some,
                    ..step.clone()
                },
                want,
                world,
            ));
        }
        Action::PruneObjects { objects } => {
            let some = Action::PruneObjects {
                objects: objects.iter().take(1).cloned().collect(),
            };
            drop(effect::apply(
                &Step {
                    action: some,
                    ..step.clone()
                },
                want,
                world,
            ));
        }
        Action::SetNodeMeta { meta } => {
            let mut meta = meta.clone();
            meta.annotations.clear();
            meta.taints.clear();
            let some = Action::SetNodeMeta { meta };
            drop(effect::apply(
                &Step {
                    action: some,
                    ..step.clone()
                },
                want,
                world,
            ));
        }
        Action::CleanHost { before } => on(step, world, |facts| {
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
        Action::RestoreContainerd => on(step, world, |facts| {
            if let Ok(files) = effect::files(facts) {
                files.remove(path::CONTAINERD_CONFIG);
            }
        }),
        Action::RemoveImages { images } => on(step, world, |facts| {
            if let Some(first) = images.first() {
                facts.images.remove(first);
            }
        }),
        Action::ReleaseClaim => on(step, world, |facts| {
            facts.containers.remove(desired::CLAIM);
            facts.files = None;
        }),
    }
}

fn on(step: &Step, world: &mut Actual, effect: impl FnOnce(&mut rke_operator::actual::HostFacts)) {
    if let Ok(facts) = effect::host(step, world) {
        effect(facts);
    }
}

fn stopped(step: &Step, name: &str, world: &mut Actual) {
    on(step, world, |facts| {
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
