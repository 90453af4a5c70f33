//! `kill -9` at the start and in the middle of each step, in `up` and in `remove`: started again it
//! converges, and the node is given back as it was. A round of `make soak` kills a few times at instants that its
//! seed chooses instead.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

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

/// The kinds of steps of a plan: the names of their actions.
fn kinds(site: &Site, args: &[&str]) -> BTreeSet<String> {
    let plan: Value = serde_json::from_str(&site.run(args).well().stdout).expect("a plan");
    let all = |value: &Value, of: &str| value[of].as_array().cloned().unwrap_or_default();
    all(&plan, "stages")
        .iter()
        .flat_map(|stage| all(stage, "queues"))
        .flat_map(|queue| all(&queue, "steps"))
        .map(|step| kind(&step["action"]))
        .collect()
}

/// The name of an action without where it happens: `{"host": ["n1", {"write": …}]}` is `write`.
fn kind(action: &Value) -> String {
    match action {
        Value::String(name) => name.clone(),
        Value::Array(parts) => kind(parts.last().expect("an action")),
        Value::Object(map) => {
            let (name, inner) = map.iter().next().expect("an action");
            let place = ["host", "cluster", "local"].contains(&name.to_lowercase().as_str());
            if place { kind(inner) } else { name.clone() }
        }
        _ => panic!("no action: {action}"),
    }
}

/// A step that takes no longer cannot be met in its middle from outside.
const LONG: Duration = Duration::from_millis(50);

/// A step may take less time in one run than in another: where a kill came after it, the next one
/// comes after half of that time, so often at most.
const TRIES: u32 = 4;

/// How long each step of a run takes that nobody kills.
fn durations(site: &Site, args: &[&str]) -> BTreeMap<String, Duration> {
    let args = [args, &["-o", "json"]].concat();
    let events = site.run(&args).well().events();
    let steps = events
        .iter()
        .filter(|event| event["event"] == "stepFinished");
    steps
        .filter_map(|event| {
            let took = Duration::from_millis(event["took"].as_u64()?);
            Some((event["title"].as_str()?.to_owned(), took))
        })
        .collect()
}

/// What the kills of one command met.
#[derive(Debug, Default)]
struct Kills {
    /// The steps at whose start it was killed.
    starts: BTreeSet<String>,
    /// The steps whose middle was tried for, and how often.
    tried: BTreeMap<String, u32>,
    /// Those that were really under way then.
    within: BTreeSet<String>,
}

/// Kills `args` as each step starts, and where the step takes long enough in its middle too, a run
/// a kill, until a run gets through.
fn killed_at_every_step(
    site: &Site,
    args: &[&str],
    durations: &BTreeMap<String, Duration>,
) -> Kills {
    let mut kills = Kills::default();
    while let Some(kill) = {
        let Kills {
            starts,
            tried,
            within,
        } = &kills;
        site.kill_when(args, |title| {
            let took = durations.get(title).copied().unwrap_or_default();
            let tries = tried.get(title).copied().unwrap_or_default();
            if !starts.contains(title) {
                Some(Duration::ZERO)
            } else if took >= LONG && tries < TRIES && !within.contains(title) {
                Some(took / 2_u32.pow(tries + 1))
            } else {
                None
            }
        })
    } {
        if kills.starts.insert(kill.title.clone()) {
            continue;
        }
        *kills.tried.entry(kill.title.clone()).or_default() += 1;
        if kill.within {
            kills.within.insert(kill.title);
        }
    }
    let (starts, tried, within) = (kills.starts.len(), kills.tried.len(), kills.within.len());
    tell(&format!(
        "{}: {starts} kills at a start, {within} of {tried} within a step",
        args[0]
    ));
    // How many kills come late is the machine's: a step may take less time than in the run that was measured.
    assert!(within > 0, "{kills:#?}");
    kills
}

/// Kills `args` up to `kills` times at instants of the round, each before the step of a number below
/// `among` has begun for long; gives how often it met a living run. A run that gets to its end
/// before its kill is the last.
fn killed_by_chance(
    site: &Site,
    args: &[&str],
    (kills, among): (usize, u64),
    chance: &mut Chance,
) -> usize {
    for done in 0..kills {
        let mut steps = chance.below(among);
        let instant = chance.instant();
        let killed = site.kill_when(args, |_| {
            let now = steps == 0;
            steps = steps.saturating_sub(1);
            now.then_some(instant)
        });
        match killed {
            Some(kill) => {
                let place = if kill.within { "within" } else { "after" };
                let title = kill.title;
                tell(&format!(
                    "{} killed {instant:?} into, {place}: {title}",
                    args[0]
                ));
            }
            None => return done,
        }
    }
    kills
}

fn every_step(site: &Site, before: &Snapshot) {
    let kinds = kinds(site, &["plan", "-o", "json"]);
    assert!(kinds.len() >= 12, "kinds of steps: {kinds:?}");
    let (up, remove) = (durations(site, UP), durations(site, REMOVE));
    is_given_back(site, before);

    let kills = killed_at_every_step(site, UP, &up);
    assert!(kills.starts.len() >= kinds.len(), "{kills:?} for {kinds:?}");
    // The change of containerd goes on without us: the next run meets it in the middle.
    let switched = |title: &String| title.contains("containerd");
    assert!(kills.tried.keys().any(switched), "{kills:?}");
    site.run(UP).well();
    assert!(site.is_ready());
    let kills = killed_at_every_step(site, REMOVE, &remove);
    assert!(kills.starts.len() >= 5, "{kills:?} of a removal");
    assert!(!kills.within.is_empty(), "{kills:?} of a removal");
    site.run(REMOVE).well();
}

fn a_round_of_chance(site: &Site, chance: &mut Chance) {
    let kills = killed_by_chance(site, UP, (4, 9), chance);
    assert!(kills >= 2, "{kills} kills of 4 met a living `up`");
    site.run(UP).well();
    assert!(site.is_ready());
    // A removal has few steps, and the first ones take longer than the latest instant.
    let kills = killed_by_chance(site, REMOVE, (3, 3), chance);
    assert!(kills >= 1, "no kill of 3 met a living `remove`");
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
        None => every_step(&site, &before),
        Some(mut chance) => a_round_of_chance(&site, &mut chance),
    }
    is_given_back(&site, &before);
}
