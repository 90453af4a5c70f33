//! Registries of images: which one an image is in, and how to log in. Pure.

use std::collections::BTreeMap;

use super::Secret;

/// The name of the registry that images without one are in.
pub const DOCKER_HUB: &str = "docker.io";

/// A login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryLogin {
    /// Host and port, and optionally a path prefix; no scheme, no `/` at the end.
    pub url: String,
    /// The user.
    pub user: String,
    /// The password.
    pub password: Secret<String>,
}

/// What the config says about registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registries {
    /// Each for another registry, or another path of one.
    pub logins: Vec<RegistryLogin>,
    /// Where system images come from that the config does not name itself; `None`: where they are
    /// published.
    pub default: Option<String>,
    /// Certificates of authorities (PEM), by the host and port of the registry.
    pub authorities: BTreeMap<String, String>,
}

impl Registries {
    /// The login for an image: of those for its registry the one whose path says most.
    pub fn login(&self, image: &str) -> Option<&RegistryLogin> {
        let place = place(image);
        let fits = |login: &&RegistryLogin| {
            let rest = place.strip_prefix(login.url.as_str());
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let logins = self.logins.iter().filter(fits);
        logins.max_by_key(|login| login.url.len())
    }

    /// Where a published image is pulled from.
    pub fn place(&self, image: &str) -> String {
        match &self.default {
            Some(registry) => format!("{registry}/{image}"),
            None => image.to_owned(),
        }
    }
}

/// Host and port of a registry.
pub fn registry_host(url: &str) -> &str {
    url.split('/').next().unwrap_or(url)
}

/// True for each name of Docker Hub.
pub fn is_docker_hub(host: &str) -> bool {
    matches!(
        host,
        DOCKER_HUB | "index.docker.io" | "registry-1.docker.io"
    )
}

/// True for the first part of an image's name that is a registry, and not a folder of Docker Hub.
pub fn is_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':'])
}

/// Host and port of the registry that an image is in.
pub fn registry_of(image: &str) -> String {
    registry_host(&place(image)).to_owned()
}

/// The whole name of an image, with its registry: a first part without dot and port is none.
fn place(image: &str) -> String {
    let (first, rest) = image.split_once('/').unwrap_or(("", image));
    if is_docker_hub(first) {
        format!("{DOCKER_HUB}/{rest}")
    } else if is_registry(first) {
        image.to_owned()
    } else {
        format!("{DOCKER_HUB}/{image}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_that_says_most_is_taken_and_no_registry_gets_that_of_another() {
        let login = |url: &str| RegistryLogin {
            url: url.to_owned(),
            user: format!("of {url}"),
            password: "hunter2".to_owned().into(),
        };
        let registries = Registries {
            logins: ["docker.io", "reg.example:5000", "reg.example:5000/team"]
                .map(login)
                .into(),
            ..Registries::default()
        };
        for (image, url) in [
            ("nginx", Some("docker.io")),
            ("library/nginx:1", Some("docker.io")),
            ("index.docker.io/rancher/pause:3.6", Some("docker.io")),
            ("reg.example:5000/a:1", Some("reg.example:5000")),
            (
                "reg.example:5000/team/a@sha256:00",
                Some("reg.example:5000/team"),
            ),
            ("reg.example:5000/teams/a", Some("reg.example:5000")),
            ("reg.example:50001/a", None),
            ("reg.example/a", None),
            ("localhost/a", None),
        ] {
            let found = registries.login(image).map(|login| login.url.as_str());
            assert_eq!(found, url, "{image}");
        }
        assert!(!format!("{registries:?}").contains("hunter2"));
    }

    #[test]
    fn published_images_come_from_the_default() {
        let mut registries = Registries::default();
        assert_eq!(registries.place("rancher/pause:3.6"), "rancher/pause:3.6");
        registries.default = Some("reg.example/mirror".to_owned());
        assert_eq!(
            registries.place("rancher/pause:3.6"),
            "reg.example/mirror/rancher/pause:3.6"
        );
    }
}
