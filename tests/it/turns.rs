//! One run at a time changes a cluster (rule 18 of many nodes): two that share their nodes take turns by
//! a Lease in the cluster, the product's own `converge` on simulated nodes and a fake API.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rke_operator::{
    apply::stop::{StopCause, Stopper},
    config::Intent,
    converge::{Convergence, Error, Goal, Outcome},
    environment::Clock,
    plan::title,
};
use serde_json::{Value, json};

use crate::{
    fake_api::{FakeApi, HANGS},
    operator_rig::clock,
    plan_properties::fresh,
    sim::{
        remote::{SimRemote, Turn},
        runner::{Runner, Yes},
        wish::Wish,
    },
};

const LEASE: &str = "rke-operator-run";
const NAMESPACE: &str = "kube-system";
const STEP: Duration = Duration::from_secs(10);

/// A cluster of one node as `plain` says, and two who would run `changed`: a step takes a while.
struct Shared {
    api: FakeApi,
    first: Runner,
    second: Runner,
    changed: Intent,
}

fn changed() -> Intent {
    let wish = Wish {
        verbosity: 3,
        ..Wish::plain()
    };
    wish.intent()
}

async fn shared() -> Shared {
    let remote = SimRemote::new(fresh(1));
    let runner = Runner::new(&remote, || [1; 32]);
    runner
        .converge(&Goal::Up(&Wish::plain().intent()))
        .await
        .unwrap();
    let api = FakeApi::new(clock());
    remote.leases_in(api.client());
    remote.script(|_, _, _| Turn::Work(STEP));
    let clock = Clock::new(clock());
    Shared {
        first: runner.called("first", &clock),
        second: runner.called("second", &clock),
        api,
        changed: changed(),
    }
}

impl Shared {
    fn steps(&self) -> usize {
        self.first.remote.steps()
    }

    fn holder(&self) -> Option<String> {
        let lease = self.api.object("leases", NAMESPACE, LEASE)?;
        lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    /// Somebody holds the lease, and renewed it for the last time now.
    fn held_by(&self, holder: &str) {
        let now = self.api.now().to_string();
        let spec = json!({
            "holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": now,
        });
        if self.holder().is_some() {
            let patch = json!({ "spec": spec });
            self.api.patch("leases", NAMESPACE, LEASE, &patch);
        } else {
            let lease = json!({
                "metadata": { "name": LEASE, "namespace": NAMESPACE }, "spec": spec,
            });
            self.api.plant("leases", &lease);
        }
    }

    /// Runs `up` without a signal to stop: a run that stops all the same must return an error, not `Stopped`.
    async fn up(&self) -> Result<Outcome, Error> {
        let goal = Goal::Up(&self.changed);
        match Box::pin(self.first.converge_with(&goal, &Yes)).await? {
            Convergence::Settled(outcome) => Ok(outcome),
            Convergence::Stopped(cause) => panic!("stopped: {cause:?}"),
        }
    }
}

fn made_it(outcome: &Result<Outcome, Error>) -> bool {
    match outcome {
        Ok(Outcome::Converged { changed, .. }) => *changed,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn two_runs_take_turns_and_the_second_finds_nothing_to_do() {
    let shared = shared().await;
    let goal = Goal::Up(&shared.changed);
    let (first, second) = tokio::join!(
        Box::pin(shared.first.converge(&goal)),
        Box::pin(shared.second.converge(&goal)),
    );
    assert_ne!(made_it(&first), made_it(&second), "one of them did it all");
    assert_eq!(shared.first.remote.counts().most, 1, "never both at once");
    assert_eq!(shared.holder().as_deref(), Some(""), "given back");
}

/// A run that has nothing to do, or only looks, asks for no turn.
#[tokio::test(start_paused = true)]
async fn whoever_changes_nothing_takes_no_turn() {
    let shared = shared().await;
    let plain = Wish::plain().intent();
    let outcome = shared.first.converge(&Goal::Up(&plain)).await;
    assert!(!made_it(&outcome));
    shared.first.plan(&Goal::Up(&shared.changed)).await.unwrap();
    assert_eq!(shared.holder(), None);
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_end_is_waited_for_within_a_bound() {
    let shared = shared().await;
    let steps = shared.steps();
    let renewed = async {
        loop {
            shared.held_by("root@elsewhere");
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    };
    let begun = tokio::time::Instant::now();
    let ended = tokio::select! {
        ended = shared.up() => ended,
        () = renewed => unreachable!("it has no end"),
    };
    let Err(Error::Busy { holder, minutes }) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!((holder.as_str(), minutes), ("root@elsewhere", 15));
    assert!(begun.elapsed() < Duration::from_secs(16 * 60));
    assert_eq!(shared.steps(), steps, "nothing was done");
}

/// Killed where nobody can look, or here: its record does not move, or its process is gone.
#[tokio::test(start_paused = true)]
async fn one_that_was_killed_is_not_waited_for_long() {
    let shared = shared().await;
    shared.held_by("root@elsewhere");
    let begun = tokio::time::Instant::now();
    shared.first.remote.script(|_, _, _| Turn::Go);
    assert!(made_it(&shared.up().await));
    let took = begun.elapsed();
    let expected = Duration::from_secs(60)..Duration::from_secs(70);
    assert!(expected.contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn ones_own_predecessor_is_not_waited_for() {
    let shared = shared().await;
    shared.held_by("first");
    shared.first.remote.script(|_, _, _| Turn::Go);
    let begun = tokio::time::Instant::now();
    assert!(made_it(&shared.up().await));
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(shared.holder().as_deref(), Some(""), "given back");
}

/// A server that keeps no leases keeps them from everybody; what is broken is mended all the same.
#[tokio::test(start_paused = true)]
async fn an_api_that_keeps_no_lease_keeps_nobody_from_mending() {
    for code in [500, HANGS] {
        let shared = shared().await;
        shared
            .api
            .fault(move |_, path| path.contains("/leases").then_some(code));
        assert!(made_it(&shared.up().await));
    }
}

/// The API servers that keep the lease are what a run restarts.
#[tokio::test(start_paused = true)]
async fn a_run_outlives_the_silence_of_the_api_that_it_restarts() {
    let shared = shared().await;
    let api = shared.api.clone();
    shared.first.remote.script(move |_, _, step| {
        if title(step) == "wait for kube-apiserver to be healthy" {
            api.fault(|_, path| path.contains("/leases").then_some(HANGS));
            return Turn::Work(Duration::from_secs(240));
        }
        Turn::Work(STEP)
    });
    assert!(made_it(&shared.up().await));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_lost_its_turn_takes_no_further_step() {
    let shared = shared().await;
    let api = shared.api.clone();
    let steps = shared.steps();
    shared.first.remote.script(move |_, index, _| {
        if index == 1 {
            let patch = json!({ "spec": { "holderIdentity": "second" } });
            api.patch("leases", NAMESPACE, LEASE, &patch);
        }
        Turn::Work(STEP)
    });
    let ended = shared.up().await;
    assert!(matches!(ended, Err(Error::TurnLost)), "{ended:?}");
    assert_eq!(shared.steps(), steps + 2, "what was under way, and no more");
    assert_eq!(shared.holder().as_deref(), Some("second"));
}

/// A client of it, of whose requests none is answered any more once it is told so.
fn cut_off(api: &FakeApi) -> (kube::Client, Arc<AtomicBool>) {
    let (cut, client) = (Arc::new(AtomicBool::new(false)), api.client());
    let is_cut = Arc::clone(&cut);
    let service = tower::service_fn(move |request| {
        let (client, cut) = (client.clone(), is_cut.load(Ordering::Relaxed));
        async move {
            if cut {
                std::future::pending::<()>().await;
            }
            client.send(request).await
        }
    });
    (kube::Client::new(service, "default"), cut)
}

/// E10: its steps reach an API, so others do, too, and take the lease that it cannot renew.
#[tokio::test(start_paused = true)]
async fn a_run_whose_lease_alone_is_silent_has_lost_its_turn() {
    let shared = shared().await;
    let (client, cut) = cut_off(&shared.api);
    shared.first.remote.leases_in(client);
    shared.first.remote.reaches_an_api();
    shared.first.remote.script(move |_, index, _| {
        cut.fetch_or(index == 0, Ordering::Relaxed);
        Turn::Work(Duration::from_secs(20))
    });
    let goal = Goal::Up(&shared.changed);
    let second = async {
        tokio::time::sleep(Duration::from_secs(61)).await;
        shared.second.remote.leases_in(shared.api.client());
        Box::pin(shared.second.converge(&goal)).await
    };
    let (first, second) = tokio::join!(shared.up(), second);
    assert!(matches!(first, Err(Error::TurnLost)), "{first:?}");
    assert!(made_it(&second));
    assert_eq!(shared.first.remote.counts().most, 1, "never both at once");
}

/// What is not done is said: whoever started two runs must know that nothing keeps them apart.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_had_is_waited_for_and_then_warned_about() {
    for (code, waits) in [(429, true), (500, true), (504, true), (403, false)] {
        let shared = shared().await;
        shared
            .api
            .fault(move |_, path| path.contains("/leases").then_some(code));
        let begun = tokio::time::Instant::now();
        shared.first.remote.script(|_, _, _| Turn::Go);
        let outcome = shared.up().await;
        let Ok(Outcome::Converged { warnings, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(begun.elapsed() >= Duration::from_secs(90), waits, "{code}");
        let said = warnings
            .iter()
            .any(|warning| warning.message.contains(LEASE));
        assert!(said, "{code}: {warnings:?}");
    }
}

/// One refusal is no reason to go without it.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_refused_once_is_asked_for_again() {
    let shared = shared().await;
    let mut left = 1;
    shared.api.fault(move |_, path| {
        let refuses = path.contains("/leases") && left > 0;
        left -= u32::from(refuses);
        refuses.then_some(429)
    });
    assert!(made_it(&shared.up().await));
    assert_eq!(
        shared.holder().as_deref(),
        Some(""),
        "taken, and given back"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_can_be_stopped() {
    let shared = shared().await;
    shared.held_by("root@elsewhere");
    let steps = shared.steps();
    let (stopper, stop) = Stopper::new();
    let goal = Goal::Up(&shared.changed);
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        stopper.stop(StopCause::Signal);
    };
    let (ended, ()) = tokio::join!(
        Box::pin(shared.first.converge_until(&goal, &Yes, &stop)),
        stopping
    );
    assert!(
        matches!(ended, Ok(Convergence::Stopped(StopCause::Signal))),
        "{ended:?}"
    );
    assert_eq!(shared.steps(), steps);
}

/// What others wrote stays: the holder changes, labels do not.
#[tokio::test(start_paused = true)]
async fn what_else_the_lease_says_stays() {
    let shared = shared().await;
    shared.held_by("");
    let label = json!({ "metadata": { "labels": { "team": "blue" } } });
    shared.api.patch("leases", NAMESPACE, LEASE, &label);
    assert!(made_it(&shared.up().await));
    let lease: Value = shared.api.object("leases", NAMESPACE, LEASE).unwrap();
    assert_eq!(lease["metadata"]["labels"]["team"], "blue");
}
