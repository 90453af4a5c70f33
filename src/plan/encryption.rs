//! The part of a plan that changes what the API servers encrypt with. Pure.

use std::collections::BTreeSet;

use super::{Action, ClusterAction, HostAction, Plan, Step, stage::keeps_state};
use crate::model::{Component, ContainerSpec, NodeName, path};

impl Plan {
    /// What the API servers encrypt with: their configuration of it, the API servers that read it, what is stored, and the
    /// waits before and after them. One that a run was cut off from replacing is started again. The state, its copies and the
    /// kubeconfig are kept as in [`Self::unasked`].
    #[must_use]
    pub fn encryption(&self) -> Self {
        let lacking = Lacking::of(self);
        self.part(|steps| only_encryption(steps, &lacking))
    }
}

/// What nodes lack that this part does not bring: files and images.
struct Lacking(BTreeSet<(NodeName, String)>);

impl Lacking {
    fn of(plan: &Plan) -> Self {
        let lacking = plan.steps().flat_map(|step| {
            let (node, what): (_, Vec<&String>) = match &step.action {
                Action::Host(node, HostAction::WriteFiles { files, .. }) => {
                    (node, files.keys().collect())
                }
                Action::Host(node, HostAction::PullImage { image }) => (node, vec![image]),
                Action::Host(..) | Action::Cluster(_) | Action::Local(_) => return Vec::new(),
            };
            let others = what.into_iter().filter(|what| !is_brought(what));
            others.map(|what| (node.clone(), what.clone())).collect()
        });
        Self(lacking.collect())
    }

    fn nothing_for(&self, spec: &ContainerSpec, node: &NodeName) -> bool {
        let mut lacks = self.0.iter().filter(|(of, _)| of == node);
        lacks.all(|(_, what)| *what != spec.image && !spec.files.contains_key(what))
    }
}

fn is_brought(path: &str) -> bool {
    [path::ENCRYPTION, path::STATE].contains(&path)
}

fn only_encryption(steps: &mut Vec<Step>, lacking: &Lacking) {
    let mut kept = Vec::new();
    let mut waits = Vec::new();
    let mut follows = false;
    for mut step in std::mem::take(steps) {
        if awaits_an_api_server(&step) {
            kept.append(&mut waits);
            kept.push(step);
            continue;
        }
        if step.action.is_wait() {
            waits.push(step);
            continue;
        }
        leave_other_files(&mut step);
        let changes = changes_encryption(&step, lacking);
        if follows || changes {
            kept.append(&mut waits);
        }
        waits.clear();
        follows = changes;
        kept.extend(changes.then_some(step));
    }
    if follows {
        kept.append(&mut waits);
    }
    *steps = kept;
}

/// What else is written waits for `up`.
fn leave_other_files(step: &mut Step) {
    if let Action::Host(_, HostAction::WriteFiles { dirs, files }) = &mut step.action {
        dirs.clear();
        files.retain(|path, _| is_brought(path));
        step.changes
            .retain(|change| change.field.path().is_some_and(is_brought));
    }
}

/// Also one that a run before has replaced.
fn awaits_an_api_server(step: &Step) -> bool {
    let wait = HostAction::AwaitHealthy {
        component: Component::ApiServer,
    };
    matches!(&step.action, Action::Host(_, action) if *action == wait)
}

fn changes_encryption(step: &Step, lacking: &Lacking) -> bool {
    match &step.action {
        Action::Host(_, HostAction::WriteFiles { files, .. }) => !files.is_empty(),
        Action::Host(_, HostAction::ReplaceContainer { component, .. }) => {
            let mut changes = step.changes.iter();
            *component == Component::ApiServer
                && changes.any(|change| change.field.path() == Some(path::ENCRYPTION))
        }
        Action::Host(node, HostAction::RunContainer { component, spec }) => {
            *component == Component::ApiServer && lacking.nothing_for(spec, node)
        }
        Action::Host(_, HostAction::StartContainer { component }) => {
            *component == Component::ApiServer
        }
        Action::Cluster(ClusterAction::ForgetWritten | ClusterAction::RewriteStored { .. }) => true,
        Action::Host(..) | Action::Cluster(_) | Action::Local(_) => keeps_state(step),
    }
}
