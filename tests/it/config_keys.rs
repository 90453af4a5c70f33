//! The table of keys has every key that RKE up to 1.8 had: `tests/fixtures/rke/keys.txt`.

use std::collections::BTreeMap;

use rke_operator::config::{Explained, Intent, RkeConfig, SecretSources, Support, explain};

/// How many keys RKE has had up to 1.8.
const COUNT: usize = 456;

const KEYS: &str = include_str!("../fixtures/rke/keys.txt");

fn paths() -> Vec<&'static str> {
    let lines = KEYS.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// A document in which this key is the only one, and says nothing.
fn document(path: &str) -> serde_json::Value {
    let mut value = serde_json::Value::Null;
    for name in path.rsplit('.') {
        value = match name.strip_suffix("[]") {
            Some(name) => serde_json::json!({ name: [value] }),
            None => serde_json::json!({ name: value }),
        };
    }
    value
}

fn is_unknown(path: &str) -> bool {
    let config = RkeConfig::from_json(&document(path)).expect("a document");
    let sources = SecretSources::new("key", String::new().into());
    let problems = Intent::from_config(&config, &sources).expect_err("there is no node");
    problems
        .iter()
        .any(|problem| problem.message == "unknown key")
}

#[test]
fn every_key_of_rke_is_known() {
    let paths = paths();
    let unknown: Vec<_> = paths.iter().filter(|path| is_unknown(path)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert_eq!(paths.len(), COUNT, "the list is whole");
}

/// The test can fail: the same keys with another letter are not known, but where the names are the
/// user's or nobody looks inside.
#[test]
fn keys_that_rke_has_not_are_not_known() {
    let paths = paths();
    let unknown = |path: &&&str| is_unknown(&format!("{path}x"));
    let count = paths.iter().filter(unknown).count();
    assert!(count + 10 > paths.len(), "{count} of {}", paths.len());
}

/// What is done with a key: what is done with the section around it, where that is not looked into.
fn support(path: &str) -> Support {
    let mut ends = path
        .match_indices('.')
        .map(|(at, _)| at)
        .collect::<Vec<_>>();
    ends.push(path.len());
    for end in ends {
        let row = match explain(&path[..end]) {
            Explained::Key(row) | Explained::Section(row, _) => row,
            other @ (Explained::Top(_) | Explained::Unknown { .. }) => {
                panic!("{path}: {other:?}")
            }
        };
        if end == path.len() || !matches!(row.support, Support::Works) {
            return row.support;
        }
    }
    Support::Works
}

/// Of all keys that RKE has had, so many are used, and so on.
#[test]
fn what_is_done_with_the_keys_of_rke() {
    let mut counts = BTreeMap::new();
    for path in paths() {
        let what = match support(path) {
            Support::Works => "used",
            Support::Same(_) => "any value, the same effect",
            Support::Ignored(_) => "no effect, with a warning, as in RKE",
            Support::Later => "only RKE's default so far",
            Support::Refused(_) | Support::Never(_) => "refused, with what to do instead",
        };
        *counts.entry(what).or_insert(0) += 1;
    }
    assert_eq!(counts.values().sum::<usize>(), COUNT);
    insta::assert_debug_snapshot!(counts, @r#"
    {
        "any value, the same effect": 13,
        "no effect, with a warning, as in RKE": 8,
        "only RKE's default so far": 6,
        "refused, with what to do instead": 217,
        "used": 212,
    }
    "#);
}
