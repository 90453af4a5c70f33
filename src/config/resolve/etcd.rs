//! `services.etcd.external_urls` and what belongs to it: an etcd outside of the cluster.

use super::{Found, values};
use crate::{
    config::{cursor::Cursor, problem::Problem},
    model::{ClientIdentity, EtcdPlace, EtcdUrl, ExternalEtcd, Owner, Secret},
};

const NEEDS: &str = "a cluster with an external etcd needs `external_urls`, `ca_cert`, `cert` and `key` under \
                     `services.etcd`, and no node with the role `etcd`";

/// What is for members on nodes alone.
const OF_MEMBERS: [&str; 5] = [
    "extra_args",
    "extra_args_array",
    "extra_binds",
    "extra_env",
    "backup_config",
];

/// True when the config names an etcd outside of the cluster.
pub(super) fn is_external(root: &Cursor<'_>) -> bool {
    !at(root).get("external_urls").is_empty()
}

/// True when it does not, and has what only such an etcd needs.
pub(super) fn is_half_external(root: &Cursor<'_>) -> bool {
    let at = at(root);
    let keys = ["ca_cert", "cert", "key"];
    !is_external(root) && keys.iter().any(|key| !at.get(key).is_empty())
}

/// Where the members are to be named that are missing.
pub(super) fn no_urls(root: &Cursor<'_>) -> Problem {
    let problem = at(root).get("external_urls");
    problem
        .problem("no node has the role `etcd`, and the external etcd has no URL")
        .hint(NEEDS)
}

fn at<'a>(root: &Cursor<'a>) -> Cursor<'a> {
    root.get("services").get("etcd")
}

fn no_members(at: &Cursor<'_>, found: &mut Found) {
    let warning = at.problem("has no effect: no node has a member of etcd");
    found.warning(warning.hint("configure it on the external etcd"));
}

/// Whom the members on nodes run as.
pub(super) fn owner(root: &Cursor<'_>, found: &mut Found) -> Owner {
    let mut id = |key| {
        let at = at(root).get(key);
        let id = values::number_or_default(&at, found);
        if id != 0 && is_external(root) {
            no_members(&at, found);
        }
        id
    };
    Owner {
        uid: id("uid"),
        gid: id("gid"),
    }
}

/// Where etcd is. `None` only when a problem was found.
pub(super) fn read(root: &Cursor<'_>, found: &mut Found) -> Option<EtcdPlace> {
    let at = at(root);
    if !is_external(root) {
        for key in ["ca_cert", "cert", "key", "path"] {
            let at = at.get(key);
            if !at.is_empty() {
                let warning = at.problem("has no effect without `external_urls`");
                found.warning(warning.hint(NEEDS));
            }
        }
        return Some(EtcdPlace::Nodes);
    }
    for key in OF_MEMBERS {
        let at = at.get(key);
        if !at.is_empty() {
            no_members(&at, found);
        }
    }
    let before = found.problems.len();
    let urls = urls(&at.get("external_urls"), found);
    let ca = pem(
        &at.get("ca_cert"),
        "the certificate of its authority",
        found,
    );
    let cert = pem(&at.get("cert"), "a client certificate", found);
    let key = key(&at.get("key"), found);
    let prefix = prefix(&at.get("path"), found);
    if found.problems.len() > before {
        return None;
    }
    let identity = ClientIdentity {
        ca: ca?,
        cert: cert?,
        key: key?,
    };
    Some(EtcdPlace::External(ExternalEtcd {
        urls,
        prefix,
        identity,
    }))
}

/// A list, or one text with commas between, as `--etcd-servers` has it.
fn urls(at: &Cursor<'_>, found: &mut Found) -> Vec<EtcdUrl> {
    let written = match at.scalar() {
        Some(_) => values::text(at, found)
            .map(|text| (at.clone(), text))
            .into_iter()
            .collect(),
        None => values::texts(at, found),
    };
    let mut urls: Vec<EtcdUrl> = Vec::new();
    for (item, text) in written {
        for text in text.split(',').map(str::trim) {
            match url(text) {
                Ok(url) if urls.contains(&url) => {
                    found.problem(item.problem("this URL is written twice").detail(text));
                }
                Ok(url) => urls.push(url),
                Err((message, hint)) => {
                    found.problem(item.problem(message).detail(text).hint(hint));
                }
            }
        }
    }
    urls
}

fn url(text: &str) -> Result<EtcdUrl, (&'static str, &'static str)> {
    const FORM: &str = "write it like `https://etcd1.example.com:2379`";
    let none = ("is not the URL of a member of etcd", FORM);
    let (scheme, rest) = text.split_once("://").ok_or(none)?;
    match scheme.to_ascii_lowercase().as_str() {
        "https" => {}
        "http" => {
            return Err((
                "an etcd without TLS is not supported",
                "without TLS, every client that reaches etcd can read and change all data: enable TLS, and write `https://`",
            ));
        }
        _ => return Err(none),
    }
    let plain = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = plain
        .rsplit_once(':')
        .ok_or(("the port is missing", FORM))?;
    if !values::is_host(host) {
        return Err(none);
    }
    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
    Ok(EtcdUrl {
        host: host.to_ascii_lowercase(),
        port: port.ok_or(none)?,
    })
}

/// The text under a key that must be there. A path is the likeliest mistake: RKE takes none either.
fn required<'a>(at: &Cursor<'a>, what: &str, found: &mut Found) -> Option<&'a str> {
    let before = found.problems.len();
    let text = values::text(at, found);
    match text {
        None if found.problems.len() == before => {
            let message = format!("an external etcd needs {what}");
            found.problem(at.problem(message).hint(NEEDS));
            None
        }
        Some(text) if text.starts_with(['/', '~']) => {
            let problem = at.problem("must be the text itself, not the path of a file");
            found.problem(problem.hint("write PEM below `|-`"));
            None
        }
        text => text,
    }
}

fn pem(at: &Cursor<'_>, what: &str, found: &mut Found) -> Option<String> {
    let text = required(at, what, found)?;
    values::certificate(at, what, text, found)
}

/// Whether it is one, and fits, is seen when it is used: before anything is written anywhere.
fn key(at: &Cursor<'_>, found: &mut Found) -> Option<Secret<String>> {
    let text = required(at, "the key of its client certificate", found)?;
    if text.contains("-----BEGIN CERTIFICATE-----") {
        found.problem(at.problem("is a certificate, and not its key"));
        return None;
    }
    if text.contains("ENCRYPTED") {
        let problem = at.problem("is a key with a passphrase, which no API server can ask for");
        found.problem(problem.hint("take the passphrase off: `openssl pkey -in KEY`"));
        return None;
    }
    Some(Secret::new(text.trim_end().to_owned() + "\n"))
}

/// The prefix in the form that the API server makes of its flag: absolute, without a trailing `/`.
fn prefix(at: &Cursor<'_>, found: &mut Found) -> String {
    let text = values::or_default(at, found);
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
    let odd = |part: &&str| {
        matches!(*part, "." | "..") || part.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    if parts.iter().any(odd) {
        let problem = at.problem("is not a prefix of keys").detail(text);
        found.problem(problem.hint(format!("write one like `{}`", at.default())));
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        config::resolve::tests::resolve,
        config::{Problems, Resolved},
        model::{NodeName, Role},
    };

    const CERT: &str = "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----";

    fn document() -> Value {
        json!({
            "nodes": [
                {"address": "192.0.2.10", "user": "u", "role": ["controlplane"]},
                {"address": "192.0.2.11", "user": "u", "role": ["worker"]},
            ],
            "services": {"etcd": {
                "external_urls": ["https://Etcd1.example.com:2379/", "https://192.0.2.9:23790"],
                "ca_cert": CERT,
                "cert": CERT,
                "key": "a key",
            }},
        })
    }

    fn with(key: &str, value: &Value) -> Result<Resolved, Problems> {
        let mut document = document();
        document["services"]["etcd"][key] = value.clone();
        resolve(&document.to_string())
    }

    fn external(key: &str, value: &Value) -> ExternalEtcd {
        let resolved = with(key, value).expect("a good document");
        resolved
            .intent
            .etcd
            .external()
            .expect("an external etcd")
            .clone()
    }

    fn said(resolved: Result<Resolved, Problems>) -> String {
        resolved.map_or_else(|problems| problems.to_string(), |_| "nothing".to_owned())
    }

    #[test]
    fn every_key_has_its_place() {
        let plain = external("path", &Value::Null);
        assert_eq!(
            plain.servers(),
            "https://etcd1.example.com:2379,https://192.0.2.9:23790"
        );
        assert_eq!(plain.prefix, "/registry");
        assert_eq!(plain.identity.ca, format!("{CERT}\n"));
        let other = format!("{CERT}\n{CERT}");
        for (key, value) in [
            ("path", json!("/other")),
            ("ca_cert", json!(other)),
            ("cert", json!(other)),
            ("key", json!("another key")),
            ("external_urls", json!(["https://etcd9.example.com:2379"])),
        ] {
            assert_ne!(external(key, &value), plain, "{key}");
        }
        let intent = with("path", &Value::Null).expect("a good document").intent;
        assert_eq!(intent.with_role(Role::Etcd).count(), 0);
    }

    /// As `--etcd-servers` has them.
    #[test]
    fn urls_may_be_one_text() {
        let list = external("external_urls", &json!(["https://a:1", "https://b:2"]));
        for text in ["https://a:1,https://b:2", " https://a:1, https://b:2"] {
            assert_eq!(external("external_urls", &json!(text)), list, "{text}");
            assert_eq!(external("external_urls", &json!([text])), list, "{text}");
        }
    }

    #[test]
    fn a_prefix_is_what_the_api_server_makes_of_it() {
        for (written, prefix) in [
            ("/a", "/a"),
            ("a", "/a"),
            ("/a/", "/a"),
            ("/a//b/", "/a/b"),
            ("/", "/"),
        ] {
            assert_eq!(
                external("path", &json!(written)).prefix,
                prefix,
                "{written}"
            );
        }
        for odd in ["/a/../b", "/a/.", "/a b", "/a\nb"] {
            let said = said(with("path", &json!(odd)));
            assert!(said.contains("services.etcd.path"), "{odd}: {said}");
        }
    }

    #[test]
    fn urls_that_lead_to_no_etcd_are_refused() {
        for (url, why) in [
            ("http://a:2379", "without TLS"),
            ("a:2379", "is not the URL"),
            ("unix:///run/etcd.sock", "is not the URL"),
            ("https://a", "the port is missing"),
            ("https://a:0", "is not the URL"),
            ("https://a:2379/v3", "is not the URL"),
            ("https://[::1]:2379", "is not the URL"),
            ("https://u@a:2379", "is not the URL"),
            ("https://a:2379,https://A:2379", "written twice"),
            ("https://a:2379,", "is not the URL"),
        ] {
            let said = said(with("external_urls", &json!([url])));
            assert!(said.contains(why), "{url}: {said}");
        }
    }

    /// RKE's own files have all of them, empty.
    #[test]
    fn empty_keys_are_none() {
        for urls in [json!([]), json!(""), Value::Null] {
            let document = json!({
                "nodes": [{"address": "192.0.2.10", "user": "u"}],
                "services": {"etcd": {
                    "external_urls": urls, "ca_cert": "", "cert": "", "key": "", "path": "",
                }},
            });
            let resolved = resolve(&document.to_string()).expect("a good document");
            assert_eq!(resolved.intent.etcd, EtcdPlace::Nodes);
            assert!(resolved.warnings.is_empty(), "{:?}", resolved.warnings);
        }
    }

    /// RKE ignores them as well, but without a warning.
    #[test]
    fn certificates_without_a_url_have_no_effect() {
        let document = json!({
            "nodes": [{"address": "192.0.2.10", "user": "u"}],
            "services": {"etcd": {"ca_cert": CERT, "path": "/a"}},
        });
        let resolved = resolve(&document.to_string()).expect("a good document");
        assert_eq!(resolved.intent.etcd, EtcdPlace::Nodes);
        assert_eq!(resolved.warnings.len(), 2, "{:?}", resolved.warnings);
    }

    #[test]
    fn options_of_members_are_reported_to_have_no_effect() {
        for (key, value) in [
            ("extra_args", json!({"quota-backend-bytes": 1})),
            ("backup_config", json!({"enabled": true})),
        ] {
            let resolved = with(key, &value).expect("a good document");
            let [warning] = &resolved.warnings[..] else {
                panic!("{:?}", resolved.warnings);
            };
            assert!(warning.to_string().contains("has no effect"), "{warning}");
        }
        let resolved = with("backup_config", &json!({"enabled": null})).expect("a good document");
        assert_eq!(resolved.warnings, []);
    }

    #[test]
    fn the_only_node_has_no_etcd_when_etcd_is_external() {
        let mut document = document();
        document["nodes"] = json!([{"address": "192.0.2.10", "user": "u"}]);
        let resolved = resolve(&document.to_string()).expect("a good document");
        let node = &resolved.intent.nodes[&NodeName::from("192.0.2.10")];
        assert_eq!(node.roles, [Role::ControlPlane, Role::Worker].into());
    }
}
