//! Real OpenSSH: a node whose name only the bastion host knows, a real agent that logs in to both,
//! and a snapshot of etcd. Then the same as a cluster of RKE: nothing of it is touched.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use lab::{Node, Profile};
use serde_json::{Value, json};

use crate::real::{Run, Site, snapshot};

/// OpenSSH's own agent, with the lab's key; it goes with the test.
pub(crate) struct Agent {
    socket: String,
    pid: String,
}

impl Agent {
    pub(crate) fn start(site: &Site) -> Self {
        let socket = site.path("agent").display().to_string();
        let output = Command::new("ssh-agent")
            .args(["-s", "-a", &socket])
            .output()
            .expect("ssh-agent runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let pid = said
            .split_once("SSH_AGENT_PID=")
            .and_then(|(_, rest)| rest.split(';').next())
            .expect("its process")
            .to_owned();
        let added = Command::new("ssh-add")
            .arg(site.lab.ssh_key())
            .env("SSH_AUTH_SOCK", &socket)
            .status()
            .expect("ssh-add runs");
        assert!(added.success());
        Self { socket, pid }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(&self.pid).status();
    }
}

/// The node's name is in no `known_hosts` of the lab.
pub(crate) fn run(site: &Site, agent: &Agent, args: &[&str]) -> Run {
    let mut command = site.command(args);
    command.arg("--accept-new-host-keys");
    command.env("SSH_AUTH_SOCK", &agent.socket);
    let output = command.output().expect("the binary runs");
    Run {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The node is its own bastion, and that one's: what is dialled from here is its address, and its names are only in
/// its own `/etc/hosts`.
fn config(node: &Node) -> String {
    let yaml = node.cluster_yml("lab").expect("a config");
    let mut config: Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let address = node.address().to_string();
    let entry = &mut config["nodes"][0];
    entry["address"] = "inside.lab".into();
    entry["internal_address"] = address.clone().into();
    entry["ssh_key_path"] = Value::Null;
    config["ssh_agent_auth"] = true.into();
    config["bastion_host"] = json!({
        "address": "middle.lab",
        "user": node.user(),
        "through": [{"address": address, "user": node.user()}],
    });
    config.to_string()
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let files = entries.filter(|entry| entry.path().is_file());
    files
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).expect("a file"))
        })
        .collect()
}

#[test]
fn a_node_behind_two_bastions_with_an_agent_is_made_saved_and_removed() {
    let site = Site::new("ways", Profile::Plain);
    let node = site.node();
    let agent = Agent::start(&site);
    node.sh(&format!(
        "echo '{} middle.lab inside.lab' >> /etc/hosts",
        node.address()
    ))
    .expect("a name");
    site.write_config("cluster.yml", &config(node));

    // RKE's containers and its state: refused before any write, here and there.
    node.sh(
        "docker pull --quiet library/nginx:1.26.3
         docker create --name kubelet --label io.rancher.rke.container.name=kubelet library/nginx:1.26.3
         mkdir -p /etc/kubernetes/ssl; echo theirs > /etc/kubernetes/ssl/kube-ca.pem",
    )
    .expect("what RKE leaves");
    let on_node = snapshot::take(node);
    let up = ["up", "--yes"];
    let refused = run(&site, &agent, &up);
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("node `n1` is part of a cluster of RKE v1: `kubelet`"),
        "{refused:?}"
    );
    site.write_config("cluster.rkestate", "{}");
    site.write_config("kube_config_cluster.yml", "theirs");
    let here = files(site.folder());
    for command in [&up[..], &["remove", "--force"]] {
        let refused = run(&site, &agent, command);
        assert_eq!(refused.status, 1, "{refused:?}");
    }
    assert_eq!(files(site.folder()), here);
    snapshot::unchanged(node, &on_node, &snapshot::alive());
    node.sh("docker rm kubelet; rm -r /etc/kubernetes")
        .expect("it is gone");
    fs::remove_file(site.path("cluster.rkestate")).expect("it is gone");
    fs::remove_file(site.path("kube_config_cluster.yml")).expect("it is gone");

    run(&site, &agent, &up).well();
    let before = Site::logins(node);
    let again = run(&site, &agent, &up).well();
    assert_eq!(
        Site::logins(node),
        before + 3,
        "one to each machine on the way"
    );
    assert!(
        again.stderr.contains("is up to date, nothing to do"),
        "{again:?}"
    );

    let save = ["etcd", "snapshot-save", "--name", "s1", "-o", "json"];
    let saved = run(&site, &agent, &save).well();
    let told: Value = serde_json::from_str(&saved.stdout).expect("JSON");
    assert_eq!(told["saved"]["n1"]["path"], "/opt/rke/etcd-snapshots/s1");
    let seen = node
        .sh("cd /opt/rke/etcd-snapshots; stat -c '%a %U %s' . s1; sha256sum s1; ls -A")
        .expect("the snapshot");
    assert!(seen.contains("700 root"), "{seen}");
    assert!(
        seen.contains(&format!("600 root {}", told["saved"]["n1"]["bytes"])),
        "{seen}"
    );
    assert!(seen.ends_with("\ns1"), "nothing else is left: {seen}");
    let taken = run(&site, &agent, &save);
    assert_eq!(taken.status, 1, "{taken:?}");
    let kept = node.sh("cd /opt/rke/etcd-snapshots; sha256sum s1; ls -A");
    assert!(
        seen.ends_with(&kept.expect("the snapshot")),
        "it is as it was"
    );

    // Without the config the inventory knows the way.
    fs::remove_file(site.path("cluster.yml")).expect("the config is gone");
    run(&site, &agent, &["remove", "--force"]).well();
    let left = node.sh("docker ps -aq; ls -A /opt/rke/etcd-snapshots");
    let left = left.expect("the node");
    let (last, first) = left.split_once('\n').expect("two files and no container");
    assert!(last.starts_with("before-removal_"), "{left}");
    assert_eq!(first, "s1", "snapshots stay");
}
