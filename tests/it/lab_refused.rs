//! Changes of a cluster that runs, and that cannot be: a flag that no program knows, a value that it does not take, an image that is
//! nowhere, a registry that is away. Nothing of the cluster is touched.

use std::{collections::BTreeMap, fs};

use lab::Profile;
use serde_json::{Value, json};

use crate::real::{Site, tell};

/// The config with a change.
fn write(site: &Site, change: impl FnOnce(&mut Value)) {
    let yaml = site.node().cluster_yml("lab").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&yaml).expect("a document");
    change(&mut config);
    site.write_config("cluster.yml", &config.to_string());
}

/// The image of Kubernetes that runs, with another tag.
fn image(site: &Site, tag: &str) -> String {
    let runs = "docker inspect -f '{{.Config.Image}}' kube-apiserver";
    let runs = site.node().sh(runs).expect("an API server");
    let (name, release) = runs.trim().rsplit_once(':').expect("a tag");
    format!("{name}:{release}-{tag}")
}

fn state(site: &Site) -> Vec<u8> {
    fs::read(site.path("cluster.rke-operator.json")).expect("a state")
}

#[test]
fn what_cannot_be_changes_nothing_that_runs() {
    let site = Site::new("refused", Profile::Plain);
    site.run(&["up", "--yes"]).well();
    let (containers, before) = (site.containers(), state(&site));
    let is_refused = |what: &str, status: i32, words: &[&str]| {
        let run = site.run(&["up", "--yes"]);
        tell(&format!("== {what}: exit {}\n{}", run.status, run.stderr));
        assert_eq!(run.status, status, "{what}: {run:?}");
        for word in words {
            assert!(run.stderr.contains(word), "{what}: no `{word}` in {run:?}");
        }
        assert_eq!(site.containers(), containers, "{what}: it was replaced");
        assert_eq!(state(&site), before, "{what}: another state");
        assert!(site.is_ready(), "{what}");
    };

    let flags = BTreeMap::from([
        ("kube-api", "kube-apiserver"),
        ("etcd", "etcd"),
        ("kubelet", "kubelet"),
        ("kube-controller", "kube-controller-manager"),
        ("scheduler", "kube-scheduler"),
        ("kubeproxy", "kube-proxy"),
    ]);
    for (service, program) in flags {
        write(&site, |config| {
            config["services"][service]["extra_args"]["no-such-flag"] = json!("1");
        });
        let words = [program, "has no such flag", "nothing was changed"];
        is_refused(&format!("a flag that {program} does not know"), 1, &words);
        // Only the program itself tells that it does not take a value of the right type.
        let (flag, value) = if program == "etcd" {
            ("v2-deprecation", "maybe")
        } else {
            ("v", "4294967296")
        };
        write(&site, |config| {
            config["services"][service]["extra_args"][flag] = json!(value);
        });
        let words = [program, value, "nothing that runs was replaced"];
        is_refused(&format!("a value that {program} does not take"), 1, &words);
    }

    let missing = image(&site, "nowhere");
    write(&site, |config| {
        config["system_images"]["kubernetes"] = json!(missing);
    });
    is_refused("an image that is nowhere", 2, &[&missing]);

    site.lab.registry().stop().expect("the registry stops");
    is_refused("a registry that is away", 2, &[&missing]);
    site.lab.registry().start().expect("the registry starts");

    write(&site, |_| {});
    let again = site.run(&["up", "--yes"]).well();
    assert!(again.stderr.contains("nothing to do"), "{again:?}");
}
