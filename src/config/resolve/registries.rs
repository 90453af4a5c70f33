//! `private_registries`: logins, authorities, and where system images come from.

use std::collections::BTreeMap;

use super::{Found, values};
use crate::{
    config::{cursor::Cursor, problem::Problem, sources::Sources},
    model::{
        DOCKER_HUB, Registries, RegistryLogin, Secret, is_docker_hub, is_registry, registry_host,
    },
};

/// In the order of the config.
pub(super) fn read(at: &Cursor<'_>, sources: &dyn Sources, found: &mut Found) -> Registries {
    let mut registries = Registries::default();
    let mut seen = BTreeMap::new();
    for (index, item) in at.items().into_iter().enumerate() {
        let place = item.get("url");
        let Some(url) = url(&place, found) else {
            continue;
        };
        if let Some(first) = seen.insert(url.clone(), index) {
            let message = format!("`{}[{first}]` is for the same registry", at.path());
            found.problem(item.problem(message).hint("keep one of the two"));
            continue;
        }
        registries.logins.extend(login(&item, &url, found));
        if values::flag(&item.get("is_default"), found) == Some(true) {
            is_default(&item, &url, &mut registries, found);
        }
        if let Some(authority) = authority(&item, sources, found) {
            let host = registry_host(&url);
            if host == DOCKER_HUB {
                let problem = item.problem("Docker Hub cannot have a private CA");
                found.problem(problem.hint("write the registry itself in `url`"));
            } else if let Some(other) = registries.authorities.insert(host.to_owned(), authority)
                && registries.authorities.get(host) != Some(&other)
            {
                found.problem(item.problem("this registry has another authority already"));
            }
        }
    }
    registries
}

/// Host, port and path; the names of Docker Hub are one.
fn url(at: &Cursor<'_>, found: &mut Found) -> Option<String> {
    let before = found.problems.len();
    let Some(text) = values::text(at, found) else {
        return (found.problems.len() == before).then(|| DOCKER_HUB.to_owned());
    };
    let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
    let plain = rest.trim_end_matches('/');
    let host = registry_host(plain);
    if is_docker_hub(host) {
        return Some(DOCKER_HUB.to_owned());
    }
    if scheme != "https" {
        let problem = at.problem("must not name a scheme");
        found.problem(problem.detail(text).hint(
            "write host and port; for a registry without TLS, set `insecure-registries` in each node's Docker",
        ));
        return None;
    }
    // A first part without any of these is a folder of Docker Hub in the name of an image.
    if !is_registry(host) || !values::is_image(plain) || plain.contains('@') {
        let problem = at.problem("is not a registry").detail(text);
        found.problem(
            problem.hint("as in `registry.example.com:5000`, optionally with a path prefix"),
        );
        return None;
    }
    Some(plain.to_owned())
}

fn login(item: &Cursor<'_>, url: &str, found: &mut Found) -> Option<RegistryLogin> {
    let (user, password) = (item.get("user"), item.get("password"));
    let name = values::text(&user, found);
    let word = values::text(&password, found);
    match (name, word) {
        (None, None) => None,
        (Some(name), Some(_)) if name.contains(':') => {
            found.problem(user.problem("must not have a colon").detail(name));
            None
        }
        (Some(name), Some(word)) => Some(RegistryLogin {
            url: url.to_owned(),
            user: name.to_owned(),
            password: Secret::new(word.to_owned()),
        }),
        // Anything else that stands there is a problem already.
        (Some(_), None) if !password.has_nothing() => None,
        (None, Some(_)) if !user.has_nothing() => None,
        (Some(_), None) => {
            found.problem(item.problem("has a `user` and no `password`"));
            None
        }
        (None, Some(_)) => {
            found.problem(item.problem("has a `password` and no `user`"));
            None
        }
    }
}

fn is_default(item: &Cursor<'_>, url: &str, registries: &mut Registries, found: &mut Found) {
    if url == DOCKER_HUB {
        // Where they are published anyway.
        return;
    }
    if registries.default.is_some() {
        let problem = item.problem("another registry is the default already");
        found.problem(problem.hint("system images come from one registry"));
        return;
    }
    registries.default = Some(url.to_owned());
}

fn authority(item: &Cursor<'_>, sources: &dyn Sources, found: &mut Found) -> Option<String> {
    let (inline, path) = (item.get("ca"), item.get("ca_path"));
    let written = values::text(&inline, found);
    let named = values::text(&path, found);
    let (at, text) = match (written, named) {
        (None, None) => return None,
        (Some(text), None) => (inline, text.to_owned()),
        (None, Some(place)) => match sources.authority_at(place) {
            Ok(text) => (path, text),
            Err(refusal) => {
                found.problem(Problem {
                    detail: refusal.detail,
                    hint: refusal.hint,
                    ..path.problem(refusal.message)
                });
                return None;
            }
        },
        (Some(_), Some(_)) => {
            found.problem(
                path.problem("there is a `ca` already")
                    .hint("keep one of the two"),
            );
            return None;
        }
    };
    values::certificate(&at, "the certificate of an authority", &text, found)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use crate::{
        config::resolve::tests::{and, bad, good},
        model::Registries,
    };

    fn registries(yaml: &str) -> Registries {
        let yaml = and(&format!("private_registries: {yaml}"));
        good(&yaml).intent.registries
    }

    #[test]
    fn what_rke_takes_is_taken() {
        let found = registries(
            "[{user: me, password: hunter2}, {url: 'https://reg.example/', is_default: true}, {url: 'reg.example:5000/team', user: a, password: b}]",
        );
        let logins: Vec<_> = found
            .logins
            .iter()
            .map(|login| login.url.as_str())
            .collect();
        assert_eq!(logins, ["docker.io", "reg.example:5000/team"]);
        assert_eq!(found.logins[0].password.expose(), "hunter2");
        assert_eq!(found.default.as_deref(), Some("reg.example"));
        let none = "[{url: docker.io, is_default: true}]";
        assert_eq!(registries(none), Registries::default());
        assert_eq!(registries("[]"), Registries::default());
    }

    /// As RKE has it: to the images of the release, not to those that the config names.
    #[test]
    fn the_default_has_the_images_that_the_config_does_not_name() {
        let yaml = and("\
private_registries: [{url: reg.example:5000/mirror, is_default: true}]
system_images: {etcd: 'example.com/etcd:3'}
");
        let intent = good(&yaml).intent;
        assert_eq!(intent.images.etcd, "example.com/etcd:3");
        for image in [
            &intent.images.kubernetes,
            &intent.images.pause,
            &intent.images.nginx,
            &intent.images.runtime,
        ] {
            assert!(image.starts_with("reg.example:5000/mirror/"), "{image}");
        }
        let catalogue = crate::catalog::Catalogue::builtin().unwrap();
        let other = catalogue
            .versions()
            .find(|version| *version != intent.version);
        let intent = crate::config::Intent {
            version_given: false,
            ..intent
        };
        let kept = intent.keeping(other.unwrap(), catalogue).unwrap();
        assert_eq!(kept.images.etcd, "example.com/etcd:3");
        let image = &kept.images.kubernetes;
        assert!(image.starts_with("reg.example:5000/mirror/"), "{image}");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_a_password() {
        assert_snapshot!(bad(&and("\
private_registries:
  - {url: 'http://reg.example', user: me, password: hunter2}
  - {url: team, user: me, password: hunter2}
  - {url: reg.example, user: me}
  - {url: reg.example/, password: hunter2}
  - {url: a.example, password: hunter2}
  - {url: b.example, is_default: true}
  - {url: c.example, is_default: true, ca: hunter2}
  - {url: d.example, ca: hunter2, ca_path: ca.pem}
  - {url: e.example, ca_path: missing.pem}
  - {url: f.example, ecr_credential_plugin: {aws_access_key_id: hunter2}}
")));
    }
}
