//! The machine itself: its kernel before, and everything that Kubernetes left in it after.

use std::time::Duration;

use super::job::{node_error, quoted, run_job, settings, with_lists};
use crate::{
    actual::Before,
    apply::step::{Done, StepError},
    desired::KernelWants,
    host::Host,
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
    if output.status == 0 {
        return Ok(Done::default());
    }
    Err(node_error(
        host,
        &format!("the kernel cannot be prepared: {}", output.log.trim()),
        &[
            "load the module on the node once (`modprobe br_netfilter`) or install the kernel's module package",
        ],
    ))
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
        .replace("' BEFORE '", &quoted(&format!(" {paths} ")));
    let output = run_job(host, id, &script, Duration::from_secs(240)).await?;
    if output.status == 0 {
        return Ok(Done::default());
    }
    Err(node_error(
        host,
        &format!("the node is not clean yet: {}", output.log.trim()),
        &[
            "run `remove` again; a file system that is still in use by somebody else's process keeps its folder",
        ],
    ))
}
