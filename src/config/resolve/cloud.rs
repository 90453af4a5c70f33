//! `cloud_provider`: Kubernetes has none built in any more, so it is a controller of the user's, and maybe its file.

use super::{Found, values};
use crate::{
    config::{cursor::Cursor, intent::CloudProvider, problem::Problem},
    model::Secret,
};

/// Until the cloud's own controller manager has seen them.
fn waits(at: &Cursor<'_>) -> Problem {
    let message =
        "no node accepts pods, not even CoreDNS, until you install the cloud's controller manager";
    at.problem(message).hint(
        "its pods must tolerate `node.cloudprovider.kubernetes.io/uninitialized`, and run on the host's network",
    )
}

/// The same by kubelet's own flag, where the config has no `cloud_provider`.
pub(super) fn by_flag(root: &Cursor<'_>, found: &mut Found) {
    let flag = root
        .get("services")
        .get("kubelet")
        .get("extra_args")
        .get("cloud-provider");
    if flag.scalar() == Some("external") && root.get("cloud_provider").is_empty() {
        found.warning(waits(&flag));
    }
}

/// `None`: there is none.
pub(super) fn read(at: &Cursor<'_>, found: &mut Found) -> Option<CloudProvider> {
    let name_at = at.get("name");
    let name = values::text(&name_at, found).map(str::to_ascii_lowercase);
    let harvester = at.get("harvesterCloudProvider").get("cloud_config");
    let custom = at.get("customCloudProvider");
    let mut file =
        |at: &Cursor<'_>| values::text(at, found).map(|text| Secret::new(text.to_owned()));
    let (of_harvester, own) = (file(&harvester), file(&custom));
    let named = match name.as_deref() {
        None => of_harvester.is_some(),
        Some("external" | "external-aws" | "harvester") => true,
        Some("custom") => own.is_some(),
        Some("aws" | "azure" | "openstack" | "vsphere") => {
            let problem =
                name_at.problem("no release here has a cloud provider of this name built in");
            found.problem(problem.hint(
                "write `name: external`, and install the cloud's own controller manager and CSI driver",
            ));
            return None;
        }
        Some(_) => false,
    };
    if own.is_some() && of_harvester.is_some() {
        let problem = custom.problem("another cloud provider brings the same file");
        found.problem(problem.hint("keep one of the two"));
    }
    match (named, &name) {
        (true, _) => {
            let at = if name.is_some() { &name_at } else { &harvester };
            found.warning(waits(at));
            Some(CloudProvider {
                config: of_harvester.or(own),
            })
        }
        (false, Some(_)) => {
            let problem = name_at.problem("is not a cloud provider that kubelet knows");
            found.problem(problem.hint("write `external`, `external-aws`, `harvester`, or `custom` with `customCloudProvider`"));
            None
        }
        (false, None) => {
            if own.is_some() {
                let problem = custom.problem("needs the provider's `name`, as in RKE");
                found.problem(problem.hint("write `name: external`"));
            }
            None
        }
    }
}
