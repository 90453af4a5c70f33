//! The log of the operator: a line says which Cluster, node and step it is about, and none has a secret, whatever goes
//! wrong and however much is logged.

use std::{
    io,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rke_operator::cli::{args::Output, log::of_operator};
use serde_json::{Value, json};

use crate::operator_rig::{CREDENTIALS, Rig, cluster, is, minutes, planted_line};

const PASSWORD: &str = "planted-password";
const TOKEN: &str = "planted-token";
/// 32 bytes as base64.
const ENCRYPTION: &str = "cGxhbnRlZC1lbmNyeXB0aW9uLWtleS0zMi1ieXRlcyE=";

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The Secret with the config.
fn secret(text: &str) -> Value {
    json!({
        "metadata": {
            "name": "a-config", "namespace": CREDENTIALS,
            "annotations": {"clusterprovisioner.rke.io/clusters": "a"},
        },
        "data": {"cluster.yml": BASE64_STANDARD.encode(text)},
    })
}

/// A config with a secret at each place that takes one.
fn config(mut bare: Value) -> Value {
    bare["private_registries"] =
        json!([{ "url": "registry.example.com", "user": "me", "password": PASSWORD }]);
    bare["services"] = json!({
        "kubelet": { "extra_env": [format!("TOKEN={TOKEN}")] },
        "kube-api": { "secrets_encryption_config": { "enabled": true, "custom_config": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
            "resources": [{ "resources": ["secrets"], "providers": [
                { "secretbox": { "keys": [{ "name": "key1", "secret": ENCRYPTION }] } },
                { "identity": {} },
            ] }],
        } } },
    });
    bare
}

/// A cluster is built and looked at; its config and a Secret cannot be read for a while, its node is off for a while, and
/// it is removed.
async fn live() {
    let rig = Rig::start(&["n1"]);
    let mut object = cluster("a", "n1");
    let bare = object["spec"].as_object_mut().unwrap().remove("config");
    let good = config(bare.unwrap());
    object["spec"]["configFrom"] = json!({"secretKeyRef": {"name": "a-config"}});
    rig.api.plant("secrets", &secret(&good.to_string()));
    rig.create(&object).await;
    rig.ready("a").await;
    let mut wrong = good.clone();
    wrong["private_registries"][0]["password"] = json!([PASSWORD]);
    wrong["services"]["kubelet"]["extra_env"] = json!(TOKEN);
    wrong["services"]["kube-api"]["secrets_encryption_config"]["custom_config"]["resources"] =
        json!(ENCRYPTION);
    let torn = format!("{good}\npassword: {{{PASSWORD}: {TOKEN}\n  {ENCRYPTION}: [");
    for text in [wrong.to_string(), torn] {
        let edited = secret(&text);
        rig.api.patch("secrets", CREDENTIALS, "a-config", &edited);
        rig.until("a", |cluster| is(cluster, "ConfigValid", "False"))
            .await;
        let mended = secret(&good.to_string());
        rig.api.patch("secrets", CREDENTIALS, "a-config", &mended);
        rig.ready("a").await;
    }
    // kube's client logs an answer that it does not understand: here the one with the key to the nodes.
    // serde quotes a text in the wrong place.
    for (unread, mended) in [
        (json!({"data": {"x": 7}}), json!({"data": {"x": null}})),
        (json!({"immutable": PASSWORD}), json!({"immutable": null})),
    ] {
        rig.api.patch("secrets", CREDENTIALS, "nodes", &unread);
        let told = rig
            .until("a", |cluster| {
                is(cluster, "Reconciling", "True") || is(cluster, "Stalled", "True")
            })
            .await;
        assert!(!told.to_string().contains(PASSWORD), "{told}");
        rig.api.patch("secrets", CREDENTIALS, "nodes", &mended);
        rig.ready("a").await;
    }
    rig.nodes.kill("n1");
    rig.until("a", |cluster| is(cluster, "Ready", "False"))
        .await;
    rig.nodes.revive("n1");
    rig.ready("a").await;
    minutes(3).await;
    rig.api.delete("clusters", "", "a");
    rig.gone("a").await;
    rig.stop().await;
}

/// Everything that is logged meanwhile.
async fn logged(format: Output, debug: bool) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let log = of_operator(move || writer.clone(), format, debug);
    let guard = tracing::subscriber::set_default(log);
    live().await;
    drop(guard);
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

fn has_no_secret(log: &str) {
    let begin = BASE64_STANDARD.encode("-----BEGIN ");
    let secrets = [
        planted_line(),
        PASSWORD,
        TOKEN,
        ENCRYPTION,
        &BASE64_STANDARD.encode(PASSWORD)[..12],
        &begin[..14],
        "PRIVATE KEY",
    ];
    for line in log.lines() {
        for secret in secrets {
            assert!(!line.contains(secret), "{secret} is in {line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_line_of_text_has_a_secret() {
    for debug in [false, true] {
        let log = logged(Output::Text, debug).await;
        has_no_secret(&log);
        let run = "reconcile{cluster=\"a\"}: ";
        let line = log.lines().find(|line| line.contains("a run starts"));
        assert!(line.is_some_and(|line| line.contains(run)), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_of_json_says_what_it_is_about_and_no_secret() {
    for debug in [false, true] {
        let log = logged(Output::Json, debug).await;
        has_no_secret(&log);
        let lines: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let with = |message: &str| -> Vec<&Value> {
            let has = |line: &&Value| line["message"] == *message;
            let found: Vec<_> = lines.iter().filter(has).collect();
            assert!(found.is_empty() || found.iter().all(|line| line["cluster"] == "a"));
            found
        };
        assert!(!with("a run starts").is_empty(), "{log}");
        assert!(!with("a stage starts").is_empty(), "{log}");
        let steps = with("a step ended");
        assert_eq!(steps.is_empty(), !debug, "{log}");
        let on_node = steps.iter().filter(|line| line["node"] == "n1").count();
        assert_eq!(on_node > 10, debug, "{log}");
        assert!(steps.iter().all(|line| line["step"].is_string()), "{log}");
        for line in &lines {
            for field in ["timestamp", "level", "message"] {
                assert!(line[field].is_string(), "{line}");
            }
            let flat = line.as_object().unwrap().values();
            assert!(flat.clone().all(|value| !value.is_object()), "{line}");
            assert!(line.get("spans").is_none() && line.get("span").is_none());
            assert_eq!(line.get("target").is_some(), debug, "{line}");
        }
    }
}
