//! The machine itself: its kernel.

use std::time::Duration;

use super::helper::{run_helper, succeeded};
use crate::{
    apply::step::{Done, StepError},
    host::Host,
    model::{ClusterId, KernelWants},
};

const KERNEL: &str = include_str!("kernel.sh");

pub(in crate::apply) async fn prepare_kernel(
    host: &Host,
    id: &ClusterId,
    wants: &KernelWants,
) -> Result<Done, StepError> {
    let arguments = arguments(wants);
    let output = run_helper(host, id, KERNEL, &arguments, Duration::from_secs(60)).await?;
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

/// Modules by name, sysctls as `name=value`: no module has a `=` in its name.
fn arguments(wants: &KernelWants) -> Vec<String> {
    let KernelWants { modules, sysctls } = wants;
    let settings = sysctls
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    modules.iter().cloned().chain(settings).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    #[test]
    fn values_are_data_and_what_cannot_be_set_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pwned");
        let wants = KernelWants {
            modules: ["x$(touch pwned)".to_owned()].into(),
            sysctls: [("a.b".to_owned(), "$(touch pwned) 1\t2".to_owned())].into(),
        };
        let output = Command::new("sh")
            .current_dir(folder.path())
            .args(["-c", KERNEL, "rke-operator"])
            .args(arguments(&wants))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            said,
            "module x$(touch pwned) cannot be loaded\nsysctl a.b cannot be set to $(touch pwned) 1\t2\n"
        );
        assert!(fs::metadata(file).is_err());
    }
}
