//! Whose node it is: what is somebody else's is refused by name and left as it was, a lost state
//! comes back when it is asked for, and a state that cannot be read is no reason for new keys.

use std::{fs, os::unix::fs::PermissionsExt};

use lab::Profile;
use serde_json::Value;

use crate::real::{
    Run, Site,
    snapshot::{self, CAME, WENT},
};

/// The state's copy on a node.
const COPY: &str = "/etc/kubernetes/rke-operator-state.json";
const STATE: &str = "cluster.rke-operator.json";
const KUBECONFIG: &str = "kube_config_cluster.yml";
/// Another person's folder, with a config for the same node.
const SECOND: &str = "second/other.yml";

/// Runs the binary and expects it to refuse with these words.
#[track_caller]
fn refused(site: &Site, args: &[&str], status: i32, words: &[&str]) -> Run {
    let run = site.run(args);
    assert_eq!(run.status, status, "{args:?}: {run:?}");
    for word in words {
        assert!(
            run.stderr.contains(word),
            "no {word:?} in {args:?}:\n{}",
            run.stderr
        );
    }
    run
}

/// Nothing on the node is different after `deeds`, but what lives by itself.
#[track_caller]
fn unharmed(site: &Site, lives: &[snapshot::Allowed], deeds: impl FnOnce()) {
    let before = snapshot::take(site.node());
    deeds();
    snapshot::unchanged(site.node(), &before, lives);
}

/// What tells a cluster from its successor: ids of its containers, and its CA.
fn cluster(site: &Site) -> (Vec<String>, String) {
    let kubectl = [
        "config",
        "view",
        "--raw",
        "-o",
        "jsonpath={.clusters[0].cluster.certificate-authority-data}",
    ];
    let on_node = "sha256sum /etc/kubernetes/ssl/*";
    let containers = site.containers();
    (
        containers
            .into_iter()
            .map(|(name, id)| format!("{name} {id}"))
            .collect(),
        site.node().sh(on_node).expect("the node's keys") + &site.kubectl(&kubectl).well().stdout,
    )
}

#[test]
fn a_node_belongs_to_its_owner() {
    let site = Site::new("owner", Profile::Plain);
    someone_elses_container(&site);
    someone_elses_listener(&site);
    site.run(&["up", "--yes"]).well();
    assert!(site.is_ready());
    a_second_cluster(&site);
    a_lost_state(&site);
    a_state_that_cannot_be_read(&site);
    site.run(&["up"]).well();
    assert!(site.is_ready());
}

fn someone_elses_container(site: &Site) {
    site.node()
        .sh("docker run -d --name etcd library/nginx:1.26.3")
        .expect("someone else's container");
    unharmed(site, &[], || {
        let words = [
            "node `n1` has a container `etcd` of someone else",
            "library/nginx:1.26.3",
            "docker inspect",
        ];
        refused(site, &["up", "--yes"], 2, &words);
        // Nothing is ours, so there is nothing to remove: theirs stays.
        site.run(&["remove", "--force"]).well();
    });
    assert!(!site.path(STATE).exists());
    site.node()
        .sh("docker rm -f etcd && docker rmi library/nginx:1.26.3")
        .expect("they take it away");
}

fn someone_elses_listener(site: &Site) {
    let listen = "systemd-run --quiet --unit=theirs socat TCP-LISTEN:6443,fork EXEC:cat && \
                  until ss -Hltn 'sport = :6443' | grep -q LISTEN; do sleep 0.1; done";
    site.node().sh(listen).expect("someone else's process");
    unharmed(site, &[], || {
        let words = ["port 6443 on node `n1`", "kube-apiserver", "theirs.service"];
        refused(site, &["up", "--yes"], 2, &words);
    });
    assert!(!site.path(STATE).exists());
    site.node()
        .sh("systemctl stop theirs.service")
        .expect("they take it away");
}

/// Another config for a node of a cluster, from a folder without its state.
fn a_second_cluster(site: &Site) {
    fs::create_dir(site.path("second")).expect("a folder");
    let config = site.node().cluster_yml("other").expect("a config");
    site.write_config(SECOND, &config);
    let id = site.cluster_id();
    let owner = ["node `n1` belongs to cluster `lab`", &id];
    let first = cluster(site);
    unharmed(site, &snapshot::alive(), || {
        refused(site, &["up", "--yes", "--config", SECOND], 1, &owner);
        refused(site, &["plan", "--config", SECOND], 1, &owner);
        refused(site, &["remove", "--force", "--config", SECOND], 1, &owner);
        // Asked to recover, it is still another cluster's config.
        let recover = ["up", "--yes", "--recover", &id, "--config", SECOND];
        refused(site, &recover, 1, &["cannot recover", "`lab`", "`other`"]);
    });
    assert_eq!(cluster(site), first);
    assert!(site.is_ready());
    let files: Vec<_> = fs::read_dir(site.path("second"))
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(files, ["other.yml"], "nothing was written beside it");
}

/// The state after a takeover by id: the same keys and nodes, with the next serial.
fn taken_over(state: &Value) -> Value {
    let mut next = state.clone();
    let serial = state["serial"].as_u64().expect("a serial");
    next["serial"] = (serial + 1).into();
    next
}

fn a_lost_state(site: &Site) {
    let before = cluster(site);
    let id = site.cluster_id();
    let state = site.state();
    fs::remove_file(site.path(STATE)).expect("it is lost");
    unharmed(site, &snapshot::alive(), || {
        let lost = ["node `n1` belongs to cluster `lab`", &id, "--recover"];
        refused(site, &["up", "--yes"], 1, &lost);
        refused(site, &["remove", "--force"], 1, &lost);
        assert!(!site.path(STATE).exists());
        another_inventory(site, &id);
        let plan = site.run(&["plan", "--recover", &id]).well();
        assert!(plan.stdout.contains("save the state"), "{}", plan.stdout);
        assert!(!site.path(STATE).exists(), "a plan writes nothing");
    });
    let mut lives = snapshot::alive();
    lives.extend([CAME, WENT].map(|sign| ("files", sign, COPY, "the copy of the state follows")));
    unharmed(site, &lives, || {
        site.run(&["up", "--recover", &id]).well();
    });
    assert_eq!(site.state(), taken_over(&state));
    let mode = fs::metadata(site.path(STATE)).expect("it").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    assert_eq!(cluster(site), before, "the same CA, nothing restarted");

    // With the kubeconfig lost as well, the new one is by the same CA.
    fs::remove_file(site.path(STATE)).expect("it is lost");
    fs::remove_file(site.path(KUBECONFIG)).expect("it is lost");
    site.run(&["up", "--recover", &id]).well();
    assert_eq!(site.state(), taken_over(&taken_over(&state)));
    assert_eq!(cluster(site), before, "the same CA, nothing restarted");
    assert!(site.is_ready());
}

/// Recovery wants the very nodes of the cluster (invariant 2): the same name, the same address.
fn another_inventory(site: &Site, id: &str) {
    let address = site.node().address();
    let [a, b, c, _] = address.octets();
    let second = format!("{a}.{b}.{c}.250");
    site.node()
        .sh(&format!("ip address add {second}/32 dev eth0"))
        .expect("a second address");
    let config = site.node().cluster_yml("lab").expect("a config");
    let renamed = config.replacen("hostname_override: n1", "hostname_override: n9", 1);
    let moved = config.replacen(&address.to_string(), &second, 1);
    let there = format!("`n1` is at {address} in the copy and at {second} in the config");
    for (other, words) in [
        (
            renamed,
            "do not name the same nodes: the config does not name `n1`",
        ),
        (moved, there.as_str()),
    ] {
        assert_ne!(other, config);
        site.write_config("cluster.yml", &other);
        for verb in [&["up", "--yes"][..], &["plan"]] {
            let args = [verb, &["--recover", id, "--accept-new-host-keys"]].concat();
            refused(site, &args, 1, &["cannot recover", words]);
        }
    }
    site.write_config("cluster.yml", &config);
    site.node()
        .sh(&format!("ip address del {second}/32 dev eth0"))
        .expect("it is taken away");
    assert!(!site.path(STATE).exists());
}

/// What is there and cannot be read is an error, and stays as it is.
fn a_state_that_cannot_be_read(site: &Site) {
    let before = cluster(site);
    let state = fs::read(site.path(STATE)).expect("the state");
    let id = site.cluster_id();
    let damages: [(&str, Vec<u8>); 4] = [
        ("garbage", b"\xff\xfe\x00 not a state".to_vec()),
        ("another document", b"{\"version\": 1}\n".to_vec()),
        ("truncated", state[..state.len() / 2].to_vec()),
        ("empty", Vec::new()),
    ];
    unharmed(site, &snapshot::alive(), || {
        for (what, damaged) in damages {
            fs::write(site.path(STATE), &damaged).expect("it is damaged");
            for args in [
                &["up", "--yes"][..],
                &["up", "--yes", "--recover", &id],
                &["plan"],
                &["plan", "--recover", &id],
                &["remove", "--force"],
            ] {
                let words = ["the state in", STATE, "cannot be read", "recover it"];
                let run = refused(site, args, 1, &words);
                assert!(!run.stderr.contains("PRIVATE KEY"), "{}", run.stderr);
                let now = fs::read(site.path(STATE)).expect("the state");
                assert!(now == damaged, "{what}: {args:?} touched it");
            }
        }
    });
    fs::write(site.path(STATE), state).expect("the copy is put back");
    assert_eq!(cluster(site), before);
}
