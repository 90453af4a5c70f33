//! Flags of programs that would be replaced: tried before anything is. Pure.
//!
//! A flag that a release no longer knows is found here, with all of the cluster as it was. Where
//! something is held back for now its flags are tried all the same, so that control planes do not
//! go to a release that the kubelets after them cannot start with.

use std::collections::BTreeMap;

use super::{hosts, part::Part};
use crate::{
    model::{Component, Field, FieldChange},
    plan::{
        Cause, HostAction, Step,
        diff::{Diff, HostDiff, Need},
    },
};

/// Those whose programs have flags.
const TRIED: [Component; 6] = [
    Component::Etcd,
    Component::ApiServer,
    Component::ControllerManager,
    Component::Scheduler,
    Component::Kubelet,
    Component::KubeProxy,
];

/// A step for each host with components whose program or flags change, if anything is replaced at all.
pub(super) fn tries(diff: &Diff<'_>) -> Part {
    let replaces = |host: &HostDiff<'_>| {
        let mut all = TRIED.into_iter();
        all.any(|component| changes(host, component) && host.held(component).is_none())
    };
    let any = diff.hosts.values().any(replaces);
    let stage = hosts::preparing("flags", diff, |name, host| {
        let changed = TRIED
            .into_iter()
            .filter(|component| any && changes(host, *component));
        let specs = changed.filter_map(|component| {
            let spec = host.want.containers.get(&component)?;
            Some((component, spec.clone()))
        });
        let specs: BTreeMap<_, _> = specs.collect();
        if specs.is_empty() {
            return Vec::new();
        }
        let why = "a flag that a program does not know is found before anything is replaced";
        let step = Step::on(name, Cause::Change, why, HostAction::TryFlags { specs });
        vec![step.guarded(&diff.want.cluster_id)]
    });
    stage.into()
}

/// True where another program, or the same one with other flags, replaces the running one.
fn changes(host: &HostDiff<'_>, component: Component) -> bool {
    let Need::Replace(Cause::Change, _, changes) = host.need(component) else {
        return false;
    };
    let of_the_program = |change: &FieldChange| {
        matches!(
            change.field,
            Field::Image | Field::Entrypoint | Field::Flag(_)
        )
    };
    changes.iter().any(of_the_program)
}
