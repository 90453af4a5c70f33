//! What etcd holds that was made or changed after a revision: what goes when its data are replaced by a snapshot of then. Pure.

use std::{collections::BTreeMap, fmt::Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

/// So many keys are counted at most, with names of several hundred bytes in an answer of a megabyte.
const MOST: usize = 1500;

/// So many kinds are named; the others are added up.
const NAMED: usize = 6;

/// What comes and goes all the time.
const PASSING: [&str; 6] = [
    "events",
    "leases",
    "masterleases",
    "endpointslices",
    "ranges",
    "services/endpoints",
];

/// Objects that are not in a snapshot as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// How many were made since, by kind.
    pub made: BTreeMap<String, usize>,
    /// How many others were changed since.
    pub changed: usize,
    /// There are more.
    pub more: bool,
}

#[derive(Deserialize)]
pub(super) struct Range {
    #[serde(default)]
    kvs: Vec<Key>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

#[derive(Serialize)]
pub(super) struct Asked {
    key: String,
    range_end: String,
    keys_only: bool,
    limit: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_create_revision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_create_revision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_mod_revision: Option<String>,
}

impl Since {
    /// By the answers to [`Asked::made`] and [`Asked::changed`].
    pub(super) fn of(made: &Range, changed: &Range) -> Self {
        let mut kinds = BTreeMap::new();
        for kind in made.kinds() {
            *kinds.entry(kind).or_insert(0) += 1;
        }
        Self {
            made: kinds,
            changed: changed.kinds().count(),
            more: made.more || changed.more,
        }
    }

    /// `pods: 3, configmaps: 1; changed: 12`; `None`: there are none.
    pub fn line(&self) -> Option<String> {
        let mut made: Vec<_> = self.made.iter().collect();
        made.sort_by_key(|(kind, count)| (std::cmp::Reverse(**count), *kind));
        let (named, others) = made.split_at(made.len().min(NAMED));
        let named = named.iter().map(|(kind, count)| format!("{kind}: {count}"));
        let rest: usize = others.iter().map(|(_, count)| **count).sum();
        let rest = (rest > 0).then(|| format!("of other kinds: {rest}"));
        let named: Vec<String> = named.chain(rest).collect();
        let mut line = named.join(", ");
        if self.changed > 0 {
            let gap = if line.is_empty() { "" } else { "; " };
            let _ = write!(line, "{gap}changed: {}", self.changed);
        }
        if self.more && !line.is_empty() {
            line.push_str(", and more");
        }
        (!line.is_empty()).then_some(line)
    }
}

impl Asked {
    /// What was made after that revision.
    pub(super) fn made(revision: u64) -> Self {
        Self {
            min_create_revision: Some((revision + 1).to_string()),
            ..Self::keys()
        }
    }

    /// What was there, and was changed after it.
    pub(super) fn changed(revision: u64) -> Self {
        Self {
            max_create_revision: Some(revision.to_string()),
            min_mod_revision: Some((revision + 1).to_string()),
            ..Self::keys()
        }
    }

    /// All that Kubernetes has.
    fn keys() -> Self {
        Self {
            key: STANDARD.encode("/registry/"),
            range_end: STANDARD.encode("/registry0"),
            keys_only: true,
            limit: MOST,
            min_create_revision: None,
            max_create_revision: None,
            min_mod_revision: None,
        }
    }
}

impl Range {
    fn kinds(&self) -> impl Iterator<Item = String> {
        self.kvs.iter().filter_map(|key| {
            let key = STANDARD.decode(&key.key).ok()?;
            kind(&String::from_utf8_lossy(&key))
        })
    }
}

/// The plural name of a kind by a key of its objects: `/registry/pods/default/web`,
/// `/registry/apiregistration.k8s.io/apiservices/v1`. Of what passes none.
fn kind(key: &str) -> Option<String> {
    let path = key.strip_prefix("/registry/")?;
    let mut parts = path.split('/');
    let first = parts.next()?;
    let (whole, kind) = match (first, parts.next()) {
        ("minions", _) => ("minions".to_owned(), "nodes"),
        ("services", Some(second)) => (format!("services/{second}"), "services"),
        (group, Some(kind)) if group.contains('.') => (kind.to_owned(), kind),
        (kind, _) => (kind.to_owned(), kind),
    };
    (!PASSING.contains(&&*whole)).then(|| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> Range {
        let each = keys.iter().map(|key| Key {
            key: STANDARD.encode(key),
        });
        Range {
            kvs: each.collect(),
            more: false,
        }
    }

    #[test]
    fn objects_are_counted_by_kind_without_those_that_pass() {
        let made = keys(&[
            "/registry/pods/default/web-1",
            "/registry/pods/default/web-2",
            "/registry/services/specs/default/web",
            "/registry/services/endpoints/default/web",
            "/registry/apiregistration.k8s.io/apiservices/v1.apps",
            "/registry/minions/n4",
            "/registry/events/default/web-1.17",
            "/registry/leases/kube-node-lease/n4",
            "/registry/masterleases/10.0.0.1",
            "/other",
        ]);
        let changed = keys(&["/registry/deployments/default/web", "/registry/leases/a/b"]);
        let since = Since::of(&made, &changed);
        assert_eq!(
            since.line().unwrap(),
            "pods: 2, apiservices: 1, nodes: 1, services: 1; changed: 1"
        );
        assert_eq!(Since::of(&keys(&[]), &keys(&[])).line(), None);
    }

    #[test]
    fn a_long_list_has_an_end() {
        let made = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let since = Since {
            made: made.map(|kind| (kind.to_owned(), 1)).into(),
            changed: 0,
            more: true,
        };
        assert_eq!(
            since.line().unwrap(),
            "a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, of other kinds: 2, and more"
        );
    }
}
