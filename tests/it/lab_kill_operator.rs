//! `kill -9` of the operator at one step of each kind, while it builds a cluster and while it
//! takes it down: started again it converges, the finalizer stays until the node is given back, and
//! the node is as it was. A round of `make soak` kills a few times at instants that its seed chooses
//! instead.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    lab_remove::ALLOWED,
    real::{
        chance::Chance,
        operator::{Management, is_settled, step},
        snapshot, tell,
    },
};

pub(crate) const CLUSTER: &str = "minimal";
const MINUTES: Duration = Duration::from_secs(240);
/// How long nothing may be heard of a step before the object is asked whether all is done.
const QUIET: Duration = Duration::from_secs(2);

/// What kind of step a title is of: its words without names and numbers.
fn kind(title: &str) -> String {
    let words: Vec<&str> = title.split_whitespace().collect();
    match words.as_slice() {
        // One verb for several actions: the words after it tell which.
        ["wait", "for", "the", ..] => "wait for the node".to_owned(),
        ["wait", .., "healthy"] => "wait for a component".to_owned(),
        ["wait", ..] => "wait for an add-on".to_owned(),
        ["save" | "write" | "remove", second, ..] if ["a", "the"].contains(second) => {
            words[..3.min(words.len())].join(" ")
        }
        [verb, ..] => (*verb).to_owned(),
        [] => panic!("a step without a title"),
    }
}

/// Where a sweep kills: decides at the start of each step.
pub(crate) trait Killer {
    /// How long after the start of this step, if it is to be the last of this process.
    fn fatal(&mut self, title: &str) -> Option<Duration>;
}

/// At the start of the first step of every kind.
#[derive(Default)]
pub(crate) struct EveryKind(pub(crate) BTreeSet<String>);

impl Killer for EveryKind {
    fn fatal(&mut self, title: &str) -> Option<Duration> {
        self.0.insert(kind(title)).then_some(Duration::ZERO)
    }
}

/// A few times, by chance.
struct Few<'a> {
    left: usize,
    /// How many steps go well before the next kill.
    steps: u64,
    chance: &'a mut Chance,
}

impl<'a> Few<'a> {
    fn new(kills: usize, chance: &'a mut Chance) -> Self {
        Self {
            left: kills,
            steps: chance.below(9),
            chance,
        }
    }
}

impl Killer for Few<'_> {
    fn fatal(&mut self, _: &str) -> Option<Duration> {
        if self.left == 0 {
            return None;
        }
        if self.steps > 0 {
            self.steps -= 1;
            return None;
        }
        self.left -= 1;
        self.steps = self.chance.below(9);
        Some(self.chance.instant())
    }
}

/// The last steps of a removal: on a quiet machine they are over before a kill comes.
const LAST: [&str; 2] = ["remove the kubeconfig", "delete the state"];

/// Runs one operator after the other, each until its step, until the object is as `done` says.
/// What the object is after each kill is for `alive` to judge. How often it was killed.
pub(crate) fn killed_until(
    management: &Management,
    killer: &mut dyn Killer,
    limit: Duration,
    done: impl Fn(Option<&Value>) -> bool,
    alive: impl Fn(&Value),
) -> usize {
    let end = Instant::now() + limit;
    let mut kills = 0;
    loop {
        let mut operator = management.operator();
        let killed = loop {
            let fatal = operator.hear(QUIET, |line| {
                let title = step(line)?;
                let instant = killer.fatal(title)?;
                Some((title.to_owned(), instant))
            });
            if fatal.is_some() {
                break fatal;
            }
            let now = management.cluster(CLUSTER);
            if done(now.as_ref()) {
                break None;
            }
            assert!(
                Instant::now() < end,
                "not done after {kills} kills; it is {now:#?}"
            );
        };
        let Some((title, instant)) = killed else {
            operator.stop();
            return kills;
        };
        std::thread::sleep(instant);
        operator.kill();
        kills += 1;
        tell(&format!("kill {kills}, {instant:?} after: {title}"));
        match management.cluster(CLUSTER) {
            Some(now) => alive(&now),
            // Only a process that did its last steps, which take milliseconds, before it was killed.
            None => assert!(
                done(None) && (instant > Duration::ZERO || LAST.contains(&title.as_str())),
                "it went unfinished at: {title}"
            ),
        }
    }
}

pub(crate) fn has_its_finalizer(cluster: &Value) {
    assert_eq!(
        cluster["metadata"]["finalizers"],
        json!(["clusterprovisioner.rke.io/cleanup"]),
        "{:#}",
        cluster["status"]
    );
}

#[test]
fn an_operator_killed_at_every_kind_of_step_converges() {
    let management = Management::new("kill-operator");
    let before = snapshot::take(management.second());
    let sample = management.sample(CLUSTER, management.second());
    management.send(&["create"], &sample).well();

    let built = |now: Option<&Value>| now.is_some_and(is_settled);
    let gone = |now: Option<&Value>| now.is_none();
    let mut round = Chance::of_round();
    match &mut round {
        None => {
            let mut every = EveryKind::default();
            let kills = killed_until(&management, &mut every, MINUTES, built, has_its_finalizer);
            // What follows a kill's step within milliseconds may be over before the kill comes, and is not done again.
            let long = [
                "import",
                "pull",
                "run",
                "wait for a component",
                "wait for the node",
            ];
            assert!(
                kills >= 9 && long.iter().all(|kind| every.0.contains(*kind)),
                "{kills} kills: {:?}",
                every.0
            );
        }
        Some(chance) => {
            let mut few = Few::new(3, chance);
            let kills = killed_until(&management, &mut few, MINUTES, built, has_its_finalizer);
            assert!(kills >= 2, "{kills} kills of 3 met a living operator");
        }
    }
    management.inside(CLUSTER, &["get", "node", "n2"]).well();

    management.delete(CLUSTER);
    let deleted = |cluster: &Value| {
        has_its_finalizer(cluster);
        assert!(cluster["metadata"]["deletionTimestamp"].is_string());
    };
    match &mut round {
        None => {
            let mut every = EveryKind::default();
            let kills = killed_until(&management, &mut every, MINUTES, gone, deleted);
            // Every kind but the last, which may be over while the object is looked at.
            let kinds: Vec<&str> = every.0.iter().map(String::as_str).collect();
            assert!(
                ["clean", "release", "remove", "restore"]
                    .iter()
                    .all(|kind| kinds.contains(kind)),
                "{kills} kills: {kinds:?}"
            );
        }
        Some(chance) => {
            let mut few = Few::new(2, chance);
            let kills = killed_until(&management, &mut few, MINUTES, gone, deleted);
            tell(&format!("{kills} kills of a removal"));
        }
    }
    snapshot::unchanged(management.second(), &before, ALLOWED);
}
