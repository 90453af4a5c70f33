//! The service-account key is rotated: the product's own runs, on simulated worlds. After each step every API server that
//! runs must accept every token that was signed, until a person has the former key dropped.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use p256::{
    SecretKey,
    pkcs8::{DecodePrivateKey as _, EncodePublicKey as _, LineEnding},
};
use rke_operator::{
    config::Intent,
    converge::{Error, Goal, Outcome},
    desired::{
        Rotated,
        pki::{PkiError, RotationStage, ServiceAccountKeyError, key_id},
    },
    error::Explain as _,
    facts::{ClockFact, HostView},
    model::{Component, NodeName, ObjectRef, path},
    plan::Step,
    state::ServiceAccounts,
};

use crate::{
    joint_properties::{block_on, runner, settle},
    plan_properties::Cuts,
    sim::{Cut, World, contents::Contents, remote::SimRemote, runner::Runner, wish::Wish},
};

/// Three nodes with everything and a worker.
const MANY: &[u8] = &[3, 3, 0];
/// One node.
const ONE: &[u8] = &[];
/// When runs take place, as the nodes' clocks show it.
const NOW: i64 = 1_893_456_000;

/// These nodes after one with everything.
fn intent(masks: &[u8]) -> Intent {
    changed(masks, 2)
}

/// The number changes every component.
fn changed(masks: &[u8], verbosity: u8) -> Intent {
    let wish = Wish {
        masks: masks.to_vec(),
        verbosity,
        ..Wish::plain()
    };
    wish.intent()
}

/// A Secret with a token.
fn secret(name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

fn public(key: &str) -> String {
    let key = SecretKey::from_pkcs8_pem(key).unwrap();
    key.public_key().to_public_key_pem(LineEnding::LF).unwrap()
}

/// The keys with which tokens were signed.
struct Tokens {
    contents: Contents,
    /// Ids of the keys.
    signed: BTreeSet<String>,
    /// A person has the former key dropped.
    drops: bool,
}

impl Tokens {
    /// What each running component has of these files, by what its container was made with.
    fn reads(&mut self, world: &World, component: Component, file: &str) -> Vec<String> {
        self.contents.learn(world);
        let read = self.contents.of(world, component, |path| path == file);
        read.into_iter().map(|(_, text)| text).collect()
    }

    /// The ids of the keys with which this component signs.
    fn signers(&mut self, world: &World, component: Component) -> BTreeSet<String> {
        let keys = self.reads(world, component, path::SERVICE_ACCOUNT_KEY);
        let ids = keys.iter().map(|key| key_id(&public(key)).unwrap());
        ids.collect()
    }

    /// The ids of the keys that each API server accepts.
    fn verifiers(&mut self, world: &World) -> Vec<BTreeSet<String>> {
        let files = self.reads(world, Component::ApiServer, path::SERVICE_ACCOUNT_PUBLIC);
        files.iter().map(|file| ids(file)).collect()
    }

    /// After a step.
    fn holds(&mut self, world: &World, step: &Step) {
        let signers = [Component::ApiServer, Component::ControllerManager]
            .into_iter()
            .flat_map(|component| self.signers(world, component));
        let signers: BTreeSet<String> = signers.collect();
        if self.drops {
            self.signed.clear();
        }
        self.signed.extend(signers);
        let api = world.truth.cluster.as_ref();
        let stored = api.and_then(|api| api.tokens.as_ref());
        let stored = stored.into_iter().flat_map(BTreeMap::values).flatten();
        let all: BTreeSet<String> = self.signed.iter().chain(stored).cloned().collect();
        for accepted in self.verifiers(world) {
            assert!(
                all.is_subset(&accepted),
                "a token is refused after {step:?}"
            );
        }
    }
}

/// The ids of all keys of a file.
fn ids(file: &str) -> BTreeSet<String> {
    let end = "-----END PUBLIC KEY-----\n";
    let keys = file.split_inclusive(end);
    keys.map(|key| key_id(key).unwrap()).collect()
}

/// A cluster with two Secrets that hold tokens.
async fn settled(masks: &[u8]) -> Runner {
    let runner = runner(masks.len() + 1);
    settle(&runner, &intent(masks)).await;
    let id = key_id(&accounts(&runner).verifying[0]);
    runner.remote.world(|world| {
        let api = world.truth.cluster.as_mut().unwrap();
        api.tokens = Some(["one", "two"].map(|name| (secret(name), id.clone())).into());
    });
    runner
}

/// The same cluster once more. From now on no step may make a token refused.
fn copy(settled: &Runner) -> (Runner, Arc<Mutex<Tokens>>) {
    let world = settled.remote.world(|world| world.clone());
    let runner = Runner::new(&SimRemote::new(world), || [1; 32]);
    runner.memory.keep(settled.memory.shell());
    let saved = settled.memory.shell().saved.unwrap();
    let tokens = Arc::new(Mutex::new(Tokens {
        contents: Contents::new(saved.digest_key),
        signed: BTreeSet::new(),
        drops: false,
    }));
    runner.remote.world(|world| {
        let mut tokens = tokens.lock().unwrap();
        tokens.signed = tokens.signers(world, Component::ApiServer);
        tokens.verifiers(world);
    });
    let watched = Arc::clone(&tokens);
    runner
        .remote
        .watch(move |world, step| watched.lock().unwrap().holds(world, step));
    (runner, tokens)
}

async fn cluster(masks: &[u8]) -> (Runner, Arc<Mutex<Tokens>>) {
    copy(&settled(masks).await)
}

fn accounts(runner: &Runner) -> ServiceAccounts {
    runner.memory.shell().saved.unwrap().service_accounts
}

async fn runs(runner: &Runner, stage: RotationStage, intent: &Intent) -> Result<Outcome, Error> {
    let goal = Goal::RotateKeys(Rotated::ServiceAccountKey, intent);
    let rotating = runner.rotating_service_account_key(stage);
    rotating.converge(&goal).await
}

/// True if something was changed.
async fn rotates(runner: &Runner, stage: RotationStage, intent: &Intent) -> bool {
    match runs(runner, stage, intent).await.unwrap() {
        Outcome::Converged { changed, .. } => changed,
        outcome @ Outcome::Degraded { .. } => panic!("{outcome:?}"),
    }
}

/// Everything signs with the newest of so many keys, and every API server accepts all of them.
async fn uses_the_newest(runner: &Runner, tokens: &Mutex<Tokens>, masks: &[u8], of: usize) {
    let accounts = accounts(runner);
    assert_eq!(accounts.next, None);
    assert_eq!(accounts.verifying.len(), of);
    let newest = key_id(&public(accounts.signing.expose())).unwrap();
    let accepted = ids(&accounts.verifying.concat());
    assert_eq!(accepted.len(), of);
    assert!(accepted.contains(&newest));
    runner.remote.world(|world| {
        let mut tokens = tokens.lock().unwrap();
        for component in [Component::ApiServer, Component::ControllerManager] {
            assert_eq!(tokens.signers(world, component), [newest.clone()].into());
        }
        assert!(tokens.verifiers(world).iter().all(|keys| *keys == accepted));
    });
    let intent = intent(masks);
    let plan = runner.would(&Goal::Up(&intent)).await.unwrap();
    assert!(plan.is_empty(), "{}", rke_operator::plan::render(&plan));
}

/// Everything has run for two hours.
fn later(runner: &Runner) {
    runner.remote.world(|world| {
        for view in world.truth.hosts.values_mut() {
            let HostView::Reachable(facts) = view else {
                continue;
            };
            facts.clock = Some(ClockFact {
                unix_seconds: NOW,
                uncertainty_ms: 10,
            });
            for container in facts.containers.values_mut() {
                container.started = Some(NOW - 7200);
            }
        }
    });
}

fn refusal(ended: Result<Outcome, Error>) -> ServiceAccountKeyError {
    let error = ended.unwrap_err();
    assert!(!error.hints().is_empty(), "{error}");
    match error {
        Error::Pki(PkiError::ServiceAccountKey(error)) => error,
        error => panic!("{error}"),
    }
}

/// No second key is generated before the first one is complete, and that is not before pods have new tokens.
#[test]
fn a_rotation_is_started_and_completed() {
    block_on(async {
        let (runner, tokens) = cluster(MANY).await;
        let intent = intent(MANY);
        for _ in 0..2 {
            let first = accounts(&runner).signing;
            assert!(!rotates(&runner, RotationStage::Complete, &intent).await);
            assert!(rotates(&runner, RotationStage::Start, &intent).await);
            uses_the_newest(&runner, &tokens, MANY, 2).await;
            assert_ne!(accounts(&runner).signing, first);
            assert!(!rotates(&runner, RotationStage::Start, &intent).await);
            let early = refusal(runs(&runner, RotationStage::Complete, &intent).await);
            assert!(matches!(early, ServiceAccountKeyError::TooEarly { .. }));
            later(&runner);
            tokens.lock().unwrap().drops = true;
            assert!(rotates(&runner, RotationStage::Complete, &intent).await);
            tokens.lock().unwrap().drops = false;
            uses_the_newest(&runner, &tokens, MANY, 1).await;
        }
    });
}

/// What else the config changes waits for `up`, also of the components that read the key.
#[test]
fn nothing_else_changes_with_a_service_account_key() {
    block_on(async {
        let (runner, tokens) = cluster(MANY).await;
        let flags = |runner: &Runner| {
            runner.remote.world(|world| {
                let facts = world.truth.up(&"n1".into()).unwrap().clone();
                let spec = |component| facts.container(component).unwrap().applied().unwrap();
                [
                    Component::ApiServer,
                    Component::ControllerManager,
                    Component::Kubelet,
                ]
                .map(|component| spec(component).command)
            })
        };
        let before = flags(&runner);
        assert!(rotates(&runner, RotationStage::Start, &changed(MANY, 3)).await);
        assert_eq!(flags(&runner), before);
        uses_the_newest(&runner, &tokens, MANY, 2).await;
    });
}

/// Cuts a run after so many steps. True if it was.
async fn dies(runner: &Runner, stage: RotationStage, masks: &[u8], cut: Cut) -> bool {
    runner.remote.cut(Some(cut));
    drop(runs(runner, stage, &intent(masks)).await);
    let died = runner.remote.was_cut();
    runner.remote.cut(None);
    died
}

/// Killed anywhere, the same command goes on with the same key; `up` in between keeps the phase.
fn the_same_command_goes_on(masks: &[u8], most: usize, torn: impl Fn(usize) -> u8) {
    block_on(async {
        let cuts = Cuts::default();
        let settled = settled(masks).await;
        for after in 0..100 {
            let (runner, tokens) = copy(&settled);
            let torn = torn(after);
            let died = dies(&runner, RotationStage::Start, masks, Cut { after, torn }).await;
            cuts.count(died);
            if !died {
                assert!(after > most, "{after}");
                break;
            }
            let intent = intent(masks);
            let before = accounts(&runner);
            if after % 3 == 0 {
                settle(&runner, &intent).await;
                assert_eq!(accounts(&runner), before);
            }
            rotates(&runner, RotationStage::Start, &intent).await;
            uses_the_newest(&runner, &tokens, masks, 2).await;
            let signing = accounts(&runner).signing;
            let new = before.next.as_ref().unwrap_or(&before.signing);
            assert!(before.verifying.len() < 2 || *new == signing, "{after}");
        }
        cuts.are_real();
    });
}

#[test]
fn wherever_a_rotation_of_the_service_account_key_is_cut_it_goes_on() {
    the_same_command_goes_on(MANY, 20, |_| 0);
}

#[test]
fn within_whichever_step_a_rotation_of_the_service_account_key_is_cut_it_goes_on() {
    the_same_command_goes_on(MANY, 20, |after| [1, 2, 4][after % 3]);
}

#[test]
fn a_rotation_of_the_service_account_key_of_one_node_goes_on() {
    for torn in [0, 1, 2, 4] {
        the_same_command_goes_on(ONE, 8, |_| torn);
    }
}

/// Killed anywhere, the same command ends the former key; `up` does too.
#[test]
fn wherever_the_end_of_a_service_account_key_is_cut_it_goes_on() {
    block_on(async {
        let cuts = Cuts::default();
        let intent = intent(MANY);
        let settled = settled(MANY).await;
        rotates(&settled, RotationStage::Start, &intent).await;
        later(&settled);
        for after in 0..100 {
            let (runner, tokens) = copy(&settled);
            tokens.lock().unwrap().drops = true;
            let torn = [4, 0, 1, 2][after % 4];
            let died = dies(&runner, RotationStage::Complete, MANY, Cut { after, torn }).await;
            cuts.count(died);
            if !died {
                assert!(after > 5, "{after}");
                break;
            }
            if after % 4 == 0 {
                settle(&runner, &intent).await;
            }
            later(&runner);
            rotates(&runner, RotationStage::Complete, &intent).await;
            uses_the_newest(&runner, &tokens, MANY, 1).await;
        }
        cuts.are_real();
    });
}

/// A control plane that does not answer may come back with what it had: no rotation starts or is completed without it.
#[test]
fn a_service_account_key_is_neither_replaced_nor_dropped_while_a_control_plane_is_away() {
    block_on(async {
        let (runner, tokens) = cluster(MANY).await;
        let intent = intent(MANY);
        runner.switch_off("n2");
        let silent = refusal(runs(&runner, RotationStage::Start, &intent).await);
        assert_eq!(silent, ServiceAccountKeyError::Silent);
        runner.switch_on();
        rotates(&runner, RotationStage::Start, &intent).await;
        later(&runner);
        runner.switch_off("n2");
        let silent = refusal(runs(&runner, RotationStage::Complete, &intent).await);
        assert_eq!(silent, ServiceAccountKeyError::Silent);
        uses_the_newest_without(&runner, &tokens);
        runner.switch_on();
    });
}

fn uses_the_newest_without(runner: &Runner, tokens: &Mutex<Tokens>) {
    assert_eq!(accounts(runner).verifying.len(), 2);
    runner.remote.world(|world| {
        let mut keys = tokens.lock().unwrap().verifiers(world).into_iter();
        assert!(keys.all(|keys| keys.len() == 2));
    });
}

/// One that goes away in the middle is waited for, by the same command and by `up`: nothing signs with a key that it may
/// not accept. A rotation that nothing signs with is not completed.
#[test]
fn a_rotation_of_the_service_account_key_waits_for_a_control_plane_that_goes_away() {
    block_on(async {
        let mut waited = 0;
        let settled = settled(MANY).await;
        for after in (1..100).step_by(4) {
            let (runner, tokens) = copy(&settled);
            let cut = Cut { after, torn: 0 };
            if !dies(&runner, RotationStage::Start, MANY, cut).await {
                break;
            }
            let intent = intent(MANY);
            let before = accounts(&runner);
            runner.switch_off("n2");
            let outcome = runs(&runner, RotationStage::Start, &intent).await.unwrap();
            let Outcome::Degraded { left, warnings, .. } = outcome else {
                panic!("{after}: a node is away");
            };
            assert!(left.contains_key(&NodeName::from("n2")));
            drop(runner.converge(&Goal::Up(&intent)).await.unwrap());
            assert_eq!(accounts(&runner), before);
            if before.next.is_some() {
                assert!(warnings.iter().any(|warning| warning.degrades), "{after}");
                let early = refusal(runs(&runner, RotationStage::Complete, &intent).await);
                assert_eq!(early, ServiceAccountKeyError::NotIssued);
                waited += 1;
            }
            runner.switch_on();
            rotates(&runner, RotationStage::Start, &intent).await;
            uses_the_newest(&runner, &tokens, MANY, 2).await;
        }
        assert!(waited > 1, "{waited}");
    });
}
