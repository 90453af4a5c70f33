//! Images without a registry, end to end: the binary against a fake node. What is saved from one node is loaded onto another,
//! each node gets what it lacks, and what cannot be right changes nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    cli_node::Site,
    fake::{FakeHost, NodeFile},
};

fn sha(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// An archive of these files, in order.
fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        builder
            .append_data(&mut header, name, content.as_slice())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

/// As Docker before 25 exports an image: a layer that all have, and one of its own.
fn exported(name: &str, architecture: &str) -> Vec<u8> {
    let layers = [
        b"the base of all".to_vec(),
        format!("the layer of {name}").into_bytes(),
    ];
    let ids: Vec<String> = layers
        .iter()
        .map(|it| format!("sha256:{}", sha(it)))
        .collect();
    let config = json!({
        "architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": ids},
    });
    let config = config.to_string().into_bytes();
    let place = format!("{}.json", sha(&config));
    let places: Vec<String> = layers
        .iter()
        .map(|it| format!("{}/layer.tar", sha(it)))
        .collect();
    let manifest = json!([{"Config": place, "RepoTags": [name], "Layers": places}]);
    let mut files = vec![(place, config)];
    files.extend(places.into_iter().zip(layers));
    files.push((
        "manifest.json".to_owned(),
        manifest.to_string().into_bytes(),
    ));
    archive(&files)
}

/// Docker on the node has these images.
fn has(node: &FakeHost, names: &[String], architecture: &str) {
    let mut docker = node.docker();
    for name in names {
        let archive = exported(name, architecture);
        docker.images.insert(name.clone(), archive.len() as u64);
        docker.archives.insert(name.clone(), archive);
    }
}

/// containerd of the node: what its `ctr` does in the scripts of helpers, and the images that it has.
fn containerd(node: &FakeHost) -> Arc<Mutex<BTreeSet<String>>> {
    let images = Arc::new(Mutex::new(BTreeSet::new()));
    let there = Arc::clone(&images);
    node.docker().work = Box::new(move |script, files| {
        let mut there = there.lock().unwrap();
        if script.contains("images import") {
            let (place, file) = files
                .iter()
                .find(|(place, _)| place.ends_with("rke-operator-image.tar"))
                .map(|(place, file)| (place.clone(), file.clone()))
                .unwrap();
            files.remove(&place);
            there.extend(names_in(&file));
        } else if script.contains("images ls -q") {
            let names: Vec<String> = there.iter().cloned().collect();
            return (0, names.join("\n"));
        }
        (0, String::new())
    });
    images
}

/// The names in an archive, as containerd has them.
fn names_in(file: &NodeFile) -> Vec<String> {
    let mut archive = tar::Archive::new(file.content.as_slice());
    let mut manifest = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path_bytes().as_ref() == b"manifest.json" {
            std::io::Read::read_to_end(&mut entry, &mut manifest).unwrap();
        }
    }
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let names = manifest[0]["RepoTags"].as_array().unwrap().iter();
    names
        .map(|name| rke_operator::catalog::canonical(name.as_str().unwrap()))
        .collect()
}

async fn listed(site: &Site) -> Vec<String> {
    let ran = site.run(&["images", "list"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    ran.stdout.lines().map(str::to_owned).collect()
}

/// A bundle in the folder of a site, saved from a node that has every image.
async fn bundle(site: &Site, architecture: &str) -> Vec<String> {
    let names = listed(site).await;
    has(&site.node, &names, architecture);
    let ran = site
        .run(&["images", "save", "--from-node", "n1", "-o", "bundle.tar"])
        .await;
    assert_eq!(ran.code, Some(0), "{ran}");
    let words = format!("saved: `bundle.tar`, {} images", names.len());
    assert!(ran.stdout.contains(&words), "{ran}");
    // As before the first `up`.
    let mut docker = site.node.docker();
    docker.images.clear();
    docker.archives.clear();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_has_every_image_of_the_config_and_contacts_no_node() {
    let site = Site::new().await;
    let names = listed(&site).await;
    for name in [
        "hardened-kubernetes",
        "hardened-etcd",
        "mirrored-pause",
        "hardened-flannel",
        "hardened-coredns",
    ] {
        assert!(
            names.iter().any(|known| known.contains(name)),
            "{name}: {names:?}"
        );
    }
    let ran = site
        .run(&["images", "list", "--for", "cluster.yml", "-o", "json"])
        .await;
    let list: Value = serde_json::from_str(&ran.stdout).unwrap();
    let images = list["images"].as_array().unwrap();
    assert_eq!(images.len(), names.len(), "{ran}");
    let coredns = images
        .iter()
        .find(|it| it["name"].as_str().unwrap().contains("coredns"))
        .unwrap();
    assert_eq!(coredns["pods"], true);
    assert_eq!(site.node.connections(), 0);
}

/// Each image once to each place, and a second time nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_has_is_saved_and_loaded_onto_another() {
    let site = Site::new().await;
    let names = bundle(&site, "amd64").await;
    let pods = containerd(&site.node);
    let ran = site.run(&["images", "load", "bundle.tar"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    {
        let docker = site.node.docker();
        let runs = |name: &str| {
            names
                .iter()
                .find(|known| known.contains(name))
                .unwrap()
                .clone()
        };
        for name in ["hardened-kubernetes", "hardened-etcd", "mirrored-pause"] {
            assert!(docker.images.contains_key(&runs(name)), "{name}: {ran}");
        }
        // Of pods alone.
        assert!(
            !docker.images.contains_key(&runs("hardened-coredns")),
            "{ran}"
        );
        let pods = pods.lock().unwrap();
        assert!(
            pods.contains(&format!("docker.io/{}", runs("hardened-coredns"))),
            "{pods:?}"
        );
        assert!(
            !pods.iter().any(|name| name.contains("hardened-kubernetes")),
            "{pods:?}"
        );
        // Nothing of it is left, and no cluster was begun.
        assert!(
            docker.containers.is_empty(),
            "{:?}",
            docker.containers.keys()
        );
        assert!(!docker.images.contains_key("rke-operator/files:1"));
        assert!(
            !docker
                .paths()
                .iter()
                .any(|path| path.contains("rke-operator")),
            "{:?}",
            docker.paths()
        );
    }
    let before = site.node.requests().len();
    let ran = site.run(&["images", "load", "bundle.tar"]).await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stderr.contains("nothing to do"), "{ran}");
    let loads = |asked: &crate::fake::Asked| asked.path == "/images/load";
    assert!(!site.node.requests()[before..].iter().any(loads));
}

/// `plan` shows the images of the bundle in place of pulls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plan_loads_what_the_bundle_has() {
    let site = Site::new().await;
    bundle(&site, "amd64").await;
    let ran = site
        .run(&["plan", "--full", "--image-bundle", "bundle.tar"])
        .await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(!ran.stdout.contains("pull rancher/"), "{ran}");
    assert!(
        ran.stdout.contains("load rancher/hardened-kubernetes"),
        "{ran}"
    );
    assert!(
        ran.stdout.contains("import rancher/hardened-coredns"),
        "{ran}"
    );
    let ran = site.run(&["plan", "--full"]).await;
    assert!(
        ran.stdout.contains("pull rancher/hardened-kubernetes"),
        "{ran}"
    );
    assert!(
        !ran.stdout.contains("import rancher/hardened-coredns"),
        "{ran}"
    );
}

/// Both commands that take a bundle refuse it, with all of these words.
async fn refuse(site: &Site, words: &[&str]) {
    for command in [
        &["up", "--yes", "--image-bundle", "bundle.tar"][..],
        &["images", "load", "bundle.tar"],
    ] {
        let ran = site.run(command).await;
        assert_eq!(ran.code, Some(1), "{ran}");
        for words in words {
            assert!(ran.stderr.contains(words), "{ran}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_damaged_or_for_other_machines_changes_nothing() {
    let site = Site::new().await;
    bundle(&site, "amd64").await;
    let path = site.context.path("bundle.tar");
    let whole = std::fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let at = damaged
        .windows(15)
        .position(|it| it == b"the base of all")
        .unwrap();
    damaged[at] = b'T';
    std::fs::write(&path, &damaged).unwrap();
    let connections = site.node.connections();
    let state = site.state();
    refuse(
        &site,
        &["the bundle `bundle.tar` is damaged: `blobs/sha256/"],
    )
    .await;
    assert_eq!(site.node.connections(), connections, "no node is touched");
    assert_eq!(site.state(), state);

    std::fs::write(&path, &whole).unwrap();
    site.node.docker().info["Architecture"] = json!("aarch64");
    let state = site.state();
    refuse(
        &site,
        &[
            "node `n1` is linux/arm64",
            "`rke-operator images save --platform linux/arm64`",
        ],
    )
    .await;
    assert_eq!(site.state(), state);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lacks_an_image_is_named() {
    let site = Site::new().await;
    let mut names = listed(&site).await;
    let at = names
        .iter()
        .position(|name| name.contains("flannel"))
        .unwrap();
    let lacks = names.remove(at);
    has(&site.node, &names, "amd64");
    site.node.docker().work = Box::new(|_, _| (44, String::new()));
    let ran = site
        .run(&["images", "save", "--from-node", "n1", "-o", "bundle.tar"])
        .await;
    assert_eq!(ran.code, Some(1), "{ran}");
    let words = format!("node `n1` does not have image `{lacks}`");
    assert!(ran.stderr.contains(&words), "{ran}");
    assert!(!site.context.path("bundle.tar").exists());
    // What was copied is not copied again: the file that grows is there.
    assert!(site.context.path("bundle.tar.part").exists());
    has(&site.node, &[lacks], "amd64");
    let ran = site
        .run(&["images", "save", "--from-node", "n1", "-o", "bundle.tar"])
        .await;
    assert_eq!(ran.code, Some(0), "{ran}");
    assert!(ran.stderr.contains("continues with"), "{ran}");
    assert!(!site.context.path("bundle.tar.part").exists());
    let ran = site
        .run(&["images", "save", "--from-node", "n9", "-o", "other.tar"])
        .await;
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.stderr.contains("the config has no node `n9`"), "{ran}");
}
