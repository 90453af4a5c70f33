//! Images for other machines than those of the cluster. Pure.

use std::collections::BTreeSet;

use super::PreflightError;
use crate::{
    catalog::familiar,
    error::ErrorClass,
    facts::HostFacts,
    model::{BundledImages, ImagePlatform, NodeName},
};

/// An error for a node that cannot run what the bundle has for it.
pub(in crate::plan) fn fits<'i>(
    bundle: &BundledImages,
    name: &NodeName,
    facts: &HostFacts,
    docker: impl Iterator<Item = &'i str>,
) -> Option<PreflightError> {
    let architecture = &facts.docker.architecture;
    if architecture.is_empty() {
        return None;
    }
    let node = ImagePlatform::of_node(architecture);
    let wanted: BTreeSet<String> = docker
        .map(familiar)
        .chain(bundle.pods.iter().cloned())
        .collect();
    let mut found = wanted
        .iter()
        .filter_map(|image| Some((image, bundle.images.get(image)?)));
    let (image, other) = found.find(|(_, found)| found.platform != node)?;
    Some(PreflightError {
        node: Some(name.clone()),
        message: format!(
            "node `{name}` is {node}, and `{image}` in the bundle `{}` is for {}",
            bundle.file, other.platform
        ),
        hints: vec![format!(
            "save a bundle with `rke-operator images save --platform {node}` (a `Cluster` has no bundles)"
        )],
        class: ErrorClass::User,
    })
}
