//! Encryption of what is stored, by the product's own `converge` on simulated nodes: how it is come to, together with
//! whatever else the config changes. What the API servers read and write meanwhile is tested beside the code.

use rke_operator::{
    actual::ApiView,
    config::Intent,
    converge::{Goal, Outcome},
    model::path,
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
