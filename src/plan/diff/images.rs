//! The images that a node's Docker lacks. Pure.

use std::collections::BTreeMap;

use super::Need;
use crate::{
    catalog::is_listed, desired::DesiredHost, facts::HostFacts, model::Component, plan::Cause,
};

/// An image that has to be pulled.
pub(in crate::plan) struct MissingImage<'a> {
    pub(in crate::plan) image: &'a str,
    pub(in crate::plan) cause: Cause,
}

/// Every image that is missing. What is there is left alone, whatever its age.
pub(super) fn missing<'a>(
    host: &'a DesiredHost,
    facts: &HostFacts,
    components: &BTreeMap<Component, Need>,
) -> Vec<MissingImage<'a>> {
    let missing = host.images.iter().filter(|image| !present(image, facts));
    missing
        .map(|image| MissingImage {
            image,
            cause: cause(image, host, facts, components),
        })
        .collect()
}

/// The cause of a component that runs it; of several, one that needs no request. An image that only
/// went missing is pulled again.
fn cause(
    image: &str,
    host: &DesiredHost,
    facts: &HostFacts,
    components: &BTreeMap<Component, Need>,
) -> Cause {
    let users = host
        .containers
        .iter()
        .filter(|(_, spec)| spec.image == image);
    let causes = users.filter_map(|(component, _)| components.get(component)?.cause());
    match causes.min_by_key(|cause| *cause == Cause::Change) {
        Some(cause) => cause,
        None if facts.claim().is_none() => Cause::New,
        None => Cause::Drift,
    }
}

/// Docker lists short names: `docker.io/library/nginx` is `nginx:latest` there. It lists no
/// digests, so an image that is named by one counts as present when a container runs it.
pub(crate) fn present(image: &str, facts: &HostFacts) -> bool {
    is_listed(image, &facts.images)
        || (image.contains('@') && facts.containers.values().any(|fact| fact.image == image))
}

#[cfg(test)]
mod tests {
    use crate::catalog::familiar;

    #[test]
    fn names_are_compared_as_docker_lists_them() {
        assert_eq!(familiar("docker.io/library/nginx"), "nginx:latest");
        assert_eq!(familiar("docker.io/rancher/pause:3.6"), "rancher/pause:3.6");
        assert_eq!(
            familiar("reg.example:5000/a/b"),
            "reg.example:5000/a/b:latest"
        );
        assert_eq!(familiar("a/b@sha256:00"), "a/b@sha256:00");
    }
}
