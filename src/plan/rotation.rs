//! The part of a plan that rotates a key or authorities, and nothing else with it. Pure.

use std::collections::BTreeSet;

use super::{Action, ClusterAction, HostAction, Plan, Step, stage::keeps_state};
use crate::{
    desired::Rotated,
    model::{Component, ContainerSpec, NodeName, path},
    snapshots::record,
};

impl Plan {
    /// The rotation of a key or of authorities: the files that they are in, the containers that read them, what is stored or
    /// signed again, and the waits before and after them. A container that a run was cut off from replacing is started again. The state, its
    /// copies and the kubeconfig are kept as in [`Self::unasked`].
    #[must_use]
    pub fn rotation(&self, rotated: Rotated) -> Self {
        let part = Part {
            rotated,
            lacking: Lacking::of(self, rotated),
        };
        self.part(|steps| part.keep(steps))
    }
}

/// What nodes lack that this part does not bring: files and images.
struct Lacking(BTreeSet<(NodeName, String)>);

impl Lacking {
    fn of(plan: &Plan, rotated: Rotated) -> Self {
        let lacking = plan.steps().flat_map(|step| {
            let (node, what): (_, Vec<&String>) = match &step.action {
                Action::Host(node, HostAction::WriteFiles { files, .. }) => {
                    (node, files.keys().collect())
                }
                Action::Host(
                    node,
                    HostAction::PullImage { image } | HostAction::LoadImage { image, .. },
                ) => (node, vec![image]),
                Action::Host(..) | Action::Cluster(_) | Action::Local(_) => return Vec::new(),
            };
            let others = what.into_iter().filter(|what| !is_brought(rotated, what));
            others.map(|what| (node.clone(), what.clone())).collect()
        });
        Self(lacking.collect())
    }

    fn nothing_for(&self, spec: &ContainerSpec, node: &NodeName) -> bool {
        let mut lacks = self.0.iter().filter(|(of, _)| of == node);
        lacks.all(|(_, what)| *what != spec.image && !spec.files.contains_key(what))
    }
}

fn is_brought(rotated: Rotated, path: &str) -> bool {
    rotated.is_in(path) || path == path::STATE
}

struct Part {
    rotated: Rotated,
    lacking: Lacking,
}

impl Part {
    fn keep(&self, steps: &mut Vec<Step>) {
        let mut kept = Vec::new();
        let mut waits = Vec::new();
        let mut follows = false;
        for mut step in std::mem::take(steps) {
            if is_awaited(&step) {
                kept.append(&mut waits);
                kept.push(step);
                continue;
            }
            if step.action.is_wait() {
                waits.push(step);
                continue;
            }
            self.leave_other_files(&mut step);
            let rotates = self.rotates(&step);
            if follows || rotates {
                kept.append(&mut waits);
            }
            waits.clear();
            follows = rotates;
            kept.extend(rotates.then_some(step));
        }
        if follows {
            kept.append(&mut waits);
        }
        *steps = kept;
    }

    /// What else is written waits for `up`.
    fn leave_other_files(&self, step: &mut Step) {
        if let Action::Host(_, HostAction::WriteFiles { dirs, files }) = &mut step.action {
            dirs.clear();
            files.retain(|path, _| is_brought(self.rotated, path));
            step.changes.retain(|change| {
                let path = change.field.path();
                path.is_some_and(|path| is_brought(self.rotated, path))
            });
        }
    }

    fn rotates(&self, step: &Step) -> bool {
        let reads = |component: &Component| self.rotated.is_read_by(*component);
        match &step.action {
            Action::Host(_, HostAction::WriteFiles { files, .. }) => !files.is_empty(),
            Action::Host(_, HostAction::ReplaceContainer { component, .. }) => {
                let mut paths = step.changes.iter().filter_map(|change| change.field.path());
                reads(component) && paths.any(|path| self.rotated.is_in(path))
            }
            Action::Host(node, HostAction::RunContainer { component, spec }) => {
                reads(component) && self.lacking.nothing_for(spec, node)
            }
            Action::Host(_, HostAction::StartContainer { component }) => reads(component),
            Action::Host(_, HostAction::SaveSnapshot { cause, .. }) => {
                *cause == record::Cause::BeforeRotation
            }
            Action::Cluster(ClusterAction::ForgetWritten | ClusterAction::RewriteStored { .. }) => {
                self.rotated == Rotated::EncryptionKey
            }
            Action::Cluster(ClusterAction::RenewTokens { .. }) => {
                self.rotated == Rotated::ServiceAccountKey
            }
            Action::Cluster(
                ClusterAction::RestartPods { .. } | ClusterAction::ForgetAuthorities { .. },
            ) => self.rotated == Rotated::Authorities,
            Action::Host(..) | Action::Cluster(_) | Action::Local(_) => keeps_state(step),
        }
    }
}

/// An API server, also one that a run before has replaced; and what goes on only after it.
fn is_awaited(step: &Step) -> bool {
    let server = HostAction::AwaitHealthy {
        component: Component::ApiServer,
    };
    match &step.action {
        Action::Host(_, action) => *action == server,
        Action::Cluster(action) => matches!(action, ClusterAction::AwaitAuthorities { .. }),
        Action::Local(_) => false,
    }
}
