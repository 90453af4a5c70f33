//! Modules and sysctls that a node's kernel lacks. Pure.

use super::{Cause, FieldChange, HostAction, Stage, Step, hosts};
use crate::{
    actual::{Actual, SystemFacts},
    desired::Desired,
    model::KernelWants,
};

/// One step a node whose modules or sysctls differ.
pub(super) fn prepare(want: &Desired, have: &Actual) -> Stage {
    hosts::preparing("kernel", want, have, |name, host, facts| {
        let changes = differences(&host.kernel, &facts.system);
        if changes.is_empty() {
            return Vec::new();
        }
        let action = HostAction::PrepareKernel {
            wants: host.kernel.clone(),
        };
        let why = "pods need these modules and sysctls";
        let cause = if facts.claim().is_none() {
            Cause::New
        } else {
            Cause::Drift
        };
        vec![Step::on(name, cause, why, action).changing(changes)]
    })
}

fn differences(wants: &KernelWants, system: &SystemFacts) -> Vec<FieldChange> {
    let modules = wants
        .modules
        .iter()
        .filter(|module| !system.modules.contains(*module))
        .map(|module| FieldChange {
            field: format!("module {module}"),
            from: None,
            to: Some("loaded".to_owned()),
        });
    let sysctls = wants.sysctls.iter().filter_map(|(key, value)| {
        let now = system.sysctls.get(key);
        let same = now.is_some_and(|now| now.split_whitespace().eq(value.split_whitespace()));
        (!same).then(|| FieldChange {
            field: format!("sysctl {key}"),
            from: now.cloned(),
            to: Some(value.clone()),
        })
    });
    modules.chain(sysctls).collect()
}
