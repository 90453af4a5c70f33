//! Judges every key of a document by the schema: unknown, set twice, of the wrong shape, or not
//! supported yet. Pure.

use super::{
    cursor::Cursor,
    problem::Problem,
    schema::{ETCD, KUBE_API, KUBE_CONTROLLER, KUBELET, Key, NETWORK, NODE, ROOT, SERVICES, Shape},
    tree::{Entry, Value},
};

/// Judges every key of the document.
pub(super) fn walk(root: &Cursor<'_>, found: &mut Vec<Problem>) {
    map_keys(root, ROOT, found);
}

fn map_keys(at: &Cursor<'_>, keys: &[Key], found: &mut Vec<Problem>) {
    match at.value() {
        None => {}
        Some(Value::Map(entries)) => {
            for (index, entry) in entries.iter().enumerate() {
                let first = entries
                    .iter()
                    .take(index)
                    .find(|before| before.key == entry.key);
                if let Some(first) = first {
                    found.push(duplicate(at, entry, first));
                } else if let Some(key) = keys.iter().find(|key| key.name == entry.key) {
                    judge(&at.get(key.name), key, found);
                } else {
                    found.push(unknown(at, entry, keys));
                }
            }
        }
        // `nodes: ""` and the like are empty too.
        Some(Value::Scalar(text)) if text.expose().is_empty() => {}
        Some(other) => found.push(at.problem(format!("must be a mapping, is {}", other.kind()))),
    }
}

fn judge(at: &Cursor<'_>, key: &Key, found: &mut Vec<Problem>) {
    match &key.shape {
        Shape::Read => duplicates_within(at, found),
        Shape::Map(keys) => map_keys(at, keys, found),
        Shape::Each(keys) => match at.value() {
            None => {}
            Some(Value::List(_)) => {
                for item in at.items() {
                    map_keys(&item, keys, found);
                }
            }
            Some(other) => {
                found.push(at.problem(format!("must be a list, is {}", other.kind())));
            }
        },
        Shape::Later(passes) => {
            if !at.passes(passes) {
                found.push(not_supported(at, passes));
            }
        }
        Shape::Never => {
            if at.value().is_some() {
                found.push(not_supported(at, &[]));
            }
        }
        Shape::LaterMap(keys) => {
            let mut inner = Vec::new();
            map_keys(at, keys, &mut inner);
            let unsupported = inner.len();
            inner.retain(|problem| problem.message != NOT_SUPPORTED);
            if inner.len() < unsupported {
                found.push(not_supported(at, &[]));
            }
            found.append(&mut inner);
        }
    }
}

/// Keys that are read but not listed here (labels, flags, images) may still stand twice.
fn duplicates_within(at: &Cursor<'_>, found: &mut Vec<Problem>) {
    if let Some(Value::Map(entries)) = at.value() {
        for (index, entry) in entries.iter().enumerate() {
            if let Some(first) = entries
                .iter()
                .take(index)
                .find(|before| before.key == entry.key)
            {
                found.push(duplicate(at, entry, first));
            }
        }
    }
}

const NOT_SUPPORTED: &str = "not supported yet";

fn not_supported(at: &Cursor<'_>, passes: &[&str]) -> Problem {
    let problem = at.problem(NOT_SUPPORTED);
    let last = problem
        .path
        .rsplit(['.', '['])
        .next()
        .unwrap_or_default()
        .to_owned();
    if let Some(hint) = instead(&problem.path) {
        return problem.hint(hint);
    }
    match passes.first() {
        None => problem.hint(format!("remove `{last}`, or leave it empty")),
        Some(first) => problem.hint(format!("remove `{last}`, or write `{first}`")),
    }
}

/// What works instead, where something does.
fn instead(path: &str) -> Option<&'static str> {
    if path.ends_with(".extra_args_array") {
        Some("write each flag once under `extra_args`")
    } else if path.ends_with(".infra_container_image") {
        Some("write `pod_infra_container` under `system_images`")
    } else if path.ends_with("ssh_agent_auth") {
        Some("name a private key file in `ssh_key_path`")
    } else {
        None
    }
}

fn duplicate(at: &Cursor<'_>, entry: &Entry, first: &Entry) -> Problem {
    let message = match &first.key_place {
        Some(place) => format!("this key is already set in line {}", place.line),
        None => "this key is set twice".to_owned(),
    };
    Problem {
        place: entry.key_place.clone(),
        ..at.get(&entry.key).problem(message)
    }
    .hint("keep one of the two")
}

fn unknown(at: &Cursor<'_>, entry: &Entry, keys: &[Key]) -> Problem {
    let problem = Problem {
        place: entry.key_place.clone(),
        ..at.get(&entry.key).problem("unknown key")
    };
    match owner(&entry.key) {
        Some(place) => problem.hint(format!("`{}` belongs {place}", entry.key)),
        None => match nearest(&entry.key, keys.iter().map(|key| key.name)) {
            Some(name) => problem.hint(format!("did you mean `{name}`?")),
            None => problem,
        },
    }
}

/// The name that was probably meant.
pub(super) fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_', '.'], "");
    let written = plain(written);
    names
        .map(|name| (strsim::damerau_levenshtein(&written, &plain(name)), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Where a key that stands in the wrong place belongs.
fn owner(name: &str) -> Option<&'static str> {
    let has = |keys: &[Key]| keys.iter().any(|key| key.name == name);
    [
        ("at the top level", ROOT),
        ("to a node", NODE),
        ("under `services`", SERVICES),
        ("under `services.kube-api`", KUBE_API),
        ("under `services.kube-controller`", KUBE_CONTROLLER),
        ("under `services.kubelet`", KUBELET),
        ("under `services.etcd`", ETCD),
        ("under `network`", NETWORK),
    ]
    .into_iter()
    .find(|(_, keys)| has(keys))
    .map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tree::Node;

    /// Every key of the schema, with where it stands.
    fn all(keys: &'static [Key], around: &str, out: &mut Vec<(String, &'static Shape)>) {
        for key in keys {
            let path = if around.is_empty() {
                key.name.to_owned()
            } else {
                format!("{around}.{}", key.name)
            };
            match &key.shape {
                Shape::Map(inner) | Shape::LaterMap(inner) => all(inner, &path, out),
                Shape::Each(inner) => all(inner, &format!("{path}[]"), out),
                Shape::Read | Shape::Later(_) | Shape::Never => {}
            }
            out.push((path, &key.shape));
        }
    }

    /// What the walk says about a document with one value in it.
    fn judge_one(path: &str, value: &serde_json::Value) -> Vec<String> {
        let document =
            path.split('.')
                .rev()
                .fold(value.clone(), |inner, key| match key.strip_suffix("[]") {
                    Some(list) => serde_json::json!({ list: [inner] }),
                    None => serde_json::json!({ key: inner }),
                });
        let mut found = Vec::new();
        walk(&Cursor::root(&Node::from_json(&document)), &mut found);
        found.into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn every_key_may_be_empty_or_at_its_default_and_nothing_else() {
        let mut keys = Vec::new();
        all(ROOT, "", &mut keys);
        assert!(keys.len() > 350, "{} keys", keys.len());
        for (path, shape) in keys {
            let empty = judge_one(&path, &serde_json::Value::Null);
            assert_eq!(empty, [""; 0], "{path}: null");
            let other = serde_json::json!("something else");
            match shape {
                Shape::Later(passes) => {
                    for value in *passes {
                        let said = judge_one(&path, &serde_json::json!(value));
                        assert_eq!(said, [""; 0], "{path}: {value}");
                    }
                    for value in [serde_json::json!([]), serde_json::json!({})] {
                        assert_eq!(judge_one(&path, &value), [""; 0], "{path}: {value}");
                    }
                    assert_eq!(judge_one(&path, &other), [NOT_SUPPORTED], "{path}");
                }
                Shape::Never => {
                    assert_eq!(judge_one(&path, &serde_json::json!({})), [NOT_SUPPORTED]);
                }
                Shape::Read => assert_eq!(judge_one(&path, &other), [""; 0], "{path}"),
                Shape::Map(_) | Shape::LaterMap(_) | Shape::Each(_) => {
                    assert_eq!(judge_one(&path, &other).len(), 1, "{path}");
                    let inner = serde_json::json!({"no such key": 1});
                    let said = if matches!(shape, Shape::Each(_)) {
                        judge_one(&format!("{path}[]"), &inner)
                    } else {
                        judge_one(&path, &inner)
                    };
                    assert_eq!(said, ["unknown key"], "{path}");
                }
            }
        }
    }

    #[test]
    fn the_nearest_name_is_close() {
        let names = || ["kube-api", "kube-controller", "role", "user"].into_iter();
        assert_eq!(nearest("kubeApi", names()), Some("kube-api"));
        assert_eq!(nearest("kube_controler", names()), Some("kube-controller"));
        assert_eq!(nearest("rol", names()), Some("role"));
        assert_eq!(nearest("gateway", names()), None);
    }
}
