//! The machine itself: its kernel before, and everything that Kubernetes left in it after.

use std::{collections::BTreeMap, time::Duration};

use super::job::{run_job, succeeded};
use crate::{
    actual::Before,
    apply::step::{Done, StepError},
    desired::KernelWants,
    host::{Host, quote},
    state::ClusterId,
};

const KERNEL: &str = include_str!("kernel.sh");
const CLEAN: &str = include_str!("clean.sh");

pub(in crate::apply) async fn prepare_kernel(
    host: &Host,
    id: &ClusterId,
    wants: &KernelWants,
) -> Result<Done, StepError> {
    let KernelWants { modules, sysctls } = wants;
    let modules = modules.iter().cloned().collect::<Vec<_>>().join(" ");
    let script = with_lists(
        KERNEL,
        &[("MODULES", &modules), ("SYSCTLS", &settings(sysctls))],
    );
    let output = run_job(host, id, &script, Duration::from_secs(60)).await?;
    succeeded(
        host,
        &output,
        "the kernel cannot be prepared",
        &[
            "load the module on the node once (`modprobe br_netfilter`) or install the kernel's module package",
        ],
    )?;
    Ok(Done::default())
}

pub(in crate::apply) async fn clean(
    host: &Host,
    id: &ClusterId,
    before: &Before,
) -> Result<Done, StepError> {
    let Before {
        paths,
        sysctls,
        modules: _,
        images: _,
    } = before;
    let paths = paths.iter().cloned().collect::<Vec<_>>().join(" ");
    let script = with_lists(CLEAN, &[("SYSCTLS", &settings(sysctls))])
        .replace("' BEFORE '", &quote(&format!(" {paths} ")));
    let output = run_job(host, id, &script, Duration::from_secs(240)).await?;
    succeeded(
        host,
        &output,
        "the node is not clean yet",
        &[
            "run `remove` again; a file system that is still in use by somebody else's process keeps its folder",
        ],
    )?;
    Ok(Done::default())
}

/// Fills the lists in capitals of a script in. Their words are ours, or quoted.
fn with_lists(script: &str, lists: &[(&str, &str)]) -> String {
    lists
        .iter()
        .fold(script.to_owned(), |script, (name, words)| {
            script.replace(&format!("in {name};"), &format!("in {words};"))
        })
}

fn settings(sysctls: &BTreeMap<String, String>) -> String {
    sysctls
        .iter()
        .filter(|(name, value)| {
            !name.contains(char::is_whitespace) && !value.contains(char::is_whitespace)
        })
        .map(|(name, value)| quote(&format!("{name}={value}")))
        .collect::<Vec<_>>()
        .join(" ")
}
