//! What a node needs before its components start: images, kernel, files. Pure.

use super::{hosts, load, part::Part};
use crate::{
    catalog::{canonical, familiar},
    desired::Desired,
    model::{BundledImage, Component, NodeName, path},
    plan::{
        Cause, HostAction, Note, Step,
        diff::{Diff, FilesDiff, HostDiff, present},
    },
};

/// How a node gets an image: out of the bundle where that has it, else its Docker pulls it.
pub(super) fn fetch(image: &str, want: &Desired) -> HostAction {
    let bundle = want.bundle.as_ref();
    let bundled = bundle.and_then(|bundle| bundle.images.get(&familiar(image)));
    let image = image.to_owned();
    match bundled {
        Some(BundledImage { bytes, .. }) => HostAction::LoadImage {
            image,
            bytes: *bytes,
        },
        None => HostAction::PullImage { image },
    }
}

/// A pull, or a load out of the bundle, for each image that is missing, and before them the authorities by which Docker knows registries.
pub(super) fn images(diff: &Diff<'_>) -> Part {
    let stage = hosts::preparing("images", diff, |name, host| {
        let authorities = host.files.iter().filter_map(|files| {
            let why = "authorities by which Docker and containerd know registries";
            archive(name, files, why, diff, path::is_docker_authority)
        });
        let missing = host.images.iter().map(|missing| {
            let why = "this node's Docker does not have it";
            Step::on(name, missing.cause, why, fetch(missing.image, diff.want))
        });
        let late = late(host, diff.want).map(|image| {
            let why = "this node's Docker does not have it, and could not pull it later";
            Step::on(name, Cause::New, why, fetch(image, diff.want))
        });
        authorities.chain(missing).chain(late).collect()
    });
    Part::from(stage).with_notes(not_bundled(diff))
}

/// The image of what takes snapshots: a node pulls it with that, last of all, unless a bundle has it.
fn late<'d>(host: &'d HostDiff<'_>, want: &Desired) -> Option<&'d str> {
    let spec = host.want.containers.get(&Component::Snapshots)?;
    let bundle = want.bundle.as_ref()?;
    let bundled = bundle.images.contains_key(&familiar(&spec.image));
    let comes = host
        .images
        .iter()
        .any(|missing| missing.image == spec.image);
    (bundled && !comes && !present(&spec.image, host.facts)).then_some(&*spec.image)
}

/// What the bundle does not have.
fn not_bundled(diff: &Diff<'_>) -> Vec<Note> {
    let Some(bundle) = &diff.want.bundle else {
        return Vec::new();
    };
    let missing = diff.hosts.values().flat_map(|host| &host.images);
    let missing = missing.map(|missing| missing.image);
    let missing = missing.filter(|image| !bundle.images.contains_key(&familiar(image)));
    load::lacking(bundle, &missing.collect())
}

/// Images of pods out of the bundle, for nodes whose containerd was not given them.
pub(super) fn pod_images(diff: &Diff<'_>) -> Part {
    let Some(bundle) = &diff.want.bundle else {
        return Part::default();
    };
    let stage = hosts::preparing("import", diff, |name, host| {
        let there = host.facts.pod_images();
        let lacks = bundle
            .pods
            .iter()
            .filter(|image| !there.contains(&canonical(image)));
        let steps = lacks.filter_map(|image| {
            let action = HostAction::ImportImage {
                image: image.clone(),
                bytes: bundle.images.get(image)?.bytes,
            };
            let why = "pods need it, and it is in the bundle";
            Some(Step::on(name, Cause::New, why, action).guarded(&diff.want.cluster_id))
        });
        steps.collect()
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
                Cause::Drift => "not as they were written",
                Cause::Change | Cause::Leave | Cause::Replace => {
                    "not as the components must read them"
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
