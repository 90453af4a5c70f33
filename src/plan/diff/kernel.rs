//! Modules and sysctls that a node's kernel lacks. Pure.

use crate::{facts::SystemFacts, model::KernelWants, plan::FieldChange};

pub(super) fn differences(wants: &KernelWants, system: &SystemFacts) -> Vec<FieldChange> {
    let modules = wants
        .modules
        .iter()
        .filter(|module| !system.modules.contains(*module))
        .map(|module| FieldChange {
            field: format!("module {module}").into(),
            from: None,
            to: Some("loaded".to_owned()),
        });
    let sysctls = wants.sysctls.iter().filter_map(|(key, value)| {
        let now = system.sysctls.get(key);
        let same = now.is_some_and(|now| now.split_whitespace().eq(value.split_whitespace()));
        (!same).then(|| FieldChange {
            field: format!("sysctl {key}").into(),
            from: now.cloned(),
            to: Some(value.clone()),
        })
    });
    modules.chain(sysctls).collect()
}
