//! `kill -9` at one step of each kind, in `up` and in `remove`: started again it converges, and
//! the node is given back as it was.

use std::collections::BTreeSet;

use lab::Profile;
use serde_json::Value;

use crate::{
    lab_remove::ALLOWED,
    real::{Site, snapshot},
};

/// The kinds of steps of a plan: the first words of their titles, a title each.
fn kinds(site: &Site, args: &[&str]) -> Vec<String> {
    let plan: Value = serde_json::from_str(&site.run(args).well().stdout).expect("a plan");
    let steps = plan["stages"].as_array().into_iter().flatten();
    let actions = steps.flat_map(|stage| stage["steps"].as_array().into_iter().flatten());
    let mut kinds = Vec::new();
    let mut seen = BTreeSet::new();
    for step in actions {
        let kind = match &step["action"] {
            Value::String(name) => name.clone(),
            action => action
                .as_object()
                .and_then(|map| map.keys().next().cloned())
                .expect("an action"),
        };
        if seen.insert(kind.clone()) {
            kinds.push(kind);
        }
    }
    kinds
}

/// Kills `args` as each step starts, a run a step, until a run gets through.
fn killed_at_every_step(site: &Site, args: &[&str]) -> usize {
    let mut killed = BTreeSet::new();
    while let Some(title) = site.kill_at_next(args, &killed) {
        assert!(killed.insert(title));
    }
    killed.len()
}

#[test]
fn killed_at_every_step_up_and_remove_converge() {
    let site = Site::new("kill", Profile::Plain);
    let before = snapshot::take(site.node());
    let kinds = kinds(&site, &["plan", "-o", "json"]);
    assert!(kinds.len() >= 12, "kinds of steps: {kinds:?}");

    let kills = killed_at_every_step(&site, &["up", "--yes"]);
    assert!(kills >= kinds.len(), "{kills} kills for {kinds:?}");
    site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());

    let kills = killed_at_every_step(&site, &["remove", "--force"]);
    assert!(kills >= 5, "{kills} kills of a removal");
    site.run(&["remove", "--force"]).well();
    let after = snapshot::take(site.node());
    assert_eq!(
        snapshot::difference(&before, &after, ALLOWED),
        Vec::<String>::new()
    );
}
