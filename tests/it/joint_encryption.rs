//! Encryption keys are rotated: the product's own runs, on simulated worlds. After each step every API server must read
//! whatever is stored and whatever another one writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use rke_operator::{
    config::Intent,
    converge::{Error, Goal, Outcome},
    desired::Rotated,
    error::Explain as _,
    facts::{ApiView, ContainerState},
    model::{Component, Digest, NodeName, Role, path},
    plan::{Action, ClusterAction, Step},
    state::DigestKey,
};
use serde_json::{Value, json};

use crate::{
    joint_properties::{block_on, no_longer_watched, runner, settle},
    joint_restore::restore,
    plan_properties::Cuts,
    sim::{Cut, World, runner::Runner, wish::Wish},
};

/// Three nodes with everything and a worker.
const MANY: &[u8] = &[3, 3, 0];
/// One node.
const ONE: &[u8] = &[];

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
    wish.intent_with(|config| {
        config["services"]["kube-api"]["secrets_encryption_config"] = json!({"enabled": true});
    })
}

/// What API servers may write with and read, by the digest of their configuration, and what the stored Secrets were
/// written with.
struct Secrets {
    digest_key: DigestKey,
    configs: BTreeMap<Digest, Vec<String>>,
    /// What everything was written with, as the cluster says.
    mark: Option<String>,
    stored: BTreeSet<String>,
}

impl Secrets {
    /// The keys of each running API server, whether or not it can be reached. It writes with the first one.
    fn servers(&mut self, world: &World) -> Vec<Vec<String>> {
        let hosts: Vec<&NodeName> = world.truth.hosts.keys().collect();
        let facts: Vec<_> = hosts
            .iter()
            .filter_map(|name| world.truth.up(name))
            .collect();
        for facts in &facts {
            let files = facts.files.iter().flatten();
            let file = files
                .filter(|(path, _)| *path == path::ENCRYPTION)
                .map(|(_, file)| file);
            for file in file {
                let content = file.content.expose();
                let digest = self.digest_key.digest(content);
                self.configs.insert(digest, keys(content));
            }
        }
        let servers = facts
            .iter()
            .filter_map(|facts| facts.container(Component::ApiServer));
        let servers = servers.filter(|fact| fact.state == ContainerState::Running);
        let specs = servers.map(|fact| fact.applied().expect("a definition"));
        specs
            .map(|spec| self.configs[&spec.files[path::ENCRYPTION]].clone())
            .collect()
    }

    /// After a step.
    fn holds(&mut self, world: &World, step: &Step) {
        let servers = self.servers(world);
        let writers: BTreeSet<String> = servers.iter().map(|keys| keys[0].clone()).collect();
        let cluster = world.truth.cluster.as_ref();
        let mark = cluster.and_then(|cluster| cluster.written_with.clone());
        if mark.is_some() && mark != self.mark {
            self.stored = mark.iter().cloned().collect();
        }
        self.mark = mark;
        self.stored.extend(writers.clone());
        for keys in &servers {
            for key in &self.stored {
                assert!(keys.contains(key), "{keys:?} lacks {key} after {step:?}");
            }
        }
        if let Action::Cluster(ClusterAction::RewriteStored { with, .. }) = &step.action {
            assert_eq!(writers, [with.clone()].into(), "not all write with it");
        }
    }
}

/// The names of the keys, in order. Every configuration also reads what is not encrypted.
fn keys(config: &[u8]) -> Vec<String> {
    let config: Value = serde_json::from_slice(config).unwrap();
    let providers = config["resources"][0]["providers"].as_array().unwrap();
    let names = providers
        .iter()
        .filter_map(|provider| provider["aescbc"]["keys"][0]["name"].as_str());
    names.map(str::to_owned).collect()
}

/// A cluster whose Secrets are encrypted with its first key. From now on no step may make one unreadable.
async fn encrypted(masks: &[u8]) -> (Runner, Arc<Mutex<Secrets>>) {
    let runner = runner(masks.len() + 1);
    settle(&runner, &intent(masks)).await;
    let saved = runner.memory.shell().saved.unwrap();
    let secrets = Arc::new(Mutex::new(Secrets {
        digest_key: saved.digest_key.clone(),
        configs: BTreeMap::new(),
        mark: Some(saved.encryption[0].name.clone()),
        stored: [saved.encryption[0].name.clone()].into(),
    }));
    runner
        .remote
        .world(|world| secrets.lock().unwrap().servers(world));
    let watched = Arc::clone(&secrets);
    runner
        .remote
        .watch(move |world, step| watched.lock().unwrap().holds(world, step));
    (runner, secrets)
}

/// The keys of each API server.
fn servers(runner: &Runner, secrets: &Mutex<Secrets>) -> Vec<Vec<String>> {
    let mut secrets = secrets.lock().unwrap();
    runner.remote.world(|world| secrets.servers(world))
}

/// The names of the state's keys, the newest first.
fn saved_keys(runner: &Runner) -> Vec<String> {
    let saved = runner.memory.shell().saved.unwrap();
    let keys = saved.encryption.iter();
    keys.map(|key| key.name.clone()).collect()
}

/// Every API server has the newest of so many keys alone, everything is written with it, and nothing is left to do.
async fn uses_the_newest(runner: &Runner, secrets: &Mutex<Secrets>, of: usize) {
    let masks = if runner.remote.world(|world| world.truth.hosts.len()) == 1 {
        ONE
    } else {
        MANY
    };
    let known = saved_keys(runner);
    assert_eq!(known.len(), of, "{known:?}");
    assert_eq!(known.iter().collect::<BTreeSet<_>>().len(), of);
    let newest = &known[0];
    let mark = runner.remote.world(|world| match world.truth.api() {
        ApiView::Up(api) => api.written_with.clone(),
        ApiView::Unknown | ApiView::Unreachable(_) => panic!("the API is there"),
    });
    assert_eq!(mark.as_ref(), Some(newest));
    let planes = intent(masks).with_role(Role::ControlPlane).count();
    assert_eq!(secrets.lock().unwrap().stored, [newest.clone()].into());
    assert_eq!(servers(runner, secrets), vec![vec![newest.clone()]; planes]);
    let (two, rotating) = (intent(masks), runner.rotating_key());
    let plan = runner.would(&Goal::Up(&two)).await.unwrap();
    assert!(plan.is_empty(), "{}", rke_operator::plan::render(&plan));
    let plan = rotating
        .would(&Goal::RotateKeys(Rotated::EncryptionKey, &two))
        .await
        .unwrap();
    assert!(!plan.is_empty(), "another rotation begins");
}

async fn rotates(runner: &Runner, intent: &Intent) {
    let goal = Goal::RotateKeys(Rotated::EncryptionKey, intent);
    let outcome = runner.rotating_key().converge(&goal).await.unwrap();
    assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
}

#[test]
fn each_rotation_gives_one_key_more() {
    block_on(async {
        let (runner, secrets) = encrypted(MANY).await;
        for number in 2..6 {
            rotates(&runner, &intent(MANY)).await;
            uses_the_newest(&runner, &secrets, number).await;
        }
    });
}

/// What else the config changes waits for `up`, also of the API servers.
#[test]
fn nothing_else_changes_with_a_key() {
    block_on(async {
        let (runner, secrets) = encrypted(MANY).await;
        let flags = |runner: &Runner| {
            runner.remote.world(|world| {
                let facts = world.truth.up(&"n1".into()).unwrap().clone();
                let spec = |component| facts.container(component).unwrap().applied().unwrap();
                [Component::ApiServer, Component::Kubelet].map(|component| spec(component).command)
            })
        };
        let before = flags(&runner);
        rotates(&runner, &changed(MANY, 3)).await;
        assert_eq!(flags(&runner), before);
        uses_the_newest(&runner, &secrets, 2).await;
        settle(&runner, &changed(MANY, 3)).await;
        assert_ne!(flags(&runner), before);
    });
}

/// Cuts a rotation after so many steps. True if it was.
async fn dies(runner: &Runner, masks: &[u8], cut: Cut) -> bool {
    let intent = intent(masks);
    let goal = Goal::RotateKeys(Rotated::EncryptionKey, &intent);
    runner.remote.cut(Some(cut));
    drop(runner.rotating_key().converge(&goal).await);
    let died = runner.remote.was_cut();
    runner.remote.cut(None);
    died
}

/// Killed anywhere, the same command goes on and generates no second key; a rotation afterwards gives the third.
fn the_same_command_goes_on(masks: &[u8], most: usize, torn: impl Fn(usize) -> u8) {
    block_on(async {
        let cuts = Cuts::default();
        for after in 0..100 {
            let (runner, secrets) = encrypted(masks).await;
            let torn = torn(after);
            let died = dies(&runner, masks, Cut { after, torn }).await;
            cuts.count(died);
            if !died {
                assert!(after > most, "{after}");
                break;
            }
            rotates(&runner, &intent(masks)).await;
            uses_the_newest(&runner, &secrets, 2).await;
            if after % 4 == 0 {
                rotates(&runner, &intent(masks)).await;
                uses_the_newest(&runner, &secrets, 3).await;
            }
        }
        cuts.are_real();
    });
}

#[test]
fn wherever_a_rotation_is_cut_the_same_command_goes_on() {
    the_same_command_goes_on(MANY, 20, |_| 0);
}

#[test]
fn within_whichever_step_a_rotation_is_cut_the_same_command_goes_on() {
    the_same_command_goes_on(MANY, 20, |after| [1, 2, 4][after % 3]);
}

/// While the only API server is replaced, none tells what it reads.
#[test]
fn a_rotation_of_one_node_goes_on_wherever_it_is_cut() {
    for torn in [0, 1, 2, 4] {
        the_same_command_goes_on(ONE, 8, |_| torn);
    }
}

/// Killed anywhere, `up` goes on with it.
#[test]
fn wherever_a_rotation_is_cut_up_goes_on() {
    block_on(async {
        for after in 0..100 {
            let (runner, secrets) = encrypted(MANY).await;
            let torn = [4, 0, 1, 2][after % 4];
            if !dies(&runner, MANY, Cut { after, torn }).await {
                break;
            }
            // Killed before it was saved, there is no new key.
            let keys = saved_keys(&runner).len();
            assert!(keys == 2 || keys == 1 && after == 0, "{keys} {after}");
            settle(&runner, &intent(MANY)).await;
            uses_the_newest(&runner, &secrets, keys).await;
        }
    });
}

/// A control plane that does not answer may still write with the present key: no rotation begins.
#[test]
fn no_rotation_begins_while_a_control_plane_is_away() {
    block_on(async {
        let (runner, secrets) = encrypted(MANY).await;
        runner.switch_off("n2");
        let two = intent(MANY);
        let (rotating, goal) = (
            runner.rotating_key(),
            Goal::RotateKeys(Rotated::EncryptionKey, &two),
        );
        let error = rotating.converge(&goal).await.unwrap_err();
        assert!(matches!(error, Error::Pki(_)), "{error}");
        assert!(error.to_string().contains("does not answer"), "{error}");
        assert!(!error.hints().is_empty());
        assert_eq!(saved_keys(&runner).len(), 1);
        runner.switch_on();
        rotates(&runner, &two).await;
        uses_the_newest(&runner, &secrets, 2).await;
    });
}

/// One that goes away in the middle is waited for, by the same command and by `up`: what is written does not change.
#[test]
fn a_rotation_waits_for_a_control_plane_that_goes_away() {
    block_on(async {
        let mut waited = 0;
        for after in (2..100).step_by(2) {
            let (runner, secrets) = encrypted(MANY).await;
            if !dies(&runner, MANY, Cut { after, torn: 0 }).await {
                break;
            }
            let two = intent(MANY);
            let is_old = |keys: &Vec<String>| keys[0] != saved_keys(&runner)[0];
            let before = servers(&runner, &secrets);
            runner.switch_off("n2");
            let outcome = runner
                .rotating_key()
                .converge(&Goal::RotateKeys(Rotated::EncryptionKey, &two))
                .await;
            let Outcome::Degraded { left, warnings, .. } = outcome.unwrap() else {
                panic!("{after}: a node is away");
            };
            assert!(left.contains_key(&NodeName::from("n2")));
            assert!(warnings.iter().any(|warning| warning.degrades), "{after}");
            drop(runner.converge(&Goal::Up(&two)).await.unwrap());
            assert_eq!(saved_keys(&runner).len(), 2);
            if before.iter().all(is_old) {
                assert!(servers(&runner, &secrets).iter().all(is_old), "{after}");
                waited += 1;
            }
            runner.switch_on();
            rotates(&runner, &two).await;
            uses_the_newest(&runner, &secrets, 2).await;
        }
        assert!(waited > 3, "{waited}");
    });
}

/// A snapshot of before two rotations holds Secrets of the first key: its restore reads them, and writes them again with the
/// newest one.
#[test]
fn a_snapshot_of_before_a_rotation_is_restored() {
    block_on(async {
        let (runner, secrets) = encrypted(MANY).await;
        runner.remote.world(|world| world.snapshot("s1"));
        rotates(&runner, &intent(MANY)).await;
        rotates(&runner, &intent(MANY)).await;
        uses_the_newest(&runner, &secrets, 3).await;
        let two = intent(MANY);
        let restoring = runner.restoring(&restore(1));
        let outcome = restoring.converge(&Goal::Restore(&two)).await.unwrap();
        assert!(matches!(outcome, Outcome::Converged { .. }), "{outcome:?}");
        settle(&runner, &two).await;
        uses_the_newest(&runner, &secrets, 3).await;
        no_longer_watched(&runner);
    });
}
