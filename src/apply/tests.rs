//! The scheduler against a closure-backed [`Act`] on a paused clock.

use std::{borrow::Cow, collections::BTreeSet, fmt::Write, sync::Mutex, time::Duration};

use futures::future::BoxFuture;
use tokio::time::sleep;

use super::{
    event::{Event, Events, RunOutcome, StepId, StepOutcome},
    progress::Progress,
    run::{Report, run},
    step::{Act, Done, Reporter, StepError, Warning},
    stop::{Stop, StopCause, Stopper},
};
use crate::{
    error::{ErrorClass, Explain},
    model::{ClusterId, Component},
    plan::{
        Action, Cause, ClusterAction, Enough, Guard, HostAction, LocalAction, OnFailure, Plan,
        Stage, Step, Target,
    },
};

type Effect = dyn for<'a> Fn(&'a str, &'a Reporter, &'a Stop) -> BoxFuture<'a, Result<Done, StepError>>
    + Send
    + Sync;

/// Acts by a closure that sees the image's name, and remembers how many ran at once.
struct Script {
    effect: Box<Effect>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    now: BTreeSet<(String, String)>,
    most: usize,
    log: Vec<String>,
}

impl Script {
    fn new(
        effect: impl for<'a> Fn(
            &'a str,
            &'a Reporter,
            &'a Stop,
        ) -> BoxFuture<'a, Result<Done, StepError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            effect: Box::new(effect),
            seen: Mutex::default(),
        }
    }

    /// Every step takes a second.
    fn seconds() -> Self {
        Self::new(|_, _, _| Box::pin(second()))
    }

    fn log(&self) -> Vec<String> {
        self.seen.lock().unwrap().log.clone()
    }
}

async fn second() -> Result<Done, StepError> {
    sleep(Duration::from_secs(1)).await;
    Ok(Done::default())
}

impl Act for Script {
    async fn act(&self, step: &Step, reporter: &Reporter, halt: &Stop) -> Result<Done, StepError> {
        let name = image(step).to_owned();
        let key = (step.target().to_string(), name.clone());
        {
            let mut seen = self.seen.lock().unwrap();
            assert!(
                !seen.now.iter().any(|(target, _)| *target == key.0),
                "two steps of one target at once"
            );
            seen.log.push(format!("{} {name}", key.0));
            seen.now.insert(key.clone());
            seen.most = seen.most.max(seen.now.len());
        }
        let result = (self.effect)(&name, reporter, halt).await;
        self.seen.lock().unwrap().now.remove(&key);
        result
    }
}

fn image(step: &Step) -> &str {
    match step.action.on_host() {
        Some((_, HostAction::PullImage { image })) => image,
        Some((_, HostAction::StartContainer { component })) => component.container(),
        _ => panic!("not in these tests: {step:?}"),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot pull `{0}` on node `n1`")]
struct Broken(String, #[source] std::io::Error);

impl Explain for Broken {
    fn class(&self) -> ErrorClass {
        ErrorClass::Host
    }

    fn hints(&self) -> Vec<Cow<'static, str>> {
        vec!["is the registry there?".into()]
    }
}

fn broken(what: &str) -> StepError {
    StepError::Failed(Box::new(Broken(
        what.to_owned(),
        std::io::Error::other("no route to host"),
    )))
}

fn step(host: &str, name: &str) -> Step {
    let action = HostAction::PullImage {
        image: name.to_owned(),
    };
    Step {
        cause: Cause::New,
        why: "not there yet".into(),
        changes: Vec::new(),
        guards: vec![Guard::ClaimIs {
            id: ClusterId("c1".to_owned()),
            node: host.into(),
        }],
        disturbs: None,
        action: Action::Host(host.into(), action),
    }
}

/// Steps of one host are one queue; the width is the test's own, and a failure lets the others end.
fn stage(name: &'static str, width: usize, steps: Vec<Step>) -> Stage {
    Stage {
        width,
        on_failure: OnFailure::FinishRunning,
        ..Stage::of(name, width, steps)
    }
}

fn plan(stages: Vec<Stage>) -> Plan {
    Plan {
        stages,
        notes: Vec::new(),
    }
}

/// Runs with a listener that keeps up, and returns what it heard.
async fn heard(plan: &Plan, act: &Script, stop: &Stop) -> (Report, Vec<Event>) {
    let (events, mut rx) = Events::channel(8);
    let listen = async {
        let mut all = Vec::new();
        while let Some(event) = rx.recv().await {
            all.push(event);
        }
        all
    };
    let going = async {
        let report = run(plan, 1, act, &events, stop).await;
        drop(events);
        report
    };
    let (report, all) = tokio::join!(going, listen);
    check_stream(&all);
    (report, all)
}

/// What holds for every stream of events of one run.
fn check_stream(events: &[Event]) {
    let finishes = |event: &&Event| matches!(event, Event::RunFinished { .. });
    assert!(matches!(events.first(), Some(Event::RunStarted { .. })));
    assert!(events.last().iter().any(finishes), "last: {events:?}");
    assert_eq!(events.iter().filter(finishes).count(), 1);
    let mut open = BTreeSet::new();
    let mut closed = BTreeSet::new();
    for event in events {
        match event {
            Event::StepStarted { id, .. } => assert!(open.insert(*id) && !closed.contains(id)),
            Event::StepFinished { id, outcome, .. } => {
                let was_open = open.remove(id);
                assert!(was_open || *outcome == StepOutcome::Skipped);
                assert!(closed.insert(*id), "finished twice: {id:?}");
            }
            Event::TurnAwaited { .. }
            | Event::RunStarted { .. }
            | Event::StageStarted { .. }
            | Event::StepProgress { .. }
            | Event::RunFinished { .. } => {}
        }
    }
    assert!(open.is_empty(), "started and never finished: {open:?}");
}

/// One line an event.
fn lines(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .map(|event| match event {
            Event::TurnAwaited { holder } => format!("waits for {holder}"),
            Event::RunStarted {
                iteration,
                stages,
                steps,
            } => format!("run {iteration}: {stages} stages, {steps} steps"),
            Event::StageStarted { name, steps, .. } => format!("stage {name}: {steps}"),
            Event::StepStarted { id, target, .. } => {
                format!("  start {}.{} {target}", id.stage, id.step)
            }
            Event::StepProgress {
                id, waiting_for, ..
            } => format!("  progress {}.{} {waiting_for:?}", id.stage, id.step),
            Event::StepFinished {
                id,
                target,
                outcome,
                took,
                detail,
                ..
            } => format!(
                "  end {}.{} {target} {outcome:?} {} s {}",
                id.stage,
                id.step,
                took.as_secs(),
                detail.as_deref().unwrap_or_default()
            ),
            Event::RunFinished { outcome, took, why } => {
                let why = why.as_deref().unwrap_or_default();
                format!("end: {outcome:?} {} s{why}", took.as_secs())
            }
        })
        .collect()
}

fn finished(report: &Report, events: &[Event], outcome: &RunOutcome) {
    assert_eq!(report.outcome, *outcome);
    assert!(
        matches!(events.last(), Some(Event::RunFinished { outcome: said, .. }) if said == outcome)
    );
}

#[tokio::test(start_paused = true)]
async fn stages_and_the_steps_of_one_target_run_in_order() {
    let plan = plan(vec![
        stage(
            "images",
            10,
            vec![step("n1", "a"), step("n2", "b"), step("n1", "c")],
        ),
        stage("empty", 10, vec![]),
        stage("start", 10, vec![step("n2", "d")]),
    ]);
    let (_keep, stop) = Stopper::new();
    let act = Script::seconds();
    let (report, events) = heard(&plan, &act, &stop).await;
    finished(&report, &events, &RunOutcome::Completed);
    insta::assert_snapshot!(lines(&events).join("\n"), @r"
    run 1: 3 stages, 4 steps
    stage images: 3
      start 0.0 n1
      start 0.2 n2
      end 0.0 n1 Done 1 s 
      start 0.1 n1
      end 0.2 n2 Done 1 s 
      end 0.1 n1 Done 1 s 
    stage start: 1
      start 2.0 n2
      end 2.0 n2 Done 1 s 
    end: Completed 3 s
    ");
}

#[tokio::test(start_paused = true)]
async fn no_more_than_width_targets_at_once() {
    for (width, seconds, most) in [(0, 5, 1), (1, 5, 1), (2, 3, 2), (5, 1, 5), (50, 1, 5)] {
        let steps = ["n1", "n2", "n3", "n4", "n5"].map(|host| step(host, "a"));
        let plan = plan(vec![stage("start", width, steps.to_vec())]);
        let (_keep, stop) = Stopper::new();
        let act = Script::seconds();
        let begun = tokio::time::Instant::now();
        heard(&plan, &act, &stop).await;
        assert_eq!(begun.elapsed().as_secs(), seconds, "width {width}");
        assert_eq!(act.seen.lock().unwrap().most, most, "width {width}");
    }
}

#[tokio::test(start_paused = true)]
async fn siblings_of_a_failure_finish_and_the_rest_is_skipped() {
    let plan = plan(vec![
        stage(
            "start",
            2,
            vec![
                step("n1", "bad"),
                step("n1", "never"),
                step("n2", "slow"),
                step("n2", "after"),
                step("n3", "not begun"),
            ],
        ),
        stage("later", 2, vec![step("n2", "never")]),
    ]);
    let (_keep, stop) = Stopper::new();
    let act = Script::new(|name, _, _| {
        Box::pin(async move {
            match name {
                "bad" => Err(broken(name)),
                _ => second().await,
            }
        })
    });
    let (report, events) = heard(&plan, &act, &stop).await;
    finished(&report, &events, &RunOutcome::Failed);
    assert_eq!(act.log(), ["n1 bad", "n2 slow", "n2 after"]);
    let [failure] = report.failures.try_into().unwrap();
    assert_eq!(image(&failure.step), "bad");
    assert_eq!(failure.error.class(), ErrorClass::Host);
    insta::assert_snapshot!(lines(&events).join("\n"), @r#"
    run 1: 2 stages, 6 steps
    stage start: 5
      start 0.0 n1
      end 0.0 n1 Failed { message: "cannot pull `bad` on node `n1`: no route to host", hints: ["is the registry there?"], class: Host } 0 s 
      end 0.1 n1 Skipped 0 s 
      start 0.2 n2
      end 0.2 n2 Done 1 s 
      start 0.3 n2
      end 0.3 n2 Done 1 s 
      end 0.4 n3 Skipped 0 s 
    end: Failed 2 s
    "#);
}

fn that_fails(bad: &'static str) -> Script {
    Script::new(move |name, _, _| {
        Box::pin(async move {
            if name == bad {
                sleep(Duration::from_millis(500)).await;
                return Err(broken(name));
            }
            second().await
        })
    })
}

/// What nothing else needs: where it fails, all else is done, and the run ends as degraded.
#[tokio::test(start_paused = true)]
async fn an_optional_step_that_fails_is_a_warning() {
    let component = Component::Snapshots;
    let mut optional = step("n1", "");
    optional.action = Action::Host("n1".into(), HostAction::StartContainer { component });
    let mut stage = stage(
        "snapshots",
        2,
        vec![optional.clone(), step("n1", "a"), step("n2", "b")],
    );
    stage.on_failure = OnFailure::EndRun;
    let (_keep, stop) = Stopper::new();
    let act = that_fails(component.container());
    let (report, _) = heard(&plan(vec![stage]), &act, &stop).await;
    assert_eq!(report.outcome, RunOutcome::Completed);
    assert_eq!(act.log(), ["n1 etcd-rolling-snapshots", "n2 b", "n1 a"]);
    assert!(report.failures.is_empty());
    assert_eq!(report.slow, [optional.action]);
    let [warning] = &report.warnings[..] else {
        panic!("{:?}", report.warnings);
    };
    assert!(warning.degrades);
    assert!(
        warning.message.contains("no route to host"),
        "{}",
        warning.message
    );
    assert_eq!(warning.hints, ["is the registry there?"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_ends_the_run_stops_the_others_before_their_next_step() {
    let steps = vec![step("n1", "bad"), step("n2", "slow"), step("n2", "never")];
    let mut stage = stage("state", 2, steps);
    stage.on_failure = OnFailure::EndRun;
    let (_keep, stop) = Stopper::new();
    let act = that_fails("bad");
    let (report, events) = heard(&plan(vec![stage]), &act, &stop).await;
    finished(&report, &events, &RunOutcome::Failed);
    assert_eq!(act.log(), ["n1 bad", "n2 slow"]);
}

/// Images of n1 cannot be pulled; the others go on without it, in every stage that comes.
#[tokio::test(start_paused = true)]
async fn a_node_that_fails_is_left_out_and_the_others_go_on() {
    let mut images = stage(
        "images",
        1,
        vec![
            step("n1", "bad"),
            step("n1", "never"),
            step("n2", "b"),
            step("n3", "c"),
        ],
    );
    let start = stage(
        "start",
        1,
        vec![step("n1", "never"), step("n2", "d"), step("n3", "e")],
    );
    let nodes = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
    let quorum = |names| Enough::Quorum(nodes(names));
    for (while_left, log) in [
        (
            Enough::OneOf(nodes(&["n1", "n2"])),
            vec!["n1 bad", "n2 b", "n3 c", "n2 d", "n3 e"],
        ),
        (
            quorum(&["n1", "n2", "n3"]),
            vec!["n1 bad", "n2 b", "n3 c", "n2 d", "n3 e"],
        ),
        (quorum(&["n1", "n2"]), vec!["n1 bad"]),
        (Enough::OneOf(nodes(&["n1"])), vec!["n1 bad"]),
        (
            Enough::All(vec![
                Enough::OneOf(nodes(&["n1", "n2"])),
                Enough::OneOf(nodes(&["n1"])),
            ]),
            vec!["n1 bad"],
        ),
    ] {
        let outcome = if log.len() > 1 {
            RunOutcome::Degraded
        } else {
            RunOutcome::Failed
        };
        images.on_failure = OnFailure::DropNode { while_left };
        let (_keep, stop) = Stopper::new();
        let act = that_fails("bad");
        let (report, events) = heard(&plan(vec![images.clone(), start.clone()]), &act, &stop).await;
        finished(&report, &events, &outcome);
        assert_eq!(act.log(), log, "{:?}", images.on_failure);
        assert_eq!(report.failures.len(), 1);
        assert_eq!(report.failures[0].step.node(), Some(&"n1".into()));
    }
}

/// What relies on the other nodes was decided with the one that is left out.
#[tokio::test(start_paused = true)]
async fn what_relies_on_a_node_that_was_left_out_is_planned_again() {
    let mut images = stage("images", 2, vec![step("n1", "bad"), step("n2", "b")]);
    let while_left = Enough::OneOf(["n1".into(), "n2".into()].into());
    images.on_failure = OnFailure::DropNode { while_left };
    let alone = stage("start", 1, vec![step("n2", "c")]);
    let mut rolled = step("n2", "never");
    rolled.guards = vec![Guard::EtcdStable];
    let plan = plan(vec![images, alone, stage("etcd", 1, vec![rolled])]);
    let (_keep, stop) = Stopper::new();
    let act = that_fails("bad");
    let (report, events) = heard(&plan, &act, &stop).await;
    finished(&report, &events, &RunOutcome::PlanAgain);
    assert_eq!(act.log(), ["n1 bad", "n2 b", "n2 c"]);
    assert_eq!(report.failures.len(), 1);
}

/// The others had nothing to do: they are left all the same.
#[tokio::test(start_paused = true)]
async fn a_run_that_mends_one_node_and_cannot_is_degraded() {
    let mut nodes = stage("nodes", 2, vec![step("n1", "bad")]);
    let while_left = Enough::OneOf(["n1".into(), "n2".into()].into());
    nodes.on_failure = OnFailure::DropNode { while_left };
    let (_keep, stop) = Stopper::new();
    let (report, events) = heard(&plan(vec![nodes]), &that_fails("bad"), &stop).await;
    finished(&report, &events, &RunOutcome::Degraded);
}

/// Two queues at once, one ends each way: the graver one is the run's.
#[tokio::test(start_paused = true)]
async fn the_graver_ending_is_the_runs() {
    for (first, second, outcome) in [
        ("bad", "stops", RunOutcome::Failed),
        ("stops", "bad", RunOutcome::Failed),
        ("stops", "guarded", RunOutcome::Stopped),
        ("guarded", "stops", RunOutcome::Stopped),
        ("guarded", "fine", RunOutcome::PlanAgain),
        ("bad", "guarded", RunOutcome::Failed),
    ] {
        let plan = plan(vec![stage(
            "start",
            2,
            vec![step("n1", first), step("n2", second)],
        )]);
        let (_keep, stop) = Stopper::new();
        let act = Script::new(|name, _, _| {
            Box::pin(async move {
                match name {
                    "bad" => Err(broken(name)),
                    "stops" => Err(StepError::Stopped),
                    "guarded" => Err(StepError::Guard("it changed".to_owned())),
                    _ => Ok(Done::default()),
                }
            })
        });
        let (report, events) = heard(&plan, &act, &stop).await;
        finished(&report, &events, &outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_fails_keeps_the_queues_that_wait_from_beginning() {
    let steps = vec![
        step("n1", "guarded"),
        step("n2", "never"),
        step("n3", "never"),
    ];
    for on_failure in [
        OnFailure::EndRun,
        OnFailure::FinishRunning,
        OnFailure::DropNode {
            while_left: Enough::OneOf(["n1".into()].into()),
        },
    ] {
        let mut stage = stage("start", 1, steps.clone());
        stage.on_failure = on_failure;
        let (_keep, stop) = Stopper::new();
        let act = Script::new(|_, _, _| {
            Box::pin(async { Err(StepError::Guard("it changed".to_owned())) })
        });
        let (report, events) = heard(&plan(vec![stage]), &act, &stop).await;
        finished(&report, &events, &RunOutcome::PlanAgain);
        assert_eq!(act.log(), ["n1 guarded"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_fails_means_plan_again() {
    let plan = plan(vec![
        stage(
            "start",
            2,
            vec![
                step("n1", "guarded"),
                step("n1", "never"),
                step("n2", "slow"),
            ],
        ),
        stage("later", 2, vec![step("n2", "never")]),
    ]);
    let (_keep, stop) = Stopper::new();
    let act = Script::new(|name, _, _| {
        Box::pin(async move {
            match name {
                "guarded" => Err(StepError::Guard("the claim on `n1` is gone".to_owned())),
                _ => second().await,
            }
        })
    });
    let (report, events) = heard(&plan, &act, &stop).await;
    finished(&report, &events, &RunOutcome::PlanAgain);
    assert_eq!(
        report.plan_again.as_deref(),
        Some("the claim on `n1` is gone")
    );
    assert!(report.failures.is_empty());
    assert_eq!(act.log(), ["n1 guarded", "n2 slow"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_outranks_plan_again_in_either_order() {
    for (first, second_step) in [("guarded", "bad"), ("bad", "guarded")] {
        let plan = plan(vec![stage(
            "start",
            2,
            vec![step("n1", first), step("n2", second_step)],
        )]);
        let (_keep, stop) = Stopper::new();
        let act = Script::new(|name, _, _| {
            Box::pin(async move {
                match name {
                    "guarded" => Err(StepError::Guard("changed".to_owned())),
                    _ => Err(broken(name)),
                }
            })
        });
        let (report, events) = heard(&plan, &act, &stop).await;
        finished(&report, &events, &RunOutcome::Failed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_effects_finish_ends_waits_and_starts_nothing() {
    let plan = plan(vec![
        stage(
            "start",
            3,
            vec![
                step("n1", "effect"),
                step("n1", "never"),
                step("n2", "wait"),
                step("n2", "never"),
            ],
        ),
        stage("later", 1, vec![step("n1", "never")]),
    ]);
    let (stopper, stop) = Stopper::new();
    let act = Script::new(|name, _, stop| {
        Box::pin(async move {
            if name == "wait" {
                stop.stopped().await;
                return Err(StepError::Stopped);
            }
            sleep(Duration::from_secs(10)).await;
            Ok(Done::default())
        })
    });
    let signal = async {
        sleep(Duration::from_secs(3)).await;
        stopper.stop(StopCause::Signal);
    };
    let ((report, events), ()) = tokio::join!(heard(&plan, &act, &stop), signal);
    finished(&report, &events, &RunOutcome::Stopped);
    insta::assert_snapshot!(lines(&events).join("\n"), @r"
    run 1: 2 stages, 5 steps
    stage start: 4
      start 0.0 n1
      start 0.2 n2
      end 0.2 n2 Skipped 3 s 
      end 0.3 n2 Skipped 0 s 
      end 0.0 n1 Done 10 s 
      end 0.1 n1 Skipped 0 s 
    end: Stopped 10 s
    ");
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_the_run_starts_nothing_and_one_after_the_last_step_is_too_late() {
    let plan = plan(vec![stage("start", 1, vec![step("n1", "a")])]);
    let (stopper, stop) = Stopper::new();
    stopper.stop(StopCause::ObjectChanged);
    let act = Script::seconds();
    let (report, events) = heard(&plan, &act, &stop).await;
    finished(&report, &events, &RunOutcome::Stopped);
    assert!(act.log().is_empty());

    let (stopper, stop) = Stopper::new();
    let stopper = std::sync::Arc::new(stopper);
    let late = stopper.clone();
    let act = Script::new(move |_, _, _| {
        let late = late.clone();
        Box::pin(async move {
            late.stop(StopCause::Signal);
            Ok(Done::default())
        })
    });
    let (report, events) = heard(&plan, &act, &stop).await;
    finished(&report, &events, &RunOutcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_hangs_is_cut_and_the_error_says_what_it_waited_for() {
    let plan = plan(vec![stage("images", 1, vec![step("n1", "a")])]);
    let (_keep, stop) = Stopper::new();
    let act = Script::new(|_, reporter, _| {
        reporter.waiting("layer 3 of 5", 1);
        Box::pin(std::future::pending())
    });
    let (report, events) = heard(&plan, &act, &stop).await;
    finished(&report, &events, &RunOutcome::Failed);
    let error = &report.failures[0].error;
    assert_eq!(error.class(), ErrorClass::Transient);
    let message = error.to_string();
    assert!(
        message.ends_with("on `n1` did not end within 1800 s; it waited for layer 3 of 5"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_its_step_and_the_run_still_ends_in_order() {
    let plan = plan(vec![stage(
        "start",
        2,
        vec![step("n1", "panics"), step("n2", "slow")],
    )]);
    let (_keep, stop) = Stopper::new();
    let act = Script::new(|name, _, _| {
        Box::pin(async move {
            assert!(name != "panics", "an index was wrong");
            second().await
        })
    });
    let (report, events) = heard(&plan, &act, &stop).await;
    finished(&report, &events, &RunOutcome::Failed);
    let error = &report.failures[0].error;
    assert_eq!(error.class(), ErrorClass::Bug);
    let text = error.to_string();
    assert!(text.contains("on `n1` ended in a bug"), "{text}");
    // It may quote anything, and so it is in the log only.
    assert!(!text.contains("an index was wrong"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_has_its_last_event_too_even_when_the_queue_is_full() {
    let plan = plan(vec![stage("start", 1, vec![step("n1", "a")])]);
    let (_keep, stop) = Stopper::new();
    let act = Script::new(|_, reporter, _| {
        for tries in 0..100 {
            reporter.waiting("ever", tries);
        }
        Box::pin(std::future::pending())
    });
    let (events, mut rx) = Events::channel(4);
    let cut = tokio::time::timeout(Duration::from_secs(5), run(&plan, 1, &act, &events, &stop));
    cut.await.unwrap_err();
    drop(events);
    let mut all = Vec::new();
    while let Some(event) = rx.recv().await {
        all.push(event);
    }
    assert!(matches!(
        all.last(),
        Some(Event::RunFinished {
            outcome: RunOutcome::Stopped,
            ..
        })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_slow_listener_loses_progress_and_no_lifecycle_event() {
    let steps = ["n1", "n2", "n3"].map(|host| step(host, "a"));
    let plan = plan(vec![stage("start", 3, steps.to_vec())]);
    let (_keep, stop) = Stopper::new();
    let act = Script::new(|_, reporter, _| {
        for done in 0..1000 {
            reporter.progress(done, 1000, "bytes");
        }
        Box::pin(second())
    });
    let (events, mut rx) = Events::channel(2);
    let listen = async {
        let mut all = Vec::new();
        while let Some(event) = rx.recv().await {
            sleep(Duration::from_secs(1)).await;
            all.push(event);
        }
        all
    };
    let going = async {
        let report = run(&plan, 1, &act, &events, &stop).await;
        drop(events);
        report
    };
    let (report, all) = tokio::join!(going, listen);
    check_stream(&all);
    finished(&report, &all, &RunOutcome::Completed);
    let progress = all
        .iter()
        .filter(|event| matches!(event, Event::StepProgress { .. }))
        .count();
    assert!(progress < 100, "{progress}");
    // RunStarted, StageStarted, three starts, three ends, RunFinished.
    assert_eq!(all.len() - progress, 9);
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_listener_goes_on() {
    let plan = plan(vec![stage(
        "start",
        1,
        vec![step("n1", "a"), step("n1", "b")],
    )]);
    let (_keep, stop) = Stopper::new();
    let act = Script::seconds();
    let (events, rx) = Events::channel(1);
    drop(rx);
    let report = run(&plan, 1, &act, &events, &stop).await;
    assert_eq!(report.outcome, RunOutcome::Completed);
    assert_eq!(act.log().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn warnings_are_kept_and_do_not_end_the_run() {
    let plan = plan(vec![stage(
        "addons",
        1,
        vec![step("n1", "warns"), step("n1", "b")],
    )]);
    let (_keep, stop) = Stopper::new();
    let act = Script::new(|name, _, _| {
        Box::pin(async move {
            Ok(Done {
                detail: Some("212 MB".to_owned()),
                warning: (name == "warns").then(|| Warning {
                    message: "slow".to_owned(),
                    hints: vec!["wait".to_owned()],
                    degrades: false,
                }),
                ..Done::default()
            })
        })
    });
    let (report, events) = heard(&plan, &act, &stop).await;
    finished(&report, &events, &RunOutcome::Completed);
    assert_eq!(report.warnings.len(), 1);
    let mut progress = Progress::default();
    for event in &events {
        progress.apply(event);
    }
    assert_eq!((progress.done, progress.warnings.len()), (2, 1));
}

/// A run as `--output json` printed it replays into the same picture at every moment.
#[test]
fn a_recorded_run_replays() {
    let recorded = include_str!("recorded.jsonl");
    let mut progress = Progress::default();
    let mut picture = String::new();
    for line in recorded.lines() {
        let event: Event = serde_json::from_str(line).unwrap();
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            line,
            "serialises as it was read"
        );
        progress.apply(&event);
        let running: Vec<_> = progress
            .running
            .values()
            .map(|step| match &step.waiting_for {
                Some(what) => format!("{} ({what})", step.title),
                None if step.total > 0 => format!("{} {}/{}", step.title, step.done, step.total),
                None => step.title.clone(),
            })
            .collect();
        let stage = progress.stage.as_ref();
        writeln!(
            picture,
            "iteration {} {} {}/{} of {}: {} done, {} skipped, {} failed, {} warnings; {}{}",
            progress.iteration,
            stage.map_or("-", |stage| &stage.name),
            stage.map_or(0, |stage| stage.ended),
            stage.map_or(0, |stage| stage.steps),
            progress.steps,
            progress.done,
            progress.skipped,
            progress.failed,
            progress.warnings.len(),
            running.join(", "),
            progress
                .finished
                .as_ref()
                .map(|end| format!("[{:?} after {} ms]", end.outcome, end.took.as_millis()))
                .unwrap_or_default(),
        )
        .unwrap();
    }
    insta::assert_snapshot!(picture);
    let failure = progress.failure.unwrap();
    assert_eq!(failure.class, ErrorClass::Transient);
    assert_eq!(failure.said.target, Target::Host("n2".into()));
}

/// Every action has a bound that is neither nothing nor an afternoon.
#[test]
fn bounds_are_sane() {
    let pull = HostAction::PullImage {
        image: String::new(),
    };
    let on_hosts = [
        pull,
        HostAction::RestoreContainerd,
        HostAction::ReleaseClaim,
    ];
    let on_hosts = on_hosts.map(|action| Action::Host("n1".into(), action));
    let others = [
        Action::Local(LocalAction::SaveState),
        Action::Cluster(ClusterAction::SaveStateCopy),
    ];
    for action in on_hosts.into_iter().chain(others) {
        let bound = super::limit::limit(&action);
        assert!(
            (30..=1800).contains(&bound.as_secs()),
            "{action:?}: {bound:?}"
        );
    }
    let addon = Action::Cluster(ClusterAction::AwaitAddon {
        addon: "flannel".to_owned(),
    });
    assert!(super::limit::limit(&addon) > super::limit::ADDON_PATIENCE);
}

#[test]
fn ids_order_as_they_run() {
    let id = |stage, step| StepId { stage, step };
    assert!(id(0, 5) < id(1, 0) && id(1, 0) < id(1, 1));
}
