//! Kubeconfigs: the components' (they name files), the administrator's and a user's (they hold everything).
//! Pure.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use super::{
    cert::{self, Authority, LeafSpec, Pair},
    rotation::Rotation,
};
use crate::model::{Secret, path};

/// A component's kubeconfig: the API server of the component's node, and files in the kubeconfig's folder.
pub(in crate::desired) fn component(stem: &str) -> String {
    let ssl = path::SSL;
    format!(
        "\
apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: {ssl}/kube-ca.pem
    server: https://127.0.0.1:6443
  name: local
contexts:
- context:
    cluster: local
    user: {stem}
  name: local
current-context: local
users:
- name: {stem}
  user:
    client-certificate: {ssl}/{stem}.pem
    client-key: {ssl}/{stem}-key.pem
"
    )
}

/// Where a kubeconfig leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Servers {
    /// The one that is asked, unless another context is chosen.
    pub(super) first: String,
    /// Each control plane by the name of its context; empty where there is one alone.
    pub(super) each: Vec<(String, String)>,
}

impl Servers {
    /// Names of clusters and contexts, and where they lead.
    fn entries<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let each = self.each.iter();
        let each = each.map(|(name, server)| (name.as_str(), server.as_str()));
        std::iter::once((cluster, self.first.as_str())).chain(each)
    }
}

/// The administrator's kubeconfig, named as RKE names it.
pub(super) fn administrator(
    cluster: &str,
    servers: &Servers,
    ca: &str,
    pair: &Pair,
) -> Secret<String> {
    of(cluster, &user(cluster), servers, ca, pair)
}

/// A kubeconfig that holds everything.
pub(super) fn of(
    cluster: &str,
    user: &str,
    servers: &Servers,
    ca: &str,
    pair: &Pair,
) -> Secret<String> {
    // A JSON string is a YAML string, whatever is in the name.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let user = quoted(user);
    let ca = STANDARD.encode(ca);
    let (mut clusters, mut contexts) = (String::new(), String::new());
    for (name, server) in servers.entries(cluster) {
        let (name, server) = (quoted(name), quoted(server));
        // Writing to a string cannot fail.
        let _ = write!(
            clusters,
            "\
- cluster:
    certificate-authority-data: {ca}
    server: {server}
  name: {name}
"
        );
        let _ = write!(
            contexts,
            "\
- context:
    cluster: {name}
    user: {user}
  name: {name}
"
        );
    }
    Secret::new(format!(
        "\
apiVersion: v1
kind: Config
clusters:
{clusters}contexts:
{contexts}current-context: {}
users:
- name: {user}
  user:
    client-certificate-data: {}
    client-key-data: {}
",
        quoted(cluster),
        STANDARD.encode(&pair.cert),
        STANDARD.encode(pair.key.expose()),
    ))
}

/// Where a kubeconfig leads for this cluster.
pub(super) fn server(text: &str, cluster: &str) -> Option<String> {
    let file = serde_saphyr::from_str::<File>(text).ok()?;
    let mut entries = file.clusters.into_iter();
    let found = entries.find(|entry| entry.name == cluster);
    found.map(|entry| entry.cluster.server)
}

/// The certificate by which a kubeconfig is let into this cluster, PEM.
pub(super) fn certificate(text: &str, cluster: &str) -> Option<String> {
    let file = serde_saphyr::from_str::<File>(text).ok()?;
    let mut entries = file.users.into_iter();
    let found = entries.find(|entry| entry.name == user(cluster));
    plain(&found?.user.cert)
}

/// The server of the current context, and the certificate and key that it has.
pub(super) fn current(text: &str) -> Option<(String, Option<Pair>)> {
    let file = serde_saphyr::from_str::<File>(text).ok()?;
    let mut contexts = file.contexts.into_iter();
    let context = contexts.find(|entry| entry.name == file.current)?.context;
    let mut clusters = file.clusters.into_iter();
    let cluster = clusters
        .find(|entry| entry.name == context.cluster)?
        .cluster;
    let mut users = file.users.into_iter();
    let user = users.find(|entry| entry.name == context.user);
    let pair = user.and_then(|UserEntry { name: _, user }| {
        Some(Pair {
            cert: plain(&user.cert)?,
            key: Secret::new(plain(user.key.expose())?),
        })
    });
    Some((cluster.server, pair))
}

/// RKE's name of the administrator's entry.
fn user(cluster: &str) -> String {
    format!("kube-admin-{cluster}")
}

/// True when a kubeconfig still leads to this cluster, by these addresses, with a certificate that
/// says what it must, does not end soon, and is not to be re-created. What else is in the file does not matter.
pub(super) fn satisfies(
    text: &str,
    cluster: &str,
    servers: &Servers,
    authority: &Authority,
    spec: &LeafSpec,
    now: jiff::Timestamp,
    rotate: Option<&Rotation>,
) -> bool {
    let Ok(file) = serde_saphyr::from_str::<File>(text) else {
        return false;
    };
    let leads_there = |name: &str, server: &str| {
        file.clusters.iter().any(|entry| {
            entry.name == name
                && entry.cluster.server == server
                && plain(&entry.cluster.ca).as_deref() == Some(authority.bundle())
        })
    };
    let is_named = |name: &str| {
        file.contexts.iter().any(|entry| {
            entry.name == name
                && entry.context.cluster == name
                && entry.context.user == user(cluster)
        })
    };
    let mut entries = servers.entries(cluster);
    let leads = entries.all(|(name, server)| leads_there(name, server) && is_named(name));
    let lets_in = file.users.iter().any(|entry| {
        entry.name == user(cluster)
            && plain(&entry.user.cert)
                .zip(plain(entry.user.key.expose()))
                .and_then(|(cert, key)| {
                    authority.validity(spec, &cert, Secret::new(key).expose(), now)
                })
                .is_some_and(|validity| {
                    let asked = rotate.is_some_and(|ask| ask.takes_administrator(&validity));
                    !validity.ends_soon(now) && !asked
                })
    });
    leads && lets_in
}

/// True when a kubeconfig has nothing but what is written for this cluster: no other's authorities, users or contexts,
/// and nothing that cannot be read.
pub(super) fn is_of(text: &str, cluster: &str, bundle: &str) -> bool {
    let Ok(file) = serde_saphyr::from_str::<File>(text) else {
        return false;
    };
    let ours = cert::blocks(bundle);
    let is_ours = |entry: &ClusterEntry| {
        let authorities = plain(&entry.cluster.ca).unwrap_or_default();
        let mut authorities = cert::blocks(&authorities).into_iter();
        authorities.any(|authority| ours.contains(&authority))
    };
    let user = user(cluster);
    file.clusters.iter().all(is_ours)
        && file.users.iter().all(|entry| entry.name == user)
        && file.contexts.iter().all(|entry| entry.context.user == user)
}

fn plain(data: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(data).ok()?).ok()
}

#[derive(Deserialize)]
struct File {
    #[serde(default, rename = "current-context")]
    current: String,
    #[serde(default)]
    clusters: Vec<ClusterEntry>,
    #[serde(default)]
    contexts: Vec<ContextEntry>,
    #[serde(default)]
    users: Vec<UserEntry>,
}

#[derive(Deserialize)]
struct ClusterEntry {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    #[serde(default)]
    server: String,
    #[serde(default, rename = "certificate-authority-data")]
    ca: String,
}

#[derive(Deserialize)]
struct ContextEntry {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    #[serde(default)]
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Deserialize)]
struct UserEntry {
    name: String,
    user: User,
}

#[derive(Deserialize)]
struct User {
    #[serde(default, rename = "client-certificate-data")]
    cert: String,
    #[serde(default = "empty", rename = "client-key-data")]
    key: Secret<String>,
}

const fn empty() -> Secret<String> {
    Secret::new(String::new())
}
