//! Encryption of Secrets on two real API servers, on, with another key, and off again while both are used: what is stored, read from
//! etcd, and what each of them says of what the other one has written. Both ask a webhook about tokens.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use lab::{LabSpec, Profile};
use serde_json::{Value, json};

use crate::{
    lab_many::ALL,
    real::{
        Site, kubectl,
        tokens::{TOKEN, Tokens, USER},
    },
};

/// How the Secret begins in etcd.
fn stored(site: &Site, name: &str) -> String {
    let get = format!(
        "docker exec etcd etcdctl get /registry/secrets/default/{name} --print-value-only | head -c 30 | tr -c '[:print:]' ."
    );
    site.node().sh(&get).expect("etcd answers")
}

/// Has one API server store a Secret and another one tell it, over and over, until it is told to end: the number of those
/// that were told, and what any server said of one that it cannot read.
fn crossing(site: &Site, end: Arc<AtomicBool>) -> thread::JoinHandle<(u32, Vec<String>)> {
    let config = site.path("kube_config_cluster.yml");
    thread::spawn(move || {
        let (mut told, mut unreadable) = (0, Vec::new());
        let mut number = 0;
        while !end.load(Ordering::Relaxed) {
            number += 1;
            let (one, other) = if number % 2 == 0 {
                ("n1", "n2")
            } else {
                ("n2", "n1")
            };
            let (one, other) = (format!("many-{one}"), format!("many-{other}"));
            let name = format!("crossing-{number}");
            let value = format!("--from-literal=word=word-{number}");
            let made = kubectl(
                &config,
                &[
                    "--context",
                    &one,
                    "create",
                    "secret",
                    "generic",
                    &name,
                    &value,
                ],
            );
            let path = "jsonpath={.data.word}";
            let seen = kubectl(
                &config,
                &["--context", &other, "get", "secret", &name, "-o", path],
            );
            for said in [&made.stderr, &seen.stderr] {
                if said.contains("transform") || said.contains("decrypt") {
                    unreadable.push(said.clone());
                }
            }
            told += u32::from(made.status == 0 && seen.status == 0 && !seen.stdout.is_empty());
        }
        (told, unreadable)
    })
}

fn encrypts(site: &Site, on: bool) {
    site.edits(|config| {
        config["services"]["kube-api"]["secrets_encryption_config"] = json!({"enabled": on});
    });
    rewrites(site, &["up", "--yes"]);
}

/// A command that writes all Secrets again, while both API servers are used.
fn rewrites(site: &Site, command: &[&str]) {
    let end = Arc::new(AtomicBool::new(false));
    let crossing = crossing(site, Arc::clone(&end));
    let run = site.run(command);
    end.store(true, Ordering::Relaxed);
    let (told, unreadable) = crossing.join().expect("it ends");
    let run = run.well();
    assert_eq!(unreadable, [""; 0]);
    assert!(told > 10, "{told}");
    let rewritten = "write all stored secrets again";
    assert!(run.stderr.contains(rewritten), "{}", run.stderr);
    site.has_nothing_to_do();
}

/// The newest key is another one, what is stored is written with it, and the former ones are kept.
fn rotates_the_key(site: &Site) {
    let before = site.state()["encryption"].clone();
    rewrites(site, &["encrypt", "rotate-key", "--yes"]);
    let after = site.state()["encryption"].clone();
    let (before, after) = (
        before.as_array().expect("keys"),
        after.as_array().expect("keys"),
    );
    assert_eq!(&after[1..], before);
    let newest = after[0]["name"].as_str().expect("a name");
    for name in ["before", "crossing-1"] {
        let stored = stored(site, name);
        assert_eq!(stored, format!("k8s:enc:aescbc:v1:{newest}"), "{name}");
    }
    let file = "cat /etc/kubernetes/rke-operator-encryption.yaml";
    let file = site.node().sh(file).expect("a file");
    let former = before[0]["name"].as_str().expect("a name");
    assert!(file.contains(newest) && !file.contains(former));
}

/// Who asks with a token is whoever the webhook says, and may do what that user may.
fn tokens_are_asked_about(site: &Site, tokens: &Tokens) {
    let path = site.path("kube_config_cluster.yml");
    let yaml = fs::read_to_string(path).expect("a kubeconfig");
    let mut config: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    for context in ["many-n1", "many-n2"] {
        for (token, known) in [(TOKEN, true), ("another", false)] {
            config["users"][0]["user"] = json!({"token": token});
            site.write_config("token.yml", &config.to_string());
            let ask = |args: &[&str]| {
                let args: Vec<&str> = ["--context", context].iter().chain(args).copied().collect();
                kubectl(&site.path("token.yml"), &args)
            };
            let before = tokens.asked();
            let whoami = ask(&["auth", "whoami", "-o", "json"]);
            if known {
                let user: Value = serde_json::from_str(&whoami.well().stdout).expect("JSON");
                let user = &user["status"]["userInfo"];
                assert_eq!(user["username"], USER);
                assert_eq!(user["groups"], json!(["readers", "system:authenticated"]));
                let secrets = ask(&["get", "secrets"]);
                assert!(secrets.stderr.contains("Forbidden"), "{secrets:?}");
                assert!(secrets.stderr.contains(USER), "{secrets:?}");
            } else {
                assert!(whoami.stderr.contains("Unauthorized"), "{whoami:?}");
            }
            assert!(tokens.asked() > before, "{context} asked the webhook");
        }
    }
    let mode = "stat -c %a /etc/kubernetes/rke-operator-token-webhook.yaml";
    assert_eq!(site.node().sh(mode).expect("a file").trim(), "600");
}

#[test]
fn secrets_are_encrypted_and_not_again_while_two_api_servers_serve() {
    let spec = LabSpec::own("encryption")
        .node("n1", Profile::Plain)
        .node("n2", Profile::Plain);
    let site = Site::of(&spec);
    site.names(&[("n1", ALL), ("n2", ALL)]);
    let tokens = Tokens::beside(site.node());
    site.edits(|config| {
        let webhook = json!({"config_file": tokens.kubeconfig(), "cache_timeout": "2s"});
        config["authentication"] = json!({"strategy": "x509|webhook", "webhook": webhook});
    });
    site.run(&["up", "--yes"]).well();
    tokens_are_asked_about(&site, &tokens);
    let before = "create secret generic before --from-literal=word=unseen";
    site.kubectl(&before.split(' ').collect::<Vec<_>>()).well();
    assert!(
        stored(&site, "before").starts_with("k8s"),
        "{}",
        stored(&site, "before")
    );
    assert!(!stored(&site, "before").starts_with("k8s:enc:"));

    encrypts(&site, true);
    for name in ["before", "crossing-1"] {
        let stored = stored(&site, name);
        assert!(
            stored.starts_with("k8s:enc:aescbc:v1:key-"),
            "{name}: {stored}"
        );
    }
    let file = "stat -c %a /etc/kubernetes/rke-operator-encryption.yaml";
    assert_eq!(site.node().sh(file).expect("a file").trim(), "600");
    let kept = ["get", "secret", "before", "-o", "jsonpath={.data.word}"];
    assert_eq!(site.kubectl(&kept).well().stdout, "dW5zZWVu");

    rotates_the_key(&site);
    assert_eq!(site.kubectl(&kept).well().stdout, "dW5zZWVu");

    encrypts(&site, false);
    for name in ["before", "crossing-1"] {
        let stored = stored(&site, name);
        assert!(!stored.starts_with("k8s:enc:"), "{name}: {stored}");
    }
    assert_eq!(site.kubectl(&kept).well().stdout, "dW5zZWVu");
    let gone = "test ! -e /etc/kubernetes/rke-operator-encryption.yaml && echo gone";
    assert_eq!(site.node().sh(gone).expect("a look").trim(), "gone");
    site.run(&["remove", "--force"]).well();
    assert_eq!(site.containers().len(), 0);
}

/// Every file below `/etc/kubernetes` with its content, the containers, and etcd's revision of what is stored.
fn held(site: &Site) -> String {
    let look = "find /etc/kubernetes -type f -exec sha256sum {} + | sort; \
        docker ps -a --format '{{.ID}} {{.Names}} {{.State}}' | sort";
    site.node().sh(look).expect("a look")
}

/// The state file of before encryption was switched on, against the copies that came later: refused for whatever the
/// config says, and nothing is written. Then the newest copy is taken over by name.
#[test]
fn an_older_state_is_refused_when_newer_copies_exist() {
    let site = Site::new("older-state", Profile::Plain);
    site.run(&["up", "--yes"]).well();
    let file = site.path("cluster.rke-operator.json");
    let old = fs::read(&file).expect("a state");
    let encryption = |on: bool| {
        site.edits(|config| {
            config["services"]["kube-api"]["secrets_encryption_config"] = json!({"enabled": on});
        });
    };
    encryption(true);
    site.run(&["up", "--yes"]).well();
    let secret = "create secret generic word --from-literal=word=unseen";
    site.kubectl(&secret.split(' ').collect::<Vec<_>>()).well();
    let newest = fs::read(&file).expect("a state");
    assert_ne!(old, newest);
    let state = site.state();
    let id = &site.cluster_id();

    fs::write(&file, &old).expect("the older one");
    let before = held(&site);
    for on in [true, false] {
        encryption(on);
        for command in [&["up", "--yes"][..], &["plan"]] {
            let refused = site.run(command);
            assert_eq!(refused.status, 1, "{refused:?}");
            for said in [
                "is not the newest of this cluster; nothing is changed",
                "the copy in the Secret `kube-system/rke-operator-state` is newer",
                &format!("--recover {id}"),
            ] {
                assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
            }
        }
    }
    assert_eq!(held(&site), before);
    assert_eq!(fs::read(&file).expect("a state"), old);
    let word = ["get", "secret", "word", "-o", "jsonpath={.data.word}"];
    assert_eq!(site.kubectl(&word).well().stdout, "dW5zZWVu");

    encryption(true);
    site.run(&["up", "--yes", "--recover", id]).well();
    assert_eq!(site.state()["encryption"], state["encryption"]);
    assert_eq!(site.kubectl(&word).well().stdout, "dW5zZWVu");
    site.has_nothing_to_do();
    site.run(&["remove", "--force"]).well();
}
