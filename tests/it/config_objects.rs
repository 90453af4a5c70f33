//! Configs in objects: the definition takes every document that the command line takes, and it asks for the same.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rke_operator::config::{ConfigSecrets, Intent, RkeConfig, keys};
use serde_json::{Value, json};

use crate::{any_file::AnyFile, fake_api::FakeApi};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let folders = ["rkespec", "rkespec/users", "samples"];
    let entries = folders.into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path())
    });
    let mut all: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|kind| kind == "yml"))
        .collect();
    all.sort();
    all
}

/// An object with that config.
fn object(config: &Value) -> Value {
    json!({
        "metadata": {"name": "a"},
        "spec": {"config": config, "ssh": {"keySecretRef": {"name": "nodes"}}},
    })
}

/// As `kubectl` reads it, where a text that YAML takes for a bool is in quotes: JSON has no other spelling of a bool.
fn json_of(yaml: &str) -> Value {
    let quoted = yaml.lines().map(|line| {
        let word = ["yes", "no", "on", "off"];
        let word = word
            .iter()
            .find(|word| line.ends_with(&format!(": {word}")));
        match word {
            Some(word) => format!("{}\"{word}\"\n", line.strip_suffix(word).expect("its end")),
            None => format!("{line}\n"),
        }
    });
    serde_saphyr::from_str(&quoted.collect::<String>()).expect("YAML")
}

#[test]
fn every_document_asks_for_the_same_in_an_object() {
    let (mut taken, mut with_secrets, mut differ) = (0, 0, Vec::new());
    let sources = AnyFile::new();
    for path in documents() {
        let name = path.display();
        let yaml = fs::read_to_string(&path).expect("a document");
        let parsed = RkeConfig::parse(&yaml);
        let Ok(of_file) = parsed.and_then(|config| Intent::from_config(&config, &sources)) else {
            continue;
        };
        let mut config = json_of(&yaml);
        assert_eq!(
            FakeApi::admits("Cluster", &object(&config)),
            Ok(()),
            "{name}"
        );
        let of = |config: &Value| {
            let config = RkeConfig::from_json(config).expect("a mapping");
            Intent::from_config(&config, &sources)
                .expect("a good config")
                .intent
        };
        if of(&config) != of_file.intent {
            differ.push(format!("{name} in an object"));
        }
        // And with its secrets in Secrets.
        let inline = ConfigSecrets::of(&config)
            .expect("no reference is wrong")
            .inline;
        with_secrets += usize::from(!inline.is_empty());
        let mut values = Vec::new();
        for path in &inline {
            let place = at(&mut config, path);
            values.push(place.take());
            *place = json!({"secretKeyRef": {"name": "secrets", "key": "key"}});
        }
        assert_eq!(
            FakeApi::admits("Cluster", &object(&config)),
            Ok(()),
            "{name}"
        );
        let found = ConfigSecrets::of(&config).expect("references");
        assert_eq!(
            (found.inline.len(), found.references.len()),
            (0, inline.len()),
            "{name}"
        );
        for (reference, path) in found.references.iter().zip(&inline) {
            assert_eq!(&reference.path, path);
        }
        for (reference, value) in found.references.iter().zip(values) {
            let text = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            reference.put(&mut config, &text.into());
        }
        if of(&config) != of_file.intent {
            differ.push(format!("{name} with Secrets"));
        }
        taken += 1;
    }
    assert!(
        differ.is_empty(),
        "they ask for something else: {differ:#?}"
    );
    assert!(
        taken > 60 && with_secrets > 3,
        "{taken} documents, {with_secrets} with secrets"
    );
}

/// The value at a path like `private_registries[0].password`.
fn at<'v>(config: &'v mut Value, path: &str) -> &'v mut Value {
    let pointer = path.replace(['.', '['], "/").replace(']', "");
    config.pointer_mut(&format!("/{pointer}")).expect(path)
}

/// The policy and the operator refuse the same: each key whose value is a password or a private key.
#[test]
fn the_policy_knows_every_secret() {
    let text = fs::read_to_string(root().join("deploy/policies/policies.yaml")).expect("policies");
    let (_, policy) = text
        .split_once("name: secrets.clusterprovisioner.rke.io")
        .expect("the policy");
    let policy = policy.split("---").next().expect("its end");
    let mut known = 0;
    for row in keys().into_iter().filter(|row| row.by_reference) {
        let section = row.section.rsplit('.').next().unwrap_or_default();
        let section = section.trim_end_matches("[]");
        assert!(
            policy.contains(&format!("'{}'", row.name)),
            "{}.{}",
            row.section,
            row.name
        );
        assert!(policy.contains(section), "{}.{}", row.section, row.name);
        known += 1;
    }
    assert_eq!(
        known, 11,
        "a secret more: the policy in deploy/policies/policies.yaml needs it"
    );
}

/// What is not known is kept, so that it can be named; the API server drops nothing silently.
#[test]
fn what_the_definition_does_not_know_is_kept() {
    let config = json!({
        "nodes": [{"address": "192.0.2.1", "rol": ["etcd"], "taints": [{"key": "a", "tim": 1}]}],
        "netwrk": {"plugin": "canal"},
        "services": {"kubelt": {}, "etcd": {"extra_arg": {}}},
    });
    assert_eq!(FakeApi::admits("Cluster", &object(&config)), Ok(()));
}

/// What only an object has says so in a file.
#[test]
fn each_key_next_to_the_config_of_an_object_is_known_by_a_file() {
    let text = fs::read_to_string(root().join("crds/clusters.yaml")).expect("the definition");
    let definition: Value = serde_saphyr::from_str(&text).expect("YAML");
    let version = &definition["spec"]["versions"][0];
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    let keys = spec.as_object().expect("the keys of the spec").keys();
    let mut seen = 0;
    for key in keys.filter(|key| *key != "config") {
        let yaml = format!("nodes: [{{address: 192.0.2.1}}]\n{key}: x\n");
        let config = RkeConfig::parse(&yaml).expect("a document");
        let problems = Intent::from_config(&config, &AnyFile::new()).expect_err(key);
        let problem = problems.iter().find(|problem| problem.path == *key);
        let hint = problem.and_then(|problem| problem.hint.clone());
        let hint = hint.unwrap_or_default();
        assert!(
            hint.contains("belongs to the `spec` of a `Cluster`"),
            "{key}: {hint}"
        );
        seen += 1;
    }
    assert!(seen > 5, "{seen}");
}
