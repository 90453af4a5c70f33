//! What a node needs before its components start: images, kernel, files. Pure.

use super::hosts;
use crate::plan::{Cause, HostAction, Stage, Step, diff::Diff};

/// A pull for each image that is missing.
pub(super) fn images(diff: &Diff<'_>) -> Stage {
    hosts::preparing("images", diff, |name, host| {
        let missing = host.images.iter().map(|missing| {
            let action = HostAction::PullImage {
                image: missing.image.to_owned(),
            };
            let why = "this node's Docker does not have it";
            Step::on(name, missing.cause, why, action)
        });
        missing.collect()
    })
}

/// One step a node whose modules or sysctls differ.
pub(super) fn kernel(diff: &Diff<'_>) -> Stage {
    hosts::preparing("kernel", diff, |name, host| {
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
    })
}

/// One step an archive.
pub(super) fn files(diff: &Diff<'_>) -> Stage {
    hosts::preparing("files", diff, |name, host| {
        let archives = host.files.iter().map(|files| {
            let why = match files.cause {
                Cause::New => "certificates and configuration that the components read",
                Cause::Expiry => "certificates that end soon are renewed",
                Cause::Drift => "were changed or are gone",
                Cause::Change | Cause::Leave | Cause::Replace => {
                    "differ from what the components must read"
                }
            };
            let action = HostAction::WriteFiles {
                dirs: files.dirs.clone(),
                files: files.files.clone(),
            };
            Step::on(name, files.cause, why, action)
                .changing(files.changes.clone())
                .guarded(&diff.want.cluster_id)
        });
        archives.collect()
    })
}
