//! Encryption of what is stored, by the product's own `converge` on simulated nodes: how it is come to, together with
//! whatever else the config changes. What the API servers read and write meanwhile is tested beside the code.

use std::sync::Arc;

use rke_operator::{
    config::Intent,
    converge::{Goal, Outcome, Removal},
    error::Explain as _,
    facts::{Actual, ApiView, HostView, StateCopy},
    model::{Secret, path},
    state::{ClusterState, codec},
};
use serde_json::{Value, json};

use crate::{
    plan_properties::fresh,
    sim::{generate::names, remote::SimRemote, runner::Runner, wish::Wish},
};

const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Three nodes with everything; the number changes every component.
fn intent(encryption: &Value, verbosity: u8) -> Intent {
    let wish = Wish {
        masks: vec![3, 3],
        verbosity,
        ..Wish::plain()
    };
    wish.intent_with(|config| {
        config["services"]["kube-api"]["secrets_encryption_config"] = encryption.clone();
    })
}

/// A configuration that does not read what is not encrypted.
fn custom(name: &str) -> Value {
    let keys = json!([{"name": name, "secret": KEY}]);
    json!({
        "enabled": true,
        "custom_config": {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": keys}}]}],
        },
    })
}

async fn becomes(runner: &Runner, encryption: &Value, verbosity: u8) {
    let intent = intent(encryption, verbosity);
    let outcome = runner.converge(&Goal::Up(&intent)).await.unwrap();
    assert!(
        matches!(outcome, Outcome::Converged { changed: true, .. }),
        "{outcome:?}"
    );
    let plan = runner.plan(&Goal::Up(&intent)).await.unwrap();
    assert!(plan.is_empty(), "{}", rke_operator::plan::render(&plan));
}

/// What all that is stored was written with, and whether the API servers have a file about it.
fn stored(runner: &Runner) -> (Option<String>, bool) {
    runner.remote.world(|world| {
        let file = names(3).iter().all(|name| {
            let facts = world.truth.up(name).expect("the node is there");
            facts
                .files
                .iter()
                .flatten()
                .any(|(file, _)| file == path::ENCRYPTION)
        });
        match world.truth.api() {
            ApiView::Up(api) => (api.written_with.clone(), file),
            ApiView::Unknown | ApiView::Unreachable(_) => panic!("the API is there"),
        }
    })
}

/// From what is not encrypted to our key, to one configuration of the user's and another one, and back; each time
/// something else changes as well.
#[tokio::test]
async fn a_run_comes_to_it_whatever_else_changes() {
    let runner = Runner::new(&SimRemote::new(fresh(3)), || [1; 32]);
    becomes(&runner, &json!({"enabled": false}), 2).await;
    assert_eq!(stored(&runner), (None, false));

    becomes(&runner, &json!({"enabled": true}), 3).await;
    let (mark, file) = stored(&runner);
    assert!(mark.is_some_and(|mark| mark.starts_with("key-")) && file);

    becomes(&runner, &custom("a"), 4).await;
    let (first, file) = stored(&runner);
    assert!(
        first
            .as_ref()
            .is_some_and(|mark| mark.starts_with("custom-"))
            && file
    );

    becomes(&runner, &custom("b"), 5).await;
    let (second, file) = stored(&runner);
    assert!(
        second
            .as_ref()
            .is_some_and(|mark| mark.starts_with("custom-"))
            && file
    );
    assert_ne!(first, second);

    becomes(&runner, &json!({"enabled": false}), 6).await;
    assert_eq!(stored(&runner), (Some("identity".to_owned()), false));
}

/// Everything that the nodes and the cluster hold.
fn truth(runner: &Runner) -> Actual {
    runner.remote.world(|world| world.truth.clone())
}

/// E2: somebody else switched encryption on and went on from another state: the older one is refused with what is newer
/// and the way on, for whatever it is used, and nothing is written.
#[tokio::test]
async fn an_older_state_is_refused_and_overwrites_nothing() {
    let runner = Runner::new(&SimRemote::new(fresh(3)), || [1; 32]);
    becomes(&runner, &json!({"enabled": false}), 2).await;
    let old = runner.memory.shell();
    becomes(&runner, &json!({"enabled": true}), 2).await;
    let before = truth(&runner);
    let other = Runner::new(&runner.remote, || [2; 32]);
    other.memory.keep(old.clone());
    for (encryption, verbosity) in [(true, 2), (false, 2), (true, 3)] {
        let intent = intent(&json!({"enabled": encryption}), verbosity);
        for goal in [Goal::Up(&intent), Goal::Heal(&intent)] {
            let error = other.converge(&goal).await.unwrap_err();
            let said = error.to_string();
            assert!(said.contains("is not the newest of this cluster"), "{said}");
            assert!(said.contains("on node `n1` is newer"), "{said}");
            assert!(
                said.contains("in the Secret `kube-system/rke-operator-state` is newer"),
                "{said}"
            );
            let hints = error.hints().join("\n");
            let id = &old.saved.as_ref().unwrap().cluster_id;
            assert!(hints.contains(&format!("--recover {id}")), "{hints}");
        }
    }
    assert_eq!(truth(&runner), before);
    assert_eq!(other.memory.shell().saved, old.saved);
    let error = other.converge(&Removal(None)).await.unwrap_err();
    assert!(error.to_string().contains("is not the newest"), "{error}");
    assert_eq!(truth(&runner), before);
    // It names every node, so a removal that a user insists on forgets none.
    let id = &old.saved.as_ref().unwrap().cluster_id;
    other.recovering(id).converge(&Removal(None)).await.unwrap();
}

/// The newest copy is taken over by name, and with it goes on who was refused; then the other one is the older.
#[tokio::test]
async fn the_newest_copy_is_taken_over_when_it_is_asked_for() {
    let runner = Runner::new(&SimRemote::new(fresh(3)), || [1; 32]);
    becomes(&runner, &json!({"enabled": false}), 2).await;
    let old = runner.memory.shell();
    becomes(&runner, &json!({"enabled": true}), 2).await;
    let newest = runner.memory.shell().saved.unwrap();
    let other = Runner::new(&runner.remote, || [2; 32]);
    other.memory.keep(old);
    let on = intent(&json!({"enabled": true}), 2);
    let other = other.recovering(&newest.cluster_id);
    other.converge(&Goal::Up(&on)).await.unwrap();
    let taken = other.memory.shell().saved.unwrap();
    assert_eq!(taken.encryption, newest.encryption);
    assert!(taken.serial > newest.serial);
    assert!(
        stored(&runner)
            .0
            .is_some_and(|mark| mark.starts_with("key-"))
    );
    let plan = other.plan(&Goal::Up(&on)).await.unwrap();
    assert!(plan.is_empty(), "{}", rke_operator::plan::render(&plan));
    let error = runner.converge(&Goal::Up(&on)).await.unwrap_err();
    assert!(error.to_string().contains("is not the newest"), "{error}");
}

/// Two went on from one state: nobody can tell which is right, and each holds a key that the other lacks.
#[tokio::test]
async fn two_states_of_one_serial_and_other_content_are_refused() {
    let runner = Runner::new(&SimRemote::new(fresh(3)), || [1; 32]);
    becomes(&runner, &json!({"enabled": false}), 2).await;
    let mut other = runner.memory.shell();
    becomes(&runner, &json!({"enabled": true}), 2).await;
    let serial = runner.memory.shell().saved.unwrap().serial;
    other.saved.as_mut().unwrap().serial = serial;
    runner.memory.keep(other);
    let on = intent(&json!({"enabled": true}), 2);
    let error = runner
        .converge(&Goal::Up(&on))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has the same serial and other content"),
        "{error}"
    );
    // Nor is one that was written more often in the meantime the newest: it lacks a key.
    let mut other = runner.memory.shell();
    other.saved.as_mut().unwrap().serial = serial + 5;
    runner.memory.keep(other);
    let error = runner
        .converge(&Goal::Up(&on))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("has the encryption key `key-"), "{error}");
}

/// A copy that was cut while it was written says nothing; one of a newer release may be newer.
#[tokio::test]
async fn a_copy_that_is_not_whole_is_written_again_and_a_newer_formats_is_not() {
    let runner = Runner::new(&SimRemote::new(fresh(3)), || [1; 32]);
    becomes(&runner, &json!({"enabled": true}), 2).await;
    let on = intent(&json!({"enabled": true}), 2);
    let becomes = |text: &str| {
        runner.remote.world(|world| {
            let HostView::Reachable(facts) = world.truth.hosts.get_mut(&"n2".into()).unwrap()
            else {
                panic!("it answers")
            };
            let files = facts.files.as_mut().unwrap();
            let file = files.get_mut(path::STATE).unwrap();
            file.content = Arc::new(Secret::new(text.as_bytes().to_vec()));
        });
    };
    let whole = truth(&runner)
        .up(&"n2".into())
        .unwrap()
        .files
        .as_ref()
        .unwrap()[path::STATE]
        .clone();
    let text = String::from_utf8(whole.content.expose().clone()).unwrap();
    for cut in ["", "\0\0\0", &text[..text.len() / 2]] {
        becomes(cut);
        runner.converge(&Goal::Up(&on)).await.unwrap();
    }
    becomes(r#"{"version": 99, "readableSince": "9.9.9"}"#);
    let error = runner.converge(&Goal::Up(&on)).await.unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("on node `n2` cannot be read") && said.contains("9.9.9"),
        "{said}"
    );
    assert!(!error.hints().join("").contains("--recover"));
}

/// What an API server reads and the state does not know is never taken for nothing.
#[tokio::test]
async fn a_configuration_that_the_state_does_not_know_is_an_error() {
    let runner = Runner::new(&SimRemote::new(fresh(3)), || [1; 32]);
    becomes(&runner, &json!({"enabled": true}), 2).await;
    // Whatever was in it is gone from the state and from every copy.
    let forgets = |state: &mut ClusterState| state.encryption.clear();
    let mut shell = runner.memory.shell();
    forgets(shell.saved.as_mut().unwrap());
    let copy = shell.saved.as_ref().unwrap().copy();
    // Whose keys are made of something else.
    let other = Runner::new(&runner.remote, || [2; 32]);
    other.memory.keep(shell);
    runner.remote.world(|world| {
        world.etcd().state_copy = StateCopy::Is(Box::new(copy.clone()));
        for view in world.truth.hosts.values_mut() {
            let HostView::Reachable(facts) = view else {
                continue;
            };
            let file = facts.files.as_mut().unwrap().get_mut(path::STATE).unwrap();
            let text = codec::encode(&copy).expose().clone();
            file.content = Arc::new(Secret::new(text.into_bytes()));
        }
    });
    let before = truth(&runner);
    for enabled in [true, false] {
        let intent = intent(&json!({"enabled": enabled}), 2);
        let error = other
            .converge(&Goal::Up(&intent))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("reads an encryption configuration that the saved state does not have"),
            "{error}"
        );
    }
    assert_eq!(truth(&runner), before);
}

/// A removal by an older state forgets nobody.
#[tokio::test]
async fn a_removal_by_an_older_state_leaves_no_node_behind() {
    let runner = Runner::new(&SimRemote::new(fresh(3)), || [1; 32]);
    let of = |masks: &[u8]| {
        let masks = masks.to_vec();
        Wish {
            masks,
            ..Wish::plain()
        }
        .intent()
    };
    runner.converge(&Goal::Up(&of(&[3]))).await.unwrap();
    let old = runner.memory.shell();
    let more = of(&[3, 0]);
    runner.converge(&Goal::Up(&more)).await.unwrap();
    let newest = runner.memory.shell();
    runner.memory.keep(old);
    let before = truth(&runner);
    // The newest state is another owner's, unless a user says otherwise.
    for intent in [None, Some(&more)] {
        let error = runner.converge(&Removal(intent)).await.unwrap_err();
        assert!(error.to_string().contains("not the newest"), "{error}");
    }
    let newest = newest.saved.unwrap();
    let insisting = runner.recovering(&newest.cluster_id);
    let error = insisting
        .converge(&Removal(None))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("also names `n3`"), "{error}");
    assert_eq!(truth(&runner), before);
    assert!(newest.inventory.len() == 3);
    insisting.converge(&Removal(Some(&more))).await.unwrap();
    assert!(runner.memory.shell().saved.is_none());
}
