//! Files as people who use RKE write them, `rkespec/users/`, written for this repository with the features that real
//! ones have. Each goes up as it is, or is refused by the names of keys; `rkespec/users/README.md` lists what becomes
//! of each, and none of them ever becomes worse than it says. `UPDATE_USERS=1` writes that page; of some of those that go
//! up the plan is on file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use rke_operator::{
    config::{Intent, Problems, Resolved, RkeConfig, json_schema},
    plan,
};

use crate::config_golden::{AnyFile, drawn, released};

/// How many documents there are at least.
const AT_LEAST: usize = 56;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("rkespec/users")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_document = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "yml");
    let mut paths: Vec<_> = paths.filter(is_document).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    let name = path.file_stem().and_then(|name| name.to_str());
    name.expect("a name").to_owned()
}

fn resolve(path: &Path) -> Result<Resolved, Problems> {
    let yaml = fs::read_to_string(path).expect("a document");
    RkeConfig::parse(&yaml).and_then(|config| Intent::from_config(&config, &AnyFile::new()))
}

/// An editor marks nothing in a document that goes up as it is.
#[test]
fn the_schema_for_editors_takes_what_goes_up() {
    let schema = jsonschema::validator_for(&json_schema()).expect("a schema");
    let mut taken = 0;
    for path in documents() {
        if resolve(&path).is_err() {
            continue;
        }
        let yaml = fs::read_to_string(&path).expect("a document");
        let document: serde_json::Value = serde_saphyr::from_str(&yaml).expect("YAML");
        let errors: Vec<String> = schema
            .iter_errors(&document)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
        taken += 1;
    }
    assert!(taken >= 48, "{taken}");
    let wrong = serde_json::json!({"nodes": [], "network": {"plugin": "cannal"}});
    assert!(!schema.is_valid(&wrong));
}

/// The keys by which a document is refused; none: it goes up as it is.
fn refused_by(path: &Path) -> BTreeSet<String> {
    let Err(problems) = resolve(path) else {
        return BTreeSet::new();
    };
    let plain = |path: &str| {
        let parts = path.split('[').enumerate().map(|(at, part)| match at {
            0 => part.to_owned(),
            _ => part.split_once(']').map_or("", |(_, rest)| rest).to_owned(),
        });
        parts.collect::<Vec<_>>().join("[]")
    };
    problems
        .iter()
        .map(|problem| plain(&problem.path))
        .collect()
}

/// What a document is for: its comment.
fn about(path: &Path) -> String {
    let yaml = fs::read_to_string(path).expect("a document");
    let comment = yaml.lines().map_while(|line| line.strip_prefix("# "));
    comment.collect::<Vec<_>>().join(" ")
}

const HEAD: &str = "\
# RKE configs, and whether `up` accepts them

Generated from the configs in this folder: `UPDATE_USERS=1 cargo nextest run --test it config_users`. `up` either accepts a
config unchanged, or refuses it before it changes anything, because of the keys in the last column.

";

fn page() -> String {
    let mut rows = String::new();
    let (mut up, mut all) = (0, 0);
    for path in documents() {
        let keys = refused_by(&path);
        let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
        let becomes = if keys.is_empty() {
            "accepted".to_owned()
        } else {
            keys.join(", ")
        };
        all += 1;
        up += usize::from(keys.is_empty());
        let (name, about) = (name(&path), about(&path));
        let _ = writeln!(rows, "| [{name}]({name}.yml) | {about} | {becomes} |");
    }
    format!(
        "{HEAD}{up} of {all} are accepted.\n\n| config | what is in it | accepted, or refused because of |\n|---|---|---|\n{rows}"
    )
}

/// By document, the keys that the page names.
fn told() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("rkespec/users/README.md")).expect("the page");
    let rows = text.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| [")?.split_once(']')?;
        let (_, becomes) = rest.trim_end_matches(" |").rsplit_once(" | ")?;
        let keys = becomes.split(", ").filter_map(|key| {
            let key = key.strip_prefix('`')?;
            key.strip_suffix('`').map(str::to_owned)
        });
        Some((name.to_owned(), keys.collect()))
    });
    rows.collect()
}

#[test]
fn every_document_becomes_what_the_page_says_or_better() {
    if std::env::var_os("UPDATE_USERS").is_some() {
        fs::write(root().join("rkespec/users/README.md"), page()).expect("the page is written");
    }
    let documents = documents();
    assert!(documents.len() >= AT_LEAST, "{}", documents.len());
    let told = told();
    let names: BTreeSet<_> = documents.iter().map(|path| name(path)).collect();
    assert_eq!(names, told.keys().cloned().collect(), "UPDATE_USERS=1");
    for path in documents {
        let (name, keys) = (name(&path), refused_by(&path));
        let more: Vec<_> = keys.difference(&told[&name]).collect();
        assert!(more.is_empty(), "{name} is refused by {more:?} as well");
        assert!(!keys.contains(""), "{name} is refused without a key");
        assert!(!about(&path).is_empty(), "{name} says what it is for");
    }
}

/// Those whose plan shows something that no document of `rkespec/` has.
const PLANS: [&str; 15] = [
    "addons-include",
    "calico-external-ingress",
    "calico-policies",
    "cloud-external",
    "dns-nodelocal",
    "encryption-and-audit",
    "hardened",
    "images-of-rke",
    "ingress-none-metrics-none",
    "labels-and-taints",
    "own-cni",
    "registry-default",
    "separate-etcd",
    "split-three-five-canal",
    "two-nodes",
];

#[test]
fn what_goes_up_has_a_plan() {
    let told = told();
    let mut shown = 0;
    insta::glob!("../../rkespec/users", "*.yml", |path| {
        let name = name(path);
        // One that goes up since the page was written is not on file yet.
        if !told[&name].is_empty() {
            return;
        }
        let intent = resolve(path).expect("it goes up").intent;
        let (want, have) = drawn(&intent);
        let plan = plan::up(&want, &have).expect("a plan");
        assert_eq!(plan::check(&plan, &have, &want.cluster_id), vec![]);
        if PLANS.contains(&name.as_str()) {
            insta::assert_snapshot!("plan", released(&plan::render(&plan), &intent));
            shown += 1;
        }
    });
    assert_eq!(shown, PLANS.len());
}
