//! Which release a component runs, and which it is to have. Pure. A running component reports its release; an image's
//! tag is used where none runs or reports one: images may be named by digest or have tags of a user's choice.

use crate::{
    desired::Desired,
    facts::Actual,
    model::{Component, ContainerSpec, ImageVersion, NodeName, image_version, version},
    plan::lost,
};

/// The release that runs on a node: the one that it reports, else the one in its image's tag.
pub(super) fn runs(component: Component, node: &NodeName, have: &Actual) -> Option<ImageVersion> {
    let fact = have.up(node)?.container(component)?;
    observed(component, node, have).or_else(|| image_version(&fact.image))
}

/// The release that the component reports. `None` for components that are not asked.
fn observed(component: Component, node: &NodeName, have: &Actual) -> Option<ImageVersion> {
    match component {
        Component::Etcd => {
            let member = have.etcd.members.get(&have.etcd.on(node)?)?;
            version(&member.status.as_ref()?.1.version)
        }
        Component::ApiServer => have.versions.get(node).copied(),
        Component::Kubelet => version(&lost::node(node, have)?.kubelet_version),
        Component::ControllerManager
        | Component::Scheduler
        | Component::NginxProxy
        | Component::KubeProxy
        | Component::Snapshots => None,
    }
}

/// What it is to have: as the tag says, else the release of the config, for what is of Kubernetes.
pub(super) fn wanted(
    component: Component,
    spec: &ContainerSpec,
    want: &Desired,
) -> Option<ImageVersion> {
    image_version(&spec.image).or_else(|| match component {
        Component::ApiServer
        | Component::ControllerManager
        | Component::Scheduler
        | Component::Kubelet
        | Component::KubeProxy => {
            let release = want.saved.kubernetes_version?;
            let (major, minor, patch) = (release.major, release.minor, release.patch);
            Some((major.into(), minor.into(), patch.into()))
        }
        Component::Etcd | Component::NginxProxy | Component::Snapshots => None,
    })
}

/// As people write it.
pub(super) fn text((major, minor, patch): ImageVersion) -> String {
    format!("v{major}.{minor}.{patch}")
}
