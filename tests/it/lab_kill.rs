//! `kill -9` at one step of each kind, in `up` and in `remove`: started again it converges, and
//! the node is given back as it was. A round of `make soak` kills a few times at instants that its
//! seed chooses instead.

use std::{collections::BTreeSet, time::Duration};

use lab::Profile;
use serde_json::Value;

use crate::{
    lab_remove::ALLOWED,
    real::{
        Site,
        chance::Chance,
        snapshot::{self, Snapshot},
        tell,
    },
};

const UP: &[&str] = &["up", "--yes"];
const REMOVE: &[&str] = &["remove", "--force"];
/// Into the change of containerd's configuration, which takes about a second.
const SWITCHING: Duration = Duration::from_millis(600);

/// The kinds of steps of a plan: the names of their actions.
fn kinds(site: &Site, args: &[&str]) -> BTreeSet<String> {
    let plan: Value = serde_json::from_str(&site.run(args).well().stdout).expect("a plan");
    let steps = plan["stages"].as_array().into_iter().flatten();
    let actions = steps.flat_map(|stage| stage["steps"].as_array().into_iter().flatten());
    actions
        .map(|step| match &step["action"] {
            Value::String(name) => name.clone(),
            action => action
                .as_object()
                .and_then(|map| map.keys().next().cloned())
                .expect("an action"),
        })
        .collect()
}

/// Kills `args` as each step starts, a run a step, until a run gets through; containerd's as it
/// restarts.
fn killed_at_every_step(site: &Site, args: &[&str]) -> usize {
    let mut killed = BTreeSet::new();
    while let Some(title) = site.kill_when(args, |title| {
        // The change of containerd goes on without us: the next run meets it in the middle.
        let into = if title.contains("containerd's") || title.contains("configure containerd") {
            SWITCHING
        } else {
            Duration::ZERO
        };
        (!killed.contains(title)).then_some(into)
    }) {
        assert!(killed.insert(title));
    }
    killed.len()
}

/// Kills `args` up to `kills` times at instants of the round; a run that gets through before its
/// instant is good enough.
fn killed_by_chance(site: &Site, args: &[&str], kills: usize, chance: &mut Chance) {
    for _ in 0..kills {
        let mut steps = chance.below(9);
        let instant = chance.instant();
        let killed = site.kill_when(args, |_| {
            let now = steps == 0;
            steps = steps.saturating_sub(1);
            now.then_some(instant)
        });
        match killed {
            Some(title) => tell(&format!("{} killed {instant:?} after: {title}", args[0])),
            None => return,
        }
    }
}

fn every_step(site: &Site) {
    let kinds = kinds(site, &["plan", "-o", "json"]);
    assert!(kinds.len() >= 12, "kinds of steps: {kinds:?}");
    let kills = killed_at_every_step(site, UP);
    assert!(kills >= kinds.len(), "{kills} kills for {kinds:?}");
    site.run(UP).well();
    assert!(site.is_ready());
    let kills = killed_at_every_step(site, REMOVE);
    assert!(kills >= 5, "{kills} kills of a removal");
    site.run(REMOVE).well();
}

fn a_round_of_chance(site: &Site, chance: &mut Chance) {
    killed_by_chance(site, UP, 4, chance);
    site.run(UP).well();
    assert!(site.is_ready());
    killed_by_chance(site, REMOVE, 3, chance);
    site.run(REMOVE).well();
}

fn is_given_back(site: &Site, before: &Snapshot) {
    snapshot::unchanged(site.node(), before, ALLOWED);
}

#[test]
fn killed_at_every_step_up_and_remove_converge() {
    let site = Site::new("kill", Profile::Plain);
    let before = snapshot::take(site.node());
    match Chance::of_round() {
        None => every_step(&site),
        Some(mut chance) => a_round_of_chance(&site, &mut chance),
    }
    is_given_back(&site, &before);
}
