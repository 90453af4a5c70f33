//! `make soak-pods KILLS=50 SEED=7`: the pod that leads is killed at random instants while a cluster is made, changed and
//! taken down, life after life; each life ends as if nothing had happened.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    lab_kill_operator::has_its_finalizer,
    lab_remove::ALLOWED,
    real::{
        chance::Chance,
        operator::{Management, NAMESPACE, is_settled},
        publish, snapshot, tell,
    },
};

const CLUSTER: &str = "minimal";
const MINUTES: Duration = Duration::from_secs(300);

/// How often at most while one thing is done.
const KILLS_EACH: usize = 3;

/// How long at most the next kill is waited for, in milliseconds.
const PAUSE: u64 = 6000;

struct Soak {
    management: Management,
    chance: Chance,
    left: usize,
    /// By what was being done: how long it took until another led.
    takeovers: BTreeMap<&'static str, Vec<Duration>>,
}

impl Soak {
    /// Kills the pod that leads, and waits for the next one.
    fn kill(&mut self, doing: &'static str) {
        let leader = self.management.leader();
        self.management.signal(&leader, "KILL");
        let begun = Instant::now();
        // Another in its place, without kubelet's growing pauses between starts.
        let delete = ["delete", "pod", &leader, "--grace-period=0", "--force"];
        self.management
            .kubectl(&[&["-n", NAMESPACE][..], &delete].concat())
            .well();
        self.management.next_leader(&leader, MINUTES);
        self.takeovers
            .entry(doing)
            .or_default()
            .push(begun.elapsed());
        self.left -= 1;
        tell(&format!("{doing}: {} kills are left", self.left));
    }

    /// Kills a few times while something is done; then it is done all the same.
    fn killed_while(
        &mut self,
        doing: &'static str,
        done: impl Fn(Option<&Value>) -> bool,
        alive: impl Fn(&Value),
    ) {
        for _ in 0..KILLS_EACH.min(self.left) {
            std::thread::sleep(Duration::from_millis(self.chance.below(PAUSE)));
            let now = self.management.cluster(CLUSTER);
            if done(now.as_ref()) {
                break;
            }
            self.kill(doing);
            if let Some(now) = self.management.cluster(CLUSTER) {
                alive(&now);
            }
        }
        let end = Instant::now() + MINUTES;
        loop {
            let now = self.management.cluster(CLUSTER);
            if done(now.as_ref()) {
                return;
            }
            assert!(Instant::now() < end, "{doing}: not done; it is {now:#?}");
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// One cluster from its object to nothing.
    fn life(&mut self) {
        let before = snapshot::take(self.management.second());
        let settled = |now: Option<&Value>| now.is_some_and(is_settled);
        let sample = self.management.sample(CLUSTER, self.management.second());
        self.management.send(&["create"], &sample).well();
        self.killed_while("make", settled, |_| {});
        let word = json!({"extra_args": {"v": (3 + self.chance.below(3)).to_string()}});
        let services = json!({
            "kube-api": word, "kube-controller": word, "scheduler": word, "kubelet": word,
        });
        let edit = json!({"spec": {"config": {"services": services}}});
        self.management.edit(CLUSTER, &edit);
        self.killed_while("change", settled, has_its_finalizer);
        self.management
            .inside(CLUSTER, &["get", "node", "n2"])
            .well();
        self.management.delete(CLUSTER);
        let gone = |now: Option<&Value>| now.is_none();
        self.killed_while("take down", gone, has_its_finalizer);
        snapshot::unchanged(self.management.second(), &before, ALLOWED);
    }
}

#[test]
fn a_pod_that_is_killed_at_random_is_followed_by_one_that_goes_on() {
    let kills = std::env::var("SOAK_KILLS").map_or(6, |kills| kills.parse().expect("a number"));
    let management = Management::new("pods-killed");
    management.deploy(&management.image("soak"));
    let mut soak = Soak {
        management,
        chance: Chance::of_round().unwrap_or(Chance::of(1)),
        left: kills,
        takeovers: BTreeMap::new(),
    };
    let mut lives = 0;
    while soak.left > 0 {
        soak.life();
        lives += 1;
    }
    for (doing, took) in &mut soak.takeovers {
        took.sort();
        let seconds = |at: usize| took.get(at).map_or(0.0, Duration::as_secs_f64);
        let row = format!(
            "| {doing} | {} | {:.1} s | {:.1} s |",
            took.len(),
            seconds(took.len() / 2),
            seconds(took.len() - 1)
        );
        publish("SOAK_PODS_TABLE", &row);
    }
    let killed: usize = soak.takeovers.values().map(Vec::len).sum();
    assert_eq!(killed, kills);
    publish(
        "SOAK_PODS_TABLE",
        &format!("| all | {killed}, in {lives} lives | | |"),
    );
}
