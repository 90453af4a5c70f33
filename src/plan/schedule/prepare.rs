//! What a node needs before its components start: images, kernel, files, containerd. Pure.

use super::{hosts, start};
use crate::{
    desired::Desired,
    model::{NodeName, path},
    plan::{
        Cause, HostAction, Stage, Step, config_digest,
        diff::{ContainerdDiff, Diff, HostDiff},
    },
};

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

/// One transaction on each node whose containerd is not told what kubelet needs.
pub(super) fn containerd(diff: &Diff<'_>) -> Stage {
    hosts::preparing("containerd", diff, |name, host| {
        // An error was reported with all others before.
        let Some(differs) = host.containerd() else {
            return Vec::new();
        };
        let step = configure(name, diff.want, host, differs);
        if start::pause_comes_with_kubelet(host) {
            vec![step]
        } else {
            vec![start::import_pause(name, host, differs.cause), step]
        }
    })
}

fn configure(
    name: &NodeName,
    want: &Desired,
    host: &HostDiff<'_>,
    differs: &ContainerdDiff,
) -> Step {
    let digest = config_digest(&want.saved, differs.content.as_bytes());
    let mut changes = differs.changes.clone();
    for change in &mut changes {
        if change.field.ends_with(path::CONTAINERD_CONFIG) {
            change.to = Some(digest.0.clone());
        }
    }
    let action = HostAction::ConfigureContainerd {
        wants: host.want.containerd.clone(),
        digest,
    };
    let why = "kubelet runs pods on this node's containerd";
    Step::on(name, differs.cause, why, action)
        .changing(changes)
        .guarded(&want.cluster_id)
        .disturbing(hosts::containerd_restarts(host.facts))
}
