//! Before another minor release and before other keys, what etcd has is saved: once, and before anything else of the change
//! is done. The product's own runs, on simulated worlds.

use std::collections::BTreeSet;

use rke_operator::{
    config::Intent,
    converge::{Goal, Outcome},
    desired::{Rotated, pki::RotationStage},
    facts::{ClockFact, HostView},
    snapshots::record::Cause,
};

use crate::{
    joint_last_snapshot::{again, fails_on, files, is_snapshot},
    joint_nodes::{all, of},
    joint_properties::{block_on, dies, runner, settle},
    sim::{Cut, runner::Runner},
};

const MASKS: &[u8] = &[3, 3];
const OLD: &str = "v1.33.13";
const NEW: &str = "v1.34.4";

/// A cluster of three members with that release.
async fn cluster(release: &str) -> Runner {
    let runner = runner(3);
    settle(&runner, &of(MASKS).intent_of(Some(release))).await;
    runner
}

/// Everything as it is asked for; the snapshots that there are now.
async fn converges(runner: &Runner, goal: &Goal<'_>) -> Vec<(String, String)> {
    let ended = runner.converge(goal).await.unwrap();
    assert!(matches!(ended, Outcome::Converged { .. }), "{ended:?}");
    files(runner)
}

async fn first_step(runner: &Runner, goal: &Goal<'_>) -> String {
    let plan = runner.plan(goal).await.unwrap();
    all(&plan).first().cloned().unwrap_or_default()
}

/// One was saved, of that name.
fn one(files: &[(String, String)], what: &str) {
    let [(node, name)] = files else {
        panic!("{files:?}");
    };
    assert_eq!(node, "n1");
    assert!(name.starts_with(&format!("before-{what}")), "{name}");
}

#[test]
fn what_etcd_has_is_saved_before_another_minor_release() {
    block_on(async {
        let runner = cluster(OLD).await;
        assert_eq!(files(&runner), []);
        let intent = of(MASKS).intent_of(Some(NEW));
        let goal = Goal::Up(&intent);
        let first = first_step(&runner, &goal).await;
        assert_eq!(first, "n1: save a snapshot of etcd");
        runner.remote.world(|world| {
            for view in world.truth.hosts.values_mut() {
                if let HostView::Reachable(facts) = view {
                    let unix_seconds = 1_893_456_000;
                    facts.clock = Some(ClockFact {
                        unix_seconds,
                        uncertainty_ms: 10,
                    });
                }
            }
        });
        let saved = converges(&runner, &goal).await;
        assert_eq!(
            saved,
            [("n1".to_owned(), format!("before-{NEW}_2030-01-01T00"))]
        );
        one(&converges(&runner, &goal).await, NEW);
        // Another edit is no upgrade.
        let edited = of(MASKS);
        let edited = crate::sim::wish::Wish {
            verbosity: edited.verbosity + 1,
            ..edited
        };
        let edited = edited.intent_of(Some(NEW));
        one(&converges(&runner, &Goal::Up(&edited)).await, NEW);
    });
}

/// An upgrade that waits for a node saves nothing, however often it is looked at.
#[test]
fn nothing_is_saved_for_an_upgrade_that_waits() {
    block_on(async {
        let runner = cluster(OLD).await;
        let intent = of(MASKS).intent_of(Some(NEW));
        // Two of three: etcd has no quorum, and nothing is replaced.
        runner.switch_off("n2");
        runner.switch_off("n3");
        for _ in 0..3 {
            drop(runner.converge(&Goal::Up(&intent)).await);
        }
        assert_eq!(files(&runner), []);
        runner.switch_on();
        one(&converges(&runner, &Goal::Up(&intent)).await, NEW);
    });
}

/// One that nothing can be saved of is changed all the same, and a person is told.
#[test]
fn where_none_can_be_saved_the_change_is_made_with_a_warning() {
    block_on(async {
        let runner = cluster(OLD).await;
        let tries = fails_on(&runner, &["n1", "n2", "n3"]);
        let intent = of(MASKS).intent_of(Some(NEW));
        let ended = runner.converge(&Goal::Up(&intent)).await.unwrap();
        let warnings = match &ended {
            Outcome::Converged { warnings, .. } | Outcome::Degraded { warnings, .. } => warnings,
        };
        assert!(
            warnings
                .iter()
                .any(|one| one.message.contains("no room is left")),
            "{ended:?}"
        );
        assert_eq!(tries.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert_eq!(files(&runner), []);
        let again = runner.would(&Goal::Up(&intent)).await.unwrap();
        assert!(again.is_empty(), "{}", rke_operator::plan::render(&again));
    });
}

/// The process may be killed when the file is there and the state does not say yet that the change has begun.
#[test]
fn wherever_an_upgrade_is_cut_one_snapshot_is_taken_and_first() {
    block_on(async {
        let whole = cluster(OLD).await;
        let intent = of(MASKS).intent_of(Some(NEW));
        let goal = Goal::Up(&intent);
        for (after, torn) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (8, 0), (20, 1)] {
            let runner = again(&whole);
            runner.remote.watch(|world, step| {
                let changes = step.action.is_destructive();
                assert!(!changes || !world.files.is_empty(), "{step:?}");
            });
            dies(&runner, &goal, Cut { after, torn }).await;
            one(&converges(&runner, &goal).await, NEW);
        }
    });
}

#[test]
fn what_etcd_has_is_saved_before_other_keys() {
    async fn rotates(runner: &Runner, rotated: Rotated, what: &str, intent: &Intent) {
        let goal = Goal::RotateKeys(rotated, intent);
        let plan = runner.plan(&goal).await.unwrap();
        let first = plan.steps().next().unwrap();
        assert!(is_snapshot(first), "{first:?}");
        one(&converges(runner, &goal).await, what);
    }
    block_on(async {
        let intent = of(MASKS).intent();
        let whole = cluster(NEW).await;
        settle(&whole, &intent).await;
        let start = RotationStage::Start;
        let runner = again(&whole).rotating_authorities(start);
        rotates(&runner, Rotated::Authorities, "new-authorities", &intent).await;
        let runner = again(&whole).rotating_service_account_key(start);
        let what = "new-service-account-key";
        rotates(&runner, Rotated::ServiceAccountKey, what, &intent).await;
    });
}

#[test]
fn each_reason_has_a_word_that_is_read_back() {
    let causes = [
        Cause::Scheduled,
        Cause::Asked,
        Cause::BeforeDelete,
        Cause::BeforeUpgrade,
        Cause::BeforeRotation,
    ];
    let words: BTreeSet<&str> = causes.iter().map(|cause| cause.name()).collect();
    assert_eq!(words.len(), causes.len());
    for cause in causes {
        assert_eq!(cause.name().parse(), Ok(cause));
        assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
    }
    assert!("Never".parse::<Cause>().is_err());
}
