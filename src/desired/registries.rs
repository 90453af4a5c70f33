//! The files of a node about registries: Docker's authorities, containerd's, and kubelet's logins. Pure.
//!
//! Docker and containerd read these files at each pull, kubelet again after five minutes: nothing is restarted.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    containerd,
    host_context::{Files, HostContext, PRIVATE, PUBLIC},
};
use crate::{
    config::Intent,
    facts::{Actual, HostFacts},
    model::{DOCKER_HUB, Registries, Secret, path, quoted},
};

/// As kubelet and `docker login` name Docker Hub.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// The files.
pub(super) fn files(context: &HostContext<'_>) -> Files {
    let registries = &context.intent.registries;
    let mut files = Files::new();
    for (host, authority) in &registries.authorities {
        let file = context.file(authority.as_bytes(), PUBLIC);
        files.insert(path::docker_authority(host), file);
    }
    if let Some(logins) = logins(registries) {
        let file = context.file(logins.expose().as_bytes(), PRIVATE);
        files.insert(path::REGISTRIES.to_owned(), file);
    }
    files.extend(of_containerd(context));
    files
}

/// What kubelet reads; `None` where there is no login.
fn logins(registries: &Registries) -> Option<Secret<String>> {
    let logins = registries.logins.iter().map(|login| {
        let key = if login.url == DOCKER_HUB {
            HUB_KEY
        } else {
            login.url.as_str()
        };
        let word = Secret::new(format!("{}:{}", login.user, login.password.expose()));
        (key, json!({"auth": STANDARD.encode(word.expose())}))
    });
    let logins: BTreeMap<&str, Value> = logins.collect();
    (!logins.is_empty()).then(|| Secret::new(json!({"auths": logins}).to_string()))
}

/// What Docker knows about registries, for containerd. Where someone keeps such files already they stay.
fn of_containerd(context: &HostContext<'_>) -> Files {
    let Some(facts) = context.facts else {
        return Files::new();
    };
    if has_own(facts) {
        return Files::new();
    }
    // Our own files as they must be, not as they were read.
    let found = facts.system.docker_certs.iter();
    let mut certs: BTreeSet<String> = found
        .filter(|file| !path::is_docker_authority(file))
        .cloned()
        .collect();
    let hosts = context.intent.registries.authorities.keys();
    certs.extend(hosts.map(|host| path::docker_authority(host)));
    containerd::registries(&facts.docker, &certs, path::CERTS_D)
        .into_iter()
        .map(|(path, text)| (path, context.file(text, PUBLIC)))
        .collect()
}

fn has_own(facts: &HostFacts) -> bool {
    let before = facts.before().map(|before| before.paths);
    let paths = before.as_ref().unwrap_or(&facts.system.paths);
    paths.contains(path::CERTS_D)
}

/// Where containerd is not told of an authority.
pub(super) fn notes(intent: &Intent, have: &Actual) -> Vec<String> {
    let hosts = &intent.registries.authorities;
    if hosts.is_empty() {
        return Vec::new();
    }
    let hosts = quoted(hosts.keys());
    let nodes = intent.nodes.keys();
    let nodes = nodes.filter(|name| have.up(name).is_some_and(has_own));
    let notes = nodes.map(|name| {
        format!(
            "node `{name}`: `{}` was there before and stays as it is: pods pull from {} with what it says of the authority",
            path::CERTS_D,
            hosts
        )
    });
    notes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        desired::{Desired, DesiredHost, fixture},
        model::{Component, NodeName, RegistryLogin},
    };

    fn intent() -> Intent {
        let mut intent = fixture::intent();
        let login = |url: &str, password: &str| RegistryLogin {
            url: url.to_owned(),
            user: "me".to_owned(),
            password: password.to_owned().into(),
        };
        intent.registries = Registries {
            logins: vec![
                login("docker.io", "hunter1"),
                login("reg.example:5000/a", "hunter2"),
            ],
            default: None,
            authorities: [("reg.example:5000".to_owned(), "PEM\n".to_owned())].into(),
        };
        intent
    }

    fn host(intent: &Intent) -> DesiredHost {
        let desired = fixture::desired(intent);
        desired.hosts[&NodeName::from("n1")].clone()
    }

    fn text(host: &DesiredHost, path: &str) -> String {
        String::from_utf8(host.files[path].content.expose().clone()).unwrap()
    }

    #[test]
    fn kubelet_has_the_logins_and_docker_and_containerd_the_authority() {
        let host = host(&intent());
        let authority = "/etc/docker/certs.d/reg.example:5000/rke-operator.crt";
        assert_eq!(text(&host, authority), "PEM\n");
        let file = "/etc/containerd/certs.d/reg.example:5000/hosts.toml";
        assert!(text(&host, file).contains(&format!("ca = [\"{authority}\"]")));
        assert_eq!(
            text(&host, path::REGISTRIES),
            r#"{"auths":{"https://index.docker.io/v1/":{"auth":"bWU6aHVudGVyMQ=="},"reg.example:5000/a":{"auth":"bWU6aHVudGVyMg=="}}}"#
        );
        assert_eq!(host.files[path::REGISTRIES].mode, 0o600);
    }

    /// A changed password restarts nothing, and is in nothing that is shown.
    #[test]
    fn a_password_is_in_one_file_and_in_no_definition() {
        let (before, mut intent) = (host(&intent()), intent());
        intent.registries.logins[1].password = "hunter3".to_owned().into();
        let after = host(&intent);
        assert_eq!(before.containers, after.containers);
        let differ = before.files.iter();
        let differ = differ.filter(|(path, file)| after.files[*path].content != file.content);
        let differ: Vec<_> = differ.map(|(path, _)| path.as_str()).collect();
        assert_eq!(differ, [path::REGISTRIES]);
        let shown = format!("{:?}", fixture::desired(&intent));
        assert!(!shown.contains("hunter") && !shown.contains("bWU6aHVudGV"));
    }

    #[test]
    fn nothing_is_written_where_nothing_is_asked_for() {
        let host = host(&fixture::intent());
        assert!(!host.files.contains_key(path::REGISTRIES));
        let kubelet = &host.containers[&Component::Kubelet];
        assert!(!kubelet.entrypoint.join(" ").contains(path::KUBELET_LOGINS));
    }

    #[test]
    fn an_existing_folder_of_containerd_stays_and_is_reported() {
        let intent = intent();
        let mut have = fixture::blank(&intent);
        let mut facts = fixture::facts();
        facts.system.paths.insert(path::CERTS_D.to_owned());
        have.hosts.insert(NodeName::from("n1"), fixture::up(facts));
        let keys = fixture::reuse_or_issue(&intent, &have, 7).unwrap();
        let desired = Desired::from_intent(&intent, &keys, &have).unwrap();
        let files = &desired.hosts[&NodeName::from("n1")].files;
        assert!(!files.keys().any(|path| path.starts_with(path::CERTS_D)));
        assert!(
            desired
                .notes
                .iter()
                .any(|note| note.contains("`reg.example:5000`"))
        );
    }
}
