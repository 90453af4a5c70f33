//! The images that a node's Docker lacks. Pure.

use super::{Action, Stage, Step, hosts};
use crate::{
    actual::{Actual, HostFacts},
    desired::{Desired, images::tagged},
};

/// A pull for each image that is missing. What is there is left alone, whatever its age.
pub(super) fn pull(want: &Desired, have: &Actual) -> Stage {
    hosts::stage("images", want, have, |name, host, facts| {
        host.images
            .iter()
            .filter(|image| !present(image, facts))
            .map(|image| {
                Step::on(
                    name,
                    "this node's Docker does not have it",
                    Action::PullImage {
                        image: image.clone(),
                    },
                )
            })
            .collect()
    })
}

/// Docker lists short names: `docker.io/library/nginx` is `nginx:latest` there. It lists no
/// digests, so an image that is named by one counts as present when a container runs it.
pub(super) fn present(image: &str, facts: &HostFacts) -> bool {
    let short = short(image);
    facts.images.iter().any(|have| self::short(have) == short)
        || (image.contains('@') && facts.containers.values().any(|fact| fact.image == image))
}

fn short(image: &str) -> String {
    let name = image.strip_prefix("docker.io/").unwrap_or(image);
    let name = name.strip_prefix("library/").unwrap_or(name);
    tagged(name)
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_are_compared_as_docker_lists_them() {
        assert_eq!(short("docker.io/library/nginx"), "nginx:latest");
        assert_eq!(short("docker.io/rancher/pause:3.6"), "rancher/pause:3.6");
        assert_eq!(short("reg.example:5000/a/b"), "reg.example:5000/a/b:latest");
        assert_eq!(short("a/b@sha256:00"), "a/b@sha256:00");
    }
}
