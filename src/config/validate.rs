//! Validates every key of a document by the schema: unknown, set twice, of the wrong shape, or with
//! a value that this release does not support. Pure.

use super::{
    cursor::Cursor,
    problem::Problem,
    references::REFERENCE,
    schema::{
        Answer, Below, ETCD, KUBE_API, KUBE_CONTROLLER, KUBELET, Key, Kind, NETWORK, NODE, ROOT,
        SERVICES,
    },
    tree::{Entry, Value},
};
pub(super) use crate::model::nearest;
use crate::model::quoted;

/// What the walk found.
#[derive(Default)]
pub(super) struct Validated {
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

/// Validates every key of the document.
pub(super) fn walk(root: &Cursor<'_>) -> Validated {
    let mut found = Validated::default();
    map_keys(root, ROOT, &mut found);
    found
}

fn map_keys(at: &Cursor<'_>, keys: &[Key], found: &mut Validated) {
    match at.value() {
        None => {}
        Some(Value::Map(entries)) => {
            for (index, entry) in entries.iter().enumerate() {
                if let Some(first) = set_before(entries, index) {
                    let named = at.get(&entry.key);
                    found.problems.push(duplicate(&named, entry, first));
                } else if let Some(key) = keys.iter().find(|key| key.name == entry.key) {
                    validate(&at.get(key.name), key, found);
                } else if !is_anchor(at, &entry.key) {
                    found.problems.push(unknown(at, entry, keys));
                }
            }
        }
        // `nodes: ""` and the like are empty too.
        Some(Value::Scalar(text)) if text.expose().is_empty() => {}
        Some(other) => {
            let problem = at.problem(format!("must be a mapping, not {}", other.kind()));
            // An address alone, as other programs take it.
            let is_node = at.path().starts_with("nodes[") && matches!(other, Value::Scalar(_));
            found.problems.push(if is_node {
                problem.hint("write `- address: ADDRESS`, and its `role` below it")
            } else if let Some(hint) = of_one_key(at, keys, other) {
                problem.hint(hint)
            } else {
                problem
            });
        }
    }
}

/// The value of a key of this section, where it stands in the section's place: `ingress: none`.
fn of_one_key(at: &Cursor<'_>, keys: &[Key], value: &Value) -> Option<String> {
    let Value::Scalar(text) = value else {
        return None;
    };
    let (text, section) = (text.expose().as_str(), at.path());
    if let Some(key) = keys.iter().find(|key| key.words.contains(&text)) {
        return Some(format!("write `{section}: {{{}: {text}}}`", key.name));
    }
    let mut first = FIRST.iter();
    let key = first.find_map(|name| keys.iter().find(|key| key.name == *name))?;
    let name = key.name;
    Some(match key.words {
        words if words.contains(&"none") && OFF.contains(&text) => {
            format!("write `{section}: {{{name}: none}}`")
        }
        [] => format!("write `{section}: {{{name}: …}}`, with the value there"),
        words => format!(
            "write `{section}: {{{name}: …}}`; `{name}` is one of {}",
            quoted(words)
        ),
    })
}

/// The key that a section is about, where it has one of them.
const FIRST: [&str; 6] = ["provider", "plugin", "mode", "strategy", "name", "address"];
/// How people say that they want none.
const OFF: [&str; 4] = ["false", "no", "off", "disabled"];

/// A key at the top that only holds what `*name` stands for elsewhere, as Docker Compose has it. RKE ignores it.
fn is_anchor(at: &Cursor<'_>, key: &str) -> bool {
    at.path().is_empty() && key.starts_with("x-")
}

fn validate(at: &Cursor<'_>, key: &Key, found: &mut Validated) {
    // Other mappings whose names are the user's may have one of this name.
    let is_open = matches!(key.kind, Kind::Map | Kind::Any) && !key.secret;
    if key.answer == Answer::Used && at.is_reference() && !is_open {
        found.problems.push(reference(at));
        return;
    }
    match key.answer {
        Answer::Used => match key.kind.below() {
            Below::Section(keys) => match key.as_list.filter(|_| at.is_list()) {
                Some(keys) => list_of(at, keys, found),
                None => map_keys(at, keys, found),
            },
            Below::Each(keys) => list_of(at, keys, found),
            Below::Nothing => {
                duplicates_within(at, key, found);
                single(at, key, found);
                references_within(at, key, found);
            }
        },
        Answer::Same(_) => of_its_type(at, key, found),
        Answer::Ignored(instead) => {
            if !says_nothing(at, key) {
                found
                    .warnings
                    .push(at.problem("this key has no effect").hint(instead));
            }
        }
        Answer::Later | Answer::Refused(_) => match key.kind.below() {
            Below::Section(keys) => as_one(at, key, |inner| map_keys(at, keys, inner), found),
            Below::Each(keys) => as_one(at, key, |inner| list_of(at, keys, inner), found),
            Below::Nothing => {
                if !is_default(at, key) {
                    found.problems.push(not_supported(at, key));
                }
            }
        },
        Answer::Never(_) => {
            if at.value().is_some() {
                found.problems.push(not_supported(at, key));
            }
        }
    }
}

const REFERENCES: &str = "a reference to a Secret cannot stand here";

/// Of an object, references to Secrets are replaced before anything is validated: what is left has no effect.
fn reference(at: &Cursor<'_>) -> Problem {
    let file = match at.path().rsplit('.').next() {
        Some("ssh_key") => ", or its file as `ssh_key_path`",
        Some("ssh_cert") => ", or its file as `ssh_cert_path`",
        Some(_) | None => "",
    };
    at.problem(REFERENCES).hint(format!(
        "write the value itself{file}: `{REFERENCE}` is for the secret values in `spec.config` of a `Cluster` object"
    ))
}

/// References among the items of a list, or the values of a mapping, that has texts.
fn references_within(at: &Cursor<'_>, key: &Key, found: &mut Validated) {
    let inner = match key.kind {
        Kind::List => at.items(),
        Kind::Map => at.entries().into_iter().map(|(_, value)| value).collect(),
        Kind::Text
        | Kind::Bool
        | Kind::Number
        | Kind::Duration
        | Kind::Any
        | Kind::Section(_)
        | Kind::Each(_) => Vec::new(),
    };
    let references = inner.iter().filter(|value| value.is_reference());
    found.problems.extend(references.map(reference));
}

/// Leaves out what else is wrong with the place of a reference: that it is a mapping, or that a value is missing.
pub(super) fn without_echoes(problems: &mut Vec<Problem>) {
    let references = problems.iter();
    let references = references.filter(|problem| problem.message == REFERENCES);
    let paths: Vec<String> = references.map(|problem| problem.path.clone()).collect();
    let is_at = |path: &str| {
        let mut rests = paths.iter().filter_map(|at| path.strip_prefix(at));
        rests.any(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    problems.retain(|problem| problem.message == REFERENCES || !is_at(&problem.path));
}

/// A key of one value must not have a list or a mapping, even where its section has no effect and the value is
/// not read.
fn single(at: &Cursor<'_>, key: &Key, found: &mut Validated) {
    let is_one = matches!(
        key.kind,
        Kind::Text | Kind::Bool | Kind::Number | Kind::Duration
    );
    if let Some(other @ (Value::List(_) | Value::Map(_))) = at.value().filter(|_| is_one)
        && !at.has_nothing()
    {
        let message = format!("must be a single value, not {}", other.kind());
        found.problems.push(at.problem(message));
    }
}

/// Nothing, or a single value of the key's type.
fn of_its_type(at: &Cursor<'_>, key: &Key, found: &mut Validated) {
    let fits = at.scalar().is_some_and(|text| key.kind.reads(text));
    if fits || says_nothing(at, key) {
        return;
    }
    found.problems.push(at.problem(match key.kind {
        Kind::Bool => "must be `true` or `false`",
        Kind::Number => "must be a whole number",
        Kind::Duration => "must be a duration, as in `12h` or `90m`",
        Kind::Text | Kind::List | Kind::Map | Kind::Any | Kind::Section(_) | Kind::Each(_) => {
            "must be a single value"
        }
    }));
}

fn list_of(at: &Cursor<'_>, keys: &[Key], found: &mut Validated) {
    match at.value() {
        None => {}
        Some(Value::List(_)) => {
            for item in at.items() {
                map_keys(&item, keys, found);
            }
        }
        Some(other) => found
            .problems
            .push(at.problem(format!("must be a list, not {}", other.kind()))),
    }
}

/// One problem for all that is not supported within, and the others as they are.
fn as_one(at: &Cursor<'_>, key: &Key, walk: impl FnOnce(&mut Validated), found: &mut Validated) {
    let mut inner = Validated::default();
    walk(&mut inner);
    let all = inner.problems.len();
    inner
        .problems
        .retain(|problem| ![NOT_YET, NEVER].contains(&problem.message.as_str()));
    if inner.problems.len() < all {
        found.problems.push(not_supported(at, key));
        // All of it is to be removed.
        inner.problems.retain(|problem| problem.message != UNKNOWN);
    }
    found.problems.append(&mut inner.problems);
}

/// Keys that are read but not listed here (labels, flags, images) may still stand twice. Below a secret one is not
/// named: it may be a password that YAML takes for a mapping.
fn duplicates_within(at: &Cursor<'_>, key: &Key, found: &mut Validated) {
    if let Some(Value::Map(entries)) = at.value() {
        for (index, entry) in entries.iter().enumerate() {
            if let Some(first) = set_before(entries, index) {
                let named = if key.secret {
                    at.clone()
                } else {
                    at.get(&entry.key)
                };
                found.problems.push(duplicate(&named, entry, first));
            }
        }
    }
}

/// Whether a value is as good as none. Where the names in a mapping are the user's, one with an
/// empty text means something: `node_selector: {node-role.kubernetes.io/worker: ""}`.
fn says_nothing(at: &Cursor<'_>, key: &Key) -> bool {
    match key.kind.below() {
        Below::Section(_) => at.is_empty(),
        Below::Nothing | Below::Each(_) => at.has_nothing(),
    }
}

fn is_default(at: &Cursor<'_>, key: &Key) -> bool {
    let same = |text: &str| {
        key.kind.equal(text, key.default)
            || key
                .also
                .iter()
                .any(|value| text.eq_ignore_ascii_case(value))
    };
    says_nothing(at, key) || at.scalar().is_some_and(same)
}

const UNKNOWN: &str = "unknown key";

/// What people write for a key whose name is not near.
const SYNONYMS: &[(&str, &str)] = &[
    ("auth", "authentication"),
    ("username", "user"),
    ("ip", "address"),
    ("host", "address"),
    ("hostname", "hostname_override"),
    ("name", "hostname_override"),
    ("private_ip", "internal_address"),
    ("version", "kubernetes_version"),
    ("cni", "network"),
    ("apiserver", "kube-api"),
    ("kube-apiserver", "kube-api"),
    ("kube-controller-manager", "kube-controller"),
    ("kube-scheduler", "scheduler"),
    ("kube-proxy", "kubeproxy"),
    ("args", "extra_args"),
];

const NOT_YET: &str = "is not supported yet";
const NEVER: &str = "is not supported";

fn not_supported(at: &Cursor<'_>, key: &Key) -> Problem {
    if let Answer::Refused(instead) | Answer::Never(instead) = key.answer {
        return at.problem(NEVER).hint(instead);
    }
    let problem = at.problem(NOT_YET);
    let name = key.name;
    if key.default.is_empty() || matches!(key.kind, Kind::Section(_) | Kind::Each(_)) {
        problem.hint(format!("remove `{name}`, or leave it empty"))
    } else {
        problem.hint(format!("remove `{name}`, or write `{}`", key.default))
    }
}

/// The first entry before this one that has the same key.
fn set_before(entries: &[Entry], index: usize) -> Option<&Entry> {
    let key = &entries.get(index)?.key;
    entries.iter().take(index).find(|before| before.key == *key)
}

/// `named` is what the problem names; it points at the entry.
fn duplicate(named: &Cursor<'_>, entry: &Entry, first: &Entry) -> Problem {
    let message = match &first.key_place {
        Some(place) => format!("this key is already set in line {}", place.line),
        None => "this key is set twice".to_owned(),
    };
    Problem {
        place: entry.key_place.clone(),
        ..named.problem(message)
    }
    .hint("keep one of the two")
}

fn unknown(at: &Cursor<'_>, entry: &Entry, keys: &[Key]) -> Problem {
    let problem = Problem {
        place: entry.key_place.clone(),
        ..at.get(&entry.key).problem(UNKNOWN)
    };
    if let Some((_, right)) = SYNONYMS
        .iter()
        .find(|(wrong, right)| *wrong == entry.key && keys.iter().any(|key| key.name == *right))
    {
        return problem.hint(format!("write it as `{right}`"));
    }
    if at.path().is_empty() && OF_OBJECTS.contains(&entry.key.as_str()) {
        return problem.hint(format!(
            "remove it here: `{}` belongs to the `spec` of a `Cluster` object, next to `config`",
            entry.key
        ));
    }
    if let Some(place) = owner(&entry.key) {
        return problem.hint(format!("`{}` belongs {place}", entry.key));
    }
    let near = nearest(&entry.key, keys.iter().map(|key| key.name));
    match keys.iter().find(|key| Some(key.name) == near) {
        // A key that does not work itself is no advice.
        Some(Key {
            answer: Answer::Refused(instead) | Answer::Ignored(instead) | Answer::Never(instead),
            ..
        }) => problem.hint(*instead),
        Some(key) => problem.hint(format!("did you mean `{}`?", key.name)),
        None => problem.hint("remove it: RKE has no such key, and ignores it"),
    }
}

/// Keys of a `Cluster` object that stand next to its config.
const OF_OBJECTS: [&str; 8] = [
    "changes",
    "configFrom",
    "configPath",
    "deletion",
    "deletionProtection",
    "drift",
    "paused",
    "ssh",
];

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
    fn all(keys: &'static [Key], around: &str, out: &mut Vec<(String, &'static Key)>) {
        for key in keys {
            let path = if around.is_empty() {
                key.name.to_owned()
            } else {
                format!("{around}.{}", key.name)
            };
            match key.kind.below() {
                Below::Section(inner) => all(inner, &path, out),
                Below::Each(inner) => all(inner, &format!("{path}[]"), out),
                Below::Nothing => {}
            }
            out.push((path, key));
        }
    }

    /// What the walk says about a document with one value in it, at that value.
    fn said_about(path: &str, value: &serde_json::Value) -> Vec<String> {
        let document =
            path.split('.')
                .rev()
                .fold(value.clone(), |inner, key| match key.strip_suffix("[]") {
                    Some(list) => serde_json::json!({ list: [inner] }),
                    None => serde_json::json!({ key: inner }),
                });
        let tree = Node::from_json(&document);
        let found = walk(&Cursor::root(&tree));
        found
            .problems
            .into_iter()
            .chain(found.warnings)
            .filter(|problem| !problem.message.starts_with("not set, and RKE's default"))
            .map(|problem| problem.message)
            .collect()
    }

    /// The problems of a key whose value is a text that is neither a number nor a flag.
    fn problems_of_a_text(kind: Kind) -> &'static [&'static str] {
        match kind {
            Kind::Bool => &["must be `true` or `false`"],
            Kind::Number => &["must be a whole number"],
            Kind::Duration => &["must be a duration, as in `12h` or `90m`"],
            Kind::Text | Kind::List | Kind::Map | Kind::Any | Kind::Section(_) | Kind::Each(_) => {
                &[]
            }
        }
    }

    #[test]
    fn every_key_may_be_empty_or_at_its_default_and_is_answered_otherwise() {
        let mut keys = Vec::new();
        all(ROOT, "", &mut keys);
        assert!(keys.len() > 370, "{} keys", keys.len());
        for (path, key) in keys {
            assert_eq!(
                said_about(&path, &serde_json::Value::Null),
                [""; 0],
                "{path}: null"
            );
            let is_section = matches!(key.kind, Kind::Section(_) | Kind::Each(_));
            if !key.default.is_empty() && !matches!(key.answer, Answer::Ignored(_)) {
                for value in key.also.iter().chain([&key.default]) {
                    let said = said_about(&path, &serde_json::json!(value));
                    assert_eq!(said, [""; 0], "{path}: {value}");
                }
            }
            let other = said_about(&path, &serde_json::json!("something else"));
            match key.answer {
                Answer::Used if is_section => {
                    assert_eq!(other.len(), 1, "{path}");
                    let inner = serde_json::json!({"no such key": 1});
                    let said = if matches!(key.kind, Kind::Each(_)) {
                        said_about(&format!("{path}[]"), &inner)
                    } else {
                        said_about(&path, &inner)
                    };
                    assert_eq!(said, ["unknown key"], "{path}");
                }
                Answer::Used => assert_eq!(other, [""; 0], "{path}"),
                Answer::Same(_) => {
                    assert_eq!(other, problems_of_a_text(key.kind), "{path}");
                }
                Answer::Ignored(_) => assert_eq!(other, ["this key has no effect"], "{path}"),
                Answer::Later | Answer::Refused(_) if is_section => {
                    assert_eq!(other.len(), 1, "{path}");
                    assert!(
                        other.concat().starts_with("must be a "),
                        "{path}: {other:?}"
                    );
                }
                // Below a section that is refused as a whole it is refused.
                Answer::Later => {
                    assert!(other == [NOT_YET] || other == [NEVER], "{path}: {other:?}");
                }
                Answer::Refused(_) => assert_eq!(other, [NEVER], "{path}"),
                Answer::Never(_) => {
                    assert_eq!(said_about(&path, &serde_json::json!({})), [NEVER], "{path}");
                }
            }
            // The names in such a mapping carry the meaning.
            if matches!(key.kind, Kind::Map | Kind::Any) && key.answer != Answer::Used {
                let said = said_about(&path, &serde_json::json!({"a name": ""}));
                assert_eq!(said.len(), 1, "{path} with an empty value: {said:?}");
            }
            for value in [
                serde_json::json!([]),
                serde_json::json!({}),
                serde_json::json!(""),
            ] {
                let none = matches!(key.answer, Answer::Never(_)) || is_section;
                assert!(
                    none || said_about(&path, &value).is_empty(),
                    "{path}: {value}"
                );
            }
        }
    }

    #[test]
    fn every_row_is_complete() {
        let mut keys = Vec::new();
        all(ROOT, "", &mut keys);
        for (path, key) in keys {
            assert!(key.doc.ends_with('.'), "{path}: {}", key.doc);
            if let Answer::Refused(instead) | Answer::Ignored(instead) | Answer::Never(instead) =
                key.answer
            {
                assert!(!instead.is_empty(), "{path}");
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
