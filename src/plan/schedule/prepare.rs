//! What a node needs before its components start: images, kernel, files. Pure.

use super::{hosts, part::Part};
use crate::{
    model::{NodeName, path},
    plan::{
        Cause, HostAction, Step,
        diff::{Diff, FilesDiff},
    },
};

/// A pull for each image that is missing, and before them the authorities by which Docker knows registries.
pub(super) fn images(diff: &Diff<'_>) -> Part {
    let stage = hosts::preparing("images", diff, |name, host| {
        let authorities = host.files.iter().filter_map(|files| {
            let why = "authorities by which Docker and containerd know registries";
            archive(name, files, why, diff, path::is_docker_authority)
        });
        let missing = host.images.iter().map(|missing| {
            let action = HostAction::PullImage {
                image: missing.image.to_owned(),
            };
            let why = "this node's Docker does not have it";
            Step::on(name, missing.cause, why, action)
        });
        authorities.chain(missing).collect()
    });
    stage.into()
}

/// One step a node whose modules or sysctls differ.
pub(super) fn kernel(diff: &Diff<'_>) -> Part {
    let stage = hosts::preparing("kernel", diff, |name, host| {
        if host.kernel.is_empty() {
            return Vec::new();
        }
        let action = HostAction::PrepareKernel {
            wants: host.want.kernel.clone(),
        };
        let why = "pods need these modules and sysctls";
        let cause = if host.facts.claim().is_none() {
            Cause::New
        } else {
            Cause::Drift
        };
        vec![Step::on(name, cause, why, action).changing(host.kernel.clone())]
    });
    stage.into()
}

/// One step an archive.
pub(super) fn files(diff: &Diff<'_>) -> Part {
    let stage = hosts::preparing("files", diff, |name, host| {
        let archives = host.files.iter().filter_map(|files| {
            let why = match files.cause {
                Cause::New => "certificates and configuration that the components read",
                Cause::Expiry => "certificates that end soon are renewed",
                Cause::Drift => "were changed or are gone",
                Cause::Change | Cause::Leave | Cause::Replace => {
                    "differ from what the components must read"
                }
            };
            archive(name, files, why, diff, |path| {
                !path::is_docker_authority(path)
            })
        });
        archives.collect()
    });
    stage.into()
}

/// One archive of those files, if there are any.
fn archive(
    name: &NodeName,
    files: &FilesDiff,
    why: &'static str,
    diff: &Diff<'_>,
    is_one: impl Fn(&str) -> bool,
) -> Option<Step> {
    let FilesDiff {
        dirs,
        files,
        changes,
        cause,
    } = files;
    let mut dirs = dirs.clone();
    dirs.retain(|path, _| is_one(path));
    let mut files = files.clone();
    files.retain(|path, _| is_one(path));
    let mut changes = changes.clone();
    changes.retain(|change| change.field.path().is_none_or(&is_one));
    if dirs.is_empty() && files.is_empty() {
        return None;
    }
    let action = HostAction::WriteFiles { dirs, files };
    let step = Step::on(name, *cause, why, action);
    Some(step.changing(changes).guarded(&diff.want.cluster_id))
}
