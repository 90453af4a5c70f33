//! The table of keys has every key that RKE up to 1.6 had: `tests/fixtures/rke/keys.txt`.

use rke_operator::config::{Intent, RkeConfig, SecretSources};

/// How many keys RKE 1.6 has.
const COUNT: usize = 443;

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
