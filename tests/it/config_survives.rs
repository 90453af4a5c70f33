//! What holds for any bytes that are given as a `cluster.yml`, on the whole way from the text to the plan: nothing
//! panics, and no value of a secret is said. Secrets are planted where the table of keys has them, in whole documents
//! and in broken ones.

use std::{collections::BTreeSet, fmt::Write as _};

use rke_operator::{
    config::{Intent, Problem, Problems, Resolved, RkeConfig, SecretSources, explain, keys},
    desired::{
        Desired,
        pki::{self, PkiContext, Seed},
    },
    error::{ErrorClass, Explain},
    facts::{Actual, HostView},
    plan,
};
use serde_json::Value;

use crate::{any_file::AnyFile, sim::bare_host};

/// What every secret is in a document that has secrets put into it.
pub(crate) const PLANTED: &str = "planted5ecret";

/// The most nodes for which keys are made: a certificate takes longer than everything else.
const NODES: usize = 4;

/// Holds the properties for one text; `key` is what every path of a key leads to.
pub(crate) fn survives(bytes: &[u8], key: &AnyFile) {
    let Ok(yaml) = std::str::from_utf8(bytes) else {
        return;
    };
    said(yaml, key);
    // The name of a key has one line, and comparing it with all others takes longer than everything else.
    if yaml.lines().count() == 1 {
        let _ = explain(yaml.trim_end());
    }
    if yaml.contains(PLANTED) || RkeConfig::parse(yaml).is_err() {
        return;
    }
    // What no value of JSON can be (`.nan`) is nothing that a secret is put into.
    let Ok(mut value) = serde_saphyr::from_str::<Value>(yaml) else {
        return;
    };
    if plant(&mut value) == 0 {
        return;
    }
    of_object(&value, key);
    let Ok(text) = serde_saphyr::to_string(&value) else {
        return;
    };
    keeps_secrets(&text, key);
    keeps_secrets(&broken(&text, bytes), key);
}

/// Everything that is said about a text, in every form in which it is said.
fn said(yaml: &str, key: &AnyFile) -> String {
    let resolved = RkeConfig::parse(yaml).and_then(|config| Intent::from_config(&config, key));
    match resolved {
        Err(problems) => {
            are_whole(&problems, yaml);
            let colours = problems.render("cluster.yml", yaml, true);
            assert!(!colours.is_empty());
            let text = problems.render("cluster.yml", yaml, false);
            format!("{problems}\n{text}\n{}", problems.hints().join("\n"))
        }
        Ok(Resolved { intent, warnings }) => {
            let mut text = format!("{intent:?}\n");
            for warning in &warnings {
                is_whole(warning, yaml);
                let shown = warning.render_warning("cluster.yml", yaml, false);
                let _ = writeln!(text, "{warning}\n{shown}");
            }
            text + &planned(&intent)
        }
    }
}

fn are_whole(problems: &Problems, yaml: &str) {
    let count = problems.iter().count();
    assert!(count > 0);
    for problem in problems {
        is_whole(problem, yaml);
        let nowhere = problem.path.is_empty() && problem.place.is_none();
        let message = &problem.message;
        assert!(
            !nowhere || count == 1,
            "{message}: of what of {count} problems?"
        );
    }
}

fn is_whole(problem: &Problem, yaml: &str) {
    assert!(!problem.message.is_empty());
    let Some(place) = &problem.place else {
        return;
    };
    assert!(place.line >= 1 && place.column >= 1, "{place:?}");
    assert!(
        place.line <= yaml.split(['\n', '\r']).count(),
        "{place:?} of {problem}"
    );
}

/// What is planned for nodes that nobody has touched.
fn planned(intent: &Intent) -> String {
    if intent.nodes.len() > NODES {
        return String::new();
    }
    let hosts = intent.nodes.keys().map(|name| {
        let facts = bare_host(name);
        (name.clone(), HostView::Reachable(Box::new(facts)))
    });
    let have = Actual {
        hosts: hosts.collect(),
        ..Actual::default()
    };
    let context = PkiContext {
        now: "2026-11-21T12:00:00Z".parse().expect("a time"),
        seed: Seed::new([7; 32]),
        recover: None,
        accept_etcd: None,
        rotate: None,
        rotate_key: false,
        service_account_key: None,
        authorities: None,
        restore: None,
        held_elsewhere: &BTreeSet::new(),
        lose: &BTreeSet::new(),
        clean: &BTreeSet::new(),
        given: None,
    };
    let keys = match pki::reconcile(intent, &have, &context) {
        Ok(keys) => keys,
        Err(error) => {
            assert_ne!(error.class(), ErrorClass::Bug, "{error:?}");
            return error.to_string();
        }
    };
    let want = match Desired::from_intent(intent, &keys, &have) {
        Ok(want) => want,
        Err(error) => {
            assert_ne!(error.class(), ErrorClass::Bug, "{error:?}");
            return error.to_string();
        }
    };
    match plan::up(&want, &have) {
        Ok(plan) => {
            assert_eq!(plan::check(&plan, &have, &want.cluster_id), vec![]);
            plan::render(&plan)
        }
        Err(errors) => errors.to_string(),
    }
}

fn keeps_secrets(text: &str, key: &AnyFile) {
    let said = said(text, key);
    assert!(!said.contains(PLANTED), "{text}\nis told:\n{said}");
}

/// As the operator reads it: an object, whose problems go into conditions and events.
fn of_object(value: &Value, key: &AnyFile) {
    let sources = SecretSources::new("ssh-key", key.pem().into());
    let resolved =
        RkeConfig::from_json(value).and_then(|config| Intent::from_config(&config, &sources));
    let problems = match resolved {
        Ok(Resolved { warnings, .. }) => warnings,
        Err(problems) => problems.iter().cloned().collect(),
    };
    for problem in problems {
        let said = format!("{problem} {:?} {:?}", problem.detail, problem.hint);
        assert!(!said.contains(PLANTED), "{value}\nis told:\n{said}");
    }
}

/// Puts [`PLANTED`] into the place of every value that the table of keys calls secret; how many.
fn plant(value: &mut Value) -> usize {
    let secret = keys().into_iter().filter(|row| row.secret);
    let secret = secret.map(|row| match row.section.as_str() {
        "" => row.name.to_owned(),
        section => format!("{section}.{}", row.name),
    });
    plant_below("", &secret.collect(), value)
}

fn plant_below(path: &str, secret: &BTreeSet<String>, value: &mut Value) -> usize {
    if secret.contains(path) {
        return plant_all(value);
    }
    match value {
        Value::Array(items) => {
            let path = format!("{path}[]");
            let items = items.iter_mut();
            items.map(|item| plant_below(&path, secret, item)).sum()
        }
        Value::Object(entries) => {
            let entries = entries.iter_mut().map(|(name, value)| {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                plant_below(&path, secret, value)
            });
            entries.sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn plant_all(value: &mut Value) -> usize {
    match value {
        Value::Array(items) => items.iter_mut().map(plant_all).sum(),
        Value::Object(entries) => entries.values_mut().map(plant_all).sum(),
        Value::Null => 0,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            // A text of several lines stands in the document as a block.
            let lines = value.as_str().map_or(1, |text| text.lines().count().max(1));
            *value = vec![PLANTED; lines].join("\n").into();
            1
        }
    }
}

/// The text with something in it that YAML does not take, at a place that the bytes choose.
fn broken(text: &str, bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0_usize, |sum, byte| {
        sum.wrapping_mul(31) + usize::from(*byte)
    });
    let pieces = ["\t", "\"", "}", "]: [", "\n- ", ": ", "*none ", "\n"];
    let piece = pieces[sum % pieces.len()];
    let mut at = sum / pieces.len() % (text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let (before, after) = text.split_at(at);
    // The secret itself stays whole: parts of it nobody looks for.
    format!("{before}{piece}{after}")
}
